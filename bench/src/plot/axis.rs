//! One axis of a panel: from a value to a place between 0 and 1, and which values get a mark. Pure arithmetic; called by
//! `plot`.

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scale {
    /// From zero.
    Linear,
    /// With marks at powers of ten and, where there are few of them, between.
    Decades,
    /// With marks at powers of two.
    Doublings,
}

/// An axis with its ends fixed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Range {
    scale: Scale,
    low: f64,
    high: f64,
}

impl Range {
    /// Holds every value, with a little air; something to draw even where there is none. On a logarithmic axis only
    /// values above zero have a place.
    pub(super) fn holding(scale: Scale, values: impl Iterator<Item = f64> + Clone) -> Self {
        let usable = values.filter(|v| v.is_finite() && (scale == Scale::Linear || *v > 0.0));
        let low = usable.clone().fold(f64::INFINITY, f64::min);
        let high = usable.fold(f64::NEG_INFINITY, f64::max);
        let (low, high) = if low <= high { (low, high) } else { (1.0, 1.0) };
        let (low, high) = match scale {
            Scale::Linear => (low.min(0.0), if high > 0.0 { high * 1.05 } else { 1.0 }),
            Scale::Decades => (low / 1.3, high * 1.3),
            Scale::Doublings => (low / 1.2, high * 1.2),
        };
        Self { scale, low, high }
    }

    /// 0 at the low end, 1 at the high one; none for what has no place.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            _ => (value / self.low).ln() / (self.high / self.low).ln(),
        };
        (share.is_finite() && (-0.001..=1.001).contains(&share)).then_some(share)
    }

    /// About this many marks or fewer.
    pub(super) fn ticks(&self, wanted: usize) -> Vec<f64> {
        let wanted = wanted.max(2) as f64;
        match self.scale {
            Scale::Linear => {
                let step = round_step((self.high - self.low) / wanted);
                let first = (self.low / step).ceil() as i64;
                let last = (self.high / step).floor() as i64;
                (first..=last).map(|n| n as f64 * step).collect()
            }
            Scale::Doublings => {
                let (first, last) = (self.low.log2().ceil(), self.high.log2().floor());
                let step = ((last - first) / wanted).ceil().max(1.0);
                // Four bytes, sixteen bytes: every other power rather than every third.
                let step = if step > 1.0 {
                    (step / 2.0).ceil() * 2.0
                } else {
                    step
                };
                steps(first, last, step).map(f64::exp2).collect()
            }
            Scale::Decades => {
                let (first, last) = (self.low.log10().floor(), self.high.log10().ceil());
                let between: &[f64] = if (self.high / self.low).log10() * 3.0 <= wanted {
                    &[1.0, 2.0, 5.0]
                } else {
                    &[1.0]
                };
                let step = ((last - first) / wanted).ceil().max(1.0);
                steps(first, last, step)
                    .flat_map(|power| between.iter().map(move |n| n * 10_f64.powf(power)))
                    .filter(|tick| (self.low..=self.high).contains(tick))
                    .collect()
            }
        }
    }
}

fn steps(first: f64, last: f64, step: f64) -> impl Iterator<Item = f64> {
    std::iter::successors(Some(first), move |n| Some(n + step)).take_while(move |n| *n <= last)
}

/// The next of 1, 2, 5 times a power of ten.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let times = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|times| times * power >= least * 0.999);
    times.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_axis_begins_at_zero() {
        let range = Range::holding(Scale::Linear, [300.0, 1000.0].into_iter());
        assert_eq!(range.place(0.0), Some(0.0));
        assert!(range.place(1000.0).unwrap() < 1.0);
        assert_eq!(range.ticks(5), [0.0, 500.0, 1000.0]);
    }

    #[test]
    fn doublings_mark_powers_of_two() {
        let range = Range::holding(Scale::Doublings, [1.0, 65_536.0].into_iter());
        assert_eq!(
            range.ticks(9),
            [
                1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16_384.0, 65_536.0
            ]
        );
        let middle = range.place(256.0).unwrap();
        assert!((middle - 0.5).abs() < 1e-9);
    }

    #[test]
    fn decades_mark_more_where_there_are_few() {
        let close = |got: Vec<f64>, want: &[f64]| {
            assert_eq!(got.len(), want.len(), "{got:?}");
            assert!(
                got.iter()
                    .zip(want)
                    .all(|(a, b)| (a / b - 1.0).abs() < 1e-9),
                "{got:?}"
            );
        };
        let wide = Range::holding(Scale::Decades, [1.0, 1e6].into_iter());
        close(wide.ticks(8), &[1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6]);
        let narrow = Range::holding(Scale::Decades, [1.5, 30.0].into_iter());
        close(narrow.ticks(8), &[2.0, 5.0, 10.0, 20.0]);
    }

    #[test]
    fn nothing_and_zero_do_no_harm() {
        let empty = Range::holding(Scale::Decades, std::iter::empty());
        assert!(empty.place(1.0).is_some());
        let range = Range::holding(Scale::Decades, [0.0, 10.0].into_iter());
        assert_eq!(range.place(0.0), None);
        let flat = Range::holding(Scale::Linear, [0.0].into_iter());
        assert_eq!(flat.place(0.0), Some(0.0));
    }
}
