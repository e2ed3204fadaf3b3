//! Rarer forms: memory that is only partly there, time-outs with something there, masks with a signal that waits, a number that is
//! another connection's, bytes that go through several pipes.

use super::end::{End, MOST};
use super::give::note;
use super::plan::Step;
use crate::side::hash;
use crate::sys::{Fd, call, io, net, proc, wait};
use crate::walk::plan::bytes;
use std::time::Duration;

pub fn more(e: &mut End, step: &Step, fd: Fd) {
    match step.words[0] % 6 {
        0 => partly_there(e, step, fd),
        1 => timed_out(e, step, fd),
        2 => several(e, step, fd),
        3 => signalled(e, step, fd),
        4 => taken_over(e, step, fd),
        _ => by_pipes(e, step, fd),
    }
}

/// Into memory that ends, or that can only be read.
fn partly_there(e: &mut End, step: &Step, fd: Fd) {
    let good = step.words[1] % 200;
    let queued = e.conns[step.conn].queued();
    if queued == 0 {
        return;
    }
    let all = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let none = std::ptr::null_mut();
    let at = call!(libc::mmap(none, 8192, all, flags, -1, 0)).ok();
    let second = at + 4096;
    if step.words[2].is_multiple_of(2) {
        call!(libc::munmap(second as *mut _, 4096)).ok();
    } else {
        call!(libc::mprotect(second as *mut _, 4096, libc::PROT_READ)).ok();
    }
    // (where bytes lie beyond the good memory it depends on the kernel's packets how many are taken)
    let (from, n) = if queued <= good {
        (second - good, good + 50)
    } else {
        (second, 50)
    };
    let r = io::raw::recv(fd, from, n, libc::MSG_DONTWAIT);
    // SAFETY: the first page is there.
    let bytes = unsafe { std::slice::from_raw_parts(at as *const u8, 4096) };
    let bytes = if r.0 >= 0 { hash(bytes) } else { 0 };
    e.line(&format!("partly {good} {r} {bytes:x}"));
    e.conns[step.conn].own.read += r.0.max(0) as u64;
    call!(libc::munmap(at as *mut _, 8192)).ok();
}

/// All of more than there is, for a moment.
fn timed_out(e: &mut End, step: &Step, fd: Fd) {
    let c = &e.conns[step.conn];
    let queued = c.queued();
    if c.nonblock || c.ends() {
        return;
    }
    net::set_timeout(fd, libc::SO_RCVTIMEO, 20).ok();
    let mut buf = vec![0; queued + 20];
    let how = [libc::MSG_WAITALL, libc::MSG_WAITALL | libc::MSG_PEEK][step.words[1] % 2];
    let r = io::recv(fd, &mut buf, how);
    net::set_timeout(fd, libc::SO_RCVTIMEO, 0).ok();
    e.line(&format!("timed out {how:#x} {r} {:x}", hash(&buf)));
    if how & libc::MSG_PEEK == 0 {
        e.conns[step.conn].own.read += r.0.max(0) as u64;
    }
}

/// Several messages, of which the last waits in vain for a moment.
fn several(e: &mut End, step: &Step, fd: Fd) {
    let c = &e.conns[step.conn];
    if c.queued() < c.lowat.max(1) || c.ends() {
        return;
    }
    let n = 1 + step.words[1] % 3000;
    let mut bufs = [vec![0u8; n], vec![0u8; n / 2], vec![0u8; 1]];
    let mut list = bufs.each_mut().map(|b| io::iov_mut(b));
    // SAFETY: all zeroes are empty headers.
    let mut heads: [libc::mmsghdr; 3] = unsafe { std::mem::zeroed() };
    for (head, v) in heads.iter_mut().zip(&mut list) {
        head.msg_hdr.msg_iov = v;
        head.msg_hdr.msg_iovlen = 1;
    }
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 1_000_000 * (step.words[2] % 2) as i64,
    };
    let one = libc::MSG_WAITFORONE;
    let r = call!(libc::recvmmsg(
        fd,
        heads.as_mut_ptr(),
        3,
        one,
        &raw mut time
    ));
    let lens: Vec<u32> = heads.iter().map(|h| h.msg_len).collect();
    let got: u64 = lens.iter().map(|n| u64::from(*n)).sum();
    e.conns[step.conn].own.read += got;
    // (how far it comes in a time is the machine's affair)
    e.line(&format!(
        "several {} {:x}",
        r.0 > 0,
        hash(&bufs[0][..lens[0] as usize])
    ));
}

/// A signal waits, and the call's mask lets it in.
fn signalled(e: &End, step: &Step, fd: Fd) {
    if e.is_thread {
        return;
    }
    proc::count(libc::SIGUSR1, step.words[1].is_multiple_of(2));
    let before = proc::caught(libc::SIGUSR1);
    proc::block(&[libc::SIGUSR1]);
    proc::kill(std::process::id() as i32, libc::SIGUSR1).ok();
    let time = Duration::from_millis([0, 30][step.words[2] % 2]);
    let text = match step.words[3] % 3 {
        0 => wait::ppoll(&[(fd, libc::POLLIN)], Some(time), Some(&[])),
        1 => {
            let select = wait::Select {
                read: &[fd],
                write: &[],
                except: &[],
            };
            select.pselect(Some(time), Some(&[]))
        }
        _ => {
            let set = wait::epoll();
            wait::add(set, fd, libc::EPOLLIN, 7).ok();
            let text = wait::epoll_pwait(set, 4, time.as_millis() as i32, &[]).to_string();
            net::close(set).ok();
            text
        }
    };
    let ran = proc::caught(libc::SIGUSR1) - before;
    proc::unblock(&[libc::SIGUSR1]);
    let all = proc::caught(libc::SIGUSR1) - before;
    e.line(&format!(
        "signalled {} {text} {ran} {all}",
        step.words[3] % 3
    ));
}

/// The number of the other connection becomes one of this.
fn taken_over(e: &mut End, step: &Step, fd: Fd) {
    let other = 1 - step.conn;
    let Some(to) = e.conns[other].fd(step.words[1]) else {
        return;
    };
    if e.conns[other].fds.len() == 1 && e.conns[other].queued() > 0 {
        e.conns[other].own.broken = 1;
    }
    e.sets.forget(to);
    let r = if step.words[2].is_multiple_of(2) {
        net::dup2(fd, to)
    } else {
        net::dup3(fd, to, libc::O_CLOEXEC)
    };
    e.conns[other].fds.retain(|f| *f != to);
    e.conns[step.conn].fds.push(to);
    e.line(&format!("taken over {}", r.0 >= 0));
}

/// vmsplice into a pipe, tee into another, and from there into the stream.
fn by_pipes(e: &mut End, step: &Step, fd: Fd) {
    let c = &e.conns[step.conn];
    let room = MOST.saturating_sub(c.own.sent.saturating_sub(c.peer.read)) as usize;
    let n = (1 + step.words[1] % 5000).min(room);
    if n == 0 || c.ends() || c.own.shut_wr > 0 {
        return;
    }
    let data = bytes(step.conn + c.round * 4, e.end, c.own.sent, n);
    let ((r1, w1), (r2, w2)) = (net::pipe(), net::pipe());
    let piece = io::iov(&data);
    let put = call!(libc::vmsplice(w1, &raw const piece, 1, 0));
    let copied = call!(libc::tee(r1, w2, n, 0));
    let wrong = call!(libc::tee(fd, w2, n, 0));
    let sent = io::splice(r2, fd, n);
    e.line(&format!("by pipes {put} {copied} {wrong} {sent}"));
    note(e, step.conn, sent);
    for fd in [r1, w1, r2, w2] {
        net::close(fd).ok();
    }
}
