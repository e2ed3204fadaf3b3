//! Moves the bytes of a connection: rendezvous, the shared segment, the byte stream over it, and the
//! way back to the kernel. Called by `preload::sockets`; calls `flowctl`.
//!
//! Rule of the crate: nothing here calls a libc function that `preload` interposes. System calls go
//! through `sys`, which issues them directly, so no hook is ever entered from below.
//!
//! Under `--cfg loom` only what needs no memory file and no system call is built, for `tests/loom.rs`.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod board;
#[cfg(not(loom))]
pub mod clock;
#[cfg(not(loom))]
pub mod direct;
/// As much of it as is model checked: the rest works on mapped memory.
#[cfg(loom)]
pub mod direct {
    pub mod claims;
}
pub mod doorbell;
#[cfg(not(loom))]
pub mod iwarp;
#[cfg(not(loom))]
pub mod mapping;
#[cfg(not(loom))]
pub mod port_mapper;
#[cfg(not(loom))]
pub mod provider;
#[cfg(not(loom))]
pub mod reason;
#[cfg(not(loom))]
pub mod record;
#[cfg(not(loom))]
pub mod rendezvous;
#[cfg(not(loom))]
pub mod report;
#[cfg(not(loom))]
pub mod ring;
#[cfg(not(loom))]
pub mod rules;
#[cfg(not(loom))]
pub mod sdp;
#[cfg(not(loom))]
pub mod sdp_wire;
#[cfg(not(loom))]
pub mod settings;
#[cfg(not(loom))]
pub mod shm;
#[cfg(not(loom))]
pub mod stat;
pub mod sync;
#[cfg(not(loom))]
pub mod sys;
#[cfg(not(loom))]
pub mod verbs;
#[cfg(not(loom))]
pub mod wire;
