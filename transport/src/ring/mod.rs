//! A pair of rings between two hosts, moved by RDMA adapters: each side has a *staging* ring that it fills, and the
//! peer an *incoming* ring that this side's adapter copies it to (RDMA Write), so that a receiver finds its bytes in
//! its own memory. What goes by it are the same octets that the kernel connection would carry (`wire`): a ring is
//! begun and ended at any octet, and the kernel connection stays there for the word that ends it, and for all after.
//!
//! | file | owns |
//! |---|---|
//! | `memory` | where the rings lie |
//! | `tell` | what one side tells the other with what it puts |
//! | `slots` | the credit scheme: octets by Sends, into receives that the other side has posted |
//! | `posting` | work requests that are under way, what comes of them and from the peer, and the event for sleepers |
//! | [`Tx`], [`Rx`] (`sending`, `receiving`) | which way each direction goes now; used under the lock of the direction |
//! | `loans`, [`Lent`] (`lending`), [`Borrowed`] (`borrowing`) | large messages past the rings: buffers that the peer's adapter reads |
//! | `records` | what goes over the kernel connection meanwhile |
//!
//! Rules:
//! - A side writes to the peer's ring and tells it so with the same work request (RDMA Write with immediate data); what
//!   the peer tells is checked whenever it is used.
//! - Where the receiver keeps slots (the credit scheme) a side sends instead (Send), and what has landed says so itself; all else
//!   is the same.
//! - What has been put stays in the staging ring until the peer says that its program's side has taken it. So if the
//!   adapter, the link or the process that has the queue pair fails, both sides say by the kernel connection how much
//!   they have received ([`Record::Over`](records::Record)), and the rest goes again by the kernel: no octet is lost or
//!   comes twice, whatever was under way.
//! - Who sleeps is woken by the adapter's event beside the kernel connection: it arms that ([`Ring::arm`]) and looks once
//!   more. A peer whose program is elsewhere is no hindrance, and it has nothing to do for it.

mod borrowing;
mod lending;
mod loans;
mod memory;
mod posting;
mod receiving;
pub mod records;
mod sending;
mod slots;
mod stage;
mod tell;
mod terms;
#[cfg(test)]
#[allow(
    clippy::undocumented_unsafe_blocks,
    reason = "both ends are in one process, and each call is made where its locks would be held"
)]
mod tests;

pub use borrowing::Borrowed;
pub use lending::Lent;
pub(crate) use loans::PIECE;
pub use posting::Armed;
pub use receiving::{Begun, Rx};
pub use sending::Tx;
pub use terms::{TERMS, Terms};

use crate::sys::mem::Mapping;
use crate::sys::{self, Result};
use crate::verbs::{Adapter, Side};
use loans::Loans;
use memory::Area;
use posting::Posting;
use slots::{Incoming, Outgoing};
use stage::{Event, Stage};
use std::net::IpAddr;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of one ring of a connection that carries much, and of any other. All of it is registered, which means in memory for
/// good: of a thousand connections that ask and answer most would never use what a stream needs.
pub const RING: usize = 512 * 1024;
pub const SMALL: usize = 64 * 1024;

/// What a peer may have least.
const LEAST: usize = 4096;

/// Bytes in front of what is registered: the [`Ring`] itself.
const FRONT: usize = 4096;

/// No position.
const NONE: u64 = u64::MAX;

/// A position in a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    /// Octets that were put to the peer's incoming ring.
    Put,
    /// Octets that were taken from this side's incoming ring.
    Taken,
}

const _: () = assert!(size_of::<Ring>() <= FRONT);

/// One side of a pair. It lies in memory that children of fork share; the adapter is the process's that made it.
#[derive(Debug)]
pub struct Ring {
    area: Area,
    adapter: NonNull<dyn Adapter>,
    owner: u32,
    lkey: u32,
    peer: std::cell::Cell<(u64, u32)>,
    posting: Posting,
    stage: Stage,
    /// The adapter's event.
    event: i32,
    /// How much this side has put, and taken.
    own: [AtomicU64; 2],
    /// The same of the peer, as it has told.
    heard: [AtomicU64; 2],
    /// Octets that this side has received by it, once it is over.
    landed: AtomicU64,
    /// Octets that the peer has received, once it has said so.
    peer_landed: AtomicU64,
    loans: Loans,
    /// Of directions that go by Sends.
    incoming: Incoming,
    outgoing: Outgoing,
}

// SAFETY: all that changes is atomic, or belongs to one direction and is used under its lock; `peer` is written
// once, before anybody else has the ring.
unsafe impl Sync for Ring {}

impl Ring {
    /// A ring of so many octets each way for a connection with this local address, if an adapter serves it. With `slots` the peer is to
    /// send, into receives of this side's, if the adapter has that. Takes as long as the adapter does:
    /// not on a thread of the program.
    #[must_use]
    pub fn open(local: &IpAddr, side: Side, ring: usize, slots: bool) -> Option<NonNull<Self>> {
        Self::make(ring, slots, |registered| {
            let len = Area::octets(ring, slots);
            let slot = u32::try_from(Area::slot(ring)).ok().filter(|_| slots);
            // SAFETY: it stays mapped until `close`, and everything reads it as memory that others write.
            unsafe { crate::verbs::open(local, registered, len, side, slot) }
        })
    }

    /// A ring moved by this adapter.
    #[cfg(test)]
    fn over(
        ring: usize,
        slots: bool,
        adapter: impl FnOnce(NonNull<u8>) -> Box<dyn Adapter>,
    ) -> Option<NonNull<Self>> {
        Self::make(ring, slots, |registered| Some(adapter(registered)))
    }

    fn make(
        ring: usize,
        slots: bool,
        open: impl FnOnce(NonNull<u8>) -> Option<Box<dyn Adapter>>,
    ) -> Option<NonNull<Self>> {
        let len = FRONT + Area::octets(ring, slots);
        let base = Mapping::family(len).ok()?.leak();
        // SAFETY: within the mapping.
        let registered = unsafe { base.add(FRONT) };
        let Some(adapter) = open(registered) else {
            // SAFETY: nobody has seen it.
            unsafe { sys::retired::retire_at(base, len) };
            return None;
        };
        let (lkey, event) = (adapter.lkey(), adapter.event());
        let slot = u32::try_from(Area::slot(ring)).unwrap_or(0); // (at most `RING`)
        let incoming = Incoming::new(slot, adapter.takes_sends());
        let adapter = NonNull::from(Box::leak(adapter));
        let at = base.cast::<Self>();
        // SAFETY: fresh memory, page aligned and large enough, not seen by anybody else.
        unsafe {
            at.write(Self {
                area: Area::new(registered, ring, slots),
                adapter,
                lkey,
                owner: sys::pid().cast_unsigned(),
                peer: std::cell::Cell::new((0, 0)),
                posting: Posting::new(),
                stage: Stage::new(),
                event,
                own: [const { AtomicU64::new(0) }; 2],
                heard: [const { AtomicU64::new(0) }; 2],
                landed: AtomicU64::new(NONE),
                peer_landed: AtomicU64::new(NONE),
                loans: Loans::new(),
                incoming,
                outgoing: Outgoing::new(),
            });
        }
        Some(at)
    }

    /// Gives everything back. Takes as long as the adapter does; the memory's addresses stay valid for a while.
    ///
    /// # Safety
    /// From [`Self::open`], once, and nobody goes on to use it but to look at its words.
    pub unsafe fn close(at: NonNull<Self>) {
        // SAFETY: the caller's promise.
        let ring = unsafe { at.as_ref() };
        ring.end();
        // (one that cannot be had is left as it is: better than to take it from under somebody)
        if ring.owner == sys::pid().cast_unsigned() {
            if !ring.posting.shut() {
                return;
            }
            ring.adapter().fail();
            // SAFETY: leaked in `open`, by this process.
            drop(unsafe { Box::from_raw(ring.adapter.as_ptr()) });
        }
        let len = FRONT + ring.area.len();
        // SAFETY: the caller's promise.
        unsafe { sys::retired::retire_at(at.cast(), len) };
    }

    /// In a child of fork: the adapter is the parent's, and its event is not to live on here. Once.
    pub fn forget(&self) {
        self.adapter().forget();
    }

    /// What the peer has to know.
    #[must_use]
    pub fn terms(&self) -> Terms {
        Terms {
            address: self.adapter().address(),
            area: self.area.address(),
            rkey: self.adapter().rkey(),
            ring: u32::try_from(self.area.has()).unwrap_or(0), // (at most `RING`)
        }
    }

    /// Octets that can be on their way, each way.
    #[inline]
    #[must_use]
    pub fn size(&self) -> usize {
        self.area.uses()
    }

    /// Octets that a peer takes before it tells, and that there has to be room for before a sender is told.
    #[inline]
    #[must_use]
    pub fn worth(&self) -> usize {
        self.size() / 8
    }

    /// Connects to the peer's ring, or begins to. Before anybody else has this one, or the peer begins.
    ///
    /// # Errors
    /// The adapter's.
    pub fn connect(&self, peer: &Terms) -> Result<()> {
        self.adapter().connect(&peer.address)?;
        self.area.fit(peer.ring as usize);
        self.outgoing.begin(peer.address.takes_sends());
        self.peer.set((peer.area, peer.rkey));
        Ok(())
    }

    /// Goes on with that: whether it is done. To be asked by the thread that takes it down, until it is.
    ///
    /// # Errors
    /// It will not be.
    pub fn is_connected(&self) -> Result<bool> {
        self.adapter().is_connected()
    }

    /// The adapter. It is the process's that made it: whoever posts has asked [`Self::is_over`], and before a fork the
    /// ring is ended.
    fn adapter(&self) -> &dyn Adapter {
        // SAFETY: leaked in `open`, given back in `close` only.
        unsafe { self.adapter.as_ref() }
    }

    /// The key of the memory for this side's requests.
    fn lkey(&self) -> u32 {
        self.lkey
    }

    /// Nothing more goes by it from here, and nothing is taken that has not landed yet. Both directions' locks come
    /// next, for [`Rx::land`].
    pub fn end(&self) {
        self.stage.set(Event::Over);
    }

    /// Whether this side's adapter has failed: it, its link, or the peer's.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.stage.has(Event::Failed)
    }

    /// Whether it is over for this side.
    #[inline]
    #[must_use]
    pub fn is_over(&self) -> bool {
        !self.stage.is(Event::There, Event::Over)
    }

    /// Whether it is over, and what has landed by then has not been fixed ([`Rx::land`]).
    #[must_use]
    pub fn is_to_land(&self) -> bool {
        self.is_over() && self.landed.load(Ordering::Acquire) == NONE
    }

    /// How much this side has put, or taken.
    #[inline]
    fn own(&self, word: Word) -> &AtomicU64 {
        let [put, taken] = &self.own;
        match word {
            Word::Put => put,
            Word::Taken => taken,
        }
    }

    #[inline]
    fn heard_of(&self, word: Word) -> &AtomicU64 {
        let [put, taken] = &self.heard;
        match word {
            Word::Put => put,
            Word::Taken => taken,
        }
    }

    /// Octets that were put and taken, by both sides: as long as that stays the same, nothing goes by it.
    #[must_use]
    pub fn moved(&self) -> u64 {
        let all = self.own.iter().chain(&self.heard);
        all.fold(0, |sum, word| {
            sum.wrapping_add(word.load(Ordering::Relaxed))
        })
    }

    /// How much the peer has put, or taken, as far as it was heard.
    #[inline]
    fn heard(&self, word: Word) -> u64 {
        self.heard_of(word).load(Ordering::Acquire)
    }

    /// The peer has put or taken more.
    fn hear(&self, word: Word, n: u32) {
        self.heard_of(word).fetch_add(n.into(), Ordering::AcqRel);
    }

    /// Octets that can be taken.
    #[inline]
    #[must_use]
    pub fn available(&self) -> usize {
        match self.arrived() {
            0 => {
                self.reap();
                self.arrived()
            }
            here => here,
        }
    }

    /// The same, as far as it was heard.
    fn arrived(&self) -> usize {
        let put = match self.landed.load(Ordering::Acquire) {
            NONE => self.heard(Word::Put),
            landed => landed,
        };
        let taken = self.own(Word::Taken).load(Ordering::Acquire);
        usize::try_from(put.wrapping_sub(taken)).unwrap_or(usize::MAX)
    }

    /// Whether the peer is known to have taken all that was put. (It tells of an eighth of a ring at a time: if not, it may have.)
    #[must_use]
    pub fn is_all_taken(&self) -> bool {
        self.reap();
        self.heard(Word::Taken) == self.own(Word::Put).load(Ordering::Acquire)
    }

    /// Whether the peer has not taken all that was put: more is left than it may have taken and not told of.
    #[must_use]
    pub fn is_much_left(&self) -> bool {
        self.reap();
        let put = self.own(Word::Put).load(Ordering::Acquire);
        put.wrapping_sub(self.heard(Word::Taken)) > self.worth() as u64
    }

    /// Octets that can be put.
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        self.checked_room().unwrap_or(0)
    }

    /// The same; nothing if the peer says that it has taken what was never put.
    fn checked_room(&self) -> Option<usize> {
        match self.known_room()? {
            few if few < self.worth() => {
                self.reap();
                self.known_room()
            }
            room => Some(room),
        }
    }

    fn known_room(&self) -> Option<usize> {
        let taken = self.heard(Word::Taken); // (before what it is compared with, which goes on)
        let put = self.own(Word::Put).load(Ordering::Acquire);
        let room = self
            .size()
            .checked_sub(usize::try_from(put.checked_sub(taken)?).ok()?)?;
        Some(if self.outgoing.is_on() {
            self.outgoing.credits() * self.slot()
        } else {
            room
        })
    }

    /// Whether either direction has no room, or may have none: in slots a few octets may take all there are. As far as was heard.
    #[must_use]
    pub fn is_stuffed(&self) -> bool {
        let here = self.arrived();
        let slots = self.incoming.is_on() && here > 0;
        let room = self.known_room().unwrap_or(0);
        slots || here.saturating_add(self.worth()) > self.size() || room < self.worth()
    }

    /// Octets that one Send has at most.
    fn slot(&self) -> usize {
        Area::slot(self.size())
    }

    /// The peer has received so many octets by it and no more.
    fn peer_is_over(&self, received: u64) {
        self.peer_landed.store(received, Ordering::Release);
        self.end();
    }

    /// Whether the sending direction has not begun to go by it; it has now. Under the sending lock.
    #[must_use]
    pub fn is_to_begin(&self) -> bool {
        !self.stage.set(Event::Begun)
    }

    /// It could not be said.
    pub fn is_still_to_begin(&self) {
        self.stage.clear(Event::Begun);
    }

    /// The peer may begin from now on.
    pub fn expect(&self) {
        self.stage.set(Event::Expected);
    }

    /// The peer has begun, or will not.
    pub fn expect_no_more(&self) {
        self.stage.clear(Event::Expected);
    }

    /// Whether the peer may still begin.
    #[must_use]
    pub fn is_expected(&self) -> bool {
        self.stage.has(Event::Expected)
    }

    /// Whether both directions have begun.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.stage.has(Event::Begun) && !self.is_expected()
    }

    /// The kernel connection has ended: who sends is told there.
    pub fn peer_is_gone(&self) {
        self.stage.set(Event::Gone);
    }

    /// Whether the peer is to be told how much was taken ([`Rx::tell`]), which could not be done.
    #[must_use]
    pub fn is_untold(&self) -> bool {
        self.stage.has(Event::Untold)
    }
}
