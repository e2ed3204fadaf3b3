//! A buffer of this side's that it advertises (SinkAvail), as its sink: a reader that waits, and to whose buffer the peer writes
//! (SDP's Write zero copy, pipelined mode).
//!
//! As with Reads, what is written are the next bytes of the stream, and they are handed on as Data is, whoever reads by
//! then: so a reader may leave before anything has come. The peer writes in order, without holes.
//!
//! An advert that crosses a message with payload is void: both count such messages (`sdp_wire::stale`).

use super::{Common, In};
use crate::sdp_wire::message::{Advert, Half, Message};
use crate::sdp_wire::mode::{End, Mode};
use crate::sdp_wire::{Violation, stale};
use crate::wire::adverts::{self, Sink};
use crate::wire::common;

/// The buffer that is advertised.
#[derive(Clone, Copy, Debug)]
struct Open {
    stag: u32,
    len: u32,
    came: u32,
}

/// What the receiving half knows of adverts of sinks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writes {
    /// The mode of what this side receives.
    pub(super) mode: Mode,
    open: Option<Open>,
    number: u32,
    counted: stale::Sink,
    /// Adverts of the peer's that have come.
    theirs: u32,
}

impl Default for Writes {
    fn default() -> Self {
        Self {
            mode: Mode::Combined,
            open: None,
            number: 0,
            counted: stale::Sink::default(),
            theirs: 0,
        }
    }
}

impl Writes {
    pub(super) const fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Its name and length in bytes; 0 of none.
    pub(super) fn region(&self) -> (u32, u32) {
        self.open.map_or((0, 0), |open| (open.stag, open.len))
    }

    /// A message with payload has come, which takes the place of the advert.
    pub(super) const fn payload_came(&mut self) {
        self.counted.payload_came(self.open.is_some());
        self.open = None;
    }

    /// Nothing more is written.
    pub(super) const fn close(&mut self) {
        self.open = None;
    }

    /// So many bytes have been written, from here on. False if that is not where they go on.
    pub(super) fn came(&mut self, offset: u64, payload: usize) -> bool {
        let Some(open) = &mut self.open else {
            return false;
        };
        if offset != u64::from(open.came) {
            return false;
        }
        // (within the region: that was checked)
        open.came += u32::try_from(payload).unwrap_or(u32::MAX);
        true
    }

    /// The peer says how many bytes it has written.
    pub(super) fn complete(&mut self, len: u32) -> Result<(), Violation> {
        match self.open.take() {
            Some(open) if open.came == len => Ok(()),
            _ => Err(Violation::WrittenLength),
        }
    }

    /// The peer changes a mode.
    pub(super) fn change(&mut self, half: Half, mode: Mode) -> Result<(), Violation> {
        match half {
            Half::Receive => self.mode = self.mode.changed(mode, End::Source)?,
            // What this side sends is never in buffered mode, which alone the peer could end.
            Half::Send => return Err(Violation::Transition),
        }
        if self.mode != Mode::Pipelined {
            self.open = None;
        }
        Ok(())
    }
}

impl In {
    /// A reader waits with a buffer of so many bytes: it is advertised, if it may be and is worth it.
    pub fn advertise(&mut self, common: &Common, room: usize) {
        let Ok(len) = u32::try_from(room) else { return };
        if room < self.least
            || self.writes.mode != Mode::Pipelined
            || self.writes.is_open()
            || self.read.is_some()
            || len <= self.sizes.own
            || self.is_shared_now()
            || self.has_end()
            || self.ends_mode
            || common.asked() & common::SINK_AVAIL != 0
        {
            return;
        }
        self.writes.number = adverts::next(self.writes.number);
        let stag = adverts::written_stag(self.writes.number);
        self.writes.open = Some(Open { stag, len, came: 0 });
        common.adverts.offer(&Sink {
            stag,
            address: 0,
            len,
            kept: self.writes.counted.non_discards(),
        });
        self.note(); // (who goes on for one that has died here does not say it again)
        common.ask(common::SINK_AVAIL);
    }

    /// The peer advertises a buffer.
    fn sink_came(&mut self, common: &Common, advert: &Advert, kept: u32) -> Result<(), Violation> {
        if !common.adverts.is_pipelined() {
            return Err(Violation::AdvertMode);
        }
        self.writes.theirs = self.writes.theirs.wrapping_add(1);
        common.adverts.heard_sink(
            self.writes.theirs,
            &Sink {
                stag: advert.stag,
                address: advert.address,
                len: advert.len,
                kept,
            },
        );
        Ok(())
    }

    /// What a message of the peer's means for adverts of sinks.
    pub(super) fn note_writes(
        &mut self,
        common: &Common,
        message: &Message<'_>,
        payload: usize,
    ) -> Result<(), Violation> {
        match message {
            Message::Data { .. } | Message::SrcAvail { .. } | Message::SinkAvail { .. }
                if payload > 0 =>
            {
                self.writes.payload_came();
            }
            Message::RdmaWrCompl { len, .. } => self.writes.complete(*len)?,
            Message::ModeChange { half, mode } => self.writes.change(*half, *mode)?,
            Message::RdmaRdCompl {
                pipelined: true, ..
            } => common.adverts.wish(),
            Message::DisConn | Message::Plain | Message::PlainLater => self.writes.close(),
            _ => {}
        }
        if let Message::SinkAvail {
            advert,
            non_discards,
            ..
        } = message
        {
            self.sink_came(common, advert, *non_discards)?;
        }
        Ok(())
    }
}
