//! The bandwidth figure as pictures and tables. Called by `bandwidth`.

use super::super::scheme::Scheme;
use super::super::{Plan, notes};
use super::{Point, Receiver, Run};
use crate::plot::{Axis, Line, Panel, Picture, Scale};
use crate::stats::Quartiles;
use crate::table::{self, Table, groups, keys};

pub(super) fn picture(plan: &Plan, runs: &[Run], points: &[Point]) -> Picture {
    type Height = fn(&Point) -> Option<Quartiles>;
    let panel = |title: String,
                 receiver: Receiver,
                 label: &'static str,
                 scale,
                 words,
                 height: Height,
                 tcp: bool| {
        let line = |scheme: Scheme| Line {
            of: scheme.of(),
            points: points
                .iter()
                .filter(|point| (point.receiver, point.scheme) == (receiver, scheme))
                .filter_map(|point| Some((point.size as f64, height(point)?)))
                .collect(),
        };
        Panel {
            title,
            x: Axis::message_size(),
            y: Axis::new(label, scale, words),
            lines: plan
                .schemes
                .iter()
                .filter(|s| tcp || s.of_shunt())
                .map(|&scheme| line(scheme))
                .collect(),
        }
    };
    let mut panels = Vec::new();
    for receiver in Receiver::ALL {
        let title = format!("bandwidth, {}", receiver.title());
        panels.push(panel(
            title,
            receiver,
            "MB/s",
            Scale::Decades,
            table::tick,
            |p| Some(p.rate()),
            true,
        ));
    }
    for receiver in Receiver::ALL {
        let title = format!("coalescing, {receiver:?} receiver").to_lowercase();
        let label = "messages of the program for one on the wire";
        panels.push(panel(
            title,
            receiver,
            label,
            Scale::Decades,
            table::tick,
            Point::coalesced,
            false,
        ));
    }
    for receiver in Receiver::ALL {
        let title = format!("receive buffer, {receiver:?} receiver").to_lowercase();
        let label = "most payload in it at once, share of what is reserved, % (logarithmic)";
        panels.push(panel(
            title,
            receiver,
            label,
            Scale::Decades,
            |v| table::tick(v * 100.0),
            Point::used,
            false,
        ));
    }
    let kernel = runs.iter().find_map(|run| run.sndbuf.zip(run.rcvbuf));
    Picture {
        title: "Figure 4.5: one-way bandwidth under the three flow controls".into(),
        notes: notes(plan, "byte", kernel),
        columns: 2,
        panels,
    }
}

pub(super) fn tables(points: &[Point]) -> String {
    let mut text = String::new();
    for receiver in Receiver::ALL {
        let chosen: Vec<Point> = points
            .iter()
            .filter(|point| point.receiver == receiver)
            .cloned()
            .collect();
        let schemes = keys(&chosen, |point| point.scheme);
        let mut matrix = |title: &str, shown: &[Scheme], cell: &dyn Fn(&Point) -> String| {
            let mut table = Table::new(
                ["bytes"]
                    .into_iter()
                    .chain(shown.iter().map(|scheme| scheme.title())),
            );
            for (size, row) in groups(&chosen, |point| point.size) {
                let of = |scheme: &Scheme| {
                    row.iter()
                        .find(|point| point.scheme == *scheme)
                        .map_or("–".into(), |point| cell(point))
                };
                table.row(
                    [table::size(size as f64)]
                        .into_iter()
                        .chain(shown.iter().map(of)),
                );
            }
            text += &format!("{title}, {}\n\n{}\n", receiver.title(), table.text());
        };
        matrix("Bandwidth, MB/s", &schemes, &|point| {
            table::quartiles(Some(point.rate()))
        });
        let ours: Vec<Scheme> = schemes
            .iter()
            .copied()
            .filter(|scheme| scheme.of_shunt())
            .collect();
        if !ours.is_empty() {
            let title = "Messages of the program for one on the wire · % of the receive buffer used at most · out of \
                         room, events and credit updates for each message";
            matrix(title, &ours, &|point| {
                let percent = point.buffer_used.map(|share| share * 100.0);
                [
                    point.coalescing,
                    percent,
                    point.no_credit_per_message,
                    point.events_per_message,
                    point.updates_per_message,
                ]
                .map(table::number)
                .join(" · ")
            });
        }
    }
    text
}
