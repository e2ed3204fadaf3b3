//! The flow-control modes of a direction. Each direction has one, both begin in combined mode.
//!
//! | mode | the source may send | its payload in SrcAvail | who changes it |
//! |---|---|---|---|
//! | buffered | Data | - | the sink: to combined |
//! | combined | Data, one SrcAvail at a time | at least a byte | the source: to buffered, to pipelined |
//! | pipelined | Data, SrcAvails, RDMA Writes | none | the source: to combined |
//!
//! Who changes it, its master, has changed when ModeChange is sent, the other side when it is received.

use super::Violation;
use super::message::{Half, Message};

/// A mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    Buffered = 0,
    Combined = 1,
    Pipelined = 2,
}

/// Which side of a direction somebody is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Source,
    Sink,
}

impl Mode {
    /// The mode after a change that this end of the direction wants.
    ///
    /// # Errors
    /// [`Violation::SameMode`], or [`Violation::Transition`] where that end may not change it so.
    pub const fn changed(self, to: Self, by: End) -> Result<Self, Violation> {
        match (by, self, to) {
            (_, Self::Buffered, Self::Buffered)
            | (_, Self::Combined, Self::Combined)
            | (_, Self::Pipelined, Self::Pipelined) => Err(Violation::SameMode),
            (End::Source, Self::Combined, Self::Buffered | Self::Pipelined)
            | (End::Source, Self::Pipelined, Self::Combined)
            | (End::Sink, Self::Buffered, Self::Combined) => Ok(to),
            _ => Err(Violation::Transition),
        }
    }

    /// Whether a SrcAvail with so many bytes of payload fits the mode of its direction.
    ///
    /// # Errors
    /// [`Violation::AdvertMode`]
    pub const fn takes_source_advert(self, payload: usize) -> Result<(), Violation> {
        match (self, payload) {
            (Self::Combined, 1..) | (Self::Pipelined, 0) => Ok(()),
            _ => Err(Violation::AdvertMode),
        }
    }
}

/// The modes of both directions, as one side sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modes {
    /// Of what this side sends.
    pub send: Mode,
    /// Of what this side receives.
    pub receive: Mode,
}

impl Default for Modes {
    fn default() -> Self {
        Self {
            send: Mode::Combined,
            receive: Mode::Combined,
        }
    }
}

impl Modes {
    /// Takes in a message from the peer: its ModeChange, or whether its SrcAvail fits.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn received(&mut self, message: &Message<'_>) -> Result<(), Violation> {
        match message {
            Message::ModeChange {
                half: Half::Send,
                mode,
            } => self.send = self.send.changed(*mode, End::Sink)?,
            Message::ModeChange {
                half: Half::Receive,
                mode,
            } => self.receive = self.receive.changed(*mode, End::Source)?,
            Message::SrcAvail { payload, .. } => self.receive.takes_source_advert(payload.len())?,
            _ => {}
        }
        Ok(())
    }

    /// Changes a mode whose master this side is, by the message that tells the peer so.
    ///
    /// # Errors
    /// This side may not change it so.
    pub fn change(&mut self, half: Half, mode: Mode) -> Result<Message<'static>, Violation> {
        // (the message speaks of the halves of who receives it)
        let half = match half {
            Half::Send => {
                self.send = self.send.changed(mode, End::Source)?;
                Half::Receive
            }
            Half::Receive => {
                self.receive = self.receive.changed(mode, End::Sink)?;
                Half::Send
            }
        };
        Ok(Message::ModeChange { half, mode })
    }
}
