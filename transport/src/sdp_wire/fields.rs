//! Big-endian fields, one behind the other: how a fixed layout is read and written without an index.

/// Reads fields from the front of some bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next bytes; nothing if there are not so many.
    pub(crate) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }
}

/// Bytes that are written from the front; zero where nothing was. The layouts here are shorter than their
/// arrays, so what would not fit is never there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Writer<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Writer<N> {
    pub(crate) const fn new() -> Self {
        Self {
            bytes: [0; N],
            len: 0,
        }
    }

    pub(crate) fn put(mut self, field: &[u8]) -> Self {
        debug_assert!(self.len + field.len() <= N);
        let to = self.bytes.iter_mut().skip(self.len);
        for (to, from) in to.zip(field) {
            *to = *from;
        }
        self.len = (self.len + field.len()).min(N);
        self
    }

    /// All of the bytes, also those that were not written.
    pub(crate) const fn whole(self) -> [u8; N] {
        self.bytes
    }

    pub(crate) fn written(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}
