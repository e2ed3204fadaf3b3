//! Signals that arrive while a call sleeps, with and without SA_RESTART, and signal masks.

use super::Case;
use crate::log;
use crate::side::{Side, fill_up};
use crate::sys::proc::{self, Thread, once_asleep};
use crate::sys::wait::Select;
use crate::sys::{Fd, Ret, io, net, wait};
use libc::{POLLIN, SIGUSR1};
use std::thread::JoinHandle;

pub(super) const CASES: &[Case] = &[
    Case::pair("mask_lets_in_behind_what_is_ready", lets_in_behind).processes_only(),
    Case::pair("eintr_recv", |s| {
        reader(s, false, |fd| io::recv(fd, &mut [0; 8], 0).to_string())
    }),
    Case::pair("eintr_read", |s| {
        reader(s, false, |fd| io::read(fd, &mut [0; 8]).to_string())
    }),
    Case::pair("eintr_readv", |s| {
        reader(s, false, |fd| io::readv(fd, &mut [&mut [0; 8]]).to_string())
    }),
    Case::pair("eintr_recvmsg", |s| {
        reader(s, false, |fd| {
            io::recvmsg(fd, &mut [&mut [0; 8]], 0).0.to_string()
        })
    }),
    Case::pair("eintr_poll", |s| {
        reader(s, false, |fd| wait::poll(&[(fd, POLLIN)], -1))
    }),
    Case::pair("eintr_ppoll", |s| {
        reader(s, false, |fd| wait::ppoll(&[(fd, POLLIN)], None, None))
    }),
    Case::pair("eintr_select", |s| reader(s, false, select)),
    Case::pair("eintr_pselect", |s| reader(s, false, pselect)),
    Case::pair("eintr_epoll", |s| reader(s, false, epoll)),
    Case::pair("eintr_send", |s| writer(s, false)),
    Case::pair("eintr_accept", |s| acceptor(s, false)),
    Case::pair("restart_recv", |s| {
        reader(s, true, |fd| io::recv(fd, &mut [0; 8], 0).to_string())
    }),
    Case::pair("restart_read", |s| {
        reader(s, true, |fd| io::read(fd, &mut [0; 8]).to_string())
    }),
    Case::pair("restart_recvmsg", |s| {
        reader(s, true, |fd| {
            io::recvmsg(fd, &mut [&mut [0; 8]], 0).0.to_string()
        })
    }),
    Case::pair("restart_poll", |s| {
        reader(s, true, |fd| wait::poll(&[(fd, POLLIN)], -1))
    }),
    Case::pair("restart_select", |s| reader(s, true, select)),
    Case::pair("restart_epoll", |s| reader(s, true, epoll)),
    Case::pair("restart_send", |s| writer(s, true)),
    Case::pair("restart_accept", |s| acceptor(s, true)),
    Case::pair("restart_recv_with_timeout", restart_recv_with_timeout),
    Case::pair("eintr_waitall_partial", eintr_waitall_partial),
    Case::pair("eintr_send_partial", eintr_send_partial),
    Case::pair("mask_ppoll", |s| {
        masked(s, |fd, mask| {
            wait::ppoll(&[(fd, POLLIN)], Some(wait::millis(60)), Some(mask))
        })
    }),
    Case::pair("mask_pselect", |s| {
        masked(s, |fd, mask| {
            Select {
                read: &[fd],
                write: &[],
                except: &[],
            }
            .pselect(Some(wait::millis(60)), Some(mask))
        })
    }),
    Case::pair("mask_epoll_pwait", |s| {
        masked(s, |fd, mask| {
            let set = wait::epoll();
            wait::add(set, fd, libc::EPOLLIN, 1).ok();
            wait::epoll_pwait(set, 4, 60, mask).to_string()
        })
    }),
    Case::pair("handler_sends_on_same_socket", handler_sends_on_same_socket),
    Case::pair("signals_during_transfer", signals_during_transfer),
];

fn select(fd: Fd) -> String {
    Select {
        read: &[fd],
        write: &[],
        except: &[],
    }
    .select(None)
}

fn pselect(fd: Fd) -> String {
    Select {
        read: &[fd],
        write: &[],
        except: &[],
    }
    .pselect(None, None)
}

fn epoll(fd: Fd) -> String {
    let set = wait::epoll();
    wait::add(set, fd, libc::EPOLLIN, 1).ok();
    let woken = wait::epoll_wait(set, 4, -1).to_string();
    net::close(set).ok();
    woken
}

/// Interrupts the calling thread once it sleeps, and tells the other end when that is long done.
fn interrupt_then_tell(s: &Side, value: u64) -> JoinHandle<()> {
    let channel = *s;
    once_asleep(move |me| {
        me.signal(SIGUSR1);
        wait::eventually(|| proc::caught(SIGUSR1) == 1);
        std::thread::sleep(wait::millis(30));
        channel.tell(value);
    })
}

/// A signals its sleeping thread, then has B send: either the call says EINTR or it goes on.
fn reader(s: &Side, restart: bool, call: fn(Fd) -> String) {
    let fd = s.pair();
    if s.a() {
        proc::count(SIGUSR1, restart);
        let helper = interrupt_then_tell(s, 1);
        log!(s, "{}", call(fd));
        log!(s, "signals {}", proc::caught(SIGUSR1));
        helper.join().unwrap();
        log!(s, "{:?}", io::recv(fd, &mut [0; 8], libc::MSG_PEEK).0 >= 0);
        log!(s, "{}", call(fd_after(fd)));
    } else {
        s.hear();
        io::send_all(fd, b"data").ok();
        std::thread::sleep(wait::millis(60));
        net::shutdown(fd, libc::SHUT_WR).ok();
    }
    s.sync("done");
}

/// The same descriptor once it has ended, so that a second call cannot sleep.
fn fd_after(fd: Fd) -> Fd {
    wait::wait_for(fd, libc::POLLRDHUP);
    fd
}

fn writer(s: &Side, restart: bool) {
    let fd = s.pair();
    if s.a() {
        proc::count(SIGUSR1, restart);
        let total = fill_up(fd);
        let helper = interrupt_then_tell(s, total as u64);
        let r = io::send(fd, b"tail", 0);
        log!(s, "{r}");
        helper.join().unwrap();
        if r.0 < 0 {
            log!(s, "{}", io::send(fd, b"tail", 0));
        }
        net::shutdown(fd, libc::SHUT_WR).ok();
    } else {
        let total = s.hear() as usize;
        let (got, last) = io::recv_to_end(fd);
        log!(s, "{} {last}", got.len() == total + 4);
    }
    s.sync("done");
}

fn acceptor(s: &Side, restart: bool) {
    let fd = s.pair();
    if s.a() {
        proc::count(SIGUSR1, restart);
        let (lis, at) = net::listener(net::loopback(), 4);
        let helper = interrupt_then_tell(s, u64::from(at.port()));
        let r = net::accept(lis);
        log!(
            s,
            "{}",
            if r.0 >= 0 {
                "accepted".to_string()
            } else {
                r.to_string()
            }
        );
        helper.join().unwrap();
        if r.0 < 0 {
            log!(s, "{}", net::accept(lis).0 >= 0);
        }
    } else {
        let to = s.target();
        let own = net::socket_for(to, 0);
        log!(s, "{}", net::connect(own, to));
    }
    io::send_all(fd, b"x").ok();
    log!(s, "{}", io::recv_exact(fd, 1).1);
    s.sync("done");
}

/// With a receive timeout the kernel never restarts, whatever the handler asked for.
fn restart_recv_with_timeout(s: &Side) {
    let fd = s.pair();
    if s.a() {
        proc::count(SIGUSR1, true);
        net::set_timeout(fd, libc::SO_RCVTIMEO, 8000).ok();
        let helper = once_asleep(|me| me.signal(SIGUSR1));
        log!(s, "{}", io::recv(fd, &mut [0; 4], 0));
        helper.join().unwrap();
    }
    s.sync("done");
}

fn eintr_waitall_partial(s: &Side) {
    let fd = s.pair();
    io::send_all(fd, b"part").ok();
    if s.a() {
        wait::wait_queued(fd, 4);
        proc::count(SIGUSR1, false);
        let helper = once_asleep(|me| me.signal(SIGUSR1));
        log!(s, "{}", io::recv(fd, &mut [0; 9], libc::MSG_WAITALL));
        helper.join().unwrap();
    }
    s.sync("done");
}

/// A large send that is interrupted midway says how much it took.
fn eintr_send_partial(s: &Side) {
    let fd = s.pair();
    if s.a() {
        proc::count(SIGUSR1, false);
        let helper = once_asleep(|me| me.signal(SIGUSR1));
        let big = vec![1u8; 48 << 20];
        let took = io::send(fd, &big, 0).ok();
        helper.join().unwrap();
        log!(s, "partial {}", took > 0 && took < big.len());
        s.tell(took as u64);
        net::shutdown(fd, libc::SHUT_WR).ok();
    } else {
        let took = s.hear() as usize;
        let (got, last) = io::recv_to_end(fd);
        log!(s, "{} {last}", got.len() == took);
    }
    s.sync("done");
}

/// A blocked signal waits out a call that masks it and interrupts one that does not.
fn masked(s: &Side, call: fn(Fd, &[i32]) -> String) {
    let fd = s.pair();
    if s.a() {
        proc::count(SIGUSR1, true);
        proc::block(&[SIGUSR1]);
        Thread::current().signal(SIGUSR1);
        log!(
            s,
            "blocked {} {}",
            call(fd, &[SIGUSR1]),
            proc::caught(SIGUSR1)
        );
        log!(s, "let through {} {}", call(fd, &[]), proc::caught(SIGUSR1));
        log!(
            s,
            "nothing left {} {}",
            call(fd, &[]),
            proc::caught(SIGUSR1)
        );
        // Something ready and something pending: the kernel looks at descriptors first.
        s.sync("masked");
        wait::wait_for(fd, POLLIN);
        Thread::current().signal(SIGUSR1);
        log!(s, "ready {}", call(fd, &[SIGUSR1]));
        proc::unblock(&[SIGUSR1]);
        log!(s, "delivered {}", proc::caught(SIGUSR1));
    } else {
        s.sync("masked");
        io::send_all(fd, b"x").ok();
    }
    s.sync("done");
}

static HANDLER_FD: std::sync::atomic::AtomicI32 = std::sync::atomic::AtomicI32::new(-1);

extern "C" fn send_from_handler(_: i32) {
    let fd = HANDLER_FD.load(std::sync::atomic::Ordering::SeqCst);
    io::send(fd, b"from handler", 0);
}

/// send is allowed in a handler, even on the socket whose recv was interrupted.
fn handler_sends_on_same_socket(s: &Side) {
    let fd = s.pair();
    if s.a() {
        HANDLER_FD.store(fd, std::sync::atomic::Ordering::SeqCst);
        proc::handle(libc::SIGUSR2, send_from_handler, true);
        let helper = once_asleep(|me| me.signal(libc::SIGUSR2));
        log!(s, "{}", io::recv(fd, &mut [0; 4], 0));
        helper.join().unwrap();
    } else {
        let (got, _) = io::recv_exact(fd, 12);
        log!(s, "{}", String::from_utf8_lossy(&got));
        io::send_all(fd, b"back").ok();
    }
    s.sync("done");
}

/// A storm of signals loses and doubles nothing.
fn signals_during_transfer(s: &Side) {
    let fd = s.pair();
    let size = 8 << 20;
    proc::count(SIGUSR1, true);
    let me = Thread::current();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let flag = stop.clone();
    let storm = std::thread::spawn(move || {
        while !flag.load(std::sync::atomic::Ordering::SeqCst) {
            me.signal(SIGUSR1);
            std::thread::sleep(std::time::Duration::from_micros(300));
        }
    });
    let big = crate::side::Random::new(6).bytes(size);
    let all_of = |r: Ret| r.ok() == size;
    if s.a() {
        log!(s, "{}", all_of(io::send_all(fd, &big)));
    } else {
        let (got, _) = io::recv_exact(fd, size);
        log!(s, "{}", got == big);
    }
    stop.store(true, std::sync::atomic::Ordering::SeqCst);
    storm.join().unwrap();
    s.sync("done");
}

/// A signal waits that the call's mask lets in: what is ready comes first, and the handler does not run for it.
fn lets_in_behind(s: &Side) {
    let fd = s.pair();
    proc::count(libc::SIGUSR1, false);
    proc::block(&[libc::SIGUSR1]);
    let raise = || proc::kill(std::process::id() as i32, libc::SIGUSR1).ok();
    let time = Some(wait::millis(50));
    let select = Select {
        read: &[fd],
        write: &[],
        except: &[],
    };
    for ready in [false, true] {
        if ready {
            io::send_all(fd, b"x").ok();
            wait::wait_queued(fd, 1);
        }
        raise();
        let text = wait::ppoll(&[(fd, libc::POLLIN)], time, Some(&[]));
        log!(s, "{text} {}", proc::caught(libc::SIGUSR1));
        raise();
        log!(
            s,
            "{} {}",
            select.pselect(time, Some(&[])),
            proc::caught(libc::SIGUSR1)
        );
        let set = wait::epoll();
        wait::add(set, fd, libc::EPOLLIN, 1).ok();
        raise();
        log!(
            s,
            "{} {}",
            wait::epoll_pwait(set, 4, 50, &[]),
            proc::caught(libc::SIGUSR1)
        );
        s.sync("looked");
    }
    s.sync("done");
}
