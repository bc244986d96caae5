//! The draw of the key at which a call begins, as SQL, and the expected share of hot draws.
//!
//! The k-th most likely key is key k, also with zipf: keys are in random order in the table, so the hot
//! blocks are already scattered, while the index entries of hot keys are neighbors. All sessions on a
//! table have the same hot keys. Next: [`super::body`], which inserts the draw into the loop.

use benchmath::distribution::{harmonic, normal_cdf};

use crate::config::resolve::{HotSpot, KeyDistribution};
use crate::workload::sql::{self, fill};

/// The hottest hundredth of the keys is counted with zipf.
const HOT_KEY_DIVISOR: u64 = 100;

/// Draws the first key of calls of `unit` blocks, in a table of `keys` keys.
#[derive(Debug, Clone, Copy)]
pub struct Draw<'a> {
    pub visits: &'a KeyDistribution,
    pub keys: u64,
    pub unit: u64,
}

impl Draw<'_> {
    /// Returns the number of keys at which a call can begin.
    fn starts(&self) -> u64 {
        self.keys - self.unit + 1
    }

    /// Returns SQL that sets the variable `k`; `span` is the variable with the number of start keys.
    pub fn sql(&self, span: &str) -> String {
        let sql = match self.visits {
            KeyDistribution::Uniform => fill(sql::DRAW_UNIFORM, &[("span", span)]),
            KeyDistribution::HotSpot(spot) => self.hot_spot(spot),
            KeyDistribution::Zipf { exponent } => self.zipf(exponent.as_f64()),
            KeyDistribution::Gaussian { .. } => self.gaussian(),
        };
        sql.trim_end().to_owned()
    }

    /// Counts `k` in the variable `hot` if it is hot. Separate from the draw, so that a call that is drawn
    /// but not made, at the end of a slice or after a deadlock, does not count.
    pub fn count_hot(&self) -> String {
        let within =
            |first: u64, last: u64| count_if("hot", &format!("k BETWEEN {first} AND {last}"));
        match self.visits {
            KeyDistribution::Uniform => String::new(),
            KeyDistribution::HotSpot(spot) => {
                within(spot.offset + 1, spot.offset + self.starts_in(spot.blocks))
            }
            KeyDistribution::Zipf { .. } => within(1, self.starts().div_ceil(HOT_KEY_DIVISOR)),
            KeyDistribution::Gaussian { .. } => {
                let (first, last) = self.bell().one_sd_range();
                within(first as u64 + 1, last as u64)
            }
        }
    }

    /// Returns how many calls fit into this number of blocks.
    fn starts_in(&self, blocks: u64) -> u64 {
        (blocks + 1).saturating_sub(self.unit)
    }

    /// Returns the expected share of hot draws: in the hot spot, in the hottest hundredth of the keys
    /// (zipf), or within a standard deviation (gaussian).
    pub fn hot_share(&self) -> Option<f64> {
        match self.visits {
            KeyDistribution::Uniform => None,
            KeyDistribution::HotSpot(spot) => Some(spot.pct.share()),
            KeyDistribution::Zipf { exponent } => {
                let (all, q) = (self.starts(), exponent.as_f64());
                Some(harmonic(all.div_ceil(HOT_KEY_DIVISOR), q) / harmonic(all, q))
            }
            KeyDistribution::Gaussian { .. } => {
                let bell = self.bell();
                let (first, last) = bell.one_sd_range();
                Some(bell.share(first, last) / bell.share(0.0, bell.starts))
            }
        }
    }

    fn hot_spot(&self, spot: &HotSpot) -> String {
        // A range must not cross a boundary of the hot spot in either direction.
        let (before, hot) = (self.starts_in(spot.offset), self.starts_in(spot.blocks));
        let cold = before + self.starts_in(self.keys - spot.offset - spot.blocks);
        let all = spot.pct.share() >= 1.0;
        fill(
            if all { sql::DRAW_HOT_ONLY } else { sql::DRAW_HOT_SPOT },
            &[
                ("hot_share", &float(spot.pct.share())),
                ("hot_first", &(spot.offset + 1).to_string()),
                ("hot_starts", &hot.to_string()),
                ("cold_starts", &cold.to_string()),
                ("starts_before", &before.to_string()),
                ("gap", &(spot.offset + spot.blocks - before).to_string()),
            ],
        )
    }

    /// H is the integral of 1 / x^q. G is a function in which H is linear: ln x, or x^(1 - q). The
    /// value is drawn on the line, and G is inverted.
    fn zipf(&self, q: f64) -> String {
        let p = 1.0 - q;
        let log = q == 1.0;
        let g = |x: f64| if log { x.ln() } else { x.powf(p) };
        let g_inverse = |y: f64| if log { y.exp() } else { y.powf(1.0 / p) };
        // The growth of G per growth of H by 1.
        let slope = if log { 1.0 } else { p };
        let (low, high) = (g(1.5) - slope, g(self.starts() as f64 + 0.5));
        let squeeze = 2.0 - g_inverse(g(2.5) - slope * 2f64.powf(-q));
        let line = format!("{} + {} * random()", float(high), float(low - high));
        let (inverse, accepted) = if log {
            (format!("exp({line})"), "ln(x) >= ln(k::float8 + 0.5) - 1 / k::float8".to_owned())
        } else {
            // A slope below 0 reverses the comparison.
            let order = if slope > 0.0 { ">=" } else { "<=" };
            let inverse = format!("power({line}, {})", float(1.0 / p));
            let [p, minus_q, slope] = [p, -q, slope].map(float);
            let edge =
                format!("power(k::float8 + 0.5, {p}) - {slope} * power(k::float8, {minus_q})");
            (inverse, format!("power(x, {p}) {order} {edge}"))
        };
        fill(
            sql::DRAW_ZIPF,
            &[("inverse", &inverse), ("squeeze", &float(squeeze)), ("accepted", &accepted)],
        )
    }

    fn gaussian(&self) -> String {
        let bell = self.bell();
        fill(
            sql::DRAW_GAUSSIAN,
            &[
                ("mean", &float(bell.mean)),
                ("sd", &float(bell.sd)),
                ("starts", &self.starts().to_string()),
            ],
        )
    }

    /// Returns the bell in keys; only for the gaussian distribution.
    fn bell(&self) -> Bell {
        let starts = self.starts() as f64;
        let (mean, sd) = match self.visits {
            KeyDistribution::Gaussian { mean, sd } => (mean.share(), sd.share()),
            _ => (0.5, 1.0),
        };
        Bell { mean: mean * starts, sd: sd * starts, starts }
    }
}

#[derive(Debug, Clone, Copy)]
struct Bell {
    mean: f64,
    sd: f64,
    starts: f64,
}

impl Bell {
    /// Returns the whole keys within a standard deviation of the mean.
    fn one_sd_range(&self) -> (f64, f64) {
        let first = (self.mean - self.sd).max(0.0).floor();
        (first, (self.mean + self.sd).min(self.starts).ceil())
    }

    fn share(&self, from: f64, to: f64) -> f64 {
        let below = |x: f64| normal_cdf((x - self.mean) / self.sd);
        below(to) - below(from)
    }
}

/// Returns a block with this number of draws and no other work; if `drawn` is false, the same loop
/// without the draw.
pub fn bench_block(draw: &Draw<'_>, draws: u32, seed: f64, drawn: bool) -> String {
    let text =
        if drawn { format!("{}\n{}", draw.sql("span"), draw.count_hot()) } else { String::new() };
    fill(
        sql::BENCHED,
        &[
            ("draw", &text),
            ("rounds", &draws.to_string()),
            ("keys", &draw.starts().to_string()),
            ("seed", &float(seed)),
        ],
    )
}

/// Counts up a variable of the block if the SQL condition holds.
pub(super) fn count_if(variable: &str, condition: &str) -> String {
    format!(
        "            IF {condition} THEN\n                {variable} := {variable} + 1;\n            END IF;"
    )
}

/// Formats a constant that the server reads back as exactly the same number.
pub(super) fn float(x: f64) -> String {
    format!("'{x:?}'::float8")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::value::Decimal;

    fn hot_spot(offset: u64, blocks: u64) -> KeyDistribution {
        KeyDistribution::HotSpot(HotSpot { offset, blocks, pct: Decimal::whole(90) })
    }

    fn draw(visits: &KeyDistribution, keys: u64, unit: u64) -> Draw<'_> {
        Draw { visits, keys, unit }
    }

    #[test]
    fn the_uniform_draw_is_stable() {
        let sql = draw(&KeyDistribution::Uniform, 1024, 8).sql("read_span");
        assert_eq!(sql, "            k := 1 + floor(random() * read_span)::bigint;");
    }

    #[test]
    fn ranges_stay_on_their_side_of_the_hot_spot() {
        // Keys 1..=100; hot keys are 41..=60; a call has four blocks.
        let sql = draw(&hot_spot(40, 20), 100, 4).sql("");
        assert!(sql.contains("k := 41 + floor(random() * 17)"), "{sql}");
        // Start keys are 1..=37 before and 61..=97 after.
        assert!(sql.contains("k := 1 + floor(random() * 74)"), "{sql}");
        assert!(sql.contains("IF k > 37 THEN\n                    k := k + 23;"), "{sql}");
        // No range fits before it.
        let sql = draw(&hot_spot(2, 20), 100, 4).sql("");
        assert!(sql.contains("IF k > 0 THEN\n                    k := k + 22;"), "{sql}");
        assert!(sql.contains("floor(random() * 75)"), "{sql}");
    }

    #[test]
    fn expected_shares_are_those_of_the_distributions() {
        let share = |visits: &KeyDistribution| draw(visits, 10_000, 1).hot_share();
        assert_eq!(share(&KeyDistribution::Uniform), None);
        assert_eq!(share(&hot_spot(0, 10)), Some(0.9));
        let zipf = |thousandths: &str| {
            let pairs = [("skew", "zipf"), ("zipf_exponent", thousandths)];
            share(&resolved(&pairs)).unwrap()
        };
        assert!((zipf("0") - 0.01).abs() < 1e-12);
        // H(100) / H(10000)
        assert!((zipf("1") - 5.187_377_517_639_621 / 9.787_606_036_044_348).abs() < 1e-12);
        let bell = share(&resolved(&[("skew", "gaussian")])).unwrap();
        // All keys are within five standard deviations; 2000 whole keys.
        assert!((bell - 0.682_689_9).abs() < 1e-5, "{bell}");
    }

    fn resolved(pairs: &[(&str, &str)]) -> KeyDistribution {
        let mut layer = crate::config::Layer::default();
        for (name, text) in pairs {
            crate::config::Key::named(name).unwrap().set(&mut layer, text).unwrap();
        }
        crate::config::SlobSettings::resolve(layer).unwrap().features.visits
    }
}
