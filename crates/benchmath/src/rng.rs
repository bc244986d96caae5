//! A small seeded generator: the same seed always gives the same numbers on every machine.
//!
//! SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
//! Not for secrets: the numbers are predictable. It orders trials, draws keys and resamples, and
//! passes the usual test batteries for that. The stream is part of the meaning of stored records (a
//! stored seed reproduces the order of trials), so it must not change between versions; known
//! answers in the tests guard it.

/// Derives a separate seed for each named purpose, so that streams do not overlap.
pub fn derive(seed: u64, purpose: &str, index: u64) -> u64 {
    // Hash the purpose with FNV-1a; SplitMix64 then mixes all bits.
    let named = purpose
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    SplitMix64::new(seed ^ named.rotate_left(17) ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .next_u64()
}

/// 64 bits of state, period 2^64; all seeds are equally good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1), a multiple of 2^-53; never 1.0.
    pub fn next_f64(&mut self) -> f64 {
        const STEP: f64 = 1.0 / (1u64 << 53) as f64;
        (self.next_u64() >> 11) as f64 * STEP
    }

    /// Uniform in `0..n`, each value exactly equally likely.
    ///
    /// Lemire, "Fast random integer generation in an interval", ACM TOMACS 29(1), 2019: the high
    /// word of a product, redrawn in the few cases that would favor some values.
    ///
    /// # Panics
    ///
    /// If `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "no number is below 0");
        let mut product = u128::from(self.next_u64()) * u128::from(n);
        if (product as u64) < n {
            let uneven = n.wrapping_neg() % n;
            while (product as u64) < uneven {
                product = u128::from(self.next_u64()) * u128::from(n);
            }
        }
        (product >> 64) as u64
    }

    /// Shuffles `items`; all orders are equally likely, within the limits of 64 bits of state
    /// (Fisher and Yates in Durstenfeld's form: CACM 7(7), 1964).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u64 + 1) as usize;
            items.swap(last, other);
        }
    }
}

/// Standard normal, by the Box-Muller method (Annals of Mathematical Statistics 29(2), 1958).
#[cfg(test)]
pub(crate) fn normal(rng: &mut SplitMix64) -> f64 {
    let radius = (-2.0 * (1.0 - rng.next_f64()).ln()).sqrt();
    radius * (std::f64::consts::TAU * rng.next_f64()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_matches_the_published_one() {
        let mut rng = SplitMix64::new(1_234_567);
        let drawn: Vec<u64> = (0..5).map(|_| rng.next_u64()).collect();
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(drawn, published);
        assert_eq!(SplitMix64::new(0).next_u64(), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn unit_interval_is_half_open_and_centered() {
        let mut rng = SplitMix64::new(1);
        let drawn: Vec<f64> = (0..20_000).map(|_| rng.next_f64()).collect();
        assert!(drawn.iter().all(|x| (0.0..1.0).contains(x)));
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        // Six standard errors of a uniform mean.
        assert!((mean - 0.5).abs() < 6.0 * (1.0 / 12.0f64 / 20_000.0).sqrt());
    }

    #[test]
    fn below_gives_every_value_equally_often() {
        let mut rng = SplitMix64::new(2);
        let mut seen = [0u32; 7];
        for _ in 0..70_000 {
            seen[rng.below(7) as usize] += 1;
        }
        let chi_squared: f64 = seen.iter().map(|n| (f64::from(*n) - 1e4).powi(2) / 1e4).sum();
        // The 99.99 % point of chi-squared with 6 degrees of freedom.
        assert!(chi_squared < 27.9, "{seen:?}");
    }

    /// With n = 3/4 of 2^64 a plain product would make every third value twice as likely.
    #[test]
    fn below_is_unbiased_where_the_plain_product_is_not() {
        let n = 3u64 << 62;
        let mut rng = SplitMix64::new(3);
        let mut thirds = [0u32; 3];
        for _ in 0..30_000 {
            let drawn = rng.below(n);
            assert!(drawn < n);
            thirds[(drawn % 3) as usize] += 1;
        }
        let chi_squared: f64 = thirds.iter().map(|k| (f64::from(*k) - 1e4).powi(2) / 1e4).sum();
        assert!(chi_squared < 18.4, "{thirds:?}");
    }

    #[test]
    #[should_panic(expected = "below 0")]
    fn below_zero_panics() {
        SplitMix64::new(0).below(0);
    }

    #[test]
    fn shuffle_reaches_every_order_equally_often() {
        let mut rng = SplitMix64::new(4);
        let mut seen = std::collections::BTreeMap::<[u8; 4], u32>::new();
        for _ in 0..24_000 {
            let mut items = [0, 1, 2, 3];
            rng.shuffle(&mut items);
            *seen.entry(items).or_default() += 1;
        }
        assert_eq!(seen.len(), 24);
        let chi_squared: f64 = seen.values().map(|n| (f64::from(*n) - 1e3).powi(2) / 1e3).sum();
        // The 99.99 % point with 23 degrees of freedom.
        assert!(chi_squared < 59.0, "{seen:?}");
    }
}
