//! The program of a rule: a name or a path, with the wildcards of the shell (fnmatch(3): `*`, `?`, `[...]`; `*`
//! matches a `/` too; `\` takes a wildcard for itself).
//!
//! - Without a `/` it is matched with the program's *name*: the last part of its argument 0, as it stands in
//!   the report and in `shunt stat`. A script is known by its interpreter.
//! - With a `/` it is matched with the *path* of the file that the kernel executes, symbolic links
//!   resolved (`/proc/self/exe`). Without /proc no such rule matches.
//!
//! A blank in a name is written `?`: words of a rule end at blanks.

use super::Problem;
use std::ffi::{CStr, CString};
use std::fmt;

/// Whom a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    pattern: CString,
}

/// Who a process is.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    /// The last part of argument 0.
    name: CString,
    /// The executable file.
    path: Option<CString>,
}

impl Identity {
    /// A program with this argument 0 and this executable file, if that is known.
    #[must_use]
    pub fn new(argument: &[u8], path: Option<&[u8]>) -> Self {
        let name = argument.rsplit(|&b| b == b'/').next().unwrap_or(argument);
        Self {
            name: CString::new(name).unwrap_or_default(),
            path: path.and_then(|path| CString::new(path).ok()),
        }
    }
}

impl Program {
    pub(super) fn parse(word: &str) -> Result<Self, Problem> {
        let wrong = || Problem::Program(word.to_owned());
        if word.chars().any(char::is_control) {
            return Err(wrong());
        }
        let pattern = CString::new(word).map_err(|_| wrong())?;
        Ok(Self { pattern })
    }

    /// Whether the file's path is what counts.
    #[must_use]
    pub fn is_path(&self) -> bool {
        self.pattern.to_bytes().contains(&b'/')
    }

    /// Whether it is this program.
    #[must_use]
    pub fn matches(&self, who: &Identity) -> bool {
        if self.is_path() {
            let path = who.path.as_deref();
            path.is_some_and(|path| fnmatch(&self.pattern, path))
        } else {
            fnmatch(&self.pattern, &who.name)
        }
    }

    /// Whether it surely matches all that `other` does.
    pub(super) fn covers(&self, other: &Self) -> bool {
        self == other || self.pattern.as_bytes() == b"*"
    }
}

/// fnmatch(3) in the locale that the process has: at start "C", which takes bytes for characters.
fn fnmatch(pattern: &CStr, text: &CStr) -> bool {
    // SAFETY: both are C strings.
    unsafe { libc::fnmatch(pattern.as_ptr(), text.as_ptr(), 0) == 0 }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.pattern.to_string_lossy())
    }
}
