//! What a client asks and knows, over links whose other end the test holds.

use super::at;
use crate::port_mapper::asker::Timing;
use crate::port_mapper::message::{Kind, Message, PmTime};
use crate::port_mapper::questions::{Arrived, Holds, Link, Questions, Verdict};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;

const TIMING: Timing = Timing {
    first_us: 100,
    requests: 2,
};
const HOLDS: Holds = Holds {
    denied_us: 5_000,
    silent_us: 9_000,
    once_us: 1_000,
    patience_us: 50,
};

enum Coming {
    Bytes(Vec<u8>),
    Unreachable,
}

#[derive(Default)]
struct Wire {
    sent: Vec<Message>,
    coming: VecDeque<Coming>,
    closed: bool,
}

#[derive(Clone, Default)]
struct Far(Rc<RefCell<Wire>>);

struct Near(Far);

impl Drop for Near {
    fn drop(&mut self) {
        self.0.0.borrow_mut().closed = true;
    }
}

impl Link for Near {
    fn send(&mut self, bytes: &[u8]) {
        let message = Message::decode(bytes).unwrap();
        self.0.0.borrow_mut().sent.push(message);
    }

    fn receive<T>(&mut self, show: impl FnOnce(Arrived<'_>) -> T) -> Option<T> {
        let coming = self.0.0.borrow_mut().coming.pop_front()?;
        Some(match &coming {
            Coming::Bytes(bytes) => show(Arrived::Datagram(bytes)),
            Coming::Unreachable => show(Arrived::Unreachable),
        })
    }
}

impl Far {
    fn first(&self) -> Message {
        self.0.borrow().sent[0]
    }

    fn kinds(&self) -> Vec<Kind> {
        self.0.borrow().sent.iter().map(|m| m.kind).collect()
    }

    fn answer(&self, message: Message) {
        let coming = Coming::Bytes(message.encode().as_ref().to_vec());
        self.0.borrow_mut().coming.push_back(coming);
    }

    fn accept(&self, time: u8) {
        self.answer(self.first().with(Kind::Accept(PmTime(time))));
    }

    fn is_closed(&self) -> bool {
        self.0.borrow().closed
    }
}

fn asked(q: &mut Questions<Near>, service: SocketAddr, now: u64) -> Far {
    let far = Far::default();
    assert!(q.is_wanted(service, now));
    q.ask(
        service,
        at("192.0.2.1:5000"),
        now + 7,
        Near(far.clone()),
        now,
    );
    assert!(!q.is_wanted(service, now), "asked once at a time");
    far
}

fn new() -> (Questions<Near>, SocketAddr) {
    (Questions::new(TIMING, HOLDS), at("192.0.2.2:80"))
}

#[test]
fn an_acceptance_holds_as_long_as_it_says_from_the_last_look() {
    let (mut q, service) = new();
    let far = asked(&mut q, service, 0);
    assert_eq!(q.verdict(service, 10), None, "not answered yet");
    assert!(q.link(service).is_some());
    far.accept(4);
    assert_eq!(q.verdict(service, 50), Some(Verdict::Accepted));
    assert!(far.is_closed() && q.link(service).is_none());
    assert_eq!(far.kinds(), [Kind::Request, Kind::Ack]);
    let end = 10 + 1_000_000;
    assert!(!q.is_wanted(service, end - 1));
    assert_eq!(q.verdict(service, end - 1), Some(Verdict::Accepted));
    assert_eq!(q.verdict(service, end), None);
    assert!(q.is_wanted(service, end));
    assert!(q.is_wanted(at("192.0.2.2:81"), 50), "of another port");
}

#[test]
fn a_late_answer_is_for_the_next_and_an_old_one_for_nobody() {
    let (mut q, service) = new();
    let far = asked(&mut q, service, 0);
    assert_eq!(q.verdict(service, 90), None);
    far.accept(4);
    assert_eq!(q.verdict(service, 900_000), Some(Verdict::Accepted));
    let (mut q, service) = new();
    let far = asked(&mut q, service, 0);
    far.accept(4);
    assert!(
        q.is_wanted(service, 3_000_000),
        "it was over before it was read"
    );
    assert!(far.is_closed());
}

#[test]
fn a_denial_silence_and_no_way_are_remembered_for_their_times() {
    let (mut q, service) = new();
    let far = asked(&mut q, service, 0);
    far.answer(far.first().with(Kind::Deny));
    assert_eq!(q.verdict(service, 10), Some(Verdict::Denied));
    assert!(!q.is_wanted(service, 5_009) && q.is_wanted(service, 5_010));

    let (mut q, service) = new();
    let far = asked(&mut q, service, 0);
    assert_eq!(q.verdict(service, 99), None);
    assert_eq!(far.kinds(), [Kind::Request]);
    assert_eq!(q.verdict(service, 100), None);
    assert_eq!(
        far.kinds(),
        [Kind::Request; 2],
        "asked again, by whoever looks"
    );
    assert_eq!(q.verdict(service, 299), None);
    assert_eq!(q.verdict(service, 300), Some(Verdict::Silent));
    assert_eq!(far.kinds(), [Kind::Request; 2]);
    let (beside, other) = (at("192.0.2.2:81"), at("192.0.2.3:80"));
    assert_eq!(q.verdict(beside, 300), Some(Verdict::Silent), "the host's");
    assert_eq!(
        (q.verdict(other, 300), q.is_wanted(other, 300)),
        (None, true)
    );
    assert!(!q.is_wanted(service, 9_299) && q.is_wanted(service, 9_300));

    let (mut q, service) = new();
    let far = asked(&mut q, service, 0);
    far.0.borrow_mut().coming.push_back(Coming::Unreachable);
    assert_eq!(q.verdict(service, 1), Some(Verdict::Silent));
    assert!(far.is_closed());

    let (mut q, service) = new();
    q.note_silent(service, 0);
    assert_eq!(q.verdict(service, 8_999), Some(Verdict::Silent));
    assert!(q.is_wanted(service, 9_000));
}

#[test]
fn nobody_is_sent_elsewhere() {
    let (mut q, service) = new();
    for elsewhere in ["192.0.2.2:81", "192.0.2.3:80"] {
        let far = asked(&mut q, service, 0);
        let accept = far.first().with(Kind::Accept(PmTime(255)));
        let accept = Message {
            service: at(elsewhere),
            ..accept
        };
        far.answer(accept);
        assert_eq!(q.verdict(service, 0), Some(Verdict::Denied), "{elsewhere}");
        (q, _) = new();
    }
}

#[test]
fn what_is_for_one_connection_is_for_one() {
    let (mut q, service) = new();
    let far = asked(&mut q, service, 0);
    far.accept(0);
    assert!(!q.is_wanted(service, 10), "it is there to be taken");
    assert_eq!(q.verdict(service, 20), Some(Verdict::Accepted));
    assert_eq!(q.verdict(service, 20), None);
    assert!(q.is_wanted(service, 20));
    let far = asked(&mut q, service, 2_000);
    far.accept(0);
    assert!(!q.is_wanted(service, 2_000));
    assert_eq!(q.verdict(service, 3_000), None, "nobody came for it");
}

#[test]
fn who_was_refused_by_the_service_itself_does_not_ask_again_soon() {
    let (mut q, service) = new();
    let far = asked(&mut q, service, 0);
    far.accept(255);
    assert_eq!(q.verdict(service, 0), Some(Verdict::Accepted));
    q.note_refused(service, 10);
    assert_eq!(q.verdict(service, 5_009), Some(Verdict::Denied));
    assert!(q.is_wanted(service, 5_010));
}

#[test]
fn a_service_that_was_not_there_is_asked_about_at_the_next_try() {
    let (mut q, service) = new();
    let far = asked(&mut q, service, 0);
    q.forget(service);
    assert!(far.is_closed(), "what met nobody is not waited for");
    let far = asked(&mut q, service, 10);
    far.0.borrow_mut().coming.push_back(Coming::Unreachable);
    assert!(!q.is_wanted(service, 20), "until a connection has come");
    q.forget(service);
    let far = asked(&mut q, service, 30);
    far.accept(4);
    assert_eq!(q.verdict(service, 40), Some(Verdict::Accepted));
    q.forget(service);
    assert_eq!(q.verdict(service, 50), Some(Verdict::Accepted), "it stands");
}

/// The service may have begun to listen between the question and the connection.
#[test]
fn what_was_asked_too_early_is_asked_once_more_by_the_connection() {
    let (mut q, service) = new();
    q.forget(service);
    let lost = asked(&mut q, service, 0);
    assert_eq!(q.verdict(service, 10), None);
    assert!(lost.is_closed());
    let far = asked(&mut q, service, 10);
    assert_eq!(q.verdict(service, 15), None, "once");
    far.accept(4);
    assert_eq!(q.verdict(service, 20), Some(Verdict::Accepted));
    for silent in [false, true] {
        let say = |far: &Far| {
            let deny = far.first().with(Kind::Deny).encode().as_ref().to_vec();
            let coming = if silent {
                Coming::Unreachable
            } else {
                Coming::Bytes(deny)
            };
            far.0.borrow_mut().coming.push_back(coming);
        };
        let (mut q, service) = new();
        say(&asked(&mut q, service, 0));
        assert!(!q.is_wanted(service, 0), "the first try's");
        q.forget(service);
        say(&asked(&mut q, service, 0));
        assert_eq!(q.verdict(service, 10), None, "{silent}");
        let far = asked(&mut q, service, 10);
        far.accept(4);
        assert_eq!(q.verdict(service, 20), Some(Verdict::Accepted));

        let (mut q, service) = new();
        q.forget(service);
        say(&asked(&mut q, service, 0));
        assert_eq!(q.verdict(service, 10), None);
        say(&asked(&mut q, service, 10));
        assert!(q.verdict(service, 20).is_some(), "{silent}: once");
        assert!(!q.is_wanted(service, 30));
        let beside = at("192.0.2.2:81");
        assert_eq!(q.verdict(beside, 30).is_some(), silent, "the host's");
    }
}

#[test]
fn a_question_is_waited_for_by_all_together() {
    let (mut q, service) = new();
    assert!(q.patience(service, 30).is_none(), "not asked");
    asked(&mut q, service, 0);
    let wait = |q: &mut Questions<Near>, us| q.patience(service, us).map(|(_, us)| us);
    assert_eq!(wait(&mut q, 30), Some(30));
    assert_eq!(wait(&mut q, 30), Some(20));
    assert_eq!(wait(&mut q, 30), None);
}

#[test]
fn strangers_are_not_listened_to() {
    let (mut q, service) = new();
    let far = asked(&mut q, service, 0);
    let wrong = Message {
        handle: 1234,
        ..far.first()
    };
    far.answer(wrong.with(Kind::Accept(PmTime(255))));
    let noise = Coming::Bytes(vec![1; 48]);
    far.0.borrow_mut().coming.push_back(noise);
    assert_eq!(q.verdict(service, 0), None);
    assert!(far.0.borrow().coming.is_empty() && !far.is_closed());
}

#[test]
fn open_questions_are_bounded_and_a_child_has_none() {
    let (mut q, _) = new();
    let service = |n: u16| SocketAddr::new(at("192.0.2.2:1").ip(), n);
    let all: Vec<Far> = (1..=70).map(|n| asked(&mut q, service(n), 0)).collect();
    let open: Vec<bool> = all.iter().map(|f| !f.is_closed()).collect();
    assert_eq!(open.iter().filter(|&&o| o).count(), 64);
    assert!(open[6..].iter().all(|&o| o), "the oldest have gone");
    all[69].accept(255);
    assert_eq!(q.verdict(service(70), 0), Some(Verdict::Accepted));
    q.part();
    assert!(all.iter().all(Far::is_closed));
    assert_eq!(q.verdict(service(70), 0), Some(Verdict::Accepted));
    assert!(q.is_wanted(service(69), 0));
}
