//! Two processes that do the steps of one sequence and meet after each, over a channel that is no stream. Used by the judges of
//! random walks and of random calls.

use crate::run::{Folder, Launch, Outcome, library};
use crate::sys::{Fd, net};
use std::os::unix::process::CommandExt;
use std::time::Duration;

/// The descriptor of the channel at each end: a number of its own, so that the others do not depend on what else this process
/// has open.
pub const CHANNEL: Fd = 63;

/// Runs both ends, each by its words, with the library where `loads` says so, for at most this long each.
pub fn run(
    program: impl Fn() -> std::path::PathBuf,
    words: impl Fn(usize) -> Vec<String>,
    loads: impl Fn(usize) -> bool,
    limit: Duration,
) -> Vec<Outcome> {
    let folder = Folder::new();
    let (left, right) = net::unix_pair(libc::SOCK_SEQPACKET);
    let jobs = [left, right].into_iter().enumerate().map(|(end, channel)| {
        let mut start = Launch::new(program()).args(words(end));
        // SAFETY: dup2 is async-signal-safe; the descriptor stays open until after the spawn.
        unsafe {
            start.command().pre_exec(move || {
                libc::dup2(channel, CHANNEL);
                Ok(())
            });
        }
        if loads(end) {
            start = start.under(&library(), folder.path(&format!("report-{end}")));
        }
        start.start()
    });
    let jobs: Vec<_> = jobs.collect();
    net::close(left).ok();
    net::close(right).ok();
    let waits: Vec<_> = jobs
        .into_iter()
        .map(|job| std::thread::spawn(move || job.finish(limit)))
        .collect();
    waits.into_iter().map(|w| w.join().unwrap()).collect()
}
