//! Where the octets of the receiving direction come from: the kernel, the ring, or what is left in the ring and then
//! the kernel. Used under the receiving lock.

use super::records::{self, Reader};
use super::slots::BACK;
use super::stage::Event;
use super::tell::Tell;
use super::{NONE, Ring, Word};
use crate::sys::copy::copy;
use crate::sys::{Errno, Result, net};
use crate::verbs::{Operation, Work};
use std::sync::atomic::Ordering;

/// Octets of the kernel connection that are looked at for records at once.
const LOOK: usize = 64;

/// Where the direction stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Kernel,
    Ring,
    /// The ring is over: what has landed is taken. Once the peer has said so too, the kernel follows.
    Last {
        heard: bool,
    },
}

/// See the module.
#[derive(Debug)]
pub struct Rx {
    way: Way,
    records: Reader,
    /// What the peer was told that this side has taken.
    told: u64,
    /// Octets of the stream that came behind the last record.
    kept: [u8; LOOK],
    kept_start: usize,
    kept_end: usize,
    /// How the kernel connection has ended while octets came by the ring.
    ended: Option<Result<usize>>,
    /// This side has shut the kernel connection, which therefore shows its end.
    shut: bool,
    /// The kernel connection is not asked for what it says: whoever looks knows that it has nothing, or sleeps on it next.
    patient: bool,
    /// It was asked, and has no more to say.
    heard: bool,
}

/// What came of beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// All that was there was records.
    Ring,
    /// The ring is over already, behind so many octets of records: what has landed comes first, then the rest.
    Over(usize),
}

impl Rx {
    /// From the kernel.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            way: Way::Kernel,
            records: Reader::new(),
            told: 0,
            kept: [0; LOOK],
            kept_start: 0,
            kept_end: 0,
            ended: None,
            shut: false,
            patient: false,
            heard: false,
        }
    }

    /// Whether octets come from the kernel: those that are kept first.
    #[must_use]
    pub const fn is_kernel(&self) -> bool {
        matches!(self.way, Way::Kernel)
    }

    /// Whether they come from a ring that has not ended, as far as this direction has seen.
    #[must_use]
    pub const fn is_ring(&self) -> bool {
        matches!(self.way, Way::Ring)
    }

    /// Whether the next octets lie in the kernel.
    #[must_use]
    pub const fn is_straight(&self) -> bool {
        self.is_kernel() && self.kept_start == self.kept_end
    }

    /// Whether the next octets are those that came behind the last record, so that [`Self::recv`] asks nobody for them.
    #[must_use]
    pub fn is_at_kept(&self, ring: Option<&Ring>) -> bool {
        let drained = || ring.is_none_or(|ring| ring.available() == 0);
        self.kept_start != self.kept_end
            && match self.way {
                Way::Kernel => true,
                Way::Last { heard } => heard && drained(),
                Way::Ring => false,
            }
    }

    /// Whether octets could be received now, by few loads; nothing is known where the kernel has to be asked.
    #[inline]
    #[must_use]
    pub fn has_octets(&self, ring: Option<&Ring>) -> Option<bool> {
        let by_ring = self.way != Way::Kernel && ring.is_some_and(|ring| ring.available() > 0);
        if by_ring || self.is_at_kept(ring) {
            return Some(true);
        }
        // (behind the end of a ring that both know of the kernel follows)
        (!matches!(self.way, Way::Kernel | Way::Last { heard: true })).then_some(false)
    }

    /// Octets come by the ring from here on; `behind` are those that the kernel has given already.
    ///
    /// # Errors
    /// `ECONNRESET`: they are no records.
    pub fn begin(&mut self, ring: &Ring, behind: &[u8]) -> Result<Begun> {
        ring.expect_no_more();
        self.way = Way::Ring;
        self.records = Reader::new();
        self.told = 0;
        match self.records.hear(behind) {
            records::Heard::Nothing => Ok(Begun::Ring),
            records::Heard::Over { used, received } => {
                self.end(ring, received);
                Ok(Begun::Over(used))
            }
            records::Heard::Foreign => Err(Errno::CONNRESET),
        }
    }

    /// Whether the kernel connection is left alone from here on. Whether it has been asked since, and had no more to say.
    pub const fn be_patient(&mut self, on: bool) -> bool {
        self.patient = on;
        std::mem::replace(&mut self.heard, false)
    }

    /// This side shuts the kernel connection: its end is not the peer's.
    pub const fn shut(&mut self) {
        self.shut = true;
    }

    /// All that has landed was taken.
    pub const fn be_kernel(&mut self) {
        self.way = Way::Kernel;
    }

    /// The peer has said that the ring is over.
    fn end(&mut self, ring: &Ring, received: u64) {
        ring.peer_is_over(received);
        self.land(ring);
        self.way = Way::Last { heard: true };
    }

    /// The ring is over for this side: what has landed by now is all that is taken from it.
    pub fn land(&mut self, ring: &Ring) {
        if ring.landed.load(Ordering::Acquire) == NONE && self.way == Way::Ring {
            // (what has landed but was not told of yet goes again; who has it acknowledged may be closing, and have nobody
            // left to send it)
            ring.reap_last();
            ring.landed.store(ring.heard(Word::Put), Ordering::Release);
        }
        if self.way == Way::Ring {
            self.way = Way::Last { heard: false };
        }
    }

    /// As recv(2) without waiting.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// The buffer is writable.
    pub unsafe fn recv(
        &mut self,
        ring: Option<&Ring>,
        fd: i32,
        to: *mut u8,
        len: usize,
    ) -> Result<usize> {
        if let Some(ring) = ring.filter(|_| self.way != Way::Kernel) {
            // SAFETY: the caller's promise.
            if let Some(n) = unsafe { self.by_ring(ring, fd, to, len) }? {
                return Ok(n);
            }
        }
        let kept = self.kept.get(self.kept_start..self.kept_end);
        if let Some(kept) = kept.filter(|k| !k.is_empty()) {
            let n = kept.len().min(len);
            // SAFETY: the caller's promise; our octets are none of the program's.
            unsafe { std::ptr::copy_nonoverlapping(kept.as_ptr(), to, n) };
            self.kept_start += n;
            return Ok(n);
        }
        // SAFETY: the caller's promise.
        let came = unsafe { net::recv(fd, to, len, libc::MSG_DONTWAIT) };
        let ends = len > 0 && !self.shut && matches!(came, Ok(0) | Err(Errno::CONNRESET));
        if let Some(ring) = ring.filter(|ring| ends && (!ring.is_over() || ring.is_to_land())) {
            ring.peer_is_gone(); // before it has begun to send by the ring, where this side does already
        }
        came
    }

    /// Nothing if the kernel carries the stream by now.
    ///
    /// # Safety
    /// The buffer is writable.
    unsafe fn by_ring(
        &mut self,
        ring: &Ring,
        fd: i32,
        to: *mut u8,
        len: usize,
    ) -> Result<Option<usize>> {
        loop {
            if ring.is_over() {
                self.land(ring);
            }
            // SAFETY: the caller's promise.
            let n = unsafe { self.take(ring, to, len) }?;
            if n > 0 {
                return Ok(Some(n));
            }
            if self.way == (Way::Last { heard: true }) {
                self.way = Way::Kernel;
                return Ok(None);
            }
            if let Some(ended) = self.ended {
                return ended.map(Some);
            }
            self.hear(ring, fd)?; // (what came before an end may have landed meanwhile)
        }
    }

    /// Takes in what the kernel connection says beside the stream, or that it has ended.
    ///
    /// # Errors
    /// EAGAIN: it says nothing.
    fn hear(&mut self, ring: &Ring, fd: i32) -> Result<()> {
        if self.patient {
            return Err(Errno::AGAIN);
        }
        let mut came = [0; LOOK];
        // SAFETY: our own buffer.
        let n = match unsafe { net::recv(fd, came.as_mut_ptr(), LOOK, libc::MSG_DONTWAIT) } {
            Err(e @ (Errno::AGAIN | Errno::INTR)) => {
                self.heard |= e == Errno::AGAIN;
                return Err(e);
            }
            Ok(n) if n > 0 => n,
            Ok(_) if self.shut => return Err(Errno::AGAIN),
            ended => {
                self.ended = Some(ended);
                ring.peer_is_gone();
                return Ok(());
            }
        };
        let came = came.get(..n).unwrap_or_default();
        match self.records.hear(came) {
            records::Heard::Nothing => {}
            records::Heard::Over { used, received } => {
                let rest = came.get(used..).unwrap_or_default();
                if let Some(place) = self.kept.get_mut(..rest.len()) {
                    place.copy_from_slice(rest);
                }
                (self.kept_start, self.kept_end) = (0, rest.len());
                self.end(ring, received);
            }
            records::Heard::Foreign => self.ended = Some(Err(Errno::CONNRESET)),
        }
        Ok(())
    }

    /// Takes in what the kernel connection says beside the stream, so that a sleep on it is one.
    pub fn quiet(&mut self, ring: &Ring, fd: i32) {
        while self.way != Way::Kernel
            && self.way != (Way::Last { heard: true })
            && self.ended.is_none()
            && self.hear(ring, fd).is_ok()
        {}
        // (a program that reads nothing for long would keep a ring that both sides have done with)
        if self.way == (Way::Last { heard: true }) && ring.available() == 0 {
            self.way = Way::Kernel;
        }
    }

    /// Takes octets out of the ring.
    ///
    /// # Safety
    /// The buffer is writable.
    unsafe fn take(&mut self, ring: &Ring, to: *mut u8, len: usize) -> Result<usize> {
        let here = ring.available();
        if here > ring.size() {
            ring.end();
            return Err(Errno::CONNRESET); // more than there is room for
        }
        let want = here.min(len);
        let taken = ring.own(Word::Taken).load(Ordering::Acquire);
        let mut done = 0;
        while done < want {
            let (from, n) = if ring.incoming.is_on() {
                let Some((offset, n)) = ring.incoming.next() else {
                    break; // (never: they were counted)
                };
                (ring.area.landed(offset), n.min(want - done))
            } else {
                ring.area.incoming(taken + done as u64, want - done)
            };
            // SAFETY: octets that have landed, which the peer leaves alone until it is told; the caller's promise.
            unsafe { copy(from, to.add(done), n) };
            done += n;
            if ring.incoming.is_on() {
                ring.incoming.advance(n);
            }
        }
        if done > 0 {
            ring.own(Word::Taken)
                .store(taken + done as u64, Ordering::Release);
            self.tell(ring);
        }
        Ok(done)
    }

    /// Tells the peer how much was taken, if that is due.
    pub fn tell(&mut self, ring: &Ring) {
        let taken = ring.own(Word::Taken).load(Ordering::Acquire);
        let slots = ring.incoming.is_on();
        let due = match slots {
            true => ring.incoming.free() >= BACK,
            false => taken - self.told >= ring.worth() as u64,
        };
        if self.way != Way::Ring || !due || ring.is_over() {
            ring.stage.clear(Event::Untold);
            return;
        }
        let (remote, rkey) = ring.peer.get();
        let credits = ring.incoming.free();
        let more = if slots { credits } else { taken - self.told };
        let more = u32::try_from(more).unwrap_or(0); // (at most a ring)
        let mut received = Ok(());
        // SAFETY: no octets.
        let posted = unsafe {
            ring.posting.post(ring, 1, |id| {
                if slots {
                    // (their receives are there before the peer may use them)
                    received = ring.adapter().receive(&mut ring.incoming.freed(credits));
                    ring.incoming.give_back(credits);
                }
                let tell = Work {
                    operation: Operation::WriteInline,
                    local: std::ptr::null_mut(),
                    len: 0,
                    lkey: ring.lkey(),
                    remote,
                    rkey,
                    signaled: true,
                    tell: Some(Tell::Taken(more).to_word()),
                    id,
                };
                [Some(tell), None]
            })
        };
        match received.and(posted) {
            Ok(()) => {
                self.told = taken;
                ring.stage.clear(Event::Untold);
            }
            // (a sender that looks now and then only hears of it by this)
            Err(Errno::AGAIN) => _ = ring.stage.set(Event::Untold),
            Err(_) => ring.fail(),
        }
    }
}

impl Default for Rx {
    fn default() -> Self {
        Self::new()
    }
}
