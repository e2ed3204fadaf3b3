//! Handlers at work: on what they interrupted, nested, on a stack of their own; what they are told, and
//! what is held back meanwhile.

use super::Case;
use super::storms::insist;
use crate::log;
use crate::side::{Random, Side};
use crate::sys::jump::Timer;
use crate::sys::{call, io, net, proc, wait};
use libc::{SA_NODEFER, SA_ONSTACK, SA_RESTART, SA_SIGINFO, SIGUSR1, SIGUSR2};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst};

pub(super) const CASES: &[Case] = &[
    Case::pair("handler_reads_interrupted_socket", handler_reads),
    Case::pair("handler_writes_interrupted_socket", handler_writes),
    Case::pair("handler_nests", handler_nests).processes_only(),
    Case::pair("handler_on_its_stack", handler_on_its_stack).processes_only(),
    Case::pair("handler_details_queued", handler_details_queued).processes_only(),
    Case::pair("handler_masks", handler_masks).processes_only(),
];

static HANDLER_FD: AtomicI32 = AtomicI32::new(-1);

static TAKEN: AtomicU64 = AtomicU64::new(0);

static SUM: AtomicU64 = AtomicU64::new(0);

static WRONG: AtomicI32 = AtomicI32::new(0);

static RUNS: AtomicU32 = AtomicU32::new(0);

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().map(|b| u64::from(*b)).sum()
}

const BULK: usize = 6 << 20;

/// errno as it is now, put back when dropped: what it interrupted may be about to look at it.
struct Errno(i32);

impl Errno {
    fn keep() -> Self {
        // SAFETY: libc's errno location is always valid for this thread.
        Self(unsafe { *libc::__errno_location() })
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

extern "C" fn read_some(_: i32) {
    let _errno = Errno::keep();
    let mut buf = [0u8; 512];
    let r = io::recv(HANDLER_FD.load(SeqCst), &mut buf, libc::MSG_DONTWAIT);
    if r.0 > 0 {
        TAKEN.fetch_add(r.0 as u64, SeqCst);
        SUM.fetch_add(sum(&buf[..r.ok()]), SeqCst);
    } else if r.0 < 0 && !r.is(libc::EAGAIN) {
        WRONG.store(r.0 as i32, SeqCst);
    }
    RUNS.fetch_add(1, SeqCst);
}

/// A handler takes bytes out of the stream that the interrupted recv is reading: each is read once.
fn handler_reads(s: &Side) {
    let fd = s.pair();
    let big = Random::new(11).bytes(BULK);
    if s.a() {
        io::send_all(fd, &big).ok();
    } else {
        HANDLER_FD.store(fd, SeqCst);
        proc::handle(SIGUSR2, read_some, false);
        let timer = Timer::new(SIGUSR2);
        timer.every(150);
        let mut buf = vec![0u8; 9000];
        let (mut got, mut total, mut odd) = (0u64, 0u64, String::new());
        while got + TAKEN.load(SeqCst) < BULK as u64 {
            let r = io::recv(fd, &mut buf, 0);
            if r.0 > 0 {
                got += r.0 as u64;
                total += sum(&buf[..r.ok()]);
            } else if !r.is(libc::EINTR) {
                odd = r.to_string();
                break;
            }
        }
        timer.stop();
        log!(
            s,
            "count {} sum {} odd {odd} wrong {} ran {}",
            got + TAKEN.load(SeqCst) == BULK as u64,
            total + SUM.load(SeqCst) == sum(&big),
            WRONG.load(SeqCst),
            RUNS.load(SeqCst) > 0
        );
    }
    s.sync("done");
}

extern "C" fn write_mark(_: i32) {
    let _errno = Errno::keep();
    // Blocks like any other send: nothing but success will do.
    let r = io::send(HANDLER_FD.load(SeqCst), &[0xee], 0);
    if r.0 == 1 {
        TAKEN.fetch_add(1, SeqCst);
    } else {
        WRONG.store(r.0 as i32, SeqCst);
    }
}

/// A handler sends on the socket whose send, or whatever else, it interrupts.
fn handler_writes(s: &Side) {
    let fd = s.pair();
    if s.a() {
        HANDLER_FD.store(fd, SeqCst);
        proc::handle(SIGUSR2, write_mark, true);
        let timer = Timer::new(SIGUSR2);
        timer.every(150);
        let sent = io::send_all(fd, &vec![0x11; BULK]);
        timer.stop();
        wait::eventually(|| TAKEN.load(SeqCst) > 0);
        log!(s, "{} wrong {}", sent.0 == BULK as i64, WRONG.load(SeqCst));
        net::shutdown(fd, libc::SHUT_WR).ok();
        s.tell(TAKEN.load(SeqCst));
    } else {
        let (got, last) = io::recv_to_end(fd);
        let marks = got.iter().filter(|b| **b == 0xee).count();
        let fill = got.iter().filter(|b| **b == 0x11).count();
        let told = s.hear();
        log!(
            s,
            "{last} {} {}",
            marks as u64 == told,
            fill == BULK && fill + marks == got.len()
        );
    }
    s.sync("done");
}

static DEPTH: AtomicI32 = AtomicI32::new(0);

static DEEPEST: AtomicI32 = AtomicI32::new(0);

extern "C" fn nest(signal: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let depth = DEPTH.fetch_add(1, SeqCst) + 1;
    DEEPEST.fetch_max(depth, SeqCst);
    io::send(HANDLER_FD.load(SeqCst), &[depth as u8], 0);
    // SAFETY: the kernel's details; a signal to oneself.
    unsafe {
        if RUNS.fetch_add(1, SeqCst) % 4 < 3 && (*info).si_signo == signal {
            libc::raise(signal);
        }
    }
    DEPTH.fetch_sub(1, SeqCst);
}

/// SA_NODEFER: a handler interrupts itself, each time with a send; without it, it does not.
fn handler_nests(s: &Side) {
    let fd = s.pair();
    if s.a() {
        HANDLER_FD.store(fd, SeqCst);
        proc::detailed(SIGUSR2, nest, SA_SIGINFO | SA_NODEFER | SA_RESTART);
        call!(libc::raise(SIGUSR2)).ok();
        log!(s, "deepest {}", DEEPEST.swap(0, SeqCst));
        proc::detailed(SIGUSR2, nest, SA_SIGINFO | SA_RESTART);
        call!(libc::raise(SIGUSR2)).ok();
        log!(s, "deepest {}", DEEPEST.load(SeqCst));
    } else {
        log!(s, "{:?}", io::recv_exact(fd, 8).0);
    }
    s.sync("done");
}

static LOW: AtomicUsize = AtomicUsize::new(0);

static HIGH: AtomicUsize = AtomicUsize::new(0);

static OFF_STACK: AtomicU32 = AtomicU32::new(0);

extern "C" fn where_am_i(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    let here = 0u8;
    let at = (&raw const here).addr();
    if at < LOW.load(SeqCst) || at >= HIGH.load(SeqCst) {
        OFF_STACK.fetch_add(1, SeqCst);
    }
    RUNS.fetch_add(1, SeqCst);
    io::recv(
        HANDLER_FD.load(SeqCst),
        &mut [0; 1],
        libc::MSG_DONTWAIT | libc::MSG_PEEK,
    );
}

/// SA_ONSTACK: on the stack that was given, whatever is interrupted.
fn handler_on_its_stack(s: &Side) {
    let fd = s.pair();
    let big = Random::new(14).bytes(BULK);
    if s.a() {
        io::send_all(fd, &big).ok();
    } else {
        let stack = Box::leak(vec![0u8; 1 << 16].into_boxed_slice());
        LOW.store(stack.as_ptr().addr(), SeqCst);
        HIGH.store(stack.as_ptr().addr() + stack.len(), SeqCst);
        HANDLER_FD.store(fd, SeqCst);
        let given = libc::stack_t {
            ss_sp: stack.as_mut_ptr().cast(),
            ss_flags: 0,
            ss_size: stack.len(),
        };
        call!(libc::sigaltstack(&raw const given, std::ptr::null_mut())).ok();
        proc::detailed(SIGUSR2, where_am_i, SA_SIGINFO | SA_ONSTACK | SA_RESTART);
        let timer = Timer::new(SIGUSR2);
        timer.every(120);
        let (got, _) = io::recv_exact(fd, BULK);
        let ran = wait::eventually(|| RUNS.load(SeqCst) > 0);
        timer.stop();
        log!(
            s,
            "{} ran {ran} elsewhere {}",
            got == big,
            OFF_STACK.load(SeqCst)
        );
    }
    s.sync("done");
}

const QUEUED: i32 = 400;

static NEXT: AtomicI32 = AtomicI32::new(0);

extern "C" fn details(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel's details of a queued signal.
    let (code, pid, uid, value) = unsafe {
        (
            (*info).si_code,
            (*info).si_pid(),
            (*info).si_uid(),
            (*info).si_value().sival_ptr.addr() as i32,
        )
    };
    // SAFETY: always allowed.
    let own = unsafe { libc::getuid() };
    let right = code == libc::SI_QUEUE && pid == std::process::id() as i32 && uid == own;
    if !right {
        WRONG.store(1 + code, SeqCst);
    }
    if NEXT.fetch_add(1, SeqCst) != value {
        WRONG.store(1000 + value, SeqCst);
    }
}

/// Queued signals under load: each once, in order, with who sent it and the value.
fn handler_details_queued(s: &Side) {
    let fd = s.pair();
    let big = Random::new(15).bytes(4 * BULK);
    if s.a() {
        io::send_all(fd, &big).ok();
    } else {
        let signal = libc::SIGRTMIN() + 3;
        proc::detailed(signal, details, SA_SIGINFO | SA_RESTART);
        // Sent by a thread that does not take them itself.
        let sender = std::thread::spawn(move || {
            proc::block(&[signal]);
            for n in 0..QUEUED {
                let value = libc::sigval {
                    sival_ptr: std::ptr::without_provenance_mut(n as usize),
                };
                call!(libc::sigqueue(std::process::id() as i32, signal, value)).ok();
                std::thread::sleep(std::time::Duration::from_micros(20));
            }
        });
        let (got, _) = io::recv_exact(fd, big.len());
        sender.join().unwrap();
        wait::eventually(|| NEXT.load(SeqCst) == QUEUED);
        log!(
            s,
            "{} came {} wrong {}",
            got == big,
            NEXT.load(SeqCst),
            WRONG.load(SeqCst)
        );
    }
    s.sync("done");
}

static MASKS: AtomicU64 = AtomicU64::new(0);

extern "C" fn note_mask(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: all-zero is a set; null asks for nothing.
    unsafe {
        let mut now: libc::sigset_t = std::mem::zeroed();
        libc::sigprocmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut now);
        let now = (&raw const now).cast::<u64>().read();
        let context: *mut libc::ucontext_t = context.cast();
        let before = (&raw const (*context).uc_sigmask).cast::<u64>().read();
        // What is blocked in the handler: itself and what it asked for; before it, nothing of ours.
        let itself = 1 << (SIGUSR2 - 1) | 1 << (SIGUSR1 - 1);
        if now != itself || before != 0 {
            MASKS.store(now | before << 32 | 1, SeqCst);
        }
    }
    RUNS.fetch_add(1, SeqCst);
}

/// The mask inside a handler, and the one that it came from, are the program's wherever it comes.
fn handler_masks(s: &Side) {
    let fd = s.pair();
    // SAFETY: all zeroes is a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = note_mask as *const () as usize;
    action.sa_flags = SA_SIGINFO;
    action.sa_mask = wait::sigset(&[SIGUSR1]);
    call!(libc::sigaction(
        SIGUSR2,
        &raw const action,
        std::ptr::null_mut()
    ))
    .ok();
    let timer = Timer::new(SIGUSR2);
    timer.every(130);
    let mut buf = [0u8; 64];
    for _ in 0..2000 {
        let send = || insist(64, |at| io::send(fd, &[5; 64][at..], 0)).is_ok();
        let mut sent = s.a() && send();
        let got = insist(64, |at| io::recv(fd, &mut buf[at..], 0)).is_ok();
        sent |= !s.a() && send();
        assert!(sent && got);
    }
    let ran = wait::eventually(|| RUNS.load(SeqCst) > 0);
    timer.stop();
    // SAFETY: all-zero is a set; null asks for nothing.
    let after = unsafe {
        let mut now: libc::sigset_t = std::mem::zeroed();
        libc::sigprocmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut now);
        (&raw const now).cast::<u64>().read()
    };
    log!(s, "ran {ran} odd {:x} after {after:x}", MASKS.load(SeqCst));
    s.sync("done");
}
