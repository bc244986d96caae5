//! The numbers in the documents are those that decide.

use benchmath::{
    change_points, drift, family, outliers, power, rank_sum, spread, steady as trends,
};
use pgio_results::histogram::{MIN_QUANTILE_NS, NEGLIGIBLE, PER_OCTAVE};
use pgio_results::latency::{MIN_BEYOND, min_operations};
use pgio_results::test_support::{assert_documented, in_words};
use pgio_results::thresholds::*;

use super::super::*;

fn thousands(n: u64) -> String {
    if n < 1000 { n.to_string() } else { format!("{},{:03}", n / 1000, n % 1000) }
}

#[test]
fn the_methodology_names_the_numbers_that_decide() {
    let alpha = Share(ALPHA);
    let fewest: u32 = (1..).find(|n| 2.0 / f64::from(1 << n) <= ALPHA).unwrap();
    let (fewest, many) = (in_words(u64::from(fewest)), family::MANY_BLOCKS);
    let random = [family::RANDOM_FLIPS, family::RANDOM_FLIPS_OF_MANY].map(|n| thousands(n as u64));
    let exhaustive = family::MAX_EXHAUSTIVE_BLOCKS;
    let needed = [0.5, 0.95, 0.99, 0.999].map(|q| thousands(min_operations(q)));
    let [p50, p95, p99, p99_9] = &needed;
    let (each, episode) = (Share(steady::LEVEL_OF_OTHERS), Share(steady::LEVEL_OF_EPISODE));
    let bucket = (2f64.powf(1.0 / PER_OCTAVE) - 1.0) * 100.0;
    let saved = (1.0 / (1.0 - variance::WORTHWHILE)).round() as u64;
    // The words that a number cannot make.
    assert_eq!((degraded::DEGRADED, woven::SHARE, saved), (0.5, 0.25, 5));
    assert_eq!(findings::DEGRADED_MORE, 0.01);
    for sentence in [
        format!("would not reject at {alpha}"),
        format!("Fewer than {fewest} decide nothing at {alpha}"),
        format!(
            "Up to {exhaustive} blocks all flips are used; from {} to {} blocks {} at random with a fixed seed, with more {},",
            exhaustive + 1,
            many,
            random[0],
            random[1]
        ),
        format!("Up to {} blocks, size decides", family::MAX_BLOCKS_WITH_SIZES),
        format!("ratio lies beyond {}", Share(totals::APART)),
        "below half of the condition's own median".to_owned(),
        format!(
            "hold {} operations and {} of each session",
            degraded::MIN_OPERATIONS,
            in_words(degraded::MIN_OPERATIONS_PER_SESSION as u64)
        ),
        "baseline's, by a percentage point or more".to_owned(),
        format!("beyond a factor of {MAX_FACTOR} is null"),
        format!("differ by a factor of {}, and not by chance", in_words(spread::UNEQUAL as u64)),
        format!("detect with {} power", Share(power::PLANNED_POWER)),
        format!("from its {} upper bound", Share(1.0 - spread::BOUND)),
        format!("from an experiment of {} blocks or more", in_words(pilot::MIN_BLOCKS as u64)),
        format!("saves a fifth, and is never shorter than {} s", variance::SHORTEST_WINDOW),
        format!("**Why {FOREIGN_INVALID} of foreign load.**"),
        format!("warns above {FOREIGN_WARNING} and excludes a trial above {FOREIGN_INVALID}"),
        format!(
            "step, each at {each}, and for an episode that ends inside the window at {episode}"
        ),
        format!("above {} on the log scale", trends::MIN_LOG_STEP),
        format!(
            "Changes under {} and windows of fewer than {} slices",
            Share(steady::MIN_CHANGE),
            in_words(trends::MIN_POINTS as u64)
        ),
        format!(
            "from {} blocks on, at {} each",
            in_words(drift::MIN_BLOCKS as u64),
            Share(TREND_LEVEL)
        ),
        format!("exactly up to {}, beyond", drift::MAX_EXACT_BLOCKS),
        format!("A change below {TREND}, or the margin if smaller"),
        format!(
            "Histograms have {} buckets per doubling, {bucket:.1} % wide",
            in_words(PER_OCTAVE as u64)
        ),
        format!("Below {} µs the server's clock", MIN_QUANTILE_NS / 1e3),
        format!("fewer than {MIN_BEYOND} operations beyond it"),
        format!("p50 needs {p50}, p95 {p95}, p99 {p99}, p99.9 {p99_9}."),
        format!("grow by at most {} even", Share(NEGLIGIBLE)),
        format!("a quarter of the margin (`matters`, else {})", Share(woven::MARGIN)),
        format!("named lengths below {} ms are doubted", woven::SHORTEST_WITH_STANDBY * 1e3),
        format!("z-score, {} times the distance", outliers::NORMAL),
        format!("With fewer than {} there is none", in_words(outliers::MIN_VALUES as u64)),
        format!("fewer than {} runs on a side", in_words(across::MIN_RUNS as u64)),
        format!(
            "A level holds for {} runs at least",
            in_words(change_points::MIN_RUNS_PER_SIDE as u64)
        ),
        format!(
            "of {} (from {} runs on",
            history::MAX_AUTOCORRELATION,
            in_words(change_points::MIN_VALUES_OF_AUTOCORRELATION as u64)
        ),
        format!("exact up to {} runs", rank_sum::EXACT_UP_TO),
        format!("from {} trials on", in_words(waits::ENOUGH_TRIALS as u64)),
    ] {
        assert_documented("METHODOLOGY.md", &sentence);
    }
    for sentence in [
        format!("outgrown the first trial by {DATA_GREW} ends the run"),
        format!("Fewer than {fewest} valid blocks cannot decide at the {alpha} level"),
        format!(
            "detected with {} power, and the same from the upper {} bound",
            Share(power::PLANNED_POWER),
            Share(1.0 - spread::BOUND)
        ),
        format!("At least {} runs are needed on each side", in_words(across::MIN_RUNS as u64)),
    ] {
        assert_documented("GUIDE.md", &sentence);
    }
}
