//! A bare byte ring between one producer and one consumer in two processes: what shared memory alone can do.
//! Called by `floor::measure`. It trusts its peer, knows no sockets and never sleeps in the kernel for long: it is
//! the yardstick, not the library's ring.
//!
//! Invariant: `tail <= head <= tail + capacity`; the producer writes only outside, the consumer reads only inside.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::sys;

/// An index alone on its pair of cache lines (the second line is prefetched with the first).
#[repr(C, align(128))]
struct Lone(AtomicU64);

#[repr(C)]
struct Shared {
    head: Lone,
    tail: Lone,
    stop: AtomicBool,
}

const DATA: usize = 4096;

/// One end; the other end is a copy of it in a forked process.
#[derive(Clone, Copy)]
pub(crate) struct Ring {
    shared: &'static Shared,
    data: *mut u8,
    capacity: usize,
}

impl Ring {
    /// A ring of `capacity` bytes, a power of two.
    pub(crate) fn new(capacity: usize) -> std::io::Result<Self> {
        assert!(capacity.is_power_of_two());
        let base = sys::shared(DATA + capacity)?;
        #[expect(clippy::cast_ptr_alignment, reason = "mappings are page-aligned")]
        // SAFETY: the mapping is zeroed, which is a valid Shared, large enough, and never unmapped.
        let shared = unsafe { &*base.cast::<Shared>() };
        // SAFETY: inside the mapping.
        let data = unsafe { base.add(DATA) };
        Ok(Self {
            shared,
            data,
            capacity,
        })
    }

    /// Tells the other end that nothing more comes.
    pub(crate) fn stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
    }

    pub(crate) fn stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Acquire)
    }

    pub(crate) fn producer(self, publish_every: usize) -> Producer {
        Producer {
            ring: self,
            head: 0,
            published: 0,
            seen_tail: 0,
            publish_every: publish_every as u64,
        }
    }

    /// `lazy`: the index is given back only after an eighth of the ring, or when the ring is empty.
    pub(crate) fn consumer(self, lazy: bool) -> Consumer {
        let give_back = if lazy { self.capacity as u64 / 8 } else { 1 };
        Consumer {
            ring: self,
            tail: 0,
            published: 0,
            seen_head: 0,
            give_back,
        }
    }

    /// Where the stream's byte `at` lies, and how many bytes from there on lie in one piece.
    #[inline]
    fn place(&self, at: u64) -> (*mut u8, usize) {
        let start = at as usize & (self.capacity - 1);
        // SAFETY: start < capacity, so the pointer lies in the ring.
        (unsafe { self.data.add(start) }, self.capacity - start)
    }
}

/// Writes bytes into the ring.
pub(crate) struct Producer {
    ring: Ring,
    head: u64,
    published: u64,
    seen_tail: u64,
    publish_every: u64,
}

impl Producer {
    /// Puts all of `bytes`, publishing on the way every `publish_every` bytes and at the end. False: stopped.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        while !rest.is_empty() {
            let Some(room) = self.room() else {
                return false;
            };
            let (to, piece) = self.ring.place(self.head);
            let n = rest
                .len()
                .min(room)
                .min(piece)
                .min(self.publish_every as usize);
            // SAFETY: n bytes from `to` lie in the ring, outside what the consumer may read.
            unsafe { std::ptr::copy_nonoverlapping(rest.as_ptr(), to, n) };
            self.head += n as u64;
            rest = &rest[n..];
            if rest.is_empty() || self.head - self.published >= self.publish_every {
                self.ring.shared.head.0.store(self.head, Ordering::Release);
                self.published = self.head;
            }
        }
        true
    }

    fn room(&mut self) -> Option<usize> {
        let mut wait = Wait::default();
        loop {
            let room = self.ring.capacity as u64 - (self.head - self.seen_tail);
            if room > 0 {
                return Some(room as usize);
            }
            if self.ring.stopped() {
                return None;
            }
            self.seen_tail = self.ring.shared.tail.0.load(Ordering::Acquire);
            if self.seen_tail + self.ring.capacity as u64 == self.head {
                wait.pause();
            }
        }
    }
}

/// Reads bytes out of the ring.
pub(crate) struct Consumer {
    ring: Ring,
    tail: u64,
    published: u64,
    seen_head: u64,
    give_back: u64,
}

impl Consumer {
    /// Takes at least one byte and at most `bytes.len()`; 0 when stopped and empty.
    pub(crate) fn take(&mut self, bytes: &mut [u8]) -> usize {
        let mut wait = Wait::default();
        while self.seen_head == self.tail {
            self.publish();
            let stopped = self.ring.stopped();
            self.seen_head = self.ring.shared.head.0.load(Ordering::Acquire);
            if self.seen_head == self.tail {
                if stopped {
                    return 0;
                }
                wait.pause();
            }
        }
        let (from, piece) = self.ring.place(self.tail);
        let n = bytes
            .len()
            .min((self.seen_head - self.tail) as usize)
            .min(piece);
        // SAFETY: n bytes from `from` lie in the ring, in what the producer has published.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), n) };
        self.tail += n as u64;
        if self.tail - self.published >= self.give_back {
            self.publish();
        }
        n
    }

    /// Fills all of `bytes`; false when the producer stopped before.
    pub(crate) fn take_all(&mut self, bytes: &mut [u8]) -> bool {
        let mut done = 0;
        while done < bytes.len() {
            match self.take(&mut bytes[done..]) {
                0 => return false,
                n => done += n,
            }
        }
        true
    }

    fn publish(&mut self) {
        if self.published != self.tail {
            self.ring.shared.tail.0.store(self.tail, Ordering::Release);
            self.published = self.tail;
        }
    }
}

/// Spins; after a while lets others run too, so that a shared core does not stand still.
#[derive(Default)]
pub(crate) struct Wait(u32);

impl Wait {
    pub(crate) fn pause(&mut self) {
        self.0 += 1;
        match self.0 % 4096 {
            0 => std::thread::yield_now(),
            _ => std::hint::spin_loop(),
        }
    }
}
