//! How long a call may wait: the time-outs that the program has set (SO_RCVTIMEO, SO_SNDTIMEO), as `wait` asks for them.
//!
//! The kernel keeps them. What it says is asked for once where nobody else can change it, and one of less than nothing is noted here:
//! it is nothing at all, and the kernel says of it what it says where there is none.
//!
//! `Socket::untimed`: two bits of time-outs that are not set, above them two of those that are less than nothing, above these a count of
//! changes, so that an answer which is older than one is not noted.

use super::Socket;
use super::wait::Want;
use std::sync::atomic::Ordering;
use transport::sys::net;

/// Where the bits and the count begin.
const NEGATIVE: u32 = 2;
const COUNT: u32 = 4;

/// How long (ns) the program has said that such a wait may take; 0: for ever. Who holds the connection alone is asked once.
pub(super) fn timeout(s: &Socket, fd: i32, want: Want) -> u64 {
    let (option, bit) = match want {
        Want::Data => (libc::SO_RCVTIMEO, 1),
        Want::Room | Want::Taken => (libc::SO_SNDTIMEO, 2),
    };
    let known = s.untimed.load(Ordering::Acquire);
    if known & bit != 0 {
        return 0;
    }
    if known & bit << NEGATIVE != 0 {
        return 1; // (0 would be for ever)
    }
    let ns = net::timeout(fd, option);
    if ns == 0 && !s.is_shared() && s.phase().is_fast() {
        // (not if one was set meanwhile)
        let (done, lost) = (Ordering::AcqRel, Ordering::Relaxed);
        let _ = s.untimed.compare_exchange(known, known | bit, done, lost);
    }
    ns
}

/// A time-out may have been set, or a child may do so: it is asked for anew.
pub(crate) fn retime(s: &Socket) {
    change(s, |known| known);
}

/// The program has set a time-out.
pub(super) fn note(s: &Socket, of_reads: bool, negative: bool) {
    let bit = if of_reads { 1 } else { 2 } << NEGATIVE;
    change(s, |known| known & !bit | if negative { bit } else { 0 });
}

fn change(s: &Socket, note: impl Fn(u8) -> u8) {
    let next = |known: u8| Some((note(known) & !3).wrapping_add(1 << COUNT));
    let _ = s
        .untimed
        .fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
}
