//! Requests for one call of `ibv_post_send`, in the structures that it takes. An RDMA Write that tells is followed by a Send of
//! the word, inline.
//!
//! Filled and posted by `pair`. Rule: once [`Chain::link`] has been called it stays where it is until it has been posted.

use super::super::ffi::types::{
    SEND_INLINE, SEND_SIGNALED, SEND_SOLICITED, SendWr, Sge, WR_RDMA_READ, WR_RDMA_WRITE, WR_SEND,
};
use super::super::ledger::Held;
use super::super::message::{LONGEST, Message};
use super::super::{BATCH, Operation};
use std::ptr;

/// Requests for one call.
pub(super) struct Chain {
    requests: [SendWr; 2 * BATCH],
    pieces: [Sge; 2 * BATCH],
    said: [[u8; LONGEST]; 2 * BATCH],
    len: usize,
}

impl Chain {
    pub(super) const fn new() -> Self {
        Self {
            requests: [SendWr::EMPTY; 2 * BATCH],
            pieces: [Sge {
                addr: 0,
                length: 0,
                lkey: 0,
            }; 2 * BATCH],
            said: [[0; LONGEST]; 2 * BATCH],
            len: 0,
        }
    }

    /// What a work request asks for.
    pub(super) fn add(&mut self, held: &Held) {
        let work = &held.work;
        let inline = work.operation == Operation::WriteInline;
        let from = if inline {
            held.inline.as_ptr()
        } else {
            work.local.cast_const()
        };
        // (a Write of nothing that tells is its Send)
        if work.len > 0 || work.tell.is_none() {
            let signaled = work.signaled && work.tell.is_none();
            let piece = Sge {
                addr: from.expose_provenance() as u64,
                length: work.len,
                lkey: if inline { 0 } else { work.lkey },
            };
            let request = SendWr {
                wr_id: held.number,
                opcode: match work.operation {
                    Operation::Read => WR_RDMA_READ,
                    // (Sends are words here: the address takes no others)
                    Operation::Write | Operation::WriteInline | Operation::Send => WR_RDMA_WRITE,
                },
                send_flags: (if signaled { SEND_SIGNALED } else { 0 })
                    | (if inline && work.len > 0 {
                        SEND_INLINE
                    } else {
                        0
                    }),
                num_sge: i32::from(work.len > 0),
                remote_addr: work.remote,
                rkey: work.rkey,
                ..SendWr::EMPTY
            };
            self.push(piece, request);
        }
        if let Some(word) = work.tell {
            self.send(Message::Word(word), held.number, work.signaled);
        }
    }

    /// A Send of a message.
    pub(super) fn send(&mut self, message: Message, number: u64, signaled: bool) {
        let (octets, len) = message.octets();
        let Some(said) = self.said.get_mut(self.len) else {
            return;
        };
        *said = octets;
        let piece = Sge {
            addr: 0, // (when it lies still)
            length: len,
            lkey: 0,
        };
        let request = SendWr {
            wr_id: number,
            opcode: WR_SEND,
            send_flags: (if signaled { SEND_SIGNALED } else { 0 }) | SEND_INLINE | SEND_SOLICITED,
            ..SendWr::EMPTY
        };
        self.push(piece, request);
    }

    fn push(&mut self, piece: Sge, request: SendWr) {
        let places = (
            self.pieces.get_mut(self.len),
            self.requests.get_mut(self.len),
        );
        if let (Some(to), Some(at)) = places {
            (*to, *at) = (piece, request);
            self.len += 1;
        }
    }

    /// Has each point to the one behind and to its piece. The first; they must not move from here on.
    pub(super) fn link(&mut self) -> *mut SendWr {
        let mut next: *mut SendWr = ptr::null_mut();
        let all = self.requests.iter_mut().take(self.len);
        let parts = self.pieces.iter_mut().zip(&self.said);
        for (request, (piece, said)) in all.zip(parts).rev() {
            if request.opcode == WR_SEND {
                piece.addr = said.as_ptr().expose_provenance() as u64;
            }
            request.sg_list = piece;
            request.next = next;
            next = request;
        }
        next
    }
}
