//! Ports on the loopback address: one that is free, and waiting until somebody listens there.

use std::fs;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use anyhow::ensure;

use super::Child;

/// A port that nobody has just now; each repetition has its own.
pub(crate) fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// Waits until somebody listens on the port, without connecting to it: a server may count its connections.
pub(crate) fn wait_listening(port: u16, server: &Child) -> anyhow::Result<()> {
    let end = Instant::now() + Duration::from_secs(10);
    while !listening(port) {
        ensure!(
            Instant::now() < end,
            "the server does not listen after 10 s"
        );
        ensure!(server.running(), "the server ended before it listened");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn listening(port: u16) -> bool {
    const LISTEN: &str = "0A";
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        fs::read_to_string(table)
            .unwrap_or_default()
            .lines()
            .skip(1)
            .any(|line| {
                let mut words = line.split_whitespace().skip(1);
                let local = words.next().and_then(|address| address.rsplit_once(':'));
                let bound = local.is_some_and(|(_, p)| u16::from_str_radix(p, 16) == Ok(port));
                bound && words.nth(1) == Some(LISTEN)
            })
    })
}
