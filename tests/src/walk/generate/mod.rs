//! From a seed to a plan. The steps are drawn here; what each of them may be by then, the [`model`]
//! says, and `calls`, `holders` and `pairs` choose. The same seed gives the same plan.

mod calls;
mod holders;
mod model;
mod pairs;

use super::plan::{Act, Plan, Take, Who};
use crate::side::Random;
use model::{Conn, MOST, Model, Process};
use std::collections::BTreeMap;

pub fn plan(seed: u64) -> Plan {
    let mut r = Random::new(seed);
    let conns: Vec<bool> = (0..1 + r.below(3)).map(|_| r.below(2) == 0).collect();
    let warm = r.below(4) > 0;
    let attentive = r.below(4) > 0;
    let mut m = Model {
        r,
        conns: vec![Conn::default(); conns.len()],
        processes: BTreeMap::new(),
        next_slot: [conns.len(); 2],
        next_child: [1; 2],
        attentive,
        steps: Vec::new(),
    };
    for end in 0..2 {
        let slots = (0..conns.len()).map(|c| (c, c)).collect();
        let main = Process {
            slots,
            ..Process::default()
        };
        m.processes.insert(Who { end, child: 0 }, main);
    }
    let length = 10 + m.r.below(40);
    while m.steps.len() < length {
        m.step();
    }
    m.finish();
    Plan {
        seed,
        conns,
        warm,
        attentive,
        steps: m.steps,
    }
}

impl Model {
    fn step(&mut self) {
        let who = self.who();
        match self.r.below(100) {
            0..24 => self.give(who),
            24..46 => self.take(who),
            46..54 => self.look(who),
            54..58 => self.wait(who),
            58..62 => self.watch(who),
            62..67 => self.dup(who),
            67..72 => self.close(who),
            72..75 => self.shutdown(who),
            75..77 => self.settle_option(who),
            77..81 => self.process(who),
            81..84 => self.pass(who),
            84..92 => self.meet(who),
            _ => self.bulk(who),
        }
    }

    /// Everybody reads what is left of what it holds; then the walk ends.
    fn finish(&mut self) {
        for who in self.processes.keys().copied().collect::<Vec<_>>() {
            for (slot, conn) in self.processes[&who].slots.clone() {
                let ready = self.conns[conn].expect(who.end);
                let size = MOST as usize * 2;
                self.push(
                    who,
                    Act::Take {
                        slot,
                        conn,
                        size,
                        by: Take::Recv,
                        ready,
                    },
                );
                self.conns[conn].ways[1 - who.end].read += ready.queued;
            }
        }
    }
}
