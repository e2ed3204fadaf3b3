//! What this process has for itself, by mapping, read from `/proc/self/smaps`. Called by the programs that hold many
//! connections.
//!
//! Memory that is mapped shared but that nobody else has (the kernel calls anonymous memory of this kind `/dev/zero`)
//! counts: a library may keep there what its children will share.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};

use serde_json::{Value, json};

/// Bytes at one moment.
pub(super) struct Memory {
    /// Memory of nobody else (written, or swapped out) by name of the mapping.
    private: BTreeMap<String, i64>,
    /// Of the files that carry streams: what both ends have together.
    buffers: i64,
    page_tables: i64,
    mappings: i64,
}

/// The memory files that carry streams.
const BUFFERS: &str = "/memfd:shunt-arena";

impl Memory {
    pub(super) fn now() -> io::Result<Self> {
        let mut memory = Self::read(BufReader::new(File::open("/proc/self/smaps")?))?;
        let status = std::fs::read_to_string("/proc/self/status")?;
        let line = status.lines().find(|line| line.starts_with("VmPTE:"));
        memory.page_tables = line.and_then(kib).unwrap_or(0);
        Ok(memory)
    }

    fn read(mut smaps: impl BufRead) -> io::Result<Self> {
        let mut memory = Self {
            private: BTreeMap::new(),
            buffers: 0,
            page_tables: 0,
            mappings: 0,
        };
        let (mut line, mut name) = (String::new(), String::new());
        while smaps.read_line(&mut line)? > 0 {
            let first = line.split_whitespace().next().unwrap_or("");
            let is_buffer = name.starts_with(BUFFERS);
            match first {
                "Rss:" if is_buffer => memory.buffers += kib(&line).unwrap_or(0),
                "Private_Dirty:" | "Swap:" if !is_buffer => {
                    if let Some(bytes @ 1..) = kib(&line) {
                        *memory.private.entry(name.clone()).or_default() += bytes;
                    }
                }
                _ if !first.ends_with(':') => {
                    name = named(&line);
                    memory.mappings += 1;
                }
                _ => {}
            }
            line.clear();
        }
        Ok(memory)
    }

    /// What has been added for each of `connections`, in bytes.
    pub(super) fn growth(&self, before: &Self, connections: usize) -> Value {
        let each = |bytes: i64| bytes as f64 / connections.max(1) as f64;
        let was = |name: &str| before.private.get(name).copied().unwrap_or(0);
        let by_mapping: BTreeMap<&str, f64> = self
            .private
            .iter()
            .map(|(name, bytes)| (name.as_str(), each(bytes - was(name))))
            .filter(|(_, bytes)| *bytes != 0.0)
            .collect();
        json!({
            "private": by_mapping.values().sum::<f64>(), "by_mapping": by_mapping,
            "buffers": each(self.buffers - before.buffers),
            "page_tables": each(self.page_tables - before.page_tables),
            "mappings": each(self.mappings - before.mappings),
        })
    }
}

/// The name at the end of a mapping's first line. One without a name is known by its size, as a power of two: the
/// kernel may have joined it to its neighbours.
fn named(line: &str) -> String {
    let mut words = line.split_whitespace();
    let range = words.next().unwrap_or("");
    let name: Vec<&str> = words.skip(4).collect();
    if !name.is_empty() {
        return name.join(" ");
    }
    let address = |word: &str| u64::from_str_radix(word, 16).ok();
    let size = range
        .split_once('-')
        .and_then(|(from, to)| address(to)?.checked_sub(address(from)?));
    let mib = (size.unwrap_or(0) >> 20).next_power_of_two();
    format!("anonymous, up to {mib} MiB")
}

/// The number of a line `Name:   123 kB`, in bytes.
fn kib(line: &str) -> Option<i64> {
    let number: i64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(number * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
7f0000000000-7f0000400000 rw-p 00000000 00:00 0
Rss:                 100 kB
Private_Dirty:        12 kB
Swap:                  4 kB
7f0001000000-7f0001200000 rw-s 00001000 00:01 99   /memfd:shunt-arena (deleted)
Rss:                  40 kB
Private_Dirty:        40 kB
7f0001800000-7f0001900000 rw-s 00000000 00:01 98   /dev/zero (deleted)
Rss:                  20 kB
Private_Dirty:        20 kB
7f0002000000-7f0002001000 rw-p 00000000 00:00 0    [heap]
Private_Dirty:         8 kB
";

    #[test]
    fn what_is_private_is_told_from_what_carries_streams() {
        let memory = Memory::read(SMAPS.as_bytes()).unwrap();
        assert_eq!(memory.buffers, 40 << 10);
        assert_eq!(memory.mappings, 4);
        let names: Vec<_> = memory.private.into_iter().collect();
        assert_eq!(
            names,
            [
                ("/dev/zero (deleted)".to_owned(), 20 << 10),
                ("[heap]".to_owned(), 8 << 10),
                ("anonymous, up to 4 MiB".to_owned(), 16 << 10)
            ]
        );
    }

    #[test]
    fn growth_is_of_one_connection() {
        let before = Memory::read(&b""[..]).unwrap();
        let after = Memory::read(SMAPS.as_bytes()).unwrap();
        let growth = after.growth(&before, 4);
        assert_eq!(growth["private"], 11264.0);
        assert_eq!(growth["by_mapping"]["[heap]"], 2048.0);
        assert_eq!(growth["buffers"], 10240.0);
    }
}
