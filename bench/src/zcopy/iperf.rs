//! iperf3 with its default block of 128 KiB, as a user would run it. Kernel TCP is measured with both ends on two cores,
//! on one, and where the scheduler puts them: the library is held against whichever is fastest. `bench compare` has
//! iperf3 too, beside other programs; here it is for the modes.

use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;
use serde_json::Value;

use super::Plan;
use super::lab::{Lab, Place, client_name, server_name};
use super::mode::Mode;
use super::proof::{Claim, share_of};
use super::show::{MARKS, mark};
use super::targets::Measured;
use crate::run::{Program, find, free_port, wait_listening};
use crate::stats::Quartiles;
use crate::table::{self, Table, groups};

#[derive(Serialize)]
struct Run {
    mode: Mode,
    place: String,
    round: usize,
    gb_per_s: f64,
    zcopy_share: Option<f64>,
    claim: Claim,
}

/// One row.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub mode: Mode,
    pub place: String,
    pub rate: Quartiles,
    pub zcopy_share: Option<f64>,
    pub claim: Claim,
}

pub(super) fn make(lab: &Lab, plan: &Plan, measured: &mut Measured) -> anyhow::Result<String> {
    if find("iperf3").is_none() {
        return Ok("iperf3: not installed, skipped\n".into());
    }
    let mut runs = Vec::new();
    for round in 0..plan.rounds {
        for mode in plan.turns(round) {
            let places: &[Place] = match mode {
                Mode::Tcp => &[Place::Apart, Place::Together, Place::Free],
                _ => &[Place::Apart],
            };
            for &place in places {
                let what = format!("iperf3, {}", mode.title());
                let (gb_per_s, zcopy_share) = lab.again(&what, || once(lab, mode, place))?;
                runs.push(Run {
                    mode,
                    place: in_words(place).into(),
                    round,
                    gb_per_s,
                    zcopy_share,
                    claim: Claim::of(mode, zcopy_share),
                });
            }
        }
        println!("  round {} of {}", round + 1, plan.rounds);
    }
    table::write_csv(&plan.out, "iperf3-runs", &runs)?;
    measured.iperf = points(&runs);
    let mut table = Table::new(["iperf3, default block", "where", "GB/s"]);
    for point in &measured.iperf {
        table.row([
            point.mode.title().to_owned() + &mark(point.mode, point.claim, point.zcopy_share),
            point.place.clone(),
            table::quartiles(Some(point.rate)),
        ]);
    }
    Ok(table.text() + MARKS)
}

fn in_words(place: Place) -> &'static str {
    match place {
        Place::Apart => "a core each",
        Place::Together => "both on one core",
        Place::Free => "not pinned",
    }
}

/// GB/s that arrived, and the share that went without the ring.
fn once(lab: &Lab, mode: Mode, place: Place) -> anyhow::Result<(f64, Option<f64>)> {
    let port = free_port()?;
    let to = port.to_string();
    let ends = [server_name(0), client_name(0)];
    let server = Program::new("iperf3").args(["-s", "-1", "-p", &to]);
    let server = lab.start(mode, place, &ends[0], &server)?;
    wait_listening(port, &server)?;
    let client = Program::new("iperf3").args(["-c", "127.0.0.1", "-p", &to, "-J", "-t", "1"]);
    let client = lab.start(mode, place, &ends[1], &client)?;
    let client = client.finish(Duration::from_secs(20))?;
    server.finish_or_terminate(Duration::from_secs(3))?;
    let result: Value = serde_json::from_str(&client.output)?;
    let rate = result["end"]["sum_received"]["bits_per_second"].as_f64();
    let rate = rate.with_context(|| format!("not understood: {}", client.output))?;
    Ok((rate / 8e9, lab.zcopy_share(mode, &ends)?))
}

fn points(runs: &[Run]) -> Vec<Point> {
    let point = |((mode, place), runs): ((Mode, String), Vec<&Run>)| {
        Some(Point {
            mode,
            place,
            rate: table::spread(&runs, |run| Some(run.gb_per_s))?,
            zcopy_share: share_of(mode, &runs, |run| run.zcopy_share),
            claim: runs.iter().map(|run| run.claim).min()?,
        })
    };
    let groups = groups(runs, |run| (run.mode, run.place.clone()));
    groups.into_iter().filter_map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_tcp_has_a_row_for_each_place() {
        let run = |mode, place, gb_per_s| Run {
            mode,
            place: in_words(place).into(),
            round: 0,
            gb_per_s,
            zcopy_share: None,
            claim: Claim::Held,
        };
        let runs = [
            run(Mode::Tcp, Place::Apart, 3.0),
            run(Mode::Tcp, Place::Together, 5.0),
            run(Mode::Off, Place::Apart, 9.0),
            run(Mode::Tcp, Place::Apart, 4.0),
        ];
        let points = points(&runs);
        assert_eq!(points.len(), 3);
        assert_eq!((points[0].rate.median, points[1].rate.median), (3.5, 5.0));
    }
}
