//! Whether a device does on demand what it says: tried once, by two of its queue pairs with each other.
//!
//! Linux's software RoCE, for one, says so, and puts octets to the beginning of each page wherever in it they belong
//! (up to 7.3 at least). No program is to find that out by its bytes.

use super::counted::Counted;
use super::device::Port;
use super::queue_pair::QueuePair;
use super::region::Region;
use super::{Done, Operation, Work};
use crate::clock;
use crate::sys::mem::Mapping;
use crate::sys::{self, Result};
use crate::syscall;
use std::ptr::NonNull;

/// What is read: more than one page, from within one to within one; and packets are no pages.
const ROOM: usize = 8 * 4096;
const AT: usize = 1000;
const LEN: usize = 5 * 4096 + 77;
const _: () = assert!(AT + LEN <= ROOM);

/// How long (µs) a Read may take.
const READ_US: u64 = 200_000;

/// Whether Reads into memory that is registered on demand put there what they are to, also once other pages lie there.
pub(super) fn proves(port: Port) -> bool {
    tried(port).unwrap_or(false)
}

fn tried(port: Port) -> Result<bool> {
    let (from, to) = (Mapping::private(ROOM)?, Mapping::private(ROOM)?);
    // SAFETY: both stay mapped for longer, and are read and written as bytes alone.
    let (source, sink) = unsafe {
        (
            Region::register(port.device, from.base(), ROOM)?,
            Region::on_demand(port.device, to.base(), ROOM)?,
        )
    };
    // (they end before what they refer to)
    let ends = [QueuePair::new(port, None)?, QueuePair::new(port, None)?];
    let [asks, answers] = &ends;
    asks.connect(&answers.address())?;
    answers.connect(&asks.address())?;
    let counted = Counted::new();
    for round in 0..3u8 {
        for (i, at) in (0..ROOM).zip(1u32..) {
            // SAFETY: within the mapping.
            unsafe { from.base().add(i).write_volatile(pattern(at, round)) };
        }
        let work = Work {
            operation: Operation::Read,
            local: to.base().as_ptr().wrapping_add(AT),
            len: LEN as u32,
            lkey: sink.lkey(),
            remote: (from.base().addr().get() + AT) as u64,
            rkey: source.rkey(),
            signaled: true,
            tell: None,
            id: 1,
        };
        // SAFETY: both ends' memory stays longer than the queue pairs.
        unsafe { counted.post(asks, &[work]) }?;
        if !is_done(asks, &counted) || !is_there(to.base(), round) {
            return Ok(false);
        }
        replace(to.base(), round)?;
    }
    Ok(true)
}

#[allow(clippy::cast_possible_truncation)]
const fn pattern(at: u32, round: u8) -> u8 {
    (at.wrapping_mul(2_654_435_761) >> 24) as u8 ^ round
}

fn is_done(asks: &QueuePair, counted: &Counted) -> bool {
    let since = clock::ticks();
    let mut done = [Done::default(); 1];
    while counted.poll(asks, &mut done) == 0 {
        if clock::ticks().wrapping_sub(since) > clock::us(READ_US) {
            return false;
        }
        sys::yield_core();
    }
    done.iter().all(|done| done.ok)
}

fn is_there(to: NonNull<u8>, round: u8) -> bool {
    let mut all = (0..ROOM).zip(1u32..);
    all.all(|(i, at)| {
        // SAFETY: within the mapping.
        let here = unsafe { to.add(i).read_volatile() };
        let is_read = (AT..AT + LEN).contains(&i);
        here == if is_read { pattern(at, round) } else { 0 }
    })
}

/// Other pages lie there: one time those of a new mapping, another time none until they are touched.
fn replace(at: NonNull<u8>, round: u8) -> Result<()> {
    let (rights, none) = (libc::PROT_READ | libc::PROT_WRITE, -1i32);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: a mapping of ours, of which nothing is needed.
    unsafe {
        if round == 0 {
            syscall!(mmap, at.as_ptr(), ROOM, rights, flags, none, 0)?;
        } else {
            syscall!(madvise, at.as_ptr(), ROOM, libc::MADV_DONTNEED)?;
        }
    }
    Ok(())
}
