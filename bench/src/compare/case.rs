//! What a measurement is: the programs, where they run, how their output becomes a figure, and what the figure must
//! reach. Pure data; made by `own`, `tools` and `web`, run by `exchange`, judged by `verdict`.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use crate::run::{Program, Scratch};

/// What every repetition needs to know.
#[derive(Clone)]
pub(crate) struct Ctx {
    /// None: kernel TCP alone.
    pub lib: Option<PathBuf>,
    pub length: Duration,
    /// This program, which is also the plain client and server.
    pub me: PathBuf,
    /// For output, reports and configurations; removed at the end.
    pub scratch: Rc<Scratch>,
}

impl Ctx {
    pub(crate) fn new(lib: Option<PathBuf>, length: Duration) -> anyhow::Result<Self> {
        Ok(Self {
            lib,
            length,
            me: std::env::current_exe()?,
            scratch: Rc::new(Scratch::new()?),
        })
    }

    /// The same for a measurement that takes `turns` short repetitions in place of each long one.
    pub(crate) fn for_turns(&self, turns: u32) -> Self {
        Self {
            length: self.length / turns,
            ..self.clone()
        }
    }

    /// `bench prog NAME --port PORT`.
    pub(crate) fn prog(&self, name: &str, port: u16) -> Program {
        Program::new(&self.me)
            .args(["prog", name, "--port"])
            .args([port.to_string()])
    }

    /// For programs that take whole seconds.
    pub(crate) fn whole_seconds(&self) -> String {
        self.length.as_secs_f64().ceil().max(1.0).to_string()
    }
}

/// Which ends have the library preloaded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ends {
    pub server: bool,
    pub client: bool,
}

impl Ends {
    pub(crate) const NONE: Self = Self {
        server: false,
        client: false,
    };
    pub(crate) const BOTH: Self = Self {
        server: true,
        client: true,
    };

    pub(crate) fn any(self) -> bool {
        self.server || self.client
    }
}

/// Where server and client run.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// Server on core 0, client on core 1.
    Apart,
    /// Both on core 0.
    Together,
    /// Wherever the scheduler puts them.
    Free,
}

/// What must be seen in the report before a run with the library counts.
#[derive(Clone, Copy)]
pub(crate) enum Carrier {
    /// The bytes went over shared memory.
    SharedMemory,
    /// The bytes went over the kernel: one end has no library.
    Kernel,
    /// No bytes, or no connection: a report is all there is to see.
    Any,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Better {
    Lower,
    Higher,
}

/// The floor figure that belongs to a measurement.
#[derive(Clone, Copy)]
pub(crate) enum FloorFigure {
    RoundTripUs,
    RoundTripsPerSecond,
    MessagesPerSecond,
    StreamGbPerS,
}

/// One thing a measurement must reach. Ratios are "times better", whichever direction is better.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    /// Median over the kernel's median.
    OverMedian(f64),
    /// Median over the kernel's best run.
    OverBest(f64),
    /// The worst run over the kernel's best run.
    WorstOverBest(f64),
    /// The median time is at most this multiple of the kernel's.
    CostAtMost(f64),
    /// The median is at most this much above the kernel's, in the measurement's unit.
    ExtraAtMost(f64),
    /// Time per call of the slower end, in ns: an upper bound of what the library does in a call.
    NsPerCallAtMost(f64),
    /// At least this share of the floor (for rates), or at most its inverse (for times).
    OfFloor(f64),
}

/// What one client printed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reading {
    /// In the measurement's unit.
    pub value: f64,
    /// Messages, requests or bytes that `value` is about; CPU time is counted per unit.
    pub units: f64,
}

type Make = Box<dyn Fn(&Ctx, Ends, u16) -> Program>;
type Prepare = Box<dyn Fn(&Ctx, u16) -> anyhow::Result<()>>;
type Parse = Box<dyn Fn(&Ctx, &str) -> anyhow::Result<Reading>>;

pub(crate) struct Case {
    pub name: &'static str,
    pub what: &'static str,
    pub unit: &'static str,
    pub better: Better,
    /// What CPU time is counted per.
    pub per: &'static str,
    pub targets: Vec<Target>,
    pub floor: Option<FloorFigure>,
    pub place: Place,
    /// How many short repetitions replace a long one: a difference of a few per cent shows only when the sides
    /// take turns faster than the machine changes its mood.
    pub turns: u32,
    /// How many servers, each with one client; values add up.
    pub pairs: usize,
    pub shunt: Ends,
    pub carrier: Carrier,
    /// Programs without which it is skipped.
    pub needs: Vec<&'static str>,
    /// None: a program alone.
    pub server: Option<Make>,
    /// Runs before the server starts.
    pub before: Option<Prepare>,
    /// Runs once the server listens.
    pub ready: Option<Prepare>,
    pub client: Make,
    /// Reads the client's output, or the server's where that is where the truth is.
    pub parse: Parse,
    pub parse_server: bool,
}

impl Case {
    /// A measurement between two processes on two cores, both with the library.
    pub(crate) fn new(
        name: &'static str,
        what: &'static str,
        (unit, better): (&'static str, Better),
        client: impl Fn(&Ctx, Ends, u16) -> Program + 'static,
        parse: impl Fn(&str) -> anyhow::Result<Reading> + 'static,
    ) -> Self {
        Self {
            name,
            what,
            unit,
            better,
            per: "message",
            targets: Vec::new(),
            floor: None,
            place: Place::Apart,
            turns: 1,
            pairs: 1,
            shunt: Ends::BOTH,
            carrier: Carrier::SharedMemory,
            needs: Vec::new(),
            server: None,
            before: None,
            ready: None,
            client: Box::new(client),
            parse: Box::new(move |_, output| parse(output)),
            parse_server: false,
        }
    }

    pub(crate) fn server(mut self, server: impl Fn(&Ctx, Ends, u16) -> Program + 'static) -> Self {
        self.server = Some(Box::new(server));
        self
    }

    pub(crate) fn targets(mut self, targets: impl IntoIterator<Item = Target>) -> Self {
        self.targets.extend(targets);
        self
    }

    pub(crate) fn needs(mut self, programs: impl IntoIterator<Item = &'static str>) -> Self {
        self.needs.extend(programs);
        self
    }

    pub(crate) fn targets_in_words(&self) -> String {
        let words: Vec<String> = self
            .targets
            .iter()
            .map(|target| target.in_words(self))
            .collect();
        if words.is_empty() {
            "no target".into()
        } else {
            words.join(", ")
        }
    }
}

impl Target {
    pub(crate) fn in_words(self, case: &Case) -> String {
        match self {
            Self::OverMedian(x) => format!("≥ {x}× median"),
            Self::OverBest(x) => format!("≥ {x}× best"),
            Self::WorstOverBest(x) => format!("worst ≥ {x}× best"),
            Self::CostAtMost(x) => format!("≤ {x}× time"),
            Self::ExtraAtMost(x) => format!("≤ +{x} {}", case.unit),
            Self::NsPerCallAtMost(x) => format!("≤ {x} ns/call"),
            Self::OfFloor(x) if case.better == Better::Lower => format!("≤ {:.2}× floor", 1.0 / x),
            Self::OfFloor(x) => format!("≥ {:.0} % of floor", x * 100.0),
        }
    }
}
