//! What a step of so many rows costs, learnt from measured times.
//!
//! A curve is a level times a shape. All that slows every width alike (a longer context, clocks,
//! other load) moves the level at once; the shape, one value per measured count, moves slowly. Both
//! are small Kalman filters on logarithms, so a count that was never measured takes a surprise upon
//! itself instead of moving the level.

/// Shape of a count that was not measured, where nothing better is known: each unit beyond the
/// first costs this part of it.
const PRIOR_SLOPE: f64 = 0.10;
/// Variance of a measurement around its expectation (10 %).
const NOISE: f64 = 0.01;
/// The same where the device did not yet replay a recorded step (30 %).
const UNSETTLED_NOISE: f64 = 0.09;
/// Variance that the level gains with each measurement (2 %).
const LEVEL_DRIFT: f64 = 0.0004;
/// Variance that a point gains with each measurement of another count: 10 % after a thousand. None
/// with its own, or a growing context would be taken for a property of the width in use.
const POINT_DRIFT: f64 = 1e-5;
/// Variance of a point before it is measured (50 %) and of the first one, which only fixes the unit
/// (2 %).
const UNKNOWN: f64 = 0.25;
const UNIT: f64 = 0.0004;
/// Standard deviations beyond which a measurement is an accident: a rebuilt graph, a thread that
/// was not scheduled.
const ACCIDENT: f64 = 3.0;
/// Accidents in a row that are none: everything has become slower.
const ACCIDENTS_MAX: u32 = 3;
/// A single fast measurement (they have no accidental reason) moves the level by no more than this,
/// e^2.5 = 12x.
const FASTER_MAX: f64 = 2.5;
/// Points kept; the one not measured for longest makes room.
const POINTS_MAX: usize = 64;
/// Measurements outside of these are none, in seconds or in parts of a step.
const VALUE_MIN: f64 = 1e-6;
const VALUE_MAX: f64 = 600.0;

#[derive(Clone, Copy, Debug)]
struct Point {
    count: usize,
    /// Logarithm of the shape, and its variance.
    ln: f64,
    variance: f64,
    /// Value of `Curve::n_seen` when it was last measured.
    seen: u64,
}

/// Cost by count (of rows, of sequences). Allocates in `new` alone.
#[derive(Debug)]
pub(super) struct Curve {
    /// Logarithm of the level; of meaning when there are points.
    level: f64,
    level_variance: f64,
    /// By count.
    points: Vec<Point>,
    n_seen: u64,
    n_accidents: u32,
}

impl Curve {
    pub fn new() -> Curve {
        let points = Vec::with_capacity(POINTS_MAX);
        Curve { level: 0.0, level_variance: NOISE, points, n_seen: 0, n_accidents: 0 }
    }

    /// Something was measured.
    pub fn is_known(&self) -> bool {
        !self.points.is_empty()
    }

    /// The level, in the unit of the measurements; `None`: nothing was measured.
    pub fn level(&self) -> Option<f64> {
        self.is_known().then(|| self.level.exp())
    }

    /// Cost of `count` in the unit of the measurements; `None`: nothing was measured.
    pub fn cost(&self, count: usize) -> Option<f64> {
        self.is_known().then(|| self.level.exp() * self.shape(count))
    }

    /// Measurements since `count` was last measured; `None`: never, or forgotten.
    pub fn age(&self, count: usize) -> Option<u64> {
        let i = self.points.binary_search_by_key(&count, |p| p.count).ok()?;
        Some(self.n_seen - self.points[i].seen)
    }

    /// A measurement. What cannot be one (nothing, not a number, more than ten minutes) is ignored.
    /// `settled`: the device did as it will in the long run.
    pub fn observe(&mut self, count: usize, value: f64, settled: bool) {
        if count == 0 || !(VALUE_MIN..=VALUE_MAX).contains(&value) {
            return;
        }
        self.n_seen += 1;
        let noise = if settled { NOISE } else { UNSETTLED_NOISE };
        if !self.is_known() {
            let ln = prior_shape(count).ln();
            self.points.push(Point { count, ln, variance: UNIT, seen: self.n_seen });
            self.level = value.ln() - ln;
            self.level_variance = noise;
            return;
        }
        let i = self.point(count);
        self.level_variance += LEVEL_DRIFT;
        let point = &mut self.points[i];
        point.variance =
            (point.variance + POINT_DRIFT * (self.n_seen - point.seen).saturating_sub(1) as f64).min(UNKNOWN);
        point.seen = self.n_seen;

        let mut surprise = value.ln() - self.level - point.ln;
        let limit = ACCIDENT * (self.level_variance + point.variance + noise).sqrt();
        if surprise > limit {
            self.n_accidents += 1;
            if self.n_accidents < ACCIDENTS_MAX {
                surprise = limit;
            } else {
                self.n_accidents = 0;
                self.level_variance = self.level_variance.max(surprise * surprise);
            }
        } else {
            self.n_accidents = 0;
            if surprise < -limit {
                surprise = surprise.max(-FASTER_MAX);
                self.level_variance = self.level_variance.max(surprise * surprise);
            }
        }
        let total = self.level_variance + point.variance + noise;
        let (to_level, to_point) = (self.level_variance / total, point.variance / total);
        self.level += to_level * surprise;
        self.level_variance *= 1.0 - to_level;
        point.ln += to_point * surprise;
        point.variance *= 1.0 - to_point;
    }

    /// The point of `count`, made from its neighbours if there is none.
    fn point(&mut self, count: usize) -> usize {
        let Err(mut i) = self.points.binary_search_by_key(&count, |p| p.count) else {
            return self.points.partition_point(|p| p.count < count);
        };
        let point = Point { count, ln: self.shape(count).ln(), variance: UNKNOWN, seen: self.n_seen };
        if self.points.len() == POINTS_MAX {
            let oldest = self.points.iter().enumerate().min_by_key(|(_, p)| p.seen).map_or(0, |(at, _)| at);
            self.points.remove(oldest);
            i -= usize::from(oldest < i);
        }
        self.points.insert(i, point);
        i
    }

    /// The shape at `count`: measured, on the line between two measured counts, or continued with
    /// the mean slope of all.
    fn shape(&self, count: usize) -> f64 {
        let at = |p: &Point| (p.count as f64, p.ln.exp());
        let above = self.points.partition_point(|p| p.count < count);
        let x = count as f64;
        match (above.checked_sub(1).map(|i| at(&self.points[i])), self.points.get(above).map(at)) {
            (_, Some((x1, y1))) if x1 == x => y1,
            (Some((x0, y0)), Some((x1, y1))) => y0 + (y1 - y0) * (x - x0) / (x1 - x0),
            (Some((x0, y0)), None) => y0 + self.slope() * (x - x0),
            (None, Some((x1, y1))) => (y1 - self.slope() * (x1 - x)).max(0.3 * y1),
            (None, None) => prior_shape(count),
        }
    }

    /// Mean slope of the measured counts. Never below nothing: more rows are not cheaper.
    fn slope(&self) -> f64 {
        match (self.points.first(), self.points.last()) {
            (Some(a), Some(b)) if a.count < b.count => {
                ((b.ln.exp() - a.ln.exp()) / (b.count - a.count) as f64).max(0.0)
            }
            _ => PRIOR_SLOPE,
        }
    }
}

fn prior_shape(count: usize) -> f64 {
    1.0 + PRIOR_SLOPE * count.saturating_sub(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ratio(curve: &Curve, a: usize, b: usize) -> f64 {
        curve.cost(a).unwrap() / curve.cost(b).unwrap()
    }

    #[test]
    fn one_measurement_gives_all_widths_by_the_prior() {
        let mut curve = Curve::new();
        assert_eq!(curve.cost(1), None);
        curve.observe(4, 0.026, true);
        assert!((curve.cost(1).unwrap() - 0.020).abs() < 1e-9);
        assert!((curve.cost(11).unwrap() - 0.040).abs() < 1e-9);
    }

    #[test]
    fn a_new_width_learns_its_own_cost_and_leaves_the_others() {
        let mut curve = Curve::new();
        (0..20).for_each(|_| curve.observe(4, 0.0205, true));
        (0..2).for_each(|_| curve.observe(1, 0.010, true));
        assert!((ratio(&curve, 4, 1) - 2.05).abs() < 0.15, "{}", ratio(&curve, 4, 1));
        // Between and beyond: on the line.
        assert!((ratio(&curve, 2, 1) - 1.35).abs() < 0.1);
        assert!((ratio(&curve, 8, 1) - 3.45).abs() < 0.3);
    }

    #[test]
    fn a_longer_context_moves_all_widths_alike() {
        let mut curve = Curve::new();
        for i in 0..400 {
            curve.observe(if i % 2 == 0 { 1 } else { 3 }, if i % 2 == 0 { 0.010 } else { 0.013 }, true);
        }
        for i in 0..400 {
            curve.observe(1, 0.010 * (1.0 + f64::from(i) / 400.0), true);
        }
        assert!((curve.cost(1).unwrap() - 0.020).abs() < 0.001);
        assert!((ratio(&curve, 3, 1) - 1.3).abs() < 0.05);
    }

    #[test]
    fn a_step_ten_times_slower_is_an_accident_and_ten_of_them_are_not() {
        let mut curve = Curve::new();
        (0..50).for_each(|_| curve.observe(1, 0.010, true));
        curve.observe(1, 0.100, true);
        assert!(curve.cost(1).unwrap() < 0.012);
        (0..10).for_each(|_| curve.observe(1, 0.100, true));
        assert!((curve.cost(1).unwrap() - 0.100).abs() < 0.005);
    }

    #[test]
    fn a_first_step_that_warms_everything_up_is_forgotten_at_once() {
        let mut curve = Curve::new();
        curve.observe(4, 0.3, true);
        (0..3).for_each(|_| curve.observe(4, 0.03, true));
        assert!((curve.cost(4).unwrap() - 0.03).abs() < 0.003, "{:?}", curve.cost(4));
    }

    proptest! {
        #[test]
        fn any_measurements_give_finite_positive_costs(
            seen in prop::collection::vec((0usize..2000, any::<f64>(), any::<bool>()), 0..400),
            usual in prop::collection::vec((1usize..200, 1e-4f64..1.0), 0..100),
        ) {
            let mut curve = Curve::new();
            for (i, (count, value, settled)) in seen.into_iter().enumerate() {
                curve.observe(count, value, settled);
                if let Some(&(count, value)) = usual.get(i) {
                    curve.observe(count, value, settled);
                }
                if curve.is_known() {
                    for count in [1, 2, 17, 1000] {
                        let cost = curve.cost(count).unwrap();
                        prop_assert!(cost.is_finite() && cost > 0.0, "{count}: {cost}");
                    }
                }
                prop_assert!(curve.points.len() <= POINTS_MAX && curve.points.is_sorted_by_key(|p| p.count));
            }
        }
    }
}
