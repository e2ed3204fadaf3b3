//! select and pselect, by way of the array that poll takes.
//!
//! Called by the hooks with the program's three sets. The rule is select(2)'s: the sets are written only
//! where the call succeeds, and then hold nothing but what was asked for.

use super::array::Array;
use super::{Time, first_use, ours, run};
use crate::probe::{Access, is_good};
use crate::sockets::engage;
use transport::sys::{self, Result};

/// select(2) by way of [`poll`](super::poll). `None`: the kernel alone serves this call.
///
/// # Safety
/// The sets are the program's.
pub(crate) unsafe fn select(
    n: i32,
    sets: [*mut libc::fd_set; 3],
    time: Time,
    mask: *const libc::sigset_t,
) -> Option<Result<usize>> {
    const WORD: usize = 64;
    let n = usize::try_from(n).ok().filter(|&n| n > 0 && n <= 1 << 20)?;
    let word = |set: *mut libc::fd_set, i: usize| -> u64 {
        if set.is_null() {
            return 0;
        }
        // SAFETY: word `i` is within `n` bits, by the loops below.
        unsafe { set.cast::<u64>().add(i).read_unaligned() }
    };
    let words = n.div_ceil(WORD);
    let is_bad = |set: &*mut libc::fd_set| !is_good(set.cast(), words * 8, Access::Write);
    if sets.iter().any(|set| !set.is_null() && is_bad(set)) {
        return None; // the kernel says so
    }
    let mut wanted = 0;
    let mut any = false;
    let [reads, writes, excepts] = sets;
    let each_wanted = |f: &mut dyn FnMut(i32, i16)| {
        for i in 0..words {
            let (r, w, x) = (word(reads, i), word(writes, i), word(excepts, i));
            let mut left = r | w | x;
            while left != 0 {
                let bit = left.trailing_zeros() as usize;
                left &= left - 1;
                if i * WORD + bit >= n {
                    break;
                }
                let has = |set: u64, bits: i16| if set >> bit & 1 == 1 { bits } else { 0 };
                let events = has(r, libc::POLLIN | libc::POLLRDNORM)
                    | has(w, libc::POLLOUT | libc::POLLWRNORM)
                    | has(x, libc::POLLPRI);
                let Ok(fd) = i32::try_from(i * WORD + bit) else {
                    return;
                };
                f(fd, events);
            }
        }
    };
    engage::step_of_connected();
    each_wanted(&mut |fd, events| {
        wanted += 1;
        first_use(fd, events);
        any |= ours(fd).is_some();
    });
    if !any {
        return None;
    }
    let mut copy = Array::new(wanted)?;
    let fds = copy.slice();
    let mut at = 0;
    each_wanted(&mut |fd, events| {
        if let Some(p) = fds.get_mut(at) {
            *p = libc::pollfd {
                fd,
                events,
                revents: 0,
            };
            at += 1;
        }
    });
    let r = run(fds, time, mask);
    if r.is_err() {
        return Some(r);
    }
    if fds.iter().any(|p| p.revents & libc::POLLNVAL != 0) {
        return Some(Err(sys::Errno::BADF));
    }
    for set in sets.into_iter().filter(|s| !s.is_null()) {
        for i in 0..words {
            // SAFETY: as in `word`.
            unsafe { set.cast::<u64>().add(i).write_unaligned(0) };
        }
    }
    let mut bits = 0;
    for p in fds.iter() {
        let fd = p.fd.cast_unsigned() as usize;
        let mut put = |set: *mut libc::fd_set, asked: i16, shown: i16| {
            if !set.is_null() && p.events & asked != 0 && p.revents & shown != 0 {
                // SAFETY: `fd` is below `n`.
                unsafe {
                    let w = set.cast::<u64>().add(fd / WORD);
                    w.write_unaligned(w.read_unaligned() | 1 << (fd % WORD));
                }
                bits += 1;
            }
        };
        put(
            reads,
            libc::POLLIN,
            libc::POLLIN | libc::POLLRDNORM | libc::POLLHUP | libc::POLLERR,
        );
        put(
            writes,
            libc::POLLOUT,
            libc::POLLOUT | libc::POLLWRNORM | libc::POLLERR,
        );
        put(excepts, libc::POLLPRI, libc::POLLPRI);
    }
    Some(Ok(bits))
}
