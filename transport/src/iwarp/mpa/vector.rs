//! A list of slices for one vectored write: payload where it lies, and everything else in scratch space. FPDUs that follow
//! each other share the slices between their payloads, so a small FPDU costs two entries.

use std::io::IoSlice;
use std::mem;

use super::frame::marker;
use super::{CRC, Crc, Markers};

/// At most `N` slices, and the scratch space that some of them lie in.
#[derive(Debug)]
pub struct Vector<'a, const N: usize> {
    slices: [IoSlice<'a>; N],
    count: usize,
    /// What is free, after `pending` octets that are written and not listed yet.
    scratch: &'a mut [u8],
    pending: usize,
    octets: usize,
}

impl<'a, const N: usize> Vector<'a, N> {
    /// An empty list.
    #[must_use]
    pub fn new(scratch: &'a mut [u8]) -> Self {
        Self {
            slices: [IoSlice::new(&[]); N],
            count: 0,
            scratch,
            pending: 0,
            octets: 0,
        }
    }

    /// Octets of all FPDUs together.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.octets
    }

    /// Whether nothing has been listed.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.octets == 0
    }

    /// What is to be written, in order. Slices stay valid; more may be added afterwards.
    pub fn slices(&mut self) -> &[IoSlice<'a>] {
        self.flush();
        self.slices.get(..self.count).unwrap_or_default()
    }

    pub(super) const fn has_room(&self, slices: usize, own: usize) -> bool {
        // One more for what is pending.
        N - self.count > slices && self.scratch.len() - self.pending >= own
    }

    pub(super) fn begin(&mut self, markers: Markers, crc: bool) -> Listing<'_, 'a, N> {
        let mut listing = Listing {
            vector: self,
            markers,
            distance: 0,
            crc: crc.then(Crc::new),
        };
        listing.mark_if_due();
        listing.distance = 0;
        listing
    }

    fn push(&mut self, bytes: &'a [u8]) {
        if let Some(place) = self.slices.get_mut(self.count) {
            *place = IoSlice::new(bytes);
            self.count += 1;
        }
    }

    fn flush(&mut self) {
        if self.pending > 0 {
            let scratch = mem::take(&mut self.scratch);
            if let Some((written, free)) = scratch.split_at_mut_checked(self.pending) {
                self.scratch = free;
                self.push(written);
            }
            self.pending = 0;
        }
    }
}

/// One FPDU that is being listed; there is room for it.
pub(super) struct Listing<'v, 'a, const N: usize> {
    vector: &'v mut Vector<'a, N>,
    markers: Markers,
    /// Octets from the length field to here.
    distance: usize,
    crc: Option<Crc>,
}

impl<'a, const N: usize> Listing<'_, 'a, N> {
    fn write(&mut self, bytes: &[u8]) {
        let vector = &mut *self.vector;
        let end = vector.pending + bytes.len();
        if let Some(place) = vector.scratch.get_mut(vector.pending..end) {
            place.copy_from_slice(bytes);
            vector.pending = end;
            vector.octets += bytes.len();
        }
        self.distance += bytes.len();
    }

    fn mark_if_due(&mut self) {
        if self.markers.due() {
            let marker = marker(self.distance);
            self.write(&marker);
            self.sum(&marker);
            self.markers.passed_marker();
        }
    }

    fn sum(&mut self, bytes: &[u8]) {
        if let Some(crc) = &mut self.crc {
            crc.update(bytes);
        }
    }

    /// The part of `bytes` before the next marker, and the rest.
    fn before_marker<'b>(&mut self, bytes: &'b [u8]) -> (&'b [u8], &'b [u8]) {
        self.mark_if_due();
        let until = self.markers.until();
        let (now, later) = bytes.split_at_checked(until).unwrap_or((bytes, &[]));
        self.markers.passed(now.len());
        self.sum(now);
        (now, later)
    }

    /// Goes on with octets of the frame's own, which are copied.
    pub(super) fn put(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, later) = self.before_marker(bytes);
            self.write(now);
            bytes = later;
        }
    }

    /// Goes on with octets that stay where they are.
    pub(super) fn refer(&mut self, mut bytes: &'a [u8]) {
        while !bytes.is_empty() {
            let (now, later) = self.before_marker(bytes);
            self.vector.flush();
            self.vector.push(now);
            self.vector.octets += now.len();
            self.distance += now.len();
            bytes = later;
        }
    }

    /// Writes the CRC; returns where the next FPDU finds the markers.
    pub(super) fn end(mut self) -> Markers {
        self.mark_if_due();
        let field = self.crc.map_or([0; CRC], Crc::field);
        self.write(&field);
        self.markers.passed(CRC);
        self.markers
    }
}
