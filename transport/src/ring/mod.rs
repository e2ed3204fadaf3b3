//! A pair of rings between two hosts, moved by RDMA adapters: each side has a *staging* ring that it fills, and the
//! peer an *incoming* ring that this side's adapter copies it to (RDMA Write), so that a receiver finds its bytes in
//! its own memory. What goes by it are the same octets that the kernel connection would carry (`wire`): a ring is
//! begun and ended at any octet, and the kernel connection stays there for bells, and for all once the ring is over.
//!
//! | file | owns |
//! |---|---|
//! | `memory` | where the words and rings lie, and how a word that an adapter writes is read |
//! | `posting` | work requests that are under way, and what their completions say |
//! | [`Tx`], [`Rx`] (`sending`, `receiving`) | which way each direction goes now; used under the lock of the direction |
//! | `records` | what goes over the kernel connection meanwhile |
//!
//! Rules:
//! - A side writes to its own words and has its adapter copy them to the peer; what the peer's adapter wrote is checked
//!   whenever it is read.
//! - What has been put stays in the staging ring until the peer says that its program's side has taken it. So if the
//!   adapter, the link or the process that has the queue pair fails, both sides say by the kernel connection how much
//!   they have received ([`Record::Over`](records::Record)), and the rest goes again by the kernel: no octet is lost or
//!   comes twice, whatever was under way.
//! - Who sleeps is woken by a bell on the kernel connection. Before it sleeps it states the wish in the peer's memory
//!   (Write) and then reads how far the peer is (Read): one queue pair keeps that order at the peer, who in turn
//!   says how far it is before it looks for a wish. One of the two sees the other (Dekker), without the peer's
//!   program or any thread of it taking part.

mod memory;
mod posting;
mod receiving;
pub mod records;
mod sending;
mod stage;
mod terms;
#[cfg(test)]
#[allow(
    clippy::undocumented_unsafe_blocks,
    reason = "both ends are in one process, and each call is made where its locks would be held"
)]
mod tests;

pub use receiving::{Begun, Rx};
pub use sending::Tx;
pub use terms::{TERMS, Terms};

use crate::sys::mem::Mapping;
use crate::sys::{self, Errno, Result};
use crate::verbs::Adapter;
use memory::{Area, Heard, Word};
use posting::Posting;
#[cfg(test)]
use records::Record;
use stage::{Event, Stage};
use std::net::IpAddr;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes of one ring.
pub const RING: usize = 256 * 1024;

/// Octets that a peer takes before it tells, and that there has to be room for before a sender is told.
pub const WORTH: usize = RING / 4;

/// Bytes in front of what is registered: the [`Ring`] itself.
const FRONT: usize = 4096;

/// No position.
const NONE: u64 = u64::MAX;

/// What a side can wish to be rung for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Octets to receive.
    Data,
    /// Room in the staging ring.
    Room,
}

/// What came of a wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wished {
    /// It stands: the peer rings at the next event.
    Stands,
    /// What is wished for is there, or on its way.
    Soon,
    /// It is not known: look again before long.
    Unknown,
}

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
    /// The last that the peer told: how much it has put, how much taken.
    seen: [AtomicU64; 2],
    /// Octets that this side has received by it, once it is over.
    landed: AtomicU64,
    /// Octets that the peer has received, once it has said so.
    peer_landed: AtomicU64,
    /// Wishes of this side that stand at the peer.
    standing: [AtomicU32; 2],
}

// SAFETY: all that changes is atomic, or belongs to one direction and is used under its lock; `peer` is written
// once, before anybody else has the ring.
unsafe impl Sync for Ring {}

impl Ring {
    /// A ring for a connection with this local address, if an adapter serves it. Takes as long as the adapter does:
    /// not on a thread of the program.
    #[must_use]
    pub fn open(local: &IpAddr) -> Option<NonNull<Self>> {
        // SAFETY: it stays mapped until `close`, and everything reads it as memory that others write.
        Self::make(|registered| unsafe { crate::verbs::open(local, registered, Area::LEN) })
    }

    /// A ring moved by this adapter.
    #[cfg(test)]
    fn over(adapter: Box<dyn Adapter>) -> Option<NonNull<Self>> {
        Self::make(|_| Some(adapter))
    }

    fn make(open: impl FnOnce(NonNull<u8>) -> Option<Box<dyn Adapter>>) -> Option<NonNull<Self>> {
        let base = Mapping::family(FRONT + Area::LEN).ok()?.leak();
        // SAFETY: within the mapping.
        let registered = unsafe { base.add(FRONT) };
        let Some(adapter) = open(registered) else {
            // SAFETY: nobody has seen it.
            unsafe { sys::mem::retire_at(base, FRONT + Area::LEN) };
            return None;
        };
        let lkey = adapter.lkey();
        let adapter = NonNull::from(Box::leak(adapter));
        let at = base.cast::<Self>();
        // SAFETY: fresh memory, page aligned and large enough, not seen by anybody else.
        unsafe {
            at.write(Self {
                area: Area::new(registered),
                adapter,
                lkey,
                owner: sys::pid().cast_unsigned(),
                peer: std::cell::Cell::new((0, 0)),
                posting: Posting::new(),
                stage: Stage::new(),
                seen: [const { AtomicU64::new(0) }; 2],
                landed: AtomicU64::new(NONE),
                peer_landed: AtomicU64::new(NONE),
                standing: [const { AtomicU32::new(0) }; 2],
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
        if ring.owner == sys::pid().cast_unsigned() {
            ring.adapter().fail();
            // SAFETY: leaked in `open`, by this process.
            drop(unsafe { Box::from_raw(ring.adapter.as_ptr()) });
        }
        // SAFETY: the caller's promise.
        unsafe { sys::mem::retire_at(at.cast(), FRONT + Area::LEN) };
    }

    /// What the peer has to know.
    #[must_use]
    pub fn terms(&self) -> Terms {
        Terms {
            address: self.adapter().address(),
            area: self.area.address(),
            rkey: self.adapter().rkey(),
        }
    }

    /// Connects to the peer's ring. Before anybody else has this one.
    ///
    /// # Errors
    /// The adapter's.
    pub fn connect(&self, peer: &Terms) -> Result<()> {
        self.adapter().connect(&peer.address)?;
        self.peer.set((peer.area, peer.rkey));
        Ok(())
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

    /// The adapter has failed: so the ring is over.
    fn fail(&self) {
        self.stage.set(Event::Failed);
        self.end();
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
        self.stage.has(Event::Over)
    }

    /// Octets that can be taken.
    #[inline]
    #[must_use]
    pub fn available(&self) -> usize {
        let put = match self.landed.load(Ordering::Acquire) {
            NONE => self.heard(Word::Put),
            landed => landed,
        };
        usize::try_from(put.wrapping_sub(self.area.told(Word::Taken))).unwrap_or(usize::MAX)
    }

    /// Octets that can be put.
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        self.checked_room().unwrap_or(0)
    }

    /// The same; nothing if the peer says that it has taken what was never put.
    fn checked_room(&self) -> Option<usize> {
        let taken = self.taken_by_peer(); // (before what it is compared with, which goes on)
        let under_way = self.area.told(Word::Put).checked_sub(taken)?;
        RING.checked_sub(usize::try_from(under_way).ok()?)
    }

    /// What the peer has told of this. It only grows: where a word is just being written, what it said before counts.
    #[inline]
    fn heard(&self, word: Word) -> u64 {
        let [put, taken] = &self.seen;
        let seen = match word {
            Word::Put => put,
            Word::Taken => taken,
        };
        match self.area.heard(word) {
            Heard::Value(now) if now > seen.load(Ordering::Relaxed) => {
                seen.fetch_max(now, Ordering::AcqRel).max(now)
            }
            _ => seen.load(Ordering::Acquire),
        }
    }

    /// What the peer is known to have taken: it was told, or has been asked for.
    fn taken_by_peer(&self) -> u64 {
        let told = self.heard(Word::Taken);
        match self.area.answered(Word::Taken) {
            Heard::Value(answer) => told.max(answer),
            Heard::Torn => told,
        }
    }

    /// Whether all that has been put is in the peer's memory.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.reap();
        self.posting.is_quiet()
    }

    /// Takes in what the adapter has done; ends the ring if it has failed. Cheap where nothing is under way.
    pub fn reap(&self) {
        if !self.is_over() && self.posting.reap(self.adapter()).is_err() {
            self.fail();
        }
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

    /// The kernel connection has ended.
    fn peer_is_gone(&self) {
        self.stage.set(Event::Gone);
    }

    /// Wishes to be rung, under the lock of the direction that is meant. See the module.
    pub fn wish(&self, wish: Wish) -> Wished {
        let at = wish as usize;
        let (word, known) = match wish {
            Wish::Data => (Word::Put, self.heard(Word::Put)),
            Wish::Room => (Word::Taken, self.taken_by_peer()),
        };
        let Some(standing) = self.standing.get(at) else {
            return Wished::Unknown;
        };
        if self.is_over() {
            return Wished::Unknown;
        }
        if standing.load(Ordering::Acquire) != 0 {
            return Wished::Stands;
        }
        if wish == Wish::Room && !self.is_quiet() {
            return Wished::Unknown; // the answer would come behind all that is under way: look again when that is done
        }
        match self.posting.ask(self, wish, word) {
            Err(Errno::AGAIN) => Wished::Unknown,
            Err(_) => {
                self.fail();
                Wished::Unknown
            }
            Ok(now) => {
                standing.store(1, Ordering::Release);
                if now == known {
                    Wished::Stands
                } else {
                    Wished::Soon
                }
            }
        }
    }

    /// A bell has come: what was wished for has to be wished anew.
    fn rung(&self) {
        for standing in &self.standing {
            standing.store(0, Ordering::Release);
        }
    }

    /// Whether the peer wishes to be rung for this, after it was told; once.
    fn must_ring(&self, wish: Wish) -> bool {
        self.area.take_wish(wish)
    }

    /// Whether the peer is to be told how much was taken ([`Rx::tell`]), which could not be done.
    #[must_use]
    pub fn is_untold(&self) -> bool {
        self.stage.has(Event::Untold)
    }

    /// A bell is to be sent by whoever has the sending lock next.
    fn want_bell(&self) {
        self.stage.set(Event::Bell);
    }

    /// Whether a bell is to be sent.
    #[must_use]
    pub fn wants_bell(&self) -> bool {
        self.stage.has(Event::Bell)
    }
}
