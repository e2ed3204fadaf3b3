//! An array with room of its own for as many descriptors as nearly every program polls, and a mapping for
//! more: a poll never allocates from a heap.
//!
//! Used by `poll` for the copy that the kernel is asked with, and for what a thread sleeps on.

use crate::sockets::Socket;
use transport::sys::mem::Mapping;

/// Descriptors handled without memory of our own.
const INLINE: usize = 64;

/// What an [`Array`] can hold.
///
/// # Safety
/// Memory full of zeros, as a fresh mapping is, holds values of the type.
pub(super) unsafe trait Element: Copy {
    /// What stands there before anything is stored, if there is no mapping.
    const BLANK: Self;
}

// SAFETY: integers.
unsafe impl Element for libc::pollfd {
    const BLANK: Self = Self {
        fd: -1,
        events: 0,
        revents: 0,
    };
}

// SAFETY: null is `None`.
unsafe impl Element for Option<&'static Socket> {
    const BLANK: Self = None;
}

/// `len` elements.
pub(super) struct Array<T> {
    inline: [T; INLINE],
    mapped: Option<Mapping>,
    len: usize,
}

impl<T: Element> Array<T> {
    /// `None`: no memory for that many.
    pub(super) fn new(len: usize) -> Option<Self> {
        let mapped = if len > INLINE {
            Some(Mapping::private(len * size_of::<T>()).ok()?)
        } else {
            None
        };
        Some(Self {
            inline: [T::BLANK; INLINE],
            mapped,
            len,
        })
    }

    pub(super) fn slice(&mut self) -> &mut [T] {
        match &self.mapped {
            // SAFETY: the mapping has room for `len` elements, each zero or stored through this slice.
            Some(m) => unsafe {
                std::slice::from_raw_parts_mut(m.base().cast().as_ptr(), self.len)
            },
            None => self.inline.get_mut(..self.len).unwrap_or(&mut []),
        }
    }
}
