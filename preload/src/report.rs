//! Writes the line of `SHUNT_REPORT`, once, when the process ends: from the destructor, `_exit`, exec,
//! or the handler of a signal that ends it.

use crate::sockets::Phase;
use crate::world;
use std::ffi::CString;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use transport::sys::fd::{Fd, as_fd};
use transport::sys::{self, net};
use transport::syscall;

static FILE: OnceLock<CString> = OnceLock::new();
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

fn directory() -> String {
    let mut buf = [0u8; 4096];
    // SAFETY: writable for its length.
    let n = unsafe { syscall!(getcwd, buf.as_mut_ptr(), buf.len()) }.unwrap_or(0);
    let text = buf.get(..n.saturating_sub(1)).unwrap_or(&[]);
    String::from_utf8_lossy(text).into_owned()
}

/// Writes the report, unless that has been done.
pub(crate) fn write() {
    let Some(file) = FILE.get() else { return };
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
    let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC;
    // SAFETY: a C string.
    let Ok(fd) = (unsafe { syscall!(openat, libc::AT_FDCWD, file.as_ptr(), flags, 0o666) }) else {
        return;
    };
    let fd = Fd::own(as_fd(fd));
    // Beyond RLIMIT_FSIZE a write is answered with a signal that kills.
    if let Some((limit, _)) = sys::mem::rlimit(libc::RLIMIT_FSIZE)
        && limit != libc::RLIM_INFINITY
    {
        return;
    }
    // One write: lines of different processes do not mix.
    // SAFETY: readable for its length.
    let _ = unsafe { syscall!(write, fd.raw(), line.as_ptr(), line.len()) };
}

/// After fork, in the child: it has carried nothing yet.
pub(crate) fn restart(w: &mut world::World) {
    w.reported = false;
    w.report = None;
}
