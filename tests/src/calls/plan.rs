//! From a seed to steps. Each is drawn by itself: what came before it does not matter to it, so any may be left out.

use crate::side::Random;

/// What a step is about; `words` says which of its many forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Give,
    Take,
    /// poll, select and their relatives, and FIONREAD.
    Look,
    Watch,
    Wait,
    Option,
    Misuse,
    /// A call that waits in vain: a time-out or a signal ends it.
    InVain,
    Shutdown,
    Close,
    Dup,
    Fork,
    Exec,
    Pass,
    Stdio,
    /// Both ends: more than fits in a buffer.
    Stream,
    /// Both ends: one sleeps until the other acts.
    Sleep,
    /// Both ends: a connection of which nothing is left is made anew.
    Anew,
    Urgent,
    /// Rarer forms (`more`).
    More,
}

/// What a run is about, beside the calls of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Plain,
    /// Both ends are threads of one process.
    Threads,
    Urgent,
    /// The buffers of the sockets are as small as the kernel lets them be.
    Small,
    More,
}

/// Seeds of a kind: from so many times its number on.
pub const KINDS: u64 = 1_000_000;

pub fn kind(seed: u64) -> Kind {
    match seed / KINDS {
        1 => Kind::Threads,
        2 => Kind::Urgent,
        3 => Kind::Small,
        4 => Kind::More,
        _ => Kind::Plain,
    }
}

impl Kind {
    /// The step that is done in place of another; none is done for some.
    fn instead(self, op: Op, r: &mut Random) -> Option<Op> {
        match (self, op) {
            // (a timer's signal may come to either)
            (Self::Threads, Op::InVain) => None,
            (Self::Urgent, Op::InVain | Op::Stream | Op::Sleep | Op::Stdio) => None,
            (Self::Urgent, op) => Some(if r.below(4) == 0 { Op::Urgent } else { op }),
            (Self::More, op) => Some(if r.below(4) == 0 { Op::More } else { op }),
            (_, op) => Some(op),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub end: usize,
    pub conn: usize,
    pub op: Op,
    pub words: [usize; 5],
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub steps: Vec<Step>,
    /// Bytes are exchanged first, so that the streams are attached.
    pub warm: bool,
    /// The end that is killed when all is done.
    pub killed: Option<usize>,
    pub kind: Kind,
}

pub const CONNS: usize = 2;

const WEIGHTS: [(Op, usize); 18] = [
    (Op::Give, 24),
    (Op::Take, 24),
    (Op::Look, 10),
    (Op::Watch, 6),
    (Op::Wait, 8),
    (Op::Option, 8),
    (Op::Misuse, 5),
    (Op::InVain, 3),
    (Op::Shutdown, 2),
    (Op::Close, 2),
    (Op::Dup, 3),
    (Op::Fork, 1),
    (Op::Exec, 1),
    (Op::Pass, 1),
    (Op::Stdio, 1),
    (Op::Stream, 3),
    (Op::Sleep, 4),
    (Op::Anew, 3),
];

pub fn plan(seed: u64) -> Plan {
    let mut r = Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let length = 8 + r.below(50);
    // Most have none of what sends a stream back to the kernel for good, so that later steps are about the library.
    let calm = r.below(3) > 0;
    let kind = kind(seed);
    let mut steps = Vec::new();
    while steps.len() < length {
        let Some(op) = kind.instead(draw(&mut r), &mut r) else {
            continue;
        };
        let leaves = matches!(op, Op::Exec | Op::Pass | Op::Stdio);
        let step = Step {
            end: r.below(2),
            conn: r.below(CONNS),
            op,
            words: [(); 5].map(|()| r.below(1 << 30)),
        };
        if !(calm && leaves) {
            steps.push(step);
        }
    }
    let warm = r.below(4) > 0;
    let killed = [Some(0), Some(1), None, None][r.below(4)];
    let killed = killed.filter(|_| matches!(kind, Kind::Plain | Kind::More));
    Plan {
        kind,
        steps,
        warm,
        killed,
    }
}

fn draw(r: &mut Random) -> Op {
    let total = WEIGHTS.iter().map(|(_, n)| n).sum();
    let mut at = r.below(total);
    for (op, n) in WEIGHTS {
        if at < n {
            return op;
        }
        at -= n;
    }
    Op::Look
}
