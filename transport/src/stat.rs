//! What `shunt stat` reads from outside a process: a named page with the way to the records.

use std::sync::atomic::AtomicU64;

/// The page named `record::STAT_NAME`.
#[repr(C)]
#[derive(Debug)]
pub struct Directory {
    pub magic: u64,
    pub pid: u32,
    /// Address of the first record in that process.
    pub records: u64,
    /// Bytes from one record to the next.
    pub stride: u64,
    /// Records that have been in use.
    pub count: AtomicU64,
}
