//! The client's side of one question.
//!
//! - A request is sent again, with the same handle, as long as nothing has come: each time after twice as long a
//!   wait. After the last wait the answer is silence.
//! - The first answer counts, and later ones are dropped. An answer is one from the mapper that was asked, with
//!   this handle, about this client and, unless it accepts, about this host: an accepting one may name
//!   another address.

use super::message::{Bytes, Kind, Lifetime, Message};
use std::net::{IpAddr, SocketAddr};

/// When requests are sent.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// How long (µs) the first request is waited for.
    pub first_us: u64,
    /// Requests that are sent at most, the first one included.
    pub requests: u32,
}

/// What has come of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The service takes SDP there.
    Accepted {
        at: SocketAddr,
        for_time: Lifetime,
    },
    Denied,
    /// Nobody has answered.
    Silence,
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Send this to the mapper.
    pub send: Option<Bytes>,
    /// It is decided, once.
    pub answer: Option<Answer>,
}

impl Step {
    const NOTHING: Self = Self {
        send: None,
        answer: None,
    };
}

/// A question that has been asked.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    request: Message,
    /// Waits that are still to come, and the current one with its end; nothing once it is decided.
    waiting: Option<Waiting>,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    left: u32,
    wait_us: u64,
    until: u64,
}

impl Asker {
    /// Asks the mapper at the host of `service` about it, for a connection from `client`. The first request is to
    /// be sent now. `handle` is random.
    #[must_use]
    pub fn new(
        client: SocketAddr,
        service: SocketAddr,
        handle: u64,
        timing: Timing,
        now: u64,
    ) -> (Self, Bytes) {
        let request = Message {
            kind: Kind::Request,
            client,
            service,
            handle,
            mapped: None,
        };
        let wait_us = timing.first_us;
        let waiting = Some(Waiting {
            left: timing.requests.saturating_sub(1),
            wait_us,
            until: now.saturating_add(wait_us),
        });
        (Self { request, waiting }, request.encode())
    }

    /// When [`Self::timeout`] has something to do; never once the question is decided.
    #[must_use]
    pub fn wake_at(&self) -> Option<u64> {
        self.waiting.map(|w| w.until)
    }

    /// Time has passed.
    pub fn timeout(&mut self, now: u64) -> Step {
        let Some(w) = self.waiting.filter(|w| now >= w.until) else {
            return Step::NOTHING;
        };
        let Some(left) = w.left.checked_sub(1) else {
            self.waiting = None;
            return Step {
                send: None,
                answer: Some(Answer::Silence),
            };
        };
        let wait_us = w.wait_us.saturating_mul(2);
        self.waiting = Some(Waiting {
            left,
            wait_us,
            until: now.saturating_add(wait_us),
        });
        Step {
            send: Some(self.request.encode()),
            answer: None,
        }
    }

    /// Takes in what came from this host. What is no answer to this question is dropped.
    pub fn receive(&mut self, from: IpAddr, bytes: &[u8]) -> Step {
        let asked = &self.request;
        let Ok(message) = Message::decode(bytes) else {
            return Step::NOTHING;
        };
        let ours = message.handle == asked.handle && message.client == asked.client;
        if self.waiting.is_none() || !ours || from != asked.service.ip() {
            return Step::NOTHING;
        }
        let step = match message.kind {
            Kind::Accept(time) => Step {
                send: Some(message.with(Kind::Ack).encode()),
                answer: Some(Answer::Accepted {
                    at: message.service,
                    for_time: time.lifetime(),
                }),
            },
            Kind::Deny if message.service.ip() == asked.service.ip() => Step {
                send: None,
                answer: Some(Answer::Denied),
            },
            Kind::Deny | Kind::Request | Kind::Ack => return Step::NOTHING,
        };
        self.waiting = None;
        step
    }
}
