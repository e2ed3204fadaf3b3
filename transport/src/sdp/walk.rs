//! A walk over the program's buffers: one buffer or an array of them. The pointers are the program's;
//! whoever hands them in has made sure that they can be touched (or passes them to the kernel only).

use std::ptr;

/// What is left of one call's buffers.
#[derive(Debug)]
pub struct Walk {
    at: *mut u8,
    here: usize,
    rest: *const libc::iovec,
    count: usize,
    left: usize,
    done: usize,
    /// The walk as it was made, for [`Walk::rewind`].
    start: (*mut u8, usize, *const libc::iovec, usize, usize),
}

/// Entries passed to the kernel in one go.
pub const BATCH: usize = 16;

impl Walk {
    /// One buffer.
    #[inline]
    #[must_use]
    pub const fn one(at: *mut u8, len: usize) -> Self {
        let start = (at, len, ptr::null(), 0, len);
        Self {
            at,
            here: len,
            rest: ptr::null(),
            count: 0,
            left: len,
            done: 0,
            start,
        }
    }

    /// An array of buffers with `total` bytes in all.
    ///
    /// # Safety
    /// `rest` is readable for `count` entries as long as the walk is used.
    #[inline]
    #[must_use]
    pub const unsafe fn many(rest: *const libc::iovec, count: usize, total: usize) -> Self {
        let start = (ptr::null_mut(), 0, rest, count, total);
        Self {
            at: ptr::null_mut(),
            here: 0,
            rest,
            count,
            left: total,
            done: 0,
            start,
        }
    }

    /// Back to the beginning.
    pub const fn rewind(&mut self) {
        (self.at, self.here, self.rest, self.count, self.left) = self.start;
        self.done = 0;
    }

    /// Bytes still to go.
    #[inline]
    #[must_use]
    pub const fn left(&self) -> usize {
        self.left
    }

    /// Bytes walked so far.
    #[inline]
    #[must_use]
    pub const fn done(&self) -> usize {
        self.done
    }

    /// The next contiguous bytes; empty only at the end.
    #[inline]
    pub fn chunk(&mut self) -> (*mut u8, usize) {
        while self.here == 0 && self.count > 0 {
            // SAFETY: `count` entries are left, by the contract of `many`.
            let v = unsafe { ptr::read_unaligned(self.rest) };
            // SAFETY: stays within the array or one past its end.
            self.rest = unsafe { self.rest.add(1) };
            self.count -= 1;
            self.at = v.iov_base.cast();
            self.here = v.iov_len;
        }
        // `left` is what the caller was told; the array may have been changed under us since.
        (self.at, self.here.min(self.left))
    }

    /// Steps over `n` bytes of the current chunk.
    #[inline]
    pub fn advance(&mut self, n: usize) {
        let n = n.min(self.here).min(self.left);
        self.at = self.at.wrapping_add(n);
        self.here -= n;
        self.left -= n;
        self.done += n;
    }

    /// Steps over `n` bytes, whatever chunks they span.
    pub fn skip(&mut self, mut n: usize) {
        while n > 0 {
            let (_, len) = self.chunk();
            if len == 0 {
                break;
            }
            let step = len.min(n);
            self.advance(step);
            n -= step;
        }
    }

    /// The same walk from here on, not farther than `most` bytes. What it has walked is to be skipped here.
    #[must_use]
    pub fn part(&self, most: usize) -> Self {
        Self {
            left: self.left.min(most),
            done: 0,
            ..*self
        }
    }

    /// The program's own array, if the walk is at its beginning: what the kernel can take whole.
    #[must_use]
    pub fn untouched(&self) -> Option<(*const libc::iovec, usize)> {
        let (_, _, rest, count, total) = self.start;
        (self.done == 0 && count > BATCH && self.left == total).then_some((rest, count))
    }

    /// All that is left as an array for the kernel, `limit` bytes at most, where that is more than a [`Self::batch`]; none either
    /// if there is no memory for it.
    #[must_use]
    pub fn whole(&self, mut limit: usize) -> Option<Vec<libc::iovec>> {
        if self.count < BATCH {
            return None;
        }
        let mut all = Vec::new();
        all.try_reserve_exact(self.count + 1).ok()?;
        let mut walk = Self { ..*self };
        while all.len() <= self.count {
            let (at, len) = walk.chunk();
            let len = len.min(limit);
            if len == 0 {
                break;
            }
            all.push(libc::iovec {
                iov_base: at.cast(),
                iov_len: len,
            });
            walk.advance(len);
            limit -= len;
        }
        Some(all)
    }

    /// The next buffers as an array for the kernel, `limit` bytes at most; returns how many entries.
    #[must_use]
    pub fn batch(&self, out: &mut [libc::iovec; BATCH], mut limit: usize) -> usize {
        let mut walk = Self { ..*self };
        let mut n = 0;
        for slot in out.iter_mut() {
            let (at, len) = walk.chunk();
            let len = len.min(limit);
            if len == 0 {
                break;
            }
            *slot = libc::iovec {
                iov_base: at.cast(),
                iov_len: len,
            };
            walk.advance(len);
            limit -= len;
            n += 1;
        }
        n
    }
}
