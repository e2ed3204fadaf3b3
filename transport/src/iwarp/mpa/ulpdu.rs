//! A received ULPDU where it lies: octets of the stream with markers among them, which are passed over. So the payload can be
//! copied straight to where it belongs.

use super::markers::{MARKER, Markers};

/// A ULPDU whose FPDU has been checked.
#[derive(Clone, Copy, Debug)]
pub struct Ulpdu<'b> {
    /// From its first octet to its last, markers included. May begin with a marker.
    wire: &'b [u8],
    markers: Markers,
    len: usize,
}

impl<'b> Ulpdu<'b> {
    pub(super) const fn new(wire: &'b [u8], markers: Markers, len: usize) -> Self {
        Self { wire, markers, len }
    }

    /// Octets, markers not counted.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none: only the frame that says "ready to receive" may (RFC 6581).
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All of it, if it lies in one piece.
    #[must_use]
    pub fn whole(&self) -> Option<&'b [u8]> {
        if self.markers.among(self.len) == 0 {
            self.wire.get(..self.len)
        } else {
            None
        }
    }

    /// The pieces that it lies in.
    #[must_use]
    pub const fn pieces(&self) -> Pieces<'b> {
        Pieces(*self)
    }

    /// Copies its first octets, as many as fit; returns how many.
    pub fn copy_to(&self, mut out: &mut [u8]) -> usize {
        let mut copied = 0;
        for piece in self.pieces() {
            let n = piece.len().min(out.len());
            let Some((place, rest)) = out.split_at_mut_checked(n) else {
                break;
            };
            place.copy_from_slice(piece.get(..n).unwrap_or_default());
            out = rest;
            copied += n;
        }
        copied
    }

    /// What comes behind its first `octets`.
    #[must_use]
    pub fn skip(&self, octets: usize) -> Self {
        let octets = octets.min(self.len);
        let wire = self.wire.get(self.markers.with(octets)..);
        Self {
            wire: wire.unwrap_or_default(),
            markers: self.markers.after(octets),
            len: self.len - octets,
        }
    }

    /// Its first `octets` only.
    #[must_use]
    pub const fn first(&self, octets: usize) -> Self {
        let len = if octets < self.len { octets } else { self.len };
        Self { len, ..*self }
    }
}

/// The pieces of a [`Ulpdu`], none of them empty.
#[derive(Clone, Debug)]
pub struct Pieces<'b>(Ulpdu<'b>);

impl<'b> Iterator for Pieces<'b> {
    type Item = &'b [u8];

    #[inline]
    fn next(&mut self) -> Option<&'b [u8]> {
        let Ulpdu { wire, markers, len } = &mut self.0;
        if *len == 0 {
            return None;
        }
        if markers.due() {
            *wire = wire.get(MARKER..)?;
            markers.passed_marker();
        }
        let n = markers.until().min(*len);
        let (piece, rest) = wire.split_at_checked(n)?;
        *wire = rest;
        *len -= n;
        markers.passed(n);
        Some(piece)
    }
}
