//! Writing FPDUs so that siw can read them: where pad and CRC of one come in two TCP segments, siw puts the second part over
//! the first, and finds the sum wrong. So the end of each FPDU is the end of a segment that has all of it.

use std::io::{Result, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Octets that surely fit one segment, and hold any trailer.
const SEGMENT: usize = 1448;
const LAST: usize = 500;

/// Writes one FPDU: the kernel puts nothing behind what it has sent already, so each part is a segment of its own, or begins
/// one.
pub(super) fn write_for_siw(tcp: &mut TcpStream, fpdu: &[u8]) -> Result<()> {
    let cut = if fpdu.len() > SEGMENT {
        fpdu.len() - LAST
    } else {
        0
    };
    let (first, last) = fpdu.split_at(cut);
    if !first.is_empty() {
        tcp.write_all(first)?;
        until_sent(tcp);
    }
    tcp.write_all(last)?;
    until_sent(tcp);
    Ok(())
}

/// Waits until the kernel has sent all that it was given; or for long enough, since the peer may have gone.
fn until_sent(tcp: &TcpStream) {
    for _ in 0..200_000 {
        let mut unsent: libc::c_int = 0;
        // SAFETY: the request writes one int.
        let done = unsafe { libc::ioctl(tcp.as_raw_fd(), SIOCOUTQNSD, &raw mut unsent) };
        if done != 0 || unsent == 0 {
            return;
        }
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Octets that were not sent yet (linux/sockios.h).
const SIOCOUTQNSD: libc::c_ulong = 0x894B;
