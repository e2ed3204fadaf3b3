//! What a process does by its rings of io_uring, as far as their submission queues still tell: each entry stays where it was
//! written until another takes its place.
//!
//! Called where a connection begins (`preload::sockets::uring`). The rule: a ring is for files only if it has been used, for a
//! file, and nothing in it says or hides that it is used for anything else. In doubt it is for sockets.

use super::mem::Mapping;
use super::{fd, listing};
use crate::syscall;
use std::ffi::CString;

/// What the rings of this process are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// There are none.
    None,
    /// Of files, at least one of them; the others have not been used.
    Files,
    /// None has been used.
    Nothing,
    /// Of sockets, or of what nobody can tell.
    Sockets,
}

/// Where the submission queue's entries lie (`IORING_OFF_SQES`), and the most of them that are looked at.
const ENTRIES: u64 = 0x1000_0000;
const MOST: usize = 4096;
/// Bytes of an entry, and where its parts stand (`struct io_uring_sqe`).
const ENTRY: usize = 64;
const FD_AT: usize = 4;
const OFFSET_AT: usize = 8;
/// The descriptor is a number of the ring's own.
const FIXED_FILE: u8 = 1;

/// What one entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    Nothing,
    File,
    Socket,
}

/// What the rings among the lowest `most` descriptors are used for.
#[must_use]
pub fn used_for(most: usize) -> Use {
    let mut all = Use::None;
    listing::each(b"anon_inode:[io_uring]", most, |ring| {
        all = match (all, of(ring)) {
            (Use::Sockets, _) | (_, Use::Sockets) => Use::Sockets,
            (Use::Files, _) | (_, Use::Files) => Use::Files,
            _ => Use::Nothing,
        };
    });
    all
}

fn of(ring: i32) -> Use {
    // (the program may close it meanwhile: behind another number is what the kernel has called a ring)
    let Ok(ring) = fd::another(ring) else {
        return Use::Sockets;
    };
    let Some(many) = length(ring.raw()).filter(|&many| many <= MOST) else {
        return Use::Sockets;
    };
    let Ok(entries) = Mapping::window(ring.raw(), ENTRIES, many * ENTRY) else {
        return Use::Sockets; // the program's own memory, which nobody names
    };
    let mut all = Use::Nothing;
    for at in (0..entries.len()).step_by(ENTRY) {
        // SAFETY: inside the mapping, and a ring is not cut as a file is. The program may write there meanwhile: these are
        // bytes of any value, each read once.
        let entry = unsafe {
            entries
                .base()
                .cast::<[u8; 16]>()
                .byte_add(at)
                .read_volatile()
        };
        match says(&entry, kind) {
            Says::Socket => return Use::Sockets,
            Says::File => all = Use::Files,
            Says::Nothing => {}
        }
    }
    all
}

/// How many entries the queue of a ring has. `None` where the kernel does not tell.
fn length(ring: i32) -> Option<usize> {
    let mut text = [0u8; 512];
    let path = CString::new(format!("/proc/self/fdinfo/{ring}")).ok()?;
    let file = fd::open(&path, 0).ok()?;
    // SAFETY: room for as many bytes.
    let n = unsafe { syscall!(read, file.raw(), text.as_mut_ptr(), text.len()) }.ok()?;
    last_entry(text.get(..n)?).map(|last| last + 1)
}

/// The number of the last entry, as the kernel tells it of a ring's descriptor (a line `SqMask`).
fn last_entry(text: &[u8]) -> Option<usize> {
    let text = text.utf8_chunks().next()?.valid();
    let mask = text.lines().find_map(|line| line.strip_prefix("SqMask:"))?;
    let mask = usize::from_str_radix(mask.trim().strip_prefix("0x")?, 16).ok()?;
    (mask & mask.wrapping_add(1) == 0).then_some(mask)
}

/// What an entry says, if `kind` tells what a descriptor is. (Numbers of operations: `enum io_uring_op`.)
fn says(entry: &[u8; 16], kind: impl Fn(i32) -> Says) -> Says {
    let part = |at: usize| entry.get(at..).unwrap_or_default();
    let fd = part(FD_AT)
        .first_chunk()
        .map_or(-1, |b| i32::from_ne_bytes(*b));
    let offset = part(OFFSET_AT)
        .first_chunk()
        .map_or(0, |b| u64::from_ne_bytes(*b));
    let [operation, flags, ..] = *entry;
    match operation {
        // Reading, writing and what goes with it: of files or of anything.
        1..=5 | 8 | 17 | 22..=24 => {
            if flags & FIXED_FILE != 0 {
                return Says::Socket;
            }
            match kind(fd) {
                // (it stood for a file then: nobody gives a socket a place in it)
                Says::Socket if offset != 0 && offset != u64::MAX => Says::Nothing,
                of => of,
            }
        }
        // Waiting for a descriptor.
        6 => match kind(fd) {
            Says::Socket => Says::Socket,
            _ if flags & FIXED_FILE != 0 => Says::Socket,
            _ => Says::Nothing,
        },
        // Time-outs, cancellation, names of files, buffers, messages between rings.
        0 | 7 | 11 | 12 | 14 | 15 | 18..=21 | 25 | 28 | 31 | 32 | 35..=44 => Says::Nothing,
        _ => Says::Socket,
    }
}

/// What a descriptor is.
fn kind(descriptor: i32) -> Says {
    match fd::kind(descriptor) {
        Some(libc::S_IFREG | libc::S_IFBLK) => Says::File,
        Some(libc::S_IFSOCK) => Says::Socket,
        _ => Says::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(operation: u8, flags: u8, fd: i32, offset: u64) -> [u8; 16] {
        let mut e = [0; 16];
        (e[0], e[1]) = (operation, flags);
        e[FD_AT..FD_AT + 4].copy_from_slice(&fd.to_ne_bytes());
        e[OFFSET_AT..].copy_from_slice(&offset.to_ne_bytes());
        e
    }

    /// Descriptor 3 is a file, 4 a socket.
    fn told(e: [u8; 16]) -> Says {
        says(&e, |fd| match fd {
            3 => Says::File,
            4 => Says::Socket,
            _ => Says::Nothing,
        })
    }

    #[test]
    fn a_ring_tells_its_length() {
        let told = |text: &str| last_entry(text.as_bytes());
        assert_eq!(
            told("pos:\t0\nino:\t9\nSqMask:\t0xff\nSqHead:\t3\n"),
            Some(255)
        );
        assert_eq!(told("pos:\t0\nino:\t9\n"), None);
        assert_eq!(told("SqMask:\t0x6\n"), None);
        assert_eq!(told("SqMask:\tffffffffffffffffffffff\n"), None);
    }

    #[test]
    fn an_unused_entry_says_nothing() {
        assert_eq!(told([0; 16]), Says::Nothing);
    }

    #[test]
    fn reading_and_writing_are_what_their_descriptor_is() {
        for operation in [1, 2, 4, 5, 22, 23] {
            assert_eq!(told(entry(operation, 0, 3, 8192)), Says::File);
            assert_eq!(told(entry(operation, 0, 4, 0)), Says::Socket);
            assert_eq!(told(entry(operation, 0, 4, u64::MAX)), Says::Socket);
            // (a number that was a file's when it was read from)
            assert_eq!(told(entry(operation, 0, 4, 8192)), Says::Nothing);
            assert_eq!(told(entry(operation, 0, 9, 0)), Says::Nothing);
            assert_eq!(told(entry(operation, FIXED_FILE, 3, 0)), Says::Socket);
        }
    }

    #[test]
    fn what_only_sockets_do_is_theirs_and_so_is_the_unknown() {
        for operation in [9, 10, 13, 16, 26, 27, 29, 30, 33, 34, 45, 46, 47, 48, 200] {
            assert_eq!(told(entry(operation, 0, 3, 0)), Says::Socket, "{operation}");
        }
        assert_eq!(told(entry(6, 0, 4, 0)), Says::Socket);
        assert_eq!(told(entry(6, 0, 7, 0)), Says::Nothing);
    }

    #[test]
    fn a_process_without_rings_uses_none() {
        assert_eq!(used_for(10_000), Use::None);
    }
}
