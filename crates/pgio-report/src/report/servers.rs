//! The table of the servers that share a condition's window: rate, share of the sum, effect, and the outliers.

use super::format::{self, NONE};
use super::table::{Column, Table};
use pgio_results::Metric;
use pgio_verdict::{Analysis, Server};

/// More outliers than this are only counted.
const NAMED: usize = 10;

/// Returns none if every condition has one server.
pub(super) fn table(analysis: &Analysis) -> Option<Table> {
    let first = analysis.servers.first()?;
    let unit = analysis.unit(&first.metric);
    let columns = vec![
        Column::left("condition"),
        Column::left("server"),
        Column::right(format::metric_name(&first.metric)),
        Column::right("share of the sum"),
        Column::left("effect on it [95 %]"),
        Column::left(""),
    ];
    let mut last = "";
    let mut rows = Vec::new();
    for server in &analysis.servers {
        let condition = if server.condition == last { "" } else { &server.condition };
        last = &server.condition;
        rows.push(vec![
            condition.to_owned(),
            server.target.clone(),
            format::metric_below_heading(&Metric::new(server.value, unit)),
            server.share.map_or_else(|| NONE.to_owned(), |s| format!("{:.1} %", s * 100.0)),
            effect(analysis, server),
            if server.outlier { "outlier".to_owned() } else { String::new() },
        ]);
    }
    Some(Table { title: "Each server".to_owned(), columns, rows, notes: notes(analysis) })
}

fn effect(analysis: &Analysis, server: &Server) -> String {
    if server.condition == analysis.baseline {
        return "baseline".to_owned();
    }
    let Some(ratio) = server.ratio else { return NONE.to_owned() };
    let change = format::change_as_known(ratio, server.interval(), server.bound);
    let decided = server.verdict.is_some_and(|verdict| verdict.is_decided());
    format!("{}{change}", if decided { "" } else { "~ " })
}

fn notes(analysis: &Analysis) -> Vec<String> {
    let mut notes = Vec::new();
    let baseline = &analysis.baseline;
    let all = &analysis.servers;
    let has_baseline =
        |s: &Server| all.iter().any(|b| b.condition == *baseline && b.target == s.target);
    let (beside, elsewhere): (Vec<&Server>, Vec<&Server>) = all
        .iter()
        .filter(|s| s.condition != *baseline && s.ratio.is_none())
        .partition(|s| has_baseline(s));
    if !elsewhere.is_empty() {
        notes.push(format!("{NONE}: {baseline} does not run on this server, so it has no effect."));
    }
    if !beside.is_empty() {
        notes.push(format!("{NONE}: the values cannot be compared with those of {baseline}."));
    }
    if analysis.servers.iter().all(|s| s.deviation.is_none()) {
        return notes;
    }
    let outliers: Vec<&Server> = analysis.servers.iter().filter(|s| s.outlier).collect();
    let named = |s: &&Server| {
        let score = s.deviation.unwrap_or_default();
        let sign = if score.is_sign_negative() { '−' } else { '+' };
        format!("{} under {} ({sign}{:.1})", s.target, s.condition, score.abs())
    };
    let mut text = match outliers.len() {
        0 => "No server is an outlier".to_owned(),
        _ => {
            let names: Vec<String> = outliers.iter().take(NAMED).map(named).collect();
            format!("Outliers: {}", names.join(", "))
        }
    };
    if outliers.len() > NAMED {
        text += &format!(", and {} more", outliers.len() - NAMED);
    }
    notes.push(format!(
        "{text}. Test: modified z-score (Iglewicz and Hoaglin, 1993) among the servers of a condition, on log effects, \
         or on log values under {baseline}; if no server differs, one is named in 5 % of cases.",
    ));
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_verdict::analyze;
    use pgio_verdict::test_support::{experiment, trial};

    fn server(condition: &str, target: &str, ratio: Option<f64>, outlier: bool) -> Server {
        Server {
            condition: condition.to_owned(),
            target: target.to_owned(),
            metric: "commits_per_second".to_owned(),
            value: Some(1000.0 * ratio.unwrap_or(1.0)),
            share: Some(0.25),
            ratio,
            ratio_low: ratio.map(|r| r * 0.9),
            ratio_high: ratio.map(|r| r * 1.1),
            bound: None,
            verdict: None,
            deviation: Some(if outlier { -7.25 } else { 0.5 }),
            outlier,
        }
    }

    #[test]
    fn outliers_are_named_with_the_rule() {
        let mut stored = experiment(&["base", "slow"], vec![trial("base", 1, &[])]);
        stored.manifest.baseline = "base".to_owned();
        let mut analysis = analyze(&stored);
        assert!(table(&analysis).is_none());
        analysis.servers = vec![
            server("base", "n1", None, false),
            server("slow", "n1", Some(0.5), true),
            server("slow", "n2", None, false),
        ];
        let table = table(&analysis).unwrap();
        assert_eq!(table.rows[0][..5], ["base", "n1", "1,000", "25.0 %", "baseline"]);
        assert_eq!(table.rows[1][0..2], ["slow", "n1"]);
        assert!(table.rows[1][4].starts_with("~ −50"), "{:?}", table.rows[1]);
        assert_eq!(table.rows[1][5], "outlier");
        // The interval is open on one side.
        analysis.servers[1].ratio = Some(1.535);
        (analysis.servers[1].ratio_low, analysis.servers[1].ratio_high) = (Some(1.5), None);
        analysis.servers[1].bound = Some(pgio_verdict::Bound::AtLeast);
        analysis.servers[1].verdict = Some(pgio_verdict::Verdict::Slower);
        assert_eq!(effect(&analysis, &analysis.servers[1]), "≥ +53.5 % [from +50.0]");
        assert_eq!((table.rows[2][0].as_str(), table.rows[2][4].as_str()), ("", NONE));
        assert!(table.notes[0].contains("base does not run on this server"), "{:?}", table.notes);
        assert!(table.notes[1].starts_with("Outliers: n1 under slow (−7.2"), "{:?}", table.notes);
        assert!(table.notes[1].contains("Iglewicz and Hoaglin"), "{:?}", table.notes);
    }
}
