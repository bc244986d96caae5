//! The table of standbys: how far each was behind, by how much it is delayed, and the use of its disk.
//!
//! Numbers come from `analysis::standbys`; without standbys there is no table.

use super::format::{self, NONE};
use super::table::{Column, Table};
use crate::analysis::Analysis;
use crate::analysis::standbys::StandbyUse;
use pgio_results::units::human;

pub(super) fn table(analysis: &Analysis) -> Option<Table> {
    let all = &analysis.standbys;
    let shown =
        |value: Option<f64>, show: fn(f64) -> String| value.map_or_else(|| NONE.to_owned(), show);
    let bytes = |value: f64| human::bytes(value.max(0.0) as u64);
    let row = |s: &StandbyUse| {
        let from = s.from.as_ref().map_or(String::new(), |from| format!("\nfrom {from}"));
        let delay = s.apply_delay_seconds.filter(|delay| *delay > 0.0);
        let delay = delay.map_or(String::new(), |d| format!("\ndelay {}", format::seconds(d)));
        vec![
            s.condition.clone(),
            format!("{}{from}{delay}", s.name),
            s.sync_state.clone(),
            format!("{} / {}", shown(s.mean_bytes_behind, bytes), shown(s.max_bytes_behind, bytes)),
            shown(s.flush_seconds, format::seconds),
            shown(s.replay_seconds, format::seconds),
            s.device.clone().unwrap_or_else(|| NONE.to_owned()),
            shown(s.written_bytes_per_second, human::byte_rate),
            shown(s.flushes_per_second, format::number),
            shown(s.utilisation, |share| format!("{:.0} %", share * 100.0)),
        ]
    };
    let table = Table {
        title: "Standbys".to_owned(),
        columns: vec![
            Column::left("condition"),
            Column::left("standby"),
            Column::left("state"),
            Column::right("behind (mean / max)"),
            Column::right("flush lag"),
            Column::right("replay lag"),
            Column::left("disk"),
            Column::right("written"),
            Column::right("flushes/s"),
            Column::right("busy"),
        ],
        rows: all.iter().map(row).collect(),
        notes: vec![
            "Behind: WAL that the server it streams from has and it has not replayed. The disk's \
             figures include everything else on that disk."
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
    fn a_standby_shows_its_place_its_delay_and_its_disk() {
        let mut analysis = analyze(&demo());
        assert_eq!(table(&analysis), None, "no standby");
        analysis.standbys = vec![StandbyUse {
            condition: "any".to_owned(),
            name: "b".to_owned(),
            from: Some("a".to_owned()),
            sync_state: "async".to_owned(),
            apply_delay_seconds: Some(5.0),
            max_bytes_behind: Some(8192.0),
            device: Some("vdc".to_owned()),
            utilisation: Some(0.25),
            ..StandbyUse::default()
        }];
        let table = table(&analysis).unwrap();
        let row: Vec<&str> = table.rows[0].iter().map(String::as_str).collect();
        assert_eq!(row.len(), table.columns.len());
        assert_eq!(row[1], "b\nfrom a\ndelay 5.00 s");
        assert!(row[3].starts_with(NONE) && row[3].contains('8'), "{row:?}");
        assert_eq!((row[6], row[9]), ("vdc", "25 %"));
    }
}
