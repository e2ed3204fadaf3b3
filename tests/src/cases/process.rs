//! A stream that goes on in another process: by fork, by exec, or beside a child that does not care.

use super::Case;
use crate::log;
use crate::side::{Random, Side, hash, text};
use crate::sys::{Fd, io, net, proc, wait};

pub(super) const CASES: &[Case] = &[
    Case::moving("fork_child_uses", fork_child_uses),
    Case::moving("fork_parent_then_child", fork_parent_then_child),
    Case::moving("fork_reader_and_writer", fork_reader_and_writer),
    Case::moving("fork_child_closes", fork_child_closes),
    Case::moving("fork_parent_closes", fork_parent_closes),
    Case::moving("fork_child_exits_at_once", fork_child_exits_at_once),
    Case::moving("fork_per_connection", fork_per_connection),
    Case::moving("fork_with_data_queued", fork_with_data_queued),
    Case::pair("vforked_child_sends", vforked_child_sends),
    Case::moving("exec_hands_over", |s| exec_hands_over(s, true)),
    Case::moving("exec_without_library", |s| exec_hands_over(s, false)),
    Case::moving("exec_in_place", exec_in_place),
    Case::moving("exec_closes_cloexec", exec_closes_cloexec),
    Case::moving("system_leaves_alone", system_leaves_alone),
];

/// B's part in most of these: takes a line of known length and answers it.
pub(super) fn answer(s: &Side, fd: Fd, lengths: &[usize]) {
    for length in lengths {
        let (got, _) = io::recv_exact(fd, *length);
        log!(s, "{}", text(&got));
        io::send_all(fd, b"ok").ok();
    }
    log!(s, "end {}", io::recv(fd, &mut [0; 4], 0));
}

pub(super) fn ask(s: &Side, fd: Fd, word: &[u8]) {
    io::send_all(fd, word).ok();
    log!(s, "{}", text(&io::recv_exact(fd, 2).0));
}

fn fork_child_uses(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let side = *s;
        let child = proc::fork(move || {
            ask(&side, fd, b"from child");
            ask(&side, fd, b"child again");
            0
        });
        net::close(fd).ok();
        log!(s, "{}", proc::wait_child(child));
    } else {
        answer(s, fd, &[10, 11]);
    }
    s.sync("done");
}

fn fork_parent_then_child(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let (go_r, go_w) = net::pipe();
        let side = *s;
        let child = proc::fork(move || {
            io::read(go_r, &mut [0; 1]).ok();
            ask(&side, fd, b"child");
            0
        });
        ask(s, fd, b"parent");
        io::write(go_w, b"!").ok();
        log!(s, "{}", proc::wait_child(child));
        ask(s, fd, b"parent again");
        net::close(fd).ok();
    } else {
        answer(s, fd, &[6, 5, 12]);
    }
    s.sync("done");
}

/// The usual split: the child reads, the parent writes.
fn fork_reader_and_writer(s: &Side) {
    let fd = s.pair();
    let size = 2 << 20;
    let big = Random::new(11).bytes(size);
    if s.a() {
        let side = *s;
        let child = proc::fork(move || {
            let (got, last) = io::recv_to_end(fd);
            log!(side, "child {} {:x} {last}", got.len(), hash(&got));
            0
        });
        let sent = io::send_all(fd, &big);
        net::shutdown(fd, libc::SHUT_WR).ok();
        log!(s, "{}", proc::wait_child(child));
        log!(s, "{sent}");
    } else {
        let sender = std::thread::spawn(move || {
            io::send_all(fd, &big).ok();
            net::shutdown(fd, libc::SHUT_WR).ok();
        });
        let (got, last) = io::recv_to_end(fd);
        log!(s, "{} {:x} {last}", got.len(), hash(&got));
        sender.join().unwrap();
    }
    s.sync("done");
}

/// A child that closes its copy leaves the parent's stream alone.
fn fork_child_closes(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let child = proc::fork(move || net::close(fd).0 as i32);
        log!(s, "{}", proc::wait_child(child));
        ask(s, fd, b"still here");
        net::close(fd).ok();
    } else {
        answer(s, fd, &[10]);
    }
    s.sync("done");
}

fn fork_parent_closes(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let (go_r, go_w) = net::pipe();
        let side = *s;
        let child = proc::fork(move || {
            net::close(go_w).ok();
            io::read(go_r, &mut [0; 1]);
            ask(&side, fd, b"child only");
            0
        });
        net::close(fd).ok();
        net::close(go_w).ok();
        log!(s, "{}", proc::wait_child(child));
    } else {
        answer(s, fd, &[10]);
    }
    s.sync("done");
}

fn fork_child_exits_at_once(s: &Side) {
    let fd = s.pair();
    if s.a() {
        for _ in 0..5 {
            let child = proc::fork(|| 3);
            log!(s, "{}", proc::wait_child(child));
            ask(s, fd, b"unharmed");
        }
        net::close(fd).ok();
    } else {
        answer(s, fd, &[8; 5]);
    }
    s.sync("done");
}

/// The classic server: a child for each connection, the parent closes its copy.
fn fork_per_connection(s: &Side) {
    let count = 10;
    if s.accepts() {
        let lis = s.listen(16);
        for _ in 0..count {
            let fd = net::accept(lis).fd();
            let child = proc::fork(move || {
                net::close(lis).ok();
                for _ in 0..20 {
                    let (got, _) = io::recv_exact(fd, 7);
                    io::send_all(fd, &got).ok();
                }
                0
            });
            net::close(fd).ok();
            log!(s, "{}", proc::wait_child(child));
        }
    } else {
        let to = s.target();
        for _ in 0..count {
            let fd = net::socket_for(to, 0);
            net::connect(fd, to).ok();
            for _ in 0..20 {
                io::send_all(fd, b"forking").ok();
                assert_eq!(io::recv_exact(fd, 7).0, b"forking");
            }
            log!(s, "{}", io::recv(fd, &mut [0; 1], 0));
            net::close(fd).ok();
        }
    }
    s.sync("done");
}

/// Bytes that wait at the moment of the fork are read once, by whoever reads first.
fn fork_with_data_queued(s: &Side) {
    let fd = s.pair();
    if s.a() {
        s.sync("sent");
        wait::wait_queued(fd, 10);
        let side = *s;
        let child = proc::fork(move || {
            log!(side, "child {}", text(&io::recv_exact(fd, 5).0));
            0
        });
        log!(s, "{}", proc::wait_child(child));
        log!(s, "parent {}", text(&io::recv_exact(fd, 5).0));
    } else {
        io::send_all(fd, b"helloworld").ok();
        s.sync("sent");
    }
    s.sync("done");
}

const CHILD: &str = "read -r -n 5 word <&0; printf 'heard %s' \"$word\"; read -r -n 3 more; printf ', %s' \"$more\"";

/// A shell takes the stream as its input and output.
fn exec_hands_over(s: &Side, with_library: bool) {
    let fd = s.pair();
    if s.a() {
        let child = proc::fork(move || {
            net::dup2(fd, 0).ok();
            net::dup2(fd, 1).ok();
            proc::exec(&["/bin/bash", "--norc", "-c", CHILD], with_library);
            9
        });
        net::close(fd).ok();
        log!(s, "{}", proc::wait_child(child));
    } else {
        io::send_all(fd, b"hello").ok();
        let (got, _) = io::recv_exact(fd, 11);
        log!(s, "{}", text(&got));
        io::send_all(fd, b"you").ok();
        let (got, last) = io::recv_to_end(fd);
        log!(s, "{} {last}", text(&got));
    }
    s.sync("done");
}

/// The process itself becomes another program, with queued data and the stream as its input.
fn exec_in_place(s: &Side) {
    let fd = s.pair();
    if s.a() {
        s.sync("sent");
        wait::wait_queued(fd, 5);
        net::dup2(fd, 0).ok();
        net::dup2(fd, 1).ok();
        proc::exec(&["/bin/bash", "--norc", "-c", CHILD], true);
        log!(s, "exec failed");
    } else {
        io::send_all(fd, b"hello").ok();
        s.sync("sent");
        log!(s, "{}", text(&io::recv_exact(fd, 11).0));
        io::send_all(fd, b"you").ok();
        let (got, last) = io::recv_to_end(fd);
        log!(s, "{} {last}", text(&got));
    }
}

fn exec_closes_cloexec(s: &Side) {
    let fd = s.pair();
    if s.a() {
        io::send_all(fd, b"bye").ok();
        proc::exec(&["/bin/true"], true);
    } else {
        s.wait_gone();
        let (got, last) = io::recv_to_end(fd);
        log!(s, "{} {last}", text(&got));
    }
}

/// system(3) runs a child that does not care about the stream.
fn system_leaves_alone(s: &Side) {
    let fd = s.pair();
    if s.a() {
        for _ in 0..3 {
            // SAFETY: a constant command.
            log!(s, "{}", unsafe { libc::system(c"exit 0".as_ptr()) });
            ask(s, fd, b"unharmed");
        }
        net::close(fd).ok();
    } else {
        answer(s, fd, &[8; 3]);
    }
    s.sync("done");
}

/// Each question is begun by a child that borrows this memory, and whose descriptors are its own.
#[allow(deprecated)]
fn vforked_child_sends(s: &Side) {
    let fd = s.pair();
    let mut answered = 0;
    for _ in 0..200 {
        if s.a() {
            // SAFETY: the child makes two calls, neither of which changes what the parent goes on with.
            let child = unsafe {
                let child = libc::vfork();
                if child == 0 {
                    let sent = libc::send(fd, c"v".as_ptr().cast(), 1, 0);
                    libc::_exit(i32::from(sent != 1));
                }
                child
            };
            assert_eq!(proc::wait_child(child), "exit 0");
            io::send(fd, b"p", 0).ok();
            answered += u32::from(io::recv_exact(fd, 2).0 == b"vp");
        } else {
            let (question, _) = io::recv_exact(fd, 2);
            io::send(fd, &question, 0).ok();
        }
    }
    log!(s, "answered {answered}");
    s.sync("done");
}
