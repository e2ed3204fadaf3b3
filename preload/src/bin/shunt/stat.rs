//! `shunt stat`: finds the processes with the library, reads their connections and prints them. A
//! process that ends meanwhile is left out; one that was asked for by number and cannot be shown is
//! named on standard error.

use crate::addresses::Addresses;
use crate::complain;
use crate::memory;
use crate::output::{self, Process};
use crate::processes;
use std::io::{self, Write as _};

/// What is known of a process.
enum Look {
    Shown(Process),
    Plain,
    /// It has the library, but its memory may not be read.
    Closed,
    Failed(io::Error),
}

/// Prints the connections; returns the exit status.
pub(crate) fn stat(json: bool, pids: &[u32]) -> i32 {
    let mut addresses = Addresses::default();
    let mut shown = Vec::new();
    let (mut closed, mut missing) = (0u64, 0u64);
    let all = pids.is_empty();
    let visible = if all {
        processes::visible()
    } else {
        pids.to_vec()
    };
    for pid in visible {
        match look(pid, &mut addresses) {
            Look::Shown(process) => shown.push(process),
            Look::Closed => closed += 1,
            Look::Plain | Look::Failed(_) if all => {}
            Look::Plain => {
                complain(&format!("process {pid} does not run Shunt"));
                missing += 1;
            }
            Look::Failed(e) => {
                complain(&format!("process {pid} cannot be read: {}", cause(&e)));
                missing += 1;
            }
        }
    }
    if closed > 0 {
        complain(&closed_line(closed));
    }
    let text = if json {
        output::json(&shown)
    } else {
        output::table(&shown)
    };
    let written = io::stdout()
        .write_all(text.as_bytes())
        .and_then(|()| io::stdout().flush());
    i32::from(missing > 0 || written.is_err() || (closed > 0 && !all))
}

fn look(pid: u32, addresses: &mut Addresses) -> Look {
    let mappings = match processes::mappings(pid) {
        Ok(mappings) if mappings.is_empty() => return Look::Plain,
        Ok(mappings) => mappings,
        Err(e) => return Look::Failed(e),
    };
    let connections = match memory::connections(pid, &mappings) {
        Ok(Some(connections)) => connections,
        Ok(None) => return Look::Plain,
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return Look::Closed,
        Err(e) => return Look::Failed(e),
    };
    for record in &connections {
        addresses.fill(pid, record);
    }
    Look::Shown(Process {
        pid,
        program: processes::program(pid),
        connections,
    })
}

pub(crate) fn cause(e: &io::Error) -> &'static str {
    match (e.kind(), e.raw_os_error()) {
        (io::ErrorKind::NotFound, _) | (_, Some(libc::ESRCH)) => "there is no such process",
        (io::ErrorKind::PermissionDenied, _) => "that is not permitted",
        _ => "its memory is not what Shunt leaves there",
    }
}

fn closed_line(count: u64) -> String {
    let who = if count == 1 {
        "1 process has".to_owned()
    } else {
        format!("{count} processes have")
    };
    let mut line = format!("{who} Shunt, but the memory may not be read; as root it can be");
    let guard = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    if !matches!(guard.trim(), "" | "0") {
        line.push_str(" (kernel.yama.ptrace_scope)");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_the_library_is_plain() {
        let mut addresses = Addresses::default();
        assert!(matches!(
            look(std::process::id(), &mut addresses),
            Look::Plain
        ));
        assert!(matches!(look(u32::MAX, &mut addresses), Look::Failed(_)));
        assert_eq!(stat(false, &[std::process::id()]), 1);
    }

    #[test]
    fn causes_are_in_words() {
        let of = |number| cause(&io::Error::from_raw_os_error(number));
        assert_eq!(of(libc::ENOENT), "there is no such process");
        assert_eq!(of(libc::ESRCH), "there is no such process");
        assert_eq!(of(libc::EACCES), "that is not permitted");
        assert_eq!(
            of(libc::EFAULT),
            "its memory is not what Shunt leaves there"
        );
        assert!(closed_line(1).starts_with("1 process has Shunt"));
        assert!(closed_line(2).starts_with("2 processes have Shunt"));
    }
}
