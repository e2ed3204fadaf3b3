//! The few system calls that std does not offer; all the unsafe code of this crate but the ring lies here.
//! Called by every other module. Each function is one call with its error turned into `io::Error`.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::AtomicU32;
use std::time::Duration;

fn check(result: libc::c_long) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// The set of cores that a thread may run on.
pub(crate) struct Cores(libc::cpu_set_t);

impl Cores {
    pub(crate) fn one(core: usize) -> Self {
        // SAFETY: an all-zero cpu_set_t is an empty set; CPU_SET writes inside it for any core below its size.
        Self(unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(core, &mut set);
            set
        })
    }

    /// Those of the calling thread.
    pub(crate) fn current() -> io::Result<Self> {
        let mut cores = Self::one(0);
        let size = size_of_val(&cores.0);
        // SAFETY: the kernel fills the set it is given.
        let result = unsafe { libc::sched_getaffinity(0, size, &raw mut cores.0) };
        check(result.into())?;
        Ok(cores)
    }

    /// Binds the calling thread to this set.
    pub(crate) fn bind(&self) -> io::Result<()> {
        // SAFETY: the set lives through the call.
        check(
            unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const self.0) }
                .into(),
        )
        .map(drop)
    }
}

/// How many cores this process may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

pub(crate) fn is_root() -> bool {
    // SAFETY: no memory is passed.
    unsafe { libc::geteuid() == 0 }
}

/// User and system time that this process has used.
pub(crate) fn cpu_time() -> Duration {
    // SAFETY: getrusage fills the structure it is given.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    total_time(&usage)
}

/// Nanoseconds by the machine's clock, which is the same in all processes.
pub(crate) fn monotonic_ns() -> u64 {
    clock(libc::CLOCK_MONOTONIC).as_nanos() as u64
}

/// CPU time that the calling thread has used: unlike the clock on the wall it stands still while somebody else runs.
pub(crate) fn thread_time() -> Duration {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

fn clock(which: libc::clockid_t) -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel fills the structure it is given; the clocks that are asked for exist always.
    unsafe { libc::clock_gettime(which, &raw mut time) };
    Duration::new(
        time.tv_sec.unsigned_abs(),
        time.tv_nsec.unsigned_abs() as u32,
    )
}

fn total_time(usage: &libc::rusage) -> Duration {
    let one = |t: libc::timeval| {
        Duration::from_secs(t.tv_sec.unsigned_abs())
            + Duration::from_micros(t.tv_usec.unsigned_abs())
    };
    one(usage.ru_utime) + one(usage.ru_stime)
}

/// One `send`.
pub(crate) fn send(fd: &impl AsRawFd, bytes: &[u8], flags: i32) -> io::Result<usize> {
    // SAFETY: the pointer and length are those of a live slice.
    check(unsafe {
        libc::send(
            fd.as_raw_fd(),
            bytes.as_ptr().cast(),
            bytes.len(),
            flags | libc::MSG_NOSIGNAL,
        )
    } as _)
}

/// One `recv`.
pub(crate) fn recv(fd: &impl AsRawFd, bytes: &mut [u8], flags: i32) -> io::Result<usize> {
    // SAFETY: the pointer and length are those of a live slice.
    check(unsafe {
        libc::recv(
            fd.as_raw_fd(),
            bytes.as_mut_ptr().cast(),
            bytes.len(),
            flags,
        )
    } as _)
}

/// One `dprintf` of a text that needs no conversion.
pub(crate) fn dprintf(fd: &impl AsRawFd, text: &[u8]) -> io::Result<usize> {
    unsafe extern "C" {
        fn dprintf(fd: libc::c_int, format: *const libc::c_char, ...) -> libc::c_int;
    }
    let length = libc::c_int::try_from(text.len()).unwrap_or(libc::c_int::MAX);
    // SAFETY: the format takes a length and a pointer to as many bytes.
    check(unsafe { dprintf(fd.as_raw_fd(), c"%.*s".as_ptr(), length, text.as_ptr()) }.into())
}

/// Allows this process as many descriptors as it may have, as servers with many connections do.
pub(crate) fn raise_files() -> io::Result<()> {
    // SAFETY: getrlimit fills the structure it is given, and setrlimit reads it.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        check(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit).into())?;
        limit.rlim_cur = limit.rlim_max;
        check(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit).into()).map(drop)
    }
}

/// A TCP socket that is not connected yet: options that matter to the handshake are set before it.
pub(crate) fn tcp_socket() -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed; the descriptor is new and owned by nobody else.
    let fd = check(
        unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) }.into(),
    )?;
    // SAFETY: as above.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Connects to a port.
pub(crate) fn connect(
    socket: &impl AsRawFd,
    (address, port): (std::net::Ipv4Addr, u16),
) -> io::Result<()> {
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from(address).to_be(),
        },
        sin_zero: [0; 8],
    };
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address outlives the call, and its size is given.
    check(unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) }.into())
        .map(drop)
}

/// Asks for a send and a receive buffer of this many bytes. The kernel doubles the number, to have room for its own
/// bookkeeping, and stops growing them by itself.
pub(crate) fn set_buffers(socket: &impl AsRawFd, bytes: usize) -> io::Result<()> {
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    for option in [libc::SO_SNDBUF, libc::SO_RCVBUF] {
        let length = size_of_val(&bytes) as libc::socklen_t;
        // SAFETY: the value outlives the call, and its size is given.
        let result = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw const bytes).cast(),
                length,
            )
        };
        check(result.into())?;
    }
    Ok(())
}

/// What the kernel says that the send and the receive buffer are.
pub(crate) fn buffers(socket: &impl AsRawFd) -> io::Result<[i32; 2]> {
    let one = |option| {
        let mut bytes: libc::c_int = 0;
        let mut length = size_of_val(&bytes) as libc::socklen_t;
        // SAFETY: value and length outlive the call, and the length is that of the value.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw mut bytes).cast(),
                &raw mut length,
            )
        };
        check(result.into()).map(|_| bytes)
    };
    Ok([one(libc::SO_SNDBUF)?, one(libc::SO_RCVBUF)?])
}

/// Sets how many connections may wait to be accepted.
pub(crate) fn listen(listener: &impl AsRawFd, backlog: i32) -> io::Result<()> {
    // SAFETY: no memory is passed.
    check(unsafe { libc::listen(listener.as_raw_fd(), backlog) }.into()).map(drop)
}

/// One `read`, of any descriptor.
pub(crate) fn read(fd: &impl AsRawFd, bytes: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the pointer and length are those of a live slice.
    check(unsafe { libc::read(fd.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len()) } as _)
}

/// A new epoll descriptor.
pub(crate) fn epoll() -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed; the descriptor is new and owned by nobody else.
    let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }.into())?;
    // SAFETY: as above.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Watches `fd` for readability under the number `token`.
pub(crate) fn epoll_add(epoll: &OwnedFd, fd: &impl AsRawFd, token: u64) -> io::Result<()> {
    let mut event = libc::epoll_event {
        events: libc::EPOLLIN as u32,
        u64: token,
    };
    // SAFETY: the event outlives the call.
    let result = unsafe {
        libc::epoll_ctl(
            epoll.as_raw_fd(),
            libc::EPOLL_CTL_ADD,
            fd.as_raw_fd(),
            &raw mut event,
        )
    };
    check(result.into()).map(drop)
}

/// Waits for events; returns how many of `events` were filled.
pub(crate) fn epoll_wait(
    epoll: &OwnedFd,
    events: &mut [libc::epoll_event],
    timeout_ms: i32,
) -> io::Result<usize> {
    let room = i32::try_from(events.len()).unwrap_or(i32::MAX);
    // SAFETY: the pointer and length are those of a live slice.
    check(
        unsafe { libc::epoll_wait(epoll.as_raw_fd(), events.as_mut_ptr(), room, timeout_ms) }
            .into(),
    )
}

/// Sleeps while `word` holds `expected`, for at most a second. Works across processes.
pub(crate) fn futex_wait(word: &AtomicU32, expected: u32) {
    let limit = libc::timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    // SAFETY: the word and the limit live through the call.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            expected,
            &raw const limit,
        )
    };
}

/// Wakes one sleeper on `word`.
pub(crate) fn futex_wake(word: &AtomicU32) {
    // SAFETY: the word lives through the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
}

/// Asks the kernel for `signal` when the parent dies: an interrupted benchmark leaves nothing behind.
pub(crate) fn die_with_parent(signal: i32) -> io::Result<()> {
    // SAFETY: no memory is passed.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) }.into()).map(drop)
}

/// Signals a process, or with a negative number a process group.
pub(crate) fn kill(pid: i32, signal: i32) {
    // SAFETY: no memory is passed. An error means that it is gone, which is what was wanted.
    unsafe { libc::kill(pid, signal) };
}

/// Waits for a child for at most `limit` without polling; true when it can be reaped.
pub(crate) fn wait_exit(pid: u32, limit: Duration) -> io::Result<bool> {
    // SAFETY: no memory is passed; the descriptor is new and owned by nobody else.
    let pidfd = unsafe {
        let fd = check(libc::syscall(libc::SYS_pidfd_open, pid, 0))?;
        OwnedFd::from_raw_fd(fd as i32)
    };
    let mut poll = libc::pollfd {
        fd: pidfd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let limit_ms = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: one pollfd is passed, and it lives through the call.
    check(unsafe { libc::poll(&raw mut poll, 1, limit_ms) }.into()).map(|ready| ready > 0)
}

/// Reaps a child that has exited: its raw wait status, and the CPU time of it and of the children it reaped.
pub(crate) fn reap(pid: u32) -> io::Result<(i32, Duration)> {
    let mut status = 0;
    // SAFETY: both out-parameters live through the call.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        check(libc::wait4(pid as i32, &raw mut status, 0, &raw mut usage).into())?;
        usage
    };
    Ok((status, total_time(&usage)))
}

/// Runs `body` in a forked child that then exits; returns its pid. For programs that have one thread.
pub(crate) fn fork(body: impl FnOnce()) -> io::Result<u32> {
    // SAFETY: this program has one thread when it forks, so the child may do anything.
    match check(unsafe { libc::fork() }.into())? {
        0 => {
            let code = i32::from(die_with_parent(libc::SIGKILL).is_err());
            body();
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(code) }
        }
        pid => Ok(pid as u32),
    }
}

/// Zeroed, page-aligned memory that forked children share; never unmapped.
pub(crate) fn shared(bytes: usize) -> io::Result<*mut u8> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    match unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) } {
        libc::MAP_FAILED => Err(io::Error::last_os_error()),
        address => Ok(address.cast()),
    }
}
