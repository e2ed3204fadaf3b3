//! The cases. Each side runs the same function with its own role; words at the end of the memory tell the peer how far the
//! other is.

use super::Role;
use super::side::{LEN, Pair, Side, ensure};
use std::time::{Duration, Instant};
use transport::verbs::{BATCH, DEPTH, INLINE, Operation, TELLS, Work};

pub type Case = fn(&mut Side) -> Result<(), String>;

/// The case that needs a link that can be cut.
pub const CUT: Case = a_cut_link_is_told;

pub const CASES: &[(&str, Case)] = &[
    ("what is written comes as it was", what_is_written_comes),
    ("what is read is what was there", what_is_read_was_there),
    ("a word comes whole and after its data", a_word_comes_after),
    (
        "of Writes to one place the last one stays",
        the_last_one_stays,
    ),
    ("inline data may be used again at once", inline_data),
    ("as much as is promised may be outstanding", outstanding),
    ("both sides at once", both_at_once),
    (
        "what is told comes in order and after its data",
        told_in_order,
    ),
    ("more may be told than is polled", told_more_than_polled),
    ("an event tells once", an_event_tells_once),
    ("a wrong key ends it", |side| {
        violation(side, |_, rkey| *rkey ^= 0x5a)
    }),
    ("a place before the memory ends it", |side| {
        violation(side, |at, _| *at -= LEN as u64)
    }),
    ("a place behind the memory ends it", |side| {
        violation(side, |at, _| *at += LEN as u64)
    }),
    ("a place across its end ends it", |side| {
        violation(side, |at, _| *at += (LEN - WORD) as u64 - 4)
    }),
    ("after one side has failed nothing arrives", nothing_arrives),
    (
        "what is posted after failing has failed",
        posted_after_failing,
    ),
    ("a side that has gone is told", a_side_has_gone),
    ("an address of another kind is none", another_kind),
    ("who does not know the secret is refused", |side| {
        side.strangers()
    }),
    ("many queue pairs at once", many),
    ("who does not poll keeps no others waiting", others_go_on),
    ("queue pairs come and go", come_and_go),
    ("a link that is cut is told, and serves again", CUT),
];

/// Where words are written.
const WORD: usize = LEN - 4096;

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    let mut x = u32::from(seed) * 2 + 1;
    (0..len)
        .map(|_| {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (x >> 24) as u8
        })
        .collect()
}

/// A word for the peer, with the request itself.
fn word(pair: &Pair, value: u64, id: u64, tells: bool) -> Work {
    // Not where others lie that are still under way.
    let from = 2048 + (id as usize % DEPTH) * 8;
    let at = WORD + from;
    pair.fill(at, &value.to_ne_bytes());
    let write = pair.write(at, 8, id);
    Work {
        operation: Operation::WriteInline,
        lkey: 0,
        remote: write.remote - from as u64,
        signaled: tells,
        ..write
    }
}

/// One side does something, then the other.
fn in_turn(
    side: &mut Side,
    does: impl Fn(&mut Side) -> Result<(), String>,
    suffers: impl Fn(&mut Side) -> Result<(), String>,
) -> Result<(), String> {
    for turn in [Role::Asks, Role::Serves] {
        if turn == side.role {
            does(side)?;
        } else {
            suffers(side)?;
        }
        side.meet()?;
    }
    Ok(())
}

const SIZES: [usize; 8] = [1, 7, 64, 1024, 1025, 4096, 65_539, 600_000];

fn what_is_written_comes(side: &mut Side) -> Result<(), String> {
    let does = |side: &mut Side| {
        for (i, len) in (1u8..).zip(SIZES) {
            let pair = &side.pair;
            pair.fill(usize::from(i), &pattern(len, i));
            pair.post(&[pair.write(i.into(), len, i.into())])?;
            pair.done_well(i.into())?;
            pair.placed()?;
            side.meet()?;
            side.meet()?;
        }
        Ok(())
    };
    in_turn(side, does, |side| {
        for (i, len) in (1u8..).zip(SIZES) {
            let pair = &side.pair;
            let at = usize::from(i);
            let before = pair.octets(at - 1, 1);
            let behind = pair.octets(at + len, 8);
            side.meet()?;
            let pair = &side.pair;
            ensure!(
                pair.octets(at, len) == pattern(len, i),
                "{len} octets differ"
            );
            ensure!(pair.octets(at - 1, 1) == before, "something before {len}");
            ensure!(pair.octets(at + len, 8) == behind, "something behind {len}");
            side.meet()?;
        }
        Ok(())
    })
}

fn what_is_read_was_there(side: &mut Side) -> Result<(), String> {
    let does = |side: &mut Side| {
        for (i, len) in (1u8..).zip(SIZES) {
            side.meet()?;
            let pair = &side.pair;
            let at = usize::from(i);
            pair.post(&[pair.read(at, len, i.into())])?;
            pair.done_well(i.into())?;
            ensure!(
                pair.octets(at, len) == pattern(len, i),
                "{len} octets differ"
            );
            side.meet()?;
        }
        Ok(())
    };
    in_turn(side, does, |side| {
        for (i, len) in (1u8..).zip(SIZES) {
            side.pair.fill(i.into(), &pattern(len, i));
            side.meet()?;
            side.meet()?;
        }
        Ok(())
    })
}

/// Rounds of one side's data and word, then the other's.
fn a_word_comes_after(side: &mut Side) -> Result<(), String> {
    const ROUNDS: u64 = 400;
    let pair = &side.pair;
    if !pair.is_acknowledged() {
        return Err(super::NOT_THIS.into()); // (TCP may cut a word in two)
    }
    let hear = |round: u64| -> Result<(), String> {
        let expected = round | round << 32;
        let word = pair.await_word(WORD, expected)?;
        ensure!(
            word == expected,
            "a torn word: {word:#x}, not {expected:#x}"
        );
        let len = length(round);
        let octets = pair.octets(0, len);
        ensure!(
            octets.iter().all(|octet| *octet == round as u8),
            "data of round {round} are not there"
        );
        Ok(())
    };
    let tell = |round: u64| -> Result<(), String> {
        let len = length(round);
        // From elsewhere than where the peer writes.
        let from = LEN / 2;
        pair.fill(from, &vec![round as u8; len]);
        let write = pair.write(from, len, round);
        let data = Work {
            remote: write.remote - from as u64,
            signaled: false,
            ..write
        };
        let tells = round.is_multiple_of(16);
        pair.post(&[data, word(pair, round | round << 32, round, tells)])?;
        if tells {
            pair.done_well(round)?;
        }
        Ok(())
    };
    for round in 1..=ROUNDS {
        if side.role == Role::Asks {
            tell(round)?;
            hear(round)?;
        } else {
            hear(round)?;
            tell(round)?;
        }
    }
    Ok(())
}

const fn length(round: u64) -> usize {
    1 + (round * 37 % 6000) as usize
}

/// A Write of no octets that tells a word.
fn telling(pair: &Pair, word: u32, id: u64) -> Work {
    Work {
        operation: Operation::WriteInline,
        tell: Some(word),
        ..pair.write(0, 0, id)
    }
}

fn told_in_order(side: &mut Side) -> Result<(), String> {
    const ROUNDS: u32 = 500;
    let does = |side: &mut Side| {
        for round in 1..=ROUNDS {
            let pair = &side.pair;
            let len = length(round.into());
            let from = LEN / 2;
            pair.fill(from, &vec![round as u8; len]);
            let write = pair.write(from, len, round.into());
            pair.post(&[Work {
                remote: write.remote - from as u64,
                tell: Some(round | 1 << 31),
                ..write
            }])?;
            pair.done_well(round.into())?;
            if round.is_multiple_of(16) {
                side.meet()?; // (what is told next may come over what is looked at)
            }
        }
        Ok(())
    };
    in_turn(side, does, |side| {
        for round in 1..=ROUNDS {
            let told = side.pair.told()?;
            ensure!(told == round | 1 << 31, "told {told:#x} in round {round}");
            if round.is_multiple_of(16) {
                let octets = side.pair.octets(0, length(round.into()));
                ensure!(
                    octets.iter().all(|o| *o == round as u8),
                    "data of round {round} are not there"
                );
                side.meet()?;
            }
        }
        Ok(())
    })
}

fn told_more_than_polled(side: &mut Side) -> Result<(), String> {
    const ALL: u32 = 3 * TELLS as u32;
    let does = |side: &mut Side| {
        for i in 0..ALL {
            side.pair.post(&[telling(&side.pair, i, i.into())])?;
            side.pair.done_well(i.into())?;
        }
        Ok(())
    };
    in_turn(side, does, |side| {
        std::thread::sleep(Duration::from_millis(300));
        for i in 0..ALL {
            let told = side.pair.told()?;
            ensure!(told == i, "told {told}, not {i}");
        }
        Ok(())
    })
}

fn an_event_tells_once(side: &mut Side) -> Result<(), String> {
    let soon = Duration::from_millis(50);
    let does = |side: &mut Side| {
        for i in 0..6 {
            side.meet()?;
            side.pair.post(&[telling(&side.pair, i, i.into())])?;
            side.pair.done_well(i.into())?;
            side.meet()?;
        }
        Ok(())
    };
    in_turn(side, does, |side| {
        let arm = |pair: &Pair| pair.adapter.arm().map_err(|e| format!("not armed: {e:?}"));
        let meet = |side: &mut Side| side.meet().and_then(|()| side.meet());
        meet(side)?;
        ensure!(!side.pair.shows(soon), "an event that nobody has armed");
        ensure!(side.pair.told()? == 0, "the first word");
        arm(&side.pair)?;
        ensure!(!side.pair.shows(soon), "an event of what was polled before");
        meet(side)?;
        ensure!(side.pair.shows(Duration::from_secs(10)), "no event");
        ensure!(side.pair.adapter.take_event(), "no event to take");
        ensure!(!side.pair.adapter.take_event(), "an event that was taken");
        ensure!(!side.pair.shows(soon), "an event that was taken shows");
        ensure!(side.pair.told()? == 1, "the second word");
        meet(side)?;
        ensure!(!side.pair.shows(soon), "an event that was not armed anew");
        arm(&side.pair)?;
        meet(side)?;
        meet(side)?;
        ensure!(
            side.pair.shows(Duration::from_secs(10)),
            "no event of two words"
        );
        ensure!(
            side.pair.adapter.take_event(),
            "no event of two words to take"
        );
        for i in 2..5 {
            ensure!(side.pair.told()? == i, "word {i}");
        }
        // What the own side does is no event.
        arm(&side.pair)?;
        side.pair.post(&[word(&side.pair, 1, 77, true)])?;
        side.pair.done_well(77)?;
        ensure!(!side.pair.shows(soon), "an event of the side's own work");
        meet(side)?;
        ensure!(
            side.pair.shows(Duration::from_secs(10)),
            "no event of the last word"
        );
        ensure!(side.pair.told()? == 5, "the last word");
        Ok(())
    })
}

fn the_last_one_stays(side: &mut Side) -> Result<(), String> {
    let does = |side: &mut Side| {
        let pair = &side.pair;
        for i in 0..32u64 {
            let batch: Vec<Work> = (0..BATCH as u64)
                .map(|k| word(pair, i * BATCH as u64 + k + 1, k, k + 1 == BATCH as u64))
                .collect();
            pair.post(&batch)?;
            pair.done_well(BATCH as u64 - 1)?;
        }
        pair.placed()?;
        side.meet()
    };
    in_turn(side, does, |side| {
        side.meet()?;
        let last = 32 * BATCH as u64;
        ensure!(
            side.pair.word(WORD) == last,
            "{} stays",
            side.pair.word(WORD)
        );
        Ok(())
    })
}

fn inline_data(side: &mut Side) -> Result<(), String> {
    let does = |side: &mut Side| {
        let pair = &side.pair;
        for i in 1..=BATCH as u64 * 8 {
            let from = LEN / 2;
            pair.fill(from, &[i as u8; INLINE as usize]);
            let write = pair.write(from, INLINE as usize, i);
            let slot = i * u64::from(INLINE);
            pair.post(&[Work {
                operation: Operation::WriteInline,
                lkey: 0,
                remote: write.remote - from as u64 + slot,
                signaled: i == BATCH as u64 * 8,
                ..write
            }])?;
            pair.fill(from, &[0; INLINE as usize]);
        }
        pair.done_well(BATCH as u64 * 8)?;
        pair.placed()?;
        side.meet()
    };
    in_turn(side, does, |side| {
        side.meet()?;
        for i in 1..=BATCH * 8 {
            let octets = side.pair.octets(i * INLINE as usize, INLINE as usize);
            ensure!(
                octets == [i as u8; INLINE as usize],
                "{i} came as {octets:?}"
            );
        }
        Ok(())
    })
}

fn outstanding(side: &mut Side) -> Result<(), String> {
    let does = |side: &mut Side| {
        let pair = &side.pair;
        for _ in 0..4 {
            for i in 1..DEPTH as u64 {
                pair.post(&[word(pair, i, i, false)])?;
            }
            pair.post(&[word(pair, 99, 0, true)])?;
            pair.done_well(0)?;
        }
        // And all of them may tell.
        for i in 0..DEPTH as u64 {
            pair.post(&[word(pair, 100 + i, i, true)])?;
        }
        for i in 0..DEPTH as u64 {
            pair.done_well(i)?;
        }
        Ok(())
    };
    in_turn(side, does, |_| Ok(()))
}

fn both_at_once(side: &mut Side) -> Result<(), String> {
    let pair = &side.pair;
    let seeds = match side.role {
        Role::Asks => (1, 2),
        Role::Serves => (2, 1),
    };
    let len = 50_000;
    let (own, theirs) = match side.role {
        Role::Asks => (0, LEN / 2),
        Role::Serves => (LEN / 2, 0),
    };
    pair.fill(own, &pattern(len, seeds.0));
    for i in 1..=20 {
        pair.post(&[pair.write(own, len, i), word(pair, i, 100 + i, false)])?;
        pair.done_well(i)?;
    }
    pair.await_word(WORD, 20)?;
    ensure!(
        pair.octets(theirs, len) == pattern(len, seeds.1),
        "the data differ"
    );
    side.meet()
}

/// A Write that is not allowed: it fails, so does what comes behind it, and nothing has arrived.
fn violation(side: &mut Side, wrong: fn(&mut u64, &mut u32)) -> Result<(), String> {
    if side.role == Role::Asks {
        let pair = &side.pair;
        pair.fill(WORD, &[1; 8]);
        let mut work = pair.write(WORD, 8, 1);
        wrong(&mut work.remote, &mut work.rkey);
        pair.post(&[work, pair.write(WORD, 8, 2)])?;
        pair.done_badly(1)?;
        pair.done_badly(2)?;
        pair.post(&[pair.write(WORD, 8, 3)])?;
        pair.done_badly(3)?;
    }
    side.meet()?;
    if side.role == Role::Serves {
        let octets = side.pair.octets(0, LEN);
        ensure!(
            octets.iter().all(|octet| *octet == 0),
            "something has arrived"
        );
    }
    side.meet()
}

fn nothing_arrives(side: &mut Side) -> Result<(), String> {
    side.pair = side.another_that_gives_up()?;
    if side.role == Role::Serves {
        side.pair.adapter.fail();
        side.meet()?;
        side.meet()?;
        let octets = side.pair.octets(0, LEN);
        ensure!(
            octets.iter().all(|octet| *octet == 0),
            "something has arrived"
        );
        return Ok(());
    }
    side.meet()?;
    let pair = &side.pair;
    pair.fill(0, &[1; 4096]);
    let posted = Instant::now();
    pair.post(&[pair.write(0, 4096, 7)])?;
    pair.done_badly(7)?;
    println!("  told after {} ms", posted.elapsed().as_millis());
    side.meet()
}

fn posted_after_failing(side: &mut Side) -> Result<(), String> {
    let does = |side: &mut Side| {
        let pair = &side.pair;
        pair.adapter.fail();
        pair.fill(0, &[1; 64]);
        pair.post(&[pair.write(0, 64, 1), pair.read(4096, 64, 2)])?;
        pair.done_badly(1)?;
        pair.done_badly(2)?;
        side.meet()
    };
    if side.role == Role::Asks {
        return does(side);
    }
    side.meet()?;
    let octets = side.pair.octets(0, 64);
    ensure!(octets == [0; 64], "something has arrived");
    Ok(())
}

fn a_side_has_gone(side: &mut Side) -> Result<(), String> {
    let pair = side.another_that_gives_up()?;
    if side.role == Role::Serves {
        drop(pair);
        side.meet()?;
    } else {
        side.meet()?;
        let posted = Instant::now();
        pair.post(&[pair.read(0, 64, 1)])?;
        pair.done_badly(1)?;
        println!("  told after {} ms", posted.elapsed().as_millis());
    }
    // The other one is as it was.
    both_at_once(side)
}

fn another_kind(side: &mut Side) -> Result<(), String> {
    use transport::verbs::Address;
    use transport::verbs::address::{Iwarp, Kind, Pair, gid_of};
    let own = side.pair.adapter.address();
    let ip = gid_of(&std::net::Ipv4Addr::new(10, 77, 0, 9).into());
    let pair = |kind| {
        Address::Pair(Pair {
            kind,
            mtu: 3,
            qpn: 7,
            psn: 1,
            gid: ip,
        })
    };
    let address = match own {
        Address::Pair(own) if own.kind == Kind::StandIn => pair(Kind::Roce),
        Address::Pair(_) => pair(Kind::StandIn),
        Address::Iwarp(_) => pair(Kind::Roce),
    };
    let connected = side.pair.adapter.connect(&address);
    ensure!(connected.is_err(), "connected to {address:?}");
    if let Address::Pair(_) = own {
        let address = Address::Iwarp(Iwarp {
            ip,
            port: Some(7),
            secret: 7,
        });
        let connected = side.pair.adapter.connect(&address);
        ensure!(connected.is_err(), "connected to {address:?}");
    }
    side.meet()
}

fn many(side: &mut Side) -> Result<(), String> {
    let mut pairs = Vec::new();
    for _ in 0..24 {
        pairs.push(side.another()?);
    }
    for (i, pair) in (1u64..).zip(&pairs) {
        pair.post(&[word(pair, i, i, true)])?;
    }
    for (i, pair) in (1u64..).zip(&pairs) {
        pair.done_well(i)?;
        let word = pair.await_word(WORD, 1)?;
        ensure!(word == i, "{word} came to {i}");
    }
    side.meet()
}

/// Words for many that are not polled, which take what receives there are; and for one that is.
fn others_go_on(side: &mut Side) -> Result<(), String> {
    const SLOW: usize = 8;
    let mut slow = Vec::new();
    for _ in 0..SLOW {
        slow.push(side.another()?);
    }
    if side.role == Role::Asks {
        for pair in &slow {
            for i in 0..TELLS as u32 {
                pair.post(&[telling(pair, i, i.into())])?;
                pair.done_well(i.into())?;
            }
        }
        side.meet()?;
        for i in 0..600 {
            side.pair.post(&[telling(&side.pair, i, i.into())])?;
            side.pair.done_well(i.into())?;
            side.meet()?;
        }
        return side.meet();
    }
    side.meet_while(transport::verbs::replenish)?;
    for i in 0..600 {
        let told = side.pair.told()?;
        ensure!(told == i, "told {told}, not {i}");
        side.meet()?;
    }
    for pair in &slow {
        for i in 0..TELLS as u32 {
            let told = pair.told()?;
            ensure!(
                told == i,
                "told {told}, not {i}, by one that was not polled"
            );
        }
    }
    side.meet()
}

fn come_and_go(side: &mut Side) -> Result<(), String> {
    for i in 1..=40 {
        let pair = side.another()?;
        pair.post(&[word(&pair, i, i, true)])?;
        pair.done_well(i)?;
        pair.await_word(WORD, i)?;
        side.meet()?;
    }
    Ok(())
}

/// Or waited for, where TCP carries it all.
fn a_cut_link_is_told(side: &mut Side) -> Result<(), String> {
    side.pair = side.another_that_gives_up()?;
    if side.role == Role::Asks && !side.pair.is_acknowledged() {
        side.cut()?;
        let posted = side.pair.post(&[side.pair.write(0, 4096, 1)]);
        std::thread::sleep(Duration::from_millis(500));
        side.mend()?;
        posted?;
        side.pair.done_well(1)?;
        side.pair.placed()?;
    } else if side.role == Role::Asks {
        side.cut()?;
        let pair = &side.pair;
        let posted = Instant::now();
        let told = pair
            .post(&[pair.write(0, 4096, 1)])
            .and_then(|()| pair.done_badly(1));
        println!("  told after {} ms", posted.elapsed().as_millis());
        side.mend()?;
        told?;
    }
    side.meet()?;
    side.pair = side.another()?;
    both_at_once(side)
}
