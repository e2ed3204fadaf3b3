//! A queue pair over an iWARP adapter and the registration of its memory, as an [`Adapter`]. What differs from RoCE:
//!
//! | part | owns |
//! |---|---|
//! | `meeting`, `manager` | connections are made by rdma_cm: one end listens, the other connects; what librdmacm makes |
//! | `pair`, `chain` | no Write takes a word along: a Send behind it does, to receives that have memory |
//!
//! The end that connects sends first (a [`Message`] that gives no room), and the other waits for that and answers with the
//! same: an MPA responder may send nothing before (RFC 5044, 7.1.2), whatever "ready to receive" the drivers agree on. It is
//! said again if no answer comes: siw sees what comes right behind its Reply only once more comes (docs/siw.md).

mod chain;
mod manager;
mod meeting;
mod pair;
#[cfg(test)]
mod tests;

use super::counted::{self, Carrier as _, Counted, Look};
use super::ledger::GREETINGS;
use super::lock::Lock;
use super::message::Message;
use super::region::Region;
use super::{Adapter, Address, Done, START, Side, Work, device};
use crate::clock;
use crate::sys::fd::Fd;
use crate::sys::{Errno, Result};
use meeting::{Meeting, Next};
use pair::Pair;
use std::ffi::c_void;
use std::net::IpAddr;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// How long (µs) an answer to the first greeting is waited for before the next; a little longer each time.
const GREET_AGAIN_US: u64 = 20_000;

/// One end. What it has is shared with a thread that may be calling the peer: whoever is the last to have it gives it back.
#[derive(Debug)]
pub(super) struct Endpoint(Arc<End>);

/// In this order, since they end in it: nothing is written to memory that is no longer registered, and the manager's id goes
/// after the queue pair that it has connected.
#[derive(Debug)]
struct End {
    pair: Pair,
    meeting: Lock<Meeting>,
    counted: Counted,
    region: Region,
    own: Address,
    /// The descriptor of the manager's events.
    channel: i32,
    longest: u32,
    /// Connected, and the other has been heard of.
    up: AtomicBool,
    /// The peer could not be called.
    refused: AtomicBool,
    /// Greetings that were said, and when (ticks) the last one was.
    greetings: AtomicU32,
    greeted: AtomicU64,
}

impl Endpoint {
    /// At the iWARP device that the local address goes by; none if there is none, or no room.
    ///
    /// # Safety
    /// As [`super::open`].
    pub(super) unsafe fn open(
        ip: &IpAddr,
        memory: NonNull<u8>,
        len: usize,
        side: Side,
    ) -> Option<Self> {
        if !device::has_iwarp() {
            return None;
        }
        let meeting = Meeting::bind(ip, side)?;
        let (name, port) = meeting.device()?;
        let (device, longest) = device::named(&name, port)?;
        // SAFETY: the caller's promise.
        let region = unsafe { Region::register(device, memory, len) }.ok()?;
        let pair = Pair::new(device).ok()?;
        Some(Self(Arc::new(End {
            pair,
            own: Address::Iwarp(meeting.own()),
            channel: meeting.descriptor(),
            meeting: Lock::new(meeting),
            counted: Counted::new(),
            region,
            longest,
            up: AtomicBool::new(false),
            refused: AtomicBool::new(false),
            greetings: AtomicU32::new(0),
            greeted: AtomicU64::new(0),
        })))
    }

    /// Has a thread call the peer, which may take as long as its host does.
    fn call(&self) -> Result<()> {
        let start = START.get().ok_or(Errno(libc::ENOTSUP))?;
        let shared = Arc::into_raw(Arc::clone(&self.0)).cast_mut();
        if start(call, shared.cast()) {
            return Ok(());
        }
        // SAFETY: from above, and no thread has it.
        drop(unsafe { Arc::from_raw(shared) });
        Err(Errno::AGAIN)
    }
}

extern "C" fn call(end: *mut c_void) -> *mut c_void {
    // SAFETY: from `Endpoint::call`, once.
    let end = unsafe { Arc::from_raw(end.cast_const().cast::<End>()) };
    let caller = end.meeting.with(|meeting| meeting.caller());
    // SAFETY: both are there as long as the end is.
    if unsafe { caller.call(end.pair.number()) }.is_err() {
        end.refused.store(true, Ordering::Release);
    }
    ptr::null_mut()
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.fail(); // (the thread may still have it)
    }
}

impl End {
    /// Says that this end is there: the one that calls until it has heard the same, the other once.
    fn greet(&self) -> Look {
        let (n, now) = (self.greetings.load(Ordering::Relaxed), clock::ticks());
        let since = now - self.greeted.load(Ordering::Relaxed).min(now);
        if n >= GREETINGS || n > 0 && since < clock::us(GREET_AGAIN_US) << n {
            return Look::Well;
        }
        self.greetings.store(n + 1, Ordering::Relaxed);
        self.greeted.store(now, Ordering::Relaxed);
        self.pair.say(Message::Credits(0))
    }
}

impl Adapter for Endpoint {
    fn address(&self) -> Address {
        self.0.own
    }

    fn lkey(&self) -> u32 {
        self.0.region.lkey()
    }

    fn rkey(&self) -> u32 {
        self.0.region.rkey()
    }

    fn connect(&self, peer: &Address) -> Result<()> {
        match peer {
            Address::Iwarp(peer) => self.0.meeting.with(|meeting| meeting.begin(peer)),
            Address::Pair(_) => Err(Errno::INVAL),
        }
    }

    fn is_connected(&self) -> Result<bool> {
        let end = &self.0;
        if end.up.load(Ordering::Acquire) {
            return Ok(true);
        }
        if end.refused.load(Ordering::Acquire) {
            return Err(Errno(libc::ECONNREFUSED));
        }
        let number = end.pair.number();
        let (next, calls) = end.meeting.with(|meeting| {
            let calls = meeting.own().port.is_none();
            meeting.go_on(number).map(|next| (next, calls))
        })?;
        match next {
            Next::Wait => return Ok(false),
            Next::Call => return self.call().map(|()| false),
            Next::Met => {}
        }
        let up = end.counted.work(|ledger| {
            let look = counted::look(&end.pair, ledger);
            let up = ledger.is_greeted();
            let greets = look == Look::Well && up != calls;
            (up, if greets { end.greet() } else { look })
        });
        if end.counted.has_ended() {
            return Err(Errno(libc::ECONNRESET));
        }
        end.up.store(up, Ordering::Release);
        Ok(up)
    }

    unsafe fn post(&self, work: &[Work]) -> Result<()> {
        super::check(work, self.0.longest)?;
        // SAFETY: passed on.
        unsafe { self.0.counted.post(&self.0.pair, work) }
    }

    fn poll(&self, done: &mut [Done]) -> usize {
        self.0.counted.poll(&self.0.pair, done)
    }

    fn event(&self) -> i32 {
        self.0.pair.event()
    }

    fn arm(&self) -> Result<()> {
        self.0.pair.arm()
    }

    fn take_event(&self) -> bool {
        self.0.pair.take_event()
    }

    fn fail(&self) {
        self.0.pair.fail();
        self.0.counted.end();
    }

    fn forget(&self) {
        drop(Fd::own(self.event()));
        drop(Fd::own(self.0.channel)); // (without the lock, which its parent may have had)
    }
}
