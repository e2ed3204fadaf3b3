//! The order of the library's locks, watched where it is built for that (feature `lock-order`): a thread that takes one which
//! comes before one that it holds ends its process, and says where. Without the feature nothing of this is there.
//!
//! Called by `lock` alone. `scripts/test` runs the conformance cases with it.

/// A lock's place: whoever holds one takes only later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Rank {
    Registry,
    /// (one within another as they are registered, which goes round in no circle)
    Set,
    /// Connections that somebody has to look after, as fork takes them.
    Lingering,
    Riders,
    Connecting,
    Overdue,
    Sending,
    Receiving,
    /// The port mapper's.
    Asking,
    Answering,
    /// The program's handlers.
    Actions,
    Guard,
    Memory,
}

/// What a direction's lock is over.
pub(crate) trait Ranked {
    const RANK: Rank;
}

impl Ranked for transport::sdp::Tx {
    const RANK: Rank = Rank::Sending;
}

impl Ranked for transport::sdp::Rx {
    const RANK: Rank = Rank::Receiving;
}

#[cfg(not(feature = "lock-order"))]
mod watch {
    use super::Rank;

    #[inline(always)]
    pub(crate) const fn taken(_: Rank) {}
    #[inline(always)]
    pub(crate) const fn released(_: Rank) {}
    #[inline(always)]
    pub(crate) const fn forget() {}
}

#[cfg(feature = "lock-order")]
mod watch {
    use super::Rank;
    use std::backtrace::Backtrace;
    use std::cell::Cell;
    use transport::syscall;

    thread_local! {
        /// How many of each rank this thread holds, four bits each.
        static HELD: Cell<u64> = const { Cell::new(0) };
    }

    const fn one(rank: Rank) -> u64 {
        1 << (4 * rank as u32)
    }

    /// A lock was taken that may have been waited for.
    pub(crate) fn taken(rank: Rank) {
        let held = HELD.get();
        let others = match rank {
            Rank::Set => one(Rank::Lingering),
            _ => one(rank),
        };
        if held >= others {
            HELD.set(0);
            let said = format!(
                "lock order: {rank:?} is taken, held by rank: {held:#x}\n{}\n",
                Backtrace::force_capture()
            );
            // SAFETY: a readable slice; the process is not to go on.
            unsafe {
                let _ = syscall!(write, 2, said.as_ptr(), said.len());
                let _ = syscall!(exit_group, 97);
            }
        }
        HELD.set(held + one(rank));
    }

    pub(crate) fn released(rank: Rank) {
        let held = HELD.get();
        if (held >> (4 * rank as u32)) & 0xf != 0 {
            HELD.set(held - one(rank));
        }
    }

    /// In a child after fork: it holds nothing.
    pub(crate) fn forget() {
        HELD.set(0);
    }
}

pub(crate) use watch::{forget, released, taken};
