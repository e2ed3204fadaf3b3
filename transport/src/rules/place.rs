//! Addresses and ports of a rule: `ADDRESS[/PREFIX]:PORT[-PORT]`.
//!
//! - ADDRESS is `*` (any), an IPv4 address, or an IPv6 address in brackets. Bits behind the prefix do not count.
//! - PORT is `*` (any), one port, or the first and the last of a range.
//! - An IPv4-mapped IPv6 address is IPv4, in rules and of connections; `[::]/0` matches IPv6 alone.

#![forbid(unsafe_code)]

use super::Problem;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};

/// Bits in front of the IPv4 address in a mapped one.
const MAPPED: u8 = 96;

/// A range of ports, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    pub first: u16,
    pub last: u16,
}

/// Addresses with ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// `None` for any.
    net: Option<IpNet>,
    ports: Ports,
}

impl Ports {
    const ANY: Self = Self {
        first: 1,
        last: u16::MAX,
    };

    fn parse(text: &str) -> Result<Self, Problem> {
        let wrong = || Problem::Port(text.to_owned());
        if text == "*" {
            return Ok(Self::ANY);
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let ports = Self {
            first: number(first).ok_or_else(wrong)?,
            last: number(last).ok_or_else(wrong)?,
        };
        if ports.first == 0 || ports.first > ports.last {
            return Err(wrong());
        }
        Ok(ports)
    }
}

/// A number in digits alone: the standard library takes a sign too.
fn number<T: std::str::FromStr>(text: &str) -> Option<T> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

impl Place {
    /// Reads the last word of a rule.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(word: &str) -> Result<Self, Problem> {
        let missing = || Problem::NoPort(word.to_owned());
        let (net, ports) = match word.strip_prefix('[') {
            Some(rest) => {
                let close = || Problem::Address(word.to_owned());
                let (address, rest) = rest.split_once(']').ok_or_else(close)?;
                let (prefix, ports) = rest.split_once(':').ok_or_else(missing)?;
                let address: Ipv6Addr = address.parse().map_err(|_| close())?;
                let prefix = match prefix.strip_prefix('/') {
                    Some(prefix) => prefix_of(prefix, 128)?,
                    None if prefix.is_empty() => 128,
                    None => return Err(close()),
                };
                (Some(v6(address, prefix).ok_or_else(close)?), ports)
            }
            None => {
                let (address, ports) = word.rsplit_once(':').ok_or_else(missing)?;
                (v4(address)?, ports)
            }
        };
        let ports = Ports::parse(ports)?;
        Ok(Self { net, ports })
    }

    /// Whether it is one of these addresses and ports.
    #[must_use]
    pub fn contains(&self, address: &SocketAddr) -> bool {
        let ip = address.ip().to_canonical();
        self.net.is_none_or(|net| net.contains(&ip))
            && (self.ports.first..=self.ports.last).contains(&address.port())
    }

    /// Whether all that `other` contains is in here.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let ports = self.ports.first <= other.ports.first && other.ports.last <= self.ports.last;
        ports
            && match (self.net, other.net) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(mine), Some(others)) => mine.contains(&others),
            }
    }
}

fn v4(text: &str) -> Result<Option<IpNet>, Problem> {
    if text == "*" {
        return Ok(None);
    }
    let wrong = || Problem::Address(text.to_owned());
    let (address, prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, Some(prefix)),
        None => (text, None),
    };
    let address = address.parse().map_err(|_| wrong())?;
    let prefix = prefix.map_or(Ok(32), |p| prefix_of(p, 32))?;
    let net = Ipv4Net::new(address, prefix).map_err(|_| wrong())?;
    Ok(Some(net.trunc().into()))
}

/// The network of an IPv6 address, an IPv4 one if it is a mapped address.
fn v6(address: Ipv6Addr, prefix: u8) -> Option<IpNet> {
    match (address.to_ipv4_mapped(), prefix.checked_sub(MAPPED)) {
        (Some(v4), Some(prefix)) => Some(Ipv4Net::new(v4, prefix).ok()?.trunc().into()),
        _ => Some(Ipv6Net::new(address, prefix).ok()?.trunc().into()),
    }
}

fn prefix_of(text: &str, most: u8) -> Result<u8, Problem> {
    let prefix = number(text).filter(|&p| p <= most);
    prefix.ok_or_else(|| Problem::Prefix(text.to_owned(), most))
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.net {
            None => write!(f, "*")?,
            Some(IpNet::V4(net)) => write!(f, "{}", net.addr())?,
            Some(IpNet::V6(net)) => write!(f, "[{}]", net.addr())?,
        }
        if let Some(net) = self.net
            && net.prefix_len() < net.max_prefix_len()
        {
            write!(f, "/{}", net.prefix_len())?;
        }
        match self.ports {
            Ports::ANY => write!(f, ":*"),
            Ports { first, last } if first == last => write!(f, ":{first}"),
            Ports { first, last } => write!(f, ":{first}-{last}"),
        }
    }
}
