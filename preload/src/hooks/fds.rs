//! Descriptors as such: closing, duplicating, passing, and every call that makes one (whose number must
//! not stand for anything old).

use super::conn::{can_follow, follow, made};
use crate::poll;
use crate::real::{self, other, set_errno};
use crate::sockets::close::{forget, forget_and};
use crate::sockets::demote::{Unread, demote};
use crate::sockets::{Phase, Socket, Way, apart, forwarded, listener, options, residual, wired};
use crate::table::{self, Entry};
use crate::world;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::Ordering;
use transport::reason::Reason;
use transport::sys::mem::rlimit;
use transport::sys::{diag, net};
use transport::syscall;

fn bad_descriptor() -> c_int {
    set_errno(libc::EBADF);
    -1
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    match table::find(fd) {
        Entry::None => {
            // SAFETY: the program's argument, passed on.
            let r = unsafe { real::close(fd) };
            if r == 0 {
                poll::had(fd); // (it may have been left one, which was not made here)
            }
            return r;
        }
        Entry::Hidden if apart::is_own() || world::is_foreign() => {}
        Entry::Hidden => return bad_descriptor(),
        Entry::Socket(_) | Entry::Set(_) => {
            return super::threads::may_cancel(|| {
                // SAFETY: the program's argument, passed on.
                forget_and(fd, || unsafe { real::close(fd) })
            });
        }
    }
    // SAFETY: the program's argument, passed on.
    unsafe { real::close(fd) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __close(fd: c_int) -> c_int {
    // SAFETY: an alias.
    unsafe { close(fd) }
}

/// Closes a range around the library's own descriptors.
fn close_around(first: u32, last: u32, flags: u32) -> c_int {
    if flags & libc::CLOSE_RANGE_CLOEXEC == 0 && !apart::is_own() && !world::is_foreign() {
        let mut known = [0i32; 128];
        loop {
            let mut n = 0;
            table::each(first, last, |fd, entry| {
                if !matches!(entry, Entry::Hidden)
                    && let Some(slot) = known.get_mut(n)
                {
                    *slot = fd;
                    n += 1;
                }
            });
            for &fd in known.iter().take(n) {
                forget(fd);
            }
            if n < known.len() {
                break;
            }
        }
    }
    let mut from = first;
    let mut failed = 0;
    let range = |a: u32, b: u32| {
        // SAFETY: no pointers.
        match unsafe { syscall!(close_range, a, b, flags) } {
            Ok(_) => 0,
            Err(e) => e.0,
        }
    };
    table::each(first, last, |fd, entry| {
        let at = fd.cast_unsigned();
        if matches!(entry, Entry::Hidden) {
            if at > from && failed == 0 {
                failed = range(from, at - 1);
            }
            from = at + 1;
        }
    });
    if failed == 0 && from <= last {
        failed = range(from, last);
    }
    if failed != 0 {
        set_errno(failed);
        return -1;
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: u32, last: u32, flags: c_int) -> c_int {
    let flags = flags.cast_unsigned();
    let known = libc::CLOSE_RANGE_UNSHARE | libc::CLOSE_RANGE_CLOEXEC;
    if first > last || flags & !known != 0 {
        set_errno(libc::EINVAL);
        return -1;
    }
    let apart = flags & libc::CLOSE_RANGE_UNSHARE;
    if apart != 0 && !crate::signals::is_sandboxed() {
        // (the library's own it has too, and closes around)
        let kernel = |files: bool| {
            let flags = if files { libc::CLONE_FILES } else { 0 };
            // SAFETY: no pointers.
            real::ret_int(unsafe { syscall!(unshare, flags) })
        };
        if super::process::with_own_files(kernel) != 0 {
            return -1;
        }
        return close_around(first, last, flags & !apart);
    }
    close_around(first, last, flags)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    let first = first.max(0).cast_unsigned();
    if close_around(first, u32::MAX, 0) != 0 && real::errno() == libc::ENOSYS {
        // A kernel without close_range: one by one, as libc does.
        let last = rlimit(libc::RLIMIT_NOFILE).map_or(1024, |l| l.0.min(1 << 20));
        for fd in i64::from(first)..last.cast_signed() {
            if let Ok(fd) = c_int::try_from(fd) {
                // SAFETY: as the program asked.
                unsafe { close(fd) };
            }
        }
    }
}

/// `new` now stands for the same as `old`.
pub(super) fn duplicated(old: c_int, new: c_int) {
    if old == new || new < 0 {
        return;
    }
    made(new);
    let e = real::errno();
    if apart::is_own() {
        return; // (the process does not have it)
    }
    if world::is_foreign() {
        // A child that is about to execute something: its program will hold the stream by a number that
        // nothing is known of here.
        if let Some(s) = table::socket(old)
            && super::exec::is_it(old)
        {
            demote(s, old, Reason::Exec, Unread::GiveBack);
            set_errno(e);
        }
        return;
    }
    let _w = world::lock();
    match table::find(old) {
        Entry::Socket(s) if table::can_hold(new) => {
            s.refs.fetch_add(1, Ordering::AcqRel);
            table::put_socket(new, s);
        }
        Entry::Set(s) if table::can_hold(new) => {
            s.share();
            table::put_set(new, s);
        }
        _ => {}
    }
    drop(_w);
    set_errno(e);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup(fd: c_int) -> c_int {
    if table::is_hidden(fd) {
        return bad_descriptor();
    }
    // SAFETY: the program's argument, passed on.
    let new = unsafe { real::dup(fd) };
    duplicated(fd, new);
    made_standard(new);
    new
}

fn dup_onto(old: c_int, new: c_int, kernel: impl FnOnce() -> c_int) -> c_int {
    if table::is_hidden(old) || table::is_hidden(new) {
        return bad_descriptor();
    }
    if old != new && !matches!(table::find(new), Entry::None) {
        // The old meaning ends only if the call will succeed.
        // SAFETY: no pointers.
        if unsafe { syscall!(fcntl, old, libc::F_GETFD) }.is_err() || is_beyond_limit(new) {
            return bad_descriptor();
        }
        return forget_and(new, || put_onto(old, kernel));
    }
    put_onto(old, kernel)
}

fn put_onto(old: c_int, kernel: impl FnOnce() -> c_int) -> c_int {
    let r = kernel();
    if r >= 0 {
        duplicated(old, r);
        if old != r {
            made_standard(r);
        }
    }
    r
}

/// Whether the program may not make a descriptor of this number (RLIMIT_NOFILE), though it has had one.
fn is_beyond_limit(fd: c_int) -> bool {
    rlimit(libc::RLIMIT_NOFILE).is_some_and(|(soft, _)| u64::from(fd.cast_unsigned()) >= soft)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    if old == new && table::is_hidden(old) {
        return bad_descriptor();
    }
    // SAFETY: the program's arguments, passed on. (Not dup3, which a sandbox may know nothing of.)
    dup_onto(old, new, || unsafe { real::dup2(old, new) })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __dup2(old: c_int, new: c_int) -> c_int {
    // SAFETY: an alias.
    unsafe { dup2(old, new) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    if old == new || flags & !libc::O_CLOEXEC != 0 {
        set_errno(libc::EINVAL);
        return -1;
    }
    // SAFETY: the program's arguments, passed on.
    dup_onto(old, new, || unsafe { real::dup3(old, new, flags) })
}

/// Sends every socket that a message passes to another process back to kernel TCP, by itself or in a set.
///
/// # Safety
/// `msg` is the program's message.
pub(super) unsafe fn passing(msg: *const libc::msghdr) {
    each_passed(msg, |fd| match table::find(fd) {
        Entry::Socket(s) => {
            demote(s, fd, Reason::Passed, Unread::GiveBack);
            wired::await_others(s);
            forwarded::leave(s, fd);
        }
        Entry::Set(set) => set.pass_on(),
        Entry::None | Entry::Hidden => {}
    });
}

/// Numbers that a message has just brought stand for nothing old.
///
/// # Safety
/// `msg` was filled by the kernel.
pub(super) unsafe fn received(msg: *const libc::msghdr) {
    each_passed(msg, arrived);
}

/// A descriptor has come from elsewhere.
pub(super) fn arrived(fd: c_int) {
    made(fd);
    rejoin(fd);
    // (before what may be a connection: a listener that nobody has asked anything looks like one that is unused)
    if world::is_ready() {
        listener::note(fd);
    }
    take_in_unasked(fd);
}

/// A stream that comes back to a process that has it already is the same one: bytes of it that are kept
/// here are read by the new number too. So are those that another process has left for it.
fn rejoin(fd: c_int) {
    if apart::is_own() || world::is_foreign() || !table::can_hold(fd) {
        return;
    }
    if residual::is_any()
        && let Ok(inode) = transport::sys::fd::inode(fd)
    {
        let mut same = None;
        table::each(0, u32::MAX, |other, entry| {
            if let Entry::Socket(s) = entry
                && residual::is_due(s)
                && transport::sys::fd::inode(other) == Ok(inode)
            {
                same = Some(other);
            }
        });
        if let Some(other) = same {
            return duplicated(other, fd);
        }
        if residual::is_parted(inode) {
            return read_first(fd, |s| {
                residual::rejoin(s, inode);
                true
            });
        }
    }
    if table::socket(fd).is_none()
        && can_follow(fd)
        && let Some(left) = forwarded::find(fd)
        && let Ok(inode) = transport::sys::fd::inode(fd)
    {
        read_first(fd, |s| residual::join(s, left, inode));
    }
}

/// Follows a connection on kernel TCP that has come with bytes to be read first.
fn read_first(fd: c_int, keep: impl FnOnce(&Socket) -> bool) {
    let mut w = world::lock();
    let kept = follow(&mut w, fd, net::is_nonblocking(fd)).is_some_and(|s| {
        s.record.begin(fd, 2, Reason::Passed);
        options::take_over_kept(s, fd);
        s.set_phase(Phase::Plain);
        keep(s)
    });
    if !kept {
        net::disconnect(fd); // a reset, never a gap
    }
}

/// A connection has come from another process before it carried anything, where a rule says that its other end asks for
/// software iWARP: the request may come now, and is not for the program to see.
fn take_in_unasked(fd: c_int) {
    if table::socket(fd).is_some() || !can_follow(fd) || !wired::is_named_at(fd) {
        return;
    }
    let is_unused =
        diag::carried(fd).is_some_and(|c| c.sent == 0 && c.received == net::unread(fd) as u64);
    // (what has no other end yet may become a listener, or connect by itself)
    let Some(peer) = net::peer(fd).filter(|_| is_unused) else {
        return;
    };
    let mut w = world::lock();
    if let Some(s) = follow(&mut w, fd, net::is_nonblocking(fd)) {
        s.record.begin(fd, 2, Reason::Undecided);
        s.record.set_peer(&peer);
        // SAFETY: under the registry lock.
        unsafe { *s.way.get() = Way::Passed };
        wired::begin_as_server(s);
    }
    drop(w);
    wired::overdue::attend();
}

fn each_passed(msg: *const libc::msghdr, mut each: impl FnMut(c_int)) {
    use crate::probe::{Access, is_good};
    if !is_good(msg.cast(), size_of::<libc::msghdr>(), Access::Read) {
        return;
    }
    // SAFETY: probed; the control buffer is walked with libc's own macros, within its length.
    unsafe {
        let m = &*msg;
        if m.msg_controllen == 0 || !is_good(m.msg_control.cast(), m.msg_controllen, Access::Read) {
            return;
        }
        let mut c = libc::CMSG_FIRSTHDR(msg);
        while !c.is_null() {
            if (*c).cmsg_level == libc::SOL_SOCKET && (*c).cmsg_type == libc::SCM_RIGHTS {
                let bytes = (*c).cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
                for i in 0..(bytes / 4).min(253) {
                    each(libc::CMSG_DATA(c).cast::<c_int>().add(i).read_unaligned());
                }
            }
            c = libc::CMSG_NXTHDR(msg, c);
        }
    }
}

/// Whether a stream of stdio that is opened so reads: its mode begins with r, or has a + after its first letter (and perhaps
/// a b).
fn reads(mode: *const c_char) -> bool {
    if mode.is_null() {
        return false;
    }
    // SAFETY: the program's C string; nothing is looked at behind its end.
    let letter = |i: usize| unsafe { *mode.add(i) }.cast_unsigned();
    let first = letter(0);
    let second = if first == 0 { 0 } else { letter(1) };
    first == b'r' || second == b'+' || (second != 0 && letter(2) == b'+')
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut c_void {
    // stdio calls the kernel by names that cannot be interposed.
    if let Some(s) = table::socket(fd) {
        let unread = if reads(mode) {
            Unread::Ask
        } else {
            Unread::GiveBack
        };
        demote(s, fd, Reason::Stdio, unread);
    }
    let next = other::fdopen.get();
    if next.is_null() {
        set_errno(libc::ENOSYS);
        return std::ptr::null_mut();
    }
    // SAFETY: libc's function of this name and signature.
    unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int, *const c_char) -> *mut c_void>(
            next,
        )(fd, mode)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn vdprintf(fd: c_int, format: *const c_char, args: *mut c_void) -> c_int {
    by_stdio(fd);
    let next = other::vdprintf.get();
    if next.is_null() {
        return -1;
    }
    // SAFETY: libc's function; a va_list is passed as a pointer on the platforms this builds for.
    unsafe {
        std::mem::transmute::<
            *mut c_void,
            unsafe extern "C" fn(c_int, *const c_char, *mut c_void) -> c_int,
        >(next)(fd, format, args)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __vdprintf_chk(
    fd: c_int,
    flag: c_int,
    format: *const c_char,
    args: *mut c_void,
) -> c_int {
    by_stdio(fd);
    let next = other::__vdprintf_chk.get();
    if next.is_null() {
        return -1;
    }
    // SAFETY: as above.
    unsafe {
        std::mem::transmute::<
            *mut c_void,
            unsafe extern "C" fn(c_int, c_int, *const c_char, *mut c_void) -> c_int,
        >(next)(fd, flag, format, args)
    }
}

/// A stream is a standard one from now on: libc's stdio uses it by names that cannot be interposed. (What is about to execute
/// something, in its parent's memory, is `exec`'s.)
pub(super) fn made_standard(new: c_int) {
    if (0..=2).contains(&new)
        && !world::is_foreign()
        && let Some(s) = table::socket(new)
    {
        let e = real::errno();
        demote(s, new, Reason::Stdio, Unread::GiveBack); // (as exec does, which may follow)
        set_errno(e);
    }
}

/// The descriptor is about to be used by libc's own printing.
pub(super) extern "C" fn by_stdio(fd: c_int) {
    if let Some(s) = table::socket(fd) {
        demote(s, fd, Reason::Stdio, Unread::GiveBack);
    }
}

/// Calls that make descriptors and are otherwise the kernel's.
macro_rules! makers {
    ($($name:ident($($arg:ident: $ty:ty),*) $nr:ident($($word:expr),*);)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> c_int {
            // SAFETY: the program's arguments, passed on.
            made(real::ret_int(unsafe { syscall!($nr, $($word),*) }))
        }
    )*};
}

const HERE: c_int = libc::AT_FDCWD;
const CREATE: c_int = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;

makers! {
    eventfd(n: u32, flags: c_int) eventfd2(n, flags);
    timerfd_create(clock: c_int, flags: c_int) timerfd_create(clock, flags);
    inotify_init() inotify_init1(0);
    inotify_init1(flags: c_int) inotify_init1(flags);
    memfd_create(name: *const c_char, flags: u32) memfd_create(name, flags);
}

/// Opening files: through libc, whose calls are cancellation points.
macro_rules! openers {
    ($($name:ident($($arg:ident: $ty:ty),*) ($dir:expr, $path:expr, $flags:expr, $mode:expr);)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> c_int {
            // SAFETY: the program's arguments, passed on.
            made(unsafe { real::openat($dir, $path, $flags, $mode) })
        }
    )*};
}

openers! {
    open(path: *const c_char, flags: c_int, mode: libc::mode_t) (HERE, path, flags, mode);
    open64(path: *const c_char, flags: c_int, mode: libc::mode_t) (HERE, path, flags, mode);
    __open_2(path: *const c_char, flags: c_int) (HERE, path, flags, 0);
    __open64_2(path: *const c_char, flags: c_int) (HERE, path, flags, 0);
    openat(dir: c_int, path: *const c_char, flags: c_int, mode: libc::mode_t) (dir, path, flags, mode);
    openat64(dir: c_int, path: *const c_char, flags: c_int, mode: libc::mode_t) (dir, path, flags, mode);
    creat(path: *const c_char, mode: libc::mode_t) (HERE, path, CREATE, mode);
    creat64(path: *const c_char, mode: libc::mode_t) (HERE, path, CREATE, mode);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pipe2(out: *mut c_int, flags: c_int) -> c_int {
    // SAFETY: the program's arguments, passed on; what the kernel has written.
    unsafe { made_pipe(out, real::pipe2(out, flags)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pipe(out: *mut c_int) -> c_int {
    // SAFETY: as above.
    unsafe { made_pipe(out, real::pipe(out)) }
}

/// # Safety
/// If `r` is 0 the kernel has written both.
unsafe fn made_pipe(out: *mut c_int, r: c_int) -> c_int {
    if r == 0 {
        // SAFETY: the kernel has just written both.
        unsafe {
            made(*out);
            made(*out.add(1));
        }
    }
    r
}
