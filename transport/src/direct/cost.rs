//! Which way of a large message uses less processor time, of both ends together: one copy by the kernel, which looks up
//! every page of both programs, or two copies by the programs, into the ring and out of it. Neither is always cheaper:
//! it depends on the processor and the kernel. Asked by `shm` where others want the cores.
//!
//! Measured once a process, with memory of its own, by the time that this thread has had a core.

use super::choice::Way;
use crate::sys::mem::Mapping;
use crate::sys::{self, time, vm};
use std::sync::atomic::{AtomicU8, Ordering};

/// Bytes of one copy, and how often each way is tried; the shortest time counts.
const BYTES: usize = 256 * 1024;
const ROUNDS: usize = 6;

const UNKNOWN: u8 = 0;
const DIRECT: u8 = 1;
const RING: u8 = 2;

static ANSWER: AtomicU8 = AtomicU8::new(UNKNOWN);

/// The way that uses less processor time here.
pub(super) fn thrifty() -> Way {
    match ANSWER.load(Ordering::Relaxed) {
        DIRECT => Way::Direct,
        RING => Way::Ring,
        _ => {
            let way = measure().unwrap_or(Way::Direct);
            let answer = if way == Way::Direct { DIRECT } else { RING };
            ANSWER.store(answer, Ordering::Relaxed);
            way
        }
    }
}

/// None if there is no memory for it, or no clock, or the kernel does not copy.
#[cold]
fn measure() -> Option<Way> {
    let memory = Mapping::private(3 * BYTES).ok()?;
    // SAFETY: fresh memory of this function's own, of so many bytes.
    unsafe { memory.base().as_ptr().write_bytes(1, 3 * BYTES) };
    let [from, ring, to] = [0, 1, 2].map(|n| memory.base().as_ptr().wrapping_add(n * BYTES));
    let through_ring = || {
        // SAFETY: three parts of that memory.
        unsafe {
            ring.copy_from_nonoverlapping(from, BYTES);
            to.copy_from_nonoverlapping(std::hint::black_box(ring), BYTES);
        }
        true
    };
    let (me, there) = (sys::pid().cast_unsigned(), from.expose_provenance() as u64);
    // SAFETY: as above.
    let by_kernel = || unsafe { vm::read(me, there, to, BYTES) == Ok(BYTES) };
    let mut best = [u64::MAX; 2];
    for _ in 0..ROUNDS {
        best[Way::Direct as usize] = best[Way::Direct as usize].min(timed(by_kernel)?);
        best[Way::Ring as usize] = best[Way::Ring as usize].min(timed(through_ring)?);
    }
    let [direct, ring] = best;
    Some(if direct <= ring {
        Way::Direct
    } else {
        Way::Ring
    })
}

fn timed(copy: impl Fn() -> bool) -> Option<u64> {
    let begun = time::on_core()?;
    let whole = copy();
    let took = time::on_core()?.saturating_sub(begun);
    whole.then_some(took)
}

#[cfg(test)]
mod tests {
    use super::{ANSWER, RING, UNKNOWN, measure, thrifty};
    use crate::direct::choice::Way;
    use std::sync::atomic::Ordering;

    #[test]
    fn it_is_measured_once() {
        assert!(measure().is_some());
        assert_eq!(ANSWER.load(Ordering::Relaxed), UNKNOWN);
        assert_eq!(thrifty(), thrifty());
        ANSWER.store(RING, Ordering::Relaxed);
        assert_eq!(thrifty(), Way::Ring);
        ANSWER.store(UNKNOWN, Ordering::Relaxed);
    }
}
