//! The result as a picture, tables and a verdict. Called by `iwarp`.

use super::lab::Memory;
use super::way::{Framing, Role, SDP, STACKS, Way};
use super::{Data, Point};
use crate::plot::{Axis, Line, Panel, Picture, Scale};
use crate::stats::{Quartiles, short};
use crate::table::{self, Table};

/// What the thesis's latency is made of, here: the CPU time of one message on both sides.
fn time(point: &Point) -> Option<f64> {
    Some((point.sample.send_ns + point.sample.receive_ns) / 1e3)
}

/// What a stream comes to if each side has a core, and nothing else takes time: the slower side decides.
fn rate(point: &Point) -> Option<f64> {
    Some(point.size as f64 / point.sample.send_ns.max(point.sample.receive_ns))
}

/// CPU time for an octet, both sides.
fn cost(point: &Point) -> Option<f64> {
    Some((point.sample.send_ns + point.sample.receive_ns) / point.size as f64)
}

type Height = fn(&Point) -> Option<f64>;

fn spread(data: &Data, way: Way, memory: Memory, size: usize, height: Height) -> Option<Quartiles> {
    let points = data.points.iter();
    let these = points.filter(|point| (point.way, point.memory, point.size) == (way, memory, size));
    Quartiles::of(these.filter_map(height))
}

pub(super) fn picture(data: &Data, memory: Memory, notes: Vec<String>) -> Picture {
    let lines = |roles: &[Role], height: Height| -> Vec<Line> {
        let line = |role: &Role| Line {
            of: role.line,
            points: (data.sizes.iter())
                .filter_map(|size| {
                    let height = spread(data, role.way, memory, *size, height)?;
                    Some((*size as f64, height))
                })
                .collect(),
        };
        roles.iter().map(line).collect()
    };
    let panel = |title: &str, label, roles: &[Role], height: Height| Panel {
        title: title.into(),
        x: Axis::message_size(),
        y: Axis::new(label, Scale::Decades, table::tick),
        lines: lines(roles, height),
    };
    let (us, rate_label) = ("CPU time of a message, both sides, µs", "GB/s, slower side");
    let (generic, no_markers) = ([SDP[0], SDP[2]], SDP);
    Picture {
        title: format!("iWARP framing in memory, {}", memory.words()),
        notes,
        columns: 3,
        panels: vec![
            panel("after fig. 3.3: latency", us, &STACKS, time),
            panel("after fig. 3.4: bandwidth", rate_label, &STACKS, rate),
            panel("after fig. 3.4: CPU, ns for an octet", "ns", &STACKS, cost),
            panel("after fig. 3.5: latency, generic", us, &generic, time),
            panel(
                "after fig. 3.6: bandwidth, generic",
                rate_label,
                &generic,
                rate,
            ),
            panel("after fig. 3.7: latency, integrated", us, &no_markers, time),
            panel(
                "after fig. 3.8: bandwidth, integrated",
                rate_label,
                &no_markers,
                rate,
            ),
        ],
    }
}

/// CPU time of a message in ns, sending / receiving.
pub(super) fn tables(data: &Data) -> String {
    let mut text = String::new();
    for memory in data.memories() {
        text += &format!(
            "\nCPU time of a message, ns, sending / receiving; {}\n\n",
            memory.words()
        );
        let head = ["way".into(), "copies".into()].into_iter();
        let mut table =
            Table::new(head.chain(data.sizes.iter().map(|size| table::size(*size as f64))));
        for way in Way::ALL {
            let Some(last) = data.points.iter().rfind(|point| point.way == way) else {
                continue;
            };
            let copies = format!(
                "{:.1} + {:.1}",
                last.sample.send_copies, last.sample.receive_copies
            );
            let cells = data.sizes.iter().map(|size| {
                let of = |height: Height| {
                    spread(data, way, memory, *size, height)
                        .map_or("–".into(), |spread| short(spread.median))
                };
                let sent = of(|point| Some(point.sample.send_ns));
                if way.framing == Framing::InPlace {
                    let entries = of(|point| Some(point.sample.entries));
                    format!("{sent} ({entries} entries)")
                } else {
                    format!("{sent} / {}", of(|point| Some(point.sample.receive_ns)))
                }
            });
            table.row([way.name(), copies].into_iter().chain(cells));
        }
        text += &table.text();
    }
    text
}

/// The median of the ratio of what two ways gave in the same round.
fn ratio(data: &Data, [above, below]: [Way; 2], memory: Memory, size: usize) -> Option<Quartiles> {
    let find = |way: Way, round: usize| {
        let mut points = data.points.iter();
        let wanted = (way, memory, size, round);
        let point = points.find(|p| (p.way, p.memory, p.size, p.round) == wanted)?;
        time(point)
    };
    Quartiles::of(
        (0..data.rounds).filter_map(|round| Some(find(above, round)? / find(below, round)?)),
    )
}

/// What was to come out, and what came.
pub(super) fn verdict(data: &Data) -> String {
    let [generic, integrated, none] = SDP.map(|role| role.way);
    let mut table = Table::new([
        "memory",
        "size",
        "generic / integrated (≥ 1.15)",
        "integrated / no markers (≤ 1.03)",
    ]);
    let mut met = [0, 0];
    let mut judged = 0;
    for memory in data.memories() {
        for size in data.sizes.iter().copied().filter(|size| *size >= 64 << 10) {
            let gain = ratio(data, [generic, integrated], memory, size);
            let loss = ratio(data, [integrated, none], memory, size);
            judged += 1;
            met[0] += usize::from(gain.is_some_and(|gain| gain.median >= 1.15));
            met[1] += usize::from(loss.is_some_and(|loss| loss.median <= 1.03));
            table.row([
                memory.words().into(),
                table::size(size as f64),
                table::quartiles(gain),
                table::quartiles(loss),
            ]);
        }
    }
    format!(
        "\nLarge messages, CRC off: CPU time of both sides; pairs of the same round, median (quartiles)\n\n{}\ngeneric / \
         integrated: {} of {judged} met; integrated / no markers: {} of {judged} met\n",
        table.text(),
        met[0],
        met[1],
    )
}
