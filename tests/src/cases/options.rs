//! Options, counters and names of a connected socket.

use super::Case;
use crate::log;
use crate::side::{Side, drain, fill_up};
use crate::sys::{io, net, wait};
use libc::SOL_SOCKET;

pub(super) const CASES: &[Case] = &[
    Case::moving("timestamps_of_sends", timestamps_of_sends),
    Case::moving("polled_after_kernels_zero_copy", polled_after_zero_copy),
    Case::pair("buffer_sizes", buffer_sizes),
    Case::pair("small_buffers", small_buffers),
    Case::pair("lowat_recv", lowat_recv),
    Case::pair("lowat_poll", lowat_poll),
    Case::pair("lowat_epoll", lowat_epoll),
    Case::pair("lowat_of_listener", lowat_of_listener)
        .any_path("the mark is there before the first byte"),
    Case::pair("lowat_changed", lowat_changed),
    Case::pair("lowat_tells_edges", lowat_tells_edges),
    Case::pair("fionread", fionread),
    Case::pair("siocoutq", siocoutq),
    Case::pair("tcp_info", tcp_info),
    Case::pair("names", names),
    Case::pair("plain_readback", plain_readback),
    Case::pair("option_errors", option_errors),
    Case::pair("ioctl_errors", ioctl_errors),
    Case::pair("so_error_clear", so_error_clear),
];

fn buffer_sizes(s: &Side) {
    let fd = s.pair();
    for name in [libc::SO_RCVBUF, libc::SO_SNDBUF] {
        for value in [0, 4096, 65536, 200_000, 100_000_000, -1] {
            log!(
                s,
                "{} {:?}",
                net::setopt(fd, SOL_SOCKET, name, value),
                net::getopt(fd, SOL_SOCKET, name)
            );
        }
    }
    io::send_all(fd, b"works").ok();
    log!(s, "{}", io::recv_exact(fd, 5).1);
    s.sync("done");
}

/// Small buffers slow a transfer down and change nothing else.
fn small_buffers(s: &Side) {
    let fd = s.pair();
    net::setopt(fd, SOL_SOCKET, libc::SO_RCVBUF, 4096).ok();
    net::setopt(fd, SOL_SOCKET, libc::SO_SNDBUF, 4096).ok();
    let big = crate::side::Random::new(2).bytes(40_000);
    if s.a() {
        log!(s, "{}", io::send_all(fd, &big));
        let (got, _) = io::recv_exact(fd, big.len());
        log!(s, "{}", got == big);
    } else {
        let (got, _) = io::recv_exact(fd, big.len());
        log!(s, "{}", got == big);
        log!(s, "{}", io::send_all(fd, &big));
    }
    s.sync("done");
}

/// A sleeping recv is woken by enough bytes only; one that may not sleep takes what is there.
fn lowat_recv(s: &Side) {
    let fd = s.pair();
    if s.a() {
        s.hear();
        io::send_all(fd, b"abc").ok();
        std::thread::sleep(wait::millis(40));
        io::send_all(fd, b"def").ok();
        s.sync("six");
        io::send_all(fd, b"gh").ok();
        s.sync("two");
        net::shutdown(fd, libc::SHUT_WR).ok();
    } else {
        log!(s, "{}", net::setopt(fd, SOL_SOCKET, libc::SO_RCVLOWAT, 6));
        log!(s, "{:?}", net::getopt(fd, SOL_SOCKET, libc::SO_RCVLOWAT));
        let helper = s.tell_once_asleep();
        let mut buf = [0; 10];
        log!(s, "{}", io::recv(fd, &mut buf, 0));
        helper.join().unwrap();
        s.sync("six");
        s.sync("two");
        wait::wait_queued(fd, 2);
        log!(
            s,
            "{}",
            io::recv(fd, &mut buf, libc::MSG_PEEK | libc::MSG_DONTWAIT)
        );
        log!(s, "{}", io::recv(fd, &mut buf, libc::MSG_DONTWAIT));
        log!(s, "{}", io::recv(fd, &mut buf, 0));
    }
    s.sync("done");
}

fn lowat_poll(s: &Side) {
    let fd = s.pair();
    if s.a() {
        io::send_all(fd, b"abc").ok();
        s.sync("three");
        s.sync("looked");
        io::send_all(fd, b"de").ok();
    } else {
        net::setopt(fd, SOL_SOCKET, libc::SO_RCVLOWAT, 5).ok();
        s.sync("three");
        wait::wait_queued(fd, 3);
        log!(s, "{}", wait::poll(&[(fd, libc::POLLIN)], 20));
        s.sync("looked");
        log!(s, "{}", wait::poll(&[(fd, libc::POLLIN)], -1));
        log!(s, "{}", net::queued(fd));
    }
    s.sync("done");
}

fn lowat_epoll(s: &Side) {
    let fd = s.pair();
    if s.a() {
        io::send_all(fd, b"abc").ok();
        s.sync("three");
        s.sync("looked");
        io::send_all(fd, b"de").ok();
    } else {
        net::setopt(fd, SOL_SOCKET, libc::SO_RCVLOWAT, 5).ok();
        let set = wait::epoll();
        wait::add(set, fd, libc::EPOLLIN, 1).ok();
        s.sync("three");
        wait::wait_queued(fd, 3);
        log!(s, "{}", wait::epoll_wait(set, 4, 20));
        s.sync("looked");
        log!(s, "{}", wait::epoll_wait(set, 4, -1));
    }
    s.sync("done");
}

/// A listener's mark is that of what it accepts, from the first byte on, and for the library's own octets too.
fn lowat_of_listener(s: &Side) {
    if s.a() {
        let lis = s.listen(8);
        net::setopt(lis, SOL_SOCKET, libc::SO_RCVLOWAT, 100).ok();
        s.sync("marked");
        let fd = net::accept(lis).fd();
        log!(s, "{:?}", net::getopt(fd, SOL_SOCKET, libc::SO_RCVLOWAT));
        log!(s, "{}", wait::poll(&[(fd, libc::POLLIN)], 20));
        s.sync("looked");
        // (a recv that has some sleeps in the kernel for as many again)
        log!(s, "{}", wait::poll(&[(fd, libc::POLLIN)], -1));
        log!(s, "{}", io::recv(fd, &mut [0; 200], 0));
        io::send_all(fd, b"ok").ok();
    } else {
        let to = s.target();
        s.sync("marked");
        let fd = net::socket_for(to, 0);
        net::connect(fd, to).ok();
        io::send_all(fd, &[1; 60]).ok();
        s.sync("looked");
        io::send_all(fd, &[2; 40]).ok();
        log!(s, "{}", io::recv_exact(fd, 2).1);
    }
    s.sync("done");
}

/// Each time the mark is set, sets that watch for edges of data are told of what is enough.
fn lowat_tells_edges(s: &Side) {
    let fd = s.pair();
    io::send_all(fd, b"abc").ok();
    wait::wait_queued(fd, 3);
    let (data, room) = (wait::epoll(), wait::epoll());
    wait::add(data, fd, libc::EPOLLIN | libc::EPOLLET, 1).ok();
    wait::add(room, fd, libc::EPOLLOUT | libc::EPOLLET, 2).ok();
    let look = || {
        format!(
            "{} {}",
            wait::epoll_wait(data, 4, 0),
            wait::epoll_wait(room, 4, 0)
        )
    };
    log!(s, "{} | {}", look(), look());
    for value in [1, 3, 4, 2] {
        net::setopt(fd, SOL_SOCKET, libc::SO_RCVLOWAT, value).ok();
        log!(s, "{value} {} | {}", look(), look());
    }
    s.sync("done");
}

fn lowat_changed(s: &Side) {
    let fd = s.pair();
    io::send_all(fd, b"abc").ok();
    wait::wait_queued(fd, 3);
    for value in [10, 3, 4, 0, -1] {
        let r = net::setopt(fd, SOL_SOCKET, libc::SO_RCVLOWAT, value);
        log!(s, "{r} {}", wait::poll(&[(fd, libc::POLLIN)], 0));
    }
    log!(s, "{}", net::setopt(fd, SOL_SOCKET, libc::SO_SNDLOWAT, 2));
    s.sync("done");
}

fn fionread(s: &Side) {
    let fd = s.pair();
    log!(s, "{:?}", net::ioctl_int(fd, libc::FIONREAD));
    s.sync("none");
    for size in [1usize, 99, 9900] {
        io::send_all(fd, &vec![1; size]).ok();
    }
    wait::wait_queued(fd, 10_000);
    log!(s, "{:?}", net::ioctl_int(fd, libc::FIONREAD));
    io::recv(fd, &mut [0; 400], 0).ok();
    log!(s, "{:?}", net::ioctl_int(fd, libc::FIONREAD));
    io::recv(fd, &mut [0; 400], libc::MSG_PEEK).ok();
    log!(s, "{:?}", net::ioctl_int(fd, libc::FIONREAD));
    io::recv_exact(fd, 9600);
    log!(s, "{:?}", net::ioctl_int(fd, libc::FIONREAD));
    s.sync("read");
    net::shutdown(fd, libc::SHUT_WR).ok();
    wait::wait_for(fd, libc::POLLRDHUP);
    log!(s, "{:?}", net::ioctl_int(fd, libc::FIONREAD));
    s.sync("done");
}

/// Unsent bytes are counted while the peer does not read, and reach zero when it does.
fn siocoutq(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let empty = wait::eventually(|| net::ioctl_int(fd, libc::TIOCOUTQ).1 == 0);
        log!(s, "empty {empty}");
        let total = fill_up(fd);
        let (r, waiting) = net::ioctl_int(fd, libc::TIOCOUTQ);
        log!(s, "full {r} {}", waiting > 0 && waiting as usize <= total);
        s.tell(total as u64);
        s.sync("drained");
        let empty = wait::eventually(|| net::ioctl_int(fd, libc::TIOCOUTQ).1 == 0);
        log!(s, "empty {empty}");
    } else {
        let total = s.hear() as usize;
        drain(fd, total);
        s.sync("drained");
    }
    s.sync("done");
}

fn tcp_info(s: &Side) {
    let fd = s.pair();
    let mut info = [0u8; 256];
    for room in [256u32, 8, 1] {
        let mut len = room;
        let at = info.as_mut_ptr().cast();
        let (level, name) = (libc::IPPROTO_TCP, libc::TCP_INFO);
        let r = crate::sys::call!(libc::getsockopt(fd, level, name, at, &raw mut len));
        log!(s, "{r} state {} {}", info[0], len <= room && len > 0);
    }
    s.sync("looked");
    net::shutdown(fd, libc::SHUT_WR).ok();
    wait::wait_for(fd, libc::POLLHUP);
    s.sync("done");
}

fn names(s: &Side) {
    let fd = s.pair();
    let (own, peer) = (net::getsockname(fd), net::getpeername(fd).unwrap());
    log!(s, "own {} peer {}", own.ip(), peer.ip());
    s.tell(u64::from(own.port()));
    log!(s, "agrees {}", s.hear() == u64::from(peer.port()));
    let mut raw = net::RawAddr::empty();
    raw.len = 4;
    let len = &raw mut raw.len;
    let r = crate::sys::call!(libc::getsockname(fd, raw.ptr_mut(), len));
    log!(s, "short {r} {}", raw.len);
    s.sync("done");
}

fn plain_readback(s: &Side) {
    let fd = s.pair();
    let names = [
        libc::SO_TYPE,
        libc::SO_DOMAIN,
        libc::SO_PROTOCOL,
        libc::SO_ACCEPTCONN,
        libc::SO_KEEPALIVE,
        libc::SO_RCVLOWAT,
        libc::SO_OOBINLINE,
        libc::SO_PRIORITY,
    ];
    for name in names {
        log!(s, "{name} {:?}", net::getopt(fd, SOL_SOCKET, name));
    }
    for (name, value) in [
        (libc::TCP_NODELAY, 1),
        (libc::TCP_KEEPIDLE, 33),
        (libc::TCP_QUICKACK, 1),
    ] {
        log!(
            s,
            "{} {:?}",
            net::setopt(fd, libc::IPPROTO_TCP, name, value),
            net::getopt(fd, libc::IPPROTO_TCP, name)
        );
    }
    log!(s, "{}", net::setopt(fd, SOL_SOCKET, libc::SO_KEEPALIVE, 1));
    log!(s, "{:?}", net::getopt(fd, SOL_SOCKET, libc::SO_KEEPALIVE));
    s.sync("done");
}

fn option_errors(s: &Side) {
    let fd = s.pair();
    let page = io::forbidden_page() as *mut libc::c_void;
    log!(s, "{}", net::setopt(fd, SOL_SOCKET, 9999, 1));
    log!(s, "{}", net::getopt(fd, libc::IPPROTO_TCP, 9999).0);
    for name in [
        libc::SO_RCVTIMEO,
        libc::SO_RCVBUF,
        libc::SO_RCVLOWAT,
        libc::SO_LINGER,
    ] {
        log!(
            s,
            "{}",
            crate::sys::call!(libc::setsockopt(fd, SOL_SOCKET, name, page, 16))
        );
        log!(
            s,
            "{}",
            crate::sys::call!(libc::setsockopt(fd, SOL_SOCKET, name, page, 1))
        );
        let mut len = 16;
        log!(
            s,
            "{}",
            crate::sys::call!(libc::getsockopt(fd, SOL_SOCKET, name, page, &raw mut len))
        );
    }
    log!(s, "{}", net::bind(fd, net::loopback()));
    log!(s, "{}", net::listen(fd, 1));
    log!(s, "{}", net::connect(fd, net::getpeername(fd).unwrap()));
    log!(s, "{}", net::accept(fd));
    s.sync("done");
}

fn ioctl_errors(s: &Side) {
    let fd = s.pair();
    let page = io::forbidden_page() as *mut libc::c_void;
    log!(
        s,
        "{}",
        crate::sys::call!(libc::ioctl(fd, libc::FIONREAD, page))
    );
    log!(
        s,
        "{}",
        crate::sys::call!(libc::ioctl(fd, libc::FIONBIO, page))
    );
    log!(s, "{}", net::ioctl_int(fd, 0xdead_beef).0);
    log!(s, "{}", net::fcntl(fd, 9999, 0));
    log!(s, "{}", net::ioctl_int(fd, net::SIOCATMARK).0);
    io::send_all(fd, b"ok").ok();
    log!(s, "{}", io::recv_exact(fd, 2).1);
    s.sync("done");
}

fn so_error_clear(s: &Side) {
    let fd = s.pair();
    log!(s, "{}", net::so_error(fd));
    net::shutdown(fd, libc::SHUT_WR).ok();
    io::send(fd, b"x", libc::MSG_NOSIGNAL);
    log!(s, "{}", net::so_error(fd));
    s.sync("done");
}

/// As gRPC asks for: when what is sent leaves. The stream goes on.
fn timestamps_of_sends(s: &Side) {
    const TX_SOFTWARE_ID: i32 = 2 | 16 | 128;
    let fd = s.pair();
    for i in 0..200 {
        if s.a() && i == 150 {
            let set = net::setopt(fd, SOL_SOCKET, libc::SO_TIMESTAMPING, TX_SOFTWARE_ID);
            log!(s, "{set}");
        }
        if s.a() {
            io::send_all(fd, b"request").ok();
            assert_eq!(io::recv_exact(fd, 6).0, b"answer", "{i}");
        } else {
            assert_eq!(io::recv_exact(fd, 7).0, b"request", "{i}");
            io::send_all(fd, b"answer").ok();
        }
    }
    s.sync("done");
}

/// MSG_ZEROCOPY is the kernel's alone, and so is the stream from there: nothing can be read while nothing has been sent.
fn polled_after_zero_copy(s: &Side) {
    const MSG_ZEROCOPY: i32 = 0x400_0000;
    let fd = s.pair();
    if s.a() {
        net::setopt(fd, SOL_SOCKET, libc::SO_ZEROCOPY, 1).ok();
        log!(s, "{}", io::send(fd, &[7; 20_000], MSG_ZEROCOPY));
        s.sync("read");
        std::thread::sleep(wait::millis(50));
        for _ in 0..3 {
            log!(s, "{}", wait::poll(&[(fd, libc::POLLIN)], 50));
        }
    } else {
        log!(s, "{}", io::recv_exact(fd, 20_000).1);
        s.sync("read");
    }
    s.sync("done");
}
