//! What is compared: kernel TCP, and the library with each value of SHUNT_ZCOPY. Owns the words, the settings and the
//! order of turns; every other file of `zcopy` asks here.

use serde::Serialize;

use crate::plot::{Mark, Of};
use crate::prog::BufferUse;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    Tcp,
    Sync,
    /// The ring: every byte is copied in and out.
    Off,
    Auto,
    Async,
}

impl Mode {
    /// `auto` and `off` are neighbours: they are held against each other to a few per cent.
    pub(super) const ALL: [Self; 5] = [Self::Tcp, Self::Sync, Self::Off, Self::Auto, Self::Async];

    /// The word in settings, files and tables.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Sync => "sync",
            Self::Off => "off",
            Self::Auto => "auto",
            Self::Async => "async",
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Tcp => "kernel TCP",
            Self::Sync => "sync",
            Self::Off => "off (the ring)",
            Self::Auto => "auto",
            Self::Async => "async",
        }
    }

    pub(super) fn of_shunt(self) -> bool {
        self != Self::Tcp
    }

    /// Asked for zero copy at every size, so that a run without it is not what it is called.
    pub(super) fn is_zero_copy(self) -> bool {
        matches!(self, Self::Sync | Self::Async)
    }

    /// `auto` chooses by itself from its own threshold on; the two others are measured where they lose as well.
    pub(super) fn settings(self) -> Vec<(&'static str, String)> {
        let mut settings = vec![
            ("SHUNT_TRANSPORT", "shm".into()),
            ("SHUNT_ZCOPY", self.word().into()),
        ];
        if self.is_zero_copy() {
            settings.push(("SHUNT_ZCOPY_MIN", "4k".into()));
        }
        settings
    }

    /// Its line in a picture.
    pub(super) fn of(self) -> Of {
        let (color, mark) = match self {
            Self::Tcp => ((90, 90, 90), Mark::Cross),
            Self::Off => ((0, 114, 178), Mark::Circle),
            Self::Sync => ((213, 94, 0), Mark::Triangle),
            Self::Async => ((0, 158, 115), Mark::Square),
            Self::Auto => ((204, 121, 167), Mark::Ring),
        };
        Of {
            name: self.title(),
            color,
            mark,
        }
    }

    /// The modes in the order of their turns: each goes first as often as the others, and next to its neighbour both
    /// before and after it.
    pub(super) fn turns(modes: &[Self], round: usize) -> Vec<Self> {
        let mut turns = modes.to_vec();
        turns.rotate_left((round / 2) % modes.len().max(1));
        if round % 2 == 1 {
            turns.reverse();
        }
        turns
    }
}

/// What becomes of the buffers, in words.
pub(super) fn buffers(usage: BufferUse) -> &'static str {
    match usage {
        BufferUse::Reused => "buffers reused",
        BufferUse::Dirty => "rewritten before each send",
        BufferUse::Walk => "walking over 64 MiB",
        BufferUse::Used => "rewritten, and read by the receiver",
    }
}

pub(super) fn word_of(usage: BufferUse) -> &'static str {
    match usage {
        BufferUse::Reused => "reused",
        BufferUse::Dirty => "dirty",
        BufferUse::Walk => "walk",
        BufferUse::Used => "used",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mode_goes_first_in_turn() {
        let modes = [Mode::Tcp, Mode::Off, Mode::Auto];
        let turns = |round| Mode::turns(&modes, round);
        assert_eq!(turns(0), modes);
        assert_eq!(turns(1), [Mode::Auto, Mode::Off, Mode::Tcp]);
        assert_eq!(turns(2), [Mode::Off, Mode::Auto, Mode::Tcp]);
        assert_eq!(turns(6), turns(0));
    }

    #[test]
    fn only_what_is_asked_for_zero_copy_is_lowered_to_the_smallest_size() {
        let lowered = |mode: Mode| {
            let settings = mode.settings();
            settings.iter().any(|(name, _)| *name == "SHUNT_ZCOPY_MIN")
        };
        assert!(lowered(Mode::Sync) && lowered(Mode::Async));
        assert!(!lowered(Mode::Auto) && !lowered(Mode::Off));
    }
}
