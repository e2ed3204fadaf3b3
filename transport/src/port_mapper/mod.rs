//! The SDP port mapper protocol: a few UDP messages by which a client asks, before it connects, whether a service
//! takes SDP over iWARP, and where. For the set-up between hosts.
//!
//! ```text
//! client (connecting peer, CP)                       server (accepting peer, AP)
//!        ── PMReq: service wanted, port it will come from, handle ──►
//!        ◄── PMAccept: address to connect to, for how long that holds ──
//!        ── PMAck ──►                    (or ◄── PMDeny: kernel TCP)
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`message`] | the messages, their bytes, and what is checked of them |
//! | [`asker`] | the client's side: retransmission, which answer counts |
//! | [`answerer`] | the server's side: what it keeps until the client has come |
//! | [`answers`] | what a client remembers of the answers |
//! | [`questions`] | all that a client asks and knows; what a connect calls |
//!
//! Source: draft-pinkerton-iwarp-sdp-00, section 7; the layout, the UDP port and the longer requests are those of
//! iwpmd (rdma-core). Where the draft contradicts itself (7.3.1.6 and 7.4, the port in PMDeny) that field is
//! not looked at.
//!
//! Pure: no socket and no clock. Times are microseconds of any clock that does not go back; handles have to be
//! random, since nothing else keeps a stranger from answering.

#![forbid(unsafe_code)]
#![warn(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss
)]
// (after the lints above, which it relaxes)
#![cfg_attr(
    test,
    allow(clippy::indexing_slicing, clippy::cast_possible_truncation)
)]

pub mod answerer;
pub mod answers;
pub mod asker;
pub mod message;
pub mod questions;
#[cfg(test)]
mod tests;

/// The UDP port of port mappers (iwpmd's; the draft leaves it open).
pub const PORT: u16 = 3935;
