//! One end of a two-ended case: its role, its transcript, and the private channel to the other end.
//!
//! The channel is a local socket that the library never touches; it carries ports and rendezvous
//! so that a transcript does not depend on timing. Every line goes out in one write, marked with
//! the end it came from, and the runner sorts the lines by end.

use crate::sys::{Fd, io, net, proc, wait};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::OnceLock;
use std::thread::JoinHandle;

/// How a run is set up; given by the runner on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Exchange a few messages both ways before the behaviour under test.
    pub warm: bool,
    /// End A connects and end B accepts, instead of the other way round.
    pub swap: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Side {
    name: char,
    channel: Fd,
    setup: Setup,
    /// The process of the other end, if it is another.
    other: Option<i32>,
}

/// Writes one line of this side's transcript.
#[macro_export]
macro_rules! log {
    ($side:expr, $($arg:tt)*) => { $side.line(&format!($($arg)*)) };
}

const WARM_ROUNDS: usize = 4;

impl Side {
    pub fn new(name: char, channel: Fd, setup: Setup) -> Self {
        Self {
            name,
            channel,
            setup,
            other: None,
        }
    }

    /// The same where the other end is another process, which has begun.
    pub fn of_two(name: char, channel: Fd, setup: Setup) -> Self {
        let side = Self::new(name, channel, setup);
        side.tell(std::process::id().into());
        let other = Some(side.hear() as i32);
        Self { other, ..side }
    }

    /// Whether this is end A, the one a case names first.
    pub fn a(&self) -> bool {
        self.name == 'A'
    }

    pub fn accepts(&self) -> bool {
        self.a() != self.setup.swap
    }

    pub fn line(&self, text: &str) {
        let line = format!("{} {text}\n", self.name);
        assert_eq!(io::write(1, line.as_bytes()).ok(), line.len());
    }

    /// Sends one number to the other end, outside the connection under test.
    pub fn tell(&self, value: u64) {
        io::write(self.channel, &value.to_le_bytes()).ok();
    }

    /// Has a program that this process becomes find the channel at this number; eight bytes written there
    /// are what [`Self::hear`] takes.
    pub fn hand_channel(&self, to: Fd) {
        net::dup2(self.channel, to).ok();
        net::fcntl(to, libc::F_SETFD, 0).ok(); // (it may have been there)
    }

    /// Tells the other end once the calling thread has gone to sleep.
    pub fn tell_once_asleep(&self) -> JoinHandle<()> {
        let side = *self;
        proc::once_asleep(move |_| side.tell(1))
    }

    /// Takes the number the other end sent.
    #[track_caller]
    pub fn hear(&self) -> u64 {
        let mut word = [0u8; 8];
        loop {
            let r = io::read(self.channel, &mut word);
            if r.is(libc::EINTR) {
                continue;
            }
            assert_eq!(r.0, 8, "the other end has gone");
            return u64::from_le_bytes(word);
        }
    }

    /// Both ends leave this together; the tag guards against a case that lost count.
    #[track_caller]
    pub fn sync(&self, tag: &str) {
        let mark = hash(tag.as_bytes());
        self.tell(mark);
        assert_eq!(
            self.hear(),
            mark,
            "the ends are at different steps, here {tag}"
        );
    }

    /// Waits until the other end's process has closed the channel, which it does by ending, and the rest of what it had.
    pub fn wait_gone(&self) {
        let mut word = [0u8; 8];
        while io::read(self.channel, &mut word).0 > 0 {}
        if let Some(pid) = self.other {
            proc::wait_ended(pid);
        }
    }

    /// Listens on a port of 127.0.0.1, which the other end takes by [`Self::target`].
    pub fn listen(&self, backlog: i32) -> Fd {
        self.listen_at(net::loopback(), backlog)
    }

    pub fn listen_at(&self, addr: SocketAddr, backlog: i32) -> Fd {
        let (lis, at) = net::listener(addr, backlog);
        self.tell(u64::from(at.port()));
        lis
    }

    /// A port of 127.0.0.1 that the other end has told.
    pub fn target(&self) -> SocketAddr {
        self.target_at(Ipv4Addr::LOCALHOST.into())
    }

    pub fn target_at(&self, ip: IpAddr) -> SocketAddr {
        SocketAddr::new(ip, self.hear() as u16)
    }

    /// A connection to [`Self::target`] that has carried nothing yet.
    pub fn connect(&self) -> Fd {
        let to = self.target();
        let fd = net::socket_for(to, 0);
        net::connect(fd, to).ok();
        fd
    }

    /// A connection between the two ends over 127.0.0.1, warmed up if the run says so.
    pub fn pair(&self) -> Fd {
        let fd = self.open();
        self.warm_up(fd);
        fd
    }

    /// A connection between the two ends that has carried nothing yet. The listener stays, as a server's
    /// does; closing it at once is a case of its own.
    pub fn open(&self) -> Fd {
        if self.accepts() {
            net::accept(self.listen(16)).fd()
        } else {
            self.connect()
        }
    }

    /// Small requests and answers, so that the connection has had its chance to move.
    pub fn warm_up(&self, fd: Fd) {
        if self.setup.warm {
            exchange(fd, self.accepts());
        }
        self.sync("warm");
    }

    /// Warm-up regardless of the run's setting, for cases that are about the path.
    pub fn always_warm_up(&self, fd: Fd) {
        exchange(fd, self.accepts());
        self.sync("warm");
    }
}

/// The warm-up itself: the accepting end answers what the connecting end asks.
pub fn exchange(fd: Fd, answering: bool) {
    for round in 0..WARM_ROUNDS {
        let ask = [round as u8; 8];
        let answer = [!round as u8; 8];
        if answering {
            assert_eq!(io::recv_exact(fd, 8).0, ask);
            assert_eq!(io::send(fd, &answer, 0).ok(), 8);
        } else {
            assert_eq!(io::send(fd, &ask, 0).ok(), 8);
            assert_eq!(io::recv_exact(fd, 8).0, answer);
        }
    }
}

/// Both ends of a connection inside one process, warmed up.
pub fn own_pair() -> (Fd, Fd) {
    static LISTENER: OnceLock<(Fd, SocketAddr)> = OnceLock::new();
    let (lis, at) = *LISTENER.get_or_init(|| net::listener(net::loopback(), 4));
    let left = net::socket_for(at, 0);
    net::connect(left, at).ok();
    let right = net::accept(lis).fd();
    exchange_alone(left, right);
    (left, right)
}

/// FNV-1a, enough to tell two byte strings apart in a transcript.
pub fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| {
        (h ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3)
    })
}

/// Bytes as a line of a transcript shows them.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A small seeded generator, the same on both ends.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.word() % limit as u64) as usize
    }

    /// A size for one call: often small, sometimes large.
    pub fn size(&mut self) -> usize {
        let limit = [64, 1500, 9000, 70_000, 400_000][self.below(5)];
        1 + self.below(limit)
    }

    pub fn fill(&mut self, buf: &mut [u8]) {
        for chunk in buf.chunks_mut(8) {
            let word = self.word().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut all = vec![0; count];
        self.fill(&mut all);
        all
    }
}

/// Fills a non-blocking descriptor until it refuses; returns how many bytes went in.
pub fn fill_up(fd: Fd) -> usize {
    let chunk = vec![7u8; 16384];
    let mut total = 0;
    // The kernel keeps moving bytes to the peer's queue, and acknowledges late: full is full only
    // when it stays full for longer than a delayed acknowledgement.
    let mut refused = 0;
    while refused < 15 {
        let r = io::send(fd, &chunk, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
        if r.0 > 0 {
            total += r.ok();
            refused = 0;
        } else {
            assert!(r.is(libc::EAGAIN), "filling stopped by {r}");
            refused += 1;
            std::thread::sleep(wait::millis(4));
        }
    }
    total
}

/// Reads exactly this many filler bytes.
pub fn drain(fd: Fd, count: usize) {
    let (got, last) = io::recv_exact(fd, count);
    assert_eq!(got.len(), count, "drain stopped by {last}");
}

/// Reads away whatever comes, up to this byte.
pub fn drain_to(fd: Fd, mark: u8) {
    let mut buf = vec![0; 65536];
    let mut last = !mark;
    while last != mark {
        let got = io::recv(fd, &mut buf, 0).ok();
        last = buf[got - 1];
    }
}

/// A few messages both ways between two descriptors held by one thread.
pub fn exchange_alone(left: Fd, right: Fd) {
    for _ in 0..WARM_ROUNDS {
        io::send(left, b"ask", 0).ok();
        io::recv_exact(right, 3);
        io::send(right, b"answer", 0).ok();
        io::recv_exact(left, 6);
    }
}
