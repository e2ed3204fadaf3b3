//! Moves the bytes of a connection: rendezvous, the shared segment, the byte stream over it, and the
//! way back to the kernel. Called by `preload::sockets`; calls `flowctl`.
//!
//! Rule of the crate: nothing here calls a libc function that `preload` interposes. System calls go
//! through [`sys`], which issues them directly, so no hook is ever entered from below.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod clock;
pub mod doorbell;
pub mod provider;
pub mod reason;
pub mod record;
pub mod rendezvous;
pub mod report;
pub mod sdp;
pub mod settings;
pub mod shm;
pub mod stat;
pub mod sync;
pub mod sys;
