//! Who speaks first, and how much, on a connection that has just come to be; and what the cases of
//! addresses, connecting and accepting end with.

use super::Case;
use crate::log;
use crate::side::Side;
use crate::sys::{Fd, io, net};

pub(super) const CASES: &[Case] = &[
    Case::pair("server_speaks_first", server_speaks_first),
    Case::pair("both_speak_at_once", both_speak_at_once),
    Case::pair("one_way_only", one_way_only),
    Case::pair("simultaneous_many", simultaneous_many).conns(20),
];

/// A word each way, and the end of both directions.
pub(super) fn talk(s: &Side, fd: Fd) {
    s.warm_up(fd);
    let word = if s.a() { b"from A" } else { b"from B" };
    io::send_all(fd, word).ok();
    log!(s, "{}", String::from_utf8_lossy(&io::recv_exact(fd, 6).0));
    net::shutdown(fd, libc::SHUT_WR).ok();
    log!(s, "{}", io::recv_to_end(fd).1);
    s.sync("talked");
}

/// The connecting end says nothing until it has been greeted.
fn server_speaks_first(s: &Side) {
    if s.accepts() {
        let fd = net::accept(s.listen(8)).fd();
        io::send_all(fd, b"220 ready\r\n").ok();
        log!(s, "{}", String::from_utf8_lossy(&io::recv_exact(fd, 6).0));
        talk(s, fd);
    } else {
        let fd = s.connect();
        log!(
            s,
            "{:?}",
            String::from_utf8_lossy(&io::recv_exact(fd, 11).0)
        );
        io::send_all(fd, b"HELO\r\n").ok();
        talk(s, fd);
    }
}

/// Both ends send before either reads, again and again, from the first byte on.
fn both_speak_at_once(s: &Side) {
    let fd = s.open();
    for round in 0..50u8 {
        io::send_all(fd, &[round; 100]).ok();
        let (got, _) = io::recv_exact(fd, 100);
        assert_eq!(got, [round; 100]);
    }
    log!(s, "50 rounds");
    talk(s, fd);
}

/// Bytes flow in one direction only, for long; nothing ever comes back.
fn one_way_only(s: &Side) {
    let fd = s.open();
    let piece = [9u8; 500];
    if s.a() {
        // In two halves: a short burst that fits the kernel's queue needs no other way.
        for half in ["first", "second"] {
            for _ in 0..1000 {
                io::send_all(fd, &piece).ok();
            }
            if half == "first" {
                s.sync(half);
            }
        }
        net::shutdown(fd, libc::SHUT_WR).ok();
    } else {
        let mut first = vec![0; 1000 * piece.len()];
        log!(s, "{}", io::recv(fd, &mut first, libc::MSG_WAITALL));
        s.sync("first");
        let (got, last) = io::recv_to_end(fd);
        log!(s, "{} {last}", got.len());
    }
    s.sync("done");
}

/// Many connections opened before any is accepted, used in another order.
fn simultaneous_many(s: &Side) {
    let count = 20;
    let mut all: Vec<Fd> = Vec::new();
    if s.accepts() {
        let lis = s.listen(64);
        s.sync("connected");
        all.extend((0..count).map(|_| net::accept(lis).fd()));
    } else {
        let to = s.target();
        for i in 0..count {
            let fd = net::socket_for(to, 0);
            net::connect(fd, to).ok();
            io::send_all(fd, &[i]).ok();
            all.push(fd);
        }
        s.sync("connected");
        all.reverse();
    }
    let answering = s.accepts();
    let mut total = 0;
    for (i, fd) in all.iter().enumerate() {
        if answering {
            let mark = io::recv_exact(*fd, 1).0[0];
            assert_eq!(usize::from(mark), i);
            for _ in 0..4 {
                io::send_all(*fd, &[mark; 4]).ok();
            }
        }
    }
    for (i, fd) in all.iter().enumerate() {
        if answering {
            total += io::recv_exact(*fd, 4).0.len();
        } else {
            let (got, _) = io::recv_exact(*fd, 16);
            assert_eq!(got, [(all.len() - 1 - i) as u8; 16]);
            io::send_all(*fd, b"done").ok();
            total += got.len();
        }
    }
    log!(s, "{total}");
    s.sync("done");
}
