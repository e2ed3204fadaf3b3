//! A call that takes an idle connection back to kernel TCP. Called by `cost`.

use std::time::Duration;

use anyhow::ensure;

use crate::sides::{Lab, Pair, Plan, Row, Samples, Target};
use crate::stats::Spread;

/// A call, what the report says of it, and in words.
const CALLS: [(&str, &str, &str); 2] = [
    ("dprintf", "stdio", "dprintf on an idle connection"),
    (
        "oob",
        "urgent_data",
        "send with MSG_OOB on an idle connection",
    ),
];

/// A millisecond.
const MOST_US: f64 = 1000.0;

pub(super) fn rows(lab: &Lab, plan: &Plan) -> Vec<Row> {
    CALLS.map(|call| row(lab, plan, call)).into()
}

fn row(lab: &Lab, plan: &Plan, (call, reason, what): (&str, &str, &str)) -> Row {
    let connections = plan.pick(50, 200);
    let count = ["--connections".to_owned(), connections.to_string()];
    let client = [&["--call".to_owned(), call.into()][..], &count].concat();
    let (mut samples, mut more) = (Samples::default(), [const { Vec::new() }; 3]);
    plan.turns(1, |side| {
        let mut once = || {
            let (client, server) = lab.run(
                side,
                &Pair {
                    server: Some(("pingpong-server", &count)),
                    client: ("demote-client", &client),
                    limit: Duration::from_secs(60),
                },
            )?;
            for end in [Some(&client), server.as_ref()].into_iter().flatten() {
                end.all_attached(connections)?;
            }
            if let Some(report) = client.report()? {
                let right = |demotions: &[String]| demotions == [reason];
                ensure!(
                    report.connections.iter().all(|c| right(&c.demotions)),
                    "not every connection was demoted once, for {reason}"
                );
                for (values, name) in more.iter_mut().zip(["call_p50", "call_max", "answer_p50"]) {
                    values.push(client.number(&format!("/{name}_us"))?);
                }
            }
            client.number("/call_p99_us")
        };
        samples.add(side, once())
    });
    let [p50, max, answer] =
        more.map(|values| Spread::of(&values).map_or("–".into(), |spread| spread.to_string()));
    let name = format!("demotion-{call}");
    let what = format!("{what}, 99 of 100 calls");
    Row::judge(name, what, "µs", Target::AtMost(MOST_US), samples).note(format!(
        "half of the calls {p50} µs, the longest {max} µs; {answer} µs until the peer has answered"
    ))
}
