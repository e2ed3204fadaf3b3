//! What a client remembers of answers, so that not every connect asks. By the address that was asked for.
//!
//! What says kernel TCP (a denial, silence, a reset from where SDP was said to be taken) is remembered for a time of
//! the client's choice; an acceptance for the time that it brought, one for a single use not at all. Bounded:
//! beyond that it starts afresh.

use super::asker::Answer;
use super::message::Lifetime;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Addresses remembered at most.
const MOST: usize = 4096;

/// What is known of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// It takes SDP there.
    At(SocketAddr),
    /// It does not.
    Denied,
    /// Nobody there says.
    Silent,
}

/// Answers with their ends, in µs; `None` for one that does not end.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    known: BTreeMap<SocketAddr, (Known, Option<u64>)>,
    /// How long (µs) a denial is remembered, and silence.
    denied_us: u64,
    silent_us: u64,
}

impl Answers {
    /// Remembers a denial and silence for this long (µs).
    #[must_use]
    pub const fn new(denied_us: u64, silent_us: u64) -> Self {
        Self {
            known: BTreeMap::new(),
            denied_us,
            silent_us,
        }
    }

    /// Takes in an answer about a service.
    pub fn note(&mut self, service: SocketAddr, answer: Answer, now: u64) {
        let entry = match answer {
            Answer::Denied => (Known::Denied, Some(now.saturating_add(self.denied_us))),
            Answer::Silence => (Known::Silent, Some(now.saturating_add(self.silent_us))),
            Answer::Accepted { at, for_time } => match for_time {
                Lifetime::Once => {
                    self.known.remove(&service);
                    return;
                }
                Lifetime::For(time) => {
                    let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
                    (Known::At(at), Some(now.saturating_add(us)))
                }
                Lifetime::Forever => (Known::At(at), None),
            },
        };
        if self.known.len() >= MOST && !self.known.contains_key(&service) {
            self.known.clear();
        }
        self.known.insert(service, entry);
    }

    /// The service did not take SDP where it was said to.
    pub fn note_refused(&mut self, service: SocketAddr, now: u64) {
        self.note(service, Answer::Denied, now);
    }

    /// The service was not there: that its port mapper has denied it, or said nothing, holds no longer.
    pub fn forget(&mut self, service: SocketAddr) {
        if let Some((Known::Denied | Known::Silent, _)) = self.known.get(&service) {
            self.known.remove(&service);
        }
    }

    /// What is known of a service now; nothing if it has to be asked.
    pub fn look_up(&mut self, service: SocketAddr, now: u64) -> Option<Known> {
        let (known, end) = *self.known.get(&service)?;
        if end.is_some_and(|end| now >= end) {
            self.known.remove(&service);
            return None;
        }
        Some(known)
    }
}
