//! The settings: one row each, from which parsing, the messages for bad values, the options of
//! `shunt run` and their help are made.

use super::Wanted;

/// What a variable may hold.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// One of these words.
    Choice(&'static [&'static str]),
    /// A number of bytes or microseconds or a count, with an optional k, m or g (powers of 1024).
    Number { low: u64, high: u64 },
    /// A file name.
    File,
}

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The environment variable.
    pub variable: &'static str,
    /// The option of `shunt run`.
    pub option: &'static str,
    pub kind: Kind,
    pub default: &'static str,
    pub help: &'static str,
}

const KIB: u64 = 1024;

/// Every setting, in the order of the documentation.
pub const ALL: &[Setting] = &[
    Setting {
        variable: "SHUNT_TRANSPORT",
        option: "transport",
        kind: Kind::Choice(Wanted::WORDS),
        default: "auto",
        help: "what may carry connections of which no rule says more; tcp leaves them on the kernel",
    },
    Setting {
        variable: "SHUNT_FLOW",
        option: "flow",
        kind: Kind::Choice(&["auto", "credit", "packetized", "nic"]),
        default: "auto",
        help: "flow-control scheme of what this process sends",
    },
    Setting {
        variable: "SHUNT_ZCOPY",
        option: "zcopy",
        kind: Kind::Choice(&["auto", "off", "sync", "async"]),
        default: "auto",
        help: "zero copy for large messages",
    },
    Setting {
        variable: "SHUNT_ZCOPY_MIN",
        option: "zcopy-min",
        kind: Kind::Number {
            low: 4 * KIB,
            high: 1 << 30,
        },
        default: "32k",
        help: "smallest message in bytes for zero copy",
    },
    Setting {
        variable: "SHUNT_ZCOPY_WRITE",
        option: "zcopy-write",
        kind: Kind::Choice(&["auto", "copy", "wait"]),
        default: "auto",
        help: "a write to a message that async zero copy holds in place: copy it, wait for the reader, or wait as long as a copy takes",
    },
    Setting {
        variable: "SHUNT_BUF",
        option: "buf",
        kind: Kind::Number {
            low: 4 * KIB,
            high: 64 * KIB * KIB,
        },
        default: "512k",
        help: "socket buffer in bytes, each direction: what the receiver holds, and as much at the sender",
    },
    Setting {
        variable: "SHUNT_CREDITS",
        option: "credits",
        kind: Kind::Number {
            low: 3,
            high: 65535,
        },
        default: "512",
        help: "receive slots of the credit scheme; as many as SHUNT_BUF holds unless set",
    },
    Setting {
        variable: "SHUNT_SLOT",
        option: "slot",
        kind: Kind::Number {
            low: 64,
            high: 16 * KIB * KIB,
        },
        default: "1k",
        help: "bytes of one slot of the credit scheme",
    },
    Setting {
        variable: "SHUNT_WINDOW",
        option: "window",
        kind: Kind::Number {
            low: 64,
            high: 16 * KIB * KIB,
        },
        default: "32k",
        help: "virtual window in bytes of the nic scheme; an eighth of SHUNT_BUF at most unless set",
    },
    Setting {
        variable: "SHUNT_SPIN_US",
        option: "spin-us",
        kind: Kind::Number {
            low: 0,
            high: 1_000_000,
        },
        default: "50",
        help: "longest busy wait in microseconds before a thread sleeps",
    },
    Setting {
        variable: "SHUNT_PEER_USERS",
        option: "peer-users",
        kind: Kind::Choice(&["same", "any"]),
        default: "same",
        help: "whose processes may share memory with this one (same: same user, or either is root)",
    },
    Setting {
        variable: "SHUNT_CRC",
        option: "crc",
        kind: Kind::Choice(&["auto", "on", "off"]),
        default: "auto",
        help: "checksums (CRC32C) on software iWARP; off only if both ends say so; auto: on, but not where RDMA adapters are wanted",
    },
    Setting {
        variable: "SHUNT_RULES",
        option: "rules",
        kind: Kind::File,
        default: "",
        help: "file of rules that choose a transport by program and address",
    },
    Setting {
        variable: "SHUNT_LOG",
        option: "log",
        kind: Kind::Choice(&["off", "error", "info", "debug"]),
        default: "error",
        help: "messages on standard error",
    },
    Setting {
        variable: "SHUNT_REPORT",
        option: "report",
        kind: Kind::File,
        default: "",
        help: "file to which each process appends a line of JSON when it ends",
    },
];

/// Reads a number with an optional suffix.
pub(super) fn number(text: &str) -> Option<u64> {
    let (digits, unit) = match text.to_ascii_lowercase() {
        t if t.ends_with('k') => (t.trim_end_matches('k').to_owned(), 1 << 10),
        t if t.ends_with('m') => (t.trim_end_matches('m').to_owned(), 1 << 20),
        t if t.ends_with('g') => (t.trim_end_matches('g').to_owned(), 1 << 30),
        t => (t, 1),
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

impl Setting {
    /// What the variable may hold, in words.
    #[must_use]
    pub fn allowed(&self) -> String {
        match self.kind {
            Kind::Choice(words) => words.join(", "),
            Kind::Number { low, high } => {
                format!("a number from {low} to {high} (k, m, g allowed)")
            }
            Kind::File => "a file name".to_owned(),
        }
    }

    /// Whether the text is allowed.
    #[must_use]
    pub fn accepts(&self, text: &str) -> bool {
        match self.kind {
            Kind::Choice(words) => words.contains(&text),
            Kind::Number { low, high } => number(text).is_some_and(|n| (low..=high).contains(&n)),
            Kind::File => true,
        }
    }
}
