//! What each thread knows of itself, where a signal handler can look: whether it is inside a critical
//! section, which signals wait for its end, how many handlers have run.
//!
//! A critical section is entered and left by every lock (`sockets::lock`), so its cost is everybody's:
//! two instructions in, three out. On x86-64 the variable is in the static thread block (the library is
//! loaded at start), so that no call is needed to find it; elsewhere the compiler's own way serves.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// A thread's own words. Written by the thread and by the handlers that interrupt it, nobody else.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Thread {
    /// How many critical sections it is inside, and [`DUE`].
    depth: AtomicU32,
    /// How much it is counted for (`sockets::counted`). Read by assembly.
    pub(crate) counted: AtomicU32,
    /// Handlers run: all of them in the low half, those that interrupt calls in the high half.
    pub(super) ran: AtomicU64,
    /// The program's signal mask, while [`DUE`] is set.
    pub(super) mask: AtomicU64,
    /// All signals are held back for a sleep of ours ([`super::hold`]).
    pub(super) holds: AtomicU32,
    /// How its naps have ended lately.
    pub(crate) naps: crate::sockets::napping::Naps,
    /// The program's signal mask meanwhile.
    pub(super) held: AtomicU64,
    /// The socket on which a buffer of this thread's call waits for the peer to read it.
    pub(crate) advert: AtomicPtr<crate::sockets::Socket>,
    /// What it is counted for.
    pub(crate) log: AtomicPtr<crate::sockets::counted::Log>,
    /// Whether it has a table of descriptors of its own (`sockets::apart`).
    pub(crate) apart: AtomicU32,
}

/// Signals were put off until the critical section ends, and are blocked. The sign bit, so that the
/// instruction that leaves a section shows it.
const DUE: u32 = 1 << 31;

#[cfg(target_arch = "x86_64")]
mod at {
    use super::{DUE, Thread};

    // Zero is the right beginning for every word.
    std::arch::global_asm!(
        ".pushsection .tbss.shunt_thread,\"awT\",@nobits",
        ".hidden shunt_thread",
        ".globl shunt_thread",
        ".type shunt_thread, @object",
        ".size shunt_thread, {size}",
        ".balign 64",
        "shunt_thread: .zero {size}",
        ".popsection",
        size = const size_of::<Thread>(),
    );

    /// Its distance from the thread pointer: the same for every thread, so worth computing once.
    #[inline]
    fn distance() -> usize {
        let out: usize;
        // SAFETY: a load from the library's own table of addresses.
        unsafe {
            std::arch::asm!(
                "mov {}, qword ptr [rip + shunt_thread@GOTTPOFF]",
                out(reg) out,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        out
    }

    #[inline]
    pub(crate) fn here() -> &'static Thread {
        let mut at: usize;
        // SAFETY: the first word at fs is the thread pointer.
        unsafe {
            std::arch::asm!(
                "mov {}, fs:0",
                out(reg) at,
                options(pure, readonly, nostack, preserves_flags),
            );
        }
        at = at.wrapping_add(distance());
        // SAFETY: this thread's own block, which lives as long as the thread.
        unsafe { &*std::ptr::with_exposed_provenance(at) }
    }

    /// Enters a critical section: one instruction, so that no handler comes between its parts.
    #[inline]
    pub(crate) fn enter() {
        // SAFETY: `depth` is the first word. The compiler moves no access to memory across.
        unsafe {
            std::arch::asm!("inc dword ptr fs:[{}]", in(reg) distance(), options(nostack));
        }
    }

    /// Leaves it. What was put off happens now, if this was the outermost.
    #[inline]
    pub(crate) fn leave() {
        const { assert!(DUE == 1 << 31) };
        // SAFETY: as above.
        unsafe {
            std::arch::asm!(
                "dec dword ptr fs:[{}]",
                "js {}",
                in(reg) distance(),
                label { super::due() },
                options(nostack),
            );
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod at {
    use super::{DUE, Thread};
    use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, compiler_fence};

    thread_local! {
        static THREAD: Thread = const {
            Thread {
                depth: AtomicU32::new(0),
                counted: AtomicU32::new(0),
                ran: AtomicU64::new(0),
                mask: AtomicU64::new(0),
                holds: AtomicU32::new(0),
                naps: crate::sockets::napping::Naps::new(),
                held: AtomicU64::new(0),
                advert: AtomicPtr::new(std::ptr::null_mut()),
                log: AtomicPtr::new(std::ptr::null_mut()),
                apart: AtomicU32::new(0),
            }
        };
    }

    #[inline]
    pub(crate) fn here() -> &'static Thread {
        // SAFETY: it has no destructor, so it lives as long as the thread.
        THREAD.with(|t| unsafe { &*std::ptr::from_ref(t) })
    }

    // (one instruction each where the processor has it, and indivisible for handlers in any case)
    #[inline]
    pub(crate) fn enter() {
        here().depth.fetch_add(1, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn leave() {
        compiler_fence(Ordering::SeqCst);
        if here().depth.fetch_sub(1, Ordering::Relaxed) > DUE {
            super::due();
        }
    }
}

pub(crate) use at::{enter, here, leave};

/// Inside a critical section until it is dropped: for what has to be done together, also where no lock is held all the time. A handler
/// that leaves by a jump cannot leave half of it.
#[derive(Debug)]
pub(crate) struct Section(PhantomData<*const ()>);

impl Section {
    #[inline]
    pub(crate) fn enter() -> Self {
        enter();
        Self(PhantomData)
    }
}

impl Drop for Section {
    #[inline]
    fn drop(&mut self) {
        leave();
    }
}

impl Thread {
    #[inline]
    pub(super) fn depth(&self) -> u32 {
        self.depth.load(Ordering::Relaxed)
    }

    /// For a handler that runs inside a section after all (a fault): to its hooks it is outside.
    pub(super) fn set_depth(&self, depth: u32) {
        self.depth.store(depth, Ordering::Relaxed);
    }

    /// A signal was put off: the program's mask comes back when the section ends.
    pub(super) fn put_off(&self, mask: u64) {
        self.mask.store(mask, Ordering::Relaxed);
        self.depth.store(self.depth() | DUE, Ordering::Relaxed);
    }
}

/// A section was left with signals put off.
#[cold]
#[inline(never)]
fn due() {
    let t = here();
    if t.depth() & !DUE != 0 {
        return; // an inner one
    }
    t.set_depth(0);
    // The kernel has them, and delivers them in here.
    transport::sys::time::set_mask(t.mask.load(Ordering::Relaxed));
}
