//! What makes each scheme what it is, and what each does with lies.

use super::model::Pair;
use super::terms;
use crate::any::{Receiver, Sender};
use crate::areas::WARM;
use crate::{
    Back, Inbox as _, Note, Notes as _, Outbox as _, Receiver as _, Scheme, Sender as _, Word,
};
use proptest::prelude::*;

/// Messages of one byte that fit before the reader reads anything: a slot each, or a byte each.
#[test]
fn a_message_burns_a_slot_or_a_byte() {
    let wanted = [(Scheme::Credit, 8), (Scheme::Packetized, 65536)];
    for (scheme, most) in wanted {
        let mut t = terms(scheme, 65536, 8, 8192, 8192);
        t.own = 0;
        let mut pair = Pair::new(1 << 17, [t, t]);
        let mut n = 0;
        while pair.send(0, 1) == 1 {
            n += 1;
        }
        assert_eq!(n, most, "{scheme:?}");
    }
    // NIC-assisted: as many segments as receives are advertised, the rest waits at the sender.
    let t = terms(Scheme::Nic, 65536, 8, 8192, 8192);
    let mut pair = Pair::new(1 << 17, [t, t]);
    for _ in 0..100 {
        assert_eq!(pair.send(0, 1), 1);
    }
    assert!(matches!(pair.sides[0].tx, Sender::Nic(_)));
    assert_eq!(pair.sides[1].wire.told(Word::Segments).as_hearsay(), 8);
    assert_eq!(pair.sides[1].wire.told(Word::Boundary).as_hearsay(), 8);
    assert_eq!(pair.sides[1].wire.told(Word::Produced).as_hearsay(), 100);
}

/// A large message is as many segments as before, each under a receive of its own, put in one piece.
#[test]
fn segments_that_lie_together_are_put_in_one_piece() {
    let t = terms(Scheme::Nic, 65536, 8, 8192, 8192);
    let mut pair = Pair::new(1 << 17, [t, t]);
    assert_eq!(pair.sides[0].tx.place(20_000).len, 20_000);
    assert_eq!(pair.send(0, 20_000), 20_000);
    assert_eq!(pair.sides[0].tx.counts().wire, 3);
    assert_eq!(pair.sides[1].wire.told(Word::Segments).as_hearsay(), 3);
    // Five windows are left, and what does not fit under them waits at the sender.
    assert_eq!(pair.sides[0].tx.place(65536).len, 5 * 8192);
    assert_eq!(pair.send(0, 60_000), 60_000);
    assert_eq!(pair.sides[1].wire.told(Word::Segments).as_hearsay(), 8);
    assert_eq!(
        pair.sides[1].wire.told(Word::Boundary).as_hearsay(),
        20_000 + 5 * 8192
    );
    assert_eq!(pair.recv(1, usize::MAX), 80_000);
}

/// Out of room: credit waits, packetized parks what moves only in a call, nic queues what moves alone.
#[test]
fn what_moves_while_the_sender_computes() {
    let arrives = |scheme| {
        let t = terms(scheme, 65536, 8, 8192, 8192);
        let mut pair = Pair::new(1 << 17, [t, t]);
        let mut sent = 0;
        for _ in 0..100 {
            sent += pair.send(0, 1024);
        }
        // The sender computes; the reader reads until nothing comes.
        let mut got = 0;
        loop {
            let n = pair.recv(1, usize::MAX);
            if n == 0 {
                break;
            }
            got += n;
        }
        (sent / 1024, got / 1024)
    };
    assert_eq!(arrives(Scheme::Credit), (8, 8));
    assert_eq!(arrives(Scheme::Packetized), (100, 64));
    assert_eq!(
        arrives(Scheme::Nic),
        (72, 72),
        "8 windows and 64 KiB of its own"
    );
}

/// What is parked goes at the next call, as far as there is room; all of it while the program waits in
/// the library; and all of it counts once the sender is gone.
#[test]
fn parked_bytes_move_in_calls() {
    let t = terms(Scheme::Packetized, 4096, 1, 1, 1);
    let parked = || {
        let mut pair = Pair::new(8192, [t, t]);
        assert_eq!(pair.send(0, 8000), 8000);
        assert!(pair.sides[0].tx.is_parked());
        pair
    };
    let mut pair = parked();
    assert_eq!(pair.recv(1, 1000), 1000);
    assert_eq!(pair.recv(1, 0), 0);
    assert_eq!(pair.sides[0].tx.counts().starved, 1);
    assert_eq!(pair.send(0, 1), 1);
    assert_eq!(pair.recv(1, usize::MAX), 4096, "as much as is free");
    let mut pair = parked();
    assert!(pair.wait(0) && !pair.sides[0].tx.is_parked());
    assert_eq!(pair.recv(1, usize::MAX), 8000);
    let mut pair = parked();
    assert_eq!(pair.recv(1, usize::MAX), 4096);
    pair.sides[1].rx.release();
    assert_eq!(pair.recv(1, usize::MAX), 8000 - 4096);
}

/// Small messages that coalesce in the software part leave in segments of a window, by events.
#[test]
fn events_cut_the_software_part_into_windows() {
    let t = terms(Scheme::Nic, 4096, 1, 1, 1024);
    let mut pair = Pair::new(16384, [t, t]);
    for _ in 0..400 {
        assert_eq!(pair.send(0, 10), 10);
    }
    // 4 under credit, 204 and a piece in the NIC's half, the rest coalesced.
    let before = pair.sides[0].tx.counts();
    assert_eq!(pair.recv(1, usize::MAX), 4000);
    pair.recv(1, 1);
    assert_eq!(pair.send(0, 1), 1);
    let after = pair.sides[0].tx.counts();
    assert_eq!((before.events, after.events), (0, 1));
    let software = 4000u64 - 40 - 2048;
    let more = after.wire - before.wire;
    assert_eq!(more, software.div_ceil(1024) + 1, "{after:?}");
}

/// Updates come once per half of the credits, and none where credits ride on data that goes back.
#[test]
fn credits_come_back_by_halves_or_on_data() {
    let t = terms(Scheme::Credit, 65536, 8, 8192, 1);
    let mut pair = Pair::new(1 << 18, [t, t]);
    for _ in 0..80 {
        assert_eq!(pair.send(0, 1), 1);
        assert_eq!(pair.recv(1, 1), 1);
        if pair.is_due(1) {
            assert!(pair.update(1));
        }
    }
    assert_eq!(pair.sides[1].tx.counts().updates, 20, "one for each 4");
    let mut pair = Pair::new(1 << 18, [t, t]);
    for _ in 0..80 {
        for (from, to) in [(0, 1), (1, 0)] {
            assert_eq!(pair.send(from, 1), 1);
            assert_eq!(pair.recv(to, 1), 1);
            assert!(!pair.is_due(to));
        }
    }
    assert_eq!(pair.sides[0].tx.counts().starved, 0);
}

/// Both starved of data credits: each can still tell the other twice.
#[test]
fn two_credits_are_kept_for_control() {
    for slots in 2..7 {
        let t = terms(Scheme::Credit, 4096, slots, 64, 1);
        let mut pair = Pair::new(8192, [t, t]);
        for who in [0, 1] {
            while pair.send(who, 1) == 1 {}
        }
        for who in [0, 1] {
            assert!(matches!(&pair.sides[who].tx, Sender::Credit(tx) if tx.credits() == 2));
            assert!(pair.update(who) && pair.update(who) && !pair.update(who));
        }
        pair.finish();
    }
}

#[test]
fn an_empty_ring_starts_over_warm() {
    for scheme in [Scheme::Packetized, Scheme::Nic] {
        let t = terms(scheme, 65536, 8, 8192, 8192);
        let mut pair = Pair::new(1 << 17, [t, t]);
        for _ in 0..1000 {
            assert_eq!(pair.send(0, 64), 64);
            let piece = pair.sides[1].rx.clone();
            let _ = piece;
            assert_eq!(pair.recv(1, 64), 64);
            pair.recv(1, 1);
            let origin = pair.sides[1].wire.told(Word::Origin).as_hearsay();
            assert!(pair.sides[0].tx.accepted() - origin <= WARM + 64);
        }
    }
}

/// Where bytes lie that the receiver wants again, whatever has passed before.
#[test]
fn what_was_put_is_found_again() {
    for scheme in Scheme::ALL {
        let t = terms(scheme, 4096, 4, 1000, 1000);
        let mut pair = Pair::new(8192, [t, t]);
        pair.send(0, 3000);
        pair.recv(1, 2500);
        pair.recv(1, 0);
        pair.send(0, 700);
        pair.send(0, 900);
        let side = &pair.sides[0];
        let mut at = pair.sides[1].rx.consumed();
        let mut found = 0;
        while at < side.tx.accepted() {
            let piece = side.tx.piece_at(at, &side.wire);
            assert!(piece.len > 0, "{scheme:?}: lost at {at}");
            at += piece.len as u64;
            found += piece.len;
        }
        assert_eq!(found, side.flying.len(), "{scheme:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever stands in the words, a receiver refuses it or stays inside the region, and ends.
    #[test]
    fn a_lying_sender_never_points_outside(
        scheme in 0usize..3,
        words in any::<[u64; 8]>(),
        small in any::<bool>(),
        header in any::<u32>(),
        released in any::<bool>(),
    ) {
        let t = terms(Scheme::ALL[scheme], 2048, 4, 1000, 512);
        let mut pair = Pair::new(8192, [t, t]);
        for (i, value) in words.iter().enumerate() {
            let word = [Word::Produced, Word::Boundary, Word::Origin, Word::Queued, Word::Posted,
                Word::Segments, Word::Control, Word::Acknowledged][i];
            pair.sides[0].wire.tell(word, if small { value % 6000 } else { *value });
        }
        for slot in 0..4 {
            let len = if small { header % 1200 } else { header };
            pair.sides[0].wire.write_header(slot * 1088 + 1024, len);
        }
        let side = &mut pair.sides[1];
        if released {
            side.rx.release();
        }
        let mut turns = 0;
        if side.rx.announced(&side.wire).is_ok() {
            while let Ok(piece) = side.rx.next(&side.wire) {
                if piece.len == 0 {
                    break;
                }
                prop_assert!(piece.offset + piece.len <= 8192);
                side.rx.consume(piece.len);
                let _ = side.rx.grant(true, &side.wire);
                turns += 1;
                prop_assert!(turns < 10_000);
            }
        }
    }

    #[test]
    fn a_lying_receiver_is_caught(scheme in 0usize..3, backs in any::<[u64; 5]>(), small in any::<bool>()) {
        let t = terms(Scheme::ALL[scheme], 2048, 4, 512, 512);
        let mut pair = Pair::new(8192, [t, t]);
        pair.send(0, 2000);
        let claim = |i: usize| if small { backs[i] % 3000 } else { backs[i] };
        let all = [Back::Consumed, Back::Advertised, Back::Evented, Back::Events];
        for (i, back) in all.into_iter().enumerate() {
            pair.sides[1].wire.hand_back(back, claim(i));
        }
        pair.sides[1].wire.tell(Word::Acknowledged, claim(4));
        let side = &mut pair.sides[0];
        let ok = side.tx.granted(&side.wire).is_ok();
        match &side.tx {
            Sender::Credit(_) => prop_assert_eq!(ok, claim(4) <= 4),
            Sender::Packetized(_) => prop_assert_eq!(ok, claim(0) <= 2000),
            Sender::Nic(_) => prop_assert!(!ok || (claim(0) <= 2000 && claim(1) <= 8)),
        }
        prop_assert!(side.tx.room() as u64 <= side.tx.limit());
    }
}

#[test]
fn counters_never_run_backwards() {
    for scheme in Scheme::ALL {
        let t = terms(scheme, 4096, 4, 1024, 1024);
        let mut pair = Pair::new(16384, [t, t]);
        pair.send(0, 100);
        let side = &mut pair.sides[1];
        side.rx.announced(&side.wire).expect("honest");
        pair.sides[0].wire.tell(Word::Produced, 99);
        let side = &mut pair.sides[1];
        assert!(side.rx.announced(&side.wire).is_err(), "{scheme:?}");
        assert!(matches!(
            (&side.rx, scheme),
            (Receiver::Credit(_), Scheme::Credit)
                | (Receiver::Packetized(_), Scheme::Packetized)
                | (Receiver::Nic(_), Scheme::Nic)
        ));
        side.wire.note(Note::Freed, 7);
        assert_eq!(side.wire.noted(Note::Freed), 7);
    }
}
