//! Buffers that are lent: however they are read, and wherever an adapter fails or somebody gives up, the two sides agree on what was
//! read, and nothing stays registered.

use super::*;
use crate::clock;

/// How the borrower goes on.
#[derive(Clone, Debug)]
struct Course {
    len: usize,
    /// Room of each of its reads; once there are no more it goes elsewhere.
    rooms: Vec<usize>,
    /// Reads that its adapter carries out before it fails.
    reads: Option<u32>,
    /// The ring is ended by somebody before this read.
    ends: Option<usize>,
}

fn course() -> impl Strategy<Value = Course> {
    let room = prop_oneof![1usize..5000, 1usize..400_000, Just(1 << 20)];
    (
        1usize..(1 << 20),
        prop::collection::vec(room, 0..8),
        prop::option::weighted(0.3, 0u32..6),
        prop::option::weighted(0.2, 0usize..6),
    )
        .prop_map(|(len, rooms, reads, ends)| Course {
            len,
            rooms,
            reads,
            ends,
        })
}

/// What each side says of it in the end: what the lender knows, and what the borrower has.
fn go(course: &Course, patience_us: u64) -> ((usize, usize), Vec<u8>, Vec<u8>, [bool; 2]) {
    let sides = pair();
    let [lender, borrower] = &sides;
    let sent: Vec<u8> = (0..course.len).map(|i| (i * 7 + i / 251) as u8).collect();
    *borrower.near.reads.lock().unwrap() = course.reads;
    let (lends, borrows) = (lender.ring(), borrower.ring());
    let lent = unsafe { lends.lend(sent.as_ptr().cast_mut(), sent.len()) };
    let mut lent = lent.unwrap();
    let place = lent.place();
    lent.count();
    let mut got = Vec::new();
    let done = AtomicBool::new(false);
    let ended = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut borrowed = Borrowed::new(Some(borrows), place);
            for (i, &room) in course.rooms.iter().enumerate() {
                if course.ends == Some(i) {
                    borrows.end();
                }
                if !borrowed.is_live() || borrows.is_over() {
                    break;
                }
                let mut to = vec![0u8; room];
                let n = unsafe { borrowed.pull(borrows, to.as_mut_ptr(), room) };
                assert!(borrower.near.guests.lock().unwrap().is_empty());
                got.extend_from_slice(&to[..n]);
            }
            assert_eq!(borrowed.read() as usize, got.len());
            if borrows.is_over() {
                lends.end(); // (which the kernel connection tells)
            }
            // (this adapter does its work when somebody looks)
            while !done.load(Ordering::Acquire) {
                borrows.reap();
                std::thread::yield_now();
            }
        });
        lent.serve(patience_us);
        let ended = lent.end();
        done.store(true, Ordering::Release);
        assert!(lender.near.guests.lock().unwrap().is_empty());
        reader.join().unwrap();
        ended
    });
    let over = [lends.is_over(), borrows.is_over()];
    (ended, got, sent, over)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]
    #[test]
    fn both_agree_on_what_was_read(course in course()) {
        let ((read, perhaps), got, sent, over) = go(&course, 3_000);
        prop_assert_eq!(&got[..], &sent[..got.len()]);
        prop_assert!(read <= got.len() && got.len() <= perhaps, "{read} {} {perhaps}", got.len());
        prop_assert!(perhaps - read <= PIECE as usize);
        if over == [false; 2] {
            // Nothing is uncertain but where an adapter fails.
            prop_assert_eq!((read, perhaps), (got.len(), got.len()));
        }
    }
}

#[test]
fn a_buffer_is_read_whole() {
    let course = Course {
        len: 1 << 20,
        rooms: vec![1 << 20],
        reads: None,
        ends: None,
    };
    let (ended, got, sent, over) = go(&course, 5_000_000);
    assert_eq!((ended, over), ((1 << 20, 1 << 20), [false; 2]));
    assert!(got == sent);
}

#[test]
fn who_does_not_come_is_not_waited_for() {
    let sides = pair();
    let bytes = vec![1u8; 50_000];
    let begun = clock::ticks();
    let lent = unsafe { sides[0].ring().lend(bytes.as_ptr().cast_mut(), bytes.len()) };
    let mut lent = lent.unwrap();
    lent.count();
    lent.serve(1_000);
    assert!(clock::ticks() - begun >= clock::us(1_000));
    assert_eq!(lent.end(), (0, 0));
    assert!(sides[0].near.guests.lock().unwrap().is_empty());
}

#[test]
fn a_word_that_cannot_be_ends_the_ring() {
    use super::super::tell::{Loan, Said, Tell};
    let sides = pair();
    let bytes = vec![1u8; 50_000];
    let lent = unsafe { sides[0].ring().lend(bytes.as_ptr().cast_mut(), bytes.len()) };
    let mut lent = lent.unwrap();
    lent.count();
    // More is said to be read than was ever allowed.
    let lie = Loan {
        number: 1,
        said: Said::Idles,
        bytes: 10,
    };
    sides[1].ring().tell(Tell::Borrower(lie)).unwrap();
    sides[1].ring().reap();
    lent.serve(100_000);
    assert!(sides[0].ring().is_over());
    assert_eq!(lent.end(), (0, 0));
}

#[test]
fn numbers_go_round_and_what_is_old_says_nothing() {
    let sides = pair();
    let [lender, borrower] = [sides[0].ring(), sides[1].ring()];
    let bytes = vec![1u8; 5000];
    for i in 0..200u32 {
        let lent = unsafe { lender.lend(bytes.as_ptr().cast_mut(), bytes.len()) };
        let mut lent = lent.unwrap();
        lent.count();
        let mut borrowed = Borrowed::new(Some(borrower), lent.place());
        if i > 0 && i < 70 {
            // Nobody comes, for so long that the first one's number comes again.
            lent.serve(0);
            assert_eq!(lent.end(), (0, 0));
            continue;
        }
        let done = AtomicBool::new(false);
        let n = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut to = vec![0u8; 5000];
                let n = unsafe { borrowed.pull(borrower, to.as_mut_ptr(), to.len()) };
                while !done.load(Ordering::Acquire) {
                    borrower.reap();
                    std::thread::yield_now();
                }
                n
            });
            lent.serve(1_000_000);
            done.store(true, Ordering::Release);
            reader.join().unwrap()
        });
        assert_eq!((n, lent.end()), (5000, (5000, 5000)), "{i}");
    }
    assert!(!lender.is_over() && !borrower.is_over());
}
