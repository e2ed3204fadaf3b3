//! What is known of a kernel connection that has ended under an attached stream, in one byte: every connection keeps one.
//!
//! Owned by the sending half; who uses that half finds out the verdict.

use crate::sys::Errno;

/// What came of a connection that is over without a word of the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Verdict {
    Unasked,
    /// The peer's process has ended, orderly or by a reset that its bells have caused.
    Died,
    /// Somebody cut it, with the error that was taken, or a reset.
    Cut,
}

/// The errors that end a connection; EPIPE aside, which says only that one has ended before ([`Ended::take_waiting`]).
const ERRORS: [i32; 7] = [
    libc::ECONNRESET,
    libc::ECONNABORTED,
    libc::ETIMEDOUT,
    libc::EHOSTUNREACH,
    libc::ENETUNREACH,
    libc::EHOSTDOWN,
    libc::ENETDOWN,
];

/// Bits for the place of an error among those, from 1; 0 for none. The verdict stands above.
const ERROR_BITS: u32 = 3;
const ERROR_MASK: u8 = (1 << ERROR_BITS) - 1;

/// Above the verdict: a reset came behind the peer's end of file.
const BEHIND_END: u8 = 1 << (ERROR_BITS + 2);

/// The error that was taken first, the verdict, and [`BEHIND_END`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended(u8);

impl Ended {
    /// Whether a call on a connected socket that says this says that the connection has just ended.
    #[must_use]
    pub fn is_said_by(e: Errno) -> bool {
        ERRORS.contains(&e.0)
    }

    /// An error of the kernel connection was taken by a call of ours: the kernel tells it once.
    pub fn take(&mut self, e: Errno) {
        if self.0 & ERROR_MASK == 0 {
            let place = ERRORS.iter().position(|&known| known == e.0);
            self.0 |= place.map_or(0, |place| (place + 1).to_le_bytes()[0]);
        }
    }

    /// [`Self::take`] of what SO_ERROR says. EPIPE there is a reset that came behind the peer's end of file: it answers what was sent
    /// after that.
    pub fn take_waiting(&mut self, e: Errno) {
        if e == Errno::PIPE {
            self.0 |= BEHIND_END;
        }
        self.take(e);
    }

    #[must_use]
    pub const fn is_behind_end(self) -> bool {
        self.0 & BEHIND_END != 0
    }

    /// The error that was: nobody else is told it.
    #[must_use]
    pub fn taken(self) -> Option<Errno> {
        let place = usize::from(self.0 & ERROR_MASK).checked_sub(1)?;
        ERRORS.get(place).map(|&e| Errno(e))
    }

    #[must_use]
    pub const fn verdict(self) -> Verdict {
        match (self.0 & !BEHIND_END) >> ERROR_BITS {
            0 => Verdict::Unasked,
            1 => Verdict::Died,
            _ => Verdict::Cut,
        }
    }

    /// Says so, once: what a program has been told stays true.
    pub const fn judge(&mut self, verdict: Verdict) {
        if matches!(self.verdict(), Verdict::Unasked) {
            self.0 |= (verdict as u8) << ERROR_BITS;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ERRORS, Ended, Verdict};
    use crate::sys::Errno;

    #[test]
    fn the_first_error_and_the_first_verdict_stay() {
        for e in ERRORS {
            for verdict in [Verdict::Died, Verdict::Cut] {
                let mut ended = Ended::default();
                assert_eq!((ended.taken(), ended.verdict()), (None, Verdict::Unasked));
                ended.take(Errno::PIPE);
                ended.judge(verdict);
                assert_eq!((ended.taken(), ended.verdict()), (None, verdict));
                ended.take(Errno(e));
                ended.take(Errno(libc::ECONNRESET));
                ended.judge(Verdict::Cut);
                assert_eq!((ended.taken(), ended.verdict()), (Some(Errno(e)), verdict));
                assert!(!ended.is_behind_end());
                ended.take_waiting(Errno::PIPE);
                assert_eq!((ended.taken(), ended.verdict()), (Some(Errno(e)), verdict));
                assert!(ended.is_behind_end());
            }
            assert!(Ended::is_said_by(Errno(e)));
        }
        assert!(!Ended::is_said_by(Errno::PIPE) && !Ended::is_said_by(Errno::AGAIN));
    }
}
