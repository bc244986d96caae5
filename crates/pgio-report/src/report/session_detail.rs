//! The content of pgio_session_detail.out: what each session did, as the original lays it out.
//!
//! One psql row a session, so each is padded on its own. A loop iteration is one call; the blocks
//! that updates touched are the rows they changed, since each row has a block of its own.

use pgio_results::Trial;
use pgio_results::model::SessionTotals;

const COLUMNS: [&str; 8] = [
    "mypid",
    "loop_iterations",
    "sql_selects",
    "sql_updates",
    "sql_select_max_tm",
    "sql_update_max_tm",
    "select_blk_touch_cnt",
    "update_blk_touch_cnt",
];

pub fn render(trial: &Trial) -> String {
    let rules: Vec<String> = COLUMNS.iter().map(|c| "-".repeat(c.len() + 2)).collect();
    let mut text = format!("\n {}\n{}\n\n", COLUMNS.join(" | "), rules.join("+"));
    for session in &trial.sessions {
        text += &row(session);
        text += "\n\n";
    }
    text
}

fn row(s: &SessionTotals) -> String {
    let values = [
        s.pid.to_string(),
        (s.reads + s.updates).to_string(),
        s.reads.to_string(),
        s.updates.to_string(),
        longest(s.reads, s.read_max_seconds),
        longest(s.updates, s.update_max_seconds),
        s.blocks_read.to_string(),
        s.rows_updated.to_string(),
    ];
    let cells = values.iter().zip(COLUMNS).map(|(value, heading)| {
        let width = heading.len();
        format!("{value:>width$}")
    });
    format!(" {}", cells.collect::<Vec<_>>().join(" | "))
}

/// Seconds; `0.0` where there was no call.
fn longest(calls: u64, seconds: f64) -> String {
    if calls == 0 { "0.0".to_owned() } else { format!("{seconds:.8}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::test_support::classic_trial;

    #[test]
    fn session_detail_has_a_row_for_each_session() {
        let mut trial = classic_trial();
        let reader = SessionTotals {
            pid: 10_058,
            reads: 17_742,
            blocks_read: 4_524_210,
            read_max_seconds: 0.006_575,
            ..SessionTotals::default()
        };
        let writer = SessionTotals {
            pid: 1_234_567,
            reads: 90,
            updates: 10,
            rows_updated: 80,
            blocks_read: 22_950,
            read_max_seconds: 0.25,
            update_max_seconds: 1.5,
            ..SessionTotals::default()
        };
        trial.sessions = vec![reader, writer];
        let head = "
 mypid | loop_iterations | sql_selects | sql_updates | sql_select_max_tm | sql_update_max_tm | select_blk_touch_cnt | update_blk_touch_cnt
-------+-----------------+-------------+-------------+-------------------+-------------------+----------------------+----------------------

";
        let rows = " 10058 |           17742 |       17742 |           0 |        0.00657500 |               0.0 |              4524210 |                    0

 1234567 |             100 |          90 |          10 |        0.25000000 |        1.50000000 |                22950 |                   80

";
        assert_eq!(render(&trial), format!("{head}{rows}"));
    }

    #[test]
    fn session_detail_without_sessions_has_only_the_heading() {
        let mut trial = classic_trial();
        trial.sessions.clear();
        assert_eq!(render(&trial).lines().count(), 4);
    }
}
