//! What is to be sent, wherever it lies: one slice or several, taken from the front.

use std::io::IoSlice;

/// Octets in the slices that they lie in.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    here: &'a [u8],
    rest: &'a [IoSlice<'a>],
}

impl<'a> Parts<'a> {
    /// One slice.
    #[must_use]
    pub const fn one(bytes: &'a [u8]) -> Self {
        Self {
            here: bytes,
            rest: &[],
        }
    }

    /// Several slices, one after the other.
    #[must_use]
    pub const fn many(slices: &'a [IoSlice<'a>]) -> Self {
        Self {
            here: &[],
            rest: slices,
        }
    }

    /// Octets that are left.
    #[must_use]
    pub fn len(&self) -> usize {
        self.here.len() + self.rest.iter().map(|slice| slice.len()).sum::<usize>()
    }

    /// Whether nothing is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Slices that are left, empty ones counted.
    pub(super) const fn slices(&self) -> usize {
        1 + self.rest.len()
    }

    /// Takes the next octets that lie together, at most `most`; `None` at the end or if `most` is 0.
    #[inline]
    pub fn take(&mut self, most: usize) -> Option<&'a [u8]> {
        while self.here.is_empty() {
            let (next, rest) = self.rest.split_first()?;
            (self.here, self.rest) = (next, rest);
        }
        let (taken, left) = self.here.split_at_checked(most).unwrap_or((self.here, &[]));
        self.here = left;
        (!taken.is_empty()).then_some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taken_in_pieces() {
        let slices = [&b""[..], b"abc", b"", b"defg"].map(IoSlice::new);
        let mut parts = Parts::many(&slices);
        assert_eq!(parts.len(), 7);
        assert_eq!(parts.take(0), None);
        assert_eq!(parts.take(2), Some(&b"ab"[..]));
        assert_eq!(parts.take(9), Some(&b"c"[..]));
        assert_eq!(parts.take(9), Some(&b"defg"[..]));
        assert!(parts.is_empty());
        assert_eq!(parts.take(9), None);
        assert_eq!(Parts::one(b"x").take(1), Some(&b"x"[..]));
    }
}
