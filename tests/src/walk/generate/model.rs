//! What every process of a walk holds and what lies in each direction, as far as a plan has to know.
//! It keeps plans free of calls that would block for ever and of results that depend on timing; it does
//! not predict results, which are the kernel's to give. Kept by the other files of `generate`.

use crate::side::Random;
use crate::walk::plan::{Act, Expect, Slot, Step, Watch, Who};
use std::collections::BTreeMap;

/// Most bytes that lie in a direction between steps: far below what makes a sender wait.
pub(super) const MOST: u64 = 40_000;
/// Children alive at one end at a time.
pub(super) const CHILDREN: usize = 2;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Way {
    pub(super) sent: u64,
    pub(super) read: u64,
    /// The sender has shut it, or closed its last descriptor.
    pub(super) fin: bool,
    pub(super) shut_rd: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Conn {
    /// By sending end.
    pub(super) ways: [Way; 2],
    pub(super) closed: [bool; 2],
    pub(super) linger: [bool; 2],
    pub(super) reset: bool,
}

impl Conn {
    pub(super) fn queued(&self, reader: usize) -> u64 {
        let way = &self.ways[1 - reader];
        way.sent - way.read
    }

    pub(super) fn expect(&self, reader: usize) -> Expect {
        Expect {
            queued: self.queued(reader),
            end: self.ways[1 - reader].fin,
            reset: self.reset,
        }
    }

    /// Both ends can send and receive.
    pub(super) fn whole(&self) -> bool {
        !self.reset && !self.ways.iter().any(|w| w.fin || w.shut_rd)
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Process {
    pub(super) slots: BTreeMap<Slot, usize>,
    pub(super) watched: Vec<(Slot, Watch)>,
}

pub(super) struct Model {
    pub(super) r: Random,
    pub(super) conns: Vec<Conn>,
    pub(super) processes: BTreeMap<Who, Process>,
    pub(super) next_slot: [Slot; 2],
    pub(super) next_child: [usize; 2],
    pub(super) attentive: bool,
    pub(super) steps: Vec<Step>,
}

impl Model {
    pub(super) fn one<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.r.below(list.len())]
    }

    pub(super) fn push(&mut self, who: Who, act: Act) {
        self.steps.push(Step { who, act });
    }

    pub(super) fn who(&mut self) -> Who {
        let all: Vec<Who> = self.processes.keys().copied().collect();
        self.one(&all)
    }

    pub(super) fn slot_of(&mut self, who: Who) -> Option<(Slot, usize)> {
        let all: Vec<_> = self.processes[&who]
            .slots
            .iter()
            .map(|(s, c)| (*s, *c))
            .collect();
        (!all.is_empty()).then(|| self.one(&all))
    }

    pub(super) fn new_slot(&mut self, end: usize) -> Slot {
        self.next_slot[end] += 1;
        self.next_slot[end] - 1
    }

    pub(super) fn expects(&self, who: Who) -> Vec<(Slot, Expect)> {
        let p = &self.processes[&who];
        p.slots
            .iter()
            .map(|(s, c)| (*s, self.conns[*c].expect(who.end)))
            .collect()
    }

    pub(super) fn is_watched(&self, who: Who, slot: Slot) -> bool {
        self.processes[&who].watched.iter().any(|(s, _)| *s == slot)
    }

    /// The model's side of a descriptor that goes.
    pub(super) fn let_go(&mut self, who: Who, slot: Slot, conn: usize) {
        let p = self.processes.get_mut(&who).unwrap();
        p.slots.remove(&slot);
        p.watched.retain(|(s, _)| *s != slot);
        self.settle_holders(who.end, conn);
    }

    pub(super) fn settle_holders(&mut self, end: usize, conn: usize) {
        let held = self
            .processes
            .iter()
            .any(|(w, p)| w.end == end && p.slots.values().any(|c| *c == conn));
        let c = &mut self.conns[conn];
        if held || c.closed[end] {
            return;
        }
        c.closed[end] = true;
        c.ways[end].fin = true;
        if c.queued(end) > 0 || c.linger[end] {
            c.reset = true;
        }
    }

    pub(super) fn gone(&mut self, who: Who) {
        self.processes.remove(&who);
        for conn in 0..self.conns.len() {
            self.settle_holders(who.end, conn);
        }
    }

    /// A process of the other end that holds the connection, and its descriptor.
    pub(super) fn across(&mut self, who: Who, conn: usize) -> Option<(Who, Slot)> {
        let all: Vec<(Who, Slot)> = self
            .processes
            .iter()
            .filter(|(w, _)| w.end != who.end)
            .flat_map(|(w, p)| {
                p.slots
                    .iter()
                    .filter(|(_, c)| **c == conn)
                    .map(|(s, _)| (*w, *s))
            })
            .collect();
        (!all.is_empty()).then(|| self.one(&all))
    }
}
