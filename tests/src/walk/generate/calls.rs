//! Steps in which one process calls: bytes given and taken, readiness, shutdown, options.

use super::model::{MOST, Model};
use crate::walk::plan::{Act, Give, Slot, Take, Watch, Who};

impl Model {
    pub(super) fn give(&mut self, who: Who) {
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

    pub(super) fn take(&mut self, who: Who) {
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

    pub(super) fn look(&mut self, who: Who) {
        let slots = self.expects(who);
        if !slots.is_empty() {
            self.push(who, Act::Look { slots });
        }
    }

    pub(super) fn wait(&mut self, who: Who) {
        if self.processes[&who].watched.is_empty() {
            return self.watch(who);
        }
        let ready = self.expects(who);
        self.push(who, Act::Wait { ready });
    }

    pub(super) fn watch(&mut self, who: Who) {
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

    pub(super) fn shutdown(&mut self, who: Who) {
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

    pub(super) fn settle_option(&mut self, who: Who) {
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
}
