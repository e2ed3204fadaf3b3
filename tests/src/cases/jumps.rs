//! Jumps out of handlers that have interrupted a blocked call. What the call had begun is left behind
//! each time; nothing of it may show afterwards.

use super::Case;
use crate::log;
use crate::side::{Random, Side, drain_to, fill_up};
use crate::sys::jump::{Target, Timer, back, jumped};
use crate::sys::{Fd, Ret, call, io, net, proc, wait};
use libc::SIGUSR2;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

pub(super) const CASES: &[Case] = &[
    Case::pair("jump_out_of_recv", |s| reader(s, 0, in_recv)),
    Case::pair("jump_out_of_recv_own_stack", |s| {
        own_stack();
        reader(s, libc::SA_ONSTACK, in_recv);
    }),
    Case::pair("jump_out_of_poll", |s| reader(s, 0, wait::poll_one)),
    Case::pair("jump_out_of_select", |s| reader(s, 0, wait::select_one)),
    Case::pair("jump_out_of_epoll", |s| reader(s, 0, wait::epoll_one)),
    Case::pair("jump_out_of_send", jump_out_of_send),
    Case::pair("jump_out_of_accept", jump_out_of_accept),
    Case::pair("jump_then_close_deeper", jump_then_close_deeper),
];

static TARGET: Target = Target::new();
static ARMED: AtomicBool = AtomicBool::new(false);

extern "C" fn leap(_: i32) {
    if ARMED.swap(false, SeqCst) {
        // SAFETY: armed inside the body only.
        unsafe { back(&TARGET) }
    }
}

const JUMPS: usize = 1000;

/// Has the call left by a jump, many times. It has nothing to wait for.
fn leave_often(flags: i32, fd: Fd, call: fn(Fd) -> Ret) -> usize {
    extern "C" fn detailed(signal: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
        leap(signal);
    }
    proc::detailed(SIGUSR2, detailed, flags);
    let timer = Timer::new(SIGUSR2);
    let mut random = Random::new(21);
    let mut left = 0;
    for _ in 0..JUMPS {
        let after = 1 + random.below(150) as i64;
        left += usize::from(jumped(&TARGET, &mut || {
            ARMED.store(true, SeqCst);
            timer.once(after);
            call(fd);
            ARMED.store(false, SeqCst);
        }));
    }
    timer.stop();
    proc::ignore(SIGUSR2);
    left
}

fn own_stack() {
    let stack = Box::leak(vec![0u8; 1 << 16].into_boxed_slice());
    let given = libc::stack_t {
        ss_sp: stack.as_mut_ptr().cast(),
        ss_flags: 0,
        ss_size: stack.len(),
    };
    call!(libc::sigaltstack(&raw const given, std::ptr::null_mut())).ok();
}

fn in_recv(fd: Fd) -> Ret {
    io::recv(fd, &mut [0; 8], 0)
}

/// The socket afterwards: messages to and fro, bulk both ways, its end.
fn all_is_well(s: &Side, fd: Fd) {
    s.sync("left");
    let big = Random::new(22).bytes(3 << 20);
    for _ in 0..200 {
        if s.a() {
            io::send_all(fd, &[1; 64]).ok();
        }
        assert_eq!(io::recv_exact(fd, 64).0.len(), 64);
        if !s.a() {
            io::send_all(fd, &[1; 64]).ok();
        }
    }
    for turn in [true, false] {
        if turn == s.a() {
            log!(s, "{}", io::send_all(fd, &big));
        } else {
            log!(s, "{}", io::recv_exact(fd, big.len()).0 == big);
        }
    }
    s.sync("bulk");
    if s.a() {
        net::close(fd).ok();
    } else {
        log!(s, "end {}", io::recv(fd, &mut [0; 1], 0));
    }
}

fn reader(s: &Side, flags: i32, call: fn(Fd) -> Ret) {
    let fd = s.pair();
    if s.a() {
        log!(s, "left {}", leave_often(flags, fd, call) == JUMPS);
    }
    all_is_well(s, fd);
    s.sync("done");
}

fn in_send(fd: Fd) -> Ret {
    // (so much that what a kernel finds room for late, a probe's worth, is full again after a few)
    io::send(fd, &[3; 4000], libc::MSG_NOSIGNAL)
}

fn jump_out_of_send(s: &Side) {
    let fd = s.pair();
    if s.a() {
        fill_up(fd);
        // (now and then there is room after all)
        log!(s, "left {}", leave_often(0, fd, in_send) > JUMPS / 2);
        s.tell(1);
        io::send_all(fd, &[0xff]).ok();
    } else {
        s.hear();
        drain_to(fd, 0xff);
    }
    all_is_well(s, fd);
    s.sync("done");
}

fn jump_out_of_accept(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let (lis, at) = net::listener(net::loopback(), 4);
        log!(s, "left {}", leave_often(0, lis, net::accept) == JUMPS);
        s.tell(u64::from(at.port()));
        let own = net::accept(lis).fd();
        all_is_well(s, own);
    } else {
        let own = s.connect();
        all_is_well(s, own);
    }
    net::close(fd).ok();
    s.sync("done");
}

#[inline(never)]
fn close_deeper(fd: Fd) -> u8 {
    let room = std::hint::black_box([0u8; 20_000]);
    net::close(fd).ok();
    room[7]
}

/// A close from further down the stack than the call that was left.
fn jump_then_close_deeper(s: &Side) {
    let fd = s.pair();
    if s.a() {
        log!(s, "left {}", leave_often(0, fd, in_recv) == JUMPS);
        close_deeper(fd);
    } else {
        log!(s, "end {}", io::recv(fd, &mut [0; 1], 0));
    }
    s.sync("done");
}
