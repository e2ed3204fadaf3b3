//! Many connections at once: that they all attach within the limits of the machine, what private memory each takes, and
//! whether idle ones slow busy ones down. Called by `cost`.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::sides::{End, Lab, Pair, Plan, Row, Samples, Side, Target};
use crate::stats::{Spread, short};

/// Connections at once.
const FEW: usize = 2000;
const MANY: usize = 10_000;
/// How many of them are busy.
const ACTIVE: usize = 100;

/// Private memory of a connection, at most.
const MOST_BYTES: f64 = 1024.0;
/// Rate of busy connections among many idle ones, as a share of their rate alone, at least.
const LEAST_SHARE: f64 = 0.9;

fn run(lab: &Lab, side: Side, all: usize, active: usize, seconds: f64) -> anyhow::Result<[End; 2]> {
    let all = ["--connections".to_owned(), all.to_string()];
    let busy = [
        "--active",
        &active.to_string(),
        "--seconds",
        &seconds.to_string(),
    ];
    let client = [&all[..], &busy.map(String::from)].concat();
    let (client, server) = lab.run(
        side,
        &Pair {
            server: Some(("crowd-server", &all)),
            client: ("crowd-client", &client),
            limit: Duration::from_secs(120),
        },
    )?;
    Ok([client, server.context("no server")?])
}

/// Memory of a connection at both ends, and how many attached.
pub(super) fn memory(lab: &Lab, plan: &Plan) -> Vec<Row> {
    let mut rows = Vec::new();
    for connections in [FEW, MANY] {
        let (mut attached, mut memory) = (Samples::default(), [const { None::<Samples> }; 2]);
        let mut notes = [String::new(), String::new()];
        plan.turns(1, |side| {
            let ends = match run(lab, side, connections, 0, 0.0) {
                Ok(ends) => ends,
                Err(error) => return attached.add(side, Err(error)),
            };
            let on_shm = |end: &End| end.reports.first().map(|report| report.totals.shm);
            if let Some(least) = ends.iter().filter_map(on_shm).min() {
                attached.add(side, Ok(least as f64));
            }
            for (n, end) in ends.iter().enumerate() {
                let samples = memory[n].get_or_insert_default();
                if !samples.add(side, end.number("/growth/private")) {
                    return false;
                }
                if side == Side::Shunt {
                    notes[n] = mappings(end);
                }
            }
            true
        });
        rows.push(Row::judge(
            format!("attached-{connections}"),
            format!("of {connections} connections at once, on shared memory at both ends"),
            "connections",
            Target::AtLeast(connections as f64),
            attached,
        ));
        let ends = ["client", "server"].into_iter().zip(memory).zip(notes);
        rows.extend(ends.map(|((end, samples), note)| {
            Row::judge(
                format!("memory-{connections}-{end}"),
                format!("private memory of one of {connections} connections, {end}"),
                "B",
                Target::ExtraAtMost(MOST_BYTES),
                samples.unwrap_or_default(),
            )
            .note(note)
        }));
    }
    rows
}

/// Where the memory lies.
fn mappings(end: &End) -> String {
    let of = |name: &str| {
        end.number(&format!("/growth/{name}"))
            .map_or("?".into(), short)
    };
    let by_mapping = end.output.pointer("/growth/by_mapping");
    let by_mapping: BTreeMap<String, f64> = by_mapping
        .and_then(|value| serde_json::from_value(value.clone()).ok())
        .unwrap_or_default();
    let parts: Vec<String> = by_mapping
        .iter()
        .filter(|(_, bytes)| bytes.abs() >= 1.0)
        .map(|(name, bytes)| format!("{} in {name}", short(*bytes)))
        .collect();
    format!(
        "{}; besides, shared with the peer {} B, page tables {} B, {} mappings",
        parts.join(", "),
        of("buffers"),
        of("page_tables"),
        of("mappings")
    )
}

/// Busy connections alone, and among many idle ones: by the clock, and by CPU time, which stands still while somebody
/// else has the core.
pub(super) fn active(lab: &Lab, plan: &Plan) -> Vec<Row> {
    let seconds = plan.pick(0.5, 2.0);
    let (mut rates, mut costs) = (Samples::default(), Samples::default());
    let mut seen: [[Vec<f64>; 2]; 2] = Default::default();
    plan.turns(1, |side| {
        let [alone_seen, among_seen] = &mut seen[usize::from(side == Side::Shunt)];
        let once = |all: usize, seen: &mut Vec<f64>| {
            let ends = run(lab, side, all, ACTIVE, seconds)?;
            ends.iter().try_for_each(|end| end.all_attached(all))?;
            let [client, _] = ends;
            let rate = client.number("/per_second")?;
            let cost = client.number("/cpu_ns_per_message")?;
            ensure!(rate > 0.0 && cost > 0.0, "nothing was measured");
            seen.push(rate);
            anyhow::Ok((rate, cost))
        };
        let both = once(ACTIVE, alone_seen).and_then(|alone| Ok((alone, once(MANY, among_seen)?)));
        match both {
            Ok((alone, among)) => {
                rates.add(side, Ok(among.0 / alone.0)) && costs.add(side, Ok(among.1 / alone.1))
            }
            Err(error) => rates.add(side, Err(error)),
        }
    });
    let median =
        |values: &[f64]| Spread::of(values).map_or("–".into(), |rate| short(rate.median));
    let [kernel, shunt] =
        seen.map(|[alone, among]| format!("{} → {}", median(&alone), median(&among)));
    let busy = format!("{ACTIVE} busy connections among {MANY}, over the same alone");
    vec![
        Row::judge(
            "active",
            format!("rate of 64 B round trips of {busy}"),
            "×",
            Target::AtLeast(LEAST_SHARE),
            rates,
        )
        .note(format!("per second: kernel TCP {kernel}, Shunt {shunt}")),
        Row::judge(
            "active-cpu",
            format!("the client's CPU time for a round trip of {busy}"),
            "×",
            Target::AtMost(1.0 / LEAST_SHARE),
            costs,
        ),
    ]
}
