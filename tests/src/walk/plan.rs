//! What a walk consists of. Plain data, the same in every process that has the seed.

/// A process of the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Who {
    /// 0 for end A, 1 for end B.
    pub end: usize,
    /// 0 for the end's first process, else a child of it.
    pub child: usize,
}

/// A descriptor as the plan knows it. Numbers are never used twice at one end; a child has its
/// parent's.
pub type Slot = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Give {
    Write,
    Send,
    SendMore,
    Writev,
    Sendmsg,
    Sendmmsg,
    Sendfile,
    Splice,
    Raw,
    Stdio,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    Read,
    Recv,
    Peek,
    WaitAll,
    Readv,
    Recvmsg,
    Splice,
    Raw,
    Discard,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DupBy {
    Dup,
    Dup2,
    Dup3,
    Fcntl,
    FcntlCloexec,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    Level,
    Edge,
    Once,
}

/// How a process sleeps until the other end acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    Recv,
    WaitAll,
    Poll,
    Select,
    Epoll,
}

/// What happens on the way of a bulk transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    None,
    DupClose,
    ForkExit,
    ForkHold,
    Raw,
    File,
    Stdio,
    System,
    Nonblock,
}

/// One direction of a bulk transfer.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    pub pos: u64,
    /// Bytes that lie there already and are read first.
    pub before: usize,
    pub size: usize,
    pub giver: Trouble,
    pub taker: Trouble,
}

#[derive(Clone, Debug)]
pub enum Act {
    Give {
        slot: Slot,
        conn: usize,
        pos: u64,
        size: usize,
        by: Give,
    },
    Take {
        slot: Slot,
        conn: usize,
        size: usize,
        by: Take,
        ready: Expect,
    },
    /// poll, select and FIONREAD on these.
    Look {
        slots: Vec<(Slot, Expect)>,
    },
    Shutdown {
        slot: Slot,
        how: i32,
    },
    Linger {
        slot: Slot,
    },
    Nonblock {
        slot: Slot,
        on: bool,
        by_ioctl: bool,
    },
    Nodelay {
        slot: Slot,
        on: bool,
    },
    Error {
        slot: Slot,
    },
    Dup {
        slot: Slot,
        new: Slot,
        by: DupBy,
    },
    /// dup2 onto a descriptor in use.
    Onto {
        slot: Slot,
        new: Slot,
    },
    Close {
        slot: Slot,
    },
    Watch {
        slot: Slot,
        how: Watch,
    },
    Unwatch {
        slot: Slot,
    },
    Wait {
        ready: Vec<(Slot, Expect)>,
    },
    Fork {
        child: usize,
    },
    Exec {
        with_library: bool,
    },
    Pass {
        slot: Slot,
        new: Slot,
        to: Who,
    },
    Kill {
        child: usize,
    },
    Exit,
    System,
    /// Two-sided: `who` sleeps, the other acts.
    Meet {
        slot: Slot,
        by: Sleep,
        giver: Who,
        from: Slot,
        conn: usize,
        pos: u64,
        size: usize,
        delay_us: u64,
    },
    /// Two-sided: both directions at once, or one.
    Bulk {
        slot: Slot,
        other: Who,
        to: Slot,
        conn: usize,
        there: Flow,
        back: Option<Flow>,
    },
}

/// What the kernel will have delivered by now, waited for before a look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expect {
    pub queued: u64,
    pub end: bool,
    pub reset: bool,
}

#[derive(Clone, Debug)]
pub struct Step {
    pub who: Who,
    pub act: Act,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    /// For each connection: whether end A connects.
    pub conns: Vec<bool>,
    /// Messages are exchanged before the walk, so that the streams have moved.
    pub warm: bool,
    /// Whoever has nothing to do waits in poll with its streams, and not deaf to them.
    pub attentive: bool,
    pub steps: Vec<Step>,
}

/// The byte at a place of a direction.
pub fn byte(conn: usize, end: usize, pos: u64) -> u8 {
    let salt = (conn as u64 * 2 + end as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((pos.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ salt) >> 29) as u8
}

pub fn bytes(conn: usize, end: usize, pos: u64, size: usize) -> Vec<u8> {
    (pos..pos + size as u64)
        .map(|p| byte(conn, end, p))
        .collect()
}
