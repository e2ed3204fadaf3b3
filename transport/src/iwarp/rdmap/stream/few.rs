//! A queue of a few things that lies where it is: a stream's state holds no pointer, so that it can stand in memory
//! that several processes share.

/// The most that there is room for.
pub(super) const MOST: u16 = 32;

/// First in, first out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Few<T> {
    slots: [Option<T>; MOST as usize],
    first: usize,
    len: usize,
}

impl<T: Copy> Few<T> {
    pub(super) const fn new() -> Self {
        Self {
            slots: [None; MOST as usize],
            first: 0,
            len: 0,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Nothing happens if there is no room: who puts something in counts for itself.
    pub(super) fn push_back(&mut self, item: T) {
        let at = (self.first + self.len) % self.slots.len();
        if self.len < self.slots.len()
            && let Some(slot) = self.slots.get_mut(at)
        {
            *slot = Some(item);
            self.len += 1;
        }
    }

    pub(super) fn front(&self) -> Option<&T> {
        self.slots
            .get(self.first)
            .and_then(Option::as_ref)
            .filter(|_| self.len > 0)
    }

    pub(super) fn front_mut(&mut self) -> Option<&mut T> {
        let any = self.len > 0;
        self.slots
            .get_mut(self.first)
            .and_then(Option::as_mut)
            .filter(|_| any)
    }

    pub(super) fn pop_front(&mut self) -> Option<T> {
        let item = *self.front()?;
        self.first = (self.first + 1) % self.slots.len();
        self.len -= 1;
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_out_as_it_went_in() {
        let mut few = Few::new();
        for round in 0..5_u32 {
            for i in 0..20 {
                few.push_back(round * 100 + i);
            }
            assert_eq!(few.len(), 20);
            if let Some(first) = few.front_mut() {
                *first += 1;
            }
            assert_eq!(few.pop_front(), Some(round * 100 + 1));
            for i in 1..20 {
                assert_eq!(few.front(), Some(&(round * 100 + i)));
                assert_eq!(few.pop_front(), Some(round * 100 + i));
            }
            assert_eq!(few.pop_front(), None);
        }
    }

    #[test]
    fn has_its_bounds() {
        let mut few = Few::new();
        for i in 0..100 {
            few.push_back(i);
        }
        assert_eq!(few.len(), usize::from(MOST));
    }
}
