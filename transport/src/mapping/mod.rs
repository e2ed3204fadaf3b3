//! The port mapper on this host: [`crate::port_mapper`] with sockets. Used by `preload::mapper` and by the command
//! `shunt portmap`.
//!
//! | module | what |
//! |---|---|
//! | [`link`] | the client's socket: one question to one host |
//! | [`mark`] | how a listener shows that the process behind it runs Shunt and takes iWARP |
//! | [`service`] | answers the questions that come to this host, for all listeners that have a mark |
//!
//! Whoever has the UDP port answers for the whole host (network namespace). It believes nobody: the kernel says which
//! socket takes connections at an address and whose it is (`sock_diag`), and whether the mark of that socket is there
//! and by whom it was made.

#![cfg_attr(not(test), warn(clippy::indexing_slicing))]

pub mod link;
pub mod mark;
pub mod service;
