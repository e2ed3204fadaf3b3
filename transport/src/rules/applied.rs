//! The rules that are about one program: all that is left to look at for a connection is its address.

#![forbid(unsafe_code)]

use super::{At, Identity, Place, Role, Rule};
use crate::settings::Wanted;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// What a program's connections are to use.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    connect: Vec<(Place, Wanted)>,
    listen: Vec<(Place, Wanted)>,
}

impl Rules {
    /// Those that match this program, in their order.
    #[must_use]
    pub fn of(rules: &[At<Rule>], who: &Identity) -> Self {
        let of_role = |role| {
            let rules = rules.iter().map(|r| &r.what);
            let mine = rules.filter(|r| r.role == role && r.program.matches(who));
            mine.map(|r| (r.place, r.wanted)).collect()
        };
        Self {
            connect: of_role(Role::Connect),
            listen: of_role(Role::Listen),
        }
    }

    /// Whether none is about this program.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.connect.is_empty() && self.listen.is_empty()
    }

    /// What the first matching rule says of a connect to this address. (The kernel takes the address of all
    /// zeros for this host.)
    #[must_use]
    pub fn connect(&self, peer: SocketAddr) -> Option<Wanted> {
        let ip = match peer.ip().to_canonical() {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED) => IpAddr::V6(Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        first(&self.connect, &[SocketAddr::new(ip, peer.port())])
    }

    /// What the first matching rule says of a socket that listens here. One that listens at all addresses of IPv6 takes
    /// connections of IPv4 too, so it is at all of those as well.
    #[must_use]
    pub fn listen(&self, local: SocketAddr) -> Option<Wanted> {
        let both = if local.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED) {
            IpAddr::V4(Ipv4Addr::UNSPECIFIED)
        } else {
            local.ip()
        };
        first(&self.listen, &[local, SocketAddr::new(both, local.port())])
    }
}

/// Of the first rule that holds at one of these addresses.
fn first(rules: &[(Place, Wanted)], at: &[SocketAddr]) -> Option<Wanted> {
    let mut rules = rules.iter();
    let found = rules.find(|(place, _)| at.iter().any(|a| place.contains(a)));
    found.map(|(_, wanted)| *wanted)
}
