//! `libshunt.so`: put under an unmodified program with LD_PRELOAD, it takes over its TCP streams.
//!
//! `hooks` holds the C symbols and nothing else; `sockets`, `epoll` and `poll` are what they call;
//! `world` is what the process knows; `transport` (a crate of its own) moves the bytes.

#![warn(clippy::indexing_slicing)]

mod alloc;
mod environment;
mod epoll;
mod fork;
mod guard;
mod hooks;
mod init;
mod mapper;
mod poll;
mod probe;
mod real;
mod report;
mod rules;
mod service;
mod signals;
mod sockets;
mod table;
mod world;
