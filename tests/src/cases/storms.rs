//! Signals at all times while messages go to and fro, and while bulk does: nothing is lost or doubled,
//! nothing hangs, and no call says EINTR that no handler interrupted.

use super::Case;
use crate::log;
use crate::side::{Random, Side};
use crate::sys::jump::Timer;
use crate::sys::{Fd, io, proc, wait};
use libc::{SA_RESTART, SIGUSR2};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

pub(super) const CASES: &[Case] = &[
    Case::pair("storm_ping_pong", |s| storm_ping_pong(s, 0)).processes_only(),
    Case::pair("storm_ping_pong_restart", |s| {
        storm_ping_pong(s, SA_RESTART);
    })
    .processes_only(),
    Case::pair("storm_bulk", |s| storm_bulk(s, 0)).processes_only(),
    Case::pair("storm_bulk_restart", |s| storm_bulk(s, SA_RESTART)).processes_only(),
    Case::pair("storm_poll", |s| storm_ready(s, wait::poll_one)).processes_only(),
    Case::pair("storm_select", |s| storm_ready(s, wait::select_one)).processes_only(),
    Case::pair("storm_epoll", |s| storm_ready(s, wait::epoll_one)).processes_only(),
];

static RUNS: AtomicU32 = AtomicU32::new(0);

const BULK: usize = 6 << 20;

extern "C" fn ran(_: i32) {
    RUNS.fetch_add(1, SeqCst);
}

/// Moves all of it in spite of EINTR; how often that came.
pub(super) fn insist(
    len: usize,
    mut call: impl FnMut(usize) -> crate::sys::Ret,
) -> Result<u32, String> {
    let (mut at, mut interrupted) = (0, 0);
    while at < len {
        let r = call(at);
        if r.is(libc::EINTR) {
            interrupted += 1;
        } else if r.0 <= 0 {
            return Err(r.to_string());
        } else {
            at += r.ok();
        }
    }
    Ok(interrupted)
}

fn plausible(s: &Side, interrupted: u32, restart: bool) {
    let most = if restart { 0 } else { RUNS.load(SeqCst) };
    log!(
        s,
        "plausible {} ran {}",
        interrupted <= most,
        wait::eventually(|| RUNS.load(SeqCst) > 0)
    );
}

fn storm_ping_pong(s: &Side, flags: i32) {
    let fd = s.pair();
    proc::handle(SIGUSR2, ran, flags != 0);
    let timer = Timer::new(SIGUSR2);
    timer.every(if s.a() { 70 } else { 230 });
    let mut interrupted = 0;
    let mut bad = String::new();
    for round in 0..4000u32 {
        let out = [round as u8; 64];
        let mut back = [0u8; 64];
        let send = |data: &[u8]| insist(64, |at| io::send(fd, &data[at..], 0));
        let sent = if s.a() { send(&out) } else { Ok(0) };
        let got = insist(64, |at| io::recv(fd, &mut back[at..], 0));
        let answered = if s.a() { Ok(0) } else { send(&back) };
        match (sent, got, answered) {
            (Ok(a), Ok(b), Ok(c)) if back == out => interrupted += a + b + c,
            other => {
                bad = format!("{other:?} in round {round}");
                break;
            }
        }
    }
    timer.stop();
    log!(s, "bad {bad:?}");
    plausible(s, interrupted, flags != 0);
    s.sync("done");
}

fn storm_bulk(s: &Side, flags: i32) {
    let fd = s.pair();
    proc::handle(SIGUSR2, ran, flags != 0);
    let big = Random::new(12).bytes(4 * BULK);
    let timer = Timer::new(SIGUSR2);
    timer.every(if s.a() { 60 } else { 110 });
    let mut got = vec![0u8; if s.a() { 0 } else { big.len() }];
    let r = if s.a() {
        insist(big.len(), |at| {
            io::send(fd, &big[at..(at + 70_001).min(big.len())], 0)
        })
    } else {
        insist(big.len(), |at| io::recv(fd, &mut got[at..], 0))
    };
    timer.stop();
    log!(s, "{} {}", r.is_ok(), s.a() || got == big);
    plausible(s, r.unwrap_or(0), flags != 0);
    s.sync("done");
}

/// Waiting for readiness, which no handler restarts, between messages that come at all times.
fn storm_ready(s: &Side, ready: fn(Fd) -> crate::sys::Ret) {
    let fd = s.pair();
    if s.a() {
        let mut random = Random::new(13);
        for _ in 0..1500 {
            io::send_all(fd, &[7; 32]).ok();
            let pause = random.below(120) as u64;
            std::thread::sleep(std::time::Duration::from_micros(pause));
        }
    } else {
        proc::handle(SIGUSR2, ran, true);
        let timer = Timer::new(SIGUSR2);
        timer.every(90);
        let (mut got, mut interrupted, mut odd) = (0, 0, String::new());
        while got < 1500 * 32 && odd.is_empty() {
            let r = ready(fd);
            if r.is(libc::EINTR) {
                interrupted += 1;
            } else if r.0 == 1 {
                let r = io::recv(fd, &mut [0; 100], libc::MSG_DONTWAIT);
                if r.0 <= 0 {
                    odd = format!("readable, and {r}");
                }
                got += r.0.max(0);
            } else {
                odd = r.to_string();
            }
        }
        timer.stop();
        log!(s, "odd {odd:?} {}", got == 1500 * 32);
        plausible(s, interrupted, false);
    }
    s.sync("done");
}
