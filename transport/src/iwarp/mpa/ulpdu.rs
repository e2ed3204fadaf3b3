//! A received ULPDU where it lies: octets of the stream with markers among them, which are passed over. So the payload can be
//! copied straight to where it belongs.

use std::mem;

use super::markers::{BETWEEN, MARKER, Markers, SPACING};
use crate::sys::runs;

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

    /// One of `len` octets the payload of which is in its place already, or will be looked at elsewhere: only its
    /// beginning is here.
    #[must_use]
    pub const fn hollow(header: &'b [u8], len: usize) -> Self {
        Self {
            wire: header,
            markers: Markers::OFF,
            len,
        }
    }

    /// Whether its payload has been read straight to its place: then the pieces are the header's only.
    #[must_use]
    pub const fn is_in_place(&self) -> bool {
        self.wire.len() < self.len
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
        let mut left = self.first(out.len());
        let len = left.len;
        while !left.is_empty() {
            if left.markers.due() && left.len >= BETWEEN {
                out = left.intervals(out);
            } else if let Some(piece) = left.next_piece()
                && let Some((place, rest)) = out.split_at_mut_checked(piece.len())
            {
                place.copy_from_slice(piece);
                out = rest;
            } else {
                break;
            }
        }
        len - left.len
    }

    /// Copies what lies between markers, as long as there is a whole interval. Returns the room that is left.
    fn intervals<'o>(&mut self, out: &'o mut [u8]) -> &'o mut [u8] {
        let (from, _) = self.wire.as_chunks::<SPACING>();
        let from = from.get(..self.len / BETWEEN).unwrap_or(from);
        let (to, _) = out.as_chunks_mut::<BETWEEN>();
        let taken = runs::copy::<BETWEEN, SPACING, BETWEEN>(from, to, |_| ());
        if taken == 0 {
            // An FPDU always has its octets; without them there is nothing left to copy.
            self.len = 0;
        }
        self.wire = self.wire.get(taken * SPACING..).unwrap_or_default();
        self.len -= taken * BETWEEN;
        out.get_mut(taken * BETWEEN..).unwrap_or_default()
    }

    /// Takes the octets up to the next marker or the end.
    #[inline]
    fn next_piece(&mut self) -> Option<&'b [u8]> {
        if self.len == 0 {
            return None;
        }
        if self.markers.due() {
            self.wire = self.wire.get(MARKER..)?;
            self.markers.passed_marker();
        }
        let n = self.markers.until().min(self.len);
        if n > self.wire.len() {
            return self.take_rest();
        }
        let (piece, rest) = self.wire.split_at_checked(n)?;
        self.wire = rest;
        self.len -= n;
        self.markers.passed(n);
        Some(piece)
    }

    /// What is here of one whose payload is elsewhere.
    #[cold]
    fn take_rest(&mut self) -> Option<&'b [u8]> {
        let here = mem::take(&mut self.wire);
        self.len = 0;
        (!here.is_empty()).then_some(here)
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
        self.0.next_piece()
    }
}
