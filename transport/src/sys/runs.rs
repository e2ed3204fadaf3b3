//! Copies many short runs of octets, each from its place between others (`iwarp::mpa`: what lies between two markers), as fast
//! as one long copy.
//!
//! Three things make it as fast: a store never crosses a cache line (a long copy sees to that, a short one does not find it
//! worth while), a store is as wide as the processor has it, and, where that is half a line, the lines that are written some
//! runs later are asked for in time (such a processor foresees a long copy, but not one with steps; asking those that write
//! whole lines cost a quarter of the rate).

use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

/// Octets of a cache line.
const LINE: usize = 64;
/// How far ahead lines are asked for.
const AHEAD: usize = 2048;

/// Copies the last `N` octets of each of these to the last `N` of those, for as many as there are of both, and has `head` see
/// to the others of each while its lines are near. How many.
///
/// `N` is at least 128, and no larger than either.
#[inline]
pub fn copy<const N: usize, const F: usize, const T: usize>(
    from: &[[u8; F]],
    to: &mut [[u8; T]],
    head: impl FnMut(&mut [u8; T]),
) -> usize {
    const {
        assert!(N >= 2 * LINE && N <= F && N <= T);
    }
    if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") {
        // SAFETY: the processor has it.
        unsafe { copy_lines::<N, F, T>(from, to, head) };
    } else if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has it.
        unsafe { copy_halves::<N, F, T>(from, to, head) };
    } else {
        copy_each::<N, F, T, 32, true>(from, to, head);
    }
    from.len().min(to.len())
}

/// With stores of a whole line.
#[target_feature(enable = "avx512f,avx512vl")]
fn copy_lines<const N: usize, const F: usize, const T: usize>(
    from: &[[u8; F]],
    to: &mut [[u8; T]],
    head: impl FnMut(&mut [u8; T]),
) {
    copy_each::<N, F, T, LINE, false>(from, to, head);
}

/// With stores of half a line.
#[target_feature(enable = "avx2")]
fn copy_halves<const N: usize, const F: usize, const T: usize>(
    from: &[[u8; F]],
    to: &mut [[u8; T]],
    head: impl FnMut(&mut [u8; T]),
) {
    copy_each::<N, F, T, 32, true>(from, to, head);
}

/// With stores of `WIDE` octets; asks for lines ahead if it is to.
#[inline(always)]
#[expect(
    clippy::inline_always,
    reason = "compiled anew for each kind of processor"
)]
fn copy_each<
    const N: usize,
    const F: usize,
    const T: usize,
    const WIDE: usize,
    const ASKS: bool,
>(
    from: &[[u8; F]],
    to: &mut [[u8; T]],
    mut head: impl FnMut(&mut [u8; T]),
) {
    for (from, to) in from.iter().zip(to) {
        head(to);
        if let (Some(from), Some(to)) = (from.last_chunk::<N>(), to.last_chunk_mut::<N>()) {
            if ASKS {
                ask_for(to);
            }
            copy_one::<N, WIDE>(from, to);
        }
    }
}

/// Aligned stores, and at both ends one that overlaps them.
#[inline(always)]
#[expect(clippy::inline_always, reason = "as above")]
fn copy_one<const N: usize, const WIDE: usize>(from: &[u8; N], to: &mut [u8; N]) {
    let begin = WIDE - to.as_ptr().addr() % WIDE;
    let end = begin + (N - WIDE) / WIDE * WIDE;
    put::<N, WIDE>(from, to, 0);
    if let (Some(from), Some(to)) = (from.get(begin..end), to.get_mut(begin..end)) {
        let (from, to) = (from.as_chunks::<WIDE>().0, to.as_chunks_mut::<WIDE>().0);
        for (from, to) in from.iter().zip(to).take((N - WIDE) / WIDE) {
            *to = *from;
        }
    }
    // (one more that is aligned, if there is room for it)
    put::<N, WIDE>(from, to, end.min(N - WIDE));
    put::<N, WIDE>(from, to, N - WIDE);
}

/// Asks for the lines of a run that comes later.
#[inline(always)]
#[expect(clippy::inline_always, reason = "as above")]
fn ask_for<const N: usize>(to: &[u8; N]) {
    for line in 0..N.div_ceil(LINE) {
        let at = to.as_ptr().wrapping_add(AHEAD + line * LINE);
        // SAFETY: every processor of this kind has it, and it does nothing where there is nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
}

/// One store of the octets from `at` on.
#[inline(always)]
#[expect(clippy::inline_always, reason = "as above")]
fn put<const N: usize, const WIDE: usize>(from: &[u8; N], to: &mut [u8; N], at: usize) {
    let place = to.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<WIDE>);
    let octets = from.get(at..).and_then(<[u8]>::first_chunk::<WIDE>);
    if let (Some(place), Some(octets)) = (place, octets) {
        *place = *octets;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Copies runs of `N` between others at any alignment: each octet is where it was copied to octet by octet, and no
    /// other has changed.
    fn check<const N: usize, const F: usize, const T: usize>(skew: usize, count: usize) {
        let from: Vec<u8> = (0..skew + F * count).map(|n| (n % 251) as u8).collect();
        let mut to = vec![0xa5; skew + T * count + 64];
        let mut like = to.clone();
        for run in 0..count {
            for n in 0..N {
                like[skew + run * T + T - N + n] = from[skew + run * F + F - N + n];
            }
        }
        let (runs, _) = from[skew..].as_chunks::<F>();
        let (places, _) = to[skew..][..T * count].as_chunks_mut::<T>();
        assert_eq!(copy::<N, F, T>(runs, places, |_| ()), count);
        assert!(to == like, "{skew} {count}");
        let (places, _) = to[skew..][..T * count].as_chunks_mut::<T>();
        places.as_flattened_mut().fill(0xa5);
        copy_each::<N, F, T, 32, true>(runs, places, |_| ());
        assert!(to == like, "{skew} {count}, halves of lines");
        let (places, _) = to[skew..][..T * count].as_chunks_mut::<T>();
        places.as_flattened_mut().fill(0xa5);
        copy_each::<N, F, T, LINE, false>(runs, places, |_| ());
        assert!(to == like, "{skew} {count}, lines");
    }

    proptest! {
        #[test]
        fn every_octet_and_no_other(skew in 0usize..64, count in 0usize..20) {
            check::<508, 512, 508>(skew, count);
            check::<508, 508, 512>(skew, count);
            check::<128, 128, 129>(skew, count);
            check::<161, 164, 163>(skew, count);
        }
    }
}
