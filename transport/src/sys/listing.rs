//! What stands in a folder; and the descriptors of this process, as /proc lists them: those of a kind that its link names.
//!
//! Called where a connection begins (`preload::sockets::uring`), on the program's stack, which may be small; no memory is
//! taken.

use super::fd::{self, Fd};
use crate::syscall;

/// Bytes of names that are read at once.
const PART: usize = 512;
/// Of one entry: where its length stands, and its name (linux_dirent64).
const LENGTH_AT: usize = 16;
const NAME_AT: usize = 19;

/// Those of the lowest `most` descriptors that are links to something whose name begins so. None where /proc does not tell.
pub fn each(kind: &[u8], most: usize, mut found: impl FnMut(i32)) {
    let Ok(folder) = fd::open(c"/proc/self/fd", libc::O_DIRECTORY) else {
        return;
    };
    let mut left = most;
    names(&folder, |name| {
        if is(&folder, name, kind)
            && let Some(fd) = number(name)
        {
            found(fd);
        }
        left = left.saturating_sub(1);
        left > 0
    });
}

/// Those below `end` that stand for something, whether /proc tells or not: asked for many at once.
pub fn each_open(end: i32, mut found: impl FnMut(i32)) {
    const AT_ONCE: usize = 256;
    for from in (0..end).step_by(AT_ONCE) {
        let mut asked = [libc::pollfd {
            fd: -1,
            events: 0,
            revents: 0,
        }; AT_ONCE];
        for (fd, place) in (from..end).zip(&mut asked) {
            place.fd = fd;
        }
        let now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: as many pollfds, a time-out, no mask.
        let done = unsafe { syscall!(ppoll, asked.as_mut_ptr(), AT_ONCE, &raw const now, 0, 8) };
        // (where nothing can be said each is worth a look)
        let is_open = |p: &&libc::pollfd| done.is_err() || p.revents & libc::POLLNVAL == 0;
        let open = asked.iter().filter(|p| p.fd >= 0).filter(is_open);
        open.for_each(|p| found(p.fd));
    }
}

/// The names in a folder, each with the byte that ends it, as long as `on` wants more.
pub fn names(folder: &Fd, mut on: impl FnMut(&[u8]) -> bool) {
    let mut part = [0u8; PART];
    loop {
        // SAFETY: room for as many bytes.
        let read = unsafe { syscall!(getdents64, folder.raw(), part.as_mut_ptr(), PART) };
        let Some(mut rest) = read
            .ok()
            .and_then(|n| part.get(..n))
            .filter(|r| !r.is_empty())
        else {
            return;
        };
        while let Some((name, next)) = first(rest) {
            if !on(name) {
                return;
            }
            rest = next;
        }
    }
}

/// The name of the first entry, with the byte that ends it, and the entries behind it.
fn first(entries: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = entries.get(LENGTH_AT..LENGTH_AT + 2)?;
    let length = usize::from(u16::from_ne_bytes(length.try_into().ok()?));
    let name = entries.get(NAME_AT..length)?;
    let end = name.iter().position(|&b| b == 0)?;
    Some((name.get(..=end)?, entries.get(length..)?))
}

/// The descriptor that an entry stands for.
fn number(name: &[u8]) -> Option<i32> {
    std::str::from_utf8(name.split_last()?.1).ok()?.parse().ok()
}

fn is(folder: &Fd, name: &[u8], kind: &[u8]) -> bool {
    let mut link = [0u8; 64];
    // SAFETY: the name ends with a zero; room for as many bytes.
    let n = unsafe {
        let (to, room) = (link.as_mut_ptr(), link.len());
        syscall!(readlinkat, folder.raw(), name.as_ptr(), to, room)
    };
    n.is_ok_and(|n| link.get(..n).is_some_and(|link| link.starts_with(kind)))
}

#[cfg(test)]
mod tests {
    use super::{each, each_open, first};

    fn any(kind: &[u8], most: usize) -> Vec<i32> {
        let mut all = Vec::new();
        each(kind, most, |fd| all.push(fd));
        all
    }

    #[test]
    fn finds_what_is_open_and_nothing_else() {
        let kind = b"anon_inode:[timerfd]"; // (no other test of this process has one)
        assert_eq!(any(kind, 10_000), []);
        // SAFETY: takes no pointer.
        let timer = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, 0) };
        assert_eq!(any(kind, 10_000), [timer]);
        assert_eq!(any(kind, 1), []);
        // SAFETY: made above.
        unsafe { libc::close(timer) };
        assert_eq!(any(kind, 10_000), []);
    }

    #[test]
    fn finds_every_open_number_below_the_end() {
        // SAFETY: takes no pointer.
        let (low, high) = unsafe {
            let low = libc::timerfd_create(libc::CLOCK_MONOTONIC, 0);
            (low, libc::fcntl(low, libc::F_DUPFD, 700))
        };
        let below = |end| {
            let mut all = Vec::new();
            each_open(end, |fd| all.push(fd));
            all
        };
        assert!(below(high + 1).contains(&low) && below(high + 1).contains(&high));
        assert!(!below(high).contains(&high) && !below(high + 5000).contains(&(high + 4999)));
        assert_eq!(below(0), []);
        // SAFETY: made above.
        unsafe { (libc::close(low), libc::close(high)) };
    }

    #[test]
    fn a_list_that_is_cut_short_ends() {
        assert_eq!(first(&[]), None);
        assert_eq!(first(&[0; 18]), None);
        let mut entry = [0u8; 24];
        entry[16] = 24;
        entry[19] = b'7';
        assert_eq!(first(&entry), Some((&b"7\0"[..], &[][..])));
        entry[16] = 25;
        assert_eq!(first(&entry), None);
    }
}
