//! Mean and spread of a few runs.

use std::fmt;

use serde::Serialize;

/// Of one run or more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Spread {
    pub n: usize,
    pub mean: f64,
    /// Of the sample; 0 for one run.
    pub sd: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    pub fn of(values: &[f64]) -> Spread {
        let n = values.len();
        let mean = values.iter().sum::<f64>() / n.max(1) as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let sd = if n > 1 { (squares / (n - 1) as f64).sqrt() } else { 0.0 };
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if n == 0 { Spread::default() } else { Spread { n, mean, sd, min, max } }
    }

    /// The spread as a share of the mean.
    pub fn cv(&self) -> f64 {
        if self.mean > 0.0 { self.sd / self.mean } else { 0.0 }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} (sd {:.1}, CV {:.1} %, n {})", self.mean, self.sd, self.cv() * 100.0, self.n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_is_that_of_a_sample() {
        let spread = Spread::of(&[2.0, 4.0, 6.0]);
        assert_eq!((spread.mean, spread.sd, spread.min, spread.max, spread.cv()), (4.0, 2.0, 2.0, 6.0, 0.5));
        assert_eq!(Spread::of(&[3.0]).sd, 0.0);
        assert_eq!(Spread::of(&[]), Spread::default());
    }
}
