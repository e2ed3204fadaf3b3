//! The memory of large messages: files, stacks, what cannot be written, what is not there. Where kernel TCP
//! says EFAULT nobody dies.

use super::Case;
use super::zcopy::{Bytes, Room, Waiter, Way, send_and_spoil};
use super::zcopy_read::introduce;
use crate::log;
use crate::side::{Random, Side};
use crate::sys::{Fd, call, io, net, wait};
use libc::{
    MAP_ANONYMOUS, MAP_PRIVATE, MAP_SHARED, MSG_NOSIGNAL, MSG_WAITALL, PROT_READ, PROT_WRITE,
};

pub(super) const CASES: &[Case] = &[
    Case::pair("zcopy_of_constants", of_constants).large(1),
    Case::pair("zcopy_of_stacks", of_stacks).large(1),
    Case::pair("zcopy_of_files", of_files).large(1),
    Case::pair("zcopy_into_files", into_files).large(1),
    Case::pair("zcopy_of_untouched_pages", of_untouched_pages).large(1),
    Case::pair("zcopy_bad_send", bad_send).large(0),
    Case::pair("zcopy_bad_receive", bad_receive).large(0),
    Case::pair("zcopy_file_cut_before", |s| file_cut(s, false)).large(0),
    Case::pair("zcopy_file_cut_after_use", |s| file_cut(s, true)).large(0),
    Case::pair("zcopy_unmapped_after_use", unmapped_after_use).large(0),
    Case::pair("zcopy_buffer_gone_afterwards", buffer_gone).large(1),
];

const SIZE: usize = 400_000;
static CONSTANT: [u8; SIZE] = {
    let mut all = [0; SIZE];
    let mut i = 0;
    while i < SIZE {
        all[i] = (i % 253) as u8;
        i += 1;
    }
    all
};

/// Memory that nobody may write.
fn of_constants(s: &Side) {
    let fd = s.pair();
    introduce(s, fd);
    for _ in 0..10 {
        if s.a() {
            log!(s, "{}", io::send_all(fd, &CONSTANT));
        } else {
            let mut buf = vec![0; SIZE];
            log!(s, "{}", io::recv(fd, &mut buf, MSG_WAITALL));
            assert!(buf == CONSTANT);
        }
    }
    s.sync("done");
}

#[inline(never)]
fn send_from_stack(fd: Fd, bytes: &mut Bytes) -> usize {
    let mut buf = [0u8; SIZE];
    bytes.fill(&mut buf);
    io::send_all(fd, std::hint::black_box(&buf)).ok()
}

#[inline(never)]
fn receive_on_stack(fd: Fd, bytes: &mut Bytes) -> usize {
    let mut buf = [0u8; SIZE];
    let n = io::recv(fd, &mut buf, MSG_WAITALL).ok();
    bytes.check(&buf[..n]);
    n
}

fn of_stacks(s: &Side) {
    let fd = s.pair();
    introduce(s, fd);
    let mut bytes = Bytes::new(150);
    for _ in 0..10 {
        if s.a() {
            log!(s, "{}", send_from_stack(fd, &mut bytes));
        } else {
            log!(s, "{}", receive_on_stack(fd, &mut bytes));
        }
    }
    s.sync("done");
}

fn map(fd: Fd, len: usize, flags: i32) -> usize {
    let none = std::ptr::null_mut();
    let rights = PROT_READ | PROT_WRITE;
    call!(libc::mmap(none, len, rights, flags, fd, 0)).ok()
}

fn unmap(at: usize, len: usize) {
    call!(libc::munmap(at as *mut libc::c_void, len)).ok();
}

/// A file mapped with room for so much.
fn mapped_file(len: usize) -> (Fd, usize) {
    let fd = call!(libc::memfd_create(c"buffer".as_ptr(), 0)).fd();
    call!(libc::ftruncate(fd, len as i64)).ok();
    (fd, map(fd, len, MAP_SHARED))
}

/// The memory of a mapping.
fn slice(at: usize, len: usize) -> &'static mut [u8] {
    // SAFETY: mapped by the case, which makes one of these at a time.
    unsafe { std::slice::from_raw_parts_mut(at as *mut u8, len) }
}

fn of_files(s: &Side) {
    let fd = s.pair();
    introduce(s, fd);
    let mut bytes = Bytes::new(151);
    if s.a() {
        let (_file, at) = mapped_file(SIZE);
        let waiter = Waiter::new(fd, Way::Block, 0);
        for _ in 0..10 {
            send_and_spoil(waiter, &mut bytes, slice(at, SIZE));
        }
    } else {
        for _ in 0..10 {
            let (got, last) = io::recv_exact(fd, SIZE);
            assert_eq!(got.len(), SIZE, "{last}");
            bytes.check(&got);
        }
    }
    log!(s, "{}", bytes.at);
    s.sync("done");
}

fn into_files(s: &Side) {
    let fd = s.pair();
    introduce(s, fd);
    let mut bytes = Bytes::new(152);
    if s.a() {
        let waiter = Waiter::new(fd, Way::Block, 0);
        let mut room = Room::new(1, SIZE);
        for _ in 0..10 {
            send_and_spoil(waiter, &mut bytes, room.part(SIZE));
        }
    } else {
        let (file, at) = mapped_file(SIZE);
        for _ in 0..10 {
            log!(s, "{}", io::recv(fd, slice(at, SIZE), MSG_WAITALL));
            let mut read = vec![0; SIZE];
            let to = read.as_mut_ptr().cast();
            assert_eq!(call!(libc::pread(file, to, SIZE, 0)).ok(), SIZE);
            bytes.check(&read);
        }
    }
    s.sync("done");
}

/// Fresh memory at both ends, that no page was ever given for: it reads as zeros.
fn of_untouched_pages(s: &Side) {
    let fd = s.pair();
    introduce(s, fd);
    let len = 100 * 4096;
    for _ in 0..10 {
        let at = map(-1, len, MAP_PRIVATE | MAP_ANONYMOUS);
        if s.a() {
            log!(s, "{}", io::send_all(fd, slice(at, len)));
        } else {
            log!(s, "{}", io::recv(fd, slice(at, len), MSG_WAITALL));
            assert!(slice(at, len).iter().all(|b| *b == 0));
        }
        unmap(at, len);
    }
    s.sync("done");
}

fn bad_send(s: &Side) {
    let fd = s.pair();
    introduce(s, fd);
    if s.a() {
        let page = io::forbidden_page();
        for at in [0, 8, 4096, page, usize::MAX - 200_000] {
            log!(s, "{}", io::raw::send(fd, at, 100_000, MSG_NOSIGNAL));
            log!(s, "{}", io::raw::write(fd, at, 100_000));
        }
        let good = [7u8; 100];
        let list = [io::iov_at(page, 100_000), io::iov(&good)];
        log!(s, "{}", io::raw::writev(fd, &list, 2));
        log!(s, "{}", io::send_all(fd, &[9; 50_000]));
    } else {
        let (got, _) = io::recv_exact(fd, 50_000);
        log!(s, "{} {}", got.iter().all(|b| *b == 9), got.len());
    }
    s.sync("done");
}

/// Memory that cannot be written to: nothing is taken.
fn bad_receive(s: &Side) {
    let fd = s.pair();
    introduce(s, fd);
    let mut bytes = Bytes::new(153);
    let size = 60_000;
    if s.a() {
        let waiter = Waiter::new(fd, Way::Block, 0);
        send_and_spoil(waiter, &mut bytes, Room::new(1, size).part(size));
    } else {
        let page = io::forbidden_page();
        wait::wait_for(fd, libc::POLLIN);
        for at in [8, page, CONSTANT.as_ptr().addr() + 5000] {
            log!(s, "{}", io::raw::recv(fd, at, 100_000, 0));
            log!(s, "{}", io::raw::recv(fd, at, 100_000, libc::MSG_DONTWAIT));
            log!(s, "{}", io::raw::read(fd, at, 100_000));
        }
        let (got, last) = io::recv_exact(fd, size);
        // (in how many parts they come is nobody's promise)
        log!(s, "{} {}", got.len(), last.0 > 0);
        bytes.check(&got);
    }
    s.sync("done");
}

/// A buffer in a file that has become shorter.
fn file_cut(s: &Side, used: bool) {
    let fd = s.pair();
    introduce(s, fd);
    if s.a() {
        let (file, at) = mapped_file(SIZE);
        if used {
            slice(at, SIZE).fill(3);
            log!(s, "{}", io::send_all(fd, slice(at, SIZE)));
        }
        call!(libc::ftruncate(file, 0)).ok();
        log!(s, "{}", io::raw::send(fd, at, SIZE, MSG_NOSIGNAL));
        log!(s, "{}", io::raw::write(fd, at + 100, 50_000));
        io::send_all(fd, &[4]).ok();
    } else {
        let want = if used { SIZE + 1 } else { 1 };
        let (got, last) = io::recv_exact(fd, want);
        let whole = last.0 > 0 && got.len() == want;
        log!(s, "{whole} {}", got[got.len() - 1]);
    }
    s.sync("done");
}

/// Memory that was good once and is no more.
fn unmapped_after_use(s: &Side) {
    let fd = s.pair();
    introduce(s, fd);
    let len = 100 * 4096;
    if s.a() {
        let at = map(-1, len, MAP_PRIVATE | MAP_ANONYMOUS);
        slice(at, len).fill(3);
        log!(s, "{}", io::send_all(fd, slice(at, len)));
        unmap(at, len);
        log!(s, "{}", io::raw::send(fd, at, len, MSG_NOSIGNAL));
        io::send_all(fd, &[4]).ok();
    } else {
        let at = map(-1, len + 1, MAP_PRIVATE | MAP_ANONYMOUS);
        log!(s, "{}", io::recv(fd, slice(at, len + 1), MSG_WAITALL));
        log!(s, "{}", slice(at, len + 1)[len]);
        unmap(at, len + 1);
        log!(s, "{}", io::raw::recv(fd, at, len, libc::MSG_DONTWAIT));
    }
    s.sync("done");
}

/// Buffers are unmapped as soon as the call is back, and others lie there.
fn buffer_gone(s: &Side) {
    let fd = s.pair();
    introduce(s, fd);
    let mut random = Random::new(154);
    let mut bytes = Bytes::new(155);
    for _ in 0..60 {
        let len = 1 + random.below(900_000);
        let at = map(-1, len, MAP_PRIVATE | MAP_ANONYMOUS);
        if s.a() {
            bytes.fill(slice(at, len));
            let mut sent = 0;
            while sent < len {
                sent += io::send(fd, &slice(at, len)[sent..], 0).ok();
            }
        } else {
            assert_eq!(io::recv(fd, slice(at, len), MSG_WAITALL).ok(), len);
            bytes.check(slice(at, len));
        }
        unmap(at, len);
    }
    log!(s, "{}", bytes.at);
    net::close(fd).ok();
    s.sync("done");
}
