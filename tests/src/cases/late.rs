//! A client that says nothing for long: the server has handed the connection on, or made it a standard stream, before the client's
//! library can have asked anything. What the library says of itself is for no program to see, however late it comes.

use super::executed::strings;
use super::{Case, MOVES};
use crate::log;
use crate::side::{Side, text};
use crate::sys::{Fd, io, net, proc};
use std::ffi::CStr;
use std::time::Duration;

pub(super) const CASES: &[Case] = &[
    late("late_request_after_dup2", after_dup2),
    late("late_request_after_exec", after_exec),
    late("late_request_after_exec_twice", after_exec_twice),
    late("late_request_of_nothing", of_nothing),
    late("late_request_in_child", |s| in_child(s, true)),
    late("late_request_beside_parent", |s| in_child(s, false)),
    late("late_request_vforked", vforked),
    late("late_request_spawned", spawned),
];

const fn late(name: &'static str, body: fn(&Side)) -> Case {
    Case::pair(name, body).processes_only().any_path(MOVES)
}

const SHELL: &[&CStr] = &[
    c"bash",
    c"--norc",
    c"-c",
    c"read -r -N 5 a; printf 'heard %s' $a; read -r -N 3 b; printf ', %s' $b",
];
const ANSWERS: &str =
    "read -r -N 5 a; printf 'heard %s' \"$a\"; read -r -N 3 b; printf ', %s' \"$b\"";

fn shell(script: &str) -> i32 {
    proc::exec(&["/bin/bash", "--norc", "-c", script], true);
    9
}

fn become_shell(fd: Fd, script: &str) -> i32 {
    net::dup2(fd, 0).ok();
    net::dup2(fd, 1).ok();
    net::close(fd).ok();
    shell(script)
}

/// Later than anybody would wait for a request.
fn rest() {
    std::thread::sleep(Duration::from_millis(400));
}

/// The client, up to the end of the stream.
fn client(s: &Side, fd: Fd) {
    rest();
    io::send_all(fd, b"hello").ok();
    log!(s, "{}", text(&io::recv_exact(fd, 11).0));
    io::send_all(fd, b"you").ok();
    let (got, last) = io::recv_to_end(fd);
    log!(s, "{} {last}", text(&got));
}

/// What the shell does, by calls.
fn answer(s: &Side, fd: Fd) {
    let (got, last) = io::recv_exact(fd, 5);
    log!(s, "{} {last}", text(&got));
    io::send_all(fd, b"heard hello").ok();
    let (got, last) = io::recv_exact(fd, 3);
    log!(s, "{} {last}", text(&got));
    io::send_all(fd, b", you").ok();
    net::close(fd).ok();
}

fn after_dup2(s: &Side) {
    let fd = s.open();
    if s.accepts() {
        net::dup2(fd, 0).ok();
        net::close(fd).ok();
        answer(s, 0);
    } else {
        client(s, fd);
    }
    s.sync("done");
}

fn after_exec(s: &Side) {
    let fd = s.open();
    if s.accepts() {
        log!(s, "failed {}", become_shell(fd, ANSWERS));
    } else {
        client(s, fd);
    }
}

/// The new program has a child read first, and then becomes another.
fn after_exec_twice(s: &Side) {
    let fd = s.open();
    if s.accepts() {
        let script = "printf 'heard %s' \"$(head -c 5)\"; exec /bin/bash --norc -c \
            \"read -r -N 3 b; printf ', %s' \\$b\"";
        log!(s, "failed {}", become_shell(fd, script));
    } else {
        client(s, fd);
    }
}

/// The client ends its half, and has said nothing.
fn of_nothing(s: &Side) {
    let fd = s.open();
    if s.accepts() {
        let script = "read -r -N 5 a; printf '%s ended' \"$a\"";
        log!(s, "failed {}", become_shell(fd, script));
    } else {
        rest();
        net::shutdown(fd, libc::SHUT_WR).ok();
        let (got, last) = io::recv_to_end(fd);
        log!(s, "{} {last}", text(&got));
    }
}

/// A child becomes the program, while its parent has the connection or not.
fn in_child(s: &Side, closes: bool) {
    let fd = s.open();
    if s.accepts() {
        let child = proc::fork(|| become_shell(fd, ANSWERS));
        if closes {
            net::close(fd).ok();
        } else {
            // (after the program has begun, and before the client speaks)
            std::thread::sleep(Duration::from_millis(300));
            net::close(fd).ok();
        }
        log!(s, "{}", proc::wait_child(child));
    } else {
        client(s, fd);
    }
    s.sync("done");
}

#[allow(deprecated)]
fn vforked(s: &Side) {
    let fd = s.open();
    if s.accepts() {
        let words = strings(SHELL);
        // SAFETY: the child makes three calls, none of which changes what the parent goes on with.
        let child = unsafe {
            let child = libc::vfork();
            if child == 0 {
                libc::dup2(fd, 0);
                libc::dup2(fd, 1);
                libc::execv(c"/bin/bash".as_ptr(), words.as_ptr().cast());
                libc::_exit(9);
            }
            child
        };
        net::close(fd).ok();
        log!(s, "{}", proc::wait_child(child));
    } else {
        client(s, fd);
    }
    s.sync("done");
}

/// The parent closes its own number at once.
fn spawned(s: &Side) {
    let fd = s.open();
    if s.accepts() {
        let environment = strings(&[c"PATH=/bin:/usr/bin"]);
        let mut child = 0;
        // SAFETY: the lists end with null and live during the call; `actions` is made before it is used.
        unsafe {
            let mut actions = std::mem::zeroed();
            libc::posix_spawn_file_actions_init(&raw mut actions);
            libc::posix_spawn_file_actions_adddup2(&raw mut actions, fd, 0);
            libc::posix_spawn_file_actions_adddup2(&raw mut actions, fd, 1);
            let r = libc::posix_spawn(
                &raw mut child,
                c"/bin/bash".as_ptr(),
                &raw const actions,
                std::ptr::null(),
                strings(SHELL).as_ptr(),
                environment.as_ptr(),
            );
            assert_eq!(r, 0);
        }
        net::close(fd).ok();
        log!(s, "{}", proc::wait_child(child));
    } else {
        client(s, fd);
    }
    s.sync("done");
}
