//! What the tests are made of: processes, buffers that remember what they were sent with, and the reader.

use crate::guard::{Lane, Refusal};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use transport::direct::far::FarEnd;

pub(crate) const PAGE: usize = 4096;
pub(crate) const MIB: usize = 1 << 20;

/// Runs it in a process of its own; how that ended.
pub(crate) fn in_child(test: impl FnOnce()) -> String {
    // SAFETY: there is one thread.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: no pointers.
            unsafe { libc::alarm(30) };
            test();
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) }
        }
        pid => ended(pid),
    }
}

/// Why the guard cannot work on this machine at all.
pub(crate) fn unable() -> Option<&'static str> {
    let ending = in_child(|| {
        let code = match Lane::new() {
            Err(Refusal::Kernel) => 2,
            Err(Refusal::Sandbox) => 3,
            _ => 0,
        };
        // SAFETY: ends the child.
        unsafe { libc::_exit(code) }
    });
    match ending.as_str() {
        "exit 2" => Some("the kernel lacks something"),
        "exit 3" => Some("a sandbox"),
        _ => None,
    }
}

/// How a child has ended.
pub(crate) fn ended(pid: i32) -> String {
    let mut status = 0;
    // SAFETY: the status is written.
    while unsafe { libc::waitpid(pid, &raw mut status, 0) } != pid {}
    let status = ExitStatus::from_raw(status);
    status.code().map_or_else(
        || format!("signal {}", status.signal().unwrap_or(0)),
        |code| format!("exit {code}"),
    )
}

/// Numbers that look random.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub(crate) fn fill(&mut self, to: &mut [u8]) {
        for chunk in to.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
    }
}

/// Private memory straight from the kernel, never unmapped by itself.
pub(crate) fn map(len: usize) -> &'static mut [u8] {
    map_as(
        len,
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        -1,
    )
}

pub(crate) fn map_as(len: usize, protection: i32, flags: i32, fd: i32) -> &'static mut [u8] {
    // SAFETY: a new mapping.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    // SAFETY: the mapping, which stays for as long as a test wants it.
    unsafe { std::slice::from_raw_parts_mut(at.cast(), len) }
}

/// A lane and its reader.
pub(crate) struct Wire {
    pub(crate) lane: Lane,
    far: FarEnd,
}

impl Wire {
    pub(crate) fn new() -> Self {
        let lane = Lane::new().unwrap();
        // SAFETY: no pointers.
        let far = FarEnd::fetch(unsafe { libc::getpid() } as u32, lane.far_fd(), || true).unwrap();
        Self { lane, far }
    }

    pub(crate) fn send(&self, bytes: &[u8]) -> Result<usize, Refusal> {
        // SAFETY: the slice.
        unsafe { self.lane.send(bytes.as_ptr(), bytes.len()) }
    }

    /// Sends all of it, and gives what the reader has to see.
    #[track_caller]
    pub(crate) fn send_all(&self, bytes: &[u8]) -> Vec<u8> {
        let copy = bytes.to_vec();
        assert_eq!(self.send(bytes), Ok(bytes.len()));
        assert!(crate::guard::is_live());
        copy
    }

    pub(crate) fn read(&self, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        let mut done = 0;
        while done < len {
            // SAFETY: the vector's rest.
            done += unsafe { self.far.read(out[done..].as_mut_ptr(), len - done) }.unwrap();
        }
        out
    }

    /// The reader gets exactly this.
    #[track_caller]
    pub(crate) fn expect(&self, sent: &[u8]) {
        let got = self.read(sent.len());
        let wrong = got.iter().zip(sent).position(|(a, b)| a != b);
        assert_eq!(wrong, None, "of {} bytes", sent.len());
        assert_eq!(unread(&self.lane), 0);
    }
}

/// What the reader has not taken yet.
pub(crate) fn unread(lane: &Lane) -> usize {
    let mut unread = 0i32;
    // SAFETY: an int is written.
    unsafe { libc::ioctl(lane.far_fd(), libc::FIONREAD, &raw mut unread) };
    unread as usize
}

/// A buffer with something in it.
pub(crate) fn filled(len: usize) -> &'static mut [u8] {
    let buffer = map(len);
    Random::new(len as u64).fill(buffer);
    buffer
}
