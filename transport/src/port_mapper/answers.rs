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
    Plain,
}

/// Answers with their ends, in µs; `None` for one that does not end.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    known: BTreeMap<SocketAddr, (Known, Option<u64>)>,
    /// How long (µs) what says kernel TCP is remembered.
    plain_us: u64,
}

impl Answers {
    /// Remembers for this long (µs) what says kernel TCP.
    #[must_use]
    pub fn new(plain_us: u64) -> Self {
        Self {
            plain_us,
            ..Self::default()
        }
    }

    /// Takes in an answer about a service.
    pub fn note(&mut self, service: SocketAddr, answer: Answer, now: u64) {
        let plain = Some(now.saturating_add(self.plain_us));
        let entry = match answer {
            Answer::Denied | Answer::Silence => (Known::Plain, plain),
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
