//! Many bytes, perhaps both ways at once, while things happen to the descriptors on the way.

use super::calls::{give, take};
use super::ends::Walker;
use super::plan::{Flow, Give, Slot, Take, Trouble, bytes};
use crate::side::Random;
use crate::sys::{Fd, net, proc, wait};

pub fn bulk(w: &Walker, slot: Slot, conn: usize, out: Option<Flow>, back: Option<Flow>) {
    let fd = w.fd(slot);
    net::set_nonblocking(fd, false).ok();
    let seed = w.plan.seed ^ (w.step as u64) << 32;
    let end = w.who.end;
    let gave = std::thread::scope(|scope| {
        let giver = scope.spawn(move || out.map(|flow| send(fd, conn, end, flow, seed)));
        if let Some(flow) = back {
            w.line(&receive(fd, conn, 1 - end, flow, !seed));
        }
        giver.join().unwrap()
    });
    if let Some(text) = gave {
        w.line(&text);
    }
    net::set_nonblocking(fd, false).ok();
}

/// Something that must not change what the stream carries.
fn trouble(fd: Fd, what: Trouble, held: &mut Vec<i32>) {
    match what {
        Trouble::DupClose => {
            net::close(net::dup(fd).fd()).ok();
        }
        Trouble::ForkExit => {
            proc::wait_child(proc::fork(|| 0));
        }
        Trouble::ForkHold => held.push(proc::fork(|| {
            std::thread::sleep(wait::millis(3));
            0
        })),
        Trouble::System => {
            // SAFETY: a constant command.
            unsafe { libc::system(c"exit 0".as_ptr()) };
        }
        Trouble::Nonblock => {
            let on = net::is_nonblocking(fd);
            net::set_nonblocking(fd, !on).ok();
        }
        Trouble::None | Trouble::Raw | Trouble::File | Trouble::Stdio => {}
    }
}

fn send(fd: Fd, conn: usize, end: usize, flow: Flow, seed: u64) -> String {
    let mut r = Random::new(seed);
    let data = bytes(conn, end, flow.pos, flow.size);
    let mut at = 0;
    let mut held = Vec::new();
    let mut when = r.below(flow.size);
    while at < data.len() {
        let now = at >= when;
        if now {
            when = at + 1 + r.below(flow.size);
            trouble(fd, flow.giver, &mut held);
        }
        let mut by = [Give::Write, Give::Send, Give::Writev, Give::Sendmsg][r.below(4)];
        if now {
            by = match flow.giver {
                Trouble::Raw => Give::Raw,
                Trouble::File => [Give::Sendfile, Give::Splice][r.below(2)],
                Trouble::Stdio => Give::Stdio,
                _ => by,
            };
        }
        let n = r.size().min(data.len() - at);
        let got = give(fd, &data[at..at + n], by);
        if got.0 <= 0 {
            return format!("bulk gave {at}, then {got}");
        }
        at += got.0 as usize;
    }
    held.into_iter().for_each(|pid| drop(proc::wait_child(pid)));
    format!("bulk gave {at}")
}

fn receive(fd: Fd, conn: usize, end: usize, flow: Flow, seed: u64) -> String {
    let mut r = Random::new(seed);
    // What lay there before the transfer is read too.
    let all = flow.before + flow.size;
    let first = flow.pos - flow.before as u64;
    let mut got: Vec<u8> = Vec::new();
    let mut held = Vec::new();
    let mut when = r.below(flow.size);
    let mut end_note = String::new();
    while got.len() < all {
        let left = all - got.len();
        let now = got.len() >= when;
        if now {
            when = got.len() + 1 + r.below(flow.size);
            trouble(fd, flow.taker, &mut held);
        }
        let mut by = [
            Take::Read,
            Take::Recv,
            Take::Peek,
            Take::WaitAll,
            Take::Readv,
            Take::Recvmsg,
        ][r.below(6)];
        if now && flow.taker == Trouble::Raw {
            by = Take::Raw;
        }
        if now && flow.taker == Trouble::File {
            by = Take::Splice;
        }
        let n = r.size().min(left);
        if r.below(4) == 0 || by == Take::Splice {
            wait::wait_for(fd, libc::POLLIN);
        }
        let (ret, mut part) = take(fd, n, by);
        if ret.is(libc::EAGAIN) {
            wait::wait_for(fd, libc::POLLIN);
            continue;
        }
        if ret.0 <= 0 {
            end_note = format!(", then {ret}");
            break;
        }
        if by != Take::Peek {
            got.append(&mut part);
        }
    }
    held.into_iter().for_each(|pid| drop(proc::wait_child(pid)));
    let good = got == bytes(conn, end, first, got.len());
    format!("bulk took {}{end_note} good {good}", got.len())
}
