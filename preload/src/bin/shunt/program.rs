//! What a program is that is about to be run: where the name leads, and whether the loader will put a
//! library under it. Only looks; the kernel and the C library decide once more when it is executed.

use crate::elf;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// As much of a script's first line as the kernel reads.
const FIRST_LINE: usize = 256;
/// Interpreters that are themselves scripts, as deep as the kernel goes.
const DEPTH: usize = 5;
/// Where execvp(3) looks without PATH.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// Why a library cannot be put under a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    Static,
    Musl,
    SetId,
    Capabilities,
}

impl Obstacle {
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Static => "is statically linked",
            Self::Musl => "is made for musl",
            Self::SetId => "is set-user-ID or set-group-ID",
            Self::Capabilities => "has file capabilities",
        }
    }
}

/// The file that execvp(3) would run for this name.
pub(crate) fn find(name: &OsStr, path: Option<&OsStr>) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(name.into());
    }
    let path = path.unwrap_or_else(|| OsStr::new(DEFAULT_PATH));
    std::env::split_paths(path)
        .map(|folder| {
            if folder.as_os_str().is_empty() {
                ".".into()
            } else {
                folder
            }
        })
        .map(|folder| folder.join(name))
        .find(|file| file.is_file() && executable(file))
}

/// What stands in the way of a library under this program, and in which file: its own, or that of the
/// interpreter that its first line names.
pub(crate) fn obstacle(program: &Path) -> Option<(PathBuf, Obstacle)> {
    let mut file = program.to_owned();
    for _ in 0..DEPTH {
        let mut open = File::open(&file).ok()?;
        let mut start = Vec::new();
        open.by_ref()
            .take(FIRST_LINE as u64)
            .read_to_end(&mut start)
            .ok()?;
        if let Some(interpreter) = interpreter(&start) {
            file = interpreter.into();
            continue;
        }
        if !elf::is_elf(&start) {
            return None;
        }
        let obstacle = if open.metadata().is_ok_and(|m| sets_id(m.mode())) {
            Obstacle::SetId
        } else if has_capabilities(&file) {
            Obstacle::Capabilities
        } else if elf::is_static(&mut open) && !is_loader(&file) {
            Obstacle::Static
        } else if elf::is_for_musl(&mut open) {
            Obstacle::Musl
        } else {
            return None;
        };
        return Some((file, obstacle));
    }
    None
}

/// The interpreter that the first line of a script names.
fn interpreter(start: &[u8]) -> Option<OsString> {
    let line = start.strip_prefix(b"#!")?;
    let line = line.split(|&b| b == b'\n' || b == 0).next()?;
    let mut words = line
        .split(|&b| b == b' ' || b == b'\t')
        .filter(|word| !word.is_empty());
    words.next().map(|word| OsString::from_vec(word.to_vec()))
}

const fn sets_id(mode: u32) -> bool {
    // Without the execute bit of the group, set-group-ID meant mandatory locking.
    mode & libc::S_ISUID != 0
        || mode & (libc::S_ISGID | libc::S_IXGRP) == libc::S_ISGID | libc::S_IXGRP
}

/// The dynamic loader has no loader of its own, and preloads for the program in its arguments.
fn is_loader(file: &Path) -> bool {
    let real = std::fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let name = real.file_name().unwrap_or_default().as_bytes();
    name.starts_with(b"ld-") && name.windows(3).any(|part| part == b".so")
        || name.starts_with(b"ld.so")
}

fn executable(file: &Path) -> bool {
    let Ok(name) = CString::new(file.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: a C string.
    unsafe { libc::faccessat(libc::AT_FDCWD, name.as_ptr(), libc::X_OK, libc::AT_EACCESS) == 0 }
}

fn has_capabilities(file: &Path) -> bool {
    let Ok(name) = CString::new(file.as_os_str().as_bytes()) else {
        return false;
    };
    let attribute = c"security.capability".as_ptr();
    // SAFETY: two C strings; with size 0 nothing is written.
    unsafe { libc::getxattr(name.as_ptr(), attribute, std::ptr::null_mut(), 0) > 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    /// A folder that goes when the test does.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let at = std::env::temp_dir().join(format!("shunt-{name}-{}", std::process::id()));
            fs::create_dir_all(&at).unwrap();
            Self(at)
        }

        fn file(&self, name: &str, content: &[u8], mode: u32) -> PathBuf {
            let at = self.0.join(name);
            fs::write(&at, content).unwrap();
            fs::set_permissions(&at, PermissionsExt::from_mode(mode)).unwrap();
            at
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// One segment that is loaded, no interpreter.
    fn static_program() -> Vec<u8> {
        let mut f = vec![0; 64 + 56];
        f[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (f[16], f[32], f[54], f[56], f[64]) = (2, 64, 56, 1, 1);
        f
    }

    #[test]
    fn the_first_line_names_the_interpreter() {
        let of = |line: &[u8]| interpreter(line).map(|i| i.into_string().unwrap());
        assert_eq!(of(b"#!/bin/sh\necho"), Some("/bin/sh".into()));
        assert_eq!(
            of(b"#! \t/usr/bin/env python3 -u\n"),
            Some("/usr/bin/env".into())
        );
        assert_eq!(of(b"#!/no/end"), Some("/no/end".into()));
        assert_eq!(
            (of(b"#!\n/bin/sh"), of(b"#!  "), of(b"# comment"), of(b"")),
            (None, None, None, None)
        );
    }

    #[test]
    fn names_are_found_as_the_shell_finds_them() {
        let folder = Folder::new("find");
        folder.file("plain", b"", 0o644);
        let good = folder.file("good", b"", 0o755);
        let path = std::env::join_paths(["/nonexistent".into(), folder.0.clone()]).unwrap();
        assert_eq!(find("good".as_ref(), Some(&path)), Some(good));
        assert_eq!(find("plain".as_ref(), Some(&path)), None);
        assert_eq!(find("a/b".as_ref(), Some(&path)), Some("a/b".into()));
        assert!(find("sh".as_ref(), None).is_some());
    }

    #[test]
    fn static_and_set_id_programs_are_known_also_behind_scripts() {
        let folder = Folder::new("obstacle");
        let fixed = folder.file("fixed", &static_program(), 0o755);
        assert_eq!(obstacle(&fixed), Some((fixed.clone(), Obstacle::Static)));
        let script = folder.file(
            "script",
            format!("#!{} -x\n", fixed.display()).as_bytes(),
            0o755,
        );
        let twice = folder.file(
            "twice",
            format!("#! {}\n", script.display()).as_bytes(),
            0o755,
        );
        assert_eq!(obstacle(&twice), Some((fixed, Obstacle::Static)));
        let setid = folder.file("setid", &fs::read("/proc/self/exe").unwrap(), 0o4755);
        assert_eq!(obstacle(&setid), Some((setid, Obstacle::SetId)));
        let around = folder.0.join("around");
        fs::write(&around, format!("#!{}\n", around.display())).unwrap();
        assert_eq!(obstacle(&around), None);
    }

    #[test]
    fn nothing_is_said_of_other_files() {
        let folder = Folder::new("other");
        assert_eq!(obstacle(Path::new("/proc/self/exe")), None);
        assert_eq!(obstacle(Path::new("/nonexistent")), None);
        assert_eq!(obstacle(&folder.file("text", b"echo hello\n", 0o755)), None);
        assert_eq!(
            obstacle(&folder.file("ld-odd.so.1", &static_program(), 0o755)),
            None
        );
    }
}
