//! Unmodified programs, run plain and under the library, with the path they took asserted.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod acts;
mod bench_tools;
mod debuggers;
mod inetd;
mod kv;
mod languages;
mod pipes;
mod prefork;
mod remote_shell;
mod sql;
mod upgrade;
mod web;
