//! The sending side: ULPDUs into FPDUs, in one pass over the data. Called by whoever writes the TCP stream; FPDUs may be put
//! one behind the other into one buffer, so that one system call sends many.
//!
//! Invariant: a failed call leaves the position in the stream as it was.

use super::markers::{BETWEEN, MARKER, SPACING};
use super::vector::Vector;
use super::{CRC, Crc, LARGEST_ULPDU, LENGTH, Markers, Parts, pad};
use crate::iwarp::NoRoom;
use crate::sys::copy::copy_slice;
use crate::sys::runs;

/// How much is copied before the sum goes over it: what still lies in the nearest cache then, and long enough for the sum
/// to be at full speed.
const SUMMED: usize = 8 << 10;

/// One direction's sender.
#[derive(Clone, Copy, Debug)]
pub struct Framer {
    markers: Markers,
    crc: bool,
}

impl Framer {
    /// As was agreed at set-up; without CRC the field is zero.
    #[must_use]
    pub const fn new(markers: Markers, crc: bool) -> Self {
        Self { markers, crc }
    }

    /// Octets in the stream of the FPDU that carries `ulpdu` octets and is sent next.
    #[must_use]
    pub const fn wire_len(&self, ulpdu: usize) -> usize {
        self.markers.with(LENGTH + ulpdu + pad(ulpdu) + CRC)
    }

    /// Writes the FPDU of the ULPDU that consists of `head` and the next `len` octets of `payload` to the beginning of `out`:
    /// each octet is copied once, to its place between the markers, and summed while it is still in the cache. Returns the
    /// octets written.
    ///
    /// # Errors
    /// [`NoRoom`] if `out` is shorter than [`wire_len`](Self::wire_len), the payload shorter than `len`, or the ULPDU
    /// longer than [`LARGEST_ULPDU`].
    pub fn frame(
        &mut self,
        head: &[u8],
        payload: &mut Parts<'_>,
        len: usize,
        out: &mut [u8],
    ) -> Result<usize, NoRoom> {
        let ulpdu = head.len() + len;
        let length = length_field(ulpdu)?;
        let total = self.wire_len(ulpdu);
        let out = out.get_mut(..total).ok_or(NoRoom)?;
        let mut copy = Writer::begin(out, self.markers, self.crc);
        let mut parts = *payload;
        copy.put(&length);
        copy.put(head);
        let mut left = len;
        while left > 0 {
            let piece = parts.take(left).ok_or(NoRoom)?;
            copy.put(piece);
            left -= piece.len();
        }
        copy.put([0; 3].get(..pad(ulpdu)).unwrap_or_default());
        self.markers = copy.end();
        *payload = parts;
        Ok(total)
    }

    /// The same FPDU without copying the payload: what is not payload goes to the scratch space of `vector`, which then
    /// lists what a vectored write has to send.
    ///
    /// With a CRC, nobody may write to the payload before it has been sent: the peer would see a wrong sum.
    ///
    /// # Errors
    /// As [`frame`](Self::frame); here the room is that of `vector`.
    pub fn frame_in_place<'a, 'p: 'a, const N: usize>(
        &mut self,
        head: &[u8],
        payload: &mut Parts<'p>,
        len: usize,
        vector: &mut Vector<'a, N>,
    ) -> Result<usize, NoRoom> {
        let ulpdu = head.len() + len;
        let length = length_field(ulpdu)?;
        let total = self.wire_len(ulpdu);
        let among = self.markers.among(LENGTH + ulpdu + pad(ulpdu) + CRC);
        let own = total - len;
        if payload.len() < len || !vector.has_room(2 * among + payload.slices() + 2, own) {
            return Err(NoRoom);
        }
        let mut list = vector.begin(self.markers, self.crc);
        list.put(&length);
        list.put(head);
        let mut left = len;
        while left > 0 {
            let piece = payload.take(left).ok_or(NoRoom)?;
            list.refer(piece);
            left -= piece.len();
        }
        list.put([0; 3].get(..pad(ulpdu)).unwrap_or_default());
        self.markers = list.end();
        Ok(total)
    }
}

/// The two octets before a ULPDU.
pub(super) fn length_field(ulpdu: usize) -> Result<[u8; 2], NoRoom> {
    if ulpdu > LARGEST_ULPDU {
        return Err(NoRoom);
    }
    let length = u16::try_from(ulpdu).map_err(|_| NoRoom)?;
    Ok(length.to_be_bytes())
}

/// A marker `distance` octets behind the length field of its FPDU; 0 if it stands before it (RFC 5044 section 4.2).
pub(super) const fn marker(distance: usize) -> [u8; 4] {
    // An FPDU is never longer than 65535 octets: LARGEST_ULPDU was chosen so.
    #[expect(clippy::cast_possible_truncation, reason = "see above")]
    let [high, low] = (distance as u16).to_be_bytes();
    [0, 0, high, low]
}

/// An FPDU that is being written to a buffer of exactly its size.
pub(super) struct Writer<'o> {
    out: &'o mut [u8],
    at: usize,
    /// Where the length field begins: markers point here.
    start: usize,
    markers: Markers,
    crc: Option<Crc>,
    summed: usize,
    /// How much is copied at a time: all of it, where there is no sum.
    pass: usize,
}

impl<'o> Writer<'o> {
    pub(super) fn begin(out: &'o mut [u8], markers: Markers, crc: bool) -> Self {
        let mut copy = Self {
            out,
            at: 0,
            start: 0,
            markers,
            crc: crc.then(Crc::new),
            summed: 0,
            pass: if crc { SUMMED } else { usize::MAX },
        };
        copy.mark_if_due();
        copy.start = copy.at;
        copy
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        if let Some(place) = self.out.get_mut(self.at..self.at + bytes.len()) {
            copy_slice(bytes, place);
            self.at += bytes.len();
        }
    }

    #[inline]
    fn mark_if_due(&mut self) {
        if self.markers.due() {
            self.write(&marker(self.at - self.start));
            self.markers.passed_marker();
        }
    }

    /// Goes on with these octets.
    #[inline]
    pub(super) fn put(&mut self, bytes: &[u8]) {
        // What is short and has no marker in it: all of a small frame.
        if bytes.len() < self.markers.until().min(self.pass) {
            self.write(bytes);
            self.markers.passed(bytes.len());
        } else {
            self.put_between_markers(bytes);
        }
    }

    fn put_between_markers(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.markers.due() && bytes.len() >= BETWEEN {
                bytes = self.intervals(bytes);
                continue;
            }
            self.mark_if_due();
            let until = self.markers.until().min(self.pass);
            let (now, later) = bytes.split_at_checked(until).unwrap_or((bytes, &[]));
            self.write(now);
            self.markers.passed(now.len());
            bytes = later;
            if self.at - self.summed >= self.pass {
                self.sum();
            }
        }
    }

    /// A marker and all octets up to the next one, several times. Returns what is left; a marker is due then as it was before.
    fn intervals<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let (from, _) = bytes.as_chunks::<BETWEEN>();
        let from = from.get(..self.pass / SPACING).unwrap_or(from);
        let room = self.out.get_mut(self.at..).unwrap_or_default();
        let (to, _) = room.as_chunks_mut::<SPACING>();
        let mut distance = self.at - self.start;
        let count = runs::copy::<BETWEEN, BETWEEN, SPACING>(from, to, |to| {
            if let Some(mark) = to.first_chunk_mut::<MARKER>() {
                *mark = marker(distance);
            }
            distance += SPACING;
        });
        self.at = self.start + distance;
        self.sum();
        // Without room (there always is) the rest is dropped, and the frame stays as long as it was said to be.
        if count == 0 {
            &[]
        } else {
            bytes.get(count * BETWEEN..).unwrap_or_default()
        }
    }

    fn sum(&mut self) {
        if let (Some(crc), Some(bytes)) = (&mut self.crc, self.out.get(self.summed..self.at)) {
            crc.update(bytes);
        }
        self.summed = self.at;
    }

    /// Writes the CRC; returns where the next FPDU finds the markers.
    pub(super) fn end(mut self) -> Markers {
        // A marker between pad and CRC is part of what is summed.
        self.mark_if_due();
        self.sum();
        let field = self.crc.map_or([0; CRC], Crc::field);
        self.write(&field);
        self.markers.passed(CRC);
        self.markers
    }
}
