//! Every call that moves bytes, plus the helpers that move an exact number of them.

use super::{Fd, Ret, call};
use std::ptr;

pub fn read(fd: Fd, buf: &mut [u8]) -> Ret {
    call!(libc::read(fd, buf.as_mut_ptr().cast(), buf.len()))
}

pub fn write(fd: Fd, buf: &[u8]) -> Ret {
    call!(libc::write(fd, buf.as_ptr().cast(), buf.len()))
}

pub fn recv(fd: Fd, buf: &mut [u8], flags: i32) -> Ret {
    call!(libc::recv(fd, buf.as_mut_ptr().cast(), buf.len(), flags))
}

pub fn send(fd: Fd, buf: &[u8], flags: i32) -> Ret {
    call!(libc::send(fd, buf.as_ptr().cast(), buf.len(), flags))
}

/// `recvfrom` with an address buffer; the second value is the length the kernel wrote back.
pub fn recvfrom(fd: Fd, buf: &mut [u8], flags: i32) -> (Ret, u32) {
    let mut addr = [0u8; 128];
    let mut len: libc::socklen_t = 128;
    let r = call!(libc::recvfrom(
        fd,
        buf.as_mut_ptr().cast(),
        buf.len(),
        flags,
        addr.as_mut_ptr().cast(),
        &raw mut len
    ));
    (r, len)
}

pub fn recvfrom_null(fd: Fd, buf: &mut [u8], flags: i32) -> Ret {
    call!(libc::recvfrom(
        fd,
        buf.as_mut_ptr().cast(),
        buf.len(),
        flags,
        ptr::null_mut(),
        ptr::null_mut()
    ))
}

pub fn sendto_null(fd: Fd, buf: &[u8], flags: i32) -> Ret {
    call!(libc::sendto(
        fd,
        buf.as_ptr().cast(),
        buf.len(),
        flags,
        ptr::null(),
        0
    ))
}

/// Calls with pointers of the caller's choice, for bad ones.
pub mod raw {
    use super::{Fd, Ret, call};

    pub fn read(fd: Fd, addr: usize, len: usize) -> Ret {
        call!(libc::read(fd, addr as *mut libc::c_void, len))
    }

    pub fn write(fd: Fd, addr: usize, len: usize) -> Ret {
        call!(libc::write(fd, addr as *const libc::c_void, len))
    }

    pub fn recv(fd: Fd, addr: usize, len: usize, flags: i32) -> Ret {
        call!(libc::recv(fd, addr as *mut libc::c_void, len, flags))
    }

    pub fn send(fd: Fd, addr: usize, len: usize, flags: i32) -> Ret {
        call!(libc::send(fd, addr as *const libc::c_void, len, flags))
    }

    pub fn readv(fd: Fd, iov: &[libc::iovec], count: i32) -> Ret {
        call!(libc::readv(fd, iov.as_ptr(), count))
    }

    pub fn writev(fd: Fd, iov: &[libc::iovec], count: i32) -> Ret {
        call!(libc::writev(fd, iov.as_ptr(), count))
    }

    pub fn recvmsg(fd: Fd, msg: usize, flags: i32) -> Ret {
        call!(libc::recvmsg(fd, msg as *mut libc::msghdr, flags))
    }

    pub fn sendmsg(fd: Fd, msg: usize, flags: i32) -> Ret {
        call!(libc::sendmsg(fd, msg as *const libc::msghdr, flags))
    }
}

/// An iovec over bytes the call may write.
pub fn iov_mut(buf: &mut [u8]) -> libc::iovec {
    libc::iovec {
        iov_base: buf.as_mut_ptr().cast(),
        iov_len: buf.len(),
    }
}

/// An iovec over bytes the call only reads.
pub fn iov(buf: &[u8]) -> libc::iovec {
    libc::iovec {
        iov_base: buf.as_ptr().cast_mut().cast(),
        iov_len: buf.len(),
    }
}

/// An iovec of an arbitrary address.
pub fn iov_at(addr: usize, len: usize) -> libc::iovec {
    libc::iovec {
        iov_base: addr as *mut libc::c_void,
        iov_len: len,
    }
}

pub fn readv(fd: Fd, bufs: &mut [&mut [u8]]) -> Ret {
    let iov: Vec<_> = bufs.iter_mut().map(|b| iov_mut(b)).collect();
    raw::readv(fd, &iov, iov.len() as i32)
}

pub fn writev(fd: Fd, bufs: &[&[u8]]) -> Ret {
    let list: Vec<_> = bufs.iter().map(|b| iov(b)).collect();
    raw::writev(fd, &list, list.len() as i32)
}

fn header(list: &mut [libc::iovec]) -> libc::msghdr {
    // SAFETY: all zeroes is a valid msghdr.
    let mut h: libc::msghdr = unsafe { std::mem::zeroed() };
    h.msg_iov = list.as_mut_ptr();
    h.msg_iovlen = list.len();
    h
}

/// `recvmsg`; the second value is `msg_flags` as written back.
pub fn recvmsg(fd: Fd, bufs: &mut [&mut [u8]], flags: i32) -> (Ret, i32) {
    let mut list: Vec<_> = bufs.iter_mut().map(|b| iov_mut(b)).collect();
    let mut h = header(&mut list);
    let r = call!(libc::recvmsg(fd, &raw mut h, flags));
    (r, h.msg_flags)
}

pub fn sendmsg(fd: Fd, bufs: &[&[u8]], flags: i32) -> Ret {
    let mut list: Vec<_> = bufs.iter().map(|b| iov(b)).collect();
    let h = header(&mut list);
    call!(libc::sendmsg(fd, &raw const h, flags))
}

/// `recvmmsg` with one buffer per message; returns the count and each message's length.
pub fn recvmmsg(fd: Fd, bufs: &mut [&mut [u8]], flags: i32) -> (Ret, Vec<u32>) {
    let mut list: Vec<_> = bufs.iter_mut().map(|b| iov_mut(b)).collect();
    let mut heads: Vec<_> = list
        .chunks_mut(1)
        .map(|one| libc::mmsghdr {
            msg_hdr: header(one),
            msg_len: 0,
        })
        .collect();
    let count = heads.len() as u32;
    let r = call!(libc::recvmmsg(
        fd,
        heads.as_mut_ptr(),
        count,
        flags,
        ptr::null_mut()
    ));
    let got = usize::try_from(r.0).unwrap_or(0);
    (r, heads.iter().take(got).map(|m| m.msg_len).collect())
}

/// `sendmmsg` with one buffer per message; returns the count and each message's length.
pub fn sendmmsg(fd: Fd, bufs: &[&[u8]], flags: i32) -> (Ret, Vec<u32>) {
    let mut list: Vec<_> = bufs.iter().map(|b| iov(b)).collect();
    let mut heads: Vec<_> = list
        .chunks_mut(1)
        .map(|one| libc::mmsghdr {
            msg_hdr: header(one),
            msg_len: 0,
        })
        .collect();
    let count = heads.len() as u32;
    let r = call!(libc::sendmmsg(fd, heads.as_mut_ptr(), count, flags));
    let sent = usize::try_from(r.0).unwrap_or(0);
    (r, heads.iter().take(sent).map(|m| m.msg_len).collect())
}

/// `sendfile`; the second value is the offset afterwards.
pub fn sendfile(out: Fd, input: Fd, offset: i64, count: usize) -> (Ret, i64) {
    let mut at = offset;
    let r = call!(libc::sendfile(out, input, &raw mut at, count));
    (r, at)
}

pub fn sendfile_null(out: Fd, input: Fd, count: usize) -> Ret {
    call!(libc::sendfile(out, input, ptr::null_mut(), count))
}

pub fn splice(input: Fd, output: Fd, count: usize) -> Ret {
    call!(libc::splice(
        input,
        ptr::null_mut(),
        output,
        ptr::null_mut(),
        count,
        0
    ))
}

/// A memory file with this content, positioned at its start.
pub fn memory_file(content: &[u8]) -> Fd {
    let fd = call!(libc::memfd_create(c"content".as_ptr(), 0)).fd();
    assert_eq!(write(fd, content).ok(), content.len());
    call!(libc::lseek(fd, 0, libc::SEEK_SET)).ok();
    fd
}

/// A page that may be neither read nor written.
pub fn forbidden_page() -> usize {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    call!(libc::mmap(
        ptr::null_mut(),
        4096,
        libc::PROT_NONE,
        flags,
        -1,
        0
    ))
    .ok()
}

/// Reads until `want` bytes came or a call says something else; returns the bytes and that word.
pub fn recv_exact(fd: Fd, want: usize) -> (Vec<u8>, Ret) {
    let mut all = vec![0u8; want];
    let mut got = 0;
    let mut last = Ret(0);
    while got < want {
        last = recv(fd, &mut all[got..], 0);
        if last.0 <= 0 {
            break;
        }
        got += last.ok();
    }
    all.truncate(got);
    (all, last)
}

/// Reads to end of file or error; returns the bytes and the last word.
pub fn recv_to_end(fd: Fd) -> (Vec<u8>, Ret) {
    let mut all = Vec::new();
    let mut buf = vec![0u8; 65536];
    loop {
        let r = recv(fd, &mut buf, 0);
        if r.0 <= 0 {
            return (all, r);
        }
        all.extend_from_slice(&buf[..r.ok()]);
    }
}

/// Sends all of it, or returns the word that stopped it.
pub fn send_all(fd: Fd, mut buf: &[u8]) -> Ret {
    let total = buf.len();
    while !buf.is_empty() {
        let r = send(fd, buf, libc::MSG_NOSIGNAL);
        if r.0 < 0 {
            return r;
        }
        buf = &buf[r.ok()..];
    }
    Ret(total as i64)
}
