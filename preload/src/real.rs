//! The functions behind the hooks: the next definition in link order, found once by the constructor.
//! Until then, and if one is missing, the bare system call serves. Calls that may block go through
//! here rather than through `transport::sys`, because libc's are cancellation points.
//!
//! `redhook` was considered for this: it looks symbols up at the first call under a `Once` (not
//! re-entrant, not safe in a signal handler), has no variadics and no aliases, and unwinds; see
//! ARCHITECTURE.md.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};
use transport::sys::{Errno, Result};

/// A function of the next library, or null.
#[repr(C)] // the address comes first: it is read by assembly
#[derive(Debug)]
pub(crate) struct Next {
    at: AtomicPtr<c_void>,
    name: &'static CStr,
}

impl Next {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self {
            at: AtomicPtr::new(std::ptr::null_mut()),
            name,
        }
    }

    #[inline]
    pub(crate) fn get(&self) -> *mut c_void {
        self.at.load(Ordering::Relaxed)
    }

    fn resolve(&self) {
        // SAFETY: a lookup by C string; dlsym may allocate, which is why this is done in the
        // constructor and nowhere else.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.at.store(found, Ordering::Relaxed);
    }
}

/// Turns a result into what a C function returns, setting `errno`.
#[inline]
pub(crate) fn ret(r: Result<usize>) -> isize {
    match r {
        Ok(v) => v.cast_signed(),
        Err(e) => {
            set_errno(e.0);
            -1
        }
    }
}

/// [`ret`] for functions that return an int.
#[inline]
#[allow(clippy::cast_possible_truncation)]
pub(crate) fn ret_int(r: Result<usize>) -> c_int {
    ret(r) as c_int
}

/// Reads a C function's result back.
#[inline]
pub(crate) fn result(r: isize) -> Result<usize> {
    if r < 0 {
        Err(Errno(errno()))
    } else {
        Ok(r.cast_unsigned())
    }
}

pub(crate) fn errno() -> c_int {
    // SAFETY: libc's errno location is always valid for this thread.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set_errno(e: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = e };
}

/// Declares the next functions: `name(arg: type, …) -> type, syscall NUMBER`. Each gets a module-level
/// function that calls the next definition or, without one, the kernel.
macro_rules! next {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $out:ty, $nr:ident;)*) => {
        #[allow(non_upper_case_globals)]
        mod at {
            use super::Next;
            $(pub(crate) static $name: Next = Next::new(
                // SAFETY: the literal ends in its only NUL.
                unsafe { std::ffi::CStr::from_bytes_with_nul_unchecked(concat!(stringify!($name), "\0").as_bytes()) },
            );)*
            pub(crate) static ALL: &[&Next] = &[$(&$name,)*];
        }
        $(
            #[inline]
            pub(crate) unsafe fn $name($($arg: $ty),*) -> $out {
                let at = at::$name.get();
                if at.is_null() {
                    // SAFETY: the caller's arguments, as the function would pass them on.
                    return ret(unsafe { transport::syscall!($nr $(, $arg)*) }) as $out;
                }
                // SAFETY: this is libc's function of that name, whose signature is the one declared.
                unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($ty),*) -> $out>(at)($($arg),*) }
            }
        )*
    };
}

type Size = usize;
type Ssize = isize;
type Len = libc::socklen_t;

next! {
    read(fd: c_int, buf: *mut c_void, n: Size) -> Ssize, read;
    readv(fd: c_int, iov: *const libc::iovec, n: c_int) -> Ssize, readv;
    recvfrom(fd: c_int, buf: *mut c_void, n: Size, flags: c_int, addr: *mut libc::sockaddr, len: *mut Len) -> Ssize, recvfrom;
    recvmsg(fd: c_int, msg: *mut libc::msghdr, flags: c_int) -> Ssize, recvmsg;
    recvmmsg(fd: c_int, msgs: *mut libc::mmsghdr, n: u32, flags: c_int, t: *mut libc::timespec) -> c_int, recvmmsg;
    write(fd: c_int, buf: *const c_void, n: Size) -> Ssize, write;
    writev(fd: c_int, iov: *const libc::iovec, n: c_int) -> Ssize, writev;
    sendto(fd: c_int, buf: *const c_void, n: Size, flags: c_int, addr: *const libc::sockaddr, len: Len) -> Ssize, sendto;
    sendmsg(fd: c_int, msg: *const libc::msghdr, flags: c_int) -> Ssize, sendmsg;
    sendmmsg(fd: c_int, msgs: *mut libc::mmsghdr, n: u32, flags: c_int) -> c_int, sendmmsg;
    sendfile(out: c_int, from: c_int, offset: *mut i64, n: Size) -> Ssize, sendfile;
    splice(from: c_int, off_in: *mut i64, to: c_int, off_out: *mut i64, n: Size, flags: u32) -> Ssize, splice;
    preadv2(fd: c_int, iov: *const libc::iovec, n: c_int, offset: i64, flags: c_int) -> Ssize, preadv2;
    pwritev2(fd: c_int, iov: *const libc::iovec, n: c_int, offset: i64, flags: c_int) -> Ssize, pwritev2;
    socket(family: c_int, kind: c_int, protocol: c_int) -> c_int, socket;
    socketpair(family: c_int, kind: c_int, protocol: c_int, out: *mut c_int) -> c_int, socketpair;
    bind(fd: c_int, addr: *const libc::sockaddr, len: Len) -> c_int, bind;
    listen(fd: c_int, backlog: c_int) -> c_int, listen;
    accept(fd: c_int, addr: *mut libc::sockaddr, len: *mut Len) -> c_int, accept;
    accept4(fd: c_int, addr: *mut libc::sockaddr, len: *mut Len, flags: c_int) -> c_int, accept4;
    connect(fd: c_int, addr: *const libc::sockaddr, len: Len) -> c_int, connect;
    shutdown(fd: c_int, how: c_int) -> c_int, shutdown;
    getpeername(fd: c_int, addr: *mut libc::sockaddr, len: *mut Len) -> c_int, getpeername;
    getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut Len) -> c_int, getsockopt;
    setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: Len) -> c_int, setsockopt;
    close(fd: c_int) -> c_int, close;
    dup(fd: c_int) -> c_int, dup;
    dup2(fd: c_int, to: c_int) -> c_int, dup2;
    dup3(fd: c_int, to: c_int, flags: c_int) -> c_int, dup3;
    fcntl(fd: c_int, cmd: c_int, arg: usize) -> c_int, fcntl;
    ioctl(fd: c_int, request: usize, arg: usize) -> c_int, ioctl;
    openat(dir: c_int, path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int, openat;
    pipe(out: *mut c_int) -> c_int, pipe;
    pipe2(out: *mut c_int, flags: c_int) -> c_int, pipe2;
    poll(fds: *mut libc::pollfd, n: libc::nfds_t, ms: c_int) -> c_int, poll;
    ppoll(fds: *mut libc::pollfd, n: libc::nfds_t, t: *const libc::timespec, mask: *const libc::sigset_t) -> c_int, ppoll;
    epoll_create(size: c_int) -> c_int, epoll_create;
    epoll_create1(flags: c_int) -> c_int, epoll_create1;
    epoll_ctl(ep: c_int, op: c_int, fd: c_int, event: *mut libc::epoll_event) -> c_int, epoll_ctl;
    epoll_wait(ep: c_int, events: *mut libc::epoll_event, n: c_int, timeout: c_int) -> c_int, epoll_wait;
    epoll_pwait(ep: c_int, events: *mut libc::epoll_event, n: c_int, timeout: c_int, mask: *const libc::sigset_t) -> c_int, epoll_pwait;
    epoll_pwait2(ep: c_int, events: *mut libc::epoll_event, n: c_int, t: *const libc::timespec, mask: *const libc::sigset_t) -> c_int, epoll_pwait2;
    execve(path: *const c_char, argv: *const *const c_char, envp: *const *const c_char) -> c_int, execve;
    execveat(dir: c_int, path: *const c_char, argv: *const *const c_char, envp: *const *const c_char, flags: c_int) -> c_int, execveat;
    kill(pid: libc::pid_t, signal: c_int) -> c_int, kill;
    tgkill(process: libc::pid_t, thread: libc::pid_t, signal: c_int) -> c_int, tgkill;
    prlimit64(process: libc::pid_t, what: c_int, new: *const libc::rlimit, old: *mut libc::rlimit) -> c_int, prlimit64;
    prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int, prctl;
}

/// Functions that are only ever called by name in hooks of their own (no bare system call equals them).
pub(crate) mod other {
    use super::Next;
    macro_rules! others {
        ($($name:ident $text:literal,)*) => {
            $(#[allow(non_upper_case_globals)] pub(crate) static $name: Next = Next::new($text);)*
            pub(crate) static ALL: &[&Next] = &[$(&$name,)*];
        };
    }
    others! {
        select c"select",
        pselect c"pselect",
        vfork c"vfork",
        _Fork c"_Fork",
        clone c"clone",
        fdopen c"fdopen",
        chroot c"chroot",
        setuid c"setuid",
        seteuid c"seteuid",
        setreuid c"setreuid",
        setresuid c"setresuid",
        killpg c"killpg",
        raise c"raise",
        pthread_kill c"pthread_kill",
        sigqueue c"sigqueue",
        pthread_sigqueue c"pthread_sigqueue",
        abort c"abort",
        execvpe c"execvpe",
        fexecve c"fexecve",
        posix_spawn c"posix_spawn",
        posix_spawnp c"posix_spawnp",
        posix_spawn_file_actions_adddup2 c"posix_spawn_file_actions_adddup2",
        system c"system",
        popen c"popen",
        dprintf c"dprintf",
        vdprintf c"vdprintf",
        __dprintf_chk c"__dprintf_chk",
        __vdprintf_chk c"__vdprintf_chk",
        __cxa_at_quick_exit c"__cxa_at_quick_exit",
        syscall c"syscall",
        sigaction c"sigaction",
        pthread_cancel c"pthread_cancel",
        pthread_setcanceltype c"pthread_setcanceltype",
        pthread_testcancel c"pthread_testcancel",
        pthread_exit c"pthread_exit",
        thrd_exit c"thrd_exit",
        _pthread_cleanup_push c"_pthread_cleanup_push",
        _pthread_cleanup_pop c"_pthread_cleanup_pop",
        longjmp c"longjmp",
        _longjmp c"_longjmp",
        siglongjmp c"siglongjmp",
        __longjmp_chk c"__longjmp_chk",
        aio_read c"aio_read",
        aio_write c"aio_write",
        aio_read64 c"aio_read64",
        aio_write64 c"aio_write64",
        lio_listio c"lio_listio",
        lio_listio64 c"lio_listio64",
    }
}

/// Finds everything. Called by the constructor, before there is a second thread.
pub(crate) fn resolve() {
    for f in at::ALL.iter().chain(other::ALL) {
        f.resolve();
    }
}
