//! The flags of recv and send.

use super::Case;
use crate::log;
use crate::side::{Random, Side, hash, text};
use crate::sys::{io, net, proc, wait};

pub(super) const CASES: &[Case] = &[
    Case::pair("peek_repeated", peek_repeated),
    Case::pair("peek_grows", peek_grows),
    Case::pair("peek_waits", peek_waits),
    Case::pair("peek_waitall", peek_waitall),
    Case::pair("peek_waitall_urgent", peek_waitall_urgent)
        .any_path("urgent data may go by the kernel"),
    Case::pair("waitall_urgent_inline", |s| waitall_urgent(s, false, 1))
        .any_path("urgent data may go by the kernel"),
    Case::pair("waitall_urgent", |s| waitall_urgent(s, false, 0))
        .any_path("urgent data may go by the kernel"),
    Case::pair("waitall_urgent_later", |s| waitall_urgent(s, true, 0))
        .any_path("urgent data may go by the kernel"),
    Case::pair("peek_waitall_late", peek_waitall_late),
    Case::pair("waitall_pieces", waitall_pieces),
    Case::pair("waitall_cut_short", waitall_cut_short),
    Case::pair("waitall_larger_than_buffers", waitall_larger_than_buffers),
    Case::pair("trunc_discards", trunc_discards),
    Case::pair("nosignal", nosignal),
    Case::pair("more", more),
    Case::pair("cork", cork),
    Case::pair("oob", oob).any_path("urgent data may go by the kernel"),
    Case::pair("oob_inline", oob_inline).any_path("urgent data may go by the kernel"),
    Case::moving("oob_to_owner", oob_to_owner),
    Case::pair("oob_empty", oob_empty).any_path("urgent data may go by the kernel"),
    Case::pair("errqueue_empty", errqueue_empty),
    Case::pair("confirm_and_eor", confirm_and_eor),
    Case::pair("flags_without_a_use", flags_without_a_use),
];

/// Flags that a reader has no use for: the kernel passes over them.
fn flags_without_a_use(s: &Side) {
    let fd = s.pair();
    let known = [
        libc::MSG_EOR,
        libc::MSG_CONFIRM,
        libc::MSG_DONTROUTE,
        libc::MSG_CTRUNC,
        libc::MSG_MORE,
        libc::MSG_WAITFORONE,
        libc::MSG_ZEROCOPY,
    ];
    for flag in known.into_iter().chain([0x4_0000, 0x1000_0000]) {
        io::send_all(fd, b"0123456789").ok();
        let (mut first, mut rest) = ([b'.'; 4], [b'.'; 4]);
        log!(s, "{} {}", io::recv(fd, &mut first, flag), text(&first));
        wait::wait_queued(fd, 6);
        let (r, _) = io::recvmsg(fd, &mut [&mut rest], flag | libc::MSG_DONTWAIT);
        log!(s, "{r} {}", text(&rest));
        log!(s, "{}", text(&io::recv_exact(fd, 2).0));
        s.sync("read");
    }
}

fn peek_repeated(s: &Side) {
    let fd = s.pair();
    io::send_all(fd, b"abcdefgh").ok();
    wait::wait_queued(fd, 8);
    for size in [3, 8, 20, 1] {
        let mut buf = vec![b'.'; size];
        log!(
            s,
            "{} {}",
            io::recv(fd, &mut buf, libc::MSG_PEEK),
            text(&buf)
        );
    }
    let (mut x, mut y) = ([0; 2], [0; 3]);
    let (r, flags) = io::recvmsg(fd, &mut [&mut x, &mut y], libc::MSG_PEEK);
    log!(s, "{r} {flags} {} {}", text(&x), text(&y));
    let mut buf = [0; 3];
    log!(s, "{} {}", io::recv(fd, &mut buf, 0), text(&buf));
    log!(
        s,
        "{} {}",
        io::recv(fd, &mut buf, libc::MSG_PEEK),
        text(&buf)
    );
    log!(s, "left {}", net::queued(fd));
    log!(s, "{}", text(&io::recv_exact(fd, 5).0));
    log!(
        s,
        "{}",
        io::recv(fd, &mut buf, libc::MSG_PEEK | libc::MSG_DONTWAIT)
    );
    s.sync("read");
    net::shutdown(fd, libc::SHUT_WR).ok();
    wait::wait_for(fd, libc::POLLRDHUP);
    log!(
        s,
        "end {} {}",
        io::recv(fd, &mut buf, libc::MSG_PEEK),
        io::recv(fd, &mut buf, 0)
    );
    s.sync("done");
}

/// A later peek sees what has come since, from the same start.
fn peek_grows(s: &Side) {
    let fd = s.pair();
    let mut buf = [b'.'; 20];
    for part in [&b"abc"[..], b"defg", b"h"] {
        io::send_all(fd, part).ok();
        s.sync("sent");
        let want = match part.len() {
            3 => 3,
            4 => 7,
            _ => 8,
        };
        wait::wait_queued(fd, want);
        log!(
            s,
            "{} {}",
            io::recv(fd, &mut buf, libc::MSG_PEEK),
            text(&buf)
        );
        s.sync("looked");
    }
    log!(s, "{} {}", io::recv(fd, &mut buf, 0), text(&buf));
    s.sync("done");
}

fn peek_waits(s: &Side) {
    let fd = s.pair();
    let mut buf = [0; 4];
    if s.a() {
        log!(
            s,
            "{} {}",
            io::recv(fd, &mut buf, libc::MSG_PEEK),
            text(&buf[..2])
        );
        log!(s, "{}", io::recv(fd, &mut buf, 0));
    } else {
        std::thread::sleep(wait::millis(30));
        io::send_all(fd, b"hi").ok();
    }
    s.sync("done");
}

fn peek_waitall(s: &Side) {
    let fd = s.pair();
    if s.a() {
        io::send_all(fd, b"one").ok();
        s.sync("first");
        std::thread::sleep(wait::millis(30));
        io::send_all(fd, b"two").ok();
    } else {
        s.sync("first");
        let mut buf = [0; 6];
        let both = libc::MSG_PEEK | libc::MSG_WAITALL;
        log!(s, "{} {}", io::recv(fd, &mut buf, both), text(&buf));
        log!(
            s,
            "{} {}",
            io::recv(fd, &mut buf, libc::MSG_WAITALL),
            text(&buf)
        );
    }
    s.sync("done");
}

/// A look that wants more than comes before urgent data ends there.
fn peek_waitall_urgent(s: &Side) {
    let fd = s.pair();
    if s.a() {
        io::send_all(fd, b"one").ok();
        io::send(fd, b"!", libc::MSG_OOB).ok();
        io::send_all(fd, b"behind").ok();
        s.sync("sent");
    } else {
        s.sync("sent");
        wait::wait_for(fd, libc::POLLPRI);
        let mut buf = [b'.'; 5];
        let both = libc::MSG_PEEK | libc::MSG_WAITALL;
        log!(s, "{} {}", io::recv(fd, &mut buf, both), text(&buf));
        log!(s, "{}", text(&io::recv_exact(fd, 3).0));
    }
    s.sync("done");
}

/// So does a read; what follows is for the next.
fn waitall_urgent(s: &Side, after: bool, inline: i32) {
    let fd = s.pair();
    net::setopt(fd, libc::SOL_SOCKET, libc::SO_OOBINLINE, inline).ok();
    if s.a() {
        if after {
            s.sync("reads");
            std::thread::sleep(wait::millis(20));
        }
        io::send_all(fd, b"one").ok();
        io::send(fd, b"!", libc::MSG_OOB).ok();
        io::send_all(fd, b"behind").ok();
        s.sync("sent");
        net::shutdown(fd, libc::SHUT_WR).ok();
    } else {
        let read = move || {
            let mut buf = [b'.'; 8];
            let n = io::recv(fd, &mut buf, libc::MSG_WAITALL);
            format!("{n} {}", text(&buf))
        };
        if after {
            s.sync("reads");
            log!(s, "{}", read());
            s.sync("sent");
        } else {
            s.sync("sent");
            wait::wait_for(fd, libc::POLLPRI);
            log!(s, "{}", read());
        }
        log!(s, "mark {:?}", net::ioctl_int(fd, net::SIOCATMARK));
        log!(s, "{}", read());
        log!(s, "{}", read());
    }
    s.sync("done");
}

/// The whole is waited for on a connection that has carried nothing before, too, or its end.
fn peek_waitall_late(s: &Side) {
    let fd = s.pair();
    if s.a() {
        for part in [&b"some"[..], b"mo", b"last"] {
            io::send_all(fd, part).ok();
            std::thread::sleep(wait::millis(30));
        }
        net::shutdown(fd, libc::SHUT_WR).ok();
    } else {
        let mut buf = [b'.'; 6];
        let both = libc::MSG_PEEK | libc::MSG_WAITALL;
        log!(s, "{} {}", io::recv(fd, &mut buf, both), text(&buf));
        log!(s, "{}", text(&io::recv_exact(fd, 6).0));
        let mut buf = [b'.'; 6];
        log!(s, "{} {}", io::recv(fd, &mut buf, both), text(&buf));
    }
    s.sync("done");
}

fn waitall_pieces(s: &Side) {
    let fd = s.pair();
    if s.a() {
        for part in [&b"ab"[..], b"c", b"defghi", b"j"] {
            io::send_all(fd, part).ok();
            std::thread::sleep(wait::millis(8));
        }
    } else {
        let mut buf = [0; 5];
        log!(
            s,
            "{} {}",
            io::recv(fd, &mut buf, libc::MSG_WAITALL),
            text(&buf)
        );
        let (mut x, mut y) = ([0; 2], [0; 3]);
        let (r, flags) = io::recvmsg(fd, &mut [&mut x, &mut y], libc::MSG_WAITALL);
        log!(s, "{r} {flags} {} {}", text(&x), text(&y));
    }
    s.sync("done");
}

/// MSG_WAITALL gives what there is when the stream ends first.
fn waitall_cut_short(s: &Side) {
    let fd = s.pair();
    if s.a() {
        io::send_all(fd, b"only this").ok();
        std::thread::sleep(wait::millis(20));
        net::shutdown(fd, libc::SHUT_WR).ok();
    } else {
        let mut buf = [b'.'; 12];
        log!(
            s,
            "{} {}",
            io::recv(fd, &mut buf, libc::MSG_WAITALL),
            text(&buf)
        );
        log!(s, "{}", io::recv(fd, &mut buf, libc::MSG_WAITALL));
    }
    s.sync("done");
}

fn waitall_larger_than_buffers(s: &Side) {
    let fd = s.pair();
    let size = 24 << 20;
    if s.a() {
        let big = Random::new(8).bytes(size);
        log!(s, "sent {}", io::send_all(fd, &big));
        s.tell(hash(&big));
    } else {
        let mut buf = vec![0; size];
        log!(s, "{}", io::recv(fd, &mut buf, libc::MSG_WAITALL));
        log!(s, "same {}", hash(&buf) == s.hear());
    }
    s.sync("done");
}

/// On a stream MSG_TRUNC throws the bytes away and leaves the buffer alone.
fn trunc_discards(s: &Side) {
    let fd = s.pair();
    io::send_all(fd, b"0123456789").ok();
    wait::wait_queued(fd, 10);
    let mut buf = [b'.'; 4];
    log!(
        s,
        "{} {}",
        io::recv(fd, &mut buf, libc::MSG_TRUNC),
        text(&buf)
    );
    let page = io::forbidden_page();
    log!(
        s,
        "bad page {}",
        io::raw::recv(fd, page, 2, libc::MSG_TRUNC)
    );
    log!(s, "null {}", io::raw::recv(fd, 0, 1, libc::MSG_TRUNC));
    let mut rest = [b'.'; 4];
    log!(s, "{} {}", io::recv(fd, &mut rest, 0), text(&rest));
    s.sync("done");
}

fn nosignal(s: &Side) {
    let fd = s.pair();
    if s.a() {
        proc::count(libc::SIGPIPE, false);
        net::shutdown(fd, libc::SHUT_WR).ok();
        log!(s, "send {}", io::send(fd, b"x", libc::MSG_NOSIGNAL));
        log!(
            s,
            "sendmsg {}",
            io::sendmsg(fd, &[b"x"], libc::MSG_NOSIGNAL)
        );
        log!(s, "signals {}", proc::caught(libc::SIGPIPE));
        log!(s, "write {}", io::write(fd, b"x"));
        log!(s, "signals {}", proc::caught(libc::SIGPIPE));
    }
    s.sync("done");
}

/// MSG_MORE may hold bytes back for a while, never for ever.
fn more(s: &Side) {
    let fd = s.pair();
    if s.a() {
        log!(s, "{}", io::send(fd, b"head ", libc::MSG_MORE));
        log!(s, "{}", io::sendmsg(fd, &[b"neck "], libc::MSG_MORE));
        log!(s, "{}", io::send(fd, b"body", 0));
        s.sync("first");
        log!(s, "{}", io::send(fd, b"alone", libc::MSG_MORE));
    } else {
        log!(s, "{}", text(&io::recv_exact(fd, 14).0));
        s.sync("first");
        log!(s, "{}", text(&io::recv_exact(fd, 5).0));
    }
    s.sync("done");
}

fn cork(s: &Side) {
    let fd = s.pair();
    if s.a() {
        log!(
            s,
            "{}",
            net::setopt(fd, libc::IPPROTO_TCP, libc::TCP_CORK, 1)
        );
        io::send_all(fd, b"one ").ok();
        io::send_all(fd, b"two").ok();
        log!(
            s,
            "{}",
            net::setopt(fd, libc::IPPROTO_TCP, libc::TCP_CORK, 0)
        );
        log!(
            s,
            "{}",
            net::setopt(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)
        );
        log!(
            s,
            "{:?}",
            net::getopt(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY)
        );
    } else {
        log!(s, "{}", text(&io::recv_exact(fd, 7).0));
    }
    s.sync("done");
}

fn oob(s: &Side) {
    let fd = s.pair();
    if s.a() {
        io::send_all(fd, b"ab").ok();
        log!(s, "{}", io::send(fd, b"!", libc::MSG_OOB));
        io::send_all(fd, b"cd").ok();
        s.sync("sent");
    } else {
        s.sync("sent");
        wait::wait_for(fd, libc::POLLPRI);
        let mut buf = [b'.'; 8];
        log!(
            s,
            "poll {}",
            wait::poll(&[(fd, libc::POLLIN | libc::POLLPRI)], 0)
        );
        log!(s, "mark {:?}", net::ioctl_int(fd, net::SIOCATMARK));
        log!(s, "{} {}", io::recv(fd, &mut buf, 0), text(&buf));
        log!(s, "mark {:?}", net::ioctl_int(fd, net::SIOCATMARK));
        log!(
            s,
            "{} {}",
            io::recv(fd, &mut buf, libc::MSG_OOB),
            text(&buf)
        );
        log!(s, "{} {}", io::recv(fd, &mut buf, 0), text(&buf));
        log!(s, "{}", io::recv(fd, &mut buf, libc::MSG_OOB));
    }
    s.sync("done");
    io::send_all(fd, b"after").ok();
    log!(s, "{}", text(&io::recv_exact(fd, 5).0));
    s.sync("end");
}

fn oob_inline(s: &Side) {
    let fd = s.pair();
    log!(
        s,
        "{}",
        net::setopt(fd, libc::SOL_SOCKET, libc::SO_OOBINLINE, 1)
    );
    s.sync("inline");
    if s.a() {
        io::send_all(fd, b"ab").ok();
        log!(s, "{}", io::send(fd, b"!", libc::MSG_OOB));
        io::send_all(fd, b"cd").ok();
    } else {
        let mut all = Vec::new();
        while all.len() < 5 {
            let mut buf = [0; 8];
            let n = io::recv(fd, &mut buf, 0).ok();
            all.extend_from_slice(&buf[..n]);
        }
        log!(s, "{}", text(&all));
    }
    s.sync("done");
}

/// The owner of a socket is sent a signal for urgent data, which ends a call that waits for others: they are there to be read then.
fn oob_to_owner(s: &Side) {
    extern "C" fn interrupt(_: i32) {}
    let fd = s.pair();
    s.warm_up(fd);
    if s.a() {
        net::fcntl(fd, libc::F_SETOWN, std::process::id() as i32).ok();
        std::thread::sleep(wait::millis(50));
        proc::handle(libc::SIGURG, interrupt, false);
        s.sync("owned");
        log!(s, "{}", io::recv(fd, &mut [0; 4], 0));
        let mut byte = [0];
        let r = io::recv(fd, &mut byte, libc::MSG_OOB);
        log!(s, "urgent {r} {byte:?}");
        s.sync("read");
        log!(s, "{}", String::from_utf8_lossy(&io::recv_exact(fd, 4).0));
    } else {
        s.sync("owned");
        std::thread::sleep(wait::millis(100));
        io::send(fd, b"!", libc::MSG_OOB).ok();
        s.sync("read");
        io::send_all(fd, b"data").ok();
    }
    s.sync("done");
}

fn oob_empty(s: &Side) {
    let fd = s.pair();
    log!(s, "{}", io::recv(fd, &mut [0; 4], libc::MSG_OOB));
    log!(
        s,
        "{}",
        io::recv(fd, &mut [0; 4], libc::MSG_OOB | libc::MSG_DONTWAIT)
    );
    s.sync("done");
    io::send_all(fd, b"after").ok();
    log!(s, "{}", text(&io::recv_exact(fd, 5).0));
    s.sync("end");
}

fn errqueue_empty(s: &Side) {
    let fd = s.pair();
    log!(s, "{}", io::recv(fd, &mut [0; 4], libc::MSG_ERRQUEUE));
    log!(
        s,
        "{}",
        io::recv(fd, &mut [0; 4], libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT)
    );
    s.sync("done");
}

/// Flags that change nothing on a loopback stream.
fn confirm_and_eor(s: &Side) {
    let fd = s.pair();
    log!(s, "{}", io::send(fd, b"ab", libc::MSG_CONFIRM));
    log!(s, "{}", io::send(fd, b"cd", libc::MSG_EOR));
    log!(s, "{}", io::send(fd, b"ef", libc::MSG_DONTROUTE));
    log!(s, "{}", io::send(fd, b"gh", libc::MSG_WAITALL));
    wait::wait_queued(fd, 8);
    let mut buf = [0; 8];
    log!(
        s,
        "{} {}",
        io::recv(fd, &mut buf, libc::MSG_CMSG_CLOEXEC),
        text(&buf)
    );
    s.sync("done");
}
