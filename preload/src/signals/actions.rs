//! What the program wants done about each signal. The kernel is told of `arrive` instead, with the same
//! flags and mask, and shows the program its own again.
//!
//! An action that was ever set is kept, and used again if it is set again: a handler reads one pointer
//! and has a handler and flags that belong together, whoever changes them meanwhile.

use super::{arrive, ended, guarded, is_watched};
use crate::sockets::lock::SpinLock;
use crate::sockets::order::Rank;
use crate::world;
use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use transport::sys::{Result, time};

/// A handler and the flags it was set with.
#[derive(Debug)]
pub(super) struct Action {
    pub(super) handler: usize,
    pub(super) flags: c_int,
    next: *const Self,
}

const SIGNALS: usize = 65;
static NOW: [AtomicPtr<Action>; SIGNALS] = [const { AtomicPtr::new(ptr::null_mut()) }; SIGNALS];
static KNOWN: [AtomicPtr<Action>; SIGNALS] = [const { AtomicPtr::new(ptr::null_mut()) }; SIGNALS];

/// Over changes of both.
static CHANGES: SpinLock = SpinLock::new(Rank::Actions);

const fn is_handler(handler: usize) -> bool {
    !matches!(handler, libc::SIG_DFL | libc::SIG_IGN)
}

fn place(
    table: &'static [AtomicPtr<Action>; SIGNALS],
    signal: c_int,
) -> Option<&'static AtomicPtr<Action>> {
    table.get(usize::try_from(signal).ok().filter(|&s| s > 0)?)
}

/// What to do about a signal now. `None` if nothing of the program's is set any more.
pub(super) fn now(signal: c_int) -> Option<&'static Action> {
    // SAFETY: null, or an action, which is never freed.
    unsafe { place(&NOW, signal)?.load(Ordering::Acquire).as_ref() }
}

/// The action with this handler and these flags. Under the lock.
fn known(signal: c_int, handler: usize, flags: c_int) -> *mut Action {
    let Some(head) = place(&KNOWN, signal) else {
        return ptr::null_mut();
    };
    let mut at = head.load(Ordering::Relaxed);
    // SAFETY: null, or an action, which is never freed.
    while let Some(a) = unsafe { at.as_ref() } {
        if a.handler == handler && a.flags == flags {
            return at;
        }
        at = a.next.cast_mut();
    }
    let new = Box::into_raw(Box::new(Action {
        handler,
        flags,
        next: head.load(Ordering::Relaxed),
    }));
    head.store(new, Ordering::Relaxed);
    new
}

/// A handler and its flags, as sigaction takes and gives them.
pub(super) type Pair = (usize, c_int);

/// What the program is shown of what the kernel has: its own action.
fn shown(action: Option<&Action>, kernel: Pair) -> Pair {
    /// The flags that `arrive` changes; the others are as the kernel shows them.
    const CHANGED: c_int = libc::SA_SIGINFO | libc::SA_RESETHAND;
    match action {
        Some(a) if kernel.0 == arrive::address() => {
            if a.handler == ended as *const () as usize {
                (libc::SIG_DFL, 0)
            } else if a.handler == guarded::default_action() {
                (libc::SIG_DFL, a.flags)
            } else {
                (a.handler, (kernel.1 & !CHANGED) | (a.flags & CHANGED))
            }
        }
        _ => kernel,
    }
}

/// Whether a signal ends this process as things are: nothing is done about it that the program has said.
pub(crate) fn ends(signal: c_int) -> bool {
    match signal {
        libc::SIGKILL => true,
        0 | libc::SIGCHLD | libc::SIGCONT | libc::SIGURG | libc::SIGWINCH => false,
        libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => false,
        _ => {
            let kernel = time::disposition(signal);
            kernel.is_ok_and(|(handler, _)| shown(now(signal), (handler, 0)).0 == libc::SIG_DFL)
        }
    }
}

/// [`ends`], but for one that this thread holds off: who sends such a one to a thread, or queues it, has one that waits for it
/// (sigwait(3), signalfd(2)). (raise(3) and kill(2) are also how a handler ends the process, once it returns.)
pub(crate) fn ends_at_once(signal: c_int) -> bool {
    let off = time::mask() & super::bit(signal) != 0;
    signal == libc::SIGKILL || (!off && ends(signal))
}

/// Changes, or only looks at, what is done about a signal. `kernel` does it, with the handler and flags
/// it is given, and says what the kernel had before.
pub(super) fn change(
    signal: c_int,
    new: Option<Pair>,
    kernel: impl FnOnce(Option<Pair>) -> Result<Pair>,
) -> Result<Pair> {
    let Some(slot) = place(&NOW, signal) else {
        return kernel(new);
    };
    // A child that borrows this memory (vfork) has actions of its own in the kernel; what stands here is
    // its parent's.
    if world::is_ready() && world::is_foreign() {
        return Ok(shown(now(signal), kernel(new)?));
    }
    if new.is_some_and(|(handler, _)| is_handler(handler)) {
        super::expect(signal);
    }
    if guarded::is_served(signal)
        && new.is_some_and(|(handler, _)| guarded::gives_way(signal, handler))
    {
        guarded::leave();
    }
    let served = guarded::is_served(signal);
    CHANGES.acquire();
    let before = slot.load(Ordering::Acquire);
    let new = match new {
        Some((libc::SIG_DFL, flags)) if served => Some((guarded::default_action(), flags)),
        Some((libc::SIG_DFL, _)) if is_watched(signal) => {
            Some((ended as *const () as usize, libc::SA_RESTART))
        }
        new => new,
    };
    let ours = new.map(|(handler, flags)| {
        if !is_handler(handler) {
            return (handler, flags);
        }
        slot.store(known(signal, handler, flags), Ordering::Release);
        let flags = if handler == guarded::default_action() {
            guarded::FLAGS
        } else {
            arrive::flags(flags)
        };
        (arrive::address(), flags)
    });
    let old = kernel(ours);
    if old.is_err() {
        slot.store(before, Ordering::Release);
    }
    CHANGES.release();
    // SAFETY: null, or an action, which is never freed.
    Ok(shown(unsafe { before.as_ref() }, old?))
}

/// SA_RESETHAND: the action is over with its first signal. False if another thread was faster.
pub(super) fn is_taken(signal: c_int, action: &'static Action) -> bool {
    let default = || super::kernel_default(signal);
    if world::is_foreign() {
        default();
        return true;
    }
    let Some(slot) = place(&NOW, signal) else {
        return false;
    };
    CHANGES.acquire();
    let mine = ptr::eq(slot.load(Ordering::Acquire), action);
    if mine {
        slot.store(ptr::null_mut(), Ordering::Release);
        default();
    }
    CHANGES.release();
    mine
}

/// In a child after fork, where nobody else changes anything.
pub(super) fn in_child() {
    CHANGES.reset();
}
