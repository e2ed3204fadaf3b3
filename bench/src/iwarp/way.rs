//! What is compared: who puts the markers in, and who makes the sum. Called by everything in `iwarp`.

use transport::iwarp::mpa::{Markers, mulpdu};

use crate::plot::{Mark, Of};

/// How frames are made, and taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// One pass: copy, markers and sum together.
    Integrated,
    /// A pass for each, as SDP over a separate iWARP layer.
    Generic,
    /// No copy: a list of pieces for an adapter that gathers them. Only sending is measured.
    InPlace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    pub framing: Framing,
    pub markers: bool,
    pub crc: bool,
}

impl Way {
    pub(super) const ALL: [Self; 10] = [
        Self::of(Framing::Integrated, true, false),
        Self::of(Framing::Generic, true, false),
        Self::of(Framing::Integrated, false, false),
        Self::of(Framing::Generic, false, false),
        Self::of(Framing::Integrated, true, true),
        Self::of(Framing::Generic, true, true),
        Self::of(Framing::Integrated, false, true),
        Self::of(Framing::Generic, false, true),
        Self::of(Framing::InPlace, true, false),
        Self::of(Framing::InPlace, false, false),
    ];

    pub(super) const fn of(framing: Framing, markers: bool, crc: bool) -> Self {
        Self {
            framing,
            markers,
            crc,
        }
    }

    pub(super) const fn wanted(self) -> Markers {
        Markers::wanted(self.markers)
    }

    pub(super) const fn mulpdu(self, emss: usize) -> usize {
        mulpdu(emss, self.markers)
    }

    pub(super) fn name(self) -> String {
        let framing = match self.framing {
            Framing::Integrated => "integrated",
            Framing::Generic => "generic",
            Framing::InPlace => "in place",
        };
        let markers = if self.markers { "" } else { ", no markers" };
        let crc = if self.crc { ", CRC" } else { "" };
        format!("{framing}{markers}{crc}")
    }
}

/// A way under the name that a figure has for it.
#[derive(Clone, Copy)]
pub(super) struct Role {
    pub way: Way,
    pub line: Of,
}

const fn role(way: Way, name: &'static str, color: (u8, u8, u8), mark: Mark) -> Role {
    Role {
        way,
        line: Of { name, color, mark },
    }
}

/// Figures 3.3 and 3.4.
pub(super) const STACKS: [Role; 3] = [
    role(
        Way::of(Framing::Integrated, true, true),
        "software iWARP (all of it)",
        (200, 30, 30),
        Mark::Triangle,
    ),
    role(
        Way::of(Framing::Integrated, true, false),
        "host-assisted (model: the adapter makes the sum)",
        (30, 90, 200),
        Mark::Circle,
    ),
    role(
        Way::of(Framing::InPlace, true, false),
        "offloaded (model: the adapter gathers, sums and places)",
        (20, 140, 60),
        Mark::Square,
    ),
];

/// Figures 3.5 to 3.8.
pub(super) const SDP: [Role; 3] = [
    role(
        Way::of(Framing::Generic, true, false),
        "generic SDP over iWARP",
        (200, 120, 0),
        Mark::Cross,
    ),
    role(
        Way::of(Framing::Integrated, true, false),
        "integrated",
        (30, 90, 200),
        Mark::Circle,
    ),
    role(
        Way::of(Framing::Generic, false, false),
        "no markers",
        (110, 110, 110),
        Mark::Ring,
    ),
];
