//! Messages that the program has handed over and the other end has not read yet, kept where the program left
//! them (AZ-SDP): `send` returns at once, and what the reader gets is what stood there when it did, whatever
//! the program does next. Called by the sending path with `SHUNT_ZCOPY=async`; by `signals` with each fault and
//! each trapped system call; by whatever is about to write to the program's memory, fork, or be sandboxed.
//!
//! **The pages are held, not only protected** (`lane`). A message's whole pages are put into a pipe by
//! reference (vmsplice), its ragged ends by copy, so the pipe holds exactly the message; the other end's
//! process has the reading end and reads. The page frames live as long as the pipe: free, munmap, brk, exec,
//! `_exit` and even SIGKILL take nothing away that was sent, from wherever in libc they come. The kernel
//! counts what has been read (FIONREAD); nothing the peer says is believed. Referring to a page takes 9 ns,
//! and reading from the pipe 0.5 to 0.8 of the time that process_vm_readv of the same pages takes.
//!
//! **Writes** are kept off by mprotect (`lift`). The first one faults, and the program gets frames of its own
//! with the same contents (*copy*), or waits for the reader (*wait*). The reader is not involved, as the
//! old frames stay in the pipe as they are: there is no right to revoke, no race with it, no other process
//! that anybody could wait for in vain. New frames are dear, 7 to 10 times a memcpy (the kernel makes and
//! clears each), and a reader at work is done in a fifth of that; so it is waited for first, for as long as the copy
//! would take.
//!
//! **System calls** that write to a protected page fail with EFAULT instead of faulting, and those of libc's
//! own, of inline assembly and of foreign libraries pass no hook. So while anything is protected every system
//! call of the thread that is not this library's is trapped (syscall user dispatch, `trap`): `calls` says
//! which memory it writes, that is lifted first, and what is not known lifts everything. Nothing is ever
//! seen that the program would not have seen without; a call costs 1.5 µs while something is protected, and
//! 27 ns more than without ever after.
//!
//! **Narrow on purpose** (`admit`): one thread in the process, which makes trapping complete (dispatch is set by
//! each thread for itself) and leaves nobody to write between the parts of a step; with a second thread running
//! every small change of protection costs 1.5 to 2.5 times as much, besides. Private anonymous memory, writable,
//! not executable, not a stack. No sandbox, SIGSEGV and SIGSYS unblocked and at our disposal. Everything
//! else is refused, with the reason, and goes another way. All of it is asked of the kernel at each message
//! (2 µs), since nothing tells of changes while nothing is protected.
//!
//! **Signals**: before a handler of the program runs, everything is lifted (it may block SIGSEGV, jump, fork).
//! **Fork, clone, vfork, threads**: everything is lifted first. **Other processes** that are about to read the
//! memory by its address (an advert of `transport::direct`): lifted first too ([`before_write`]), as new frames
//! are empty for a moment.
//!
//! mprotect rather than userfaultfd's write protection (`bench guard`): to protect and give back takes the
//! latter 0.8 to 1.05 of the time, a fault half to nine tenths; but a range has to be registered first,
//! which takes half as long again for a buffer that is not the last one's, system calls get EFAULT as well, pages that
//! were never written are not covered, and the descriptor would be one more thing to lose.
//!
//! What stays possible: memory that is written from outside the process (process_vm_writev by another, its
//! own /proc/self/mem, a ring of io_uring that delivers without any call). The first fails there, the others
//! are seen by nobody. And a buffer on the stack of a coroutine that is not running.

mod admit;
mod calls;
mod fault;
mod lane;
mod lift;
mod maps;
mod pieces;
mod trap;

pub(crate) use admit::Refusal;
pub(crate) use lane::Lane;
pub(crate) use lift::set_touch;

use crate::sockets::lock::SpinLock;
use crate::sockets::order::Rank;
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// A page, on every machine that this is built for.
pub(super) const PAGE: usize = 4096;

/// Something is protected.
static LIVE: AtomicBool = AtomicBool::new(false);

/// Nothing is to be protected any more in this process.
static FORBIDDEN: AtomicBool = AtomicBool::new(false);

/// All that is known. A process with something protected has one thread, so the lock is there for handlers
/// (it is a critical section) and for processes that have had one thread and now have more.
struct Guard {
    lock: SpinLock,
    state: UnsafeCell<State>,
}

#[derive(Debug)]
struct State {
    pieces: pieces::Pieces,
    lanes: lane::Lanes,
    cost: lift::Cost,
    /// Where everything was that has been lifted at once, when that happened last.
    lifted: Range<usize>,
}

// SAFETY: the state is reached under the lock only.
unsafe impl Sync for Guard {}

static GUARD: Guard = Guard {
    lock: SpinLock::new(Rank::Guard),
    state: UnsafeCell::new(State {
        pieces: pieces::Pieces::new(),
        lanes: lane::Lanes::new(),
        cost: lift::Cost::new(),
        lifted: 0..0,
    }),
};

/// Works on the state. No call is trapped meanwhile: a handler that is put off in here returns by one of
/// libc's.
fn with<T>(work: impl FnOnce(&mut State) -> T) -> T {
    GUARD.lock.acquire();
    trap::watch(false);
    // SAFETY: under the lock. A fault in here would come back in, but nothing in here writes to
    // memory that is protected.
    let state = unsafe { &mut *GUARD.state.get() };
    let out = work(state);
    let live = !state.pieces.is_empty();
    LIVE.store(live, Ordering::Relaxed);
    trap::watch(live);
    GUARD.lock.release();
    out
}

/// Whether anything is protected: a load.
#[inline]
pub(crate) fn is_live() -> bool {
    LIVE.load(Ordering::Relaxed)
}

/// Memory of the program that the library, or the kernel for it, is about to write to.
#[inline]
pub(crate) fn before_write(at: *const u8, len: usize) {
    if is_live() {
        lift(at.addr(), len);
    }
}

/// Nothing in this range is protected afterwards; what has been sent stays as it is.
#[cold]
pub(crate) fn lift(at: usize, len: usize) {
    let end = at.saturating_add(len).checked_next_multiple_of(PAGE);
    let range = at & !(PAGE - 1)..end.unwrap_or(usize::MAX);
    with(|state| state.lift(range));
}

/// Nothing at all is protected afterwards.
pub(crate) fn lift_all() {
    if is_live() {
        with(State::lift_all);
    }
}

/// Gives back what has been read. For calls of the library, which come by anyway: what is not protected is not
/// trapped either.
#[inline]
pub(crate) fn reap() {
    if is_live() {
        with(State::reap);
    }
}

/// The process goes where faults and traps cannot be served: a sandbox, handlers of its own, threads.
pub(crate) fn forbid() {
    FORBIDDEN.store(true, Ordering::Relaxed);
    lift_all();
}

/// In a child after fork: it has none of its parent's messages, and traps nothing.
pub(crate) fn in_child() {
    GUARD.lock.reset();
    trap::forget();
    with(|state| state.lanes.part());
}

/// At the end of a handler, in libc's place: its return would be a trapped system call, and that one more frame on a stack that
/// may have room for two (Rust's own for faults has 8 KiB, and a fault that is being served may lie below). Does nothing where
/// system calls are not trapped.
///
/// # Safety
/// The kernel's context of the handler that ends, which has nothing left to do.
pub(crate) unsafe fn return_from(context: *mut c_void) {
    if trap::is_armed() {
        // SAFETY: the caller's promise.
        unsafe { trap::return_from(context) };
    }
}

/// Serves a signal that is the guard's own business. False if it is the program's.
///
/// # Safety
/// The arguments are the kernel's.
#[inline]
pub(crate) unsafe fn serve(
    signal: c_int,
    info: *const libc::siginfo_t,
    context: *mut c_void,
) -> bool {
    match signal {
        // SAFETY: the caller's.
        libc::SIGSEGV => unsafe { fault::serve(info, context) },
        // SAFETY: the caller's.
        libc::SIGSYS => unsafe { trap::serve(info, context) },
        _ => false,
    }
}
