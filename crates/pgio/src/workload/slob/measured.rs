//! The metrics of a window of `slob`: for every requested share, the actual one.
//!
//! A key that was not given adds neither a stored key nor a metric.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::draw::Draw;
use crate::config::resolve::{Features, KeyDistribution, SlobSettings};
use crate::workload::Totals;
use crate::workload::slice::SLOB_CALLS;
use pgio_results::histogram::Histogram;
use pgio_results::latency::{Class, Statistic};
use pgio_results::units::exact_duration;
use pgio_results::{latency, metrics};

const CALL_MEAN: &str = metrics::latency_name(Class::Call, Statistic::Mean);

pub(super) fn primary(s: &SlobSettings) -> &'static str {
    if s.features.scan_pct.share() >= 1.0 {
        return "blocks_scanned_per_second";
    }
    // The rate is given, so only the latency differs.
    if let Some(pace) = s.engine.pace() {
        let calls = s.extent().calls_at(pace.rate as f64, s.sessions());
        let updates = f64::from(s.update_pct) / 100.0;
        return if s.read_only() {
            latency::primary(Class::Read, calls)
        } else {
            latency::primary(Class::Update, calls * updates)
        };
    }
    // With one transaction per session, a commit rate is meaningless.
    if s.read_only() || s.commit_every == 0 {
        "block_visits_per_second"
    } else {
        "commits_per_second"
    }
}

pub(super) fn keys(s: &SlobSettings) -> BTreeMap<String, Value> {
    let mut keys = vec![
        ("update_pct", json!(s.update_pct)),
        ("num_schemas", json!(s.num_schemas)),
        ("num_threads", json!(s.num_threads)),
        ("work_unit", json!(s.work_unit)),
        ("update_work_unit", json!(s.update_work_unit)),
        ("scale", json!(s.scale.to_string())),
        ("access", json!(s.access.name())),
        ("commit_every", json!(s.commit_every)),
        ("batch", json!(s.batch)),
    ];
    keys.extend(s.sessions.map(|n| ("sessions", json!(n))));
    keys.extend(keys_of_features(&s.features));
    keys.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn keys_of_features(f: &Features) -> Vec<(&'static str, Value)> {
    let mut keys = match &f.visits {
        KeyDistribution::Uniform => Vec::new(),
        KeyDistribution::HotSpot(spot) => vec![
            ("hot_spot", json!(spot.blocks)),
            ("hot_offset", json!(spot.offset)),
            ("hot_pct", json!(spot.pct.as_f64())),
        ],
        KeyDistribution::Zipf { exponent } => {
            vec![("skew", json!("zipf")), ("zipf_exponent", json!(exponent.as_f64()))]
        }
        KeyDistribution::Gaussian { mean, sd } => vec![
            ("skew", json!("gaussian")),
            ("gaussian_mean", json!(mean.as_f64())),
            ("gaussian_sd", json!(sd.as_f64())),
        ],
    };
    if let Some(hot) = &f.hot_table {
        keys.push(("hot_table", json!(hot.number)));
        keys.push(("hot_table_pct", json!(hot.pct.as_f64())));
    }
    let shares =
        [("scan_pct", f.scan_pct), ("insert_pct", f.turnover_pct), ("delete_pct", f.turnover_pct)];
    let asked = shares.into_iter().filter(|(_, pct)| !pct.is_zero());
    keys.extend(asked.map(|(name, pct)| (name, json!(pct.as_f64()))));
    if f.update_width > 0 {
        keys.push(("update_width", json!(f.update_width)));
    }
    if let Some(think) = &f.think {
        keys.push(("think_pct", json!(think.pct.as_f64())));
        keys.push(("think_min", json!(exact_duration(think.shortest))));
        keys.push(("think_max", json!(exact_duration(think.longest))));
    }
    keys.extend(f.work_loop.map(|calls| ("work_loop", json!(calls))));
    if !f.ramp.is_zero() {
        keys.push(("ramp", json!(exact_duration(f.ramp))));
    }
    if f.single_table {
        keys.push(("table_model", json!("single")));
    }
    keys
}

pub(super) fn metrics(
    s: &SlobSettings,
    totals: &Totals,
    seconds: f64,
) -> Vec<(&'static str, Option<f64>)> {
    let f = &s.features;
    let per_second = |n: f64| Some(n / seconds);
    let counted = |name: &str| totals.counted(name);
    let [reads, updates, scans, inserts, deletes] =
        SLOB_CALLS.map(|class| totals.count(class.name()) as f64);
    let calls = totals.slob_calls() as f64;

    let mut metrics = vec![("block_visits_per_second", per_second(totals.block_visits() as f64))];
    if s.update_pct > 0 {
        metrics.extend([
            ("updates_per_second", per_second(totals.rows_updated as f64)),
            ("update_calls_per_second", per_second(updates)),
            ("update_pct_measured", percent(updates, calls)),
        ]);
    }
    let is_mix = !s.read_only() || !f.scan_pct.is_zero() || !f.turnover_pct.is_zero();
    if is_mix {
        // Commits as well, because a call may wait for its own.
        let classes = SLOB_CALLS.into_iter().chain([Class::Commit]);
        let timed = classes.filter_map(|class| totals.histograms.get(class.name()));
        let busy: f64 = timed.clone().map(Histogram::total_sum_ns).sum();
        let cut_off: u64 = timed.map(Histogram::censored_count).sum();
        let calls = calls + cut_off as f64;
        metrics.push((CALL_MEAN, (calls > 0.0).then(|| busy / 1e9 / calls)));
    }
    if !s.read_only() {
        metrics.push(("deadlocks", Some(totals.deadlocks as f64)));
    }
    if !f.scan_pct.is_zero() {
        metrics.push(("blocks_scanned_per_second", per_second(totals.blocks_scanned() as f64)));
        metrics.push(("scan_pct_measured", percent(scans, calls)));
    }
    if !f.turnover_pct.is_zero() {
        metrics.extend([
            ("inserts_per_second", per_second(counted("rows_inserted"))),
            ("deletes_per_second", per_second(counted("rows_deleted"))),
            ("insert_pct_measured", percent(inserts, calls)),
            ("delete_pct_measured", percent(deletes, calls)),
        ]);
    }
    if f.visits != KeyDistribution::Uniform {
        let expected = expected_hot_calls(s, reads, updates);
        metrics.push(("hot_pct_asked", percent(expected, reads + updates)));
        metrics.push(("hot_pct_measured", percent(counted("hot"), reads + updates)));
    }
    if f.hot_table.is_some() {
        let measured = percent(counted("hot_table"), reads + updates);
        metrics.push(("hot_table_pct_measured", measured));
    }
    if f.think.is_some() {
        let (think_count, think_seconds) = (counted("thinks"), counted("thought_us") / 1e6);
        metrics.extend([
            ("think_pct_measured", percent(think_count, calls)),
            ("think_time_mean", (think_count > 0.0).then(|| think_seconds / think_count)),
            ("think_share", Some(think_seconds / (f64::from(s.sessions()) * seconds))),
        ]);
    }
    metrics
}

/// Returns the expected number of hot calls among these reads and updates.
fn expected_hot_calls(s: &SlobSettings, reads: f64, updates: f64) -> f64 {
    let share = |unit: u64| {
        Draw { visits: &s.features.visits, keys: s.scale.blocks(), unit }.hot_share().unwrap_or(0.0)
    };
    reads * share(s.work_unit) + updates * share(s.update_work_unit)
}

fn percent(part: f64, total: f64) -> Option<f64> {
    (total > 0.0).then(|| 100.0 * part / total)
}
