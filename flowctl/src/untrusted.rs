//! Values that another process wrote. The type has no way out but a check, so a forgotten check does
//! not compile.

/// The peer broke the rules: the connection is reset, nothing else happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation;

/// A value read once from memory that the peer can write.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Untrusted<T>(T);

impl<T> Untrusted<T> {
    /// Marks a value as written by the peer.
    pub const fn new(value: T) -> Self {
        Self(value)
    }
}

impl<T: PartialOrd + Copy> Untrusted<T> {
    /// The value, if it lies in `low..=high`.
    ///
    /// # Errors
    /// [`Violation`] if it does not.
    pub fn within(self, low: T, high: T) -> Result<T, Violation> {
        if self.0 >= low && self.0 <= high {
            Ok(self.0)
        } else {
            Err(Violation)
        }
    }
}

impl Untrusted<u64> {
    /// The value as a ring position, which is masked before every use and so needs no bound.
    #[must_use]
    pub const fn as_ring_position(self) -> u64 {
        self.0
    }

    /// The value as a claim that is about to be checked together with others.
    #[must_use]
    pub(crate) const fn as_claim(self) -> u64 {
        self.0
    }

    /// The value for this side's own later use as a number that only the peer depends on.
    #[must_use]
    pub const fn as_hearsay(self) -> u64 {
        self.0
    }

    /// Whether the peer's word still holds what this side already knows.
    #[must_use]
    pub const fn is(self, known: u64) -> bool {
        self.0 == known
    }
}
