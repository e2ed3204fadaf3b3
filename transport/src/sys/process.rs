//! Which process is which, and whether it lives, by /proc/PID/stat (proc(5)), which every user may read. A process id alone
//! says neither: it is used again, and means another process in another PID namespace.
//!
//! Called by `shm::owner`, for which no memory is taken, and by the hook of pidfd_getfd.

use super::fd;
use crate::syscall;
use std::ffi::CString;
use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bits of [`Life`] that say when the process began.
const BEGAN_BITS: u32 = 42;

/// One process: its id, and when it began in clock ticks since the system started. Never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life(u64);

/// What the kernel says of one that was known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It has not begun to end: what it has open it has not closed by that.
    Lives,
    /// It ends, or has ended.
    Ends,
    /// It cannot be told.
    Unknown,
}

/// Whether this pidfd is this process's own, as far as /proc tells. (One of another PID namespace tells of other numbers.)
#[must_use]
pub fn is_own(pidfd: i32) -> bool {
    pid_of(pidfd) == Some(super::pid())
}

fn pid_of(pidfd: i32) -> Option<i32> {
    let mut text = [0u8; 512];
    let path = CString::new(format!("/proc/self/fdinfo/{pidfd}")).ok()?;
    let file = fd::open(&path, 0).ok()?;
    // SAFETY: room for as many bytes.
    let n = unsafe { syscall!(read, file.raw(), text.as_mut_ptr(), text.len()) }.ok()?;
    let text = text.get(..n)?.utf8_chunks().next()?.valid();
    let pid = text.lines().find_map(|line| line.strip_prefix("Pid:"))?;
    pid.trim().parse().ok()
}

impl Life {
    const fn new(pid: u32, began: u64) -> Option<Self> {
        let word = (pid as u64) << BEGAN_BITS | began;
        if pid == 0 || pid >= 1 << (u64::BITS - BEGAN_BITS) || began >= 1 << BEGAN_BITS {
            return None;
        }
        Some(Self(word))
    }

    /// From a word that a peer has written, who may have written anything; `None` for 0.
    #[must_use]
    pub const fn of_word(word: u64) -> Option<Self> {
        if word >> BEGAN_BITS == 0 {
            None
        } else {
            Some(Self(word))
        }
    }

    #[must_use]
    pub const fn word(self) -> u64 {
        self.0
    }

    #[allow(clippy::cast_possible_truncation)]
    const fn pid(self) -> u32 {
        (self.0 >> BEGAN_BITS) as u32
    }

    /// This process, of that id. Asked of the kernel once.
    #[must_use]
    pub fn mine(pid: u32) -> Option<Self> {
        static KNOWN: AtomicU64 = AtomicU64::new(0);
        let known = Self::of_word(KNOWN.load(Ordering::Relaxed));
        if let Some(known) = known.filter(|known| known.pid() == pid) {
            return Some(known);
        }
        let me = Self::new(pid, Stat::read(0)?.began)?;
        KNOWN.store(me.0, Ordering::Relaxed);
        Some(me)
    }

    /// What has become of it. One of another PID namespace, or hidden (`hidepid`), is unknown.
    #[must_use]
    pub fn fate(self) -> Fate {
        let began = self.0 & ((1 << BEGAN_BITS) - 1);
        match Stat::read(self.pid()) {
            Some(now) if now.began != began => Fate::Unknown,
            Some(now) if now.ends => Fate::Ends,
            Some(_) => Fate::Lives,
            None => Fate::Unknown,
        }
    }
}

/// The parts of a line of stat that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    ends: bool,
    began: u64,
}

impl Stat {
    /// Of the process of this id; of this very one for 0.
    fn read(pid: u32) -> Option<Self> {
        let mut path = [0u8; 32];
        let room = path.len();
        let mut left = &mut path[..room - 1];
        match pid {
            0 => left.write_all(b"/proc/self/stat"),
            _ => write!(left, "/proc/{pid}/stat"),
        }
        .ok()?;
        let path = std::ffi::CStr::from_bytes_until_nul(&path).ok()?;
        let file = fd::open(path, 0).ok()?;
        let mut text = [0u8; 512];
        let (at, room) = (text.as_mut_ptr(), text.len());
        // SAFETY: room for as many bytes.
        let n = unsafe { syscall!(read, file.raw(), at, room) }.ok()?;
        Self::of_line(text.get(..n)?)
    }

    /// `PID (NAME) STATE …`: what follows the name's last bracket is words (the name may hold any byte).
    fn of_line(line: &[u8]) -> Option<Self> {
        /// Set before anything of the process is taken apart, its open files included.
        const PF_EXITING: u64 = 4;
        let after = line.iter().rposition(|&b| b == b')')?;
        let mut words = line.get(after + 2..)?.split(|&b| b == b' ');
        let state = words.next()?;
        let mut number = |skip| {
            let word = words.nth(skip)?;
            std::str::from_utf8(word).ok()?.parse::<u64>().ok()
        };
        // (the ninth word of all, and the twenty-second)
        let (flags, began) = (number(5)?, number(12)?);
        let gone = matches!(state, b"Z" | b"X" | b"x");
        Some(Self {
            ends: gone || flags & PF_EXITING != 0,
            began,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Fate, Life, Stat};
    use std::process::{Command, id};

    #[test]
    fn a_line_is_read_whatever_the_name() {
        let line = |state, flags| {
            format!("7 (a) R 1 (b) {state} 1 7 7 0 -1 {flags} 1 2 3 4 5 6 7 8 20 0 1 0 4711 99 1")
        };
        let read = |state, flags| Stat::of_line(line(state, flags).as_bytes());
        let stat = |ends| Some(Stat { ends, began: 4711 });
        assert_eq!(read("S", 4_194_304), stat(false));
        assert_eq!(read("R", 4_194_308), stat(true));
        assert_eq!(read("Z", 0), stat(true));
        assert_eq!(Stat::of_line(b"7 (a) S 1 7"), None);
        assert_eq!(Stat::of_line(b""), None);
    }

    #[test]
    fn this_process_lives_and_no_other_is_taken_for_it() {
        let me = Life::mine(id()).unwrap();
        assert_eq!(Life::mine(id()), Some(me));
        assert_eq!(me.fate(), Fate::Lives);
        let word = me.word();
        assert_eq!(Life::of_word(word), Some(me));
        assert_eq!(Life::of_word(word - 1).unwrap().fate(), Fate::Unknown);
        assert_eq!(Life::of_word(0), None);
        assert_eq!(Life::of_word(u64::MAX).unwrap().fate(), Fate::Unknown);
    }

    #[test]
    fn one_that_nobody_has_waited_for_has_ended() {
        let mut child = Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let began = Stat::read(child.id()).unwrap().began;
        let life = Life::new(child.id(), began).unwrap();
        assert_eq!(life.fate(), Fate::Lives);
        child.kill().unwrap();
        while life.fate() == Fate::Lives {
            std::thread::yield_now();
        }
        assert_eq!(life.fate(), Fate::Ends);
        child.wait().unwrap();
        assert_eq!(life.fate(), Fate::Unknown);
    }
}
