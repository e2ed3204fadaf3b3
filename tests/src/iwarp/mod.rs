//! One end of a software-iWARP conversation over an ordinary TCP stream, and a script that two ends follow: by themselves
//! (`tests/iwarp.rs`), and against Linux's own driver siw in a virtual machine (`scripts/test-rdma`; the other end there is
//! `tests/rdma/siw_peer.c`, which follows the same script by way of verbs).
//!
//! `setup` agrees on the terms, `end` does what the layer above `transport::iwarp` has to do, `script` is what is
//! said, `offence` what must not be, and `pattern` makes octets that cannot be right by accident. Whatever is not as it
//! should be panics.

pub mod end;
pub mod offence;
pub mod pattern;
pub mod script;
pub mod setup;
