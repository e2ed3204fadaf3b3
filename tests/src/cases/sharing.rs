//! Streams that several processes hold after fork and go on using side by side: attached ones stay
//! attached, whoever makes the next call.

use super::Case;
use crate::log;
use crate::side::Side;
use crate::sys::{Fd, io, net, proc, wait};

const LEFT: &str = "two processes use one epoll set, which the kernel alone can serve";

pub(super) const CASES: &[Case] = &[
    Case::pair("share_left_by_child", share_left_by_child).processes_only(),
    Case::pair("share_alternating", share_alternating).processes_only(),
    Case::pair("share_raw_clone", |s| share_other_fork(s, raw_clone)).processes_only(),
    Case::pair("share_bare_fork", |s| share_other_fork(s, bare_fork)).processes_only(),
    Case::pair("share_clone", |s| share_other_fork(s, clone)).processes_only(),
    Case::pair("share_chain", share_chain).processes_only(),
    Case::solo("share_nothing_but_a_place", share_a_place).any_path("of children"),
    Case::pair("share_daemon", share_daemon).processes_only(),
    Case::pair("share_last_close_ends", share_last_close_ends).processes_only(),
    Case::pair("share_shutdown_counts_for_all", share_shutdown).processes_only(),
    Case::pair("share_nonblocking_counts_for_all", share_nonblocking).processes_only(),
    Case::pair("share_both_asleep", share_both_asleep).processes_only(),
    Case::pair("share_parent_goes_on_with_epoll", share_parent_epoll).processes_only(),
    Case::pair("share_child_makes_epoll", share_child_epoll).processes_only(),
    Case::pair("share_both_use_one_epoll", share_one_epoll)
        .processes_only()
        .any_path(LEFT),
];

/// A child fills the connection and ends, while its peer reads nothing and its parent only waits for that; then the peer reads, and the
/// parent does nothing at all: everything comes.
fn share_left_by_child(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let (told, tells) = net::pipe();
        let child = proc::fork(|| {
            net::set_nonblocking(fd, true).ok();
            let block = [b'x'; 3000];
            let mut total = 0u64;
            for _ in 0..3 {
                while let n @ 1.. = io::send(fd, &block, 0).0 {
                    total += n as u64;
                }
                std::thread::sleep(wait::millis(50));
            }
            io::write(tells, &total.to_le_bytes()).ok();
            0
        });
        log!(s, "{}", proc::wait_child(child));
        let mut total = [0; 8];
        io::read(told, &mut total).ok();
        s.tell(u64::from_le_bytes(total));
        s.hear();
    } else {
        let total = s.hear() as usize;
        net::set_timeout(fd, libc::SO_RCVTIMEO, 5000).ok();
        let (got, last) = io::recv_exact(fd, total);
        assert_eq!(got.len(), total, "{last}");
        log!(s, "all has come");
        s.tell(1);
    }
    s.sync("done");
}

/// The parent closes its listener at once and connects, by when the child, which serves, may not have run yet.
fn share_a_place(s: &Side) {
    let mut slow = 0;
    for round in 0..40 {
        let (lis, at) = net::listener(net::loopback(), 4);
        let child = proc::fork(move || {
            let fd = net::accept(lis).fd();
            net::close(lis).ok();
            let mut buf = [0; 64];
            let mut r = io::recv(fd, &mut buf, 0).0;
            while r > 0 {
                io::send(fd, &buf[..r as usize], 0).ok();
                r = io::recv(fd, &mut buf, 0).0;
            }
            r as i32
        });
        let begun = std::time::Instant::now();
        net::close(lis).ok();
        let fd = net::socket_for(at, 0);
        net::connect(fd, at).ok();
        for _ in 0..40 {
            io::send(fd, b"w", 0).ok();
            assert_eq!(io::recv_exact(fd, 1).0, b"w", "round {round}");
        }
        net::shutdown(fd, libc::SHUT_WR).ok();
        let end = io::recv(fd, &mut [0; 4], 0);
        let status = proc::wait_child(child);
        net::close(fd).ok();
        if end.0 != 0 || status != "exit 0" {
            log!(s, "{round}: {end} {status}");
        }
        slow += i32::from(begun.elapsed() > wait::millis(3000));
    }
    log!(s, "slow {slow}");
}

/// Two pipes, to take turns by.
struct Turns {
    parent: (Fd, Fd),
    child: (Fd, Fd),
}

impl Turns {
    fn new() -> Self {
        Self {
            parent: net::pipe(),
            child: net::pipe(),
        }
    }

    fn to_child(&self) {
        io::write(self.child.1, b"!").ok();
    }

    fn to_parent(&self) {
        io::write(self.parent.1, b"!").ok();
    }

    fn child_waits(&self) {
        io::read(self.child.0, &mut [0; 1]).ok();
    }

    fn parent_waits(&self) {
        io::read(self.parent.0, &mut [0; 1]).ok();
    }
}

/// B: gives back whatever comes, until the end.
fn echo(s: &Side, fd: Fd) {
    let mut total = 0;
    let mut buf = [0u8; 4096];
    loop {
        let n = io::recv(fd, &mut buf, 0);
        if n.0 <= 0 {
            log!(s, "echoed {total}, end {n}");
            break;
        }
        total += n.0;
        io::send_all(fd, &buf[..n.0 as usize]).ok();
    }
    s.sync("done");
}

/// A connection that is attached before anybody forks.
pub(super) fn warm_pair(s: &Side) -> Fd {
    let fd = s.pair();
    s.always_warm_up(fd);
    fd
}

/// A's end of a connection whose other end gives back what comes. B is done with that.
pub(super) fn beside_echo(s: &Side) -> Option<Fd> {
    let fd = warm_pair(s);
    if s.a() {
        return Some(fd);
    }
    echo(s, fd);
    None
}

/// A's end of a connection on which B asks so often for a byte back; `None` at B, once it has had all.
fn beside_asker(s: &Side, rounds: u8) -> Option<Fd> {
    let fd = warm_pair(s);
    if s.a() {
        return Some(fd);
    }
    for i in 0..rounds {
        there_and_back(fd, i);
    }
    s.sync("done");
    None
}

pub(super) fn there_and_back(fd: Fd, byte: u8) {
    io::send_all(fd, &[byte]).ok();
    assert_eq!(io::recv_exact(fd, 1).0, [byte]);
}

/// Parent and child take turns byte by byte.
fn share_alternating(s: &Side) {
    let Some(fd) = beside_echo(s) else { return };
    let turns = Turns::new();
    let child = proc::fork(|| {
        for i in 0..200 {
            turns.child_waits();
            there_and_back(fd, i as u8);
            turns.to_parent();
        }
        0
    });
    for i in 0..200 {
        there_and_back(fd, 255 - i as u8);
        turns.to_child();
        turns.parent_waits();
    }
    log!(s, "{}", proc::wait_child(child));
    there_and_back(fd, 9);
    net::close(fd).ok();
    s.sync("done");
}

fn raw_clone(body: &mut dyn FnMut()) -> i32 {
    let flags = i64::from(libc::SIGCHLD);
    // SAFETY: a fork by its system call.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) } as i32;
    end_child(pid, body)
}

fn bare_fork(body: &mut dyn FnMut()) -> i32 {
    unsafe extern "C" {
        fn _Fork() -> i32;
    }
    // SAFETY: the child calls nothing that needs libc's own fork handlers.
    let pid = unsafe { _Fork() };
    end_child(pid, body)
}

fn end_child(pid: i32, body: &mut dyn FnMut()) -> i32 {
    if pid == 0 {
        body();
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) }
    }
    pid
}

fn clone(mut body: &mut dyn FnMut()) -> i32 {
    extern "C" fn run(body: *mut libc::c_void) -> i32 {
        // SAFETY: the reference below, in a copy of its memory.
        (unsafe { &mut *body.cast::<&mut dyn FnMut()>() })();
        0
    }
    let mut stack = vec![0u8; 1 << 20];
    let top = stack.as_mut_ptr_range().end.cast();
    let argument = (&raw mut body).cast();
    // SAFETY: a stack of its own, in a copy of this memory.
    unsafe { libc::clone(run, top, libc::SIGCHLD, argument) }
}

/// Forks that libc's handlers do not see.
fn share_other_fork(s: &Side, fork: fn(&mut dyn FnMut()) -> i32) {
    let Some(fd) = beside_echo(s) else { return };
    let turns = Turns::new();
    let child = fork(&mut || {
        for i in 0..20 {
            turns.child_waits();
            there_and_back(fd, i);
            turns.to_parent();
        }
        net::close(fd).ok();
    });
    for i in 0..20 {
        there_and_back(fd, 100 + i);
        turns.to_child();
        turns.parent_waits();
    }
    log!(s, "{}", proc::wait_child(child));
    there_and_back(fd, 9);
    net::close(fd).ok();
    s.sync("done");
}

/// Each child forks the next; all use the stream, the first one last.
fn share_chain(s: &Side) {
    let Some(fd) = beside_echo(s) else { return };
    fn link(fd: Fd, depth: u8) -> i32 {
        there_and_back(fd, depth);
        if depth < 5 {
            let child = proc::fork(|| link(fd, depth + 1));
            let _ = proc::wait_child(child);
        }
        there_and_back(fd, 100 + depth);
        i32::from(depth)
    }
    let child = proc::fork(|| link(fd, 1));
    log!(s, "{}", proc::wait_child(child));
    there_and_back(fd, 77);
    net::close(fd).ok();
    s.sync("done");
}

/// As daemon(3) does: the parents go, the grandchild goes on.
fn share_daemon(s: &Side) {
    let Some(fd) = beside_echo(s) else { return };
    let (done_r, done_w) = net::pipe();
    let child = proc::fork(|| {
        proc::fork(|| {
            for i in 0..50 {
                there_and_back(fd, i);
            }
            net::close(fd).ok();
            io::write(done_w, b"!").ok();
            0
        });
        0
    });
    log!(s, "{}", proc::wait_child(child));
    net::close(fd).ok();
    io::read(done_r, &mut [0; 1]).ok();
    s.sync("done");
}

/// The peer sees the end when the last holder closes, not before.
fn share_last_close_ends(s: &Side) {
    let fd = warm_pair(s);
    if !s.a() {
        s.sync("one has closed");
        log!(s, "{}", io::recv(fd, &mut [0; 1], libc::MSG_DONTWAIT));
        s.sync("looked");
        log!(s, "{}", io::recv(fd, &mut [0; 9], 0));
        log!(s, "{}", io::recv(fd, &mut [0; 9], 0));
        s.sync("done");
        return;
    }
    let turns = Turns::new();
    let child = proc::fork(|| {
        turns.child_waits();
        io::send_all(fd, b"x").ok();
        net::close(fd).ok();
        0
    });
    net::close(fd).ok();
    s.sync("one has closed");
    s.sync("looked");
    turns.to_child();
    log!(s, "{}", proc::wait_child(child));
    s.sync("done");
}

/// What one shuts is shut for all, also for one that is blocked in it.
fn share_shutdown(s: &Side) {
    let fd = warm_pair(s);
    if !s.a() {
        log!(s, "{}", io::recv(fd, &mut [0; 1], 0));
        s.sync("done");
        return;
    }
    let child = proc::fork(|| {
        let n = io::recv(fd, &mut [0; 1], 0);
        log!(s, "child {n}");
        log!(s, "child {}", io::send(fd, b"x", libc::MSG_NOSIGNAL));
        0
    });
    proc::Thread::of(child as u32, child).wait_asleep();
    net::shutdown(fd, libc::SHUT_RDWR).ok();
    log!(s, "{}", proc::wait_child(child));
    s.sync("done");
}

fn share_nonblocking(s: &Side) {
    let Some(fd) = beside_echo(s) else { return };
    let child = proc::fork(|| {
        net::set_nonblocking(fd, true).ok();
        0
    });
    log!(s, "{}", proc::wait_child(child));
    log!(
        s,
        "{} {}",
        net::is_nonblocking(fd),
        io::recv(fd, &mut [0; 1], 0)
    );
    net::set_nonblocking(fd, false).ok();
    there_and_back(fd, 1);
    net::close(fd).ok();
    s.sync("done");
}

/// Both are asleep in a read; each of two messages wakes somebody, and both are read.
fn share_both_asleep(s: &Side) {
    let fd = warm_pair(s);
    for _ in 0..3 {
        if !s.a() {
            s.sync("asleep");
            io::send_all(fd, b"1").ok();
            s.sync("again");
            io::send_all(fd, b"2").ok();
            s.sync("round");
            continue;
        }
        let child = proc::fork(|| io::recv(fd, &mut [0; 1], 0).0 as i32);
        let other = proc::fork(|| io::recv(fd, &mut [0; 1], 0).0 as i32);
        for pid in [child, other] {
            proc::Thread::of(pid as u32, pid).wait_asleep();
        }
        s.sync("asleep");
        s.sync("again");
        log!(s, "{} {}", proc::wait_child(child), proc::wait_child(other));
        s.sync("round");
    }
    s.sync("done");
}

/// An event loop forks a helper that never looks at the sockets, as for a snapshot: it goes on.
fn share_parent_epoll(s: &Side) {
    let Some(fd) = beside_asker(s, 50) else {
        return;
    };
    let set = wait::epoll();
    wait::add(set, fd, libc::EPOLLIN, 7).ok();
    let (go_r, go_w) = net::pipe();
    let mut child = 0;
    for i in 0..50 {
        if i == 10 {
            child = proc::fork(|| {
                io::read(go_r, &mut [0; 1]).ok();
                0
            });
        }
        assert_eq!(wait::epoll_wait(set, 4, 5000).ret.0, 1);
        let (got, _) = io::recv_exact(fd, 1);
        io::send_all(fd, &got).ok();
    }
    io::write(go_w, b"!").ok();
    log!(s, "{}", proc::wait_child(child));
    s.sync("done");
}

/// The child watches an inherited socket by a set of its own, while the parent sleeps in a set too.
fn share_child_epoll(s: &Side) {
    let Some(fd) = beside_asker(s, 30) else {
        return;
    };
    let child = proc::fork(|| {
        let set = wait::epoll();
        wait::add(set, fd, libc::EPOLLIN, 7).ok();
        for _ in 0..30 {
            assert_eq!(wait::epoll_wait(set, 4, 5000).ret.0, 1);
            let (got, _) = io::recv_exact(fd, 1);
            io::send_all(fd, &got).ok();
        }
        0
    });
    log!(s, "{}", proc::wait_child(child));
    s.sync("done");
}

/// Parent and child wait on the same set, one after the other.
fn share_one_epoll(s: &Side) {
    let Some(fd) = beside_asker(s, 20) else {
        return;
    };
    let set = wait::epoll();
    wait::add(set, fd, libc::EPOLLIN, 7).ok();
    let turns = Turns::new();
    let serve = || {
        let woken = wait::epoll_wait(set, 4, 5000).ret.0;
        let (got, _) = io::recv_exact(fd, 1);
        io::send_all(fd, &got).ok();
        woken
    };
    let child = proc::fork(|| {
        for _ in 0..10 {
            turns.child_waits();
            assert_eq!(serve(), 1);
            turns.to_parent();
        }
        0
    });
    for _ in 0..10 {
        assert_eq!(serve(), 1);
        turns.to_child();
        turns.parent_waits();
    }
    log!(s, "{}", proc::wait_child(child));
    s.sync("done");
}
