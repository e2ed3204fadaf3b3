//! Packetized directions: what goes, what is parked, what is handed back, and what a peer that lies about it meets.

use super::super::set_up::Want;
use super::super::window::OWN;
use super::{End, Random, Sent, State, packetized, pair, want};
use crate::sdp_wire::message::Message;
use std::os::fd::AsRawFd;

const WINDOW: usize = 65536;

const fn scheme() -> Want {
    packetized(want(false, (65536, 32768)), WINDOW as u64)
}

/// Two ends of which the first has been heard.
fn ends(wants: [Want; 2]) -> [End; 2] {
    let mut ends = pair(wants, 2_000_000);
    let mut random = Random(1);
    ends[1].receive(&mut random);
    ends
}

/// Sends messages of a thousand bytes as long as they are taken. How many bytes.
fn fill(end: &mut End) -> usize {
    let before = end.sent;
    let mut random = Random(9);
    while matches!(end.send(&mut random, 1000), Sent::Bytes(_)) {}
    end.sent - before
}

fn parked(end: &End) -> usize {
    unsafe { end.wire().out() }.parked()
}

fn serve_all(end: &End) {
    let (wire, fd) = (end.wire(), end.fd.as_raw_fd());
    unsafe {
        wire.incoming().available(&wire.common, fd);
        wire.out().serve(&wire.common, fd).unwrap();
    }
}

/// Reads everything that comes without a call at the other end. How many bytes.
fn drain(end: &mut End) -> usize {
    let before = end.received;
    let mut random = Random(4);
    for _ in 0..200 {
        end.receive(&mut random);
    }
    end.received - before
}

#[test]
fn out_of_room_bytes_are_parked_and_go_with_a_call_once_there_is_room() {
    let mut ends = ends([scheme(), scheme()]);
    assert_eq!(
        fill(&mut ends[0]),
        2 * WINDOW,
        "the window, and the own buffer"
    );
    assert_eq!(parked(&ends[0]), WINDOW);
    assert!(ends[0].wire().common.words.parked_since().is_some());
    assert_eq!(drain(&mut ends[1]), WINDOW, "the rest waits for a call");
    assert_eq!(parked(&ends[0]), WINDOW);
    serve_all(&ends[0]);
    assert!(
        parked(&ends[0]) < WINDOW,
        "what had been taken when it asked"
    );
    while ends[1].received < ends[0].sent {
        drain(&mut ends[1]);
        serve_all(&ends[0]);
    }
    assert_eq!(parked(&ends[0]), 0);
    assert_eq!(ends[0].wire().common.words.parked_since(), None);
    gone(&mut ends);
    assert_eq!(ends[1].state(), State::Eof, "nothing is missing");
    let (_, starved) = unsafe { ends[0].wire().out() }.counts();
    assert_eq!(starved, 1);
}

/// Words that the second end has said of what it has taken.
fn told(ends: &[End; 2]) -> u64 {
    unsafe { ends[1].wire().out() }.window().1
}

#[test]
fn who_has_room_is_told_nothing() {
    let mut ends = ends([scheme(), scheme()]);
    let mut random = Random(2);
    let mut one = 0;
    while one < WINDOW {
        assert!(matches!(ends[0].send(&mut random, 500), Sent::Bytes(_)));
        one = ends[0].sent + 500;
        drain(&mut ends[1]);
        serve_all(&ends[1]);
    }
    assert_eq!(told(&ends), 0);
    assert!(!ends[0].wire().common.is_answered());
}

#[test]
fn who_asks_is_answered_once_and_there_is_room() {
    let mut ends = ends([scheme(), scheme()]);
    let mut random = Random(2);
    let mut asked = 0;
    for _ in 0..50 {
        while parked(&ends[0]) < 500 {
            assert!(matches!(ends[0].send(&mut random, 500), Sent::Bytes(_)));
        }
        asked += u64::from(ends[0].wire().common.is_answered());
        while parked(&ends[0]) > 0 {
            drain(&mut ends[1]);
            serve_all(&ends[1]);
            serve_all(&ends[0]);
            assert!(
                !ends[0].wire().common.is_answered(),
                "it is, as all of it was read"
            );
        }
    }
    assert_eq!(asked, 50);
    assert_eq!(told(&ends), asked);
}

/// It is, also where nobody reads what fills the receive buffer; so who is about to end knows when nothing more is said to it.
#[test]
fn who_asks_and_goes_on_without_the_scheme_is_answered() {
    let mut ends = ends([scheme(), scheme()]);
    fill(&mut ends[0]);
    assert!(ends[0].wire().common.is_answered());
    let (wire, fd) = (ends[0].wire(), ends[0].fd.as_raw_fd());
    unsafe { wire.out().release(&wire.common, fd).unwrap() };
    while ends[1].received < ends[0].sent {
        drain(&mut ends[1]);
        serve_all(&ends[1]);
        serve_all(&ends[0]);
    }
    assert_eq!(told(&ends), 1);
    assert!(!ends[0].wire().common.is_answered());
}

/// The last of those could end without waiting for the answer.
#[test]
fn a_stream_of_several_processes_does_not_ask() {
    let mut ends = ends([scheme(), scheme()]);
    unsafe { ends[0].wire().share(true) };
    assert!(
        fill(&mut ends[0]) > 3 * WINDOW,
        "as much as the kernel takes"
    );
    assert!(!ends[0].wire().common.is_answered());
    while ends[1].received < ends[0].sent {
        drain(&mut ends[1]);
        serve_all(&ends[1]);
        serve_all(&ends[0]);
    }
    assert_eq!((told(&ends), ends[1].state()), (0, State::Open));
}

#[test]
fn each_direction_is_as_its_sender_wants() {
    let mut ends = ends([scheme(), want(false, (65536, 32768))]);
    assert_eq!(fill(&mut ends[0]), 2 * WINDOW);
    assert!(!unsafe { ends[1].wire().out() }.is_packetized());
    assert!(
        fill(&mut ends[1]) > 2 * WINDOW,
        "as much as the kernel takes"
    );
}

/// A side that asks has said how many slots it has before it knows; one that is asked has not.
#[test]
fn slots_count_where_a_side_has_said_so() {
    let slots = packetized(want(false, (1000, 8)), WINDOW as u64);
    let mut ends = ends([scheme(), slots]);
    assert_eq!(fill(&mut ends[0]), 2 * WINDOW);
    let mut ends = super::packetized::ends([slots, scheme()]);
    assert!(!unsafe { ends[1].wire().out() }.is_packetized());
    assert!(fill(&mut ends[1]) <= 6 * 1000);
}

#[test]
fn the_smaller_buffer_counts() {
    let small = packetized(want(false, (65536, 32768)), 4096);
    let mut ends = ends([small, scheme()]);
    assert_eq!(fill(&mut ends[0]), 2 * 4096);
    assert_eq!(fill(&mut ends[1]), 2 * 4096);
}

#[test]
fn both_out_of_room_hear_of_each_other() {
    for seed in 1..20 {
        let mut random = Random(seed);
        let w = packetized(want(false, (65536, 32768)), 4096);
        let mut ends = ends([w, w]);
        fill(&mut ends[0]);
        fill(&mut ends[1]);
        for _ in 0..2000 {
            let who = random.below(2);
            serve_all(&ends[who]);
            ends[who].receive(&mut random);
        }
        for who in [0, 1] {
            assert_eq!(ends[1 - who].received, ends[who].sent, "seed {seed}");
        }
    }
}

#[test]
fn what_ends_a_direction_takes_along_what_is_parked() {
    for how in 0..2 {
        let mut ends = ends([scheme(), scheme()]);
        fill(&mut ends[0]);
        let (wire, fd) = (ends[0].wire(), ends[0].fd.as_raw_fd());
        match how {
            0 => unsafe { wire.out().finish(&wire.common, fd).unwrap() },
            _ => assert!(unsafe { wire.out().go_plain(&wire.common, fd).unwrap() }),
        }
        assert_eq!(parked(&ends[0]), 0, "though nobody has read");
        drain(&mut ends[1]);
        assert_eq!(ends[1].received, ends[0].sent);
        assert_eq!(ends[1].state(), [State::Eof, State::Plain][how]);
    }
}

/// As before a call that may end the process, and does not: from there on the kernel's buffers are the limit.
#[test]
fn a_release_ends_the_scheme() {
    let mut ends = ends([scheme(), scheme()]);
    fill(&mut ends[0]);
    let (wire, fd) = (ends[0].wire(), ends[0].fd.as_raw_fd());
    unsafe {
        wire.out().release(&wire.common, fd).unwrap();
        wire.out().flush_all(&wire.common, fd).unwrap();
    }
    assert_eq!(parked(&ends[0]), 0, "though nobody has read");
    let mut random = Random(7);
    assert!(matches!(ends[0].send(&mut random, 100_000), Sent::Bytes(_)));
    while ends[1].received < ends[0].sent {
        drain(&mut ends[1]);
        serve_all(&ends[0]);
    }
    assert_eq!(ends[1].state(), State::Open);
    gone(&mut ends);
    assert_eq!(ends[1].state(), State::Eof);
}

/// A program that could not send all sleeps until the peer says something: it is asked as long as there is no room.
#[test]
fn who_waits_for_room_asks_again_when_what_was_parked_has_used_it_up() {
    for window in [4096, 8192, WINDOW] {
        let w = packetized(want(false, (65536, 32768)), window as u64);
        let mut ends = ends([w, w]);
        unsafe { ends[0].wire().out() }.be_waiting(true);
        let mut without = 0;
        for _ in 0..20 {
            fill(&mut ends[0]);
            for _ in 0..20 {
                drain(&mut ends[1]);
                serve_all(&ends[1]);
                serve_all(&ends[0]);
                let wire = ends[0].wire();
                let has_room = unsafe { wire.out() }.has_credit(&wire.common);
                assert!(has_room || wire.common.words.is_asked(), "{window}");
                without += u32::from(!has_room && parked(&ends[0]) == 0);
            }
        }
        assert!(without > 0, "{window}: it was never used up");
    }
}

/// The first end is gone without a word, as with a process that is killed.
fn gone(ends: &mut [End; 2]) {
    unsafe { libc::shutdown(ends[0].fd.as_raw_fd(), libc::SHUT_WR) };
    drain(&mut ends[1]);
}

#[test]
fn an_end_that_takes_along_what_is_parked_is_no_end_of_file() {
    let mut ends = ends([scheme(), scheme()]);
    fill(&mut ends[0]);
    gone(&mut ends);
    assert_eq!(ends[1].received, WINDOW, "what had gone is read first");
    assert_eq!(ends[1].state(), State::Reset);
    // Also where some of it has gone since.
    let mut ends = super::packetized::ends([scheme(), scheme()]);
    fill(&mut ends[0]);
    drain(&mut ends[1]);
    serve_all(&ends[1]);
    serve_all(&ends[0]);
    let left = parked(&ends[0]);
    assert!(left > 0 && left < WINDOW);
    gone(&mut ends);
    assert_eq!(ends[1].received, ends[0].sent - left);
    assert_eq!(ends[1].state(), State::Reset);
}

#[test]
fn who_was_out_of_room_and_says_that_nothing_is_parked_ends_well() {
    for cleared in [false, true] {
        let mut ends = ends([scheme(), scheme()]);
        let mut random = Random(2);
        while ends[0].sent < WINDOW {
            let most = WINDOW - ends[0].sent;
            ends[0].send(&mut random, most);
        }
        let (wire, fd) = (ends[0].wire(), ends[0].fd.as_raw_fd());
        unsafe { wire.out().seek_room(&wire.common, fd).unwrap() };
        assert!(wire.common.words.is_asked() && parked(&ends[0]) == 0);
        if cleared {
            unsafe { wire.out().clear(&wire.common, fd).unwrap() };
            assert_eq!(fill(&mut ends[0]), 0, "it would have to be said anew");
        }
        gone(&mut ends);
        assert_eq!(ends[1].received, ends[0].sent);
        // (the other end cannot tell)
        let state = if cleared { State::Eof } else { State::Reset };
        assert_eq!(ends[1].state(), state);
    }
}

#[test]
fn what_a_full_kernel_does_not_take_is_not_parked_before_the_peer_knows() {
    let large = packetized(want(false, (65536, 32768)), 1 << 20);
    let mut ends = pair([large, large], 20_000);
    let mut random = Random(1);
    ends[1].receive(&mut random);
    let taken = fill(&mut ends[0]);
    assert!(taken < OWN, "{taken}");
    assert_eq!(parked(&ends[0]), 0);
    let (_, starved) = unsafe { ends[0].wire().out() }.counts();
    assert_eq!(starved, 0);
    while ends[1].received < ends[0].sent {
        drain(&mut ends[1]);
        serve_all(&ends[0]);
    }
}

/// Says something that is not so, by the numbers of an honest end.
fn say(end: &End, message: &Message<'_>) {
    let (wire, fd) = (end.wire(), end.fd.as_raw_fd());
    assert!(unsafe { wire.out().say(&wire.common, fd, message).unwrap() });
}

#[test]
fn what_was_not_sent_cannot_be_handed_back() {
    for (sent, said) in [(0, 1), (1000, 1001), (1000, u64::MAX)] {
        let mut ends = ends([scheme(), scheme()]);
        let mut random = Random(3);
        while ends[0].sent < sent {
            let most = sent - ends[0].sent;
            ends[0].send(&mut random, most);
        }
        say(&ends[1], &Message::Taken { bytes: said });
        drain(&mut ends[0]);
        assert_eq!(ends[0].state(), State::Reset, "{said} of {sent}");
        assert!(
            unsafe { ends[0].wire().incoming() }
                .take_terminate()
                .is_some()
        );
    }
}

#[test]
fn what_was_handed_back_stays_so() {
    let mut ends = ends([scheme(), scheme()]);
    let mut random = Random(3);
    while ends[0].sent < 1000 {
        let most = 1000 - ends[0].sent;
        ends[0].send(&mut random, most);
    }
    for (bytes, state) in [(600, State::Open), (600, State::Open), (599, State::Reset)] {
        say(&ends[1], &Message::Taken { bytes });
        drain(&mut ends[0]);
        assert_eq!(ends[0].state(), state);
    }
}

#[test]
fn who_sends_without_room_is_told_so() {
    // (one that thinks the window is larger)
    let mut wants = [scheme(), scheme()];
    wants[0].flow.buffer = 4 * WINDOW as u64;
    let [first, _] = super::agree([wants[0]; 2]);
    let [_, second] = super::agree([scheme(), scheme()]);
    let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
    a.set_nonblocking(true).unwrap();
    let mut liar = End::new(0, &first, a.into());
    let mut end = End::new(1, &second, b.into());
    let mut random = Random(1);
    assert!(liar.flush());
    end.receive(&mut random);
    while liar.sent <= WINDOW {
        liar.send(&mut random, 1000);
        liar.flush();
        // (what lies in the kernel nobody has to have room for)
        unsafe { end.wire().incoming() }.available(&end.wire().common, end.fd.as_raw_fd());
    }
    assert_eq!(end.state(), State::Reset);
}

#[test]
fn who_has_agreed_to_nothing_is_told_nothing_of_it() {
    let plain = want(false, (65536, 32768));
    for message in [Message::Released, Message::Starved, Message::Cleared] {
        let mut ends = super::packetized::ends([plain, plain]);
        say(&ends[1], &message);
        drain(&mut ends[0]);
        assert_eq!(ends[0].state(), State::Reset);
        assert!(!ends[0].wire().common.is_answered());
    }
}
