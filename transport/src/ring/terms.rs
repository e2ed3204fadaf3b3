//! What the two sides tell each other of their rings, in messages of the connection (`sdp_wire`): where a queue pair
//! is, and the memory that it may be used for.

use super::memory::Area;
use super::{LEAST, RING};
use crate::sdp_wire::mid::RING_TERMS;
use crate::verbs::{Address, address};

/// What a side tells of its ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    pub address: Address,
    /// Where the registered memory begins at that side, and the key to it.
    pub area: u64,
    pub rkey: u32,
    /// Octets that each of its rings has.
    pub ring: u32,
}

/// Octets of [`Terms`]: the address, the area's, the key, the size.
pub const TERMS: usize = RING_TERMS;
const _: () = assert!(TERMS == address::LEN + 8 + 4 + 4);

impl Terms {
    #[must_use]
    pub fn to_octets(&self) -> [u8; TERMS] {
        let mut out = [0; TERMS];
        let (address, rest) = out.split_at_mut(address::LEN);
        address.copy_from_slice(&self.address.to_bytes());
        let (area, rest) = rest.split_at_mut(8);
        area.copy_from_slice(&self.area.to_be_bytes());
        let (rkey, ring) = rest.split_at_mut(4);
        rkey.copy_from_slice(&self.rkey.to_be_bytes());
        ring.copy_from_slice(&self.ring.to_be_bytes());
        out
    }

    /// The terms that octets say, if they are any.
    #[must_use]
    pub fn from_octets(octets: &[u8; TERMS]) -> Option<Self> {
        let (address, rest) = octets.split_first_chunk()?;
        let (area, rest) = rest.split_first_chunk()?;
        let area = u64::from_be_bytes(*area);
        let (rkey, rest) = rest.split_first_chunk()?;
        let ring = u32::from_be_bytes(*rest.first_chunk()?);
        let fits = (LEAST..=RING).contains(&(ring as usize)) && ring.is_multiple_of(4096);
        let whole = area.checked_add(Area::octets(ring as usize, true) as u64);
        Some(Self {
            address: Address::from_bytes(address)?,
            area: whole.map(|_| area).filter(|&a| a != 0 && a % 8 == 0)?,
            rkey: u32::from_be_bytes(*rkey),
            ring: fits.then_some(ring)?,
        })
    }
}
