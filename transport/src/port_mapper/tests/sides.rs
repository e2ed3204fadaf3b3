//! What the two sides do, alone and together.

use super::super::answerer::{Answerer, Verdict};
use super::super::answers::{Answers, Known};
use super::super::asker::{Answer, Asker, Timing};
use super::super::message::{Bytes, Kind, Lifetime, Message, PmTime};
use super::{at, request};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

const TIMING: Timing = Timing {
    first_us: 1000,
    requests: 3,
};
const HOLD_US: u64 = 10_000_000;

fn ask(handle: u64) -> Asker {
    let r = request(handle);
    let (asker, first) = Asker::new(r.client, r.service, handle, TIMING, 0);
    assert_eq!(Message::decode(first.as_ref()), Ok(r));
    asker
}

/// The answer of a server that takes SDP at port 40080.
fn accept(handle: u64) -> Message {
    Message {
        service: at("192.0.2.2:40080"),
        ..request(handle).with(Kind::Accept(PmTime(4)))
    }
}

fn yes(_: &Message) -> Verdict {
    Verdict::Accept {
        at: at("192.0.2.2:40080"),
        time: PmTime(4),
    }
}

fn no(_: &Message) -> Verdict {
    Verdict::Deny
}

fn kind(bytes: Option<Bytes>) -> Option<Kind> {
    bytes.map(|b| Message::decode(b.as_ref()).unwrap().kind)
}

#[test]
fn silence_is_three_requests_in_growing_waits() {
    let mut asker = ask(7);
    for (until, again) in [(1000, true), (3000, true), (7000, false)] {
        assert_eq!(asker.wake_at(), Some(until));
        let early = asker.timeout(until - 1);
        assert_eq!((early.send, early.answer), (None, None));
        let step = asker.timeout(until);
        assert_eq!(kind(step.send), again.then_some(Kind::Request), "{until}");
        if let Some(bytes) = step.send {
            assert_eq!(
                Message::decode(bytes.as_ref()),
                Ok(request(7)),
                "the same again"
            );
        }
        assert_eq!(step.answer, (!again).then_some(Answer::Silence));
    }
    assert_eq!(asker.wake_at(), None);
    assert_eq!(asker.timeout(u64::MAX).answer, None);
    let late = asker.receive(at("192.0.2.2:1").ip(), accept(7).encode().as_ref());
    assert_eq!((late.send, late.answer), (None, None));
}

#[test]
fn the_first_answer_counts() {
    let from = at("192.0.2.2:1").ip();
    let mut asker = ask(7);
    let step = asker.receive(from, accept(7).encode().as_ref());
    let accepted = Answer::Accepted {
        at: at("192.0.2.2:40080"),
        for_time: Lifetime::For(Duration::from_secs(1)),
    };
    assert_eq!(step.answer, Some(accepted));
    let ack = Message::decode(step.send.unwrap().as_ref());
    assert_eq!(ack, Ok(accept(7).with(Kind::Ack)));
    for later in [accept(7), request(7).with(Kind::Deny)] {
        let step = asker.receive(from, later.encode().as_ref());
        assert_eq!((step.send, step.answer), (None, None));
    }
    let mut asker = ask(8);
    let step = asker.receive(from, request(8).with(Kind::Deny).encode().as_ref());
    assert_eq!((step.send, step.answer), (None, Some(Answer::Denied)));
    assert_eq!(asker.wake_at(), None);
}

#[test]
fn what_is_no_answer_is_dropped() {
    let from = at("192.0.2.2:1").ip();
    let mut asker = ask(7);
    let other_client = Message {
        client: at("192.0.2.1:40001"),
        ..accept(7)
    };
    let other_service = Message {
        service: at("192.0.2.9:80"),
        ..request(7).with(Kind::Deny)
    };
    let wrong = [
        accept(8),
        other_client,
        other_service,
        request(7),
        request(7).with(Kind::Ack),
    ];
    for message in wrong {
        assert_eq!(
            asker.receive(from, message.encode().as_ref()).answer,
            None,
            "{message:?}"
        );
    }
    assert_eq!(asker.receive(from, b"nonsense").answer, None);
    let stranger = at("192.0.2.3:1").ip();
    assert_eq!(
        asker.receive(stranger, accept(7).encode().as_ref()).answer,
        None
    );
    // (an accepting answer may lead elsewhere)
    let elsewhere = Message {
        service: at("192.0.2.77:9"),
        ..accept(7)
    };
    let answer = asker.receive(from, elsewhere.encode().as_ref()).answer;
    assert!(
        matches!(answer, Some(Answer::Accepted { at: place, .. }) if place == at("192.0.2.77:9"))
    );
}

#[test]
fn the_same_request_gets_the_same_answer() {
    let mut server = Answerer::new(HOLD_US);
    let ask = request(7).encode();
    let first = server.receive(0, ask.as_ref(), yes);
    assert_eq!(Message::decode(first.unwrap().as_ref()), Ok(accept(7)));
    let again = server.receive(HOLD_US - 1, ask.as_ref(), no);
    assert_eq!(again, first, "judged once");
    assert_eq!(
        (server.standing(), server.wake_at()),
        (1, Some(2 * HOLD_US - 1)),
        "anew"
    );
    let other = server.receive(HOLD_US, request(8).encode().as_ref(), no);
    assert_eq!(
        (kind(other), server.standing()),
        (Some(Kind::Deny), 0),
        "another handle"
    );
    server.receive(0, ask.as_ref(), yes);
    server.expire(HOLD_US - 1);
    assert_eq!(server.standing(), 1);
    server.expire(HOLD_US);
    assert_eq!((server.standing(), server.wake_at()), (0, None));
}

#[test]
fn what_stands_goes_with_the_acknowledgement_or_the_connection() {
    let ack = |handle| accept(handle).with(Kind::Ack).encode();
    let mut server = Answerer::new(HOLD_US);
    server.receive(0, request(7).encode().as_ref(), yes);
    let elsewhere = Message {
        service: at("192.0.2.2:40081"),
        ..accept(7).with(Kind::Ack)
    };
    for stray in [
        ack(8),
        elsewhere.encode(),
        accept(7).encode(),
        request(7).with(Kind::Deny).encode(),
    ] {
        assert_eq!(server.receive(1, stray.as_ref(), yes), None);
        assert_eq!(server.standing(), 1);
    }
    assert_eq!(server.receive(1, ack(7).as_ref(), yes), None);
    assert_eq!(server.standing(), 0);
    server.receive(0, request(7).encode().as_ref(), yes);
    let (client, service) = (accept(7).client, accept(7).service);
    assert!(!server.connected(at("192.0.2.1:40001"), service));
    assert!(server.connected(client, service) && !server.connected(client, service));
    assert_eq!(server.standing(), 0);
}

#[test]
fn a_mapped_client_comes_from_where_it_said() {
    let mut server = Answerer::new(HOLD_US);
    let long = Message {
        mapped: Some(at("192.0.2.1:50001")),
        ..request(7)
    };
    let answer = server.receive(0, long.encode().as_ref(), yes).unwrap();
    assert_eq!(answer.as_ref().len(), 48);
    assert!(!server.connected(long.client, accept(7).service));
    assert!(server.connected(at("192.0.2.1:50001"), accept(7).service));
}

#[test]
fn what_is_kept_is_bounded() {
    let mut server = Answerer::new(HOLD_US);
    let from = |n: u16| Message {
        client: SocketAddr::new(at("192.0.2.1:1").ip(), n),
        ..request(7)
    };
    for n in 1..=5000 {
        let answer = kind(server.receive(0, from(n).encode().as_ref(), yes));
        let expected = if n <= 4096 {
            Kind::Accept(PmTime(4))
        } else {
            Kind::Deny
        };
        assert_eq!(answer, Some(expected), "{n}");
    }
    assert_eq!(server.standing(), 4096);
    let other_family = |_: &Message| Verdict::Accept {
        at: at("[2001:db8::1]:9"),
        time: PmTime::ONCE,
    };
    let mut server = Answerer::new(HOLD_US);
    let answer = server.receive(0, request(7).encode().as_ref(), other_family);
    assert_eq!(kind(answer), Some(Kind::Deny));
}

#[test]
fn answers_are_remembered_as_long_as_they_hold() {
    let mut answers = Answers::new(700, 500);
    let (service, there) = (at("192.0.2.2:80"), at("192.0.2.2:40080"));
    let accepted = |for_time| Answer::Accepted {
        at: there,
        for_time,
    };
    let until = |answers: &mut Answers, now: u64, end: u64, known| {
        assert_eq!(answers.look_up(service, now), Some(known));
        assert_eq!(answers.look_up(service, end - 1), Some(known));
        assert_eq!(answers.look_up(service, end), None);
        assert_eq!(answers.look_up(service, now), None, "forgotten");
    };
    answers.note(service, Answer::Silence, 0);
    until(&mut answers, 0, 500, Known::Silent);
    answers.note(service, Answer::Denied, 0);
    until(&mut answers, 0, 700, Known::Denied);
    answers.note(service, accepted(PmTime(1).lifetime()), 100);
    until(&mut answers, 100, 250_100, Known::At(there));
    answers.note(service, accepted(Lifetime::Forever), 0);
    assert_eq!(answers.look_up(service, u64::MAX), Some(Known::At(there)));
    answers.note_refused(service, 1000);
    until(&mut answers, 1000, 1700, Known::Denied);
    answers.note(service, Answer::Denied, 0);
    answers.note(service, accepted(Lifetime::Once), 1);
    assert_eq!(answers.look_up(service, 1), None);
    for port in 1..=5000 {
        answers.note(SocketAddr::new(service.ip(), port), Answer::Denied, 0);
    }
    let known = (1..=5000).filter(|&p| {
        answers
            .look_up(SocketAddr::new(service.ip(), p), 1)
            .is_some()
    });
    let known: BTreeSet<_> = known.collect();
    assert!(known.len() <= 4096 && known.contains(&5000));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    /// Over a network that loses, doubles and reorders: each question ends in time, as the server answers if anything
    /// came through both ways, and nothing stays with the server.
    #[test]
    fn every_question_ends(
        takes in any::<bool>(), requests in 1..6u32,
        fates in proptest::collection::vec((0..4usize, 0..3000u64), 0..40),
    ) {
        let mut fates = fates.into_iter();
        let mut server = Answerer::new(HOLD_US);
        let timing = Timing { first_us: 1000, requests };
        let r = request(7);
        let (mut asker, first) = Asker::new(r.client, r.service, 7, timing, 0);
        // What is under way: when it arrives, whether at the server, and what it is.
        let mut air: Vec<(u64, bool, Bytes)> = Vec::new();
        let mut put = |air: &mut Vec<(u64, bool, Bytes)>, now: u64, to_server: bool, bytes: Bytes| {
            let (copies, delay) = fates.next().unwrap_or((1, 10));
            for copy in 0..copies as u64 {
                air.push((now + delay * (copy + 1), to_server, bytes));
            }
        };
        put(&mut air, 0, true, first);
        let (mut answer, mut answers_arrived, mut now, mut decided) = (None, 0, 0, 0);
        loop {
            let soonest = air.iter().enumerate().min_by_key(|(_, (at, ..))| *at).map(|(i, (at, ..))| (i, *at));
            let step = match (soonest, asker.wake_at()) {
                (Some((i, at)), wake) if wake.is_none_or(|w| at <= w) => {
                    now = at.max(now);
                    let (_, to_server, bytes) = air.swap_remove(i);
                    if to_server {
                        if let Some(reply) = server.receive(now, bytes.as_ref(), if takes { yes } else { no }) {
                            put(&mut air, now, false, reply);
                        }
                        continue;
                    }
                    answers_arrived += u32::from(answer.is_none());
                    asker.receive(r.service.ip(), bytes.as_ref())
                }
                (_, Some(wake)) => {
                    now = wake.max(now);
                    asker.timeout(now)
                }
                _ => break,
            };
            if let Some(bytes) = step.send {
                put(&mut air, now, true, bytes);
            }
            if let Some(found) = step.answer {
                prop_assert!(answer.replace(found).is_none(), "decided twice");
                decided = now;
            }
        }
        let expected = match (answers_arrived, takes) {
            (0, _) => Answer::Silence,
            (_, true) => Answer::Accepted { at: at("192.0.2.2:40080"), for_time: PmTime(4).lifetime() },
            (_, false) => Answer::Denied,
        };
        prop_assert_eq!(answer, Some(expected));
        prop_assert!(decided <= 1000 * ((1 << requests) - 1), "{} us", decided);
        server.expire(now + HOLD_US);
        prop_assert_eq!(server.standing(), 0);
    }
}
