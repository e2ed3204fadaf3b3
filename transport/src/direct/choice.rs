//! Whether a connection's large messages go straight to the reader or through the ring: whichever has moved
//! them faster, measured as they go (`SHUNT_ZCOPY=auto`).
//!
//! Pure; kept by the source, asked once for each large message. Messages are counted in *spells*, each by one
//! way. A spell begins with as many bytes as the buffers hold, which count for nothing: they hide what the
//! reader does, or are a debt of the spell before. Its pace is the time from there to the beginning of the next,
//! over the bytes: what the program does meanwhile, and how long it waits for answers, is in it, as it is in the
//! program's own clock. The slower way is tried again now and then, ever more rarely while it stays the slower
//! one.

/// Messages and bytes that make a spell, and bytes that come before.
const MESSAGES: u32 = 8;
const BYTES: u64 = 4 << 20;
const BEFORE: u64 = 1 << 20;

/// Spells of the faster way between two of the slower, at first and at most.
const OFTEN: u32 = 2;
const RARELY: u32 = 64;
/// At most after waits in vain, which cost more than a slower way.
const VERY_RARELY: u32 = 1024;

/// The ring has to be faster by this part (one in so many) to be taken: it uses twice the processor time.
const MARGIN: u64 = 32;

/// A way for large messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Direct = 0,
    Ring = 1,
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
    /// Ticks for a MiB, by each way; 0 while unknown.
    pub paces: [u64; 2],
    /// Spells until the slower way is tried, and how many there were the last time.
    pub left: u32,
    pub rest: u32,
}

impl Choice {
    /// Nothing known.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            since: 0,
            bytes: 0,
            messages: 0,
            way: Way::Direct,
            paces: [0; 2],
            left: 0,
            rest: OFTEN,
        }
    }

    const fn faster(&self) -> Way {
        let [direct, ring] = self.paces;
        if ring < direct - direct / MARGIN {
            Way::Ring
        } else {
            Way::Direct
        }
    }

    /// A message begins now. It goes by [`Self::way`].
    pub fn begin(&mut self, now: u64) {
        if self.since == 0 {
            self.since = now.max(1);
        } else if self.messages == 0 && self.bytes >= BEFORE {
            (self.since, self.bytes, self.messages) = (now.max(1), 0, 1);
        } else if self.messages > MESSAGES && self.bytes >= BYTES {
            self.end_spell(now);
        }
        if self.messages > 0 {
            self.messages = self.messages.saturating_add(1);
        }
    }

    /// Whether it is known how fast large messages go straight.
    #[must_use]
    pub const fn is_known(&self) -> bool {
        let [direct, _] = self.paces;
        direct != 0
    }

    /// A message that went straight waited for a reader that did not come: through the ring for long.
    pub fn in_vain(&mut self) {
        (self.since, self.bytes, self.messages) = (0, 0, 0);
        self.way = Way::Ring;
        self.rest = (4 * self.rest).min(VERY_RARELY);
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
        let [direct, ring] = &mut self.paces;
        let known = match self.way {
            Way::Direct => direct,
            Way::Ring => ring,
        };
        // What else runs on the machine only ever makes a spell longer.
        *known = if *known == 0 || *known == u64::MAX || pace < *known {
            pace
        } else {
            *known + (pace - *known) / 4
        };
        (self.since, self.bytes, self.messages) = (now.max(1), 0, 0);
        self.way = match self.paces {
            [0, _] => Way::Direct,
            [_, 0] => Way::Ring,
            _ => self.way_after(),
        };
    }

    fn way_after(&mut self) -> Way {
        let faster = self.faster();
        if self.way != faster {
            // A trial has ended, and has confirmed what was known; or what was the faster way is no more.
            self.rest = (2 * self.rest).min(RARELY.max(self.rest));
            self.left = self.rest;
            return faster;
        }
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                faster
            }
            None => match faster {
                Way::Direct => Way::Ring,
                Way::Ring => Way::Direct,
            },
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
            choice.begin(now);
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

    #[test]
    fn the_faster_way_is_taken_nearly_always() {
        let mut c = Choice::new();
        assert!(run(&mut c, 50_000, 10_000, 15_000) > 48_000);
        let mut c = Choice::new();
        assert!(run(&mut c, 50_000, 15_000, 10_000) < 2_000);
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
            c.begin(now);
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
    fn alike_is_direct() {
        let mut c = Choice::new();
        assert!(run(&mut c, 50_000, 10_000, 10_000) > 48_000);
    }
}
