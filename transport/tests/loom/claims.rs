//! Who copies which part of an advertised buffer: both sides come to the same answer how much has arrived, all
//! of that is what the sender sent (although it spoils its buffer as soon as it is told), and nothing is
//! written to the reader's buffer once the reader has it back.

use super::check;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};
use loom::thread;
use transport::direct::claims::{Chunk, Claim, Claims};

/// Chunks of the buffer; each is one unit.
const TOTAL: u64 = 2;
const SENT: u8 = 1;
const SPOILT: u8 = 9;
/// What the reader finds in its buffer after the call, and writes over.
const MINE: u8 = 7;

#[derive(Default)]
struct Model {
    claim: [AtomicU64; 2],
    source: AtomicU64,
    placed: AtomicU8,
    sink: AtomicU64,
    posted: AtomicU64,
    /// The source's process is gone.
    dead: AtomicU8,
    from: [AtomicU8; TOTAL as usize],
    to: [AtomicU8; TOTAL as usize],
}

impl Model {
    fn new() -> Arc<Self> {
        let m = Self::default();
        m.posted.store(1, Ordering::Relaxed);
        for byte in &m.from {
            byte.store(SENT, Ordering::Relaxed);
        }
        m.claims(1).open();
        Arc::new(m)
    }

    fn claims(&self, number: u32) -> Claims<'_> {
        Claims {
            number,
            claim: &self.claim[number as usize % 2],
            source: &self.source,
            placed: &self.placed,
            sink: &self.sink,
        }
    }

    fn copy(&self, c: Chunk) {
        for i in c.offset..c.offset + c.len {
            let byte = self.from[i as usize].load(Ordering::Relaxed);
            self.to[i as usize].store(byte, Ordering::Relaxed);
        }
    }

    /// The source pushes, as long as it finds something. `dies`: in which chunk, and whether after the copy's
    /// end, which the kernel marks.
    fn push(&self, dies: Option<(u64, bool)>) -> bool {
        let claims = self.claims(1);
        let posted = || self.posted.load(Ordering::Acquire) == 1;
        while let Claim::Chunk(c) = claims.claim_to_push(TOTAL, |_| 1, posted) {
            let mark = claims.next_mark();
            match dies {
                Some((at, false)) if at == c.offset => return false,
                _ => {}
            }
            self.copy(c);
            self.placed.store(mark, Ordering::Release);
            match dies {
                Some((at, true)) if at == c.offset => return false,
                _ => claims.pushed(c, true),
            }
        }
        true
    }

    /// The source ends the advert: it does not wait for a sink in the middle of a chunk.
    fn conclude(&self) -> u64 {
        let claims = self.claims(1);
        claims.shut();
        claims.revoke();
        let arrived = claims.arrived();
        claims.settle(arrived);
        for byte in &self.from {
            byte.store(SPOILT, Ordering::Relaxed);
        }
        arrived
    }

    /// The sink pulls, takes its buffer back and counts.
    fn receive(&self) -> u64 {
        let claims = self.claims(1);
        self.pull();
        self.take_back(&claims)
    }

    fn pull(&self) {
        let claims = self.claims(1);
        while let Claim::Chunk(c) = claims.claim_to_pull(TOTAL, |_| 1) {
            self.copy(c);
            if !claims.pulled(c, true) {
                break;
            }
        }
    }

    fn take_back(&self, claims: &Claims<'_>) -> u64 {
        self.posted.store(0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        while claims.source_is_busy() {
            if self.dead.load(Ordering::Acquire) != 0 && claims.source_is_busy() {
                claims.bury_source();
                break;
            }
            thread::yield_now();
        }
        let arrived = claims.arrived();
        for i in 0..TOTAL {
            let byte = &self.to[i as usize];
            if i < arrived {
                assert_eq!(byte.load(Ordering::Relaxed), SENT, "byte {i} of {arrived}");
            }
            byte.store(MINE, Ordering::Relaxed);
        }
        arrived
    }

    fn is_untouched(&self) -> bool {
        self.to
            .iter()
            .all(|byte| byte.load(Ordering::Relaxed) == MINE)
    }
}

#[test]
fn both_count_alike_and_nothing_spoilt_arrives() {
    check(3, || {
        let m = Model::new();
        let source = {
            let m = m.clone();
            thread::spawn(move || {
                m.push(None);
                m.conclude()
            })
        };
        let got = m.receive();
        let sent = source.join().unwrap();
        assert_eq!(got, sent);
        assert_eq!(m.claims(1).arrived(), sent);
        assert!(m.is_untouched());
    });
}

/// A reader that gives up: its buffer is its own as soon as it has it back, whatever the source had in mind.
#[test]
fn a_buffer_that_was_taken_back_is_not_written_to() {
    check(3, || {
        let m = Model::new();
        let source = {
            let m = m.clone();
            thread::spawn(move || {
                m.push(None);
            })
        };
        m.take_back(&m.claims(1));
        source.join().unwrap();
        assert!(m.is_untouched());
    });
}

#[test]
fn a_source_that_only_lends_revokes_in_time() {
    check(3, || {
        let m = Model::new();
        let source = {
            let m = m.clone();
            thread::spawn(move || m.conclude())
        };
        m.receive();
        source.join().unwrap();
        assert!(m.is_untouched());
    });
}

#[test]
fn a_source_that_dies_keeps_nobody_and_spoils_nothing() {
    for dies in [(0, false), (0, true), (1, false), (1, true)] {
        check(2, move || {
            let m = Model::new();
            let source = {
                let m = m.clone();
                thread::spawn(move || {
                    m.push(Some(dies));
                    m.dead.store(1, Ordering::Release);
                })
            };
            m.receive();
            source.join().unwrap();
            assert!(m.is_untouched());
        });
    }
}

/// A source that could not copy its first chunk, and looks for more later: what did not arrive is not counted.
#[test]
fn what_could_not_be_copied_is_not_counted() {
    check(3, || {
        let m = Model::new();
        let source = {
            let m = m.clone();
            thread::spawn(move || {
                let claims = m.claims(1);
                let posted = || m.posted.load(Ordering::Acquire) == 1;
                if let Claim::Chunk(c) = claims.claim_to_push(TOTAL, |_| 1, posted) {
                    claims.pushed(c, false);
                    assert_eq!(claims.claim_to_push(TOTAL, |_| 1, posted), Claim::Closed);
                }
                m.conclude()
            })
        };
        let got = m.receive();
        let sent = source.join().unwrap();
        assert_eq!(got, sent);
        assert!(m.is_untouched());
    });
}

#[test]
fn the_words_of_the_next_advert_change_no_answer() {
    check(3, || {
        let m = Model::new();
        let source = {
            let m = m.clone();
            thread::spawn(move || {
                m.push(None);
                let sent = m.conclude();
                m.claims(2).open();
                sent
            })
        };
        let claims = m.claims(1);
        m.pull();
        m.posted.store(0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        while claims.source_is_busy() {
            thread::yield_now();
        }
        // (as `sink::upcoming` asks: it is over, and the source at nothing)
        let over = claims.claimed().is_some_and(|(_, closed)| closed);
        let counted = over.then(|| claims.arrived());
        let sent = source.join().unwrap();
        if let Some(n) = counted {
            assert_eq!(n, sent);
        }
    });
}
