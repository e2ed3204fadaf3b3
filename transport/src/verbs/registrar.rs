//! The thread that registers memory for others, and takes that back. libibverbs takes memory of the program's allocator for it, whose
//! lock the caller may have: the program calls from handlers too. So whoever wants memory registered asks here and waits,
//! as long as a driver takes for it.
//!
//! Rules: the thread is started by the one that makes the control calls, outside every lock. It is its process's: a child of
//! fork has none until it opens an adapter itself.

use super::START;
use super::lock::Lock;
use crate::sys::{self, time};
use std::ffi::c_void;
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// Looks for an answer before the caller sleeps.
const LOOKS: u32 = 2_000;

const IDLE: u32 = 0;
const ASKED: u32 = 1;
const DONE: u32 = 2;

/// What is to be done, with what it is given.
type Work = unsafe fn(*mut c_void);

/// Where the thread of one process is asked.
struct Desk {
    pid: i32,
    /// One caller at a time.
    turn: Lock<()>,
    state: AtomicU32,
    work: AtomicPtr<c_void>,
    argument: AtomicPtr<c_void>,
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Desk")
    }
}

/// That of this process, or of the one that it was forked from. Never given back.
static DESK: AtomicPtr<Desk> = AtomicPtr::new(ptr::null_mut());

fn desk() -> Option<&'static Desk> {
    // SAFETY: null, or what was leaked below.
    let desk = unsafe { DESK.load(Ordering::Acquire).as_ref() }?;
    (desk.pid == sys::pid()).then_some(desk)
}

/// Starts the thread if it is not there. By the thread that makes the control calls.
pub(super) fn start() {
    if desk().is_some() {
        return;
    }
    let Some(start) = START.get() else { return };
    let fresh = Box::into_raw(Box::new(Desk {
        pid: sys::pid(),
        turn: Lock::new(()),
        state: AtomicU32::new(IDLE),
        work: AtomicPtr::new(ptr::null_mut()),
        argument: AtomicPtr::new(ptr::null_mut()),
    }));
    if start(serve, fresh.cast()) {
        DESK.store(fresh, Ordering::Release);
    }
}

extern "C" fn serve(desk: *mut c_void) -> *mut c_void {
    // SAFETY: from `start`, and never given back.
    let desk = unsafe { &*desk.cast_const().cast::<Desk>() };
    loop {
        let state = desk.state.load(Ordering::Acquire);
        if state != ASKED {
            time::futex_wait(&desk.state, state);
            continue;
        }
        let work = desk.work.load(Ordering::Relaxed);
        // SAFETY: put there by `ask`, which waits until it is done: a function of that type, and what it is for.
        unsafe {
            let work = std::mem::transmute::<*mut c_void, Work>(work);
            work(desk.argument.load(Ordering::Relaxed));
        }
        desk.state.store(DONE, Ordering::Release);
        time::futex_wake(&desk.state, i32::MAX);
    }
}

/// What is asked, and the answer.
struct Asked<W, R> {
    work: Option<W>,
    answer: Option<R>,
}

/// # Safety
/// `at` is an [`Asked`] of these types that nobody else uses meanwhile.
unsafe fn answer<W: FnOnce() -> R, R>(at: *mut c_void) {
    // SAFETY: the caller's promise.
    let asked = unsafe { &mut *at.cast::<Asked<W, R>>() };
    asked.answer = asked.work.take().map(|work| work());
}

/// Has the thread do this, and waits for it. None: there is no thread.
pub(super) fn ask<W: FnOnce() -> R + Send, R: Send>(work: W) -> Option<R> {
    let desk = desk()?;
    desk.turn.with(|()| {
        let mut asked = Asked {
            work: Some(work),
            answer: None,
        };
        let function: Work = answer::<W, R>;
        desk.work.store(function as *mut c_void, Ordering::Relaxed);
        desk.argument
            .store((&raw mut asked).cast(), Ordering::Relaxed);
        desk.state.store(ASKED, Ordering::Release);
        time::futex_wake(&desk.state, 1);
        let mut looks = 0;
        while desk.state.load(Ordering::Acquire) == ASKED {
            looks += 1;
            if looks > LOOKS {
                time::futex_wait(&desk.state, ASKED);
            } else {
                std::hint::spin_loop();
            }
        }
        desk.state.store(IDLE, Ordering::Relaxed);
        asked.answer
    })
}
