//! Reads the records of another process out of its memory, and leaves a request there. That memory
//! belongs to a program that may be hostile and goes on while it is read: each number is copied once,
//! checked, and only then used, and a copied record is only printed.

use crate::processes::is_called;
use std::io;
use std::mem::offset_of;
use std::sync::atomic::Ordering;
use transport::record::{Record, STAT_MAGIC};
use transport::stat::{Directory, Request};

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
    Ok(page(pid, mappings)?.map(|page| page.records()))
}

/// The library's page in a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page {
    pid: u32,
    at: u64,
    place: Place,
    attention: u64,
}

/// The page among the mappings that are candidates for it, if one is.
pub(crate) fn page(pid: u32, mappings: &[u64]) -> io::Result<Option<Page>> {
    for &at in mappings {
        let directory = directory(pid, at)?;
        if let Some(place) = place(&directory)
            && is_called(pid, directory.pid)
        {
            return Ok(Some(Page {
                pid,
                at,
                place,
                attention: directory.attention,
            }));
        }
    }
    Ok(None)
}

impl Page {
    /// The open connections.
    pub(crate) fn records(&self) -> Vec<Record> {
        records(self.pid, self.place)
    }

    /// Leaves a request, or says again that it is there.
    pub(crate) fn ask(&self, request: Request) -> io::Result<()> {
        let word = request.word().to_ne_bytes();
        self.write(self.at + offset_of!(Directory, asked) as u64, &word)?;
        self.write(self.attention, &1u32.to_ne_bytes())
    }

    /// How many connections have gone back, once the request has been carried out.
    pub(crate) fn answer(&self, request: Request) -> io::Result<Option<u32>> {
        Ok(directory(self.pid, self.at)?.answer_to(request))
    }

    /// Notes whose sleep is being ended, and returns where; nothing if there is no place for it.
    pub(crate) fn note_knock(&self, thread: u64) -> io::Result<Option<usize>> {
        let noted = directory(self.pid, self.at)?.knocked;
        let free = |&at: &usize| {
            noted
                .get(at)
                .is_some_and(|t| t.load(Ordering::Relaxed) == 0)
        };
        let Some(place) = (0..noted.len()).find(free) else {
            return Ok(None);
        };
        self.set_knock(place, thread)?;
        Ok(Some(place))
    }

    /// Takes a note back: the sleep was not ended after all.
    pub(crate) fn drop_knock(&self, place: usize) -> io::Result<()> {
        self.set_knock(place, 0)
    }

    fn set_knock(&self, place: usize, thread: u64) -> io::Result<()> {
        let at = offset_of!(Directory, knocked) + place * size_of::<u64>();
        self.write(self.at + at as u64, &thread.to_ne_bytes())
    }

    /// process_vm_writev(2) of a word.
    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let local = libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        let remote = piece(at, bytes.len());
        let pid = self.pid.cast_signed();
        // SAFETY: the bytes are only read; the other address is the kernel's to check.
        let n =
            unsafe { libc::process_vm_writev(pid, &raw const local, 1, &raw const remote, 1, 0) };
        match usize::try_from(n) {
            Ok(n) if n == bytes.len() => Ok(()),
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }
}

fn directory(pid: u32, at: u64) -> io::Result<Directory> {
    let mut d = Directory::default();
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
    use transport::stat::KNOCKS;

    const SIZE: u64 = size_of::<Record>() as u64;

    fn page(records: u64, stride: u64, count: u64) -> Directory {
        let (pid, count) = (std::process::id(), count.into());
        Directory {
            magic: STAT_MAGIC,
            pid,
            records,
            stride,
            count,
            ..Directory::default()
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
                count: u64::MAX.into(),
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
    fn a_request_arrives_and_its_answer_is_found() {
        let attention = transport::stat::Attention::new(0);
        let record = Record::default();
        let d = Directory {
            attention: address(&attention),
            ..page(address(&record), SIZE, 1)
        };
        let page = super::page(std::process::id(), &[address(&d)])
            .unwrap()
            .unwrap();
        let (ticket, fd) = (9, Some(4));
        let request = Request { ticket, fd };
        page.ask(request).unwrap();
        assert_eq!(attention.load(Ordering::Relaxed), 1);
        assert_eq!(d.request(), Some(request));
        assert_eq!(page.answer(request).unwrap(), None);
        d.answer(request, 2);
        assert_eq!(page.answer(request).unwrap(), Some(2));
        for thread in 70..70 + KNOCKS as u64 {
            assert!(page.note_knock(thread).unwrap().is_some());
        }
        assert_eq!(page.note_knock(99).unwrap(), None);
        assert!(d.take_knock(77) && !d.take_knock(77) && !d.take_knock(99));
        page.drop_knock(0).unwrap();
        assert!(!d.take_knock(70));
        assert_eq!(page.note_knock(99).unwrap(), Some(0));
        let nowhere = Page {
            attention: 8,
            ..page
        };
        assert!(nowhere.ask(request).is_err());
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
