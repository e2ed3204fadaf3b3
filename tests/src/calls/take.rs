//! Every call that receives, with good and bad arguments. One that would wait for ever is made not to.

use super::end::End;
use super::give::{count, header, size};
use super::plan::Step;
use crate::side::hash;
use crate::sys::{Fd, Ret, call, io, net};

pub fn take(e: &mut End, step: &Step, fd: Fd) {
    let [by, n, flag, more, _] = step.words;
    let n = size(n);
    let mut flags = [
        0,
        libc::MSG_PEEK,
        libc::MSG_DONTWAIT,
        libc::MSG_WAITALL,
        libc::MSG_TRUNC,
        libc::MSG_PEEK | libc::MSG_TRUNC,
        libc::MSG_PEEK | libc::MSG_WAITALL,
        libc::MSG_NOSIGNAL,
        libc::MSG_CMSG_CLOEXEC,
    ][flag % 9];
    let by = by % 12;
    let c = &e.conns[step.conn];
    let all = flags & libc::MSG_WAITALL != 0;
    if c.waits(n.max(1), all) || n == 0 {
        flags |= libc::MSG_DONTWAIT;
        // Those without flags would wait; some of them do, for as long as they may.
        if !matches!(by, 2..=6 | 11) && (c.waits(n.max(1), false) || n == 0) {
            let r = io::recv(
                fd,
                &mut [0; 100][..n.min(100)],
                libc::MSG_DONTWAIT | libc::MSG_PEEK,
            );
            return e.told("take nothing", r);
        }
    }
    let mut buf = vec![0u8; n];
    let mut eaten = true;
    let r = match by {
        0 => io::read(fd, &mut buf),
        1 => {
            let list = room(&mut buf, count(more));
            io::raw::readv(fd, &list, list.len() as i32)
        }
        2 | 3 => io::recv(fd, &mut buf, flags),
        4 => {
            let (r, len) = io::recvfrom(fd, &mut buf, flags);
            e.line(&format!("recvfrom len {}", if r.0 >= 0 { len } else { 0 }));
            r
        }
        5 => {
            let mut list = room(&mut buf, count(more));
            let mut msg = header(&mut list);
            let mut control = [0u8; 64];
            msg.msg_control = control.as_mut_ptr().cast();
            msg.msg_controllen = control.len();
            let r = call!(libc::recvmsg(fd, &raw mut msg, flags));
            if r.0 >= 0 {
                e.line(&format!(
                    "recvmsg {} {} {:#x}",
                    msg.msg_namelen, msg.msg_controllen, msg.msg_flags
                ));
            }
            r
        }
        6 => {
            let (left, right) = buf.split_at_mut(n / 3);
            let several = flags & libc::MSG_PEEK == 0;
            let (r, list) = io::recvmmsg(fd, &mut [left, right], flags | libc::MSG_DONTWAIT);
            e.line(&format!("recvmmsg {r} {list:?}"));
            eaten = several;
            if several && r.0 > 0 {
                Ret(list.iter().map(|n| i64::from(*n)).sum())
            } else {
                Ret(r.0.min(0))
            }
        }
        7 => {
            let (out, into) = net::pipe();
            let most = n.min(30_000);
            let null = std::ptr::null_mut();
            let r = call!(libc::splice(
                fd,
                null,
                into,
                null,
                most,
                libc::SPLICE_F_NONBLOCK
            ));
            if r.0 > 0 {
                io::read(out, &mut buf).ok();
            }
            net::close(out).ok();
            net::close(into).ok();
            // How much one call moves is the kernel's affair.
            e.conns[step.conn].own.read += r.0.max(0) as u64;
            return match r.0 {
                1.. => rest(e, step, fd, most - r.0 as usize, buf, r.0 as usize),
                _ => e.told("splice out", r),
            };
        }
        // (where bytes lie beyond what is good of the memory, it depends on the kernel's packets how many are taken)
        8 if more % 9 == 2 && e.conns[step.conn].queued() > n / 2 => bad(fd, &mut buf, 3),
        8 => bad(fd, &mut buf, more),
        9 => call!(libc::syscall(libc::SYS_read, fd, buf.as_mut_ptr(), n)),
        10 => call!(libc::preadv2(fd, room(&mut buf, 3).as_ptr(), 3, -1, 0)),
        _ => {
            eaten = false;
            io::recv(fd, &mut buf, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT)
        }
    };
    if flags & libc::MSG_PEEK != 0 && matches!(by, 2..=6) {
        eaten = false;
    }
    let name = [
        "read", "readv", "recv", "recv", "recvfrom", "recvmsg", "recvmmsg", "splice", "bad",
        "syscall", "preadv2", "errqueue",
    ][by];
    // (past the end of what was received, too, nothing may be written; but up to bad memory the kernel may have)
    let bytes = if r.is(libc::EFAULT) { 0 } else { hash(&buf) };
    e.line(&format!("take {name} {n} {flags:#x} {more} {r} {bytes:x}"));
    if eaten && r.0 > 0 {
        e.conns[step.conn].own.read += r.0 as u64;
    }
    if r.is(libc::ECONNRESET) {
        e.conns[step.conn].own.broken = 1;
    }
}

/// Reads what a splice has left of what was asked for.
fn rest(e: &mut End, step: &Step, fd: Fd, left: usize, mut buf: Vec<u8>, got: usize) {
    let mut at = got;
    let end = (got + left).min(buf.len());
    while at < end {
        let r = io::recv(fd, &mut buf[at..end], libc::MSG_DONTWAIT);
        if r.0 <= 0 {
            break;
        }
        at += r.0 as usize;
        e.conns[step.conn].own.read += r.0 as u64;
    }
    e.line(&format!("splice out {at} {:x}", hash(&buf[..at])));
}

fn room(buf: &mut [u8], count: usize) -> Vec<libc::iovec> {
    let each = buf.len() / count.max(1) + 1;
    let mut list: Vec<_> = buf.chunks_mut(each).map(io::iov_mut).collect();
    while list.len() < count {
        list.insert(list.len() / 2, io::iov_at(0, 0));
    }
    list
}

fn bad(fd: Fd, buf: &mut [u8], more: usize) -> Ret {
    let page = io::forbidden_page();
    let half = buf.len() / 2;
    let n = buf.len();
    match more % 9 {
        0 => io::raw::read(fd, page, n),
        1 => io::raw::recv(fd, 8, n, libc::MSG_PEEK | libc::MSG_DONTWAIT).min_zero(),
        2 => io::raw::readv(
            fd,
            &[io::iov_mut(&mut buf[..half]), io::iov_at(page, 10)],
            2,
        ),
        3 => io::raw::readv(fd, &[io::iov_at(page, 10), io::iov_mut(buf)], 2),
        4 => io::raw::readv(fd, &[io::iov_mut(buf)], -1),
        5 => io::raw::recvmsg(fd, 8, libc::MSG_DONTWAIT),
        6 => io::raw::readv(fd, &[io::iov_mut(buf), io::iov_at(page, usize::MAX)], 2),
        7 => call!(libc::readv(fd, page as *const libc::iovec, 2)),
        _ => call!(libc::recvfrom(
            fd,
            buf.as_mut_ptr().cast(),
            n,
            libc::MSG_DONTWAIT | libc::MSG_PEEK,
            page as *mut libc::sockaddr,
            page as *mut u32
        ))
        .min_zero(),
    }
}

impl Ret {
    /// The count of a call that takes nothing is not counted as taken.
    fn min_zero(self) -> Self {
        Self(self.0.min(0))
    }
}
