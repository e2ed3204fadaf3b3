//! The receiving side: octets of the stream into ULPDUs (RFC 5044 section 6). FPDUs are found by their lengths; the CRC is
//! checked before anything is passed on, and the markers are checked against the lengths. The sum is made while octets arrive,
//! so none is read twice for it.

use super::markers::{MARKER, SPACING};
use super::{CRC, Crc, LENGTH, Markers, Ulpdu, pad};

/// The stream is no longer one of FPDUs (RFC 5044 section 8): nothing that follows may be passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Code 2: the CRC does not match.
    Crc,
    /// Code 3: the CRC matches, and a marker points elsewhere than to the length that was followed.
    Marker,
}

/// What a look at the stream found.
#[derive(Clone, Copy, Debug)]
pub enum Found<'b> {
    /// Not a whole FPDU yet; it takes at least this many octets, those seen included.
    Partial(usize),
    /// An FPDU of `wire` octets, which are to be taken from the front.
    Whole { ulpdu: Ulpdu<'b>, wire: usize },
}

/// One direction's receiver.
#[derive(Clone, Copy, Debug)]
pub struct Deframer {
    markers: Markers,
    check: bool,
    /// The sum of the first `summed` octets of an FPDU that is not whole yet.
    crc: Crc,
    summed: usize,
    failed: Option<Error>,
}

impl Deframer {
    /// As was agreed at set-up; without CRC the field may hold anything.
    #[must_use]
    pub const fn new(markers: Markers, crc: bool) -> Self {
        Self {
            markers,
            check: crc,
            crc: Crc::new(),
            summed: 0,
            failed: None,
        }
    }

    /// Looks at what has arrived and was not taken yet: `bytes` begins where the last FPDU ended, and from call to call it
    /// only gets longer until an FPDU has been found and taken.
    ///
    /// # Errors
    /// The first [`Error`] of the stream, again and again.
    pub fn look<'b>(&mut self, bytes: &'b [u8]) -> Result<Found<'b>, Error> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let lead = if self.markers.due() { MARKER } else { 0 };
        let need = lead + LENGTH;
        let Some((_, [high, low])) = bytes
            .get(..need)
            .and_then(<[u8]>::split_last_chunk::<LENGTH>)
        else {
            return Ok(Found::Partial(need));
        };
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        let plain = LENGTH + len + pad(len) + CRC;
        let wire = self.markers.with(plain);
        let covered = wire - CRC;
        let here = bytes.get(..wire);
        self.sum(bytes, covered);
        let Some(here) = here else {
            return Ok(Found::Partial(wire));
        };
        if let Err(error) = self.check(here, lead) {
            self.failed = Some(error);
            return Err(error);
        }
        let mut markers = self.markers;
        if lead > 0 {
            markers.passed_marker();
        }
        markers.passed(LENGTH);
        self.markers = self.markers.after(plain);
        (self.crc, self.summed) = (Crc::new(), 0);
        let ulpdu = Ulpdu::new(here.get(need..).unwrap_or_default(), markers, len);
        Ok(Found::Whole { ulpdu, wire })
    }

    /// The ULPDU at the front that is not whole yet, as [`look`](Self::look) has found it: its octets, and how many it will
    /// have. `None` where there are markers: what follows does not lie together then.
    pub(super) fn partial<'b>(&self, bytes: &'b [u8]) -> Option<(&'b [u8], usize)> {
        if self.markers.any() || self.failed.is_some() {
            return None;
        }
        let (length, rest) = bytes.split_first_chunk::<LENGTH>()?;
        let len = usize::from(u16::from_be_bytes(*length));
        Some((rest.get(..len).unwrap_or(rest), len))
    }

    /// Goes on with octets of that ULPDU that have been read elsewhere.
    pub(super) fn elsewhere(&mut self, bytes: &[u8]) {
        if self.check {
            self.crc.update(bytes);
        }
    }

    /// Ends that FPDU with its CRC.
    pub(super) fn end_elsewhere(&mut self, field: [u8; CRC]) -> Result<(), Error> {
        if self.check && self.crc.field() != field {
            self.failed = Some(Error::Crc);
            return Err(Error::Crc);
        }
        (self.crc, self.summed) = (Crc::new(), 0);
        Ok(())
    }

    /// Sums what is there of the octets that the CRC covers.
    fn sum(&mut self, bytes: &[u8], covered: usize) {
        let end = covered.min(bytes.len());
        if !self.check || end <= self.summed {
            return;
        }
        if let Some(new) = bytes.get(self.summed..end) {
            self.crc.update(new);
            self.summed = end;
        }
    }

    /// Checks a whole FPDU, `lead` octets of which are a marker in front of it.
    fn check(&self, fpdu: &[u8], lead: usize) -> Result<(), Error> {
        if self.check && fpdu.last_chunk::<CRC>() != Some(&self.crc.field()) {
            return Err(Error::Crc);
        }
        if !self.markers.any() {
            return Ok(());
        }
        // The first marker is `until` octets into the FPDU, the others follow at every 512th octet; their low two bits are to
        // be taken for zero. (No look at the result before the end: the octets come from memory side by side that way.)
        let first = self.markers.until();
        let (spaced, rest) = fpdu.get(first..).unwrap_or_default().as_chunks::<SPACING>();
        let points = |marker: &[u8]| {
            let [_, _, high, low] = *marker.first_chunk::<MARKER>()?;
            Some(usize::from(u16::from_be_bytes([high, low]) & !3))
        };
        let mut at = first;
        let mut wrong = 0;
        for marker in spaced.iter().map(<[u8; SPACING]>::as_slice).chain([rest]) {
            wrong |= points(marker).map_or(0, |points| points ^ at.saturating_sub(lead));
            at += SPACING;
        }
        if wrong != 0 {
            return Err(Error::Marker);
        }
        Ok(())
    }
}
