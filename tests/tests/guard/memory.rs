//! The program gives up, moves or replaces the memory that it has sent from; from its own code and from
//! inside libc.

use crate::Test;
use crate::guard;
use crate::host::{MIB, PAGE, Random, Wire, filled, map};

pub(crate) const TESTS: &[Test] = &[
    ("free", free),
    ("free_in_the_heap_and_trim", free_in_the_heap),
    ("realloc", realloc),
    ("heap_metadata_beside_it", heap_metadata),
    ("munmap", munmap),
    ("munmap_a_part", munmap_part),
    ("munmap_that_fails", munmap_fails),
    ("map_over_it", map_over),
    ("mremap", mremap),
    ("brk_shrinks", brk_shrinks),
    ("madvise", madvise),
    ("mprotect_by_the_program", mprotect),
    ("static_data", static_data),
    ("never_written_memory", never_written),
    ("large_pages", large_pages),
];

/// malloc's own memory of a size.
fn heap(len: usize) -> &'static mut [u8] {
    // SAFETY: a new block.
    unsafe {
        let at: *mut u8 = libc::malloc(len).cast();
        let block = std::slice::from_raw_parts_mut(at, len);
        Random::new(3).fill(block);
        block
    }
}

/// A large block is a mapping of its own, which libc unmaps without any name that could be interposed.
fn free() {
    let wire = Wire::new();
    for _ in 0..3 {
        let block = heap(MIB - 3 * PAGE);
        let sent = wire.send_all(block);
        // SAFETY: the block.
        unsafe { libc::free(block.as_mut_ptr().cast()) };
        // Whoever gets the addresses next has all of them.
        let next = heap(MIB - 3 * PAGE);
        next.fill(0x55);
        wire.expect(&sent);
        assert!(next.iter().all(|b| *b == 0x55));
    }
}

fn free_in_the_heap() {
    // SAFETY: no pointers.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 30) };
    let wire = Wire::new();
    for _ in 0..5 {
        let blocks = [(); 3].map(|()| heap(200 << 10));
        let sent = blocks.iter().map(|b| wire.send_all(b)).collect::<Vec<_>>();
        for block in blocks {
            // SAFETY: the block.
            unsafe { libc::free(block.as_mut_ptr().cast()) };
        }
        // SAFETY: no pointers.
        unsafe { libc::malloc_trim(0) };
        let again = heap(600 << 10);
        again.fill(0x66);
        wire.expect(&sent.concat());
        // SAFETY: the block.
        unsafe { libc::free(again.as_mut_ptr().cast()) };
    }
}

fn realloc() {
    let wire = Wire::new();
    let mut block = heap(400 << 10);
    for len in [800 << 10, 300 << 10, 5 << 20, 310 << 10] {
        let sent = wire.send_all(&block[..300 << 10]);
        // SAFETY: the block, which the new one takes the place of.
        block = unsafe {
            let at: *mut u8 = libc::realloc(block.as_mut_ptr().cast(), len).cast();
            std::slice::from_raw_parts_mut(at, len)
        };
        assert!(block[..300 << 10] == sent);
        block.fill(len as u8);
        wire.expect(&sent);
    }
}

/// What malloc keeps of its own lies on either side, and in what is freed.
fn heap_metadata() {
    // SAFETY: no pointers.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 30) };
    let wire = Wire::new();
    let mut r = Random::new(5);
    let mut blocks: Vec<&mut [u8]> = (0..20).map(|_| heap(40 << 10)).collect();
    for _ in 0..200 {
        let i = r.below(blocks.len());
        let sent = wire.send_all(blocks[i]);
        // SAFETY: the block.
        unsafe { libc::free(blocks[i].as_mut_ptr().cast()) };
        blocks[i] = heap(32 << 10 | r.below(16 << 10));
        wire.expect(&sent);
    }
}

fn unmap(bytes: &[u8]) -> i32 {
    // SAFETY: a test's own mapping, not used afterwards.
    unsafe { libc::munmap(bytes.as_ptr().cast_mut().cast(), bytes.len()) }
}

fn munmap() {
    let wire = Wire::new();
    let buffer = filled(100 * PAGE);
    let at = buffer.as_ptr();
    let sent = wire.send_all(buffer);
    assert_eq!(unmap(buffer), 0);
    assert!(!guard::is_live(), "nothing had to be copied");
    // Memory that only happens to be at the same addresses is left as it is.
    // SAFETY: the addresses are free.
    let other = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        libc::mmap(
            at.cast_mut().cast(),
            100 * PAGE,
            libc::PROT_READ,
            flags,
            -1,
            0,
        )
    };
    assert_eq!(other, at.cast_mut().cast());
    wire.expect(&sent);
    guard::reap();
    let ending = crate::host::in_child(|| {
        // SAFETY: may not be written, and must not be.
        unsafe { at.cast_mut().write_volatile(1) };
    });
    assert_eq!(ending, "signal 11");
}

fn munmap_part() {
    let wire = Wire::new();
    for (from, to) in [(0, 10), (40, 60), (90, 100)] {
        let buffer = filled(100 * PAGE);
        let sent = wire.send_all(buffer);
        assert_eq!(unmap(&buffer[from * PAGE..to * PAGE]), 0);
        buffer[..from * PAGE].fill(1);
        buffer[to * PAGE..].fill(2);
        wire.expect(&sent);
    }
}

fn munmap_fails() {
    let wire = Wire::new();
    let buffer = filled(20 * PAGE);
    let sent = wire.send_all(buffer);
    let odd = buffer.as_mut_ptr().wrapping_add(1);
    // SAFETY: not at the beginning of a page, so refused.
    let r = unsafe { libc::munmap(odd.cast(), 19 * PAGE) };
    assert_eq!(r, -1);
    buffer.fill(1);
    wire.expect(&sent);
}

fn map_over() {
    let wire = Wire::new();
    let buffer = filled(64 * PAGE);
    for (from, to) in [(0, 64), (8, 16)] {
        let sent = wire.send_all(buffer);
        // SAFETY: in the test's own mapping.
        let at = unsafe {
            let at = buffer.as_mut_ptr().add(from * PAGE);
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            let both = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(at.cast(), (to - from) * PAGE, both, flags, -1, 0)
        };
        assert_ne!(at, libc::MAP_FAILED);
        assert!(buffer[from * PAGE..to * PAGE].iter().all(|b| *b == 0));
        buffer.fill(7);
        wire.expect(&sent);
    }
}

fn mremap() {
    let wire = Wire::new();
    let mut buffer = filled(64 * PAGE);
    let target = map(128 * PAGE);
    for (len, to) in [(100, None), (64, None), (64, Some(target.as_mut_ptr()))] {
        let sent = wire.send_all(&buffer[..64 * PAGE]);
        let flags = libc::MREMAP_MAYMOVE | if to.is_some() { libc::MREMAP_FIXED } else { 0 };
        // SAFETY: the test's own mappings.
        let at = unsafe {
            let old = buffer.as_mut_ptr().cast();
            libc::mremap(
                old,
                buffer.len(),
                len * PAGE,
                flags,
                to.unwrap_or(target.as_mut_ptr()),
            )
        };
        assert_ne!(at, libc::MAP_FAILED);
        // SAFETY: the mapping as it is now.
        buffer = unsafe { std::slice::from_raw_parts_mut(at.cast(), len * PAGE) };
        assert!(buffer[..64 * PAGE] == sent);
        buffer.fill(len as u8);
        wire.expect(&sent);
    }
}

fn brk_shrinks() {
    let wire = Wire::new();
    // SAFETY: malloc is told to keep away from the heap's end, by being given another.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 0);
        let at: *mut u8 = libc::sbrk(64 * PAGE as isize).cast();
        let block = std::slice::from_raw_parts_mut(at, 64 * PAGE);
        Random::new(4).fill(block);
        let sent = wire.send_all(block);
        assert_ne!(libc::sbrk(-(64 * PAGE as isize)) as isize, -1);
        let again: *mut u8 = libc::sbrk(64 * PAGE as isize).cast();
        assert_eq!(again, at);
        let block = std::slice::from_raw_parts_mut(at, 64 * PAGE);
        assert!(block.iter().all(|b| *b == 0));
        block.fill(1);
        wire.expect(&sent);
    }
}

fn madvise() {
    let wire = Wire::new();
    let buffer = filled(64 * PAGE);
    for advice in [
        libc::MADV_DONTNEED,
        libc::MADV_FREE,
        libc::MADV_WILLNEED,
        libc::MADV_DONTFORK,
    ] {
        Random::new(8).fill(buffer);
        let sent = wire.send_all(buffer);
        let part = &mut buffer[4 * PAGE..32 * PAGE];
        // SAFETY: the test's own mapping.
        let r = unsafe { libc::madvise(part.as_mut_ptr().cast(), part.len(), advice) };
        assert_eq!(r, 0);
        if advice == libc::MADV_DONTNEED {
            assert!(part.iter().all(|b| *b == 0));
        }
        buffer.fill(1);
        wire.expect(&sent);
    }
}

/// What the program asks for afterwards is what it gets.
fn mprotect() {
    let wire = Wire::new();
    let buffer = filled(64 * PAGE);
    let sent = wire.send_all(buffer);
    let part = &mut buffer[8 * PAGE..16 * PAGE];
    // SAFETY: the test's own mapping.
    unsafe { libc::mprotect(part.as_mut_ptr().cast(), part.len(), libc::PROT_NONE) };
    buffer[0] = 1;
    wire.expect(&sent);
    guard::reap();
    let at = buffer[9 * PAGE..].as_mut_ptr();
    // SAFETY: may not be touched, and must not be.
    let ending = crate::host::in_child(|| unsafe { at.write_volatile(1) });
    assert_eq!(ending, "signal 11");
    // Memory that could not be written before is refused, and stays so.
    assert_eq!(wire.send(&buffer[..8 * PAGE]), Ok(8 * PAGE));
    // SAFETY: as above.
    unsafe { libc::mprotect(buffer.as_mut_ptr().cast(), buffer.len(), libc::PROT_READ) };
    assert_eq!(
        wire.send(&buffer[32 * PAGE..]),
        Err(guard::Refusal::Mapping)
    );
}

fn static_data() {
    static mut ZEROED: [u8; 64 * PAGE] = [0; 64 * PAGE];
    let wire = Wire::new();
    // SAFETY: used here alone. The first and last pages may be the file's.
    let buffer: &mut [u8] = unsafe { (&raw mut ZEROED).as_mut() }.unwrap();
    Random::new(6).fill(buffer);
    let middle = &mut buffer[2 * PAGE..62 * PAGE];
    let sent = wire.send_all(middle);
    middle.fill(0);
    wire.expect(&sent);
}

fn never_written() {
    let wire = Wire::new();
    let buffer = map(64 * PAGE);
    let sent = wire.send_all(buffer);
    assert!(sent.iter().all(|b| *b == 0));
    buffer.fill(1);
    wire.expect(&sent);
}

/// Transparent ones, protected and given new frames in part.
fn large_pages() {
    let wire = Wire::new();
    let area = map(8 * MIB);
    // SAFETY: the test's own mapping.
    unsafe { libc::madvise(area.as_mut_ptr().cast(), area.len(), libc::MADV_HUGEPAGE) };
    Random::new(2).fill(area);
    let from = area.as_ptr().align_offset(2 * MIB) + MIB + 5 * PAGE + 3;
    for len in [100 * PAGE, MIB - 4 * PAGE, 30 * PAGE + 5] {
        let sent = wire.send_all(&area[from..from + len]);
        area[from + 10 * PAGE] ^= 1;
        area[from - 5..from + 5].fill(0);
        area[from + len - 3..from + len + 9].fill(0);
        wire.expect(&sent);
        area.fill(len as u8);
    }
}
