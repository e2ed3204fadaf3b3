//! Which barrier a side issues when it arms. A heavy one (membarrier) is paid by the sleeper, and spares the peer a fence with
//! every put; but where sleeps are about as frequent as messages it interrupts every core for nothing, and all
//! processes of the machine wait for each other there. So a side that sleeps often goes over to a fence of its own, and tells
//! the peer to issue one too; and back.
//!
//! Rules, for threads and processes that arm meanwhile:
//! - Who arms reads the mode after its wish can be seen, and issues a heavy barrier unless it says [`FENCED`].
//! - [`FENCED`] is said only once every core has seen that the peer may not be light any more.
//! - The peer may be light only once nobody reads [`FENCED`] any more: who read it before had its wish seen before, and what
//!   the peer looks at after it has read that it may be light shows that wish.
//! - Whoever changes the mode alone does: between the two stands [`CHANGING`], which who arms takes for heavy. One who dies there
//!   leaves heavy barriers and full fences.

use super::segment::Segment;
use crate::sys::barrier;
use std::sync::atomic::{Ordering, fence};

const HEAVY: u32 = 0;
const CHANGING: u32 = 1;
const FENCED: u32 = 2;

impl Segment {
    /// States which barriers this side issues when it arms: heavy ones, or fences where it is likely to sleep often. Before the
    /// peer can look.
    pub fn state_barriers(&self, often: bool) {
        let bell = &self.mine().bell;
        let heavy = barrier::is_light() && !often;
        bell.mode
            .store(if often { FENCED } else { HEAVY }, Ordering::SeqCst);
        bell.heavy.store(heavy.into(), Ordering::SeqCst);
    }

    /// Notes how many messages have been counted at a sleep. What had been at the last one. (A hint: it lies where the peer could
    /// write.)
    pub fn note_sleep(&self, messages: u32) -> u32 {
        self.mine().bell.slept_at.swap(messages, Ordering::Relaxed)
    }

    /// Whether a fence will do for who has just armed; it has been issued then.
    pub fn is_fenced(&self) -> bool {
        fence(Ordering::SeqCst);
        self.mine().bell.mode.load(Ordering::SeqCst) == FENCED
    }

    /// From now on this side's sleepers issue fences, and so does the peer.
    #[cold]
    pub fn go_fenced(&self) {
        let bell = &self.mine().bell;
        if self.change(HEAVY) {
            bell.heavy.store(0, Ordering::SeqCst);
            barrier::heavy();
            bell.mode.store(FENCED, Ordering::SeqCst);
        }
    }

    /// From now on this side's sleepers issue heavy barriers, and the peer none.
    #[cold]
    pub fn go_heavy(&self) {
        let bell = &self.mine().bell;
        if barrier::is_light() && self.change(FENCED) {
            fence(Ordering::SeqCst);
            bell.heavy.store(1, Ordering::SeqCst);
            bell.mode.store(HEAVY, Ordering::SeqCst);
        }
    }

    fn change(&self, from: u32) -> bool {
        let (done, lost) = (Ordering::SeqCst, Ordering::Relaxed);
        self.mine()
            .bell
            .mode
            .compare_exchange(from, CHANGING, done, lost)
            .is_ok()
    }
}
