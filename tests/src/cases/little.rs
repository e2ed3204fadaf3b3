//! Who sends a little and has had an answer to all before it is never told that there is no room, whatever happens to the
//! connection meanwhile: there are programs that take that for a failure.

use super::{Case, MOVES};
use crate::log;
use crate::side::{Random, Side};
use crate::sys::{Fd, io, net, proc, wait};
use libc::{POLLIN, POLLOUT};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

pub(super) const CASES: &[Case] = &[
    Case::pair("little_fits_while_it_grows", |s| run(s, 4000, |_, _| ())),
    Case::pair("little_fits_beside_forks", |s| {
        beside(s, || {
            let child = proc::fork(|| 0);
            proc::wait_child(child);
            thread::sleep(wait::millis(2));
        });
    })
    .processes_only(),
    Case::pair("little_fits_where_it_moves", |s| run(s, 200, moves)).any_path(MOVES),
];

/// Questions, each of which is answered before the next.
const QUESTIONS: usize = 400;

/// Questions of up to so many octets; before each answer `meddle` is called with the connection and the question's number.
fn run(s: &Side, most: usize, meddle: impl Fn(Fd, usize)) {
    let fd = s.pair();
    s.warm_up(fd);
    net::set_nonblocking(fd, true).ok();
    let mut short = Vec::new();
    for number in 0..QUESTIONS {
        let mut random = Random::new((most + number) as u64);
        let len = 1 + random.below(most);
        let question = random.bytes(len);
        if s.a() {
            assert!(read(fd, len) == question, "question {number} comes");
            meddle(fd, number);
            short.extend(send(fd, &question));
        } else {
            short.extend(send(fd, &question));
            assert!(read(fd, len) == question, "question {number} comes back");
        }
    }
    log!(s, "of {QUESTIONS} were not taken whole: {short:?}");
    s.sync("done");
}

/// The same of one octet each, while another thread of the side that answers does something again and again.
fn beside(s: &Side, act: fn()) {
    let over = Arc::new(AtomicBool::new(false));
    let thread = s.a().then(|| {
        let over = over.clone();
        thread::spawn(move || {
            while !over.load(Ordering::SeqCst) {
                act();
            }
        })
    });
    run(s, 1, |_, _| ());
    over.store(true, Ordering::SeqCst);
    if let Some(thread) = thread {
        thread.join().unwrap();
    }
}

/// How much of it was taken at once, if not all was.
fn send(fd: Fd, octets: &[u8]) -> Option<String> {
    // (what poll says is asked now and then only: the look itself may bring the connection to where it takes more)
    if octets[0].is_multiple_of(4) && !wait::poll(&[(fd, POLLOUT)], 0).contains("OUT") {
        rest(fd, octets);
        return Some("poll".into());
    }
    let sent = io::send(fd, octets, libc::MSG_NOSIGNAL);
    if sent.0 == octets.len() as i64 {
        return None;
    }
    rest(fd, &octets[sent.0.max(0) as usize..]);
    Some(sent.to_string())
}

/// What was not taken goes once there is room: the other side waits for it.
fn rest(fd: Fd, mut octets: &[u8]) {
    while !octets.is_empty() {
        wait::poll(&[(fd, POLLOUT)], -1);
        let sent = io::send(fd, octets, libc::MSG_NOSIGNAL);
        if !sent.is(libc::EAGAIN) {
            octets = &octets[sent.ok()..];
        }
    }
}

fn read(fd: Fd, len: usize) -> Vec<u8> {
    let mut got = vec![0; len];
    let mut n = 0;
    while n < len {
        wait::poll(&[(fd, POLLIN)], -1);
        let r = io::recv(fd, &mut got[n..], 0);
        if !r.is(libc::EAGAIN) {
            assert!(r.ok() > 0, "ended");
            n += r.ok();
        }
    }
    got
}

/// Something is put back to the kernel by each side in the middle.
fn moves(fd: Fd, number: usize) {
    if number == QUESTIONS / 2 {
        let (_, into) = net::pipe();
        io::splice(fd, into, 8);
    }
}
