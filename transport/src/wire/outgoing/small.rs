//! Messages that are put together here, in one copy: small ones, all that carry a sum, and SDP's own words.

use super::{Common, From, HEAD, LENGTH, Numbers, Out, PENDING, Sent};
use crate::iwarp::ddp::{self, Untagged};
use crate::iwarp::mpa::Parts;
use crate::iwarp::rdmap::{Opcode, queue};
use crate::sdp::Walk;
use crate::sdp_wire::header::HEADER;
use crate::sys::Result;

/// FPDUs that are put together and sent at once: a message of 128 KiB.
const AT_ONCE: usize = 3;
/// The same of short ones, as a peer with small receive buffers wants them: a call of the kernel for each few costs more than
/// all else (slots of 1 KiB: a stream is 3 times as fast).
const SHORT_AT_ONCE: usize = 64;
/// Payloads of less are short.
const SHORT: usize = 4 * 1024;

/// Octets of an FPDU, at most: its length is a word of 16 bits; a marker in each 512, pad and sum.
const LONGEST: usize = LENGTH + (1 << 16) + (1 << 16) / 512 * 4 + 8;

/// What an FPDU ends with: where it ends here, the bytes and the numbers up to there.
type End = (usize, usize, Numbers);

/// What stands in front of a payload, behind the length.
#[derive(Clone, Copy)]
pub(super) struct Head {
    bytes: [u8; HEAD - LENGTH],
    len: usize,
}

impl Head {
    pub(super) const fn new() -> Self {
        Self {
            bytes: [0; HEAD - LENGTH],
            len: 0,
        }
    }

    pub(super) fn put(&mut self, bytes: &[u8]) {
        if let Some(place) = self.bytes.get_mut(self.len..self.len + bytes.len()) {
            place.copy_from_slice(bytes);
            self.len += bytes.len();
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl Out {
    /// One message, put together here, or as many as some FPDUs hold: the kernel is then called once, and fills its packets.
    /// With `keep` it counts as sent even if none of it went; with `answers` it is what the peer reads of an advertised buffer.
    ///
    /// # Safety
    /// The walk's buffers are readable.
    pub(super) unsafe fn send_small(
        &mut self,
        common: &Common,
        fd: i32,
        walk: &mut Walk,
        more: i32,
        keep: bool,
        answers: bool,
    ) -> Result<Sent> {
        let alone = keep || self.from == From::Early || self.noted.is_on();
        let mut ends = if alone || walk.left() <= self.payload_most() {
            Vec::new()
        } else {
            self.ends(walk.left())
        };
        // SAFETY: passed on to the caller.
        unsafe { self.send_together(common, fd, walk, more, (keep, answers), &mut ends) }
    }

    /// Places for what each but the last of so many bytes' FPDUs ends with; none without memory. (Not on the stack, of which a handler
    /// may have 8 KiB.)
    #[inline(never)]
    fn ends(&self, left: usize) -> Vec<End> {
        let most = if self.is_short() && left > AT_ONCE * self.most {
            SHORT_AT_ONCE
        } else {
            AT_ONCE
        };
        let mut ends = Vec::new();
        if ends.try_reserve_exact(most - 1).is_ok() {
            ends.resize(most - 1, (self.end, 0, self.numbers));
        }
        ends
    }

    /// [`Self::send_small`] of as many FPDUs as there are places for what each but the last ends with, and one.
    ///
    /// # Safety
    /// As there.
    unsafe fn send_together(
        &mut self,
        common: &Common,
        fd: i32,
        walk: &mut Walk,
        more: i32,
        (keep, answers): (bool, bool),
        ends: &mut [End],
    ) -> Result<Sent> {
        let before = self.numbers;
        let at = self.end;
        let mut ahead = walk.part(walk.left());
        let mut count = 0;
        loop {
            // SAFETY: passed on to the caller.
            if !unsafe { self.frame_next(common, &mut ahead, answers) } {
                if count == 0 {
                    return Ok(Sent::NoCredit);
                }
                break;
            }
            count += 1;
            if ahead.left() == 0 || PENDING - self.end < LONGEST {
                break;
            }
            let Some(end) = ends.get_mut(count - 1) else {
                break;
            };
            (end.0, end.1) = (self.end, ahead.done());
            end.2 = self.numbers;
        }
        let mut len = ahead.done();
        if self.from == From::Early {
            self.early_start += len; // (noted together with the FPDU)
        }
        // Before it goes: the peer may have acknowledged it before the next line here runs.
        self.tell(common);
        match self.flush(common, fd, more) {
            Ok(_) if !keep && self.start == at && self.end > at => {
                // Nothing has gone: it was not sent.
                self.end = at;
                self.numbers = before;
                if self.from == From::Early {
                    self.early_start -= len;
                }
                self.note(); // before it is written over
                Ok(Sent::Full)
            }
            Ok(whole) => {
                if !whole {
                    let last = count - 1;
                    let others = ends.get(..last).unwrap_or_default();
                    let begun = others.iter().position(|e| e.0 >= self.start);
                    if let Some(end) = begun.and_then(|begun| others.get(begun)) {
                        // Those that have not begun to go were not sent.
                        (self.end, len) = (end.0, end.1);
                        self.numbers = end.2;
                    }
                    let begun = begun.unwrap_or(last);
                    let first = begun.checked_sub(1).and_then(|before| others.get(before));
                    if self.start > first.map_or(at, |e| e.0) {
                        self.begun = self.end;
                    }
                    count = begun + 1;
                }
                walk.skip(len);
                self.messages += if answers { 0 } else { count as u64 };
                Ok(Sent::Bytes(len))
            }
            Err(e) => Err(e),
        }
    }

    /// Puts the next FPDU behind what waits. False without credit, or if there is nothing to answer. (By itself, as its heads and
    /// lists are over before anything is sent.)
    ///
    /// # Safety
    /// The walk's buffers are readable.
    #[inline(never)]
    unsafe fn frame_next(&mut self, common: &Common, ahead: &mut Walk, answers: bool) -> bool {
        let head = if answers {
            self.answer_head(common)
        } else {
            let len = ahead.left().min(self.payload_most());
            self.payload_head(len).map(|head| (head, len))
        };
        let Some((head, len)) = head else {
            return false;
        };
        // SAFETY: passed on to the caller.
        unsafe { self.frame_walk(head.bytes(), &mut ahead.part(len), len) };
        ahead.skip(len);
        true
    }

    /// Whether the peer's receive buffers are small.
    pub(super) const fn is_short(&self) -> bool {
        self.most < SHORT
    }

    /// What stands in front of the next bytes of the program's: of a message of data, or of an RDMA Write where the peer has a buffer
    /// for it. Nothing without credit, or if that buffer is full.
    pub(super) fn payload_head(&mut self, len: usize) -> Option<Head> {
        if self.writes() {
            return self.write_head(len);
        }
        let header = self.send_counted(len)?;
        let mut bsdh = [0; HEADER];
        let total = u32::try_from(HEADER + len).unwrap_or(u32::MAX);
        header.write_data(total, &mut bsdh);
        let mut head = Head::new();
        self.next_untagged(false).write(|bytes| head.put(bytes));
        head.put(&bsdh);
        Some(head)
    }

    /// The DDP header of the next Send.
    pub(super) fn next_untagged(&mut self, solicited: bool) -> ddp::Header {
        let opcode = Opcode::Send {
            solicited,
            invalidate: false,
        };
        let message = self.numbers.message;
        self.numbers.message = message.wrapping_add(1);
        ddp::Header::Untagged(Untagged {
            last: true,
            upper: opcode.control(),
            upper_word: 0,
            queue: queue::SEND,
            message,
            offset: 0,
        })
    }

    pub(super) fn ddp_head(&mut self, solicited: bool, sdp: &[u8]) -> Vec<u8> {
        let mut head = Vec::with_capacity(ddp::UNTAGGED + sdp.len());
        self.next_untagged(solicited)
            .write(|bytes| head.extend_from_slice(bytes));
        head.extend_from_slice(sdp);
        head
    }

    /// Puts an FPDU behind what waits.
    pub(super) fn frame(&mut self, head: &[u8], payload: &mut Parts<'_>, len: usize) {
        let out = self.pending.get_mut(self.end..).unwrap_or_default();
        if let Ok(n) = self.numbers.framer.frame(head, payload, len, out) {
            self.end += n;
        }
    }

    /// [`Self::frame`] of the program's buffers.
    ///
    /// # Safety
    /// They are readable.
    unsafe fn frame_walk(&mut self, head: &[u8], part: &mut Walk, len: usize) {
        let (at, here) = part.chunk();
        if here == len {
            // SAFETY: the caller's promise. (The program may write to it meanwhile: then it is undefined what is
            // sent, as with the kernel, but the sum is made of what was copied.)
            let bytes = unsafe { std::slice::from_raw_parts(at, len) };
            return self.frame(head, &mut Parts::one(bytes), len);
        }
        // SAFETY: passed on to the caller.
        unsafe { self.frame_pieces(head, part, len) };
    }

    /// [`Self::frame_walk`] of several buffers. (By itself: their list is long.)
    ///
    /// # Safety
    /// As there.
    #[inline(never)]
    unsafe fn frame_pieces(&mut self, head: &[u8], part: &mut Walk, len: usize) {
        let mut slices = [std::io::IoSlice::new(&[]); PIECES];
        let mut n = 0;
        let mut copied = Vec::new();
        let mut left = part.part(len);
        while left.left() > 0 && n < PIECES {
            let (at, here) = left.chunk();
            // SAFETY: the caller's promise.
            let bytes = unsafe { std::slice::from_raw_parts(at, here) };
            if let Some(slot) = slices.get_mut(n) {
                *slot = std::io::IoSlice::new(bytes);
                n += 1;
            }
            left.advance(here);
        }
        if left.left() == 0 {
            return self.frame(
                head,
                &mut Parts::many(slices.get(..n).unwrap_or_default()),
                len,
            );
        }
        while part.left() > 0 {
            let (at, here) = part.chunk();
            // SAFETY: as above.
            copied.extend_from_slice(unsafe { std::slice::from_raw_parts(at, here) });
            part.advance(here);
        }
        self.frame(head, &mut Parts::one(&copied), len);
    }
}

/// Buffers of the program's that one message is put together from without a copy in between.
const PIECES: usize = 32;
