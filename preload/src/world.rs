//! What the process as a whole knows: settings, rendezvous, the pool of sockets. One lock, for slow
//! paths only (connect, accept's first use, close, epoll_ctl).

use crate::epoll::set::Set;
use crate::guard;
use crate::sockets::Socket;
use crate::sockets::lock::{Slow, SlowHeld, thread};
use crate::sockets::pool::Pool;
use flowctl::{Scheme, Terms};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use transport::direct::policy::{self, Mode, Touch};
use transport::rendezvous::client::Targets;
use transport::rendezvous::server::Family;
use transport::report::Report;
use transport::settings::{PeerUsers, Settings, Wanted};
use transport::sys::diag::Diag;

/// Under the registry lock.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) pool: Pool,
    pub(crate) targets: Option<Targets>,
    pub(crate) families: Vec<Option<Family>>,
    pub(crate) diag: Option<Diag>,
    /// Every epoll set, for fork.
    pub(crate) sets: Vec<&'static Set>,
    /// Sockets that this process has closed and whose streams, of its making, others still hold.
    pub(crate) lingering: Vec<&'static Socket>,
    /// Connections that have ended.
    pub(crate) report: Option<Report>,
    pub(crate) reported: bool,
}

static WORLD: Slow<World> = Slow::new(
    crate::sockets::order::Rank::Registry,
    World {
        pool: Pool::empty(),
        targets: None,
        families: Vec::new(),
        diag: None,
        sets: Vec::new(),
        lingering: Vec::new(),
        report: None,
        reported: false,
    },
);

static SETTINGS: OnceLock<Settings> = OnceLock::new();

/// The process that `WORLD` describes: in a child that shares this memory (vfork) it is another.
static PID: AtomicI32 = AtomicI32::new(0);

/// Takes the registry lock.
pub(crate) fn lock() -> SlowHeld<'static, World> {
    WORLD.lock()
}

/// The registry, unless another thread keeps it for long: who waits with it for a peer's answer may have that peer in this process, where
/// the library's own thread answers.
pub(crate) fn lock_soon() -> Option<SlowHeld<'static, World>> {
    WORLD.lock_soon()
}

/// The lock itself, for fork.
pub(crate) fn raw() -> &'static Slow<World> {
    &WORLD
}

pub(crate) fn set_settings(s: Settings) {
    policy::set(s.zcopy, s.zcopy_min);
    guard::set_touch(s.zcopy_write);
    let _ = SETTINGS.set(s);
}

/// The settings; before the constructor has run, those that leave everything on kernel TCP.
pub(crate) fn settings() -> &'static Settings {
    static OFF: Settings = Settings {
        crc: None,
        transport: Wanted::Tcp,
        buf: 1 << 19,
        terms: Terms {
            scheme: Scheme::Packetized,
            buffer: 1 << 19,
            own: 0,
            slots: 2,
            slot: 1,
            window: 1,
        },
        spin_us: 0,
        naps: true,
        wired_naps: true,
        few: 64,
        peer_users: PeerUsers::Same,
        zcopy: Mode::Off,
        zcopy_min: usize::MAX,
        zcopy_write: Touch::Measured,
        rules: None,
        report: None,
    };
    SETTINGS.get().unwrap_or(&OFF)
}

pub(crate) fn set_pid(pid: i32) {
    transport::direct::set_pid(pid);
    PID.store(pid, Ordering::Relaxed);
}

/// Whether the constructor has run: before, nothing is followed.
pub(crate) fn is_ready() -> bool {
    PID.load(Ordering::Relaxed) != 0
}

/// Whether the caller is a child that only borrows this memory (vfork), or a copy that fork's handlers
/// did not run in (clone): what it does to its descriptors is not ours to note. In a sandbox the question itself
/// may kill: there only a thread that may be such a child asks it.
pub(crate) fn is_foreign() -> bool {
    if crate::signals::is_sandboxed() && PARTED.load(Ordering::Relaxed) != thread() {
        return false;
    }
    let foreign = transport::sys::pid() != PID.load(Ordering::Relaxed);
    if !foreign && PARTED.load(Ordering::Relaxed) != 0 {
        PARTED.store(0, Ordering::Relaxed); // (the parent is back)
    }
    foreign
}

/// The thread (its pointer) that has made a child last which no handler of fork knows of: the child runs with the same one, and the
/// parent's sleeps or has a word of its own from the next question on.
pub(crate) static PARTED: AtomicU64 = AtomicU64::new(0);

/// A child is about to be made that way.
pub(crate) fn parts() {
    PARTED.store(thread(), Ordering::Relaxed);
}

impl World {
    pub(crate) fn family(&mut self, i: u32) -> Option<&mut Family> {
        self.families.get_mut(i as usize)?.as_mut()
    }

    pub(crate) fn targets(&mut self) -> &mut Targets {
        self.targets.get_or_insert_default()
    }
}
