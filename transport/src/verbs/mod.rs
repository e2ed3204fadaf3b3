//! RDMA adapters: reliable connected queue pairs by libibverbs, and a stand-in for them between processes of one host.
//!
//! | part | owns |
//! |---|---|
//! | [`Adapter`] | what a connection sees: one queue pair and the registration of its memory |
//! | [`address`] | where an end is found, in the octets that two ends exchange |
//! | `ffi` | the few functions and structures of libibverbs and librdmacm, found by `dlopen` at their first use |
//! | `device` | devices, opened once a process; which of them carries a local address |
//! | `region`, `channel` | the registration of memory; the event of a completion queue |
//! | `on_demand`, `kept`, `trial` | registrations that mean addresses and not pages, which outlast their call; whether a device has them |
//! | `ledger`, `message`, `counted` | what the peer has room for and what is held back: who tells counts; the same for both kinds |
//! | `queue_pair`, `endpoint` | a queue pair over RoCE or InfiniBand, and that with its memory as an [`Adapter`] |
//! | `route`, `infiniband` | the way from one to another; which InfiniBand port an address is at |
//! | `registrar` | the thread that registers memory for others |
//! | `receives` | the receives of all queue pairs of a device that are no iWARP adapter's |
//! | `iwarp` | the same over an iWARP adapter, where rdma_cm connects and a Send tells |
//! | `standin` | the stand-in, for machines without an adapter |
//!
//! Called by what carries connections over RDMA. Rules:
//! - Nothing is linked and nothing happens at load. Where libibverbs (for iWARP: or librdmacm) is not installed, or there
//!   is no device, [`open`] says so and that is all.
//! - [`open`], [`Adapter::connect`], [`Adapter::is_connected`], [`Adapter::fail`] and the end of an adapter are control calls:
//!   the libraries take memory and open files for them, and they may take milliseconds. They are made on a thread of the
//!   library's own, and never wait for the peer. All others are made on any thread and take neither: what
//!   [`Adapter::register`] and [`Adapter::halt`] ask of a library a thread does that is there for that (`registrar`).
//! - Queue pairs do not outlive fork: a child must not use those of its parent. [`open`] in a child opens devices anew.

pub mod address;
mod channel;
mod counted;
mod device;
mod endpoint;
mod ffi;
mod infiniband;
mod iwarp;
mod kept;
mod ledger;
mod lock;
mod message;
mod on_demand;
mod queue_pair;
mod receives;
mod region;
mod registrar;
mod route;
mod standin;
#[cfg(test)]
mod tests;
mod trial;

use crate::sys::fd::Fd;
use crate::sys::{Errno, Result, udp};
use std::ffi::c_void;
use std::fmt::Debug;
use std::net::IpAddr;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

pub use address::Address;

/// Work requests that may be outstanding: posted, and neither they nor a later one polled as [`Done`].
pub const DEPTH: usize = 64;
/// Work requests that one call of [`Adapter::post`] takes.
pub const BATCH: usize = 4;
/// Words that a peer can tell before they are polled; what it tells more waits at its side until it has heard that some were
/// polled.
pub const TELLS: usize = 256;
/// Octets of a Write that every adapter takes with the request itself ([`Operation::WriteInline`]).
pub const INLINE: u32 = 32;

/// Receives with memory that a queue pair has posted where its peer sends octets ([`Operation::Send`]): one each for the Sends
/// that may be under way or unread. And as many as there are beside these for words, and for messages of the adapters' own.
pub const SLOTS: usize = 32;
pub const RECEIVES: usize = SLOTS + 16;

/// What a work request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// RDMA Write: octets from here to there.
    Write,
    /// The same with octets that are taken with the request: their memory may be used again once it is posted. At most
    /// [`INLINE`] of them.
    WriteInline,
    /// RDMA Read: octets from there to here.
    Read,
    /// Send: octets from here into the peer's next receive, which has room for them ([`Adapter::takes_sends`]). Nobody asks
    /// again where there is none: that ends the connection.
    Send,
}

/// One work request: an RDMA operation on the peer's registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    pub operation: Operation,
    pub local: *mut u8,
    pub len: u32,
    /// Of the registration that `local` lies in; not looked at for [`Operation::WriteInline`].
    pub lkey: u32,
    pub remote: u64,
    pub rkey: u32,
    /// Wants a [`Done`] also where it goes well.
    pub signaled: bool,
    /// With a Write: a word for the peer, who is told it ([`Done::told`]) once the octets are there (RDMA Write with
    /// immediate data; over iWARP a Send behind the Write). Takes one of the peer's [`TELLS`].
    pub tell: Option<u32>,
    pub id: u64,
}

// SAFETY: a description; whoever posts it vouches for the memory, on whatever thread it is carried out.
unsafe impl Send for Work {}

/// Octets that a Send of the peer's has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landed {
    /// Which receive's memory they are in, until that is posted again ([`Adapter::receive`]).
    pub slot: u32,
    pub len: u32,
}

/// How a work request has ended, or what the peer has told with one of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// The work request's; nothing where the peer has told something.
    pub id: u64,
    /// The word that came with a Write of the peer's, all of which is here.
    pub told: Option<u32>,
    /// What a Send of the peer's has brought; nothing where work has ended.
    pub landed: Option<Landed>,
    /// It and all before it have been carried out: what they wrote is in the peer's memory, what they read is here.
    /// (iWARP acknowledges nothing: what they wrote is on its way, and there before anything that is told or read behind it.)
    /// If not, it and all after it may or may not have been, and no more will be.
    pub ok: bool,
    /// The adapter's word for it (`enum ibv_wc_status`), 0 for success; for people.
    pub status: u32,
}

/// The id of a [`Done`] that says that the connection has ended, where that is known and no work was under way.
pub const ENDED: u64 = u64::MAX;

/// What memory beside the adapter's own is registered for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The peer's Reads.
    Lends,
    /// This side's Reads put octets there.
    Takes,
}

/// Memory that is registered as long as this is there. Where it has gone the peer neither reads it nor writes to it; this side's own key
/// may still name the same addresses, for whoever registers them next.
pub trait Registered: Debug {
    /// Its key for this side's own work requests.
    fn lkey(&self) -> u32;

    /// Its key for the peer's.
    fn rkey(&self) -> u32;

    /// Work with it has failed: it is not to be used again.
    fn failed(&self) {}
}

/// A queue pair of the reliable connected kind, and the registration of one range of memory for it.
///
/// The peer may read and write the whole range by [`Adapter::rkey`] from [`Adapter::connect`] on until
/// [`Adapter::fail`] or the adapter's end: whatever lies in it is the peer's word.
///
/// Operations are carried out in the order of posting. A Write's octets become visible in the order of their addresses
/// as far as every RoCE adapter of today goes, an aligned word of 8 octets at once, and those of one Write before those of
/// the next; over iWARP only what was told is promised to be there. A Read is no exception to that order but must have
/// ended before what it read is looked at.
pub trait Adapter: Send + Sync + Debug {
    /// What the peer's [`Adapter::connect`] wants.
    fn address(&self) -> Address;

    /// The key of the registered memory for this side's own work requests.
    fn lkey(&self) -> u32;

    /// The key of the registered memory for the peer's.
    fn rkey(&self) -> u32;

    /// Connects to the peer's queue pair, or begins to ([`Self::is_connected`]). Once. After both ends have, either may
    /// post; who posts before the peer has connected is only retried for about a second.
    ///
    /// # Errors
    /// EINVAL for an address that cannot be this one's peer; what the adapter says.
    fn connect(&self, peer: &Address) -> Result<()>;

    /// Goes on with [`Self::connect`]: whether it is done, so that this end may post. To be asked again if not; how long is
    /// the caller's to decide.
    ///
    /// # Errors
    /// It will not be.
    fn is_connected(&self) -> Result<bool> {
        Ok(true)
    }

    /// Posts work, at most [`BATCH`] at once.
    ///
    /// # Errors
    /// EINVAL (too many, too long, a Read that tells), ENOMEM (more than [`DEPTH`] outstanding), what the adapter says. Some of the work may
    /// have been taken: the only way on is [`Adapter::fail`].
    ///
    /// # Safety
    /// The local memory is registered under its key with this device (or goes inline), valid until the work's [`Done`]
    /// or that of later work is polled, and nobody relies on what it holds while a Read is under way.
    unsafe fn post(&self, work: &[Work]) -> Result<()>;

    /// Whether the peer's Sends of octets find receives here. The address says so.
    fn takes_sends(&self) -> bool {
        self.address().takes_sends()
    }

    /// Posts receives with the memory of these slots again.
    ///
    /// # Errors
    /// ENOTSUP where there are none; what the adapter says: the only way on is [`Adapter::fail`].
    fn receive(&self, _slots: &mut dyn Iterator<Item = u32>) -> Result<()> {
        Err(Errno(libc::ENOTSUP))
    }

    /// Takes ended work requests and what the peer has told, oldest first. How many.
    ///
    /// Only those work requests tell that were signaled or went wrong; each tells of all before it.
    fn poll(&self, done: &mut [Done]) -> usize;

    /// The descriptor that becomes readable once the peer has told something, or work has failed, after [`Adapter::arm`].
    /// It is this adapter's, and goes with it.
    fn event(&self) -> i32;

    /// From now on the next of these makes the descriptor readable, once. What has come before does not: whoever is about
    /// to sleep polls once more.
    ///
    /// # Errors
    /// What the adapter says.
    fn arm(&self) -> Result<()>;

    /// Makes the descriptor unreadable again. Whether it was readable: then it has to be armed anew.
    fn take_event(&self) -> bool;

    /// Ends the queue pair: nothing of the peer's is carried out any more once this has returned, and what was posted
    /// here and has not ended ends with `ok: false`. So does what is posted from now on.
    fn fail(&self);

    /// Registers memory beside its own for a while, on any thread. None: there is no room, or no adapter of this kind has
    /// that.
    ///
    /// # Safety
    /// What is read or written there is nobody's but the caller's, and octets that others may change.
    unsafe fn register(
        &self,
        _memory: NonNull<u8>,
        _len: usize,
        _access: Access,
    ) -> Option<Box<dyn Registered>> {
        None
    }

    /// As [`Self::fail`], on any thread; false if that could not be done.
    fn halt(&self) -> bool {
        false
    }

    /// In a child of fork: closes what it has inherited of its parent's. Once, and nothing else is called there.
    fn forget(&self) {
        drop(Fd::own(self.event()));
    }
}

/// Which end of a connection it is for: an iWARP adapter's has to listen, or to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Tells its address first.
    Offers,
    /// Has been told the other's.
    Answers,
}

/// What a thread runs, and what it is given.
pub type Routine = extern "C" fn(*mut c_void) -> *mut c_void;
/// Starts a thread that runs this; whether it could.
pub type Start = fn(Routine, *mut c_void) -> bool;

/// Sees to it that what peers tell finds receives, whichever connections are polled, and that devices are tried that are to be. Now and
/// then, by the thread that makes the control calls.
pub fn replenish() {
    device::replenish();
}

static START: OnceLock<Start> = OnceLock::new();

/// Installs what starts threads for calls that wait for the peer, some drivers' way to connect. Once, at start.
pub fn start_threads_by(start: Start) {
    let _ = START.set(start);
}

/// An adapter for a connection whose own end has this address, with `len` octets of memory registered for it. None if
/// there is no device for the address, or it has no room; `SHUNT_STANDIN_ADAPTER` in the environment makes it the
/// stand-in, always. With `slot` the peer is to send octets, and the memory begins with that of [`RECEIVES`] receives of so many octets
/// each; an adapter of iWARP has none (without immediate data its words and octets could not be told apart).
///
/// # Safety
/// The memory stays mapped until the adapter has gone, and is accessed as memory that others write.
#[must_use]
pub unsafe fn open(
    local: &IpAddr,
    memory: NonNull<u8>,
    len: usize,
    side: Side,
    slot: Option<u32>,
) -> Option<Box<dyn Adapter>> {
    if standin::is_chosen() {
        return Some(Box::new(standin::StandIn::new(memory, len, slot)?));
    }
    // SAFETY: passed on.
    if let Some(endpoint) = unsafe { endpoint::Endpoint::open(local, memory, len, slot) } {
        return Some(Box::new(endpoint));
    }
    // SAFETY: passed on.
    let endpoint = unsafe { iwarp::Endpoint::open(local, memory, len, side) }?;
    Some(Box::new(endpoint))
}

static INSISTS: AtomicBool = AtomicBool::new(false);

/// Whether queue pairs that are connected from now on ask a silent peer again as often as their device can (Linux's software
/// RoCE: for ever), and not for about a second. For tests whose peer may stand still for longer than that.
pub fn insist(insists: bool) {
    INSISTS.store(insists, Ordering::Relaxed);
}

fn insists() -> bool {
    INSISTS.load(Ordering::Relaxed)
}

/// Whether a peer with this network address may be found at this address of an adapter's, from where a connection of ours has
/// this local one. A control call.
#[must_use]
pub fn is_of(address: &Address, peer: &IpAddr, local: &IpAddr) -> bool {
    let own = standin::is_chosen().then(|| address.gid()).flatten();
    address.is_of(peer, |peer| {
        own.or_else(|| infiniband::port_of(peer, local))
    })
}

/// Whether [`open`] has no adapter for this address only because one has no room.
#[must_use]
pub fn lacks_room(local: &IpAddr) -> bool {
    standin::is_chosen() || device::might_serve(local)
}

/// What every adapter refuses.
fn check(work: &[Work], most: u32) -> Result<()> {
    let fits = |work: &Work| match work.operation {
        Operation::WriteInline => work.len <= INLINE,
        Operation::Write => work.len <= most,
        Operation::Read | Operation::Send => work.len <= most && work.tell.is_none(),
    };
    if work.len() <= BATCH && work.iter().all(fits) {
        Ok(())
    } else {
        Err(Errno::INVAL)
    }
}

/// A number that nobody can guess.
fn random() -> Option<u32> {
    udp::random().ok().map(|word| (word >> 32) as u32)
}
