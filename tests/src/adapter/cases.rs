//! The cases. Each side runs the same function with its own role; words at the end of the memory tell the peer how far the
//! other is.

mod ending;
mod told;

use ending::{
    a_cut_link_is_told, a_side_has_gone, another_kind, nothing_arrives, posted_after_failing,
    violation,
};
use told::{an_event_tells_once, telling, told_in_order, told_more_than_polled};

use super::Role;
use super::side::{LEN, Pair, Side, ensure};
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
    // Whoever has heard the last word stays until the other one's work has ended: its acknowledgement may be lost.
    side.meet()
}

const fn length(round: u64) -> usize {
    1 + (round * 37 % 6000) as usize
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
