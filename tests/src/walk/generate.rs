//! From a seed to a plan. A small model of what every process holds and of what lies in each
//! direction keeps the plan free of calls that would block for ever and of results that depend on
//! timing; it does not predict results, which are the kernel's to give.

use super::plan::{
    Act, DupBy, Expect, Flow, Give, Plan, Sleep, Slot, Step, Take, Trouble, Watch, Who,
};
use crate::side::Random;
use std::collections::BTreeMap;

/// Most bytes that lie in a direction between steps: far below what makes a sender wait.
const MOST: u64 = 40_000;
/// Children alive at one end at a time.
const CHILDREN: usize = 2;

#[derive(Clone, Copy, Debug, Default)]
struct Way {
    sent: u64,
    read: u64,
    /// The sender has shut it, or closed its last descriptor.
    fin: bool,
    shut_rd: bool,
}

#[derive(Clone, Debug, Default)]
struct Conn {
    /// By sending end.
    ways: [Way; 2],
    closed: [bool; 2],
    linger: [bool; 2],
    reset: bool,
}

impl Conn {
    fn queued(&self, reader: usize) -> u64 {
        let way = &self.ways[1 - reader];
        way.sent - way.read
    }

    fn expect(&self, reader: usize) -> Expect {
        Expect {
            queued: self.queued(reader),
            end: self.ways[1 - reader].fin,
            reset: self.reset,
        }
    }

    /// Both ends can send and receive.
    fn whole(&self) -> bool {
        !self.reset && !self.ways.iter().any(|w| w.fin || w.shut_rd)
    }
}

#[derive(Clone, Debug, Default)]
struct Process {
    slots: BTreeMap<Slot, usize>,
    watched: Vec<(Slot, Watch)>,
}

struct Model {
    r: Random,
    conns: Vec<Conn>,
    processes: BTreeMap<Who, Process>,
    next_slot: [Slot; 2],
    next_child: [usize; 2],
    attentive: bool,
    steps: Vec<Step>,
}

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
    fn one<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.r.below(list.len())]
    }

    fn push(&mut self, who: Who, act: Act) {
        self.steps.push(Step { who, act });
    }

    fn who(&mut self) -> Who {
        let all: Vec<Who> = self.processes.keys().copied().collect();
        self.one(&all)
    }

    fn slot_of(&mut self, who: Who) -> Option<(Slot, usize)> {
        let all: Vec<_> = self.processes[&who]
            .slots
            .iter()
            .map(|(s, c)| (*s, *c))
            .collect();
        (!all.is_empty()).then(|| self.one(&all))
    }

    fn new_slot(&mut self, end: usize) -> Slot {
        self.next_slot[end] += 1;
        self.next_slot[end] - 1
    }

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

    fn give(&mut self, who: Who) {
        let Some((slot, conn)) = self.slot_of(who) else {
            return;
        };
        let c = &self.conns[conn];
        let room = MOST.saturating_sub(c.queued(1 - who.end));
        let mut size = self.r.size().min(room as usize);
        let c = &self.conns[conn];
        let way = c.ways[who.end];
        let gone = c.reset || c.closed[1 - who.end] || way.fin;
        if size == 0 {
            return;
        }
        let by = match self.r.below(16) {
            0..3 => Give::Write,
            3..7 => Give::Send,
            7 => Give::SendMore,
            8..10 => Give::Writev,
            10 => Give::Sendmsg,
            11 => Give::Sendmmsg,
            12 => Give::Sendfile,
            13 => Give::Splice,
            14 => Give::Raw,
            _ => Give::Stdio,
        };
        if gone {
            // What a sender is told of an end that is gone is asked with one small call.
            size = size.min(100);
            self.push(
                who,
                Act::Give {
                    slot,
                    conn,
                    pos: way.sent,
                    size,
                    by: Give::Send,
                },
            );
            if !way.fin && self.conns[conn].closed[1 - who.end] {
                self.conns[conn].reset = true;
            }
            return;
        }
        self.push(
            who,
            Act::Give {
                slot,
                conn,
                pos: way.sent,
                size,
                by,
            },
        );
        self.conns[conn].ways[who.end].sent += size as u64;
    }

    fn take(&mut self, who: Who) {
        let Some((slot, conn)) = self.slot_of(who) else {
            return;
        };
        let ready = self.conns[conn].expect(who.end);
        let mut size = self.r.size().min(50_000);
        let by = match self.r.below(16) {
            0..3 => Take::Read,
            3..7 => Take::Recv,
            7..9 => Take::Peek,
            9..11 => Take::WaitAll,
            11..13 => Take::Readv,
            13 => Take::Recvmsg,
            14 => Take::Raw,
            _ => self.one(&[Take::Splice, Take::Discard]),
        };
        let ended = ready.end || ready.reset || self.conns[conn].ways[1 - who.end].shut_rd;
        let by = match by {
            // Nothing there: only a call that does not wait may ask, unless there is an end to be told of.
            _ if ready.queued == 0 && !ended => Take::Recv,
            Take::WaitAll if !ended => {
                size = size.min(ready.queued as usize).max(1);
                by
            }
            Take::Splice => {
                size = size.min(ready.queued as usize);
                if size == 0 {
                    return;
                }
                by
            }
            by => by,
        };
        self.push(
            who,
            Act::Take {
                slot,
                conn,
                size,
                by,
                ready,
            },
        );
        if by != Take::Peek {
            self.conns[conn].ways[1 - who.end].read += ready.queued.min(size as u64);
        }
    }

    fn look(&mut self, who: Who) {
        let slots = self.expects(who);
        if !slots.is_empty() {
            self.push(who, Act::Look { slots });
        }
    }

    fn expects(&self, who: Who) -> Vec<(Slot, Expect)> {
        let p = &self.processes[&who];
        p.slots
            .iter()
            .map(|(s, c)| (*s, self.conns[*c].expect(who.end)))
            .collect()
    }

    fn wait(&mut self, who: Who) {
        if self.processes[&who].watched.is_empty() {
            return self.watch(who);
        }
        let ready = self.expects(who);
        self.push(who, Act::Wait { ready });
    }

    fn watch(&mut self, who: Who) {
        let Some((slot, conn)) = self.slot_of(who) else {
            return;
        };
        let how = self.one(&[Watch::Level, Watch::Level, Watch::Edge, Watch::Once]);
        let p = self.processes.get_mut(&who).unwrap();
        // One registration a stream and process: two of them share their wake-ups in the kernel.
        let same: Vec<Slot> = p
            .slots
            .iter()
            .filter(|(_, c)| **c == conn)
            .map(|(s, _)| *s)
            .collect();
        if p.watched.iter().any(|(s, _)| same.contains(s)) {
            if let Some(i) = p.watched.iter().position(|(s, _)| *s == slot)
                && self.r.below(2) == 0
            {
                p.watched.remove(i);
                self.push(who, Act::Unwatch { slot });
            }
            return;
        }
        p.watched.push((slot, how));
        self.push(who, Act::Watch { slot, how });
    }

    fn dup(&mut self, who: Who) {
        let Some((slot, conn)) = self.slot_of(who) else {
            return;
        };
        if self.processes[&who].slots.len() > 6 {
            return;
        }
        if self.r.below(6) == 0
            && let Some((new, over)) = self.slot_of(who)
            && new != slot
            && !self.is_watched(who, new)
        {
            self.push(who, Act::Onto { slot, new });
            self.let_go(who, new, over);
            self.processes
                .get_mut(&who)
                .unwrap()
                .slots
                .insert(new, conn);
            return;
        }
        let new = self.new_slot(who.end);
        let by = [
            DupBy::Dup,
            DupBy::Dup2,
            DupBy::Dup3,
            DupBy::Fcntl,
            DupBy::FcntlCloexec,
        ];
        let by = self.one(&by);
        self.push(who, Act::Dup { slot, new, by });
        self.processes
            .get_mut(&who)
            .unwrap()
            .slots
            .insert(new, conn);
    }

    fn is_watched(&self, who: Who, slot: Slot) -> bool {
        self.processes[&who].watched.iter().any(|(s, _)| *s == slot)
    }

    /// The model's side of a descriptor that goes.
    fn let_go(&mut self, who: Who, slot: Slot, conn: usize) {
        let p = self.processes.get_mut(&who).unwrap();
        p.slots.remove(&slot);
        p.watched.retain(|(s, _)| *s != slot);
        self.settle_holders(who.end, conn);
    }

    fn settle_holders(&mut self, end: usize, conn: usize) {
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

    fn close(&mut self, who: Who) {
        let Some((slot, conn)) = self.slot_of(who) else {
            return;
        };
        // The last descriptor of a stream goes rarely: little can follow.
        let p = &self.processes[&who];
        let last = p.slots.values().filter(|c| **c == conn).count() == 1;
        if last && who.child == 0 && self.r.below(4) > 0 {
            return;
        }
        if self.is_watched(who, slot) {
            self.push(who, Act::Unwatch { slot });
        }
        if self.r.below(12) == 0 {
            self.push(who, Act::Linger { slot });
            self.conns[conn].linger[who.end] = true;
        }
        self.push(who, Act::Close { slot });
        self.let_go(who, slot, conn);
    }

    fn shutdown(&mut self, who: Who) {
        let Some((slot, conn)) = self.slot_of(who) else {
            return;
        };
        if self.r.below(2) == 0 {
            return;
        }
        let how = self.one(&[libc::SHUT_WR, libc::SHUT_WR, libc::SHUT_RD, libc::SHUT_RDWR]);
        self.push(who, Act::Shutdown { slot, how });
        let c = &mut self.conns[conn];
        if how != libc::SHUT_RD {
            c.ways[who.end].fin = true;
        }
        if how != libc::SHUT_WR {
            c.ways[1 - who.end].shut_rd = true;
        }
    }

    fn settle_option(&mut self, who: Who) {
        let Some((slot, _)) = self.slot_of(who) else {
            return;
        };
        let on = self.r.below(2) == 0;
        let by_ioctl = self.r.below(2) == 0;
        let act = match self.r.below(3) {
            0 => Act::Nodelay { slot, on: true },
            1 => Act::Error { slot },
            _ => Act::Nonblock { slot, on, by_ioctl },
        };
        self.push(who, act);
    }

    fn process(&mut self, who: Who) {
        if who.child == 0 {
            let alive: Vec<usize> = self
                .processes
                .keys()
                .filter(|w| w.end == who.end && w.child > 0)
                .map(|w| w.child)
                .collect();
            match self.r.below(4) {
                0 => self.push(who, Act::System),
                1 if !alive.is_empty() => {
                    let child = self.one(&alive);
                    self.push(who, Act::Kill { child });
                    self.gone(Who {
                        end: who.end,
                        child,
                    });
                }
                _ if alive.len() < CHILDREN => {
                    let child = self.next_child[who.end];
                    self.next_child[who.end] += 1;
                    self.push(who, Act::Fork { child });
                    let slots = self.processes[&who].slots.clone();
                    let p = Process {
                        slots,
                        ..Process::default()
                    };
                    self.processes.insert(
                        Who {
                            end: who.end,
                            child,
                        },
                        p,
                    );
                }
                _ => {}
            }
        } else if self.r.below(3) == 0 {
            self.push(who, Act::Exit);
            self.gone(who);
        } else if self.attentive || self.expects(who).iter().all(|(_, e)| e.queued == 0) {
            // What a deaf peer was not there to take back is lost to a new program.
            let with_library = self.r.below(2) == 0;
            self.push(who, Act::Exec { with_library });
            self.processes.get_mut(&who).unwrap().watched.clear();
        }
    }

    fn gone(&mut self, who: Who) {
        self.processes.remove(&who);
        for conn in 0..self.conns.len() {
            self.settle_holders(who.end, conn);
        }
    }

    fn pass(&mut self, who: Who) {
        let Some((slot, conn)) = self.slot_of(who) else {
            return;
        };
        let others: Vec<Who> = self
            .processes
            .keys()
            .copied()
            .filter(|w| w.end == who.end && (w.child == 0) != (who.child == 0))
            .collect();
        if others.is_empty() {
            return;
        }
        let to = self.one(&others);
        let new = self.new_slot(who.end);
        self.push(who, Act::Pass { slot, new, to });
        self.processes.get_mut(&to).unwrap().slots.insert(new, conn);
    }

    /// A process of the other end that holds the connection, and its descriptor.
    fn across(&mut self, who: Who, conn: usize) -> Option<(Who, Slot)> {
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

    fn meet(&mut self, who: Who) {
        let Some((slot, conn)) = self.slot_of(who) else {
            return;
        };
        if !self.conns[conn].whole() || self.conns[conn].queued(who.end) > 0 {
            return;
        }
        let Some((giver, from)) = self.across(who, conn) else {
            return;
        };
        let by = self.one(&[
            Sleep::Recv,
            Sleep::WaitAll,
            Sleep::Poll,
            Sleep::Select,
            Sleep::Epoll,
        ]);
        let size = if by == Sleep::WaitAll {
            1 + self.r.below(MOST as usize)
        } else {
            1 + self.r.below(900)
        };
        let delay_us = self.one(&[0, 20, 100, 1000, 3000]);
        let pos = self.conns[conn].ways[giver.end].sent;
        self.push(
            who,
            Act::Meet {
                slot,
                by,
                giver,
                from,
                conn,
                pos,
                size,
                delay_us,
            },
        );
        let way = &mut self.conns[conn].ways[giver.end];
        way.sent += size as u64;
        way.read += size as u64;
    }

    fn bulk(&mut self, who: Who) {
        let Some((slot, conn)) = self.slot_of(who) else {
            return;
        };
        if !self.conns[conn].whole() {
            return;
        }
        let Some((other, to)) = self.across(who, conn) else {
            return;
        };
        let there = self.flow(conn, who.end);
        let back = (self.r.below(2) == 0).then(|| self.flow(conn, other.end));
        self.push(
            who,
            Act::Bulk {
                slot,
                other,
                to,
                conn,
                there,
                back,
            },
        );
    }

    /// Everything that lies in the direction is read, and this much more.
    fn flow(&mut self, conn: usize, end: usize) -> Flow {
        let list = [
            Trouble::None,
            Trouble::None,
            Trouble::DupClose,
            Trouble::ForkExit,
            Trouble::ForkHold,
            Trouble::Raw,
            Trouble::File,
            Trouble::Stdio,
            Trouble::System,
            Trouble::Nonblock,
        ];
        let size = [3000, 60_000, 300_000, 2_500_000][self.r.below(4)];
        let size = 1 + self.r.below(size);
        let (giver, taker) = (self.one(&list), self.one(&list));
        let way = &mut self.conns[conn].ways[end];
        let pos = way.sent;
        let before = (way.sent - way.read) as usize;
        way.sent += size as u64;
        way.read = way.sent;
        Flow {
            pos,
            before,
            size,
            giver,
            taker,
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
