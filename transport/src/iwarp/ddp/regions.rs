//! Memory that peers may name: a table of regions, each with the STag that names it, its extent and what may be done to it
//! (RFC 5041 sections 7.1 and 8). The table holds no memory itself: a region has a handle of the caller's.
//!
//! Invariant: whatever [`Regions::check`] has let through lies within one region that was registered for this stream with
//! that right.

use super::Stag;

/// Which stream a region belongs to: any number that no two streams of one table share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamId(pub u32);

/// What may be done to a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// The peer may read it (RDMA Read).
    pub read: bool,
    /// The peer may write to it (RDMA Write).
    pub write: bool,
    /// Answers to this end's own Reads may go there.
    pub sink: bool,
    /// The peer may end it (Send with Invalidate).
    pub invalidate: bool,
}

impl Rights {
    /// None of them.
    pub const NONE: Self = Self {
        read: false,
        write: false,
        sink: false,
        invalidate: false,
    };

    const fn include(self, wanted: Self) -> bool {
        (self.read || !wanted.read)
            && (self.write || !wanted.write)
            && (self.sink || !wanted.sink)
            && (self.invalidate || !wanted.invalidate)
    }
}

/// A registered region.
#[derive(Clone, Copy, Debug)]
pub struct Region<M> {
    /// The stream that may name it.
    pub stream: StreamId,
    /// The tagged offset of its first octet. Any number will do; 0, or an address.
    pub base: u64,
    /// Octets.
    pub len: u64,
    pub rights: Rights,
    /// The caller's handle of the memory.
    pub memory: M,
}

/// Why a region cannot be used so. The layer that asked names the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionError {
    InvalidStag,
    NotThisStream,
    Bounds,
    Wrap,
    Rights,
}

/// The table is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// A table of regions. Allocates once.
#[derive(Debug)]
pub struct Regions<M> {
    slots: Box<[Slot<M>]>,
}

type Slot<M> = Option<(Stag, Region<M>)>;

/// The part of an STag that says which slot it is in; the rest is the caller's random number.
const SLOT: u32 = 0xff;

impl<M: Copy> Regions<M> {
    /// Room for `most` regions, at most 256.
    #[must_use]
    pub fn new(most: usize) -> Self {
        let most = most.min(SLOT as usize + 1);
        Self {
            slots: (0..most).map(|_| None).collect(),
        }
    }

    /// Registers a region. `random` should be hard to guess (RFC 5040 section 8.1.1): 24 bits of it become part of the STag.
    ///
    /// # Errors
    /// [`Full`].
    pub fn register(&mut self, region: Region<M>, random: u32) -> Result<Stag, Full> {
        let free = self
            .slots
            .iter_mut()
            .zip(0..)
            .find(|(slot, _)| slot.is_none());
        let (slot, index) = free.ok_or(Full)?;
        let stag = Stag(random & !SLOT | index);
        *slot = Some((stag, region));
        Ok(stag)
    }

    /// Ends a region; returns it. From then on the STag is invalid.
    pub fn remove(&mut self, stag: Stag) -> Option<Region<M>> {
        let slot = self.slots.get_mut((stag.0 & SLOT) as usize)?;
        match slot {
            Some((held, _)) if *held == stag => slot.take().map(|(_, region)| region),
            _ => None,
        }
    }

    /// Ends all regions of a stream.
    pub fn remove_all(&mut self, stream: StreamId) {
        for slot in &mut self.slots {
            if matches!(slot, Some((_, region)) if region.stream == stream) {
                *slot = None;
            }
        }
    }

    /// Ends a region because the peer asked for it; returns it.
    ///
    /// # Errors
    /// [`RegionError::InvalidStag`], [`RegionError::NotThisStream`] or [`RegionError::Rights`].
    pub fn invalidate(&mut self, stag: Stag, stream: StreamId) -> Result<Region<M>, RegionError> {
        let wanted = Rights {
            invalidate: true,
            ..Rights::NONE
        };
        if !self.find(stag, stream)?.rights.include(wanted) {
            return Err(RegionError::Rights);
        }
        self.remove(stag).ok_or(RegionError::InvalidStag)
    }

    /// Whether this stream may do this to `len` octets at this tagged offset; returns the memory, and how far into it they
    /// begin.
    ///
    /// # Errors
    /// The first thing that is wrong, in the order of RFC 5041 section 7.1; rights come last.
    pub fn check(
        &self,
        stag: Stag,
        stream: StreamId,
        offset: u64,
        len: u64,
        wanted: Rights,
    ) -> Result<(M, u64), RegionError> {
        let region = self.find(stag, stream)?;
        let end = offset.checked_add(len).ok_or(RegionError::Wrap)?;
        let from = offset.checked_sub(region.base).ok_or(RegionError::Bounds)?;
        if end - region.base > region.len {
            return Err(RegionError::Bounds);
        }
        if !region.rights.include(wanted) {
            return Err(RegionError::Rights);
        }
        Ok((region.memory, from))
    }

    fn find(&self, stag: Stag, stream: StreamId) -> Result<&Region<M>, RegionError> {
        match self.slots.get((stag.0 & SLOT) as usize) {
            Some(Some((held, region))) if *held == stag => {
                if region.stream == stream {
                    Ok(region)
                } else {
                    Err(RegionError::NotThisStream)
                }
            }
            _ => Err(RegionError::InvalidStag),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: StreamId = StreamId(1);
    const READ: Rights = Rights {
        read: true,
        ..Rights::NONE
    };
    const WRITE: Rights = Rights {
        write: true,
        ..Rights::NONE
    };

    fn table() -> (Regions<char>, Stag) {
        let mut regions = Regions::new(2);
        let region = Region {
            stream: OURS,
            base: 0x1000,
            len: 0x100,
            rights: READ,
            memory: 'm',
        };
        let stag = regions.register(region, 0xabcd_ef12).unwrap();
        (regions, stag)
    }

    #[test]
    fn each_check() {
        let (regions, stag) = table();
        let check =
            |stag, stream, offset, len, rights| regions.check(stag, stream, offset, len, rights);
        assert_eq!(check(stag, OURS, 0x1000, 0x100, READ), Ok(('m', 0)));
        assert_eq!(check(stag, OURS, 0x10ff, 1, READ), Ok(('m', 0xff)));
        assert_eq!(check(stag, OURS, 0x1100, 0, READ), Ok(('m', 0x100)));
        for other in [
            Stag(stag.0 ^ 0x100),
            Stag(stag.0 ^ 1),
            Stag(0),
            Stag(0xffff_ffff),
        ] {
            assert_eq!(
                check(other, OURS, 0x1000, 1, READ),
                Err(RegionError::InvalidStag)
            );
        }
        let theirs = StreamId(2);
        assert_eq!(
            check(stag, theirs, 0x1000, 1, READ),
            Err(RegionError::NotThisStream)
        );
        assert_eq!(check(stag, OURS, 0xfff, 1, READ), Err(RegionError::Bounds));
        assert_eq!(
            check(stag, OURS, 0x1000, 0x101, READ),
            Err(RegionError::Bounds)
        );
        assert_eq!(check(stag, OURS, 0x1100, 1, READ), Err(RegionError::Bounds));
        assert_eq!(check(stag, OURS, u64::MAX, 2, READ), Err(RegionError::Wrap));
        assert_eq!(
            check(stag, OURS, 0x1000, 1, WRITE),
            Err(RegionError::Rights)
        );
    }

    #[test]
    fn ended_regions_are_invalid_and_slots_used_again() {
        let (mut regions, stag) = table();
        assert_eq!(
            regions.invalidate(stag, OURS).err(),
            Some(RegionError::Rights)
        );
        assert_eq!(
            regions.invalidate(stag, StreamId(2)).err(),
            Some(RegionError::NotThisStream)
        );
        let region = regions.remove(stag).unwrap();
        assert!(regions.remove(stag).is_none());
        let mine = Region {
            rights: Rights {
                invalidate: true,
                ..READ
            },
            ..region
        };
        let other = regions.register(mine, 0x1234_5678).unwrap();
        assert!(regions.register(region, 0).is_ok());
        assert_eq!(regions.register(region, 0), Err(Full));
        assert_eq!(
            regions.check(stag, OURS, 0x1000, 1, READ),
            Err(RegionError::InvalidStag)
        );
        assert!(regions.invalidate(other, OURS).is_ok());
        assert_eq!(
            regions.check(other, OURS, 0x1000, 1, READ),
            Err(RegionError::InvalidStag)
        );
        regions.remove_all(OURS);
        assert!(regions.register(region, 0).is_ok());
        assert!(regions.register(region, 0).is_ok());
    }
}
