//! Bytes that have come and are not read when a process becomes another program, while the peer sleeps
//! outside the library and so cannot send them again: the new program reads them.

use super::{Case, MOVES};
use crate::log;
use crate::side::{Random, Side, hash, text};
use crate::sys::{Fd, call, io, net, proc, wait};
use std::time::Duration;

pub(super) const CASES: &[Case] = &[
    Case::moving("exec_unread_in_place", |s| in_place(s, READS)),
    Case::moving("exec_unread_polled", |s| in_place(s, POLLS)),
    Case::moving("exec_unread_by_python", |s| in_place(s, WAITS)),
    Case::moving("exec_unread_twice", |s| in_place(s, AGAIN)),
    Case::moving("exec_unread_from_afresh", |s| in_place(s, AFRESH)),
    Case::moving("exec_unread_then_fork", |s| in_place(s, FORKS)),
    Case::moving("exec_unread_in_child", in_child),
    Case::moving("exec_unread_shared_before", shared_before),
    Case::moving("exec_unread_spawned", |s| started(s, spawn)),
    Case::moving("exec_unread_vforked", |s| started(s, vforked)),
    Case::moving("exec_unread_by_system", |s| started(s, system)),
    Case::moving("exec_unread_fails", fails),
    Case::moving("exec_child_beside_reader", |s| beside(s, 1, reads)),
    Case::moving("exec_child_beside_poller", |s| beside(s, 1, polls)),
    Case::moving("exec_child_beside_set", |s| beside(s, 1, waits)),
    Case::moving("exec_children_at_once", |s| beside(s, 3, polls)),
    Case::moving("exec_children_of_both", both),
    Case::moving("exec_beside_stopped_peer", beside_stopped_peer),
    Case::solo("exec_leaves_no_descriptor", leaves_no_descriptor).any_path(MOVES),
];

/// Shell scripts with the stream as 0 and 1 and the channel as 9. They read "hello", wake the peer, answer,
/// and read "you" that comes after.
const READS: &str = "read -r -N 5 a; printf 12345678 >&9; printf 'heard %s' \"$a\"; \
    read -r -N 3 b; printf ', %s' \"$b\"";
const POLLS: &str = "read -t 0 && read -r -N 5 a; read -t 0 && b=more; printf 12345678 >&9; \
    printf 'heard %s%s' \"$a\" \"$b\"; read -r -N 3 b; printf ', %s' \"$b\"";
const AGAIN: &str = "read -r -N 2 a; exec /bin/bash --norc -c \"read -r -N 3 b; \
    printf 12345678 >&9; printf 'heard $a%s' \\$b; read -r -N 3 c; printf ', %s' \\$c\"";
const AFRESH: &str = "exec env -i /bin/bash --norc -c \"read -r -N 5 b; \
    printf 12345678 >&9; printf 'heard %s' \\$b; read -r -N 3 c; printf ', %s' \\$c\"";
const FORKS: &str = "read -r -N 2 a; b=$(head -c 2); read -r -N 1 c; printf 12345678 >&9; \
    printf 'heard %s' \"$a$b$c\"; read -r -N 3 b; printf ', %s' \"$b\"";
const WAITS: &str = r#"exec python3 -c '
import array, fcntl, os, select, socket, termios
s = socket.socket(fileno=os.dup(0))
there = array.array("i", [0])
def size():
    fcntl.ioctl(0, termios.FIONREAD, there)
    return there[0]
said = [size()]
ep, edge, poll = select.epoll(), select.epoll(), select.poll()
ep.register(0, select.EPOLLIN)
edge.register(0, select.EPOLLIN | select.EPOLLET)
poll.register(0, select.POLLIN)
said += [ep.poll(60), edge.poll(60), poll.poll(60000), select.select([0], [], [], 60)[0]]
said += [s.recv(2, socket.MSG_PEEK), s.recv(2), size(), ep.poll(60), edge.poll(0), poll.poll(60000)]
late = select.epoll()
late.register(0, select.EPOLLIN)
said += [late.poll(60), os.readv(0, [bytearray(1), bytearray(9)]), size()]
said += [ep.poll(0), late.poll(0), poll.poll(0), select.select([0], [], [], 0)[0]]
try:
    s.recv(1, socket.MSG_DONTWAIT)
except BlockingIOError:
    said.append("empty")
os.write(9, b"12345678")
text = "".join(str(x) for x in said).encode()
s.sendall(b"heard %4d" % len(text) + text)
said = [late.poll(60), ep.poll(60), edge.poll(60), s.recv(3, socket.MSG_WAITALL), ep.poll(0)]
s.sendall(repr(said).encode())
'"#;

/// Takes the stream for input and output, once what the peer has sent is there.
fn take(s: &Side, fd: Fd) {
    s.sync("sent");
    wait::wait_queued(fd, 5);
    net::dup2(fd, 0).ok();
    net::dup2(fd, 1).ok();
    s.hand_channel(9);
}

fn shell(script: &str) {
    proc::exec(&["/bin/bash", "--norc", "-c", script], true);
}

/// The peer sends, sleeps until the new program has read, and only then listens.
fn peer(s: &Side, fd: Fd) {
    io::send_all(fd, b"hello").ok();
    s.sync("sent");
    s.hear();
    let mut got = io::recv_exact(fd, 10).0;
    if got.get(6..).is_some_and(|n| n[0] == b' ') {
        let rest = String::from_utf8_lossy(&got[6..]).trim().parse::<usize>();
        got.extend(io::recv_exact(fd, rest.unwrap_or(0)).0);
    }
    log!(s, "{}", String::from_utf8_lossy(&got));
    io::send_all(fd, b"you").ok();
    let (got, last) = io::recv_to_end(fd);
    log!(s, "{} {last}", String::from_utf8_lossy(&got));
}

fn in_place(s: &Side, script: &str) {
    let fd = s.pair();
    if s.a() {
        take(s, fd);
        shell(script);
        log!(s, "exec failed");
    } else {
        peer(s, fd);
    }
}

/// The child becomes the program; the parent reads what that leaves.
fn in_child(s: &Side) {
    let fd = s.pair();
    if s.a() {
        s.sync("sent");
        wait::wait_queued(fd, 10);
        for _ in 0..3 {
            let child = proc::fork(|| {
                net::dup2(fd, 0).ok();
                shell("read -r -N 2 a; test ${#a} = 2; exit $?");
                9
            });
            log!(s, "{}", proc::wait_child(child));
            let (got, _) = io::recv_exact(fd, 1);
            log!(s, "{}", String::from_utf8_lossy(&got));
        }
        s.tell(1);
        log!(s, "{}", String::from_utf8_lossy(&io::recv_exact(fd, 4).0));
    } else {
        io::send_all(fd, b"0123456789").ok();
        s.sync("sent");
        s.hear();
        io::send_all(fd, b"end").ok();
    }
    s.sync("done");
}

/// Two processes have used the stream together when one of them becomes the program.
fn shared_before(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let (ready_r, ready_w) = net::pipe();
        let (go_r, go_w) = net::pipe();
        let side = *s;
        let child = proc::fork(|| {
            let (got, _) = io::recv_exact(fd, 2);
            log!(side, "child {}", String::from_utf8_lossy(&got));
            io::write(ready_w, b"!").ok();
            io::read(go_r, &mut [0; 1]).ok();
            net::dup2(fd, 0).ok();
            shell("read -r -N 3 a; test \"$a\" = 345; exit $?");
            9
        });
        s.sync("sent");
        io::read(ready_r, &mut [0; 1]).ok();
        let (got, _) = io::recv_exact(fd, 1);
        log!(s, "parent {}", String::from_utf8_lossy(&got));
        io::write(go_w, b"!").ok();
        log!(s, "{}", proc::wait_child(child));
        let (got, _) = io::recv_exact(fd, 4);
        log!(s, "parent {}", String::from_utf8_lossy(&got));
        s.tell(1);
    } else {
        io::send_all(fd, b"0123456789").ok();
        s.sync("sent");
        s.hear();
    }
    s.sync("done");
}

pub(super) fn strings(words: &'static [&'static std::ffi::CStr]) -> Vec<*mut libc::c_char> {
    let mut all: Vec<_> = words.iter().map(|w| w.as_ptr().cast_mut()).collect();
    all.push(std::ptr::null_mut());
    all
}

const THREE: &[&std::ffi::CStr] = &[
    c"bash",
    c"--norc",
    c"-c",
    c"read -r -N 3 a; test \"$a\" = 012",
];

/// posix_spawn, with the stream given to the child as its input, if it is one.
fn spawn(fd: Fd) -> String {
    let environment = strings(&[c"PATH=/bin:/usr/bin"]);
    let mut pid = 0;
    // SAFETY: the lists end with null and live during the call; `actions` is made before it is used.
    unsafe {
        let mut actions = std::mem::zeroed();
        libc::posix_spawn_file_actions_init(&raw mut actions);
        if fd >= 0 {
            libc::posix_spawn_file_actions_adddup2(&raw mut actions, fd, 0);
        }
        let words = if fd >= 0 { THREE } else { &[c"true"] };
        let program = if fd >= 0 { c"/bin/bash" } else { c"/bin/true" };
        let r = libc::posix_spawn(
            &raw mut pid,
            program.as_ptr(),
            &raw const actions,
            std::ptr::null(),
            strings(words).as_ptr(),
            environment.as_ptr(),
        );
        assert_eq!(r, 0);
    }
    proc::wait_child(pid)
}

/// vfork, dup2, exec: as shells and interpreters start programs.
#[allow(deprecated)]
fn vforked(fd: Fd) -> String {
    let words = strings(THREE);
    // SAFETY: the child makes two calls, neither of which changes what the parent goes on with.
    let pid = unsafe {
        let pid = libc::vfork();
        if pid == 0 {
            libc::dup2(fd, 0);
            libc::execv(c"/bin/bash".as_ptr(), words.as_ptr().cast());
            libc::_exit(9);
        }
        pid
    };
    proc::wait_child(pid)
}

fn system(fd: Fd) -> String {
    net::dup2(fd, 0).ok();
    let command = c"a=$(head -c 2)$(head -c 1); test \"$a\" = 012";
    // SAFETY: a constant command.
    proc::show_status(unsafe { libc::system(command.as_ptr()) })
}

/// The program reads three bytes, and this process goes on.
fn started(s: &Side, start: fn(Fd) -> String) {
    let fd = s.pair();
    if s.a() {
        net::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC).ok();
        s.sync("sent");
        wait::wait_queued(fd, 10);
        log!(s, "{}", start(fd));
        let (got, _) = io::recv_exact(fd, 7);
        log!(s, "{}", String::from_utf8_lossy(&got));
        s.tell(1);
    } else {
        io::send_all(fd, b"0123456789").ok();
        s.sync("sent");
        s.hear();
    }
    s.sync("done");
}

/// A program that cannot be started leaves everything as it was.
fn fails(s: &Side) {
    let fd = s.pair();
    if s.a() {
        s.sync("sent");
        wait::wait_queued(fd, 5);
        net::fcntl(fd, libc::F_SETFD, 0).ok();
        log!(s, "{}", proc::exec(&["/nonexistent"], true));
        log!(s, "{}", String::from_utf8_lossy(&io::recv_exact(fd, 5).0));
        s.tell(1);
        io::send_all(fd, b"thanks").ok();
    } else {
        io::send_all(fd, b"hello").ok();
        s.sync("sent");
        s.hear();
        log!(s, "{}", String::from_utf8_lossy(&io::recv_exact(fd, 6).0));
    }
    s.sync("done");
}

/// A program finds the descriptors that it was left, and no others.
fn leaves_no_descriptor(s: &Side) {
    let (left, right) = crate::side::own_pair();
    io::send_all(left, b"unread").ok();
    wait::wait_queued(right, 6);
    let (r, w) = net::pipe();
    let child = proc::fork(|| {
        net::dup2(right, 0).ok();
        net::dup2(w, 1).ok();
        shell("read -r -N 3 a; echo $a /proc/self/fd/? ${!SHUNT_U*}");
        9
    });
    log!(s, "{}", proc::wait_child(child));
    net::close(w).ok();
    let mut text = [0; 400];
    let n = call!(libc::read(r, text.as_mut_ptr().cast(), 400)).ok();
    log!(s, "{}", String::from_utf8_lossy(&text[..n as usize]));
    log!(
        s,
        "{}",
        String::from_utf8_lossy(&io::recv_exact(right, 3).0)
    );
}

/// What the peer of a connection leaves (µs) between two messages: each connection is left to children that become other programs.
const PAUSES: [u64; 12] = [
    0, 500, 1000, 1500, 2000, 2500, 3000, 4000, 6000, 8000, 10_000, 20_000,
];

/// Children become other programs, with the connection among their descriptors, while the parent waits for what comes next by it.
fn beside(s: &Side, children: usize, read: fn(Fd, usize) -> Vec<u8>) {
    for pause in PAUSES {
        let fd = s.pair();
        s.warm_up(fd);
        if s.a() {
            let born: Vec<_> = (0..children).map(|_| started_beside()).collect();
            let got = read(fd, 8);
            log!(s, "{}", String::from_utf8_lossy(&got));
            for child in born {
                log!(s, "{}", proc::wait_child(child));
            }
            io::send_all(fd, b"back").ok();
            log!(s, "{}", String::from_utf8_lossy(&read(fd, 4)));
        } else {
            // (half of it may lie there when they do, and the other half comes while they do or afterwards)
            io::send_all(fd, b"firs").ok();
            std::thread::sleep(Duration::from_micros(pause));
            io::send_all(fd, b"next").ok();
            log!(s, "{}", String::from_utf8_lossy(&io::recv_exact(fd, 4).0));
            io::send_all(fd, b"last").ok();
        }
        s.sync("next");
        net::close(fd).ok();
    }
}

/// Programs are started while the peer's process is stopped, which answers nothing: the connection, which they would inherit and do not use,
/// goes on when the peer does, with what it had sent before.
fn beside_stopped_peer(s: &Side) {
    let runs: [fn() -> String; 3] = [
        || proc::wait_child(started_beside()),
        // SAFETY: a constant command.
        || proc::show_status(unsafe { libc::system(c"true".as_ptr()) }),
        || spawn(-1),
    ];
    for unread in [0_usize, 100, 40_000] {
        let fd = s.pair();
        s.warm_up(fd);
        if s.a() {
            let peer = s.hear() as i32;
            wait::wait_queued(fd, unread as i32);
            proc::stop(peer);
            for run in runs {
                log!(s, "{}", run());
            }
            proc::kill(peer, libc::SIGCONT).ok();
            log!(s, "{}", hash(&io::recv_exact(fd, unread).0));
            for word in [b"hello", b"again"] {
                io::send_all(fd, word).ok();
                log!(s, "{}", text(&io::recv_exact(fd, 5).0));
                log!(s, "{}", runs[1]());
            }
        } else {
            io::send_all(fd, &Random::new(3).bytes(unread)).ok();
            s.tell(std::process::id().into());
            for _ in 0..2 {
                let (got, _) = io::recv_exact(fd, 5);
                io::send_all(fd, &got).ok();
            }
        }
        s.sync("next");
        net::close(fd).ok();
    }
}

/// A child that becomes another program, with all descriptors that are not closed then.
fn started_beside() -> i32 {
    proc::fork(|| proc::exec(&["/bin/true"], true).0 as i32)
}

/// The same at both ends, which wait for each other meanwhile.
fn both(s: &Side) {
    for pause in PAUSES {
        let fd = s.pair();
        s.warm_up(fd);
        io::send_all(fd, b"firs").ok();
        let born = started_beside();
        if !s.a() {
            std::thread::sleep(Duration::from_micros(pause));
        }
        io::send_all(fd, b"next").ok();
        log!(s, "{}", String::from_utf8_lossy(&polls(fd, 8)));
        log!(s, "{}", proc::wait_child(born));
        io::send_all(fd, b"last").ok();
        log!(s, "{}", String::from_utf8_lossy(&reads(fd, 4)));
        s.sync("next");
        net::close(fd).ok();
    }
}

fn reads(fd: Fd, len: usize) -> Vec<u8> {
    io::recv_exact(fd, len).0
}

/// As a server does that looks now and then whether its client is still there.
fn polls(fd: Fd, len: usize) -> Vec<u8> {
    read_with(fd, len, || {
        wait::poll(&[(fd, libc::POLLIN)], 100);
        io::recv(fd, &mut [0], libc::MSG_PEEK | libc::MSG_DONTWAIT);
    })
}

fn waits(fd: Fd, len: usize) -> Vec<u8> {
    let set = wait::epoll();
    wait::add(set, fd, libc::EPOLLIN, 1).ok();
    let got = read_with(fd, len, || {
        wait::epoll_wait(set, 1, -1);
    });
    net::close(set).ok();
    got
}

fn read_with(fd: Fd, len: usize, wait: impl Fn()) -> Vec<u8> {
    let mut got = Vec::new();
    while got.len() < len {
        wait();
        let mut part = vec![0; len - got.len()];
        let r = io::recv(fd, &mut part, libc::MSG_DONTWAIT);
        if !r.is(libc::EAGAIN) {
            assert!(r.ok() > 0, "ended");
            got.extend_from_slice(&part[..r.ok()]);
        }
    }
    got
}
