//! A thread that has a table of descriptors of its own: what it closes and opens is its own affair, and the process's connection
//! goes on.

use super::Case;
use super::attach::talk;
use crate::log;
use crate::side::{Side, text};
use crate::sys::{Fd, Ret, call, io, net, proc, wait};

pub(super) const CASES: &[Case] = &[
    Case::moving("unshared_descriptors", |s| beside(s, unshare)),
    Case::moving("unshared_by_syscall", |s| beside(s, by_syscall)),
    Case::moving("unshared_by_close_range", |s| beside(s, by_close_range)),
    Case::moving("unshared_alone", |s| alone(s, unshare)),
    Case::moving("unshared_alone_by_close_range", |s| {
        alone(s, by_close_range)
    }),
];

fn unshare(_: Fd) -> Ret {
    call!(libc::unshare(libc::CLONE_FILES))
}

fn by_syscall(_: Fd) -> Ret {
    call!(libc::syscall(libc::SYS_unshare, libc::CLONE_FILES))
}

/// Closes a descriptor that nobody uses.
fn by_close_range(spare: Fd) -> Ret {
    let (n, apart) = (spare as u32, libc::CLOSE_RANGE_UNSHARE as i32);
    call!(libc::close_range(n, n, apart))
}

/// The only thread of a server asks for that before it accepts.
fn alone(s: &Side, part: fn(Fd) -> Ret) {
    let fd = if s.accepts() {
        let lis = s.listen(4);
        log!(s, "{}", part(proc::eventfd(0)));
        net::accept(lis).fd()
    } else {
        s.connect()
    };
    talk(s, fd);
}

fn beside(s: &Side, part: fn(Fd) -> Ret) {
    let fd = s.pair();
    if s.a() {
        wait::wait_queued(fd, 3);
        let spare = proc::eventfd(0);
        let lines = std::thread::spawn(move || apart(fd, spare, part));
        for line in lines.join().unwrap() {
            log!(s, "{line}");
        }
        log!(s, "{}", text(&io::recv_exact(fd, 3).0));
        io::send_all(fd, b"process").ok();
        log!(s, "{}", text(&io::recv_exact(fd, 14).0));
        log!(s, "{}", net::close(fd));
    } else {
        io::send_all(fd, b"had").ok();
        let mut all = Vec::new();
        loop {
            let (got, last) = io::recv_exact(fd, 1);
            if got.is_empty() {
                log!(s, "{last} {}", text(&all));
                break;
            }
            io::send_all(fd, &got).ok();
            all.extend(got);
        }
    }
    s.sync("done");
}

/// What the thread does, and what it is told.
fn apart(fd: Fd, spare: Fd, part: fn(Fd) -> Ret) -> Vec<String> {
    let mut said = vec![format!("{}", part(spare))];
    io::send_all(fd, b"thread").ok();
    let other = net::dup(fd).fd();
    said.push(format!("{}", io::send(other, b"!", 0)));
    said.push(format!("{}", net::close(fd)));
    said.push(format!("{}", io::send(fd, b"?", libc::MSG_NOSIGNAL)));
    // (its number is another connection's here)
    let (mine, peer) = crate::side::own_pair();
    io::send_all(mine, b"own").ok();
    said.push(text(&io::recv_exact(peer, 3).0));
    said.push(format!("{}", net::close(other)));
    said
}
