//! Calls that end a program, and those that take the process out of the library's sight: streams go back to
//! kernel TCP first. (`exec` has those that start another.)

use super::forks;
use crate::epoll::registered;
use crate::real::{self, other, set_errno};
use crate::report::before_leaving;
use crate::sockets::close::forget;
use crate::sockets::demote::{Unread, demote};
use crate::sockets::lock::is_single_threaded;
use crate::sockets::{Phase, apart, listener, uring};
use crate::{guard, report, service, table, world};
use std::ffi::{c_char, c_int, c_long, c_void};
use std::sync::atomic::Ordering;
use transport::reason::Reason;
use transport::syscall;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn chroot(path: *const c_char) -> c_int {
    before_leaving();
    let next = other::chroot.get();
    // SAFETY: libc has it, with this signature.
    unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const c_char) -> c_int>(next)(path)
    }
}

/// Variadic functions before which something has to be done: every argument register is kept, the stack
/// is as the caller left it, and the next definition is jumped to.
#[cfg(target_arch = "x86_64")]
mod variadic {
    use super::super::fds::by_stdio;
    use crate::real::other;
    use crate::world;
    use std::ffi::c_int;

    macro_rules! jump {
        ($($name:ident $before:ident $next:ident;)*) => {$(
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() {
                std::arch::naked_asm!(
                    "push rbp",
                    "mov rbp, rsp",
                    "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax",
                    "sub rsp, 136",
                    "movdqu [rsp], xmm0", "movdqu [rsp+16], xmm1", "movdqu [rsp+32], xmm2",
                    "movdqu [rsp+48], xmm3", "movdqu [rsp+64], xmm4", "movdqu [rsp+80], xmm5",
                    "movdqu [rsp+96], xmm6", "movdqu [rsp+112], xmm7",
                    "call {before}",
                    "mov r11, [rip + {next}]",
                    "movdqu xmm0, [rsp]", "movdqu xmm1, [rsp+16]", "movdqu xmm2, [rsp+32]",
                    "movdqu xmm3, [rsp+48]", "movdqu xmm4, [rsp+64]", "movdqu xmm5, [rsp+80]",
                    "movdqu xmm6, [rsp+96]", "movdqu xmm7, [rsp+112]",
                    "add rsp, 136",
                    "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
                    "pop rbp",
                    "jmp r11",
                    before = sym $before,
                    next = sym other::$next,
                )
            }
        )*};
    }

    /// The child borrows the parent's memory until it executes something. It is noted that this thread has parted (`world::parts`): what
    /// the child does to its descriptors is told apart by its process id (`world::is_foreign`).
    #[unsafe(no_mangle)]
    #[unsafe(naked)]
    pub unsafe extern "C" fn vfork() -> c_int {
        std::arch::naked_asm!(
            "mov r11, fs:[0]",
            "mov [rip + {parted}], r11",
            "mov r11, [rip + {next}]",
            "jmp r11",
            parted = sym world::PARTED,
            next = sym other::vfork,
        )
    }

    extern "C" fn printing(fd: c_int) {
        by_stdio(fd);
    }

    jump! {
        dprintf printing dprintf;
        __dprintf_chk printing __dprintf_chk;
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    if !world::is_foreign() {
        crate::sockets::wired::parting::at_exit(true);
        report::write();
    }
    // SAFETY: ends the process.
    let _ = unsafe { syscall!(exit_group, status) };
    std::process::abort()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Exit(status: c_int) -> ! {
    // SAFETY: an alias.
    unsafe { _exit(status) }
}

/// PR_SET_SYSCALL_USER_DISPATCH
const SYSCALL_USER_DISPATCH: c_int = 59;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    enter_by_prctl(option.cast_unsigned() as usize, a, b);
    if option == SYSCALL_USER_DISPATCH {
        guard::forbid(); // there is one for each thread, and the program wants it
    }
    // SAFETY: the program's arguments, passed on.
    unsafe { real::prctl(option, a, b, c, d) }
}

/// prctl(2) with these arguments; a filter that is none is refused.
fn enter_by_prctl(option: usize, mode: usize, filter: usize) {
    let strict = mode == libc::SECCOMP_MODE_STRICT as usize;
    if option == libc::PR_SET_SECCOMP as usize && (strict || filter != 0) {
        enter_sandbox();
    }
}

/// A sandbox may kill the process for a system call that the program itself never makes: what is to be
/// done is done while that is still allowed. From then on no connection is made or accepted with the library: clients
/// find no board any more, and no new socket is followed.
fn enter_sandbox() {
    guard::forbid();
    leave_all(Reason::Seccomp);
    let e = real::errno();
    crate::report::before_sandbox();
    table::each(0, u32::MAX, |fd, entry| {
        if let table::Entry::Socket(s) = entry
            && matches!(s.phase(), Phase::Idle | Phase::Listening)
            && !listener::is_wired(s)
            && s.waiters.load(Ordering::Acquire) == 0
        {
            registered::detached(&mut world::lock(), s, fd); // (its descriptor stays in the program's sets)
            forget(fd);
        }
    });
    set_errno(e);
}

/// seccomp(2) with these arguments limits the process. (Libraries ask it what there is, first.)
const fn is_limiting(operation: usize, filter: usize) -> bool {
    match operation {
        SECCOMP_STRICT => true,
        SECCOMP_FILTER => filter != 0,
        _ => false,
    }
}

const SECCOMP_STRICT: usize = 0; // SECCOMP_SET_MODE_STRICT
const SECCOMP_FILTER: usize = 1; // SECCOMP_SET_MODE_FILTER

/// Every stream goes back to the kernel.
fn leave_all(why: Reason) {
    let e = real::errno();
    if why == Reason::Seccomp {
        crate::signals::sandboxed();
    }
    let ends = why != Reason::AsyncIo;
    if ends {
        crate::mapper::end();
    }
    // (whoever reads by a ring does not see what is kept here)
    let unread = match why {
        Reason::AsyncIo => Unread::GiveBack,
        _ => Unread::Keep,
    };
    table::each(0, u32::MAX, |fd, entry| {
        if let table::Entry::Socket(s) = entry {
            demote(s, fd, why, unread);
        }
    });
    // (nor may a thread of ours keep what all others close)
    if ends {
        crate::sockets::wired::mover::end(); // (not before: it answers for ends that this very process has)
    }
    set_errno(e);
}

/// A connection begins. Why it is the kernel's, if it is: this process may have a ring of io_uring, or several tables of descriptors.
pub(super) fn goes_round() -> Option<Reason> {
    if uring::is_found() {
        leave_all(Reason::AsyncIo);
    }
    apart::reason()
}

/// A call by which this thread gets a table of descriptors of its own, if it is not the only one that has this. `kernel` is told whether to
/// ask for that.
pub(super) fn with_own_files(kernel: impl FnOnce(bool) -> c_int) -> c_int {
    if !world::is_ready() || is_single_threaded() || apart::is_own() || world::is_foreign() {
        return kernel(true);
    }
    // (threads of ours, which work on the program's descriptors, go on with its table; nobody else has that)
    if !forks::may_share_files() && !crate::signals::is_sandboxed() && service::is_program_alone() {
        return kernel(false);
    }
    apart::note();
    leave_all(Reason::Unshared);
    let r = kernel(true);
    if r == 0 {
        apart::begin();
    }
    r
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn unshare(flags: c_int) -> c_int {
    let kernel = |flags: c_int| {
        // SAFETY: no pointers.
        real::ret_int(unsafe { syscall!(unshare, flags) })
    };
    if flags & libc::CLONE_FILES == 0 {
        return kernel(flags);
    }
    with_own_files(|files| {
        kernel(if files {
            flags
        } else {
            flags & !libc::CLONE_FILES
        })
    })
}

/// syscall(2), with its arguments as words. What the library serves by name it serves here too; other
/// calls on a stream go round the library, and it has to be the kernel's before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    nr: c_long,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
) -> c_long {
    // SAFETY: the program's words for this call.
    if let Some(r) = unsafe { super::raw::serve(nr, [a, b, c, d, e, f]) } {
        return r;
    }
    match nr {
        libc::SYS_io_submit => {
            super::transfer::before_submit(b, std::ptr::with_exposed_provenance(c));
        }
        libc::SYS_seccomp if is_limiting(a, c) => enter_sandbox(),
        libc::SYS_prctl => enter_by_prctl(a, b, c),
        // SAFETY: no pointers.
        #[allow(clippy::cast_possible_truncation)]
        libc::SYS_unshare => return unsafe { unshare(a as c_int) }.into(),
        #[allow(clippy::cast_possible_truncation)]
        libc::SYS_pidfd_getfd => {
            // SAFETY: no pointers.
            return unsafe { super::fetched::pidfd_getfd(a as c_int, b as c_int, c as u32) }.into();
        }
        libc::SYS_execve | libc::SYS_execveat => {
            // SAFETY: the program's words for this call.
            if let Some(r) = unsafe { super::exec::raw(nr, [a, b, c, d, e]) } {
                return r;
            }
        }
        #[allow(clippy::cast_possible_truncation)]
        libc::SYS_rt_sigaction => {
            // SAFETY: the program's words for this call.
            if let Some(r) = unsafe { super::signals::raw(a as c_int, b, c, d) } {
                return r;
            }
        }
        _ => {}
    }
    let next = other::syscall.get();
    if !next.is_null() {
        // SAFETY: libc's function; words are passed in the registers and stack slots it reads.
        let kernel = || unsafe {
            std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long,
            >(next)(nr, a, b, c, d, e, f)
        };
        let r = super::forks::serve(nr, a, b, kernel);
        if nr == libc::SYS_io_uring_setup && r >= 0 {
            uring::note(); // (where rings are forbidden nothing changes)
            leave_all(Reason::AsyncIo);
        }
        return r;
    }
    set_errno(libc::ENOSYS);
    -1
}
