//! Threads that leave a call without returning from it: cancelled ones, and those that jump out of a
//! handler.
//!
//! A thread that is cancelled at cancellation points only is never cancelled inside the library but in
//! libc's own calls, by which it sleeps; what is missing is a look where a call does not sleep
//! ([`point`]). One that may be cancelled anywhere is told to wait for such a point while it is in
//! here.

use crate::real::other;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

/// The program has cancelled a thread, or prepared for it.
static CANCELS: AtomicBool = AtomicBool::new(false);

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_cancel(thread: libc::pthread_t) -> c_int {
    CANCELS.store(true, Ordering::SeqCst);
    let next = other::pthread_cancel.get();
    if next.is_null() {
        return libc::ENOSYS;
    }
    // SAFETY: libc's function of this name and signature.
    unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(libc::pthread_t) -> c_int>(next)(
            thread,
        )
    }
}

const DEFERRED: c_int = 0;

unsafe fn set_type(kind: c_int, old: *mut c_int) -> c_int {
    let next = other::pthread_setcanceltype.get();
    if next.is_null() {
        return libc::ENOSYS;
    }
    // SAFETY: libc's function of this name and signature.
    unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int, *mut c_int) -> c_int>(next)(
            kind, old,
        )
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int {
    if kind != DEFERRED {
        CANCELS.store(true, Ordering::SeqCst);
    }
    // SAFETY: the program's arguments, passed on.
    unsafe { set_type(kind, old) }
}

fn test() {
    let next = other::pthread_testcancel.get();
    if !next.is_null() {
        // SAFETY: libc's function of this name and signature.
        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn()>(next)() }
    }
}

/// A call that is a cancellation point whether it sleeps or not, for as long as this lives.
pub(super) struct Point(c_int);

/// Whether any thread of the program may be cancelled.
#[inline]
pub(super) fn cancels() -> bool {
    CANCELS.load(Ordering::Relaxed)
}

/// The beginning of such a call. In a program that cancels nobody: one load.
#[inline]
pub(super) fn point() -> Point {
    if CANCELS.load(Ordering::Relaxed) {
        return begin();
    }
    Point(DEFERRED)
}

#[cold]
fn begin() -> Point {
    test();
    let mut kind = DEFERRED;
    // SAFETY: the word is valid.
    unsafe { set_type(DEFERRED, &raw mut kind) };
    Point(kind)
}

impl Drop for Point {
    #[inline]
    fn drop(&mut self) {
        if self.0 != DEFERRED {
            again(self.0);
        }
    }
}

/// The thread may be cancelled anywhere again, and is if somebody did meanwhile.
#[cold]
fn again(kind: c_int) {
    // SAFETY: nothing is asked for.
    unsafe { set_type(kind, std::ptr::null_mut()) };
}

/// [`point`] around a call.
pub(super) fn may_cancel<T>(call: impl FnOnce() -> T) -> T {
    let _point = point();
    call()
}

/// longjmp and its names: a thread that is counted for a wait may be leaving it. Everything is as the
/// caller left it when libc's is jumped to.
#[cfg(target_arch = "x86_64")]
mod jumps {
    use crate::real::other;
    use crate::signals::thread::Thread;
    use crate::sockets::counted;
    use std::ffi::c_int;
    use std::mem::offset_of;

    /// Where a jmp_buf of glibc keeps the stack pointer.
    const STACK: usize = 6;

    /// Reads it as glibc does: it is kept turned and mixed with a word of the thread's.
    unsafe extern "C" fn leaving(buffer: *const usize) {
        let mut to: usize;
        // SAFETY: a jmp_buf that setjmp has filled, by the program; fs:0x30 is the word.
        unsafe {
            to = buffer.add(STACK).read();
            std::arch::asm!(
                "ror {0}, 17",
                "xor {0}, qword ptr fs:[0x30]",
                inout(reg) to,
                options(nostack, readonly),
            );
        }
        counted::jumps(to);
    }

    macro_rules! jumps {
        ($($name:ident)*) => {$(
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name(_buffer: *const usize, _value: c_int) -> ! {
                std::arch::naked_asm!(
                    "mov r11, qword ptr [rip + shunt_thread@GOTTPOFF]",
                    "cmp dword ptr fs:[r11 + {counted}], 0",
                    "je 2f",
                    "push rdi",
                    "push rsi",
                    "sub rsp, 8",
                    "call {leaving}",
                    "add rsp, 8",
                    "pop rsi",
                    "pop rdi",
                    "2: mov r11, [rip + {next}]",
                    "jmp r11",
                    counted = const offset_of!(Thread, counted),
                    leaving = sym leaving,
                    next = sym other::$name,
                )
            }
        )*};
    }

    jumps! { longjmp _longjmp siglongjmp __longjmp_chk }
}

#[cfg(target_arch = "x86_64")]
mod exits {
    use super::*;

    extern "C" fn leaving() {
        crate::mapper::leaving();
        crate::sockets::wired::leaving();
    }

    macro_rules! exits {
        ($($name:ident)*) => {$(
            /// A thread ends itself; if that is the process's first, the process lives on until the program's last has ended. The
            /// frames of the caller are unwound by libc's, so nothing of ours may be among them.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name(_value: *mut c_void) -> ! {
                std::arch::naked_asm!(
                    "push rdi",
                    "call {leaving}",
                    "pop rdi",
                    "mov r11, [rip + {next}]",
                    "jmp r11",
                    leaving = sym leaving,
                    next = sym other::$name,
                )
            }
        )*};
    }

    exits! { pthread_exit thrd_exit }
}
