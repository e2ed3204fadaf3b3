//! Calls that start another program: exec in all its forms, posix_spawn, system and popen. Streams that the
//! new program will hold go back to kernel TCP first; bytes of them that are kept here are announced to
//! it (`handover`), and its environment is made complete (`environment`).
//!
//! All may be called in a child that borrows its parent's memory (vfork). Answers, errors too, are the
//! kernel's and libc's.

use super::limits::AsSet;
use crate::environment::{self, Words};
use crate::real::{self, other, set_errno};
use crate::sockets::cut;
use crate::sockets::demote::{Unread, begin_many, demote, demote_one_of_many};
use crate::sockets::{handover, wired};
use crate::{report, table, world};
use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use transport::reason::Reason;
use transport::sys::net;
use transport::syscall;

unsafe extern "C" {
    static environ: Words;
}

/// The longest string that a program can be given (MAX_ARG_STRLEN of the kernel).
const LONGEST: usize = 128 * 1024;

fn own_environment() -> Words {
    // SAFETY: libc's variable; a program that changes it beside this call has a race of its own.
    unsafe { environ }
}

/// Whether the number stands for a TCP socket, where that is not sure: a child that borrows its parent's
/// memory may have closed what the parent has, and opened something else there.
pub(super) fn is_it(fd: c_int) -> bool {
    !world::is_foreign()
        || net::option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL) == Ok(libc::IPPROTO_TCP)
}

/// Descriptors that the program to be started does not get, as their peers do not let them go back to the kernel (`wired::leave_all`).
struct Withheld(Vec<wired::Held>);

impl Withheld {
    fn set(fd: c_int, flags: c_int) {
        // SAFETY: no pointers.
        let _ = unsafe { syscall!(fcntl, fd, libc::F_SETFD, flags) };
    }
}

impl Drop for Withheld {
    /// (Only that flag there is, and it was not set. The number may stand for something else by now.)
    fn drop(&mut self) {
        let e = real::errno();
        let still = |&&(s, fd): &&wired::Held| s.is_own(fd);
        self.0
            .iter()
            .filter(still)
            .for_each(|&(_, fd)| Self::set(fd, 0));
        set_errno(e);
    }
}

/// Every stream whose descriptor a new program will inherit goes back to the kernel. `starts`: this process goes on beside that.
fn leave_inheritable(starts: bool) -> Withheld {
    let e = real::errno();
    begin_many();
    let mut carried = Vec::new();
    table::each(0, u32::MAX, |fd, entry| {
        if let table::Entry::Socket(s) = entry {
            if !handover::stays(fd) || !is_it(fd) {
                return;
            }
            if wired::is_wired(s) {
                carried.push((s, fd));
            } else {
                demote_one_of_many(s, fd, Reason::Exec, Unread::GiveBack);
            }
        }
    });
    let mut withheld = Withheld(Vec::new());
    if !carried.is_empty() {
        let goes_on = starts || world::is_foreign();
        withheld.0 = wired::leave_all(&carried, |s| goes_on || s.has_others());
        let all = withheld.0.iter();
        all.for_each(|&(_, fd)| Withheld::set(fd, libc::FD_CLOEXEC));
    }
    set_errno(e);
    withheld
}

/// Before this process becomes another program.
fn before_exec() -> Withheld {
    let withheld = leave_inheritable(false);
    if !world::is_foreign() {
        wired::parting::at_exit(false);
        cut::before_end();
        report::write();
    }
    withheld
}

/// Makes the call that starts a program, or that this process `becomes`, with its environment, made complete.
fn with_environment<R>(
    envp: Words,
    becomes: bool,
    is_too_big: impl Fn(&R) -> bool,
    mut call: impl FnMut(Words) -> R,
) -> R {
    let e = real::errno();
    let plan = environment::plan(envp);
    let kept = plan
        .as_ref()
        .filter(|p| p.has_library())
        .and_then(|_| handover::announce(becomes));
    set_errno(e);
    let r = match plan {
        Some(plan) => {
            let kept = kept.as_ref().map(handover::Announcement::text);
            plan.apply(envp, kept, is_too_big, call)
        }
        None => call(envp),
    };
    let e = real::errno();
    drop(kept);
    set_errno(e);
    r
}

/// exec with an environment: what comes back is a failure.
fn exec(envp: Words, call: impl FnMut(Words) -> c_int) -> c_int {
    let withheld = before_exec();
    let is_too_big = |r: &c_int| *r < 0 && real::errno() == libc::E2BIG;
    let mut call = call;
    let r = with_environment(envp, !world::is_foreign(), is_too_big, |envp| {
        let limits = AsSet::now();
        let r = call(envp);
        let e = real::errno();
        drop(limits);
        set_errno(e);
        r
    });
    drop(withheld);
    if !world::is_foreign() {
        wired::parting::go_on();
        cut::go_on();
    }
    r
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(path: *const c_char, argv: Words, envp: Words) -> c_int {
    // SAFETY: the program's arguments, passed on.
    exec(envp, |envp| unsafe { real::execve(path, argv, envp) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execveat(
    dir: c_int,
    path: *const c_char,
    argv: Words,
    envp: Words,
    flags: c_int,
) -> c_int {
    exec(envp, |envp| {
        // SAFETY: the program's arguments, passed on.
        unsafe { real::execveat(dir, path, argv, envp, flags) }
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, argv: Words) -> c_int {
    // SAFETY: execv is execve with the program's environment.
    unsafe { execve(path, argv, own_environment()) }
}

/// Calls libc's function of a name; what to return if there is none.
macro_rules! libcs {
    ($name:ident($($arg:expr => $ty:ty),*) -> $out:ty, else $none:expr) => {{
        let next = other::$name.get();
        if next.is_null() {
            set_errno(libc::ENOSYS);
            $none
        } else {
            // SAFETY: libc's function of this name has this signature; the program's arguments.
            unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($ty),*) -> $out>(next)($($arg),*) }
        }
    }};
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(file: *const c_char, argv: Words, envp: Words) -> c_int {
    exec(
        envp,
        |envp| libcs!(execvpe(file => *const c_char, argv => Words, envp => Words) -> c_int, else -1),
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const c_char, argv: Words) -> c_int {
    // SAFETY: execvp is execvpe with the program's environment.
    unsafe { execvpe(file, argv, own_environment()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fexecve(fd: c_int, argv: Words, envp: Words) -> c_int {
    exec(
        envp,
        |envp| libcs!(fexecve(fd => c_int, argv => Words, envp => Words) -> c_int, else -1),
    )
}

/// syscall(2) with execve or execveat.
///
/// # Safety
/// The words are the program's arguments for this call.
pub(super) unsafe fn raw(nr: c_long, words: [usize; 5]) -> Option<c_long> {
    use std::ptr::with_exposed_provenance as at;
    let [a, b, c, d, e] = words;
    #[allow(clippy::cast_possible_truncation)]
    let int = |word: usize| word as c_int;
    // SAFETY: as the functions of these names take them.
    let r = unsafe {
        match nr {
            libc::SYS_execve => execve(at(a), at(b), at(c)),
            libc::SYS_execveat => execveat(int(a), at(b), at(c), at(d), int(e)),
            _ => return None,
        }
    };
    Some(r.into())
}

/// The forms with their arguments in a row. Those that came in registers are put on the stack below the
/// others, where the caller's return address was: there the list lies as execv wants it, however long it
/// is, and nothing is copied.
#[cfg(target_arch = "x86_64")]
mod listed {
    use super::{Words, execve, execvp, own_environment};
    use std::ffi::{c_char, c_int};

    macro_rules! lists {
        ($($name:ident $served:ident;)*) => {$(
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() {
                std::arch::naked_asm!(
                    "pop rax", // the return address; the stack is aligned to 16 now
                    "push r9", "push r8", "push rcx", "push rdx", "push rsi",
                    "mov rsi, rsp",
                    "push rax",
                    "call {served}",
                    "pop rcx",
                    "add rsp, 40",
                    "push rcx",
                    "ret",
                    served = sym $served,
                )
            }
        )*};
    }

    lists! {
        execl serve_execl;
        execlp serve_execlp;
        execle serve_execle;
    }

    unsafe extern "C" fn serve_execl(path: *const c_char, list: Words) -> c_int {
        // SAFETY: the program's arguments, up to its null.
        unsafe { execve(path, list, own_environment()) }
    }

    unsafe extern "C" fn serve_execlp(file: *const c_char, list: Words) -> c_int {
        // SAFETY: as above.
        unsafe { execvp(file, list) }
    }

    unsafe extern "C" fn serve_execle(path: *const c_char, list: Words) -> c_int {
        let mut end = list;
        // SAFETY: the arguments end with null, and the environment follows it.
        unsafe {
            while !(*end).is_null() {
                end = end.add(1);
            }
            execve(path, list, end.add(1).cast::<Words>().read())
        }
    }
}

/// posix_spawn and posix_spawnp, which return the error.
macro_rules! spawns {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            pid: *mut c_int,
            path: *const c_char,
            actions: *const c_void,
            attributes: *const c_void,
            argv: Words,
            envp: Words,
        ) -> c_int {
            let _withheld = leave_inheritable(true);
            with_environment(envp, false, |r| *r == libc::E2BIG, |envp| {
                libcs!($name(
                    pid => *mut c_int, path => *const c_char, actions => *const c_void,
                    attributes => *const c_void, argv => Words, envp => Words
                ) -> c_int, else libc::ENOSYS)
            })
        }
    )*};
}

spawns! { posix_spawn posix_spawnp }

/// The child that is going to be spawned will hold what the descriptor stands for, by another number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawn_file_actions_adddup2(
    actions: *mut c_void,
    fd: c_int,
    to: c_int,
) -> c_int {
    if let Some(s) = table::socket(fd) {
        let e = real::errno();
        demote(s, fd, Reason::Exec, Unread::GiveBack);
        set_errno(e);
    }
    libcs!(posix_spawn_file_actions_adddup2(
        actions => *mut c_void, fd => c_int, to => c_int
    ) -> c_int, else libc::ENOSYS)
}

/// Calls with a command for the shell, which gets this process's own environment: libc passes it on as it
/// is, and changing it here would be seen by other threads. What has to be added is therefore set by
/// the shell itself, before it becomes the one that the program has asked for.
fn by_shell<R>(command: *const c_char, call: impl FnOnce(*const c_char) -> R) -> R {
    let _withheld = leave_inheritable(true);
    if command.is_null() {
        return call(command);
    }
    let e = real::errno();
    let plan = environment::plan(own_environment());
    let kept = plan
        .as_ref()
        .filter(|p| p.has_library())
        .and_then(|_| handover::announce(false));
    let text = plan.and_then(|plan| {
        let kept = kept.as_ref().map(handover::Announcement::text);
        // SAFETY: the program's command.
        completed(plan.missing().chain(kept), unsafe {
            CStr::from_ptr(command)
        })
    });
    set_errno(e);
    let r = call(text.as_ref().map_or(command, |t| t.as_ptr().cast()));
    let e = real::errno();
    drop((text, kept));
    set_errno(e);
    r
}

/// The command that sets these variables first, ended by NUL. `None` if there are none, or it would be
/// too long.
fn completed<'a>(added: impl Iterator<Item = &'a CStr>, command: &CStr) -> Option<Vec<u8>> {
    let mut text = b"export".to_vec();
    let mut any = false;
    for pair in added {
        let pair = pair.to_bytes();
        let at = pair.iter().position(|&b| b == b'=')?;
        let (name, value) = (pair.get(..at)?, pair.get(at + 1..)?);
        // (what a shell cannot name, it cannot set)
        if name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_') {
            text.push(b' ');
            text.extend_from_slice(name);
            text.push(b'=');
            quote(&mut text, value);
            any = true;
        }
    }
    text.extend_from_slice(b"; exec /bin/sh -c -- ");
    quote(&mut text, command.to_bytes());
    text.extend_from_slice(b" sh\0");
    (any && text.len() <= LONGEST).then_some(text)
}

/// One word for the shell.
fn quote(text: &mut Vec<u8>, word: &[u8]) {
    text.push(b'\'');
    for &b in word {
        if b == b'\'' {
            text.extend_from_slice(b"'\\''");
        } else {
            text.push(b);
        }
    }
    text.push(b'\'');
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn system(command: *const c_char) -> c_int {
    by_shell(
        command,
        |command| libcs!(system(command => *const c_char) -> c_int, else -1),
    )
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn popen(command: *const c_char, kind: *const c_char) -> *mut c_void {
    by_shell(command, |command| {
        libcs!(popen(
            command => *const c_char, kind => *const c_char
        ) -> *mut c_void, else std::ptr::null_mut())
    })
}
