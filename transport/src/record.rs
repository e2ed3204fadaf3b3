//! What is known of each connection, as it stands in the report and in `shunt stat`.
//!
//! The records of a process lie in one mapping with a name (`shunt-stat`), so that `shunt stat` can
//! find it in `/proc/PID/maps` and read it from outside. Plain words, written by the owner only; a
//! reader may see one in the middle of a change and must not trust it beyond printing it.

use crate::reason::Reason;
use crate::sys::net::Endpoint;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Marks the mapping and its version.
pub const STAT_MAGIC: u64 = 0x5348_554e_5453_0005;

/// The name of the mapping.
pub const STAT_NAME: &std::ffi::CStr = c"shunt-stat";

/// What carries a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Transport {
    Tcp = 0,
    Shm = 1,
    Iwarp = 2,
    Verbs = 3,
}

impl Transport {
    /// The word in reports.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Shm => "shm",
            Self::Iwarp => "iwarp",
            Self::Verbs => "verbs",
        }
    }

    /// The transport with this number.
    #[must_use]
    pub const fn from_number(n: u8) -> Self {
        match n {
            1 => Self::Shm,
            2 => Self::Iwarp,
            3 => Self::Verbs,
            _ => Self::Tcp,
        }
    }
}

/// RDMA Writes.
pub const BY_WRITES: u8 = 1;
/// Sends into receives of the peer's (the credit scheme).
pub const BY_SENDS: u8 = 2;

/// Demotions that a record can hold.
const DEMOTIONS: usize = 4;

/// An address: the IP address, and the port in the last word.
type Name = [AtomicU32; 5];

/// One connection. (No alignment of its own: it is part of what a process holds for each connection.)
#[repr(C)]
#[derive(Debug, Default)]
pub struct Record {
    pub fd: AtomicU32,
    /// Not 0 while the connection is open.
    pub live: AtomicU8,
    /// 0 none, 1 connect, 2 accept.
    pub role: AtomicU8,
    /// What carries it now.
    pub transport: AtomicU8,
    /// Whether it was ever off kernel TCP: what it counts as in the totals.
    pub best: AtomicU8,
    /// [`Reason`].
    pub reason: AtomicU8,
    /// The scheme by which this side sends (`flowctl::Scheme`); 0 for none.
    pub flow: AtomicU8,
    /// [`Reason`] why its large messages are copied; 0 if they are not, or none has come.
    pub zcopy_reason: AtomicU8,
    /// What an adapter did with most of what was sent by one: [`BY_WRITES`], [`BY_SENDS`]; 0 if none did.
    pub operation: AtomicU8,
    /// Reasons of demotions, in order; 0 for none.
    pub demotions: [AtomicU8; DEMOTIONS],
    pub local: Name,
    pub peer: Name,
    /// Bytes of receive buffer reserved for what this side sends, and the most that were used when it
    /// ran out.
    pub reserved: AtomicU32,
    pub peak_used: AtomicU32,
    pub bytes_sent: AtomicU64,
    pub bytes_received: AtomicU64,
    pub messages_sent: AtomicU64,
    pub messages_received: AtomicU64,
    /// Bytes that went past the ring, both ways.
    pub zcopy_bytes: AtomicU64,
    /// Times that a send found no room, or no credit, at the receiver.
    pub no_credit: AtomicU64,
    /// Messages as they went, the scheme's events, and credit updates that were messages of their own.
    pub wire_messages: AtomicU64,
    pub events: AtomicU64,
    pub updates: AtomicU64,
}

/// Adds to a counter that one thread at a time writes.
#[inline]
pub fn add(counter: &AtomicU64, n: u64) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(n),
        Ordering::Relaxed,
    );
}

fn store_endpoint(to: &Name, e: &Endpoint) {
    let [ip @ .., port] = to;
    for (word, part) in ip.iter().zip(e.ip.as_chunks().0) {
        word.store(u32::from_ne_bytes(*part), Ordering::Relaxed);
    }
    port.store(u32::from(e.port), Ordering::Relaxed);
}

fn load_endpoint(from: &Name) -> Endpoint {
    let [words @ .., port] = from;
    let mut ip = [0; 16];
    for (part, word) in ip.as_chunks_mut().0.iter_mut().zip(words) {
        *part = word.load(Ordering::Relaxed).to_ne_bytes();
    }
    #[allow(clippy::cast_possible_truncation)]
    Endpoint {
        ip,
        port: port.load(Ordering::Relaxed) as u16,
    }
}

impl Record {
    /// Starts over for a new connection.
    pub fn begin(&self, fd: i32, role: u8, reason: Reason) {
        self.fd.store(fd.cast_unsigned(), Ordering::Relaxed);
        self.role.store(role, Ordering::Relaxed);
        self.transport.store(0, Ordering::Relaxed);
        self.best.store(0, Ordering::Relaxed);
        self.reason.store(reason as u8, Ordering::Relaxed);
        for d in &self.demotions {
            d.store(0, Ordering::Relaxed);
        }
        for c in [
            &self.bytes_sent,
            &self.bytes_received,
            &self.messages_sent,
            &self.messages_received,
            &self.no_credit,
            &self.wire_messages,
            &self.events,
            &self.updates,
        ] {
            c.store(0, Ordering::Relaxed);
        }
        for c in [&self.reserved, &self.peak_used] {
            c.store(0, Ordering::Relaxed);
        }
        self.flow.store(0, Ordering::Relaxed);
        self.operation.store(0, Ordering::Relaxed);
        self.set_names(&Endpoint::default(), &Endpoint::default());
        self.live.store(1, Ordering::Relaxed);
    }

    /// Sets both addresses.
    pub fn set_names(&self, local: &Endpoint, peer: &Endpoint) {
        store_endpoint(&self.local, local);
        store_endpoint(&self.peer, peer);
    }

    /// Sets the other end's address alone.
    pub fn set_peer(&self, peer: &Endpoint) {
        store_endpoint(&self.peer, peer);
    }

    /// Both addresses.
    #[must_use]
    pub fn names(&self) -> (Endpoint, Endpoint) {
        (load_endpoint(&self.local), load_endpoint(&self.peer))
    }

    /// The connection moved onto a transport.
    pub fn set_transport(&self, t: Transport) {
        self.transport.store(t as u8, Ordering::Relaxed);
        self.best.store(t as u8, Ordering::Relaxed);
        self.reason.store(Reason::None as u8, Ordering::Relaxed);
    }

    /// Takes in what flow control has counted.
    pub fn set_flow(&self, counts: flowctl::Counts, (reserved, peak): (u64, u64)) {
        for (word, value) in [
            (&self.no_credit, counts.starved),
            (&self.wire_messages, counts.wire),
            (&self.events, counts.events),
            (&self.updates, counts.updates),
        ] {
            word.store(value, Ordering::Relaxed);
        }
        for (word, bytes) in [(&self.reserved, reserved), (&self.peak_used, peak)] {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            word.store(bytes, Ordering::Relaxed);
        }
    }

    /// The connection is on kernel TCP, for a reason.
    pub fn set_kernel(&self, reason: Reason) {
        self.transport.store(0, Ordering::Relaxed);
        self.reason.store(reason as u8, Ordering::Relaxed);
    }

    /// Whether this process has sent or received anything on it.
    #[must_use]
    pub fn has_carried(&self) -> bool {
        [&self.bytes_sent, &self.bytes_received]
            .iter()
            .any(|n| n.load(Ordering::Relaxed) > 0)
    }

    /// The connection went back to kernel TCP.
    pub fn set_demoted(&self, reason: Reason) {
        self.set_kernel(reason);
        if let Some(d) = self
            .demotions
            .iter()
            .find(|d| d.load(Ordering::Relaxed) == 0)
        {
            d.store(reason as u8, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_were_set() {
        let end = |first, port| Endpoint {
            ip: std::array::from_fn(|i| first + i as u8),
            port,
        };
        let (local, peer) = (end(1, 80), end(101, 65535));
        let r = Record::default();
        r.set_names(&local, &peer);
        assert_eq!(r.names(), (local, peer));
        r.set_peer(&end(7, 9));
        assert_eq!(r.names(), (local, end(7, 9)));
    }
}
