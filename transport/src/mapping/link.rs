//! The client's socket for one question. The kernel drops what does not come from the host and port that were asked,
//! and tells if nobody is there.

use crate::port_mapper::message::LONG;
use crate::port_mapper::questions::{Arrived, Link};
use crate::port_mapper::{PORT, message};
use crate::sys::udp::Asking;
use crate::sys::{Errno, Result};
use std::net::SocketAddr;

/// A socket connected to the port mapper of one host.
#[derive(Debug)]
pub struct ToMapper(Asking);

impl ToMapper {
    /// To the port mapper of a service's host; with the address that it asks from.
    ///
    /// # Errors
    /// There is no way there, or no descriptor.
    pub fn open(service: SocketAddr) -> Result<(Self, SocketAddr)> {
        let to = SocketAddr::new(service.ip(), PORT);
        let (socket, from) = Asking::open(&to)?;
        Ok((Self(socket), from))
    }

    /// The descriptor, to wait on.
    #[must_use]
    pub const fn raw(&self) -> i32 {
        self.0.raw()
    }
}

impl Link for ToMapper {
    /// What cannot be sent is lost, as on the way. (ICMP's word about an earlier request is told instead of sending, and
    /// once: so it is tried again.)
    fn send(&mut self, bytes: &[u8]) {
        if self.0.send(bytes).is_err() {
            let _ = self.0.send(bytes);
        }
    }

    fn receive<T>(&mut self, show: impl FnOnce(Arrived<'_>) -> T) -> Option<T> {
        const { assert!(message::LENGTH < LONG) };
        let mut room = [0; LONG];
        match self.0.receive(&mut room) {
            // (what is longer than any message is none)
            Ok(len) => Some(show(Arrived::Datagram(room.get(..len).unwrap_or_default()))),
            Err(Errno::AGAIN | Errno::INTR) => None,
            Err(_) => Some(show(Arrived::Unreachable)),
        }
    }
}
