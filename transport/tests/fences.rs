//! A model check of `shm::fences`: which barrier a side issues when it arms may change at any time, and nobody sleeps through
//! a message. All runs are gone through that x86 allows (x86-TSO), store buffers among them, which is what the
//! barriers are about. (Loom knows no membarrier, nor what it is to die half way.)
//!
//! It checks a copy: the few lines of `shm/fences.rs`, `doorbell.rs` and `sys/barrier.rs` that count, in the instructions of a
//! small machine ([`Op`]). That the search sees what it has to is shown by faults: each is put into the copy, and found.

#![cfg(not(loom))]
#![forbid(unsafe_code)]
#![allow(clippy::panic)]

use std::collections::HashSet;
use std::rc::Rc;

/// What the threads share: how many messages have been put, whether the sender needs no barrier, whether a wish for a bell
/// stands, and which barrier is issued by who arms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Word {
    Data,
    Heavy,
    Armed,
    Mode,
}
use Word::{Armed, Data, Heavy, Mode};

/// What `Mode` says.
const HEAVY: u8 = 0;
const CHANGING: u8 = 1;
const FENCED: u8 = 2;

/// How many messages are put.
const LAST: u8 = 2;

/// One instruction. Those that x86 orders behind the thread's own stores wait until its buffer is empty.
#[derive(Clone, Copy, Debug)]
enum Op {
    /// A plain store: into the buffer.
    Store(Word, u8),
    /// A sequentially consistent one.
    Swap(Word, u8),
    /// Changes the word from one value to another; skips so many instructions if it has a third one.
    Change(Word, u8, u8, usize),
    /// Skips so many instructions if the word has this value.
    SkipIf(Word, u8, usize),
    /// Skips so many instructions, or does not: both are tried.
    MaySkip(usize),
    Fence,
    /// membarrier(2): empties every thread's buffer. (In one step. It reaches one core after the other, but in the right
    /// protocol the sender's is the only one with anything in it.)
    Membarrier,
    /// Takes off the bells that came for this thread.
    Hush,
    /// Takes what has come, under the readers' lock, and begins anew, until all has come. If nothing has it sleeps. (In one
    /// step: a bell that comes between lies on the connection and ends the sleep.)
    Look,
    /// Rings: wakes all that sleep, now or with their next look.
    Ring,
    /// The thread's oldest store is seen by the others from now on. (In no program: it may always happen.)
    Drain,
    /// The thread ends where it is. (In no program, either.)
    Die,
}
use Op::{Change, Die, Drain, Fence, Hush, Look, MaySkip, Membarrier, Ring, SkipIf, Store, Swap};

/// A message is put, and the bell rung if somebody wished for it.
fn put(number: u8) -> Vec<Op> {
    vec![
        Store(Data, number),
        SkipIf(Heavy, 1, 1), // `is_light`
        Fence,
        SkipIf(Armed, 0, 2), // `is_wished`
        Change(Armed, 1, 0, 1),
        Ring,
    ]
}

/// Arms and sleeps. A barrier is due for a new wish only: who made one that stands issues its own, and takes what it finds then.
/// (If it left that to others, or died first, who sleeps on its wish could sleep through a message.)
const SLEEP: [Op; 5] = [
    Hush,
    Change(Armed, 0, 1, 2),
    SkipIf(Mode, FENCED, 1), // `is_fenced`
    Membarrier,
    Look,
];
/// The only reader of its side may take its wish back while it is awake.
const REST: [Op; 2] = [MaySkip(1), Swap(Armed, 0)];
const GO_FENCED: [Op; 4] = [
    Change(Mode, HEAVY, CHANGING, 3),
    Swap(Heavy, 0),
    Membarrier,
    Swap(Mode, FENCED),
];
const GO_HEAVY: [Op; 4] = [
    Change(Mode, FENCED, CHANGING, 3),
    Fence,
    Swap(Heavy, 1),
    Swap(Mode, HEAVY),
];

/// What one thread does, and whether it may die before any step.
struct Program(Vec<Op>, bool);

fn sender(put: fn(u8) -> Vec<Op>) -> Program {
    Program((1..=LAST).flat_map(put).collect(), false)
}

fn sleeper(sleep: &[Op], is_alone: bool) -> Program {
    let rest: &[Op] = if is_alone { &REST } else { &[] };
    Program([rest, sleep].concat(), false)
}

/// Changes the mode: over and back so many times, with any of it left out. So all orders of as many changes are tried.
fn changer(times: usize, go_fenced: &[Op], go_heavy: &[Op]) -> Program {
    let mut ops = Vec::new();
    for go in [go_fenced, go_heavy].repeat(times) {
        ops.push(MaySkip(go.len()));
        ops.extend_from_slice(go);
    }
    Program(ops, true)
}

#[derive(Clone, Default, PartialEq, Eq, Hash)]
struct Thread {
    /// Its next instruction.
    at: usize,
    asleep: bool,
    /// A bell has come that it has not taken off.
    rung: bool,
    /// What it has stored and nobody else sees yet, oldest first.
    buffer: Vec<(Word, u8)>,
}

/// The machine between two steps.
#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    memory: [u8; 4],
    /// How many messages the sleepers have taken.
    taken: u8,
    threads: Vec<Thread>,
}

impl State {
    /// The side has stated its barriers (`state_barriers`), and nobody has done anything else.
    fn new(mode: u8, threads: usize) -> Self {
        let heavy = u8::from(mode == HEAVY);
        Self {
            memory: [0, heavy, 0, mode],
            taken: 0,
            threads: vec![Thread::default(); threads],
        }
    }

    /// What a thread reads: what it stored last, even if nobody else sees it yet.
    fn load(&self, who: usize, word: Word) -> u8 {
        let mut own = self.threads[who].buffer.iter().rev();
        own.find(|stored| stored.0 == word)
            .map_or(self.memory[word as usize], |stored| stored.1)
    }

    fn drain(&mut self, who: usize) {
        let (word, value) = self.threads[who].buffer.remove(0);
        self.memory[word as usize] = value;
    }

    /// All that can come of a step of this thread's; nothing if it has to wait.
    fn after(&self, who: usize, op: Op, end: usize) -> Vec<Self> {
        let mut next = self.clone();
        let me = &mut next.threads[who];
        let at = me.at;
        me.at += 1;
        match op {
            Store(word, value) => me.buffer.push((word, value)),
            SkipIf(word, value, more) if self.load(who, word) == value => me.at += more,
            SkipIf(..) => {}
            MaySkip(more) => {
                let mut other = next.clone();
                other.threads[who].at += more;
                return vec![next, other];
            }
            Membarrier => (0..next.threads.len()).for_each(|each| {
                while !next.threads[each].buffer.is_empty() {
                    next.drain(each);
                }
            }),
            Drain => {
                me.at = at;
                next.drain(who);
            }
            Die => me.at = end,
            Hush => me.rung = false,
            Look if self.load(who, Data) > self.taken => {
                next.taken = self.load(who, Data);
                me.at = if next.taken == LAST { end } else { 0 };
            }
            Look => (me.at, me.asleep) = (0, !me.rung),
            _ if !me.buffer.is_empty() => return Vec::new(),
            Fence => {}
            Swap(word, value) => next.memory[word as usize] = value,
            Change(word, from, to, _) if self.memory[word as usize] == from => {
                next.memory[word as usize] = to;
            }
            Change(_, _, _, more) => me.at += more,
            Ring => next.threads.iter_mut().for_each(|each| {
                (each.rung, each.asleep) = (true, false);
            }),
        }
        vec![next]
    }

    /// All that can come next, with who did what.
    fn next(&self, programs: &[Program]) -> Vec<(usize, Op, Self)> {
        let mut all = Vec::new();
        for (who, (thread, Program(ops, may_die))) in self.threads.iter().zip(programs).enumerate()
        {
            let op = ops.get(thread.at).filter(|_| !thread.asleep).copied();
            let drain = (!thread.buffer.is_empty()).then_some(Drain);
            let die = op.filter(|_| *may_die).map(|_| Die);
            // What nobody else can notice may as well come first: that spares many states.
            let is_own = matches!((op, drain), (Some(MaySkip(_)), _) | (Some(Fence), None));
            if is_own {
                all.clear();
            }
            let steps = [op, drain, die];
            for op in steps.into_iter().flatten() {
                let after = self.after(who, op, ops.len()).into_iter();
                all.extend(after.map(|next| (who, op, next)));
            }
            if is_own {
                break;
            }
        }
        all
    }

    /// Somebody sleeps although there is something to read.
    fn is_lost(&self) -> bool {
        self.memory[Data as usize] > self.taken && self.threads.iter().any(|t| t.asleep)
    }
}

/// Goes through all that can happen, from either mode that a side may state. The shortest run, if there is one, that ends in
/// a lost wake-up.
fn lost_wake_up(name: &str, programs: &[Program]) -> Option<String> {
    let starts = [HEAVY, FENCED].map(|mode| Rc::new(State::new(mode, programs.len())));
    let mut seen = HashSet::from(starts.clone());
    // Each state, and after which one who did what.
    let mut reached = Vec::from(starts.map(|state| (state, None)));
    let mut looked = 0;
    while let Some((state, _)) = reached.get(looked).cloned() {
        let next = state.next(programs);
        if next.is_empty() && state.is_lost() {
            let mut run = Vec::new();
            let mut at = looked;
            while let (state, Some((from, who, op))) = &reached[at] {
                run.push(format!("\n  {who} {op:?}: {:?}", state.memory));
                at = *from;
            }
            run.push(format!("\n  {:?}", reached[at].0.memory));
            run.reverse();
            return Some(run.concat());
        }
        for (who, op, next) in next {
            let next = Rc::new(next);
            if seen.insert(Rc::clone(&next)) {
                reached.push((next, Some((looked, who, op))));
            }
        }
        looked += 1;
    }
    println!("{name}: {looked} states");
    None
}

fn holds(name: &str, programs: &[Program]) {
    if let Some(run) = lost_wake_up(name, programs) {
        panic!("{name}: a wake-up is lost{run}");
    }
}

/// A fault has been put in, and has to be found.
fn fails(name: &str, programs: &[Program]) {
    match lost_wake_up(name, programs) {
        Some(run) => println!("{name}: found{run}"),
        None => panic!("{name}: the search does not see the fault"),
    }
}

fn fails_with(name: &str, sleep: &[Op], go_fenced: &[Op], go_heavy: &[Op]) {
    let changer = changer(1, go_fenced, go_heavy);
    fails(name, &[sender(put), sleeper(sleep, true), changer]);
}

#[test]
fn nobody_sleeps_through_a_message() {
    for (changers, times) in [(0, 0), (1, 2), (2, 1), (2, 2)] {
        for sleepers in [1, 2] {
            let mut all = vec![sender(put)];
            all.extend((0..sleepers).map(|_| sleeper(&SLEEP, sleepers == 1)));
            all.extend((0..changers).map(|_| changer(times, &GO_FENCED, &GO_HEAVY)));
            let name = format!("{sleepers} asleep, {changers} change {times} times");
            holds(&name, &all);
        }
    }
}

#[test]
fn fenced_is_said_only_after_the_membarrier() {
    let [change, not_heavy, membarrier, fenced] = GO_FENCED;
    let go_fenced = [change, not_heavy, fenced, membarrier];
    fails_with("FENCED first", &SLEEP, &go_fenced, &GO_HEAVY);
}

#[test]
fn the_sender_is_light_only_after_fenced_is_left() {
    let is_fenced = Change(Mode, FENCED, FENCED, 2);
    let go_heavy = [is_fenced, Swap(Heavy, 1), Swap(Mode, HEAVY)];
    fails_with("light first", &SLEEP, &GO_FENCED, &go_heavy);
}

#[test]
fn the_mode_is_read_only_after_the_wish() {
    let fenced = SkipIf(Mode, FENCED, 3);
    let (wish, new_wish) = (Change(Armed, 0, 1, 0), Change(Armed, 0, 1, 1));
    let sleep = [Hush, fenced, new_wish, Membarrier, Look, wish, Look];
    fails_with("mode first", &sleep, &GO_FENCED, &GO_HEAVY);
}

#[test]
fn bells_are_taken_off_only_before_the_wish() {
    let [hush, wish, mode, membarrier, look] = SLEEP;
    let sleep = [wish, mode, membarrier, hush, look];
    fails("wish first", &[sender(put), sleeper(&sleep, true)]);
}

#[test]
fn the_flag_is_read_only_after_the_put() {
    let put = |number| {
        let store = Store(Data, number); // (the second one changes nothing)
        let early = vec![SkipIf(Heavy, 1, 2), store, Fence, store];
        [early, put(number).split_off(3)].concat()
    };
    let changer = changer(1, &GO_FENCED, &GO_HEAVY);
    let all = [sender(put), sleeper(&SLEEP, true), changer];
    fails("flag first", &all);
}

#[test]
fn only_one_changes_the_mode_at_a_time() {
    let go_fenced = [Store(Heavy, 0), Membarrier, Store(Mode, FENCED)];
    let go_heavy = [Store(Mode, HEAVY), Fence, Store(Heavy, 1)];
    let changer = || changer(1, &go_fenced, &go_heavy);
    // One alone may do without CHANGING, so what is found is the race.
    let mut all = vec![sender(put), sleeper(&SLEEP, true), changer()];
    holds("no CHANGING, one", &all);
    all.push(changer());
    fails("no CHANGING, two", &all);
}
