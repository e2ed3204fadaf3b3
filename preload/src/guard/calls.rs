//! What each system call writes to in the program's memory: all that has to be known to let it happen
//! while something is protected. What is not listed here, or reaches further than its words say, is
//! [`Plan::Unknown`].

use std::ops::Range;
use transport::sys::{Errno, Sysno};
use transport::syscall;

/// Ranges as address and length; those of length 0 are not there.
pub(super) type Places = [(usize, usize); 4];

/// What is to be done about a call.
#[derive(Debug)]
pub(super) enum Plan {
    /// It writes to these places at most.
    Writes(Places),
    /// It puts other memory, or none, where this range was.
    Replaces(Range<usize>),
    /// It changes the signal mask.
    Mask,
    /// It ends the process.
    Ends,
    /// Anything may happen.
    Unknown,
}

const NOTHING: Places = [(0, 0); 4];

const fn one(at: usize, len: usize) -> Plan {
    Plan::Writes([(at, len), (0, 0), (0, 0), (0, 0)])
}

const fn two(a: (usize, usize), b: (usize, usize)) -> Plan {
    Plan::Writes([a, b, (0, 0), (0, 0)])
}

const POLLFD: usize = size_of::<libc::pollfd>();
const EVENT: usize = size_of::<libc::epoll_event>();
const STAT: usize = size_of::<libc::stat>();
const TIME: usize = size_of::<libc::timespec>();
const FD_SET: usize = size_of::<libc::fd_set>();
const USAGE: usize = size_of::<libc::rusage>();
const ADDRESS: usize = size_of::<libc::sockaddr_storage>();
const INFO: usize = size_of::<libc::siginfo_t>();
/// More than any fixed structure that fcntl and the usual requests of ioctl fill.
const LITTLE: usize = 64;

/// Reads the program's memory, which may not be there.
fn fetch<T: Copy, const N: usize>(at: usize, count: usize, zero: T) -> Option<[T; N]> {
    let mut out = [zero; N];
    let len = count.min(N) * size_of::<T>();
    let to = libc::iovec {
        iov_base: out.as_mut_ptr().cast(),
        iov_len: len,
    };
    let from = libc::iovec {
        iov_base: std::ptr::with_exposed_provenance_mut(at),
        iov_len: len,
    };
    // SAFETY: `to` is ours and large enough; the kernel checks `from`.
    let got = unsafe {
        let me = transport::sys::pid();
        syscall!(
            process_vm_readv,
            me,
            &raw const to,
            1,
            &raw const from,
            1,
            0
        )
    };
    (got == Ok(len)).then_some(out)
}

/// The buffers of a vector, if it is a short one.
fn vector(at: usize, count: usize) -> Plan {
    let none = libc::iovec {
        iov_base: std::ptr::null_mut(),
        iov_len: 0,
    };
    if count == 0 || count > NOTHING.len() {
        return Plan::Unknown;
    }
    let Some(parts) = fetch::<_, 4>(at, count, none) else {
        return Plan::Unknown;
    };
    Plan::Writes(parts.map(|part| (part.iov_base.addr(), part.iov_len)))
}

fn memory_map(words: [usize; 6]) -> Plan {
    let [at, len, _, flags, ..] = words;
    const FIXED: usize = libc::MAP_FIXED as usize;
    if flags & FIXED == 0 {
        return Plan::Writes(NOTHING);
    }
    replaces(at, len)
}

fn replaces(at: usize, len: usize) -> Plan {
    if !at.is_multiple_of(super::PAGE) {
        return Plan::Writes(NOTHING); // the kernel will refuse it
    }
    let end = at.saturating_add(len).checked_next_multiple_of(super::PAGE);
    end.map_or(Plan::Unknown, |end| Plan::Replaces(at..end))
}

/// The end of the heap moves; what it leaves is given back as it is.
fn heap_end(to: usize) -> Plan {
    // SAFETY: only asks.
    let now = unsafe { syscall!(brk, 0) };
    match now {
        Ok(now) if to < now && to != 0 => one(to, now - to),
        _ => Plan::Writes(NOTHING),
    }
}

fn control(request: usize, argument: usize) -> Plan {
    let request = (request & 0xffff_ffff) as libc::Ioctl;
    match request {
        libc::FIONREAD
        | libc::FIONBIO
        | libc::FIOCLEX
        | libc::FIONCLEX
        | libc::TCGETS
        | libc::TIOCGWINSZ
        | libc::TIOCGPGRP
        | libc::TIOCOUTQ => one(argument, LITTLE),
        _ => Plan::Unknown,
    }
}

/// Handlers of the two signals that the guard lives on are not changed behind its back.
fn action(signal: usize, old: usize) -> Plan {
    match i32::try_from(signal) {
        Ok(libc::SIGSEGV | libc::SIGSYS) | Err(_) => Plan::Unknown,
        Ok(_) => one(old, LITTLE),
    }
}

/// What a call does.
#[allow(clippy::match_same_arms)] // in the order of what they do
pub(super) fn plan(nr: usize, words: [usize; 6]) -> Plan {
    use Sysno as S;
    let [a, b, c, d, e, f] = words;
    let Some(call) = Sysno::new(nr) else {
        return Plan::Unknown;
    };
    match call {
        S::exit_group => Plan::Ends,
        S::rt_sigprocmask => Plan::Mask,
        S::rt_sigaction => action(a, c),

        // Memory itself.
        S::mmap => memory_map(words),
        S::munmap => replaces(a, b),
        S::mprotect | S::madvise | S::mlock | S::munlock | S::pkey_mprotect => one(a, b),
        S::mremap if d == libc::MREMAP_MAYMOVE.cast_unsigned() as usize || d == 0 => one(a, b),
        S::brk => heap_end(a),

        // Nothing, or nothing but the result.
        S::write
        | S::writev
        | S::pwrite64
        | S::pwritev
        | S::pwritev2
        | S::sendto
        | S::sendmsg
        | S::shutdown
        | S::close
        | S::lseek
        | S::dup
        | S::dup2
        | S::dup3
        | S::fsync
        | S::fdatasync
        | S::sync
        | S::ftruncate
        | S::fallocate
        | S::access
        | S::faccessat
        | S::faccessat2
        | S::open
        | S::openat
        | S::creat
        | S::mkdir
        | S::mkdirat
        | S::rmdir
        | S::unlink
        | S::unlinkat
        | S::rename
        | S::renameat
        | S::renameat2
        | S::chdir
        | S::fchdir
        | S::chmod
        | S::fchmod
        | S::fchmodat
        | S::umask
        | S::flock
        | S::socket
        | S::bind
        | S::listen
        | S::connect
        | S::setsockopt
        | S::epoll_create
        | S::epoll_create1
        | S::epoll_ctl
        | S::eventfd
        | S::eventfd2
        | S::timerfd_create
        | S::inotify_init1
        | S::inotify_add_watch
        | S::memfd_create
        | S::getpid
        | S::getppid
        | S::gettid
        | S::getuid
        | S::geteuid
        | S::getgid
        | S::getegid
        | S::getpgrp
        | S::getpgid
        | S::getsid
        | S::sched_yield
        | S::kill
        | S::tkill
        | S::tgkill
        | S::alarm
        | S::pause
        | S::rt_sigsuspend
        | S::membarrier
        | S::getpriority
        | S::fadvise64
        | S::msync => Plan::Writes(NOTHING),

        // Buffers.
        S::read | S::pread64 | S::getdents64 | S::readlink => one(b, c),
        S::readlinkat => one(c, d),
        S::getrandom | S::getcwd => one(a, b),
        S::readv | S::preadv | S::preadv2 => vector(b, c),
        S::recvfrom => Plan::Writes([(b, c), (e, ADDRESS), (f, 4), (0, 0)]),

        // Structures.
        S::futex => two((a, 4), (e, 4)),
        S::poll => one(a, b.saturating_mul(POLLFD)),
        S::ppoll => two((a, b.saturating_mul(POLLFD)), (c, TIME)),
        S::select => Plan::Writes([(b, FD_SET), (c, FD_SET), (d, FD_SET), (e, TIME)]),
        S::epoll_wait | S::epoll_pwait | S::epoll_pwait2 => one(b, c.saturating_mul(EVENT)),
        S::nanosleep | S::clock_gettime | S::clock_getres => one(b, TIME),
        S::clock_nanosleep => one(d, TIME),
        S::gettimeofday => two((a, TIME), (b, 8)),
        S::time => one(a, 8),
        S::timerfd_settime | S::timer_settime => one(d, 2 * TIME),
        S::timerfd_gettime | S::getitimer => one(b, 2 * TIME),
        S::setitimer => one(c, 2 * TIME),
        S::fstat | S::stat | S::lstat => one(b, STAT),
        S::newfstatat => one(c, STAT),
        S::statx => one(e, size_of::<libc::statx>()),
        S::getsockname | S::getpeername | S::accept | S::accept4 => two((b, ADDRESS), (c, 4)),
        S::socketpair => one(d, 8),
        S::pipe | S::pipe2 => one(a, 8),
        S::fcntl => one(c, LITTLE),
        S::ioctl => control(b, c),
        S::sendfile => one(c, 8),
        S::splice | S::copy_file_range => two((b, 8), (d, 8)),
        S::rt_sigpending => one(a, 8),
        S::getrusage => one(b, USAGE),
        S::getrlimit => one(b, 16),
        S::prlimit64 => one(d, 16),
        S::times => one(a, 32),
        S::uname => one(a, size_of::<libc::utsname>()),
        S::sysinfo => one(a, size_of::<libc::sysinfo>()),
        S::wait4 => two((b, 4), (d, USAGE)),
        S::waitid => two((c, INFO), (e, USAGE)),
        _ => Plan::Unknown,
    }
}

/// Makes the program's call in its place. `None` for one that the kernel has no name for here.
///
/// # Safety
/// The words are the program's, for this call.
pub(super) unsafe fn make(nr: usize, words: [usize; 6]) -> Option<usize> {
    let call = Sysno::new(nr)?;
    // SAFETY: the caller's.
    Some(match unsafe { transport::sys::call(call, words) } {
        Ok(value) => value,
        Err(Errno(e)) => (-(e as isize)).cast_unsigned(),
    })
}

/// rt_sigprocmask. The handler that it is made in goes on with the mask of what it interrupted, and hands its
/// own back. `None` if it would block what the guard lives on.
///
/// # Safety
/// The words are the program's.
pub(super) unsafe fn change_mask(words: [usize; 6]) -> Option<usize> {
    let [how, new, old, ..] = words;
    if new != 0 && how as i32 != libc::SIG_UNBLOCK {
        let [set] = fetch::<u64, 1>(new, 1, 0)?;
        if set & super::admit::SERVED != 0 {
            return None;
        }
    }
    super::before_write(std::ptr::with_exposed_provenance(old), 8);
    // SAFETY: the program's own call.
    unsafe { make(Sysno::rt_sigprocmask.id() as usize, words) }
}
