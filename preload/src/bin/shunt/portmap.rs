//! `shunt portmap`: the SDP port mapper of this host as a service of its own, in the foreground, for hosts whose
//! listeners must not have a thread for it. What it answers, and by what rule, is `transport::mapping::service`.

use crate::complain;
use std::io::{self, Write as _};
use std::time::Duration;
use transport::mapping::service::Service;
use transport::port_mapper::PORT;
use transport::sys::net::await_input;
use transport::sys::{Errno, Result};

/// How often the port is tried while somebody else has it.
const AGAIN: Duration = Duration::from_millis(500);

/// Answers until the process is ended; returns the exit status if it cannot.
pub(crate) fn portmap(wait: bool) -> i32 {
    let mut service = match open(wait) {
        Ok(service) => service,
        Err(why) => {
            complain(&format!("portmap: {}", obstacle(why)));
            return 1;
        }
    };
    let line = format!("answering at UDP port {PORT}\n");
    let mut out = io::stdout();
    // (nobody need listen)
    let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
    loop {
        await_input(service.raw(), u64::MAX);
        service.serve();
    }
}

fn open(wait: bool) -> Result<Service> {
    loop {
        match Service::open() {
            Err(Errno(libc::EADDRINUSE)) if wait => std::thread::sleep(AGAIN),
            done => return done,
        }
    }
}

/// What is in the way, in words.
fn obstacle(why: Errno) -> String {
    match why.0 {
        libc::EADDRINUSE => format!(
            "UDP port {PORT} is taken: a program under Shunt, iwpmd or another shunt portmap answers for this host"
        ),
        libc::EACCES | libc::EPERM => format!("no permission to use UDP port {PORT}"),
        other => format!(
            "cannot use UDP port {PORT}: {}",
            io::Error::from_raw_os_error(other)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_way_is_said_in_a_line() {
        for (why, says) in [
            (libc::EADDRINUSE, "is taken"),
            (libc::EACCES, "no permission"),
            (libc::EMFILE, "open files"),
        ] {
            let line = obstacle(Errno(why));
            assert!(line.contains(says) && line.contains("3935"), "{line}");
            assert!(!line.contains('\n'));
        }
    }
}
