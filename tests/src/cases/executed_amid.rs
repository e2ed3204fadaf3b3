//! Children of both ends become other programs while much is on its way in both directions, and threads of both send and read.

use super::Case;
use crate::log;
use crate::side::{Random, Side, hash};
use crate::sys::{io, net, proc, wait};
use std::thread;

pub(super) const CASES: &[Case] = &[
    Case::moving("exec_amid_much_of_both", amid_much).slow(),
    Case::moving("exec_beside_what_is_withheld", beside_withheld),
    Case::moving("exec_beside_send_to_who_has_ended", beside_send),
];

const CONNECTIONS: usize = 3;
const BYTES: usize = 4_000_000;
/// What each end leaves (ms) between the beginning and its child, which has all of these connections.
const PAUSES: [(u64, u64); 8] = [
    (0, 0),
    (1, 1),
    (2, 3),
    (4, 4),
    (6, 5),
    (8, 8),
    (12, 10),
    (20, 20),
];

fn amid_much(s: &Side) {
    for (round, pauses) in PAUSES.into_iter().enumerate() {
        let all: Vec<_> = (0..CONNECTIONS).map(|_| s.pair()).collect();
        all.iter().for_each(|&fd| s.warm_up(fd));
        s.sync("warm");
        let threads = all.iter().enumerate().map(|(i, &fd)| {
            let bytes = Random::new((round * 8 + i * 2) as u64 + u64::from(s.a())).bytes(BYTES);
            let sends = thread::spawn(move || {
                let sent = bytes
                    .chunks(70_000)
                    .all(|part| io::send_all(fd, part).0 > 0);
                net::shutdown(fd, libc::SHUT_WR).ok();
                sent
            });
            (sends, thread::spawn(move || io::recv_to_end(fd)))
        });
        let threads: Vec<_> = threads.collect();
        thread::sleep(wait::millis(if s.a() { pauses.0 } else { pauses.1 }));
        let child = proc::fork(|| proc::exec(&["/bin/true"], true).0 as i32);
        log!(s, "{}", proc::wait_child(child));
        for (sends, reads) in threads {
            let (got, last) = reads.join().unwrap();
            log!(
                s,
                "{} {} {} {last}",
                sends.join().unwrap(),
                got.len(),
                hash(&got)
            );
        }
        s.sync("done");
        all.into_iter().for_each(|fd| {
            net::close(fd).ok();
        });
    }
}

/// A peer that has ended its own direction goes on reading: what a thread is sending to it goes on too, whatever a child does.
fn beside_send(s: &Side) {
    let fd = s.pair();
    s.warm_up(fd);
    if s.a() {
        net::shutdown(fd, libc::SHUT_WR).ok();
        s.hear();
        let (got, last) = io::recv_to_end(fd);
        log!(s, "{} {} {last}", got.len(), hash(&got));
        return;
    }
    let (none, last) = io::recv_to_end(fd);
    log!(s, "{} {last}", none.len());
    let sends = thread::spawn(move || {
        let bytes = Random::new(7).bytes(2 * BYTES);
        (io::send_all(fd, &bytes), net::shutdown(fd, libc::SHUT_WR))
    });
    thread::sleep(wait::millis(50));
    let child = proc::fork(|| proc::exec(&["/bin/true"], true).0 as i32);
    log!(s, "{}", proc::wait_child(child));
    thread::sleep(wait::millis(20));
    s.tell(1);
    let (sent, shut) = sends.join().unwrap();
    log!(s, "{sent} {shut}");
}

/// What the peer has sent with MSG_MORE and has not pushed is neither lost nor there twice once a child has left to another program.
fn beside_withheld(s: &Side) {
    let fd = s.pair();
    s.warm_up(fd);
    let bytes = Random::new(8).bytes(60_000);
    if s.a() {
        log!(s, "{}", io::send(fd, &bytes[..20_000], libc::MSG_MORE));
        s.sync("withheld");
        s.sync("left");
        log!(s, "{}", io::send(fd, &bytes[20_000..40_000], 0));
        log!(s, "{}", io::send(fd, &bytes[40_000..], 0));
        net::shutdown(fd, libc::SHUT_WR).ok();
        s.sync("done");
        return;
    }
    s.sync("withheld");
    let child = proc::fork(|| proc::exec(&["/bin/true"], true).0 as i32);
    log!(s, "{}", proc::wait_child(child));
    s.sync("left");
    let (got, last) = io::recv_to_end(fd);
    log!(s, "{} {} {last}", got.len(), got == bytes);
    s.sync("done");
}
