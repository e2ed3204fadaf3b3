//! How often a connection is slept on, by which its side chooses the barrier of its sleeps (`transport::shm::fences`): many
//! messages to a sleep, and the sleeper pays for its peer; few, and each pays for itself.
//!
//! Called before every wish for a bell ([`pace`]), and where a connection begins ([`are_frequent`]).

use super::Socket;
use std::sync::atomic::{AtomicU32, Ordering};
use transport::shm::segment::Segment;

/// Messages, either way, between two sleeps, below which the heavy barrier costs more than the fences that it spares: it takes
/// microseconds, and a fence some ten nanoseconds.
const FEW: u32 = 100;
/// Beyond which it is the other way round, with some room between.
const MANY: u32 = 1000;

/// Sleeps after few messages that make new connections begin with fences.
const OFTEN: u32 = 32;
/// The most that is remembered.
const MOST: u32 = 2 * OFTEN;

/// How often sleeps came after few messages lately, in the whole process. (A hint: no updates are waited for.)
static SHORT: AtomicU32 = AtomicU32::new(0);

/// Whether sleeps are frequent in this process, so that the next connection's are likely to be.
pub(crate) fn are_frequent() -> bool {
    SHORT.load(Ordering::Relaxed) >= OFTEN
}

/// A thread is about to wish for a bell on the connection.
#[inline]
pub(crate) fn pace(s: &Socket, p: &Segment) {
    #[allow(clippy::cast_possible_truncation)]
    let now = (s.record.messages_received.load(Ordering::Relaxed)
        + s.record.messages_sent.load(Ordering::Relaxed)) as u32;
    let messages = now.wrapping_sub(p.note_sleep(now));
    if messages > MANY {
        SHORT.store(0, Ordering::Relaxed);
        p.go_heavy();
    } else if messages < FEW {
        let short = SHORT.load(Ordering::Relaxed);
        if short < MOST {
            SHORT.store(short + 1, Ordering::Relaxed);
        }
        // (the first sleep of a connection says nothing of it)
        if messages > 0 && now > messages {
            p.go_fenced();
        }
    }
}
