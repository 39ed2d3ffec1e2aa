//! The exponential function, written so that compilers turn it into vector code and every
//! instruction set gives the same bits.

/// `e^x` for single precision, within 2 units in the last place. Below -87.3 the result is 0, above
/// 88.3 it stays at `e^88.3`.
///
/// Argument reduction to `[-ln 2 / 2, ln 2 / 2]` in two steps (Cody and Waite) and a polynomial of
/// degree 6; the coefficients are those of the Taylor series, which is enough on so short an interval.
#[inline(always)]
#[must_use]
pub fn exp(x: f32) -> f32 {
    // Adding and taking away 1.5 * 2^23 rounds to the nearest integer.
    const ROUND: f32 = 12_582_912.0;
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let clamped = x.clamp(-87.3, 88.3);
    let n = clamped.mul_add(std::f32::consts::LOG2_E, ROUND) - ROUND;
    let r = n.mul_add(-LN2_LOW, n.mul_add(-LN2_HIGH, clamped));
    let mut poly = 1.0 / 720.0;
    poly = r.mul_add(poly, 1.0 / 120.0);
    poly = r.mul_add(poly, 1.0 / 24.0);
    poly = r.mul_add(poly, 1.0 / 6.0);
    poly = r.mul_add(poly, 0.5);
    poly = r.mul_add(poly, 1.0);
    poly = r.mul_add(poly, 1.0);
    // `n` is a whole number in -126..=127; its value sits in the low bits of `n + ROUND`.
    let exponent = ((n + ROUND).to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let power = f32::from_bits((exponent.wrapping_add(127) << 23) as u32);
    if x < -87.3 { 0.0 } else { poly * power }
}

#[cfg(test)]
mod tests {
    use super::exp;

    #[test]
    fn follows_the_double_precision_exponential() {
        let mut worst = 0.0f64;
        for step in -87_000..=88_000 {
            let x = step as f32 / 1000.0;
            let want = f64::from(x).exp();
            worst = worst.max((f64::from(exp(x)) - want).abs() / want);
        }
        assert!(worst < 2.5e-7, "relative error {worst}");
    }

    #[test]
    fn ends_and_oddities() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(-100.0), 0.0);
        assert!(exp(1000.0).is_finite());
        assert!(exp(f32::NAN).is_nan());
    }
}
