//! The sections `stream` and `complete` as a picture and as tables. Called by `stream`; `many` and `overlap` borrow the
//! marks.

use super::Plan;
use super::judge::{TOLERATED, break_even, slower};
use super::mode::{Mode, buffers};
use super::proof::Claim;
use super::stream::{Data, Floor, Kind, Point};
use crate::plot::{Axis, Line, Panel, Picture, Scale};
use crate::prog::BufferUse;
use crate::stats::{Quartiles, short};
use crate::table::{self, Table, groups, keys};

/// What stands behind a number that is not of what its column says, or of what `auto` chose.
pub(super) fn mark(mode: Mode, claim: Claim, zcopy_share: Option<f64>) -> String {
    let percent = zcopy_share.unwrap_or(0.0) * 100.0;
    match claim {
        Claim::Copied => " COPIED".into(),
        Claim::Partly => format!(" PARTLY {percent:.0} %"),
        Claim::Held if mode == Mode::Auto || (mode.is_zero_copy() && percent < 99.0) => {
            format!(" [{percent:.0} %]")
        }
        Claim::Held => String::new(),
    }
}

pub(super) const MARKS: &str = "COPIED: zero copy was asked for, and by the library's own count not one byte went without the ring: the number is \
     one of copying. PARTLY: less than half did. [x %]: so much did; always said of `auto`, which chooses.\n";

pub(super) fn picture(plan: &Plan, data: &Data) -> Picture {
    type Height = fn(&Point) -> Quartiles;
    let lines = |usage: BufferUse, height: Height| -> Vec<Line> {
        let line = |mode: &Mode| Line {
            of: mode.of(),
            points: (data.points.iter())
                .filter(|point| (point.buffers, point.mode) == (usage, *mode))
                .filter(|point| point.claim == Claim::Held)
                .map(|point| (point.size as f64, height(point)))
                .collect(),
        };
        plan.modes.iter().map(line).collect()
    };
    let bare = |usage: BufferUse, name, grey, of: fn(&Floor) -> f64| {
        let floors = data.floors.iter().filter(|floor| floor.buffers == usage);
        Line::model(
            name,
            grey,
            floors.map(|floor| (floor.size as f64, of(floor))),
        )
    };
    let mut panels = Vec::new();
    for &usage in &plan.buffers {
        let (label, height): (_, Height) = match data.kind {
            Kind::Stream => ("GB/s (logarithmic)", Point::rate),
            Kind::Complete => ("time of a message and its answer, µs", Point::time),
        };
        let mut lines = lines(usage, height);
        let (one, two) = ("memcpy, one core", "memcpy, half on each core");
        lines.extend(match data.kind {
            Kind::Stream => [
                bare(usage, one, 190, |floor| floor.one_core),
                bare(usage, two, 110, |floor| floor.two_cores),
            ],
            Kind::Complete => [
                bare(usage, one, 190, |floor| {
                    floor.size as f64 / floor.one_core / 1e3
                }),
                bare(usage, two, 110, |floor| {
                    floor.size as f64 / floor.two_cores / 1e3
                }),
            ],
        });
        panels.push(Panel {
            title: format!("{}, {}", data.kind.name(), buffers(usage)),
            x: Axis::message_size(),
            y: Axis::new(label, Scale::Decades, table::tick),
            lines,
        });
    }
    for &usage in &plan.buffers {
        panels.push(Panel {
            title: format!("CPU time, {}", buffers(usage)),
            x: Axis::message_size(),
            y: Axis::new(
                "ns for a byte, both sides together (logarithmic)",
                Scale::Decades,
                table::tick,
            ),
            lines: lines(usage, Point::cpu),
        });
    }
    let what = match data.kind {
        Kind::Stream => {
            "Messages one way, blocking, a core each, the reader in recv with a buffer as large as the message. Memcpy: \
             without the rewriting."
        }
        Kind::Complete => {
            "Send a message, wait for an answer of one byte; blocking, a core each. Memcpy: without wake-ups and rewriting."
        }
    };
    Picture {
        title: match data.kind {
            Kind::Stream => "Large messages: throughput and CPU time".into(),
            Kind::Complete => "Large messages: time until one has arrived and was answered".into(),
        },
        notes: plan.notes(what),
        columns: plan.buffers.len().max(2),
        panels,
    }
}

pub(super) fn tables(data: &Data) -> String {
    let mut text = String::new();
    for usage in keys(&data.points, |point| point.buffers) {
        let points: Vec<Point> = (data.points.iter())
            .filter(|point| point.buffers == usage)
            .cloned()
            .collect();
        text += &speeds(data, usage, &points);
        text += &cpu(usage, &points);
    }
    text += MARKS;
    text += &break_evens(data);
    text += &auto_against_off(data);
    text
}

/// A row for each size, a column for each mode, and more columns.
fn matrix(
    points: &[Point],
    more: &[&str],
    cell: impl Fn(&Point) -> String,
    rest: impl Fn(usize) -> Vec<String>,
) -> String {
    let modes = keys(points, |point| point.mode);
    let head = ["bytes"].into_iter();
    let head = head.chain(modes.iter().map(|mode| mode.title()));
    let mut table = Table::new(head.chain(more.iter().copied()));
    let mut rows = groups(points, |point| point.size);
    rows.sort_by_key(|(size, _)| *size);
    for (size, row) in rows {
        let of = |mode: &Mode| {
            let point = row.iter().find(|point| point.mode == *mode);
            point.map_or("–".into(), |point| cell(point))
        };
        let cells = [table::size(size as f64)].into_iter();
        table.row(cells.chain(modes.iter().map(of)).chain(rest(size)));
    }
    table.text()
}

fn speeds(data: &Data, usage: BufferUse, points: &[Point]) -> String {
    let floor = |size: usize| {
        let mut floors = data.floors.iter();
        let found = floors.find(|floor| (floor.buffers, floor.size) == (usage, size));
        let rates = found.map(|floor| [floor.one_core, floor.two_cores, floor.rewrite]);
        let shown = |rate: f64| match data.kind {
            Kind::Stream => short(rate),
            Kind::Complete => short(size as f64 / rate / 1e3),
        };
        rates.map_or(Vec::new(), |rates| rates.map(shown).into())
    };
    let more = ["memcpy, one core", "two cores", "rewriting alone"];
    let unit = match data.kind {
        Kind::Stream => "GB/s",
        Kind::Complete => "µs for a message and its answer",
    };
    let cell = |point: &Point| {
        let value = match data.kind {
            Kind::Stream => point.rate(),
            Kind::Complete => point.time(),
        };
        table::quartiles(Some(value)) + &mark(point.mode, point.claim, point.zcopy_share)
    };
    format!(
        "{}, {}: {unit}\n\n{}\n",
        data.kind.name(),
        buffers(usage),
        matrix(points, &more, cell, floor)
    )
}

fn cpu(usage: BufferUse, points: &[Point]) -> String {
    let cell = |point: &Point| {
        format!(
            "{} + {}{}",
            short(point.sender_cpu),
            short(point.receiver_cpu),
            mark(point.mode, point.claim, point.zcopy_share)
        )
    };
    let rewriting = match usage {
        BufferUse::Dirty | BufferUse::Used => " (the sender's rewriting is in it)",
        _ => "",
    };
    format!(
        "CPU time, {}{rewriting}: ns for a byte, sender + receiver\n\n{}\n",
        buffers(usage),
        matrix(points, &[], cell, |_| Vec::new())
    )
}

fn break_evens(data: &Data) -> String {
    let found = break_even(&data.against);
    if found.is_empty() {
        return String::new();
    }
    let modes = keys(&found, |one| one.mode);
    let mut table = Table::new(
        ["buffers"]
            .into_iter()
            .chain(modes.iter().map(|m| m.title())),
    );
    for (usage, row) in groups(&found, |one| one.buffers) {
        let of = |mode: &Mode| {
            let one = row.iter().find(|one| one.mode == *mode);
            let size = one.and_then(|one| one.size);
            let why = one.and_then(|one| one.why).unwrap_or("not measured");
            size.map_or(format!("none: {why}"), |size| table::size(size as f64))
        };
        table.row(
            [buffers(usage).to_owned()]
                .into_iter()
                .chain(modes.iter().map(of)),
        );
    }
    format!(
        "\nBreak-even: the size from which on a mode is faster than the ring at every size (median of ratios within a \
         round)\n\n{}",
        table.text()
    )
}

fn auto_against_off(data: &Data) -> String {
    let (points, slow) = slower(&data.against);
    if points == 0 {
        return String::new();
    }
    let least = (1.0 - TOLERATED) * 100.0;
    let mut text = format!(
        "\n`auto` is slower than `off` by more than {least:.0} % at {} of {points} points\n",
        slow.len()
    );
    for one in slow {
        text += &format!(
            "- {}, {}: {} of `off` ({}–{}){}\n",
            table::size(one.size as f64),
            buffers(one.buffers),
            short(one.ratio),
            short(one.ratio_q1),
            short(one.ratio_q3),
            match one.beyond_spread {
                true => "",
                false => ", within the spread of the rounds",
            }
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::stream::tests::{copied, data, run};
    use super::*;

    #[test]
    fn a_copy_is_never_shown_as_zero_copy() {
        let runs = [
            run(Mode::Off, 4096, 0, 4.0),
            copied(run(Mode::Sync, 4096, 0, 6.0)),
            copied(run(Mode::Auto, 4096, 0, 3.8)),
            run(Mode::Async, 4096, 0, 5.0),
        ];
        let data = data(&runs);
        let text = tables(&data);
        assert!(text.contains("6.00 (6.00–6.00) COPIED"), "{text}");
        assert!(text.contains("3.80 (3.80–3.80) [0 %]"), "{text}");
        assert!(text.contains("none: messages were copied"), "{text}");
        assert!(text.contains("at 1 of 1 points"), "{text}");
        let plan = Plan {
            modes: Mode::ALL.to_vec(),
            buffers: vec![BufferUse::Reused],
            sizes: Vec::new(),
            rounds: 1,
            quick: false,
            out: std::path::PathBuf::new(),
        };
        let picture = picture(&plan, &data);
        let drawn = |mode: Mode| {
            let of_mode = |line: &&Line| line.of == mode.of();
            let lines = picture.panels.iter().flat_map(|panel| &panel.lines);
            lines
                .filter(of_mode)
                .map(|line| line.points.len())
                .sum::<usize>()
        };
        assert_eq!((drawn(Mode::Sync), drawn(Mode::Async)), (0, 2));
    }
}
