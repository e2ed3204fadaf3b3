//! The library's beginning: the constructor, and what happens around fork.

use crate::sockets::demote::{Unread, begin_many, demote_held};
use crate::sockets::{Phase, Socket};
use crate::{alloc, real, report, signals, table, world};
use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicU64, Ordering};
use transport::reason::Reason;
use transport::{clock, settings, sys};

/// Runs before the program's own constructors; with `-z initfirst` before those of other libraries.
extern "C" fn constructor(argc: c_int, argv: *const *const c_char, envp: *const *const c_char) {
    real::resolve();
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
    report::init(settings.report.as_deref(), program(&arguments));
    world::set_settings(settings);
    signals::init();
    // SAFETY: the three handlers are of the right type and live for ever.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(in_parent), Some(in_child)) };
    world::set_pid(sys::pid());
}

extern "C" fn destructor() {
    if !world::is_foreign() {
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

fn complain(line: &str) {
    let text = format!("{line}\n");
    // SAFETY: readable for its length.
    let _ = unsafe { transport::syscall!(write, 2, text.as_ptr(), text.len()) };
}

/// The signal mask while fork is under way.
static MASK: AtomicU64 = AtomicU64::new(0);

/// Before fork: every stream goes back to the kernel, where sharing it is the kernel's business; then
/// nobody is inside the registry or the heap while they are copied.
extern "C" fn before_fork() {
    let mask = world::raw().hold();
    MASK.store(mask, Ordering::Relaxed);
    // SAFETY: held just above, and no other reference is alive in this thread.
    let w = unsafe { world::raw().held() };
    let mut streams: Vec<(&'static Socket, i32)> = Vec::new();
    table::each(0, u32::MAX, |fd, entry| {
        if let table::Entry::Socket(s) = entry
            && matches!(s.phase(), Phase::Fresh | Phase::Announced | Phase::Attached)
        {
            streams.push((s, fd));
        }
    });
    begin_many();
    for &(s, fd) in &streams {
        demote_held(w, s, fd, Reason::Forked, Unread::GiveBack);
    }
    drop(streams);
    alloc::OWN.hold();
}

extern "C" fn in_parent() {
    alloc::OWN.let_go();
    world::raw().let_go(MASK.load(Ordering::Relaxed));
}

extern "C" fn in_child() {
    alloc::OWN.let_go();
    world::set_pid(sys::pid());
    // SAFETY: held since `before_fork`, and there is no other thread.
    let w = unsafe { world::raw().held() };
    w.pool.each(|s| {
        s.tx.reset();
        s.rx.reset();
        s.sleepers.store(0, Ordering::Relaxed);
        s.roomers.store(0, Ordering::Relaxed);
        s.waiters.store(0, Ordering::Relaxed);
        // What the parent has carried is in the parent's report.
        for c in [
            &s.record.bytes_sent,
            &s.record.bytes_received,
            &s.record.messages_sent,
            &s.record.messages_received,
        ] {
            c.store(0, Ordering::Relaxed);
        }
    });
    crate::sockets::rouse::restart();
    for set in &w.sets {
        set.reset();
    }
    // The client side belongs to the parent: its slots are handed out there. So does the kernel's
    // answering machine, whose answers would be mixed up.
    w.targets = None;
    w.diag = None;
    w.pool.rename();
    report::restart(w);
    for family in w.families.iter_mut().flatten() {
        family.join();
    }
    world::raw().let_go(MASK.load(Ordering::Relaxed));
}
