//! An arena: the memory file that one client process shares with the processes that serve one address.
//!
//! The client makes it and hands out its slots; a server receives it with a notice and claims slots
//! that are announced in it. Never shared with a third party. Segments are mapped when first used and
//! stay mapped, so that reuse costs nothing.

use super::board::Number;
use super::layout::{self, Header, LOG, MAGIC, SEGMENTS, SLOTS, Slot, State};
use super::segment::{Role, Segment};
use crate::sync::{AtomicU32, Ordering, fence};
use crate::sys::fd::Fd;
use crate::sys::mem::{self, Mapping, memory_file, sealed_size};
use crate::sys::net::Endpoint;
use crate::sys::{Errno, Result};

/// A mapped arena.
#[derive(Debug)]
pub struct Arena {
    /// This process's own: see [`Segment::arena`]. (Goes before the header, to which it leads.)
    number: Number,
    file: Fd,
    header: Mapping,
    segments: Vec<Option<Mapping>>,
    region: usize,
    role: Role,
}

/// The two ends of a connection, client first.
pub type Tuple = (Endpoint, Endpoint);

fn words((client, server): &Tuple) -> [u64; 5] {
    let half = |ip: &[u8; 16], at: usize| {
        let mut b = [0; 8];
        b.copy_from_slice(&ip[at..at + 8]);
        u64::from_ne_bytes(b)
    };
    [
        half(&client.ip, 0),
        half(&client.ip, 8),
        half(&server.ip, 0),
        half(&server.ip, 8),
        u64::from(client.port) << 16 | u64::from(server.port),
    ]
}

impl Arena {
    /// Makes one, as the client, with rings of `region` bytes.
    ///
    /// # Errors
    /// No memory file to be had, limits, no address space.
    pub fn create(region: usize) -> Result<Self> {
        let region = region.next_power_of_two().max(4096);
        let file = memory_file(c"shunt-arena", layout::arena(region))?.hide();
        let arena = Self::map(file, region, Role::Client)?;
        let h = arena.header();
        h.region.store(region as u64, Ordering::Relaxed);
        h.magic.store(MAGIC, Ordering::Release);
        Ok(arena)
    }

    /// Opens one that came with a notice, as the server.
    ///
    /// # Errors
    /// EINVAL if it is not an arena of this version, or could shrink.
    pub fn open(file: Fd) -> Result<Self> {
        let size = sealed_size(&file).ok_or(Errno::INVAL)?;
        if size < SEGMENTS {
            return Err(Errno::INVAL);
        }
        let mut arena = Self::map(file.hide(), 4096, Role::Server)?;
        let h = arena.header();
        let magic = h.magic.load(Ordering::Acquire);
        let region = usize::try_from(h.region.load(Ordering::Relaxed)).unwrap_or(0);
        let sane = region.is_power_of_two() && (4096..=1 << 30).contains(&region);
        if magic != MAGIC || !sane || size < layout::arena(region) {
            return Err(Errno::INVAL);
        }
        arena.region = region;
        Ok(arena)
    }

    fn map(file: Fd, region: usize, role: Role) -> Result<Self> {
        let header = Mapping::shared(&file, 0, SEGMENTS)?;
        let mut segments = Vec::new();
        segments.resize_with(SLOTS as usize, || None);
        // SAFETY: the mapping is at least a header long, and the number is dropped before it.
        let number = unsafe { Number::of(header.base().cast()) };
        Ok(Self {
            number,
            file,
            header,
            segments,
            region,
            role,
        })
    }

    /// The memory file, to be sent with a notice.
    #[must_use]
    pub const fn file(&self) -> &Fd {
        &self.file
    }

    #[must_use]
    fn header(&self) -> &Header {
        // SAFETY: the mapping is at least a header long, all atomics, and lives as long as `self`.
        unsafe { self.header.base().cast::<Header>().as_ref() }
    }

    /// Closes the file and leaves what is mapped to those who still look there.
    pub fn leave_mapped(self) {
        self.number.keep();
        self.header.leak();
        for segment in self.segments.into_iter().flatten() {
            segment.leak();
        }
    }

    /// The count of connections that may still be announced here.
    #[must_use]
    pub fn pending(&self) -> &AtomicU32 {
        &self.header().pending
    }

    fn slot(&self, index: u32) -> Option<&Slot> {
        self.header().slots.get(index as usize)
    }

    /// The segment of a slot, mapped at first need.
    ///
    /// # Errors
    /// No address space left.
    pub fn segment(&mut self, index: u32) -> Result<Segment> {
        let stride = layout::stride(self.region);
        let index = index as usize;
        let place = self.segments.get_mut(index).ok_or(Errno::INVAL)?;
        if place.is_none() {
            mem::may_add(stride)?;
            *place = Some(Mapping::shared(
                &self.file,
                SEGMENTS + index * stride,
                stride,
            )?);
        }
        let mapping = place.as_ref().ok_or(Errno::INVAL)?;
        #[allow(clippy::cast_possible_truncation)] // there are no more slots
        let place = (self.number.get(), index as u8);
        // SAFETY: the mapping is one stride long; arenas are dropped only without attached streams.
        Ok(unsafe { Segment::new(mapping, self.region, self.role, place) })
    }

    /// Client: offers a connection in a free slot. Returns the slot's new state word.
    pub fn announce(&self, index: u32, tuple: &Tuple) -> u32 {
        let Some(slot) = self.slot(index) else {
            return 0;
        };
        for (word, value) in slot.tuple.iter().zip(words(tuple)) {
            word.store(value, Ordering::Relaxed);
        }
        slot.released.store(0, Ordering::Relaxed);
        let next = layout::generation(slot.state.load(Ordering::Relaxed)).wrapping_add(1);
        let word = State::Announced.word(next);
        slot.state.store(word, Ordering::Release);
        let h = self.header();
        let at = h.logged.load(Ordering::Relaxed);
        #[allow(clippy::cast_possible_truncation)]
        if let Some(entry) = h.log.get(at as usize % LOG) {
            entry.store(index, Ordering::Relaxed);
        }
        h.logged.store(at.wrapping_add(1), Ordering::Release);
        word
    }

    /// Whether the server has said yes to what was announced with `word`.
    #[must_use]
    pub fn is_claimed(&self, index: u32, word: u32) -> bool {
        let claimed = State::Claimed.word(layout::generation(word));
        self.slot(index)
            .is_some_and(|s| s.state.load(Ordering::Acquire) == claimed)
    }

    /// The slot's state word, for a look that must be cheap.
    #[must_use]
    pub fn state_word(&self, index: u32) -> Option<&AtomicU32> {
        self.slot(index).map(|s| &s.state)
    }

    /// Client: takes an offer back. False if the server has already said yes.
    #[must_use]
    pub fn withdraw(&self, index: u32, word: u32) -> bool {
        let free = State::Free.word(layout::generation(word));
        self.slot(index).is_some_and(|s| {
            s.state
                .compare_exchange(word, free, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
        })
    }

    /// Server: says yes, if the offer still stands.
    #[must_use]
    pub fn claim(&self, index: u32, word: u32) -> bool {
        let claimed = State::Claimed.word(layout::generation(word));
        self.slot(index).is_some_and(|s| {
            s.state
                .compare_exchange(word, claimed, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
        })
    }

    /// Server: has no more use for the segment.
    pub fn release(&self, index: u32) {
        if let Some(slot) = self.slot(index) {
            slot.released.store(1, Ordering::Release);
        }
    }

    /// Client: whether the server has let go of the segment.
    #[must_use]
    pub fn is_released(&self, index: u32) -> bool {
        self.slot(index)
            .is_some_and(|s| s.released.load(Ordering::Acquire) != 0)
    }

    /// Server: whether an offer stands in this slot.
    #[must_use]
    pub fn is_announced(&self, index: u32) -> bool {
        let state = |s: &Slot| s.state.load(Ordering::Relaxed);
        self.slot(index)
            .is_some_and(|s| layout::is(state(s), State::Announced))
    }

    /// Server: the announced slot of a connection, with its state word. The tuple is the peer's claim:
    /// the caller asks the kernel whose connection that is before it believes it.
    #[must_use]
    pub fn match_slot(&self, index: u32, tuple: &Tuple) -> Option<u32> {
        let slot = self.slot(index)?;
        let word = slot.state.load(Ordering::Acquire);
        let same = layout::is(word, State::Announced)
            && slot
                .tuple
                .iter()
                .zip(words(tuple))
                .all(|(w, v)| w.load(Ordering::Relaxed) == v);
        // The words belong to this offer only if the state has not moved on meanwhile.
        fence(Ordering::Acquire);
        (same && slot.state.load(Ordering::Relaxed) == word).then_some(word)
    }

    /// Server: the slots announced since position `from` of the log, and the position to go on from. A
    /// reader that fell too far behind gets every slot.
    #[must_use]
    pub fn announced_since(&self, from: u64) -> (Vec<u32>, u64) {
        let h = self.header();
        let now = h.logged.load(Ordering::Acquire);
        let behind = now.wrapping_sub(from);
        if behind == 0 {
            return (Vec::new(), now);
        }
        if behind > LOG as u64 {
            return ((0..SLOTS).collect(), now);
        }
        let entry = |i: u64| {
            #[allow(clippy::cast_possible_truncation)]
            let at = (i as usize) % LOG;
            h.log.get(at).map(|e| e.load(Ordering::Relaxed) % SLOTS)
        };
        ((from..now).filter_map(entry).collect(), now)
    }

    /// Announcements so far, for a look that must be cheap.
    #[must_use]
    pub fn logged(&self) -> u64 {
        self.header().logged.load(Ordering::Acquire)
    }
}
