//! Whichever scheme a direction has agreed on.

use crate::{
    Counts, Granted, Inbox, Outbox, Piece, Scheme, Terms, Violation, credit, nic, packetized,
};

/// A sending half.
#[derive(Clone, Debug)]
pub enum Sender {
    Credit(credit::Sender),
    Packetized(packetized::Sender),
    Nic(nic::Sender),
}

/// A receiving half.
#[derive(Clone, Debug)]
pub enum Receiver {
    Credit(credit::Receiver),
    Packetized(packetized::Receiver),
    Nic(nic::Receiver),
}

/// The same expression for whichever scheme it is.
#[macro_export]
macro_rules! with_scheme {
    ($half:ident, $value:expr, $name:pat => $body:expr) => {
        match $value {
            $crate::any::$half::Credit($name) => $body,
            $crate::any::$half::Packetized($name) => $body,
            $crate::any::$half::Nic($name) => $body,
        }
    };
}

macro_rules! from_scheme {
    ($($half:ident $name:ident $scheme:ident;)*) => {$(
        impl From<$scheme::$half> for $half {
            #[inline]
            fn from(half: $scheme::$half) -> Self {
                Self::$name(half)
            }
        }
    )*};
}

from_scheme! {
    Sender Credit credit;
    Sender Packetized packetized;
    Sender Nic nic;
    Receiver Credit credit;
    Receiver Packetized packetized;
    Receiver Nic nic;
}

impl Sender {
    /// A sender into a region, by terms that fit it.
    #[must_use]
    pub fn new(region: usize, terms: &Terms) -> Self {
        match terms.scheme {
            Scheme::Credit => Self::Credit(credit::Sender::new(region, terms)),
            Scheme::Packetized => Self::Packetized(packetized::Sender::new(region, terms)),
            Scheme::Nic => Self::Nic(nic::Sender::new(region, terms)),
        }
    }
}

impl Receiver {
    /// A receiver over a region, by the sender's terms, which fit it.
    #[must_use]
    pub fn new(region: usize, terms: &Terms) -> Self {
        match terms.scheme {
            Scheme::Credit => Self::Credit(credit::Receiver::new(region, terms)),
            Scheme::Packetized => Self::Packetized(packetized::Receiver::new(region, terms)),
            Scheme::Nic => Self::Nic(nic::Receiver::new(region, terms)),
        }
    }
}

impl crate::Sender for Sender {
    fn granted(&mut self, out: &impl Outbox) -> Result<(), Violation> {
        with_scheme!(Sender, self, f => f.granted(out))
    }
    fn room(&self) -> usize {
        with_scheme!(Sender, self, f => f.room())
    }
    fn is_short(&self, want: usize) -> bool {
        with_scheme!(Sender, self, f => f.is_short(want))
    }
    fn is_roomy(&self) -> bool {
        with_scheme!(Sender, self, f => f.is_roomy())
    }
    fn place(&mut self, want: usize) -> Piece {
        with_scheme!(Sender, self, f => f.place(want))
    }
    fn commit(&mut self, len: usize, out: &impl Outbox) {
        with_scheme!(Sender, self, f => f.commit(len, out));
    }
    fn publish(&mut self, out: &impl Outbox) {
        with_scheme!(Sender, self, f => f.publish(out));
    }
    fn withhold(&self, out: &impl Outbox) -> bool {
        with_scheme!(Sender, self, f => f.withhold(out))
    }
    fn accepted(&self) -> u64 {
        with_scheme!(Sender, self, f => f.accepted())
    }
    fn limit(&self) -> u64 {
        with_scheme!(Sender, self, f => f.limit())
    }
    fn piece_at(&self, from: u64, out: &impl Outbox) -> Piece {
        with_scheme!(Sender, self, f => f.piece_at(from, out))
    }
    fn is_parked(&self) -> bool {
        with_scheme!(Sender, self, f => f.is_parked())
    }
    fn show(&mut self, all: bool) -> bool {
        with_scheme!(Sender, self, f => f.show(all))
    }
    fn control(&mut self) -> bool {
        with_scheme!(Sender, self, f => f.control())
    }
    fn tell_control(&self, out: &impl Outbox) {
        with_scheme!(Sender, self, f => f.tell_control(out));
    }
    fn resize(&mut self, own: usize) {
        with_scheme!(Sender, self, f => f.resize(own));
    }
    fn held(&self, taken: u64) -> u64 {
        with_scheme!(Sender, self, f => f.held(taken))
    }
    fn reserved(&self) -> u64 {
        with_scheme!(Sender, self, f => f.reserved())
    }
    fn counts(&self) -> Counts {
        with_scheme!(Sender, self, f => f.counts())
    }
}

impl crate::Receiver for Receiver {
    fn announced(&mut self, from: &impl Inbox) -> Result<(), Violation> {
        with_scheme!(Receiver, self, f => f.announced(from))
    }
    fn available(&self) -> usize {
        with_scheme!(Receiver, self, f => f.available())
    }
    fn next(&mut self, from: &impl Inbox) -> Result<Piece, Violation> {
        with_scheme!(Receiver, self, f => f.next(from))
    }
    fn consume(&mut self, len: usize) {
        with_scheme!(Receiver, self, f => f.consume(len));
    }
    fn consumed(&self) -> u64 {
        with_scheme!(Receiver, self, f => f.consumed())
    }
    fn grant(&mut self, eager: bool, to: &impl Inbox) -> Granted {
        with_scheme!(Receiver, self, f => f.grant(eager, to))
    }
    fn release(&mut self) {
        with_scheme!(Receiver, self, f => f.release());
    }
    fn pull(&mut self, from: &impl Inbox) {
        with_scheme!(Receiver, self, f => f.pull(from));
    }
}
