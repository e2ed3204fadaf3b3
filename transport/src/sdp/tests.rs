//! Streams over a real segment and a real TCP connection: whatever is sent, rung, ended, stopped and
//! given back in whatever order, the reader gets the bytes sent, in order, and never a bell. `side` plays
//! one end by the rules that `preload::sockets` keeps; `watched` lets the peer act in the middle of a
//! call, where another process would.

mod held;
mod killed;
mod side;
mod taken_back;
mod watched;

use super::rx::{Got, How};
use super::{Leg, Rx, Walk};
use crate::provider::{End, Provider};
use crate::shm::layout::{FIN_ABORTED, FIN_CLOSED, FIN_RESET, FIN_SHUT};
use flowctl::{Scheme, Terms};
use proptest::prelude::*;
use side::{Connection, Side};
use watched::Watched;

/// What one side does next.
#[derive(Clone, Debug)]
enum Step {
    /// Learns of the segment: the server agrees, the client finds out.
    Attach,
    Write(usize),
    Fill(usize),
    Read(usize, bool, bool),
    /// A bell that nobody asked for.
    Ring,
    Arm(u32),
    TakeBells(usize),
    /// Notices what the peer has done.
    Follow,
    /// Waits inside the library.
    Wait,
    /// Ends its own fast leg, and rings.
    End,
    /// Goes back to the kernel, keeping what came or giving it back.
    Cut(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Attach),
        6 => (1usize..6000).prop_map(Step::Write),
        1 => (1usize..3000).prop_map(Step::Fill),
        6 => (0usize..6000, prop::bool::weighted(0.2), prop::bool::weighted(0.1))
            .prop_map(|(n, peek, discard)| Step::Read(n, peek, discard)),
        2 => Just(Step::Ring),
        1 => (1u32..4).prop_map(Step::Arm),
        1 => (1usize..4).prop_map(Step::TakeBells),
        1 => Just(Step::Follow),
        1 => Just(Step::Wait),
        1 => Just(Step::End),
        1 => any::<bool>().prop_map(Step::Cut),
    ]
}

/// Small sizes by one scheme, so that room runs out often.
fn terms(scheme: Scheme) -> Terms {
    Terms {
        scheme,
        buffer: 2048,
        own: 1500,
        slots: 4,
        slot: 400,
        window: 300,
    }
}

fn two_terms() -> impl Strategy<Value = [Terms; 2]> {
    let one = || (0usize..3).prop_map(|i| terms(Scheme::ALL[i]));
    [one(), one()]
}

fn act(side: &mut Side, step: &Step) {
    match *step {
        Step::Attach => side.attach(),
        Step::Write(n) => side.write(n),
        Step::Fill(n) => side.fill(n),
        Step::Read(n, peek, discard) => {
            let p = side.p;
            side.read(
                &p,
                n,
                How {
                    peek,
                    discard,
                    ..How::default()
                },
            );
        }
        Step::Ring => side.ring(),
        Step::Arm(what) => side.p.arm(what),
        Step::TakeBells(most) => side.take_bells(most),
        Step::Follow => side.follow(),
        Step::Wait => side.wait(),
        Step::End => side.end(),
        Step::Cut(give_back) => side.cut(give_back),
    }
}

fn finish(c: &mut Connection) {
    for _ in 0..10_000 {
        let [a, b] = &mut c.sides;
        for side in [&mut *a, &mut *b] {
            side.follow();
            side.wait();
            let p = side.p;
            while side.read(&p, 5000, How::default()) {}
        }
        if a.got == b.sent && b.got == a.sent {
            a.assert_nothing_left();
            b.assert_nothing_left();
            return;
        }
    }
    let [a, b] = &c.sides;
    panic!(
        "{} of {} and {} of {} arrived",
        b.got, a.sent, a.got, b.sent
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2500) })]

    #[test]
    fn bytes_arrive_over_all_legs(
        region in prop_oneof![Just(4096usize), Just(16384)],
        terms in two_terms(),
        steps in prop::collection::vec((any::<bool>(), step()), 1..60),
    ) {
        let mut c = Connection::new(region, terms);
        for (who, step) in &steps {
            act(&mut c.sides[usize::from(*who)], step);
        }
        finish(&mut c);
    }

    /// The peer acts in the middle of this side's read, after the n-th look at a shared word.
    #[test]
    fn a_peer_may_act_in_the_middle_of_a_read(
        terms in two_terms(),
        before in prop::collection::vec((any::<bool>(), step()), 0..20),
        at in 0usize..12,
        during in prop::collection::vec(step(), 1..8),
        want in 1usize..6000,
        who in any::<bool>(),
    ) {
        let mut c = Connection::new(4096, terms);
        for (who, step) in &before {
            act(&mut c.sides[usize::from(*who)], step);
        }
        let (reader, peer) = c.split(who);
        let p = reader.p;
        let watched = Watched::new(p, at, || during.iter().for_each(|step| act(peer, step)));
        reader.read(&watched, want, How::default());
        finish(&mut c);
    }

    /// The same in the middle of a write: bells and a stop may come at any look.
    #[test]
    fn a_peer_may_act_in_the_middle_of_a_write(
        terms in two_terms(),
        before in prop::collection::vec((any::<bool>(), step()), 0..20),
        at in 0usize..12,
        during in prop::collection::vec(step(), 1..8),
        n in 1usize..9000,
        who in any::<bool>(),
    ) {
        let mut c = Connection::new(4096, terms);
        for (who, step) in &before {
            act(&mut c.sides[usize::from(*who)], step);
        }
        let (writer, peer) = c.split(who);
        let p = writer.p;
        let watched = Watched::new(p, at, || during.iter().for_each(|step| act(peer, step)));
        writer.write_through(&watched, n);
        finish(&mut c);
    }

    /// The same in the middle of going back to the kernel, where everything unread is gathered. The
    /// peer gives nothing back: a sender that ends its leg at that very moment would not see it.
    #[test]
    fn a_peer_may_act_in_the_middle_of_a_gather(
        terms in two_terms(),
        before in prop::collection::vec((any::<bool>(), step()), 0..20),
        at in 0usize..8,
        during in prop::collection::vec(step(), 1..6),
    ) {
        let mut c = Connection::new(4096, terms);
        for (who, step) in &before {
            act(&mut c.sides[usize::from(*who)], step);
        }
        let (one, peer) = c.split(false);
        let p = one.p;
        let watched = Watched::new(p, at, || during.iter().for_each(|step| match step {
            Step::Cut(_) => peer.cut(false),
            step => act(peer, step),
        }));
        one.cut_through(&watched, false);
        finish(&mut c);
    }
}

fn attached(scheme: Scheme) -> Connection {
    let mut c = Connection::new(4096, [terms(scheme); 2]);
    for i in [1, 0] {
        c.sides[i].attach();
    }
    c
}

/// The last bytes may be put, and the leg ended, between a look that found nothing and the look for the
/// end.
#[test]
fn an_end_stated_during_a_read_breaks_nothing() {
    for (at, scheme) in (0..8).flat_map(|at| Scheme::ALL.map(|s| (at, s))) {
        let mut c = attached(scheme);
        let (reader, peer) = c.split(true);
        let p = reader.p;
        let watched = Watched::new(p, at, || {
            peer.write(10);
            peer.end();
        });
        reader.read(&watched, 100, How::default());
        finish(&mut c);
    }
}

/// All three legs may pass between the look for the first one's end and the read of its bytes.
#[test]
fn a_whole_fast_leg_during_a_read_of_the_first_breaks_nothing() {
    for at in 0..8 {
        let mut c = Connection::new(4096, [terms(Scheme::Packetized); 2]);
        c.sides[1].attach();
        c.sides[0].write(5);
        let (reader, peer) = c.split(true);
        let p = reader.p;
        let watched = Watched::new(p, at, || {
            peer.attach();
            peer.write(10);
            peer.end();
            peer.write(20);
        });
        reader.read(&watched, 100, How::default());
        finish(&mut c);
    }
}

/// Both sides go back to the kernel, neither having seen that the other has: the one that comes second
/// finds nobody who would take a bell for a bell.
#[test]
fn both_may_go_back_without_seeing_each_other() {
    for (give_back, scheme) in [false, true]
        .into_iter()
        .flat_map(|back| Scheme::ALL.map(|s| (back, s)))
    {
        let mut c = attached(scheme);
        c.sides[0].write(100);
        c.sides[0].p.arm(3);
        c.sides[1].p.arm(3);
        c.sides[1].cut(give_back);
        c.sides[0].cut(false);
        c.sides[0].write(10);
        finish(&mut c);
    }
}

/// More may be under way on the first leg than the receiver's kernel has taken.
#[test]
fn a_gather_waits_for_all_of_the_first_leg() {
    let mut c = Connection::new(4096, [terms(Scheme::Packetized); 2]);
    let [a, b] = &mut c.sides;
    b.attach();
    let mut before = u64::MAX;
    while a.sent != before {
        before = a.sent;
        a.write(100_000);
    }
    a.attach();
    a.write(100);
    b.cut(false);
    finish(&mut c);
}

#[test]
fn a_fin_comes_after_the_last_byte() {
    for (fin, end) in [
        (FIN_SHUT, Got::Eof),
        (FIN_CLOSED, Got::Eof),
        (FIN_RESET, Got::Reset),
        (FIN_ABORTED, Got::Eof),
    ] {
        let mut c = attached(Scheme::Nic);
        let [a, b] = &mut c.sides;
        a.write(10);
        a.tx.finish(&a.p, fin);
        assert!(a.tx.is_finished());
        let mut bytes = [0u8; 64];
        for wanted in [Got::Bytes(10), end] {
            let mut walk = Walk::one(bytes.as_mut_ptr(), 64);
            // SAFETY: the walk's buffer is writable.
            let got = unsafe { b.rx.read(&b.p, b.raw(), &mut walk, How::default()) };
            assert_eq!(got, Ok(wanted));
        }
    }
}

#[test]
fn a_first_leg_that_ends_before_what_was_read_is_a_lie() {
    let mut c = Connection::new(4096, [terms(Scheme::Packetized); 2]);
    let [a, b] = &mut c.sides;
    a.write(10);
    let p = b.p;
    b.attach();
    assert!(b.read(&p, 10, How::default()));
    a.p.state(End::Kernel, 9);
    let mut byte = 0u8;
    let mut walk = Walk::one(&raw mut byte, 1);
    // SAFETY: the walk's buffer is writable.
    let got = unsafe { b.rx.read(&b.p, b.raw(), &mut walk, How::default()) };
    assert_eq!(got, Ok(Got::Broken));
    assert_eq!(Rx::new().leg(), Leg::First);
}

/// What is withheld is not there before the next is sent, or the leg ends; and then all of it is, whatever ended.
#[test]
fn what_is_withheld_comes_with_what_follows() {
    for scheme in [Scheme::Credit, Scheme::Packetized, Scheme::Nic] {
        for how in 0..6 {
            let mut c = attached(scheme);
            let [a, b] = &mut c.sides;
            let p = b.p;
            for n in [100, 51] {
                a.write_more(n);
                b.read(&p, 5000, How::default());
                assert_eq!(b.got, 0, "{scheme:?} {how}");
            }
            match how {
                0 => a.write(10),
                1 => a.write(11),
                2 => a.tx.tell_withheld(&a.p, a.raw()),
                3 => a.tx.finish(&a.p, FIN_CLOSED),
                4 => a.tx.end_fast(&a.p, a.raw()),
                _ => b.rx.end_kernel(None),
            }
            b.read(&p, 5000, How::default());
            assert_eq!(b.got, a.sent, "{scheme:?} {how}");
        }
    }
}

/// A sender that parked bytes and is gone, without a word or with its last one: they still arrive.
#[test]
fn what_a_dead_sender_had_parked_arrives() {
    for fin in [false, true] {
        let mut c = attached(Scheme::Packetized);
        let [a, b] = &mut c.sides;
        a.write(3000);
        assert!(a.tx.is_parked());
        let p = b.p;
        b.read(&p, 5000, How::default());
        assert_eq!(b.got, 2048);
        if fin {
            a.tx.finish(&a.p, FIN_CLOSED);
        } else {
            b.rx.end_kernel(None);
        }
        b.read(&p, 5000, How::default());
        assert_eq!(b.got, 3000);
    }
}
