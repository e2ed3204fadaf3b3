//! Whether a connection's large messages go straight to the reader or through the ring: whichever has moved
//! them faster, measured as they go (`SHUNT_ZCOPY=auto`).
//!
//! Pure; kept by the source, in the segment (a peer that spoils it does so to its own loss), and asked once for
//! each large message. Messages are counted in *spells*, each by one way. A spell begins with as many bytes as the buffers hold, which count for nothing: they hide what the
//! reader does, or are a debt of the spell before. Its pace is the time from there to the beginning of the next,
//! over the bytes: what the program does meanwhile, and how long it waits for answers, is in it, as it is in the
//! program's own clock.
//!
//! One spell says little: whatever else runs on the machine is in it too. So the ways are compared in a *duel*,
//! pairs of spells one after the other, until the score is clear; no pair counts for much. A great difference
//! is clear after two pairs, a small one costs little. Later the loser has a spell now and then, the more rarely
//! the more it loses by, and another duel if that spell was the better one.

/// Messages and bytes that make a spell, and bytes that come before.
const MESSAGES: u32 = 3;
const BYTES: u64 = 2 << 20;
const BEFORE: u64 = 1 << 20;

/// Scores are in parts of this, of the pace: what one pair counts at most, what is clear, how many pairs a duel
/// has at most.
const WHOLE: i64 = 1024;
const PAIR: i64 = WHOLE / 8;
const CLEAR: i64 = WHOLE / 5;
const PAIRS: u32 = 6;

/// Spells of the winner between two of the loser, at first and at most; how much more rarely after each.
const OFTEN: u32 = 8;
const RARELY: u32 = 128;
const GROWS: u32 = 4;
/// The same for one that takes twice as long or more: a spell of it costs as much as many of a close loser.
const HARDLY: u32 = 512;
/// At most after waits in vain, which cost more than a slower way.
const VERY_RARELY: u32 = 1024;

/// The ring has to be faster by this part (one in so many) to be taken: it uses twice the processor time.
const MARGIN: i64 = 32;

/// With more to run than cores, how long something takes is a matter of who else runs: a spell in which this
/// thread had to make way says nothing. What counts then is the processor time; so large messages, from this
/// size (bytes) on, go by the way that uses less of it (`super::cost`) once so many of the last spells were such.
/// (Smaller ones may be worth less than the changes of who runs that each of them takes.)
const WORTH: usize = 512 * 1024;
const CROWDED: u32 = 4;
const MOST_CROWDED: u32 = 8;

/// A way for large messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Direct = 0,
    Ring = 1,
}

impl Way {
    const fn other(self) -> Self {
        match self {
            Self::Direct => Self::Ring,
            Self::Ring => Self::Direct,
        }
    }
}

/// What is known of one connection's large messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// When the spell began, in ticks; 0 before the first.
    pub since: u64,
    /// Its bytes so far, and its messages, one more than there were; 0 before they count.
    pub bytes: u64,
    pub messages: u32,
    /// The way of this spell.
    pub way: Way,
    /// The winner of the last duel.
    pub best: Way,
    /// Ticks for a MiB, by each way, lately; 0 while unknown.
    pub paces: [u64; 2],
    /// Of this duel: its score, in favour of the direct way, and its pairs so far, one more than there were;
    /// 0 while there is none.
    pub score: i64,
    pub pairs: u32,
    /// Spells until the loser has one, and how many there were the last time.
    pub left: u32,
    pub rest: u32,
    /// How often this thread had made way when the spell began, and how crowded it is.
    pub put_off: u64,
    pub crowd: u32,
}

impl Choice {
    /// Nothing known: the first duel begins.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            since: 0,
            bytes: 0,
            messages: 0,
            way: Way::Direct,
            best: Way::Direct,
            paces: [0; 2],
            score: 0,
            pairs: 1,
            left: 0,
            rest: OFTEN,
            put_off: 0,
            crowd: 0,
        }
    }

    /// A message of so many bytes begins now, or the next part of one ([`super::policy::stage`]). It goes by
    /// [`Self::way`]. `put_off` says how often this thread has had to make way for another, `thrifty` which way
    /// uses less processor time.
    pub fn begin(
        &mut self,
        now: u64,
        len: usize,
        put_off: impl FnOnce() -> u64,
        thrifty: impl FnOnce() -> Way,
    ) {
        if self.since == 0 {
            self.since = now.max(1);
        } else if self.messages == 0 && self.bytes >= BEFORE {
            (self.since, self.bytes, self.messages) = (now.max(1), 0, 1);
            self.put_off = put_off();
        } else if self.messages > MESSAGES && self.bytes >= BYTES {
            let calm = put_off() == self.put_off;
            self.crowd = match calm {
                true => self.crowd.saturating_sub(1),
                false => self.crowd.saturating_add(2).min(MOST_CROWDED),
            };
            if calm || len < WORTH {
                self.end_spell(now);
            } else {
                (self.since, self.bytes, self.messages) = (now.max(1), 0, 0);
                self.save(thrifty);
            }
        }
        if self.messages > 0 {
            self.messages = self.messages.saturating_add(1);
        }
    }

    /// On a machine that has more to run than cores. (Afterwards it is as if that way's turn had come.)
    fn save(&mut self, thrifty: impl FnOnce() -> Way) {
        let [direct, _] = self.paces;
        if direct != u64::MAX && self.crowd >= CROWDED {
            self.way = thrifty();
        }
    }

    /// Whether others have kept this thread from running lately.
    #[must_use]
    pub const fn is_crowded(&self) -> bool {
        self.crowd > 0
    }

    /// Whether it is known how fast large messages go straight.
    #[must_use]
    pub const fn is_known(&self) -> bool {
        let [direct, _] = self.paces;
        direct != 0
    }

    /// Whether its reader has come to what went straight, the last time as well.
    #[must_use]
    pub const fn is_trusted(&self) -> bool {
        let [direct, _] = self.paces;
        direct != 0 && direct != u64::MAX
    }

    /// A message that went straight waited for a reader that did not come: through the ring for long.
    pub fn in_vain(&mut self) {
        (self.since, self.bytes, self.messages) = (0, 0, 0);
        (self.way, self.best) = (Way::Ring, Way::Ring);
        (self.score, self.pairs) = (0, 0);
        self.rest = self.rest.saturating_mul(GROWS).min(VERY_RARELY);
        self.left = self.rest;
        let [direct, _] = &mut self.paces;
        *direct = u64::MAX;
    }

    /// So many bytes of it have gone.
    pub fn moved(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    fn end_spell(&mut self, now: u64) {
        let took = now.saturating_sub(self.since);
        let pace = (took.saturating_mul(1024) / (self.bytes / 1024).max(1)).max(1);
        (self.since, self.bytes, self.messages) = (now.max(1), 0, 0);
        if self.pairs > 0 {
            self.duel(pace);
        } else if self.way == self.best {
            self.learn(pace);
            match self.left.checked_sub(1) {
                Some(left) => self.left = left,
                None => self.way = self.best.other(),
            }
        } else {
            self.trial(pace);
        }
    }

    fn pace_of(&mut self, way: Way) -> &mut u64 {
        let [direct, ring] = &mut self.paces;
        match way {
            Way::Direct => direct,
            Way::Ring => ring,
        }
    }

    /// A spell of this way took so long. (What a spell that somebody interrupted says counts for little.)
    fn learn(&mut self, pace: u64) {
        let known = self.pace_of(self.way);
        *known = match *known {
            0 | u64::MAX => pace,
            k if pace < k => k - (k - pace) / 4,
            k => k + (pace - k).min(k) / 8,
        };
    }

    /// By how much the direct way is better, if these are the paces of both.
    fn lead(&self) -> i64 {
        let [direct, ring] = self.paces.map(|p| i64::try_from(p).unwrap_or(i64::MAX));
        let lead = (ring.saturating_sub(direct)).saturating_mul(WHOLE) / direct.min(ring).max(1);
        lead.saturating_add(WHOLE / MARGIN)
    }

    /// A spell of a duel has ended: of the first way of a pair, or of its second.
    fn duel(&mut self, pace: u64) {
        *self.pace_of(self.way) = pace;
        let second = self.best.other();
        if self.way != second {
            self.way = second;
            return;
        }
        self.score = self.score.saturating_add(self.lead().clamp(-PAIR, PAIR));
        if self.score.unsigned_abs() < CLEAR.unsigned_abs() && self.pairs < PAIRS {
            self.pairs = self.pairs.saturating_add(1);
            self.way = self.best;
            return;
        }
        let winner = if self.score >= 0 {
            Way::Direct
        } else {
            Way::Ring
        };
        (self.best, self.way) = (winner, winner);
        (self.score, self.pairs) = (0, 0);
        self.left = self.rest;
        // (whoever wins: ways that are nearly alike would have one duel after the other)
        self.rest = self.rest.saturating_mul(GROWS).min(RARELY.max(self.rest));
    }

    /// The loser's spell has ended.
    fn trial(&mut self, pace: u64) {
        *self.pace_of(self.way) = pace;
        let lead = self.lead();
        let wins = (lead >= 0) == (self.way == Way::Direct);
        self.way = self.best;
        if wins {
            (self.score, self.pairs) = (0, 1);
        } else {
            // (one that loses by much is left alone at once)
            let grows = if lead.abs() > PAIR { RARELY } else { GROWS };
            let most = if lead.abs() > WHOLE { HARDLY } else { RARELY };
            let most = most.max(self.rest);
            self.rest = self.rest.saturating_mul(grows).min(most);
            self.left = self.rest;
        }
    }
}

impl Default for Choice {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::{Choice, Way};

    /// Runs messages of 128 KiB, each of which takes so many ticks by each way; how many went direct.
    fn run(choice: &mut Choice, messages: u32, direct: u64, ring: u64) -> u32 {
        let mut now = choice.since + 1;
        let mut count = 0;
        for _ in 0..messages {
            choice.begin(now, 128 * 1024, || 0, || Way::Direct);
            choice.moved(128 * 1024);
            match choice.way {
                Way::Direct => {
                    count += 1;
                    now += direct;
                }
                Way::Ring => now += ring,
            }
        }
        count
    }

    /// Sends so many bytes in messages of `size` over a machine on which other work goes on; how much longer it
    /// took than by the ring alone, and than by the better way, in parts of a thousand.
    fn regret(seed: u64, size: u64, bytes: u64, direct: f64, noise: f64) -> (i64, i64) {
        let mut state = seed;
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(99_991);
            (state >> 40) as f64 / (1u64 << 24) as f64
        };
        let mut c = Choice::new();
        let (mut now, mut ring) = (1.0, 0.0);
        let mut weather = 1.0;
        for _ in 0..bytes / size {
            c.begin(now as u64, size as usize, || 0, || Way::Direct);
            c.moved(size);
            // It changes slowly, and now and then somebody else has the core for a while.
            weather += 0.05 * (1.0 + noise * (2.0 * random() - 1.0) - weather);
            let jitter = 1.0 + 2.0 * noise * (random() - 0.5);
            let stolen = if random() < 0.002 {
                300_000.0 * noise
            } else {
                0.0
            };
            let time = size as f64 / 4.0 * weather * jitter;
            ring += time + stolen;
            now += stolen
                + if c.way == Way::Direct {
                    time * direct
                } else {
                    time
                };
        }
        let per_mille = |of: f64| ((now / of - 1.0) * 1000.0) as i64;
        (per_mille(ring), per_mille(ring * direct.min(1.0)))
    }

    #[test]
    fn the_faster_way_is_taken_nearly_always() {
        for direct in [0.5, 0.6, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0] {
            for noise in [0.0, 0.1, 0.3] {
                for size in [64 << 10, 128 << 10, 1 << 20, 4 << 20] {
                    let (mut over_ring, mut over_best) = (0, 0);
                    for seed in 0..20 {
                        let (a, b) = regret(seed, size, 4 << 30, direct, noise);
                        over_ring += a;
                        over_best += b;
                    }
                    let at = format!("direct {direct} noise {noise} size {size}");
                    let (a, b) = (over_ring / 20, over_best / 20);
                    assert!(
                        a < 20 && b < 25,
                        "{at}: {a} over the ring, {b} over the better"
                    );
                }
            }
        }
    }

    #[test]
    fn a_change_is_noticed() {
        let mut c = Choice::new();
        run(&mut c, 50_000, 10_000, 15_000);
        assert!(run(&mut c, 20_000, 30_000, 15_000) < 10_000);
    }

    #[test]
    fn a_reader_that_does_not_come_is_tried_ever_more_rarely() {
        let (mut c, mut now, mut vain) = (Choice::new(), 1, 0);
        for _ in 0..100_000 {
            c.begin(now, 128 * 1024, || 0, || Way::Direct);
            c.moved(128 * 1024);
            if c.way == Way::Direct {
                vain += 1;
                now += 10_000_000;
                c.in_vain();
            }
            now += 10_000;
        }
        assert!(vain > 1 && vain < 12, "{vain}");
    }

    #[test]
    fn a_crowd_takes_the_thrifty_way_if_that_is_worth_it() {
        let worth = [
            (1 << 20, Way::Direct, 15_000, true),
            (64 << 10, Way::Direct, 15_000, false),
            (1 << 20, Way::Ring, 5_000, false),
        ];
        for (size, thrifty, direct, goes) in worth {
            let mut c = Choice::new();
            run(&mut c, 50_000, direct, 10_000);
            let (mut now, mut count) = (c.since + 1, 0);
            for i in 0..10_000 {
                c.begin(now, size, || i, || thrifty);
                c.moved(size as u64);
                count += u32::from(c.way == Way::Direct);
                now += if c.way == Way::Direct { direct } else { 10_000 };
            }
            assert_eq!(count > 9_000, goes, "{count}");
            assert!(goes || count < 1_000, "{count}");
            // It is over, and what is faster counts again.
            let count = run(&mut c, 50_000, direct, 10_000);
            assert_eq!(count > 45_000, direct < 10_000, "{count}");
            assert!(count < 2_000 || direct < 10_000, "{count}");
            c.in_vain();
            for i in 0..100 {
                c.begin(now, size, || i, || thrifty);
                c.moved(size as u64);
                assert_eq!(c.way, Way::Ring);
            }
        }
    }

    #[test]
    fn alike_is_direct() {
        let mut c = Choice::new();
        assert!(run(&mut c, 50_000, 10_000, 10_000) > 48_000);
    }
}
