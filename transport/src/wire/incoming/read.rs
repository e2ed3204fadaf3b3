//! Moving bytes of the stream to where they are wanted.

use super::{Common, HEADERS, In, LARGE, READY, Stage, State, shared::Target};
use crate::sdp::Walk;
use crate::sdp_wire::Violation;
use crate::sdp_wire::message::Message;
use crate::sys::copy::{copy, copy_slice};
use crate::sys::net;
use std::sync::atomic::Ordering;

impl In {
    /// Reads into the program's buffers what has come, without waiting; with `discard` it is thrown away. How many
    /// bytes: less than there is room for only if the kernel has been found empty, which programs that wait for edges rely on
    /// (epoll(7)).
    ///
    /// # Safety
    /// The walk's buffers are writable.
    pub unsafe fn read(
        &mut self,
        common: &Common,
        fd: i32,
        walk: &mut Walk,
        discard: bool,
    ) -> usize {
        let before = walk.done();
        self.drained = false;
        loop {
            // SAFETY: the caller's promise.
            unsafe { self.drain(common, walk, discard) };
            if walk.left() == 0 || self.reset || self.drained && walk.done() > before {
                break;
            }
            // SAFETY: as above.
            if self.lent_bytes(common) > 0 && unsafe { self.pull(common, walk, discard) } > 0 {
                continue;
            }
            // SAFETY: as above.
            if !unsafe { self.receive(common, fd, walk, discard) } {
                break;
            }
        }
        let n = walk.done() - before;
        if n > 0 && self.takes.is_some() {
            self.hand_back(common);
        }
        n
    }

    /// The program has so many bytes. (Counted with each step that takes some, since each may be noted.)
    #[inline]
    fn count(&mut self, n: usize) {
        if let Some(takes) = &mut self.takes {
            takes.took(n);
        }
    }

    /// What was taken of a packetized direction is handed back, if it is time to.
    fn hand_back(&mut self, common: &Common) {
        self.note(); // before it is told
        if let Some(takes) = &mut self.takes
            && takes.hand_back(&common.words)
        {
            common.due.store(true, Ordering::Release);
        }
    }

    /// The sender of a packetized direction says how it goes on, or that of one with few receive buffers that it goes on without: what
    /// comes is done with before the next is looked at, so there is a buffer for each.
    ///
    /// # Errors
    /// It is neither.
    pub(super) fn hear_of_room(
        &mut self,
        common: &Common,
        message: &Message<'_>,
    ) -> Result<(), Violation> {
        if self.takes.is_none() && self.few {
            if *message == Message::Starved {
                common.words.want_slots(self.seq.heard().received.0);
            }
            return Ok(());
        }
        let takes = self.takes.as_mut().ok_or(Violation::Unexpected)?;
        match message {
            Message::Starved => takes.starved(),
            Message::Cleared => takes.cleared(),
            _ => takes.released(),
        }
        if takes.hand_back(&common.words) {
            common.due.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Copies what will be read next, as far as it fits here, and leaves it.
    ///
    /// # Safety
    /// The walk's buffers are writable.
    pub unsafe fn peek(
        &mut self,
        common: &Common,
        fd: i32,
        walk: &mut Walk,
        discard: bool,
    ) -> usize {
        let before = walk.done();
        self.gather(common, Some(fd), walk.left());
        if walk.left() > 0 {
            self.pull_ahead(common);
        }
        let held = self.ready.get(self.ready_start..self.ready_end);
        // SAFETY: the caller's promise.
        unsafe { put(held.unwrap_or_default(), walk, discard) };
        walk.done() - before
    }

    /// Bytes that can be read now, as far as they fit here.
    pub fn available(&mut self, common: &Common, fd: i32) -> usize {
        self.gather(common, Some(fd), READY);
        self.pull_ahead(common);
        self.ready_end - self.ready_start
    }

    /// As [`Self::available`], of what has been taken from the kernel.
    pub fn available_here(&mut self, common: &Common) -> usize {
        self.gather(common, None, READY);
        self.ready_end - self.ready_start
    }

    /// Whether [`Self::is_readable`] has taken all the octets that the kernel had.
    #[must_use]
    pub const fn is_drained(&self) -> bool {
        self.drained
    }

    /// Whether a read would bring something: bytes, the end, or an error. Takes from the kernel what it has to
    /// look at, and no more.
    pub fn is_readable(&mut self, common: &Common, fd: i32) -> bool {
        self.drained = false;
        loop {
            self.parse(common);
            if self.held() > 0
                || !matches!(self.state(), State::Open)
                || self.pull_ahead(common) > 0
            {
                return true;
            }
            if matches!(self.stage, Stage::Body { .. }) {
                return self
                    .has_octets(common)
                    .unwrap_or_else(|| net::ready_now(fd, libc::POLLIN) != 0);
            }
            if !self.fill(common, fd) {
                return !matches!(self.state(), State::Open);
            }
        }
    }

    /// Looks for the end of RDMA mode: behind the peer's DisConn, too, where nothing more is to be read.
    pub fn look_for_plain(&mut self, common: &Common, fd: i32) {
        self.is_readable(common, fd);
        while self.held() == 0 && !self.is_over() && !self.reset && !self.is_past_mode() {
            if !self.fill(common, fd) {
                return;
            }
            self.parse(common);
        }
    }

    /// Whether so many bytes can be read, or the end, as far as what is here tells.
    pub fn has(&mut self, common: &Common, bytes: usize) -> bool {
        self.parse(common);
        while self.held() < bytes.max(1)
            && self.link.is_at_kept(common.ring.get())
            && self.fill(common, -1)
        {
            self.parse(common);
        }
        self.held() >= bytes.max(1)
            || self.pull_ahead(common) >= bytes.max(1)
            || matches!(self.state(), State::Eof | State::Reset)
    }

    /// Makes bytes ready, `want` at least if so many have come and fit; without a descriptor as far as they are here.
    fn gather(&mut self, common: &Common, fd: Option<i32>, want: usize) {
        loop {
            self.parse(common);
            let run = self.run();
            let have = self.ready_end - self.ready_start;
            if run > 0 {
                if self.ready_start > 0
                    && READY - self.ready_end < run
                    && self.may_move(self.ready_start, self.ready_end)
                {
                    self.ready.copy_within(self.ready_start..self.ready_end, 0);
                    (self.ready_start, self.ready_end) = (0, have);
                }
                let n = run.min(READY - self.ready_end);
                self.note(); // before anything that was ready is written over
                let from = self.raw.get(self.start..self.start + n);
                let to = self.ready.get_mut(self.ready_end..self.ready_end + n);
                if let (Some(from), Some(to)) = (from, to) {
                    copy_slice(from, to);
                }
                self.ready_end += n;
                self.pass(n);
                if n < run {
                    return;
                }
                continue;
            }
            let more = have < want && have < READY && !self.reset;
            if !more || !fd.is_some_and(|fd| self.fill(common, fd)) {
                return;
            }
        }
    }

    /// Bytes of the stream at the front of the raw octets.
    const fn run(&self) -> usize {
        let here = self.end - self.start;
        match self.stage {
            Stage::Body { left, .. } if left < here => left,
            Stage::Body { .. } | Stage::Plain => here,
            _ => 0,
        }
    }

    /// So many of them have been taken.
    const fn pass(&mut self, n: usize) {
        self.start += n;
        if let Stage::Body { left, .. } = &mut self.stage {
            *left -= n;
        }
    }

    /// Takes from what is here.
    unsafe fn drain(&mut self, common: &Common, walk: &mut Walk, discard: bool) {
        let held = self.ready.get(self.ready_start..self.ready_end);
        // SAFETY: the caller's promise.
        let n = unsafe { put(held.unwrap_or_default(), walk, discard) };
        self.ready_start += n;
        self.count(n);
        if self.ready_start < self.ready_end {
            return;
        }
        (self.ready_start, self.ready_end) = (0, 0);
        loop {
            self.parse(common);
            let run = self.run();
            if run == 0 || walk.left() == 0 {
                return;
            }
            let here = self.raw.get(self.start..self.start + run);
            // SAFETY: as above.
            let n = unsafe { put(here.unwrap_or_default(), walk, discard) };
            self.pass(n);
            self.count(n);
            if n < run {
                return;
            }
        }
    }

    /// Takes from the kernel: a payload that is under way straight to the program's buffer, with what frames the next
    /// one; else octets to look at. Whether anything came.
    unsafe fn receive(&mut self, common: &Common, fd: i32, walk: &mut Walk, discard: bool) -> bool {
        let (to, room) = walk.chunk();
        let (left, tail) = match self.stage {
            Stage::Body { left, tail } => (left, tail + HEADERS),
            Stage::Plain => (usize::MAX, 0),
            _ => (0, 0),
        };
        // With a sum to be made the octets have to pass by here: nobody may have them before it is.
        let direct = !self.crc || self.stage == Stage::Plain;
        if self.stage == Stage::Plain && walk.done() > 0 && !net::goes_on(fd) {
            return false; // as in the kernel, a read that has something ends before an urgent byte
        }
        if !direct || left == 0 || discard || self.start < self.end {
            return self.expect(common, fd);
        }
        if self.last < LARGE && self.stage != Stage::Plain {
            return self.fill(common, fd); // (one call for those behind it, too, which are likely as small)
        }
        if room < left && room < LARGE && self.stage != Stage::Plain {
            // The program takes it in small pieces: one call for all of them.
            return self.fill_up_to(common, fd, left + tail);
        }
        (self.start, self.end) = (0, 0);
        let n = room.min(left);
        if !self.link.is_straight() {
            // SAFETY: the caller's promise.
            let came = unsafe { self.link.recv(common.ring.get(), fd, to, n) };
            let Some(came) = self.took(common, came) else {
                return false;
            };
            walk.advance(came);
            self.count(came);
            if let Stage::Body { left, .. } = &mut self.stage {
                *left -= came;
            }
            return true;
        }
        let behind = if n == left { tail } else { 0 };
        let mut both = [
            libc::iovec {
                iov_base: to.cast(),
                iov_len: n,
            },
            libc::iovec {
                iov_base: self.raw.as_mut_ptr().cast(),
                iov_len: behind,
            },
        ];
        // SAFETY: the program's buffer by the caller's promise, and our own.
        let came = unsafe {
            if self.is_noted() {
                self.recv_noted(fd, &mut both, Target::Program(n))
            } else {
                net::recv_vec(fd, both.as_mut_ptr(), both.len(), libc::MSG_DONTWAIT)
            }
        };
        let Some(came) = self.took(common, came) else {
            return false;
        };
        self.drained = came < n + behind;
        let placed = came.min(n);
        walk.advance(placed);
        self.count(placed);
        self.end = came - placed;
        if let Stage::Body { left, .. } = &mut self.stage {
            *left -= placed;
        }
        true
    }

    /// Octets to look at: after a large payload only the headers of what is likely one more.
    fn expect(&mut self, common: &Common, fd: i32) -> bool {
        if !self.link.is_straight()
            || self.crc
            || self.last < LARGE
            || self.stage != Stage::Header
            || self.start < self.end
        {
            return self.fill(common, fd);
        }
        (self.start, self.end) = (0, 0);
        let to = self.raw.as_mut_ptr();
        // SAFETY: our own buffer, which is longer.
        let came = unsafe { self.recv_raw(common, fd, to, HEADERS) };
        self.took(common, came).is_some_and(|n| {
            // (what is not data may be shorter: then the rest is asked for as it comes)
            self.last = 0;
            self.end = n;
            self.drained = n < HEADERS;
            true
        })
    }
}

/// Copies to the program's buffers as much as they take; returns how much.
///
/// # Safety
/// They are writable.
unsafe fn put(mut from: &[u8], walk: &mut Walk, discard: bool) -> usize {
    let before = walk.done();
    while !from.is_empty() {
        let (to, room) = walk.chunk();
        let n = room.min(from.len());
        if n == 0 {
            break;
        }
        if !discard {
            // SAFETY: the caller's promise; our buffer is none of the program's.
            unsafe { copy(from.as_ptr(), to, n) };
        }
        walk.advance(n);
        from = from.get(n..).unwrap_or_default();
    }
    walk.done() - before
}
