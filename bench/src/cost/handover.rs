//! Two processes that use one stream in turn, as a program and its child after fork. Called by `cost`.
//!
//! The one that makes the next call takes the stream over from the other: what that adds to waking it, which two
//! processes that take turns do in any case, is set against the wake-up by itself, measured in the same run.

use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::sides::{CLIENT_CORE, End, Lab, Pair, Plan, Row, Samples, Side, Target};
use crate::stats::Spread;
use crate::sys;

/// A turn with a hand-over in it, in wake-ups.
const MOST_WAKE_UPS: f64 = 3.0;

/// Where the two processes run: in a name, in words, and the core of the second.
const PLACES: [(&str, &str, usize); 2] = [
    ("", "on a core each", 0),
    ("-same-core", "on one core", CLIENT_CORE),
];

/// What is done in a turn: in a name, in words, and what the program calls it.
const CALLS: [(&str, &str, &str); 2] = [
    ("receive", "receive a byte", "/receive_ns"),
    ("send", "send a byte", "/send_ns"),
];

/// Connections: the stream, and one on which the client tells the server what to do.
const CONNECTIONS: usize = 2;

pub(super) fn rows(lab: &Lab, plan: &Plan) -> Vec<Row> {
    PLACES
        .iter()
        .filter(|(.., core)| *core == CLIENT_CORE || sys::cores() > 1)
        .flat_map(|place| at(lab, plan, place))
        .collect()
}

fn at(lab: &Lab, plan: &Plan, &(suffix, place, core): &(&str, &str, usize)) -> Vec<Row> {
    let seconds = plan.pick(0.3, 1.0);
    let client = [
        "--seconds",
        &seconds.to_string(),
        "--second-core",
        &(core % sys::cores()).to_string(),
    ]
    .map(String::from);
    let pair = Pair {
        server: Some(("handover-server", &[])),
        client: ("handover-client", &client),
        limit: Duration::from_secs(60),
    };
    let mut wake_ups = Samples::default();
    let mut turns = [const { None::<Samples> }; CALLS.len()];
    // What the call adds, in µs: kernel TCP, Shunt.
    let mut added: [[Vec<f64>; 2]; CALLS.len()] = Default::default();
    plan.turns(1, |side| {
        let once = || {
            let (client, server) = lab.run(side, &pair)?;
            let server = server.context("no server")?;
            prove(side, &client, &server)?;
            let bare = client.number("/bare_ns")?;
            ensure!(bare > 0.0, "nothing was measured");
            let [receive, send] = CALLS.map(|(.., path)| client.number(path));
            anyhow::Ok((bare, [receive?, send?]))
        };
        match once() {
            Ok((bare, with)) => {
                for ((turns, added), with) in turns.iter_mut().zip(&mut added).zip(with) {
                    turns.get_or_insert_default().add(side, Ok(with / bare));
                    added[usize::from(side == Side::Shunt)].push((with - bare) / 1e3);
                }
                wake_ups.add(side, Ok(bare / 1e3))
            }
            Err(error) => wake_ups.add(side, Err(error)),
        }
    });
    let failure = wake_ups.failure();
    let mut rows = vec![Row::judge(
        format!("wake-up{suffix}"),
        format!("a futex wake-up between two processes {place}"),
        "µs",
        Target::None,
        wake_ups,
    )];
    let calls = CALLS.into_iter().zip(turns).zip(added);
    rows.extend(calls.map(|(((name, what, _), samples), added)| {
        let mut samples = samples.unwrap_or_default();
        if let Some(why) = &failure {
            samples.add(Side::Shunt, Err(anyhow::anyhow!("{why}")));
        }
        let [kernel, shunt] = added.map(|values| {
            Spread::of(&values).map_or("–".into(), |spread| format!("{spread} µs"))
        });
        Row::judge(
            format!("hand-over-{name}{suffix}"),
            format!("a turn of two processes {place} that {what} of one stream, in wake-ups"),
            "×",
            Target::AtMost(MOST_WAKE_UPS),
            samples,
        )
        .note(format!(
            "added to the wake-up: kernel TCP {kernel}, Shunt {shunt}"
        ))
    }));
    rows
}

/// Both processes moved their bytes over shared memory, and so did the server.
fn prove(side: Side, client: &End, server: &End) -> anyhow::Result<()> {
    if side == Side::Kernel {
        return Ok(());
    }
    server.all_attached(CONNECTIONS)?;
    let turns = client.number("/turns_each")? as u64;
    ensure!(
        client.reports.len() == 2,
        "{} reports of two processes",
        client.reports.len()
    );
    for report in &client.reports {
        let both_ways = |c: &&crate::sides::Connection| {
            c.transport == "shm"
                && c.demotions.is_empty()
                && c.bytes_sent >= turns
                && c.bytes_received >= turns
        };
        ensure!(
            report.totals.tcp == 0 && report.connections.iter().filter(both_ways).count() == 1,
            "one of the processes did not move its {turns} bytes each way over shared memory: {}",
            report.in_words()
        );
    }
    Ok(())
}
