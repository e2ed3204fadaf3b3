//! Writes the line of `SHUNT_REPORT`, once, when the process ends: from the destructor, `_exit`, exec,
//! or the handler of a signal that ends it.

use crate::sockets::Phase;
use crate::world;
use std::ffi::CString;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use transport::sys::fd::{Fd, as_fd};
use transport::sys::{self, net};
use transport::syscall;

static FILE: OnceLock<CString> = OnceLock::new();
/// No system call may be made any more that the program does not make itself.
static SANDBOXED: AtomicBool = AtomicBool::new(false);
/// The file, opened early; -1 if it is not.
static OPENED: AtomicI32 = AtomicI32::new(-1);
static PROGRAM: OnceLock<String> = OnceLock::new();

/// Keeps the file's full name: the program may change its directory.
pub(crate) fn init(file: Option<&str>, program: String) {
    let _ = PROGRAM.set(program);
    let Some(file) = file else { return };
    let full = if file.starts_with('/') {
        file.to_owned()
    } else {
        format!("{}/{file}", directory())
    };
    if let Ok(c) = CString::new(full) {
        let _ = FILE.set(c);
    }
}

fn open() -> Option<Fd> {
    let file = FILE.get()?;
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC;
    // SAFETY: a C string.
    let fd = unsafe { syscall!(openat, libc::AT_FDCWD, file.as_ptr(), flags, 0o666) };
    Some(Fd::own(as_fd(fd.ok()?)))
}

/// The program is about to go where the file's name means nothing: the file is opened now.
pub(crate) fn before_leaving() {
    if OPENED.load(Ordering::Relaxed) < 0
        && !world::is_foreign()
        && let Some(fd) = open()
    {
        OPENED.store(fd.hide().leak(), Ordering::Relaxed);
    }
}

/// The program is about to enter a sandbox, which may kill it for opening a file: the report is written
/// now, and is the last.
pub(crate) fn before_sandbox() {
    if !world::is_foreign() {
        write();
        SANDBOXED.store(true, Ordering::Relaxed);
    }
}

fn directory() -> String {
    let mut buf = [0u8; 4096];
    // SAFETY: writable for its length.
    let n = unsafe { syscall!(getcwd, buf.as_mut_ptr(), buf.len()) }.unwrap_or(0);
    let text = buf.get(..n.saturating_sub(1)).unwrap_or(&[]);
    String::from_utf8_lossy(text).into_owned()
}

/// Writes the report, unless that has been done.
pub(crate) fn write() {
    if FILE.get().is_none() || SANDBOXED.load(Ordering::Relaxed) {
        return;
    }
    let mut w = world::lock();
    if std::mem::replace(&mut w.reported, true) {
        return;
    }
    let mut report = w.report.take().unwrap_or_default();
    w.pool.each(|s| {
        let connected = !matches!(s.phase(), Phase::Idle | Phase::Listening);
        if connected && s.record.role.load(Ordering::Relaxed) != 0 {
            let fd = s.record.fd.load(Ordering::Relaxed).cast_signed();
            if s.record.names().0.port == 0
                && let (Some(local), Some(peer)) = (net::local(fd), net::peer(fd))
            {
                s.record.set_names(&local, &peer);
            }
            s.note_flow();
            report.add(&s.record);
        }
    });
    drop(w);
    let line = report.line(PROGRAM.get().map_or("", String::as_str), sys::pid());
    let early = OPENED.load(Ordering::Relaxed);
    let fresh = if early < 0 { open() } else { None };
    let Some(fd) = fresh
        .as_ref()
        .map(Fd::raw)
        .or(Some(early).filter(|&fd| fd >= 0))
    else {
        return;
    };
    // Beyond RLIMIT_FSIZE a write is answered with a signal that kills.
    if let Some((limit, _)) = sys::mem::rlimit(libc::RLIMIT_FSIZE)
        && limit != libc::RLIM_INFINITY
    {
        return;
    }
    // One write: lines of different processes do not mix.
    // SAFETY: readable for its length.
    let _ = unsafe { syscall!(write, fd, line.as_ptr(), line.len()) };
}

/// After fork, in the child: it has carried nothing yet.
pub(crate) fn restart(w: &mut world::World) {
    w.reported = false;
    w.report = None;
}
