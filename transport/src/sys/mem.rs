//! Memory files, mappings and limits.

use super::{Errno, Result, fd::Fd, fd::as_fd};
use crate::syscall;
use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A mapping that unmaps itself.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
    /// Others of this process may still be looking when its owner goes: see [`retire`].
    shared: bool,
    /// Bytes that count as data of the program's (RLIMIT_DATA).
    data: u64,
}

/// Addresses of shared memory that has gone, as pages of base and length: empty memory is there for
/// threads that were on their way to look when a connection ended under them. The oldest are unmapped: some stay in any case,
/// and many as long as they are small. (A program that closes a thousand connections at once may do so while a thread of ours that
/// goes through them is kept from its core.)
static RETIRED: [AtomicU64; 4096] = [const { AtomicU64::new(0) }; 4096];
static NEXT_RETIRED: AtomicUsize = AtomicUsize::new(0);
static OLDEST_RETIRED: AtomicUsize = AtomicUsize::new(0);
static RETIRED_PAGES: AtomicU64 = AtomicU64::new(0);
/// How many stay, and how many pages of address space more may: that counts where it is limited (RLIMIT_AS).
const STAY: usize = 64;
const STAY_PAGES: u64 = (64 * 1024 * 1024) >> PAGE_BITS;
/// Bits of a retired entry for the length, in pages.
const LEN_BITS: u32 = 28;
const PAGE_BITS: u32 = 12;

/// Gives memory back that was leaked, but keeps its addresses valid for a while.
///
/// # Safety
/// The whole of a mapping, that nobody uses any more but threads that were on their way to look.
pub unsafe fn retire_at(base: NonNull<u8>, len: usize) {
    retire(base, len);
}

/// Gives the memory back, but keeps the addresses valid for a while.
fn retire(base: NonNull<u8>, len: usize) {
    let flags = libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let lay = |kind| {
        // SAFETY: the range is a mapping whose owner is going away; it stays mapped.
        unsafe { syscall!(mmap, base.as_ptr(), len, prot, flags | kind, -1i32, 0) }
    };
    // (what is private may count as data of the program's, RLIMIT_DATA, and there be no room for it)
    let kept = lay(libc::MAP_PRIVATE).or_else(|_| lay(libc::MAP_SHARED));
    let pages = len.div_ceil(1 << PAGE_BITS) as u64;
    if kept.is_err() || pages >> LEN_BITS != 0 {
        // SAFETY: as above.
        let _ = unsafe { syscall!(munmap, base.as_ptr(), len) };
        return;
    }
    let word = (base.addr().get() as u64 >> PAGE_BITS) << LEN_BITS | pages;
    RETIRED_PAGES.fetch_add(pages, Ordering::Relaxed);
    let at = NEXT_RETIRED.fetch_add(1, Ordering::AcqRel);
    exchange(at, word);
    loop {
        let oldest = OLDEST_RETIRED.load(Ordering::Acquire);
        let n = NEXT_RETIRED.load(Ordering::Acquire).wrapping_sub(oldest);
        let large = RETIRED_PAGES.load(Ordering::Relaxed) > STAY_PAGES;
        // (some places are left free: the next ones are stored before the oldest are taken out)
        if n <= STAY || n + STAY <= RETIRED.len() && !large {
            return;
        }
        let next = oldest.wrapping_add(1);
        let (yes, no) = (Ordering::AcqRel, Ordering::Relaxed);
        if OLDEST_RETIRED
            .compare_exchange(oldest, next, yes, no)
            .is_ok()
        {
            exchange(oldest, 0);
        }
    }
}

/// Puts an entry in its place, and unmaps what was there.
fn exchange(at: usize, word: u64) {
    let slot = RETIRED.get(at % RETIRED.len());
    let old = slot.map_or(0, |slot| slot.swap(word, Ordering::AcqRel));
    if old != 0 {
        let (at, pages) = (old >> LEN_BITS, old & ((1 << LEN_BITS) - 1));
        // SAFETY: a range that was retired, by whoever took it out of the list alone.
        let _ = unsafe { syscall!(munmap, at << PAGE_BITS, pages << PAGE_BITS) };
        RETIRED_PAGES.fetch_sub(pages, Ordering::Relaxed);
    }
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
            return retire(self.base, self.len);
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

#[cfg(test)]
mod tests {
    use super::{Mapping, RETIRED, memory_file};

    #[test]
    fn what_was_retired_last_can_be_read_however_many_were() {
        let file = memory_file(c"retired", 4096).unwrap();
        for _ in 0..RETIRED.len() + 500 {
            let mapping = Mapping::shared(&file, 0, 4096).unwrap();
            let at = mapping.base().as_ptr();
            drop(mapping);
            // SAFETY: what this test is about: empty memory is there.
            assert_eq!(unsafe { at.read_volatile() }, 0);
        }
    }
}
