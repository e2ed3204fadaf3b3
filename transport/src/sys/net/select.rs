//! Waiting for descriptors where poll(2) may not: it takes no more of them than a process may open (RLIMIT_NOFILE), and there
//! are programs that lower that to nothing once they have what they need. pselect(2) does not ask.

use super::super::mem::Mapping;
use super::super::{Errno, Result};
use crate::syscall;

/// Bits of a word of a set.
const BITS: usize = usize::BITS as usize;

/// What pselect is given beside: the mask, and its length in octets.
#[repr(C)]
struct Mask {
    at: *const libc::sigset_t,
    len: usize,
}

/// ppoll(2) by pselect(2). Of what shows by itself (ERR, HUP) an entry that asks for input is told as input; one that is not open
/// is an error of the whole.
///
/// # Errors
/// As pselect(2); ENOMEM.
pub fn instead(
    fds: &mut [libc::pollfd],
    time: Option<libc::timespec>,
    mask: *const libc::sigset_t,
) -> Result<usize> {
    let number = |p: &libc::pollfd| usize::try_from(p.fd).ok();
    let end = fds.iter().filter_map(number).max().map_or(0, |n| n + 1);
    let words = end.div_ceil(BITS).max(1);
    let sets = Mapping::private(3 * words * size_of::<usize>())?;
    // SAFETY: fresh zeroed memory of that size, aligned to pages, which nobody else sees.
    let all =
        unsafe { std::slice::from_raw_parts_mut(sets.base().as_ptr().cast::<usize>(), 3 * words) };
    let kinds = [
        (libc::POLLIN | libc::POLLRDHUP, libc::POLLIN),
        (libc::POLLOUT, libc::POLLOUT),
        (libc::POLLPRI, libc::POLLPRI),
    ];
    let bit = |p: &libc::pollfd, kind: usize| {
        number(p).map(|n| (kind * words + n / BITS, 1usize << (n % BITS)))
    };
    for p in fds.iter() {
        for (kind, (asked, _)) in kinds.iter().enumerate() {
            if p.events & asked != 0
                && let Some((at, bit)) = bit(p, kind)
                && let Some(word) = all.get_mut(at)
            {
                *word |= bit;
            }
        }
    }
    let base = sets.base().as_ptr().cast::<usize>();
    let [read, write, except] = [0, words, 2 * words].map(|at| base.wrapping_add(at));
    let mut time = time;
    let time = time
        .as_mut()
        .map_or(std::ptr::null_mut(), std::ptr::from_mut);
    let mask = Mask { at: mask, len: 8 };
    // SAFETY: three sets that are long enough for `end` bits, a time or null, a mask or none.
    unsafe { syscall!(pselect6, end, read, write, except, time, &raw const mask) }?;
    let mut ready = 0;
    for p in fds {
        p.revents = 0;
        for (kind, (asked, told)) in kinds.iter().enumerate() {
            if p.events & asked != 0
                && let Some((at, bit)) = bit(p, kind)
                && all.get(at).is_some_and(|word| word & bit != 0)
            {
                p.revents |= told;
            }
        }
        ready += usize::from(p.revents != 0);
    }
    Ok(ready)
}

/// [`instead`] where this is what ppoll(2) has answered.
///
/// # Errors
/// What it was told; else as there.
pub fn where_refused(
    polled: Result<usize>,
    fds: &mut [libc::pollfd],
    time: Option<libc::timespec>,
    mask: *const libc::sigset_t,
) -> Result<usize> {
    match polled {
        Err(Errno::INVAL) => instead(fds, time, mask),
        r => r,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    const NOW: Option<libc::timespec> = Some(libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    });

    #[test]
    fn tells_what_poll_would() {
        let (mut a, b) = UnixStream::pair().unwrap();
        let entry = |fd, events| libc::pollfd {
            fd,
            events,
            revents: 0,
        };
        let both = libc::POLLIN | libc::POLLOUT;
        let mut all = [
            entry(a.as_raw_fd(), both),
            entry(-1, both),
            entry(b.as_raw_fd(), libc::POLLIN),
        ];
        let ask = |all: &mut [libc::pollfd; 3]| {
            let n = instead(all, NOW, std::ptr::null());
            (n, all.map(|p| p.revents))
        };
        assert_eq!(ask(&mut all), (Ok(1), [libc::POLLOUT, 0, 0]));
        a.write_all(b"x").unwrap();
        let told = [libc::POLLOUT, 0, libc::POLLIN];
        assert_eq!(ask(&mut all), (Ok(2), told));
        drop(a);
        let mut gone = [entry(b.as_raw_fd(), libc::POLLIN | libc::POLLRDHUP)];
        assert_eq!(instead(&mut gone, None, std::ptr::null()), Ok(1));
        assert_eq!(gone[0].revents, libc::POLLIN);
        assert_eq!(instead(&mut [], NOW, std::ptr::null()), Ok(0));
    }
}
