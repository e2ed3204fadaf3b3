//! Calls that are rarely used on streams, and what is asked for beside their bytes; for the cases of `asides`.

use super::{Fd, Ret, call, io, net};
use std::ffi::c_void;
use std::net::SocketAddr;
use std::ptr;

/// linux/tcp.h.
pub const TCP_INQ: i32 = 36;

/// A connection whose peer has ended its direction ([`tcp_state`]).
pub const CLOSE_WAIT: u8 = 8;

/// The connection's state, the first octet of TCP_INFO.
pub fn tcp_state(fd: Fd) -> u8 {
    let mut info = [0u8; 104];
    let mut len = info.len() as u32;
    call!(libc::getsockopt(
        fd,
        libc::IPPROTO_TCP,
        libc::TCP_INFO,
        info.as_mut_ptr().cast(),
        &raw mut len
    ))
    .ok();
    info[0]
}

/// Ends a connection by connecting it to nothing.
pub fn disconnect(fd: Fd) -> Ret {
    let nowhere = [0u8; 16];
    call!(libc::connect(fd, nowhere.as_ptr().cast(), 16))
}

/// recvmsg with room for control data: how many octets came, the flags, and of each control message its level, type,
/// length, and its first word if it is TCP_INQ's.
pub fn recv_with_control(fd: Fd, len: usize, room: usize) -> String {
    #[repr(align(8))]
    struct Control([u8; 64]);
    let mut control = Control([0xEE; 64]);
    let mut bytes = vec![0; len];
    let mut list = io::iov_mut(&mut bytes);
    // SAFETY: all zeroes is a valid msghdr.
    let mut h: libc::msghdr = unsafe { std::mem::zeroed() };
    h.msg_iov = &raw mut list;
    h.msg_iovlen = 1;
    h.msg_control = control.0.as_mut_ptr().cast();
    h.msg_controllen = room;
    let r = call!(libc::recvmsg(fd, &raw mut h, 0));
    let word = |at: usize| i32::from_ne_bytes(control.0[at..at + 4].try_into().expect("four"));
    if h.msg_controllen == 0 {
        return format!("{r} {:#x} none", h.msg_flags);
    }
    let (level, kind) = (word(8), word(12));
    let value = if kind == TCP_INQ { word(16) } else { 0 };
    format!(
        "{r} {:#x} {level}/{kind} {value} in {} {}",
        h.msg_flags,
        word(0),
        h.msg_controllen
    )
}

/// TCP_ZEROCOPY_RECEIVE (linux/tcp.h) for one page: what it says, how much was mapped, and how much is to be read instead.
pub fn ask_for_pages(fd: Fd) -> String {
    const TCP_ZEROCOPY_RECEIVE: i32 = 35;
    const PAGE: usize = 4096;
    // SAFETY: a new mapping.
    let place = unsafe {
        let (prot, flags) = (libc::PROT_READ, libc::MAP_SHARED);
        libc::mmap(ptr::null_mut(), PAGE, prot, flags, fd, 0)
    };
    if place == libc::MAP_FAILED {
        return "not mapped".into();
    }
    // address, length, and what is left to be read
    let mut ask = [0u32; 4];
    ask[0] = place.addr() as u32;
    ask[1] = (place.addr() >> 32) as u32;
    ask[2] = PAGE as u32;
    let mut len = size_of_val(&ask) as u32;
    let (level, at) = (libc::IPPROTO_TCP, ask.as_mut_ptr().cast());
    let r = call!(libc::getsockopt(
        fd,
        level,
        TCP_ZEROCOPY_RECEIVE,
        at,
        &raw mut len
    ));
    // SAFETY: mapped above, and nobody looks there.
    unsafe { libc::munmap(place, PAGE) };
    format!("{r} {} {}", ask[2], ask[3])
}

pub fn preadv2(fd: Fd, room: &mut [u8], flags: i32) -> Ret {
    let list = io::iov_mut(room);
    call!(libc::preadv2(fd, &raw const list, 1, -1, flags))
}

pub fn pwritev2(fd: Fd, bytes: &[u8], flags: i32) -> Ret {
    let list = io::iov(bytes);
    call!(libc::pwritev2(fd, &raw const list, 1, -1, flags))
}

/// Eight octets before a page that cannot be touched: where they are, and a look at them.
pub fn before_forbidden() -> (usize, impl Fn() -> String) {
    let none = libc::PROT_NONE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let at = call!(libc::mmap(ptr::null_mut(), 8192, none, flags, -1, 0)).ok();
    let both = libc::PROT_READ | libc::PROT_WRITE;
    call!(libc::mprotect(at as *mut c_void, 4096, both)).ok();
    let at = at + 4096 - 8;
    let look = move || {
        // SAFETY: mapped above, and never unmapped.
        let bytes = unsafe { std::slice::from_raw_parts(at as *const u8, 8) };
        format!("{bytes:?}")
    };
    (at, look)
}

/// Makes a connection in a thread whose stack has 16 KiB in all.
pub fn connect_on_a_small_stack(to: SocketAddr) -> Fd {
    struct Task {
        name: net::RawAddr,
        fd: Fd,
    }
    extern "C" fn run(task: *mut c_void) -> *mut c_void {
        // SAFETY: the task of whoever waits for this thread; nothing here needs much of a stack but the call.
        unsafe {
            let task = &*task.cast::<Task>();
            libc::connect(task.fd, task.name.ptr(), task.name.len);
        }
        ptr::null_mut()
    }
    let mut task = Task {
        name: net::RawAddr::new(to),
        fd: net::socket_for(to, 0),
    };
    // SAFETY: the attributes are made here, and the thread is waited for.
    unsafe {
        let mut attributes = std::mem::zeroed();
        assert_eq!(libc::pthread_attr_init(&raw mut attributes), 0);
        assert_eq!(
            libc::pthread_attr_setstacksize(&raw mut attributes, 16384),
            0
        );
        let mut thread = 0;
        let argument = (&raw mut task).cast();
        assert_eq!(
            libc::pthread_create(&raw mut thread, &raw const attributes, run, argument),
            0
        );
        libc::pthread_join(thread, ptr::null_mut());
    }
    task.fd
}
