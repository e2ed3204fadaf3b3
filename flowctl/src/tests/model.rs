//! Two ends of a connection as plain memory: the words, the regions, and what `transport::sdp` does
//! with a scheme, step by step. Every step checks what must hold at every step.

use super::std::cell::{Cell, RefCell};
use super::std::collections::VecDeque;
use super::std::rc::Rc;
use super::std::vec;
use super::std::vec::Vec;
use crate::any::{Receiver, Sender};
use crate::credit;
use crate::{
    Back, Granted, Inbox, Note, Notes, Outbox, Receiver as _, Scheme, Sender as _, Terms,
    Untrusted, Word,
};

/// What one side writes.
#[derive(Clone, Default)]
pub(super) struct Lines {
    words: [Cell<u64>; 8],
    backs: [Cell<u64>; 5],
    notes: [Cell<u64>; 3],
    region: RefCell<Vec<u8>>,
}

/// Without the bytes: they follow from the rest, and there are many.
impl super::std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut super::std::fmt::Formatter<'_>) -> super::std::fmt::Result {
        write!(f, "{:?}{:?}{:?}", self.words, self.backs, self.notes)
    }
}

/// One side's view of both.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    pub(super) mine: Rc<Lines>,
    pub(super) peer: Rc<Lines>,
}

impl Notes for Wire {
    fn note(&self, note: Note, value: u64) {
        self.mine.notes[note as usize].set(value);
    }
    fn noted(&self, note: Note) -> u64 {
        self.mine.notes[note as usize].get()
    }
}

fn load(region: &RefCell<Vec<u8>>, at: usize) -> u32 {
    let region = region.borrow();
    u32::from_le_bytes([region[at], region[at + 1], region[at + 2], region[at + 3]])
}

impl Outbox for Wire {
    fn tell(&self, word: Word, value: u64) {
        self.mine.words[word as usize].set(value);
    }
    fn handed_back(&self, back: Back) -> Untrusted<u64> {
        Untrusted::new(match back {
            Back::Acknowledged => self.peer.words[Word::Acknowledged as usize].get(),
            back => self.peer.backs[back as usize].get(),
        })
    }
    fn write_header(&self, offset: usize, len: u32) {
        self.mine.region.borrow_mut()[offset..offset + 4].copy_from_slice(&len.to_le_bytes());
    }
    fn read_header(&self, offset: usize) -> Untrusted<u32> {
        Untrusted::new(load(&self.mine.region, offset))
    }
}

impl Inbox for Wire {
    fn told(&self, word: Word) -> Untrusted<u64> {
        Untrusted::new(self.peer.words[word as usize].get())
    }
    fn hand_back(&self, back: Back, value: u64) {
        self.mine.backs[back as usize].set(value);
    }
    fn header(&self, offset: usize) -> Untrusted<u32> {
        Untrusted::new(load(&self.peer.region, offset))
    }
}

/// One side: both its halves.
#[derive(Clone, Debug)]
pub(super) struct Side {
    pub(super) tx: Sender,
    pub(super) rx: Receiver,
    pub(super) wire: Wire,
    acks: bool,
    /// Something is withheld.
    withheld: bool,
    /// It has taken what it was not told of, and has not looked since that was told.
    pulled: bool,
    /// Bytes on their way to the other side, in order.
    pub(super) flying: VecDeque<u8>,
    next: u8,
}

/// Two sides.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) sides: [Side; 2],
    regions: [usize; 2],
    terms: [Terms; 2],
}

impl Pair {
    /// A connection whose sides send by these terms, over regions of this size.
    pub(super) fn new(region: usize, terms: [Terms; 2]) -> Self {
        let lines: [Rc<Lines>; 2] = [Rc::default(), Rc::default()];
        for l in &lines {
            *l.region.borrow_mut() = vec![0; region];
        }
        let side = |i: usize| Side {
            tx: Sender::new(region, &terms[i]),
            rx: Receiver::new(region, &terms[1 - i]),
            wire: Wire {
                mine: lines[i].clone(),
                peer: lines[1 - i].clone(),
            },
            acks: terms[1 - i].scheme == Scheme::Credit,
            withheld: false,
            pulled: false,
            flying: VecDeque::new(),
            next: 0,
        };
        Self {
            sides: [side(0), side(1)],
            regions: [region; 2],
            terms,
        }
    }

    /// A copy that shares nothing, for searches.
    pub(super) fn fork(&self) -> Self {
        let mut copy = self.clone();
        let lines = [0, 1].map(|i| Rc::new(Lines::clone(&self.sides[i].wire.mine)));
        for i in [0, 1] {
            copy.sides[i].wire = Wire {
                mine: lines[i].clone(),
                peer: lines[1 - i].clone(),
            };
        }
        copy
    }

    /// One call of send: as much as goes. Returns how much.
    pub(super) fn send(&mut self, who: usize, want: usize) -> usize {
        self.send_more(who, want, false)
    }

    /// [`Self::send`]; with `more` its end is withheld, where that can be, as long as all of it had room.
    pub(super) fn send_more(&mut self, who: usize, want: usize, more: bool) -> usize {
        let (region, terms) = (self.regions[who], self.terms[who]);
        let side = &mut self.sides[who];
        side.tx.granted(&side.wire).expect("an honest receiver");
        side.tx.post(false, &side.wire);
        let mut done = 0;
        while done < want {
            let before = side.tx.room();
            let piece = side.tx.place(want - done);
            assert!(piece.len <= want - done && piece.offset + piece.len <= region);
            if piece.len == 0 {
                break;
            }
            assert!(piece.len <= before, "put without room: {piece:?} {before}");
            if terms.scheme == Scheme::Credit {
                assert!(piece.len <= terms.slot as usize);
            }
            for i in piece.offset..piece.offset + piece.len {
                side.wire.mine.region.borrow_mut()[i] = side.next;
                side.flying.push_back(side.next);
                side.next = side.next.wrapping_mul(31).wrapping_add(7);
            }
            side.tx.commit(piece.len, &side.wire);
            done += piece.len;
        }
        if more && done > 0 && done == want && side.tx.withhold(&side.wire) {
            side.withheld = true;
        } else if done > 0 || side.withheld {
            if side.acks {
                credit::acknowledge(&side.wire);
            }
            side.tx.publish(&side.wire);
            side.withheld = false;
        }
        assert!(side.flying.len() as u64 <= side.tx.limit(), "overrun");
        self.check();
        done
    }

    /// One call of recv: as much as is there. Returns how much.
    pub(super) fn recv(&mut self, who: usize, want: usize) -> usize {
        let [a, b] = &mut self.sides;
        let (side, peer) = if who == 0 { (a, b) } else { (b, a) };
        side.rx.announced(&side.wire).expect("an honest sender");
        let told = side.wire.told(Word::Produced).as_hearsay();
        side.pulled &= told < side.rx.consumed() + side.rx.available() as u64;
        let mut done = 0;
        while done < want {
            let piece = side.rx.next(&side.wire).expect("an honest sender");
            let n = piece.len.min(want - done);
            if n == 0 {
                break;
            }
            for i in piece.offset..piece.offset + n {
                let byte = peer.wire.mine.region.borrow()[i];
                assert_eq!(Some(byte), peer.flying.pop_front(), "bytes out of order");
            }
            side.rx.consume(n);
            done += n;
            side.rx.grant(false, &side.wire);
        }
        if done == 0 {
            side.rx.grant(true, &side.wire);
        }
        self.check();
        done
    }

    /// Whether an update is due.
    pub(super) fn is_due(&self, who: usize) -> bool {
        let side = &self.sides[who];
        side.rx.clone().grant(false, &side.wire) == Granted::UpdateDue
    }

    /// Sends an update, if the rules let it.
    pub(super) fn update(&mut self, who: usize) -> bool {
        let side = &mut self.sides[who];
        side.tx.granted(&side.wire).expect("an honest receiver");
        let sent = side.tx.control();
        side.tx.tell_control(&side.wire);
        if sent {
            credit::acknowledge(&side.wire);
        }
        sent
    }

    /// The program is inside the library for long: what it has parked goes.
    pub(super) fn wait(&mut self, who: usize) -> bool {
        let side = &mut self.sides[who];
        side.tx.granted(&side.wire).expect("an honest receiver");
        if core::mem::take(&mut side.withheld) {
            side.tx.show(true);
            side.tx.publish(&side.wire);
            return true;
        }
        side.tx.post(true, &side.wire)
    }

    /// The receiver has waited for long: it takes what is withheld.
    pub(super) fn pull(&mut self, who: usize) {
        let side = &mut self.sides[who];
        side.pulled = true;
        side.rx.pull(&side.wire);
        side.rx.announced(&side.wire).expect("an honest sender");
        side.rx.grant(false, &side.wire);
    }

    /// The sender has gone: what it had taken is all there.
    pub(super) fn lose(&mut self, who: usize) {
        self.sides[1 - who].rx.release();
        self.recv(1 - who, usize::MAX);
        let left = &self.sides[who].flying;
        assert!(left.is_empty(), "lost with the sender: {left:?}");
    }

    /// The rule of the virtual window: room behind every receive that is out. (What was pulled before it was told of counts as
    /// bytes, and not yet as segments.)
    fn check(&self) {
        for side in &self.sides {
            if let Receiver::Nic(rx) = &side.rx
                && !side.pulled
            {
                assert!(rx.free() >= rx.window() * rx.outstanding(), "{rx:?}");
            }
        }
    }

    /// Lets both sides do all they can until nothing moves: whatever happened before, everything
    /// arrives, and the whole buffer is free again.
    pub(super) fn finish(&mut self) {
        for turn in 0..10_000 {
            assert!(turn < 9_999, "updates without end: {self:?}");
            let mut moved = false;
            for who in [0, 1] {
                moved |= self.wait(who);
                moved |= self.recv(who, usize::MAX) > 0;
                moved |= self.is_due(who) && self.update(who);
            }
            if !moved {
                break;
            }
        }
        for who in [0, 1] {
            self.recv(who, 1); // nothing: a reader that waits hands back all
            assert!(!self.is_due(who), "an update that cannot go: {self:?}");
            let side = &mut self.sides[who];
            assert!(side.flying.is_empty(), "bytes left: {side:?}");
        }
        for side in &mut self.sides {
            side.tx.granted(&side.wire).expect("an honest receiver");
            assert!(side.tx.room() > 0);
            // (Of credits, one for data is promised: those that updates have used are handed back only once
            // a side is out of them, so with few slots a third may be more than that.)
            let promised = match &side.tx {
                Sender::Credit(_) => 1,
                _ => side.tx.limit().div_ceil(3),
            };
            assert!(side.tx.room() as u64 >= promised, "{side:?}");
        }
    }
}
