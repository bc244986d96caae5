//! Random noise for simulations in tests.

use crate::rng::SplitMix64;

/// Standard normal, by the Box-Muller method (Annals of Mathematical Statistics 29(2), 1958).
pub(crate) fn normal(rng: &mut SplitMix64) -> f64 {
    let radius = (-2.0 * (1.0 - rng.next_f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.next_f64()).cos()
}
