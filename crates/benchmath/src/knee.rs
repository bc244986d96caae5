//! The knee of a curve of throughput against latency: the load beyond which more load is not
//! worthwhile.
//!
//! Source: L. Kleinrock, "Power and deterministic rules of thumb for probabilistic problems in
//! computer communications", ICC 1979; R. Jain, The Art of Computer Systems Performance Analysis,
//! 1991, section 33.6: the knee is the maximum of power, which is throughput divided by latency.
//! Below the knee, one percent more latency yields more than one percent of throughput, beyond it
//! less. The method has no parameters and no units, and works with few points. Methods that
//! maximize curvature (Kneedle, Satopaa et al. 2011) cannot differentiate so few points and depend
//! on the scale of the axes.
//!
//! Assumption: the load grows from point to point. Nothing is known between two measured loads: the
//! knee is one of them, or it is at or below the first, or beyond the last.

/// Throughput and latency at one load, in any units.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoadPoint {
    pub throughput: f64,
    pub latency: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Knee {
    /// At this index of the curve.
    At(usize),
    /// The first load has the greatest power: the knee is at or below it.
    AtOrBelowFirst,
    /// The last load has the greatest power: no knee within the range.
    BeyondLast,
}

/// Minimum number of loads; with fewer, no load is between two others.
pub const MIN_LOADS: usize = 3;

/// Finds the knee of a curve in ascending order of load. `None` for fewer than [`MIN_LOADS`] loads,
/// or if a value is not a positive number. Among loads of equal power, the lowest is the knee.
pub fn knee(curve: &[LoadPoint]) -> Option<Knee> {
    let usable = |y: &LoadPoint| {
        [y.throughput, y.latency].iter().all(|value| value.is_finite() && *value > 0.0)
    };
    if curve.len() < MIN_LOADS || !curve.iter().all(usable) {
        return None;
    }
    let power = |at: usize| curve[at].throughput / curve[at].latency;
    let mut best = 0;
    for at in 1..curve.len() {
        // Ignore differences due to rounding.
        if power(at) > power(best) * (1.0 + 1e-12) {
            best = at;
        }
    }
    Some(match best {
        0 => Knee::AtOrBelowFirst,
        at if at + 1 == curve.len() => Knee::BeyondLast,
        at => Knee::At(at),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn curve(points: &[(f64, f64)]) -> Vec<LoadPoint> {
        points
            .iter()
            .map(|(throughput, latency)| LoadPoint { throughput: *throughput, latency: *latency })
            .collect()
    }

    /// A closed loop of `sessions` at a server with a maximum of `capacity` per second (Denning and
    /// Buzen, Computing Surveys 10(3), 1978); its knee is where the bounds cross.
    fn closed_loop(loads: &[f64], alone: f64, capacity: f64) -> Vec<LoadPoint> {
        let one = |sessions: &f64| {
            let throughput = f64::min(sessions / alone, capacity);
            LoadPoint { throughput, latency: sessions / throughput }
        };
        loads.iter().map(one).collect()
    }

    #[test]
    fn the_knee_is_at_the_bend_of_the_curve() {
        let bends = curve(&[(1000.0, 1.0), (3900.0, 1.03), (6000.0, 2.7), (6100.0, 10.5)]);
        assert_eq!(knee(&bends), Some(Knee::At(1)));
    }

    #[test]
    fn a_knee_outside_the_range_is_reported() {
        let linear = curve(&[(100.0, 1.0), (400.0, 1.0), (1600.0, 1.0)]);
        assert_eq!(knee(&linear), Some(Knee::BeyondLast));
        let flat = curve(&[(100.0, 1.0), (100.0, 4.0), (100.0, 16.0)]);
        assert_eq!(knee(&flat), Some(Knee::AtOrBelowFirst));
    }

    #[test]
    fn an_invalid_curve_has_no_knee() {
        assert_eq!(knee(&curve(&[(100.0, 1.0), (200.0, 1.0)])), None);
        assert_eq!(knee(&curve(&[(100.0, 1.0), (0.0, 1.0), (200.0, 1.0)])), None);
        assert_eq!(knee(&curve(&[(100.0, 1.0), (f64::NAN, 1.0), (200.0, 1.0)])), None);
        assert_eq!(knee(&[]), None);
    }

    proptest! {
        #[test]
        fn units_do_not_matter(
            of in prop::collection::vec((1.0f64..1e4, 1e-4f64..1e2), 3..9),
            throughput in 1e-3f64..1e6, latency in 1e-3f64..1e6,
        ) {
            let scaled: Vec<(f64, f64)> =
                of.iter().map(|(x, r)| (x * throughput, r * latency)).collect();
            // Two powers that differ only by rounding could swap their order.
            let mut powers: Vec<f64> = of.iter().map(|(x, r)| x / r).collect();
            powers.sort_by(f64::total_cmp);
            prop_assume!(powers.windows(2).all(|w| w[1] / w[0] > 1.0 + 1e-9));
            prop_assert_eq!(knee(&curve(&of)), knee(&curve(&scaled)));
        }

        /// The knee of the bounds is the load at which they cross, or a neighbor.
        #[test]
        fn the_knee_of_a_closed_loop_is_where_its_bounds_cross(
            alone in 1e-4f64..1e-1, crossing in 1.0f64..300.0,
        ) {
            let loads = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];
            let found = knee(&closed_loop(&loads, alone, crossing / alone)).unwrap();
            let above = loads.iter().position(|l| *l >= crossing).unwrap_or(loads.len());
            let at = match found {
                Knee::AtOrBelowFirst => 0,
                Knee::At(at) => at,
                Knee::BeyondLast => loads.len() - 1,
            };
            prop_assert!(at + 1 == above || at == above, "{} for {}", at, crossing);
        }

        #[test]
        fn an_additional_load_without_gain_does_not_move_the_knee(
            of in prop::collection::vec((1.0f64..1e4, 1e-4f64..1e2), 3..9), worse in 1.01f64..10.0,
        ) {
            let mut longer = of.clone();
            let (x, _) = of[of.len() - 1];
            let least = of.iter().map(|(x, r)| x / r).fold(f64::MAX, f64::min);
            // Its power is the lowest of all.
            longer.push((x, x / (least / worse)));
            let before = knee(&curve(&of)).unwrap();
            let after = knee(&curve(&longer)).unwrap();
            match before {
                Knee::BeyondLast => prop_assert_eq!(after, Knee::At(of.len() - 1)),
                same => prop_assert_eq!(after, same),
            }
        }
    }
}
