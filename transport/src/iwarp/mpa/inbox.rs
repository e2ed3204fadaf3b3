//! The buffer between the TCP stream and the receiver: octets come in pieces of any size, ULPDUs go out. One `read` may bring
//! many FPDUs, and an FPDU may take many reads. What is left of an FPDU that is not whole is moved to the front, once a
//! round.
//!
//! A large payload need not go through the buffer, if there are no markers: [`Inbox::partial`] shows the beginning of a ULPDU, and
//! after [`Inbox::bypass`] the caller reads the rest of it straight to its place.

use super::{CRC, Deframer, Error, Found, LARGEST_FPDU, LENGTH, Ulpdu, pad};
use crate::iwarp::ddp::UNTAGGED;

/// Octets that have arrived and were not taken.
#[derive(Debug)]
pub struct Inbox {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// The FPDU that the caller is looking at, octets; gone at the next call.
    taken: usize,
    /// Octets that the FPDU at the front takes at least.
    need: usize,
    deframer: Deframer,
    bypass: Option<Bypass>,
    /// The header of the last ULPDU that went past the buffer.
    header: [u8; UNTAGGED],
}

/// A ULPDU of `len` octets, the first `header` of which have been kept, and of which `left` are still to be read to their
/// place. Then come `pad` octets in the buffer, and the CRC.
#[derive(Clone, Copy, Debug)]
struct Bypass {
    header: usize,
    len: usize,
    left: usize,
    pad: usize,
}

impl Inbox {
    /// An empty one. `capacity` in octets; at least two of the largest FPDUs, so that reads stay large.
    #[must_use]
    pub fn new(deframer: Deframer, capacity: usize) -> Self {
        Self {
            buffer: vec![0; capacity.max(2 * LARGEST_FPDU)].into(),
            start: 0,
            end: 0,
            taken: 0,
            need: 0,
            deframer,
            bypass: None,
            header: [0; UNTAGGED],
        }
    }

    /// Octets that have arrived and were not taken.
    #[must_use]
    pub const fn held(&self) -> usize {
        self.end - self.start - self.taken
    }

    /// Where the next octets of the stream are to be read to; never empty if [`next`](Self::next) has been called until it
    /// returned nothing. [`filled`](Self::filled) says how many came.
    pub fn space(&mut self) -> &mut [u8] {
        self.drop_taken();
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start > 0 && self.start + self.need.max(LARGEST_FPDU) > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        self.buffer.get_mut(self.end..).unwrap_or_default()
    }

    /// `octets` have been read to [`space`](Self::space).
    pub fn filled(&mut self, octets: usize) {
        self.end = (self.end + octets).min(self.buffer.len());
    }

    /// Copies octets in, as many as there is room for; returns how many.
    pub fn put(&mut self, bytes: &[u8]) -> usize {
        let space = self.space();
        let n = bytes.len().min(space.len());
        if let (Some(place), Some(bytes)) = (space.get_mut(..n), bytes.get(..n)) {
            place.copy_from_slice(bytes);
        }
        self.filled(n);
        n
    }

    /// The next ULPDU, or nothing if it has not arrived in full.
    ///
    /// # Errors
    /// As [`Deframer::look`].
    #[expect(
        clippy::should_implement_trait,
        reason = "what it gives borrows from it"
    )]
    pub fn next(&mut self) -> Result<Option<Ulpdu<'_>>, Error> {
        self.drop_taken();
        if let Some(bypass) = self.bypass {
            return self.end_bypass(bypass);
        }
        let bytes = self.buffer.get(self.start..self.end).unwrap_or_default();
        match self.deframer.look(bytes)? {
            Found::Partial(need) => {
                self.need = need;
                Ok(None)
            }
            Found::Whole { ulpdu, wire } => {
                (self.taken, self.need) = (wire, 0);
                Ok(Some(ulpdu))
            }
        }
    }

    /// After [`next`](Self::next) has returned nothing: what has arrived of the ULPDU at the front, and how many octets it
    /// will have.
    #[must_use]
    pub fn partial(&self) -> Option<(&[u8], usize)> {
        if self.bypass.is_some() || self.taken > 0 {
            return None;
        }
        let bytes = self.buffer.get(self.start..self.end)?;
        let (arrived, len) = self.deframer.partial(bytes)?;
        // With all of it here there is nothing to gain.
        (arrived.len() < len).then_some((arrived, len))
    }

    /// The caller has copied what has arrived of the payload of that ULPDU, all behind `header` octets, to its place, and reads the
    /// rest there too. Returns how many octets that are; no more of them may go to [`space`](Self::space), where the next
    /// octets belong again. `None`, and nothing has changed, if there is no such ULPDU.
    ///
    /// With a CRC nobody may write to the place before the ULPDU is whole: a sum that does not match ends the stream.
    pub fn bypass(&mut self, header: usize) -> Option<usize> {
        self.partial()?;
        // What has come since the last look is summed too.
        let bytes = self.buffer.get(self.start..self.end)?;
        self.deframer.look(bytes).ok()?;
        let (front, len) = self.partial()?;
        let (arrived, kept) = (front.len(), front.get(..header)?);
        let mut copy = [0; UNTAGGED];
        copy.get_mut(..header)?.copy_from_slice(kept);
        let left = len - arrived;
        self.header = copy;
        self.bypass = Some(Bypass {
            header,
            len,
            left,
            pad: pad(len),
        });
        self.start += LENGTH + arrived;
        Some(left)
    }

    /// Octets that are still to be read to their place.
    #[must_use]
    pub fn left(&self) -> usize {
        self.bypass.map_or(0, |bypass| bypass.left)
    }

    /// These octets have been read to their place, the next of those that are [`left`](Self::left).
    pub fn placed(&mut self, bytes: &[u8]) {
        if let Some(bypass) = &mut self.bypass {
            bypass.left = bypass.left.saturating_sub(bytes.len());
            self.deframer.elsewhere(bytes);
        }
    }

    fn end_bypass(&mut self, bypass: Bypass) -> Result<Option<Ulpdu<'_>>, Error> {
        let trailer = bypass.pad + CRC;
        let bytes = self.buffer.get(self.start..self.end).unwrap_or_default();
        let Some((covered, field)) = bytes
            .get(..trailer)
            .and_then(<[u8]>::split_last_chunk::<CRC>)
            .filter(|_| bypass.left == 0)
        else {
            self.need = trailer;
            return Ok(None);
        };
        self.deframer.elsewhere(covered);
        self.deframer.end_elsewhere(*field)?;
        (self.taken, self.need, self.bypass) = (trailer, 0, None);
        let header = self.header.get(..bypass.header).unwrap_or_default();
        Ok(Some(Ulpdu::hollow(header, bypass.len)))
    }

    /// What has arrived behind the FPDUs: plain bytes, if RDMA mode has ended there.
    #[must_use]
    pub fn rest(&self) -> &[u8] {
        let from = self.start + self.taken;
        self.buffer.get(from..self.end).unwrap_or_default()
    }

    fn drop_taken(&mut self) {
        self.start += self.taken;
        self.taken = 0;
    }
}
