//! Two sides in one process, over the stand-in for an adapter and a pair of connected sockets: whatever is done in
//! whatever order, and wherever the ring begins and ends, each side receives what the other has sent.

use super::*;
use crate::sys::Errno;
use crate::verbs::{
    Access, Address, Done, Landed, Operation, RECEIVES, Registered, SLOTS, Work, address,
};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32};

/// An adapter within the process: work is done when it is polled for, or never.
#[derive(Debug, Default)]
struct Near {
    posted: Mutex<VecDeque<Work>>,
    failed: AtomicBool,
    holds: AtomicBool,
    told: Mutex<VecDeque<Done>>,
    /// Receives with memory that are posted: where it lies, octets of each, and their slots.
    receives: Mutex<Option<(usize, usize, VecDeque<u32>)>>,
    peer: Mutex<Option<&'static Self>>,
    armed: AtomicBool,
    event: AtomicBool,
    /// Memory that is registered beside the rings, as a key each: where it lies, how long it is, and what for.
    guests: Mutex<Vec<(u32, usize, usize, Access)>>,
    /// Reads that it carries out before it fails.
    reads: Mutex<Option<u32>>,
}

unsafe impl Send for Near {}
unsafe impl Sync for Near {}

impl Adapter for Near {
    fn address(&self) -> Address {
        Address::Pair(address::Pair {
            kind: address::Kind::StandIn,
            mtu: 5,
            qpn: 7,
            psn: 1,
            gid: [1; 16],
            takes: self.receives.lock().unwrap().is_some(),
        })
    }

    fn lkey(&self) -> u32 {
        1
    }

    fn rkey(&self) -> u32 {
        2
    }

    fn connect(&self, _: &Address) -> Result<()> {
        Ok(())
    }

    unsafe fn post(&self, work: &[Work]) -> Result<()> {
        let mut posted = self.posted.lock().unwrap();
        for one in work {
            // What goes with the request is taken with it.
            if one.operation == Operation::WriteInline {
                let mut words = vec![0u8; one.len as usize];
                unsafe {
                    std::ptr::copy_nonoverlapping(one.local, words.as_mut_ptr(), words.len())
                };
                let local = Box::leak(words.into_boxed_slice()).as_mut_ptr();
                posted.push_back(Work { local, ..*one });
            } else {
                posted.push_back(*one);
            }
        }
        Ok(())
    }

    fn poll(&self, done: &mut [Done]) -> usize {
        if self.holds.load(Ordering::Relaxed) {
            return 0;
        }
        let mut n = 0;
        let mut told = self.told.lock().unwrap();
        while n < done.len()
            && let Some(one) = told.pop_front()
        {
            if let Some(slot) = one.landed.filter(|_| one.told.is_some()) {
                self.receive(&mut std::iter::once(slot.slot)).unwrap();
            }
            done[n] = Done {
                landed: one.landed.filter(|_| one.told.is_none()),
                ..one
            };
            n += 1;
        }
        drop(told);
        let mut posted = self.posted.lock().unwrap();
        while n < done.len()
            && let Some(work) = posted.pop_front()
        {
            if work.operation == Operation::Read && !self.may_read(&work) {
                self.failed.store(true, Ordering::Relaxed);
            }
            let ok = !self.failed.load(Ordering::Relaxed);
            let far = std::ptr::with_exposed_provenance_mut(work.remote as usize);
            let (from, to) = match work.operation {
                Operation::Write | Operation::WriteInline => (work.local, far),
                Operation::Read => (far, work.local),
                Operation::Send => {
                    let peer = self.peer.lock().unwrap().unwrap();
                    (work.local, if ok { peer.land(work.len) } else { far })
                }
            };
            if ok {
                unsafe { std::ptr::copy_nonoverlapping(from, to, work.len as usize) };
                let peer = self.peer.lock().unwrap().unwrap();
                if work.tell.is_some() {
                    let word = Done {
                        told: work.tell,
                        landed: peer.draw().map(|slot| Landed { slot, len: 0 }),
                        ok: true,
                        ..Done::default()
                    };
                    peer.told.lock().unwrap().push_back(word);
                }
                if (work.tell.is_some() || work.operation == Operation::Send)
                    && peer.armed.swap(false, Ordering::SeqCst)
                {
                    peer.event.store(true, Ordering::SeqCst);
                }
            }
            let (id, signaled) = (work.id, work.signaled);
            if signaled || !ok {
                done[n] = Done {
                    id,
                    ok,
                    ..Done::default()
                };
                n += 1;
            }
        }
        n
    }

    fn receive(&self, slots: &mut dyn Iterator<Item = u32>) -> Result<()> {
        let mut receives = self.receives.lock().unwrap();
        receives.as_mut().unwrap().2.extend(slots);
        Ok(())
    }

    fn event(&self) -> i32 {
        -1
    }

    fn arm(&self) -> Result<()> {
        self.armed.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn take_event(&self) -> bool {
        self.event.swap(false, Ordering::SeqCst)
    }

    fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }
}

impl Near {
    /// Takes the next receive, if there are any with memory: there is always one.
    fn draw(&self) -> Option<u32> {
        let mut receives = self.receives.lock().unwrap();
        let (_, _, posted) = receives.as_mut()?;
        Some(posted.pop_front().expect("receiver not ready"))
    }

    /// A Send comes: where to.
    fn land(&self, len: u32) -> *mut u8 {
        let slot = self.draw().expect("no receives with memory");
        let landed = Done {
            landed: Some(Landed { slot, len }),
            ok: true,
            ..Done::default()
        };
        self.told.lock().unwrap().push_back(landed);
        let (base, size, _) = *self.receives.lock().unwrap().as_ref().unwrap();
        assert!(len as usize <= size);
        std::ptr::with_exposed_provenance_mut(base + slot as usize * size)
    }

    fn find(&self, key: u32, at: usize, len: usize, access: Access) -> bool {
        let guests = self.guests.lock().unwrap();
        guests.iter().any(|&(k, from, n, what)| {
            k == key && what == access && from <= at && at + len <= from + n
        })
    }

    /// Whether a Read is of memory that is registered for it, at both ends, and none too many.
    fn may_read(&self, work: &Work) -> bool {
        let (len, far) = (work.len as usize, work.remote as usize);
        let peer = self.peer.lock().unwrap().unwrap();
        let lawful = self.find(work.lkey, work.local.addr(), len, Access::Takes)
            && peer.find(work.rkey, far, len, Access::Lends);
        assert!(
            lawful || peer.failed.load(Ordering::Relaxed) || self.failed.load(Ordering::Relaxed)
        );
        let mut reads = self.reads.lock().unwrap();
        if let Some(left) = &mut *reads {
            let goes = *left > 0;
            *left = left.saturating_sub(1);
            return lawful && goes;
        }
        lawful
    }
}

#[derive(Debug)]
struct Guest(&'static Near, u32);

impl Registered for Guest {
    fn lkey(&self) -> u32 {
        self.1
    }
    fn rkey(&self) -> u32 {
        self.1
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.0
            .guests
            .lock()
            .unwrap()
            .retain(|guest| guest.0 != self.1);
    }
}

struct Side {
    ring: NonNull<Ring>,
    near: &'static Near,
    fd: TcpStream,
    tx: Tx,
    rx: Rx,
    sent: Vec<u8>,
    got: Vec<u8>,
}

impl Side {
    fn new(fd: TcpStream, (ring, slots): (usize, bool)) -> Self {
        fd.set_nonblocking(true).unwrap();
        let near: &'static Near = Box::leak(Box::default());
        let ring = Ring::over(ring, slots, |memory| {
            let base = memory.as_ptr().expose_provenance();
            let all = (0..RECEIVES as u32).collect();
            *near.receives.lock().unwrap() = slots.then(|| (base, Area::slot(ring), all));
            Box::new(Shared(near))
        })
        .unwrap();
        Self {
            ring,
            near,
            fd,
            tx: Tx::new(),
            rx: Rx::new(),
            sent: Vec::new(),
            got: Vec::new(),
        }
    }

    fn ring(&self) -> &'static Ring {
        unsafe { &*self.ring.as_ptr() }
    }

    fn send(&mut self, n: usize, seed: u8) {
        let mut part: Vec<u8> = (0..n).map(|i| (i as u8).wrapping_mul(31) ^ seed).collect();
        let (first, second) = part.split_at_mut(n / 3);
        let mut list = [first, second].map(|p| libc::iovec {
            iov_base: p.as_mut_ptr().cast(),
            iov_len: p.len(),
        });
        let sent = unsafe {
            self.tx
                .send(Some(self.ring()), self.fd.as_raw_fd(), &mut list, 0)
        };
        match sent {
            Ok(n) => self.sent.extend_from_slice(&part[..n]),
            Err(e) => assert_eq!(e, Errno::AGAIN),
        }
    }

    fn receive(&mut self, n: usize) -> usize {
        let mut to = vec![0; n];
        let came = unsafe {
            self.rx
                .recv(Some(self.ring()), self.fd.as_raw_fd(), to.as_mut_ptr(), n)
        };
        match came {
            Ok(n) => {
                self.got.extend_from_slice(&to[..n]);
                n
            }
            Err(e) => {
                assert_eq!(e, Errno::AGAIN);
                0
            }
        }
    }

    fn quiet(&mut self) {
        self.rx.quiet(self.ring(), self.fd.as_raw_fd());
    }

    fn settle(&mut self) {
        self.ring().reap();
        if self.ring().is_over() {
            self.rx.land(self.ring());
        }
        if let Err(e) = self.tx.settle(self.ring(), self.fd.as_raw_fd()) {
            assert_eq!(e, Errno::AGAIN);
        }
    }
}

#[derive(Debug)]
struct Shared(&'static Near);

impl Adapter for Shared {
    fn address(&self) -> Address {
        self.0.address()
    }
    fn lkey(&self) -> u32 {
        self.0.lkey()
    }
    fn rkey(&self) -> u32 {
        self.0.rkey()
    }
    fn connect(&self, peer: &Address) -> Result<()> {
        self.0.connect(peer)
    }
    unsafe fn post(&self, work: &[Work]) -> Result<()> {
        unsafe { self.0.post(work) }
    }
    fn receive(&self, slots: &mut dyn Iterator<Item = u32>) -> Result<()> {
        self.0.receive(slots)
    }
    fn poll(&self, done: &mut [Done]) -> usize {
        self.0.poll(done)
    }
    fn event(&self) -> i32 {
        self.0.event()
    }
    fn arm(&self) -> Result<()> {
        self.0.arm()
    }
    fn take_event(&self) -> bool {
        self.0.take_event()
    }
    fn fail(&self) {
        self.0.fail();
    }
    unsafe fn register(
        &self,
        memory: NonNull<u8>,
        len: usize,
        access: Access,
    ) -> Option<Box<dyn Registered>> {
        static NEXT: AtomicU32 = AtomicU32::new(100);
        let key = NEXT.fetch_add(1, Ordering::Relaxed);
        let at = memory.as_ptr().expose_provenance();
        self.0.guests.lock().unwrap().push((key, at, len, access));
        Some(Box::new(Guest(self.0, key)))
    }
    fn halt(&self) -> bool {
        self.0.fail();
        true
    }
}

fn pair() -> [Side; 2] {
    pair_of([(RING, false); 2])
}

fn pair_of([one, two]: [(usize, bool); 2]) -> [Side; 2] {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (b, _) = listener.accept().unwrap();
    let mut sides = [Side::new(a, one), Side::new(b, two)];
    *sides[0].near.peer.lock().unwrap() = Some(sides[1].near);
    *sides[1].near.peer.lock().unwrap() = Some(sides[0].near);
    let terms = [sides[0].ring().terms(), sides[1].ring().terms()];
    for (side, peer) in sides.iter_mut().zip([&terms[1], &terms[0]]) {
        let seen = Terms::from_octets(&peer.to_octets()).unwrap();
        side.ring().connect(&seen).unwrap();
        side.tx.begin();
        assert_eq!(side.rx.begin(side.ring(), &[]), Ok(Begun::Ring));
    }
    sides
}

#[derive(Clone, Debug)]
enum Step {
    Send(usize, usize, u8),
    Receive(usize, usize),
    Settle(usize),
    Quiet(usize),
    /// An adapter does nothing for a while, or goes on.
    Hold(usize, bool),
    Arm(usize),
    Fail(usize),
    End(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![1usize..100, 1usize..RING, Just(RING)];
    prop_oneof![
        8 => (0..2usize, len.clone(), any::<u8>()).prop_map(|(s, n, x)| Step::Send(s, n, x)),
        8 => (0..2usize, len).prop_map(|(s, n)| Step::Receive(s, n)),
        4 => (0..2usize).prop_map(Step::Settle),
        2 => (0..2usize).prop_map(Step::Quiet),
        2 => (0..2usize, any::<bool>()).prop_map(|(s, h)| Step::Hold(s, h)),
        2 => (0..2usize).prop_map(Step::Arm),
        1 => (0..2usize).prop_map(Step::Fail),
        1 => (0..2usize).prop_map(Step::End),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn nothing_is_lost_wherever_it_ends(
        steps in prop::collection::vec(step(), 1..60),
        sizes in prop::array::uniform2(prop_oneof![Just(LEAST), Just(SMALL), Just(RING)]),
        slots: [bool; 2],
    ) {
        let mut sides = pair_of([(sizes[0], slots[0]), (sizes[1], slots[1])]);
        let size = sizes[0].min(sizes[1]);
        prop_assert!(sides.iter().all(|side| side.ring().size() == size));
        for step in steps {
            match step {
                Step::Send(s, n, seed) => sides[s].send(n, seed),
                Step::Receive(s, n) => { sides[s].receive(n); }
                Step::Settle(s) => sides[s].settle(),
                Step::Quiet(s) => sides[s].quiet(),
                Step::Hold(s, holds) => sides[s].near.holds.store(holds, Ordering::Relaxed),
                Step::Arm(s) => { sides[s].ring().arm(); }
                Step::Fail(s) => sides[s].near.fail(),
                Step::End(s) => sides[s].ring().end(),
            }
        }
        for side in &sides {
            side.near.holds.store(false, Ordering::Relaxed);
        }
        for _ in 0..20_000 {
            let mut moved = 0;
            for side in &mut sides {
                side.settle();
                moved += side.receive(RING);
            }
            if moved == 0 && sides[0].got.len() == sides[1].sent.len()
                && sides[1].got.len() == sides[0].sent.len() {
                break;
            }
        }
        prop_assert!(sides[0].got == sides[1].sent, "{} of {}", sides[0].got.len(), sides[1].sent.len());
        prop_assert!(sides[1].got == sides[0].sent, "{} of {}", sides[1].got.len(), sides[0].sent.len());
    }
}

#[test]
fn what_comes_after_arming_is_an_event_once() {
    let mut sides = pair();
    let [near, far] = [sides[0].near, sides[1].near];
    let told = || far.event.load(Ordering::SeqCst);
    sides[0].send(10, 1);
    sides[0].settle();
    assert!(!told());
    // What had come is seen by the look after it.
    assert_eq!(sides[1].ring().arm(), Armed::Yes);
    assert_eq!(sides[1].receive(100), 10);
    assert_eq!(sides[1].receive(100), 0);
    near.holds.store(true, Ordering::Relaxed);
    sides[0].send(10, 2);
    sides[0].send(10, 3);
    assert!(!told());
    near.holds.store(false, Ordering::Relaxed);
    sides[0].settle();
    assert!(told());
    // Taking what has come does not take the event: that is for others who sleep.
    assert_eq!(sides[1].receive(100), 20);
    assert!(told());
    assert_eq!(sides[1].ring().arm(), Armed::Anew);
    assert!(!told());
    assert_eq!(sides[1].ring().arm(), Armed::Yes);
}

#[test]
fn sides_that_end_it_at_once_are_done_with_it_though_nobody_reads() {
    let mut sides = pair();
    sides[0].send(10, 1);
    sides[0].settle();
    assert_eq!(sides[1].receive(100), 10);
    for side in &sides {
        side.ring().end();
    }
    for _ in 0..1000 {
        for side in &mut sides {
            side.settle();
            side.quiet();
        }
        if sides.iter().all(|s| s.tx.is_kernel() && s.rx.is_kernel()) {
            return;
        }
        std::thread::yield_now();
    }
    panic!("{:?} {:?}", sides[0].rx, sides[1].rx);
}

fn word(word: u32) -> Done {
    Done {
        told: Some(word),
        ok: true,
        ..Done::default()
    }
}

/// A send finds that the ring has ended in a way that no peer of ours ends it.
fn assert_refused(side: &mut Side) {
    let mut list = [libc::iovec {
        iov_base: [0u8; 4].as_mut_ptr().cast(),
        iov_len: 4,
    }];
    let (ring, fd) = (side.ring(), side.fd.as_raw_fd());
    let sent = unsafe { side.tx.send(Some(ring), fd, &mut list, 0) };
    assert_eq!(sent, Err(Errno::CONNRESET));
}

#[test]
fn a_peer_that_takes_what_was_never_put_is_refused() {
    let mut sides = pair();
    let taken = tell::Tell::Taken(1).to_word();
    sides[0].near.told.lock().unwrap().push_back(word(taken));
    sides[0].settle();
    assert_refused(&mut sides[0]);
}

#[test]
fn a_peer_that_puts_more_than_there_is_room_for_is_refused() {
    let mut sides = pair();
    for n in [RING as u32, 1] {
        let put = tell::Tell::Put(n).to_word();
        sides[0].near.told.lock().unwrap().push_back(word(put));
    }
    sides[0].settle();
    let (ring, fd) = (sides[0].ring(), sides[0].fd.as_raw_fd());
    let mut to = [0; 4];
    let came = unsafe { sides[0].rx.recv(Some(ring), fd, to.as_mut_ptr(), 4) };
    assert_eq!(came, Err(Errno::CONNRESET));
}

#[test]
fn terms_that_cannot_be_are_none() {
    assert_eq!(Terms::from_octets(&[0; TERMS]), None);
    assert_eq!(Terms::from_octets(&[0xff; TERMS]), None);
    let good = pair()[0].ring().terms();
    for ring in [0, LEAST as u32 - 1, LEAST as u32 + 1, RING as u32 + 4096] {
        let bad = Terms { ring, ..good };
        assert_eq!(Terms::from_octets(&bad.to_octets()), None, "{ring}");
    }
}

mod by_slots;
mod loans;
