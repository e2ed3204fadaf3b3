//! A queue pair of a device and the registration of its memory, as an [`Adapter`].

use super::counted::Counted;
use super::queue_pair::QueuePair;
use super::receives::Slots;
use super::region::{self, Region};
use super::{Access, Adapter, Address, Done, Registered, Work, device, registrar};
use crate::sys::Result;
use std::net::IpAddr;
use std::ptr::NonNull;

/// In this order, since they end in it: nothing is written to memory that is no longer registered.
#[derive(Debug)]
pub(super) struct Endpoint {
    queue_pair: QueuePair,
    counted: Counted,
    region: Region,
}

impl Endpoint {
    /// At the port that the local address goes by; none if there is none, or no room.
    ///
    /// # Safety
    /// As [`super::open`].
    pub(super) unsafe fn open(
        ip: &IpAddr,
        memory: NonNull<u8>,
        len: usize,
        slot: Option<u32>,
    ) -> Option<Self> {
        let port = device::for_local(ip)?;
        registrar::start();
        // SAFETY: the caller's promise.
        let region = unsafe { Region::register(port.device, memory, len) }.ok()?;
        let slots = slot.map(|size| Slots {
            base: memory,
            size,
            lkey: region.lkey(),
        });
        let queue_pair = QueuePair::new(port, slots).ok()?;
        Some(Self {
            queue_pair,
            counted: Counted::new(),
            region,
        })
    }
}

impl Adapter for Endpoint {
    fn address(&self) -> Address {
        self.queue_pair.address()
    }

    fn lkey(&self) -> u32 {
        self.region.lkey()
    }

    fn rkey(&self) -> u32 {
        self.region.rkey()
    }

    fn connect(&self, peer: &Address) -> Result<()> {
        self.queue_pair.connect(peer)
    }

    unsafe fn post(&self, work: &[Work]) -> Result<()> {
        super::check(work, self.queue_pair.longest())?;
        // SAFETY: passed on.
        unsafe { self.counted.post(&self.queue_pair, work) }
    }

    fn receive(&self, slots: &mut dyn Iterator<Item = u32>) -> Result<()> {
        self.queue_pair.receive(slots)
    }

    fn poll(&self, done: &mut [Done]) -> usize {
        self.counted.poll(&self.queue_pair, done)
    }

    fn event(&self) -> i32 {
        self.queue_pair.event()
    }

    fn arm(&self) -> Result<()> {
        self.queue_pair.arm()
    }

    fn take_event(&self) -> bool {
        self.queue_pair.take_event()
    }

    fn fail(&self) {
        self.queue_pair.fail();
        self.counted.end();
    }

    unsafe fn register(
        &self,
        memory: NonNull<u8>,
        len: usize,
        access: Access,
    ) -> Option<Box<dyn Registered>> {
        // SAFETY: passed on.
        unsafe { region::guest(self.queue_pair.port(), memory, len, access) }
    }

    fn halt(&self) -> bool {
        registrar::ask(|| self.fail()).is_some()
    }
}
