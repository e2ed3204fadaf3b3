//! The calls by which a walk sends and receives, each by the name that the plan has for it.
//!
//! Used by the steps (`act`) and by bulk transfers. A sender goes on until everything is given or a call
//! fails; a receiver makes one call, so that its answer can be compared.

use super::plan::{Give, Take};
use crate::sys::{Fd, Ret, call, io, net, wait};

/// Sends all of it by calls of one kind; what the first failing one said, or the count.
pub fn give(fd: Fd, data: &[u8], by: Give) -> Ret {
    let quiet = libc::MSG_NOSIGNAL;
    let mut done = 0;
    while done < data.len() {
        let rest = &data[done..];
        let half = rest.len() / 2;
        let r = match by {
            Give::Write => io::write(fd, rest),
            Give::Send => io::send(fd, rest, quiet),
            Give::SendMore => io::send(fd, rest, quiet | libc::MSG_MORE),
            Give::Writev => io::writev(fd, &[&rest[..half], &[], &rest[half..]]),
            Give::Sendmsg => io::sendmsg(fd, &[&rest[..half], &rest[half..]], quiet),
            Give::Sendmmsg => io::sendmmsg(fd, &[&rest[..half], &rest[half..]], quiet)
                .1
                .iter()
                .fold(Ret(0), |sum, n| Ret(sum.0 + i64::from(*n))),
            Give::Sendfile => from_file(fd, rest),
            Give::Splice => from_pipe(fd, &rest[..rest.len().min(60_000)]),
            Give::Raw => call!(libc::syscall(
                libc::SYS_write,
                fd,
                rest.as_ptr(),
                rest.len()
            )),
            Give::Stdio => by_stdio(fd, rest),
        };
        if r.0 <= 0 {
            if r.is(libc::EAGAIN) {
                wait::wait_for(fd, libc::POLLOUT);
                continue;
            }
            return r;
        }
        done += r.0 as usize;
    }
    if by == Give::SendMore {
        // What MSG_MORE holds back goes now.
        net::setopt(fd, libc::IPPROTO_TCP, libc::TCP_CORK, 1);
        net::setopt(fd, libc::IPPROTO_TCP, libc::TCP_CORK, 0);
    }
    Ret(done as i64)
}

fn from_file(fd: Fd, data: &[u8]) -> Ret {
    let file = call!(libc::memfd_create(c"walk".as_ptr(), libc::MFD_CLOEXEC)).fd();
    io::write(file, data).ok();
    let mut from = 0;
    let r = call!(libc::sendfile(fd, file, &raw mut from, data.len()));
    net::close(file).ok();
    r
}

fn from_pipe(fd: Fd, data: &[u8]) -> Ret {
    let (out, into) = net::pipe();
    io::write(into, data).ok();
    let mut done = 0;
    while done < data.len() {
        let null = std::ptr::null_mut();
        let r = call!(libc::splice(out, null, fd, null, data.len() - done, 0));
        if r.is(libc::EAGAIN) {
            wait::wait_for(fd, libc::POLLOUT);
            continue;
        }
        if r.0 <= 0 {
            done = 0;
            break;
        }
        done += r.0 as usize;
    }
    net::close(out).ok();
    net::close(into).ok();
    Ret(done as i64)
}

fn by_stdio(fd: Fd, data: &[u8]) -> Ret {
    net::set_nonblocking(fd, false).ok();
    // SAFETY: the FILE is this call's alone and closed once.
    unsafe {
        let file = libc::fdopen(net::dup(fd).fd(), c"w".as_ptr());
        let n = libc::fwrite(data.as_ptr().cast(), 1, data.len(), file);
        libc::fclose(file);
        Ret(n as i64)
    }
}

/// One call that receives; `Splice` goes on until it has everything, in pieces that are the kernel's
/// affair.
pub fn take(fd: Fd, size: usize, by: Take) -> (Ret, Vec<u8>) {
    let mut buf = vec![0; size];
    let half = size / 3;
    let r = match by {
        Take::Read => io::read(fd, &mut buf),
        Take::Recv => io::recv(fd, &mut buf, libc::MSG_DONTWAIT),
        Take::Peek => io::recv(fd, &mut buf, libc::MSG_PEEK),
        Take::WaitAll => io::recv(fd, &mut buf, libc::MSG_WAITALL),
        Take::Readv => {
            let (left, right) = buf.split_at_mut(half);
            io::readv(fd, &mut [left, &mut [], right])
        }
        Take::Recvmsg => {
            let (left, right) = buf.split_at_mut(half);
            io::recvmsg(fd, &mut [left, right], libc::MSG_DONTWAIT).0
        }
        Take::Raw => call!(libc::syscall(libc::SYS_read, fd, buf.as_mut_ptr(), size)),
        Take::Discard => io::recv(fd, &mut buf, libc::MSG_TRUNC | libc::MSG_DONTWAIT),
        Take::Splice => return through_pipe(fd, size),
    };
    buf.truncate(usize::try_from(r.0).unwrap_or(0));
    (r, buf)
}

fn through_pipe(fd: Fd, size: usize) -> (Ret, Vec<u8>) {
    let (out, into) = net::pipe();
    let mut got = Vec::new();
    while got.len() < size {
        let null = std::ptr::null_mut();
        let most = (size - got.len()).min(30_000);
        let r = call!(libc::splice(
            fd,
            null,
            into,
            null,
            most,
            libc::SPLICE_F_NONBLOCK
        ));
        if r.0 < 0 && got.is_empty() {
            net::close(out).ok();
            net::close(into).ok();
            return (r, got);
        }
        if r.0 <= 0 {
            break;
        }
        let mut piece = vec![0; r.ok()];
        io::read(out, &mut piece).ok();
        got.append(&mut piece);
    }
    net::close(out).ok();
    net::close(into).ok();
    (Ret(got.len() as i64), got)
}
