//! One side's view of one segment: its control words and its two rings, and the copies in and out.
//!
//! Called by `sdp`. Invariant: every offset handed in is one that `flowctl` has bounded by the ring's
//! size; it is masked again here, so that no mistake above can reach outside the mapping. The peer may
//! write to all of this at any time, so no reference is ever made to ring bytes, only raw copies.

use super::layout::{CONTROL, Control, FIN_NONE, Side, UNSTATED};
use crate::sync::Ordering;
use crate::sys::mem::Mapping;
use flowctl::{Piece, Untrusted};
use std::ptr::NonNull;

/// Which side of the connection this process is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Client,
    Server,
}

/// A mapped segment as seen from one side. Copyable: the mapping belongs to the arena, which outlives
/// every use (segments are unmapped only once both sides have let go).
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    base: NonNull<u8>,
    ring: usize,
    role: Role,
}

// SAFETY: shared words are atomics, and ring bytes are touched only under the lock of their direction.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// # Safety
    /// `mapping` holds a segment with rings of `ring` bytes, a power of two, and outlives every copy of
    /// the result.
    #[must_use]
    pub const unsafe fn new(mapping: &Mapping, ring: usize, role: Role) -> Self {
        Self {
            base: mapping.base(),
            ring,
            role,
        }
    }

    /// Bytes of each ring.
    #[must_use]
    pub const fn ring(&self) -> usize {
        self.ring
    }

    #[inline]
    const fn control(&self) -> &Control {
        // SAFETY: the mapping begins with a control page, which is all atomics, valid for any content.
        unsafe { self.base.cast::<Control>().as_ref() }
    }

    /// The words that this side owns.
    #[inline]
    #[must_use]
    pub const fn mine(&self) -> &Side {
        let [client, server] = &self.control().sides;
        match self.role {
            Role::Client => client,
            Role::Server => server,
        }
    }

    /// The words that the peer owns.
    #[inline]
    #[must_use]
    pub const fn peer(&self) -> &Side {
        let [client, server] = &self.control().sides;
        match self.role {
            Role::Client => server,
            Role::Server => client,
        }
    }

    #[inline]
    const fn ring_base(&self, sender: Role) -> NonNull<u8> {
        let at = match sender {
            Role::Client => CONTROL,
            Role::Server => CONTROL + self.ring,
        };
        // SAFETY: both rings lie inside the mapping.
        unsafe { self.base.add(at) }
    }

    #[inline]
    const fn bounded(&self, piece: Piece) -> (usize, usize) {
        let offset = piece.offset & (self.ring - 1);
        let room = self.ring - offset;
        (offset, if piece.len < room { piece.len } else { room })
    }

    /// Where a piece of the outgoing ring lies, for a system call that reads into it.
    #[inline]
    #[must_use]
    pub const fn tx_at(&self, piece: Piece) -> (*mut u8, usize) {
        let (offset, len) = self.bounded(piece);
        // SAFETY: `bounded` keeps the offset inside the ring.
        (
            unsafe { self.ring_base(self.role).add(offset) }.as_ptr(),
            len,
        )
    }

    /// Where a piece of the incoming ring lies.
    #[inline]
    #[must_use]
    pub const fn rx_at(&self, piece: Piece) -> (*const u8, usize) {
        let (offset, len) = self.bounded(piece);
        let sender = match self.role {
            Role::Client => Role::Server,
            Role::Server => Role::Client,
        };
        // SAFETY: as above.
        (unsafe { self.ring_base(sender).add(offset) }.as_ptr(), len)
    }

    /// Copies into the outgoing ring.
    ///
    /// # Safety
    /// `from` is readable for `piece.len` bytes; this thread holds the sending lock.
    #[inline]
    pub unsafe fn put(&self, piece: Piece, from: *const u8) {
        let (to, len) = self.tx_at(piece);
        // SAFETY: `to` is in the ring, `from` is the caller's promise; private memory never overlaps.
        unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
    }

    /// Copies out of the incoming ring.
    ///
    /// # Safety
    /// `to` is writable for `piece.len` bytes; this thread holds the receiving lock.
    #[inline]
    pub unsafe fn take(&self, piece: Piece, to: *mut u8) {
        let (from, len) = self.rx_at(piece);
        // SAFETY: `from` is in the ring, `to` is the caller's promise; private memory never overlaps.
        unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
    }

    /// States that this side's barriers are heavy where they are rare. Before the peer can look.
    pub fn state_barriers(&self) {
        let heavy = u32::from(crate::sys::barrier::is_light());
        self.mine().bell.heavy.store(heavy, Ordering::SeqCst);
    }

    /// Whether this side's own barriers may be light. Not a matter of trust: a peer that lies here can
    /// only miss its own bells.
    #[inline]
    pub(crate) fn is_light(&self) -> bool {
        self.peer().bell.heavy.load(Ordering::Relaxed) != 0 && crate::sys::barrier::is_light()
    }

    /// Puts all words back to their start. The client does this before it announces the slot.
    pub fn reset(&self) {
        for side in &self.control().sides {
            side.tx.produced.store(0, Ordering::Relaxed);
            side.tx.origin.store(0, Ordering::Relaxed);
            side.tx.kernel_end.store(UNSTATED, Ordering::Relaxed);
            side.tx.fast_end.store(UNSTATED, Ordering::Relaxed);
            side.tx.bells.store(0, Ordering::Relaxed);
            side.tx.fin.store(FIN_NONE, Ordering::Relaxed);
            side.rx.consumed.store(0, Ordering::Relaxed);
            // Whoever has not yet looked may be asleep in the kernel: the first message rings.
            side.bell
                .armed
                .store(crate::doorbell::DATA, Ordering::Relaxed);
            side.busy.putting.store(0, Ordering::Relaxed);
            side.busy.taken.store(0, Ordering::Relaxed);
            side.bell.heavy.store(0, Ordering::Relaxed);
            side.stop.stop.store(0, Ordering::Relaxed);
            side.stop.give_back.store(UNSTATED, Ordering::Relaxed);
        }
    }

    /// The peer's word as a value to be checked.
    #[inline]
    pub fn peer_produced(&self) -> Untrusted<u64> {
        Untrusted::new(self.peer().tx.produced.load(Ordering::Acquire))
    }

    /// The peer's word; read after [`Self::peer_produced`].
    #[inline]
    pub fn peer_origin(&self) -> Untrusted<u64> {
        Untrusted::new(self.peer().tx.origin.load(Ordering::Relaxed))
    }

    /// The peer's word as a value to be checked.
    #[inline]
    pub fn peer_consumed(&self) -> Untrusted<u64> {
        Untrusted::new(self.peer().rx.consumed.load(Ordering::Acquire))
    }
}
