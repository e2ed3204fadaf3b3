//! What has to go at once and by nobody else: a bell, an answer of set-up.

use super::{ready_now, send};
use crate::sys::{Errno, Result, time};

/// Times that the kernel is asked which has room and takes nothing, and how long (us) in between.
const TRIES: u32 = 100;
const TRY_US: u64 = 100;

/// Sends a few octets without waiting for room; but where the kernel says that there is room, and has no memory for them just
/// then (EAGAIN, ENOBUFS, ENOMEM), tries again for some ms.
///
/// # Errors
/// As send(2); EAGAIN: there is no room.
pub fn press(fd: i32, octets: &[u8]) -> Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: a readable slice.
    let give = || unsafe { send(fd, octets.as_ptr(), octets.len(), flags) };
    let lacks = |given: &Result<usize>| {
        let Err(e) = *given else { return false };
        let transient = [
            Errno::AGAIN,
            Errno::INTR,
            Errno::NOMEM,
            Errno(libc::ENOBUFS),
        ];
        transient.contains(&e) && ready_now(fd, libc::POLLOUT) & libc::POLLOUT != 0
    };
    let mut given = give();
    for _ in 0..TRIES {
        if !lacks(&given) {
            break;
        }
        let _ = time::nap(TRY_US);
        given = give();
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixStream;

    #[test]
    fn full_is_told_at_once_and_the_rest_goes() {
        let (a, b) = UnixStream::pair().unwrap();
        a.set_nonblocking(true).unwrap();
        assert_eq!(press(a.as_raw_fd(), b"bell"), Ok(4));
        while press(a.as_raw_fd(), &[0; 4096]).is_ok() {}
        assert_eq!(press(a.as_raw_fd(), b"x"), Err(Errno::AGAIN));
        drop(b);
        assert!(press(a.as_raw_fd(), b"x").is_err());
    }
}
