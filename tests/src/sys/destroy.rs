//! Ends a TCP connection from outside, as `ss -K` does: SOCK_DESTROY of sock_diag(7). Needs CAP_NET_ADMIN.

use super::{Fd, call, net};
use std::net::{IpAddr, SocketAddr};

/// One request: nlmsghdr, then inet_diag_req_v2.
fn request(from: SocketAddr, to: SocketAddr) -> Vec<u8> {
    const SOCK_DESTROY: u16 = 21;
    const NLM_F_REQUEST: u16 = 1;
    const NLM_F_ACK: u16 = 4;
    const ANY: [u8; 8] = [0xff; 8];
    let family = if from.is_ipv4() {
        libc::AF_INET
    } else {
        libc::AF_INET6
    };
    let address = |at: SocketAddr| {
        let mut octets = [0; 16];
        match at.ip() {
            IpAddr::V4(ip) => octets[..4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => octets = ip.octets(),
        }
        octets
    };
    let mut r = Vec::from(72u32.to_ne_bytes());
    r.extend(SOCK_DESTROY.to_ne_bytes());
    r.extend((NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
    r.extend([0; 8]); // sequence, port
    r.extend([family as u8, libc::IPPROTO_TCP as u8, 0, 0]);
    r.extend(u32::MAX.to_ne_bytes()); // in any state
    r.extend(from.port().to_be_bytes());
    r.extend(to.port().to_be_bytes());
    r.extend(address(from));
    r.extend(address(to));
    r.extend([0; 4]); // interface
    r.extend(ANY); // cookie
    r
}

/// Ends the connection at this end, which is told ECONNABORTED; the other is sent a reset.
#[track_caller]
pub fn destroy(fd: Fd) {
    let to = net::getpeername(fd).expect("a connection");
    let request = request(net::getsockname(fd), to);
    let netlink = call!(libc::socket(libc::AF_NETLINK, libc::SOCK_RAW, 4)).fd();
    let len = request.len();
    call!(libc::send(netlink, request.as_ptr().cast(), len, 0)).ok();
    let mut answer = [0u8; 256];
    let n = call!(libc::recv(netlink, answer.as_mut_ptr().cast(), 256, 0)).ok();
    let code = i32::from_ne_bytes(answer[16..20].try_into().unwrap());
    assert!(n >= 20 && code == 0, "SOCK_DESTROY: {code}");
    net::close(netlink).ok();
}
