//! Small files in memory that other processes of the same user find by a name that both know. Used for what a process leaves to
//! one that it has nothing else in common with.
//!
//! Rule: a file is believed only if it is this user's and nobody else may read or write it: the folder is everybody's.

use super::fd::{self, Fd, as_fd};
use super::{Errno, Result, euid, listing};
use crate::syscall;
use std::ffi::CStr;

/// Where they lie: in the first of these that there is, and that has room.
const FOLDERS: [&CStr; 3] = [c"/dev/shm", c"/tmp", c"/var/tmp"];
/// What their names begin with.
const PREFIX: &str = "shunt-kept.";
/// Octets of a name, with the byte that ends it.
const NAME: usize = 48;

/// A name: what the file is about, and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name([u8; NAME]);

impl Name {
    /// What this user's file about so numbered a thing is called.
    #[must_use]
    pub fn of(number: u64) -> Self {
        Self::by(euid(), number)
    }

    fn by(user: u32, number: u64) -> Self {
        use std::io::Write;
        let mut name = [0u8; NAME];
        // (the longest takes 11 + 10 + 1 + 16 octets)
        let _ = write!(name.as_mut_slice(), "{PREFIX}{user}.{number:x}");
        Self(name)
    }

    const fn at(&self) -> *const u8 {
        self.0.as_ptr()
    }
}

/// Makes the file, of so many bytes, all of which there is memory for.
///
/// # Errors
/// As open(2) and fallocate(2), in the last of the folders: ENOENT if there is none, ENOSPC if it is full.
pub fn make(name: Name, len: usize) -> Result<Fd> {
    if super::mem::rlimit(libc::RLIMIT_FSIZE).is_some_and(|(soft, _)| soft < len as u64) {
        return Err(Errno(libc::EFBIG)); // (the kernel would send SIGXFSZ)
    }
    remove(name); // (one that is left of a connection that was called so before)
    let mut made = Err(Errno(libc::ENOENT));
    for folder in FOLDERS {
        made = folder_at(folder).and_then(|folder| make_in(&folder, name, len));
        if made.is_ok() {
            break;
        }
    }
    made
}

fn make_in(folder: &Fd, name: Name, len: usize) -> Result<Fd> {
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: a name that ends with a zero.
    let fd = unsafe { syscall!(openat, folder.raw(), name.at(), flags, 0o600) }?;
    let file = Fd::own(as_fd(fd));
    // SAFETY: no pointers.
    let room = unsafe { syscall!(fallocate, file.raw(), 0, 0, len) };
    if let Err(e) = room {
        take_away(folder, &name.0);
        return Err(e);
    }
    Ok(file)
}

/// The file of that name, and its size.
///
/// # Errors
/// ENOENT if there is none that is to be believed; else as open(2).
pub fn find(name: Name) -> Result<(Fd, usize)> {
    let mut found = Err(Errno(libc::ENOENT));
    for folder in FOLDERS {
        match find_in(folder, name) {
            Err(Errno(libc::ENOENT)) => {}
            Err(e) => found = Err(e),
            there => return there,
        }
    }
    found
}

fn find_in(folder: &CStr, name: Name) -> Result<(Fd, usize)> {
    let flags = libc::O_RDWR | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let folder = folder_at(folder)?;
    let none = Errno(libc::ENOENT);
    // SAFETY: a name that ends with a zero.
    let fd = match unsafe { syscall!(openat, folder.raw(), name.at(), flags, 0) } {
        Err(Errno(libc::EACCES | libc::EPERM | libc::ELOOP)) => return Err(none), // (somebody else's)
        opened => opened?,
    };
    let file = Fd::own(as_fd(fd));
    let st = fd::stat(file.raw())?;
    let own = st.st_uid == euid() && st.st_mode & (libc::S_IFMT | 0o077) == libc::S_IFREG;
    let size = usize::try_from(st.st_size).map_err(|_| none)?;
    own.then_some((file, size)).ok_or(none)
}

/// Takes it out of the folder. Whoever has it mapped keeps it.
pub fn remove(name: Name) {
    for folder in FOLDERS {
        if let Ok(folder) = folder_at(folder) {
            take_away(&folder, &name.0);
        }
    }
}

/// Takes away this user's that are older than so many seconds: nobody has come for them.
pub fn sweep(seconds: i64) {
    let now = i64::try_from(crate::clock::wall_s()).unwrap_or(0);
    let user = euid();
    for folder in FOLDERS {
        let Ok(folder) = folder_at(folder) else {
            continue;
        };
        listing::names(&folder, |name| {
            if name.starts_with(PREFIX.as_bytes())
                && let Some(st) = stat_at(&folder, name)
                && st.st_uid == user
                && now.saturating_sub(st.st_mtime) > seconds
            {
                take_away(&folder, name);
            }
            true
        });
    }
}

fn folder_at(path: &CStr) -> Result<Fd> {
    fd::open(path, libc::O_DIRECTORY)
}

/// `name` ends with a zero.
fn take_away(folder: &Fd, name: &[u8]) {
    // SAFETY: as above.
    let _ = unsafe { syscall!(unlinkat, folder.raw(), name.as_ptr(), 0) };
}

/// `name` ends with a zero.
fn stat_at(folder: &Fd, name: &[u8]) -> Option<libc::stat> {
    let mut st = std::mem::MaybeUninit::<libc::stat>::zeroed();
    let (at, flags) = (st.as_mut_ptr(), libc::AT_SYMLINK_NOFOLLOW);
    // SAFETY: as above; `st` is writable memory of the size that is filled.
    unsafe { syscall!(newfstatat, folder.raw(), name.as_ptr(), at, flags) }.ok()?;
    // SAFETY: zeroed, then filled by the kernel; every bit pattern is a valid `stat`.
    Some(unsafe { st.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number that no connection has.
    fn number(which: u64) -> u64 {
        u64::MAX - 16 * u64::from(std::process::id()) - which
    }

    #[test]
    fn what_is_made_is_found_until_it_is_removed() {
        let name = Name::of(number(0));
        assert!(find(name).is_err());
        let file = make(name, 5000).unwrap();
        let (found, size) = find(name).unwrap();
        assert_eq!(size, 5000);
        assert_eq!(fd::inode(found.raw()), fd::inode(file.raw()));
        let again = make(name, 6).unwrap();
        assert_ne!(fd::inode(again.raw()), fd::inode(file.raw()));
        sweep(1000);
        assert!(find(name).is_ok());
        remove(name);
        assert!(find(name).is_err());
    }

    #[test]
    fn others_files_links_and_folders_are_not_believed() {
        let name = Name::of(number(1));
        let file = make(name, 10).unwrap();
        for mode in [0o640u32, 0o604, 0o620, 0o666] {
            // SAFETY: no pointers.
            unsafe { syscall!(fchmod, file.raw(), mode) }.unwrap();
            assert!(find(name).is_err(), "{mode:o}");
        }
        remove(name);
        let folder = folder_at(FOLDERS[0]).unwrap();
        // SAFETY: C strings.
        unsafe { syscall!(symlinkat, c"/etc/passwd".as_ptr(), folder.raw(), name.at()) }.unwrap();
        assert!(find(name).is_err());
        assert!(make(name, 10).is_ok()); // (in the link's place)
        remove(name);
    }

    #[test]
    fn the_longest_name_fits() {
        let Name(longest) = Name::by(u32::MAX, u64::MAX);
        assert_eq!(longest.last(), Some(&0));
        assert!(longest.starts_with(b"shunt-kept.4294967295.ffffffffffffffff\0"));
    }
}
