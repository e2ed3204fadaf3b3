//! Where sockets live: one reserved mapping, filled from the front, used again last in, first out.
//! A named page beside it tells `shunt stat` where to look.

use super::lock::Direction;
use super::{Phase, Socket, Way, residual};
use std::cell::UnsafeCell;
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use transport::reason::Reason;
use transport::record::{Record, STAT_MAGIC, STAT_NAME};
use transport::sdp::{Rx, Tx};
use transport::stat::Directory;
use transport::sys;
use transport::sys::mem::{Mapping, memory_file};

/// Sockets at most, and with little address space.
const SIZES: [usize; 3] = [1 << 20, 1 << 16, 1 << 12];

/// The pool. Under the registry lock.
#[derive(Debug)]
pub(crate) struct Pool {
    base: *mut Socket,
    size: usize,
    used: usize,
    free: Vec<&'static Socket>,
    directory: *mut Directory,
}

// SAFETY: the pointers are to mappings that live for ever.
unsafe impl Send for Pool {}

impl Pool {
    pub(crate) const fn empty() -> Self {
        Self {
            base: ptr::null_mut(),
            size: 0,
            used: 0,
            free: Vec::new(),
            directory: ptr::null_mut(),
        }
    }

    pub(crate) fn init(&mut self) {
        for size in SIZES {
            if let Ok(m) = Mapping::private(size * size_of::<Socket>()) {
                m.advise(libc::MADV_DONTDUMP);
                self.base = m.leak().cast().as_ptr();
                self.size = size;
                break;
            }
        }
        self.publish();
    }

    /// Makes the page that `shunt stat` finds by name.
    fn publish(&mut self) {
        let len = size_of::<Directory>();
        let Ok(m) = memory_file(STAT_NAME, len).and_then(|f| Mapping::private_file(&f, len)) else {
            return;
        };
        let d: *mut Directory = m.leak().cast().as_ptr();
        // SAFETY: fresh memory of the right size; every field is an integer.
        unsafe {
            (*d).pid = sys::pid().cast_unsigned();
            (*d).records = self.base.expose_provenance() as u64 + offset_of!(Socket, record) as u64;
            (*d).stride = size_of::<Socket>() as u64;
            (*d).count = AtomicU64::new(self.used as u64);
            (*d).magic = STAT_MAGIC;
        }
        self.directory = d;
    }

    /// After fork, in the child: the page is a copy that still names the parent.
    pub(crate) fn rename(&mut self) {
        if !self.directory.is_null() {
            // SAFETY: the page is ours alone.
            unsafe { (*self.directory).pid = sys::pid().cast_unsigned() };
        }
    }

    /// A socket for a new descriptor.
    pub(crate) fn take(&mut self) -> Option<&'static Socket> {
        if let Some(s) = self.free.pop() {
            // SAFETY: in the free list, so nobody holds it except through stale references, which only
            // look at atomics.
            unsafe {
                fill(
                    ptr::from_ref(s).cast_mut(),
                    s.generation.load(Ordering::Relaxed),
                )
            };
            return Some(s);
        }
        if self.used == self.size {
            return None;
        }
        // SAFETY: below `size`, and not handed out before.
        let at = unsafe { self.base.add(self.used) };
        self.used += 1;
        // SAFETY: fresh memory of the right size and alignment.
        unsafe { fill(at, 0) };
        if !self.directory.is_null() {
            // SAFETY: the page lives for ever.
            unsafe { &(*self.directory).count }.store(self.used as u64, Ordering::Release);
        }
        // SAFETY: initialised above, never unmapped.
        Some(unsafe { &*at })
    }

    /// Takes a socket back that no descriptor stands for any more.
    pub(crate) fn give(&mut self, s: &'static Socket) {
        s.set_phase(Phase::Idle);
        s.record.live.store(0, Ordering::Relaxed);
        s.generation.fetch_add(1, Ordering::AcqRel);
        self.free.push(s);
    }

    /// Every socket in use.
    pub(crate) fn each(&self, mut each: impl FnMut(&'static Socket)) {
        for i in 0..self.used {
            // SAFETY: the first `used` are initialised.
            let s: &'static Socket = unsafe { &*self.base.add(i) };
            if s.record.live.load(Ordering::Relaxed) != 0 {
                each(s);
            }
        }
    }
}

/// # Safety
/// `at` is memory for a socket that nobody else changes.
unsafe fn fill(at: *mut Socket, generation: u32) {
    // SAFETY: the caller's promise. Written whole; what was there has nothing to drop but `sets`, which
    // is empty when a socket is given back.
    unsafe {
        ptr::write(
            at,
            Socket {
                phase: 0.into(),
                nonblock: false.into(),
                over: false.into(),
                kernel_news: true.into(),
                rx_shut: false.into(),
                tx_shut: false.into(),
                nodelay: false.into(),
                cork: false.into(),
                linger_zero: false.into(),
                fin_sent: false.into(),
                sent_late: false.into(),
                woken_hard: false.into(),
                reset_told: false.into(),
                broken: false.into(),
                rx_leg: 0.into(),
                tx_leg: 0.into(),
                rx_at: 0.into(),
                rx_kernel: 0.into(),
                segment: UnsafeCell::new(None),
                tx: Direction::new(Tx::new()),
                rx: Direction::new(Rx::new()),
                checked: 0.into(),
                lowat: 1.into(),
                sndbuf: 0.into(),
                rcvbuf: 0.into(),
                no_room: 0.into(),
                parked_fd: (-1).into(),
                starving: 0.into(),
                first_look: 0.into(),
                pulls: false.into(),
                sleepers: 0.into(),
                roomers: 0.into(),
                waiters: 0.into(),
                budget: super::spin::Budget::new(),
                company: super::spin::Company::new(),
                refs: 1.into(),
                generation: AtomicU32::new(generation),
                shadow: (-1).into(),
                answer_at: AtomicPtr::new(ptr::null_mut()),
                answer_yes: 0.into(),
                residual: AtomicPtr::new(ptr::null_mut::<residual::Residual>()),
                way: UnsafeCell::new(Way::None),
                sets: UnsafeCell::new(Vec::new()),
                set_count: 0.into(),
                record: Record::default(),
            },
        );
        (*at).record.begin(-1, 0, Reason::None);
    }
}
