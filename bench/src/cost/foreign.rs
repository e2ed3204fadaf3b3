//! `read` on a descriptor that is not ours. Called by `cost`.

use std::time::Duration;

use anyhow::ensure;

use crate::sides::{Lab, Pair, Plan, Row, Samples, Target};

/// Most that a call may take longer.
const MOST_NS: f64 = 5.0;

/// Short turns: a few nanoseconds show only when the sides alternate faster than the machine changes its mood.
const TURNS: usize = 4;

pub(super) fn rows(lab: &Lab, plan: &Plan) -> Vec<Row> {
    [0, 1].map(|size| row(lab, plan, size)).into()
}

fn row(lab: &Lab, plan: &Plan, size: usize) -> Row {
    let seconds = plan.pick(0.1, 0.25);
    let args = [
        "--size",
        &size.to_string(),
        "--seconds",
        &seconds.to_string(),
    ]
    .map(String::from);
    let pair = Pair {
        server: None,
        client: ("read-other", &args),
        limit: Duration::from_secs(20),
    };
    let mut samples = Samples::default();
    plan.turns(TURNS, |side| {
        let sample = lab.run(side, &pair).and_then(|(client, _)| {
            let ns = client.number("/ns_per_call")?;
            ensure!(ns > 0.0, "nothing was measured");
            Ok(ns)
        });
        samples.add(side, sample)
    });
    let what = format!("read of {size} bytes of /dev/zero");
    let target = Target::ExtraAtMost(MOST_NS);
    Row::judge(format!("read-other-{size}"), what, "ns", target, samples)
}
