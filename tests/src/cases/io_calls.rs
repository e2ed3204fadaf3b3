//! Every call that sends and every call that receives, in each direction of a connection.

use super::Case;
use crate::log;
use crate::side::{Random, Side, hash};
use crate::sys::{Fd, Ret, call, io, net, wait};
use std::ptr;

pub(super) const CASES: &[Case] = &[
    Case::pair("send_by_write", |s| sends(s, io::write)),
    Case::pair("send_by_send", |s| sends(s, |fd, b| io::send(fd, b, 0))),
    Case::pair("send_by_sendto", |s| {
        sends(s, |fd, b| io::sendto_null(fd, b, 0))
    }),
    Case::pair("send_by_sendto_address", |s| sends(s, sendto_address)),
    Case::pair("send_by_sendmsg", |s| {
        sends(s, |fd, b| io::sendmsg(fd, &halves(b), 0))
    }),
    Case::pair("send_by_writev", |s| {
        sends(s, |fd, b| io::writev(fd, &halves(b)))
    }),
    Case::pair("native_aio", native_aio).any_path("the kernel moves the bytes by itself"),
    Case::pair("sendmmsg_ends_with_a_part", sendmmsg_ends_with_a_part),
    Case::pair("send_by_sendmmsg", |s| sends(s, by_sendmmsg)),
    Case::pair("send_by_sendfile", |s| sends(s, by_sendfile)),
    Case::pair("send_by_sendfile_position", |s| {
        sends(s, by_sendfile_position)
    }),
    Case::pair("recv_by_read", |s| receives(s, io::read)),
    Case::pair("recv_by_recv", |s| receives(s, |fd, b| io::recv(fd, b, 0))),
    Case::pair("recv_by_recvfrom", |s| {
        receives(s, |fd, b| io::recvfrom_null(fd, b, 0))
    }),
    Case::pair("recv_by_recvfrom_address", recvfrom_address),
    Case::pair("recvfrom_bad_length", recvfrom_bad_length),
    Case::pair("recv_by_readv", |s| receives(s, by_readv)),
    Case::pair("recv_by_recvmsg", |s| receives(s, by_recvmsg)),
    Case::pair("recv_by_recvmmsg", |s| receives(s, by_recvmmsg)),
    Case::pair("recvmmsg_several", recvmmsg_several),
    Case::pair("recvmmsg_of_an_end", recvmmsg_of_an_end),
    Case::pair("splice_both_ways", splice_both_ways).any_path("splice may go by the kernel"),
    Case::pair("not_a_file", not_a_file),
    Case::solo("never_connected", never_connected).any_path("nothing is connected"),
    Case::solo("closed_descriptor", closed_descriptor).conns(2),
];

fn halves(b: &[u8]) -> [&[u8]; 2] {
    let (left, right) = b.split_at(b.len() / 2);
    [left, right]
}

/// The address of a connected stream is ignored by the kernel.
fn sendto_address(fd: Fd, b: &[u8]) -> Ret {
    let raw = net::RawAddr::new(net::loopback());
    crate::sys::call!(libc::sendto(
        fd,
        b.as_ptr().cast(),
        b.len(),
        0,
        raw.ptr(),
        raw.len
    ))
}

fn by_sendmmsg(fd: Fd, b: &[u8]) -> Ret {
    let (r, lengths) = io::sendmmsg(fd, &halves(b), 0);
    if r.0 < 0 {
        r
    } else {
        Ret(lengths.iter().map(|n| i64::from(*n)).sum())
    }
}

fn by_sendfile(fd: Fd, b: &[u8]) -> Ret {
    let file = io::memory_file(&[b"skip", b].concat());
    let (r, offset) = io::sendfile(fd, file, 4, b.len() + 100);
    assert_eq!(offset, 4 + r.0);
    net::close(file).ok();
    r
}

fn by_sendfile_position(fd: Fd, b: &[u8]) -> Ret {
    let file = io::memory_file(b);
    let first = io::sendfile_null(fd, file, b.len() / 2).ok();
    let second = io::sendfile_null(fd, file, b.len() - first).ok();
    let third = io::sendfile_null(fd, file, 10);
    net::close(file).ok();
    if third.0 == 0 {
        Ret((first + second) as i64)
    } else {
        third
    }
}

fn by_readv(fd: Fd, b: &mut [u8]) -> Ret {
    let (left, right) = b.split_at_mut(b.len() / 2);
    io::readv(fd, &mut [left, right])
}

fn by_recvmsg(fd: Fd, b: &mut [u8]) -> Ret {
    let (left, right) = b.split_at_mut(b.len() / 2);
    let (r, flags) = io::recvmsg(fd, &mut [left, right], 0);
    assert_eq!(flags, 0);
    r
}

fn by_recvmmsg(fd: Fd, b: &mut [u8]) -> Ret {
    let (r, lengths) = io::recvmmsg(fd, &mut [b], 0);
    if r.0 == 1 {
        Ret(i64::from(lengths[0]))
    } else {
        r
    }
}

/// Both ends send messages of several sizes by one call and read them by `recv`.
fn sends(s: &Side, by: fn(Fd, &[u8]) -> Ret) {
    let fd = s.pair();
    for turn in [true, false] {
        let mut random = Random::new(u64::from(turn));
        for size in [1, 2, 7, 100, 4096, 10_000, 50_000] {
            let message = random.bytes(size);
            if s.a() == turn {
                log!(s, "sent {}", by(fd, &message));
            } else {
                let (got, _) = io::recv_exact(fd, size);
                log!(s, "got {} {:x} {}", got.len(), hash(&got), got == message);
            }
        }
        s.sync("turn");
    }
    net::close(fd).ok();
}

/// Both ends read by one call: less than is there, all that is there, then the end.
fn receives(s: &Side, by: fn(Fd, &mut [u8]) -> Ret) {
    let fd = s.pair();
    for turn in [true, false] {
        if s.a() == turn {
            io::send_all(fd, b"0123456789").ok();
        } else {
            wait::wait_queued(fd, 10);
            for size in [4, 1, 100] {
                let mut buf = vec![b'.'; size];
                let r = by(fd, &mut buf);
                log!(s, "{r} {}", String::from_utf8_lossy(&buf[..size.min(12)]));
            }
        }
        s.sync("turn");
    }
    net::shutdown(fd, libc::SHUT_WR).ok();
    wait::wait_for(fd, libc::POLLIN);
    log!(s, "end {}", by(fd, &mut [0; 8]));
    net::close(fd).ok();
}

/// On a stream the address is left alone and its length becomes zero.
fn recvfrom_address(s: &Side) {
    let fd = s.pair();
    io::send_all(fd, b"hello").ok();
    let mut buf = [0; 5];
    let (r, len) = io::recvfrom(fd, &mut buf, libc::MSG_WAITALL);
    log!(s, "{r} len {len} {}", String::from_utf8_lossy(&buf));
    s.sync("done");
}

fn recvmmsg_several(s: &Side) {
    let fd = s.pair();
    io::send_all(fd, b"abcdefgh").ok();
    s.sync("sent");
    wait::wait_queued(fd, 8);
    let (mut x, mut y, mut z) = ([0; 3], [0; 3], [0; 3]);
    let (r, lengths) = io::recvmmsg(fd, &mut [&mut x, &mut y, &mut z], libc::MSG_DONTWAIT);
    log!(s, "{r} {lengths:?} {x:?} {y:?} {:?}", &z[..2]);
    let (r, lengths) = io::recvmmsg(fd, &mut [&mut x, &mut y], libc::MSG_DONTWAIT);
    log!(s, "empty {r} {lengths:?}");
    s.sync("empty");
    let (r, lengths) = io::sendmmsg(fd, &[b"one", b"", b"three"], 0);
    log!(s, "{r} {lengths:?}");
    let (got, _) = io::recv_exact(fd, 8);
    log!(s, "{}", String::from_utf8_lossy(&got));
    s.sync("done");
}

/// An end is a message of nothing, and so are those behind it.
fn recvmmsg_of_an_end(s: &Side) {
    let fd = s.pair();
    net::shutdown(fd, libc::SHUT_WR).ok();
    let (mut x, mut y, mut z) = ([0; 3], [0; 3], [0; 3]);
    let (r, lengths) = io::recvmmsg(fd, &mut [&mut x, &mut y, &mut z], 0);
    log!(s, "{r} {lengths:?}");
    s.sync("done");
}

fn splice_both_ways(s: &Side) {
    let fd = s.pair();
    let (r, w) = net::pipe();
    if s.a() {
        io::write(w, b"through a pipe").ok();
        log!(s, "in {}", io::splice(r, fd, 14));
    } else {
        wait::wait_queued(fd, 14);
        log!(s, "out {}", io::splice(fd, w, 100));
        let mut buf = [0; 14];
        log!(
            s,
            "{} {}",
            io::read(r, &mut buf),
            String::from_utf8_lossy(&buf)
        );
    }
    s.sync("done");
    io::send_all(fd, b"after").ok();
    log!(s, "{:?}", io::recv_exact(fd, 5).0);
    s.sync("end");
}

/// What a connected socket is not: a file with a position or a terminal.
fn not_a_file(s: &Side) {
    let fd = s.pair();
    log!(
        s,
        "lseek {}",
        crate::sys::call!(libc::lseek(fd, 0, libc::SEEK_CUR))
    );
    // SAFETY: isatty and fstat take any descriptor.
    log!(s, "isatty {}", unsafe { libc::isatty(fd) });
    // SAFETY: as above; a zeroed stat is valid.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    crate::sys::call!(libc::fstat(fd, &raw mut stat)).ok();
    log!(s, "mode {:o}", stat.st_mode & libc::S_IFMT);
    let mut buf = [0; 4];
    let at = buf.as_mut_ptr().cast();
    log!(s, "pread {}", crate::sys::call!(libc::pread(fd, at, 4, 0)));
    let at = buf.as_ptr().cast();
    log!(
        s,
        "pwrite {}",
        crate::sys::call!(libc::pwrite(fd, at, 4, 0))
    );
    s.sync("done");
}

fn never_connected(s: &Side) {
    let fd = net::socket_for(net::loopback(), 0);
    let mut buf = [0; 4];
    log!(s, "read {}", io::read(fd, &mut buf));
    log!(s, "recv {}", io::recv(fd, &mut buf, 0));
    crate::sys::proc::count(libc::SIGPIPE, false);
    log!(s, "write {}", io::write(fd, &buf));
    log!(s, "send {}", io::send(fd, &buf, libc::MSG_NOSIGNAL));
    log!(
        s,
        "pipe signals {}",
        crate::sys::proc::caught(libc::SIGPIPE)
    );
    log!(s, "shutdown {}", net::shutdown(fd, libc::SHUT_WR));
    log!(s, "peer {:?}", net::getpeername(fd));
    log!(s, "accept {}", net::accept(fd));
    log!(
        s,
        "poll {}",
        wait::poll(&[(fd, libc::POLLIN | libc::POLLOUT)], 0)
    );
}

fn closed_descriptor(s: &Side) {
    let (left, right) = crate::side::own_pair();
    log!(s, "close {}", net::close(left));
    let mut buf = [0; 4];
    log!(s, "read {}", io::read(left, &mut buf));
    log!(s, "send {}", io::send(left, &buf, 0));
    log!(s, "close {}", net::close(left));
    log!(s, "shutdown {}", net::shutdown(left, libc::SHUT_RDWR));
    log!(s, "poll {}", wait::poll(&[(left, libc::POLLIN)], 0));
    log!(s, "peer reads {}", io::recv(right, &mut buf, 0));
    // The number is free again and must mean the new file only.
    let file = io::memory_file(b"file");
    log!(s, "same number {}", file == left);
    log!(s, "file read {} {buf:?}", io::read(file, &mut buf));
    log!(s, "file recv {}", io::recv(file, &mut buf, 0));
}

/// An address is asked for, and the place for its length is bad: told once the bytes have been taken.
fn recvfrom_bad_length(s: &Side) {
    let fd = s.pair();
    if s.a() {
        io::send_all(fd, b"abcdef").ok();
    } else {
        wait::wait_queued(fd, 6);
        let (mut buf, mut addr) = ([0u8; 2], [0u8; 16]);
        let mut negative = u32::MAX;
        for len in [
            ptr::null_mut(),
            ptr::with_exposed_provenance_mut(8),
            &raw mut negative,
        ] {
            let (to, at) = (buf.as_mut_ptr().cast(), addr.as_mut_ptr().cast());
            let r = call!(libc::recvfrom(fd, to, 2, 0, at, len));
            log!(s, "{r} {}", net::queued(fd));
        }
    }
    s.sync("done");
}

/// A message that goes only in part (a time-out, the reader pauses) is the last of the call: what comes behind it would else stand in
/// the place of its rest.
fn sendmmsg_ends_with_a_part(s: &Side) {
    let fd = s.pair();
    let long = vec![b'l'; 30_000_000];
    if s.a() {
        net::set_timeout(fd, libc::SO_SNDTIMEO, 200).ok();
        let (r, lengths) = io::sendmmsg(fd, &[&long, b"behind", b"it"], 0);
        let sent: u32 = lengths.iter().sum();
        let first = lengths[0];
        log!(
            s,
            "{r} in part {}",
            first > 0 && first == sent && (first as usize) < long.len()
        );
        s.tell(u64::from(first));
        net::close(fd).ok();
    } else {
        let first = s.hear() as usize;
        let (got, end) = io::recv_to_end(fd);
        log!(s, "{} {end}", got == long[..first]);
    }
    s.sync("done");
}

/// io_submit(2): a write and a read that the kernel does by itself.
fn native_aio(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let mut context = 0usize;
        // SAFETY: the call writes one word.
        let made = call!(libc::syscall(libc::SYS_io_setup, 4, &raw mut context));
        let mut out = *b"by itself";
        log!(
            s,
            "{made} {}",
            by_itself(context, IOCB_CMD_PWRITE, fd, &mut out)
        );
        let mut back = [0; 9];
        log!(
            s,
            "{} {}",
            by_itself(context, IOCB_CMD_PREAD, fd, &mut back),
            hash(&back)
        );
        // SAFETY: no pointers.
        call!(libc::syscall(libc::SYS_io_destroy, context)).ok();
    } else {
        let (got, _) = io::recv_exact(fd, 9);
        log!(s, "{}", io::send_all(fd, &got));
    }
    s.sync("done");
}

/// Of linux/aio_abi.h.
const IOCB_CMD_PREAD: u64 = 0;
const IOCB_CMD_PWRITE: u64 = 1;

/// One operation, from its submission to its end: what that says of it.
fn by_itself(context: usize, what: u64, fd: Fd, buf: &mut [u8]) -> i64 {
    let (at, len) = (
        buf.as_mut_ptr().expose_provenance() as u64,
        buf.len() as u64,
    );
    let block = [
        0,
        0,
        what | u64::from(fd.cast_unsigned()) << 32,
        at,
        len,
        0,
        0,
        0u64,
    ];
    let list = [block.as_ptr()];
    let mut event = [0i64; 4];
    let none = ptr::null_mut::<libc::timespec>();
    // SAFETY: a control block and its buffer, which live until the operation has ended.
    call!(libc::syscall(
        libc::SYS_io_submit,
        context,
        1,
        list.as_ptr()
    ))
    .ok();
    // SAFETY: room for one event.
    call!(libc::syscall(
        libc::SYS_io_getevents,
        context,
        1,
        1,
        event.as_mut_ptr(),
        none
    ))
    .ok();
    event[2]
}
