//! Buffers at the edge: iovecs of none and of 1024, empty entries, empty calls, bad addresses.

use super::Case;
use crate::log;
use crate::side::{Random, Side, hash};
use crate::sys::{Ret, io, net, wait};

pub(super) const CASES: &[Case] = &[
    Case::pair("iovec_counts", iovec_counts),
    Case::pair("iovec_1024", iovec_1024),
    Case::pair("iovec_empty_entries", iovec_empty_entries),
    Case::pair("iovec_too_long", iovec_too_long),
    Case::pair("length_beyond_memory", length_beyond_memory),
    Case::pair("zero_length_send", zero_length_send),
    Case::pair("zero_length_recv", zero_length_recv),
    Case::pair("bad_buffer_send", bad_buffer_send),
    Case::pair("bad_buffer_recv", bad_buffer_recv),
    Case::pair("bad_buffer_empty_queue", bad_buffer_empty_queue),
    Case::pair("bad_message_header", bad_message_header),
    Case::pair("bad_buffer_keeps_data", bad_buffer_keeps_data),
];

fn iovec_counts(s: &Side) {
    let fd = s.pair();
    let one = [io::iov(b"x")];
    log!(s, "writev none {}", io::raw::writev(fd, &[], 0));
    log!(s, "writev negative {}", io::raw::writev(fd, &one, -1));
    log!(s, "writev one {}", io::raw::writev(fd, &one, 1));
    let many = vec![io::iov(b"x"); 1025];
    log!(s, "writev 1025 {}", io::raw::writev(fd, &many, 1025));
    log!(s, "sendmsg none {}", io::sendmsg(fd, &[], 0));
    let list: Vec<&[u8]> = vec![b"x"; 1025];
    log!(s, "sendmsg 1025 {}", io::sendmsg(fd, &list, 0));
    wait::wait_queued(fd, 1);
    log!(s, "readv none {}", io::readv(fd, &mut []));
    log!(s, "readv negative {}", io::raw::readv(fd, &one, -1));
    log!(s, "recvmsg none {}", io::recvmsg(fd, &mut [], 0).0);
    log!(s, "left {}", net::queued(fd));
    log!(s, "one {:?}", io::recv_exact(fd, 1).0);
    s.sync("done");
}

fn iovec_1024(s: &Side) {
    let fd = s.pair();
    let mut random = Random::new(5);
    let whole = random.bytes(1024 * 11);
    let parts: Vec<&[u8]> = whole.chunks(11).collect();
    if s.a() {
        log!(s, "writev {}", io::writev(fd, &parts));
        log!(s, "sendmsg {}", io::sendmsg(fd, &parts, 0));
    } else {
        wait::wait_queued(fd, 2 * 1024 * 11);
        for vector in [true, false] {
            let mut got = vec![0u8; 1024 * 11];
            let mut room: Vec<&mut [u8]> = got.chunks_mut(11).collect();
            let r = if vector {
                io::readv(fd, &mut room)
            } else {
                io::recvmsg(fd, &mut room, 0).0
            };
            log!(s, "{r} {:x} {}", hash(&got), got == whole);
        }
    }
    s.sync("done");
}

fn iovec_empty_entries(s: &Side) {
    let fd = s.pair();
    let nothing = io::iov_at(0, 0);
    let list = [
        nothing,
        io::iov(b"ab"),
        nothing,
        nothing,
        io::iov(b"c"),
        nothing,
    ];
    log!(s, "writev {}", io::raw::writev(fd, &list, 6));
    log!(s, "all empty {}", io::raw::writev(fd, &[nothing; 3], 3));
    wait::wait_queued(fd, 3);
    log!(
        s,
        "readv all empty {}",
        io::raw::readv(fd, &[nothing; 3], 3)
    );
    let (mut x, mut y) = ([0; 1], [0; 9]);
    let room = [
        nothing,
        io::iov_mut(&mut x),
        nothing,
        io::iov_mut(&mut y),
        nothing,
    ];
    log!(
        s,
        "readv {} {x:?} {:?}",
        io::raw::readv(fd, &room, 5),
        &y[..2]
    );
    s.sync("done");
}

/// Lengths that add up to more than a signed size are refused before anything moves.
fn iovec_too_long(s: &Side) {
    let fd = s.pair();
    let buf = [0u8; 16];
    let at = buf.as_ptr() as usize;
    let huge = [io::iov_at(at, 16), io::iov_at(at, usize::MAX / 2)];
    let negative = [io::iov_at(at, usize::MAX)];
    log!(s, "writev negative {}", io::raw::writev(fd, &negative, 1));
    log!(s, "readv negative {}", io::raw::readv(fd, &negative, 1));
    log!(s, "write huge with bad page {}", {
        let page = io::forbidden_page();
        io::raw::write(fd, page, 1 << 20)
    });
    let _ = huge;
    io::send_all(fd, b"ok").ok();
    log!(s, "{:?}", io::recv_exact(fd, 2).0);
    s.sync("done");
}

/// read and write refuse a length beyond all memory, whether there is anything to read or not; recv takes what there is, and readv what one
/// call may move, of a single buffer.
fn length_beyond_memory(s: &Side) {
    let fd = s.pair();
    net::set_nonblocking(fd, true).ok();
    for there in [false, true] {
        for len in [1 << 31, 0x7fff_0000_0000, 1 << 63, usize::MAX] {
            let mut buf = vec![0u8; 4096];
            let at = buf.as_mut_ptr() as usize;
            let one = [io::iov_at(at, len)];
            let two = [io::iov_at(at, 1), io::iov_at(at, len)];
            let calls: [(&str, &dyn Fn() -> Ret); 4] = [
                ("read", &|| io::raw::read(fd, at, len)),
                ("recv", &|| io::raw::recv(fd, at, len, 0)),
                ("readv", &|| io::raw::readv(fd, &one, 1)),
                ("readv of two", &|| io::raw::readv(fd, &two, 2)),
            ];
            for (name, call) in calls {
                if there {
                    s.sync("read");
                    io::send_all(fd, b"some").ok();
                    wait::wait_queued(fd, 4);
                }
                log!(s, "{name} {len:x} {}", call());
                while there && io::recv(fd, &mut [0; 8], 0).0 > 0 {}
            }
            if len > 1 << 31 {
                log!(s, "write {len:x} {}", io::raw::write(fd, at, len));
                log!(s, "writev {len:x} {}", io::raw::writev(fd, &two, 2));
            }
        }
    }
    s.sync("done");
}

fn zero_length_send(s: &Side) {
    let fd = s.pair();
    log!(s, "write {}", io::write(fd, b""));
    log!(s, "send {}", io::send(fd, b"", 0));
    log!(s, "sendto {}", io::sendto_null(fd, b"", 0));
    log!(s, "writev {}", io::writev(fd, &[b"", b""]));
    log!(s, "sendmsg {}", io::sendmsg(fd, &[b""], 0));
    log!(s, "write null {}", io::raw::write(fd, 0, 0));
    log!(s, "send null {}", io::raw::send(fd, 0, 0, 0));
    let file = io::memory_file(b"abc");
    log!(s, "sendfile {}", io::sendfile_null(fd, file, 0));
    s.sync("sent");
    log!(s, "peer sees {}", wait::poll(&[(fd, libc::POLLIN)], 20));
    s.sync("seen");
    net::shutdown(fd, libc::SHUT_WR).ok();
    s.sync("shut");
    log!(
        s,
        "after shutdown {}",
        io::send(fd, b"", libc::MSG_NOSIGNAL)
    );
    log!(s, "after shutdown {}", io::writev(fd, &[]));
    s.sync("done");
}

/// An empty read returns at once and an empty recv only when something is there.
fn zero_length_recv(s: &Side) {
    let fd = s.pair();
    log!(s, "read {}", io::read(fd, &mut []));
    log!(s, "readv {}", io::readv(fd, &mut [&mut []]));
    log!(s, "recv {}", io::recv(fd, &mut [], libc::MSG_DONTWAIT));
    log!(
        s,
        "recvmsg {}",
        io::recvmsg(fd, &mut [&mut []], libc::MSG_DONTWAIT).0
    );
    s.sync("empty");
    io::send_all(fd, b"abc").ok();
    wait::wait_queued(fd, 3);
    log!(s, "read {}", io::read(fd, &mut []));
    log!(s, "recv {}", io::recv(fd, &mut [], 0));
    log!(s, "peek {}", io::recv(fd, &mut [], libc::MSG_PEEK));
    log!(s, "recvmsg {}", io::recvmsg(fd, &mut [&mut []], 0).0);
    log!(s, "recv null {}", io::raw::recv(fd, 0, 0, 0));
    log!(s, "left {}", net::queued(fd));
    s.sync("full");
    io::recv_exact(fd, 3);
    net::shutdown(fd, libc::SHUT_WR).ok();
    wait::wait_for(fd, libc::POLLRDHUP);
    log!(
        s,
        "at end {} {}",
        io::read(fd, &mut []),
        io::recv(fd, &mut [], 0)
    );
    s.sync("done");
}

fn bad_buffer_send(s: &Side) {
    let fd = s.pair();
    let page = io::forbidden_page();
    for address in [0, page, 1, usize::MAX - 4095] {
        let word = if address == 0 { "null" } else { "bad" };
        log!(s, "write {word} {}", io::raw::write(fd, address, 10));
        log!(s, "send {word} {}", io::raw::send(fd, address, 10, 0));
        log!(
            s,
            "writev {word} {}",
            io::raw::writev(fd, &[io::iov_at(address, 10)], 1)
        );
    }
    s.sync("tried");
    log!(s, "peer sees {}", wait::poll(&[(fd, libc::POLLIN)], 20));
    s.sync("looked");
    io::send_all(fd, b"fine").ok();
    log!(s, "{:?}", io::recv_exact(fd, 4).0);
    s.sync("done");
}

fn bad_buffer_recv(s: &Side) {
    let fd = s.pair();
    let page = io::forbidden_page();
    io::send_all(fd, b"0123456789").ok();
    wait::wait_queued(fd, 10);
    for address in [0, page] {
        log!(s, "read {}", io::raw::read(fd, address, 4));
        log!(s, "recv {}", io::raw::recv(fd, address, 4, 0));
        log!(s, "peek {}", io::raw::recv(fd, address, 4, libc::MSG_PEEK));
        log!(
            s,
            "readv {}",
            io::raw::readv(fd, &[io::iov_at(address, 4)], 1)
        );
    }
    log!(s, "left {}", net::queued(fd));
    log!(s, "{}", String::from_utf8_lossy(&io::recv_exact(fd, 10).0));
    s.sync("done");
}

/// With nothing to copy a bad buffer is not noticed.
fn bad_buffer_empty_queue(s: &Side) {
    let fd = s.pair();
    let page = io::forbidden_page();
    log!(s, "recv {}", io::raw::recv(fd, page, 4, libc::MSG_DONTWAIT));
    log!(
        s,
        "recv null {}",
        io::raw::recv(fd, 0, 4, libc::MSG_DONTWAIT)
    );
    s.sync("empty");
    net::shutdown(fd, libc::SHUT_WR).ok();
    wait::wait_for(fd, libc::POLLRDHUP);
    log!(s, "at end {}", io::raw::recv(fd, page, 4, 0));
    s.sync("done");
}

fn bad_message_header(s: &Side) {
    let fd = s.pair();
    let page = io::forbidden_page();
    io::send_all(fd, b"abc").ok();
    wait::wait_queued(fd, 3);
    for address in [0, page] {
        log!(s, "recvmsg {}", io::raw::recvmsg(fd, address, 0));
        log!(s, "sendmsg {}", io::raw::sendmsg(fd, address, 0));
    }
    // A good header whose list of buffers is not there.
    // SAFETY: all zeroes is a valid msghdr.
    let mut h: libc::msghdr = unsafe { std::mem::zeroed() };
    h.msg_iov = page as *mut libc::iovec;
    for (word, count) in [("list", 1), ("count", usize::MAX)] {
        h.msg_iovlen = count;
        let at = (&raw const h).expose_provenance();
        log!(s, "recvmsg {word} {}", io::raw::recvmsg(fd, at, 0));
        log!(s, "sendmsg {word} {}", io::raw::sendmsg(fd, at, 0));
    }
    log!(s, "left {}", net::queued(fd));
    s.sync("done");
}

/// A buffer that is good for a few bytes only: the call fails and the data stay.
fn bad_buffer_keeps_data(s: &Side) {
    let fd = s.pair();
    io::send_all(fd, b"0123456789").ok();
    s.sync("sent");
    wait::wait_queued(fd, 10);
    let mut good = [0u8; 5];
    let list = [io::iov_mut(&mut good), io::iov_at(io::forbidden_page(), 5)];
    log!(s, "readv {}", io::raw::readv(fd, &list, 2));
    log!(s, "left {}", net::queued(fd));
    log!(s, "{}", String::from_utf8_lossy(&io::recv_exact(fd, 10).0));
    s.sync("done");
}
