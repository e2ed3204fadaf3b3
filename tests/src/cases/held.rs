//! What was sent stays as it was, whatever the program does to its memory, its signals and its processes
//! before the other end has read it. In mode async the library leaves such messages where they are: then these
//! cases are about everything that this must not be noticed by. The other end reads only after the program has
//! done its worst, so that nothing depends on who is faster, and nothing but held messages is counted as zero copy.

use super::Case;
use crate::log;
use crate::side::{Random, Side, hash};
use crate::sys::{Ret, call, io, proc};
use libc::{SA_NODEFER, SA_ONSTACK, SA_RESTART, SA_SIGINFO, SIG_DFL, SIGSEGV, SIGSYS, SIGUSR1};
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering::SeqCst};

pub(super) const CASES: &[Case] = &[
    held("held_written_to", written_to),
    held("held_where_maps_are_many", maps_are_many),
    held("held_given_back", given_back),
    held("held_read_into", read_into),
    held("held_while_the_program_handles_faults", handles_faults),
    held("held_while_handlers_change", handlers_change),
    held("held_while_signals_are_blocked", signals_blocked),
    held("held_while_handlers_run", handlers_run),
    held("held_over_forks", forks),
    held("held_over_threads", threads),
];

/// Two processes: what is done is done to the whole of one.
const fn held(name: &'static str, body: fn(&Side)) -> Case {
    Case::pair(name, body).processes_only().held(2 * LEN as u64)
}

/// Large enough to be held, small enough for the kernel to take without a reader.
pub(super) const LEN: usize = 96 << 10;

/// The buffer, pages of its own in the middle of others.
fn buffer() -> &'static mut [u8] {
    let (flags, both) = (
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
        libc::PROT_READ | libc::PROT_WRITE,
    );
    let at = call!(libc::mmap(
        std::ptr::null_mut(),
        2 * LEN,
        both,
        flags,
        -1,
        0
    ))
    .ok();
    // SAFETY: a new mapping, which stays.
    unsafe { std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut(at), 2 * LEN) }
}

/// A connection on which a large message has gone already.
pub(super) fn used(s: &Side) -> i32 {
    let fd = s.pair();
    if s.a() {
        log!(s, "{}", io::send_all(fd, &buffer()[..LEN]));
    }
    s.sync("sent");
    if !s.a() {
        let (got, _) = io::recv_exact(fd, LEN);
        log!(s, "{}", got.len());
    }
    s.sync("used");
    fd
}

/// A sends `count` times from a buffer with new contents, acts on the buffer, and only then lets B read.
fn each(s: &Side, count: u64, mut act: impl FnMut(u64, &mut [u8])) {
    let fd = used(s);
    let memory = buffer();
    for i in 0..count {
        if s.a() {
            let part = &mut memory[777..777 + LEN];
            Random::new(i).fill(part);
            log!(s, "{}", io::send_all(fd, part));
            act(i, part);
        }
        s.sync("acted");
        if !s.a() {
            let (got, _) = io::recv_exact(fd, LEN);
            log!(s, "{}", got == Random::new(i).bytes(LEN));
        }
        s.sync("read");
    }
}

fn written_to(s: &Side) {
    each(s, 6, |i, part| match i {
        0 => part.fill(1),
        1 => part[LEN / 2] ^= 1,
        2 => part.iter_mut().rev().for_each(|b| *b ^= 1),
        3 => {
            part[0] ^= 1;
            part[LEN - 1] ^= 1;
        }
        _ => part[4096 * (i as usize)..].fill(2),
    });
}

/// The kernel cuts no mapping in two any more (vm.max_map_count, where it is small enough to be reached) while the program
/// writes into the middle of what it has sent.
fn maps_are_many(s: &Side) {
    const PAGE: usize = 4096;
    const MOST: usize = 140_000;
    each(s, 4, |_, part| {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let null = std::ptr::null_mut();
        let region = call!(libc::mmap(null, MOST * PAGE, 0, flags, -1, 0)).ok();
        let at = |page: usize| std::ptr::with_exposed_provenance_mut(region + page * PAGE);
        let _all = (0..MOST)
            .step_by(2)
            .all(|page| call!(libc::mprotect(at(page), PAGE, libc::PROT_READ)).0 == 0);
        for byte in [3 * PAGE, LEN / 2, LEN - 9000] {
            part[byte] ^= 1;
        }
        call!(libc::munmap(at(0), MOST * PAGE)).ok();
    });
}

/// Memory that is unmapped, moved and given back, by the program and inside libc.
fn given_back(s: &Side) {
    let fd = used(s);
    for i in 0..5u64 {
        if s.a() {
            // SAFETY: each block is used until it is given back, and no longer.
            unsafe {
                let at: *mut u8 = if i < 3 {
                    libc::malloc(LEN + (i as usize) * (200 << 10)).cast()
                } else {
                    buffer().as_mut_ptr()
                };
                let block = std::slice::from_raw_parts_mut(at, LEN);
                Random::new(i).fill(block);
                log!(s, "{}", io::send_all(fd, block));
                match i {
                    0 | 1 => libc::free(at.cast()),
                    2 => libc::free(libc::realloc(at.cast(), 3 << 20)),
                    3 => log!(s, "{}", Ret(libc::munmap(at.cast(), 2 * LEN).into())),
                    _ => {
                        let r = libc::madvise(at.cast(), 2 * LEN, libc::MADV_DONTNEED);
                        log!(s, "{} {}", Ret(r.into()), block.iter().all(|b| *b == 0));
                    }
                }
                let other: *mut u8 = libc::malloc(LEN).cast();
                other.write_bytes(3, LEN);
                libc::free(other.cast());
            }
        }
        s.sync("acted");
        if !s.a() {
            let (got, _) = io::recv_exact(fd, LEN);
            log!(s, "{}", got == Random::new(i).bytes(LEN));
        }
        s.sync("read");
    }
}

/// Calls that write to the buffer, some of which no library sees.
fn read_into(s: &Side) {
    let content = Random::new(50).bytes(LEN);
    each(s, 6, |i, part| {
        let file = io::memory_file(&content);
        // SAFETY: the buffer.
        let n = unsafe {
            let (at, half) = (part.as_mut_ptr(), LEN / 2);
            match i {
                0 => libc::read(file, at.cast(), LEN),
                1 => libc::pread(file, at.cast(), LEN, 0),
                2 => libc::syscall(libc::SYS_read, file, at, LEN) as isize,
                3 => {
                    let parts = [
                        io::iov_at(at.addr(), half),
                        io::iov_at(at.addr() + half, half),
                    ];
                    libc::readv(file, parts.as_ptr(), 2)
                }
                4 => {
                    let stream = libc::fdopen(libc::dup(file), c"r".as_ptr());
                    let n = libc::fread(at.cast(), 1, LEN, stream);
                    libc::fclose(stream);
                    n as isize
                }
                _ => libc::getrandom(at.cast(), LEN, 0),
            }
        };
        log!(s, "{n} {}", i == 5 || *part == content[..]);
        call!(libc::close(file)).ok();
    });
}

static FAULTS: AtomicI32 = AtomicI32::new(0);
static FAULT_AT: AtomicUsize = AtomicUsize::new(0);

/// The program's own: makes its page accessible, and goes on.
extern "C" fn repair(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    FAULTS.fetch_add(1, SeqCst);
    // SAFETY: the kernel's details, for a fault.
    let at = unsafe { (*info).si_addr() };
    FAULT_AT.store(at.addr(), SeqCst);
    let page = at.map_addr(|a| a & !4095);
    // SAFETY: a page of the case's own.
    unsafe { libc::mprotect(page, 4096, libc::PROT_READ | libc::PROT_WRITE) };
}

fn break_and_repair(s: &Side) {
    let page = io::forbidden_page();
    let at: *mut u8 = std::ptr::with_exposed_provenance_mut(page + 100);
    // SAFETY: the handler makes it writable.
    unsafe { at.write_volatile(1) };
    log!(
        s,
        "{} {}",
        FAULTS.swap(0, SeqCst),
        FAULT_AT.load(SeqCst) == page + 100
    );
}

fn show(s: &Side, signal: i32) {
    let (handler, flags, mask) = proc::action(signal);
    let what = match handler {
        SIG_DFL => "default",
        libc::SIG_IGN => "ignored",
        h if h == repair as *const () as usize => "repair",
        h if h == write_into as *const () as usize => "write",
        _ => "other",
    };
    log!(s, "{what} {flags:x} {mask:x}");
}

fn handles_faults(s: &Side) {
    if s.a() {
        proc::detailed(SIGSEGV, repair, SA_SIGINFO);
    }
    each(s, 4, |i, part| {
        if i == 2 {
            let stack = libc::stack_t {
                ss_sp: buffer().as_mut_ptr().cast(),
                ss_flags: 0,
                ss_size: LEN,
            };
            call!(libc::sigaltstack(&raw const stack, std::ptr::null_mut())).ok();
            proc::detailed(SIGSEGV, repair, SA_SIGINFO | SA_ONSTACK | SA_NODEFER);
        }
        part[5000] ^= 1;
        show(s, SIGSEGV);
        break_and_repair(s);
        part[50_000] ^= 1;
    });
}

fn handlers_change(s: &Side) {
    each(s, 7, |i, part| {
        match i {
            0 => proc::detailed(SIGSEGV, repair, SA_SIGINFO | SA_RESTART),
            1 => proc::default_action(SIGSEGV),
            2 => proc::handle(SIGSYS, write_into, true),
            3 => drop(call!(libc::raise(SIGSYS)).ok()),
            4 => proc::default_action(SIGSYS),
            5 => proc::ignore(SIGSEGV),
            _ => drop(call!(libc::raise(SIGSEGV)).ok()),
        }
        part.fill(7);
        show(s, SIGSEGV);
        show(s, SIGSYS);
        log!(s, "{}", RUNS.load(SeqCst));
    });
    // Faults still end a program that has no handler, with what it had sent in the air.
    if s.a() {
        let child = proc::fork(|| {
            proc::default_action(SIGSEGV);
            let at: *mut u8 = std::ptr::with_exposed_provenance_mut(io::forbidden_page());
            // SAFETY: it is not; the child ends here.
            unsafe { at.write_volatile(1) };
            0
        });
        log!(s, "{}", proc::wait_child(child));
    }
    s.sync("done");
}

fn signals_blocked(s: &Side) {
    each(s, 4, |i, part| {
        let all: Vec<i32> = (1..32).collect();
        if i % 2 == 0 {
            proc::block(&all);
            part.fill(1);
        } else {
            part.fill(2);
            proc::unblock(&all);
        }
        part[9] = 3;
    });
}

static BUFFER: AtomicUsize = AtomicUsize::new(0);
static RUNS: AtomicI32 = AtomicI32::new(0);

/// Blocks everything, and writes to what was sent.
extern "C" fn write_into(_: i32) {
    let at: *mut u8 = std::ptr::with_exposed_provenance_mut(BUFFER.load(SeqCst));
    if !at.is_null() {
        proc::block(&(1..32).collect::<Vec<i32>>());
        // SAFETY: the case's buffer.
        unsafe { at.write_bytes(9, LEN) };
    }
    RUNS.fetch_add(1, SeqCst);
}

fn handlers_run(s: &Side) {
    if s.a() {
        proc::handle(SIGUSR1, write_into, true);
    }
    each(s, 3, |_, part| {
        BUFFER.store(part.as_mut_ptr().expose_provenance(), SeqCst);
        call!(libc::raise(SIGUSR1)).ok();
        log!(s, "{} {}", RUNS.load(SeqCst), part.iter().all(|b| *b == 9));
        part.fill(4);
    });
}

fn forks(s: &Side) {
    each(s, 4, |i, part| {
        let sent = hash(part);
        if i < 2 {
            let child = proc::fork(|| {
                let same = hash(part) == sent;
                part.fill(5);
                i32::from(same)
            });
            if i == 0 {
                part.fill(6);
            }
            log!(s, "{}", proc::wait_child(child));
        } else {
            // SAFETY: a C string.
            let status = unsafe { libc::system(c"exit 3".as_ptr()) };
            log!(s, "{}", proc::show_status(status));
        }
        part.fill(7);
    });
}

fn threads(s: &Side) {
    each(s, 4, |i, part| {
        std::thread::scope(|scope| {
            let (front, back) = part.split_at_mut(LEN / 2);
            let other = scope.spawn(move || front.fill(1));
            back[i as usize * 5000] ^= 1;
            other.join().unwrap();
        });
        part.fill(2);
    });
}
