//! A stream that two processes hold, as after fork, and use in turn. Called by `prog::main`. Whose turn it is they tell
//! each other by a futex, asleep in between; a turn is measured bare (what waking the other costs by itself) and with a
//! byte received, or sent, on the stream: each such call finds the stream where the other process has left it. Every
//! byte is checked.
//!
//! The server does nothing meanwhile: what is received in turn has been sent before, and what is sent is read after. So
//! no wake-up is in a turn but that of the other process.

use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde_json::json;

use super::{Length, Messages};
use crate::stats::Spread;
use crate::sys;

#[derive(clap::Args)]
pub(crate) struct Server {
    #[arg(long)]
    port: u16,
}

#[derive(clap::Args)]
pub(crate) struct Client {
    #[arg(long)]
    port: u16,
    /// The core of the second process; the first stays where it was started
    #[arg(long)]
    second_core: usize,
    #[command(flatten)]
    length: Length,
}

/// Turns in a row of one kind, an even number. As many bytes fit every buffer.
const TURNS: u32 = 2000;

/// What is done in a turn.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(u32)]
enum Kind {
    Bare = 0,
    Receive = 1,
    Send = 2,
    /// The second process ends.
    End = 3,
}

impl Kind {
    const MEASURED: [Self; 3] = [Self::Bare, Self::Receive, Self::Send];

    fn from_number(n: u32) -> Self {
        [Self::Bare, Self::Receive, Self::Send]
            .into_iter()
            .find(|kind| *kind as u32 == n)
            .unwrap_or(Self::End)
    }
}

/// The byte of a turn. It shows when a byte was lost, doubled or taken out of turn.
fn byte(turn: u32) -> u8 {
    (turn % 251) as u8
}

fn bytes() -> Vec<u8> {
    (0..TURNS).map(byte).collect()
}

/// The stream under test, and another on which client and server tell each other what to do next: whoever waits there
/// does not wait on the stream.
struct Line {
    stream: Messages,
    control: Messages,
}

impl Line {
    fn new(stream: TcpStream, control: TcpStream) -> std::io::Result<Self> {
        Ok(Self {
            stream: Messages::new(stream, false)?,
            control: Messages::new(control, false)?,
        })
    }

    /// Asks the server for its part of a kind of turn, and waits until it is done.
    fn ask(&self, kind: Kind) -> anyhow::Result<()> {
        let mut word = [kind as u8];
        self.control.send(&word)?;
        ensure!(self.control.receive(&mut word)?, "the server is gone");
        ensure!(
            word == [kind as u8],
            "the server found other bytes than were sent"
        );
        Ok(())
    }
}

pub(super) fn serve(args: &Server) -> anyhow::Result<()> {
    let listener: TcpListener = super::listen(args.port)?;
    let line = Line::new(listener.accept()?.0, listener.accept()?.0)?;
    let (sent, mut received, mut word) = (bytes(), bytes(), [0]);
    while line.control.receive(&mut word)? {
        let mut answer = word;
        match Kind::from_number(word[0].into()) {
            Kind::Receive => line.stream.send(&sent)?,
            Kind::Send => {
                received.fill(0);
                ensure!(line.stream.receive(&mut received)?, "the client is gone");
                if received != sent {
                    answer = [u8::MAX];
                }
            }
            Kind::Bare | Kind::End => {}
        }
        line.control.send(&answer)?;
    }
    super::print(&json!({"prog": "handover-server"}));
    Ok(())
}

/// What both processes see.
#[repr(C)]
struct Shared {
    /// The number of the turn: even ones are the first process's.
    turn: AtomicU32,
    kind: AtomicU32,
    failed: AtomicU32,
}

impl Shared {
    fn new() -> std::io::Result<&'static Self> {
        #[expect(clippy::cast_ptr_alignment, reason = "mappings are page-aligned")]
        let at = sys::shared(4096)?.cast::<Self>();
        // SAFETY: zeroed, aligned, large enough, and never unmapped.
        Ok(unsafe { &*at })
    }

    /// Sleeps until a turn is one of one's own; its number.
    fn wait(&self, second: u32) -> u32 {
        loop {
            let turn = self.turn.load(Ordering::Acquire);
            if turn % 2 == second {
                return turn;
            }
            sys::futex_wait(&self.turn, turn);
        }
    }

    fn pass(&self, turn: u32) {
        self.turn.store(turn.wrapping_add(1), Ordering::Release);
        sys::futex_wake(&self.turn);
    }
}

/// What a turn of this kind is for. False if the stream is not where it must be.
fn act(kind: Kind, stream: &Messages, turn: u32) -> bool {
    match kind {
        Kind::Receive => {
            let mut got = [0];
            matches!(stream.receive(&mut got), Ok(true)) && got == [byte(turn)]
        }
        Kind::Send => stream.send(&[byte(turn)]).is_ok(),
        Kind::Bare | Kind::End => true,
    }
}

/// The second process.
fn answer(shared: &Shared, line: &Line) {
    loop {
        let turn = shared.wait(1);
        let kind = Kind::from_number(shared.kind.load(Ordering::Acquire));
        if !act(kind, &line.stream, turn % TURNS) {
            shared.failed.store(1, Ordering::Release);
        }
        shared.pass(turn);
        if kind == Kind::End {
            return;
        }
    }
}

/// Turns of one kind; nanoseconds for each.
fn turns(shared: &Shared, kind: Kind, stream: &Messages) -> anyhow::Result<f64> {
    shared.kind.store(kind as u32, Ordering::Release);
    let start = Instant::now();
    for _ in 0..TURNS / 2 {
        let turn = shared.wait(0);
        ensure!(
            act(kind, stream, turn % TURNS),
            "turn {turn}, {kind:?}: not the byte of this turn"
        );
        shared.pass(turn);
    }
    shared.wait(0);
    let took = start.elapsed();
    ensure!(
        shared.failed.load(Ordering::Acquire) == 0,
        "the other process is not on its core, or did not find the byte of its turn"
    );
    Ok(took.as_nanos() as f64 / f64::from(TURNS))
}

pub(super) fn drive(args: &Client) -> anyhow::Result<()> {
    let line = Line::new(super::connect(args.port)?, super::connect(args.port)?)?;
    let (expected, mut got) = (bytes(), bytes());
    // One process alone first: both streams are on what will carry them before there are two.
    for _ in 0..20 {
        line.ask(Kind::Receive)?;
        got.fill(0);
        ensure!(
            line.stream.receive(&mut got)? && got == expected,
            "not what the server has sent"
        );
        line.stream.send(&expected)?;
        line.ask(Kind::Send)?;
    }
    let shared = Shared::new()?;
    let core = sys::Cores::one(args.second_core);
    let second = sys::fork(|| {
        if core.bind().is_err() {
            shared.failed.store(1, Ordering::Release);
        }
        answer(shared, &line);
    })?;
    let mut times = [const { Vec::new() }; Kind::MEASURED.len()];
    let end = args.length.end();
    let mut round = 0;
    while round < 2 || Instant::now() < end {
        for (kind, times) in Kind::MEASURED.into_iter().zip(&mut times) {
            if kind == Kind::Receive {
                line.ask(kind)?;
            }
            let each = turns(shared, kind, &line.stream)?;
            if kind == Kind::Send {
                line.ask(kind)?;
            }
            // The first round finds cold memory.
            if round > 0 {
                times.push(each);
            }
        }
        round += 1;
    }
    shared.kind.store(Kind::End as u32, Ordering::Release);
    shared.pass(shared.wait(0));
    ensure!(
        sys::wait_exit(second, Duration::from_secs(5))?,
        "the second process did not end"
    );
    let (status, _) = sys::reap(second)?;
    ensure!(status == 0, "the second process ended with {status}");
    let [bare, receive, send] = times.map(|times| Spread::of(&times).map(|all| all.median));
    let rounds = round - 1;
    super::print(&json!({
        "prog": "handover-client", "turns_each": u64::from(TURNS) / 2 * rounds,
        "bare_ns": bare.context("no round")?, "receive_ns": receive, "send_ns": send,
    }));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_has_every_other_turn_and_its_own_bytes() {
        assert!(TURNS.is_multiple_of(2));
        assert_ne!(byte(0), byte(1));
        assert_eq!(bytes().len(), TURNS as usize);
        for kind in Kind::MEASURED {
            assert_eq!(Kind::from_number(kind as u32), kind);
        }
        assert_eq!(Kind::from_number(u32::from(u8::MAX)), Kind::End);
    }
}
