//! Sandboxes that kill for a system call which the program itself never makes: what it does with sockets there, old ones and
//! new, takes the very calls that it makes.

use super::Case;
use super::sharing::{beside_echo, there_and_back};
use crate::calls::quiet::bare;
use crate::log;
use crate::side::{Side, exchange_alone, own_pair};
use crate::sys::{Fd, io, net, proc, wait};

pub(super) const CASES: &[Case] = &[
    Case::solo("sandbox_goes_on", |s| alone(s, goes_on)),
    Case::solo("sandbox_accepts", |s| alone(s, accepts)),
    Case::solo("sandbox_listens", |s| alone(s, |s, _| listens(s))),
    Case::solo("sandbox_waits", |s| alone(s, waits)),
    Case::solo("sandbox_descriptors", |s| alone(s, descriptors)),
    Case::solo("sandbox_forks", |s| alone(s, forks)),
    Case::solo("sandbox_asked_for", asked_for),
    Case::pair("sandbox_refuses_many_messages", refuses).processes_only(),
];

/// What was made before the sandbox.
struct Before {
    /// A connection with bytes that have not been read.
    pair: (Fd, Fd),
    listener: Fd,
    /// Connects to the listener, is not accepted yet, and has sent.
    caller: Fd,
    /// Neither bound nor connected.
    idle: Fd,
    set: Fd,
}

fn alone(s: &Side, body: fn(&Side, &Before)) {
    let pair = own_pair();
    exchange_alone(pair.0, pair.1);
    io::send_all(pair.1, b"before").ok();
    let (listener, at) = net::listener(net::loopback(), 8);
    let caller = net::socket_for(at, 0);
    net::connect(caller, at).ok();
    io::send_all(caller, b"called").ok();
    let set = wait::epoll();
    wait::add(set, pair.0, libc::EPOLLIN, 7).ok();
    let before = Before {
        pair,
        listener,
        caller,
        idle: net::socket_for(at, 0),
        set,
    };
    enter();
    body(s, &before);
    log!(s, "alive");
    // SAFETY: ends the process, by the call that is allowed.
    unsafe { libc::_exit(0) };
}

/// The calls that the library may want and these programs do not make.
const DEADLY: [libc::c_long; 14] = [
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_tgkill,
    libc::SYS_fstat,
    libc::SYS_ppoll,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_dup3,
    libc::SYS_membarrier,
    libc::SYS_memfd_create,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_getsockname,
    libc::SYS_socketpair,
];

const fn step(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    }
}

pub(super) const fn load(at: u32) -> libc::sock_filter {
    step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at, 0, 0)
}

pub(super) const fn is(k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, k, jt, jf)
}

pub(super) const fn end(k: u32) -> libc::sock_filter {
    step(libc::BPF_RET | libc::BPF_K, k, 0, 0)
}

/// From now on this filter is in force, and the library has not seen it.
pub(super) fn enter_unseen(filter: &mut [libc::sock_filter]) {
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: no pointers.
    unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    let r = bare(libc::SYS_seccomp, 1, 0, (&raw const program) as usize);
    assert_eq!(r, 0);
}

/// A filter that the library has not seen, as one that the program is started under, refuses calls that it makes where processes share a
/// stream, and the program does not.
fn refuses(s: &Side) {
    let Some(fd) = beside_echo(s) else { return };
    for code in [libc::EPERM, libc::ENOSYS] {
        let child = proc::fork(|| {
            let mut filter = [
                load(0),
                is(libc::SYS_sendmmsg as u32, 1, 0),
                is(libc::SYS_recvmmsg as u32, 0, 1),
                end(libc::SECCOMP_RET_ERRNO | code as u32),
                end(libc::SECCOMP_RET_ALLOW),
            ];
            enter_unseen(&mut filter);
            for i in 0..50 {
                there_and_back(fd, i);
            }
            0
        });
        log!(s, "{}", proc::wait_child(child));
        there_and_back(fd, 99);
    }
    net::close(fd).ok();
    s.sync("done");
}

/// A filter that kills for one of these, and for a socket of another family than IPv4.
fn enter() {
    const NUMBER: u32 = 0;
    const FIRST_ARGUMENT: u32 = 16;
    let mut filter = vec![load(NUMBER)];
    for number in DEADLY {
        filter.push(is(number as u32, 0, 1));
        filter.push(end(libc::SECCOMP_RET_KILL_PROCESS));
    }
    filter.push(is(libc::SYS_socket as u32, 0, 3));
    filter.push(load(FIRST_ARGUMENT));
    filter.push(is(libc::AF_INET as u32, 1, 0));
    filter.push(end(libc::SECCOMP_RET_KILL_PROCESS));
    filter.push(end(libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: a filter of that many steps.
    unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        let r = libc::prctl(libc::PR_SET_SECCOMP, 2, &raw const program);
        assert_eq!(r, 0);
    }
}

fn talk(s: &Side, from: Fd, to: Fd) {
    log!(s, "{}", io::send_all(from, b"there"));
    log!(s, "{:?}", io::recv_exact(to, 5));
    log!(s, "{}", io::send_all(to, b"back"));
    log!(s, "{:?}", io::recv_exact(from, 4));
}

fn goes_on(s: &Side, b: &Before) {
    log!(s, "{:?}", io::recv_exact(b.pair.0, 6));
    talk(s, b.pair.0, b.pair.1);
    log!(s, "{}", net::shutdown(b.pair.0, libc::SHUT_WR));
    log!(s, "{:?}", io::recv_to_end(b.pair.1));
    log!(s, "{} {}", net::close(b.pair.0), net::close(b.pair.1));
}

fn accepts(s: &Side, b: &Before) {
    let fd = net::accept(b.listener).fd();
    log!(s, "{:?}", io::recv_exact(fd, 6));
    talk(s, fd, b.caller);
    log!(s, "{} {}", net::close(fd), net::close(b.listener));
    log!(s, "{}", net::close(b.caller));
}

/// At a port that the kernel does not have to be asked for.
fn listens(s: &Side) {
    let any = std::net::SocketAddr::from(([127, 77, 3, 1], 0));
    let listener = net::socket_for(any, 0);
    let at = (20_000..30_000)
        .map(|port| std::net::SocketAddr::from(([127, 77, 3, 1], port)))
        .find(|at| net::bind(listener, *at).0 == 0);
    log!(s, "{}", net::listen(listener, 4));
    let caller = net::socket_for(any, 0);
    log!(
        s,
        "{}",
        at.map_or(crate::sys::Ret(-1), |at| net::connect(caller, at))
    );
    let fd = net::accept(listener).fd();
    talk(s, caller, fd);
}

fn waits(s: &Side, b: &Before) {
    // (what the library holds has to be read before it can leave the wait to the kernel)
    log!(s, "{:?}", io::recv_exact(b.pair.0, 6));
    log!(s, "{}", wait::poll(&[(b.pair.0, libc::POLLIN)], 1));
    log!(s, "{:?}", wait::epoll_wait(b.set, 4, 1));
    log!(s, "{}", io::send_all(b.pair.1, b"wakes"));
    log!(s, "{}", wait::poll(&[(b.pair.0, libc::POLLIN)], 1000));
    log!(s, "{:?}", wait::epoll_wait(b.set, 4, 1000));
    let set = wait::epoll();
    log!(s, "{}", wait::add(set, b.listener, libc::EPOLLIN, 3));
    log!(s, "{:?}", wait::epoll_wait(set, 4, 1000));
    log!(s, "{}", net::close(set));
}

fn descriptors(s: &Side, b: &Before) {
    let twin = net::dup(b.pair.0).fd();
    log!(
        s,
        "{}",
        net::dup2(b.pair.1, b.idle) == crate::sys::Ret(b.idle.into())
    );
    log!(s, "{:?}", io::recv_exact(twin, 6));
    talk(s, twin, b.idle);
    log!(s, "{} {}", net::close(b.pair.0), net::close(b.pair.1));
    talk(s, twin, b.idle);
}

fn forks(s: &Side, b: &Before) {
    let child = proc::fork(|| {
        io::send_all(b.pair.0, b"child").ok();
        net::close(b.pair.0).ok();
        0
    });
    log!(s, "{}", proc::wait_child(child));
    log!(s, "{:?}", io::recv_exact(b.pair.0, 6));
    log!(s, "{:?}", io::recv_exact(b.pair.1, 5));
}

/// A library asks what filters there are before any is set: nothing has happened.
fn asked_for(s: &Side) {
    let none: *const libc::sock_fprog = std::ptr::null();
    let action: u32 = libc::SECCOMP_RET_TRAP;
    // SAFETY: the kernel is asked for nothing but words.
    unsafe {
        log!(
            s,
            "{}",
            libc::syscall(libc::SYS_seccomp, 2, 0, &raw const action)
        );
        log!(s, "{}", libc::syscall(libc::SYS_seccomp, 1, 0, none));
        log!(s, "{}", libc::prctl(libc::PR_SET_SECCOMP, 2, none));
    }
    let pair = own_pair();
    exchange_alone(pair.0, pair.1);
    talk(s, pair.0, pair.1);
}
