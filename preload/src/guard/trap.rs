//! SIGSYS by syscall user dispatch: while anything is protected, each system call that is not this
//! library's comes here first. It is made here, after what it writes to has been lifted; or everything
//! is lifted and the program's own instruction makes it.
//!
//! The library's own calls are let through by their address: the mapping that this code is in.

use super::calls::{self, Plan};
use super::{FORBIDDEN, Refusal, State, admit, is_live, maps, with};
use crate::signals::guarded;
use std::ffi::c_void;
use std::ops::Range;
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};
use transport::syscall;

/// What the kernel looks at: whether calls are trapped.
static SELECTOR: AtomicU8 = AtomicU8::new(ALLOW);
const ALLOW: u8 = 0;
const BLOCK: u8 = 1;

/// The process whose thread has dispatch set up; 0 for none.
static ARMED: AtomicI32 = AtomicI32::new(0);

/// Traps, or lets through.
pub(super) fn watch(live: bool) {
    SELECTOR.store(if live { BLOCK } else { ALLOW }, Ordering::Relaxed);
}

/// Whether anything may have been protected in this process.
pub(super) fn is_armed() -> bool {
    ARMED.load(Ordering::Relaxed) != 0
}

/// In a child after fork: the kernel has forgotten it too.
pub(super) fn forget() {
    watch(false);
    ARMED.store(0, Ordering::Relaxed);
    maps::close();
}

/// Sets everything up, once a process. (The only thread does: it stays set for the thread's life.)
pub(super) fn arm() -> Result<(), Refusal> {
    let armed = ARMED.load(Ordering::Relaxed);
    // (a child in its parent's memory, or one whose fork nobody has seen)
    if armed != 0 && armed == transport::sys::pid() {
        return Ok(());
    }
    if armed != 0 {
        return Err(Refusal::Forked);
    }
    if cfg!(not(target_arch = "x86_64")) || has_shadow_stack() {
        return Err(Refusal::Kernel);
    }
    if is_sandboxed() {
        FORBIDDEN.store(true, Ordering::Relaxed);
        return Err(Refusal::Sandbox);
    }
    maps::open().map_err(|_| Refusal::Kernel)?;
    // Where system calls are let through.
    let code = maps::find(arm as *const () as usize, &mut []).map_err(|_| Refusal::Kernel)?;
    if !guarded::arm() {
        return Err(Refusal::Signals);
    }
    const PR_SET_SYSCALL_USER_DISPATCH: i32 = 59;
    let (on, len) = (1, code.end - code.start);
    // SAFETY: the selector lives for ever.
    let set = unsafe {
        syscall!(
            prctl,
            PR_SET_SYSCALL_USER_DISPATCH,
            on,
            code.start,
            len,
            SELECTOR.as_ptr()
        )
    };
    set.map_err(|_| Refusal::Kernel)?;
    ARMED.store(transport::sys::pid(), Ordering::Relaxed);
    Ok(())
}

/// Whether system calls are filtered already, perhaps by whoever started the process.
fn is_sandboxed() -> bool {
    let path = c"/proc/self/status";
    let mut text = [0u8; 4096];
    // SAFETY: a C string; the buffer is of the length that is said.
    let n = unsafe {
        let Ok(fd) = syscall!(openat, libc::AT_FDCWD, path.as_ptr(), libc::O_CLOEXEC) else {
            return true;
        };
        let n = syscall!(read, fd, text.as_mut_ptr(), text.len());
        let _ = syscall!(close, fd);
        n.unwrap_or(0)
    };
    let text = text.get(..n).unwrap_or(&[]);
    !text.windows(11).any(|w| w == b"Seccomp:\t0\n")
}

/// The parts of the details that the types of libc do not show.
#[repr(C)]
struct Details {
    signal: i32,
    errno: i32,
    code: i32,
    _pad: i32,
    call: usize,
    nr: i32,
    arch: u32,
}

const SYS_USER_DISPATCH: i32 = 2;
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;

/// False if the signal is the program's own.
///
/// # Safety
/// The arguments are the kernel's.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn serve(info: *const libc::siginfo_t, context: *mut c_void) -> bool {
    use libc::{REG_R8, REG_R9, REG_R10, REG_RAX, REG_RDI, REG_RDX, REG_RIP, REG_RSI};
    // SAFETY: the kernel's details, for this signal.
    let details = unsafe { &*info.cast::<Details>() };
    if details.code != SYS_USER_DISPATCH {
        return false;
    }
    let context: *mut libc::ucontext_t = context.cast();
    // SAFETY: the kernel's context, which is this frame's alone.
    let (registers, mask): (*mut i64, *mut u64) = unsafe {
        (
            (&raw mut (*context).uc_mcontext.gregs).cast(),
            (&raw mut (*context).uc_sigmask).cast(),
        )
    };
    // SAFETY: one of the registers that there are.
    let register = |r: i32| unsafe { registers.add(r as usize) };
    // SAFETY: as above.
    let word = |r: i32| unsafe { register(r).read() }.cast_unsigned() as usize;
    let words = [REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9].map(word);
    let nr = usize::try_from(details.nr).unwrap_or(usize::MAX);
    let own = details.arch == AUDIT_ARCH_X86_64;
    if own && details.nr == libc::SYS_rt_sigreturn as i32 {
        // SAFETY: the stack is where the program's return from a handler has it.
        unsafe { return_for(word(libc::REG_RSP)) }
    }
    super::reap();
    let plan = if own && is_live() {
        calls::plan(nr, words)
    } else {
        Plan::Unknown
    };
    let result = match plan {
        Plan::Unknown => None,
        Plan::Ends => {
            watch(false); // and what is protected ends with the process
            // SAFETY: the instruction before.
            unsafe { register(REG_RIP).write(register(REG_RIP).read() - 2) };
            return true;
        }
        Plan::Mask => {
            // SAFETY: the program's words.
            unsafe { calls::change_mask(words) }
        }
        Plan::Writes(places) => {
            for (at, len) in places {
                super::before_write(std::ptr::with_exposed_provenance(at), len);
            }
            // SAFETY: the program's own call.
            unsafe { calls::make(nr, words) }
        }
        Plan::Replaces(range) => {
            with(|state| cut(state, &range));
            // SAFETY: the program's own call.
            let result = unsafe { calls::make(nr, words) };
            if result.is_some_and(|r| transport::sys::check(r).is_ok()) {
                with(|state| state.pieces.forget(&range));
            }
            result
        }
    };
    // Handlers of the program that ran meanwhile, on top of this one, may have left another mask.
    // SAFETY: the frame's mask; 8 is the size of the kernel's set.
    let _ = unsafe { syscall!(rt_sigprocmask, 0, 0, mask, 8) };
    if let Some(result) = result {
        // SAFETY: this frame's register.
        unsafe { register(REG_RAX).write(result.cast_signed() as i64) };
    } else {
        super::lift_all();
        // SAFETY: the instruction is two bytes long, and is made again.
        unsafe { register(REG_RIP).write(register(REG_RIP).read() - 2) };
    }
    true
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) unsafe fn serve(_: *const libc::siginfo_t, _: *mut c_void) -> bool {
    false
}

/// See `guard::return_from`.
///
/// # Safety
/// As there.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn return_from(context: *mut c_void) {
    // SAFETY: where a handler returns to libc, the stack is at its context.
    unsafe { return_for(context.addr()) }
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) unsafe fn return_from(_: *mut c_void) {}

/// rt_sigreturn in the place of libc's, whose frame the stack ends with; the one that this handler was
/// called with is left behind. Not by the state's leave: the handler may have been put off in the middle of
/// work on it.
#[cfg(target_arch = "x86_64")]
unsafe fn return_for(stack: usize) -> ! {
    let frame: *const libc::ucontext_t = std::ptr::with_exposed_provenance(stack);
    // SAFETY: the kernel is about to read it.
    let mask = unsafe { (&raw const (*frame).uc_sigmask).cast::<u64>().read() };
    if mask & admit::SERVED != 0 {
        super::lift_all(); // (what was put off goes on with all faults unblocked)
    }
    // SAFETY: the kernel takes everything from the frame at the stack pointer.
    unsafe {
        std::arch::asm!(
            "mov rsp, {stack}",
            "mov eax, {nr}",
            "syscall",
            "ud2",
            stack = in(reg) stack,
            nr = const libc::SYS_rt_sigreturn,
            options(noreturn),
        )
    }
}

/// Whether returns are checked against a stack of their own, which does not know what was left behind.
#[cfg(target_arch = "x86_64")]
fn has_shadow_stack() -> bool {
    const ARCH_SHSTK_STATUS: i32 = 0x5005;
    let mut features = 0u64;
    // SAFETY: the word is written, where the kernel knows the question.
    let known = unsafe { syscall!(arch_prctl, ARCH_SHSTK_STATUS, &raw mut features) };
    known.is_ok() && features != 0
}

#[cfg(not(target_arch = "x86_64"))]
fn has_shadow_stack() -> bool {
    false
}

/// What lies in the range only in part is lifted there.
fn cut(state: &mut State, range: &Range<usize>) {
    let inside = |p: &super::pieces::Piece| range.start <= p.start && p.end <= range.end;
    loop {
        let part = state.pieces.all().iter().find(|p| {
            let hit = p.start < range.end && range.start < p.end;
            hit && !inside(p)
        });
        let Some(p) = part else { return };
        let part = p.start.max(range.start)..p.end.min(range.end);
        state.lift(part);
    }
}
