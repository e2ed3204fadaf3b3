//! The library itself: what it exports, how it treats bad settings, what `shunt` says.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod command;
mod cut;
mod demote;
mod early;
mod ends;
mod exports;
mod failing;
mod flow;
mod forking;
mod gave_up;
mod hostile;

mod inherited;
mod lent;
mod limits;
mod names;
mod passed;
mod portmap;
mod resting;
mod rules;
mod sandboxed;
mod settings;
mod started;
mod uring;
