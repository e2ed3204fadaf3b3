//! Urgent bytes: sent, taken, in line or not, and the mark. (Streams of such a run do not wait: how many bytes there are to
//! read depends on where the mark is.)

use super::end::{End, MOST};
use super::give::note;
use super::plan::Step;
use crate::side::hash;
use crate::sys::{Fd, io, net};
use crate::walk::plan::bytes;

pub fn urgent(e: &mut End, step: &Step, fd: Fd) {
    let [by, n, _, _, _] = step.words;
    let c = &e.conns[step.conn];
    match by % 6 {
        0 | 1 => {
            let room = MOST.saturating_sub(c.own.sent.saturating_sub(c.peer.read));
            if room < 4 {
                return;
            }
            let data = bytes(step.conn + c.round * 4, e.end, c.own.sent, 1 + n % 3);
            let r = io::send(fd, &data, libc::MSG_OOB | libc::MSG_NOSIGNAL);
            e.told("urgent", r);
            note(e, step.conn, r);
        }
        2 | 3 => {
            let mut buf = [0; 2];
            let peek = if by % 6 == 3 { libc::MSG_PEEK } else { 0 };
            let flags = libc::MSG_OOB | libc::MSG_DONTWAIT | peek;
            let r = io::recv(fd, &mut buf[..1 + n % 2], flags);
            e.line(&format!("urgent taken {r} {:x}", hash(&buf)));
        }
        4 => {
            let (r, mark) = net::ioctl_int(fd, net::SIOCATMARK);
            let look = crate::sys::wait::poll(&[(fd, libc::POLLPRI | libc::POLLRDBAND)], 0);
            e.line(&format!("mark {r} {mark} {} {look}", net::queued(fd)));
        }
        _ => {
            let on = (n % 2) as i32;
            let r = net::setopt(fd, libc::SOL_SOCKET, libc::SO_OOBINLINE, on);
            e.told(&format!("in line {on}"), r);
        }
    }
}
