//! What every process that holds a connection has in common: one *stream*, as the kernel has one open
//! file. It lies in memory that children of fork share with their parent, so that whoever makes the next
//! call finds the stream where the last one left it; what a process knows by itself is in [`super::Socket`],
//! which reads like its stream.
//!
//! Rule: nothing in here points to memory of one process only. The segment and the arena's words are
//! mapped before a fork and so lie at the same address in all; a stream that several hold is not
//! attached, nor let go of, before one is left (`seats`).

use super::lock::Direction;
use super::residual::Residual;
use super::seats::{Seats, Sharing};
use super::{Phase, leg};
use std::cell::UnsafeCell;
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};
use transport::sdp::{Leg, Rx, Tx};
use transport::shm::layout::{State, generation};
use transport::shm::segment::Segment;
use transport::wire::Wire;

/// A request is declined.
const DECLINES: u8 = 1;
/// A program that was started before any came holds the connection too, and declines it as well.
const HANDED: u8 = 2;

/// One connection, for all that hold it.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Stream {
    phase: AtomicU8,
    pub(crate) nonblock: AtomicBool,
    /// The kernel connection has ended (FIN or RST).
    pub(crate) over: AtomicBool,
    /// The program has shut its receiving.
    pub(crate) rx_shut: AtomicBool,
    /// The program has shut its sending.
    pub(crate) tx_shut: AtomicBool,
    /// TCP_NODELAY and TCP_CORK as the program has set them, or its listener passed them on: while the
    /// socket is attached the kernel has them so that a bell never waits.
    pub(crate) nodelay: AtomicBool,
    pub(crate) cork: AtomicBool,
    /// SO_LINGER is set to 0 seconds: closing resets.
    pub(crate) linger_zero: AtomicBool,
    /// A mark of how much was sent when that was last looked at, and whether the region has gone back to the system since
    /// (`idle`).
    pub(crate) sent_mark: AtomicU8,
    /// What recvmsg says beside the bytes: `options::TELLS_LEFT`, `TELLS_WHEN`.
    pub(crate) tells: AtomicU8,
    /// Both directions are shut, and the kernel connection has been told.
    pub(crate) fin_sent: AtomicBool,
    /// Bytes were sent by the kernel after the other end was gone: what it answers counts.
    pub(crate) sent_late: AtomicBool,
    /// The kernel's receiving half has been shut by this side: it shows readable for ever.
    pub(crate) woken_hard: AtomicBool,
    /// A reset has been reported to the program.
    pub(crate) reset_told: AtomicBool,
    /// The kernel has shown an error that no end came after (`ready`).
    pub(crate) error_alone: AtomicBool,
    /// The end of file has been read.
    pub(crate) eof_told: AtomicBool,
    /// The peer broke the protocol.
    pub(crate) broken: AtomicBool,
    /// It was shared at some time: who holds it is known, and somebody who has closed it may still keep its
    /// place.
    was_shared: AtomicBool,
    /// The last holder has said goodbye and let go of the segment.
    pub(crate) ended: AtomicBool,
    /// What the peer has parked, or withheld, is pulled (`parked::PULLS_ALL`, `PULLS_ONCE`).
    pub(crate) pulls: AtomicU8,
    /// A sender on software iWARP waits for a word of the peer's, not for room in the kernel.
    pub(crate) hungry: AtomicBool,
    /// How a request for software iWARP is met, if one comes yet ([`DECLINES`], [`HANDED`]).
    unasked: AtomicU8,
    /// Mirror of the receiving leg, for looks without the lock.
    rx_leg: AtomicU8,
    tx_leg: AtomicU8,
    /// What the slot's state says while the offer stands.
    pub(crate) answer_open: AtomicU32,
    pub(crate) lowat: AtomicU32,
    /// SO_SNDBUF and SO_RCVBUF as the program has set them, in bytes; 0 if it has not.
    pub(crate) sndbuf: AtomicU32,
    pub(crate) rcvbuf: AtomicU32,
    /// Mirror of the bytes read off the fast leg.
    pub(crate) rx_at: AtomicU64,
    /// Mirror of the bytes read off the first leg.
    pub(crate) rx_kernel: AtomicU64,
    segment: UnsafeCell<Option<Segment>>,
    pub(crate) tx: Direction<Tx>,
    pub(crate) rx: Direction<Rx>,
    /// Times that a send found no room: what an edge of writability is an answer to.
    pub(crate) no_room: AtomicU32,
    /// Since when ([`super::coarse`]) the peer is seen to have parked, or withheld, bytes and nothing else has come; 0 if not.
    pub(crate) starving: AtomicU32,
    /// Slot state to look at while announced.
    pub(crate) answer_at: AtomicPtr<AtomicU32>,
    pub(crate) residual: AtomicPtr<Residual>,
    /// The state of software iWARP.
    pub(crate) wire: AtomicPtr<Wire>,
    /// What it needs while others hold it too.
    sharing: AtomicPtr<Sharing>,
}

// SAFETY: the one cell (`segment`) is written before the phase that makes readers look at it.
unsafe impl Sync for Stream {}

impl Stream {
    /// Where the words of its locks lie, in order.
    pub(crate) const OWNERS: [usize; 2] = {
        let tx = offset_of!(Self, tx) + Direction::<Tx>::OWNER;
        let rx = offset_of!(Self, rx) + Direction::<Rx>::OWNER;
        if tx < rx { [tx, rx] } else { [rx, tx] }
    };

    /// A new one, with its place for what it needs while shared.
    pub(crate) fn new(sharing: *mut Sharing) -> Self {
        Self {
            phase: 0.into(),
            nonblock: false.into(),
            over: false.into(),
            rx_shut: false.into(),
            tx_shut: false.into(),
            nodelay: false.into(),
            cork: false.into(),
            linger_zero: false.into(),
            sent_mark: 0.into(),
            tells: 0.into(),
            fin_sent: false.into(),
            sent_late: false.into(),
            woken_hard: false.into(),
            reset_told: false.into(),
            error_alone: false.into(),
            eof_told: false.into(),
            broken: false.into(),
            was_shared: false.into(),
            ended: false.into(),
            pulls: 0.into(),
            hungry: false.into(),
            unasked: 0.into(),
            rx_leg: 0.into(),
            tx_leg: 0.into(),
            answer_open: 0.into(),
            lowat: 1.into(),
            sndbuf: 0.into(),
            rcvbuf: 0.into(),
            rx_at: 0.into(),
            rx_kernel: 0.into(),
            segment: UnsafeCell::new(None),
            tx: Direction::new(Tx::new()),
            rx: Direction::new(Rx::new()),
            no_room: 0.into(),
            starving: 0.into(),
            answer_at: AtomicPtr::new(ptr::null_mut()),
            residual: AtomicPtr::new(ptr::null_mut()),
            wire: AtomicPtr::new(ptr::null_mut()),
            sharing: AtomicPtr::new(sharing),
        }
    }

    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        Phase::from_number(self.phase.load(Ordering::Acquire))
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        self.phase.store(phase as u8, Ordering::Release);
    }

    /// A request for software iWARP, if one comes yet, is declined from now on. Whether it was before.
    pub(crate) fn decline(&self) -> bool {
        self.unasked.fetch_or(DECLINES, Ordering::AcqRel) & DECLINES != 0
    }

    /// [`Self::decline`], where a program that is started holds the connection too, of which nothing is known here.
    pub(crate) fn hand_on(&self) {
        self.unasked.fetch_or(DECLINES | HANDED, Ordering::AcqRel);
    }

    pub(crate) fn declines(&self) -> bool {
        self.unasked.load(Ordering::Acquire) & DECLINES != 0
    }

    pub(crate) fn is_handed(&self) -> bool {
        self.unasked.load(Ordering::Acquire) & HANDED != 0
    }

    /// The segment, from `Announced` on.
    #[inline]
    pub(crate) fn segment(&self) -> Option<&Segment> {
        // SAFETY: written before the phase that leads here, and not changed while the socket lives.
        unsafe { &*self.segment.get() }.as_ref()
    }

    /// # Safety
    /// Nobody looks yet: the phase is before `Announced`.
    pub(crate) unsafe fn set_segment(&self, segment: Option<Segment>) {
        // SAFETY: the caller's promise.
        unsafe { *self.segment.get() = segment };
    }

    #[inline]
    pub(crate) fn rx_leg(&self) -> Leg {
        leg(self.rx_leg.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn tx_leg(&self) -> Leg {
        leg(self.tx_leg.load(Ordering::Relaxed))
    }

    /// Copies what lock-free looks need. Called with the lock held, after a change.
    #[inline]
    pub(crate) fn mirror_rx(&self, rx: &Rx) {
        self.rx_at.store(rx.fast_bytes(), Ordering::Relaxed);
        self.rx_kernel.store(rx.kernel_bytes(), Ordering::Relaxed);
        self.rx_leg.store(rx.leg() as u8, Ordering::Relaxed);
        // (where this side has shut its receiving there an end is its own: the connection's state tells of the peer's)
        let ends = rx.is_kernel_over()
            && (!self.woken_hard.load(Ordering::Acquire) || rx.taken_error().is_some());
        if ends && !self.over.load(Ordering::Relaxed) {
            self.over.store(true, Ordering::Release);
        }
    }

    #[inline]
    pub(crate) fn mirror_tx(&self, tx: &Tx) {
        self.tx_leg.store(tx.leg() as u8, Ordering::Relaxed);
    }

    /// What the slot's state says once the server has agreed to the offer.
    #[inline]
    pub(crate) fn answer_yes(&self) -> u32 {
        State::Claimed.word(generation(self.answer_open.load(Ordering::Relaxed)))
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Whether somebody who was taking it back to the kernel has died on the way: bytes may be nowhere any more, and the
    /// connection can only be reset. Asked with the sending lock, which whoever does that has for as long as it takes.
    #[inline]
    pub(crate) fn is_torn(&self) -> bool {
        self.shared_with()
            .is_some_and(|(_, leaving)| leaving.load(Ordering::Acquire))
    }

    /// Whoever holds both its locks begins to take it back to the kernel. Whether it is torn.
    pub(crate) fn begin_leaving(&self) -> bool {
        self.shared_with()
            .is_some_and(|(_, leaving)| leaving.swap(true, Ordering::AcqRel))
    }

    /// It is whole again, or the kernel's.
    pub(crate) fn end_leaving(&self) {
        if let Some((_, leaving)) = self.shared_with() {
            leaving.store(false, Ordering::Release);
        }
    }

    /// Whether several processes hold it, or did when somebody last looked.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.tx.is_shared()
    }

    /// A copy of another process's stream, not shared, gets a place of its own.
    pub(crate) fn keep_sharing_at(&self, place: *mut Sharing) {
        self.was_shared.store(false, Ordering::Relaxed);
        self.sharing.store(place, Ordering::Relaxed);
    }

    pub(crate) fn sharing_place(&self) -> *mut Sharing {
        self.sharing.load(Ordering::Relaxed)
    }

    /// Who holds it, if it was ever shared.
    #[inline]
    pub(crate) fn seats(&self) -> Option<&Seats> {
        self.shared_with().map(|(seats, _)| seats)
    }

    #[inline]
    fn shared_with(&self) -> Option<(&Seats, &AtomicBool)> {
        if !self.was_shared.load(Ordering::Acquire) {
            return None;
        }
        let at = self.sharing_place();
        // SAFETY: memory beside the stream, written before the flag. (Of its other fields others may have references.)
        Some(unsafe { (&(*at).seats, &(*at).leaving) })
    }

    /// Its seats can be looked at from now on.
    pub(crate) fn show_seats(&self) {
        self.was_shared.store(true, Ordering::Release);
    }
}
