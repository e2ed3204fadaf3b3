//! What the two ends agree on for a direction before its first byte: the sender's scheme and its sizes.
//! Five words in memory that the peer can write, so they are checked before use.

use crate::{Untrusted, Violation};

/// A scheme, by the name that settings and reports use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Scheme {
    Credit = 1,
    Packetized = 2,
    Nic = 3,
}

impl Scheme {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Credit, Self::Packetized, Self::Nic];

    /// The word in settings and reports.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Credit => "credit",
            Self::Packetized => "packetized",
            Self::Nic => "nic",
        }
    }

    /// The scheme with this number.
    #[must_use]
    pub const fn from_number(n: u64) -> Option<Self> {
        match n {
            1 => Some(Self::Credit),
            2 => Some(Self::Packetized),
            3 => Some(Self::Nic),
            _ => None,
        }
    }
}

/// The terms of one direction. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    pub scheme: Scheme,
    /// Receive buffer.
    pub buffer: u64,
    /// The sender's own buffer.
    pub own: u64,
    /// `credit`: N, at least 2.
    pub slots: u32,
    /// `credit`: S.
    pub slot: u32,
    /// `nic`: W.
    pub window: u32,
}

impl Terms {
    /// Terms as they lie in shared memory.
    pub const WORDS: usize = 5;

    /// From one slot of the credit scheme to the next: payload, header, and no two in one line.
    #[must_use]
    pub const fn stride(slot: usize) -> usize {
        slot.saturating_add(127) & !63
    }

    /// Bytes of a direction's region for a socket buffer: both the receive buffer and the sender's own,
    /// each a power of two.
    #[must_use]
    pub const fn region(buffer: usize) -> usize {
        2 * buffer.next_power_of_two()
    }

    /// As words for shared memory.
    #[must_use]
    pub const fn words(&self) -> [u64; Self::WORDS] {
        [
            self.scheme as u64,
            self.buffer,
            self.own,
            (self.slots as u64) << 32 | self.slot as u64,
            self.window as u64,
        ]
    }

    /// Terms that the peer wrote, if they fit a region of this size.
    ///
    /// # Errors
    /// [`Violation`] if they name no scheme or do not fit.
    pub fn read(words: [Untrusted<u64>; Self::WORDS], region: usize) -> Result<Self, Violation> {
        let [scheme, buffer, own, slots, window] = words;
        let half = region as u64 / 2;
        let slots = slots.as_claim();
        let low = |n: u64| u32::try_from(n & 0xffff_ffff).map_err(|_| Violation);
        let terms = Self {
            scheme: Scheme::from_number(scheme.as_claim()).ok_or(Violation)?,
            buffer: buffer.within(1, half)?,
            own: own.within(0, half)?,
            slots: low(slots >> 32)?,
            slot: low(slots)?,
            window: low(window.within(1, half)?)?,
        };
        if terms.fits(region) {
            Ok(terms)
        } else {
            Err(Violation)
        }
    }

    /// Whether the slots lie inside a region of this size.
    #[must_use]
    pub fn fits(&self, region: usize) -> bool {
        let size = usize::try_from(self.slot).unwrap_or(usize::MAX);
        let all = (Self::stride(size) as u64).checked_mul(u64::from(self.slots));
        self.slots >= 2 && self.slot > 0 && all.is_some_and(|all| all <= region as u64)
    }

    /// The same with sizes cut so that they fit a region of this size and a receive buffer of at most
    /// `receive` bytes.
    #[must_use]
    pub fn cut(mut self, region: usize, receive: u64) -> Self {
        let half = (region as u64 / 2).max(1);
        if receive < self.buffer {
            // (one window alone would be advertised only once everything has been read)
            let eighth = u32::try_from(receive / 8).unwrap_or(u32::MAX);
            self.window = self.window.min(eighth.max(1));
        }
        self.buffer = self.buffer.min(receive).clamp(1, half);
        self.own = self.own.min(half);
        let buffer = u32::try_from(self.buffer).unwrap_or(u32::MAX);
        self.window = self.window.clamp(1, buffer);
        self.slot = self.slot.clamp(1, (buffer / 2).max(1));
        let stride = Self::stride(usize::try_from(self.slot).unwrap_or(1)) as u64;
        let most = (self.buffer / u64::from(self.slot)).min(region as u64 / stride);
        self.slots = self
            .slots
            .clamp(2, u32::try_from(most).unwrap_or(u32::MAX).max(2));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_cut_fits_and_is_read_as_written(
            buffer in 1u64..1 << 40, own in 0u64..1 << 40, slots in 0u32.., slot in 0u32..,
            window in 0u32.., receive in 0u64..1 << 40, region in 12u32..26,
        ) {
            let region = 1usize << region;
            let terms = Terms { scheme: Scheme::Nic, buffer, own, slots, slot, window };
            let terms = terms.cut(region, receive);
            prop_assert!(terms.fits(region), "{terms:?}");
            prop_assert_eq!(Terms::read(terms.words().map(Untrusted::new), region), Ok(terms));
        }

        #[test]
        fn what_a_peer_wrote_fits_or_is_refused(words in any::<[u64; 5]>(), region in 7u32..26) {
            let region = 1usize << region;
            if let Ok(terms) = Terms::read(words.map(Untrusted::new), region) {
                prop_assert!(terms.fits(region) && terms.buffer <= region as u64 / 2);
            }
        }
    }

    #[test]
    fn schemes_are_named_as_they_are_numbered() {
        for scheme in Scheme::ALL {
            assert_eq!(Scheme::from_number(scheme as u64), Some(scheme));
        }
        assert_eq!(Scheme::from_number(0), None);
    }
}
