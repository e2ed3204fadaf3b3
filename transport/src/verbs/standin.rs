//! An adapter that is none: queue pairs between processes of one host, by the kernel's copies between processes
//! (process_vm_readv(2), process_vm_writev(2)). For tests of what is above on machines without an adapter; chosen by
//! `SHUNT_STANDIN_ADAPTER` in the environment and by nothing else, with shortcomings if that is what it says ([`choice`]).
//!
//! Each queue pair has a [`Door`], whose place is part of its address. Who posts looks there for the key and the bounds
//! before it copies, says that it is at work, and looks again; who fails shuts the door and waits until nobody is. So
//! nothing is copied after [`Adapter::fail`], as with a queue pair in the error state.
//!
//! Work is carried out while it is posted, and is as strict as an adapter is: about keys, bounds, room, and states. Words
//! that are told wait at the other end ([`Tells`]), and are an event there (eventfd(2), of which the peer gets itself a
//! descriptor by pidfd_getfd(2)) if that has been armed. Sends of octets and, where there are receives for these, words too each
//! take the next receive ([`slots`]): where there is none the connection ends, since nobody asks again. There is room for so many that no peer has to be held up.

mod choice;
mod event;
mod guests;
pub(super) mod port;
mod slots;

use super::address::{BITS_24, Pair};
use super::kept::Kept;
use super::lock::Lock;
use super::route::Here;
use super::{Access, Adapter, Address, DEPTH, Done, INLINE, Operation, RECEIVES, Registered, Work};
use crate::clock;
use crate::sys::fd::{self, Fd, as_fd};
use crate::sys::mem::Mapping;
use crate::sys::{self, Errno, Result, vm};
use crate::syscall;
use event::{event_of, signal};
use guests::{Guest, Guests};
use slots::{BEFORE_TURN, Entry, Receives, turn};
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// Whether the environment wants it.
pub(super) fn is_chosen() -> bool {
    choice::get().is_some()
}

/// Queue pairs that this process has.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// The place of one of them.
#[derive(Debug)]
struct Place;

impl Place {
    fn take() -> Option<Self> {
        let room = choice::get().map_or(usize::MAX, |choice| choice.room); // (unit tests)
        let next = |open| (open < room).then_some(open + 1);
        let taken = OPEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        taken.ok().map(|_| Self)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Of `enum ibv_wc_status`.
const LOCAL_PROTECTION: u32 = 4;
const FLUSHED: u32 = 5;
const REMOTE_ACCESS: u32 = 10;
const NOT_READY: u32 = 13;
const RETRY_EXCEEDED: u32 = 12;

/// How long (µs) a peer may be at work while the door is being shut. It is in the middle of a few system calls, or dead.
const AT_WORK_US: u64 = 1_000_000;

/// What a peer looks at, from outside. Never given back: somebody may be on the way to look.
#[derive(Debug)]
#[repr(C, align(64))]
struct Door {
    /// The queue pair's own number while it is open, else 0.
    open: AtomicU64,
    base: u64,
    len: u64,
    key: u64,
    /// Where the words are that the peer has told, and the descriptor of the event.
    tells: u64,
    event: u64,
    /// Words that were polled.
    polled: AtomicU64,
    /// Not 0: the next word is an event. The peer clears it.
    armed: AtomicU64,
    /// Octets of a receive's memory, 0: there are none; and receives that were posted.
    slot: u64,
    posted: AtomicU64,
    /// Not 0: the peer is at work. Written by the peer.
    busy: AtomicU64,
    guests: Guests,
    receives: Receives,
}

impl Door {
    /// Posts a receive with this memory.
    fn post(&self, slot: Option<u32>) {
        if let Some(slot) = slot {
            let posted = self.posted.load(Ordering::Relaxed);
            self.receives.put(posted, slot);
            self.posted.store(posted + 1, Ordering::SeqCst);
        }
    }

    /// Waits until the peer is not at work. What was taken from it before is not used after.
    fn rest(&self) {
        let until = clock::ticks().saturating_add(clock::us(AT_WORK_US));
        while self.busy.load(Ordering::Acquire) != 0 && clock::ticks() < until {
            sys::yield_core();
        }
    }
}

/// Words that can wait.
const TELLS: usize = 32 * 1024;

/// What the peer has told, by their numbers: each an [`Entry`].
type Tells = [AtomicU64; TELLS];

/// [`Door`] as read from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
struct Seen {
    open: u64,
    base: u64,
    len: u64,
    key: u64,
    tells: u64,
    event: u64,
    polled: u64,
    armed: u64,
    slot: u64,
    posted: u64,
}

const BUSY_AT: u64 = std::mem::offset_of!(Door, busy) as u64;
const RECEIVES_AT: u64 = std::mem::offset_of!(Door, receives) as u64;
const GUESTS_AT: u64 = std::mem::offset_of!(Door, guests) as u64;
const ARMED_AT: u64 = std::mem::offset_of!(Door, armed) as u64;
const _: () = assert!(std::mem::offset_of!(Seen, armed) as u64 == ARMED_AT);
const _: () = assert!(std::mem::offset_of!(Seen, posted) == std::mem::offset_of!(Door, posted));

/// Work requests that have not been polled, and what to say of them.
#[derive(Debug, Default)]
struct Queue {
    /// With each the work requests that it tells of.
    done: VecDeque<(Done, usize)>,
    /// Posted since the last that tells.
    silent: usize,
    outstanding: usize,
    failed: bool,
    /// Words that were told to the peer.
    told: u64,
    /// Receives of the peer's that were used.
    drawn: u64,
    patience: choice::Patience,
}

/// One end.
#[derive(Debug)]
pub(super) struct StandIn {
    door: &'static Door,
    address: Pair,
    /// The InfiniBand port that it is at, and the index of its partition.
    port: Option<(Here, u16)>,
    /// The peer's process and its door; no process before `connect`.
    peer: OnceLock<(u32, u64, u64)>,
    queue: Lock<Queue>,
    /// Registrations that it keeps, if it is one that does.
    kept: Option<Lock<Kept<Guest>>>,
    shut: AtomicBool,
    tells: &'static Tells,
    event: Fd,
    /// The peer's event, from `connect` on.
    far: OnceLock<Option<Fd>>,
    _place: Place,
    /// When (ticks) it is connected, once it was asked whether it is.
    connected: OnceLock<u64>,
}

static NEXT: AtomicU32 = AtomicU32::new(2);

impl StandIn {
    /// An end with this memory.
    pub(super) fn new(memory: NonNull<u8>, len: usize, slot: Option<u32>) -> Option<Self> {
        let place = Place::take()?;
        let qpn = NEXT.fetch_add(1, Ordering::Relaxed) % (BITS_24 - 2) + 2;
        let psn = super::random()? & BITS_24;
        let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
        // SAFETY: no pointers.
        let event = unsafe { syscall!(eventfd2, 0, flags) }.ok()?;
        let event = fd::in_reserve(Fd::own(as_fd(event)).raw()).ok()?;
        let tells = Mapping::private(size_of::<Tells>()).ok()?.leak();
        let door: &'static Door = Box::leak(Box::new(Door {
            open: AtomicU64::new(number(qpn, psn)),
            base: memory.as_ptr().expose_provenance() as u64,
            len: len as u64,
            key: u64::from(super::random()?),
            tells: tells.as_ptr().expose_provenance() as u64,
            event: u64::from(event.raw().cast_unsigned()),
            polled: AtomicU64::new(0),
            armed: AtomicU64::new(0),
            slot: u64::from(slot.unwrap_or(0)),
            posted: AtomicU64::new(if slot.is_some() { RECEIVES as u64 } else { 0 }),
            busy: AtomicU64::new(0),
            guests: Guests::new(),
            receives: Receives::new(),
        }));
        let pid = u32::try_from(sys::pid()).ok()?;
        let at = std::ptr::from_ref(door).expose_provenance() as u64;
        let (kind, gid, port) = port::place(pid, at)?;
        Some(Self {
            door,
            address: Pair {
                kind,
                mtu: 5,
                qpn,
                psn,
                gid,
                takes: slot.is_some(),
            },
            port,
            peer: OnceLock::new(),
            queue: Lock::new(Queue {
                patience: choice::Patience::new(),
                ..Queue::default()
            }),
            kept: choice::is_on_demand().then(|| Lock::new(Kept::new(guests::BOUNDS))),
            shut: AtomicBool::new(false),
            // SAFETY: fresh memory of that size, page aligned, and never given back; atomics of zeros.
            tells: unsafe { tells.cast::<Tells>().as_ref() },
            event,
            far: OnceLock::new(),
            _place: place,
            connected: OnceLock::new(),
        })
    }

    #[allow(clippy::cast_possible_truncation)]
    const fn key(&self) -> u32 {
        self.door.key as u32
    }

    /// Has it keep registrations, whatever the environment wants.
    #[cfg(test)]
    pub(super) fn keeps(&mut self) {
        self.kept = Some(Lock::new(Kept::new(guests::BOUNDS)));
    }

    /// Carries one work request out.
    #[inline(never)] // (for a small frame of `post`)
    fn carry_out(&self, work: &Work, seen: &Seen, (pid, at): (u32, u64)) -> Result<(), u32> {
        let Work {
            operation,
            local,
            len,
            lkey,
            remote,
            rkey,
            ..
        } = *work;
        let own = self.door;
        let here = local.expose_provenance() as u64;
        let is_read = operation == Operation::Read;
        // (only Reads use memory beside the queue pair's own)
        let near = if lkey == self.key() {
            Some((own.base, own.len))
        } else if is_read {
            own.guests.find(lkey, Access::Takes)
        } else {
            None
        };
        let is_here = near.is_some_and(|(base, room)| within(here, len, base, room));
        if operation != Operation::WriteInline && !is_here {
            return Err(LOCAL_PROTECTION);
        }
        let there = if u64::from(rkey) == seen.key {
            Some((seen.base, seen.len))
        } else if is_read {
            Guests::find_far(pid, at + GUESTS_AT, rkey, Access::Lends)
        } else {
            None
        };
        if !there.is_some_and(|(base, room)| within(remote, len, base, room)) {
            return Err(REMOTE_ACCESS);
        }
        let len = len as usize;
        // SAFETY: the caller of `post` vouches for the local memory; the other process's the kernel checks.
        let copied = unsafe {
            match operation {
                Operation::Write | Operation::WriteInline => vm::write(pid, local, remote, len),
                Operation::Read => vm::read(pid, remote, local, len),
                Operation::Send => return Err(LOCAL_PROTECTION), // (goes by `send`)
            }
        };
        if copied == Ok(len) {
            Ok(())
        } else {
            Err(RETRY_EXCEEDED)
        }
    }

    /// Tells the peer something, which has this number.
    fn tell(
        &self,
        entry: Entry,
        number: u64,
        seen: &Seen,
        (pid, at, _): (u32, u64, u64),
    ) -> Result<(), u32> {
        if number.wrapping_sub(seen.polled) >= TELLS as u64 {
            return Err(RETRY_EXCEEDED);
        }
        let slot = seen.tells + number % TELLS as u64 * size_of::<Entry>() as u64;
        // SAFETY: octets of locals; the other process's kernel checks.
        let put =
            |from: *const u8, to: u64, len: usize| match unsafe { vm::write(pid, from, to, len) } {
                Ok(n) if n == len => Ok(()),
                _ => Err(RETRY_EXCEEDED),
            };
        let turn = turn(number);
        put((&raw const entry).cast(), slot, BEFORE_TURN)?;
        put(&raw const turn, slot + BEFORE_TURN as u64, 1)?;
        fence(Ordering::SeqCst);
        let mut armed = 0u64;
        // SAFETY: eight octets of a local.
        let read = unsafe { vm::read(pid, at + ARMED_AT, (&raw mut armed).cast(), 8) };
        if read == Ok(8) && armed != 0 {
            let none = 0u64;
            put((&raw const none).cast(), at + ARMED_AT, size_of::<u64>())?;
            let known = self.far.get().and_then(Option::as_ref);
            // (a child that has borrowed this memory since before `connect` does not have that descriptor)
            let told = known.is_some_and(signal)
                || event_of(pid, seen.event).is_some_and(|far| signal(&far));
            if !told {
                return Err(RETRY_EXCEEDED);
            }
        }
        Ok(())
    }

    /// Works while the peer knows. Why it cannot: the door is shut, or nobody is there.
    fn at_work(
        &self,
        (pid, at, open): (u32, u64, u64),
        mut each: impl FnMut(&Seen) -> Result<(), u32>,
    ) -> Result<(), u32> {
        let read = || {
            read_door(pid, at)
                .filter(|seen| seen.open == open)
                .ok_or(RETRY_EXCEEDED)
        };
        // (a number that changes meanwhile may be read half old and half new)
        let look = || {
            let mut before = read()?;
            loop {
                let seen = read()?;
                if seen == before {
                    return Ok(seen);
                }
                before = seen;
            }
        };
        let say = |busy: u64| {
            // SAFETY: eight octets of a local.
            unsafe {
                vm::write(
                    pid,
                    (&raw const busy).cast(),
                    at + BUSY_AT,
                    size_of::<u64>(),
                )
            }
        };
        look()?;
        say(1).map_err(|_| RETRY_EXCEEDED)?;
        let done = look().and_then(|seen| each(&seen));
        let _ = say(0);
        done
    }
}

#[inline(never)] // (for a small frame of `post`)
fn read_door(pid: u32, at: u64) -> Option<Seen> {
    let mut seen = Seen::default();
    // SAFETY: `seen` is writable for its size, and plain numbers.
    let n = unsafe { vm::read(pid, at, (&raw mut seen).cast(), size_of::<Seen>()) };
    (n == Ok(size_of::<Seen>())).then_some(seen)
}

/// What tells one queue pair of a process from another that has its door.
fn number(qpn: u32, psn: u32) -> u64 {
    u64::from(qpn) << 32 | u64::from(psn)
}

fn within(at: u64, len: u32, base: u64, room: u64) -> bool {
    at.checked_sub(base)
        .and_then(|from| from.checked_add(len.into()))
        .is_some_and(|end| end <= room)
}

impl Adapter for StandIn {
    fn address(&self) -> Address {
        Address::Pair(self.address)
    }

    fn lkey(&self) -> u32 {
        self.key()
    }

    fn rkey(&self) -> u32 {
        self.key()
    }

    fn connect(&self, peer: &Address) -> Result<()> {
        let Address::Pair(peer) = peer else {
            return Err(Errno::INVAL);
        };
        let (pid, at) = port::reach(self.port.as_ref(), peer)?;
        if at.checked_add(BUSY_AT).is_none() {
            return Err(Errno::INVAL);
        }
        // (not when it is needed: a child that borrows this memory may be the first who needs it, and has descriptors of its own)
        self.far
            .get_or_init(|| event_of(pid, read_door(pid, at)?.event));
        let connected = self.peer.set((pid, at, number(peer.qpn, peer.psn)));
        connected.map_err(|_| Errno::INVAL)
    }

    fn is_connected(&self) -> Result<bool> {
        Ok(*self.connected.get_or_init(choice::connected_at) <= clock::ticks())
    }

    unsafe fn post(&self, work: &[Work]) -> Result<()> {
        let peer = *self.peer.get().ok_or(Errno::INVAL)?;
        super::check(work, u32::MAX)?;
        self.queue.with(|queue| {
            if queue.outstanding + work.len() > DEPTH {
                return Err(Errno::NOMEM);
            }
            let mut left = work;
            let mut status = FLUSHED;
            if !queue.failed && !self.shut.load(Ordering::Acquire) {
                let gives_up = queue.patience.ends_with(work.len());
                let ended = self.at_work(peer, |seen| {
                    if gives_up && seen.polled & 1 == 0 {
                        return Err(RETRY_EXCEEDED); // nothing has arrived
                    }
                    while let Some((first, rest)) = left.split_first() {
                        if first.operation == Operation::Send {
                            self.send(first, queue, seen, peer)?;
                        } else {
                            self.carry_out(first, seen, (peer.0, peer.1))?;
                        }
                        if let Some(word) = first.tell {
                            let slot = self.draw(&mut queue.drawn, seen, (peer.0, peer.1))?;
                            self.tell(Entry::word(word, slot), queue.told, seen, peer)?;
                            queue.told += 1;
                        }
                        if gives_up {
                            return Err(RETRY_EXCEEDED); // it has, and nobody says so
                        }
                        left = rest;
                        queue.note(first, 0);
                    }
                    Ok(())
                });
                status = ended.err().unwrap_or(0);
            }
            for work in left {
                queue.note(work, status);
                status = FLUSHED;
            }
            if status == FLUSHED {
                signal(&self.event);
            }
            Ok(())
        })
    }

    fn poll(&self, done: &mut [Done]) -> usize {
        self.queue.with(|queue| {
            let mut n = 0;
            for to in done.iter_mut() {
                let Some((next, tells)) = queue.done.pop_front() else {
                    break;
                };
                queue.outstanding = queue.outstanding.saturating_sub(tells);
                *to = next;
                n += 1;
            }
            let mut polled = self.door.polled.load(Ordering::Relaxed);
            for to in done.iter_mut().skip(n) {
                let place = self.tells.get(polled as usize % TELLS);
                let bits = place.map_or(0, |place| place.load(Ordering::Acquire));
                let Some(entry) = Entry::numbered(bits, polled) else {
                    break;
                };
                *to = entry.done();
                if to.told.is_some() {
                    // (a word's receive holds nothing)
                    self.door.post(entry.slot());
                }
                polled += 1;
                n += 1;
            }
            self.door.polled.store(polled, Ordering::Release);
            n
        })
    }

    fn receive(&self, slots: &mut dyn Iterator<Item = u32>) -> Result<()> {
        self.queue
            .with(|_| slots.for_each(|slot| self.door.post(Some(slot))));
        Ok(())
    }

    fn event(&self) -> i32 {
        self.event.raw()
    }

    fn arm(&self) -> Result<()> {
        self.door.armed.store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        Ok(())
    }

    fn take_event(&self) -> bool {
        let mut count = 0u64;
        // SAFETY: eight writable octets.
        unsafe { syscall!(read, self.event.raw(), &raw mut count, 8) }.is_ok()
    }

    fn fail(&self) {
        self.shut.store(true, Ordering::Release);
        self.door.open.store(0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.door.rest();
    }

    unsafe fn register(
        &self,
        memory: NonNull<u8>,
        len: usize,
        access: Access,
    ) -> Option<Box<dyn Registered>> {
        match &self.kept {
            Some(kept) if access == Access::Takes => {
                guests::register_kept(self.door, kept, memory, len)
            }
            _ => guests::register(self.door, memory, len, access),
        }
    }

    fn halt(&self) -> bool {
        self.fail();
        true
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.fail();
    }
}

impl Queue {
    /// A work request has ended.
    fn note(&mut self, work: &Work, status: u32) {
        let Work { id, signaled, .. } = *work;
        self.outstanding += 1;
        self.silent += 1;
        let ok = status == 0;
        if signaled || !ok {
            let tells = std::mem::take(&mut self.silent);
            let done = Done {
                id,
                told: None,
                landed: None,
                ok,
                status,
            };
            self.done.push_back((done, tells));
        }
        self.failed |= !ok;
    }
}

const _: () = assert!(INLINE as usize >= 2 * size_of::<u64>());
