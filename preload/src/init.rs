//! The library's beginning: the constructor.

use crate::sockets::handover;
use crate::{environment, fork, real, report, rules, signals, table, world};
use std::ffi::{CStr, c_char, c_int, c_void};
use transport::{clock, settings, sys};

/// Runs before the program's own constructors; with `-z initfirst` before those of other libraries.
extern "C" fn constructor(argc: c_int, argv: *const *const c_char, envp: *const *const c_char) {
    real::resolve();
    // SAFETY: the loader passes the program's environment, which nobody else looks at yet.
    let unread = unsafe {
        let unread = environment::take(envp, handover::VARIABLE.as_bytes());
        environment::init(envp);
        unread
    };
    // SAFETY: the loader passes the program's vectors, each ended by null.
    let (arguments, environment) = unsafe {
        (
            strings(argv, argc.max(0).cast_unsigned() as usize),
            strings(envp, usize::MAX),
        )
    };
    let pairs = environment.iter().filter_map(|e| e.split_once('='));
    let (settings, complaints) = settings::read(pairs);
    for line in complaints {
        complain(&line);
    }
    clock::calibrate();
    sys::barrier::register();
    crate::sockets::lock::init();
    table::init();
    world::lock().pool.init();
    sys::fd::observe(table::observe_hidden);
    sys::fd::prepare();
    sys::section::observe(crate::signals::thread::enter, crate::signals::thread::leave);
    report::init(settings.report.as_deref(), program(&arguments));
    if let Some(file) = &settings.rules {
        rules::init(file, arguments.first().map_or("", String::as_str));
    }
    world::set_settings(settings);
    crate::sockets::uring::init();
    if let Some(unread) = unread {
        handover::adopt(&unread);
    }
    crate::sockets::listener::note_all();
    signals::init();
    fork::init();
    before_quick_exit();
    world::set_pid(sys::pid());
}

/// `quick_exit` runs no destructors, and ends the process by a name of libc's own. (What is registered first runs last.)
fn before_quick_exit() {
    extern "C" fn ends(_: *mut c_void) {
        destructor();
    }
    let register = crate::real::other::__cxa_at_quick_exit.get();
    if !register.is_null() {
        // SAFETY: libc's function of this name; what it registers for no library is never taken out.
        unsafe {
            std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(extern "C" fn(*mut c_void), *mut c_void) -> c_int,
            >(register)(ends, std::ptr::null_mut());
        }
    }
}

extern "C" fn destructor() {
    if !world::is_foreign() {
        crate::sockets::wired::parting::at_exit(true);
        report::write();
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = constructor;

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = destructor;

/// # Safety
/// `v` is null or an array of C strings, ended by null or `most` long.
unsafe fn strings(v: *const *const c_char, most: usize) -> Vec<String> {
    let mut out = Vec::new();
    if v.is_null() {
        return out;
    }
    for i in 0..most {
        // SAFETY: not past the end, by the caller's promise.
        let at = unsafe { *v.add(i) };
        if at.is_null() {
            break;
        }
        // SAFETY: a C string.
        out.push(unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned());
    }
    out
}

fn program(arguments: &[String]) -> String {
    let first = arguments.first().map_or("", String::as_str);
    first.rsplit('/').next().unwrap_or(first).to_owned()
}

/// One line on standard error.
pub(crate) fn complain(line: &str) {
    let text = format!("{line}\n");
    // SAFETY: readable for its length.
    let _ = unsafe { transport::syscall!(write, 2, text.as_ptr(), text.len()) };
}
