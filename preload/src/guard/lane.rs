//! Pipes that hold messages by reference: one or more to each direction that sends so, the reading end in
//! the hands of both processes. Owned by the sending socket; the pages in them are `pieces`' business.
//!
//! A lane goes with its owner: what the other end has not read stays in the pipe, which it has the reading
//! end of, and the program's pages are its own again.

use super::pieces::Piece;
use super::{PAGE, Refusal, admit, lift, with};
use std::ops::Range;
use transport::sys::fd::Fd;
use transport::syscall;

/// What may be asked of the kernel without privilege (fs.pipe-max-size), and is for each lane.
const CAPACITY: usize = 1 << 20;

/// Messages in one lane at a time.
const MESSAGES: usize = 16;
const LANES: usize = 64;

/// A message in a pipe: where it ends, and of how many buffers it consists.
#[derive(Clone, Copy, Debug)]
struct Message {
    end: u64,
    slots: usize,
}

#[derive(Debug)]
struct Entry {
    ends: [i32; 2],
    /// Buffers that the kernel has for it.
    slots: usize,
    /// All bytes that ever went in.
    put: u64,
    messages: [Message; MESSAGES],
}

impl Entry {
    /// Bytes that have been read. Where the kernel does not say (the program has closed what is not
    /// its own) none have: copying is always right.
    fn read(&self) -> u64 {
        let mut left: i32 = 0;
        // SAFETY: an int is written.
        let said = unsafe { syscall!(ioctl, self.ends[0], libc::FIONREAD, &raw mut left) };
        match said {
            Ok(_) => self.put.saturating_sub(u64::from(left.cast_unsigned())),
            Err(_) => 0,
        }
    }

    /// Buffers to be had, and the place to note another message.
    fn room(&mut self) -> Option<(usize, &mut Message)> {
        let read = self.read();
        // (of one that is half read: the rest, and a buffer each for the ragged ends and for the page that
        // the reader is in)
        let left = |m: &Message| usize::try_from(m.end.saturating_sub(read)).unwrap_or(usize::MAX);
        let open = self.messages.iter().filter(|m| m.end > read);
        let used: usize = open.map(|m| m.slots.min(left(m) / PAGE + 3)).sum();
        let free = self.slots.saturating_sub(used);
        let slot = self.messages.iter_mut().find(|m| m.end <= read)?;
        Some((free, slot))
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let [a, b] = self.ends;
        drop((Fd::own(a), Fd::own(b)));
    }
}

#[derive(Debug)]
pub(super) struct Lanes([Option<Entry>; LANES]);

impl Lanes {
    pub(super) const fn new() -> Self {
        Self([const { None }; LANES])
    }

    fn get(&mut self, i: usize) -> Option<&mut Entry> {
        self.0.get_mut(i)?.as_mut()
    }

    /// Bytes read of one.
    pub(super) fn read(&self, i: usize) -> u64 {
        let entry = self.0.get(i).and_then(Option::as_ref);
        entry.map_or(u64::MAX, Entry::read)
    }

    /// In a child after fork: the messages are the parent's.
    pub(super) fn part(&mut self) {
        self.0.fill_with(|| None);
    }
}

/// The sender's end.
#[derive(Debug)]
pub(crate) struct Lane {
    index: usize,
    process: i32,
}

impl Lane {
    /// Makes one.
    ///
    /// # Errors
    /// This process cannot do it, or not any more; or it has too many.
    pub(crate) fn new() -> std::result::Result<Self, Refusal> {
        admit::process()?;
        let mut ends = [0i32; 2];
        let flags = libc::O_NONBLOCK | libc::O_CLOEXEC;
        // SAFETY: two ints are written.
        unsafe { syscall!(pipe2, ends.as_mut_ptr(), flags) }.map_err(|_| Refusal::Full)?;
        let [read, write] = ends.map(|end| Fd::own(end).hide());
        // SAFETY: no pointers.
        let size = unsafe { syscall!(fcntl, write.raw(), libc::F_SETPIPE_SZ, CAPACITY) };
        // (a user with many pipes gets no large ones)
        let slots = size.map_err(|_| Refusal::Full)? / PAGE;
        with(|state| {
            let free = state.lanes.0.iter_mut().enumerate();
            let (index, slot) = free
                .into_iter()
                .find(|(_, slot)| slot.is_none())
                .ok_or(Refusal::Full)?;
            *slot = Some(Entry {
                ends: [read.leak(), write.leak()],
                slots,
                put: 0,
                messages: [Message { end: 0, slots: 0 }; MESSAGES],
            });
            Ok(Self {
                index,
                process: transport::sys::pid(),
            })
        })
    }

    /// The number of the reading end, for the other process (`transport::direct::far`).
    pub(crate) fn far_fd(&self) -> i32 {
        with(|state| state.lanes.get(self.index).map_or(-1, |e| e.ends[0]))
    }

    /// Whether it was made by this process, which alone can use it.
    pub(crate) fn is_own(&self) -> bool {
        self.process == transport::sys::pid()
    }

    /// Nothing of it stays protected.
    pub(crate) fn settle(&self) {
        with(|state| state.settle(self.index));
    }

    /// Puts the beginning of a message into the lane, and says how long it is: everything, unless there is
    /// less room. The program may go on at once.
    ///
    /// # Errors
    /// Nothing was put there, for this reason.
    ///
    /// # Safety
    /// The memory is the program's and can be read.
    pub(crate) unsafe fn send(
        &self,
        at: *const u8,
        len: usize,
    ) -> std::result::Result<usize, Refusal> {
        let (start, end) = (at.addr(), at.addr().saturating_add(len));
        let pages = start.next_multiple_of(PAGE)..end & !(PAGE - 1);
        if pages.len() < admit::LEAST {
            return Err(Refusal::Small);
        }
        admit::process()?;
        admit::signals()?;
        if !self.is_own() {
            return Err(Refusal::Forked);
        }
        with(|state| {
            state.reap();
            admit::memory(&pages, &state.pieces)?;
            state.put(self.index, start..end, pages)
        })
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if !self.is_own() {
            return; // in a child that borrows this memory nothing may change; after fork it is gone already
        }
        self.settle();
        with(|state| {
            if let Some(slot) = state.lanes.0.get_mut(self.index) {
                *slot = None;
            }
        });
    }
}

impl super::State {
    /// Gives back what has been read.
    pub(super) fn reap(&mut self) {
        self.give_back(true);
    }

    /// Nothing of this lane stays protected: what the reader does not take in the time of a copy is copied.
    fn settle(&mut self, index: usize) {
        self.give_back(false);
        while let Some(p) = self.pieces.all().iter().find(|p| p.lane == index) {
            let range = p.start..p.end;
            self.finish(&range);
        }
    }

    /// Puts in what there is room for: first the part of the first page, then whole pages by reference,
    /// then the part of the last. Protects before it refers, so that nothing has to be taken out again.
    fn put(
        &mut self,
        index: usize,
        bytes: Range<usize>,
        pages: Range<usize>,
    ) -> std::result::Result<usize, Refusal> {
        let entry = self.lanes.get(index).ok_or(Refusal::Full)?;
        let [_, end] = entry.ends;
        let first = entry.put;
        let (free, _) = entry.room().ok_or(Refusal::Full)?;
        // (one buffer each for the ragged ends)
        let most = free.saturating_sub(2) * PAGE;
        let held = pages.start..pages.end.min(pages.start + most);
        if held.len() < admit::LEAST || !self.pieces.has_room() {
            return Err(Refusal::Full);
        }
        lift::protect(&held).map_err(|_| Refusal::Protection)?;
        let head = pages.start - bytes.start;
        let mut piece = Piece {
            start: held.start,
            end: held.start,
            lane: index,
            at: first + head as u64,
        };
        let mut put = copy_in(end, bytes.start, head);
        if put == head {
            let refer = refer_to(end, &held);
            piece.end += refer & !(PAGE - 1);
            put += refer;
        }
        if piece.end == pages.end {
            put += copy_in(end, pages.end, bytes.end - pages.end);
        }
        if piece.start < piece.end {
            self.pieces.add(piece);
        }
        self.unprotect(&(piece.end..held.end));
        if put == 0 {
            return Err(Refusal::Full);
        }
        if let Some(entry) = self.lanes.get(index) {
            entry.put += put as u64;
            let message = Message {
                end: entry.put,
                slots: (piece.end - piece.start) / PAGE + 2,
            };
            if let Some((_, slot)) = entry.room() {
                *slot = message;
            }
        }
        Ok(put)
    }
}

/// Copies into a pipe; says how much went in.
fn copy_in(pipe: i32, at: usize, len: usize) -> usize {
    if len == 0 {
        return 0;
    }
    // SAFETY: the kernel reads memory that the caller vouches for.
    unsafe { syscall!(write, pipe, at, len) }.unwrap_or(0)
}

/// Puts pages into a pipe by reference; says how much went in.
fn refer_to(pipe: i32, pages: &Range<usize>) -> usize {
    let mut put = 0;
    while put < pages.len() {
        let part = libc::iovec {
            iov_base: std::ptr::with_exposed_provenance_mut(pages.start + put),
            iov_len: pages.len() - put,
        };
        // SAFETY: the kernel reads the vector, and refers to pages.
        match unsafe { syscall!(vmsplice, pipe, &raw const part, 1, libc::SPLICE_F_NONBLOCK) } {
            Ok(0) | Err(_) => break,
            Ok(n) => put += n,
        }
    }
    put
}
