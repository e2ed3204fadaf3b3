//! Words that are told: their order, how many of them there may be, and what wakes for them.

use super::super::side::{LEN, Pair, Side, ensure};
use super::{in_turn, length, word};
use std::time::Duration;
use transport::verbs::{Operation, TELLS, Work};

/// A Write of no octets that tells a word.
pub(super) fn telling(pair: &Pair, word: u32, id: u64) -> Work {
    Work {
        operation: Operation::WriteInline,
        tell: Some(word),
        ..pair.write(0, 0, id)
    }
}

pub(super) fn told_in_order(side: &mut Side) -> Result<(), String> {
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

pub(super) fn told_more_than_polled(side: &mut Side) -> Result<(), String> {
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

pub(super) fn an_event_tells_once(side: &mut Side) -> Result<(), String> {
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
