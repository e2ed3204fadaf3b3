//! The stand-in, both ends in one process.

use crate::verbs::standin::StandIn;
use crate::verbs::{Access, Adapter, Address, DEPTH, Done, Operation, Work};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// An end and its memory, whose addresses are used while others write there.
struct End {
    adapter: StandIn,
    at: *mut u8,
}

const LEN: usize = 4096;

fn end() -> End {
    let at: &'static mut [u64] = vec![0; LEN / 8].leak();
    let at = NonNull::from(at).cast::<u8>();
    let adapter = StandIn::new(at, LEN, None).unwrap();
    End {
        adapter,
        at: at.as_ptr(),
    }
}

/// One that keeps registrations.
fn keeping_end() -> End {
    let mut end = end();
    end.adapter.keeps();
    end
}

fn pair() -> (End, End) {
    let (a, b) = (end(), end());
    let exchanged = |x: &End| Address::from_bytes(&x.adapter.address().to_bytes()).unwrap();
    a.adapter.connect(&exchanged(&b)).unwrap();
    b.adapter.connect(&exchanged(&a)).unwrap();
    (a, b)
}

impl End {
    fn fill(&self, from: usize, octets: &[u8]) {
        // SAFETY: within the memory, which nobody else uses meanwhile.
        unsafe { self.at.add(from).copy_from(octets.as_ptr(), octets.len()) };
    }

    fn octets(&self, from: usize, len: usize) -> Vec<u8> {
        // SAFETY: as above.
        (from..from + len)
            .map(|i| unsafe { self.at.add(i).read_volatile() })
            .collect()
    }

    /// A Write of this end's memory to the same place of the other.
    fn write(&self, to: &Self, (from, len): (usize, u32), id: u64) -> Work {
        Work {
            operation: Operation::Write,
            local: self.at.wrapping_add(from),
            len,
            lkey: self.adapter.lkey(),
            remote: to.at as u64 + from as u64,
            rkey: to.adapter.rkey(),
            signaled: true,
            tell: None,
            id,
        }
    }

    fn post(&self, work: &[Work]) -> crate::sys::Result<()> {
        // SAFETY: work on the ends' memory, which is never given back.
        unsafe { self.adapter.post(work) }
    }

    fn done(&self) -> Vec<Done> {
        let mut done = [Done::default(); 2 * DEPTH];
        let n = self.adapter.poll(&mut done);
        done[..n].to_vec()
    }
}

const fn well(id: u64) -> Done {
    Done {
        id,
        told: None,
        landed: None,
        ok: true,
        status: 0,
    }
}

#[test]
fn what_is_written_and_read_is_what_was_there() {
    let (a, b) = pair();
    a.fill(8, b"over there");
    b.fill(100, b"and back");
    let read = Work {
        operation: Operation::Read,
        local: a.at.wrapping_add(200),
        len: 8,
        lkey: a.adapter.lkey(),
        remote: b.at as u64 + 100,
        rkey: b.adapter.rkey(),
        signaled: true,
        tell: None,
        id: 2,
    };
    a.post(&[a.write(&b, (8, 10), 1), read]).unwrap();
    assert_eq!(a.done(), [well(1), well(2)]);
    assert_eq!(b.octets(8, 10), b"over there");
    assert_eq!(a.octets(200, 8), b"and back");
    assert_eq!(a.done(), []);
    assert_eq!(b.done(), []);
}

#[test]
fn silent_work_makes_room_when_later_work_is_polled() {
    let (a, b) = pair();
    let silent = |work| Work {
        operation: Operation::WriteInline,
        lkey: 0,
        signaled: false,
        ..work
    };
    for i in 1..DEPTH as u64 {
        a.post(&[silent(a.write(&b, (0, 8), i))]).unwrap();
    }
    assert_eq!(a.done(), []);
    a.post(&[a.write(&b, (0, 8), 0)]).unwrap();
    a.post(&[a.write(&b, (0, 8), 0)]).unwrap_err();
    assert_eq!(a.done(), [well(0)]);
    a.post(&[a.write(&b, (0, 8), 9)]).unwrap();
    assert_eq!(a.done(), [well(9)]);
}

#[test]
fn a_wrong_key_or_place_ends_the_queue_pair() {
    type Wrong = fn(&mut Work);
    let wrongs: [(Wrong, u32); 5] = [
        (|w| w.rkey ^= 1, 10),
        (|w| w.remote -= 9, 10),
        (|w| w.remote += LEN as u64 - 15, 10),
        (|w| w.remote = u64::MAX, 10),
        (|w| w.lkey ^= 1, 4),
    ];
    for (wrong, status) in wrongs {
        let (a, b) = pair();
        a.fill(8, b"12345678");
        let mut work = a.write(&b, (8, 8), 7);
        wrong(&mut work);
        a.post(&[work, a.write(&b, (8, 8), 8)]).unwrap();
        let failed = |id, status| Done {
            id,
            told: None,
            landed: None,
            ok: false,
            status,
        };
        assert_eq!(a.done(), [failed(7, status), failed(8, 5)]);
        a.post(&[a.write(&b, (8, 8), 9)]).unwrap();
        assert_eq!(a.done(), [failed(9, 5)]);
        assert_eq!(b.octets(0, LEN), [0; LEN]);
    }
}

#[test]
fn nothing_is_carried_out_after_an_end_has_failed() {
    for other in [false, true] {
        let (a, b) = pair();
        if other { &b } else { &a }.adapter.fail();
        a.fill(8, b"12345678");
        a.post(&[a.write(&b, (8, 8), 1)]).unwrap();
        assert!(matches!(
            a.done()[..],
            [Done {
                id: 1,
                ok: false,
                ..
            }]
        ));
        assert_eq!(b.octets(0, LEN), [0; LEN]);
    }
}

#[test]
fn before_connecting_nothing_can_be_posted() {
    let (a, b) = (end(), end());
    a.post(&[a.write(&b, (0, 8), 1)]).unwrap_err();
    a.adapter.connect(&b.adapter.address()).unwrap();
    a.adapter.connect(&b.adapter.address()).unwrap_err();
    a.post(&[a.write(&b, (0, 8), 1)]).unwrap();
    assert_eq!(a.done(), [well(1)]);
}

/// Places for words are used again: what was there before is not told once more.
#[test]
fn words_come_once_each_however_many_there_were() {
    let (a, b) = pair();
    for i in 0..70_000 {
        let word = Work {
            operation: Operation::WriteInline,
            tell: Some(i),
            ..a.write(&b, (0, 0), i.into())
        };
        a.post(&[word]).unwrap();
        assert_eq!(a.done(), [well(i.into())]);
        let told = b.done();
        assert_eq!((told.len(), told[0].told), (1, Some(i)));
    }
}

/// What is told comes after the octets that were posted before it, also where both ends are at work at once.
#[test]
fn a_word_comes_after_its_data() {
    let (a, b) = pair();
    let last = 3000u32;
    let heard = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let (remote, rkey) = (b.at as u64, b.adapter.rkey());
        let from = a.at as usize;
        let (adapter, heard) = (&a.adapter, &heard);
        scope.spawn(move || {
            let at = std::ptr::with_exposed_provenance_mut::<u8>(from);
            for i in 1..=last {
                // SAFETY: this end's memory, which only this thread uses.
                unsafe { at.write_bytes(i.to_le_bytes()[0], 1024) };
                let piece = |operation, place: u32, len, tell| Work {
                    operation,
                    local: at.wrapping_add(place as usize),
                    len,
                    lkey: adapter.lkey(),
                    remote: remote + u64::from(place),
                    rkey,
                    signaled: tell == Some(i),
                    tell,
                    id: i.into(),
                };
                let data = piece(Operation::Write, 8, 1016, None);
                let word = piece(Operation::WriteInline, 0, 8, Some(i));
                // SAFETY: work on the ends' memory, which is never given back.
                unsafe { adapter.post(&[data, word]) }.unwrap();
                let mut done = [Done::default(); 4];
                assert_eq!(adapter.poll(&mut done), 1);
                assert_eq!(done[0], well(i.into()));
                while heard.load(Ordering::Acquire) < i {
                    std::thread::yield_now();
                }
            }
        });
        let until = Instant::now() + Duration::from_secs(60);
        let wrong = (1..=last).find_map(|i| {
            let mut done = [Done::default(); 4];
            let mut n = 0;
            while n == 0 && Instant::now() < until {
                n = b.adapter.poll(&mut done);
            }
            let octets = b.octets(0, 1024);
            let late = octets.iter().position(|&octet| octet != i.to_le_bytes()[0]);
            heard.store(i, Ordering::Release);
            let came = (n, done[0].told, late);
            (came != (1, Some(i), None)).then_some((i, came))
        });
        heard.store(u32::MAX, Ordering::Release); // (else the other would wait for good)
        assert_eq!(
            wrong, None,
            "of what was told, how many, which, and an octet that was not there"
        );
    });
}

#[test]
fn memory_for_a_while_is_read_as_long_as_it_is_registered() {
    let (a, b) = pair();
    let there: &'static mut [u8] = vec![7u8; 100].leak();
    let here: &'static mut [u8] = vec![0u8; 100].leak();
    let (there, here) = (there.as_mut_ptr(), here.as_mut_ptr());
    let register = |end: &End, at: *mut u8, access| {
        // SAFETY: memory that is never given back.
        unsafe { end.adapter.register(NonNull::new(at).unwrap(), 100, access) }.unwrap()
    };
    let lent = register(&b, there, Access::Lends);
    let taken = register(&a, here, Access::Takes);
    let read = |lkey, rkey, from: u64, len| Work {
        operation: Operation::Read,
        local: here,
        len,
        lkey,
        remote: there as u64 + from,
        rkey,
        signaled: true,
        tell: None,
        id: 1,
    };
    a.post(&[read(taken.lkey(), lent.rkey(), 50, 50)]).unwrap();
    assert_eq!(a.done(), [well(1)]);
    assert_eq!(
        // SAFETY: within the memory.
        unsafe { (here.read_volatile(), here.add(49).read_volatile()) },
        (7, 7)
    );
    let (lkey, rkey) = (taken.lkey(), lent.rkey());
    drop(lent);
    a.post(&[read(lkey, rkey, 0, 10)]).unwrap();
    assert!(!a.done()[0].ok);
}

#[test]
fn memory_for_a_while_is_for_that_alone() {
    for wrong in 0..4 {
        let (a, b) = pair();
        let there: &'static mut [u8] = vec![7u8; 100].leak();
        let here: &'static mut [u8] = vec![0u8; 100].leak();
        let (there, here) = (there.as_mut_ptr(), here.as_mut_ptr());
        let register = |end: &End, at: *mut u8, access| {
            // SAFETY: memory that is never given back.
            unsafe { end.adapter.register(NonNull::new(at).unwrap(), 100, access) }.unwrap()
        };
        let takes = register(&b, there, Access::Takes);
        let lent = register(&b, there, Access::Lends);
        let (own, other) = (
            register(&a, here, Access::Takes),
            register(&a, here, Access::Lends),
        );
        let good = Work {
            operation: Operation::Read,
            local: here,
            len: 10,
            lkey: own.lkey(),
            remote: there as u64,
            rkey: lent.rkey(),
            signaled: true,
            tell: None,
            id: 1,
        };
        let work = match wrong {
            0 => Work {
                rkey: takes.rkey(),
                ..good
            },
            1 => Work {
                lkey: other.lkey(),
                ..good
            },
            2 => Work {
                remote: there as u64 + 95,
                ..good
            },
            _ => Work {
                operation: Operation::Write,
                ..good
            },
        };
        a.post(&[work]).unwrap();
        assert!(!a.done()[0].ok, "{wrong}");
        assert_eq!(
            // SAFETY: within the memory.
            unsafe { (here.read_volatile(), there.read_volatile()) },
            (0, 7)
        );
    }
}

/// What one that reaches memory on demand keeps: found again whatever lies there by then, and no more than there is room for.
#[test]
fn what_is_kept_is_found_again_and_is_no_right_of_the_peers() {
    const MIB: usize = 1 << 20;
    let (a, b) = (keeping_end(), end());
    a.adapter.connect(&b.adapter.address()).unwrap();
    b.adapter.connect(&a.adapter.address()).unwrap();
    let room = crate::sys::mem::Mapping::private(32 * MIB).unwrap();
    let at = |from: usize| room.base().as_ptr().wrapping_add(from);
    let register = |from: usize, len| {
        let memory = NonNull::new(at(from)).unwrap();
        // SAFETY: memory that stays mapped for longer.
        unsafe { a.adapter.register(memory, len, Access::Takes) }.unwrap()
    };
    let first = register(100, MIB);
    let key = first.lkey();
    assert_eq!(
        (register(100, MIB).lkey(), register(500, 7).lkey()),
        (key, key)
    );
    assert_eq!(first.rkey(), 0);
    drop(first);
    assert_eq!(register(2000, 1000).lkey(), key);
    let read = |lkey, to| Work {
        operation: Operation::Read,
        local: to,
        len: 8,
        lkey,
        remote: b.at as u64,
        rkey: b.adapter.rkey(),
        signaled: true,
        tell: None,
        id: 1,
    };
    b.fill(0, b"12345678");
    a.post(&[read(key, at(300))]).unwrap();
    assert_eq!(a.done(), [well(1)]);
    // SAFETY: within the mapping, which is aligned.
    unsafe { assert_eq!(*at(300).cast::<[u8; 8]>(), *b"12345678") };
    // (one that is held is there however many came after it)
    let held = register(100, 1);
    let others: Vec<u32> = (1..8).map(|i| register(4 * i * MIB, 1).lkey()).collect();
    assert_eq!(register(28 * MIB, 1).lkey(), others[6]);
    assert_ne!(register(100, 1).lkey(), key);
    a.post(&[read(held.lkey(), at(300))]).unwrap();
    assert_eq!(a.done(), [well(1)]);
    drop(held);
    // the peer has no right to it, by whatever key; and what is not kept any more is nobody's
    let theirs = Work {
        local: b.at,
        lkey: b.adapter.lkey(),
        remote: at(300) as u64,
        rkey: register(300, 8).lkey(),
        ..read(0, b.at)
    };
    b.post(&[theirs]).unwrap();
    assert_eq!(
        (b.done()[0].ok, b.octets(0, 8)),
        (false, b"12345678".to_vec())
    );
    a.post(&[read(key, at(300))]).unwrap();
    assert!(!a.done()[0].ok);
}
