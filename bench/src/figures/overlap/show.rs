//! The overlap test as pictures and tables. Called by `overlap`.

use super::super::scheme::Scheme;
use super::super::{Plan, about_tcp};
use super::judge::{Verdicts, one_after_the_other, side_by_side};
use super::{BURST, Pilot, Point, Receiver, Run, SHARES, SIZE, Variant};
use crate::plot::{Axis, Line, Panel, Picture, Scale};
use crate::stats::{Quartiles, short};
use crate::table::{self, Table, groups};

pub(super) struct Shown<'a> {
    pub plan: &'a Plan,
    pub pilots: &'a [Pilot],
    pub runs: &'a [Run],
    pub points: &'a [Point],
}

/// Computing that takes longer than this says that the cores were not the programs' own.
const DISTURBED: f64 = 1.05;
const DISTURBED_WORDS: &str = "\n**DISTURBED: computing took longer than it takes alone. Either others used the cores, \
    and slopes and ratios mean nothing, or one scheme has a helper that takes the core away.**\n";

/// Which part of the data a picture shows, and in which unit.
struct View {
    more: &'static str,
    /// The most computation, as a multiple of b.
    bursts: f64,
    /// Of µs.
    unit: f64,
    x: &'static str,
    y: &'static str,
    tcp: bool,
}

/// Computation, as a multiple of b, at which the tables state the ratios.
const STATED: [f64; 3] = [0.25, 1.0, 4.0];

impl Shown<'_> {
    pub(super) fn whole(&self) -> Picture {
        self.picture(&View {
            more: "",
            bursts: f64::INFINITY,
            unit: 1e-3,
            x: "computation between the bursts, ms",
            y: "time of one iteration, ms",
            tcp: true,
        })
    }

    /// Only as far as computation is comparable to the bursts.
    pub(super) fn near(&self) -> Picture {
        self.picture(&View {
            more: ", where the computation is comparable to a burst (kernel TCP lies above and is left out)",
            bursts: SHARES.iter().copied().fold(0.0, f64::max),
            unit: 1.0,
            x: "computation between the bursts, µs",
            y: "time of one iteration, µs",
            tcp: false,
        })
    }

    fn picture(&self, view: &View) -> Picture {
        Picture {
            title: format!("Figure 4.7: computation beside communication{}", view.more),
            notes: self.notes(),
            columns: Receiver::ALL.len(),
            panels: Variant::all()
                .map(|variant| self.panel(view, variant))
                .collect(),
        }
    }

    fn panel(&self, view: &View, variant: Variant) -> Panel {
        let pilot = self.pilot(variant);
        let last_us = view.bursts * pilot.burst_us * 1.001;
        let points: Vec<&Point> = self
            .points
            .iter()
            .filter(|point| point.variant() == variant && point.compute_us <= last_us)
            .collect();
        let measured = |scheme: &Scheme| Line {
            of: scheme.of(),
            points: points
                .iter()
                .filter(|point| point.scheme == *scheme)
                .map(|point| {
                    (
                        point.compute_us * view.unit,
                        scaled(point.time(), view.unit),
                    )
                })
                .collect(),
        };
        let lag_us = points.iter().map(|point| point.lag_us).fold(0.0, f64::max);
        let mut places: Vec<f64> = points.iter().map(|point| point.compute_us).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        let model = |name, grey, of: fn(f64, f64, f64) -> f64| {
            let place = |us: &f64| (us * view.unit, of(pilot.burst_us, lag_us, *us) * view.unit);
            Line::model(name, grey, places.iter().map(place))
        };
        let schemes = self
            .plan
            .schemes
            .iter()
            .filter(|scheme| view.tcp || scheme.of_shunt());
        let models = [
            model(
                "model: computations side by side, 2b + L + C",
                190,
                side_by_side,
            ),
            model(
                "model: one after the other, 2b + max(L, C) + C",
                110,
                one_after_the_other,
            ),
        ];
        Panel {
            title: self.title(variant),
            x: Axis::new(view.x, Scale::Linear, table::tick),
            y: Axis::new(view.y, Scale::Linear, table::tick),
            lines: schemes.map(measured).chain(models).collect(),
        }
    }

    fn pilot(&self, variant: Variant) -> Pilot {
        let found = self.pilots.iter().find(|pilot| pilot.wait == variant.wait);
        found.copied().unwrap_or(Pilot {
            wait: variant.wait,
            burst_us: 0.0,
            lag_us: 0.0,
        })
    }

    fn title(&self, variant: Variant) -> String {
        let pilot = self.pilot(variant);
        let wait = format!("{:?}", variant.wait);
        let lag = format!("begins L = {} µs late (model)", pilot.lag_us);
        match variant.receiver {
            Receiver::Prompt => format!(
                "{wait}, receiver prompt (L = 0); b = {} µs",
                short(pilot.burst_us)
            ),
            Receiver::Late => format!("{wait}, receiver {lag}"),
            Receiver::Roomy => {
                let buffer = self.plan.params.with_room_for(BURST).buf;
                format!("{wait}, {lag}; CONTROL: buffer {buffer}")
            }
        }
    }

    fn notes(&self) -> Vec<String> {
        let iterations = self.runs.first().map_or(0.0, |run| run.iterations);
        let mut notes = vec![
            format!(
                "The sender sends {BURST} x {SIZE} B, computes for C, receives {BURST}; the receiver receives, computes \
                 for C, sends. Sizes: {}; one core a side; every byte checked.",
                self.plan.params
            ),
            format!(
                "Points: median of {} runs (each the median of {iterations} iterations), bars: quartiles. b: half of an \
                 iteration at C = 0 (packetized, prompt). Spinning: default SHUNT_SPIN_US, kernel TCP polled by the \
                 program; sleeping: SHUNT_SPIN_US=0.",
                self.plan.reps
            ),
            "Late: when a burst begins to arrive the receiver first computes for L, at least the time of a burst under \
             any scheme; L stands for the thesis's network."
                .into(),
        ];
        let kernel = self.runs.iter().find_map(|run| run.sndbuf.zip(run.rcvbuf));
        notes.extend(about_tcp(kernel));
        notes
    }

    pub(super) fn tables(&self, verdicts: &Verdicts) -> String {
        format!("{}\n{}", self.slopes(verdicts), self.ratios(verdicts))
    }

    fn slopes(&self, verdicts: &Verdicts) -> String {
        let mut table = Table::new([
            "variant",
            "scheme",
            "b, µs",
            "slope (1: side by side, 2: one after the other)",
            "out of room, each iteration: C = 0, largest C",
            "largest C takes, times C",
        ]);
        let (mut from_us, mut disturbed) = (0_f64, false);
        for slope in &verdicts.slopes {
            from_us = from_us.max(slope.from_us);
            let variant = Variant {
                wait: slope.wait,
                receiver: slope.receiver,
            };
            let points: Vec<&Point> = self
                .points
                .iter()
                .filter(|point| point.variant() == variant && point.scheme == slope.scheme)
                .collect();
            let stretch = points.last().and_then(|point| point.stretch);
            disturbed |= stretch.is_some_and(|stretch| stretch > DISTURBED);
            let room = [points.first(), points.last()]
                .map(|point| table::number(point.and_then(|point| point.no_credit_per_iteration)));
            let spread = Quartiles {
                q1: slope.slope_q1,
                median: slope.slope,
                q3: slope.slope_q3,
                ..Quartiles::default()
            };
            table.row([
                self.title(variant),
                slope.scheme.title().into(),
                short(slope.burst_us),
                table::quartiles(Some(spread)),
                room.join(", "),
                table::number(stretch),
            ]);
        }
        format!(
            "How the time of an iteration grows with the computation (fitted to C of {} µs and more); b is each \
             scheme's own, half of an iteration at C = 0 less L\n\n{}{}",
            short(from_us),
            table.text(),
            if disturbed { DISTURBED_WORDS } else { "" }
        )
    }

    fn ratios(&self, verdicts: &Verdicts) -> String {
        let head = ["variant".to_owned(), "packetized over".into()].into_iter();
        let stated = STATED.map(|share| format!("C/b = {share}"));
        let mut table = Table::new(head.chain(stated).chain(["largest C".into()]));
        for ((variant, over), ratios) in groups(&verdicts.ratios, |ratio| {
            (
                Variant {
                    wait: ratio.wait,
                    receiver: ratio.receiver,
                },
                ratio.over,
            )
        }) {
            let cell = |ratio: Option<&&super::judge::Ratio>| {
                let spread = |ratio: &&super::judge::Ratio| Quartiles {
                    q1: ratio.ratio_q1,
                    median: ratio.ratio,
                    q3: ratio.ratio_q3,
                    ..Quartiles::default()
                };
                // In the control nothing is left behind, so the model does not speak of it.
                let model = ratio
                    .filter(|ratio| ratio.receiver != Receiver::Roomy && ratio.over.of_shunt());
                let model =
                    model.map_or(String::new(), |ratio| format!(" [{}]", short(ratio.model)));
                table::quartiles(ratio.map(spread)) + &model
            };
            let at = |share: f64| {
                let near = |ratio: &&&super::judge::Ratio| {
                    (ratio.compute_over_burst - share).abs() < share * 0.01
                };
                cell(ratios.iter().find(near))
            };
            let furthest = ratios
                .iter()
                .max_by(|a, b| a.compute_us.total_cmp(&b.compute_us));
            let head = [self.title(variant), over.title().into()].into_iter();
            table.row(head.chain(STATED.map(at)).chain([cell(furthest)]));
        }
        format!(
            "How many times longer an iteration takes with packetized, the computation being the same; in square \
             brackets what the model says if packetized leaves the rest of its burst behind and the other does not\n\n{}",
            table.text()
        )
    }
}

fn scaled(time: Quartiles, unit: f64) -> Quartiles {
    Quartiles {
        min: time.min * unit,
        q1: time.q1 * unit,
        median: time.median * unit,
        q3: time.q3 * unit,
        max: time.max * unit,
    }
}
