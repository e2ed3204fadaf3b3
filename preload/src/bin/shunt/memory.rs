//! Reads the records of another process out of its memory. That memory belongs to a program that may be
//! hostile and goes on while it is read: each number is copied once, checked, and only then used, and a
//! copied record is only printed.

use crate::processes::is_called;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use transport::record::{Record, STAT_MAGIC};
use transport::stat::Directory;

/// Records in one reading, below the kernel's limit of 1024 pieces.
const BATCH: usize = 256;
/// Records that a process can have.
const MOST: u64 = 1 << 20;
/// Bytes from one record to the next, at most.
const WIDEST: u64 = 1 << 16;

/// Where records lie in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    first: u64,
    stride: u64,
    count: u64,
}

/// The open connections of a process. The mappings are candidates for the page that leads to them;
/// nothing if none of them is such a page.
pub(crate) fn connections(pid: u32, mappings: &[u64]) -> io::Result<Option<Vec<Record>>> {
    for &at in mappings {
        let directory = directory(pid, at)?;
        if let Some(place) = place(&directory)
            && is_called(pid, directory.pid)
        {
            return Ok(Some(records(pid, place)));
        }
    }
    Ok(None)
}

fn directory(pid: u32, at: u64) -> io::Result<Directory> {
    let mut d = Directory {
        magic: 0,
        pid: 0,
        records: 0,
        stride: 0,
        count: AtomicU64::new(0),
    };
    let len = size_of::<Directory>();
    // SAFETY: `d` is writable for its size, and any bytes make a Directory: its fields are integers.
    let n = unsafe { read(pid, &[piece(at, len)], (&raw mut d).cast(), len) }?;
    if n == len {
        Ok(d)
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

/// What the page says, if that is possible.
fn place(d: &Directory) -> Option<Place> {
    let (first, stride) = (d.records, d.stride);
    let count = d.count.load(Ordering::Relaxed);
    let sound = d.magic == STAT_MAGIC
        && (size_of::<Record>() as u64..=WIDEST).contains(&stride)
        && stride.is_multiple_of(8)
        && first.is_multiple_of(8)
        && first != 0
        && count <= MOST
        && first.checked_add(stride * count).is_some();
    sound.then_some(Place {
        first,
        stride,
        count,
    })
}

/// Every live record, as far as they can be read.
fn records(pid: u32, place: Place) -> Vec<Record> {
    let mut live = Vec::new();
    let mut batch: Vec<Record> = Vec::new();
    batch.resize_with(BATCH, Record::default);
    let addresses: Vec<u64> = (0..place.count)
        .map(|i| place.first + i * place.stride)
        .collect();
    for addresses in addresses.chunks(BATCH) {
        let pieces: Vec<_> = addresses
            .iter()
            .map(|&at| piece(at, size_of::<Record>()))
            .collect();
        let len = size_of::<Record>() * pieces.len();
        // SAFETY: the batch is writable for BATCH records, and there are no more pieces than that. Any
        // bytes make a Record: its fields are atomic integers.
        let read = unsafe { read(pid, &pieces, batch.as_mut_ptr().cast(), len) };
        let whole = read.unwrap_or(0) / size_of::<Record>();
        let read = batch.iter_mut().take(whole).map(std::mem::take);
        live.extend(read.filter(is_live));
        if whole < pieces.len() {
            break;
        }
    }
    live
}

fn is_live(r: &Record) -> bool {
    r.live.load(Ordering::Relaxed) != 0 && r.role.load(Ordering::Relaxed) != 0
}

/// `len` bytes at an address in the other process, which is the kernel's to check.
fn piece(at: u64, len: usize) -> libc::iovec {
    libc::iovec {
        iov_base: std::ptr::without_provenance_mut(usize::try_from(at).unwrap_or(0)),
        iov_len: len,
    }
}

/// process_vm_readv(2) into one buffer.
///
/// # Safety
/// `into` is valid for `len` bytes of writing, and any bytes make what lies there.
unsafe fn read(
    pid: u32,
    pieces: &[libc::iovec],
    into: *mut libc::c_void,
    len: usize,
) -> io::Result<usize> {
    let local = libc::iovec {
        iov_base: into,
        iov_len: len,
    };
    let count = pieces.len() as libc::c_ulong;
    // SAFETY: the kernel writes to `into` only, by the caller's promise, and checks the rest.
    let n = unsafe {
        libc::process_vm_readv(
            pid.cast_signed(),
            &raw const local,
            1,
            pieces.as_ptr(),
            count,
            0,
        )
    };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use transport::reason::Reason;

    const SIZE: u64 = size_of::<Record>() as u64;

    fn page(records: u64, stride: u64, count: u64) -> Directory {
        let (pid, count) = (std::process::id(), AtomicU64::new(count));
        Directory {
            magic: STAT_MAGIC,
            pid,
            records,
            stride,
            count,
        }
    }

    fn address<T>(of: &T) -> u64 {
        std::ptr::from_ref(of).expose_provenance() as u64
    }

    fn own(d: &Directory) -> Option<Vec<Record>> {
        connections(std::process::id(), &[address(d)]).unwrap()
    }

    #[test]
    fn live_records_with_a_role_are_read() {
        let mut records: Vec<Record> = Vec::new();
        records.resize_with(600, Record::default);
        for (at, role) in [(3, 1), (299, 0), (599, 2)] {
            records[at].begin(i32::try_from(at).unwrap(), role, Reason::PeerPlain);
        }
        let read = own(&page(address(&records[0]), SIZE, 600)).unwrap();
        let fds: Vec<_> = read.iter().map(|r| r.fd.load(Ordering::Relaxed)).collect();
        assert_eq!(fds, [3, 599]);
    }

    #[test]
    fn a_page_that_cannot_be_is_refused() {
        let good = || page(0x1000, 256, 5);
        assert!(place(&good()).is_some());
        assert!(place(&Directory { magic: 0, ..good() }).is_none());
        assert!(
            place(&Directory {
                stride: SIZE - 8,
                ..good()
            })
            .is_none()
        );
        assert!(
            place(&Directory {
                stride: SIZE + 1,
                ..good()
            })
            .is_none()
        );
        assert!(
            place(&Directory {
                stride: u64::MAX - 7,
                ..good()
            })
            .is_none()
        );
        assert!(
            place(&Directory {
                records: 0x1001,
                ..good()
            })
            .is_none()
        );
        assert!(
            place(&Directory {
                records: u64::MAX - 7,
                ..good()
            })
            .is_none()
        );
        assert!(
            place(&Directory {
                count: AtomicU64::new(u64::MAX),
                ..good()
            })
            .is_none()
        );
        let other = Directory {
            pid: u32::MAX,
            ..good()
        };
        assert!(own(&other).is_none());
    }

    #[test]
    fn memory_that_is_not_there_ends_the_reading() {
        assert_eq!(own(&page(8, SIZE, MOST)).map(|r| r.len()), Some(0));
        let one = Record::default();
        one.begin(1, 1, Reason::None);
        // Runs from the stack into whatever lies beyond it; must only come to an end.
        assert!(!own(&page(address(&one), WIDEST, MOST)).unwrap().is_empty());
        assert!(connections(std::process::id(), &[8]).is_err());
        assert!(connections(u32::MAX >> 1, &[8]).is_err());
    }
}
