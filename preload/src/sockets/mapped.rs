//! Files sent straight to the reader (sendfile): the file is mapped for the call, and what is mapped is delivered
//! or advertised like any large message, so that the page cache is copied once, to the reader's buffer.
//!
//! Called by the hook of sendfile; what does not go this way goes through the ring, for which the file is
//! read. Rule: this process itself never touches the mapping, since the file may be cut at any time: the
//! kernel copies from it, and says EFAULT where a touch would be a SIGBUS.

use super::counted::{Counting, What};
use super::ending::is_gone;
use super::wait::{Wait, Want};
use super::{Phase, Socket, demote, engage, large};
use crate::signals::since::Since;
use std::sync::atomic::Ordering;
use transport::direct::policy;
use transport::record;
use transport::sdp::{Leg, Walk};
use transport::sys::mem::Mapping;

/// Most bytes of a file that are mapped at a time: no more than go by one way at once (`policy::stage`).
const WINDOW: usize = 2 << 20;
const PAGE: u64 = 4096;

/// Sends from a file with `size` bytes, from `position` on, as far as it goes straight. Returns how many
/// bytes did.
pub(crate) fn send(
    s: &'static Socket,
    fd: i32,
    file: i32,
    size: u64,
    position: u64,
    want: usize,
) -> usize {
    let left = usize::try_from(size.saturating_sub(position)).unwrap_or(usize::MAX);
    let want = want.min(left);
    if want < policy::large() {
        return 0;
    }
    engage::step(s, fd);
    demote::attend(s, fd);
    if s.phase() != Phase::Attached {
        return 0;
    }
    let since = Since::now();
    let counting = Counting::begin();
    counting.add(What::Inside(s));
    let mut total = 0;
    while want - total >= policy::large()
        && large::begins(s, want - total)
        && (!s.nonblock.load(Ordering::Relaxed) || is_awaited(s))
    {
        let len = (want - total).min(WINDOW);
        let sent = send_window(s, fd, file, position + total as u64, len, since);
        total += sent;
        if sent < len {
            break;
        }
    }
    if total > 0 {
        record::add(&s.record.bytes_sent, total as u64);
        record::add(&s.record.messages_sent, 1);
    }
    total
}

/// Whether a reader waits with its buffer. (Who does not wait for one would map the file for nothing, which takes
/// about as long as copying it.)
fn is_awaited(s: &Socket) -> bool {
    let tx = s.tx.lock();
    s.segment()
        .is_some_and(|p| tx.is_ok_and(|mut tx| tx.leg() == Leg::Fast && tx.goes_straight(p)))
}

fn send_window(
    s: &'static Socket,
    fd: i32,
    file: i32,
    position: u64,
    len: usize,
    since: Since,
) -> usize {
    #[allow(clippy::cast_possible_truncation)]
    let before = (position % PAGE) as usize;
    let Ok(map) = Mapping::window(file, position - before as u64, before + len) else {
        return 0;
    };
    let at = map.base().as_ptr().wrapping_add(before);
    let mut walk = Walk::one(at, len);
    if s.segment().is_none_or(|p| is_gone(s, p)) {
        return 0; // nobody reads any more: the rest is for the kernel to answer
    }
    if let Some(p) = s.segment()
        && s.phase() == Phase::Attached
        && !s.tx_shut.load(Ordering::Acquire)
        && let Ok(mut tx) = s.tx.lock()
        && tx.leg() == Leg::Fast
    {
        // SAFETY: mapped, and where it is not any more the kernel says so.
        unsafe { tx.put_direct(p, fd, &mut walk) };
    }
    if walk.left() > 0 && !s.nonblock.load(Ordering::Relaxed) {
        // (an error is met again by whoever sends the rest)
        let mut wait = Wait::new(Want::Room, since);
        let _ = large::await_taken(s, fd, &mut walk, &mut wait);
    }
    walk.done()
}
