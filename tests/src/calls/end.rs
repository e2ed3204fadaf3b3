//! One end of a run: what it holds and has counted, its steps, and how the ends meet.
//!
//! Called by the binary `calls`, as a process an end or a thread an end. What an end tells the other when they meet (`Told`) is
//! all that either knows of the other; whether a call would block for ever is decided from that.

use super::plan::{CONNS, Kind, Op, Plan, Step};
use super::{edge, give, hold, misuse, more, quiet, ready, take, together, urgent};
use crate::sys::{Fd, Ret, io, net, proc};
use crate::{run, side};
use std::time::Duration;

/// Most bytes that lie in a direction between steps: far below what makes a sender wait.
pub const MOST: u64 = 40_000;

/// What one end says of a connection.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Told {
    pub sent: u64,
    pub read: u64,
    pub held: u64,
    pub shut_wr: u64,
    pub shut_rd: u64,
    /// Its end was reset, or resets the other.
    pub broken: u64,
    /// It has made the stream the kernel's.
    pub left: u64,
}

#[derive(Debug, Default)]
pub struct Conn {
    pub fds: Vec<Fd>,
    pub own: Told,
    pub peer: Told,
    pub nonblock: bool,
    pub lowat: usize,
    /// How often it was made anew: bytes differ from those before.
    pub round: usize,
    /// What was sent first has come, where that takes its time ([`quiet::come`]).
    pub known: bool,
}

impl Conn {
    pub fn fd(&self, word: usize) -> Option<Fd> {
        (!self.fds.is_empty()).then(|| self.fds[word % self.fds.len()])
    }

    pub fn queued(&self) -> usize {
        self.peer.sent.saturating_sub(self.own.read) as usize
    }

    /// A reader need not wait for ever.
    pub fn ends(&self) -> bool {
        self.peer.shut_wr + self.own.shut_rd + self.own.broken + self.peer.broken > 0
            || self.peer.held == 0
    }

    pub fn whole(&self) -> bool {
        let shut = |t: &Told| t.shut_wr + t.shut_rd + t.broken > 0 || t.held == 0;
        !shut(&self.own) && !shut(&self.peer) && !self.fds.is_empty()
    }

    /// Whether a blocking read of this size has to wait.
    pub fn waits(&self, size: usize, all: bool) -> bool {
        let want = if all {
            size
        } else {
            size.min(self.lowat.max(1))
        };
        !self.nonblock && self.queued() < want && !self.ends()
    }
}

#[derive(Debug)]
pub struct End {
    pub end: usize,
    pub conns: [Conn; CONNS],
    pub sets: edge::Sets,
    pub step: usize,
    pub kind: Kind,
    /// The other end is a thread of the same process.
    pub is_thread: bool,
    pub listener: Fd,
    channel: Fd,
    port: u16,
    rides: bool,
}

impl End {
    /// Makes the connections and does the steps; leaves as the plan says.
    pub fn run(plan: &Plan, keep: &[usize], end: usize, channel: Fd, alone: bool) {
        let (listener, at) = net::listener(net::loopback(), 8);
        let mut e = Self {
            end,
            conns: Default::default(),
            sets: edge::Sets::default(),
            step: 0,
            kind: plan.kind,
            is_thread: !alone,
            listener,
            channel,
            port: 0,
            rides: run::rides(),
        };
        tell(channel, &u64::from(at.port()));
        e.port = hear(channel).map_or(0, |n: u64| n as u16);
        for conn in 0..CONNS {
            e.open(conn, conn % 2 == end);
            if plan.warm {
                let (fd, waits) = (e.conns[conn].fds[0], e.conns[conn].nonblock);
                net::set_nonblocking(fd, false).ok();
                // (who connects speaks first: over iWARP a server that does declines)
                side::exchange(fd, conn % 2 != end);
                net::set_nonblocking(fd, waits).ok();
            }
        }
        e.meet();
        for at in keep {
            e.step = *at;
            e.act(&plan.steps[*at]);
            e.meet();
        }
        e.step = 9999;
        if plan.killed == Some(end) && alone {
            proc::die();
        }
        if plan.killed == Some(1 - end) && alone {
            e.after_death();
        }
    }

    pub fn open(&mut self, conn: usize, connects: bool) {
        let fd = if connects {
            let mut to = net::loopback();
            to.set_port(self.port);
            let fd = net::socket_for(to, 0);
            net::connect(fd, to).ok();
            fd
        } else {
            net::accept(self.listener).fd()
        };
        net::setopt(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, 1).ok();
        if self.kind == Kind::Small {
            net::setopt(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, 0).ok();
            net::setopt(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, 0).ok();
        }
        let waits = self.kind != Kind::Urgent;
        if !waits {
            net::set_nonblocking(fd, true).ok();
        }
        let c = &mut self.conns[conn];
        *c = Conn {
            fds: vec![fd],
            lowat: 1,
            nonblock: !waits,
            round: c.round + 1,
            ..Conn::default()
        };
    }

    fn act(&mut self, step: &Step) {
        let own = step.end == self.end;
        match step.op {
            Op::Stream => return together::stream(self, step, own),
            Op::Sleep => return together::sleep(self, step, own),
            Op::Anew => return together::anew(self, step, own),
            _ if !own => return,
            _ => {}
        }
        let Some(fd) = self.conns[step.conn].fd(step.words[4]) else {
            return;
        };
        let is_async = step.op == Op::Option && misuse::is_async(step);
        if is_async || matches!(step.op, Op::Exec | Op::Pass | Op::Stdio | Op::Urgent) {
            self.conns[step.conn].own.left = 1;
        }
        if step.op == Op::Exec {
            // (a program that is executed is left all of them)
            self.conns.iter_mut().for_each(|c| c.own.left = 1);
        }
        match step.op {
            Op::Give => give::give(self, step, fd),
            Op::Take => take::take(self, step, fd),
            Op::Look => ready::look(self, step),
            Op::Watch => edge::watch(self, step, fd),
            Op::Wait => edge::wait(self, step),
            Op::Option => misuse::option(self, step, fd),
            Op::Misuse => misuse::misuse(self, step, fd),
            Op::InVain => ready::in_vain(self, step, fd),
            Op::Shutdown => hold::shutdown(self, step, fd),
            Op::Close => hold::close(self, step, fd),
            Op::Dup => hold::dup(self, step, fd),
            Op::Fork => hold::fork(self, step, fd),
            Op::Exec => hold::exec(self, step, fd),
            Op::Pass => hold::pass(self, step, fd),
            Op::Stdio => hold::stdio(self, step, fd),
            Op::Urgent => urgent::urgent(self, step, fd),
            Op::More => more::more(self, step, fd),
            Op::Stream | Op::Sleep | Op::Anew => {}
        }
    }

    /// Both ends have done the step, and what they sent is there.
    pub fn meet(&mut self) {
        let far = run::goes_far();
        let mut told = [Told::default(); CONNS];
        for (c, told) in self.conns.iter_mut().zip(&mut told) {
            c.own.held = c.fds.len() as u64;
            *told = c.own;
            if let Some(fd) = c.fds.first() {
                quiet::sent(*fd, if c.ends() { 2 } else { 400 });
            }
        }
        tell(self.channel, &told);
        let Some(heard) = hear::<[Told; CONNS]>(self.channel) else {
            self.line("the other end has gone");
            // SAFETY: ends the process.
            unsafe { libc::_exit(101) }
        };
        for (c, heard) in self.conns.iter_mut().zip(heard) {
            let news = (heard.held == 0) != (c.peer.held == 0)
                || heard.shut_wr != c.peer.shut_wr
                || heard.broken != c.peer.broken;
            c.peer = heard;
            if let Some(fd) = c.fds.first().filter(|_| news && c.ends()) {
                quiet::ended(*fd, 100);
            }
            if far
                && !c.known
                && c.queued() > 0
                && let Some(fd) = c.fds.first()
            {
                // (an adapter's work is never seen by the kernel)
                c.known = !(quiet::come(*fd, c.queued(), 500) && self.rides);
            }
        }
    }

    /// What is left to read, and how it ends, once the peer has been killed.
    fn after_death(&mut self) {
        while hear::<[Told; CONNS]>(self.channel).is_some() {}
        // A process that ends closes one after the other, and where the end of a connection was there before nothing tells when it
        // has come to that.
        std::thread::sleep(Duration::from_millis(20));
        for conn in 0..CONNS {
            let c = &self.conns[conn];
            let Some(fd) = c.fd(0) else {
                continue;
            };
            // What one that is killed after that has not read is known to nobody: it ends as if all were, or, for an unread bell, as if
            // something were not.
            if c.own.left + c.peer.left > 0 {
                continue;
            }
            quiet::ended(fd, 400);
            for _ in 0..3 {
                let mut buf = vec![0; 100_000];
                // (that the peer has been killed may show a moment later than the kernel connection's end)
                let _ = crate::sys::wait::poll(&[(fd, libc::POLLIN)], 3000);
                let r = io::recv(fd, &mut buf, libc::MSG_DONTWAIT);
                self.told("left", r);
            }
            let r = io::send(fd, b"x", libc::MSG_NOSIGNAL);
            self.told("to the dead", r);
        }
    }

    /// A line of the transcript.
    pub fn line(&self, text: &str) {
        let line = format!("{:04} {} {text}\n", self.step, ["A", "B"][self.end]);
        assert_eq!(io::write(1, line.as_bytes()).ok(), line.len());
    }

    pub fn told(&self, what: &str, r: Ret) {
        self.line(&format!("{what} {r}"));
    }
}

fn tell<T>(channel: Fd, value: &T) {
    // SAFETY: plain numbers without padding.
    let bytes =
        unsafe { std::slice::from_raw_parts((&raw const *value).cast::<u8>(), size_of::<T>()) };
    io::write(channel, bytes);
}

fn hear<T: Default + Copy>(channel: Fd) -> Option<T> {
    let mut value = T::default();
    // SAFETY: plain numbers, of which every pattern is one.
    let bytes =
        unsafe { std::slice::from_raw_parts_mut((&raw mut value).cast::<u8>(), size_of::<T>()) };
    loop {
        let r = io::read(channel, bytes);
        if !r.is(libc::EINTR) {
            return (r.0 as usize == size_of::<T>()).then_some(value);
        }
    }
}
