//! One side's view of one segment: its control words and its two regions, and the copies in and out.
//!
//! Called by `sdp`. Invariant: every offset handed in is one that `flowctl` has bounded by the region's
//! size; it is masked again here, so that no mistake above can reach outside the mapping. The peer may
//! write to all of this at any time, so no reference is ever made to region bytes, only raw copies.

use super::layout::{CONTROL, Control, FIN_NONE, Side, UNSTATED};
use crate::sync::{AtomicU32, Ordering};
use crate::sys::copy::copy;
use crate::sys::mem::Mapping;
use flowctl::{Piece, Untrusted};
use std::ptr::NonNull;

/// Which side of the connection this process is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Client,
    Server,
}

/// In [`Segment::shape`]: this process is the server.
const SERVER: u8 = 0x80;

/// No user's id.
const NOBODY: u32 = u32::MAX;

/// A mapped segment as seen from one side. Copyable: the mapping belongs to the arena, which outlives
/// every use (segments are unmapped only once both sides have let go).
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    base: NonNull<u8>,
    /// The kernel's word for whom the other end belongs to.
    peer_user: u32,
    /// The region's size is two to the power of the low bits; the highest is the role. (Few bytes: every connection keeps one of
    /// these.)
    shape: u8,
    /// Its place in the arena.
    slot: u8,
    /// This process's own number for the arena.
    arena: u16,
}

// SAFETY: shared words are atomics, and region bytes are touched only under the lock of their direction.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// # Safety
    /// `mapping` holds a segment with regions of `region` bytes, a power of two below 4 GiB, and outlives
    /// every copy of the result.
    #[must_use]
    pub const unsafe fn new(
        mapping: &Mapping,
        region: usize,
        role: Role,
        (arena, slot): (u16, u8),
    ) -> Self {
        let server = match role {
            Role::Client => 0,
            Role::Server => SERVER,
        };
        #[allow(clippy::cast_possible_truncation)]
        Self {
            base: mapping.base(),
            peer_user: NOBODY,
            shape: region.trailing_zeros() as u8 | server,
            slot,
            arena,
        }
    }

    /// Which side this process is on.
    #[inline]
    #[must_use]
    pub const fn role(&self) -> Role {
        if self.shape & SERVER == 0 {
            Role::Client
        } else {
            Role::Server
        }
    }

    /// Its place in the arena.
    #[inline]
    #[must_use]
    pub const fn slot(&self) -> u8 {
        self.slot
    }

    /// Tells the arenas of this process apart.
    #[must_use]
    pub const fn arena(&self) -> u16 {
        self.arena
    }

    /// Notes to whom the other end belongs.
    pub const fn set_peer_user(&mut self, uid: u32) {
        self.peer_user = uid;
    }

    /// Whether the other end belongs to the user of this process.
    #[must_use]
    pub fn is_same_user(&self) -> bool {
        self.peer_user == crate::sys::euid()
    }

    /// Bytes of each region.
    #[must_use]
    pub const fn region(&self) -> usize {
        1 << (self.shape & !SERVER)
    }

    /// The control page.
    #[inline]
    #[must_use]
    pub const fn control(&self) -> &Control {
        // SAFETY: the mapping begins with a control page, which is all atomics, valid for any content.
        unsafe { self.base.cast::<Control>().as_ref() }
    }

    /// The words that this side owns.
    #[inline]
    #[must_use]
    pub const fn mine(&self) -> &Side {
        let [client, server] = &self.control().sides;
        match self.role() {
            Role::Client => client,
            Role::Server => server,
        }
    }

    /// The words that the peer owns.
    #[inline]
    #[must_use]
    pub const fn peer(&self) -> &Side {
        let [client, server] = &self.control().sides;
        match self.role() {
            Role::Client => server,
            Role::Server => client,
        }
    }

    #[inline]
    const fn region_base(&self, sender: Role) -> NonNull<u8> {
        let at = match sender {
            Role::Client => CONTROL,
            Role::Server => CONTROL + self.region(),
        };
        // SAFETY: both regions lie inside the mapping.
        unsafe { self.base.add(at) }
    }

    #[inline]
    const fn bounded(&self, piece: Piece) -> (usize, usize) {
        let offset = piece.offset & (self.region() - 1);
        let room = self.region() - offset;
        (offset, if piece.len < room { piece.len } else { room })
    }

    /// Gives the memory of the outgoing region back to the system: it reads as zero then, and is there again at the next
    /// touch. Nothing of it may be in use, and the caller holds the sending lock. (Where memory is locked it stays.)
    pub fn give_back_region(&self) {
        let at = self.region_base(self.role()).as_ptr();
        // SAFETY: inside the mapping, and nobody reads what lies there.
        let _ = unsafe { crate::syscall!(madvise, at, self.region(), libc::MADV_REMOVE) };
    }

    /// Where a piece of the outgoing region lies, for a system call that reads into it.
    #[inline]
    #[must_use]
    pub const fn tx_at(&self, piece: Piece) -> (*mut u8, usize) {
        let (offset, len) = self.bounded(piece);
        // SAFETY: `bounded` keeps the offset inside the region.
        (
            unsafe { self.region_base(self.role()).add(offset) }.as_ptr(),
            len,
        )
    }

    /// Where a piece of the incoming region lies.
    #[inline]
    #[must_use]
    pub const fn rx_at(&self, piece: Piece) -> (*const u8, usize) {
        let (offset, len) = self.bounded(piece);
        let sender = match self.role() {
            Role::Client => Role::Server,
            Role::Server => Role::Client,
        };
        // SAFETY: as above.
        (
            unsafe { self.region_base(sender).add(offset) }.as_ptr(),
            len,
        )
    }

    /// Copies into the outgoing region.
    ///
    /// # Safety
    /// `from` is readable for `piece.len` bytes; this thread holds the sending lock.
    #[inline]
    pub unsafe fn put(&self, piece: Piece, from: *const u8) {
        let (to, len) = self.tx_at(piece);
        // SAFETY: `to` is in the region, `from` is the caller's promise; private memory never overlaps.
        unsafe { copy(from, to, len) };
    }

    /// Copies out of the incoming region.
    ///
    /// # Safety
    /// `to` is writable for `piece.len` bytes; this thread holds the receiving lock.
    #[inline]
    pub unsafe fn take(&self, piece: Piece, to: *mut u8) {
        let (from, len) = self.rx_at(piece);
        // SAFETY: `from` is in the region, `to` is the caller's promise; private memory never overlaps.
        unsafe { copy(from, to, len) };
    }

    /// Whether this side's own barriers may be light. Not a matter of trust: a peer that lies here can
    /// only miss its own bells.
    #[inline]
    pub(crate) fn is_light(&self) -> bool {
        self.peer().bell.heavy.load(Ordering::Acquire) != 0 && crate::sys::barrier::is_light()
    }

    /// Puts all words back to their start. The client does this before it announces the slot.
    pub fn reset(&self) {
        for side in &self.control().sides {
            let Side {
                tx,
                rx,
                bell,
                busy,
                stop,
                terms,
                home,
                source,
                adverts,
                sink,
            } = side;
            let zero = [
                &tx.produced,
                &tx.boundary,
                &tx.origin,
                &tx.queued,
                &tx.posted,
                &tx.segments,
                &tx.control,
                &tx.acknowledged,
                &tx.bells,
                &rx.consumed,
                &rx.advertised,
                &rx.evented,
                &rx.events,
                &busy.taken,
                &busy.taken_first,
                &busy.freed,
                &busy.acknowledged,
                &busy.controls,
                &busy.put_at,
                &terms.receive,
                &tx.offer,
                &home.reach,
                &home.sent,
                &home.received,
                &source.busy,
                &source.lane,
                &sink.posted,
                &sink.progress,
                &sink.busy,
                &sink.fetched,
                &sink.refused,
            ];
            for word in zero.into_iter().chain(&terms.words) {
                word.store(0, Ordering::Relaxed);
            }
            for advert in adverts {
                advert.claim.store(0, Ordering::Relaxed);
                advert.lane.store(0, Ordering::Relaxed);
            }
            home.pid.store(0, Ordering::Relaxed);
            home.owner.store(0, Ordering::Relaxed);
            home.choose(&crate::direct::choice::Choice::new());
            for pass in &home.passes {
                pass.left.store(0, Ordering::Relaxed);
                pass.last.store(0, Ordering::Relaxed);
            }
            source.placed.store(0, Ordering::Relaxed);
            for word in [&home.open, &sink.done, &sink.small, &sink.forgotten] {
                word.store(0, Ordering::Relaxed);
            }
            for word in [&tx.kernel_end, &tx.fast_end, &stop.give_back] {
                word.store(UNSTATED, Ordering::Relaxed);
            }
            tx.fin.store(FIN_NONE, Ordering::Relaxed);
            // Whoever has not yet looked may be asleep in the kernel: the first message rings.
            bell.armed
                .store(crate::doorbell::DATA.into(), Ordering::Relaxed);
            bell.heavy.store(0, Ordering::Relaxed);
            bell.mode.store(0, Ordering::Relaxed);
            bell.slept_at.store(0, Ordering::Relaxed);
            bell.napping.store(0, Ordering::Relaxed);
            bell.ordered.store(0, Ordering::Relaxed);
            busy.putting.store(0, Ordering::Relaxed);
            stop.stop.store(0, Ordering::Relaxed);
        }
    }

    /// Where a word of the outgoing region lies, if it lies inside.
    #[inline]
    fn tx_word(&self, offset: usize) -> Option<&AtomicU32> {
        self.word(self.role(), offset)
    }

    /// Where a word of the incoming region lies, if it lies inside.
    #[inline]
    fn rx_word(&self, offset: usize) -> Option<&AtomicU32> {
        let sender = match self.role() {
            Role::Client => Role::Server,
            Role::Server => Role::Client,
        };
        self.word(sender, offset)
    }

    fn word(&self, sender: Role, offset: usize) -> Option<&AtomicU32> {
        if !offset.is_multiple_of(4) || offset > self.region() - 4 {
            return None;
        }
        // SAFETY: inside the region and aligned; an atomic is valid for any content, and the mapping
        // outlives this view.
        Some(unsafe {
            self.region_base(sender)
                .add(offset)
                .cast::<AtomicU32>()
                .as_ref()
        })
    }

    /// Writes the length of a message into its slot.
    #[inline]
    pub fn write_header(&self, offset: usize, len: u32) {
        if let Some(word) = self.tx_word(offset) {
            word.store(len, Ordering::Relaxed);
        }
    }

    /// A length in the outgoing region, which the peer can have changed.
    pub fn own_header(&self, offset: usize) -> Untrusted<u32> {
        Untrusted::new(
            self.tx_word(offset)
                .map_or(0, |w| w.load(Ordering::Relaxed)),
        )
    }

    /// A length in the incoming region.
    #[inline]
    pub fn header(&self, offset: usize) -> Untrusted<u32> {
        Untrusted::new(
            self.rx_word(offset)
                .map_or(0, |w| w.load(Ordering::Relaxed)),
        )
    }
}
