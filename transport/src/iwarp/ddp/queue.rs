//! One queue of untagged messages, as its receiver sees it: which message comes next, where in it, and how many buffers wait
//! (RFC 5041 sections 5.3 and 7.1).
//!
//! The stream below is ordered, so messages come by number and a message's segments one after the other. A sender *should*
//! send them so and is not bound to (section 5.3); one that leaves holes or goes back is turned away here, as Linux's siw
//! does, since nobody could tell when its message is whole.

use super::Untagged;

/// A queue. Its owner gives the buffers.
#[derive(Clone, Copy, Debug)]
pub struct Queue {
    /// The message that comes next or is under way.
    next: u32,
    /// What has come of it, octets, and what its first segment said to the layer above.
    offset: u32,
    upper: Option<u8>,
    /// Buffers that wait, the one under way included, and octets that each holds.
    posted: u32,
    size: u32,
}

/// Why a segment has no place. The numbers are RFC 5041's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueError {
    /// 2: no buffer.
    NoBuffer,
    /// 3: not the message that is due.
    Number,
    /// 4: not at the offset that is due.
    Offset,
    /// 5: more than the buffer holds.
    TooLong,
    /// Not a matter of DDP: a segment says another thing to the layer above than the first one of its message.
    Upper,
}

impl Queue {
    /// A queue with buffers of `size` octets, `posted` of them.
    #[must_use]
    pub const fn new(size: u32, posted: u32) -> Self {
        Self {
            next: 1,
            offset: 0,
            upper: None,
            posted,
            size,
        }
    }

    /// `more` buffers have been added.
    pub const fn post(&mut self, more: u32) {
        self.posted = self.posted.saturating_add(more);
    }

    /// Buffers that wait, the one under way included.
    #[must_use]
    pub const fn posted(&self) -> u32 {
        self.posted
    }

    /// Whether a message has begun and not ended.
    #[must_use]
    pub const fn is_under_way(&self) -> bool {
        self.upper.is_some()
    }

    /// Takes a segment with `len` octets of payload; returns how many octets the message has so far, these included. The last
    /// segment ends the message and uses up a buffer.
    ///
    /// # Errors
    /// See [`QueueError`]; nothing has changed then.
    pub fn take(&mut self, header: &Untagged, len: u32) -> Result<u32, QueueError> {
        if header.message != self.next {
            return Err(QueueError::Number);
        }
        if self.posted == 0 {
            return Err(QueueError::NoBuffer);
        }
        if header.offset != self.offset {
            return Err(QueueError::Offset);
        }
        let end = header.offset.checked_add(len).ok_or(QueueError::TooLong)?;
        if end > self.size {
            return Err(QueueError::TooLong);
        }
        if self.upper.is_some_and(|upper| upper != header.upper) {
            return Err(QueueError::Upper);
        }
        if header.last {
            self.next = self.next.wrapping_add(1);
            self.posted -= 1;
            (self.offset, self.upper) = (0, None);
        } else {
            (self.offset, self.upper) = (end, Some(header.upper));
        }
        Ok(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(message: u32, offset: u32, last: bool) -> Untagged {
        Untagged {
            last,
            upper: 0x43,
            upper_word: 0,
            queue: 0,
            message,
            offset,
        }
    }

    #[test]
    fn in_order_and_within_the_buffer() {
        let mut queue = Queue::new(100, 2);
        assert_eq!(queue.take(&segment(2, 0, true), 1), Err(QueueError::Number));
        assert_eq!(queue.take(&segment(0, 0, true), 1), Err(QueueError::Number));
        assert_eq!(queue.take(&segment(1, 0, false), 60), Ok(60));
        assert_eq!(queue.take(&segment(1, 0, true), 1), Err(QueueError::Offset));
        assert_eq!(
            queue.take(&segment(1, 61, true), 1),
            Err(QueueError::Offset)
        );
        assert_eq!(
            queue.take(&segment(1, 60, true), 41),
            Err(QueueError::TooLong)
        );
        let other = Untagged {
            upper: 0x45,
            ..segment(1, 60, true)
        };
        assert_eq!(queue.take(&other, 40), Err(QueueError::Upper));
        assert_eq!(queue.take(&segment(1, 60, true), 40), Ok(100));
        assert_eq!(queue.take(&segment(2, 0, true), 0), Ok(0));
        assert_eq!(
            queue.take(&segment(3, 0, true), 0),
            Err(QueueError::NoBuffer)
        );
        queue.post(1);
        assert_eq!(queue.take(&segment(3, 0, true), 0), Ok(0));
    }

    /// RFC 5041 section 4.3: after 0xFFFFFFFF comes 0.
    #[test]
    fn numbers_wrap_to_zero() {
        let mut queue = Queue::new(100, 3);
        queue.next = u32::MAX;
        assert_eq!(queue.take(&segment(u32::MAX, 0, true), 0), Ok(0));
        assert_eq!(queue.take(&segment(0, 0, true), 0), Ok(0));
        assert_eq!(queue.take(&segment(1, 0, true), 0), Ok(0));
    }
}
