//! Which way the octets of the sending direction go, and how: by the kernel, by the ring, or by the kernel again from
//! where the peer has them. Used under the sending lock.

use super::records::{KNOCK, LONGEST, Record};
use super::stage::Event;
use super::tell::Tell;
use super::{NONE, Ring, Word};
use crate::sys::copy::copy;
use crate::sys::{Errno, Result, net};
use crate::verbs::{Operation, Work};
use std::sync::atomic::Ordering;

/// Octets that one post moves at most, and of how many parts of a ring: copying and moving overlap.
const PIECE: usize = 64 * 1024;
const PARTS: usize = 4;

/// Where the direction stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Kernel,
    Ring,
    /// The ring is over, and the peer was told; it has not said how much it has.
    Told,
    /// What was put from this position on goes again by the kernel.
    Again(u64),
}

/// See the module.
#[derive(Debug)]
pub struct Tx {
    way: Way,
    /// Octets of records that wait to go.
    waits: [u8; 2 * LONGEST],
    waiting: usize,
    /// Octets that went by Writes, and by Sends.
    put: [u64; 2],
}

impl Tx {
    /// By the kernel.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            way: Way::Kernel,
            waits: [0; 2 * LONGEST],
            waiting: 0,
            put: [0; 2],
        }
    }

    /// Octets that went by Writes, and by Sends.
    #[must_use]
    pub const fn put(&self) -> [u64; 2] {
        self.put
    }

    /// Whether octets go by the kernel, and nothing of a ring is left to do in this direction.
    #[must_use]
    pub const fn is_kernel(&self) -> bool {
        matches!(self.way, Way::Kernel) && self.waiting == 0
    }

    /// Whether octets go by the ring.
    #[must_use]
    pub const fn is_ring(&self) -> bool {
        matches!(self.way, Way::Ring)
    }

    /// From the next octet on they go by the ring; all before has gone to the kernel.
    pub const fn begin(&mut self) {
        self.way = Way::Ring;
    }

    /// Whether something waits here that the kernel or the peer has to take or say.
    #[must_use]
    pub const fn is_unsettled(&self) -> bool {
        self.waiting > 0 || matches!(self.way, Way::Told | Way::Again(_))
    }

    /// The same, or the ring is over and that has still to be said.
    #[must_use]
    pub fn is_between(&self, ring: Option<&Ring>) -> bool {
        self.is_unsettled() || self.is_ring() && ring.is_some_and(Ring::is_over)
    }

    /// As send(2) of a list of buffers, without waiting.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// The buffers are readable.
    pub unsafe fn send(
        &mut self,
        ring: Option<&Ring>,
        fd: i32,
        list: &mut [libc::iovec],
        flags: i32,
    ) -> Result<usize> {
        let Some(ring) = ring.filter(|_| self.way != Way::Kernel || self.waiting > 0) else {
            // SAFETY: the caller's promise.
            return unsafe { by_kernel(fd, list, flags) };
        };
        self.settle(ring, fd)?;
        match self.way {
            // SAFETY: as above.
            Way::Kernel => unsafe { by_kernel(fd, list, flags) },
            // SAFETY: as above.
            Way::Ring => unsafe { put(ring, list) }.inspect(|&n| {
                let [writes, sends] = &mut self.put;
                let by = if ring.outgoing.is_on() { sends } else { writes };
                *by += n as u64;
            }),
            Way::Told | Way::Again(_) => Err(Errno::AGAIN),
        }
    }

    /// Does what is due beside the program's octets: the end of the ring, what has to go again.
    ///
    /// # Errors
    /// As send(2); EAGAIN: something is left to do.
    pub fn settle(&mut self, ring: &Ring, fd: i32) -> Result<()> {
        if self.way == Way::Kernel && self.waiting == 0 {
            return Ok(());
        }
        if ring.stage.has(Event::Gone) && self.way != Way::Kernel {
            // Nobody is there to have anything again: the kernel says how that is told.
            (self.way, self.waiting) = (Way::Kernel, 0);
            return Ok(());
        }
        self.say(fd)?;
        if self.way == Way::Ring && ring.is_over() {
            let landed = ring.landed.load(Ordering::Acquire);
            if landed == NONE {
                return Err(Errno::AGAIN); // the receiving direction has to say where it is
            }
            self.way = Way::Told;
            knock(fd);
            self.queue(Record::Over(landed));
        }
        self.say(fd)?;
        if self.way == Way::Told {
            let at = ring.peer_landed.load(Ordering::Acquire);
            if at == NONE {
                return Err(Errno::AGAIN);
            }
            let put = ring.own(Word::Put).load(Ordering::Acquire);
            if at > put || put - at > ring.size() as u64 {
                return Err(Errno::CONNRESET); // it says what cannot be
            }
            self.way = Way::Again(at);
        }
        while let Way::Again(at) = self.way {
            let put = ring.own(Word::Put).load(Ordering::Acquire);
            let left = usize::try_from(put - at).unwrap_or(0);
            if left == 0 {
                self.way = Way::Kernel;
                break;
            }
            let (from, _, n) = ring.area.staging(at, left);
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            // SAFETY: octets of the staging ring, which nobody changes any more.
            let sent = unsafe { net::send(fd, from, n, flags) }?;
            self.way = Way::Again(at + sent as u64);
        }
        Ok(())
    }

    fn queue(&mut self, record: Record) {
        let (octets, len) = record.octets();
        let end = self.waiting + len;
        if let (Some(place), Some(octets)) =
            (self.waits.get_mut(self.waiting..end), octets.get(..len))
        {
            place.copy_from_slice(octets);
            self.waiting = end;
        }
    }

    /// Sends the records that wait.
    fn say(&mut self, fd: i32) -> Result<()> {
        while self.waiting > 0 {
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            // SAFETY: our own octets.
            let n = unsafe { net::send(fd, self.waits.as_ptr(), self.waiting, flags) }?;
            self.waits.copy_within(n..self.waiting, 0);
            self.waiting -= n;
        }
        Ok(())
    }
}

/// Puts as much as there is room for.
///
/// # Safety
/// The buffers are readable.
unsafe fn put(ring: &Ring, list: &[libc::iovec]) -> Result<usize> {
    let total: usize = list.iter().map(|v| v.iov_len).sum();
    let Some(room) = ring.checked_room() else {
        ring.end();
        return Err(Errno::CONNRESET); // the peer says that it has taken what was never put
    };
    let want = total.min(room);
    let most = PIECE.min(ring.size() / PARTS);
    let mut done = 0;
    let mut from = From {
        list,
        at: 0,
        off: 0,
    };
    while done < want {
        let piece = match ring.outgoing.is_on() {
            true => slotful(ring, want - done),
            false => (want - done).min(most),
        };
        if piece == 0 {
            break;
        }
        // SAFETY: the caller's promise.
        match unsafe { post(ring, &mut from, piece) } {
            Ok(()) => done += piece,
            Err(Errno::AGAIN) => break,
            Err(_) => {
                ring.fail();
                break;
            }
        }
    }
    if done == 0 {
        Err(Errno::AGAIN)
    } else {
        Ok(done)
    }
}

/// How many octets of so many the next Send takes: a slot's, as far as they lie in one piece in the staging ring; none without a
/// credit. What a call has goes together, and so does what waits to go, so slots are filled where more is waiting.
fn slotful(ring: &Ring, left: usize) -> usize {
    if ring.outgoing.credits() == 0 {
        return 0;
    }
    let put = ring.own(Word::Put).load(Ordering::Acquire);
    let (_, _, n) = ring.area.staging(put, left.min(ring.slot()));
    n
}

/// Wakes a peer whose program may be elsewhere for long: by an urgent byte. (It stands in the stream if another follows
/// before its reader has come so far: so it is sent only where that is heard. If there is no room for it, the peer hears of
/// what follows with its program's next call. What follows is not to go again in one piece with it: of that the kernel marks each
/// segment as if the urgent byte were its own.)
fn knock(fd: i32) {
    let flags = libc::MSG_OOB | libc::MSG_EOR | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: one readable byte.
    let _ = unsafe { net::send(fd, [KNOCK].as_ptr(), 1, flags) };
}

impl Default for Tx {
    fn default() -> Self {
        Self::new()
    }
}

/// Where the next octet of a list of buffers is.
#[derive(Clone, Copy)]
struct From<'a> {
    list: &'a [libc::iovec],
    at: usize,
    off: usize,
}

impl From<'_> {
    /// Copies the next `len` octets, of which there are as many.
    ///
    /// # Safety
    /// The buffers are readable, and `to` writable for so many.
    unsafe fn copy(&mut self, mut to: *mut u8, mut len: usize) {
        while len > 0 {
            let Some(entry) = self.list.get(self.at) else {
                return;
            };
            let n = len.min(entry.iov_len - self.off);
            // SAFETY: the caller's promise.
            unsafe {
                copy(entry.iov_base.cast::<u8>().add(self.off), to, n);
                to = to.add(n);
            }
            (len, self.off) = (len - n, self.off + n);
            if self.off == entry.iov_len {
                (self.at, self.off) = (self.at + 1, 0);
            }
        }
    }
}

/// Puts the next `len` octets, and says so to the peer. Nothing was put if that fails.
///
/// # Safety
/// The buffers are readable, and there is room.
unsafe fn post(ring: &Ring, from: &mut From<'_>, len: usize) -> Result<()> {
    let (remote, rkey) = ring.peer.get();
    let lkey = ring.lkey();
    let put = ring.own(Word::Put).load(Ordering::Acquire);
    let (first, first_at, n) = ring.area.staging(put, len);
    let (second, second_at, _) = ring.area.staging(put + n as u64, len - n);
    let before = *from;
    // SAFETY: room in the staging ring, which the peer has taken all of; and the caller's promise.
    unsafe {
        from.copy(first, n);
        from.copy(second, len - n);
    }
    let sends = ring.outgoing.is_on();
    let telling = Tell::Put(u32::try_from(len).unwrap_or(0)).to_word(); // (a piece is at most `PIECE`)
    let work = |local: *mut u8, at: usize, len: usize, id, last: bool| Work {
        operation: if sends {
            Operation::Send
        } else {
            Operation::Write
        },
        local,
        len: u32::try_from(len).unwrap_or(0),
        lkey,
        remote: remote + at as u64,
        rkey,
        signaled: last,
        tell: (last && !sends).then_some(telling),
        id,
    };
    let wraps = len > n;
    // (before it is posted, since the peer's answer may come at any moment)
    if sends {
        ring.outgoing.burn(u32::try_from(len).unwrap_or(0));
    }
    ring.own(Word::Put)
        .store(put + len as u64, Ordering::Release);
    // SAFETY: octets in the staging ring stay as they are until the peer has taken them.
    let posted = unsafe {
        ring.posting.post(ring, 1 + u64::from(wraps), |id| {
            [
                Some(work(first, first_at, n, id, !wraps)),
                wraps.then(|| work(second, second_at, len - n, id, true)),
            ]
        })
    };
    if posted.is_err() {
        // (nobody was told: that is the last of the work. An adapter that took it all the same makes the peer's word for what it
        // has a lie, and no octet comes twice)
        ring.own(Word::Put).store(put, Ordering::Release);
        if sends {
            ring.outgoing.unburn();
        }
        *from = before;
    }
    posted
}

/// As send(2).
///
/// # Safety
/// The buffers are readable.
unsafe fn by_kernel(fd: i32, list: &mut [libc::iovec], flags: i32) -> Result<usize> {
    match list {
        // SAFETY: the caller's promise.
        [one] => unsafe { net::send(fd, one.iov_base.cast(), one.iov_len, flags) },
        // SAFETY: as above.
        list => unsafe { net::send_vec(fd, list.as_mut_ptr(), list.len(), flags) },
    }
}
