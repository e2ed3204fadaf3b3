//! What a program sees of its handlers: what is set is shown, inherited by fork, reset where it should
//! be; and signal-driven input.

use super::Case;
use crate::log;
use crate::side::Side;
use crate::sys::{Fd, call, io, net, proc, wait};
use libc::{SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SA_RESTART, SA_SIGINFO, SIGUSR1, SIGUSR2};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

const NO_STREAM: &str = "about handlers alone";
const BY_SIGNALS: &str = "signal-driven input goes by the kernel";

pub(super) const CASES: &[Case] = &[
    Case::solo("handler_shown", handler_shown).any_path(NO_STREAM),
    Case::solo("handler_resets", handler_resets).any_path(NO_STREAM),
    Case::solo("handler_inherited", handler_inherited).any_path(NO_STREAM),
    Case::solo("handler_of_borrowed_memory", handler_of_borrowed_memory).any_path(NO_STREAM),
    Case::pair("sigio", sigio)
        .processes_only()
        .any_path(BY_SIGNALS),
    Case::pair("sigio_before_connect", sigio_before_connect)
        .processes_only()
        .any_path(BY_SIGNALS),
];

static RUNS: AtomicU32 = AtomicU32::new(0);

extern "C" fn ran(_: i32) {
    RUNS.fetch_add(1, SeqCst);
}

extern "C" fn nest(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    RUNS.fetch_add(1, SeqCst);
}

unsafe extern "C" {
    fn sysv_signal(signal: i32, handler: usize) -> usize;
    fn bsd_signal(signal: i32, handler: usize) -> usize;
    fn sigset(signal: i32, handler: usize) -> usize;
    fn siginterrupt(signal: i32, flag: i32) -> i32;
}

fn name(handler: usize) -> &'static str {
    match handler {
        libc::SIG_DFL => "default",
        libc::SIG_IGN => "ignored",
        2 => "held",
        libc::SIG_ERR => "error",
        h if h == ran as *const () as usize => "ran",
        h if h == nest as *const () as usize => "nest",
        _ => "another",
    }
}

/// What was set is what is shown, by every way of setting it.
fn handler_shown(s: &Side) {
    let (ran, nest) = (ran as *const () as usize, nest as *const () as usize);
    let shown = |signal| {
        let (handler, flags, mask) = proc::action(signal);
        log!(s, "{signal} {} {flags:x} {mask:x}", name(handler));
    };
    for signal in [
        SIGUSR1,
        libc::SIGSEGV,
        libc::SIGTERM,
        libc::SIGRTMAX(),
        libc::SIGKILL,
    ] {
        shown(signal);
    }
    for flags in [
        0,
        SA_RESTART,
        SA_SIGINFO | SA_ONSTACK,
        SA_RESETHAND | SA_NODEFER,
        libc::SA_NOCLDSTOP | libc::SA_NOCLDWAIT,
    ] {
        proc::detailed(SIGUSR1, self::nest, flags);
        shown(SIGUSR1);
    }
    // SAFETY: handlers of the right kind.
    unsafe {
        log!(s, "signal {}", name(libc::signal(SIGUSR1, ran)));
        shown(SIGUSR1);
        log!(s, "sysv {}", name(sysv_signal(SIGUSR1, nest)));
        shown(SIGUSR1);
        log!(s, "bsd {}", name(bsd_signal(SIGUSR1, ran)));
        shown(SIGUSR1);
        log!(s, "siginterrupt {}", siginterrupt(SIGUSR1, 1));
        shown(SIGUSR1);
        log!(s, "signal {}", name(libc::signal(SIGUSR1, ran)));
        shown(SIGUSR1);
        log!(s, "siginterrupt {}", siginterrupt(SIGUSR1, 0));
        shown(SIGUSR1);
        log!(s, "sigset {}", name(sigset(SIGUSR1, 2)));
        log!(s, "sigset {}", name(sigset(SIGUSR1, nest)));
        log!(s, "sigset {}", name(sigset(SIGUSR1, libc::SIG_DFL)));
        shown(SIGUSR1);
    }
    for (signal, handler) in [
        (0, ran),
        (65, ran),
        (libc::SIGKILL, ran),
        (32, ran),
        (SIGUSR1, libc::SIG_ERR),
    ] {
        let r = call!(if libc::signal(signal, handler) == libc::SIG_ERR {
            -1
        } else {
            0
        });
        log!(s, "signal({signal}) {r}");
    }
    // The kernel's own structure.
    let raw_action = |new: *const u64, old: *mut u64, size: usize| {
        let nr = libc::SYS_rt_sigaction;
        call!(libc::syscall(nr, SIGUSR1, new, old, size))
    };
    let (mut raw, mut old) = ([0u64; 4], [0u64; 4]);
    proc::detailed(SIGUSR1, self::nest, SA_SIGINFO);
    let get = raw_action(std::ptr::null(), raw.as_mut_ptr(), 8);
    log!(
        s,
        "{get} {} {:x} {:x}",
        name(raw[0] as usize),
        raw[1],
        raw[3]
    );
    raw[0] = ran as u64;
    let set = raw_action(raw.as_ptr(), old.as_mut_ptr(), 8);
    log!(s, "{set} {}", name(old[0] as usize));
    shown(SIGUSR1);
    log!(s, "{}", raw_action(raw.as_ptr(), old.as_mut_ptr(), 7));
    call!(libc::raise(SIGUSR1)).ok();
    log!(s, "ran {}", RUNS.load(SeqCst));
}

/// SA_RESETHAND: once, then the default.
fn handler_resets(s: &Side) {
    let side = *s;
    let child = proc::fork(move || {
        proc::detailed(SIGUSR1, nest, SA_RESETHAND | SA_SIGINFO);
        call!(libc::raise(SIGUSR1)).ok();
        let (handler, ..) = proc::action(SIGUSR1);
        log!(side, "ran {} then {}", RUNS.load(SeqCst), name(handler));
        call!(libc::raise(SIGUSR1)).ok();
        log!(side, "never");
        0
    });
    log!(s, "{}", proc::wait_child(child));
    let child = proc::fork(move || {
        // SAFETY: a handler of the right kind.
        unsafe { sysv_signal(SIGUSR1, ran as *const () as usize) };
        call!(libc::raise(SIGUSR1)).ok();
        log!(side, "ran {}", RUNS.load(SeqCst));
        proc::handle(SIGUSR1, ran, true);
        call!(libc::raise(SIGUSR1)).ok();
        call!(libc::raise(SIGUSR1)).ok();
        log!(side, "ran {}", RUNS.load(SeqCst));
        0
    });
    log!(s, "{}", proc::wait_child(child));
}

/// Handlers pass to children of fork, and end with exec.
fn handler_inherited(s: &Side) {
    proc::handle(SIGUSR1, ran, true);
    proc::ignore(SIGUSR2);
    let side = *s;
    let child = proc::fork(move || {
        call!(libc::raise(SIGUSR1)).ok();
        log!(
            side,
            "child {} {} {}",
            RUNS.load(SeqCst),
            name(proc::action(SIGUSR1).0),
            name(proc::action(SIGUSR2).0)
        );
        let shell = "kill -USR2 $$; echo S ignored; kill -USR1 $$; echo S never";
        proc::exec(&["/bin/sh", "-c", shell], true);
        1
    });
    log!(s, "{}", proc::wait_child(child));
    log!(s, "parent {}", RUNS.load(SeqCst));
}

extern "C" fn borrower(_: *mut libc::c_void) -> i32 {
    proc::default_action(SIGUSR1);
    proc::ignore(SIGUSR2);
    let seen = (proc::action(SIGUSR1).0, proc::action(SIGUSR2).0);
    i32::from(seen != (libc::SIG_DFL, libc::SIG_IGN))
}

/// What a child that borrows the memory does to its handlers is not done to its parent's.
fn handler_of_borrowed_memory(s: &Side) {
    proc::handle(SIGUSR1, ran, true);
    proc::handle(SIGUSR2, ran, true);
    let mut stack = vec![0u8; 1 << 18];
    // SAFETY: the stack is the child's alone, its top aligned; the parent waits until it has ended.
    let child = unsafe {
        let top = stack.as_mut_ptr().add(stack.len());
        let top = top.sub(top.addr() % 16);
        libc::clone(
            borrower,
            top.cast(),
            libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
            std::ptr::null_mut(),
        )
    };
    log!(s, "{}", proc::wait_child(child));
    call!(libc::raise(SIGUSR1)).ok();
    call!(libc::raise(SIGUSR2)).ok();
    log!(
        s,
        "{} {} {}",
        RUNS.load(SeqCst),
        name(proc::action(SIGUSR1).0),
        name(proc::action(SIGUSR2).0)
    );
}

fn drive_by_signals(fd: Fd) {
    proc::handle(libc::SIGIO, ran, true);
    net::fcntl(fd, libc::F_SETOWN, std::process::id() as i32).ok();
    let flags = net::fcntl(fd, libc::F_GETFL, 0).ok() as i32;
    net::fcntl(fd, libc::F_SETFL, flags | libc::O_ASYNC).ok();
}

/// Each arrival is a signal, after the mode was set and for the data after it.
fn sigio(s: &Side) {
    let fd = s.pair();
    if s.a() {
        drive_by_signals(fd);
        for round in 0..3 {
            let before = RUNS.load(SeqCst);
            s.tell(round);
            log!(
                s,
                "signal {}",
                wait::eventually(|| RUNS.load(SeqCst) > before)
            );
            log!(s, "{:?}", io::recv_exact(fd, 4).0);
        }
    } else {
        for round in 0..3 {
            assert_eq!(s.hear(), round);
            io::send_all(fd, &[round as u8; 4]).ok();
        }
    }
    s.sync("done");
}

fn sigio_before_connect(s: &Side) {
    let fd = s.pair();
    if s.a() {
        let to = s.target();
        let own = net::socket_for(to, 0);
        drive_by_signals(own);
        log!(s, "{}", net::connect(own, to));
        s.sync("connected");
        for _ in 0..3 {
            io::send_all(own, b"ask").ok();
            let before = RUNS.load(SeqCst);
            s.tell(1);
            log!(
                s,
                "signal {}",
                wait::eventually(|| RUNS.load(SeqCst) > before)
            );
            log!(s, "{:?}", io::recv_exact(own, 4).0);
        }
    } else {
        let lis = s.listen(4);
        let own = net::accept(lis).fd();
        s.sync("connected");
        for _ in 0..3 {
            io::recv_exact(own, 3);
            s.hear();
            io::send_all(own, b"data").ok();
        }
    }
    io::send_all(fd, b"x").ok();
    log!(s, "{}", io::recv_exact(fd, 1).1);
    s.sync("done");
}
