//! One row of the table: the samples of both sides, and whether the target was met. Made by the measurements of `cost` and `wire`. Pure
//! arithmetic.

use serde::Serialize;

use super::pair::Side;
use crate::stats::{Spread, short};

/// What must be reached.
#[derive(Clone, Copy)]
pub(crate) enum Target {
    /// Shunt's median, in the row's unit.
    AtMost(f64),
    AtLeast(f64),
    /// So much above kernel TCP at most: the median of the differences of neighbours in time.
    ExtraAtMost(f64),
    /// So many times kernel TCP's: the median of the ratios of neighbours in time.
    TimesAtLeast(f64),
    TimesAtMost(f64),
    /// Nothing: it is what others are held against.
    None,
}

/// The samples of one measurement, in the order in which they were taken.
#[derive(Default)]
pub(crate) struct Samples {
    kernel: Vec<f64>,
    shunt: Vec<f64>,
    failure: Option<String>,
}

impl Samples {
    /// Takes one in. False if it failed: a measurement with a failed run has no result.
    pub(crate) fn add(&mut self, side: Side, sample: anyhow::Result<f64>) -> bool {
        match sample {
            Ok(value) if side == Side::Kernel => self.kernel.push(value),
            Ok(value) => self.shunt.push(value),
            Err(error) => self.failure = Some(format!("{side:?}: {error:#}")),
        }
        self.failure.is_none()
    }

    /// What is made of each sample and the one of kernel TCP that was taken beside it.
    fn neighbours(&self, make: impl Fn(f64, f64) -> f64) -> Vec<f64> {
        let pairs = self.shunt.iter().zip(&self.kernel);
        pairs.map(|(&shunt, &kernel)| make(shunt, kernel)).collect()
    }

    /// Why there is no result, if that is so.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.clone()
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub name: String,
    pub what: String,
    pub unit: &'static str,
    pub kernel: Option<Spread>,
    pub shunt: Option<Spread>,
    pub target: String,
    pub reached: Option<f64>,
    /// Nothing where there is no target.
    pub met: Option<bool>,
    /// What helps to understand it.
    pub note: String,
    pub failed: Option<String>,
    pub kernel_values: Vec<f64>,
    pub shunt_values: Vec<f64>,
}

impl Row {
    pub(crate) fn judge(
        name: impl Into<String>,
        what: impl Into<String>,
        unit: &'static str,
        target: Target,
        samples: Samples,
    ) -> Self {
        let (kernel, shunt) = (Spread::of(&samples.kernel), Spread::of(&samples.shunt));
        let reached = target
            .reached(&samples)
            .filter(|_| samples.failure.is_none());
        Self {
            name: name.into(),
            what: what.into(),
            unit,
            kernel,
            shunt,
            target: target.in_words(unit),
            reached,
            met: target.is_met(reached),
            note: String::new(),
            failed: samples.failure,
            kernel_values: samples.kernel,
            shunt_values: samples.shunt,
        }
    }

    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }
}

impl Target {
    fn reached(self, samples: &Samples) -> Option<f64> {
        let values = match self {
            Self::AtMost(_) | Self::AtLeast(_) | Self::None => samples.shunt.clone(),
            Self::ExtraAtMost(_) => samples.neighbours(|shunt, kernel| shunt - kernel),
            Self::TimesAtLeast(_) | Self::TimesAtMost(_) => {
                samples.neighbours(|shunt, kernel| shunt / kernel)
            }
        };
        Spread::of(&values).map(|spread| spread.median)
    }

    fn is_met(self, reached: Option<f64>) -> Option<bool> {
        let met = |is: &dyn Fn(f64) -> bool| Some(reached.is_some_and(is));
        match self {
            Self::AtMost(most) | Self::ExtraAtMost(most) | Self::TimesAtMost(most) => {
                met(&|reached| reached <= most)
            }
            Self::AtLeast(least) | Self::TimesAtLeast(least) => met(&|reached| reached >= least),
            Self::None => None,
        }
    }

    fn in_words(self, unit: &str) -> String {
        match self {
            Self::AtMost(x) => format!("≤ {} {unit}", short(x)),
            Self::AtLeast(x) => format!("≥ {} {unit}", short(x)),
            Self::ExtraAtMost(x) => format!("≤ +{} {unit}", short(x)),
            Self::TimesAtLeast(x) => format!("≥ {} ×", short(x)),
            Self::TimesAtMost(x) => format!("≤ {} ×", short(x)),
            Self::None => "–".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(target: Target, kernel: &[f64], shunt: &[f64]) -> Row {
        let mut samples = Samples::default();
        for &value in kernel {
            samples.add(Side::Kernel, Ok(value));
        }
        for &value in shunt {
            samples.add(Side::Shunt, Ok(value));
        }
        Row::judge("n", "w", "ns", target, samples)
    }

    #[test]
    fn differences_are_of_neighbours_in_time() {
        // The machine gets slower and slower; Shunt always takes 4 more.
        let (kernel, shunt) = ([10.0, 20.0, 30.0], [14.0, 24.0, 34.0]);
        let row = row(Target::ExtraAtMost(5.0), &kernel, &shunt);
        assert_eq!((row.reached, row.met), (Some(4.0), Some(true)));
    }

    #[test]
    fn ratios_are_of_neighbours_in_time() {
        let (kernel, shunt) = ([1.0, 2.0, 4.0], [2.0, 4.0, 8.0]);
        let reached = |target| row(target, &kernel, &shunt).met;
        assert_eq!(reached(Target::TimesAtLeast(2.0)), Some(true));
        assert_eq!(reached(Target::TimesAtLeast(2.1)), Some(false));
        assert_eq!(reached(Target::TimesAtMost(1.9)), Some(false));
    }

    #[test]
    fn medians_are_held_against_the_target() {
        let met = |target, kernel: &[f64], shunt: &[f64]| row(target, kernel, shunt).met;
        assert_eq!(met(Target::AtMost(5.0), &[], &[1.0, 5.0, 90.0]), Some(true));
        assert_eq!(
            met(Target::AtLeast(5.0), &[9.0], &[1.0, 4.0, 90.0]),
            Some(false)
        );
        assert_eq!(met(Target::AtMost(5.0), &[1.0], &[]), Some(false));
        assert_eq!(met(Target::None, &[1.0], &[1.0]), None);
    }

    #[test]
    fn one_failed_run_fails_the_row() {
        let mut samples = Samples::default();
        assert!(samples.add(Side::Shunt, Ok(1.0)));
        assert!(!samples.add(Side::Shunt, Err(anyhow::anyhow!("on the kernel"))));
        let row = Row::judge("n", "w", "ns", Target::AtMost(5.0), samples);
        assert_eq!(row.met, Some(false));
        assert!(row.failed.is_some() && row.reached.is_none());
    }
}
