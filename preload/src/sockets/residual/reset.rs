//! A reset of which the kernel has told the library, and will tell nobody else: the program is told once, in whichever of the
//! processes that have the connection asks first, as it would be by the kernel.
//!
//! Called by `residual`, and by whoever tells the program of a reset. Rule: a record that says of a reset that nobody was told is kept
//! until somebody is, also once its bytes were had: the word by which one of them tells is there, and nowhere else.

use super::{Residual, forget, keep_record};
use crate::sockets::Socket;
use std::sync::atomic::Ordering;
use transport::sys::net;

/// What a record says: nothing of a reset, of one that nobody was told, or of one that somebody was.
const NONE: u32 = 0;
const UNTOLD: u32 = 1;
const TOLD: u32 = 2;

impl Residual {
    /// Whether a reset is behind its bytes, and nobody was told.
    pub(super) fn is_untold(&self) -> bool {
        self.resets.load(Ordering::Acquire) == UNTOLD
    }

    /// A socket reads it from now on, which ends as the connection has.
    pub(super) fn go_on_as(&self, s: &Socket) {
        let resets = self.resets.load(Ordering::Acquire);
        if resets == TOLD {
            s.reset_told.store(true, Ordering::Release);
        }
        if resets != NONE {
            s.broken.store(true, Ordering::Release);
        }
    }
}

/// Whoever tells the program of a reset asks first: whether nobody has, here or in another process that reads the same record. From now on
/// somebody has.
pub(crate) fn tell(s: &Socket) -> bool {
    if s.reset_told.swap(true, Ordering::AcqRel) {
        return false;
    }
    let at = s.residual.load(Ordering::Acquire);
    // SAFETY: null, or memory that is never unmapped while the socket refers to it.
    let Some(r) = (unsafe { at.as_ref() }) else {
        return true;
    };
    match r.here() {
        Ok(Some(here)) => {
            let (done, lost) = (Ordering::AcqRel, Ordering::Acquire);
            let was = here.resets.compare_exchange(UNTOLD, TOLD, done, lost);
            if was == Ok(UNTOLD) && here.left() == 0 {
                here.unname(); // (it was there for this word alone)
            }
            was != Err(TOLD)
        }
        // (the file went with the last that there was to be had)
        Ok(None) => {
            let told = r.resets.load(Ordering::Acquire) != NONE;
            forget(s, at);
            !told
        }
        Err(_) => true,
    }
}

/// Whether somebody has.
pub(crate) fn is_told(s: &Socket) -> bool {
    if s.reset_told.load(Ordering::Acquire) {
        return true;
    }
    // SAFETY: as above.
    unsafe { s.residual.load(Ordering::Acquire).as_ref() }.is_some_and(|r| match r.here() {
        Ok(Some(here)) => here.resets.load(Ordering::Acquire) == TOLD,
        Ok(None) => r.resets.load(Ordering::Acquire) != NONE,
        Err(_) => false,
    })
}

/// The connection was reset behind what is kept for the socket: whoever reads that is told so, here or elsewhere. Under the registry lock.
pub(crate) fn note_behind(s: &Socket) {
    s.broken.store(true, Ordering::Release);
    // SAFETY: as above.
    if let Some(r) = unsafe { s.residual.load(Ordering::Acquire).as_ref() } {
        r.resets.store(UNTOLD, Ordering::Release);
    }
}

/// Whether the connection was reset, which the kernel has told the library, and nobody has told the program.
pub(in crate::sockets) fn is_untold(s: &Socket, fd: i32) -> bool {
    s.broken.load(Ordering::Acquire) && !is_told(s) && net::ready_now(fd, 0) & libc::POLLERR == 0
}

/// That is kept for the socket, with no bytes before it. Under the registry lock.
pub(in crate::sockets) fn keep(s: &Socket, fd: i32) {
    // (else whoever reads the record that says so already would be told beside the readers of this one)
    if !super::is_due(s) && keep_record(s, fd, &[]) {
        note_behind(s);
    }
}

/// [`keep`], where nothing is kept for the socket yet.
pub(in crate::sockets) fn keep_alone(s: &Socket, fd: i32) {
    // (others who hold it by fork may be about to do the same)
    let Ok(_rx) = s.rx.lock() else { return };
    if is_untold(s, fd) && s.residual.load(Ordering::Acquire).is_null() {
        keep(s, fd);
    }
}
