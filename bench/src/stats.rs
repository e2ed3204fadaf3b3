//! Medians, ranges and percentiles; every subcommand calls it. Pure arithmetic.

use serde::{Deserialize, Serialize};

/// Median and range of a handful of repetitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// None where there is nothing to summarise.
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let half = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            0 => (sorted[half - 1] + sorted[half]) / 2.0,
            _ => sorted[half],
        };
        Some(Self { median, min, max })
    }
}

impl std::fmt::Display for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} ({}–{})",
            short(self.median),
            short(self.min),
            short(self.max)
        )
    }
}

/// The five numbers of a set of repetitions: what error bars and tables show.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Quartiles {
    pub min: f64,
    pub q1: f64,
    pub median: f64,
    pub q3: f64,
    pub max: f64,
}

impl Quartiles {
    /// None where there is nothing to summarise. Between two values it interpolates.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        let at = |share: f64| {
            let place = last as f64 * share;
            let below = place.floor() as usize;
            let above = sorted[(below + 1).min(last)];
            sorted[below] + (above - sorted[below]) * place.fract()
        };
        let [min, q1, median, q3, max] = [0.0, 0.25, 0.5, 0.75, 1.0].map(at);
        Some(Self {
            min,
            q1,
            median,
            q3,
            max,
        })
    }
}

/// The slope of the straight line that lies nearest to the points (least squares); none for fewer than two places.
pub(crate) fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let run: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
    let rise: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    (run > 0.0).then(|| rise / run)
}

/// Three significant digits, with k and M above ten thousand and a million.
pub(crate) fn short(value: f64) -> String {
    let (scaled, suffix) = match value.abs() {
        v if v >= 1e6 => (value / 1e6, "M"),
        v if v >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let decimals = match scaled.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        v if v >= 0.1 => 3,
        _ => 4,
    };
    format!("{scaled:.decimals$}{suffix}")
}

/// The value below which `share` (0..=1) of the samples lie; sorts them. Zero for no samples.
pub(crate) fn percentile(samples: &mut [u32], share: f64) -> u32 {
    if samples.is_empty() {
        return 0;
    }
    let last = samples.len() - 1;
    let rank = (last as f64 * share).round() as usize;
    *samples.select_nth_unstable(rank.min(last)).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_of_odd_even_and_nothing() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(
            Spread::of(&[3.0, 1.0, 2.0]),
            Some(Spread {
                median: 2.0,
                min: 1.0,
                max: 3.0
            })
        );
        assert_eq!(
            Spread::of(&[4.0, 1.0]),
            Some(Spread {
                median: 2.5,
                min: 1.0,
                max: 4.0
            })
        );
    }

    #[test]
    fn percentiles() {
        let mut samples: Vec<u32> = (0..=100).rev().collect();
        assert_eq!(percentile(&mut samples, 0.5), 50);
        assert_eq!(percentile(&mut samples, 0.99), 99);
        assert_eq!(percentile(&mut [], 0.5), 0);
    }

    #[test]
    fn quartiles_of_many_two_one_and_nothing() {
        assert_eq!(Quartiles::of([]), None);
        let one = Quartiles::of([7.0]).unwrap();
        assert_eq!(
            (one.min, one.q1, one.median, one.q3, one.max),
            (7.0, 7.0, 7.0, 7.0, 7.0)
        );
        let two = Quartiles::of([2.0, 1.0]).unwrap();
        assert_eq!((two.q1, two.median, two.q3), (1.25, 1.5, 1.75));
        let many = Quartiles::of([5.0, 1.0, 4.0, 2.0, 3.0]).unwrap();
        assert_eq!(
            (many.min, many.q1, many.median, many.q3, many.max),
            (1.0, 2.0, 3.0, 4.0, 5.0)
        );
    }

    #[test]
    fn slopes() {
        assert_eq!(slope(&[(1.0, 5.0), (2.0, 7.0), (4.0, 11.0)]), Some(2.0));
        // One point above and one below the line leave it where it is.
        assert_eq!(slope(&[(0.0, 1.0), (1.0, -1.0), (2.0, 1.0)]), Some(0.0));
        assert_eq!(slope(&[(1.0, 5.0), (1.0, 6.0)]), None);
        assert_eq!(slope(&[]), None);
    }

    #[test]
    fn short_numbers() {
        assert_eq!(short(0.456), "0.456");
        assert_eq!(short(65.84), "65.8");
        assert_eq!(short(2_140_000.0), "2.14M");
        assert_eq!(short(51_700.0), "51.7k");
    }
}
