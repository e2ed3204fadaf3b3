//! Zero copy: large messages that go straight from the sender's buffer to the reader's, past the ring. The
//! two adverts of SDP: the source says where its bytes lie (SrcAvail), the sink where it waits for them
//! (SinkAvail).
//!
//! Called by `sdp`, through the trait [`Direct`] that every provider carries; a provider without zero copy
//! takes the trait's own answers. Here is what shared memory makes of it: an advert is a few words in the
//! segment, RDMA Read and RDMA Write are copies by the kernel from one program's memory to the other's
//! (`sys::vm`), and where both sides are in a call at the same time each copies a part ([`claims`]).
//!
//! Where bytes belong follows from positions. Both adverts carry the position of the stream's ring bytes
//! where they stand: an advert of the source at position P comes after the first P bytes of the ring and
//! before the next; the sink's buffer, posted when it had read C ring bytes, has its place for that advert
//! at P - C. So a buffer that was posted before bytes that are still on their way is not stale, only partly
//! used by them (the draft's counters for this, NonDiscards, are for providers where adverts and data pass
//! each other unseen).

pub mod choice;
pub mod claims;
mod cost;
pub mod far;
mod held;
pub mod policy;
mod reach;
mod shm;
mod sink;
mod source;
#[cfg(test)]
mod tests;

use crate::reason::Reason;
use choice::Way;
use far::{Far, Look};
pub use held::Lane;
pub(crate) use reach::me;
pub use reach::set_pid;

/// How far an advert of the peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Where in the ring's bytes it stands.
    pub at: u64,
    /// Bytes of it that are left.
    pub left: u64,
    /// Not 0: they are in this lane, and come whatever becomes of the sender.
    pub lane: u64,
}

/// What a source waits for when it waits for the reader to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// The reader has read everything and may call again at once.
    Return,
    /// It has something to read first.
    Drain,
}

/// The zero-copy half of a provider. The defaults are those of a provider without.
pub trait Direct {
    /// Whether large messages may go straight from or to the peer's memory, and why not.
    ///
    /// # Errors
    /// The reason, for the report.
    fn reaches(&self) -> Result<(), Reason> {
        Err(Reason::None)
    }

    /// Why not, if that has been found out.
    fn refusal(&self) -> Reason {
        Reason::None
    }

    /// Bytes that went this way so far, sent and received.
    fn moved(&self) -> u64 {
        0
    }

    /// Source: a large message of so many bytes begins, which decides by which way it goes.
    fn begin(&self, _len: usize) {}

    /// Source: by which way large messages go now.
    fn way(&self) -> Way {
        Way::Ring
    }

    /// Source: others keep this thread from running, so who has to come for a message gets no turn either while this one looks
    /// for it.
    fn is_crowded(&self) -> bool {
        false
    }

    /// Source: the reader was waited for in vain, for so many ticks.
    fn wait_in_vain(&self, _waited: u64) {}

    /// Source: how long, in ticks, a sender that could copy waits for the reader.
    fn longest_wait(&self, _comes: bool) -> u64 {
        0
    }

    /// Source: so many bytes of it have gone.
    fn moved_on(&self, _bytes: usize) {}

    /// Source: says whether large messages come straight, so that readers post their buffers.
    fn foretell(&self, _large: bool) {}

    /// Source: bytes that the peer's reader waits for at this position of the ring's bytes.
    fn awaited(&self, _at: u64) -> u64 {
        0
    }

    /// Source: whether the reader is asleep, or on its way to it.
    fn peer_sleeps(&self) -> bool {
        true
    }

    /// Source: whether it is time again to wait for the reader to come.
    fn is_prompt(&self, _wait: Patience) -> bool {
        false
    }

    /// Source: whether it came.
    fn note_prompt(&self, _wait: Patience, _came: bool) {}

    /// Source: delivers bytes at this position into the buffer that the reader has posted. Returns how many
    /// have arrived, counted from the first: 0 if the reader has gone.
    ///
    /// # Safety
    /// `from` is readable for `len` bytes. Under the sending lock.
    unsafe fn deliver(&self, _at: u64, _from: *const u8, _len: usize) -> usize {
        0
    }

    /// Source: advertises a buffer that stands at this position, for a reader to come (SrcAvail). False if
    /// that cannot be. Nothing else may be sent before it is concluded.
    fn advertise(&self, _at: u64, _from: *const u8, _len: usize) -> bool {
        false
    }

    /// Source: whether the reader is done with the advertised buffer, or asks for the rest through the ring.
    fn is_taken(&self) -> bool {
        true
    }

    /// Source: takes part in the copying, if the reader is at it.
    ///
    /// # Safety
    /// The advertised buffer is readable. Under the sending lock.
    unsafe fn help(&self) {}

    /// Source: nobody reads the advertised buffer from now on. Takes no lock and does not wait.
    fn hide(&self) {}

    /// Source: ends the advert. The bytes that have arrived, counted from the first.
    fn conclude(&self) -> usize {
        0
    }

    /// Source: offers the sink the reading end of a lane: a descriptor of this process, and the number of the
    /// pipe that it is.
    fn offer_lane(&self, _fd: i32, _pipe: u64) {}

    /// Source: how far the sink is with that.
    fn lane(&self) -> Lane {
        Lane::None
    }

    /// Source: whether another advert can be made.
    fn has_room(&self) -> bool {
        false
    }

    /// Source: so many bytes, which stand at this position, are in the lane.
    fn hold(&self, _at: u64, _len: usize) {}

    /// Source: bytes in the lane that the sink has not read.
    fn held(&self) -> u64 {
        0
    }

    /// Sink: fetches the lane that the source offers, if it does.
    fn fetch(&self, _far: &Far) {}

    /// Sink: whether it has a lane of the source's.
    fn fetched(&self) -> bool {
        false
    }

    /// Sink: receives from the advert that stands here, whose bytes are in a lane, or throws them away. How many;
    /// `None` if the peer has lied.
    ///
    /// # Safety
    /// `to` is writable for `len` bytes. Under the receiving lock.
    unsafe fn receive_held(
        &self,
        _at: u64,
        _to: Option<*mut u8>,
        _len: usize,
        _far: &Far,
    ) -> Option<usize> {
        None
    }

    /// Sink: what is in the lane, up to so many bytes, to be looked at.
    fn look_held(&self, _far: &Far, _len: usize) -> Option<Look> {
        None
    }

    /// Sink: the adverts that have something left, in order.
    fn ahead(&self) -> impl Iterator<Item = Pending> {
        self.pending().into_iter()
    }

    /// Sink: whether there is anything to look at beside the ring: adverts, or large messages to come.
    fn has_adverts(&self) -> bool {
        false
    }

    /// Sink: a number that changes with every advert.
    fn adverts(&self) -> u64 {
        0
    }

    /// Sink: the next advert, if there is one.
    fn pending(&self) -> Option<Pending> {
        None
    }

    /// Sink: posts the reader's buffer for what comes after so many ring bytes.
    fn post(&self, _read: u64, _to: *mut u8, _len: usize) {}

    /// Sink: whether a buffer is posted.
    fn is_posted(&self) -> bool {
        false
    }

    /// Sink: takes the posted buffer back. Nothing is written to it afterwards. What the source wrote to it before
    /// is the next that [`Self::receive`] gets, and is to be received into this very buffer.
    fn withdraw(&self) {}

    /// Sink: receives from the advert that stands here, after so many bytes of the ring, into the posted
    /// buffer, up to its end. Returns how many bytes have arrived at `to`, which is the place in the buffer for
    /// the advert's next byte. With no place at all they are thrown away.
    ///
    /// # Safety
    /// `to` is writable for `len` bytes. Under the receiving lock.
    unsafe fn receive(&self, _at: u64, _to: Option<*mut u8>, _len: usize) -> usize {
        0
    }

    /// Source: its bytes up to this position of the stream are where the sink finds them, and of a buffer that was taken back no
    /// more comes before the program sends again, or there is room.
    fn settle_taken_back(&self, _accepted: u64) {}

    /// Sink: where the last advert stands, and how much of it had not arrived, if it was taken back or was
    /// asked to be, and is not forgotten.
    fn taken_back(&self) -> Option<Pending> {
        None
    }

    /// Sink, who has read so many bytes of the ring and all that is in it: whether there are bytes in a
    /// sender's buffer, or in one that was taken back, which come by the ring then.
    fn shows_large(&self, read: u64) -> bool {
        self.pending().is_some() || self.taken_back().is_some_and(|back| back.at == read)
    }

    /// Sink: forgets that the last advert was taken back.
    fn forget_taken_back(&self) {}

    /// Sink: asks for the rest of the pending advert through the ring (SendSm).
    fn ask_small(&self) {}

    /// Sink: passes adverts that have nothing left.
    fn pass(&self) {}

    /// Sink: whoever received before has died in the middle of it, and this process reads on. What the dead had
    /// received of an advert is gone with it; what it had only begun comes another way. Under the receiving lock.
    fn bury_reader(&self) {}

    /// Sink: the same for what the dead had taken out of a lane. False if that cannot be told yet.
    fn bury_reader_of_lane(&self, _far: &Far) -> bool {
        true
    }
}
