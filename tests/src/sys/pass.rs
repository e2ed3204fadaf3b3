//! Descriptors that are passed over a local socket, one with each byte.
//!
//! Called by the cases and the walks; the peer's number is whatever the kernel finds free.

use super::{Fd, call, io};

/// Room for one descriptor, as the kernel lays it out.
#[repr(align(8))]
struct Control([u8; 24]);

/// Passes a descriptor.
pub fn send_fd(channel: Fd, fd: Fd) {
    let mut control = Control([0; 24]);
    control.0[..8].copy_from_slice(&20u64.to_ne_bytes());
    control.0[8..12].copy_from_slice(&libc::SOL_SOCKET.to_ne_bytes());
    control.0[12..16].copy_from_slice(&libc::SCM_RIGHTS.to_ne_bytes());
    control.0[16..20].copy_from_slice(&fd.to_ne_bytes());
    let mut list = io::iov(b"f");
    let h = message(&mut list, &mut control);
    call!(libc::sendmsg(channel, &raw const h, 0)).ok();
}

/// Takes one that has been passed; `flags` may say that exec closes it.
pub fn recv_fd(channel: Fd, flags: i32) -> Fd {
    let mut control = Control([0; 24]);
    let mut byte = [0];
    let mut list = io::iov_mut(&mut byte);
    let mut h = message(&mut list, &mut control);
    call!(libc::recvmsg(channel, &raw mut h, flags)).ok();
    let mut word = [0; 4];
    word.copy_from_slice(&control.0[16..20]);
    i32::from_ne_bytes(word)
}

fn message(list: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: all zeroes is a valid msghdr.
    let mut h: libc::msghdr = unsafe { std::mem::zeroed() };
    h.msg_iov = list;
    h.msg_iovlen = 1;
    h.msg_control = control.0.as_mut_ptr().cast();
    h.msg_controllen = 24;
    h
}
