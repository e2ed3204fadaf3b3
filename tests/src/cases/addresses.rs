//! Every address that a connection may use, and what each end is told of it.

use super::Case;
use super::attach::talk;
use crate::log;
use crate::side::Side;
use crate::sys::net;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

pub(super) const CASES: &[Case] = &[
    Case::pair("address_v4", |s| {
        plain(s, Ipv4Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into())
    }),
    Case::pair("address_v4_other_loopback", |s| {
        plain(
            s,
            Ipv4Addr::new(127, 3, 2, 1).into(),
            Ipv4Addr::new(127, 3, 2, 1).into(),
        );
    }),
    Case::pair("address_v6", |s| {
        plain(s, Ipv6Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into())
    }),
    Case::pair("address_wildcard_v4", |s| {
        plain(s, Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::LOCALHOST.into());
    }),
    Case::pair("address_wildcard_v6", |s| {
        plain(s, Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::LOCALHOST.into());
    }),
    Case::pair("address_v4_to_dual_stack", |s| {
        plain(s, Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::LOCALHOST.into());
    }),
    Case::pair("address_mapped", |s| {
        plain(
            s,
            Ipv4Addr::LOCALHOST.into(),
            Ipv4Addr::LOCALHOST.to_ipv6_mapped().into(),
        );
    }),
    Case::pair("address_to_wildcard", |s| {
        plain(
            s,
            Ipv4Addr::UNSPECIFIED.into(),
            Ipv4Addr::UNSPECIFIED.into(),
        );
    }),
    Case::pair("address_own_v4", |s| own_address(s, true)).any_path("the host may have none"),
    Case::pair("address_own_v6", |s| own_address(s, false)).any_path("the host may have none"),
];

fn plain(s: &Side, at: IpAddr, to: IpAddr) {
    let fd = if s.accepts() {
        let (r, from) = net::accept4(s.listen_at(SocketAddr::new(at, 0), 8), libc::SOCK_CLOEXEC);
        log!(s, "from {}", from.ip());
        r.fd()
    } else {
        let to = s.target_at(to);
        let fd = net::socket_for(to, 0);
        log!(s, "connect {}", net::connect(fd, to));
        fd
    };
    log!(
        s,
        "own {} peer {}",
        net::getsockname(fd).ip(),
        net::getpeername(fd).unwrap().ip()
    );
    talk(s, fd);
}

/// An address of this host that is not loopback, found without sending anything.
fn own_ip(v4: bool) -> Option<IpAddr> {
    let probe: SocketAddr = if v4 {
        "192.0.2.200:9"
    } else {
        "[2001:db8::9]:9"
    }
    .parse()
    .unwrap();
    let from = if v4 { "0.0.0.0:0" } else { "[::]:0" };
    let socket = std::net::UdpSocket::bind(from).ok()?;
    socket.connect(probe).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}

fn own_address(s: &Side, v4: bool) {
    match own_ip(v4) {
        Some(ip) => plain(s, ip, ip),
        None => log!(s, "no such address here"),
    }
}
