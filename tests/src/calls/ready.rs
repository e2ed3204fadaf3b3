//! Readiness now, and calls that wait in vain until a time-out or a signal ends them.

use super::end::End;
use super::plan::Step;
use crate::sys::{Fd, call, io, net, proc, wait};
use std::time::Duration;

pub fn look(e: &End, step: &Step) {
    let all: Vec<Fd> = e.conns.iter().flat_map(|c| c.fds.iter().copied()).collect();
    let events =
        |i: usize| (step.words[1] >> (i % 16)) as i16 & 0x33ff | step.words[2] as i16 & 0x2005;
    let list: Vec<_> = all
        .iter()
        .enumerate()
        .map(|(i, fd)| (*fd, events(i)))
        .collect();
    let select = wait::Select {
        read: &all,
        write: if step.words[3].is_multiple_of(2) {
            &all
        } else {
            &[]
        },
        except: &all,
    };
    let text = match step.words[0] % 5 {
        0 => wait::poll(&list, 0),
        1 => wait::ppoll(&list, Some(Duration::ZERO), Some(&[libc::SIGUSR1])),
        2 => select.select(Some(Duration::ZERO)),
        3 => select.pselect(Some(Duration::ZERO), Some(&[libc::SIGUSR1])),
        _ => {
            let both = |fd| {
                format!(
                    "{} {:?}",
                    net::queued(fd),
                    net::ioctl_int(fd, net::SIOCATMARK).1
                )
            };
            format!(
                "queued {:?}",
                all.iter().map(|fd| both(*fd)).collect::<Vec<_>>()
            )
        }
    };
    e.line(&format!("look {} {text}", step.words[0] % 5));
}

/// Only where nothing is there, so that it is in vain on kernel TCP too.
pub fn in_vain(e: &End, step: &Step, fd: Fd) {
    let [by, form, _, _, _] = step.words;
    let c = &e.conns[step.conn];
    if c.queued() > 0 || c.ends() || c.nonblock {
        return;
    }
    let signal = form % 3 > 0;
    net::set_timeout(
        fd,
        libc::SO_RCVTIMEO,
        if signal && form % 2 == 0 { 0 } else { 15 },
    )
    .ok();
    let restart = form % 2 == 1;
    if signal {
        proc::count(libc::SIGALRM, restart);
        timer(5);
    }
    let mut buf = [0; 50];
    let text = match by % 6 {
        0 => io::read(fd, &mut buf).to_string(),
        1 => io::recv(fd, &mut buf, libc::MSG_WAITALL).to_string(),
        2 => wait::poll(&[(fd, libc::POLLIN)], 15),
        3 => {
            let select = wait::Select {
                read: &[fd],
                write: &[],
                except: &[],
            };
            select.select(Some(Duration::from_millis(15)))
        }
        4 => {
            let set = wait::epoll();
            wait::add(set, fd, libc::EPOLLIN, 7).ok();
            let text = wait::epoll_wait(set, 4, 15).to_string();
            net::close(set).ok();
            text
        }
        _ => io::readv(fd, &mut [&mut buf]).to_string(),
    };
    timer(0);
    net::set_timeout(fd, libc::SO_RCVTIMEO, 0).ok();
    // A poll's time and a signal's may come in either order on a busy machine: only a stream's own call is sure.
    let sure = !signal || !matches!(by % 6, 2..=4);
    e.line(&format!(
        "in vain {} {signal} {restart} {}",
        by % 6,
        if sure && !(signal && restart) {
            &text
        } else {
            "-"
        }
    ));
}

/// SIGALRM every so many milliseconds, or no more.
fn timer(millis: i64) {
    let each = libc::timeval {
        tv_sec: 0,
        tv_usec: millis * 1000,
    };
    let value = libc::itimerval {
        it_interval: each,
        it_value: each,
    };
    call!(libc::setitimer(
        libc::ITIMER_REAL,
        &raw const value,
        std::ptr::null_mut()
    ))
    .ok();
}
