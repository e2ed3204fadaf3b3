//! Framing as SDP over a separate iWARP layer does it (SDP thesis, chapter 3, "generic"), for comparison. The upper
//! layer copies the program's data into a buffer of its own; the iWARP layer below knows nothing of that copy and makes another one,
//! to insert the markers; the sum is a third pass. On the other side the markers are removed into a buffer, and from there
//! the data is copied to the program. Without markers there is no second copy: the upper layer's buffer is framed as it is.
//!
//! The octets are those of [`Framer::frame`](super::Framer::frame); tests prove it.

use super::frame::{Writer, length_field};
use super::{CRC, Crc, LARGEST_ULPDU, LENGTH, Markers, Parts, Ulpdu, pad};
use crate::iwarp::NoRoom;

/// The sender of one direction. Allocates once.
#[derive(Debug)]
pub struct Sender {
    markers: Markers,
    crc: bool,
    /// The upper layer's buffer: an FPDU without markers and sum.
    plain: Box<[u8]>,
    copied: u64,
}

impl Sender {
    /// As was agreed at set-up.
    #[must_use]
    pub fn new(markers: Markers, crc: bool) -> Self {
        Self {
            markers,
            crc,
            plain: vec![0; LENGTH + LARGEST_ULPDU + 3].into(),
            copied: 0,
        }
    }

    /// Octets that have been copied, all passes counted.
    #[must_use]
    pub const fn copied(&self) -> u64 {
        self.copied
    }

    /// As [`Framer::frame`](super::Framer::frame).
    ///
    /// # Errors
    /// As there.
    pub fn frame(
        &mut self,
        head: &[u8],
        payload: &mut Parts<'_>,
        len: usize,
        out: &mut [u8],
    ) -> Result<usize, NoRoom> {
        let ulpdu = head.len() + len;
        let total = self.markers.with(LENGTH + ulpdu + pad(ulpdu) + CRC);
        let out = out.get_mut(..total).ok_or(NoRoom)?;
        if payload.len() < len {
            return Err(NoRoom);
        }
        if self.markers.any() {
            let used = lay(head, payload, len, &mut self.plain)?;
            self.copied += used as u64;
            self.mark(used, out);
        } else {
            let used = lay(head, payload, len, out)?;
            self.copied += used as u64;
            self.sum(out);
        }
        Ok(total)
    }

    /// The lower layer: another copy, with markers.
    fn mark(&mut self, used: usize, out: &mut [u8]) {
        let total = out.len();
        let mut copy = Writer::begin(out, self.markers, false);
        copy.put(self.plain.get(..used).unwrap_or_default());
        self.markers = copy.end();
        self.copied += total as u64;
        self.sum(out);
    }

    /// The sum, a pass of its own over the finished frame.
    fn sum(&self, out: &mut [u8]) {
        let Some((covered, field)) = out.split_last_chunk_mut::<CRC>() else {
            return;
        };
        *field = [0; CRC];
        if self.crc {
            let mut crc = Crc::new();
            crc.update(covered);
            *field = crc.field();
        }
    }
}

/// The upper layer: length, ULPDU and pad in one piece. Returns how many octets.
fn lay(
    head: &[u8],
    payload: &mut Parts<'_>,
    len: usize,
    plain: &mut [u8],
) -> Result<usize, NoRoom> {
    let ulpdu = head.len() + len;
    let length = length_field(ulpdu)?;
    let mut at = 0;
    let mut put = |bytes: &[u8]| {
        let place = plain.get_mut(at..at + bytes.len()).ok_or(NoRoom)?;
        place.copy_from_slice(bytes);
        at += bytes.len();
        Ok(())
    };
    put(&length)?;
    put(head)?;
    let mut left = len;
    while left > 0 {
        let piece = payload.take(left).ok_or(NoRoom)?;
        put(piece)?;
        left -= piece.len();
    }
    put([0; 3].get(..pad(ulpdu)).unwrap_or_default())?;
    Ok(at)
}

/// The receiver of one direction, behind a [`Deframer`](super::Deframer). Allocates once.
#[derive(Debug)]
pub struct Receiver {
    plain: Box<[u8]>,
}

impl Receiver {
    /// A receiver for ULPDUs of any size.
    #[must_use]
    pub fn new() -> Self {
        Self {
            plain: vec![0; usize::from(u16::MAX)].into(),
        }
    }

    /// The pass that removes the markers: the ULPDU in one piece. (Without markers it is in one piece already.)
    pub fn strip<'s>(&'s mut self, ulpdu: &Ulpdu<'s>) -> &'s [u8] {
        if let Some(whole) = ulpdu.whole() {
            return whole;
        }
        let len = ulpdu.copy_to(&mut self.plain);
        self.plain.get(..len).unwrap_or_default()
    }
}

impl Default for Receiver {
    fn default() -> Self {
        Self::new()
    }
}
