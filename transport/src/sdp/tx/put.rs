//! Putting by one scheme: look at what was handed back, copy, note, tell. The inner loop of every send.

use super::PUBLISH;
use crate::doorbell;
use crate::provider::Provider;
use crate::sdp::Walk;
use crate::sdp::journal::Journal;
use flowctl::any::Sender;
use flowctl::packetized::WARM;
use flowctl::{Piece, Violation, credit};

/// A position, as far as it fits: looks come often enough for that.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Looked(u32);

impl Looked {
    #[inline]
    #[allow(clippy::cast_possible_truncation)]
    pub(super) const fn at(position: u64) -> Self {
        Self(position as u32)
    }

    /// Whether so much has been put since that an empty buffer would be worth knowing of.
    #[inline]
    pub(super) const fn is_due(self, position: u64) -> bool {
        Self::at(position).0.wrapping_sub(self.0) as u64 >= WARM
    }
}

/// Reads what was handed back when it is needed: too little known room, or now and then so that an empty
/// buffer is noticed.
#[inline]
pub(super) fn look_if_due(
    flow: &mut impl flowctl::Sender,
    looked: &mut Looked,
    p: &impl Provider,
    want: usize,
) -> Result<(), Violation> {
    if flow.is_short(want) || looked.is_due(flow.accepted()) {
        *looked = Looked::at(flow.accepted());
        flow.granted(p)?;
    }
    Ok(())
}

/// Tells the peer of what was committed, and acknowledges on the way. Returns whom it may have to wake.
#[inline]
pub(super) fn tell(flow: &mut impl flowctl::Sender, acks: bool, p: &impl Provider) -> u32 {
    let credits = acks && credit::acknowledge(p);
    flow.publish(p);
    if credits {
        doorbell::DATA | doorbell::SPACE
    } else {
        doorbell::DATA
    }
}

/// Whether the end of what is put is told of.
pub(super) struct Keep<'a> {
    /// Bytes that were kept so far.
    pub(super) withheld: &'a mut u16,
    /// The program has more to say.
    pub(super) more: bool,
}

impl Keep<'_> {
    /// [`tell`] of `len` bytes at the end of a call, or withholds them.
    #[inline]
    pub(super) fn tell(
        self,
        flow: &mut impl flowctl::Sender,
        len: usize,
        acks: bool,
        p: &impl Provider,
    ) -> u32 {
        let before = *self.withheld;
        // (what is longer than loopback's segments goes, as full segments do)
        let after = u16::try_from(len)
            .ok()
            .and_then(|len| before.checked_add(len));
        if self.more
            && let Some(after) = after
            && flow.withhold(p)
        {
            *self.withheld = after;
            // (a reader that sleeps has to know: its patience begins)
            return if before == 0 { doorbell::DATA } else { 0 };
        }
        *self.withheld = 0;
        tell(flow, acks, p)
    }
}

/// Puts by one scheme. Returns the bytes put, and whom it may have to wake.
///
/// # Safety
/// The walk's buffers are readable.
#[inline]
pub(super) unsafe fn put_by<F: flowctl::Sender + Clone + Into<Sender>>(
    flow: &mut F,
    journal: &mut Journal<Sender>,
    mut keep: Keep<'_>,
    acks: bool,
    p: &impl Provider,
    walk: &mut Walk,
) -> Result<(usize, u32), Violation> {
    let before = walk.done();
    let mut unpublished = 0;
    let mut ring = 0;
    if flow.is_parked() && flow.show(false) {
        journal.note(|| flow.clone().into());
        flow.publish(p);
        ring = doorbell::DATA;
    }
    while walk.left() > 0 {
        let most = if F::MESSAGES {
            walk.left()
        } else {
            walk.left().min(PUBLISH - unpublished)
        };
        let piece = flow.place(most);
        if piece.len == 0 {
            break;
        }
        // SAFETY: the caller's promise.
        unsafe { fill_piece(p, piece, walk) };
        flow.commit(piece.len, p);
        unpublished += piece.len;
        if unpublished >= PUBLISH {
            journal.note(|| flow.clone().into());
            ring |= tell(flow, acks, p);
            *keep.withheld = 0;
            unpublished = 0;
        }
        if walk.left() > 0 && flow.is_short(walk.left().min(PUBLISH)) {
            flow.granted(p)?;
        }
    }
    if walk.left() > 0 {
        keep.more = false; // no room: it takes what there is to make some
    }
    if unpublished > 0 || (*keep.withheld > 0 && !keep.more) {
        journal.note(|| flow.clone().into());
        ring |= keep.tell(flow, unpublished, acks, p);
    }
    Ok((walk.done() - before, ring))
}

/// Copies as much of the walk as the piece is long, whatever chunks that spans.
///
/// # Safety
/// The walk's buffers are readable, and at least as long.
#[inline]
unsafe fn fill_piece(p: &impl Provider, mut piece: Piece, walk: &mut Walk) {
    while piece.len > 0 {
        let (from, len) = walk.chunk();
        let part = Piece {
            offset: piece.offset,
            len: len.min(piece.len),
        };
        if part.len == 0 {
            return;
        }
        // SAFETY: the walk's chunk is readable by the caller's promise.
        unsafe { p.put(part, from) };
        walk.advance(part.len);
        piece.offset += part.len;
        piece.len -= part.len;
    }
}
