//! Memory files, mappings and limits.

use super::{Errno, Result, fd::Fd, fd::as_fd, retired};
use crate::syscall;
use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

/// A mapping that unmaps itself.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
    /// Others of this process may still be looking when its owner goes: see [`retired`].
    shared: bool,
    /// Bytes that count as data of the program's (RLIMIT_DATA).
    data: u64,
}

// SAFETY: a mapping is plain address space; who may touch what inside it is up to its users.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes at `offset` of a memory file, readable, writable and shared.
    ///
    /// # Errors
    /// As mmap(2): ENOMEM under a small RLIMIT_AS, EACCES for a sealed file.
    pub fn shared(file: &Fd, offset: usize, len: usize) -> Result<Self> {
        let mut mapping = Self::map(len, libc::MAP_SHARED, file.raw(), offset)?;
        mapping.shared = true;
        Ok(mapping)
    }

    /// Maps fresh private memory. Nothing is touched until it is used.
    ///
    /// # Errors
    /// As mmap(2).
    pub fn private(len: usize) -> Result<Self> {
        Self::map(
            len,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    }

    /// Maps a memory file privately, so that it can be found by name from outside but is not shared.
    ///
    /// # Errors
    /// As mmap(2).
    pub fn private_file(file: &Fd, len: usize) -> Result<Self> {
        Self::map(len, libc::MAP_PRIVATE | libc::MAP_NORESERVE, file.raw(), 0)
    }

    /// Maps fresh memory that children of fork share with this process.
    ///
    /// # Errors
    /// As mmap(2).
    pub fn family(len: usize) -> Result<Self> {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        Self::map(len, flags, -1, 0)
    }

    /// Maps a part of a file of the program's, to be read by the kernel only: the file may be cut at any time.
    ///
    /// # Errors
    /// As mmap(2).
    pub fn window(file: i32, offset: u64, len: usize) -> Result<Self> {
        let offset = usize::try_from(offset).map_err(|_| Errno::INVAL)?;
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        Self::map_as(len, libc::PROT_READ, flags, file, offset)
    }

    fn map(len: usize, flags: i32, fd: i32, offset: usize) -> Result<Self> {
        Self::map_as(len, libc::PROT_READ | libc::PROT_WRITE, flags, fd, offset)
    }

    fn map_as(len: usize, prot: i32, flags: i32, fd: i32, offset: usize) -> Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
        let at = unsafe { syscall!(mmap, 0, len, prot, flags, fd, offset) }?;
        let is_data = flags & libc::MAP_PRIVATE != 0;
        let data = if is_data { len as u64 } else { 0 };
        MAPPED.fetch_add(len as u64, Ordering::Relaxed);
        DATA.fetch_add(data, Ordering::Relaxed);
        let base = NonNull::new(std::ptr::with_exposed_provenance_mut(at)).ok_or(Errno::NOMEM)?;
        Ok(Self {
            base,
            len,
            shared: false,
            data,
        })
    }

    /// The first byte.
    #[must_use]
    pub const fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Never: a mapping has at least a page.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Applies `madvise` advice; a kernel that does not know it is fine.
    pub fn advise(&self, advice: i32) {
        // SAFETY: the range is this mapping.
        let _ = unsafe { syscall!(madvise, self.base.as_ptr(), self.len, advice) };
    }

    /// Sets bytes of a mapping, or of a part of one, to zero, but for these ranges (first byte, length), which are buffers.
    ///
    /// # Safety
    /// `len` writable bytes that nobody else uses.
    pub unsafe fn clear_but<const N: usize>(
        at: *mut u8,
        len: usize,
        mut buffers: [(usize, usize); N],
    ) {
        buffers.sort_unstable();
        let mut from = 0;
        for (start, bytes) in buffers.into_iter().chain([(len, 0)]) {
            // SAFETY: the caller's promise; no more than `len`.
            unsafe { at.add(from).write_bytes(0, start.saturating_sub(from)) };
            from = start + bytes;
        }
    }

    /// Keeps the mapping for the life of the process.
    pub fn leak(self) -> NonNull<u8> {
        let base = self.base;
        std::mem::forget(self);
        base
    }
}

static MAPPED: AtomicU64 = AtomicU64::new(0);
static DATA: AtomicU64 = AtomicU64::new(0);

/// Bytes of address space that are mapped here, as RLIMIT_AS and RLIMIT_DATA count them: most of them are reserved only.
#[must_use]
pub fn mapped() -> (u64, u64) {
    (MAPPED.load(Ordering::Relaxed), DATA.load(Ordering::Relaxed))
}

/// What may be mapped here at most when a segment is added: a program whose address space is limited needs most of it itself.
static ROOM: AtomicU64 = AtomicU64::new(u64::MAX);
/// Segments take one part in so many of such a limit, and so does the pool of sockets at start. The rest is the program's.
pub const PART: u64 = 8;

/// The address space of the program is limited to so many bytes from now on (`RLIM_INFINITY`: not limited). What is mapped by now
/// stays.
pub fn limit_space(bytes: u64) {
    let room = match bytes {
        libc::RLIM_INFINITY => u64::MAX,
        bytes => mapped().0.saturating_add(bytes / PART),
    };
    ROOM.store(room, Ordering::Relaxed);
}

/// Whether it is limited.
#[must_use]
pub fn is_limited() -> bool {
    ROOM.load(Ordering::Relaxed) != u64::MAX
}

/// Whether a segment of so many bytes may be added.
///
/// # Errors
/// ENOMEM: the program's limit of address space leaves no room for it.
pub fn may_add(bytes: usize) -> Result<()> {
    if mapped().0.saturating_add(bytes as u64) > ROOM.load(Ordering::Relaxed) {
        return Err(Errno::NOMEM);
    }
    Ok(())
}

impl Drop for Mapping {
    fn drop(&mut self) {
        MAPPED.fetch_sub(self.len as u64, Ordering::Relaxed);
        DATA.fetch_sub(self.data, Ordering::Relaxed);
        if self.shared {
            return retired::retire(self.base, self.len);
        }
        // SAFETY: the range is this mapping, and its owner is going away.
        let _ = unsafe { syscall!(munmap, self.base.as_ptr(), self.len) };
    }
}

/// Creates an unnamed memory file of `len` bytes that can never shrink.
///
/// # Errors
/// ENOSYS without memfd, EMFILE, EFBIG under a small RLIMIT_FSIZE (asked first: the kernel would send
/// SIGXFSZ).
pub fn memory_file(name: &CStr, len: usize) -> Result<Fd> {
    if rlimit(libc::RLIMIT_FSIZE).is_some_and(|(soft, _)| soft < len as u64) {
        return Err(Errno(libc::EFBIG));
    }
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: `name` is a C string.
    let fd = Fd::own(as_fd(unsafe {
        syscall!(memfd_create, name.as_ptr(), flags)
    }?));
    // SAFETY: no pointers.
    unsafe { syscall!(ftruncate, fd.raw(), len) }?;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: no pointers.
    unsafe { syscall!(fcntl, fd.raw(), libc::F_ADD_SEALS, seals) }?;
    Ok(fd)
}

/// The size of a memory file received from somebody else, if it is one that cannot shrink under us
/// (a file that shrinks turns a load into SIGBUS).
#[must_use]
pub fn sealed_size(file: &Fd) -> Option<usize> {
    // SAFETY: no pointers.
    let seals = unsafe { syscall!(fcntl, file.raw(), libc::F_GET_SEALS) }.ok()?;
    if seals & libc::F_SEAL_SHRINK.cast_unsigned() as usize == 0 {
        return None;
    }
    let mut st = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: `st` is writable memory of the size that fstat fills.
    unsafe { syscall!(fstat, file.raw(), st.as_mut_ptr()) }.ok()?;
    // SAFETY: zeroed, then filled by the kernel.
    usize::try_from(unsafe { st.assume_init() }.st_size).ok()
}

/// A resource limit: (soft, hard).
#[must_use]
pub fn rlimit(which: libc::__rlimit_resource_t) -> Option<(u64, u64)> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is writable memory of the right type.
    unsafe { syscall!(prlimit64, 0, which, 0, &raw mut limit) }.ok()?;
    Some((limit.rlim_cur, limit.rlim_max))
}

/// Sets a resource limit.
///
/// # Errors
/// EPERM, EINVAL.
pub fn set_rlimit(which: libc::__rlimit_resource_t, (soft, hard): (u64, u64)) -> Result<()> {
    let limit = libc::rlimit {
        rlim_cur: soft,
        rlim_max: hard,
    };
    // SAFETY: `limit` is readable memory of the right type.
    unsafe { syscall!(prlimit64, 0, which, &raw const limit, 0) }.map(drop)
}
