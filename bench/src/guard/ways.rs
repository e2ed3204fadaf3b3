//! The mechanisms: memory that is protected, by mprotect or by userfaultfd's write protection; pages that a
//! pipe refers to; frames that are replaced. Each call here is one step of what the library does.

use anyhow::{Context, ensure};
use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::time::Instant;

pub(super) const PAGE: usize = 4096;

/// Private memory, all of it there.
pub(super) struct Memory {
    at: *mut u8,
    len: usize,
}

impl Memory {
    pub(super) fn new(len: usize) -> anyhow::Result<Self> {
        let (both, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a new mapping.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, both, flags, -1, 0) };
        ensure!(at != libc::MAP_FAILED, "mmap: {}", Error::last_os_error());
        let memory = Self { at: at.cast(), len };
        memory.dirty();
        Ok(memory)
    }

    /// Writes all of it, as a program does between two messages.
    pub(super) fn dirty(&self) {
        // SAFETY: this memory.
        unsafe { std::ptr::write_bytes(self.at, 1, self.len) };
    }

    pub(super) fn protect(&self, yes: bool) {
        let write = if yes { 0 } else { libc::PROT_WRITE };
        // SAFETY: this memory.
        unsafe { libc::mprotect(self.at.cast(), self.len, libc::PROT_READ | write) };
    }

    pub(super) fn copy_to(&self, to: &Self, len: usize) {
        // SAFETY: two mappings, both at least so long.
        unsafe { std::ptr::copy_nonoverlapping(self.at, to.at, len) };
    }

    /// New frames with the same contents, 64 KiB at a time.
    pub(super) fn renew(&self, len: usize) {
        const STEP: usize = 64 << 10;
        let mut scratch = [0u8; STEP];
        for from in (0..len).step_by(STEP) {
            let n = STEP.min(len - from);
            // SAFETY: inside this memory, which nobody else looks at.
            unsafe {
                let at = self.at.add(from);
                std::ptr::copy_nonoverlapping(at, scratch.as_mut_ptr(), n);
                libc::madvise(at.cast(), n, libc::MADV_DONTNEED);
                libc::madvise(at.cast(), n, libc::MADV_POPULATE_WRITE);
                std::ptr::copy_nonoverlapping(scratch.as_ptr(), at, n);
            }
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: this memory, which nobody refers to any more.
        unsafe { libc::munmap(self.at.cast(), self.len) };
    }
}

/// A userfaultfd of the kind that needs no privilege, which answers faults by SIGBUS.
pub(super) struct Userfault(OwnedFd);

impl Userfault {
    const API: u64 = 0xc018_aa3f;
    const REGISTER: u64 = 0xc020_aa00;
    const UNREGISTER: u64 = 0x8010_aa01;
    const WRITE_PROTECT: u64 = 0xc018_aa06;

    pub(super) fn register(memory: &Memory) -> anyhow::Result<Self> {
        const USER_MODE_ONLY: i32 = 1;
        // SAFETY: no pointers.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | USER_MODE_ONLY) };
        ensure!(fd >= 0, "userfaultfd: {}", Error::last_os_error());
        // SAFETY: a new descriptor.
        let this = Self(unsafe { OwnedFd::from_raw_fd(fd as i32) });
        // api, features (write protection, SIGBUS), ioctls
        let mut api = [0xaau64, 1 | 1 << 7, 0];
        // SAFETY: the kernel's structure.
        let done = unsafe { libc::ioctl(this.0.as_raw_fd(), Self::API, &raw mut api) } == 0;
        (done && this.add(memory))
            .then_some(this)
            .with_context(|| format!("userfaultfd: {}", Error::last_os_error()))
    }

    /// What has to come before the first protection of a memory.
    pub(super) fn add(&self, memory: &Memory) -> bool {
        // start, length, mode (write protection), ioctls
        let mut range = [memory.at.addr() as u64, memory.len as u64, 2, 0];
        // SAFETY: the kernel's structure.
        unsafe { libc::ioctl(self.0.as_raw_fd(), Self::REGISTER, &raw mut range) == 0 }
    }

    pub(super) fn remove(&self, memory: &Memory) {
        let range = [memory.at.addr() as u64, memory.len as u64];
        // SAFETY: the kernel's structure.
        unsafe { libc::ioctl(self.0.as_raw_fd(), Self::UNREGISTER, &raw const range) };
    }

    pub(super) fn protect(&self, memory: &Memory, yes: bool) {
        set_range(self.0.as_raw_fd(), memory.at.addr(), memory.len, yes);
    }
}

fn set_range(fd: i32, at: usize, len: usize, protect: bool) {
    let range = [at as u64, len as u64, u64::from(protect)];
    // SAFETY: the kernel's structure.
    unsafe { libc::ioctl(fd, Userfault::WRITE_PROTECT, &raw const range) };
}

/// Who answers a write.
pub(super) enum Fault<'a> {
    Protection,
    Userfault(&'a Userfault),
}

/// What the handler gives back, and by which descriptor (-1: mprotect).
static FAULT_AT: AtomicUsize = AtomicUsize::new(0);
static FAULT_BY: AtomicI32 = AtomicI32::new(-1);

extern "C" fn give_back(_: i32) {
    let (at, fd) = (
        FAULT_AT.load(Ordering::Relaxed),
        FAULT_BY.load(Ordering::Relaxed),
    );
    if fd >= 0 {
        return set_range(fd, at, PAGE, false);
    }
    let at = std::ptr::with_exposed_provenance_mut(at);
    // SAFETY: the page that was written to.
    unsafe { libc::mprotect(at, PAGE, libc::PROT_READ | libc::PROT_WRITE) };
}

/// A write to protected memory, microseconds until it is done: the handler gives one page back.
pub(super) fn fault(memory: &Memory, by: Fault<'_>) -> f64 {
    let middle = memory.at.wrapping_add((memory.len / 2) & !(PAGE - 1));
    FAULT_AT.store(middle.expose_provenance(), Ordering::Relaxed);
    let (signal, fd) = match by {
        Fault::Protection => (libc::SIGSEGV, -1),
        Fault::Userfault(u) => (libc::SIGBUS, u.0.as_raw_fd()),
    };
    FAULT_BY.store(fd, Ordering::Relaxed);
    // SAFETY: the handler makes one system call.
    let before = unsafe { libc::signal(signal, give_back as *const () as usize) };
    let start = Instant::now();
    // SAFETY: a byte of the memory.
    unsafe { middle.write_volatile(2) };
    let us = start.elapsed().as_secs_f64() * 1e6;
    // SAFETY: what was there before.
    unsafe { libc::signal(signal, before) };
    us
}

/// A pipe as large as it can be without privilege.
pub(super) struct Pipe {
    ends: [OwnedFd; 2],
    pub(super) capacity: usize,
}

impl Pipe {
    pub(super) fn new() -> anyhow::Result<Self> {
        let mut ends = [0; 2];
        // SAFETY: two ints are written.
        let made = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) };
        ensure!(made == 0, "pipe: {}", Error::last_os_error());
        // SAFETY: two new descriptors.
        let ends = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
        // SAFETY: no pointers.
        let capacity = unsafe { libc::fcntl(ends[1].as_raw_fd(), libc::F_SETPIPE_SZ, 1 << 20) };
        ensure!(capacity > 0, "pipe: {}", Error::last_os_error());
        Ok(Self {
            ends,
            capacity: capacity.unsigned_abs() as usize,
        })
    }

    pub(super) fn hold(&self, memory: &Memory, len: usize) {
        let part = vector(memory, len);
        // SAFETY: the memory.
        let n = unsafe { libc::vmsplice(self.ends[1].as_raw_fd(), &raw const part, 1, 0) };
        assert_eq!(n, len.cast_signed(), "the pipe was empty");
    }

    pub(super) fn drain(&self, to: &Memory) {
        // SAFETY: the memory.
        unsafe { libc::read(self.ends[0].as_raw_fd(), to.at.cast(), to.len) };
    }
}

fn vector(memory: &Memory, len: usize) -> libc::iovec {
    libc::iovec {
        iov_base: memory.at.cast(),
        iov_len: len,
    }
}

/// The copy that needs no pipe.
pub(super) fn pull(from: &Memory, to: &Memory, len: usize) {
    let (from, to) = (vector(from, len), vector(to, len));
    // SAFETY: both are this process's own.
    unsafe { libc::process_vm_readv(libc::getpid(), &raw const to, 1, &raw const from, 1, 0) };
}
