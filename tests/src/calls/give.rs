//! Every call that sends, with good and bad arguments. SIGPIPE is ignored in all runs.

use super::end::{End, MOST};
use super::plan::{Kind, Step};
use crate::sys::{Fd, Ret, call, io, net};
use crate::walk::plan::bytes;

/// A size: often one at which something changes.
pub fn size(word: usize) -> usize {
    match word % 8 {
        0 => [0, 1, 2, 3][word / 8 % 4],
        1..4 => word / 8 % 200,
        4 | 5 => word / 8 % 5000,
        6 => 4090 + word / 8 % 12,
        _ => word / 8 % MOST as usize,
    }
}

/// Cuts bytes into this many parts, some of them empty.
pub fn parts(data: &[u8], count: usize) -> Vec<libc::iovec> {
    let each = data.len() / count.max(1) + 1;
    let mut list: Vec<_> = data.chunks(each).map(io::iov).collect();
    while list.len() < count {
        list.insert(list.len() / 2, io::iov(&[]));
    }
    list
}

pub fn count(word: usize) -> usize {
    [1, 2, 3, 7, 8, 9, 64, 1023, 1024][word % 9]
}

pub fn header(list: &mut [libc::iovec]) -> libc::msghdr {
    // SAFETY: all zeroes is an empty header.
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    msg.msg_iov = list.as_mut_ptr();
    msg.msg_iovlen = list.len();
    msg
}

pub fn give(e: &mut End, step: &Step, fd: Fd) {
    let [by, n, flag, more, _] = step.words;
    let c = &e.conns[step.conn];
    let most = if e.kind == Kind::Small { 1000 } else { MOST };
    let room = most.saturating_sub(c.own.sent.saturating_sub(c.peer.read)) as usize;
    let mut n = size(n).min(room);
    if c.ends() || c.own.shut_wr > 0 {
        // What a sender is told of an end that is gone is asked with one small call.
        n = n.min(100);
    }
    let data = bytes(step.conn + c.round * 4, e.end, c.own.sent, n);
    let flags = [
        0,
        libc::MSG_NOSIGNAL,
        libc::MSG_DONTWAIT,
        libc::MSG_MORE,
        libc::MSG_EOR,
        libc::MSG_CONFIRM,
        libc::MSG_DONTROUTE,
    ][flag % 7];
    let by = by % 13;
    let r = match by {
        0 => io::write(fd, &data),
        1 | 2 => io::send(fd, &data, flags),
        3 => {
            let list = parts(&data, count(more));
            io::raw::writev(fd, &list, list.len() as i32)
        }
        4 => io::sendto_null(fd, &data, flags),
        5 => {
            // An address where the stream has one: it is not looked at.
            let addr = net::RawAddr::new(net::loopback());
            call!(libc::sendto(
                fd,
                data.as_ptr().cast(),
                data.len(),
                flags,
                addr.ptr(),
                16
            ))
        }
        6 => {
            let mut list = parts(&data, count(more));
            let msg = header(&mut list);
            io::raw::sendmsg(fd, (&raw const msg).addr(), flags)
        }
        7 => {
            let third = data.len() / 3;
            let (r, list) = io::sendmmsg(fd, &[&data[..third], &[], &data[third..]], flags);
            e.line(&format!("sendmmsg {r} {list:?}"));
            if r.0 > 0 {
                Ret(list.iter().map(|n| i64::from(*n)).sum())
            } else {
                r
            }
        }
        8 => {
            let file = io::memory_file(&data);
            // More is asked for than the file has.
            let (r, at) = io::sendfile(fd, file, 0, n + more % 3);
            net::close(file).ok();
            e.line(&format!("sendfile at {at}"));
            r
        }
        9 => {
            let (out, into) = net::pipe();
            let n = n.min(30_000);
            io::write(into, &data[..n]).ok();
            let r = if n == 0 {
                Ret(0)
            } else {
                io::splice(out, fd, n)
            };
            net::close(out).ok();
            net::close(into).ok();
            r
        }
        10 => bad(fd, &data, more, flags),
        11 => call!(libc::syscall(
            libc::SYS_sendto,
            fd,
            data.as_ptr(),
            data.len(),
            flags,
            0,
            0
        )),
        _ => call!(libc::pwritev2(
            fd,
            parts(&data, 3).as_ptr(),
            if n == 0 { 0 } else { 3.min(n as i32) },
            -1,
            0
        )),
    };
    let by_name = [
        "write",
        "send",
        "send",
        "writev",
        "sendto",
        "sendto addr",
        "sendmsg",
        "sendmmsg",
        "sendfile",
        "splice",
        "bad",
        "syscall",
        "pwritev2",
    ][by];
    e.told(&format!("give {by_name} {n} {flags:#x} {more}"), r);
    if flags == libc::MSG_MORE {
        net::setopt(fd, libc::IPPROTO_TCP, libc::TCP_CORK, 0);
        net::setopt(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
    }
    note(e, step.conn, r);
}

/// What a call that sends has come to.
pub fn note(e: &mut End, conn: usize, r: Ret) {
    let c = &mut e.conns[conn];
    if r.0 > 0 {
        c.own.sent += r.0 as u64;
        if c.peer.held == 0 {
            c.own.broken = 1;
        }
    }
    if r.is(libc::ECONNRESET) {
        c.own.broken = 1;
    }
}

/// Bad memory, whole or behind some good bytes; bad vectors and lengths.
fn bad(fd: Fd, data: &[u8], more: usize, flags: i32) -> Ret {
    let page = io::forbidden_page();
    let half = data.len() / 2;
    match more % 10 {
        0 => io::raw::write(fd, page, data.len()),
        1 => io::raw::send(fd, 8, data.len().max(1), flags),
        2 => io::raw::writev(fd, &[io::iov(&data[..half]), io::iov_at(page, 10)], 2),
        3 => io::raw::writev(fd, &[io::iov_at(page, 10), io::iov(data)], 2),
        4 => io::raw::writev(fd, &[io::iov(data)], -1),
        5 => io::raw::writev(fd, &parts(data, 1025), 1025),
        6 => io::raw::sendmsg(fd, 8, flags),
        7 => io::raw::writev(
            fd,
            &[io::iov(data), io::iov_at(data.as_ptr().addr(), usize::MAX)],
            2,
        ),
        8 => call!(libc::writev(fd, page as *const libc::iovec, 2)),
        _ => io::raw::send(fd, page, 0, flags),
    }
}
