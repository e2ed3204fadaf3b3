//! The server's side: answers requests, and keeps what it has accepted until the client has acknowledged or
//! connected, or the time for that is over.
//!
//! - A request that equals one which stands, in both addresses and the handle, is the same again: it gets the
//!   same answer, and the time begins anew. With another handle it takes the place of the old one.
//! - A denial is not kept. An acknowledgement of nothing is dropped, and so is what only clients take.
//! - What is kept is bounded: beyond that the answer is a denial, which costs a client the faster way only.

use super::message::{Bytes, Kind, Message, PmTime};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Accepted requests that may stand at a time.
const MOST: usize = 4096;

/// What is to be said to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// SDP is taken at this address, of the family of the request.
    Accept {
        at: SocketAddr,
        time: PmTime,
    },
    Deny,
}

/// A request that was accepted.
#[derive(Clone, Copy, Debug)]
struct Accepted {
    handle: u64,
    /// The answer.
    accept: Message,
    /// Where the connection will come from.
    from: SocketAddr,
    until: u64,
}

/// What was accepted, by client and service as asked for.
#[derive(Clone, Debug, Default)]
pub struct Answerer {
    standing: BTreeMap<(SocketAddr, SocketAddr), Accepted>,
    /// How long (µs) it stands.
    hold_us: u64,
}

impl Answerer {
    /// One that keeps what it has accepted for this long (µs).
    #[must_use]
    pub fn new(hold_us: u64) -> Self {
        Self {
            hold_us,
            ..Self::default()
        }
    }

    /// Takes in what came; what there is to answer goes to where it came from. A new request is shown to
    /// `judge`.
    pub fn receive(
        &mut self,
        now: u64,
        bytes: &[u8],
        judge: impl FnOnce(&Message) -> Verdict,
    ) -> Option<Bytes> {
        self.expire(now);
        let message = Message::decode(bytes).ok()?;
        match message.kind {
            Kind::Request => Some(self.request(now, &message, judge).encode()),
            Kind::Ack => {
                self.forget(
                    |a| a.handle == message.handle && a.accept.service == message.service,
                    message.client,
                );
                None
            }
            Kind::Accept(_) | Kind::Deny => None,
        }
    }

    fn request(
        &mut self,
        now: u64,
        request: &Message,
        judge: impl FnOnce(&Message) -> Verdict,
    ) -> Message {
        let key = (request.client, request.service);
        let until = now.saturating_add(self.hold_us);
        let from = request.mapped.unwrap_or(request.client);
        if let Some(same) = self.standing.get_mut(&key)
            && same.handle == request.handle
            && same.from == from
        {
            same.until = until;
            return same.accept;
        }
        self.standing.remove(&key);
        let denial = request.with(Kind::Deny);
        let Verdict::Accept { at, time } = judge(request) else {
            return denial;
        };
        if self.standing.len() >= MOST || at.is_ipv4() != request.client.is_ipv4() {
            return denial;
        }
        let accept = Message {
            service: at,
            ..request.with(Kind::Accept(time))
        };
        let accepted = Accepted {
            handle: request.handle,
            accept,
            from,
            until,
        };
        self.standing.insert(key, accepted);
        accept
    }

    /// A connection has come from there to here: what stood for it is done with. Whether anything did.
    pub fn connected(&mut self, client: SocketAddr, service: SocketAddr) -> bool {
        let found = self
            .standing
            .iter()
            .find(|(_, a)| a.from == client && a.accept.service == service);
        let key = found.map(|(key, _)| *key);
        key.is_some_and(|key| self.standing.remove(&key).is_some())
    }

    /// Removes what stands for this client and is that.
    fn forget(&mut self, is_that: impl Fn(&Accepted) -> bool, client: SocketAddr) {
        let mut of_client = self
            .standing
            .range((client, SocketAddr::from(([0, 0, 0, 0], 0)))..)
            .take_while(|((c, _), _)| *c == client);
        let found = of_client.find(|(_, a)| is_that(a)).map(|(key, _)| *key);
        if let Some(key) = found {
            self.standing.remove(&key);
        }
    }

    /// Drops what has stood for too long.
    pub fn expire(&mut self, now: u64) {
        self.standing.retain(|_, a| now < a.until);
    }

    /// When [`Self::expire`] has something to do.
    #[must_use]
    pub fn wake_at(&self) -> Option<u64> {
        self.standing.values().map(|a| a.until).min()
    }

    /// Accepted requests that stand.
    #[must_use]
    pub fn standing(&self) -> usize {
        self.standing.len()
    }
}
