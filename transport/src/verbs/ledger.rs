//! What has become of the work requests of one queue pair, and the words that either end may tell. Pure.
//!
//! iWARP ends a connection whose receiver has no receive posted. RoCE asks again later, but receives are shared (`receives`), and
//! one who does not poll is not to have them all, nor more than its completion queue takes. So each end counts: it tells
//! at most [`TELLS`] words more than the peer has said that it has polled, and holds back what comes behind. Messages that
//! say so need no such room: [`RESERVE`] receives are theirs, and as many are never on their way, since each is for
//! [`RETURN`] words.
//!
//! What a driver does with work that is posted to a connection that has ended differs (some ends it, some forgets it):
//! so whatever is under way when that is known is ended here.
//!
//! Rule: nothing here takes memory after [`Ledger::new`].

#![forbid(unsafe_code)]

use super::message::Message;
use super::{DEPTH, Done, ENDED, INLINE, Landed, TELLS, Work};
use crate::sys::{Errno, Result};
use std::collections::VecDeque;

/// Words that are polled before the peer is told.
const RETURN: u32 = TELLS as u32 / 4;
/// Receives beyond [`TELLS`].
pub(super) const RESERVE: usize = 8;
/// What is taken in before it is handed out: connections are many, and this is memory of each.
const READY: usize = 48;
/// Messages that give no room, at most.
pub(super) const GREETINGS: u32 = 3;
const _: () = assert!(TELLS / RETURN as usize + (GREETINGS as usize) < RESERVE);

/// Of `enum ibv_wc_status`.
const FLUSHED: u32 = 5;

/// A work request that has not been given to the adapter, with what goes inline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) work: Work,
    pub(super) inline: [u8; INLINE as usize],
    /// What it is called to the adapter.
    pub(super) number: u64,
}

#[derive(Debug)]
pub(super) struct Ledger {
    next: u64,
    held: VecDeque<Held>,
    /// Those that the adapter has: their numbers and ids.
    sent: VecDeque<(u64, u64)>,
    /// What is to be polled; with each the work requests that it tells of.
    done: VecDeque<(Done, usize)>,
    outstanding: usize,
    /// Words that may be told.
    credits: u32,
    /// Words that were polled and that the peer has not been told of; and those that have come, of the same.
    polled: u32,
    heard: u32,
    ended: bool,
    /// The peer has said something that is no word: it is there.
    greeted: bool,
}

impl Ledger {
    pub(super) fn new() -> Self {
        Self {
            next: 0,
            held: VecDeque::with_capacity(DEPTH),
            sent: VecDeque::with_capacity(DEPTH),
            done: VecDeque::with_capacity(DEPTH + READY + 1),
            outstanding: 0,
            credits: TELLS as u32,
            polled: 0,
            heard: 0,
            ended: false,
            greeted: false,
        }
    }

    pub(super) const fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether so many completions more may be taken in before some are handed out.
    pub(super) fn has_room(&self, n: usize) -> bool {
        self.done.len() + n <= READY
    }

    pub(super) const fn is_greeted(&self) -> bool {
        self.greeted
    }

    /// Takes a work request.
    ///
    /// # Errors
    /// ENOMEM: too many are outstanding.
    pub(super) fn take(&mut self, work: Work, inline: [u8; INLINE as usize]) -> Result<()> {
        if self.outstanding >= DEPTH {
            return Err(Errno::NOMEM);
        }
        self.outstanding += 1;
        if self.ended {
            self.tell_of(work.id, FLUSHED, 1);
        } else {
            self.next += 1;
            let number = self.next;
            self.held.push_back(Held {
                work,
                inline,
                number,
            });
        }
        Ok(())
    }

    /// Those that can be given to the adapter now, oldest first.
    pub(super) fn ready(&self) -> impl Iterator<Item = &Held> {
        let mut credits = self.credits;
        self.held.iter().take_while(move |held| {
            let costs = u32::from(held.work.tell.is_some());
            let can = costs <= credits;
            credits = credits.saturating_sub(costs);
            can
        })
    }

    /// The oldest so many of them were given to it.
    pub(super) fn given(&mut self, n: usize) {
        for held in self.held.drain(..n.min(self.held.len())) {
            self.credits -= u32::from(held.work.tell.is_some()).min(self.credits);
            self.sent.push_back((held.number, held.work.id));
        }
    }

    /// The adapter says how this one has ended: it, and well all before it.
    pub(super) fn completed(&mut self, number: u64, status: u32) {
        let mut told = 0;
        while let Some(&(n, id)) = self.sent.front().filter(|(n, _)| *n <= number) {
            self.sent.pop_front();
            told += 1;
            if n == number {
                self.tell_of(id, status, told);
            }
        }
        if status != 0 {
            self.end();
        }
    }

    fn tell_of(&mut self, id: u64, status: u32, works: usize) {
        let done = Done {
            id,
            told: None,
            landed: None,
            ok: status == 0,
            status,
        };
        self.done.push_back((done, works));
    }

    /// The connection has ended, and with it all that was under way.
    pub(super) fn end(&mut self) {
        if self.ended {
            return;
        }
        self.ended = true;
        let lost = self.sent.iter().map(|(_, id)| *id);
        let lost = lost.chain(self.held.iter().map(|held| held.work.id));
        let failed = |id| Done {
            id,
            told: None,
            landed: None,
            ok: false,
            status: FLUSHED,
        };
        self.done.extend(lost.map(|id| (failed(id), 1)));
        let none = self.sent.is_empty() && self.held.is_empty();
        self.sent.clear();
        self.held.clear();
        if none {
            self.done.push_back((failed(ENDED), 0));
        }
    }

    /// The peer has said this. False: it is nothing that it may say.
    #[must_use]
    pub(super) fn hear(&mut self, message: Option<Message>) -> bool {
        match message {
            Some(Message::Word(word)) => {
                let done = Done {
                    told: Some(word),
                    ok: true,
                    ..Done::default()
                };
                let room = self.heard < TELLS as u32;
                if room {
                    self.heard += 1;
                    self.done.push_back((done, 0));
                }
                room
            }
            Some(Message::Credits(n)) => {
                self.greeted = true;
                let most = self.credits.checked_add(n).filter(|&c| c <= TELLS as u32);
                self.credits = most.unwrap_or(self.credits);
                most.is_some()
            }
            None => false,
        }
    }

    /// A Send of the peer's has brought octets.
    pub(super) fn land(&mut self, what: Landed) {
        let done = Done {
            landed: Some(what),
            ok: true,
            ..Done::default()
        };
        self.done.push_back((done, 0));
    }

    /// Hands out what has ended and been told. How many.
    pub(super) fn hand_out(&mut self, to: &mut [Done]) -> usize {
        let mut n = 0;
        for place in to {
            let Some((done, works)) = self.done.pop_front() else {
                break;
            };
            self.outstanding = self.outstanding.saturating_sub(works);
            self.polled += u32::from(done.told.is_some());
            *place = done;
            n += 1;
        }
        n
    }

    /// What the peer is to be told of words that were polled, once it is worth it.
    pub(super) fn take_back(&mut self) -> Option<Message> {
        (self.polled >= RETURN && !self.ended).then(|| {
            let n = std::mem::take(&mut self.polled);
            self.heard = self.heard.saturating_sub(n);
            Message::Credits(n)
        })
    }
}
