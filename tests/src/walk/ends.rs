//! The processes of one end: who does which step, and how they wait for each other.
//!
//! The end's first process (main) has a channel to the other end's and one to each of its children.
//! For each step the children that take part are told its number, act, and answer; then both mains
//! meet. The channels are local sockets, which the library never touches.

use super::act;
use super::plan::{Act, Plan, Slot, Step, Who};
use crate::side::{self, hash};
use crate::sys::{Fd, Ret, call, io, net, proc};
use std::collections::BTreeMap;

/// One process while it walks.
#[derive(Debug)]
pub struct Walker {
    pub plan: Plan,
    pub who: Who,
    pub slots: BTreeMap<Slot, Fd>,
    /// Its epoll set, once it has one, and who is watched there edge-triggered.
    pub set: Option<Fd>,
    pub edges: Vec<Slot>,
    /// To the other end (main) or to main (a child).
    pub channel: Fd,
    children: BTreeMap<usize, (i32, Fd)>,
    pub step: usize,
}

fn tell(channel: Fd, value: u64) {
    assert_eq!(io::write(channel, &value.to_le_bytes()).ok(), 8);
}

/// Waits in a call that the library serves too, as a server with its loop does: the streams are among
/// what is polled, though nothing is asked of them.
fn attend(channel: Fd, streams: &BTreeMap<Slot, Fd>) {
    let entry = |fd: Fd, events| libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    let mut all = vec![entry(channel, libc::POLLIN)];
    all.extend(streams.values().map(|fd| entry(*fd, 0)));
    while all[0].revents == 0 {
        call!(libc::poll(all.as_mut_ptr(), all.len() as u64, -1)).ok();
        // One that has ended would show it for ever.
        for p in all.iter_mut().skip(1).filter(|p| p.revents != 0) {
            p.fd = -1;
        }
    }
}

fn hear(channel: Fd) -> Option<u64> {
    let mut word = [0; 8];
    loop {
        let r = io::read(channel, &mut word);
        if !r.is(libc::EINTR) {
            return (r.0 == 8).then(|| u64::from_le_bytes(word));
        }
    }
}

impl Walker {
    /// An end's first process: makes the connections, walks, and leaves.
    pub fn main(plan: Plan, end: usize, swap: bool, channel: Fd) {
        let mut w = Self {
            plan,
            who: Who { end, child: 0 },
            slots: BTreeMap::new(),
            set: None,
            edges: Vec::new(),
            channel,
            children: BTreeMap::new(),
            step: 0,
        };
        w.connect(swap);
        for at in 0..w.plan.steps.len() {
            w.step = at;
            let step = w.plan.steps[at].clone();
            w.lead(&step);
            w.meet(at as u64);
        }
        for (pid, channel) in std::mem::take(&mut w.children).into_values() {
            tell(channel, w.plan.steps.len() as u64);
            w.line(&format!("child {}", proc::wait_child(pid)));
        }
        w.meet(u64::MAX);
    }

    fn connect(&mut self, swap: bool) {
        for (conn, a_connects) in self.plan.conns.clone().into_iter().enumerate() {
            let connects = (self.who.end == 0) == (a_connects != swap);
            let fd = if connects {
                let mut to = net::loopback();
                to.set_port(hear(self.channel).unwrap() as u16);
                let fd = call!(libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0)).fd();
                net::connect(fd, to).ok();
                fd
            } else {
                let (listener, at) = net::listener(net::loopback(), 4);
                tell(self.channel, u64::from(at.port()));
                let fd = net::accept(listener).fd();
                net::close(listener).ok();
                fd
            };
            // What Nagle holds back is lost when its sender closes with something unread: not always.
            net::setopt(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1).ok();
            if self.plan.warm {
                side::exchange(fd, !connects);
            }
            self.slots.insert(conn, fd);
            self.meet(hash(b"connected"));
        }
    }

    fn meet(&self, mark: u64) {
        tell(self.channel, mark);
        self.attend(self.channel);
        assert_eq!(
            hear(self.channel),
            Some(mark),
            "the ends are at different steps"
        );
    }

    fn attend(&self, channel: Fd) {
        if self.plan.attentive {
            attend(channel, &self.slots);
        }
    }

    /// Main's part in a step: has its children do theirs, and does its own.
    fn lead(&mut self, step: &Step) {
        let involved = parties(step);
        for who in &involved {
            if who.end == self.who.end && who.child > 0 {
                tell(self.children[&who.child].1, self.step as u64);
            }
        }
        if involved.contains(&self.who) {
            act::act(self, step);
        }
        for who in involved {
            if who.end == self.who.end && who.child > 0 {
                let (pid, channel) = self.children[&who.child];
                self.attend(channel);
                let answer = hear(channel);
                if matches!(step.act, Act::Exit) {
                    self.line(&format!("child {}", proc::wait_child(pid)));
                    net::close(channel).ok();
                    self.children.remove(&who.child);
                } else {
                    assert_eq!(answer, Some(self.step as u64), "a child has gone");
                }
            }
        }
    }

    /// A child's life: does the steps it is told of.
    pub fn follow(&mut self) -> i32 {
        loop {
            self.attend(self.channel);
            let Some(at) = hear(self.channel) else { break };
            self.step = at as usize;
            let Some(step) = self.plan.steps.get(self.step).cloned() else {
                break;
            };
            if matches!(step.act, Act::Exit) {
                break;
            }
            act::act(self, &step);
            tell(self.channel, at);
        }
        0
    }

    pub fn fork(&mut self, child: usize) {
        let (mine, theirs) = net::unix_pair(libc::SOCK_SEQPACKET);
        let pid = proc::fork(|| {
            net::close(mine).ok();
            net::close(self.channel).ok();
            for (_, channel) in std::mem::take(&mut self.children).into_values() {
                net::close(channel).ok();
            }
            self.drop_set();
            self.channel = theirs;
            self.who.child = child;
            self.follow()
        });
        net::close(theirs).ok();
        self.children.insert(child, (pid, mine));
    }

    /// The set of a process that this one was: it is not used on.
    fn drop_set(&mut self) {
        if let Some(set) = self.set.take() {
            net::close(set).ok();
        }
        self.edges.clear();
    }

    pub fn kill(&mut self, child: usize) {
        let (pid, channel) = self.children.remove(&child).unwrap();
        proc::kill(pid, libc::SIGKILL).ok();
        self.line(&format!("child {}", proc::wait_child(pid)));
        net::close(channel).ok();
    }

    /// A child becomes this program anew, from its command line.
    pub fn exec(&mut self, with_library: bool) -> ! {
        self.drop_set();
        let mut slots = String::new();
        for (slot, fd) in &self.slots {
            net::fcntl(*fd, libc::F_SETFD, 0).ok();
            slots += &format!("{slot}={fd},");
        }
        net::fcntl(self.channel, libc::F_SETFD, 0).ok();
        let own = std::fs::read_link("/proc/self/exe").unwrap();
        let words = [
            own.to_string_lossy().into_owned(),
            "@resume".to_string(),
            self.plan.seed.to_string(),
            self.who.end.to_string(),
            self.who.child.to_string(),
            self.step.to_string(),
            self.channel.to_string(),
            slots,
        ];
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let r = proc::exec(&words, with_library);
        panic!("exec: {r}");
    }

    /// The new program after [`Self::exec`].
    pub fn resume(plan: Plan, words: &[&str]) -> i32 {
        let number = |i: usize| words[i].parse::<usize>().unwrap();
        let slots = words[4].split(',').filter_map(|pair| {
            let (slot, fd) = pair.split_once('=')?;
            Some((slot.parse().unwrap(), fd.parse().unwrap()))
        });
        let mut w = Self {
            plan,
            who: Who {
                end: number(0),
                child: number(1),
            },
            slots: slots.collect(),
            set: None,
            edges: Vec::new(),
            channel: number(3) as Fd,
            children: BTreeMap::new(),
            step: number(2),
        };
        net::fcntl(w.channel, libc::F_SETFD, libc::FD_CLOEXEC).ok();
        w.line("resumed");
        tell(w.channel, w.step as u64);
        w.follow()
    }

    /// The channel on which a descriptor is passed to this process of the same end.
    pub fn channel_to(&self, who: Who) -> Fd {
        match who.child {
            0 => self.channel,
            child => self.children[&child].1,
        }
    }

    pub fn fd(&self, slot: Slot) -> Fd {
        self.slots[&slot]
    }

    /// A line of the transcript: who, at which step, what.
    pub fn line(&self, text: &str) {
        let end = ["A", "B"][self.who.end];
        let line = format!("{:04} {end}{} {text}\n", self.step, self.who.child);
        assert_eq!(io::write(1, line.as_bytes()).ok(), line.len());
    }

    pub fn told(&self, what: &str, r: Ret) {
        self.line(&format!("{what} {r}"));
    }
}

/// The processes that act in a step.
fn parties(step: &Step) -> Vec<Who> {
    let mut all = vec![step.who];
    match &step.act {
        Act::Pass { to, .. } => all.push(*to),
        Act::Meet { giver, .. } => all.push(*giver),
        Act::Bulk { other, .. } => all.push(*other),
        _ => {}
    }
    all
}
