//! The buffer between the TCP stream and the receiver: octets come in pieces of any size, ULPDUs go out. One `read` may bring
//! many FPDUs, and an FPDU may take many reads. What is left of an FPDU that is not whole is moved to the front, once a
//! round.

use super::{Deframer, Error, Found, LARGEST_FPDU, Ulpdu};

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
