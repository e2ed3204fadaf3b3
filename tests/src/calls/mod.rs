//! Differential fuzzing of socket calls: random sequences of single calls, the kernel their oracle.
//!
//! Where a [`crate::walk`] is about who holds a stream, this is about the calls: every one that takes a stream, with the flags,
//! lengths, vectors and bad arguments that a program may give it. A seed gives a [`plan::Plan`]; every subset of its steps is a plan
//! too, since what a step may be is decided where it is done, from what both ends have counted. So a sequence that differs is
//! made shorter by leaving steps out (`judge::shrink`).
//!
//! The millions of a seed are its kind ([`plan::Kind`]): both ends as threads of one process, urgent bytes, small buffers,
//! rarer forms of calls.
//!
//! The ends do one step at a time and meet after each (`end`). Before they meet the kernel has delivered what was sent
//! (`quiet`), by system calls that the library does not see, so that a look of the harness changes nothing. Left out is
//! what kernel TCP does not promise: how much of a message a full buffer takes, SIOCOUTQ's figure, sizes of buffers.

pub mod edge;
pub mod end;
pub mod give;
pub mod hold;
pub mod judge;
pub mod misuse;
pub mod more;
pub mod plan;
pub mod quiet;
pub mod ready;
pub mod take;
pub mod together;
pub mod urgent;
