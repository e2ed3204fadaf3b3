//! The processes that serve one listener: a page that they share says who they are, and how many arenas
//! any of them has heard of.
//!
//! Kept by `Family`. The rule: who may hold a notice that nobody else knows of says so first, and the word
//! of a process that has died counts no more.

use crate::sync::{AtomicU32, Ordering};
use crate::sys::mem::Mapping;
use crate::sys::{self, Result};

/// Processes that may serve one listener with an inbox; further ones stay on kernel TCP.
const MEMBERS: usize = 256;

/// A member is taking notices from the board.
const BUSY: u32 = 1 << 31;

/// The page that the processes of one listener share.
#[repr(C)]
#[derive(Debug)]
struct Page {
    /// Arenas taken from the board by anyone.
    taken: AtomicU32,
    /// Pid of each member, 0 for none; with [`BUSY`] while it may hold a notice that nobody else knows of.
    members: [AtomicU32; MEMBERS],
}

/// The page, as one of these processes sees it.
#[derive(Debug)]
pub(super) struct Members {
    page: Mapping,
    /// This process's place among them.
    own: Option<usize>,
}

impl Members {
    /// Nobody yet.
    pub(super) fn new() -> Result<Self> {
        let page = Mapping::family(size_of::<Page>())?;
        Ok(Self { page, own: None })
    }

    fn page(&self) -> &Page {
        // SAFETY: the mapping has the page's size, all atomics, zero from the start.
        unsafe { self.page.base().cast::<Page>().as_ref() }
    }

    /// Becomes one of them: in the child after fork too, where the place known so far is the parent's.
    pub(super) fn join(&mut self) {
        let me = sys::pid();
        let free = |m: &AtomicU32| {
            let word = m.load(Ordering::Relaxed);
            let pid = word & !BUSY;
            let gone = pid == 0 || pid == me.cast_unsigned() || !is_alive(pid);
            gone && m
                .compare_exchange(
                    word,
                    me.cast_unsigned(),
                    Ordering::AcqRel,
                    Ordering::Relaxed,
                )
                .is_ok()
        };
        self.own = self.page().members.iter().position(free);
    }

    /// Is none of them any more.
    pub(super) fn part(&mut self) {
        if let Some(m) = self.own.take().and_then(|m| self.page().members.get(m)) {
            m.store(0, Ordering::Release);
        }
    }

    /// This process's place among them.
    pub(super) const fn own(&self) -> Option<usize> {
        self.own
    }

    /// Place and pid of the others.
    pub(super) fn others(&self) -> impl Iterator<Item = (usize, i32)> + '_ {
        let me = self.own;
        self.page()
            .members
            .iter()
            .enumerate()
            .filter_map(move |(i, m)| {
                let pid = (m.load(Ordering::Acquire) & !BUSY).cast_signed();
                (pid != 0 && Some(i) != me).then_some((i, pid))
            })
    }

    /// Whether there are others.
    pub(super) fn are_several(&self) -> bool {
        self.others().next().is_some()
    }

    /// Says whether this process may hold a notice that it has not passed on.
    pub(super) fn set_busy(&self, busy: bool) {
        let word = if busy { BUSY } else { 0 } | sys::pid().cast_unsigned();
        if let Some(m) = self.own.and_then(|m| self.page().members.get(m)) {
            m.store(word, Ordering::SeqCst);
        }
    }

    /// Whether another process may hold one.
    pub(super) fn others_are_busy(&self) -> bool {
        let me = self.own;
        self.page().members.iter().enumerate().any(|(i, m)| {
            let word = m.load(Ordering::SeqCst);
            word & BUSY != 0 && Some(i) != me && is_alive(word & !BUSY)
        })
    }

    /// Arenas that any of them has taken from the board.
    pub(super) fn taken(&self) -> u32 {
        self.page().taken.load(Ordering::Acquire)
    }

    /// Counts one more.
    pub(super) fn take(&self) {
        self.page().taken.fetch_add(1, Ordering::AcqRel);
    }
}

fn is_alive(pid: u32) -> bool {
    // SAFETY: signal 0 only asks.
    let r = unsafe { crate::syscall!(kill, pid, 0) };
    r != Err(sys::Errno(libc::ESRCH))
}
