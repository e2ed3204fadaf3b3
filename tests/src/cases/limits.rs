//! Limits of the process: nothing fails that would not have failed without the library.

use super::Case;
use crate::log;
use crate::side::{Side, own_pair};
use crate::sys::{Fd, call, io, net, proc, wait};
use libc::{SA_ONSTACK, SA_SIGINFO, SIGUSR2};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::SeqCst};

pub(super) const CASES: &[Case] = &[
    Case::pair("nofile_reached", nofile_reached)
        .processes_only()
        .any_path("no descriptors to spare"),
    // (two threads would take numbers from each other)
    Case::pair("nofile_exact_numbers", nofile_exact_numbers).processes_only(),
    Case::pair("nofile_highest", nofile_highest).processes_only(),
    Case::pair("nofile_many", nofile_many).processes_only(),
    Case::pair("address_space_small", address_space_small)
        .processes_only()
        .any_path("no address space to spare"),
    Case::pair("address_space_of_its_own", address_space_of_its_own).processes_only(),
    Case::pair("file_size_zero", file_size_zero)
        .processes_only()
        .any_path("no shared memory to be had"),
    Case::pair("data_small_and_execute", data_small_and_execute).processes_only(),
    Case::pair("stack_smallest", stack_smallest),
    Case::pair("stack_of_a_handler", stack_of_a_handler).processes_only(),
    Case::solo("descriptor_count", descriptor_count).conns(300),
];

/// All descriptors are taken while the connection is made: it still works, and EMFILE is EMFILE.
fn nofile_reached(s: &Side) {
    let fd = if s.accepts() {
        let (lis, at) = net::listener(net::loopback(), 4);
        let spare = use_up();
        s.tell(u64::from(at.port()));
        wait::wait_for(lis, libc::POLLIN);
        log!(s, "{}", net::accept(lis));
        net::close(spare).ok();
        net::accept(lis).fd()
    } else {
        let mut to = net::loopback();
        let fd = net::socket_for(to, 0);
        use_up();
        to.set_port(s.hear() as u16);
        log!(s, "{}", net::connect(fd, to));
        fd
    };
    s.warm_up(fd);
    io::send_all(fd, b"works").ok();
    log!(s, "{}", String::from_utf8_lossy(&io::recv_exact(fd, 5).0));
    log!(s, "{}", net::dup(fd));
    s.sync("done");
}

/// Opens descriptors until none is left; returns one of them.
fn use_up() -> Fd {
    proc::limit(libc::RLIMIT_NOFILE, 64);
    let mut last = -1;
    loop {
        let r = net::dup(1);
        if r.0 < 0 {
            assert!(r.is(libc::EMFILE), "{r}");
            return last;
        }
        last = r.fd();
    }
}

/// New descriptors take the lowest free number, as always.
fn nofile_exact_numbers(s: &Side) {
    let base = net::dup(1).fd();
    net::close(base).ok();
    let one = net::socket_for(net::loopback(), 0);
    net::close(one).ok();
    let again = net::dup(1).fd();
    log!(s, "{}", again >= base);
    net::close(again).ok();
    let fd = s.pair();
    io::send_all(fd, b"x").ok();
    log!(s, "{}", io::recv_exact(fd, 1).1);
    s.sync("done");
}

/// Two thirds of the descriptors that a server may have are connections that have all carried enough to be worth whatever the library
/// may give them.
fn nofile_many(s: &Side) {
    if s.a() {
        proc::limit(libc::RLIMIT_NOFILE, 96);
    }
    let (lis, to) = if s.accepts() {
        (s.listen(16), net::loopback())
    } else {
        (-1, s.target())
    };
    for _ in 0..64 {
        let fd = if s.accepts() {
            net::accept(lis).fd()
        } else {
            let fd = net::socket_for(to, 0);
            net::connect(fd, to).ok();
            fd
        };
        s.always_warm_up(fd);
        for _ in 0..40 {
            io::send_all(fd, b"works").ok();
            assert_eq!(io::recv_exact(fd, 5).0, b"works");
        }
    }
    log!(s, "64 connections");
    s.sync("done");
}

/// A limit of a billion, or as much as is allowed, costs neither time nor memory.
fn nofile_highest(s: &Side) {
    proc::limit(libc::RLIMIT_NOFILE, 1_000_000_000);
    let fd = s.pair();
    io::send_all(fd, b"works").ok();
    log!(s, "{}", String::from_utf8_lossy(&io::recv_exact(fd, 5).0));
    let high = 15_000;
    log!(s, "{}", net::dup2(fd, high));
    io::send_all(high, b"high").ok();
    log!(s, "{}", String::from_utf8_lossy(&io::recv_exact(high, 4).0));
    s.sync("done");
}

fn twenty_rounds(s: &Side) {
    let fd = s.pair();
    for _ in 0..20 {
        io::send_all(fd, b"works").ok();
        assert_eq!(io::recv_exact(fd, 5).0, b"works");
    }
    log!(s, "20 rounds");
    s.sync("done");
}

fn address_space_small(s: &Side) {
    limit_barely(libc::RLIMIT_AS, pages_in_use(0) * 4096 + (1 << 20));
    twenty_rounds(s);
}

/// A number of /proc/self/statm.
fn pages_in_use(what: usize) -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    status.split(' ').nth(what).unwrap().parse().unwrap()
}

/// By the bare call: as somebody else would set it who counts what the library has mapped.
fn limit_barely(what: libc::__rlimit_resource_t, bytes: u64) {
    let new = libc::rlimit {
        rlim_cur: bytes,
        rlim_max: bytes,
    };
    let what = libc::c_long::from(what);
    let none = std::ptr::null::<libc::rlimit>();
    crate::sys::call!(libc::syscall(
        libc::SYS_prlimit64,
        0,
        what,
        &raw const new,
        none
    ))
    .ok();
}

/// A program that has next to no memory left becomes another, which finds what it has not read. (Its own output is what is compared.)
fn data_small_and_execute(s: &Side) {
    const UNREAD: usize = 400_000;
    const HERE: i32 = 60_000;
    const ENOUGH: u64 = 4 << 20;
    let fd = s.pair();
    for _ in 0..20 {
        io::send_all(fd, b"works").ok();
        assert_eq!(io::recv_exact(fd, 5).0, b"works");
    }
    if s.a() {
        let bytes: Vec<u8> = (0..UNREAD).map(|i| (i / 7) as u8).collect();
        io::send_all(fd, &bytes).ok();
        s.wait_gone();
        return;
    }
    wait::wait_queued(fd, HERE);
    net::dup2(fd, 0).ok();
    // (less than a process under the library has by then, so that it gets no more, and enough for the other program)
    limit_barely(libc::RLIMIT_DATA, ENOUGH);
    let script = format!("echo B $(head -c {UNREAD} | cksum)");
    proc::exec(&["/bin/bash", "--norc", "-c", &script], true);
    log!(s, "exec failed");
}

/// A program that limits itself, by what it uses: it gets what it has allowed itself, and is told what it has set.
fn address_space_of_its_own(s: &Side) {
    for (what, bytes) in [(libc::RLIMIT_AS, 400 << 20), (libc::RLIMIT_DATA, 100 << 20)] {
        proc::limit(what, bytes);
        log!(s, "{}", proc::limit(what, bytes));
        log!(s, "{}", proc::limit(what, bytes) == bytes);
    }
    let room = vec![1u8; 48 << 20];
    log!(s, "{}", room.iter().map(|b| u64::from(*b)).sum::<u64>());
    twenty_rounds(s);
}

/// A memory file may not grow: SIGXFSZ must not be provoked by the library.
fn file_size_zero(s: &Side) {
    proc::limit(libc::RLIMIT_FSIZE, 0);
    twenty_rounds(s);
}

const PIECE: usize = 60_000;

/// What the thread of [`stack_smallest`] works with, and how much of each piece has gone.
struct Moves {
    fd: Fd,
    file: Fd,
    pipe: [Fd; 2],
    gone: [usize; 3],
}

extern "C" fn move_all(moves: *mut libc::c_void) -> *mut libc::c_void {
    static BYTES: [u8; PIECE] = [7; PIECE];
    // SAFETY: the test's, which waits for this thread; the descriptors are open, and the bytes there.
    unsafe {
        let m = &mut *moves.cast::<Moves>();
        let (mut at, null) = (0, std::ptr::null_mut());
        while m.gone[0] < PIECE {
            let n = libc::sendfile(m.fd, m.file, &raw mut at, PIECE - m.gone[0]);
            m.gone[0] += usize::try_from(n).unwrap_or(PIECE);
        }
        let mut at = 0;
        while m.gone[1] < PIECE {
            let left = PIECE - m.gone[1];
            let mut n = libc::splice(m.file, &raw mut at, m.pipe[1], null, left, 0);
            m.gone[1] += usize::try_from(n).unwrap_or(PIECE);
            while n > 0 {
                n -= libc::splice(m.pipe[0], null, m.fd, null, n as usize, 0).max(1);
            }
        }
        while m.gone[2] < PIECE {
            let rest = &BYTES[m.gone[2]..];
            let n = libc::send(m.fd, rest.as_ptr().cast(), rest.len(), 0);
            m.gone[2] += usize::try_from(n).unwrap_or(PIECE);
        }
        libc::recv(m.fd, (&raw mut at).cast(), 1, 0);
    }
    std::ptr::null_mut()
}

/// A thread with the smallest stack that there is moves bytes in all ways.
fn stack_smallest(s: &Side) {
    const LEAST: usize = 16 * 1024;
    let fd = s.pair();
    if !s.a() {
        let (got, _) = io::recv_exact(fd, 3 * PIECE);
        log!(s, "{} {}", got.len(), got.iter().all(|b| *b == 7));
        io::send_all(fd, b"x").ok();
        s.sync("done");
        return;
    }
    let file = io::memory_file(&[7; PIECE]);
    let pipe = net::pipe();
    let mut m = Moves {
        fd,
        file,
        pipe: pipe.into(),
        gone: [0; 3],
    };
    // SAFETY: attributes and a thread of this function's, which it waits for.
    unsafe {
        let (mut attributes, mut thread) = std::mem::zeroed();
        libc::pthread_attr_init(&raw mut attributes);
        libc::pthread_attr_setstacksize(&raw mut attributes, LEAST);
        let r = libc::pthread_create(
            &raw mut thread,
            &raw const attributes,
            move_all,
            (&raw mut m).cast(),
        );
        log!(s, "made {r}");
        libc::pthread_join(thread, std::ptr::null_mut());
    }
    log!(s, "{:?}", m.gone);
    s.sync("done");
}

/// Bytes that [`stack_of_a_handler`]'s handler sends at once.
const ASKED: usize = 20_000;

static ASKING: AtomicI32 = AtomicI32::new(-1);

static TAKEN: AtomicU64 = AtomicU64::new(0);

static SET: AtomicI32 = AtomicI32::new(-1);

/// Says something and waits for the answer in each of the ways, with next to no stack of its own.
extern "C" fn ask(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    static BYTES: [u8; ASKED] = [1; ASKED];
    let (fd, set) = (ASKING.load(SeqCst), SET.load(SeqCst));
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    let mut entry = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    let mut byte = 0u8;
    // SAFETY: locals, and bytes that stay.
    unsafe {
        for way in 0..4 {
            let mut left = if way == 0 { ASKED } else { 1 };
            while left > 0 {
                let n = libc::send(fd, BYTES.as_ptr().cast(), left, 0);
                left -= usize::try_from(n).unwrap_or(left);
            }
            match way {
                1 => _ = libc::poll(&raw mut entry, 1, -1),
                2 => _ = libc::epoll_wait(set, &raw mut event, 1, -1),
                _ => {}
            }
            let n = libc::recv(fd, (&raw mut byte).cast(), 1, 0);
            TAKEN.fetch_add(n.unsigned_abs() as u64, SeqCst);
        }
    }
}

/// A handler has 8 KiB for itself, of which the kernel's frame takes about 3, and needs no more.
fn stack_of_a_handler(s: &Side) {
    const ROUNDS: usize = 40;
    let fd = s.pair();
    if s.a() {
        for _ in 0..3 * ROUNDS {
            io::send_all(fd, b"x").ok();
            io::recv_exact(fd, 1); // (by an adapter, where there is one)
        }
        ASKING.store(fd, SeqCst);
        SET.store(wait::epoll(), SeqCst);
        wait::add(SET.load(SeqCst), fd, libc::EPOLLIN, 0).ok();
        // SAFETY: always allowed.
        let frame = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) } as usize;
        let size = 8192.max(frame + 4608);
        let memory = Box::leak(vec![0xa5u8; 3 * size].into_boxed_slice());
        let (below, stack) = memory.split_at_mut(2 * size);
        let given = libc::stack_t {
            ss_sp: stack.as_mut_ptr().cast(),
            ss_flags: 0,
            ss_size: size,
        };
        call!(libc::sigaltstack(&raw const given, std::ptr::null_mut())).ok();
        proc::detailed(SIGUSR2, ask, SA_SIGINFO | SA_ONSTACK);
        for _ in 0..ROUNDS {
            proc::Thread::current().signal(SIGUSR2);
        }
        let taken = TAKEN.load(SeqCst);
        log!(s, "{taken} more {}", below.iter().any(|b| *b != 0xa5));
    } else {
        for _ in 0..3 * ROUNDS {
            io::recv_exact(fd, 1);
            io::send_all(fd, b"y").ok();
        }
        for n in [ASKED, 1, 1, 1].into_iter().cycle().take(4 * ROUNDS) {
            io::recv_exact(fd, n);
            io::send_all(fd, b"z").ok();
        }
    }
    s.sync("done");
}

/// What a connection leaves behind in descriptors once it is closed.
fn descriptor_count(s: &Side) {
    let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    for _ in 0..10 {
        let (left, right) = own_pair();
        net::close(left).ok();
        net::close(right).ok();
    }
    let before = count();
    for _ in 0..200 {
        let (left, right) = own_pair();
        net::close(left).ok();
        net::close(right).ok();
    }
    log!(s, "no more than before {}", count() <= before);
}
