//! Large messages without a sum: from where they lie, several FPDUs in one vectored write.

use super::{CRC, HEAD, LENGTH, Numbers, Out, Sent, pad};
use crate::sdp::Walk;
use crate::sys::{Errno, Result};
use crate::wire::Common;

/// FPDUs of one write, and entries of its list.
const FPDUS: usize = 8;
const ENTRIES: usize = 64;

/// The octets behind a payload: pad and CRC.
const TAIL: usize = 3 + CRC;

/// Octets of a cache line: a payload that is cut goes on at one, and needs no pad.
const LINE: usize = 64;

/// How much of so many bytes the next of their FPDUs carries, `most` at most: about as much as each behind it. A reader takes a large
/// payload straight to where it is wanted, and looks for one more behind it: of 128 KiB the third would have a few bytes.
fn share(left: usize, most: usize) -> usize {
    if left <= most || most == 0 {
        return left.min(most);
    }
    let each = left.div_ceil(left.div_ceil(most));
    each.next_multiple_of(LINE).min(most)
}

/// One FPDU of a write.
#[derive(Clone)]
struct Framed {
    head: [u8; HEAD],
    head_len: usize,
    tail: [u8; TAIL],
    tail_len: usize,
    payload: usize,
    /// What the numbers are once it has gone.
    after: Numbers,
}

impl Framed {
    /// Places for those of one write; none without memory. (Not on the stack, of which a handler may have 8 KiB.)
    #[inline(never)]
    fn places(numbers: &Numbers) -> Option<Vec<Self>> {
        let mut places = Vec::new();
        places.try_reserve_exact(FPDUS).ok()?;
        let none = Self {
            head: [0; HEAD],
            head_len: HEAD,
            tail: [0; TAIL],
            tail_len: 0,
            payload: 0,
            after: *numbers,
        };
        places.resize(FPDUS, none);
        Some(places)
    }
}

impl Out {
    /// Sends as much as the kernel takes of a large message; with `answers`, of what the peer reads of it.
    ///
    /// # Errors
    /// As send(2).
    ///
    /// # Safety
    /// The walk's buffers are readable.
    pub(super) unsafe fn send_large(
        &mut self,
        common: &Common,
        fd: i32,
        walk: &mut Walk,
        more: i32,
        answers: bool,
    ) -> Result<Sent> {
        let before = self.numbers;
        let (Some(mut framed), Some(mut list)) = (Framed::places(&before), List::new()) else {
            // SAFETY: passed on to the caller.
            return unsafe { self.send_small(common, fd, walk, more, false, answers) };
        };
        let mut ahead = walk.part(walk.left());
        let mut count = 0;
        for slot in &mut framed {
            // SAFETY: passed on to the caller.
            let framed = ahead.left() > 0
                && unsafe {
                    if answers {
                        self.frame_answer(common, &mut ahead, slot, &mut list)
                    } else {
                        self.frame_large(&mut ahead, slot, &mut list)
                    }
                };
            if !framed {
                break;
            }
            count += 1;
        }
        // (numbers that are seen too early are numbers that the peer cannot have acknowledged yet)
        self.tell(common);
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | more;
        // SAFETY: the caller's buffers, and `framed`, which outlives the call.
        let sent = unsafe {
            let entries = list.entries.get_mut(..list.len).unwrap_or_default();
            self.link.send(common.ring.get(), fd, entries, flags)
        };
        let mut left = match sent {
            Ok(n) => n,
            Err(e) => {
                self.numbers = before;
                return match e {
                    Errno::AGAIN => Ok(Sent::Full),
                    e => Err(e),
                };
            }
        };
        self.numbers = before;
        let done = walk.done();
        for fpdu in framed.iter().take(count) {
            let whole = fpdu.head_len + fpdu.payload + fpdu.tail_len;
            if left == 0 {
                break;
            }
            self.numbers = fpdu.after;
            self.messages += u64::from(!answers);
            if left < whole {
                // SAFETY: passed on to the caller.
                unsafe { self.keep(walk, fpdu, left) };
                left = 0;
            } else {
                left -= whole;
            }
            walk.skip(fpdu.payload);
        }
        Ok(Sent::Bytes(walk.done() - done))
    }

    /// Lists the next FPDU. False if there is no room for it in the list, or no credit.
    ///
    /// # Safety
    /// The walk's buffers are readable.
    unsafe fn frame_large(&mut self, ahead: &mut Walk, slot: &mut Framed, list: &mut List) -> bool {
        if list.len + 3 > ENTRIES {
            return false;
        }
        let head_at = list.len;
        list.len += 1;
        let want = share(ahead.left(), self.payload_most());
        let mut payload = 0;
        while payload < want && list.len + 1 < ENTRIES {
            let (at, here) = ahead.chunk();
            let n = here.min(want - payload);
            if n == 0 {
                break;
            }
            list.push(at, n);
            ahead.advance(n);
            payload += n;
        }
        let Some(head) = self.payload_head(payload) else {
            list.len = head_at;
            return false;
        };
        self.complete(slot, list, head_at, head.bytes(), payload);
        true
    }

    /// Lists the next answer, likewise. The walk's chunk holds all of it.
    unsafe fn frame_answer(
        &mut self,
        common: &Common,
        ahead: &mut Walk,
        slot: &mut Framed,
        list: &mut List,
    ) -> bool {
        if list.len + 3 > ENTRIES {
            return false;
        }
        let Some((head, payload)) = self.answer_head(common) else {
            return false;
        };
        let head_at = list.len;
        list.len += 1;
        let (at, _) = ahead.chunk();
        list.push(at, payload);
        ahead.advance(payload);
        self.complete(slot, list, head_at, head.bytes(), payload);
        true
    }

    /// Puts around a payload what frames it.
    fn complete(
        &self,
        slot: &mut Framed,
        list: &mut List,
        head_at: usize,
        head: &[u8],
        payload: usize,
    ) {
        let ulpdu = head.len() + payload;
        #[allow(clippy::cast_possible_truncation)] // (bounded by `most`)
        let field = (ulpdu as u16).to_be_bytes();
        slot.head_len = LENGTH + head.len();
        let (first, rest) = slot.head.split_at_mut(LENGTH);
        first.copy_from_slice(&field);
        if let Some(rest) = rest.get_mut(..head.len()) {
            rest.copy_from_slice(head);
        }
        slot.payload = payload;
        slot.tail_len = pad(ulpdu) + CRC;
        slot.tail = [0; TAIL];
        slot.after = self.numbers;
        list.set(head_at, slot.head.as_mut_ptr(), slot.head_len);
        list.push(slot.tail.as_mut_ptr(), slot.tail_len);
    }

    /// Keeps what the kernel has not taken of an FPDU, of which `gone` octets went. The walk is at its payload.
    ///
    /// # Safety
    /// The walk's buffers are readable.
    unsafe fn keep(&mut self, walk: &Walk, fpdu: &Framed, gone: usize) {
        (self.start, self.end) = (0, 0);
        let head = fpdu.head.get(..fpdu.head_len).unwrap_or_default();
        self.put_behind(head.get(gone.min(head.len())..).unwrap_or_default());
        let mut skip = gone.saturating_sub(fpdu.head_len);
        let mut part = walk.part(fpdu.payload);
        let first = skip.min(fpdu.payload);
        part.skip(first);
        skip -= first;
        while part.left() > 0 {
            let (at, here) = part.chunk();
            // SAFETY: the caller's promise.
            self.put_behind(unsafe { std::slice::from_raw_parts(at, here) });
            part.advance(here);
        }
        self.put_behind(fpdu.tail.get(skip..fpdu.tail_len).unwrap_or_default());
        self.begun = if gone > 0 { self.end } else { 0 };
    }

    pub(super) fn put_behind(&mut self, bytes: &[u8]) {
        if let Some(place) = self.pending.get_mut(self.end..self.end + bytes.len()) {
            place.copy_from_slice(bytes);
            self.end += bytes.len();
        }
    }
}

/// What one write sends.
struct List {
    entries: Vec<libc::iovec>,
    len: usize,
}

impl List {
    fn new() -> Option<Self> {
        let mut entries = Vec::new();
        entries.try_reserve_exact(ENTRIES).ok()?;
        let none = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        entries.resize(ENTRIES, none);
        Some(Self { entries, len: 0 })
    }

    fn push(&mut self, at: *mut u8, len: usize) {
        self.set(self.len, at, len);
        self.len += 1;
    }

    fn set(&mut self, index: usize, at: *mut u8, len: usize) {
        if let Some(entry) = self.entries.get_mut(index) {
            entry.iov_base = at.cast();
            entry.iov_len = len;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn shares_are_even() {
        for (left, most, wanted) in [
            (0, 100, &[][..]),
            (100, 100, &[100]),
            (131_072, 64_734, &[43_712, 43_712, 43_648]),
            (65_536, 64_734, &[32_768, 32_768]),
            (250, 100, &[100, 100, 50]), // (no more than there is room for)
        ] {
            let (mut rest, mut shares) = (left, Vec::new());
            while rest > 0 {
                shares.push(share(rest, most));
                rest -= shares.last().copied().unwrap_or(rest);
            }
            assert_eq!(shares, wanted, "{left} by {most}");
        }
        assert_eq!(share(10, 0), 0);
    }
}
