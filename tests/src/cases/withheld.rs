//! What a sender withholds because it has more to say (MSG_MORE, TCP_CORK): a reader finds it together with what follows, or alone
//! once the kernel would have sent it, and never loses it.

use super::Case;
use crate::log;
use crate::side::{Random, Side, hash, text};
use crate::sys::{Fd, io, net, pass, proc, wait};
use std::time::Instant;

pub(super) const CASES: &[Case] = &[
    Case::pair("more_goes_with_the_next", more_goes_with_the_next),
    Case::pair("cork_keeps_all_together", cork_keeps_all_together),
    Case::pair("cork_keeps_a_file_together", cork_keeps_a_file_together),
    Case::pair("nodelay_pulls_the_cork", nodelay_pulls_the_cork),
    Case::pair("withheld_goes_by_itself", withheld_goes_by_itself),
    Case::pair("withheld_goes_to_edges", withheld_goes_to_edges),
    Case::pair("withheld_before_much", withheld_before_much),
    Case::pair("withheld_before_shutdown", |s| withheld_before(s, 0)),
    Case::pair("withheld_before_close", |s| withheld_before(s, 1)),
    Case::pair("withheld_by_who_shares_it", withheld_by_who_shares_it),
    Case::moving("withheld_before_passing", withheld_before_passing),
    Case::pair("withheld_by_killed", withheld_by_killed).processes_only(),
    Case::pair("corked_listener", corked_listener),
];

/// What A does, and how much B can read then.
type Step<'a> = (&'a dyn Fn(), i32);

/// Has A do one step after the other, and B look at what that shows; again until it was what it should be, as the kernel sends
/// by itself after 200 ms, and sooner where an earlier round has set its timer.
fn looked_at(s: &Side, fd: Fd, steps: &[Step]) {
    let whole = steps.last().map_or(0, |&(_, whole)| whole as usize);
    for _ in 0..20 {
        let mut as_said = true;
        for &(step, shows) in steps {
            if s.a() {
                step();
                s.tell(1);
                s.hear();
                continue;
            }
            s.hear();
            if net::queued(fd) < shows {
                wait::wait_queued(fd, shows);
            }
            let polled = wait::poll(&[(fd, libc::POLLIN)], 20);
            let read = io::recv(fd, &mut [0; 8192], libc::MSG_DONTWAIT | libc::MSG_PEEK);
            as_said &= net::queued(fd) == shows
                && polled.starts_with('1') == (shows > 0)
                && read.0.max(0) == i64::from(shows);
            s.tell(1);
        }
        if s.a() {
            as_said = s.hear() == 1;
        } else {
            let (got, _) = io::recv_exact(fd, whole);
            s.tell(u64::from(as_said));
            if as_said {
                log!(s, "as said {}", hash(&got));
            }
        }
        s.sync("round");
        if as_said {
            return;
        }
    }
    log!(s, "never as said");
}

fn cork(fd: Fd, on: i32) {
    net::setopt(fd, libc::IPPROTO_TCP, libc::TCP_CORK, on).ok();
}

fn more_goes_with_the_next(s: &Side) {
    let fd = s.pair();
    let head = || _ = io::send(fd, b"head ", libc::MSG_MORE);
    let neck = || _ = io::sendmsg(fd, &[b"ne", b"ck "], libc::MSG_MORE);
    let body = || _ = io::send(fd, b"body", 0);
    looked_at(s, fd, &[(&head, 0), (&neck, 0), (&body, 14)]);
}

fn cork_keeps_all_together(s: &Side) {
    let fd = s.pair();
    let head = || {
        cork(fd, 1);
        io::write(fd, b"head ").ok();
    };
    let body = || _ = io::writev(fd, &[b"bo", b"dy"]);
    let off = || cork(fd, 0);
    looked_at(s, fd, &[(&head, 0), (&body, 0), (&off, 9)]);
}

fn cork_keeps_a_file_together(s: &Side) {
    let fd = s.pair();
    let file = io::memory_file(&Random::new(5).bytes(3000));
    let head = || {
        cork(fd, 1);
        io::write(fd, b"head ").ok();
    };
    let body = || _ = io::sendfile(fd, file, 0, 3000);
    let off = || cork(fd, 0);
    looked_at(s, fd, &[(&head, 0), (&body, 0), (&off, 3005)]);
}

/// tcp(7): to set it sends what waits, whatever is corked.
fn nodelay_pulls_the_cork(s: &Side) {
    let fd = s.pair();
    let head = || {
        cork(fd, 1);
        net::setopt(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 0).ok();
        io::write(fd, b"head ").ok();
    };
    let now = || _ = net::setopt(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
    let tail = || _ = io::write(fd, b"tail");
    let off = || cork(fd, 0);
    looked_at(s, fd, &[(&head, 0), (&now, 5), (&tail, 5), (&off, 9)]);
}

/// Nothing follows, and the reader waits, in each way in turn.
fn withheld_goes_by_itself(s: &Side) {
    let fd = s.pair();
    for round in 0..5 {
        if s.a() {
            io::send(fd, b"alone", libc::MSG_MORE).ok();
        } else {
            match round {
                0 => {}
                1 => wait::wait_for(fd, libc::POLLIN),
                2 => _ = wait::select_one(fd),
                3 => wait::wait_queued(fd, 5),
                _ => {
                    let set = wait::epoll();
                    wait::add(set, fd, libc::EPOLLIN, 1).ok();
                    log!(s, "{}", wait::epoll_wait(set, 4, 10_000));
                    net::close(set).ok();
                }
            }
            log!(s, "{}", text(&io::recv_exact(fd, 5).0));
        }
        s.sync("next");
    }
}

/// A set that tells of edges is told of what comes late, and of what follows that.
fn withheld_goes_to_edges(s: &Side) {
    let fd = s.pair();
    let set = wait::epoll();
    if !s.a() {
        wait::add(set, fd, libc::EPOLLIN | libc::EPOLLET, 1).ok();
    }
    for _ in 0..2 {
        s.sync("ready");
        if s.a() {
            io::send(fd, b"first", libc::MSG_MORE).ok();
            s.sync("first");
            io::send(fd, b"second", 0).ok();
        } else {
            log!(s, "{}", wait::epoll_wait(set, 4, 10_000));
            log!(s, "{}", text(&io::recv_exact(fd, 5).0));
            s.sync("first");
            log!(s, "{}", wait::epoll_wait(set, 4, 10_000));
            log!(s, "{}", text(&io::recv_exact(fd, 6).0));
            log!(s, "{}", wait::epoll_wait(set, 4, 20));
        }
    }
    s.sync("done");
}

/// More than any buffer holds, all of it said to be followed by more.
fn withheld_before_much(s: &Side) {
    let fd = s.pair();
    let much = Random::new(6).bytes(3_000_000);
    if s.a() {
        io::send(fd, b"head", libc::MSG_MORE).ok();
        for part in much.chunks(70_001) {
            let mut done = 0;
            while done < part.len() {
                done += io::send(fd, &part[done..], libc::MSG_MORE).0.max(0) as usize;
            }
        }
        io::send(fd, b"head", libc::MSG_MORE).ok();
        log!(s, "sent {}", io::send_all(fd, &much[..600_000]));
    } else {
        let (got, _) = io::recv_exact(fd, 3_600_008);
        let (first, rest) = got.split_at(3_000_004);
        log!(s, "{}", first[4..] == much && rest[4..] == much[..600_000]);
    }
    s.sync("done");
}

fn withheld_before(s: &Side, how: u32) {
    let fd = s.pair();
    if s.a() {
        cork(fd, 1);
        io::write(fd, b"last words").ok();
        if how == 0 {
            net::shutdown(fd, libc::SHUT_WR).ok();
        } else {
            net::close(fd).ok();
        }
    } else {
        let (got, end) = io::recv_to_end(fd);
        log!(s, "{} {end}", text(&got));
    }
    s.sync("done");
}

/// A child says what follows.
fn withheld_by_who_shares_it(s: &Side) {
    let fd = s.pair();
    if s.a() {
        cork(fd, 1);
        io::write(fd, b"parent ").ok();
        let child = proc::fork(|| {
            io::write(fd, b"child ").ok();
            0
        });
        proc::wait_child(child);
        io::write(fd, b"parent").ok();
        cork(fd, 0);
    } else {
        log!(s, "{}", text(&io::recv_exact(fd, 19).0));
    }
    s.sync("done");
}

/// The stream goes to the kernel in between.
fn withheld_before_passing(s: &Side) {
    let fd = s.pair();
    if s.a() {
        cork(fd, 1);
        io::write(fd, b"by memory ").ok();
        let (mine, theirs) = net::unix_pair(libc::SOCK_STREAM);
        pass::send_fd(mine, fd);
        pass::recv_fd(theirs, 0);
        io::write(fd, b"by the kernel").ok();
        cork(fd, 0);
    } else {
        log!(s, "{}", text(&io::recv_exact(fd, 23).0));
    }
    s.sync("done");
}

/// Whoever is killed has sent it.
fn withheld_by_killed(s: &Side) {
    let fd = s.pair();
    if s.a() {
        io::send(fd, b"last words", libc::MSG_MORE).ok();
        proc::die();
    } else {
        s.wait_gone();
        let (got, end) = io::recv_to_end(fd);
        log!(s, "{} {end}", text(&got));
    }
}

/// A server's connections are corked from the start, and answer at once what the client asks first.
fn corked_listener(s: &Side) {
    let question = |fd| {
        if s.accepts() {
            io::recv_exact(fd, 1);
            io::send(fd, b"ans", 0).ok();
            io::send(fd, b"wer", 0).ok();
            cork(fd, 0);
            cork(fd, 1);
        } else {
            io::send(fd, b"q", 0).ok();
            assert_eq!(io::recv_exact(fd, 6).0, b"answer");
        }
    };
    const CONNECTIONS: u32 = 20;
    let begun = Instant::now();
    if s.accepts() {
        let lis = s.listen(16);
        cork(lis, 1);
        s.sync("corked");
        for _ in 0..CONNECTIONS {
            let fd = net::accept(lis).fd();
            question(fd);
            question(fd);
            net::close(fd).ok();
        }
    } else {
        let to = s.target();
        s.sync("corked");
        for _ in 0..CONNECTIONS {
            let fd = net::socket_for(to, 0);
            net::connect(fd, to).ok();
            question(fd);
            question(fd);
            net::close(fd).ok();
        }
    }
    // (the kernel sends what is corked after 200 ms)
    let kept = begun.elapsed() > wait::millis(200) * CONNECTIONS / 2;
    log!(s, "kept back {kept}");
    s.sync("done");
}
