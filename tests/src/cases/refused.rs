//! Calls that the kernel refuses, and rare ways into it: none of them costs a stream anything.

use super::Case;
use crate::log;
use crate::side::{Side, text};
use crate::sys::{Fd, Ret, call, io, net, proc, wait};
use std::ptr;

pub(super) const CASES: &[Case] = &[
    Case::pair("refused_dup3", |s| refused(s, |fd| net::dup3(0, fd, 1))),
    Case::pair("refused_dup2_beyond_limit", dup2_beyond_limit).processes_only(),
    Case::pair("refused_close_range", |s| {
        refused(s, |fd| {
            call!(libc::syscall(libc::SYS_close_range, fd, fd, 8))
        })
    }),
    Case::pair("refused_sendfile_offset", |s| {
        refused(s, |fd| {
            let file = io::memory_file(b"content");
            let nowhere = ptr::without_provenance_mut(8);
            call!(libc::sendfile(fd, file, nowhere, 4))
        })
    }),
    Case::pair("refused_recvmsg_name", |s| refused(s, recvmsg_without_name)),
    Case::pair("rare_rwf_noappend", |s| by_flag(s, libc::RWF_NOAPPEND)),
    Case::pair("rare_rwf_nosignal", |s| by_flag(s, 0x100)),
    Case::pair("rare_sendfile_to_pipe", sendfile_to_pipe),
    Case::pair("rare_sendfile_of_device", sendfile_of_device)
        .any_path("the kernel knows what a device has"),
    Case::pair("rare_raw_waits", raw_waits),
];

/// What is there can be read after the call, and what is sent arrives.
fn refused(s: &Side, by: impl Fn(Fd) -> Ret) {
    let fd = s.pair();
    io::send_all(fd, b"hello").ok();
    wait::wait_queued(fd, 5);
    log!(s, "{}", by(fd));
    log!(s, "{}", text(&io::recv_exact(fd, 5).0));
    io::send_all(fd, b"world").ok();
    log!(s, "{}", text(&io::recv_exact(fd, 5).0));
    s.sync("done");
}

/// The number is one that the program could not have any more.
fn dup2_beyond_limit(s: &Side) {
    refused(s, |fd| {
        let before = proc::limit(libc::RLIMIT_NOFILE, 2);
        let r = net::dup2(0, fd);
        proc::limit(libc::RLIMIT_NOFILE, before);
        r
    });
}

fn recvmsg_without_name(fd: Fd) -> Ret {
    let (mut name, mut byte) = ([0u8; 16], [0u8; 1]);
    let mut part = io::iov_mut(&mut byte);
    // SAFETY: a header of zeros is one.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_name = name.as_mut_ptr().cast();
    header.msg_namelen = u32::MAX;
    (header.msg_iov, header.msg_iovlen) = (&raw mut part, 1);
    call!(libc::recvmsg(fd, &raw mut header, 0))
}

/// Reads and writes by preadv2 and pwritev2 with this flag, if the kernel knows it.
fn by_flag(s: &Side, flag: i32) {
    let fd = s.pair();
    let read = |fd: Fd, flag: i32| {
        let mut bytes = [b'.'; 5];
        let part = io::iov_mut(&mut bytes);
        let r = call!(libc::preadv2(fd, &raw const part, 1, -1, flag));
        (r, text(&bytes))
    };
    let write = |fd: Fd, flag: i32| {
        let part = io::iov(b"hello");
        call!(libc::pwritev2(fd, &raw const part, 1, -1, flag))
    };
    let (from, to) = net::pipe();
    let flag = if write(to, flag).0 == 5 && read(from, flag).0.0 == 5 {
        flag
    } else {
        0
    };
    log!(s, "{}", write(fd, flag));
    wait::wait_queued(fd, 5);
    log!(s, "{:?}", read(fd, flag));
    s.sync("done");
}

fn sendfile_to_pipe(s: &Side) {
    let fd = s.pair();
    let (from, to) = net::pipe();
    io::send_all(fd, b"hello").ok();
    wait::wait_queued(fd, 5);
    log!(s, "{}", io::sendfile_null(to, fd, 4));
    log!(s, "{}", text(&io::recv_exact(fd, 1).0));
    let mut bytes = [b'.'; 4];
    log!(s, "{} {}", io::read(from, &mut bytes), text(&bytes));
    log!(
        s,
        "{}",
        call!(libc::syscall(libc::SYS_sendfile, to, fd, 0, 0))
    );
    s.sync("done");
}

fn sendfile_of_device(s: &Side) {
    let fd = s.pair();
    let zeros = call!(libc::open(c"/dev/zero".as_ptr(), libc::O_RDONLY)).fd();
    log!(s, "{}", io::sendfile_null(fd, zeros, 5));
    io::send_all(fd, b"world").ok();
    log!(s, "{:?}", io::recv_exact(fd, 10).0);
    s.sync("done");
}

/// Waits by syscall(2), on what has come.
fn raw_waits(s: &Side) {
    let fd = s.pair();
    let set = call!(libc::syscall(libc::SYS_epoll_create1, 0)).fd();
    let mut event = libc::epoll_event {
        events: libc::EPOLLIN as u32,
        u64: 7,
    };
    let add = libc::EPOLL_CTL_ADD;
    log!(
        s,
        "{}",
        call!(libc::epoll_ctl(set, add, fd, &raw mut event))
    );
    io::send_all(fd, b"hello").ok();
    wait::wait_queued(fd, 5);
    let time = libc::timespec {
        tv_sec: 2,
        tv_nsec: 0,
    };
    let mut one = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let none = ptr::null::<libc::sigset_t>();
    let (one, at) = (&raw mut one, &raw const time);
    log!(
        s,
        "{}",
        call!(libc::syscall(libc::SYS_ppoll, one, 1, at, none, 8))
    );
    // SAFETY: an empty set is all zeros.
    let mut read: libc::fd_set = unsafe { std::mem::zeroed() };
    // SAFETY: the number is a small one.
    unsafe { libc::FD_SET(fd, &raw mut read) };
    let (read, no) = (&raw mut read, ptr::null_mut::<libc::fd_set>());
    let r = call!(libc::syscall(
        libc::SYS_pselect6,
        fd + 1,
        read,
        no,
        no,
        at,
        none
    ));
    log!(s, "{r}");
    let mut out = event;
    let out = &raw mut out;
    let r = call!(libc::syscall(
        libc::SYS_epoll_pwait2,
        set,
        out,
        1,
        at,
        none,
        8
    ));
    log!(s, "{r}");
    let r = call!(libc::syscall(libc::SYS_epoll_wait, set, out, 1, 2000));
    log!(s, "{r}");
    s.sync("done");
}
