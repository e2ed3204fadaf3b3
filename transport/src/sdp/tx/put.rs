//! Putting by one scheme: look at what was handed back, copy, note, tell. The inner loop of every send.

use super::PUBLISH;
use crate::doorbell;
use crate::provider::Provider;
use crate::sdp::Walk;
use crate::sdp::journal::Journal;
use flowctl::any::Sender;
use flowctl::packetized::WARM;
use flowctl::{Piece, Violation, credit};

/// Reads what was handed back when it is needed: too little known room, or now and then so that an empty
/// buffer is noticed.
#[inline]
pub(super) fn look_if_due(
    flow: &mut impl flowctl::Sender,
    looked: &mut u64,
    p: &impl Provider,
    want: usize,
) -> Result<(), Violation> {
    if flow.is_short(want) || flow.accepted() - *looked >= WARM {
        *looked = flow.accepted();
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

/// Puts by one scheme. Returns the bytes put, and whom it may have to wake.
///
/// # Safety
/// The walk's buffers are readable.
#[inline]
pub(super) unsafe fn put_by<F: flowctl::Sender + Clone + Into<Sender>>(
    flow: &mut F,
    journal: &mut Journal<Sender>,
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
        if unpublished >= PUBLISH || walk.left() == 0 {
            journal.note(|| flow.clone().into());
            ring |= tell(flow, acks, p);
            unpublished = 0;
        }
        if walk.left() > 0 && flow.is_short(walk.left().min(PUBLISH)) {
            flow.granted(p)?;
        }
    }
    if unpublished > 0 {
        journal.note(|| flow.clone().into());
        ring |= tell(flow, acks, p);
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
