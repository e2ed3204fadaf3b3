//! Thin safe wrappers over the libc calls that the cases exercise.
//!
//! Each wrapper makes exactly the call it is named after, through the dynamic symbol, so that an
//! interposed definition is the one that runs. Results are `Ret`: the value, or the errno by name.

use std::fmt;

pub mod aside;
pub mod destroy;
pub mod io;
pub mod jump;
pub mod net;
pub mod pass;
pub mod proc;
pub mod wait;

pub type Fd = i32;

/// What a call returned: a value of zero or more, or a negated errno.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ret(pub i64);

impl Ret {
    /// The value of a call that is part of the set-up and must not fail.
    #[track_caller]
    pub fn ok(self) -> usize {
        assert!(self.0 >= 0, "call failed: {self}");
        self.0 as usize
    }

    /// The value as a descriptor.
    #[track_caller]
    pub fn fd(self) -> Fd {
        self.ok() as Fd
    }

    pub fn is(self, errno: i32) -> bool {
        self.0 == -i64::from(errno)
    }
}

impl fmt::Display for Ret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 >= 0 {
            write!(f, "{}", self.0)
        } else {
            f.write_str(&errno_name(-self.0 as i32))
        }
    }
}

/// Turns a libc return value into a `Ret`, reading errno at once.
pub fn ret(value: i64) -> Ret {
    if value >= 0 {
        Ret(value)
    } else {
        Ret(-i64::from(
            std::io::Error::last_os_error().raw_os_error().unwrap_or(0),
        ))
    }
}

/// Makes one libc call and keeps its result.
macro_rules! call {
    ($e:expr) => {{
        // SAFETY: every pointer argument comes from a reference or slice that outlives the call,
        // or is meant to be bad and is only ever looked at by the kernel.
        let value = unsafe { $e };
        $crate::sys::ret(value as i64)
    }};
}
pub(crate) use call;

pub fn errno_name(errno: i32) -> String {
    const NAMES: &[(i32, &str)] = &[
        (libc::EAGAIN, "EAGAIN"),
        (libc::EINTR, "EINTR"),
        (libc::EPIPE, "EPIPE"),
        (libc::ECONNRESET, "ECONNRESET"),
        (libc::ECONNREFUSED, "ECONNREFUSED"),
        (libc::ECONNABORTED, "ECONNABORTED"),
        (libc::ENOTCONN, "ENOTCONN"),
        (libc::EISCONN, "EISCONN"),
        (libc::EINPROGRESS, "EINPROGRESS"),
        (libc::EALREADY, "EALREADY"),
        (libc::ETIMEDOUT, "ETIMEDOUT"),
        (libc::EADDRINUSE, "EADDRINUSE"),
        (libc::EADDRNOTAVAIL, "EADDRNOTAVAIL"),
        (libc::EFAULT, "EFAULT"),
        (libc::EBADF, "EBADF"),
        (libc::EINVAL, "EINVAL"),
        (libc::EEXIST, "EEXIST"),
        (libc::ENOENT, "ENOENT"),
        (libc::ELOOP, "ELOOP"),
        (libc::EPERM, "EPERM"),
        (libc::EMFILE, "EMFILE"),
        (libc::ENFILE, "ENFILE"),
        (libc::ENOMEM, "ENOMEM"),
        (libc::ENOBUFS, "ENOBUFS"),
        (libc::ENOTSOCK, "ENOTSOCK"),
        (libc::EOPNOTSUPP, "EOPNOTSUPP"),
        (libc::EMSGSIZE, "EMSGSIZE"),
        (libc::ESPIPE, "ESPIPE"),
        (libc::ENOTTY, "ENOTTY"),
        (libc::ENOPROTOOPT, "ENOPROTOOPT"),
        (libc::EDESTADDRREQ, "EDESTADDRREQ"),
        (libc::ESRCH, "ESRCH"),
        (libc::ECHILD, "ECHILD"),
        (libc::EDOM, "EDOM"),
    ];
    NAMES
        .iter()
        .find(|(number, _)| *number == errno)
        .map_or_else(|| format!("errno {errno}"), |(_, name)| (*name).to_string())
}
