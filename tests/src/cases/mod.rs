//! The cases: small socket programs whose transcript is compared with kernel TCP's.
//!
//! A `pair` case is one function run by two ends, A and B, as two processes or two threads; a
//! `solo` case is one process that makes its own children. Each case names the path its
//! connections must take when both ends run the library.

use crate::side::Side;

mod accepts;
mod actions;
mod addresses;
mod asides;
mod attach;
mod beyond;
mod boards;
mod bulk;
mod cancel;
mod closing;
mod connects;
mod crowd;
mod cut;
mod death;
mod dups;
mod epoll;
mod epoll_calls;
mod epoll_order;
mod epoll_sets;
mod epoll_threads;
mod executed;
mod executed_amid;
mod executed_reset;
mod failed;
mod firsts;
mod flags;
mod full;
mod handlers;
mod held;
mod held_stream;
mod io_calls;
mod iovecs;
mod jumps;
mod late;
mod legs;
mod limits;
mod little;
mod many;
mod nonblock;
mod one_bell;
mod options;
mod owed;
mod partings;
mod passed;
mod passed_reset;
mod poll;
mod process;
mod refused;
mod roused;
mod sandbox;
mod select;
mod sharing;
mod sharing_killed;
mod sharing_load;
mod shut_already;
mod shutdown;
mod signals;
mod splice;
mod splice_out;
mod stdio;
mod storms;
mod streaks;
mod threads;
mod timeouts;
mod unheard;
mod unshared;
mod withheld;
mod zcopy;
mod zcopy_life;
mod zcopy_memory;
mod zcopy_pages;
mod zcopy_read;
mod zcopy_send;

/// What the report must say when both ends run the library and were warmed up.
#[derive(Clone, Copy, Debug)]
pub enum Path {
    /// Each process with a report has at least this many connections over shared memory.
    Shm(usize),
    /// Not checked, for this reason.
    Any(&'static str),
}

/// Why the path of a [`Case::moving`] is not checked.
const MOVES: &str = "the stream changes hands and may go by the kernel";

#[derive(Clone, Copy, Debug)]
pub enum Body {
    Pair(fn(&Side)),
    Solo(fn(&Side)),
}

/// A case of large messages: how many bytes go straight from one program's memory to the other's at
/// least, counted at both ends, where messages wait for the reader. (Elsewhere it is a matter of pace.)
#[derive(Clone, Copy, Debug)]
pub struct Large {
    pub sync: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub name: &'static str,
    pub body: Body,
    pub path: Path,
    /// May run as two threads of one process.
    pub threads: bool,
    /// Too long for the quick run.
    pub slow: bool,
    /// Run with zero copy for messages of 4 KiB and more.
    pub large: Option<Large>,
    /// Run with messages held in place, so many bytes at least, counted at both ends.
    pub held: Option<u64>,
}

impl Case {
    /// Two ends, over shared memory, in every mode.
    pub(crate) const fn pair(name: &'static str, body: fn(&Side)) -> Self {
        Self {
            name,
            body: Body::Pair(body),
            path: Path::Shm(1),
            threads: true,
            slow: false,
            large: None,
            held: None,
        }
    }

    /// Two processes, from one of which the stream moves on to others, and may go by the kernel.
    pub(crate) const fn moving(name: &'static str, body: fn(&Side)) -> Self {
        Self::pair(name, body).processes_only().any_path(MOVES)
    }

    /// One process with both ends or with children of its own.
    pub(crate) const fn solo(name: &'static str, body: fn(&Side)) -> Self {
        Self {
            name,
            body: Body::Solo(body),
            path: Path::Shm(1),
            threads: false,
            slow: false,
            large: None,
            held: None,
        }
    }

    pub(crate) const fn any_path(mut self, why: &'static str) -> Self {
        self.path = Path::Any(why);
        self
    }

    pub(crate) const fn conns(mut self, least: usize) -> Self {
        self.path = Path::Shm(least);
        self
    }

    /// Only as two processes: the case ends or changes its whole process.
    pub(crate) const fn processes_only(mut self) -> Self {
        self.threads = false;
        self
    }

    /// Run with zero copy, of which there is at least so much if messages wait for the reader.
    pub(crate) const fn large(mut self, sync: u64) -> Self {
        self.large = Some(Large { sync });
        self
    }

    /// Run with messages held in place too (`SHUNT_ZCOPY=async`), and at least so many bytes of them.
    pub(crate) const fn held(mut self, least: u64) -> Self {
        self.held = Some(least);
        self
    }

    pub(crate) const fn slow(mut self) -> Self {
        self.slow = true;
        self
    }
}

/// Every case, in the order they are run.
pub fn all() -> Vec<Case> {
    [
        io_calls::CASES,
        iovecs::CASES,
        nonblock::CASES,
        flags::CASES,
        shutdown::CASES,
        shut_already::CASES,
        closing::CASES,
        options::CASES,
        timeouts::CASES,
        poll::CASES,
        select::CASES,
        beyond::CASES,
        epoll::CASES,
        epoll_calls::CASES,
        epoll_order::CASES,
        epoll_sets::CASES,
        epoll_threads::CASES,
        boards::CASES,
        one_bell::CASES,
        signals::CASES,
        splice::CASES,
        splice_out::CASES,
        handlers::CASES,
        held::CASES,
        held_stream::CASES,
        storms::CASES,
        streaks::CASES,
        actions::CASES,
        jumps::CASES,
        cancel::CASES,
        threads::CASES,
        attach::CASES,
        addresses::CASES,
        asides::CASES,
        connects::CASES,
        accepts::CASES,
        many::CASES,
        dups::CASES,
        process::CASES,
        refused::CASES,
        owed::CASES,
        partings::CASES,
        passed::CASES,
        passed_reset::CASES,
        firsts::CASES,
        late::CASES,
        stdio::CASES,
        executed::CASES,
        executed_amid::CASES,
        executed_reset::CASES,
        failed::CASES,
        legs::CASES,
        little::CASES,
        unheard::CASES,
        unshared::CASES,
        withheld::CASES,
        roused::CASES,
        sandbox::CASES,
        sharing::CASES,
        sharing_load::CASES,
        sharing_killed::CASES,
        crowd::CASES,
        cut::CASES,
        death::CASES,
        limits::CASES,
        bulk::CASES,
        full::CASES,
        zcopy::CASES,
        zcopy_read::CASES,
        zcopy_send::CASES,
        zcopy_memory::CASES,
        zcopy_pages::CASES,
        zcopy_life::CASES,
    ]
    .concat()
}

pub fn find(name: &str) -> Option<Case> {
    all().into_iter().find(|c| c.name == name)
}
