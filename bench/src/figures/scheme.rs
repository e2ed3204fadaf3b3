//! What is compared, and with which sizes: the three flow-control schemes of the SDP thesis and kernel TCP. Owns the
//! words and the settings that go with them; every other file of `figures` asks here.

use std::str::FromStr;

use anyhow::Context as _;
use serde::Serialize;

use crate::plot::{Mark, Of};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scheme {
    Credit,
    Packetized,
    Nic,
    Tcp,
}

impl Scheme {
    pub(super) const ALL: [Self; 4] = [Self::Credit, Self::Packetized, Self::Nic, Self::Tcp];

    /// The word in settings, reports and tables.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Credit => "credit",
            Self::Packetized => "packetized",
            Self::Nic => "nic",
            Self::Tcp => "tcp",
        }
    }

    /// The name in a picture.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Credit => "credit-based",
            Self::Packetized => "packetized",
            Self::Nic => "NIC-assisted",
            Self::Tcp => "kernel TCP",
        }
    }

    /// Its line in a picture. Told apart by the colour-blind as well; the marks differ besides.
    pub(super) fn of(self) -> Of {
        let (color, mark) = match self {
            Self::Credit => ((213, 94, 0), Mark::Triangle),
            Self::Packetized => ((0, 114, 178), Mark::Circle),
            Self::Nic => ((0, 158, 115), Mark::Square),
            Self::Tcp => ((90, 90, 90), Mark::Cross),
        };
        Of {
            name: self.title(),
            color,
            mark,
        }
    }

    /// False for kernel TCP, which is there for comparison.
    pub(super) fn of_shunt(self) -> bool {
        self != Self::Tcp
    }
}

/// A number of bytes, written as the library's settings are: `65536`, `64k`, `1m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bytes(pub usize);

impl FromStr for Bytes {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let lower = text.to_ascii_lowercase();
        let (digits, shift) = match lower.strip_suffix(['k', 'm']) {
            Some(digits) if lower.ends_with('k') => (digits, 10),
            Some(digits) => (digits, 20),
            None => (lower.as_str(), 0),
        };
        let number: usize = digits
            .parse()
            .with_context(|| format!("{text}: not a size"))?;
        number
            .checked_mul(1 << shift)
            .map(Self)
            .with_context(|| format!("{text}: too large"))
    }
}

impl std::fmt::Display for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            n if n >= 1 << 20 && n % (1 << 20) == 0 => write!(f, "{}m", n >> 20),
            n if n >= 1 << 10 && n % (1 << 10) == 0 => write!(f, "{}k", n >> 10),
            n => write!(f, "{n}"),
        }
    }
}

/// The sizes of the schemes; the defaults are those of the thesis.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct Params {
    /// Socket buffer of each direction (SHUNT_BUF); kernel TCP is asked for the same
    #[arg(long, default_value = "64k")]
    pub buf: Bytes,
    /// One slot of the credit scheme (SHUNT_SLOT)
    #[arg(long, default_value = "8k")]
    pub slot: Bytes,
    /// Slots of the credit scheme (SHUNT_CREDITS)
    #[arg(long, default_value_t = 8)]
    pub credits: usize,
    /// Virtual window W of the nic scheme (SHUNT_WINDOW)
    #[arg(long, default_value = "8k")]
    pub window: Bytes,
}

impl Params {
    /// The same with buffers in which a burst of `messages` finds room in every scheme: each takes a slot of its own
    /// in the credit scheme, and two are kept for control.
    pub(super) fn with_room_for(self, messages: usize) -> Self {
        let credits = (messages + 2).next_power_of_two().max(self.credits);
        Self {
            credits,
            buf: Bytes(self.buf.0.max(credits * self.slot.0)),
            ..self
        }
    }

    /// The library's settings; `spin_us` of none leaves the default.
    pub(super) fn settings(
        &self,
        scheme: Scheme,
        spin_us: Option<u32>,
    ) -> Vec<(&'static str, String)> {
        let mut settings = vec![
            ("SHUNT_TRANSPORT", "shm".into()),
            ("SHUNT_FLOW", scheme.word().into()),
            ("SHUNT_BUF", self.buf.to_string()),
            ("SHUNT_SLOT", self.slot.to_string()),
            ("SHUNT_CREDITS", self.credits.to_string()),
            ("SHUNT_WINDOW", self.window.to_string()),
        ];
        settings.extend(spin_us.map(|us| ("SHUNT_SPIN_US", us.to_string())));
        settings
    }
}

impl std::fmt::Display for Params {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "buffer {}, {} slots of {}, W {}",
            self.buf, self.credits, self.slot, self.window
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written_as_settings_are() {
        for (text, bytes) in [
            ("64k", 65_536),
            ("1m", 1 << 20),
            ("1000", 1000),
            ("1K", 1024),
        ] {
            assert_eq!(text.parse::<Bytes>().unwrap(), Bytes(bytes));
        }
        for text in ["", "k", "64kb", "-1", "99999999999999999999m"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
        assert_eq!(Bytes(65_536).to_string(), "64k");
        assert_eq!(Bytes(1 << 20).to_string(), "1m");
        assert_eq!(Bytes(1500).to_string(), "1500");
    }

    #[test]
    fn room_for_a_burst_is_a_slot_for_each_message_and_two_more() {
        let thesis = Params {
            buf: Bytes(64 << 10),
            slot: Bytes(8 << 10),
            credits: 8,
            window: Bytes(8 << 10),
        };
        let roomy = thesis.with_room_for(100);
        assert_eq!((roomy.credits, roomy.buf), (128, Bytes(1 << 20)));
    }
}
