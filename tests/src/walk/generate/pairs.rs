//! Steps of two processes at once: one sleeps until the other acts, or much moves both ways.

use super::model::{MOST, Model};
use crate::walk::plan::{Act, Flow, Sleep, Trouble, Who};

impl Model {
    pub(super) fn meet(&mut self, who: Who) {
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

    pub(super) fn bulk(&mut self, who: Who) {
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
}
