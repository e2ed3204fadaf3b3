//! Answers the questions that come to this host. Whoever has the UDP port does it for all.
//!
//! - A question is about an address of this host, the one that it came to, and a port. Where the socket that takes
//!   connections there has its mark, and every other that shares the port with it by SO_REUSEPORT has too, the
//!   answer is that SDP is taken at that very address. Everything else is denied.
//! - An acceptance holds for a short time: the listener may be gone tomorrow, and its port a plain server's.
//! - An answer is no longer than its question and goes out from the address that was asked: nobody can be flooded by
//!   way of this.

use super::mark::Marks;
use crate::clock;
use crate::port_mapper::PORT;
use crate::port_mapper::answerer::{Answerer, Verdict};
use crate::port_mapper::message::{LONG, Message, PmTime};
use crate::sys::Result;
use crate::sys::diag::Diag;
use crate::sys::net::Endpoint;
use crate::sys::udp::Answering;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// How long an acceptance holds.
const HOLDS: Duration = Duration::from_secs(2);
/// How long (µs) one stands here for a client that does not acknowledge it: longer than clients go on asking, and not
/// much, since whoever sends false questions can have as many stand as there may.
const STANDS_US: u64 = 1_000_000;
/// Questions taken at a time.
const BATCH: usize = 64;

/// The port mapper of this host.
#[derive(Debug)]
pub struct Service {
    socket: Answering,
    answerer: Answerer,
    marks: Marks,
    diag: Option<Diag>,
}

/// How many questions were taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    pub messages: usize,
    /// There may be more.
    pub more: bool,
}

impl Service {
    /// Takes the port.
    ///
    /// # Errors
    /// EADDRINUSE if another port mapper has it; no descriptor.
    pub fn open() -> Result<Self> {
        Ok(Self {
            socket: Answering::open(PORT)?,
            answerer: Answerer::new(STANDS_US),
            marks: Marks::default(),
            diag: Diag::open().ok(),
        })
    }

    /// The descriptor at which questions come.
    #[must_use]
    pub const fn raw(&self) -> i32 {
        self.socket.raw()
    }

    /// Answers what has come. Does not wait.
    pub fn serve(&mut self) -> Served {
        let mut served = Served::default();
        let mut room = [0; LONG];
        while let Ok(datagram) = self.socket.receive(&mut room) {
            served.messages += 1;
            let Self {
                answerer,
                marks,
                diag,
                ..
            } = self;
            // (what is longer than any message is none)
            let bytes = room.get(..datagram.len).unwrap_or_default();
            let judge =
                |request: &Message| judge(marks, diag.as_ref(), datagram.to, request.service);
            let now = clock::monotonic_ns() / 1000;
            if let Some(answer) = answerer.receive(now, bytes, judge) {
                let _ = self.socket.reply(&datagram, answer.as_ref());
            }
            if served.messages >= BATCH {
                served.more = true;
                break;
            }
        }
        served
    }
}

/// Whether SDP is taken at an address of this host.
fn judge(marks: &mut Marks, diag: Option<&Diag>, to: IpAddr, service: SocketAddr) -> Verdict {
    let takes = to == service.ip().to_canonical() && is_marked(marks, diag, service);
    if takes {
        Verdict::Accept {
            at: service,
            time: PmTime::at_most(HOLDS),
        }
    } else {
        Verdict::Deny
    }
}

/// Whether all who take connections there have their marks.
fn is_marked(marks: &mut Marks, diag: Option<&Diag>, service: SocketAddr) -> bool {
    let Some(diag) = diag else { return false };
    let endpoint = |ip: IpAddr, port| Endpoint {
        ip: match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
            IpAddr::V6(ip) => ip.octets(),
        },
        port,
    };
    let any: IpAddr = if service.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        Ipv6Addr::UNSPECIFIED.into()
    };
    let (service, any) = (endpoint(service.ip(), service.port()), endpoint(any, 0));
    let Ok((found, bound)) = diag.find_bound(&service, &any) else {
        return false;
    };
    if !found.listening || !marks.has(u64::from(found.inode), found.uid) {
        return false;
    }
    let mut all = true;
    let listed = diag.listeners_at(&bound, |other| {
        all &= marks.has(u64::from(other.inode), other.uid);
    });
    all && listed.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::mark::Mark;
    use std::net::{TcpListener, ToSocketAddrs};
    use std::os::fd::AsRawFd as _;

    fn takes(marks: &mut Marks, to: &str, service: (&str, u16)) -> bool {
        let service = service.to_socket_addrs().unwrap().next().unwrap();
        let verdict = judge(
            marks,
            Diag::open().ok().as_ref(),
            to.parse().unwrap(),
            service,
        );
        match verdict {
            Verdict::Accept { at, time } => {
                assert_eq!((at, time.lifetime()), (service, PmTime(8).lifetime()));
                true
            }
            Verdict::Deny => false,
        }
    }

    #[test]
    fn marked_listeners_take_it_where_they_listen() {
        for (host, near, far) in [
            ("127.0.0.1", "127.0.0.1", "127.0.0.2"),
            ("0.0.0.0", "127.0.0.1", "::1"),
            ("::1", "::1", "127.0.0.1"),
        ] {
            let mut marks = Marks::default();
            let listener = TcpListener::bind((host, 0)).unwrap();
            let port = listener.local_addr().unwrap().port();
            assert!(!takes(&mut marks, near, (near, port)), "{host} unmarked");
            let mark = Mark::put_up(listener.as_raw_fd()).unwrap();
            assert!(takes(&mut marks, near, (near, port)), "{host}");
            assert!(!takes(&mut marks, far, (far, port)), "{host} not there");
            assert!(!takes(&mut marks, far, (near, port)), "asked elsewhere");
            drop(mark);
            assert!(!takes(&mut marks, near, (near, port)), "{host} gone");
        }
    }

    #[test]
    fn an_ipv6_listener_takes_ipv4_where_the_kernel_gives_it() {
        let mut marks = Marks::default();
        let listener = TcpListener::bind("[::]:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let _mark = Mark::put_up(listener.as_raw_fd()).unwrap();
        for host in ["127.0.0.1", "::1"] {
            assert!(takes(&mut marks, host, (host, port)), "{host}");
        }
    }

    /// A listener that shares its port.
    fn sharing(host: &str, port: u16) -> TcpListener {
        let place = (host, port).to_socket_addrs().unwrap().next().unwrap();
        let family = if place.is_ipv4() {
            libc::AF_INET
        } else {
            libc::AF_INET6
        };
        let (one, size) = (1i32, 4);
        // SAFETY: plain calls with arguments that live as long as they take.
        unsafe {
            let fd = libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
            let level = libc::SOL_SOCKET;
            let set =
                libc::setsockopt(fd, level, libc::SO_REUSEPORT, (&raw const one).cast(), size);
            let (bytes, len) = crate::sys::udp::encode(&place);
            let bound = libc::bind(fd, bytes.as_ptr().cast(), u32::try_from(len).unwrap());
            assert_eq!((set, bound, libc::listen(fd, 9)), (0, 0, 0));
            std::os::fd::FromRawFd::from_raw_fd(fd)
        }
    }

    #[test]
    fn all_who_share_the_port_have_to_take_it() {
        let mut marks = Marks::default();
        let one = sharing("::", 0);
        let port = one.local_addr().unwrap().port();
        let two = sharing("::", port);
        let _mark = Mark::put_up(one.as_raw_fd()).unwrap();
        assert!(!takes(&mut marks, "127.0.0.1", ("127.0.0.1", port)));
        let _mark = Mark::put_up(two.as_raw_fd()).unwrap();
        assert!(takes(&mut marks, "127.0.0.1", ("127.0.0.1", port)));
        // A plain one that is more to the point gets the connections.
        let _plain = sharing("127.0.0.1", port);
        assert!(!takes(&mut marks, "127.0.0.1", ("127.0.0.1", port)));
        assert!(takes(&mut marks, "::1", ("::1", port)));
    }
}
