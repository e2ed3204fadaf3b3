//! The receiving half of a stream that several processes hold: what is noted of it, and how it goes on after one of them
//! has died in the middle of a call.
//!
//! What the kernel had given to the dead lies among the raw octets, and is read by the next; or it went to the dead's own
//! buffers, and is lost with them as what a process has read is by kernel TCP.

use super::{Common, In, Open, Stage, advert, written};
use crate::iwarp::ddp::Segment;
use crate::iwarp::mpa::Deframer;
use crate::iwarp::rdmap::Stream;
use crate::ring::Borrowed;
use crate::sdp_wire::sequence::Sequence;
use crate::sys::{Errno, Result};
use crate::wire::noted::{Half, write_state};
use crate::wire::window::Takes;
use std::sync::atomic::Ordering;

/// Where the octets of a read of the kernel go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// Behind the raw ones.
    Raw,
    /// So many to the program's buffer, bytes of a payload or plain ones, and what follows to the raw ones.
    Program(usize),
}

/// What counts of the half.
#[derive(Clone, Debug)]
pub(super) struct State {
    stream: Stream,
    deframer: Deframer,
    seq: Sequence,
    stage: Stage,
    message: Option<Open>,
    ends_message: bool,
    ends_mode: bool,
    fin: bool,
    reset: bool,
    over: bool,
    failed: bool,
    error: Option<Errno>,
    terminate: Option<Segment>,
    begins_ring: bool,
    brings_back: bool,
    given_start: usize,
    given_end: usize,
    passed: u64,
    octets: u64,
    last: usize,
    start: usize,
    end: usize,
    ready_start: usize,
    ready_end: usize,
    ahead: Option<Errno>,
    read: Option<advert::Read>,
    sink: u32,
    ends_read: bool,
    writes: written::Writes,
    takes: Option<Takes>,
    borrowed: Option<Borrowed>,
    leaves_out: usize,
    target: Target,
}

impl In {
    /// Notes the half as it is, which is whole.
    #[inline]
    pub(in crate::wire) fn note(&mut self) {
        if self.noted.is_on() {
            self.note_for(Target::Raw);
        }
    }

    fn note_for(&mut self, target: Target) {
        let place = self.noted.place();
        write_state!(State at place, {
            stream: &self.stream,
            deframer: &self.deframer,
            seq: &self.seq,
            stage: &self.stage,
            message: &self.message,
            ends_message: &self.ends_message,
            ends_mode: &self.ends_mode,
            fin: &self.fin,
            reset: &self.reset,
            over: &self.over,
            failed: &self.failed,
            error: &self.error,
            terminate: &self.terminate,
            begins_ring: &self.begins_ring,
            brings_back: &self.brings_back,
            given_start: &self.given_start,
            given_end: &self.given_end,
            passed: &self.passed,
            octets: &self.octets,
            last: &self.last,
            start: &self.start,
            end: &self.end,
            ready_start: &self.ready_start,
            ready_end: &self.ready_end,
            ahead: &self.ahead,
            read: &self.read,
            sink: &self.sink,
            ends_read: &self.ends_read,
            writes: &self.writes,
            takes: &self.takes,
            borrowed: &self.borrowed,
            leaves_out: &self.leaves_out,
            target: &target,
        });
        self.noted.written();
    }

    /// From now on several processes use the half, or one alone again.
    pub(in crate::wire) fn share(&mut self, on: bool) {
        if on {
            self.note_for(Target::Raw);
        }
        self.noted.turn(on);
    }

    /// Whoever worked on the half has died: it goes on from what was noted last.
    fn recover(&mut self, common: &Common) {
        let Some((state, came)) = self.noted.last() else {
            return;
        };
        self.stream = state.stream;
        self.deframer = state.deframer;
        self.seq = state.seq;
        self.stage = state.stage;
        self.message = state.message;
        self.ends_message = state.ends_message;
        self.ends_mode = state.ends_mode;
        self.fin = state.fin;
        self.over = state.over;
        self.failed = state.failed;
        self.error = state.error;
        self.terminate = state.terminate;
        self.begins_ring = state.begins_ring;
        self.brings_back = state.brings_back;
        (self.given_start, self.given_end) = (state.given_start, state.given_end);
        self.passed = state.passed;
        self.octets = state.octets + came as u64;
        self.last = state.last;
        self.ahead = state.ahead;
        (self.read, self.sink) = (state.read, state.sink);
        self.ends_read = state.ends_read;
        self.writes = state.writes;
        self.takes = state.takes;
        (self.borrowed, self.leaves_out) = (state.borrowed, state.leaves_out);
        self.asks = true; // (to be told again is harmless)
        // (what a ring has left is known to the call only that saw to it; and nobody knows how far both had agreed)
        self.reset = state.reset || self.is_by_ring() || common.settles.load(Ordering::Acquire);
        let lost = match state.target {
            Target::Raw => 0,
            Target::Program(room) => came.min(room),
        };
        if let Stage::Body { left, .. } = &mut self.stage {
            *left -= lost;
        }
        if let Some(takes) = &mut self.takes {
            takes.took(lost);
            takes.hand_back(&common.words); // (what the dead was about to)
        }
        (self.start, self.end) = (state.start, state.end + came - lost);
        (self.ready_start, self.ready_end) = (state.ready_start, state.ready_end);
        self.untold = false;
        common.tell_heard(&self.seq.heard());
        common.due.store(true, Ordering::Release); // what the dead was about to ask for
    }

    /// Receives to behind the raw octets.
    ///
    /// # Safety
    /// There is room for so many.
    pub(super) unsafe fn recv_raw(
        &mut self,
        common: &Common,
        fd: i32,
        to: *mut u8,
        len: usize,
    ) -> Result<usize> {
        if !self.is_noted() {
            // SAFETY: the caller's promise.
            return unsafe { self.link.recv(common.ring.get(), fd, to, len) };
        }
        let mut list = [libc::iovec {
            iov_base: to.cast(),
            iov_len: len,
        }];
        // SAFETY: as above.
        unsafe { self.recv_noted(fd, &mut list, Target::Raw) }
    }

    /// recv(2) without waiting, so that the others will know what has come.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// The list is what `target` says; its buffers are writable.
    pub(super) unsafe fn recv_noted(
        &mut self,
        fd: i32,
        list: &mut [libc::iovec],
        target: Target,
    ) -> Result<usize> {
        loop {
            self.note_for(target);
            // SAFETY: the caller's promise.
            let came = unsafe { self.noted.receipt().recv(fd, list, libc::MSG_DONTWAIT) };
            match came {
                // The socket's error comes before octets that came before it: it is told behind them.
                Err(e) if !matches!(e, Errno::AGAIN | Errno::INTR) && self.ahead.is_none() => {
                    self.ahead = Some(e);
                }
                Ok(n) if n > 0 => return Ok(n),
                none => return self.ahead.take().map_or(none, Err),
            }
        }
    }

    /// Whether octets may be moved to the front of their buffer: where others go on after a death, what was noted stays
    /// as it is until the next note.
    pub(super) const fn may_move(&self, start: usize, end: usize) -> bool {
        !self.noted.is_on() || start >= end - start
    }

    /// Whether the next octets are the kernel's, and a read of it is noted. (Those that came behind a ring's last record are taken first,
    /// by a read of the link.)
    pub(super) const fn is_noted(&self) -> bool {
        self.noted.is_on() && self.link.is_straight()
    }
}

impl Half for In {
    #[inline]
    fn is_shared(&self) -> bool {
        self.noted.is_on()
    }

    #[cold]
    fn begin_turn(&mut self, common: &Common) {
        if self.noted.is_under_way() {
            self.recover(common);
        }
        if common.serves.load(Ordering::Acquire) {
            common.due.store(true, Ordering::Release); // (if nobody is at it)
        }
        self.note();
        self.noted.begin();
    }

    #[cold]
    fn end_turn(&mut self) {
        self.noted.end();
    }
}
