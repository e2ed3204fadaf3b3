//! Options, and calls that are wrong for a connected stream.

use super::end::End;
use super::plan::{Kind, Step};
use crate::sys::{Fd, call, net};

/// Whether the step has the kernel send signals, for which the stream has to be its own.
pub fn is_async(step: &Step) -> bool {
    step.words[0] % 15 == 2
}

pub fn option(e: &mut End, step: &Step, fd: Fd) {
    let [which, value, _, _, _] = step.words;
    let (tcp, sol) = (libc::IPPROTO_TCP, libc::SOL_SOCKET);
    let on = (value % 2) as i32;
    // (streams that do not wait, and small buffers, stay so)
    let which = match (e.kind, which % 15) {
        (Kind::Urgent, 0 | 1) | (Kind::Small, 4 | 5) => 6,
        (_, which) => which,
    };
    let both = |level, name, value| {
        let set = net::setopt(fd, level, name, value);
        let (get, value) = net::getopt(fd, level, name);
        format!("{set} {get} {value}")
    };
    let text = match which % 15 {
        0 => {
            e.conns[step.conn].nonblock = on == 1;
            format!(
                "{} {}",
                net::set_nonblocking(fd, on == 1),
                net::is_nonblocking(fd)
            )
        }
        1 => {
            e.conns[step.conn].nonblock = on == 1;
            format!("{} {}", net::fionbio(fd, on == 1), net::is_nonblocking(fd))
        }
        2 => net::ioctl_int(fd, libc::FIOASYNC)
            .0
            .to_string()
            .replace("EBADF", "0"),
        3 => {
            e.conns[step.conn].lowat = [1, 1, 2, 100, 1000][value % 5];
            both(sol, libc::SO_RCVLOWAT, e.conns[step.conn].lowat as i32)
        }
        4 => both(sol, libc::SO_RCVBUF, 150_000 + (value % 9000) as i32),
        5 => both(sol, libc::SO_SNDBUF, 150_000 + (value % 9000) as i32),
        6 => both(tcp, libc::TCP_NODELAY, 1),
        7 => both(sol, libc::SO_KEEPALIVE, on),
        8 => net::so_error(fd),
        9 => {
            let r = net::set_timeout(fd, libc::SO_SNDTIMEO, (value % 3000) as i64 * 4);
            format!("{r} {:?}", net::get_timeout(fd, libc::SO_SNDTIMEO))
        }
        10 => format!("{:?}", net::getopt(fd, sol, libc::SO_TYPE)),
        11 => format!(
            "{:?} {:?}",
            net::getopt(fd, sol, libc::SO_ACCEPTCONN),
            net::getopt(fd, sol, libc::SO_DOMAIN)
        ),
        // (when the peer's kernel acknowledges an end is its affair: FIN_WAIT1 is as good as FIN_WAIT2)
        12 => format!(
            "state {}",
            match crate::sys::aside::tcp_state(fd) {
                4 => 5,
                state => state,
            }
        ),
        13 => {
            let there = net::getpeername(fd).map_or_else(|r| r.to_string(), |a| a.ip().to_string());
            format!("{} {there}", net::getsockname(fd).ip())
        }
        _ => format!("{:?}", net::getopt(fd, sol, 9999)),
    };
    e.line(&format!("option {} {text}", which % 15));
}

pub fn misuse(e: &End, step: &Step, fd: Fd) {
    let mut room = [0u8; 64];
    let at = room.as_mut_ptr();
    let null: *mut libc::c_void = std::ptr::null_mut();
    let r = match step.words[0] % 17 {
        0 => net::connect(fd, net::loopback()),
        1 => net::listen(fd, 3),
        2 => net::bind(fd, net::loopback()),
        3 => net::accept(fd),
        4 => call!(libc::pread(fd, at.cast(), 10, 0)),
        5 => call!(libc::pwrite(fd, at.cast(), 10, 0)),
        6 => call!(libc::lseek(fd, 0, libc::SEEK_SET)),
        7 => call!(libc::ftruncate(fd, 0)),
        8 => call!(libc::fsync(fd)),
        9 => call!(libc::ioctl(fd, libc::FIONREAD, 8)),
        10 => net::shutdown(fd, 7),
        11 => call!(libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_KEEPALIVE,
            at.cast(),
            1
        )),
        12 => call!(libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_ERROR,
            at.cast(),
            null.cast()
        )),
        13 => call!(libc::splice(fd, null.cast(), fd, null.cast(), 10, 0)),
        14 => call!(libc::sendfile(fd, fd, null.cast(), 10)),
        15 => call!(libc::epoll_wait(fd, at.cast(), 1, 0)),
        _ => call!(libc::fallocate(fd, 0, 0, 10)),
    };
    e.told(&format!("misuse {}", step.words[0] % 17), r);
}
