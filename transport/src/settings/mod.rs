//! What this process is to do, from the variables of its environment (`table`). Read once, when the library
//! is loaded.
//!
//! The rule: a variable with a value that is not allowed is named, with what is, and counts as its default;
//! no value stops the program.

mod table;
mod wanted;

pub use table::{ALL, Kind, Setting};
pub use wanted::Wanted;

use crate::direct::policy::{Mode, Touch};
use flowctl::{Scheme, Terms};
use std::fmt::Write as _;
use table::number;

/// Whose processes may share memory with this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerUsers {
    Same,
    Any,
}

/// The settings that this version acts on.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What carries connections of which no rule says more.
    pub transport: Wanted,
    /// Bytes of socket buffer.
    pub buf: usize,
    /// How this process sends, before what the program and the peer want of a socket.
    pub terms: Terms,
    pub spin_us: u64,
    pub peer_users: PeerUsers,
    /// Zero copy, and from how many bytes on.
    pub zcopy: Mode,
    pub zcopy_min: usize,
    /// What is done about a write to a message that is held in place.
    pub zcopy_write: Touch,
    /// Checksums on software iWARP; nothing: as is best for a connection.
    pub crc: Option<bool>,
    /// The file of rules.
    pub rules: Option<String>,
    pub report: Option<String>,
    /// Who sleeps for several connections looks again now and then, whatever wakes it.
    pub naps: bool,
    /// So does, in a program with connections in RDMA mode, who sleeps for room, or in a set for what others send.
    pub wired_naps: bool,
    /// An epoll set that looks after more connections than this uses boards (`shm::board`).
    pub few: usize,
}

/// Not settings: the tests' own.
const FOR_TESTS: [&str; 3] = ["SHUNT_STANDIN_ADAPTER", NO_NAPS, FEW];
/// A sleeper that nobody wakes stays asleep; [`ALL_NAPS`]: in RDMA mode too.
const NO_NAPS: &str = "SHUNT_NO_NAPS";
const ALL_NAPS: &str = "all";
/// How many connections of a set are few.
const FEW: &str = "SHUNT_FEW";

/// Reads the environment, given as `NAME=value` pairs. Returns the settings and a line for each
/// variable that is unknown or holds what is not allowed; such a variable counts as its default.
pub fn read<'a>(environment: impl Iterator<Item = (&'a str, &'a str)>) -> (Settings, Vec<String>) {
    let mut values: Vec<&str> = ALL.iter().map(|s| s.default).collect();
    let mut given = Vec::new();
    let mut complaints = Vec::new();
    let (mut naps, mut wired_naps, mut few) = (true, true, 64);
    for (name, value) in environment {
        naps &= name != NO_NAPS;
        wired_naps &= (name, value) != (NO_NAPS, ALL_NAPS);
        if name == FEW {
            few = value.parse().unwrap_or(few);
        }
        if !name.starts_with("SHUNT_") || FOR_TESTS.contains(&name) {
            continue;
        }
        let Some(at) = ALL.iter().position(|s| s.variable == name) else {
            complaints.push(format!(
                "shunt: {name} is not a setting of Shunt; it is ignored"
            ));
            continue;
        };
        let (Some(setting), Some(slot)) = (ALL.get(at), values.get_mut(at)) else {
            continue;
        };
        if setting.accepts(value) {
            *slot = value;
            given.push(setting.variable);
        } else {
            let mut line = String::new();
            let _ = write!(
                line,
                "shunt: {name}={value}: allowed is {}; using {}",
                setting.allowed(),
                setting.default
            );
            complaints.push(line);
        }
    }
    let get = |name: &str| {
        let at = ALL.iter().position(|s| s.variable == name);
        at.and_then(|at| values.get(at)).copied().unwrap_or("")
    };
    let count = |name: &str| number(get(name)).unwrap_or(0);
    let file = |name: &str| Some(get(name).to_owned()).filter(|f| !f.is_empty());
    let terms = terms(&get, &given, &mut complaints);
    let settings = Settings {
        terms,
        transport: Wanted::from_word(get("SHUNT_TRANSPORT")).unwrap_or(Wanted::Auto),
        buf: usize::try_from(count("SHUNT_BUF")).unwrap_or(1 << 19),
        spin_us: count("SHUNT_SPIN_US"),
        peer_users: if get("SHUNT_PEER_USERS") == "any" {
            PeerUsers::Any
        } else {
            PeerUsers::Same
        },
        zcopy: match get("SHUNT_ZCOPY") {
            "off" => Mode::Off,
            "sync" => Mode::Sync,
            "async" => Mode::Async,
            _ => Mode::Auto,
        },
        zcopy_min: usize::try_from(count("SHUNT_ZCOPY_MIN")).unwrap_or(usize::MAX),
        zcopy_write: match get("SHUNT_ZCOPY_WRITE") {
            "copy" => Touch::Copy,
            "wait" => Touch::Wait,
            _ => Touch::Measured,
        },
        crc: match get("SHUNT_CRC") {
            "on" => Some(true),
            "off" => Some(false),
            _ => None,
        },
        rules: file("SHUNT_RULES"),
        report: file("SHUNT_REPORT"),
        naps,
        wired_naps,
        few,
    };
    (settings, complaints)
}

/// What `auto` is: the scheme that measures best on shared memory (docs/flow-control.md).
const AUTO: Scheme = Scheme::Nic;

/// The schemes' sizes, made to fit each other. What was set and does not fit is said; what was not set
/// follows.
fn terms<'a>(
    get: &impl Fn(&str) -> &'a str,
    given: &[&str],
    complaints: &mut Vec<String>,
) -> Terms {
    let is_set = |name: &str| given.contains(&name);
    let value = |name: &str| number(get(name)).unwrap_or(1);
    let buf = value("SHUNT_BUF");
    let mut fit = |name: &str, value: u64, low: u64, high: u64, what: &str| {
        if is_set(name) && value > high {
            complaints.push(format!(
                "shunt: {name}={}: with SHUNT_BUF={buf} allowed is a number from {low} to {high} ({what}); using {high}",
                get(name)
            ));
        }
        u32::try_from(value.min(high)).unwrap_or(u32::MAX)
    };
    let slot = fit(
        "SHUNT_SLOT",
        value("SHUNT_SLOT"),
        64,
        buf / 3,
        "three slots have to fit",
    );
    let most = buf / u64::from(slot);
    let wanted = if is_set("SHUNT_CREDITS") {
        value("SHUNT_CREDITS")
    } else {
        most
    };
    let what = format!("slots of {slot} bytes");
    let slots = fit("SHUNT_CREDITS", wanted, 3, most, &what);
    let wanted = if is_set("SHUNT_WINDOW") {
        value("SHUNT_WINDOW")
    } else {
        value("SHUNT_WINDOW").min(buf / 8)
    };
    let window = fit("SHUNT_WINDOW", wanted, 64, buf, "a window has to fit");
    Terms {
        scheme: Scheme::ALL
            .into_iter()
            .find(|s| s.word() == get("SHUNT_FLOW"))
            .unwrap_or(AUTO),
        buffer: buf,
        own: buf,
        slots,
        slot,
        window,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_value_names_variable_value_and_what_is_allowed() {
        let env = [
            ("SHUNT_PEER_USERS", "all"),
            ("SHUNT_BUFF", "1"),
            ("HOME", "/"),
        ];
        let (settings, lines) = read(env.into_iter());
        assert_eq!(settings.peer_users, PeerUsers::Same);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("SHUNT_PEER_USERS=all") && lines[0].contains("same, any"));
        assert!(lines[1].contains("SHUNT_BUFF"));
    }

    #[test]
    fn numbers_have_suffixes_and_bounds() {
        assert_eq!(read([("SHUNT_BUF", "256k")].into_iter()).0.buf, 256 * 1024);
        let (s, lines) = read([("SHUNT_BUF", "1")].into_iter());
        assert_eq!((s.buf, lines.len()), (1 << 19, 1));
        assert_eq!(
            read([("SHUNT_BUF", "99999999999999999999g")].into_iter())
                .1
                .len(),
            1
        );
    }

    #[test]
    fn what_only_tests_use_is_not_complained_of() {
        let own = FOR_TESTS.map(|name| (name, "1"));
        let env = own.into_iter().chain([("SHUNT_TRANSPORT", "verbs")]);
        let (s, lines) = read(env);
        assert!(s.transport == Wanted::Verbs && lines.is_empty() && !s.naps);
        assert!(read([].into_iter()).0.naps);
    }

    #[test]
    fn each_way_of_zero_copy_can_be_chosen() {
        for (word, mode) in [
            ("auto", Mode::Auto),
            ("off", Mode::Off),
            ("sync", Mode::Sync),
            ("async", Mode::Async),
        ] {
            let (s, lines) = read([("SHUNT_ZCOPY", word)].into_iter());
            assert_eq!((s.zcopy, lines.len()), (mode, 0));
        }
    }

    #[test]
    fn what_a_write_to_a_held_message_does_can_be_chosen() {
        for (word, touch) in [
            ("auto", Touch::Measured),
            ("copy", Touch::Copy),
            ("wait", Touch::Wait),
        ] {
            let (s, lines) = read([("SHUNT_ZCOPY_WRITE", word)].into_iter());
            assert_eq!((s.zcopy_write, lines.len()), (touch, 0));
        }
        let (s, lines) = read([("SHUNT_ZCOPY_WRITE", "block")].into_iter());
        assert_eq!(s.zcopy_write, Touch::Measured);
        assert!(
            lines[0].contains("SHUNT_ZCOPY_WRITE=block") && lines[0].contains("auto, copy, wait")
        );
    }

    #[test]
    fn each_scheme_can_be_chosen() {
        for scheme in Scheme::ALL {
            let (s, lines) = read([("SHUNT_FLOW", scheme.word())].into_iter());
            assert_eq!((s.terms.scheme, lines.len()), (scheme, 0));
        }
    }

    #[test]
    fn sizes_that_do_not_fit_each_other_are_said() {
        let thesis = [
            ("SHUNT_BUF", "64k"),
            ("SHUNT_SLOT", "8k"),
            ("SHUNT_CREDITS", "8"),
        ];
        let (s, lines) = read(thesis.into_iter());
        assert_eq!((s.terms.slots, s.terms.slot, lines.len()), (8, 8192, 0));
        let (s, lines) = read(
            [
                ("SHUNT_BUF", "64k"),
                ("SHUNT_SLOT", "8k"),
                ("SHUNT_CREDITS", "9"),
            ]
            .into_iter(),
        );
        assert_eq!((s.terms.slots, lines.len()), (8, 1));
        let line = &lines[0];
        assert!(
            line.contains("SHUNT_CREDITS=9") && line.contains("from 3 to 8"),
            "{line}"
        );
        let large = [
            ("SHUNT_BUF", "4k"),
            ("SHUNT_SLOT", "4k"),
            ("SHUNT_WINDOW", "16k"),
        ];
        let (s, lines) = read(large.into_iter());
        assert_eq!((s.terms.slot, s.terms.window, lines.len()), (1365, 4096, 2));
        assert!(s.terms.fits(Terms::region(4096)));
        let (s, lines) = read([("SHUNT_BUF", "64k"), ("SHUNT_CREDITS", "512")].into_iter());
        assert_eq!(
            (s.terms.slots, lines.len()),
            (64, 1),
            "set to what is the default"
        );
        let (_, lines) = read([("SHUNT_BUF", "4k")].into_iter());
        assert!(lines.is_empty(), "what was not set follows: {lines:?}");
        assert!(lines.iter().all(|l| !l.contains('\n')));
    }

    #[test]
    fn every_default_is_allowed() {
        assert!(ALL.iter().all(|s| s.accepts(s.default)));
    }
}
