//! Arenas: what a server refuses to map, and how the two sides agree on a slot, races included. Also
//! [`Joined`], an arena mapped by both sides in one process, for the tests of what stands on it.

use super::arena::{Arena, Tuple};
use super::layout::{self, MAGIC, SEGMENTS, SLOTS, State};
use super::segment::Segment;
use crate::sys::Errno;
use crate::sys::fd::Fd;
use crate::sys::mem::{Mapping, memory_file};
use crate::sys::net::Endpoint;
use proptest::prelude::*;
use std::cell::RefCell;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

/// A client's arena and the server's view of it.
#[derive(Debug)]
pub(crate) struct Joined {
    client: RefCell<Arena>,
    server: RefCell<Arena>,
}

impl Joined {
    pub(crate) fn new(ring: usize) -> Self {
        let client = Arena::create(ring).unwrap();
        let server = Arena::open(dup(client.file())).unwrap();
        Self {
            client: RefCell::new(client),
            server: RefCell::new(server),
        }
    }

    /// Announces and claims a slot: the client's side and the server's. They live as long as `self`.
    pub(crate) fn sides(&self, slot: u32) -> (Segment, Segment) {
        let (mut client, mut server) = (self.client.borrow_mut(), self.server.borrow_mut());
        let here = client.segment(slot).unwrap();
        here.reset();
        let word = client.announce(slot, &tuple(1));
        assert_eq!(server.match_slot(slot, &tuple(1)), Some(word));
        let there = server.segment(slot).unwrap();
        assert!(server.claim(slot, word) && client.is_claimed(slot, word));
        (here, there)
    }

    /// Whether a slot's segment holds nothing but zeros.
    pub(crate) fn is_untouched(&self, slot: u32) -> bool {
        let client = self.client.borrow();
        let stride = layout::stride(4096);
        let all =
            Mapping::shared(client.file(), SEGMENTS + slot as usize * stride, stride).unwrap();
        let word = |i| {
            // SAFETY: the index stays within the mapping; nobody else uses this segment.
            unsafe { all.base().cast::<u64>().add(i).read() }
        };
        (0..stride / 8).all(|i| word(i) == 0)
    }
}

fn dup(file: &Fd) -> Fd {
    // SAFETY: no pointers.
    Fd::own(unsafe { libc::dup(file.raw()) })
}

fn tuple(n: u16) -> Tuple {
    let end = |port| Endpoint {
        ip: std::net::Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets(),
        port,
    };
    (end(n), end(80))
}

/// A memory file with these first two words (magic and ring size).
fn forged(len: usize, magic: u64, ring: u64) -> Fd {
    let file = memory_file(c"forged", len).unwrap();
    let page = Mapping::shared(&file, 0, 4096).unwrap();
    let words = page.base().cast::<AtomicU64>();
    // SAFETY: the first word of a mapped page.
    unsafe { words.as_ref() }.store(magic, Ordering::Relaxed);
    // SAFETY: the second.
    unsafe { words.add(1).as_ref() }.store(ring, Ordering::Relaxed);
    file
}

/// An empty memory file of an arena's size with these seals.
fn sealed(seals: i32) -> Fd {
    // SAFETY: a C string.
    let file = unsafe { libc::memfd_create(c"sealed".as_ptr(), libc::MFD_ALLOW_SEALING) };
    let len = i64::try_from(layout::arena(4096)).unwrap();
    // SAFETY: no pointers.
    let sized = unsafe { libc::ftruncate(file, len) };
    // SAFETY: no pointers.
    let sealed = unsafe { libc::fcntl(file, libc::F_ADD_SEALS, seals) };
    assert_eq!((sized, sealed), (0, 0));
    Fd::own(file)
}

fn refused(file: Fd) -> Errno {
    Arena::open(file).map(drop).unwrap_err()
}

#[test]
fn an_honest_arena_is_opened() {
    drop(Joined::new(4096));
    assert!(Arena::open(forged(layout::arena(8192), MAGIC, 8192)).is_ok());
}

#[test]
fn a_file_that_can_shrink_is_refused() {
    assert_eq!(refused(sealed(0)), Errno::INVAL);
    assert_eq!(refused(sealed(libc::F_SEAL_GROW)), Errno::INVAL);
    assert!(
        Arena::open(sealed(libc::F_SEAL_SHRINK)).is_err(),
        "no magic"
    );
}

#[test]
fn what_is_no_memory_file_is_refused() {
    let mut pipe = [0; 2];
    // SAFETY: room for two descriptors.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    for fd in pipe {
        assert_eq!(refused(Fd::own(fd)), Errno::INVAL);
    }
    // SAFETY: a C string.
    let null = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) };
    assert_eq!(refused(Fd::own(null)), Errno::INVAL);
    assert_eq!(refused(Fd::own(-1)), Errno::INVAL);
}

#[test]
fn a_file_sealed_against_writing_is_refused() {
    for seal in [libc::F_SEAL_WRITE, libc::F_SEAL_FUTURE_WRITE] {
        assert!(Arena::open(sealed(libc::F_SEAL_SHRINK | seal)).is_err());
    }
}

#[test]
fn wrong_sizes_and_words_are_refused() {
    let whole = layout::arena(4096);
    assert_eq!(refused(forged(4096, MAGIC, 4096)), Errno::INVAL);
    assert_eq!(refused(forged(SEGMENTS, MAGIC, 4096)), Errno::INVAL);
    assert_eq!(refused(forged(whole - 1, MAGIC, 4096)), Errno::INVAL);
    assert_eq!(refused(forged(whole, MAGIC + 1, 4096)), Errno::INVAL);
    for ring in [
        0,
        1,
        2048,
        4095,
        4097,
        8192,
        1 << 30,
        1 << 31,
        1 << 63,
        u64::MAX,
    ] {
        assert_eq!(
            refused(forged(whole, MAGIC, ring)),
            Errno::INVAL,
            "ring {ring}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn no_header_is_believed(len in 4096usize..4_000_000, magic in any::<bool>(), ring in any::<u64>(), shift in 0u32..64) {
        let ring = if magic { 1 << shift } else { ring };
        if Arena::open(forged(len, MAGIC, ring)).is_ok() {
            prop_assert!(len >= layout::arena(usize::try_from(ring).unwrap()));
        }
    }
}

#[test]
fn slots_beyond_the_table_are_nobodys() {
    let j = Joined::new(4096);
    let (mut client, mut server) = (j.client.borrow_mut(), j.server.borrow_mut());
    assert_eq!(client.announce(SLOTS, &tuple(1)), 0);
    assert!(!server.claim(SLOTS, 1) && !client.withdraw(SLOTS, 1) && !client.is_claimed(SLOTS, 1));
    assert!(!server.is_announced(SLOTS) && server.match_slot(SLOTS, &tuple(1)).is_none());
    assert!(client.segment(SLOTS).is_err() && server.segment(SLOTS).is_err());
    server.release(SLOTS);
}

#[test]
fn an_offer_is_taken_once_and_only_while_it_stands() {
    let j = Joined::new(4096);
    let (client, server) = (j.client.borrow(), j.server.borrow());
    let first = client.announce(3, &tuple(1));
    assert_eq!(server.announced_since(0), (vec![3], 1));
    assert_eq!(server.match_slot(3, &tuple(2)), None, "another connection");
    assert_eq!(server.match_slot(3, &tuple(1)), Some(first));
    assert!(client.withdraw(3, first) && !client.withdraw(3, first));
    assert!(
        !server.claim(3, first),
        "a withdrawn offer cannot be claimed"
    );
    assert_eq!(server.match_slot(3, &tuple(1)), None);
    let second = client.announce(3, &tuple(2));
    assert_ne!(first, second);
    assert!(!server.claim(3, first), "nor the one that came after it");
    assert!(server.claim(3, second) && !server.claim(3, second));
    assert!(client.is_claimed(3, second) && !client.is_claimed(3, first));
    assert!(!client.withdraw(3, second) && !server.is_announced(3));
    assert!(!client.is_released(3));
    server.release(3);
    assert!(client.is_released(3));
}

#[test]
fn generations_wrap() {
    let j = Joined::new(4096);
    let (client, server) = (j.client.borrow(), j.server.borrow());
    let state = client.state_word(0).unwrap();
    state.store(
        State::Free.word(layout::generation(u32::MAX)),
        Ordering::Relaxed,
    );
    let word = client.announce(0, &tuple(1));
    assert_eq!(layout::generation(word), 0);
    assert!(layout::is(word, State::Announced));
    assert!(server.claim(0, word) && client.is_claimed(0, word));
}

#[test]
fn a_reader_far_behind_looks_at_every_slot() {
    let j = Joined::new(4096);
    let (client, server) = (j.client.borrow(), j.server.borrow());
    for i in 0..=layout::LOG as u32 {
        client.announce(i % SLOTS, &tuple(1));
    }
    let (all, now) = server.announced_since(0);
    assert_eq!((all.len(), now), (SLOTS as usize, layout::LOG as u64 + 1));
    assert_eq!(server.announced_since(now - 2).0.len(), 2);
    assert!(server.announced_since(u64::MAX).0.len() <= SLOTS as usize);
}

/// Each offer is either withdrawn or claimed, and what is claimed is the connection that was matched.
#[test]
fn a_withdrawal_and_a_claim_never_both_succeed() {
    const ROUNDS: u16 = 3000;
    let client = Arena::create(4096).unwrap();
    let server = Arena::open(dup(client.file())).unwrap();
    let gate = Barrier::new(2);
    std::thread::scope(|scope| {
        let claims = scope.spawn(|| {
            (0..ROUNDS)
                .map(|n| {
                    gate.wait();
                    // The round before may still be in the slot: its tuple is not this one's.
                    let found = (0..50).find_map(|_| server.match_slot(0, &tuple(n)));
                    let claimed = found.is_some_and(|word| server.claim(0, word));
                    gate.wait();
                    claimed
                })
                .collect::<Vec<_>>()
        });
        let withdrawals: Vec<_> = (0..ROUNDS)
            .map(|n| {
                gate.wait();
                let word = client.announce(0, &tuple(n));
                (0..n % 64).for_each(|_| std::hint::spin_loop());
                let withdrawn = client.withdraw(0, word);
                assert!(withdrawn != client.is_claimed(0, word));
                gate.wait();
                withdrawn
            })
            .collect();
        for (withdrawn, claimed) in withdrawals.iter().zip(claims.join().unwrap()) {
            assert!(*withdrawn != claimed, "both or neither");
        }
    });
}
