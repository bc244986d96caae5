//! The table of background work: what ran beside which condition, and how much it did.
//!
//! Numbers come from `analysis::background`; without background work there is no table.

use super::format::{self, NONE};
use super::table::{Column, Table};
use crate::analysis::Analysis;
use crate::analysis::background::BackgroundRate;

pub(super) fn table(analysis: &Analysis) -> Option<Table> {
    let all = &analysis.background;
    let row = |n: &BackgroundRate| {
        let shown = |value: Option<f64>| value.map_or_else(|| NONE.to_owned(), format::number);
        vec![
            n.condition.clone(),
            n.name.clone(),
            match &n.standby {
                Some(standby) => format!("{}, {standby}", n.target),
                None => n.target.clone(),
            },
            n.kind.clone(),
            format::metric_name(&n.metric),
            shown(n.mean),
            format!("{} … {}", shown(n.lowest), shown(n.highest)),
            n.trials.to_string(),
        ]
    };
    let table = Table {
        title: "Background work".to_owned(),
        columns: vec![
            Column::left("condition"),
            Column::left("beside it"),
            Column::left("on"),
            Column::left("workload"),
            Column::left("metric"),
            Column::right("mean"),
            Column::right("range"),
            Column::right("trials"),
        ],
        rows: all.iter().map(row).collect(),
        notes: vec![
            "Background work is not judged; a wide range means that the neighbor was not equally loud in all trials."
                .to_owned(),
        ],
    };
    (!all.is_empty()).then_some(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::analyze;
    use crate::analysis::test_support::demo;

    #[test]
    fn a_neighbor_shows_its_server_and_its_rate() {
        let mut analysis = analyze(&demo());
        assert_eq!(table(&analysis), None);
        analysis.background = vec![BackgroundRate {
            condition: "noisy".to_owned(),
            name: "load".to_owned(),
            target: "n1".to_owned(),
            metric: "commits_per_second".to_owned(),
            mean: Some(150.0),
            lowest: Some(100.0),
            trials: 6,
            ..BackgroundRate::default()
        }];
        let table = table(&analysis).unwrap();
        assert_eq!(table.rows[0].len(), table.columns.len());
        assert_eq!(table.rows[0][2], "n1");
        assert_eq!(table.rows[0][4], "commits/s");
        assert!(table.rows[0][6].starts_with("100") && table.rows[0][6].ends_with(NONE));
    }
}
