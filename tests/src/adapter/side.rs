//! One side of a case: its adapter, its memory, and where the peer's is.

use super::{Link, Role};
use std::ffi::c_void;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use transport::sys::mem::Mapping;
use transport::verbs::{self, Adapter, Address, Done, ENDED, Operation, Work, address};

/// Octets of the memory of each side.
pub(super) const LEN: usize = 1 << 20;
/// How long anything may take: the peer's machine, which is emulated, may stand still for some of it.
const PATIENCE: Duration = Duration::from_secs(40);
/// What counts of it between two looks, at most: whoever stood still himself has not waited.
const STEP: Duration = Duration::from_millis(100);

/// The id of a Read that sees to what is before it.
const PROBE: u64 = 9999;

/// Somebody's waiting for something, as [`PATIENCE`] has it.
struct Wait {
    waited: Duration,
    looked: Instant,
}

impl Wait {
    fn begin() -> Self {
        Self {
            waited: Duration::ZERO,
            looked: Instant::now(),
        }
    }

    /// Once more in vain. True if that was long enough.
    fn is_over(&mut self) -> bool {
        let now = Instant::now();
        self.waited += (now - self.looked).min(STEP);
        self.looked = now;
        self.waited > PATIENCE
    }
}

/// The connection by which the sides agree.
#[derive(Debug)]
pub struct Control(TcpStream);

impl Control {
    pub fn new(stream: TcpStream) -> Self {
        // The peer may have to lose its own patience first.
        let patience = PATIENCE * 2;
        stream.set_read_timeout(Some(patience)).expect("a time-out");
        stream.set_nodelay(true).expect("a TCP connection");
        Self(stream)
    }

    pub fn tell(&mut self, octets: &[u8]) -> Result<(), String> {
        let told = self.0.write_all(octets);
        told.map_err(|e| format!("the peer cannot be told: {e}"))
    }

    pub fn hear<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut octets = [0; N];
        let heard = self.0.read_exact(&mut octets);
        heard.map_err(|e| format!("the peer says nothing: {e}"))?;
        Ok(octets)
    }

    /// Says how it went.
    pub fn judge(&mut self, own: &Result<(), String>) -> Result<(), String> {
        let text = own.as_ref().err().map_or("", String::as_str);
        let len = u16::try_from(text.len()).unwrap_or(0);
        self.tell(&len.to_be_bytes())?;
        self.tell(&text.as_bytes()[..len.into()])
    }

    /// How it went for the peer.
    pub fn verdict(&mut self) -> Result<Result<(), String>, String> {
        let mut text = vec![0; u16::from_be_bytes(self.hear()?).into()];
        let heard = self.0.read_exact(&mut text);
        heard.map_err(|e| format!("the peer says nothing: {e}"))?;
        if text.is_empty() {
            return Ok(Ok(()));
        }
        Ok(Err(format!("peer: {}", String::from_utf8_lossy(&text))))
    }
}

/// A queue pair and its memory.
#[derive(Debug)]
pub struct Pair {
    // Goes before the memory that is registered with it.
    pub adapter: Box<dyn Adapter>,
    memory: Mapping,
    far: (u64, u32),
}

#[derive(Debug)]
pub struct Side<'a> {
    control: &'a mut Control,
    pub role: Role,
    link: Option<&'a Link>,
    pub pair: Pair,
}

impl<'a> Side<'a> {
    pub fn new(
        control: &'a mut Control,
        role: Role,
        link: Option<&'a Link>,
    ) -> Result<Self, String> {
        verbs::start_threads_by(start);
        let pair = Pair::connected(control, role, true)?;
        Ok(Self {
            control,
            role,
            link,
            pair,
        })
    }

    /// A further queue pair, connected to a further one of the peer's.
    pub fn another(&mut self) -> Result<Pair, String> {
        Pair::connected(self.control, self.role, true)
    }

    /// One that gives up a silent peer in about a second, as programs have them. What has to arrive goes by the others: under
    /// emulation, on a machine that is busy with something else, the peer may stand still for longer.
    pub fn another_that_gives_up(&mut self) -> Result<Pair, String> {
        Pair::connected(self.control, self.role, false)
    }

    /// One comes who does not know the secret of the end that listens, then one who does. Where ends listen.
    pub fn strangers(&mut self) -> Result<(), String> {
        if self.pair.is_acknowledged() {
            return Err(super::NOT_THIS.into());
        }
        let (memory, adapter) = open(self.control, self.role)?;
        self.control.tell(&adapter.address().to_bytes())?;
        let peer = Address::from_bytes(&self.control.hear::<{ address::LEN }>()?);
        let Some(Address::Iwarp(mut peer)) = peer else {
            return Err(format!("no address of an iWARP end: {peer:?}"));
        };
        if self.role == Role::Asks {
            connect(&*adapter, &Address::Iwarp(peer))?;
            return self.meet();
        }
        peer.secret ^= 1;
        if connect(&*adapter, &Address::Iwarp(peer)).is_ok() {
            return Err("a stranger is connected".into());
        }
        drop((adapter, memory));
        peer.secret ^= 1;
        let (_memory, adapter) = open(self.control, self.role)?;
        connect(&*adapter, &Address::Iwarp(peer))?;
        self.meet()
    }

    /// Waits until the peer is here too.
    pub fn meet(&mut self) -> Result<(), String> {
        meet(self.control)
    }

    /// The same, and does this now and then meanwhile, as the thread of the library's own does.
    pub fn meet_while(&mut self, does: fn()) -> Result<(), String> {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    does();
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            let met = meet(self.control);
            over.store(true, Ordering::Relaxed);
            met
        })
    }

    pub fn cut(&self) -> Result<(), String> {
        self.link.map_or(Ok(()), |link| shell(&link.cut))
    }

    pub fn mend(&self) -> Result<(), String> {
        self.link.map_or(Ok(()), |link| shell(&link.mend))
    }
}

/// Starts a thread that nobody joins.
fn start(routine: verbs::Routine, argument: *mut c_void) -> bool {
    let argument = argument.expose_provenance();
    std::thread::spawn(move || routine(std::ptr::with_exposed_provenance_mut(argument)).addr());
    true
}

fn shell(command: &str) -> Result<(), String> {
    let status = Command::new("sh").args(["-c", command]).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        other => Err(format!("{command}: {other:?}")),
    }
}

fn meet(control: &mut Control) -> Result<(), String> {
    control.tell(b"here")?;
    match control.hear::<4>()? {
        octets if octets == *b"here" => Ok(()),
        octets => Err(format!("the peer is elsewhere: {octets:?}")),
    }
}

/// An adapter, and its memory, which has to go after it.
fn open(control: &Control, role: Role) -> Result<(Mapping, Box<dyn Adapter>), String> {
    let local = control.0.local_addr().map_err(|e| e.to_string())?.ip();
    let side = match role {
        Role::Asks => verbs::Side::Offers,
        Role::Serves => verbs::Side::Answers,
    };
    let memory = Mapping::family(LEN).map_err(|e| format!("no memory: {e:?}"))?;
    // SAFETY: the memory goes after the adapter, and is accessed by volatile accesses and the adapter only.
    let adapter = unsafe { verbs::open(&local, memory.base(), LEN, side, None) };
    Ok((memory, adapter.ok_or(format!("no adapter for {local}"))?))
}

/// Connects to this address, and waits for that.
fn connect(adapter: &dyn Adapter, address: &Address) -> Result<(), String> {
    let refused = |e| format!("not connected to {address:?}: {e:?}");
    adapter.connect(address).map_err(refused)?;
    let mut wait = Wait::begin();
    while !adapter.is_connected().map_err(refused)? {
        if wait.is_over() {
            return Err(format!("not connected to {address:?} in time"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// What the first adapter's address is has been said.
static SAID: std::sync::Once = std::sync::Once::new();

impl Pair {
    fn connected(control: &mut Control, role: Role, insists: bool) -> Result<Self, String> {
        verbs::insist(insists);
        let remote = control.0.peer_addr().map_err(|e| e.to_string())?.ip();
        let local = control.0.local_addr().map_err(|e| e.to_string())?.ip();
        let opened = open(control, role);
        if opened.is_err() {
            let _ = control.tell(&[0]);
        }
        let (memory, adapter) = opened?;
        let base = memory.base().as_ptr().expose_provenance() as u64;
        control.tell(&[1])?;
        control.tell(&adapter.address().to_bytes())?;
        control.tell(&base.to_be_bytes())?;
        control.tell(&adapter.rkey().to_be_bytes())?;
        if control.hear()? != [1] {
            return Err("the peer has no adapter".into());
        }
        let address = Address::from_bytes(&control.hear::<{ address::LEN }>()?)
            .filter(|address| verbs::is_of(address, &remote, &local))
            .ok_or("that is no address of the peer's")?;
        let far = (
            u64::from_be_bytes(control.hear()?),
            u32::from_be_bytes(control.hear()?),
        );
        connect(&*adapter, &address)?;
        meet(control)?;
        if role == Role::Asks {
            SAID.call_once(|| println!("the first is at {:?}", adapter.address()));
        }
        Ok(Self {
            adapter,
            memory,
            far,
        })
    }

    /// Whether a work request that has ended well is in the peer's memory.
    pub fn is_acknowledged(&self) -> bool {
        matches!(self.adapter.address(), Address::Pair(_))
    }

    /// Sees to it that all that has ended well is in the peer's memory: what is read behind it says so.
    pub fn placed(&self) -> Result<(), String> {
        if self.is_acknowledged() {
            return Ok(());
        }
        self.post(&[self.read(LEN - 8, 8, PROBE)])?;
        self.done_well(PROBE)
    }

    fn at(&self, at: usize) -> *mut u8 {
        assert!(at < LEN);
        self.memory.base().as_ptr().wrapping_add(at)
    }

    pub fn fill(&self, at: usize, octets: &[u8]) {
        for (i, octet) in octets.iter().enumerate() {
            // SAFETY: within the memory.
            unsafe { self.at(at + i).write_volatile(*octet) };
        }
    }

    pub fn octets(&self, at: usize, len: usize) -> Vec<u8> {
        // SAFETY: within the memory.
        (at..at + len)
            .map(|i| unsafe { self.at(i).read_volatile() })
            .collect()
    }

    pub fn word(&self, at: usize) -> u64 {
        assert_eq!(at % 8, 0);
        // SAFETY: aligned and within the memory.
        let word = unsafe { self.at(at).cast::<u64>().read_volatile() };
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        word
    }

    /// Waits until a word, which grows, has come this far.
    pub fn await_word(&self, at: usize, least: u64) -> Result<u64, String> {
        let mut wait = Wait::begin();
        loop {
            let word = self.word(at);
            if word >= least {
                return Ok(word);
            }
            if wait.is_over() {
                return Err(format!("the word is {word:#x}, not {least:#x}"));
            }
            std::thread::yield_now();
        }
    }

    /// A Write from here to the same place there, signaled.
    pub fn write(&self, at: usize, len: usize, id: u64) -> Work {
        Work {
            operation: Operation::Write,
            local: self.at(at),
            len: u32::try_from(len).expect("a length"),
            lkey: self.adapter.lkey(),
            remote: self.far.0 + at as u64,
            rkey: self.far.1,
            signaled: true,
            tell: None,
            id,
        }
    }

    /// A Read from there to the same place here, signaled.
    pub fn read(&self, at: usize, len: usize, id: u64) -> Work {
        Work {
            operation: Operation::Read,
            local: self.at(at),
            len: u32::try_from(len).expect("a length"),
            lkey: self.adapter.lkey(),
            remote: self.far.0 + at as u64,
            rkey: self.far.1,
            signaled: true,
            tell: None,
            id,
        }
    }

    pub fn post(&self, work: &[Work]) -> Result<(), String> {
        // SAFETY: work on this pair's memory, which stays.
        let posted = unsafe { self.adapter.post(work) };
        posted.map_err(|e| format!("not posted: {e:?}"))
    }

    /// The next work request that tells.
    pub fn done(&self) -> Result<Done, String> {
        let mut wait = Wait::begin();
        let (mut done, mut ended) = ([Done::default()], false);
        // (that the connection has ended shows by the work, too)
        while self.adapter.poll(&mut done) == 0 || done[0].id == ENDED {
            ended |= done[0].id == ENDED;
            if wait.is_over() {
                let but = if ended {
                    ", but the connection has"
                } else {
                    ""
                };
                return Err(format!("nothing ends{but}"));
            }
            std::thread::yield_now();
        }
        Ok(done[0])
    }

    /// The next word that the peer tells.
    pub fn told(&self) -> Result<u32, String> {
        let done = self.done()?;
        done.told.ok_or_else(|| format!("not told but {done:?}"))
    }

    /// Whether the adapter's event shows within this time.
    pub fn shows(&self, time: Duration) -> bool {
        let mut event = libc::pollfd {
            fd: self.adapter.event(),
            events: libc::POLLIN,
            revents: 0,
        };
        let ms = i32::try_from(time.as_millis()).expect("a short time");
        // SAFETY: one pollfd.
        unsafe { libc::poll(&raw mut event, 1, ms) > 0 }
    }

    pub fn done_well(&self, id: u64) -> Result<(), String> {
        let done = self.done()?;
        if done.ok && done.told.is_none() && done.id == id {
            return Ok(());
        }
        Err(format!("not {id} but {done:?}"))
    }

    /// This one has; or where nothing is acknowledged, whatever shows it: a Write goes out, and what is read behind it fails.
    pub fn done_badly(&self, id: u64) -> Result<(), String> {
        loop {
            let done = self.done()?;
            if !done.ok && (done.id == id || !self.is_acknowledged()) {
                return Ok(());
            }
            if !done.ok || done.told.is_some() || self.is_acknowledged() {
                return Err(format!("not {id}, badly, but {done:?}"));
            }
            self.post(&[self.read(LEN - 8, 8, PROBE)])?;
        }
    }
}

/// As `assert`, for what the peer is to hear of.
macro_rules! ensure {
    ($is:expr, $($why:tt)*) => {
        if !$is {
            return Err(format!($($why)*));
        }
    };
}
pub(super) use ensure;
