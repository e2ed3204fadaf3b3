//! What zero copy must reach, and what it did: each target with its numbers. Called by `zcopy` when everything has been
//! measured. Pure arithmetic.
//!
//! Targets are of `auto`, which is what a user has; `sync` stands beside it. Where no byte went without the ring nothing
//! is judged: that a copy reached a number would say nothing about zero copy.

use serde::Serialize;

use super::iperf;
use super::judge::{self, BreakEven, Slower, TOLERATED};
use super::many;
use super::mode::{Mode, buffers};
use super::proof::Claim;
use super::stream::{Data, Kind, Point};
use crate::prog::BufferUse;
use crate::stats::{Quartiles, short};
use crate::table::{self, Table, keys};

/// The sizes at which targets are set.
pub(super) const MIDDLE: usize = 128 << 10;
pub(super) const LARGE: usize = 4 << 20;

const LARGE_OVER_TCP: f64 = 5.0;
const LARGE_OVER_RING: f64 = 1.5;
const MIDDLE_OVER_RING: f64 = 1.4;
const IPERF_OVER_TCP: f64 = 2.5;
const CPU_OVER_RING: f64 = 0.7;

/// Everything that targets are about, as far as it was measured.
#[derive(Default)]
pub(super) struct Measured {
    pub streams: Vec<Data>,
    pub many: Vec<many::Point>,
    pub iperf: Vec<iperf::Point>,
}

impl Measured {
    pub(super) fn break_even(&self) -> Vec<BreakEven> {
        let found = self
            .streams
            .iter()
            .flat_map(|data| judge::break_even(&data.against));
        found.collect()
    }

    pub(super) fn auto_against_off(&self) -> Vec<Slower> {
        let slow = self
            .streams
            .iter()
            .flat_map(|data| judge::slower(&data.against).1);
        slow.collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Met,
    Missed,
    /// Not judged: no byte went without the ring.
    Copied,
    #[serde(rename = "not measured")]
    NotMeasured,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Met => "yes",
            Self::Missed => "NO",
            Self::Copied => "not judged: messages were copied",
            Self::NotMeasured => "not measured",
        }
    }
}

/// One target.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Judged {
    pub target: String,
    pub wanted: String,
    pub reached: Option<f64>,
    /// What the same would be with `sync`.
    pub sync: Option<f64>,
    pub verdict: Verdict,
    pub numbers: String,
}

/// A ratio, and whether zero copy had a part in it.
#[derive(Clone, Copy)]
struct Ratio {
    value: f64,
    zero_copy: bool,
}

impl Judged {
    fn new(
        target: String,
        (at_most, limit): (bool, f64),
        of: impl Fn(Mode) -> Option<Ratio>,
        numbers: String,
    ) -> Self {
        let auto = of(Mode::Auto);
        let met = |ratio: f64| match at_most {
            true => ratio <= limit,
            false => ratio >= limit,
        };
        Self {
            target,
            wanted: format!("{} {limit}×", if at_most { "≤" } else { "≥" }),
            reached: auto.map(|ratio| ratio.value),
            sync: of(Mode::Sync)
                .filter(|sync| sync.zero_copy)
                .map(|sync| sync.value),
            verdict: match auto {
                None => Verdict::NotMeasured,
                Some(ratio) if !ratio.zero_copy => Verdict::Copied,
                Some(ratio) if met(ratio.value) => Verdict::Met,
                Some(_) => Verdict::Missed,
            },
            numbers,
        }
    }
}

/// Zero copy had a part in what this mode carried, and the part that it had to have.
fn took_part(claim: Claim, zcopy_share: Option<f64>) -> bool {
    claim == Claim::Held && zcopy_share > Some(0.0)
}

pub(super) fn judge(measured: &Measured) -> Vec<Judged> {
    let stream = measured
        .streams
        .iter()
        .find(|data| data.kind == Kind::Stream);
    let mut judged = Vec::new();
    let used = stream.map_or(vec![BufferUse::Reused], |data| {
        keys(&data.points, |point| point.buffers)
    });
    for usage in used {
        judged.push(over_tcp(stream, usage));
        judged.push(over_ring(stream, usage, LARGE, LARGE_OVER_RING));
        judged.push(over_ring(stream, usage, MIDDLE, MIDDLE_OVER_RING));
    }
    judged.push(iperf3(&measured.iperf));
    judged.push(cpu(&measured.many));
    judged.extend(measured.streams.iter().map(never_slower));
    judged
}

fn point(data: Option<&Data>, usage: BufferUse, size: usize, mode: Mode) -> Option<&Point> {
    let mut points = data?.points.iter();
    points.find(|point| (point.buffers, point.size, point.mode) == (usage, size, mode))
}

fn over_tcp(data: Option<&Data>, usage: BufferUse) -> Judged {
    let tcp = point(data, usage, LARGE, Mode::Tcp);
    let of = |mode: Mode| {
        let ours = point(data, usage, LARGE, mode)?;
        Some(Ratio {
            value: ours.median_gb_per_s / tcp?.median_gb_per_s,
            zero_copy: took_part(ours.claim, ours.zcopy_share),
        })
    };
    let ours = point(data, usage, LARGE, Mode::Auto);
    let numbers = ours.zip(tcp).map(|(ours, tcp)| {
        format!(
            "{} over {} GB/s; {} over its best run of {}",
            quartiles(ours.rate()),
            quartiles(tcp.rate()),
            short(ours.median_gb_per_s / tcp.max_gb_per_s),
            short(tcp.max_gb_per_s)
        )
    });
    let target = format!("4 MiB, {}: kernel TCP's median", buffers(usage));
    Judged::new(
        target,
        (false, LARGE_OVER_TCP),
        of,
        numbers.unwrap_or_default(),
    )
}

fn over_ring(data: Option<&Data>, usage: BufferUse, size: usize, limit: f64) -> Judged {
    let against = |mode: Mode| {
        let mut all = data?.against.iter();
        all.find(|one| (one.buffers, one.size, one.mode) == (usage, size, mode))
    };
    let of = |mode: Mode| {
        against(mode).map(|one| Ratio {
            value: one.ratio,
            zero_copy: took_part(one.claim, one.zcopy_share),
        })
    };
    let numbers = against(Mode::Auto).map(|one| format!("rounds: {}", quartiles(one.ratio())));
    let size = if size == LARGE { "4 MiB" } else { "128 KiB" };
    let target = format!("{size}, {}: the ring", buffers(usage));
    Judged::new(target, (false, limit), of, numbers.unwrap_or_default())
}

fn iperf3(points: &[iperf::Point]) -> Judged {
    let of_tcp = points.iter().filter(|point| point.mode == Mode::Tcp);
    let best = of_tcp.max_by(|a, b| a.rate.median.total_cmp(&b.rate.median));
    let ours = |mode: Mode| points.iter().find(|point| point.mode == mode);
    let of = |mode: Mode| {
        let ours = ours(mode)?;
        Some(Ratio {
            value: ours.rate.median / best?.rate.median,
            zero_copy: took_part(ours.claim, ours.zcopy_share),
        })
    };
    let numbers = ours(Mode::Auto).zip(best).map(|(ours, best)| {
        format!(
            "{} over {} GB/s ({})",
            quartiles(ours.rate),
            quartiles(best.rate),
            best.place
        )
    });
    let target = "iperf3, default block: kernel TCP's better placement".into();
    Judged::new(
        target,
        (false, IPERF_OVER_TCP),
        of,
        numbers.unwrap_or_default(),
    )
}

fn cpu(points: &[many::Point]) -> Judged {
    let ours = |mode: Mode| {
        let mut of_size = points.iter().filter(|point| point.size == many::SIZE);
        of_size.find(|point| point.mode == mode)
    };
    let of = |mode: Mode| {
        let ours = ours(mode)?;
        Some(Ratio {
            value: ours.cpu_over_ring?,
            zero_copy: took_part(ours.claim, ours.zcopy_share),
        })
    };
    let numbers = ours(Mode::Auto).zip(ours(Mode::Off)).map(|(ours, ring)| {
        format!(
            "{} over {} ns for a byte",
            short(ours.median_cpu),
            short(ring.median_cpu)
        )
    });
    let target = "CPU time of a byte, more connections than cores, 1 MiB: the ring's".into();
    Judged::new(
        target,
        (true, CPU_OVER_RING),
        of,
        numbers.unwrap_or_default(),
    )
}

/// Holds for copies as well: choosing must cost nothing.
fn never_slower(data: &Data) -> Judged {
    let (points, slow) = judge::slower(&data.against);
    let auto = data.against.iter().filter(|one| one.mode == Mode::Auto);
    let worst = auto.min_by(|a, b| a.ratio.total_cmp(&b.ratio));
    Judged {
        target: format!("`auto` at every size ({}): the ring", data.kind.name()),
        wanted: format!("≥ {TOLERATED}×"),
        reached: worst.map(|one| one.ratio),
        sync: None,
        verdict: match (points, slow.len()) {
            (0, _) => Verdict::NotMeasured,
            (_, 0) => Verdict::Met,
            _ => Verdict::Missed,
        },
        numbers: worst.map_or(String::new(), |one| {
            format!(
                "worst: {}, {}: {}; {} of {points} points below, {} of them beyond the spread",
                table::size(one.size as f64),
                buffers(one.buffers),
                quartiles(one.ratio()),
                slow.len(),
                slow.iter().filter(|slow| slow.beyond_spread).count()
            )
        }),
    }
}

fn quartiles(value: Quartiles) -> String {
    table::quartiles(Some(value))
}

pub(super) fn table(judged: &[Judged]) -> String {
    let head = ["auto over", "target", "reached", "met", "sync", "numbers"];
    let mut table = Table::new(head);
    for one in judged {
        let times = |ratio: Option<f64>| ratio.map_or("–".into(), |r| format!("{}×", short(r)));
        table.row([
            one.target.clone(),
            one.wanted.clone(),
            times(one.reached),
            one.verdict.word().into(),
            times(one.sync),
            one.numbers.clone(),
        ]);
    }
    table.text()
}

#[cfg(test)]
mod tests {
    use super::super::many::tests::point as cpu_point;
    use super::super::stream::tests::{copied, data, run};
    use super::*;

    fn measured(large_auto: f64, middle_auto: f64) -> Measured {
        let runs = [
            run(Mode::Tcp, LARGE, 0, 2.0),
            run(Mode::Off, LARGE, 0, 8.0),
            run(Mode::Auto, LARGE, 0, large_auto),
            run(Mode::Off, MIDDLE, 0, 10.0),
            run(Mode::Auto, MIDDLE, 0, middle_auto),
        ];
        Measured {
            streams: vec![data(&runs)],
            many: vec![cpu_point(Mode::Auto, 0.6, 1.0)],
            iperf: Vec::new(),
        }
    }

    fn verdicts(measured: &Measured) -> Vec<Verdict> {
        judge(measured).iter().map(|one| one.verdict).collect()
    }

    #[test]
    fn targets_are_met_or_missed() {
        use Verdict::{Met, Missed, NotMeasured};
        assert_eq!(
            verdicts(&measured(12.0, 14.0)),
            [Met, Met, Met, NotMeasured, Met, Met]
        );
        let low = verdicts(&measured(9.0, 9.0));
        assert_eq!(low, [Missed, Missed, Missed, NotMeasured, Met, Missed]);
    }

    #[test]
    fn a_copy_meets_nothing() {
        let mut all = measured(12.0, 14.0);
        let runs = [
            run(Mode::Tcp, LARGE, 0, 2.0),
            run(Mode::Off, LARGE, 0, 8.0),
            copied(run(Mode::Auto, LARGE, 0, 12.0)),
        ];
        all.streams = vec![data(&runs)];
        all.many = vec![cpu_point(Mode::Auto, 0.6, 0.0)];
        let judged = judge(&all);
        assert_eq!(
            (judged[0].verdict, judged[1].verdict),
            (Verdict::Copied, Verdict::Copied)
        );
        assert_eq!(
            (judged[2].verdict, judged[4].verdict),
            (Verdict::NotMeasured, Verdict::Copied)
        );
        // That choosing costs nothing holds for copies as well.
        assert_eq!(judged[5].verdict, Verdict::Met);
        assert!(table(&judged).contains("not judged: messages were copied"));
    }

    #[test]
    fn nothing_measured_is_nothing_met() {
        assert!(
            verdicts(&Measured::default())
                .iter()
                .all(|v| *v == Verdict::NotMeasured)
        );
    }
}
