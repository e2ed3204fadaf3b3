//! The addresses of a connection that its record does not have yet: the library asks the kernel for
//! them when it needs them, and until then they are found here by the number of the socket.

use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::Ordering;
use transport::record::Record;
use transport::sys::net::Endpoint;

/// Both ends of the connections of one network namespace, by socket number.
type Sockets = HashMap<u64, (Endpoint, Endpoint)>;

/// What was read so far, by namespace.
#[derive(Debug, Default)]
pub(crate) struct Addresses {
    read: HashMap<String, Sockets>,
}

impl Addresses {
    /// Completes a record that has no addresses, if they can be found.
    pub(crate) fn fill(&mut self, pid: u32, record: &Record) {
        let (local, peer) = record.names();
        if local.port != 0 && peer.port != 0 {
            return;
        }
        let fd = record.fd.load(Ordering::Relaxed);
        if let Some((local, peer)) = self.of(pid, fd) {
            record.set_names(local, peer);
        }
    }

    fn of(&mut self, pid: u32, fd: u32) -> Option<&(Endpoint, Endpoint)> {
        let link = fs::read_link(format!("/proc/{pid}/fd/{fd}")).ok()?;
        let number = socket_number(link.to_str()?)?;
        let space = fs::read_link(format!("/proc/{pid}/ns/net")).ok()?;
        let space = space.to_string_lossy().into_owned();
        let sockets = self.read.entry(space).or_insert_with(|| {
            let table =
                |name| fs::read_to_string(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
            ["tcp", "tcp6"]
                .into_iter()
                .flat_map(|name| parse(&table(name)))
                .collect()
        });
        sockets.get(&number)
    }
}

/// The number in `socket:[number]`.
fn socket_number(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?
        .strip_suffix(']')?
        .parse()
        .ok()
}

/// The sockets in the text of /proc/net/tcp or tcp6.
fn parse(table: &str) -> Sockets {
    table.lines().skip(1).filter_map(line).collect()
}

fn line(line: &str) -> Option<(u64, (Endpoint, Endpoint))> {
    let mut words = line.split_ascii_whitespace();
    let (local, peer) = (words.nth(1)?, words.next()?);
    // State, queues, timer, retransmissions, user and time-out stand in between.
    let number = words.nth(6)?.parse().ok()?;
    Some((number, (endpoint(local)?, endpoint(peer)?)))
}

/// `ADDRESS:PORT`, all hexadecimal; the address in words of 32 bits of this machine's byte order.
fn endpoint(text: &str) -> Option<Endpoint> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| {
        u32::from_str_radix(address.get(at..at + 8)?, 16)
            .ok()
            .map(u32::to_ne_bytes)
    };
    let ip = match address.len() {
        8 => IpAddr::from(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut ip = [0; 16];
            for (i, part) in ip.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(i * 8)?);
            }
            IpAddr::from(Ipv6Addr::from(ip))
        }
        _ => return None,
    };
    let ip = match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    Some(Endpoint { ip, port })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;
    use transport::reason::Reason;

    const TABLE: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 0100007F:A2B4 01 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0 20 4 30 10 -1
   1: 0000000000000000FFFF00000100007F:0050 00000000000000000000000001000000:0051 01 0:0 0:0 0 0 0 12 1 0
   2: broken line
   3: 0100007F:1F90 0100007F 01 00000000:00000000 00:00000000 00000000  1000        0 4712 1 0 20 4 30 10 -1
";

    #[test]
    fn the_kernels_table_is_read() {
        let sockets = parse(TABLE);
        assert_eq!(sockets.len(), 2);
        let (local, peer) = &sockets[&4711];
        assert_eq!(local.std().to_string(), "127.0.0.1:8080");
        assert_eq!(peer.std().to_string(), "127.0.0.1:41652");
        let (local, peer) = &sockets[&12];
        assert_eq!(local.std().to_string(), "127.0.0.1:80");
        assert_eq!(peer.std().to_string(), "[::1]:81");
    }

    #[test]
    fn odd_words_are_no_endpoints() {
        for odd in [
            "",
            ":",
            "0100007F",
            "0100007F:10000",
            "0100007G:1",
            "01:1",
            "äääääääää:1",
        ] {
            assert!(endpoint(odd).is_none(), "{odd}");
        }
        assert_eq!(socket_number("socket:[77]"), Some(77));
        assert_eq!(socket_number("/dev/null"), None);
    }

    #[test]
    fn a_connection_is_found_by_its_descriptor() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let record = Record::default();
        record.begin(stream.as_raw_fd(), 1, Reason::None);
        let mut addresses = Addresses::default();
        addresses.fill(std::process::id(), &record);
        let (local, peer) = record.names();
        assert_eq!(local.std(), stream.local_addr().unwrap());
        assert_eq!(peer.std(), listener.local_addr().unwrap());
        record.begin(-1, 1, Reason::None);
        addresses.fill(std::process::id(), &record);
        assert_eq!(record.names().0.port, 0);
    }
}
