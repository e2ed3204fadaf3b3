//! Where sockets live: one reserved mapping, filled from the front, used again in the order in which they came back, after a moment; and
//! their streams, each at its socket's index of a second mapping, which children of fork share. A child
//! keeps the streams that it inherits where they are and makes new ones in a mapping of its own. A named
//! page tells `shunt stat` where to look.

use super::news::News;
use super::seats::Sharing;
use super::stream::Stream;
use super::{Phase, Socket, Way};
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::mem::{ManuallyDrop, MaybeUninit, offset_of};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use transport::clock;
use transport::reason::Reason;
use transport::record::{Record, STAT_MAGIC, STAT_NAME};
use transport::stat::Directory;
use transport::sys;
use transport::sys::mem::{self, Mapping, memory_file, rlimit};

/// Sockets at most, and with little address space.
const SIZES: [usize; 4] = [1 << 20, 1 << 16, 1 << 12, 1 << 8];

/// How long (µs) a place rests before it is another connection's: calls that have looked the old one up, and not been counted yet, have
/// noticed by then. And how many are tried.
const REST_US: u64 = 50_000;
const SOME: usize = 8;

/// The pool. Under the registry lock.
#[derive(Debug)]
pub(crate) struct Pool {
    base: *mut Socket,
    streams: *mut Stream,
    size: usize,
    used: usize,
    /// Given back, and when (ticks).
    free: VecDeque<(u64, &'static Socket)>,
    directory: *mut Directory,
    /// While a fork is under way: see [`Self::copy_for_child`].
    copies: Vec<(usize, MaybeUninit<Stream>)>,
}

// SAFETY: the pointers are to mappings that live for ever.
unsafe impl Send for Pool {}

impl Pool {
    pub(crate) const fn empty() -> Self {
        Self {
            base: ptr::null_mut(),
            streams: ptr::null_mut(),
            size: 0,
            used: 0,
            free: VecDeque::new(),
            directory: ptr::null_mut(),
            copies: Vec::new(),
        }
    }

    pub(crate) fn init(&mut self) {
        let each = size_of::<Socket>() + size_of::<Stream>() + size_of::<Sharing>();
        let limits = [libc::RLIMIT_AS, libc::RLIMIT_DATA].map(rlimit);
        let soft = limits.iter().flatten().map(|&(soft, _)| soft).min();
        let most = soft.unwrap_or(u64::MAX) / mem::PART;
        for size in SIZES.into_iter().filter(|n| (n * each) as u64 <= most) {
            if let Ok(m) = Mapping::private(size * size_of::<Socket>())
                && let Some(streams) = streams_for(size)
            {
                m.advise(libc::MADV_DONTDUMP);
                self.base = m.leak().cast().as_ptr();
                self.streams = streams;
                self.size = size;
                break;
            }
        }
        self.publish();
        if let [Some((space, _)), _] = limits {
            mem::limit_space(space);
        }
    }

    /// Before fork: the streams in use that the child will not share, as they are now. They lie in memory that it has too, and by
    /// when it runs the parent may have closed one and have another in its place. (Without memory for that it has what it finds.)
    pub(crate) fn copy_for_child(&mut self, child: u32) {
        for i in 0..self.used {
            // SAFETY: the first `used` are initialised.
            let s: &'static Socket = unsafe { &*self.base.add(i) };
            let shared = s.seats().is_some_and(|seats| seats.expects(child));
            if s.record.live.load(Ordering::Relaxed) == 0 || shared {
                continue;
            }
            if self.copies.try_reserve(1).is_err() {
                return;
            }
            let mut copy = MaybeUninit::uninit();
            // SAFETY: a stream, of which the copy is looked at by the child alone.
            unsafe { ptr::copy_nonoverlapping(ptr::from_ref(&**s), copy.as_mut_ptr(), 1) };
            self.copies.push((i, copy));
        }
    }

    /// After fork, in the parent.
    pub(crate) fn drop_copies(&mut self) {
        self.copies = Vec::new();
    }

    /// After fork, in the child: the streams are the parent's. Those that it was given a seat at it
    /// shares; of the others in use it gets copies, if there is memory for them. Calls `each` with what it shares.
    pub(crate) fn part(&mut self, member: u32, mut each: impl FnMut(&'static Socket)) {
        // (with little address space left there is room for fewer new ones)
        let fewer = [self.used + self.used / 2 + 64, self.used];
        let sizes = [self.size].into_iter().chain(SIZES).chain(fewer);
        let fits = |&size: &usize| (self.used..=self.size).contains(&size);
        let made = sizes
            .filter(fits)
            .find_map(|size| Some((streams_for(size)?, size)));
        (self.streams, self.size) = made.unwrap_or((ptr::null_mut(), self.used));
        if made.is_none() {
            self.free.clear(); // no new ones
        }
        let mut copies = std::mem::take(&mut self.copies).into_iter().peekable();
        for i in 0..self.used {
            let copy = copies.next_if(|(of, _)| *of == i);
            // SAFETY: the first `used` are initialised.
            let s: &'static Socket = unsafe { &*self.base.add(i) };
            match s.seats().and_then(|seats| seats.sit(member)) {
                Some(seat) if s.record.live.load(Ordering::Relaxed) != 0 => {
                    s.rebind(ptr::from_ref(&**s).cast_mut(), seat);
                    each(s);
                }
                _ if made.is_none() => {}
                // SAFETY: both mappings are as long, or longer. A stream that is only
                // copied is not in use by the copy's owner yet, and has nothing to drop.
                _ => unsafe {
                    let own = self.streams.add(i);
                    if s.record.live.load(Ordering::Relaxed) == 0 {
                        ptr::write(own, Stream::new(self.sharing(i)));
                    } else {
                        let was = copy
                            .as_ref()
                            .map_or(ptr::from_ref(&**s), |(_, c)| c.as_ptr());
                        ptr::copy_nonoverlapping(was, own, 1);
                        (*own).tx.reset();
                        (*own).rx.reset();
                        (*own).keep_sharing_at(self.sharing(i));
                    }
                    s.rebind(own, 0);
                },
            }
        }
    }

    /// Beside the streams, at the same index: what one needs while others hold it too.
    ///
    /// # Safety
    /// There are streams, and more than `index`.
    unsafe fn sharing(&self, index: usize) -> *mut Sharing {
        // SAFETY: the mapping has room for both arrays.
        unsafe { self.streams.add(self.size).cast::<Sharing>().add(index) }
    }

    /// Whether the socket's stream is one that this process has made.
    pub(crate) fn is_maker(&self, s: &Socket) -> bool {
        if self.streams.is_null() {
            return false;
        }
        let at = ptr::from_ref::<Stream>(s).cast_mut();
        // SAFETY: one mapping.
        (self.streams..unsafe { self.streams.add(self.size) }).contains(&at)
    }

    /// Makes the page that `shunt stat` finds by name.
    fn publish(&mut self) {
        let len = size_of::<Directory>();
        let Ok(m) = memory_file(STAT_NAME, len).and_then(|f| Mapping::private_file(&f, len)) else {
            return;
        };
        let d: *mut Directory = m.leak().cast().as_ptr();
        // SAFETY: fresh memory of the right size; every field is an integer.
        unsafe {
            (*d).pid = sys::pid().cast_unsigned();
            (*d).records = self.base.expose_provenance() as u64 + offset_of!(Socket, record) as u64;
            (*d).stride = size_of::<Socket>() as u64;
            (*d).count = AtomicU64::new(self.used as u64);
            (*d).attention = super::operator::attention();
            (*d).magic = STAT_MAGIC;
        }
        self.directory = d;
        super::operator::publish(d);
    }

    /// After fork, in the child: the page is a copy that still names the parent.
    pub(crate) fn rename(&mut self) {
        if !self.directory.is_null() {
            // SAFETY: the page is ours alone.
            unsafe { (*self.directory).pid = sys::pid().cast_unsigned() };
        }
    }

    /// A socket for a new descriptor.
    pub(crate) fn take(&mut self) -> Option<&'static Socket> {
        if let Some(s) = self.take_free() {
            // SAFETY: in the free list, so nobody holds it except through stale references, which look at atomics and
            // locks and then leave (`Socket::is_here`).
            unsafe {
                let index = ptr::from_ref(s).offset_from(self.base).cast_unsigned();
                refill(s, self.streams.add(index), self.sharing(index));
            };
            return Some(s);
        }
        if self.used == self.size {
            return None;
        }
        // SAFETY: below `size`, and not handed out before.
        let (at, stream) = unsafe { (self.base.add(self.used), self.streams.add(self.used)) };
        self.used += 1;
        // SAFETY: fresh memory of the right size and alignment.
        unsafe { fill(at, stream, self.sharing(self.used - 1), 0) };
        if !self.directory.is_null() {
            // SAFETY: the page lives for ever.
            unsafe { &(*self.directory).count }.store(self.used as u64, Ordering::Release);
        }
        // SAFETY: initialised above, never unmapped.
        Some(unsafe { &*at })
    }

    /// Takes a socket back that no descriptor stands for any more.
    pub(crate) fn give(&mut self, s: &'static Socket) {
        if self.streams.is_null() {
            return;
        }
        if !self.is_maker(s) {
            // Others may go on with the stream: leave it as it is.
            // SAFETY: the place of this socket's own stream, which is not in use.
            unsafe {
                let index = ptr::from_ref(s).offset_from(self.base).cast_unsigned();
                let own = self.streams.add(index);
                ptr::write(own, Stream::new(self.sharing(index)));
                s.rebind(own, 0);
            }
        }
        s.set_phase(Phase::Idle);
        s.record.live.store(0, Ordering::Relaxed);
        s.generation.fetch_add(1, Ordering::AcqRel);
        self.free.push_back((clock::ticks(), s));
    }

    /// One that was given back long enough ago, or where there is no other, and that no call has come to too late.
    fn take_free(&mut self) -> Option<&'static Socket> {
        let is_full = self.used == self.size;
        let rested = |at: u64| clock::ticks().wrapping_sub(at) >= clock::us(REST_US);
        let fit = |(at, s): &(u64, &'static Socket)| {
            (is_full || rested(*at)) && s.waiters.load(Ordering::SeqCst) == 0
        };
        // (the oldest are in front)
        let at = self.free.iter().take(SOME).position(fit)?;
        self.free.remove(at).map(|(_, s)| s)
    }

    /// Every socket in use.
    pub(crate) fn each(&self, mut each: impl FnMut(&'static Socket)) {
        self.each_from(0, |s| {
            each(s);
            true
        });
    }

    /// Every socket in use from this place on, as long as the answer is true. Where to go on, if it was not.
    pub(crate) fn each_from(
        &self,
        from: usize,
        mut each: impl FnMut(&'static Socket) -> bool,
    ) -> Option<usize> {
        for i in from..self.used {
            // SAFETY: the first `used` are initialised.
            let s: &'static Socket = unsafe { &*self.base.add(i) };
            if s.record.live.load(Ordering::Relaxed) != 0 && !each(s) {
                return Some(i + 1);
            }
        }
        None
    }
}

/// Memory for as many streams, which children of fork will share.
fn streams_for(size: usize) -> Option<*mut Stream> {
    let each = size_of::<Stream>() + size_of::<Sharing>();
    let m = Mapping::family(size * each).ok()?;
    m.advise(libc::MADV_DONTDUMP);
    Some(m.leak().cast().as_ptr())
}

/// # Safety
/// `at` and `stream` are memory for a socket and its stream that nobody else has.
unsafe fn fill(at: *mut Socket, stream: *mut Stream, sharing: *mut Sharing, generation: u32) {
    // SAFETY: the caller's promise.
    unsafe {
        ptr::write(stream, Stream::new(sharing));
        ptr::write(at, new(stream, generation));
        (*at).record.begin(-1, 0, Reason::None);
    }
}

/// Makes a place that was given back a new connection's. The words stay as they are by which a call that has come too late is inside, or has a
/// lock: it takes them back. (A lock may be one's that has died with it, in a process that had the stream too.)
///
/// # Safety
/// As there, but for such calls, which change nothing else.
unsafe fn refill(s: &'static Socket, stream: *mut Stream, sharing: *mut Sharing) {
    let generation = s.generation.load(Ordering::Relaxed);
    let at = ptr::from_ref(s).cast_mut();
    let owners = Stream::OWNERS.map(|at| (at, size_of::<AtomicU64>()));
    let waiters = (offset_of!(Socket, waiters), size_of::<AtomicU32>());
    // SAFETY: the caller's promise. What was there has nothing to drop but `sets`, which is empty when a socket is given back.
    unsafe {
        (*stream).tx.bury_others();
        (*stream).rx.bury_others();
        write_around(stream, Stream::new(sharing), &owners);
        write_around(at, new(stream, generation), &[waiters]);
        (*at).record.begin(-1, 0, Reason::None);
    }
}

/// Writes a value but for some of its bytes: from where, in order, and how many.
///
/// # Safety
/// As [`ptr::write`]; what those bytes of the value are needs no drop.
unsafe fn write_around<T>(at: *mut T, value: T, spared: &[(usize, usize)]) {
    let value = ManuallyDrop::new(value);
    let from = ptr::from_ref(&*value).cast::<u8>();
    let mut next = 0;
    for &(spare, its) in spared.iter().chain(&[(size_of::<T>(), 0)]) {
        let len = spare.saturating_sub(next);
        // SAFETY: inside both, as ranges of fields are.
        unsafe { ptr::copy_nonoverlapping(from.add(next), at.cast::<u8>().add(next), len) };
        next = spare + its;
    }
}

fn new(stream: *mut Stream, generation: u32) -> Socket {
    Socket {
        stream: AtomicPtr::new(stream),
        seat: 0.into(),
        kernel_news: News::new(),
        untimed: 0.into(),
        checked: 0.into(),
        first_look: 0.into(),
        parked_fd: (-1).into(),
        waiters: 0.into(),
        asleep: 0.into(),
        rooming: 0.into(),
        budget: super::spin::Budget::new(),
        company: super::spin::Company::new(),
        refs: 1.into(),
        generation: AtomicU32::new(generation),
        shadow: (-1).into(),
        way: UnsafeCell::new(Way::None),
        sets: UnsafeCell::new(Vec::new()),
        set_count: 0.into(),
        record: Record::default(),
        lanes: AtomicPtr::new(ptr::null_mut()),
    }
}
