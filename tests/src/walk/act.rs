//! One step, as one process does it.

use super::bulk;
use super::calls::{give, take};
use super::ends::Walker;
use super::plan::{Act, DupBy, Expect, Sleep, Step, Watch, bytes};
use crate::side::hash;
use crate::sys::{Fd, Ret, call, io, net, pass, wait};
use std::time::{Duration, Instant};

pub const ALL: i16 = libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP | libc::POLLPRI;

pub fn act(w: &mut Walker, step: &Step) {
    match step.act.clone() {
        Act::Give {
            slot,
            conn,
            pos,
            size,
            by,
        } => {
            let data = bytes(conn, w.who.end, pos, size);
            let r = give(w.fd(slot), &data, by);
            w.told(&format!("give {slot} {size} {by:?}"), r);
        }
        Act::Take {
            slot,
            size,
            by,
            ready,
            ..
        } => {
            settle(w.fd(slot), ready);
            let (r, got) = take(w.fd(slot), size, by);
            w.line(&format!("take {slot} {size} {by:?} {r} {:x}", hash(&got)));
        }
        Act::Look { slots } => look(w, &slots),
        Act::Shutdown { slot, how } => w.told(
            &format!("shutdown {slot} {how}"),
            net::shutdown(w.fd(slot), how),
        ),
        Act::Linger { slot } => w.told("linger", net::linger(w.fd(slot), true, 0)),
        Act::Nonblock { slot, on, by_ioctl } => {
            let fd = w.fd(slot);
            let r = if by_ioctl {
                net::fionbio(fd, on)
            } else {
                net::set_nonblocking(fd, on)
            };
            w.line(&format!("nonblock {slot} {r} {}", net::is_nonblocking(fd)));
        }
        Act::Nodelay { slot, on } => {
            let fd = w.fd(slot);
            let r = net::setopt(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, i32::from(on));
            w.line(&format!(
                "nodelay {r} {:?}",
                net::getopt(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY)
            ));
        }
        Act::Error { slot } => w.line(&format!("error {slot} {}", net::so_error(w.fd(slot)))),
        Act::Dup { slot, new, by } => {
            let fd = dup(w.fd(slot), by);
            w.told(&format!("dup {slot} {by:?}"), fd);
            w.slots.insert(new, fd.fd());
        }
        Act::Onto { slot, new } => w.told(
            &format!("dup2 {slot} {new}"),
            net::dup2(w.fd(slot), w.fd(new)),
        ),
        Act::Close { slot } => {
            let r = net::close(w.fd(slot));
            w.slots.remove(&slot);
            w.told(&format!("close {slot}"), r);
        }
        Act::Watch { slot, how } => watch(w, slot, how),
        Act::Unwatch { slot } => {
            w.edges.retain(|s| *s != slot);
            w.told(
                &format!("unwatch {slot}"),
                wait::delete(w.set.unwrap(), w.fd(slot)),
            );
        }
        Act::Wait { ready } => {
            for (slot, ready) in ready {
                settle(w.fd(slot), ready);
            }
            wait_now(w);
        }
        Act::Fork { child } => w.fork(child),
        Act::Exec { with_library } => w.exec(with_library),
        Act::Pass { slot, new, to } => {
            if w.who == to {
                let fd = pass::recv_fd(w.channel_to(step.who), 0);
                w.line("passed");
                w.slots.insert(new, fd);
            } else {
                pass::send_fd(w.channel_to(to), w.fd(slot));
            }
        }
        Act::Kill { child } => w.kill(child),
        Act::Exit => {}
        // SAFETY: a constant command.
        Act::System => w.told(
            "system",
            Ret(i64::from(unsafe { libc::system(c"exit 3".as_ptr()) })),
        ),
        Act::Meet {
            slot,
            by,
            from,
            conn,
            pos,
            size,
            delay_us,
            ..
        } => {
            if w.who == step.who {
                asleep(w, slot, by, size);
            } else {
                std::thread::sleep(Duration::from_micros(delay_us));
                let data = bytes(conn, w.who.end, pos, size);
                w.told("wake", io::send_all(w.fd(from), &data));
            }
        }
        Act::Bulk {
            slot,
            to,
            conn,
            there,
            back,
            ..
        } => {
            let own = if w.who == step.who { slot } else { to };
            let (out, in_) = if w.who == step.who {
                (Some(there), back)
            } else {
                (back, Some(there))
            };
            bulk::bulk(w, own, conn, out, in_);
        }
    }
}

/// Waits for what the kernel is about to deliver, so that the next call's result is certain.
pub fn settle(fd: Fd, ready: Expect) {
    let end = Instant::now() + Duration::from_millis(300);
    let events = |bit| {
        let mut p = libc::pollfd {
            fd,
            events: libc::POLLRDHUP,
            revents: 0,
        };
        call!(libc::poll(&raw mut p, 1, 0)).ok();
        p.revents & bit != 0
    };
    let done = || {
        net::queued(fd) as u64 >= ready.queued
            && (!ready.end || events(libc::POLLRDHUP | libc::POLLHUP))
            && (!ready.reset || events(libc::POLLHUP))
    };
    while !done() && Instant::now() < end {
        std::thread::sleep(Duration::from_micros(50));
    }
}

fn look(w: &Walker, slots: &[(usize, Expect)]) {
    let mut list = Vec::new();
    for (slot, ready) in slots {
        let fd = w.fd(*slot);
        settle(fd, *ready);
        list.push((fd, ALL));
    }
    w.line(&format!("poll {}", wait::poll(&list, 0)));
    let all: Vec<Fd> = list.iter().map(|(fd, _)| *fd).collect();
    let select = wait::Select {
        read: &all,
        write: &all,
        except: &[],
    };
    w.line(&format!("select {}", select.select(Some(Duration::ZERO))));
    let queued: Vec<i32> = all.iter().map(|fd| net::queued(*fd)).collect();
    w.line(&format!("queued {queued:?}"));
    let only: Vec<_> = all.iter().map(|fd| (*fd, libc::POLLIN)).collect();
    w.line(&format!(
        "poll in {}",
        wait::ppoll(&only, Some(Duration::ZERO), None)
    ));
}

fn dup(fd: Fd, by: DupBy) -> Ret {
    // A number that nothing has, the same in every run.
    let free = || {
        let r = net::fcntl(fd, libc::F_DUPFD, 100);
        net::close(r.fd()).ok();
        r.fd()
    };
    match by {
        DupBy::Dup => net::dup(fd),
        DupBy::Dup2 => net::dup2(fd, free()),
        DupBy::Dup3 => net::dup3(fd, free(), 0),
        DupBy::Fcntl => net::fcntl(fd, libc::F_DUPFD, 40),
        DupBy::FcntlCloexec => net::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0),
    }
}

fn watch(w: &mut Walker, slot: usize, how: Watch) {
    let set = *w.set.get_or_insert_with(wait::epoll);
    let events = libc::EPOLLIN | libc::EPOLLRDHUP;
    let events = match how {
        Watch::Level => events | libc::EPOLLOUT,
        Watch::Edge => {
            w.edges.push(slot);
            events | libc::EPOLLET
        }
        Watch::Once => events | libc::EPOLLONESHOT,
    };
    w.told(
        &format!("watch {slot} {how:?}"),
        wait::add(set, w.fd(slot), events, slot as u64),
    );
}

/// epoll_wait; edge-triggered ones are told apart, since wake-ups that mean nothing are allowed there.
fn wait_now(w: &Walker) {
    let Some(set) = w.set else { return };
    let woken = wait::epoll_wait(set, 16, 0);
    for (slot, events) in &woken.list {
        let kind = if w.edges.contains(&(*slot as usize)) {
            "edge"
        } else {
            "event"
        };
        w.line(&format!("{kind} {slot} {events}"));
    }
    if woken.ret.0 < 0 {
        w.told("wait", woken.ret);
    }
}

/// Sleeps until the other end sends, in a call that does not end before.
fn asleep(w: &Walker, slot: usize, by: Sleep, size: usize) {
    let fd = w.fd(slot);
    net::set_nonblocking(fd, false).ok();
    match by {
        Sleep::Recv | Sleep::WaitAll => {}
        Sleep::Poll => w.line(&format!("woken {}", wait::poll(&[(fd, libc::POLLIN)], -1))),
        Sleep::Select => {
            let select = wait::Select {
                read: &[fd],
                write: &[],
                except: &[],
            };
            w.line(&format!("woken {}", select.select(None)));
        }
        Sleep::Epoll => {
            let set = wait::epoll();
            wait::add(set, fd, libc::EPOLLIN, 1).ok();
            w.line(&format!("woken {}", wait::epoll_wait(set, 4, -1)));
            net::close(set).ok();
        }
    }
    let mut buf = vec![0; size];
    let flags = if by == Sleep::Recv {
        0
    } else {
        libc::MSG_WAITALL
    };
    let r = io::recv(fd, &mut buf, flags);
    w.line(&format!("slept {by:?} {r} {:x}", hash(&buf)));
}
