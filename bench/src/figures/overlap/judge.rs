//! What the overlap test says in numbers: how fast the time of an iteration grows with the computation, and how many times
//! longer packetized takes than the others. Pure arithmetic over the runs; called by `overlap`.
//!
//! Each repetition gives one slope and one ratio, of runs that were made close together; shown are the median of these
//! and their quartiles.

use serde::Serialize;

use super::super::scheme::Scheme;
use super::{Pilot, Receiver, Run, Variant, Wait};
use crate::stats::{Quartiles, slope};
use crate::table::groups;

pub(super) struct Verdicts {
    pub slopes: Vec<Slope>,
    pub ratios: Vec<Ratio>,
}

/// How a scheme's curve climbs. Side by side the slope is 1, one after the other it is 2.
#[derive(Serialize)]
pub(super) struct Slope {
    pub wait: Wait,
    pub receiver: Receiver,
    pub scheme: Scheme,
    /// Half of an iteration without computation, less the lag of the receiver: this scheme's own b.
    pub burst_us: f64,
    /// Fitted to the points with at least this much computation.
    pub from_us: f64,
    pub slope: f64,
    pub slope_q1: f64,
    pub slope_q3: f64,
}

/// Iteration time of packetized over that of another scheme, with the same computation.
#[derive(Serialize)]
pub(super) struct Ratio {
    pub wait: Wait,
    pub receiver: Receiver,
    pub over: Scheme,
    pub compute_us: f64,
    /// Computation as a multiple of b, the burst's time that the steps were chosen with.
    pub compute_over_burst: f64,
    pub ratio: f64,
    pub ratio_q1: f64,
    pub ratio_q3: f64,
    /// What it would be if packetized left the rest of its burst behind, and the other did not.
    pub model: f64,
}

pub(super) fn judge(runs: &[Run], pilots: &[Pilot]) -> Verdicts {
    let variants = groups(runs, Run::variant);
    let slopes = variants.iter().flat_map(|(variant, runs)| {
        groups(runs, |run| run.scheme)
            .into_iter()
            .filter_map(|(scheme, runs)| {
                let runs: Vec<&Run> = runs.into_iter().copied().collect();
                slope_of(*variant, scheme, &runs)
            })
    });
    let ratios = variants.iter().flat_map(|(variant, runs)| {
        let pilot = pilots.iter().find(|pilot| pilot.wait == variant.wait);
        let burst_us = pilot.map_or(0.0, |pilot| pilot.burst_us);
        ratios_of(*variant, runs, burst_us)
    });
    Verdicts {
        slopes: slopes.collect(),
        ratios: ratios.collect(),
    }
}

/// Fitted from a third of the longest computation on, where b no longer matters.
fn slope_of(variant: Variant, scheme: Scheme, runs: &[&Run]) -> Option<Slope> {
    let longest = runs.iter().map(|run| run.compute_us).fold(0.0, f64::max);
    let from_us = longest / 3.0;
    let of_each = groups(runs, |run| run.repetition)
        .into_iter()
        .filter_map(|(_, runs)| {
            let far = runs.iter().filter(|run| run.compute_us >= from_us * 0.999);
            slope(
                &far.map(|run| (run.compute_us, run.p50_us))
                    .collect::<Vec<_>>(),
            )
        });
    let slopes = Quartiles::of(of_each)?;
    let idle = runs.iter().filter(|run| run.compute_us == 0.0);
    let idle = Quartiles::of(idle.map(|run| (run.p50_us - run.lag_us) / 2.0))?;
    Some(Slope {
        wait: variant.wait,
        receiver: variant.receiver,
        scheme,
        burst_us: idle.median,
        from_us,
        slope: slopes.median,
        slope_q1: slopes.q1,
        slope_q3: slopes.q3,
    })
}

fn ratios_of(variant: Variant, runs: &[&Run], burst_us: f64) -> Vec<Ratio> {
    let lag_us = runs.iter().map(|run| run.lag_us).fold(0.0, f64::max);
    let mut ratios = Vec::new();
    for over in Scheme::ALL
        .into_iter()
        .filter(|scheme| *scheme != Scheme::Packetized)
    {
        for (compute_us, runs) in groups(runs, |run| run.compute_us) {
            let time = |scheme, repetition| {
                let of = |run: &&&&Run| run.scheme == scheme && run.repetition == repetition;
                runs.iter().find(of).map(|run| run.p50_us)
            };
            let repetitions = groups(&runs, |run| run.repetition)
                .into_iter()
                .map(|(n, _)| n);
            let of_each =
                repetitions.filter_map(|n| Some(time(Scheme::Packetized, n)? / time(over, n)?));
            ratios.extend(Quartiles::of(of_each).map(|ratio| Ratio {
                wait: variant.wait,
                receiver: variant.receiver,
                over,
                compute_us,
                compute_over_burst: if burst_us > 0.0 {
                    compute_us / burst_us
                } else {
                    0.0
                },
                ratio: ratio.median,
                ratio_q1: ratio.q1,
                ratio_q3: ratio.q3,
                model: model(burst_us, lag_us, compute_us),
            }));
        }
    }
    ratios
}

/// An iteration in which the computations run side by side: both bursts, one computation, and the receiver's lag.
pub(super) fn side_by_side(burst_us: f64, lag_us: f64, compute_us: f64) -> f64 {
    2.0 * burst_us + lag_us + compute_us
}

/// An iteration in which the receiver gets the rest of its burst only when the sender has computed.
pub(super) fn one_after_the_other(burst_us: f64, lag_us: f64, compute_us: f64) -> f64 {
    2.0 * burst_us + lag_us.max(compute_us) + compute_us
}

fn model(burst_us: f64, lag_us: f64, compute_us: f64) -> f64 {
    one_after_the_other(burst_us, lag_us, compute_us) / side_by_side(burst_us, lag_us, compute_us)
}

#[cfg(test)]
mod tests {
    use super::*;

    const B: f64 = 50.0;
    const VARIANT: Variant = Variant {
        wait: Wait::Spinning,
        receiver: Receiver::Late,
    };

    /// Runs that follow the models exactly, but for one repetition in which everything took a tenth longer.
    fn runs() -> Vec<Run> {
        let mut runs = Vec::new();
        for repetition in 0..3 {
            for compute_us in [0.0, B / 4.0, B, 4.0 * B, 1000.0, 2000.0, 3000.0] {
                for scheme in [Scheme::Credit, Scheme::Packetized] {
                    let time = match scheme {
                        Scheme::Packetized => one_after_the_other(B, B, compute_us),
                        _ => side_by_side(B, B, compute_us),
                    };
                    let time = if repetition == 1 { time * 1.1 } else { time };
                    runs.push(Run {
                        wait: VARIANT.wait,
                        receiver: VARIANT.receiver,
                        scheme,
                        buffer: "64k".into(),
                        lag_us: B,
                        compute_us,
                        repetition,
                        iterations: 200.0,
                        p25_us: time,
                        p50_us: time,
                        p75_us: time,
                        no_credit_per_iteration: None,
                        stretch: None,
                        sndbuf: None,
                        rcvbuf: None,
                    });
                }
            }
        }
        runs
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-6
    }

    #[test]
    fn slopes_of_one_and_two_are_found() {
        let pilots = [Pilot {
            wait: Wait::Spinning,
            burst_us: B,
            lag_us: B,
        }];
        let slopes = judge(&runs(), &pilots).slopes;
        assert_eq!(slopes.len(), 2);
        assert!(close(slopes[0].slope, 1.0) && close(slopes[1].slope, 2.0));
        assert!(close(slopes[0].burst_us, B) && close(slopes[0].from_us, 1000.0));
        assert!(close(slopes[1].slope_q3, 2.1));
    }

    #[test]
    fn ratios_are_of_runs_of_the_same_repetition() {
        let pilots = [Pilot {
            wait: Wait::Spinning,
            burst_us: B,
            lag_us: B,
        }];
        let ratios = judge(&runs(), &pilots).ratios;
        let at = |share: f64| {
            let found = ratios
                .iter()
                .find(|ratio| close(ratio.compute_over_burst, share))
                .unwrap();
            assert_eq!(found.over, Scheme::Credit);
            assert!(close(found.ratio_q1, found.ratio_q3) && close(found.ratio, found.model));
            found.ratio
        };
        assert!(close(at(0.25), 1.0) && close(at(1.0), 1.0) && close(at(4.0), 10.0 / 7.0));
    }
}
