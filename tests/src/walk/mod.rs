//! Seeded random walks: programs of socket, descriptor and process calls, the kernel their oracle.
//!
//! A seed gives a [`plan::Plan`]: steps of the processes on two ends of a few connections. Every
//! process knows the whole plan and does its own steps; after each step all of them meet, so that
//! results follow from the plan and not from timing. Steps that are about timing (one end sleeps
//! until the other acts; bulk with trouble on the way) tell only what must be the same whatever the
//! timing. `judge` runs a plan plain and in each mode and compares.
//!
//! Any failure names its seed; `walk SEED` runs it again.

pub mod act;
pub mod bulk;
pub mod calls;
pub mod ends;
pub mod generate;
pub mod judge;
pub mod plan;
