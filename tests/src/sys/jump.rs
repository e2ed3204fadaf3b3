//! Jumps out of signal handlers, and threads that are cancelled: what Rust itself has no word for.

use super::call;
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::ptr;

/// A jmp_buf, with room to spare.
#[repr(C, align(16))]
#[derive(Debug)]
struct Buffer([u64; 64]);

/// Where to jump to. Of one thread.
#[derive(Debug)]
pub struct Target(UnsafeCell<Buffer>);

// SAFETY: one thread uses it, by the callers.
unsafe impl Sync for Target {}

impl Target {
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self(UnsafeCell::new(Buffer([0; 64])))
    }
}

unsafe extern "C" {
    fn siglongjmp(buffer: *mut Buffer, value: c_int) -> !;
    fn pthread_cancel(thread: libc::pthread_t) -> c_int;
    fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int;
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
    fn pthread_testcancel();
}

/// Calls `f(argument)`; 1 if it was left by a jump to `buffer`, else 0. The frame that has called
/// sigsetjmp is this one, which lives until then.
#[unsafe(naked)]
unsafe extern "C" fn run(
    buffer: *mut Buffer,
    f: unsafe extern "C" fn(*mut c_void),
    argument: *mut c_void,
) -> c_int {
    std::arch::naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "push rbx",
        "push r12",
        "mov rbx, rsi",
        "mov r12, rdx",
        "mov esi, 1",
        "call {setjmp}@PLT",
        "test eax, eax",
        "jne 2f",
        "mov rdi, r12",
        "call rbx",
        "xor eax, eax",
        "2: pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
        setjmp = sym __sigsetjmp,
    )
}

unsafe extern "C" {
    fn __sigsetjmp(buffer: *mut Buffer, save: c_int) -> c_int;
}

/// Whether `body` was left by [`back`] to the same target. Nothing in it may own anything.
pub fn jumped(to: &'static Target, body: &mut dyn FnMut()) -> bool {
    unsafe extern "C" fn call(argument: *mut c_void) {
        let body: *mut &mut dyn FnMut() = argument.cast();
        // SAFETY: what `jumped` passes.
        unsafe { (*body)() }
    }
    let mut body = body;
    // SAFETY: the buffer outlives the call, after which nobody jumps.
    unsafe { run(to.0.get(), call, (&raw mut body).cast()) != 0 }
}

/// Jumps, from a handler that has interrupted the body of [`jumped`].
///
/// # Safety
/// That is so.
pub unsafe fn back(to: &'static Target) -> ! {
    // SAFETY: the caller's promise.
    unsafe { siglongjmp(to.0.get(), 1) }
}

/// A thread that may be cancelled.
#[derive(Debug)]
pub struct Cancelled(libc::pthread_t);

/// Starts a thread. What it runs owns nothing.
pub fn start(body: extern "C" fn(*mut c_void) -> *mut c_void) -> Cancelled {
    let mut thread = 0;
    // SAFETY: the function and the word are valid.
    let r = unsafe { libc::pthread_create(&raw mut thread, ptr::null(), body, ptr::null_mut()) };
    assert_eq!(r, 0);
    Cancelled(thread)
}

impl Cancelled {
    pub fn cancel(&self) {
        // SAFETY: not joined yet.
        assert_eq!(unsafe { pthread_cancel(self.0) }, 0);
    }

    /// Whether it ended by having been cancelled.
    pub fn was_cancelled(self) -> bool {
        let mut out = ptr::null_mut();
        // SAFETY: not joined yet.
        assert_eq!(unsafe { libc::pthread_join(self.0, &raw mut out) }, 0);
        out.addr() == usize::MAX
    }
}

/// Cancels the calling thread, which acts at its next cancellation point.
pub fn cancel_oneself() {
    // SAFETY: a thread of this process.
    unsafe { pthread_cancel(libc::pthread_self()) };
}

/// May be cancelled anywhere from here on.
pub fn cancel_anywhere() {
    // SAFETY: nothing is asked for.
    unsafe { pthread_setcanceltype(1, ptr::null_mut()) };
}

pub fn allow_cancel(yes: bool) {
    // SAFETY: nothing is asked for.
    unsafe { pthread_setcancelstate(c_int::from(!yes), ptr::null_mut()) };
}

pub fn test_cancel() {
    // SAFETY: always allowed.
    unsafe { pthread_testcancel() }
}

/// Signals the calling thread every so many microseconds, or once.
#[derive(Debug)]
pub struct Timer(libc::timer_t);

impl Timer {
    pub fn new(signal: i32) -> Self {
        // SAFETY: all zeroes is a valid sigevent.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal;
        event.sigev_notify_thread_id = call!(libc::gettid()).ok() as i32;
        let mut timer = ptr::null_mut();
        call!(libc::timer_create(
            libc::CLOCK_MONOTONIC,
            &raw mut event,
            &raw mut timer
        ))
        .ok();
        Self(timer)
    }

    fn set(&self, first: i64, every: i64) {
        let time = |us: i64| libc::timespec {
            tv_sec: us / 1_000_000,
            tv_nsec: us % 1_000_000 * 1000,
        };
        let value = libc::itimerspec {
            it_interval: time(every),
            it_value: time(first),
        };
        call!(libc::timer_settime(
            self.0,
            0,
            &raw const value,
            ptr::null_mut()
        ))
        .ok();
    }

    pub fn every(&self, us: i64) {
        self.set(us, us);
    }

    pub fn once(&self, us: i64) {
        self.set(us, 0);
    }

    pub fn stop(&self) {
        self.set(0, 0);
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        call!(libc::timer_delete(self.0)).ok();
    }
}
