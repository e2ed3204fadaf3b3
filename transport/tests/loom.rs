//! Model checks of everything that two threads or processes agree on through bare atomics. Every
//! interleaving within the bound on preemptions is run, with every value that a weakly ordered machine
//! may load. Run with `RUSTFLAGS="--cfg loom" cargo test --release -p transport --test loom`.
//!
//! `bell`, `nap` and `tickets` check `transport::doorbell` itself, `boards` checks it with `board`, `ring` checks `flowctl::packetized` itself, `claims` checks
//! `direct::claims` itself; `gate` checks
//! a copy of the few lines of the shared-memory provider that stop a sender, whose words lie in mapped
//! memory where loom cannot follow.

#![cfg(loom)]
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "loom/bell.rs"]
mod bell;
#[path = "loom/boards.rs"]
mod boards;
#[path = "loom/claims.rs"]
mod claims;
#[path = "loom/gate.rs"]
mod gate;
#[path = "loom/nap.rs"]
mod nap;
#[path = "loom/ring.rs"]
mod ring;
#[path = "loom/tickets.rs"]
mod tickets;

/// Runs a model with at most `preemptions` switches away from a thread that could have gone on.
fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}
