//! Steps of both ends at once: what they tell does not depend on who is faster.

use super::end::End;
use super::plan::{Kind, Step};
use crate::side::hash;
use crate::sys::{io, net, wait};
use crate::walk::calls;
use crate::walk::plan::{Give, Take, bytes};
use std::time::Duration;

/// The step's end sends, the other reads until it has all.
pub fn stream(e: &mut End, step: &Step, gives: bool) {
    let n = 1 + step.words[1] % if e.kind == Kind::Small { 9000 } else { 300_000 };
    let c = &mut e.conns[step.conn];
    if !c.whole() || c.nonblock {
        // (the other end goes by the same words, but for what only this one knows)
        if c.nonblock && c.whole() {
            net::set_nonblocking(c.fds[0], false).ok();
            c.nonblock = false;
        } else {
            return;
        }
    }
    let fd = c.fds[step.words[4] % c.fds.len()];
    if gives {
        let data = bytes(step.conn + c.round * 4, e.end, c.own.sent, n);
        let by = [
            Give::Write,
            Give::Send,
            Give::Writev,
            Give::Sendmsg,
            Give::Sendmmsg,
            Give::Sendfile,
        ][step.words[0] % 6];
        let r = calls::give(fd, &data, by);
        c.own.sent += n as u64;
        return e.told(&format!("stream {n} {by:?}"), r);
    }
    let by = [
        Take::Read,
        Take::Recv,
        Take::WaitAll,
        Take::Readv,
        Take::Recvmsg,
        Take::Peek,
    ][step.words[2] % 6];
    let all = c.queued() + n;
    let mut got = Vec::new();
    while got.len() < all {
        let most = (all - got.len()).min(1 + step.words[3] % 100_000);
        let (r, mut part) = calls::take(fd, most, by);
        if by == Take::Peek && r.0 > 0 {
            let (r, mut part) = calls::take(fd, r.0 as usize, Take::Read);
            assert!(r.0 > 0);
            got.append(&mut part);
        } else if r.is(libc::EAGAIN) {
            // (a low-water mark above what is left would keep this waiting for ever)
            std::thread::sleep(Duration::from_micros(100));
        } else if r.0 <= 0 {
            break;
        }
        if by != Take::Peek {
            got.append(&mut part);
        }
    }
    c.own.read += got.len() as u64;
    e.line(&format!("streamed {} of {all} {:x}", got.len(), hash(&got)));
}

/// The step's end sleeps with nothing there; the other sends a little.
pub fn sleep(e: &mut End, step: &Step, sleeps: bool) {
    let n = 1 + step.words[1] % 300;
    let c = &mut e.conns[step.conn];
    let empty = if sleeps {
        c.queued() == 0
    } else {
        c.own.sent == c.peer.read
    };
    if !c.whole() || !empty {
        return;
    }
    let fd = c.fds[step.words[4] % c.fds.len()];
    if !sleeps {
        std::thread::sleep(Duration::from_micros((step.words[2] % 6000) as u64));
        let data = bytes(step.conn + c.round * 4, e.end, c.own.sent, n);
        let r = io::send_all(fd, &data);
        c.own.sent += n as u64;
        return e.told("wakes", r);
    }
    net::set_nonblocking(fd, false).ok();
    c.nonblock = false;
    net::setopt(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, 1).ok();
    c.lowat = 1;
    let woken = match step.words[0] % 4 {
        0 => wait::poll(&[(fd, libc::POLLIN)], -1),
        1 => {
            let select = wait::Select {
                read: &[fd],
                write: &[],
                except: &[],
            };
            select.select(None)
        }
        2 => {
            let set = wait::epoll();
            wait::add(set, fd, libc::EPOLLIN | libc::EPOLLET, 7).ok();
            let text = wait::epoll_wait(set, 4, -1).to_string();
            net::close(set).ok();
            text
        }
        _ => String::new(),
    };
    let mut buf = vec![0; n];
    let r = io::recv(fd, &mut buf, libc::MSG_WAITALL);
    c.own.read += r.0.max(0) as u64;
    e.line(&format!(
        "slept {} {woken} {r} {:x}",
        step.words[0] % 4,
        hash(&buf)
    ));
}

pub fn anew(e: &mut End, step: &Step, connects: bool) {
    let c = &e.conns[step.conn];
    if c.fds.is_empty() && c.peer.held == 0 {
        e.open(step.conn, connects);
        e.line("anew");
    }
}
