//! One step, as one process does it.

use super::bulk;
use super::ends::Walker;
use super::plan::{Act, DupBy, Expect, Give, Sleep, Step, Take, Watch, bytes};
use crate::side::hash;
use crate::sys::{Fd, Ret, call, io, net, wait};
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
                let fd = receive_fd(w.channel_to(step.who));
                w.line("passed");
                w.slots.insert(new, fd);
            } else {
                send_fd(w.channel_to(to), w.fd(slot));
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

/// Sends all of it by calls of one kind; what the first failing one said, or the count.
pub fn give(fd: Fd, data: &[u8], by: Give) -> Ret {
    let quiet = libc::MSG_NOSIGNAL;
    let mut done = 0;
    while done < data.len() {
        let rest = &data[done..];
        let half = rest.len() / 2;
        let r = match by {
            Give::Write => io::write(fd, rest),
            Give::Send => io::send(fd, rest, quiet),
            Give::SendMore => io::send(fd, rest, quiet | libc::MSG_MORE),
            Give::Writev => io::writev(fd, &[&rest[..half], &[], &rest[half..]]),
            Give::Sendmsg => io::sendmsg(fd, &[&rest[..half], &rest[half..]], quiet),
            Give::Sendmmsg => io::sendmmsg(fd, &[&rest[..half], &rest[half..]], quiet)
                .1
                .iter()
                .fold(Ret(0), |sum, n| Ret(sum.0 + i64::from(*n))),
            Give::Sendfile => from_file(fd, rest),
            Give::Splice => from_pipe(fd, &rest[..rest.len().min(60_000)]),
            Give::Raw => call!(libc::syscall(
                libc::SYS_write,
                fd,
                rest.as_ptr(),
                rest.len()
            )),
            Give::Stdio => by_stdio(fd, rest),
        };
        if r.0 <= 0 {
            if r.is(libc::EAGAIN) {
                wait::wait_for(fd, libc::POLLOUT);
                continue;
            }
            return r;
        }
        done += r.0 as usize;
    }
    if by == Give::SendMore {
        // What MSG_MORE holds back goes now.
        net::setopt(fd, libc::IPPROTO_TCP, libc::TCP_CORK, 1);
        net::setopt(fd, libc::IPPROTO_TCP, libc::TCP_CORK, 0);
    }
    Ret(done as i64)
}

fn from_file(fd: Fd, data: &[u8]) -> Ret {
    let file = call!(libc::memfd_create(c"walk".as_ptr(), libc::MFD_CLOEXEC)).fd();
    io::write(file, data).ok();
    let mut from = 0;
    let r = call!(libc::sendfile(fd, file, &raw mut from, data.len()));
    net::close(file).ok();
    r
}

fn from_pipe(fd: Fd, data: &[u8]) -> Ret {
    let (out, into) = net::pipe();
    io::write(into, data).ok();
    let mut done = 0;
    while done < data.len() {
        let null = std::ptr::null_mut();
        let r = call!(libc::splice(out, null, fd, null, data.len() - done, 0));
        if r.is(libc::EAGAIN) {
            wait::wait_for(fd, libc::POLLOUT);
            continue;
        }
        if r.0 <= 0 {
            done = 0;
            break;
        }
        done += r.0 as usize;
    }
    net::close(out).ok();
    net::close(into).ok();
    Ret(done as i64)
}

fn by_stdio(fd: Fd, data: &[u8]) -> Ret {
    net::set_nonblocking(fd, false).ok();
    // SAFETY: the FILE is this call's alone and closed once.
    unsafe {
        let file = libc::fdopen(net::dup(fd).fd(), c"w".as_ptr());
        let n = libc::fwrite(data.as_ptr().cast(), 1, data.len(), file);
        libc::fclose(file);
        Ret(n as i64)
    }
}

/// One call that receives; `Splice` goes on until it has everything, in pieces that are the kernel's
/// affair.
pub fn take(fd: Fd, size: usize, by: Take) -> (Ret, Vec<u8>) {
    let mut buf = vec![0; size];
    let half = size / 3;
    let r = match by {
        Take::Read => io::read(fd, &mut buf),
        Take::Recv => io::recv(fd, &mut buf, libc::MSG_DONTWAIT),
        Take::Peek => io::recv(fd, &mut buf, libc::MSG_PEEK),
        Take::WaitAll => io::recv(fd, &mut buf, libc::MSG_WAITALL),
        Take::Readv => {
            let (left, right) = buf.split_at_mut(half);
            io::readv(fd, &mut [left, &mut [], right])
        }
        Take::Recvmsg => {
            let (left, right) = buf.split_at_mut(half);
            io::recvmsg(fd, &mut [left, right], libc::MSG_DONTWAIT).0
        }
        Take::Raw => call!(libc::syscall(libc::SYS_read, fd, buf.as_mut_ptr(), size)),
        Take::Discard => io::recv(fd, &mut buf, libc::MSG_TRUNC | libc::MSG_DONTWAIT),
        Take::Splice => return through_pipe(fd, size),
    };
    buf.truncate(usize::try_from(r.0).unwrap_or(0));
    (r, buf)
}

fn through_pipe(fd: Fd, size: usize) -> (Ret, Vec<u8>) {
    let (out, into) = net::pipe();
    let mut got = Vec::new();
    while got.len() < size {
        let null = std::ptr::null_mut();
        let most = (size - got.len()).min(30_000);
        let r = call!(libc::splice(
            fd,
            null,
            into,
            null,
            most,
            libc::SPLICE_F_NONBLOCK
        ));
        if r.0 < 0 && got.is_empty() {
            net::close(out).ok();
            net::close(into).ok();
            return (r, got);
        }
        if r.0 <= 0 {
            break;
        }
        let mut piece = vec![0; r.ok()];
        io::read(out, &mut piece).ok();
        got.append(&mut piece);
    }
    net::close(out).ok();
    net::close(into).ok();
    (Ret(got.len() as i64), got)
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

#[repr(align(8))]
struct Control([u8; 24]);

/// Passes a descriptor with one byte.
fn send_fd(channel: Fd, fd: Fd) {
    let mut control = Control([0; 24]);
    control.0[..8].copy_from_slice(&20u64.to_ne_bytes());
    control.0[8..12].copy_from_slice(&libc::SOL_SOCKET.to_ne_bytes());
    control.0[12..16].copy_from_slice(&libc::SCM_RIGHTS.to_ne_bytes());
    control.0[16..20].copy_from_slice(&fd.to_ne_bytes());
    let mut list = io::iov(b"f");
    let h = message(&mut list, &mut control);
    call!(libc::sendmsg(channel, &raw const h, 0)).ok();
}

fn receive_fd(channel: Fd) -> Fd {
    let mut control = Control([0; 24]);
    let mut byte = [0];
    let mut list = io::iov_mut(&mut byte);
    let mut h = message(&mut list, &mut control);
    call!(libc::recvmsg(channel, &raw mut h, 0)).ok();
    let mut word = [0; 4];
    word.copy_from_slice(&control.0[16..20]);
    i32::from_ne_bytes(word)
}

fn message(list: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: all zeroes is a valid msghdr.
    let mut h: libc::msghdr = unsafe { std::mem::zeroed() };
    h.msg_iov = list;
    h.msg_iovlen = 1;
    h.msg_control = control.0.as_mut_ptr().cast();
    h.msg_controllen = 24;
    h
}
