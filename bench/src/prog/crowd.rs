//! Many connections in one process at each end, all watched by one epoll set, of which some are busy. Called by
//! `prog::main`. Each end prints what memory a connection has added; the client, how many messages the busy ones
//! exchanged. Every message is checked.

use std::collections::HashMap;
use std::io::{ErrorKind, Write as _};
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::json;

use super::memory::Memory;
use super::{Length, cpu_ns_per};
use crate::sys;

const SIZE: usize = 64;
type Message = [u8; SIZE];

#[derive(clap::Args)]
pub(crate) struct Server {
    #[arg(long)]
    port: u16,
    /// Connections to expect; memory is measured when each has been served
    #[arg(long, default_value_t = 1000)]
    connections: usize,
}

#[derive(clap::Args)]
pub(crate) struct Client {
    #[arg(long)]
    port: u16,
    /// Connections to open
    #[arg(long, default_value_t = 1000)]
    connections: usize,
    /// How many of them are busy afterwards, spread evenly
    #[arg(long, default_value_t = 0)]
    active: usize,
    #[command(flatten)]
    length: Length,
}

/// Seconds of exchange that do not count.
const WARM_UP: f64 = 0.2;

/// The number under which the listener is watched.
const LISTENER: u64 = u64::MAX;

pub(super) fn serve(args: &Server) -> anyhow::Result<()> {
    sys::raise_files()?;
    let listener = super::listen(args.port)?;
    listener.set_nonblocking(true)?;
    let epoll = sys::epoll()?;
    sys::epoll_add(&epoll, &listener, LISTENER)?;
    let mut sockets: HashMap<u64, TcpStream> = HashMap::with_capacity(args.connections);
    let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; 256];
    let mut bytes = [0; 4 * SIZE];
    let (mut accepted, mut greeted, mut messages) = (0, 0, 0_u64);
    let (mut before, mut growth) = (None, None);
    while accepted < args.connections || !sockets.is_empty() {
        let ready = sys::epoll_wait(&epoll, &mut events, -1)?;
        for event in &events[..ready] {
            let token = event.u64;
            if token == LISTENER {
                while let Some(socket) = next(&listener)? {
                    socket.set_nodelay(true)?;
                    let token = socket.as_raw_fd().unsigned_abs().into();
                    sys::epoll_add(&epoll, &socket, token)?;
                    sockets.insert(token, socket);
                    accepted += 1;
                }
                continue;
            }
            let Some(socket) = sockets.get_mut(&token) else {
                continue;
            };
            match sys::recv(socket, &mut bytes, libc::MSG_DONTWAIT) {
                Ok(0) => drop(sockets.remove(&token)),
                Ok(n) => {
                    messages += (n / SIZE) as u64;
                    // Before the answer: what it is for has been done, and the client still waits.
                    greeted += 1;
                    if greeted == 1 {
                        before = Some(Memory::now()?);
                    } else if greeted == args.connections {
                        let before = before.take();
                        growth = before
                            .map(|before| Memory::now().map(|now| now.growth(&before, greeted - 1)))
                            .transpose()?;
                    }
                    socket.write_all(&bytes[..n])?;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
    super::print(&json!({
        "prog": "crowd-server", "connections": accepted, "messages": messages, "growth": growth,
        "cpu_ns_per_message": cpu_ns_per(messages),
    }));
    Ok(())
}

fn next(listener: &std::net::TcpListener) -> std::io::Result<Option<TcpStream>> {
    match listener.accept() {
        Ok((socket, _)) => Ok(Some(socket)),
        Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(e) => Err(e),
    }
}

pub(super) fn drive(args: &Client) -> anyhow::Result<()> {
    sys::raise_files()?;
    let mut crowd = Crowd::new(args.connections)?;
    let start = Instant::now();
    crowd.connect(args.port, 1)?;
    crowd.greet(0)?;
    let before = Memory::now()?;
    crowd.connect(args.port, args.connections)?;
    crowd.greet(1)?;
    let took = start.elapsed();
    let growth = Memory::now()?.growth(&before, args.connections - 1);
    let active = spread(args.connections, args.active);
    if args.active > 0 {
        crowd.exchange(&active, Length::seconds(WARM_UP))?;
    }
    let cpu = sys::cpu_time();
    let (exchanged, busy) = crowd.exchange(&active, args.length)?;
    let cpu = sys::cpu_time() - cpu;
    super::print(&json!({
        "prog": "crowd-client", "connections": args.connections, "active": args.active,
        "setup_seconds": took.as_secs_f64(), "growth": growth, "messages": exchanged,
        "per_second": exchanged as f64 / busy.as_secs_f64().max(1e-9),
        "cpu_ns_per_message": cpu.as_nanos() as f64 / exchanged.max(1) as f64,
    }));
    Ok(())
}

/// `count` numbers below `all`, evenly spread.
fn spread(all: usize, count: usize) -> Vec<usize> {
    let count = count.min(all);
    (0..count).map(|n| n * all / count).collect()
}

/// The connections of the client, and how many messages went out on each.
struct Crowd {
    epoll: std::os::fd::OwnedFd,
    sockets: Vec<TcpStream>,
    sent: Vec<u64>,
}

impl Crowd {
    fn new(connections: usize) -> anyhow::Result<Self> {
        ensure!(connections > 1, "a crowd is more than one");
        Ok(Self {
            epoll: sys::epoll()?,
            sockets: Vec::with_capacity(connections),
            sent: vec![0; connections],
        })
    }

    /// Goes on until there are so many.
    fn connect(&mut self, port: u16, connections: usize) -> anyhow::Result<()> {
        for token in self.sockets.len()..connections {
            let socket = super::connect(port)?;
            socket.set_nodelay(true)?;
            sys::epoll_add(&self.epoll, &socket, token as u64)?;
            self.sockets.push(socket);
        }
        Ok(())
    }

    /// A message on each connection from `first` on, all under way at once, and their echoes.
    fn greet(&mut self, first: usize) -> anyhow::Result<()> {
        (first..self.sockets.len()).try_for_each(|n| self.send(n))?;
        (first..self.sockets.len()).try_for_each(|n| self.receive(n))
    }

    fn send(&mut self, n: usize) -> anyhow::Result<()> {
        self.sent[n] += 1;
        let message = message(n, self.sent[n]);
        Ok(self.sockets[n].write_all(&message)?)
    }

    fn receive(&mut self, n: usize) -> anyhow::Result<()> {
        let (mut bytes, mut done) = ([0; SIZE], 0);
        while done < SIZE {
            let got = sys::recv(&self.sockets[n], &mut bytes[done..], 0)?;
            ensure!(got > 0, "connection {n} ended");
            done += got;
        }
        ensure!(
            bytes == message(n, self.sent[n]),
            "the echo on connection {n} is not what was sent"
        );
        Ok(())
    }

    /// A message there and back on each of the active ones, again and again; how many, and the time they took.
    fn exchange(&mut self, active: &[usize], length: Length) -> anyhow::Result<(u64, Duration)> {
        let (start, end) = (Instant::now(), length.end());
        active.iter().try_for_each(|&n| self.send(n))?;
        let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; 256];
        let (mut under_way, mut exchanged) = (active.len(), 0);
        while under_way > 0 {
            let ready = sys::epoll_wait(&self.epoll, &mut events, 10_000)?;
            ensure!(ready > 0, "{under_way} echoes did not come within 10 s");
            let ended = Instant::now() >= end;
            for event in &events[..ready] {
                let n = event.u64 as usize;
                self.receive(n)?;
                exchanged += 1;
                if ended {
                    under_way -= 1;
                } else {
                    self.send(n)?;
                }
            }
        }
        Ok((exchanged, start.elapsed()))
    }
}

/// Tells its connection and its number.
fn message(connection: usize, number: u64) -> Message {
    let mut message = [0x5a; SIZE];
    message[..8].copy_from_slice(&(connection as u64).to_le_bytes());
    message[8..16].copy_from_slice(&number.to_le_bytes());
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_active_are_spread_evenly() {
        assert_eq!(spread(10, 3), [0, 3, 6]);
        assert_eq!(spread(4, 4), [0, 1, 2, 3]);
        assert_eq!(spread(2, 5), [0, 1]);
        assert!(spread(10, 0).is_empty());
    }

    #[test]
    fn messages_differ_by_connection_and_number() {
        assert_ne!(message(1, 2), message(2, 1));
        assert_ne!(message(1, 2), message(1, 3));
    }
}
