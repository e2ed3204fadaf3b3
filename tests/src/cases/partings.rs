//! Ends by calls that few programs make, and what is done to a stream whose peer has just ended.

use super::{Case, MOVES};
use crate::log;
use crate::side::{Random, Side, fill_up, hash};
use crate::sys::{Fd, io, net, pass, proc, wait};

pub(super) const CASES: &[Case] = &[
    Case::moving("system_behind_little", |s| system_behind(s, 100)),
    Case::moving("system_behind_some", |s| system_behind(s, 30_000)),
    Case::moving("system_behind_much", |s| system_behind(s, 400_000)),
    Case::moving("system_behind_closed", system_behind_closed),
    Case::moving("system_amid_much", system_amid_much),
    Case::moving("passed_behind_closed", passed_behind_closed),
    Case::moving("system_behind_half_closed", system_behind_half_closed),
    Case::pair(
        "killed_while_its_sender_is_full",
        killed_while_its_sender_is_full,
    )
    .processes_only(),
    Case::pair("ends_by_quick_exit", ends_by_quick_exit).processes_only(),
    Case::pair("stream_becomes_standard", stream_becomes_standard)
        .processes_only()
        .any_path(MOVES),
    Case::pair("urgent_behind_end", urgent_behind_end).any_path(MOVES),
];

/// The program starts another, which may have the stream.
fn system() -> i32 {
    // SAFETY: a constant command.
    unsafe { libc::system(c"exit 0".as_ptr()) }
}

/// What is left, and how it ends.
fn rest(s: &Side, fd: Fd) {
    let (got, last) = io::recv_to_end(fd);
    log!(s, "{} {:x} {last}", got.len(), hash(&got));
}

/// The peer sends and ends, with much of that in its kernel still. The reader has read the beginning.
fn system_behind(s: &Side, size: usize) {
    let fd = s.pair();
    if s.a() {
        io::recv_exact(fd, 4);
        io::send_all(fd, &Random::new(71).bytes(size)).ok();
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) }
    }
    io::send_all(fd, b"send").ok();
    log!(s, "{}", io::recv_exact(fd, 20).0.len());
    log!(s, "{}", system());
    rest(s, fd);
}

/// The reader starts another program while its peer goes on sending as fast as it can, and for long.
fn system_amid_much(s: &Side) {
    const PART: usize = 256 << 10;
    const PARTS: usize = 640; // (as much as can be drawn in the time that leaving has, and more)
    let fd = s.pair();
    let part = Random::new(75).bytes(PART);
    if s.a() {
        let all = (0..PARTS).all(|_| io::send_all(fd, &part).0 >= 0);
        log!(s, "{all}");
        net::close(fd).ok();
        return;
    }
    let mut equal = true;
    for count in 0..PARTS {
        if count == 80 || count == 160 {
            log!(s, "{}", system());
        }
        equal &= io::recv_exact(fd, PART).0[..] == part[..];
    }
    log!(s, "{equal}");
    rest(s, fd);
}

/// The same of connections that are closed, one after the other.
fn system_behind_closed(s: &Side) {
    for size in [10, 3000, 100_000, 400_000] {
        let fd = s.pair();
        if s.a() {
            io::recv_exact(fd, 4);
            io::send_all(fd, &Random::new(72).bytes(size)).ok();
            net::close(fd).ok();
        } else {
            io::send_all(fd, b"send").ok();
            log!(s, "{}", io::recv_exact(fd, 10).0.len());
            log!(s, "{}", system());
            rest(s, fd);
            net::close(fd).ok();
        }
    }
}

/// The peer ends its direction, and the reader starts another program, at the moment when the two may agree to go on by an adapter.
fn system_behind_half_closed(s: &Side) {
    for count in 30..38 {
        let fd = s.pair();
        for _ in 0..count {
            if s.a() {
                io::recv_exact(fd, 64);
                io::send_all(fd, &[7; 64]).ok();
            } else {
                io::send_all(fd, &[7; 64]).ok();
                io::recv_exact(fd, 64);
            }
        }
        if s.a() {
            io::send_all(fd, &[8; 100]).ok();
            net::shutdown(fd, libc::SHUT_WR).ok();
        } else {
            io::send_all(fd, &[8; 1]).ok();
            io::recv_exact(fd, 100);
            log!(s, "{}", system());
        }
        rest(s, fd);
        net::close(fd).ok();
    }
}

/// The stream is passed on, and read by who takes it, with much of what its peer has sent before it closed not come yet.
fn passed_behind_closed(s: &Side) {
    for size in [3000, 400_000] {
        let fd = s.pair();
        if s.a() {
            io::recv_exact(fd, 4);
            io::send_all(fd, &Random::new(73).bytes(size)).ok();
            net::close(fd).ok();
            s.sync("closed");
            continue;
        }
        io::send_all(fd, b"send").ok();
        log!(s, "{}", io::recv_exact(fd, 10).0.len());
        s.sync("closed");
        let (own, other) = net::unix_pair(libc::SOCK_SEQPACKET);
        pass::send_fd(own, fd);
        net::close(fd).ok();
        rest(s, pass::recv_fd(other, 0));
    }
}

/// The reader is killed with much unread, after a conversation, while its sender waits for room: that is a reset, told once.
fn killed_while_its_sender_is_full(s: &Side) {
    let fd = s.pair();
    for _ in 0..60 {
        if s.a() {
            let (got, _) = io::recv_exact(fd, 64);
            io::send_all(fd, &got).ok();
        } else {
            io::send_all(fd, &[7; 64]).ok();
            io::recv_exact(fd, 64);
        }
    }
    if s.a() {
        s.hear();
        proc::die();
    }
    fill_up(fd);
    let helper = s.tell_once_asleep();
    let part = vec![7; 65_536];
    let send = || io::send(fd, &part, libc::MSG_NOSIGNAL);
    let first = loop {
        let sent = send();
        if sent.0 < 0 {
            break sent;
        }
    };
    helper.join().unwrap();
    log!(s, "{first}, then {}", send());
}

/// quick_exit(3) runs next to nothing of what exit does.
fn ends_by_quick_exit(s: &Side) {
    unsafe extern "C" {
        fn quick_exit(status: i32) -> !;
    }
    let fd = s.pair();
    if s.a() {
        io::recv_exact(fd, 4);
        for part in Random::new(74).bytes(3000).chunks(100) {
            io::send_all(fd, part).ok();
        }
        // SAFETY: ends the process.
        unsafe { quick_exit(0) }
    }
    io::send_all(fd, b"send").ok();
    rest(s, fd);
}

/// A stream is put where standard input is, as servers that inetd starts do it themselves, and C's stdio reads and writes there.
fn stream_becomes_standard(s: &Side) {
    unsafe extern "C" {
        fn dprintf(fd: i32, format: *const libc::c_char, ...) -> i32;
        fn __dprintf_chk(fd: i32, flag: i32, format: *const libc::c_char, ...) -> i32;
        fn getchar() -> i32;
    }
    let (spare, _other) = net::unix_pair(libc::SOCK_STREAM); // (so that no other connection gets that number)
    net::dup2(spare, 0).ok();
    for way in 0..4 {
        let fd = s.pair();
        if s.a() {
            io::recv_exact(fd, 4);
            io::send_all(fd, b"line one\nline two\n").ok();
            log!(s, "{}", String::from_utf8_lossy(&io::recv_exact(fd, 23).0));
            net::close(fd).ok();
            continue;
        }
        io::send_all(fd, b"send").ok();
        log!(s, "{}", io::recv_exact(fd, 5).0.len());
        let made = match way {
            0 => net::dup2(fd, 0),
            1 => net::dup3(fd, 0, 0),
            2 => {
                net::close(0).ok();
                net::dup(fd)
            }
            _ => {
                net::close(0).ok();
                net::fcntl(fd, libc::F_DUPFD, 0)
            }
        };
        log!(s, "{made}");
        let mut line = String::new();
        // SAFETY: this thread alone uses them; constant formats with one int each.
        unsafe {
            while let Ok(c) = u8::try_from(getchar()) {
                line.push(char::from(c));
                if line.len() == 13 {
                    break;
                }
            }
            log!(s, "{line:?}");
            log!(s, "{}", dprintf(0, c"number %d by ".as_ptr(), way));
            log!(s, "{}", __dprintf_chk(fd, 1, c"another %d ".as_ptr(), way));
        }
        io::send_all(fd, b".").ok();
        rest(s, fd);
        net::dup2(spare, 0).ok();
        net::close(fd).ok();
    }
}

/// Urgent data behind the end of this side's direction is refused at once.
fn urgent_behind_end(s: &Side) {
    let fd = s.pair();
    if s.a() {
        net::shutdown(fd, libc::SHUT_WR).ok();
        let begun = std::time::Instant::now();
        log!(
            s,
            "{}",
            io::send(fd, b"!", libc::MSG_OOB | libc::MSG_NOSIGNAL)
        );
        assert!(begun.elapsed() < wait::millis(1000), "at once");
        s.sync("refused");
    } else {
        rest(s, fd);
        s.sync("refused");
        log!(s, "{}", io::send(fd, b"still", libc::MSG_NOSIGNAL));
    }
    s.sync("done");
}
