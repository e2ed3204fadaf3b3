//! The client's questions: those that are open, and what is known from those that were answered. A connect asks where
//! nothing is known, and goes on; whoever wants to know takes in what has come by then.
//!
//! - A service is asked once at a time, and not while its last answer holds.
//! - Time passes only in calls: a request is sent again, and silence is noted, when somebody next looks. What is found
//!   then has come since the last look, when there was nothing, and holds from that on.
//! - An acceptance and a denial are about a port, silence is about a host: nobody there answers for any.
//! - An acceptance that names another address than was asked for is taken for a denial: a connection never goes
//!   elsewhere than the program said.
//! - A service that was not there at the last try is asked about anew, and a question that was put before the connection was
//!   there may have come before its port mapper, or its listener: unless it has brought an acceptance by then, the connection
//!   itself asks once more.
//! - What was not answered yet is not known, whatever that costs: nobody waits in here. Those who wait outside have a
//!   time for each question, which is theirs together: a burst of connections to a silent host is not kept one by one.
//! - Bounded: the oldest question gives way to the newest.

use super::answers::{Answers, Known};
use super::asker::{Answer, Asker, Step, Timing};
use super::message::Lifetime;
use std::net::SocketAddr;

/// Questions open at a time, and acceptances for a single use that wait for their connection.
const MOST: usize = 64;

/// How long what was learnt holds, in µs; an acceptance says so itself.
#[derive(Clone, Copy, Debug)]
pub struct Holds {
    pub denied_us: u64,
    /// Nobody answers there, or nobody can be reached.
    pub silent_us: u64,
    /// How long an acceptance for a single connection waits for that.
    pub once_us: u64,
    /// How long a question may be waited for, by all together.
    pub patience_us: u64,
}

/// What came by a link.
#[derive(Debug)]
pub enum Arrived<'a> {
    Datagram(&'a [u8]),
    /// Word that nobody listens there, or that there is no way.
    Unreachable,
}

/// The way to one port mapper and back. Closed when dropped.
pub trait Link {
    /// Sends a message, or loses it.
    fn send(&mut self, bytes: &[u8]);

    /// Shows one thing that has come, if anything has. Does not wait.
    fn receive<T>(&mut self, show: impl FnOnce(Arrived<'_>) -> T) -> Option<T>;
}

/// What is known of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It takes SDP, at the very address that was asked for.
    Accepted,
    Denied,
    Silent,
}

#[derive(Debug)]
struct Open<L> {
    service: SocketAddr,
    asker: Asker,
    link: L,
    /// When there was nothing yet.
    looked: u64,
    /// How long it may still be waited for.
    patience_us: u64,
}

/// Everything that a process has asked.
#[derive(Debug)]
pub struct Questions<L> {
    /// The oldest first.
    open: Vec<Open<L>>,
    answers: Answers,
    /// Accepted for one connection, until then.
    once: Vec<(SocketAddr, u64)>,
    /// Services that were not there when they were tried: asked about at the next try, also where their host is silent. They
    /// stay until a connection to them has found what that has brought.
    absent: Vec<SocketAddr>,
    timing: Timing,
    holds: Holds,
}

impl<L: Link> Questions<L> {
    #[must_use]
    pub const fn new(timing: Timing, holds: Holds) -> Self {
        Self {
            open: Vec::new(),
            answers: Answers::new(holds.denied_us, holds.silent_us),
            once: Vec::new(),
            absent: Vec::new(),
            timing,
            holds,
        }
    }

    /// Whether a connect should ask about this service: nothing is known of it, and it has not been asked.
    pub fn is_wanted(&mut self, service: SocketAddr, now: u64) -> bool {
        self.pump(now);
        self.link(service).is_none()
            && self.known(service, now).is_none()
            && !self.once.iter().any(|&(s, _)| s == service)
    }

    /// Asks about a service by this link, on behalf of `client`, the link's own address: the port that the connection
    /// will come from is not known yet. `handle` is random.
    pub fn ask(
        &mut self,
        service: SocketAddr,
        client: SocketAddr,
        handle: u64,
        mut link: L,
        now: u64,
    ) {
        let (asker, first) = Asker::new(client, service, handle, self.timing, now);
        link.send(first.as_ref());
        if self.open.len() >= MOST {
            self.open.remove(0);
        }
        self.open.push(Open {
            service,
            asker,
            link,
            looked: now,
            patience_us: self.holds.patience_us,
        });
    }

    /// What is known of a service. An acceptance for a single connection is known once.
    pub fn verdict(&mut self, service: SocketAddr, now: u64) -> Option<Verdict> {
        self.pump(now);
        if let Some(at) = self.once.iter().position(|&(s, _)| s == service) {
            self.once.remove(at);
            return Some(Verdict::Accepted);
        }
        let verdict = self.known(service, now).map(|known| match known {
            Known::At(_) => Verdict::Accepted,
            Known::Denied => Verdict::Denied,
            Known::Silent => Verdict::Silent,
        });
        if verdict != Some(Verdict::Accepted)
            && let Some(at) = self.absent.iter().position(|&s| s == service)
        {
            self.absent.remove(at);
            self.drop_question(service);
            self.answers.forget(host(service));
            return None; // it, and its host, may have been asked too early
        }
        verdict
    }

    /// Neither a question that is open nor what one has brought, but an acceptance.
    fn drop_question(&mut self, service: SocketAddr) {
        self.open.retain(|o| o.service != service);
        self.answers.forget(service);
    }

    fn known(&mut self, service: SocketAddr, now: u64) -> Option<Known> {
        let known = self.answers.look_up(service, now);
        if known.is_some() || self.absent.contains(&service) {
            return known;
        }
        self.answers.look_up(host(service), now)
    }

    /// The link by which the answer about a service will come, if it was asked.
    pub fn link(&self, service: SocketAddr) -> Option<&L> {
        let open = self.open.iter().find(|o| o.service == service);
        open.map(|o| &o.link)
    }

    /// The link at which an answer may be waited for, and for how long (µs), out of the time for that question.
    pub fn patience(&mut self, service: SocketAddr, most_us: u64) -> Option<(&L, u64)> {
        let open = self.open.iter_mut().find(|o| o.service == service)?;
        let us = most_us.min(open.patience_us);
        open.patience_us -= us;
        (us > 0).then_some((&open.link, us))
    }

    /// There is no way to that service's port mapper.
    pub fn note_silent(&mut self, service: SocketAddr, now: u64) {
        self.answers.note(host(service), Answer::Silence, now);
    }

    /// The service did not take SDP, whatever the port mapper said.
    pub fn note_refused(&mut self, service: SocketAddr, now: u64) {
        self.once.retain(|&(s, _)| s != service);
        self.answers.note_refused(service, now);
    }

    /// The service was not there when it was tried: an answer that it does not take SDP, or none, says nothing of the next try,
    /// which asks anew. (A question that met nobody would be sent again after a while only, too late for that try.)
    pub fn forget(&mut self, service: SocketAddr) {
        self.drop_question(service);
        if !self.absent.contains(&service) {
            if self.absent.len() >= MOST {
                self.absent.remove(0);
            }
            self.absent.push(service);
        }
    }

    /// Forgets what is open: in a child after fork, whose parent gets the answers.
    pub fn part(&mut self) {
        self.open.clear();
        self.once.clear();
    }

    /// Takes in what has come and what time has done.
    fn pump(&mut self, now: u64) {
        self.once.retain(|&(_, until)| now < until);
        let mut decided = Vec::new();
        self.open.retain_mut(|o| match look(o, now) {
            Some((answer, at)) => {
                decided.push((o.service, answer, at));
                false
            }
            None => true,
        });
        for (service, answer, at) in decided {
            self.note(service, answer, at, now);
        }
    }

    /// Takes in an answer that came at that time.
    fn note(&mut self, service: SocketAddr, answer: Answer, at: u64, now: u64) {
        let answer = match answer {
            Answer::Accepted { at, .. } if at != service => Answer::Denied,
            answer => answer,
        };
        let once = Answer::Accepted {
            at: service,
            for_time: Lifetime::Once,
        };
        let until = at.saturating_add(self.holds.once_us);
        if answer == once && now < until {
            if self.once.len() >= MOST {
                self.once.remove(0);
            }
            self.once.push((service, until));
        }
        let was_absent = self.absent.contains(&service);
        if matches!(answer, Answer::Accepted { .. }) {
            self.absent.retain(|&s| s != service);
        }
        let about = match answer {
            Answer::Silence if !was_absent => host(service),
            _ => service,
        };
        self.answers.note(about, answer, at);
    }
}

/// What silence is remembered by: no service has port 0.
fn host(service: SocketAddr) -> SocketAddr {
    SocketAddr::new(service.ip(), 0)
}

/// What has come of a question, and since when that holds.
fn look<L: Link>(open: &mut Open<L>, now: u64) -> Option<(Answer, u64)> {
    let Open {
        service,
        asker,
        link,
        looked,
        ..
    } = open;
    // (bounded: a flood must not keep a connect)
    for _ in 0..MOST {
        let arrived = link.receive(|arrived| match arrived {
            Arrived::Datagram(bytes) => asker.receive(service.ip(), bytes),
            Arrived::Unreachable => Step {
                send: None,
                answer: Some(Answer::Silence),
            },
        });
        let Some(step) = arrived else {
            let step = asker.timeout(now);
            *looked = now;
            return act(&step, link).map(|answer| (answer, now));
        };
        if let Some(answer) = act(&step, link) {
            let since = match answer {
                Answer::Accepted { .. } => *looked,
                Answer::Denied | Answer::Silence => now,
            };
            return Some((answer, since));
        }
    }
    None
}

fn act(step: &Step, link: &mut impl Link) -> Option<Answer> {
    if let Some(bytes) = step.send {
        link.send(bytes.as_ref());
    }
    step.answer
}
