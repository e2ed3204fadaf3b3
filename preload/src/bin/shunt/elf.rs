//! Whether an ELF file is linked dynamically, from its headers alone. A dynamic program names the
//! loader in a program header (PT_INTERP), and only the loader knows of LD_PRELOAD.
//!
//! The file is anybody's: every number in it is checked before it is used. What is not a plain 64-bit
//! little-endian program, or is cut off, counts as not static, so that nothing is said about it.

use std::io::{Read, Seek, SeekFrom};

/// Bytes of the file header.
const HEADER: usize = 64;
/// Bytes of a program header.
const ENTRY: usize = 56;
/// Program headers at most; real programs have about a dozen.
const MOST: usize = 1024;

/// Bytes of a loader's name at most.
const LONGEST: u64 = 4096;

const CLASS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
const TYPE_EXEC: u16 = 2;
/// A shared object, or a program that can be loaded anywhere.
const TYPE_DYN: u16 = 3;
const PT_INTERP: u32 = 3;

/// Whether the file is an ELF file at all.
pub(crate) fn is_elf(start: &[u8]) -> bool {
    start.starts_with(b"\x7fELF")
}

/// Whether the file is certainly a program that is run without a loader.
pub(crate) fn is_static(file: &mut (impl Read + Seek)) -> bool {
    has_interpreter(file) == Some(false)
}

/// Whether the file is certainly a program for musl's loader, which ends a program under which a library for
/// another C library is put.
pub(crate) fn is_for_musl(file: &mut (impl Read + Seek)) -> bool {
    interpreter(file).is_some_and(|name| name.windows(8).any(|part| part == b"/ld-musl"))
}

/// The loader that the program names.
fn interpreter(file: &mut (impl Read + Seek)) -> Option<Vec<u8>> {
    let table = table(file)?;
    let entry = table
        .chunks_exact(ENTRY)
        .find(|entry| u32_at(entry, 0) == Some(PT_INTERP))?;
    file.seek(SeekFrom::Start(u64_at(entry, 8)?)).ok()?;
    let mut name = Vec::new();
    let size = u64_at(entry, 32)?.min(LONGEST);
    file.take(size).read_to_end(&mut name).ok()?;
    Some(name)
}

/// Nothing for what is not understood.
fn has_interpreter(file: &mut (impl Read + Seek)) -> Option<bool> {
    Some(
        table(file)?
            .chunks_exact(ENTRY)
            .any(|entry| u32_at(entry, 0) == Some(PT_INTERP)),
    )
}

/// The program headers. Nothing for what is not understood.
fn table(file: &mut (impl Read + Seek)) -> Option<Vec<u8>> {
    let mut header = [0; HEADER];
    file.seek(SeekFrom::Start(0)).ok()?;
    file.read_exact(&mut header).ok()?;
    let understood = is_elf(&header)
        && header.get(4) == Some(&CLASS_64)
        && header.get(5) == Some(&LITTLE_ENDIAN)
        && matches!(u16_at(&header, 16)?, TYPE_EXEC | TYPE_DYN)
        && usize::from(u16_at(&header, 54)?) == ENTRY;
    let count = usize::from(u16_at(&header, 56)?);
    if !understood || !(1..=MOST).contains(&count) {
        return None;
    }
    file.seek(SeekFrom::Start(u64_at(&header, 32)?)).ok()?;
    let mut table = vec![0; count * ENTRY];
    file.read_exact(&mut table).ok()?;
    Some(table)
}

fn bytes_at<const N: usize>(from: &[u8], at: usize) -> Option<[u8; N]> {
    from.get(at..)?.first_chunk().copied()
}

fn u16_at(from: &[u8], at: usize) -> Option<u16> {
    bytes_at(from, at).map(u16::from_le_bytes)
}

fn u32_at(from: &[u8], at: usize) -> Option<u32> {
    bytes_at(from, at).map(u32::from_le_bytes)
}

fn u64_at(from: &[u8], at: usize) -> Option<u64> {
    bytes_at(from, at).map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    /// A file of headers only, with segments of these types.
    fn file(kinds: &[u32]) -> Vec<u8> {
        let mut f = vec![0; HEADER];
        f[..6].copy_from_slice(b"\x7fELF\x02\x01");
        f[16] = 3;
        f[32] = 64;
        f[54] = 56;
        f[56] = u8::try_from(kinds.len()).unwrap();
        for kind in kinds {
            f.extend_from_slice(&kind.to_le_bytes());
            f.extend_from_slice(&[0; ENTRY - 4]);
        }
        f
    }

    fn judge(bytes: &[u8]) -> Option<bool> {
        has_interpreter(&mut Cursor::new(bytes))
    }

    #[test]
    fn the_interpreter_decides() {
        assert_eq!(judge(&file(&[6, PT_INTERP, 1])), Some(true));
        assert_eq!(judge(&file(&[1, 1, 2])), Some(false));
        assert!(is_static(&mut Cursor::new(file(&[1]))));
    }

    #[test]
    fn the_loader_s_name_tells_the_c_library() {
        let with = |name: &[u8]| {
            let mut f = file(&[PT_INTERP]);
            let at = f.len() as u64;
            f[HEADER + 8..HEADER + 16].copy_from_slice(&at.to_le_bytes());
            f[HEADER + 32..HEADER + 40].copy_from_slice(&(name.len() as u64).to_le_bytes());
            f.extend_from_slice(name);
            is_for_musl(&mut Cursor::new(f))
        };
        assert!(with(b"/lib/ld-musl-x86_64.so.1\0"));
        assert!(!with(b"/lib64/ld-linux-x86-64.so.2\0"));
        assert!(!with(b"") && !is_for_musl(&mut Cursor::new(file(&[1]))));
    }

    #[test]
    fn what_is_odd_is_not_called_static() {
        let good = file(&[1, 1]);
        assert_eq!(judge(b""), None);
        assert_eq!(judge(b"#!/bin/sh\n"), None);
        for cut in 0..good.len() {
            assert_eq!(judge(&good[..cut]), None, "cut at {cut}");
        }
        // Class, byte order, type, size and number of the entries.
        for (at, value) in [
            (4, 1),
            (5, 2),
            (16, 1),
            (54, 32),
            (56, 0),
            (57, 0xff),
            (0, 0),
        ] {
            let mut bad = good.clone();
            bad[at] = value;
            assert_eq!(judge(&bad), None, "byte {at}");
        }
        let mut far = good.clone();
        far[32..40].fill(0xff);
        assert_eq!(judge(&far), None);
    }

    #[test]
    fn this_very_program_has_a_loader() {
        let mut own = std::fs::File::open("/proc/self/exe").unwrap();
        assert_eq!(has_interpreter(&mut own), Some(true));
    }
}
