//! Epoll sets of an end: one for streams, and one that has the first in it.

use super::end::End;
use super::plan::Step;
use crate::sys::{Fd, net, wait};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub struct Sets {
    set: Option<Fd>,
    outer: Fd,
    /// What is registered, and whether edge-triggered.
    known: BTreeMap<Fd, bool>,
}

impl Sets {
    fn open(&mut self) -> Fd {
        let outer = &mut self.outer;
        *self.set.get_or_insert_with(|| {
            let set = wait::epoll();
            *outer = wait::epoll();
            wait::add(*outer, set, libc::EPOLLIN, 0x99).ok();
            set
        })
    }

    /// Before a descriptor is closed. (One that is left in a set while a duplicate lives cannot be taken out any more, and
    /// its number means another.)
    pub fn forget(&mut self, fd: Fd) {
        if let Some(set) = self.set.filter(|_| self.known.remove(&fd).is_some()) {
            wait::delete(set, fd);
        }
    }
}

pub fn watch(e: &mut End, step: &Step, fd: Fd) {
    let [by, events, more, _, _] = step.words;
    let set = e.sets.open();
    let mut bits = [0x2005, 1, 4, 5, 0x2000, 0, 0x2001, 2][events % 8];
    let edge = more % 3 == 0;
    if edge {
        bits |= libc::EPOLLET;
    }
    if more % 5 == 0 {
        bits |= libc::EPOLLONESHOT;
    }
    if more % 7 == 0 && by % 4 < 2 {
        bits = bits & !(libc::EPOLLONESHOT | 0x2000) | libc::EPOLLEXCLUSIVE;
    }
    // One registration a stream: two of them share their wake-ups in the kernel.
    let other = e.conns[step.conn]
        .fds
        .iter()
        .any(|f| *f != fd && e.sets.known.contains_key(f));
    if other {
        return;
    }
    let data = (step.conn + 1) as u64;
    let r = match by % 4 {
        0 | 1 => wait::add(set, fd, bits, data),
        2 => wait::modify(set, fd, bits, data),
        _ => wait::delete(set, fd),
    };
    if r.0 == 0 {
        if by % 4 == 3 {
            e.sets.known.remove(&fd);
        } else {
            e.sets.known.insert(fd, edge);
        }
    }
    e.told(&format!("watch {} {bits:#x}", by % 4), r);
}

pub fn wait(e: &mut End, step: &Step) {
    let set = e.sets.open();
    let edges = e.sets.known.values().any(|edge| *edge);
    if step.words[0].is_multiple_of(3) && !edges {
        e.line(&format!("outer {}", wait::epoll_wait(e.sets.outer, 4, 0)));
    }
    let woken = wait::epoll_wait(set, 16, 0);
    let mut list = woken.list;
    list.sort_by_key(|(data, _)| *data);
    for (data, events) in list {
        let is_edge = |fd: &Fd| e.sets.known.get(fd) == Some(&true);
        let edge = e.conns[data as usize - 1].fds.iter().any(is_edge);
        e.line(&format!(
            "{} {data} {events}",
            if edge { "edge" } else { "event" }
        ));
    }
    if woken.ret.0 < 0 {
        e.told("wait", woken.ret);
    }
}

/// Closes what the sets have of a number, and the number.
pub fn close(e: &mut End, fd: Fd) -> crate::sys::Ret {
    e.sets.forget(fd);
    net::close(fd)
}
