//! What a result was measured on, in words. Called by whatever writes results down.

use std::fs;

pub(crate) fn cpu() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .unwrap_or_default();
    model.trim_start_matches([' ', '\t', ':']).into()
}

pub(crate) fn kernel() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    release.trim().into()
}

/// Threads that wanted to run, on average over the last minute: more than none before a measurement disturbs it.
pub(crate) fn load() -> f64 {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let first = load.split_whitespace().next();
    first.and_then(|word| word.parse().ok()).unwrap_or(0.0)
}
