//! SO_RCVTIMEO and SO_SNDTIMEO: the errno, the partial count, and time only by order of magnitude.

use super::Case;
use crate::log;
use crate::side::{Side, fill_up};
use crate::sys::{Fd, Ret, io, net, wait};
use std::time::Instant;

pub(super) const CASES: &[Case] = &[
    Case::pair("recv_timeout", recv_timeout),
    Case::pair("recv_timeout_not_reached", recv_timeout_not_reached),
    Case::pair("recv_timeout_waitall", recv_timeout_waitall),
    Case::pair("recv_timeout_cleared", recv_timeout_cleared),
    Case::pair("recv_timeout_and_dontwait", recv_timeout_and_dontwait),
    Case::pair("timeout_of_less_than_nothing", less_than_nothing),
    Case::pair("send_timeout", send_timeout),
    Case::pair("send_timeout_partial", send_timeout_partial),
    Case::pair("timeout_readback", timeout_readback),
    Case::pair("timeout_does_not_touch_poll", timeout_does_not_touch_poll),
];

/// The time-outs of calls that wait, in milliseconds. Twice what tells "waited" from "at once": a busy machine may hold a
/// process up for a tenth of a second, and the kernel counts them in ticks that may then be late.
const LIMIT: u32 = 300;

/// A call with how long it took: "waited" or "at once".
fn timed(call: impl FnOnce() -> Ret) -> String {
    let start = Instant::now();
    let r = call();
    let took = start.elapsed();
    let word = if took >= wait::millis((LIMIT / 2).into()) {
        "waited"
    } else {
        "at once"
    };
    assert!(took < wait::millis(5000), "took {took:?}");
    format!("{r} {word}")
}

/// The kernel takes it for one of nothing at all.
fn less_than_nothing(s: &Side) {
    let fd = s.pair();
    net::set_timeout(fd, libc::SO_RCVTIMEO, -1000).ok();
    log!(s, "recv {}", timed(|| io::recv(fd, &mut [0; 4], 0)));
    net::set_timeout(fd, libc::SO_RCVTIMEO, LIMIT.into()).ok();
    log!(s, "recv {}", timed(|| io::recv(fd, &mut [0; 4], 0)));
    s.sync("done");
}

fn recv_timeout(s: &Side) {
    let fd = s.pair();
    net::set_timeout(fd, libc::SO_RCVTIMEO, LIMIT.into()).ok();
    let mut buf = [0; 4];
    log!(s, "recv {}", timed(|| io::recv(fd, &mut buf, 0)));
    log!(s, "read {}", timed(|| io::read(fd, &mut buf)));
    log!(
        s,
        "recvmsg {}",
        timed(|| io::recvmsg(fd, &mut [&mut buf], 0).0)
    );
    log!(
        s,
        "peek {}",
        timed(|| io::recv(fd, &mut buf, libc::MSG_PEEK))
    );
    s.sync("waited");
    io::send_all(fd, b"here").ok();
    log!(s, "then {}", io::recv_exact(fd, 4).1);
    s.sync("done");
}

fn recv_timeout_not_reached(s: &Side) {
    let fd = s.pair();
    net::set_timeout(fd, libc::SO_RCVTIMEO, 20_000).ok();
    if s.a() {
        std::thread::sleep(wait::millis(30));
        io::send_all(fd, b"four").ok();
    } else {
        log!(s, "{}", io::recv(fd, &mut [0; 4], 0));
    }
    s.sync("done");
}

fn recv_timeout_waitall(s: &Side) {
    let fd = s.pair();
    if s.a() {
        io::send_all(fd, b"part").ok();
    } else {
        wait::wait_queued(fd, 4);
        net::set_timeout(fd, libc::SO_RCVTIMEO, LIMIT.into()).ok();
        let mut buf = [0; 9];
        log!(s, "{}", timed(|| io::recv(fd, &mut buf, libc::MSG_WAITALL)));
        log!(s, "{}", timed(|| io::recv(fd, &mut buf, libc::MSG_WAITALL)));
    }
    s.sync("done");
}

fn recv_timeout_cleared(s: &Side) {
    let fd = s.pair();
    net::set_timeout(fd, libc::SO_RCVTIMEO, LIMIT.into()).ok();
    log!(s, "{}", timed(|| io::recv(fd, &mut [0; 4], 0)));
    net::set_timeout(fd, libc::SO_RCVTIMEO, 0).ok();
    s.sync("cleared");
    if s.a() {
        std::thread::sleep(wait::millis((LIMIT * 2).into()));
        io::send_all(fd, b"four").ok();
    } else {
        log!(s, "{}", timed(|| io::recv(fd, &mut [0; 4], 0)));
    }
    s.sync("done");
}

fn recv_timeout_and_dontwait(s: &Side) {
    let fd = s.pair();
    net::set_timeout(fd, libc::SO_RCVTIMEO, 3000).ok();
    log!(
        s,
        "{}",
        timed(|| io::recv(fd, &mut [0; 4], libc::MSG_DONTWAIT))
    );
    net::set_nonblocking(fd, true).ok();
    log!(s, "{}", timed(|| io::recv(fd, &mut [0; 4], 0)));
    s.sync("done");
}

fn send_timeout(s: &Side) {
    let fd = s.pair();
    if s.a() {
        net::set_timeout(fd, libc::SO_SNDTIMEO, LIMIT.into()).ok();
        fill_up(fd);
        log!(s, "send {}", timed(|| io::send(fd, &[1; 100], 0)));
        fill_up(fd);
        log!(s, "writev {}", timed(|| io::writev(fd, &[&[1; 100]])));
        log!(s, "error {}", net::so_error(fd));
    }
    s.sync("done");
}

/// A large send that times out midway says how much it took.
fn send_timeout_partial(s: &Side) {
    let fd = s.pair();
    if s.a() {
        net::set_timeout(fd, libc::SO_SNDTIMEO, 150).ok();
        let big = vec![5u8; 48 << 20];
        let took = io::send(fd, &big, 0).ok();
        log!(s, "partial {}", took > 0 && took < big.len());
        s.tell(took as u64);
        net::shutdown(fd, libc::SHUT_WR).ok();
    } else {
        let took = s.hear() as usize;
        let (got, last) = io::recv_to_end(fd);
        log!(s, "{} {last}", got.len() == took);
    }
    s.sync("done");
}

fn timeout_readback(s: &Side) {
    let fd = s.pair();
    for name in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        let show = |fd: Fd| format!("{:?}", net::get_timeout(fd, name));
        log!(s, "{}", show(fd));
        log!(s, "{} {}", net::set_timeout(fd, name, 2500), show(fd));
        log!(s, "{} {}", net::set_timeout(fd, name, -1000), show(fd));
        let bad = libc::timeval {
            tv_sec: 1,
            tv_usec: 2_000_000,
        };
        let at = (&raw const bad).cast();
        log!(
            s,
            "{}",
            crate::sys::call!(libc::setsockopt(fd, libc::SOL_SOCKET, name, at, 16))
        );
    }
    s.sync("done");
}

fn timeout_does_not_touch_poll(s: &Side) {
    let fd = s.pair();
    net::set_timeout(fd, libc::SO_RCVTIMEO, 10).ok();
    s.sync("set");
    if s.a() {
        std::thread::sleep(wait::millis(80));
        io::send_all(fd, b"x").ok();
    } else {
        log!(s, "{}", wait::poll(&[(fd, libc::POLLIN)], -1));
    }
    s.sync("done");
}
