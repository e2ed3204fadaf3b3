//! What the kernel says of the program's mappings (PROCMAP_QUERY, Linux 6.11): a question of half a
//! microsecond, where reading the list would cost more than copying the message.

use std::sync::atomic::{AtomicI32, Ordering};
use transport::sys::fd::{Fd, as_fd};
use transport::sys::{Errno, Result};
use transport::syscall;

/// struct procmap_query.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    flags: u64,
    at: u64,
    start: u64,
    end: u64,
    vma_flags: u64,
    page: u64,
    offset: u64,
    inode: u64,
    major: u32,
    minor: u32,
    name_size: u32,
    build_id_size: u32,
    name: u64,
    build_id: u64,
}

/// _IOWR('f', 17, struct procmap_query)
const PROCMAP_QUERY: u32 = 3 << 30 | (size_of::<Query>() as u32) << 16 | 0x66 << 8 | 17;

const WRITABLE: u64 = 2;
const EXECUTABLE: u64 = 4;
const SHARED: u64 = 8;

/// A mapping.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapping {
    pub(super) start: usize,
    pub(super) end: usize,
    flags: u64,
    page: u64,
    inode: u64,
}

impl Mapping {
    /// Memory of this process alone and of no file, in ordinary pages, not code.
    pub(super) const fn is_private(&self) -> bool {
        self.flags & (EXECUTABLE | SHARED) == 0
            && self.inode == 0
            && self.page == super::PAGE as u64
    }

    pub(super) const fn is_writable(&self) -> bool {
        self.flags & WRITABLE != 0
    }
}

/// /proc/self/maps, open; -1 before and in children, whose own it would not be.
static MAPS: AtomicI32 = AtomicI32::new(-1);

/// Opens it. Once a process, before the first question.
pub(super) fn open() -> Result<()> {
    let path = c"/proc/self/maps";
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: a C string.
    let maps = unsafe { syscall!(openat, libc::AT_FDCWD, path.as_ptr(), flags) }?;
    close();
    MAPS.store(Fd::own(as_fd(maps)).hide().leak(), Ordering::Relaxed);
    Ok(())
}

/// Closes it: in a child, where it shows its parent's.
pub(super) fn close() {
    let maps = MAPS.swap(-1, Ordering::Relaxed);
    if maps >= 0 {
        drop(Fd::own(maps));
    }
}

/// The mapping that an address is in, and its name as far as there is room for it.
pub(super) fn find(at: usize, name: &mut [u8]) -> Result<Mapping> {
    let mut q = Query {
        size: size_of::<Query>() as u64,
        at: at as u64,
        name_size: u32::try_from(name.len()).unwrap_or(0),
        name: if name.is_empty() {
            0
        } else {
            name.as_mut_ptr().expose_provenance() as u64
        },
        ..Query::default()
    };
    let maps = MAPS.load(Ordering::Relaxed);
    // SAFETY: the structure is the kernel's, and the name has room for what it says.
    unsafe { syscall!(ioctl, maps, PROCMAP_QUERY, &raw mut q) }?;
    let word = |v: u64| usize::try_from(v).map_err(|_| Errno::INVAL);
    Ok(Mapping {
        start: word(q.start)?,
        end: word(q.end)?,
        flags: q.vma_flags,
        page: q.page,
        inode: q.inode,
    })
}

/// Whether an address is on the stack that the process began with.
pub(super) fn is_main_stack(at: usize) -> Option<Mapping> {
    let mut name = [0u8; 64];
    let mapping = find(at, &mut name).ok()?;
    name.starts_with(b"[stack]\0").then_some(mapping)
}
