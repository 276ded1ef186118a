//! The exponential used for probabilities: one polynomial, the same bits on every machine, and a
//! form that the compiler turns into vector code. It does not serve positive arguments: callers
//! subtract the row's maximum first.

/// Below this the result is 0 exactly: e^x would not be a normal `f32` any more.
const LIMIT: f32 = -87.0;
/// 1.5 * 2^23: adding it leaves the nearest integer in the low mantissa bits.
const ROUNDER: f32 = 12_582_912.0;
/// The leading bits of ln 2, so that a small integer times it is exact.
const LN2_HIGH: f32 = 0.693_115_23;
const LN2_LOW: f32 = 3.194_618_5e-5;

/// e^x for x <= 0, within 2e-7 relative; 0 for x < -87, for -inf and for NaN; exactly 1 at 0.
///
/// `f32::exp` would do, but calls the system's C library, whose last bits differ between machines,
/// once a value.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    let shifted = x.mul_add(std::f32::consts::LOG2_E, ROUNDER);
    let whole = shifted - ROUNDER;
    let rest = whole.mul_add(-LN2_LOW, whole.mul_add(-LN2_HIGH, x));
    // e^r = 1 + r + r^2 q(r) on |r| <= ln(2)/2; q interpolates at the Chebyshev nodes (relative
    // error 1e-8).
    let q = rest.mul_add(1.392_617_6e-3, 8.363_173e-3);
    let q = rest.mul_add(q, 4.166_655_4e-2);
    let q = rest.mul_add(q, 0.166_665_77);
    let q = rest.mul_add(q, 0.5);
    let mantissa = rest.mul_add(rest.mul_add(q, 1.0), 1.0);
    let scaled = f32::from_bits(mantissa.to_bits().wrapping_add(shifted.to_bits() << 23));
    // Written so that NaN fails the comparison.
    if x >= LIMIT { scaled } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_the_double_precision_exponential() {
        let mut worst = 0.0_f64;
        for i in 0..=870_000 {
            let x = -(i as f32) * 1e-4;
            let exact = f64::from(x).exp();
            worst = worst.max((f64::from(exp(x)) - exact).abs() / exact);
        }
        assert!(worst < 2e-7, "relative error {worst}");
    }

    #[test]
    fn edges_are_exact() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(-0.0), 1.0);
        assert_eq!(exp(-87.1), 0.0);
        assert_eq!(exp(f32::MIN), 0.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(f32::NAN), 0.0);
    }
}
