//! One end of a connection, played by the rules of `preload::sockets`: learns of the segment, sends and
//! reads on whatever leg it is on, follows its peer, goes back to the kernel. Byte n of a stream is a
//! function of n and never zero, which is what a bell is.

use super::super::rx::{Got, How};
use super::super::{Leg, Put, Rx, Tx, Walk};
use crate::doorbell::{DATA, SPACE};
use crate::provider::{End, Provider};
use crate::shm::segment::Segment;
use crate::shm::tests::Joined;
use crate::sys::{Errno, net};
use flowctl::Terms;
use std::cell::Cell;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::rc::Rc;

/// Two sides, client first, and the memory under them.
pub(super) struct Connection {
    pub(super) sides: [Side; 2],
    _memory: Joined,
}

impl Connection {
    pub(super) fn new(region: usize, terms: [Terms; 2]) -> Self {
        let memory = Joined::new(region);
        let (a, b) = memory.sides(0);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let agreed = Rc::new(Cell::new(false));
        let side = |p, stream: TcpStream, client: bool| {
            stream.set_nodelay(true).unwrap();
            let terms = terms[usize::from(!client)];
            Side::new(p, stream, client, agreed.clone(), terms)
        };
        Self {
            sides: [side(a, client, true), side(b, server, false)],
            _memory: memory,
        }
    }

    /// The side that `server` says, and its peer.
    pub(super) fn split(&mut self, server: bool) -> (&mut Side, &mut Side) {
        let [a, b] = &mut self.sides;
        if server { (b, a) } else { (a, b) }
    }
}

pub(super) fn byte(n: u64) -> u8 {
    1 + (n % 251) as u8
}

pub(super) struct Side {
    pub(super) p: Segment,
    stream: TcpStream,
    pub(super) tx: Tx,
    terms: Terms,
    /// The client knows the segment from its announcement on, the server once it agrees.
    rx_known: bool,
    pub(super) rx: Rx,
    /// Back on the kernel for good.
    plain: bool,
    agreed: Rc<Cell<bool>>,
    client: bool,
    /// Received on the fast leg when it was cut off, and not read.
    residual: Vec<u8>,
    pub(super) sent: u64,
    pub(super) got: u64,
}

impl Side {
    fn new(
        p: Segment,
        stream: TcpStream,
        client: bool,
        agreed: Rc<Cell<bool>>,
        terms: Terms,
    ) -> Self {
        Self {
            p,
            stream,
            tx: Tx::new(),
            rx_known: client,
            rx: Rx::new(),
            terms,
            plain: false,
            agreed,
            client,
            residual: Vec::new(),
            sent: 0,
            got: 0,
        }
    }

    pub(super) fn raw(&self) -> i32 {
        self.stream.as_raw_fd()
    }

    pub(super) fn attach(&mut self) {
        if self.tx.leg() != Leg::First || self.plain || (self.client && !self.agreed.get()) {
            return;
        }
        if !self.rx_known {
            self.agreed.set(true);
            self.rx_known = true;
        }
        let terms = self.terms;
        let fd = self.raw();
        self.tx.attach(&self.p, fd, &terms);
    }

    fn is_attached(&self) -> bool {
        !self.plain && self.tx.leg() != Leg::First
    }

    pub(super) fn write(&mut self, n: usize) {
        let p = self.p;
        self.write_through(&p, n);
    }

    /// Sends as much as there is room for.
    pub(super) fn write_through(&mut self, p: &impl Provider, n: usize) {
        let mut bytes: Vec<u8> = (0..n as u64).map(|i| byte(self.sent + i)).collect();
        let mut walk = Walk::one(bytes.as_mut_ptr(), n);
        let fd = self.raw();
        // (every other size as the hooks do: the quick way first)
        let tries = n.is_multiple_of(2) && n <= Tx::QUICK;
        // SAFETY: the buffer is readable.
        if tries && unsafe { self.tx.put_quick(p, fd, bytes.as_ptr(), n) } {
            walk.skip(n);
        } else if self.tx.leg() == Leg::Fast {
            // SAFETY: the walk's buffer is readable.
            let put = unsafe { self.tx.put(p, fd, &mut walk, false) }.unwrap();
            assert!(put == Put::Bytes(walk.done()) || put == Put::Ended);
        }
        if self.tx.leg() != Leg::Fast {
            match self
                .tx
                .write_kernel(Some(p), fd, &mut walk, libc::MSG_NOSIGNAL)
            {
                Ok(_) | Err(Errno::AGAIN) => {}
                Err(e) => panic!("{e:?}"),
            }
        }
        self.sent += walk.done() as u64;
    }

    /// Sends bytes that more is to follow.
    pub(super) fn write_more(&mut self, n: usize) {
        let mut bytes: Vec<u8> = (0..n as u64).map(|i| byte(self.sent + i)).collect();
        let mut walk = Walk::one(bytes.as_mut_ptr(), n);
        let (p, fd) = (self.p, self.raw());
        // SAFETY: the walk's buffer is readable.
        let put = unsafe { self.tx.put(&p, fd, &mut walk, true) };
        assert_eq!(put, Ok(Put::Bytes(n)));
        self.sent += n as u64;
    }

    /// Sends bytes that are made in place, as those of a file are.
    pub(super) fn fill(&mut self, n: usize) {
        if self.tx.leg() != Leg::Fast {
            return;
        }
        let fd = self.raw();
        let mut next = self.sent;
        let filled = self.tx.fill(&self.p, fd, n, false, |at, len| {
            let len = len.min(700);
            for i in 0..len {
                // SAFETY: the sender gave `len` bytes.
                unsafe { at.add(i).write(byte(next + i as u64)) };
            }
            next += len as u64;
            Ok(len)
        });
        match filled.unwrap() {
            Put::Bytes(n) => self.sent += n as u64,
            Put::Ended | Put::Nothing => {}
        }
    }

    pub(super) fn ring(&mut self) {
        let fd = self.raw();
        self.tx.ring(&self.p, fd);
    }

    pub(super) fn end(&mut self) {
        let fd = self.raw();
        if !self.plain {
            self.tx.end_fast_ringing(&self.p, fd);
        }
    }

    pub(super) fn take_bells(&mut self, most: usize) {
        let fd = self.raw();
        if self.is_attached() {
            self.rx.take_bells(&self.p, fd, most);
        }
    }

    /// The program waits in the library: what it has parked goes, and the peer gets what it is owed.
    pub(super) fn wait(&mut self) {
        let fd = self.raw();
        if self.is_attached() {
            self.tx.post(&self.p, fd);
            if self.rx.leg() == Leg::Fast {
                self.rx.hand_back(&self.p);
                let due = self.rx.take_due();
                self.tx.serve(&self.p, fd, due);
            }
        }
    }

    /// Notices that the peer has ended a leg, or has stopped this side.
    pub(super) fn follow(&mut self) {
        let fd = self.raw();
        if self.client {
            self.attach();
        }
        if !self.is_attached() {
            return;
        }
        self.rx.advance(&self.p, fd);
        if self.p.stopped() {
            self.tx.end_fast(&self.p, fd);
            let _ = self.tx.settle(&self.p, fd);
        }
        let over = self.tx.leg() == Leg::Last && self.rx.leg() == Leg::Last;
        if over && !self.tx.owes() && self.rx.bells_outstanding(&self.p) == 0 {
            self.plain = true;
        }
    }

    pub(super) fn cut(&mut self, give_back: bool) {
        let p = self.p;
        self.cut_through(&p, give_back);
    }

    /// Goes back to the kernel: stops the peer, ends the own leg, takes or gives back what is unread.
    pub(super) fn cut_through(&mut self, p: &impl Provider, give_back: bool) {
        // In the middle of the peer's put this side would wait.
        if self.plain || !self.agreed.get() || p.peer_is_putting() {
            return;
        }
        self.attach();
        let fd = self.raw();
        // A peer that has ended its leg already may be back on the kernel and resends nothing.
        let can = self.rx.leg() == Leg::Fast && p.stated(End::Fast).is_none();
        let back = (give_back && can).then(|| self.rx.fast_bytes());
        p.stop_peer(back);
        if p.must_ring(DATA | SPACE) {
            self.tx.end_fast_ringing(p, fd);
        } else {
            self.tx.end_fast(p, fd);
        }
        assert!(!p.peer_is_putting());
        let bytes = self.rx.gather(p, fd, None).unwrap();
        if back.is_none() {
            self.residual.extend(bytes);
        }
        // (one that was counted by who died before it was sent never comes)
        let _ = (0..1000).any(|_| self.rx.take_bells(p, fd, usize::MAX));
        while self.tx.owes() {
            let _ = self.tx.settle(p, fd);
        }
        self.plain = true;
    }

    /// Reads once and checks what came. True if it may be worth while to read again.
    pub(super) fn read(&mut self, p: &impl Provider, want: usize, how: How) -> bool {
        let mut bytes = vec![0u8; want];
        let fd = self.raw();
        if !self.residual.is_empty() {
            let n = want.min(self.residual.len());
            bytes[..n].copy_from_slice(&self.residual[..n]);
            if !how.peek {
                self.residual.drain(..n);
            }
            self.arrived(
                &bytes[..n],
                How {
                    discard: false,
                    ..how
                },
            );
            return n > 0;
        }
        let mut walk = Walk::one(bytes.as_mut_ptr(), want);
        let mut got = Got::Kernel;
        if self.rx_known && !self.plain {
            // (every other size as the hooks do: the quick way first)
            let tries = want.is_multiple_of(2) && !how.peek && !how.discard;
            // SAFETY: the buffer is writable.
            let quick = tries
                .then(|| unsafe { self.rx.read_quick(p, bytes.as_mut_ptr(), want, self.sent) });
            got = if let Some(n) = quick.flatten() {
                walk.skip(n);
                Got::Bytes(n)
            } else {
                // SAFETY: the walk's buffer is writable.
                unsafe { self.rx.read(p, fd, &mut walk, how) }.unwrap()
            };
            let due = self.rx.take_due();
            self.tx.serve(p, fd, due);
        }
        if got == Got::Kernel {
            let flags = if how.peek { libc::MSG_PEEK } else { 0 };
            match self.rx.read_kernel(fd, &mut walk, flags) {
                Ok(n) => walk.skip(n),
                Err(Errno::AGAIN) => {}
                Err(e) => panic!("{e:?}"),
            }
            self.arrived(
                &bytes[..walk.done()],
                How {
                    discard: false,
                    ..how
                },
            );
            return walk.done() > 0;
        }
        assert!(
            matches!(got, Got::Bytes(_) | Got::Empty),
            "{got:?} on an open stream"
        );
        self.arrived(&bytes[..walk.done()], how);
        walk.done() > 0
    }

    fn arrived(&mut self, bytes: &[u8], how: How) {
        if !how.discard {
            for (i, &b) in bytes.iter().enumerate() {
                assert_eq!(
                    b,
                    byte(self.got + i as u64),
                    "byte {} of the stream",
                    self.got + i as u64
                );
            }
        }
        if !how.peek {
            self.got += bytes.len() as u64;
        }
    }

    /// Nothing but bells that were counted is left on the kernel connection.
    pub(super) fn assert_nothing_left(&self) {
        let bells = if self.plain {
            0
        } else {
            self.rx.bells_outstanding(&self.p)
        };
        assert!(self.residual.is_empty());
        assert_eq!(
            net::unread(self.raw()) as u64,
            bells,
            "bytes on the kernel connection"
        );
    }
}
