//! The sending half of a stream that several processes hold: what is noted of it, and how it goes on after one of them
//! has died in the middle of a call.
//!
//! What is noted counts as sent, whether the kernel has it or it waits here: as what a kernel has taken of a process's
//! send before that was killed. So such a stream sends from here only: the rest of an FPDU that lies in the program's
//! memory would be lost with it.

use super::{Common, From, Mode, Numbers, Out};
use crate::sys::{Errno, Result};
use crate::wire::noted::{Half, write_state};
use std::sync::atomic::Ordering;

/// What counts of the half.
#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    numbers: Numbers,
    mode: Mode,
    finish_due: bool,
    finished: bool,
    ended: bool,
    messages: u64,
    starved: u64,
    start: usize,
    end: usize,
    early_start: usize,
    early_end: usize,
    passed: u64,
    answers: u64,
}

impl Out {
    /// Notes the half as it is, which is whole.
    #[inline]
    pub(in crate::wire) fn note(&mut self) {
        if self.noted.is_on() {
            self.note_now();
        }
    }

    fn note_now(&mut self) {
        let place = self.noted.place();
        write_state!(State at place, {
            numbers: &self.numbers,
            mode: &self.mode,
            finish_due: &self.finish_due,
            finished: &self.finished,
            ended: &self.ended,
            messages: &self.messages,
            starved: &self.starved,
            start: &self.start,
            end: &self.end,
            early_start: &self.early_start,
            early_end: &self.early_end,
            passed: &self.passed,
            answers: &self.answers,
        });
        self.noted.written();
    }

    /// From now on several processes use the half, or one alone again.
    pub(in crate::wire) fn share(&mut self, on: bool) {
        if on {
            self.note_now();
        }
        self.noted.turn(on);
    }

    /// Whoever worked on the half has died: it goes on from what was noted last.
    fn recover(&mut self, common: &Common) {
        let Some((state, gone)) = self.noted.last() else {
            return;
        };
        self.numbers = state.numbers;
        self.mode = state.mode;
        self.finish_due = state.finish_due;
        self.finished = state.finished;
        // (what a ring has left is known to the call only that saw to it; and nobody knows how far both had agreed)
        self.ended = state.ended || !self.is_by_kernel() || common.settles.load(Ordering::Acquire);
        self.messages = state.messages;
        self.starved = state.starved;
        (self.start, self.end, self.begun) = (state.start + gone, state.end, 0);
        if self.start > self.end {
            self.ended = true; // (the kernel does not take more than it was given)
            self.start = self.end;
        }
        (self.early_start, self.early_end) = (state.early_start, state.early_end);
        self.from = From::Program;
        self.passed = state.passed;
        self.answers = state.answers;
        if self.early_start == self.early_end {
            common.note_gathered(0);
        }
        if self.parked() == 0 {
            common.words.note_parked(0);
        }
        self.tell(common);
        common.serves.store(false, Ordering::Release);
        common.due.store(true, Ordering::Release); // what the dead was about to say
    }

    /// Gives octets to whatever takes them; of a shared stream so that the others will know how many it took.
    ///
    /// # Errors
    /// As send(2).
    ///
    /// # Safety
    /// The buffers are readable.
    pub(super) unsafe fn give(
        &mut self,
        common: &Common,
        fd: i32,
        list: &mut [libc::iovec],
        flags: i32,
    ) -> Result<usize> {
        if self.noted.is_on() && self.link.is_kernel() {
            self.note();
            // SAFETY: the caller's promise.
            return told(common, unsafe {
                self.noted.receipt().send(fd, list, flags)
            });
        }
        // SAFETY: as above.
        told(common, unsafe {
            self.link.send(common.ring.get(), fd, list, flags)
        })
    }
}

/// The kernel tells of a reset once, and this may be no call of the program's.
fn told(common: &Common, sent: Result<usize>) -> Result<usize> {
    let sent = sent.map_err(|e| common.hear(e));
    if sent == Err(Errno::CONNRESET) {
        common.failed.store(true, Ordering::Release);
    }
    sent
}

impl Half for Out {
    #[inline]
    fn is_shared(&self) -> bool {
        self.noted.is_on()
    }

    #[cold]
    fn begin_turn(&mut self, common: &Common) {
        if self.noted.is_under_way() {
            self.recover(common);
        }
        self.note();
        self.noted.begin();
    }

    #[cold]
    fn end_turn(&mut self) {
        self.noted.end();
    }
}
