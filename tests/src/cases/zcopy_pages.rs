//! Large messages from and into the same addresses, behind which other pages lie each time: unmapped and mapped anew, moved, given back,
//! copied because somebody has written. Whoever remembers a buffer by its address must not mean the pages that lay there once.

use super::Case;
use super::MOVES;
use super::zcopy::Bytes;
use super::zcopy_read::introduce;
use crate::log;
use crate::side::{Random, Side};
use crate::sys::{call, io, proc, wait};
use libc::{
    MADV_DONTNEED, MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_PRIVATE, MREMAP_FIXED,
    MREMAP_MAYMOVE, MSG_NOSIGNAL, MSG_WAITALL, PROT_READ, PROT_WRITE,
};

pub(super) const CASES: &[Case] = &[
    Case::pair("zcopy_other_pages_at_one_place", |s| other_pages(s, 60, 0)).large(1),
    Case::pair("zcopy_pages_shared_with_children", |s| {
        other_pages(s, 24, 6);
    })
    .processes_only()
    .any_path(MOVES)
    .large(0),
];

const PAGE: usize = 4096;
const LEN: usize = 75 * PAGE;
/// Where in its pages a message begins.
const OFFSETS: [usize; 3] = [0, 1, 1000];
const MESSAGE: usize = LEN - PAGE;

/// An address where pages come and go, and one where those go that are moved away.
struct Place {
    at: usize,
    aside: usize,
    /// What lies aside.
    kept: Vec<u8>,
}

/// Fresh pages at this address where nothing lies there; else (other threads map memory as well) at any.
fn fresh(at: usize) -> usize {
    let (rights, flags) = (PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    let here = flags | MAP_FIXED_NOREPLACE;
    let got = call!(libc::mmap(at as *mut _, LEN, rights, here, -1, 0));
    if at != 0 && got.0 >= 0 {
        return got.ok();
    }
    call!(libc::mmap(std::ptr::null_mut(), LEN, rights, flags, -1, 0)).ok()
}

fn move_pages(from: usize, to: usize) {
    let flags = MREMAP_MAYMOVE | MREMAP_FIXED;
    call!(libc::mremap(from as *mut _, LEN, LEN, flags, to)).ok();
}

impl Place {
    fn new() -> Self {
        Self {
            at: fresh(0),
            aside: fresh(0),
            kept: vec![0; LEN],
        }
    }

    #[allow(clippy::mut_from_ref)]
    fn slice(&self) -> &mut [u8] {
        // SAFETY: mapped, and the case makes one of these at a time.
        unsafe { std::slice::from_raw_parts_mut(self.at as *mut u8, LEN) }
    }

    fn aside(&self) -> &[u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(self.aside as *const u8, LEN) }
    }

    /// Other pages lie there from here on.
    fn change(&mut self, how: usize) {
        match how {
            0 => {
                call!(libc::munmap(self.at as *mut _, LEN)).ok();
                self.at = fresh(self.at);
            }
            1 => {
                self.kept = self.slice().to_vec();
                move_pages(self.at, self.aside);
                self.at = fresh(self.at);
            }
            2 => {
                move_pages(self.aside, self.at);
                self.aside = fresh(self.aside);
                self.kept.fill(0);
            }
            3 => {
                call!(libc::madvise(self.at as *mut _, LEN, MADV_DONTNEED)).ok();
            }
            4 => {
                let file = call!(libc::memfd_create(c"pages".as_ptr(), 0)).fd();
                call!(libc::ftruncate(file, LEN as i64)).ok();
                let (rights, flags) = (PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED);
                call!(libc::mmap(self.at as *mut _, LEN, rights, flags, file, 0)).ok();
                call!(libc::close(file)).ok();
                // (pages of the file, which the first write to each replaces)
                let sum: usize = self.slice().iter().map(|b| usize::from(*b)).sum();
                assert_eq!(sum, 0);
            }
            _ => {}
        }
    }
}

/// In every so many rounds (0: in none) a child of fork shares the pages for a while; its own stay as they are.
fn other_pages(s: &Side, rounds: usize, child_in: usize) {
    let fd = s.pair();
    introduce(s, fd);
    let mut random = Random::new(160 + u64::from(s.a()));
    let mut bytes = Bytes::new(161);
    let mut place = Place::new();
    for round in 0..rounds {
        place.change(random.below(7));
        let from = OFFSETS[round % OFFSETS.len()];
        let child = (child_in > 0 && round % child_in == child_in - 1).then(|| {
            let before = place.slice().to_vec();
            proc::fork(|| {
                std::thread::sleep(wait::millis(30));
                i32::from(before != place.slice())
            })
        });
        let part = &mut place.slice()[from..from + MESSAGE];
        if s.a() {
            bytes.fill(part);
            let mut sent = 0;
            while sent < MESSAGE {
                sent += io::send(fd, &part[sent..], MSG_NOSIGNAL).ok();
            }
        } else {
            assert_eq!(io::recv(fd, part, MSG_WAITALL).ok(), MESSAGE);
            bytes.check(part);
        }
        if let Some(child) = child {
            assert_eq!(proc::wait_child(child), "exit 0");
        }
        assert!(place.aside() == place.kept, "round {round}");
    }
    log!(s, "{}", bytes.at);
    s.sync("done");
}
