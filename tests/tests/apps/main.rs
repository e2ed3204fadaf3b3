//! Unmodified programs, run plain and under the library, with the path they took asserted.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bench_tools;
mod kv;
mod languages;
mod pipes;
mod remote_shell;
mod sql;
mod web;
