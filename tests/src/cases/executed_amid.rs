//! Children of both ends become other programs while much is on its way in both directions, and threads of both send and read.

use super::Case;
use crate::log;
use crate::side::{Random, Side, hash};
use crate::sys::{io, net, proc, wait};
use std::thread;

pub(super) const CASES: &[Case] = &[Case::moving("exec_amid_much_of_both", amid_much).slow()];

const CONNECTIONS: usize = 3;
const BYTES: usize = 12_000_000;
const CHILDREN: u64 = 12;

fn amid_much(s: &Side) {
    let all: Vec<_> = (0..CONNECTIONS).map(|_| s.pair()).collect();
    all.iter().for_each(|&fd| s.warm_up(fd));
    s.sync("warm");
    let threads: Vec<_> = all
        .iter()
        .enumerate()
        .map(|(i, &fd)| {
            let seed = 2 * i as u64 + u64::from(s.a());
            let sends = thread::spawn(move || {
                let bytes = Random::new(40 + seed).bytes(BYTES);
                let sent = bytes
                    .chunks(70_000)
                    .all(|part| io::send_all(fd, part).0 > 0);
                net::shutdown(fd, libc::SHUT_WR).ok();
                sent
            });
            (sends, thread::spawn(move || io::recv_to_end(fd)))
        })
        .collect();
    for i in 0..CHILDREN {
        thread::sleep(wait::millis(i));
        let child = proc::fork(|| proc::exec(&["/bin/true"], true).0 as i32);
        log!(s, "{}", proc::wait_child(child));
    }
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
}
