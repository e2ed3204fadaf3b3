//! What the command `shunt` reads, and writes, from outside a process: a named page with the way to the
//! records (`shunt stat`), and with a place for an operator's request (`shunt demote`).
//!
//! Whoever may write the memory of a process could change anything in it; a request is no more than a
//! polite form of that. Nothing else in this page, and nothing outside it but the word at `attention`,
//! is ever written from outside.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Sleeps that can be ended and not be noticed yet.
pub const KNOCKS: usize = 8;

/// The page named `record::STAT_NAME`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Directory {
    pub magic: u64,
    pub pid: u32,
    /// Address of the first record in that process.
    pub records: u64,
    /// Bytes from one record to the next.
    pub stride: u64,
    /// Records that have been in use.
    pub count: AtomicU64,
    /// Address of the word that the library looks at in every call; not 0: look at `asked`.
    pub attention: u64,
    /// The request, written from outside: see [`Request`].
    pub asked: AtomicU64,
    /// The ticket of the last request that was carried out (high half), and how many connections that
    /// has sent back to the kernel.
    pub answered: AtomicU64,
    /// Threads (by their thread pointers) whose sleep in the library was ended from outside, so that they
    /// look at the request; 0 for none. Each takes itself off when it finds its sleep ended.
    pub knocked: [AtomicU64; KNOCKS],
}

/// Which connections an operator wants back on kernel TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Never 0, and different for each request.
    pub ticket: u32,
    /// `None` for every attached connection.
    pub fd: Option<i32>,
}

/// "Every connection" in the place of a descriptor.
const ALL: u32 = u32::MAX;

impl Request {
    /// The word for [`Directory::asked`].
    #[must_use]
    pub fn word(self) -> u64 {
        let fd = self.fd.map_or(ALL, i32::cast_unsigned);
        u64::from(self.ticket) << 32 | u64::from(fd)
    }

    /// The request in a word; `None` if there is none.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)]
    pub const fn read(word: u64) -> Option<Self> {
        let (ticket, fd) = ((word >> 32) as u32, word as u32);
        if ticket == 0 {
            return None;
        }
        Some(Self {
            ticket,
            fd: match fd {
                ALL => None,
                fd => Some(fd.cast_signed()),
            },
        })
    }
}

impl Directory {
    /// The request that has not been answered.
    #[must_use]
    pub fn request(&self) -> Option<Request> {
        let request = Request::read(self.asked.load(Ordering::Acquire))?;
        (self.answered.load(Ordering::Relaxed) >> 32 != u64::from(request.ticket))
            .then_some(request)
    }

    /// Says that a request has been carried out.
    pub fn answer(&self, request: Request, count: u32) {
        let word = u64::from(request.ticket) << 32 | u64::from(count);
        self.answered.store(word, Ordering::Release);
    }

    /// How many connections went back, once the request has been carried out.
    #[must_use]
    #[allow(clippy::cast_possible_truncation)]
    pub fn answer_to(&self, request: Request) -> Option<u32> {
        let word = self.answered.load(Ordering::Acquire);
        (word >> 32 == u64::from(request.ticket)).then_some(word as u32)
    }

    /// Whether this thread's sleep was ended from outside. Once for each such end.
    #[must_use]
    pub fn take_knock(&self, own: u64) -> bool {
        self.knocked.iter().any(|thread| {
            thread
                .compare_exchange(own, 0, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        })
    }

    /// Forgets requests: they were made to the process that this one was forked from.
    pub fn forget(&self) {
        self.asked.store(0, Ordering::Relaxed);
        for thread in &self.knocked {
            thread.store(0, Ordering::Relaxed);
        }
    }
}

/// The word behind [`Directory::attention`].
pub type Attention = AtomicU32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_answered_once() {
        let d = Directory::default();
        assert_eq!(d.request(), None);
        for fd in [None, Some(0), Some(i32::MAX)] {
            let ticket = fd.map_or(7, |fd| 8 + fd.cast_unsigned());
            let request = Request { ticket, fd };
            d.asked.store(request.word(), Ordering::Relaxed);
            assert_eq!(d.request(), Some(request));
            assert_eq!(d.answer_to(request), None);
            d.answer(request, 3);
            assert_eq!(d.answer_to(request), Some(3));
            assert_eq!(d.request(), None);
        }
    }
}
