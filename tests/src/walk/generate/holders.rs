//! Steps that change who holds a stream: dup, close, fork, exec, exit and passing descriptors.

use super::model::{CHILDREN, Model, Process};
use crate::walk::plan::{Act, DupBy, Who};

impl Model {
    pub(super) fn dup(&mut self, who: Who) {
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

    pub(super) fn close(&mut self, who: Who) {
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

    pub(super) fn process(&mut self, who: Who) {
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

    pub(super) fn pass(&mut self, who: Who) {
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
}
