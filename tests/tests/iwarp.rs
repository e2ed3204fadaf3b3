//! Two ends of our own iWARP follow the script over loopback: what `scripts/test-rdma` does against Linux's driver, with all
//! that only we can do: markers, every kind of "ready to receive", every violation in both directions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::{TcpListener, TcpStream};

use shunt_tests::iwarp::end::{End, Ending};
use shunt_tests::iwarp::offence::Offence;
use shunt_tests::iwarp::script::Actor;
use shunt_tests::iwarp::setup::{Options, SetUp, set_up};
use transport::iwarp::mpa::setup::Role;
use transport::iwarp::mpa::{LARGEST_ULPDU, RtrSet};
use transport::iwarp::rdmap::Violation;

const SEED: u32 = 0x5eed_1234;

/// Both ends of a stream, up to their hellos: `what` runs on a thread for each.
fn both(change: impl Fn(&mut Options), what: impl Fn(&mut Actor, Role) + Send + Sync) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let options = [Role::Initiator, Role::Responder].map(|role| {
        let mut options = Options::new(role);
        change(&mut options);
        options
    });
    let what = &what;
    let play = move |mut tcp: TcpStream, options: Options| {
        let SetUp::Open(terms, seed) = set_up(&mut tcp, &options, SEED) else {
            panic!("no stream");
        };
        assert_eq!(seed, SEED);
        let first = if terms.rtr.is_some() {
            Role::Responder
        } else {
            Role::Initiator
        };
        let end = End::new(tcp, &options, &terms);
        let mut actor = Actor::hello(end, &options, first, seed);
        what(&mut actor, options.role);
    };
    std::thread::scope(|scope| {
        let responder = scope.spawn(move || play(listener.accept().unwrap().0, options[1]));
        let initiator = scope.spawn(move || play(TcpStream::connect(address).unwrap(), options[0]));
        initiator.join().unwrap();
        responder.join().unwrap();
    });
}

fn script(change: impl Fn(&mut Options)) {
    both(change, |actor, _| actor.follow());
}

#[test]
fn with_and_without_crc_and_markers() {
    for (crc, markers) in [(true, false), (false, false), (true, true), (false, true)] {
        script(|options| (options.crc, options.markers) = (crc, markers));
    }
}

#[test]
fn one_end_wants_a_crc() {
    for wants in [Role::Initiator, Role::Responder] {
        script(|options| options.crc = options.role == wants);
    }
}

#[test]
fn revision_1() {
    script(|options| options.enhanced = false);
}

#[test]
fn ready_to_receive() {
    let none = RtrSet::NONE;
    for rtr in [
        RtrSet { fpdu: true, ..none },
        RtrSet {
            write: true,
            ..none
        },
        RtrSet { read: true, ..none },
    ] {
        script(|options| options.rtr = rtr);
    }
}

#[test]
fn one_read_at_a_time() {
    for few in [Role::Initiator, Role::Responder] {
        script(|options| {
            if options.role == few {
                options.depth = 1;
            }
        });
    }
}

#[test]
fn small_and_large_segments() {
    for mulpdu in [200, LARGEST_ULPDU] {
        script(|options| options.mulpdu = mulpdu);
    }
}

#[test]
fn straight_to_their_place() {
    let change = |options: &mut Options| {
        options.direct = true;
        options.mulpdu = LARGEST_ULPDU;
    };
    both(change, |actor, _| {
        actor.follow();
        assert!(actor.end.bypassed > 0);
    });
}

#[test]
fn each_violation_ends_the_stream_with_its_terminate() {
    for offender in [Role::Initiator, Role::Responder] {
        for offence in Offence::ALL {
            both(
                |_| {},
                |actor, role| {
                    if role == offender {
                        let said = offence.commit_and_hear(actor);
                        // RFC 5040 figure 10: what is told of the segment.
                        let told = offence.violation() != Violation::Crc;
                        assert_eq!(said.header.is_some(), told, "{offence:?}");
                        let read = matches!(
                            offence,
                            Offence::ReadStag | Offence::ReadBounds | Offence::ReadEnded
                        );
                        assert_eq!(said.read.is_some(), read, "{offence:?}");
                    } else {
                        offence.suffer(actor);
                    }
                },
            );
        }
    }
}

/// A connection that goes away is no violation.
#[test]
fn closed_early() {
    both(
        |_| {},
        |actor, role| {
            if role == Role::Responder {
                actor.end.close();
            }
            assert_eq!(actor.end.wait_for_end(), Ending::Closed);
            actor.end.close();
        },
    );
}
