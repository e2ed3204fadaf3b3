//! System calls that write to what was sent: none sees a protected page, whoever makes it.

use crate::Test;
use crate::guard;
use crate::host::{PAGE, Random, Wire, filled, map};
use std::ffi::c_void;
use std::os::fd::AsRawFd;
use transport::direct::policy::Touch;

pub(crate) const TESTS: &[Test] = &[
    ("read_into_it", read_into),
    ("every_way_to_read", every_way),
    ("by_number", by_number),
    ("stdio_reads_into_it", stdio),
    ("small_results_into_it", small_results),
    ("unknown_calls_lift_everything", unknown),
    ("harmless_calls_lift_nothing", harmless),
    ("errors_are_the_kernels", errors),
    ("mask_is_kept", mask_is_kept),
    ("interrupted_calls", interrupted),
    ("our_own_writes", our_own),
];

fn random_file(len: usize) -> (std::fs::File, Vec<u8>) {
    let path = std::env::temp_dir().join(format!("shunt-guard-{}", std::process::id()));
    let mut bytes = vec![0; len];
    Random::new(99).fill(&mut bytes);
    std::fs::write(&path, &bytes).unwrap();
    let file = std::fs::File::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    (file, bytes)
}

const LEN: usize = 50 * PAGE;

/// The buffer is sent, `call` fills it (all, or from an offset on) from a file; both are as they should be.
fn fills(call: impl Fn(i32, &mut [u8]) -> isize) {
    let (file, bytes) = random_file(LEN);
    let wire = Wire::new();
    let buffer = filled(LEN);
    for part in [0..LEN, 100..LEN - 100, 10 * PAGE..10 * PAGE + 1] {
        // SAFETY: no pointers.
        unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_SET) };
        let sent = wire.send_all(buffer);
        let n = part.len();
        let r = call(file.as_raw_fd(), &mut buffer[part.clone()]);
        assert_eq!(r, n as isize, "{}", std::io::Error::last_os_error());
        assert!(buffer[part] == bytes[..n]);
        wire.expect(&sent);
    }
}

fn read_into() {
    // SAFETY: the slice.
    fills(|fd, to| unsafe { libc::read(fd, to.as_mut_ptr().cast(), to.len()) });
}

fn every_way() {
    // SAFETY: the slice.
    fills(|fd, to| unsafe { libc::pread(fd, to.as_mut_ptr().cast(), to.len(), 0) });
    fills(|fd, to| {
        let middle = to.len() / 2;
        let (a, b) = to.split_at_mut(middle);
        let parts = [a, b].map(|part| libc::iovec {
            iov_base: part.as_mut_ptr().cast(),
            iov_len: part.len(),
        });
        // SAFETY: the two halves.
        unsafe { libc::readv(fd, parts.as_ptr(), 2) }
    });
    // A vector that is longer than what is looked at.
    fills(|fd, to| {
        let size = to.len().div_ceil(20);
        let parts: Vec<_> = to
            .chunks_mut(size)
            .map(|part| libc::iovec {
                iov_base: part.as_mut_ptr().cast(),
                iov_len: part.len(),
            })
            .collect();
        // SAFETY: the parts.
        unsafe { libc::preadv(fd, parts.as_ptr(), parts.len() as i32, 0) }
    });
    // Sockets.
    for kind in [libc::SOCK_STREAM, libc::SOCK_SEQPACKET] {
        fills(|fd, to| {
            let mut ends = [0; 2];
            let mut copy = vec![0u8; to.len()];
            // SAFETY: all of it is ours.
            unsafe {
                libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr());
                libc::read(fd, copy.as_mut_ptr().cast(), copy.len());
                let mut done = 0;
                while done < to.len() {
                    let n = (to.len() - done).min(60_000);
                    assert_eq!(
                        libc::send(ends[0], copy[done..].as_ptr().cast(), n, 0),
                        n as isize
                    );
                    let at = to[done..].as_mut_ptr();
                    let r = if kind == libc::SOCK_STREAM {
                        libc::recv(ends[1], at.cast(), n, libc::MSG_WAITALL)
                    } else {
                        let mut part = libc::iovec {
                            iov_base: at.cast(),
                            iov_len: n,
                        };
                        let mut message: libc::msghdr = std::mem::zeroed();
                        message.msg_iov = &raw mut part;
                        message.msg_iovlen = 1;
                        libc::recvmsg(ends[1], &raw mut message, 0)
                    };
                    assert_eq!(r, n as isize);
                    done += n;
                }
                libc::close(ends[0]);
                libc::close(ends[1]);
            }
            to.len() as isize
        });
    }
    let wire = Wire::new();
    let buffer = filled(20 * PAGE);
    let sent = wire.send_all(buffer);
    // SAFETY: the buffer.
    let got = unsafe { libc::getrandom(buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    assert_eq!(got, buffer.len() as isize);
    wire.expect(&sent);
}

/// syscall(2): what no name stands for.
fn by_number() {
    // SAFETY: the slice.
    fills(|fd, to| unsafe {
        libc::syscall(libc::SYS_read, fd, to.as_mut_ptr(), to.len()) as isize
    });
    // SAFETY: the slice.
    fills(|fd, to| unsafe {
        libc::syscall(libc::SYS_pread64, fd, to.as_mut_ptr(), to.len(), 0) as isize
    });
}

/// libc reads straight into large buffers by a name of its own.
fn stdio() {
    fills(|fd, to| {
        // SAFETY: the slice, and a stream over a duplicate.
        unsafe {
            let stream = libc::fdopen(libc::dup(fd), c"r".as_ptr());
            let n = libc::fread(to.as_mut_ptr().cast(), 1, to.len(), stream);
            libc::fclose(stream);
            n as isize
        }
    });
}

fn small_results() {
    let wire = Wire::new();
    let buffer = filled(20 * PAGE);
    let at: *mut c_void = buffer[10 * PAGE + 64..].as_mut_ptr().cast();
    let mut ends = [0; 2];
    // SAFETY: two ints.
    unsafe { libc::pipe(ends.as_mut_ptr()) };
    // SAFETY: each writes a small structure to the buffer, which has room for it.
    let calls: &[&dyn Fn() -> i32] = unsafe {
        &[
            &|| libc::fstat(0, at.cast()),
            &|| libc::stat(c"/".as_ptr(), at.cast()),
            &|| libc::ioctl(ends[0], libc::FIONREAD, at),
            &|| libc::pipe(at.cast()),
            &|| libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, at.cast()),
            &|| libc::getrlimit(libc::RLIMIT_NOFILE, at.cast()),
            &|| libc::getrusage(libc::RUSAGE_SELF, at.cast()),
            &|| libc::uname(at.cast()),
            &|| libc::sysinfo(at.cast()),
            &|| libc::sigpending(at.cast()),
            &|| libc::sigprocmask(libc::SIG_BLOCK, std::ptr::null(), at.cast()),
            &|| libc::sigaction(libc::SIGUSR1, std::ptr::null(), at.cast()),
            &|| libc::getitimer(libc::ITIMER_REAL, at.cast()),
            &|| libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC, at) as i32,
            &|| libc::syscall(libc::SYS_gettimeofday, at, 0) as i32,
            &|| libc::sched_getaffinity(0, 128, at.cast()),
            &|| libc::fcntl(0, 16, at), // F_GETOWN_EX
        ]
    };
    for (i, call) in calls.iter().enumerate() {
        let sent = wire.send_all(buffer);
        assert_eq!(call(), 0, "{i}: {}", std::io::Error::last_os_error());
        wire.expect(&sent);
        Random::new(i as u64).fill(buffer);
    }
    // SAFETY: a pollfd in the buffer.
    let sent = unsafe {
        at.cast::<libc::pollfd>().write(libc::pollfd {
            fd: ends[1],
            events: libc::POLLOUT,
            revents: 0,
        });
        let sent = wire.send_all(buffer);
        assert_eq!(libc::poll(at.cast(), 1, 0), 1);
        assert_eq!(at.cast::<libc::pollfd>().read().revents, libc::POLLOUT);
        sent
    };
    wire.expect(&sent);
}

/// A call that nobody has thought of.
fn unknown() {
    let wire = Wire::new();
    let (buffer, other) = (filled(20 * PAGE), filled(20 * PAGE));
    let sent = [wire.send_all(buffer), wire.send_all(other)].concat();
    let local = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: 10,
    };
    let remote = libc::iovec {
        iov_base: other.as_mut_ptr().cast(),
        iov_len: 10,
    };
    // SAFETY: writes from the one to the other.
    let n = unsafe {
        libc::process_vm_writev(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0)
    };
    assert_eq!(n, 10);
    assert!(!guard::is_live());
    wire.expect(&sent);
}

fn harmless() {
    guard::set_touch(Touch::Copy);
    let wire = Wire::new();
    let buffer = filled(20 * PAGE);
    let small = map(PAGE);
    let (file, bytes) = random_file(PAGE);
    let sent = wire.send_all(buffer);
    // SAFETY: into memory that was not sent, or nowhere.
    unsafe {
        assert_eq!(
            libc::read(file.as_raw_fd(), small.as_mut_ptr().cast(), PAGE),
            PAGE as isize
        );
        assert_eq!(libc::getppid(), libc::syscall(libc::SYS_getppid) as i32);
        assert_eq!(libc::usleep(10), 0);
        assert_eq!(libc::close(libc::dup(0)), 0);
    }
    assert!(*small == *bytes);
    assert!(guard::is_live());
    wire.expect(&sent);
}

fn errors() {
    let wire = Wire::new();
    let buffer = filled(20 * PAGE);
    let sent = wire.send_all(buffer);
    let error = || std::io::Error::last_os_error().raw_os_error();
    // SAFETY: refused by the kernel.
    unsafe {
        assert_eq!(libc::read(-1, buffer.as_mut_ptr().cast(), 5), -1);
        assert_eq!(error(), Some(libc::EBADF));
        assert_eq!(libc::readv(0, std::ptr::dangling(), 3), -1);
        assert_eq!(error(), Some(libc::EFAULT));
        assert_eq!(libc::close(12345), -1);
        assert_eq!(error(), Some(libc::EBADF));
    }
    wire.expect(&sent);
}

fn mask() -> u64 {
    let mut now = 0u64;
    // SAFETY: a set has room for more; the kernel's is one word.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, 0, 0, &raw mut now, 8) };
    now
}

/// What the program blocks stays blocked, though the call is made in a handler.
fn mask_is_kept() {
    let wire = Wire::new();
    let buffer = filled(20 * PAGE);
    let before = mask();
    let sent = wire.send_all(buffer);
    let usr1 = 1u64 << (libc::SIGUSR1 - 1);
    let change = |how: i32, set: u64| {
        let mut old = 0u64;
        // SAFETY: the kernel's sets.
        let r = unsafe {
            libc::syscall(
                libc::SYS_rt_sigprocmask,
                how,
                &raw const set,
                &raw mut old,
                8,
            )
        };
        assert_eq!(r, 0);
        old
    };
    assert_eq!(change(libc::SIG_BLOCK, usr1), before);
    assert_eq!(mask(), before | usr1);
    assert!(guard::is_live());
    assert_eq!(change(libc::SIG_UNBLOCK, usr1), before | usr1);
    assert_eq!(mask(), before);
    // Blocking what the guard lives on is the end of it, until that is over.
    assert_eq!(change(libc::SIG_SETMASK, u64::MAX), before);
    assert!(!guard::is_live());
    buffer.fill(1);
    assert_eq!(wire.send(buffer), Err(guard::Refusal::Signals));
    change(libc::SIG_SETMASK, before);
    wire.expect(&sent);
    assert_eq!(wire.send(buffer), Ok(buffer.len()));
}

static RAN: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

extern "C" fn count(_: i32) {
    RAN.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
}

/// A call that sleeps is interrupted as if nothing were in between.
fn interrupted() {
    let wire = Wire::new();
    let buffer = filled(20 * PAGE);
    let mut ends = [0; 2];
    // SAFETY: two ints; a plain handler.
    unsafe {
        libc::pipe(ends.as_mut_ptr());
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = count as *const () as usize;
        libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut());
    }
    // SAFETY: the process itself.
    let parent = unsafe { libc::getpid() };
    // SAFETY: one thread.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: no pointers. Again and again, since nothing says when the other sleeps.
        unsafe {
            while libc::kill(parent, libc::SIGUSR1) == 0 {
                libc::usleep(1000);
            }
            libc::_exit(0);
        }
    }
    let sent = wire.send_all(buffer);
    let mut byte = 0u8;
    // SAFETY: one byte, of which none comes.
    let r = unsafe { libc::read(ends[0], (&raw mut byte).cast(), 1) };
    let error = std::io::Error::last_os_error().raw_os_error();
    // SAFETY: our own child.
    unsafe { libc::kill(child, libc::SIGKILL) };
    assert_eq!((r, error), (-1, Some(libc::EINTR)));
    assert!(RAN.load(std::sync::atomic::Ordering::SeqCst) > 0);
    buffer.fill(1);
    wire.expect(&sent);
}

/// Calls of the library itself are not trapped; it says where it is about to write.
fn our_own() {
    let wire = Wire::new();
    let buffer = filled(20 * PAGE);
    let (file, bytes) = random_file(PAGE);
    let sent = wire.send_all(buffer);
    let at = buffer[5 * PAGE + 100..].as_mut_ptr();
    guard::before_write(at, PAGE);
    // SAFETY: the buffer has room.
    let n = unsafe { transport::syscall!(read, file.as_raw_fd(), at, PAGE) };
    assert_eq!(n, Ok(PAGE));
    assert!(buffer[5 * PAGE + 100..][..PAGE] == bytes);
    assert!(guard::is_live());
    wire.expect(&sent);
}
