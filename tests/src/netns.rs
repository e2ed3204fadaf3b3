//! Two hosts on one machine, for programs that talk over a network: two network namespaces joined by a veth pair.
//!
//! Both are nameless: nothing holds them but descriptors of the test, so they and all that is in them go with it,
//! however it ends. Programs are put into one before they execute; no other program is started in front of them.
//! Needs root and `ip`: where either is missing there are no hosts, which one line says.

use crate::apps::{find, have, is_root, listening_in};
use crate::run::{Job, Launch};
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};
use std::time::Duration;

/// One of the two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    One,
    Two,
}

/// The hosts, and the wire between them.
#[derive(Debug)]
pub struct Hosts {
    spaces: [File; 2],
}

/// The device that is the wire's end in each of them.
pub const DEVICE: &str = "wire";

impl Host {
    /// Its address on the wire.
    pub const fn v4(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 35, 44, self as u8 + 1)
    }

    /// Its IPv6 address on the wire.
    pub const fn v6(self) -> Ipv6Addr {
        Ipv6Addr::new(0xfd35, 0, 0, 44, 0, 0, 0, self as u16 + 1)
    }

    pub const fn other(self) -> Self {
        match self {
            Self::One => Self::Two,
            Self::Two => Self::One,
        }
    }
}

impl Hosts {
    /// Makes them, or says why not.
    pub fn new() -> Option<Self> {
        if !is_root() || !have(&["ip"]) {
            return None;
        }
        let made = new_space().and_then(|one| Ok([one, new_space()?]));
        let spaces = match made {
            Ok(spaces) => spaces,
            Err(e) => {
                println!("SKIPPED, no network namespaces here: {e}");
                return None;
            }
        };
        let hosts = Self { spaces };
        if let Err(why) = hosts.join() {
            println!("SKIPPED, the namespaces cannot be joined: {why}");
            return None;
        }
        Some(hosts)
    }

    /// The wire, and addresses.
    fn join(&self) -> Result<(), String> {
        let far = format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            self.space(Host::Two).as_raw_fd()
        );
        // (A wire whose ends have the same number on both sides is not up for a second: the kernel takes it for one that
        // is not urgent.)
        self.ip(
            Host::One,
            &format!(
                "link add {DEVICE} index 11 type veth peer name {DEVICE} index 12 netns {far}"
            ),
        )?;
        for host in [Host::One, Host::Two] {
            self.ip(host, "link set lo up")?;
            self.ip(host, &format!("address add {}/24 dev {DEVICE}", host.v4()))?;
            // (without the search for others that have the address, which takes a second or two)
            self.ip(
                host,
                &format!("address add {}/64 dev {DEVICE} nodad", host.v6()),
            )?;
            self.ip(host, &format!("link set {DEVICE} up"))?;
        }
        Ok(())
    }

    fn ip(&self, host: Host, words: &str) -> Result<(), String> {
        let out = self.output(host, "ip", words.split(' '));
        match out.status.success() {
            true => Ok(()),
            false => Err(format!(
                "ip {words}: {}",
                String::from_utf8_lossy(&out.stderr).trim()
            )),
        }
    }

    fn space(&self, host: Host) -> &File {
        let [one, two] = &self.spaces;
        match host {
            Host::One => one,
            Host::Two => two,
        }
    }

    /// The program, to be started on this host.
    pub fn launch(&self, host: Host, mut launch: Launch) -> Launch {
        self.enter(host, launch.command());
        launch
    }

    /// Starts a server on this host and waits until it listens.
    pub fn serve(&self, host: Host, launch: Launch, port: u16) -> Job {
        let mut job = self.launch(host, launch).start();
        let process = job.pid().to_string();
        let up = crate::sys::wait::eventually(|| listening_in(&process, port) || !job.running());
        if !up || !job.running() {
            job.signal(libc::SIGTERM);
            job.finish(Duration::from_secs(5))
                .expect_ok("server did not start");
            panic!("server does not listen on {port}");
        }
        job
    }

    /// Runs a tool of the system (`tc`, `nft`) on this host to its end, which must be a good one.
    #[track_caller]
    pub fn run(&self, host: Host, program: &str, words: &[&str]) -> String {
        let out = self.output(host, program, words.iter().copied());
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{program} {words:?}: {stderr}");
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    fn output<'a>(
        &self,
        host: Host,
        program: &str,
        words: impl IntoIterator<Item = &'a str>,
    ) -> Output {
        let path = find(program).unwrap_or_else(|| panic!("{program} is not installed"));
        let mut command = Command::new(path);
        command.args(words).env_remove("LD_PRELOAD");
        self.enter(host, &mut command);
        command.output().unwrap()
    }

    /// Lets a command begin in the namespace.
    fn enter(&self, host: Host, command: &mut Command) {
        let space = self.space(host).try_clone().unwrap();
        let enter = move || enter(&space);
        // SAFETY: between fork and exec there is nothing but one system call.
        unsafe { command.pre_exec(enter) };
    }

    /// Does something on this host in this process, in a thread of its own. Sockets that are made there stay there.
    pub fn on<T: Send>(&self, host: Host, what: impl FnOnce() -> T + Send) -> T {
        let space = self.space(host);
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                enter(space).unwrap();
                what()
            });
            inside.join().unwrap()
        })
    }

    /// An address of a host, of either family.
    pub const fn address(host: Host, v6: bool) -> IpAddr {
        if v6 {
            IpAddr::V6(host.v6())
        } else {
            IpAddr::V4(host.v4())
        }
    }
}

/// Takes the calling thread there.
fn enter(space: &File) -> io::Result<()> {
    // SAFETY: no pointers.
    match unsafe { libc::setns(space.as_raw_fd(), libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A new network namespace, by a thread that goes there and ends.
fn new_space() -> io::Result<File> {
    let make = || {
        // SAFETY: no pointers; it concerns this thread alone.
        match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
            0 => File::open("/proc/thread-self/ns/net"),
            _ => Err(io::Error::last_os_error()),
        }
    };
    std::thread::spawn(make).join().unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn they_reach_each_other_and_nobody_else() {
        let Some(hosts) = Hosts::new() else { return };
        for (host, v6) in [(Host::One, false), (Host::Two, true)] {
            let address = Hosts::address(host, v6);
            let listener = hosts.on(host, || TcpListener::bind((address, 0)).unwrap());
            let place = listener.local_addr().unwrap();
            let mut near = hosts.on(host.other(), || TcpStream::connect(place).unwrap());
            let (mut far, from) = listener.accept().unwrap();
            assert_eq!(from.ip(), Hosts::address(host.other(), v6));
            near.write_all(b"over the wire").unwrap();
            drop(near);
            let mut read = String::new();
            far.read_to_string(&mut read).unwrap();
            assert_eq!(read, "over the wire");
            assert!(TcpListener::bind((address, 0)).is_err(), "it is here too");
        }
    }

    #[test]
    fn programs_run_on_their_host() {
        let Some(hosts) = Hosts::new() else { return };
        for host in [Host::One, Host::Two] {
            let start = Launch::new(find("ip").unwrap()).args(["-o", "address"]);
            let out = hosts.launch(host, start).start();
            let out = out.finish(Duration::from_secs(20));
            out.expect_ok("ip");
            assert!(out.stdout.contains(&format!(" {}/24 ", host.v4())));
            assert!(!out.stdout.contains(&format!(" {}/24 ", host.other().v4())));
            assert!(hosts.run(host, "ip", &["route"]).contains(DEVICE));
        }
    }
}
