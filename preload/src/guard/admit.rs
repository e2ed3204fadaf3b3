//! Whether a message may stay where it is. Everything that could make it unsafe is asked of the kernel,
//! each time: while nothing is protected, nothing tells of a new thread, a new mapping, a new mask.

use super::pieces::Pieces;
use super::{FORBIDDEN, PAGE, maps, trap};
use crate::signals::guarded;
use std::ops::Range;
use std::sync::atomic::Ordering;
use transport::syscall;

/// Why a message is not held. Another way serves it: waiting for the reader, or copying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Too few whole pages in it.
    Small,
    /// No room: the lane is full of what has not been read, or there are too many messages.
    Full,
    /// More than one thread, or another process in the same memory.
    Threads,
    /// The lane was made by another process.
    Forked,
    /// SIGSEGV or SIGSYS is blocked, ignored, or (SIGSYS) handled by the program.
    Signals,
    /// A sandbox, here or inherited.
    Sandbox,
    /// The kernel lacks something (syscall user dispatch, PROCMAP_QUERY), or the processor does.
    Kernel,
    /// A stack: this one, or the memory is one that signals are handled on.
    Stack,
    /// Shared memory, a file, large pages of their own, code, or memory that cannot be written.
    Mapping,
    /// The kernel would not protect it.
    Protection,
}

type Verdict = Result<(), Refusal>;

/// Fewest bytes of whole pages.
pub(super) const LEAST: usize = 4 * PAGE;

fn must(yes: bool, or: Refusal) -> Verdict {
    if yes { Ok(()) } else { Err(or) }
}

/// Whether this process can hold anything: one thread, no sandbox, traps in place.
pub(super) fn process() -> Verdict {
    must(!FORBIDDEN.load(Ordering::Relaxed), Refusal::Sandbox)?;
    // The kernel's own word: refused where anybody else has this memory, else without effect.
    // SAFETY: no pointers.
    let alone = unsafe { syscall!(unshare, libc::CLONE_VM) }.is_ok();
    must(alone, Refusal::Threads)?;
    trap::arm()
}

/// The signals that the guard lives on.
pub(super) const SERVED: u64 = 1 << (libc::SIGSEGV - 1) | 1 << (libc::SIGSYS - 1);

/// Whether faults and traps can come here: neither blocked, and no stack is in danger.
pub(super) fn signals() -> Verdict {
    let mut mask = 0u64;
    // SAFETY: the word is written; 8 is the size of the kernel's set.
    let r = unsafe { syscall!(rt_sigprocmask, 0, 0, &raw mut mask, 8) };
    must(r.is_ok() && mask & SERVED == 0, Refusal::Signals)?;
    must(guarded::stand(), Refusal::Signals)
}

/// Whether these pages can be protected, and given back as they were.
pub(super) fn memory(pages: &Range<usize>, pieces: &Pieces) -> Verdict {
    let here = std::ptr::from_ref(&pages).addr();
    let stack = maps::is_main_stack(here).ok_or(Refusal::Stack)?;
    must(!overlaps(pages, &(stack.start..stack.end)), Refusal::Stack)?;
    must(!overlaps(pages, &alternate_stack()), Refusal::Stack)?;
    let mut at = pages.start;
    // (neighbours differ in what does not matter here; but not without end)
    for _ in 0..16 {
        let m = maps::find(at, &mut []).map_err(|_| Refusal::Mapping)?;
        let part = at..m.end.min(pages.end);
        let ours = || pieces.next_gap(&part).is_none();
        must(
            m.is_private() && (m.is_writable() || ours()),
            Refusal::Mapping,
        )?;
        at = part.end;
        if at >= pages.end {
            return Ok(());
        }
    }
    Err(Refusal::Mapping)
}

fn overlaps(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Where handlers run that asked for it: the kernel writes there without any fault.
fn alternate_stack() -> Range<usize> {
    // SAFETY: all-zero is a valid stack_t, and the kernel fills it in.
    let stack = unsafe {
        let mut stack: libc::stack_t = std::mem::zeroed();
        let _ = syscall!(sigaltstack, 0, &raw mut stack);
        stack
    };
    let start = stack.ss_sp.addr();
    start..start.saturating_add(stack.ss_size)
}
