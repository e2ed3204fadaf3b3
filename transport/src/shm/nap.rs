//! The first part of a sleep for data: a nap, on a word of the control page, of which the kernel connection knows nothing. Being
//! woken from it costs both ends one short system call each; a bell costs a segment of kernel TCP, and reading it.
//!
//! Called by `preload::sockets::napping` and, for the peer's nap, by the provider: with all that the sleeper looks at. The rules
//! are the doorbell's: the sleeper sets its word, issues its barrier and looks once more; who publishes
//! looks at the word after its own barrier. What the kernel alone tells (a peer that was killed, a time-out, a handler that came
//! just before) does not end a nap, so it is short.

use super::segment::Segment;
use crate::doorbell;
use crate::sync::{AtomicU32, Ordering};
use crate::sys::{Result, barrier, time};

fn rouse(word: &AtomicU32) {
    if doorbell::naps(word) {
        time::futex_rouse(word);
    }
}

impl Segment {
    /// Says that a thread of this side is about to nap. It looks once more before it does.
    pub fn begin_nap(&self) {
        doorbell::lie_down(&self.mine().bell.napping);
        if !self.is_fenced() {
            barrier::heavy();
        }
    }

    /// Sleeps until there is something to look at, or for so long (ns). False: that long has passed.
    ///
    /// # Errors
    /// EINTR if a handler ran.
    pub fn nap(&self, most: u64) -> Result<bool> {
        time::futex_nap(&self.mine().bell.napping, 1, most)
    }

    /// It is awake, or does not nap after all.
    pub fn end_nap(&self) {
        self.mine().bell.napping.store(0, Ordering::Relaxed);
    }

    /// Wakes those of this side that nap: something has changed that is not the peer's doing.
    pub fn rouse_own(&self) {
        rouse(&self.mine().bell.napping);
    }

    /// Whether a thread of the peer's naps, or is about to.
    #[must_use]
    pub fn peer_naps(&self) -> bool {
        self.peer().bell.napping.load(Ordering::Relaxed) != 0
    }

    /// Wakes those of the peer that nap. After a barrier.
    #[inline]
    pub(crate) fn rouse_peer(&self) {
        rouse(&self.peer().bell.napping);
    }
}

#[cfg(test)]
mod tests {
    use crate::doorbell::DATA;
    use crate::provider::Provider;
    use crate::shm::tests::Joined;

    const LONG: u64 = 20_000_000_000;

    #[test]
    fn whatever_is_to_be_seen_ends_a_nap() {
        let joined = Joined::new(4096);
        let (a, b) = joined.sides(1);
        for end in 0..6 {
            b.begin_nap();
            let other = std::thread::spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(5));
                match end {
                    0 => drop(a.must_ring(DATA)),
                    1 => a.finish(1),
                    2 => a.state(crate::provider::End::Fast, 1),
                    3 => a.stop_peer(None),
                    4 => a.part(),
                    _ => b.rouse_own(),
                }
            });
            assert_eq!(b.nap(LONG), Ok(true), "{end}");
            other.join().unwrap();
        }
    }

    #[test]
    fn what_came_before_it_lets_none_begin_and_nothing_ends_by_time() {
        let joined = Joined::new(4096);
        let (a, b) = joined.sides(1);
        b.begin_nap();
        let _ = a.must_ring(DATA);
        assert_eq!(b.nap(LONG), Ok(true));
        b.begin_nap();
        assert_eq!(b.nap(1_000_000), Ok(false));
        b.end_nap();
        assert_eq!(b.nap(LONG), Ok(true)); // (nobody naps: over at once)
    }
}
