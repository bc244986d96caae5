//! Many draws of each distribution of `slob` in a real server, held against what was asked for.

use benchmath::distribution::{fit_p, harmonic, normal_cdf};
use pgio::config::resolve::{HotSpot, KeyDistribution};
use pgio::config::value::Decimal;
use pgio::workload::slob::draw::Draw;

use pgio_tests::fixture::{INSTALLED, NEWEST, connect, shared_primary};

const KEYS: u64 = 1000;
const DRAWS: u64 = 400_000;
/// Chance makes a right distribution look as bad as this once in ten thousand seeds; these are fixed.
const SUSPICIOUS: f64 = 1e-4;

/// How often each key was drawn, and how many draws were counted as hot.
fn drawn(major: u32, visits: &KeyDistribution, keys: u64, unit: u64) -> (Vec<u64>, u64) {
    let draw = Draw { visits, keys, unit };
    let (draw, count) = (draw.sql("span"), draw.count_hot());
    let block = format!(
        "DO $pgio$
         DECLARE
             span CONSTANT bigint := {span};
             k bigint;
             x float8;
             hot bigint := 0;
             counts bigint[] := array_fill(0::bigint, ARRAY[{keys}]);
         BEGIN
             PERFORM setseed(0.25);
             FOR i IN 1 .. {DRAWS} LOOP
                 {draw}
                 {count}
                 counts[k] := counts[k] + 1;
             END LOOP;
             PERFORM set_config('pgio.drawn', json_build_object('counts', counts, 'hot', hot)::text, false);
         END
         $pgio$",
        span = keys - unit + 1,
    );
    let mut client = connect(&shared_primary(major).primary_conninfo());
    client.batch_execute(&block).unwrap();
    let text: String =
        client.query_one("SELECT current_setting('pgio.drawn')", &[]).unwrap().get(0);
    let found: serde_json::Value = serde_json::from_str(&text).unwrap();
    let counts: Vec<u64> =
        found["counts"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
    // A key outside would have made the array longer.
    assert_eq!(counts.len() as u64, keys);
    assert_eq!(counts.iter().sum::<u64>(), DRAWS);
    (counts, found["hot"].as_u64().unwrap())
}

#[track_caller]
fn assert_fits(counts: &[u64], shares: &[f64], what: &str) {
    let p = fit_p(counts, shares).unwrap();
    assert!(p > SUSPICIOUS, "{what}: p = {p}");
    if shares.len() as u64 > KEYS {
        return; // Too few draws of each to tell less.
    }
    // The test can fail: it detects a shift of five hundredths from one half to the other.
    let half = shares.len() / 2;
    let bent: Vec<f64> =
        shares.iter().enumerate().map(|(i, s)| s * if i < half { 0.95 } else { 1.05 }).collect();
    let sides = [&shares[..half], &shares[half..]].map(|side| side.iter().sum::<f64>());
    if sides.iter().all(|side| *side > 0.05 * (sides[0] + sides[1])) {
        assert!(fit_p(counts, &bent).unwrap() < SUSPICIOUS, "{what}");
    }
}

/// Checks a share of the whole, within four standard deviations of the expected share.
#[track_caller]
fn assert_share(found: u64, share: f64, what: &str) {
    let found = found as f64 / DRAWS as f64;
    let room = 4.0 * (share * (1.0 - share) / DRAWS as f64).sqrt();
    assert!((found - share).abs() <= room + 1e-9, "{what}: {found} is not {share}");
}

#[test]
fn uniform_draws_are_uniform() {
    for major in [INSTALLED, NEWEST] {
        let (counts, _) = drawn(major, &KeyDistribution::Uniform, KEYS, 1);
        assert_fits(&counts, &[1.0; KEYS as usize], "uniform");
    }
    // A range begins where it still fits.
    let (counts, _) = drawn(INSTALLED, &KeyDistribution::Uniform, KEYS, 101);
    assert_eq!(counts[900..].iter().sum::<u64>(), 0);
    assert_fits(&counts[..900], &[1.0; 900], "ranges");
}

/// Alone and with all before it, each key has its share.
fn zipf(keys: u64, thousandths: u32) {
    let exponent = Decimal::from_thousandths(thousandths);
    let visits = KeyDistribution::Zipf { exponent };
    let (counts, hot) = drawn(INSTALLED, &visits, keys, 1);
    let q = exponent.as_f64();
    let shares: Vec<f64> = (1..=keys).map(|k| (k as f64).powf(-q)).collect();
    assert_fits(&counts, &shares, &format!("zipf {q}"));
    let whole = harmonic(keys, q);
    let mut so_far = (0, 0.0);
    for (k, (count, share)) in counts.iter().zip(&shares).enumerate() {
        so_far = (so_far.0 + count, so_far.1 + share / whole);
        let what = format!("zipf {q}, key {} of {keys}", k + 1);
        if share / whole >= 0.14 {
            assert_share(*count, share / whole, &what);
        }
        if (0.14..0.999).contains(&so_far.1) {
            assert_share(so_far.0, so_far.1, &format!("{what} and those before"));
        }
    }
    let expected = Draw { visits: &visits, keys, unit: 1 }.hot_share().unwrap();
    assert!((hot as f64 / DRAWS as f64 - expected).abs() < 0.0025, "{q}: {hot}");
    assert_eq!(hot, counts[..keys.div_ceil(100) as usize].iter().sum::<u64>());
}

#[test]
fn zipf_draws_have_the_shares_of_their_exponent() {
    for thousandths in [0, 800, 999, 1000, 1200, 5000] {
        zipf(KEYS, thousandths);
    }
    // More keys than there are draws of most of them.
    for thousandths in [300, 1000, 2000] {
        zipf(100_000, thousandths);
    }
}

fn gaussian(keys: u64, mean: u32, sd: u32) {
    let (mean, sd) = (Decimal::whole(mean), Decimal::whole(sd));
    let visits = KeyDistribution::Gaussian { mean, sd };
    let (counts, hot) = drawn(INSTALLED, &visits, keys, 1);
    let below = |x: u64| normal_cdf((x as f64 / keys as f64 - mean.share()) / sd.share());
    let shares: Vec<f64> = (0..keys).map(|k| below(k + 1) - below(k)).collect();
    assert_fits(&counts, &shares, &format!("gaussian {mean} {sd} of {keys}"));
    let expected = Draw { visits: &visits, keys, unit: 1 }.hot_share().unwrap();
    assert_share(hot, expected, &format!("gaussian {mean} {sd} of {keys}"));
}

#[test]
fn gaussian_draws_are_a_bell_cut_off_at_the_table() {
    for (mean, sd) in [(50, 10), (0, 20), (100, 5), (30, 100)] {
        gaussian(KEYS, mean, sd);
    }
    gaussian(100_000, 50, 10);
    gaussian(100_000, 99, 3);
}

#[test]
fn the_hot_spot_and_the_rest_are_uniform_each() {
    for (offset, blocks, pct, unit) in [(400, 200, 90, 1), (0, 10, 50, 4), (900, 100, 5, 8)] {
        let visits = KeyDistribution::HotSpot(HotSpot { offset, blocks, pct: Decimal::whole(pct) });
        let (counts, hot) = drawn(INSTALLED, &visits, KEYS, unit);
        let share = f64::from(pct) / 100.0;
        assert_share(hot, share, &format!("hot spot of {blocks}"));
        // A call visits hot blocks only or none.
        let is_hot = |k: u64| k > offset && k + unit - 1 <= offset + blocks;
        let is_cold =
            |k: u64| k + unit - 1 <= offset || (k > offset + blocks && k + unit - 1 <= KEYS);
        let number = |of: &dyn Fn(u64) -> bool| (1..=KEYS).filter(|k| of(*k)).count() as f64;
        let (hot_starts, cold_starts) = (number(&is_hot), number(&is_cold));
        let shares: Vec<f64> = (1..=KEYS)
            .map(|k| match (is_hot(k), is_cold(k)) {
                (true, _) => share / hot_starts,
                (_, true) => (1.0 - share) / cold_starts,
                _ => 0.0,
            })
            .collect();
        for (k, share) in shares.iter().enumerate() {
            assert!(*share > 0.0 || counts[k] == 0, "key {} is never to be drawn", k + 1);
        }
        assert_fits(&counts, &shares, &format!("hot spot of {blocks}"));
    }
}
