//! Which processes have the library, and what they are called: everything that is read from /proc about
//! a process as a whole.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use transport::record::STAT_NAME;

/// Mappings looked at in one process; the library makes one.
const MOST_MAPPINGS: usize = 8;

/// Processes of this user, or all for root, by number.
pub(crate) fn visible() -> Vec<u32> {
    // SAFETY: no arguments, cannot fail.
    let (user, own) = (unsafe { libc::geteuid() }, std::process::id());
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut pids: Vec<u32> = entries
        .flatten()
        .filter_map(|e| Some((e.file_name().to_str()?.parse().ok()?, e)))
        .filter(|(pid, e)| {
            *pid != own && (user == 0 || e.metadata().is_ok_and(|m| m.uid() == user))
        })
        .map(|(pid, _)| pid)
        .collect();
    pids.sort_unstable();
    pids
}

/// Where the process has mapped the page that leads to its records; empty without the library.
pub(crate) fn mappings(pid: u32) -> io::Result<Vec<u64>> {
    let maps = fs::read(format!("/proc/{pid}/maps"))?;
    Ok(named(&maps).take(MOST_MAPPINGS).collect())
}

fn named(maps: &[u8]) -> impl Iterator<Item = u64> {
    maps.split(|&b| b == b'\n').filter_map(|line| {
        // Nothing before the name has a slash in it.
        let name = line.get(line.iter().position(|&b| b == b'/')?..)?;
        let name = name
            .strip_prefix(b"/memfd:")?
            .strip_prefix(STAT_NAME.to_bytes())?;
        let start = line.split(|&b| b == b'-').next()?;
        let start = u64::from_str_radix(std::str::from_utf8(start).ok()?, 16).ok()?;
        matches!(name, b"" | b" (deleted)").then_some(start)
    })
}

/// Whether a process that calls itself by this number is this one. In a PID namespace of its own it
/// knows itself by another number than we do.
pub(crate) fn is_called(pid: u32, own: u32) -> bool {
    pid == own
        || fs::read_to_string(format!("/proc/{pid}/status"))
            .is_ok_and(|s| numbers(&s).any(|n| n == own))
}

fn numbers(status: &str) -> impl Iterator<Item = u32> {
    let line = status.lines().find_map(|l| l.strip_prefix("NSpid:"));
    line.into_iter()
        .flat_map(str::split_whitespace)
        .filter_map(|n| n.parse().ok())
}

/// The program's name, as it stands in the report.
pub(crate) fn program(pid: u32) -> String {
    let first = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let first = first.split(|&b| b == 0).next().unwrap_or_default();
    if let Some(name) = short(first) {
        return name;
    }
    let comm = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(comm.trim_ascii_end()).into_owned()
}

/// The last part of a program's path; nothing if the words look like a title that the program gave
/// itself.
fn short(first: &[u8]) -> Option<String> {
    if first.contains(&b' ') {
        return None;
    }
    let name = std::path::Path::new(std::ffi::OsStr::from_bytes(first)).file_name()?;
    Some(name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mapping_is_known_by_its_exact_name() {
        let maps = b"55d0-55d1 r--p 00000000 fe:01 12 /usr/bin/memfd:shunt-stat (deleted)\n\
            7f00aa000000-7f00aa001000 rw-p 00000000 00:01 9      /memfd:shunt-stat (deleted)\n\
            7f00bb000000-7f00bb001000 rw-p 00000000 00:01 9      /memfd:shunt-statue (deleted)\n\
            zz-7f00bb001000 rw-p 00000000 00:01 9      /memfd:shunt-stat (deleted)\n\
            7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0      [stack]\n";
        assert_eq!(named(maps).collect::<Vec<_>>(), [0x7f00_aa00_0000]);
    }

    #[test]
    fn numbers_in_other_namespaces_count() {
        let status = "Name:\tx\nPid:\t812\nNSpid:\t812\t7\nNSpgid:\t812\t9\n";
        assert_eq!(numbers(status).collect::<Vec<_>>(), [812, 7]);
        assert!(is_called(std::process::id(), std::process::id()));
        assert!(!is_called(std::process::id(), u32::MAX));
    }

    #[test]
    fn programs_are_called_as_in_the_report() {
        assert_eq!(short(b"/usr/bin/python3").as_deref(), Some("python3"));
        assert_eq!(short(b"redis-server").as_deref(), Some("redis-server"));
        assert_eq!(short(b"nginx: worker process"), None);
        assert_eq!(short(b""), None);
        assert!(!program(std::process::id()).is_empty());
    }

    #[test]
    fn a_process_without_the_library_has_no_mapping() {
        assert!(mappings(std::process::id()).unwrap().is_empty());
        assert!(mappings(u32::MAX).is_err());
        assert!(!visible().contains(&std::process::id()));
    }
}
