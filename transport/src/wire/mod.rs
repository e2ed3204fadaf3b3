//! SDP over software iWARP on the program's own kernel connection: what stands between `send`/`recv` and the
//! octets on the wire once both ends have agreed. The kernel connection *is* the iWARP stream, so what blocks,
//! times out, is full or has ended is the kernel's to say, as for any TCP socket.
//!
//! | part | owns | used under |
//! |---|---|---|
//! | [`Out`] | numbers, credits, framing of what goes; octets that the kernel has not taken | the sending lock |
//! | [`In`] | octets that came, the FPDU that is being read, bytes ready to be read | the receiving lock |
//! | [`Riding`] | how the octets come to go by a ring (`crate::ring`) | nothing: atomics |
//! | [`Common`] | the few words by which the two tell each other | nothing: atomics |
//! | [`Adverts`] | those of advertised buffers | nothing: atomics |
//! | [`Words`] | flow control of packetized directions | nothing: atomics |
//! | [`set_up`] | MPA Request and Reply with Hello and HelloAck in their private data | nothing: pure |
//!
//! Called by `preload::sockets::wired`, which owns the locks and does the waiting; nothing here waits. A [`Wire`]
//! lies in memory that children of fork share and holds no pointer, so that whoever makes the next call finds it
//! where the last one left it; also after one that was killed in the middle (`noted`).
//!
//! Rules: a payload byte counts as sent once the FPDU that it is in has begun to go; the rest of such an FPDU is
//! kept here and goes first. Whatever the peer writes is checked by `iwarp` and `sdp_wire`; what breaks a rule ends
//! the stream with the Terminate that the RFC names.

mod adverts;
mod common;
mod incoming;
mod noted;
mod outgoing;
mod riding;
pub mod set_up;
#[cfg(test)]
#[allow(
    clippy::undocumented_unsafe_blocks,
    reason = "one thread: nobody else is at either half"
)]
mod tests;
mod window;

pub use adverts::Adverts;
pub use common::{Common, Return};
pub use incoming::{In, MUCH, State};
pub use noted::Turn;
pub use outgoing::{AGE_US, GATHERED, Gathered, Out, PATIENCE_US, Sent};
pub use riding::{Due, Riding};
pub use window::{Flow, Words};

use crate::iwarp::mpa::setup::Terms;
use crate::sys::mem::Mapping;
use crate::sys::{Errno, Result, kept, net, retired};
use set_up::{Asker, Reply};
use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

/// Bytes of one receive buffer (private buffer) that this side tells of where it keeps no slots: a message fills
/// one FPDU.
pub const RECEIVE_SIZE: u32 = 64 * 1024;

/// By what two sides carry a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    pub mpa: Terms,
    /// Bytes of a receive buffer, and how many were posted at first: this side's, and the peer's.
    pub own: (u32, u16),
    pub peer: (u32, u16),
    /// From how many bytes on this side advertises its buffers, if it does.
    pub adverts: Option<usize>,
    pub windows: Windows,
}

/// How each direction is controlled (`window`), if not by the kernel's buffers. Sizes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Windows {
    /// What this side sends: the peer's receive buffer, and this side's own.
    pub sends: Option<(u64, u64)>,
    /// What it receives: its receive buffer.
    pub receives: Option<u64>,
    /// This side keeps few receive buffers (the credit scheme), of which it tells a peer that asks.
    pub keeps: bool,
    /// The peer does, and knows of a sender that goes on without them.
    pub slots: bool,
    pub releases: bool,
}

/// What this side has heard since it asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    Nothing,
    /// What may be the beginning of an answer.
    Part,
    Agreed,
    Declined,
}

/// A connection is light if it has sent no more messages than that, and received no more octets.
const LIGHT_MESSAGES: u64 = 16;
const LIGHT_OCTETS: u64 = 64 * 1024;

/// Bytes that have come back and not gone out again, at most.
const GIVEN: usize = 128 * 1024;

/// One connection's state.
#[derive(Debug)]
pub struct Wire {
    pub common: Common,
    asker: UnsafeCell<Option<Asker>>,
    /// When its memory was mapped (`sys::kept`).
    age: usize,
    out: UnsafeCell<Out>,
    incoming: UnsafeCell<In>,
}

// SAFETY: the halves are reached under their locks (see `out` and `incoming`), the rest is atomics.
unsafe impl Sync for Wire {}

impl Wire {
    /// A connection that has agreed (the side that was asked).
    ///
    /// # Errors
    /// As mmap(2).
    pub fn agreed(agreed: &Agreed) -> Result<NonNull<Self>> {
        let at = Self::asking(None)?;
        // SAFETY: nobody else has it yet.
        unsafe {
            let wire = at.as_ref();
            wire.incoming().settle(&wire.common, Some(agreed), 0);
            wire.out().settle(Some(agreed));
        }
        Ok(at)
    }

    /// A connection that is about to ask, and will be told.
    ///
    /// # Errors
    /// As mmap(2).
    pub fn asking(asker: Option<Asker>) -> Result<NonNull<Self>> {
        let at = match kept::take(size_of::<Self>()) {
            Some(at) => at,
            None => Mapping::family(size_of::<Self>())?.leak(),
        };
        let at = at.cast::<Self>();
        // SAFETY: memory of that size and page alignment, not seen by anybody else. The large buffers are left as they are: bytes,
        // for which anything will do, and untouched pages cost nothing.
        unsafe {
            (&raw mut (*at.as_ptr()).common).write(Common::new());
            (&raw mut (*at.as_ptr()).age).write(kept::age());
            (&raw mut (*at.as_ptr()).asker).write(UnsafeCell::new(asker));
            Out::begin((&raw mut (*at.as_ptr()).out).cast());
            In::begin((&raw mut (*at.as_ptr()).incoming).cast());
        }
        Ok(at)
    }

    /// Takes in what has come since this side has asked. True once it is decided how both go on: then the sending
    /// half is to be served, for what it has taken meanwhile. `late`: the rest of an answer has had its time.
    ///
    /// # Safety
    /// The caller holds both locks.
    pub unsafe fn hear(&self, fd: i32, late: bool) -> Heard {
        // SAFETY: the caller's promise.
        let (asker, mut incoming, mut out) =
            unsafe { (*self.asker.get(), self.incoming(), self.out()) };
        let Some(asker) = asker else {
            return Heard::Agreed;
        };
        let is_all = incoming.look_for_reply(fd);
        let (heard, agreed, used) = match asker.hear(incoming.reply()) {
            Reply::Partial if !is_all && incoming.reply().is_empty() => return Heard::Nothing,
            Reply::Partial if !is_all && !late => return Heard::Part,
            // It ended, or said something else, before it has answered.
            Reply::Partial | Reply::Foreign => (Heard::Declined, None, 0),
            Reply::Declined(used) => (Heard::Declined, None, used),
            Reply::Agreed(agreed, used) => (Heard::Agreed, Some(agreed), used),
        };
        if used > 0 {
            // (to take nothing would be to take an error that the program is to get)
            let _ = net::discard(fd, used);
        }
        // (who dies on the way leaves halves that nobody can go on with)
        self.common.settles.store(true, Ordering::SeqCst);
        // SAFETY: as above.
        unsafe { *self.asker.get() = None };
        incoming.settle(&self.common, agreed.as_ref(), used);
        out.settle(agreed.as_ref());
        incoming.note();
        out.note();
        self.common.settles.store(false, Ordering::SeqCst);
        heard
    }

    /// The kernel connection has failed before anybody was asked or answered: both halves go on with plain bytes, and the program
    /// is told of the error.
    ///
    /// # Safety
    /// Nobody else has it yet.
    pub unsafe fn fail(&self, e: Errno) {
        // SAFETY: the caller's promise.
        unsafe {
            *self.asker.get() = None;
            self.incoming().settle(&self.common, None, 0);
            self.out().settle(None);
        }
        self.common.fail(e);
    }

    /// From now on several processes hold the connection, or one alone again.
    ///
    /// # Safety
    /// The caller holds both locks.
    pub unsafe fn share(&self, on: bool) {
        // SAFETY: the caller's promise.
        unsafe {
            self.out().share(on);
            self.incoming().share(on);
        }
    }

    /// Whether this side has asked and has not been told.
    ///
    /// # Safety
    /// The caller holds one of the locks.
    #[must_use]
    pub unsafe fn is_asking(&self) -> bool {
        // SAFETY: the caller's promise: it changes under both.
        unsafe { (*self.asker.get()).is_some() }
    }

    /// Passes on what has come back, where this side waits for that; once all has, it goes on with plain bytes. Whether it did.
    ///
    /// # Errors
    /// As send(2).
    ///
    /// # Safety
    /// The caller holds both locks.
    pub unsafe fn resume(&self, fd: i32) -> Result<bool> {
        if !self.common.is_returning(Return::Waits) {
            return Ok(false);
        }
        // SAFETY: the caller's promise.
        let (mut incoming, mut out) = unsafe { (self.incoming(), self.out()) };
        loop {
            // (whoever has died here may have sent more than the receiving half knows of)
            incoming.take_given(out.passed());
            incoming.go_on(&self.common);
            incoming.note();
            if incoming.given().is_empty() {
                break;
            }
            if out.pass_on(&self.common, fd, incoming.given())? == 0 {
                return Ok(false);
            }
        }
        if !self.common.is_returning(Return::Whole) || !incoming.is_at_end_of_mode() {
            return Ok(false);
        }
        // (noted first: to find that it goes on already is harmless)
        out.resume();
        Ok(self.common.end_return(Return::Waits))
    }

    /// The ring is over for this side, whatever it was doing: nothing more is taken from it than has landed.
    ///
    /// # Safety
    /// The caller holds both locks.
    pub unsafe fn end_ring(&self) {
        if let Some(ring) = self.common.ring.get() {
            ring.end();
            // SAFETY: the caller's promise.
            unsafe { self.incoming() }.land(ring);
        }
    }

    /// The ring, if it is over and both directions are done with it: nobody uses it any more.
    ///
    /// # Safety
    /// The caller holds both locks.
    pub unsafe fn take_ring(&self) -> Option<NonNull<crate::ring::Ring>> {
        let ring = self.common.ring.get()?;
        let over = ring.is_over() && !ring.is_expected();
        // SAFETY: the caller's promise.
        let done = unsafe { self.out().is_by_kernel() && self.incoming().is_by_kernel() };
        (over && done).then(|| self.common.ring.take()).flatten()
    }

    /// Gives the memory back; its addresses stay valid for threads that were on their way to look.
    ///
    /// # Safety
    /// From [`Self::agreed`] or [`Self::asking`], once.
    pub unsafe fn release(at: NonNull<Self>) {
        // SAFETY: the caller's promise. What no child of fork has is nobody else's.
        unsafe {
            if !(at.as_ref().is_light() && kept::keep(at.cast(), size_of::<Self>())) {
                retired::retire_at(at.cast(), size_of::<Self>());
            }
        }
    }

    /// Takes the memory out of this process, which is done with it while others go on.
    ///
    /// # Safety
    /// As [`Self::release`].
    pub unsafe fn leave(at: NonNull<Self>) {
        // SAFETY: the caller's promise.
        unsafe { retired::retire_at(at.cast(), size_of::<Self>()) };
    }

    /// Whether its memory is worth keeping for another: no child of fork has it, and so little has gone by here that few of its
    /// pages were touched.
    ///
    /// # Safety
    /// Nobody else uses it.
    unsafe fn is_light(&self) -> bool {
        // SAFETY: the caller's promise.
        let (out, incoming) = unsafe { (&*self.out.get(), &*self.incoming.get()) };
        self.age == kept::age()
            && out.counts().0 <= LIGHT_MESSAGES
            && incoming.octets() <= LIGHT_OCTETS
    }

    /// The sending half. What a process left that died within it is put right first.
    ///
    /// # Safety
    /// The caller holds the sending lock of the connection for as long as it has this, and has it once.
    #[inline]
    pub unsafe fn out(&self) -> Turn<'_, Out> {
        // SAFETY: the caller's promise.
        Turn::begin(unsafe { &mut *self.out.get() }, &self.common)
    }

    /// The receiving half, likewise.
    ///
    /// # Safety
    /// The caller holds the receiving lock of the connection for as long as it has this, and has it once.
    #[inline]
    pub unsafe fn incoming(&self) -> Turn<'_, In> {
        // SAFETY: the caller's promise.
        Turn::begin(unsafe { &mut *self.incoming.get() }, &self.common)
    }
}
