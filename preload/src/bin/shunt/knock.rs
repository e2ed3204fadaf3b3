//! Ends the sleep of one thread in a call of the library, so that it looks at a request. The thread is
//! stopped for a moment as by a debugger; if it sleeps in a call that the library waits in, the call
//! returns EINTR to the library, which knows from the page that no signal was the cause. A call that is
//! not one of those goes on as if nothing had been.
//!
//! Rule: a signal that is about to interrupt the call comes first; then nothing is changed.

use crate::memory::Page;
use std::fs;
use std::io;
use std::time::{Duration, Instant};

/// How long a thread may take to stop; one that sleeps stops at once.
const STOP: Duration = Duration::from_millis(50);

/// The library's sleep on a socket: one byte, with these flags (`sockets::operator`).
const SLEEP: u64 = (libc::MSG_PEEK | libc::MSG_CMSG_CLOEXEC) as u64;

/// Threads of a process that sleep in a call that the library waits in.
pub(crate) fn sleepers(pid: u32) -> Vec<i32> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    tasks
        .flatten()
        .filter_map(|t| t.file_name().to_str()?.parse().ok())
        .filter(|tid| {
            fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall"))
                .is_ok_and(|line| arguments(&line).is_some_and(|(call, a)| is_ours(call, a)))
        })
        .collect()
}

/// The number of the call that a thread is in, with its third and fourth argument.
fn arguments(line: &str) -> Option<(i64, [u64; 2])> {
    let mut words = line.split_ascii_whitespace();
    let call = words.next()?.parse().ok()?;
    let mut next = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let (_, _) = (next()?, next()?);
    Some((call, [next()?, next()?]))
}

#[cfg(target_arch = "x86_64")]
fn is_ours(call: i64, [third, fourth]: [u64; 2]) -> bool {
    match call {
        libc::SYS_recvfrom => third == 1 && fourth == SLEEP,
        libc::SYS_poll
        | libc::SYS_ppoll
        | libc::SYS_select
        | libc::SYS_pselect6
        | libc::SYS_epoll_wait
        | libc::SYS_epoll_pwait
        | libc::SYS_epoll_pwait2
        | libc::SYS_accept
        | libc::SYS_accept4 => true,
        _ => false,
    }
}

/// Elsewhere the program does it at its next call.
#[cfg(not(target_arch = "x86_64"))]
fn is_ours(_: i64, _: [u64; 2]) -> bool {
    false
}

/// A thread held by this process as its tracer; let go of at the end.
struct Held(i32);

impl Drop for Held {
    fn drop(&mut self) {
        trace(libc::PTRACE_DETACH, self.0, 0, 0);
    }
}

fn trace(request: libc::c_uint, tid: i32, address: u64, data: u64) -> bool {
    // SAFETY: requests of this file only; `data` is a number, or the address of what the request wants.
    unsafe { libc::ptrace(request, tid, address, data) == 0 }
}

/// Ends a thread's sleep. False if there was none to end.
pub(crate) fn knock(page: &Page, pid: u32, tid: i32) -> io::Result<bool> {
    if !trace(libc::PTRACE_SEIZE, tid, 0, 0) {
        return Err(io::Error::last_os_error());
    }
    let held = Held(tid);
    if !trace(libc::PTRACE_INTERRUPT, tid, 0, 0) {
        return Ok(false);
    }
    let begun = Instant::now();
    loop {
        let mut status = 0;
        // SAFETY: the status is writable.
        match unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL | libc::WNOHANG) } {
            0 if begun.elapsed() < STOP => std::thread::sleep(Duration::from_micros(50)),
            0 => return Ok(false),
            n if n == tid && libc::WIFSTOPPED(status) => {
                if status >> 16 == libc::PTRACE_EVENT_STOP {
                    return end_sleep(page, pid, &held);
                }
                // A signal came first: it goes where it was going.
                let signal = u64::from(libc::WSTOPSIG(status).cast_unsigned());
                trace(libc::PTRACE_DETACH, tid, 0, signal);
                return Ok(false);
            }
            _ => return Ok(false), // it is gone
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn end_sleep(page: &Page, pid: u32, held: &Held) -> io::Result<bool> {
    // What an interrupted call returns inside the kernel, which then begins it again or says EINTR.
    const RESTARTS: std::ops::RangeInclusive<i64> = -516..=-512;
    const INTR: u64 = (-(libc::EINTR as i64)).cast_unsigned();
    // SAFETY: all-zero registers are registers.
    let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
    let at = |r: *mut libc::user_regs_struct| r.expose_provenance() as u64;
    if !trace(libc::PTRACE_GETREGS, held.0, 0, at(&raw mut registers)) {
        return Ok(false);
    }
    let result = registers.rax.cast_signed();
    let interrupted = RESTARTS.contains(&result) || registers.rax == INTR;
    let call = registers.orig_rax.cast_signed();
    if !interrupted || !is_ours(call, [registers.rdx, registers.r10]) || is_signalled(pid, held.0) {
        return Ok(false);
    }
    let Some(place) = page.note_knock(registers.fs_base)? else {
        return Ok(false);
    };
    registers.rax = INTR;
    let set = at(&raw mut registers);
    if !trace(libc::PTRACE_SETREGS, held.0, 0, set) {
        page.drop_knock(place)?;
        return Ok(false);
    }
    Ok(true)
}

#[cfg(not(target_arch = "x86_64"))]
fn end_sleep(_: &Page, _: u32, _: &Held) -> io::Result<bool> {
    Ok(false)
}

/// Whether a signal is about to interrupt the thread.
fn is_signalled(pid: u32, tid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).unwrap_or_default();
    let set = |name: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(name))?;
        u64::from_str_radix(line.trim(), 16).ok()
    };
    match (set("SigPnd:"), set("ShdPnd:"), set("SigBlk:")) {
        (Some(own), Some(shared), Some(blocked)) => (own | shared) & !blocked != 0,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_the_library_sleeps_in_are_known() {
        let read = "0 0x0 0x7ffd 0x400 0x0 0x0 0x0 0x7ffd 0x7f00\n";
        let sleep = "45 0x5 0x7ffd 0x1 0x40000002 0x0 0x0 0x7ffd 0x7f00\n";
        let peek = "45 0x5 0x7ffd 0x1 0x2 0x0 0x0 0x7ffd 0x7f00\n";
        let accept = "43 0x3 0x0 0x0 0x0 0x0 0x0 0x7ffd 0x7f00\n";
        let ours = |line| arguments(line).map(|(call, a)| is_ours(call, a));
        assert_eq!(ours(read), Some(false));
        assert_eq!(ours(peek), Some(false));
        assert_eq!(ours(sleep), Some(cfg!(target_arch = "x86_64")));
        assert_eq!(ours(accept), Some(cfg!(target_arch = "x86_64")));
        assert_eq!(ours("running\n"), None);
        assert_eq!(ours("-1 0x7ffd 0x7f00\n"), None);
    }

    #[test]
    fn nobody_is_knocked_at_that_is_not_there() {
        assert!(sleepers(u32::MAX).is_empty());
    }
}
