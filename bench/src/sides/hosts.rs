//! Two hosts on one machine: network namespaces joined by a veth pair, as the tests have them too. Nothing holds them but
//! descriptors of this process, so they go with it. Needs root and `ip`.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::process::Command;

use anyhow::{Context as _, ensure};

use crate::run::find;

/// One of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    Server,
    Client,
}

impl Host {
    const BOTH: [Self; 2] = [Self::Server, Self::Client];

    /// Its address on the wire.
    pub(crate) const fn address(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 35, 45, self as u8 + 1)
    }
}

/// The hosts, and where this process came from.
pub(crate) struct Hosts {
    spaces: [File; 2],
    home: File,
}

impl Hosts {
    pub(crate) fn new() -> anyhow::Result<Self> {
        ensure!(find("ip").is_some(), "`ip` is missing (package iproute2)");
        let spaces = new_space().and_then(|server| Ok([server, new_space()?]));
        let hosts = Self {
            spaces: spaces.context("no network namespaces here (they need root)")?,
            home: own_space()?,
        };
        let far = format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            hosts.spaces[Host::Client as usize].as_raw_fd()
        );
        // (Ends that have the same number on both sides are not up for a second.)
        let link = format!("link add wire index 11 type veth peer name wire index 12 netns {far}");
        hosts.within(Host::Server, || ip(&link))?;
        for host in Host::BOTH {
            hosts.within(host, || {
                ip("link set lo up")?;
                ip(&format!("address add {}/24 dev wire", host.address()))?;
                ip("link set wire up")
            })?;
        }
        Ok(hosts)
    }

    /// Does something on this host: what is started meanwhile stays there.
    pub(crate) fn within<T>(
        &self,
        host: Host,
        what: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        enter(&self.spaces[host as usize])?;
        let done = what();
        enter(&self.home)?;
        done
    }
}

fn ip(words: &str) -> anyhow::Result<()> {
    let out = Command::new("ip").args(words.split(' ')).output()?;
    let said = String::from_utf8_lossy(&out.stderr);
    ensure!(out.status.success(), "ip {words}: {}", said.trim());
    Ok(())
}

/// Takes the calling thread there.
fn enter(space: &File) -> io::Result<()> {
    // SAFETY: no pointers.
    match unsafe { libc::setns(space.as_raw_fd(), libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn own_space() -> io::Result<File> {
    File::open("/proc/thread-self/ns/net")
}

/// A new network namespace, by a thread that goes there and ends.
fn new_space() -> io::Result<File> {
    let make = || {
        // SAFETY: no pointers; it concerns this thread alone.
        match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
            0 => own_space(),
            _ => Err(io::Error::last_os_error()),
        }
    };
    let made = std::thread::spawn(make).join();
    made.unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
}
