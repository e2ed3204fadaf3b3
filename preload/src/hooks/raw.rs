//! syscall(2) on descriptors that are ours: the same call, by the function that serves its name.
//!
//! Only for descriptors that the library follows; anything else is the program's own affair.

use super::{conn, control, epoll, fds, io, message, shutdown, splice, transfer, vector, waiting};
use crate::probe::{Access, is_good};
use crate::table::{self, Entry};
use std::ffi::{c_int, c_long};
use std::ptr::with_exposed_provenance_mut as at;

/// Serves a call, if it is one that the library serves by name and its descriptor is followed. errno is
/// set as that function sets it, which is as syscall(2) does.
///
/// # Safety
/// The words are the program's arguments for this call.
pub(super) unsafe fn serve(nr: c_long, words: [usize; 6]) -> Option<c_long> {
    let [a, b, c, d, e, f] = words;
    let fd = int(a);
    let carries = matches!(nr, libc::SYS_sendmsg | libc::SYS_recvmsg);
    let several = matches!(
        nr,
        libc::SYS_poll | libc::SYS_ppoll | libc::SYS_select | libc::SYS_pselect6
    );
    let any = matches!(
        nr,
        libc::SYS_epoll_create | libc::SYS_epoll_create1 | libc::SYS_close_range
    );
    let target = matches!(
        nr,
        libc::SYS_splice | libc::SYS_sendfile | libc::SYS_dup2 | libc::SYS_dup3
    );
    let known = |fd| !matches!(table::find(fd), Entry::None);
    if !carries && !several && !any && !known(fd) && !(target && (known(int(b)) || known(int(c)))) {
        return None;
    }
    // SAFETY: the words in the order and of the types that the function of that name takes.
    let r = unsafe {
        match nr {
            libc::SYS_read => io::read(fd, at(b), c) as c_long,
            libc::SYS_write => io::write(fd, at(b), c) as c_long,
            libc::SYS_readv => vector::readv(fd, at(b), int(c)) as c_long,
            libc::SYS_writev => vector::writev(fd, at(b), int(c)) as c_long,
            libc::SYS_preadv2 => vector::preadv2(fd, at(b), int(c), offset(d), int(f)) as c_long,
            libc::SYS_pwritev2 => vector::pwritev2(fd, at(b), int(c), offset(d), int(f)) as c_long,
            libc::SYS_recvfrom => io::recvfrom(fd, at(b), c, int(d), at(e), at(f)) as c_long,
            libc::SYS_sendto => io::sendto(fd, at(b), c, int(d), at(e), len(f)) as c_long,
            libc::SYS_recvmsg => message::recvmsg(fd, at(b), int(c)) as c_long,
            libc::SYS_sendmsg => message::sendmsg(fd, at(b), int(c)) as c_long,
            libc::SYS_recvmmsg => message::recvmmsg(fd, at(b), len(c), int(d), at(e)).into(),
            libc::SYS_sendmmsg => message::sendmmsg(fd, at(b), len(c), int(d)).into(),
            libc::SYS_sendfile => transfer::sendfile(fd, int(b), at(c), d) as c_long,
            libc::SYS_splice => splice::splice(fd, at(b), int(c), at(d), e, len(f)) as c_long,
            libc::SYS_shutdown => shutdown::shutdown(fd, int(b)).into(),
            libc::SYS_connect => conn::connect(fd, at(b), len(c)).into(),
            libc::SYS_listen => conn::listen(fd, int(b)).into(),
            libc::SYS_accept => conn::accept(fd, at(b), at(c)).into(),
            libc::SYS_accept4 => conn::accept4(fd, at(b), at(c), int(d)).into(),
            libc::SYS_setsockopt => control::setsockopt(fd, int(b), int(c), at(d), len(e)).into(),
            libc::SYS_getsockopt => control::getsockopt(fd, int(b), int(c), at(d), at(e)).into(),
            libc::SYS_ioctl => control::ioctl(fd, b, c).into(),
            libc::SYS_fcntl => control::fcntl(fd, int(b), c).into(),
            libc::SYS_close => fds::close(fd).into(),
            libc::SYS_close_range => fds::close_range(len(a), len(b), int(c)).into(),
            libc::SYS_dup => fds::dup(fd).into(),
            libc::SYS_dup2 => fds::dup2(fd, int(b)).into(),
            libc::SYS_dup3 => fds::dup3(fd, int(b), int(c)).into(),
            libc::SYS_poll => waiting::poll(at(a), b as libc::nfds_t, int(c)).into(),
            libc::SYS_select => waiting::select(fd, at(b), at(c), at(d), at(e)).into(),
            libc::SYS_ppoll => waiting::ppoll(at(a), b as libc::nfds_t, at(c), at(d)).into(),
            libc::SYS_pselect6 => {
                let mask = mask_of(at(f))?;
                waiting::pselect(fd, at(b), at(c), at(d), at(e), mask).into()
            }
            libc::SYS_epoll_create => epoll::epoll_create(fd).into(),
            libc::SYS_epoll_create1 => epoll::epoll_create1(fd).into(),
            libc::SYS_epoll_ctl => epoll::epoll_ctl(fd, int(b), int(c), at(d)).into(),
            libc::SYS_epoll_wait => epoll::epoll_wait(fd, at(b), int(c), int(d)).into(),
            libc::SYS_epoll_pwait => epoll::epoll_pwait(fd, at(b), int(c), int(d), at(e)).into(),
            libc::SYS_epoll_pwait2 => epoll::epoll_pwait2(fd, at(b), int(c), at(d), at(e)).into(),
            _ => return None,
        }
    };
    Some(r)
}

/// The signal set in the last argument of pselect6(2), which names it and its size; `None` if that cannot be read.
fn mask_of(pair: *const *const libc::sigset_t) -> Option<*const libc::sigset_t> {
    if pair.is_null() {
        return Some(std::ptr::null());
    }
    is_good(pair.cast(), 16, Access::Read)
        // SAFETY: probed.
        .then(|| unsafe { pair.read_unaligned() })
}

/// A word as an offset.
const fn offset(word: usize) -> i64 {
    word.cast_signed() as i64
}

/// The low half of a word, which is all that the kernel looks at.
#[allow(clippy::cast_possible_truncation)]
const fn len(word: usize) -> u32 {
    word as u32
}

const fn int(word: usize) -> c_int {
    len(word).cast_signed()
}
