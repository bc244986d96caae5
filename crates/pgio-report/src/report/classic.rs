//! The lines that the original pgio prints, character for character in form.
//!
//! Scripts parse them (`RIOPS >N< CACHE_HITS/s >N<` above all), so blanks at line ends and the
//! layout of psql's rows are part of it. `trial` prints further results below them. [`session_detail`] is the content of
//! the file of that name.
//! Times and rates are of our window, which all sessions share; docs/METHODOLOGY.md explains what the
//! original's figures mean and do not mean.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use pgio_results::Trial;
use pgio_results::model::{DatabaseRow, SessionTotals};

/// psql's columns after `datname`; its cells are at least as wide as these.
const COUNTERS: [&str; 5] = ["blks_hit", "blks_read", "tup_returned", "tup_fetched", "tup_updated"];

/// Facts known before a run starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// RFC 3339.
    pub started_at: String,
    pub connect_string: String,
    pub shared_buffers: String,
    pub tables: u32,
    /// From [`sessions_per_table`].
    pub sessions_per_table: String,
    /// As requested, such as `200M`.
    pub scale: String,
    pub blocks_per_table: u64,
}

impl Head {
    /// From a stored trial; the connect string is not stored, since it may hold a secret.
    pub fn new(trial: &Trial, connect_string: &str) -> Head {
        let (tables, sessions_per_table) = shape(trial);
        let dataset = trial.dataset.as_ref();
        Head {
            started_at: trial.started_at.clone(),
            connect_string: connect_string.to_owned(),
            shared_buffers: trial.server.shared_buffers.clone(),
            tables,
            sessions_per_table,
            scale: dataset.map_or_else(String::new, |d| d.scale.clone()),
            blocks_per_table: dataset.map_or(0, |d| d.blocks_per_table),
        }
    }
}

/// The lines printed before the sessions start. `monitors` is whether iostat, vmstat and mpstat
/// really run; `zone` is the reader's.
pub fn head(head: &Head, monitors: bool, zone: &TimeZone) -> String {
    let Head { connect_string, shared_buffers, tables, sessions_per_table, scale, .. } = head;
    let running = if monitors {
        "Running iostat, vmstat and mpstat on current host--in background.\n"
    } else {
        ""
    };
    format!(
        "Date: {date}\n\
         Database connect string: \"{connect_string}\". \n\
         Shared buffers: {shared_buffers}. \n\
         Testing {tables} schemas with {sessions_per_table} thread(s) accessing {scale} \
         ({blocks} blocks) of each schema.\n\
         {running}\
         Launching sessions. {tables} schema(s) will be accessed by {sessions_per_table} \
         thread(s) each.\n",
        date = date(&head.started_at, zone),
        blocks = head.blocks_per_table,
    )
}

/// The lines printed when the sessions are done, with the blank line that ends them.
pub fn tail(trial: &Trial) -> String {
    let database = &trial.server.database;
    let counters = trial.database.clone().unwrap_or_default();
    let (tables, sessions_per_table) = shape(trial);
    let seconds = trial.window.seconds;
    let per_second = |name: &str, column: fn(&DatabaseRow) -> i64| {
        let stored = trial.metrics.get(name).and_then(|m| m.value);
        let counted = (column(&counters.after) - column(&counters.before)) as f64 / seconds;
        let value = stored.unwrap_or(counted);
        // Truncated, as awk's %ld does.
        if value.is_finite() { value as i64 } else { 0 }
    };
    format!(
        "pg_stat_database stats:\n\
         {heading:>17}| {columns}\n\
         BEFORE: {before}\n\
         AFTER:  {after}\n\
         DBNAME:  {database}. {tables} schemas, {sessions_per_table} threads(each). \
         Run time: {run_time} seconds. RIOPS >{riops}< CACHE_HITS/s >{hits}<\n\n",
        heading = "datname",
        columns = "blks_hit| blks_read|tup_returned|tup_fetched|tup_updated",
        before = psql_row(database, &counters.before),
        after = psql_row(database, &counters.after),
        run_time = seconds.round() as u64,
        riops = per_second("riops", |row| row.blks_read),
        hits = per_second("cache_hits_per_second", |row| row.blks_hit),
    )
}

/// One row as `psql -t` aligns it when it is the only one.
fn psql_row(database: &str, row: &DatabaseRow) -> String {
    let DatabaseRow { blks_hit, blks_read, tup_returned, tup_fetched, tup_updated } = row;
    let values = [blks_hit, blks_read, tup_returned, tup_fetched, tup_updated];
    let cells = values.iter().zip(COUNTERS).map(|(value, heading)| {
        let width = heading.len();
        format!("{value:>width$}")
    });
    format!(" {database:<7} | {}", cells.collect::<Vec<_>>().join(" | "))
}

/// As date(1) prints it in the C locale; an unparsable time is printed unchanged.
fn date(started_at: &str, zone: &TimeZone) -> String {
    match started_at.parse::<Timestamp>() {
        Ok(at) => at.to_zoned(zone.clone()).strftime("%a %b %e %H:%M:%S %Z %Y").to_string(),
        Err(_) => started_at.to_owned(),
    }
}

/// Tables, and sessions on each.
fn shape(trial: &Trial) -> (u32, String) {
    let tables = trial.dataset.as_ref().map_or(1, |d| d.tables).max(1);
    (tables, sessions_per_table(trial.sessions.len() as u32, tables))
}

/// Returns the number of sessions on each of the tables, of which there is at least one: `2`, or `1 to 2` if the
/// first tables have one more.
pub fn sessions_per_table(sessions: u32, tables: u32) -> String {
    match (sessions / tables, sessions % tables) {
        // Fewer than tables are still one on each, in turn.
        (0, _) => sessions.min(1).to_string(),
        (each, 0) => each.to_string(),
        (each, _) => format!("{each} to {}", each + 1),
    }
}

const SESSION_COLUMNS: [&str; 8] = [
    "mypid",
    "loop_iterations",
    "sql_selects",
    "sql_updates",
    "sql_select_max_tm",
    "sql_update_max_tm",
    "select_blk_touch_cnt",
    "update_blk_touch_cnt",
];

/// The content of pgio_session_detail.out: what each session did. One psql row a session, so each is padded on its own. A
/// loop iteration is one call; the blocks that updates touched are the rows they changed, since each row has a block of
/// its own.
pub fn session_detail(trial: &Trial) -> String {
    let rules: Vec<String> = SESSION_COLUMNS.iter().map(|c| "-".repeat(c.len() + 2)).collect();
    let mut text = format!("\n {}\n{}\n\n", SESSION_COLUMNS.join(" | "), rules.join("+"));
    for session in &trial.sessions {
        text += &session_row(session);
        text += "\n\n";
    }
    text
}

fn session_row(s: &SessionTotals) -> String {
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
    let cells = values.iter().zip(SESSION_COLUMNS).map(|(value, heading)| {
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
    use pgio_verdict::test_support::classic_trial;

    #[test]
    fn the_classic_head_matches_the_original() {
        let trial = classic_trial();
        let printed = head(&Head::new(&trial, "pgio"), true, &TimeZone::UTC);
        assert_eq!(
            printed,
            "Date: Sat Jun  2 05:09:46 UTC 2018\n\
             Database connect string: \"pgio\". \n\
             Shared buffers: 128MB. \n\
             Testing 1 schemas with 1 thread(s) accessing 200M (25600 blocks) of each schema.\n\
             Running iostat, vmstat and mpstat on current host--in background.\n\
             Launching sessions. 1 schema(s) will be accessed by 1 thread(s) each.\n"
        );
        let without = head(&Head::new(&trial, "pgio"), false, &TimeZone::UTC);
        assert!(!without.contains("iostat"));
        assert_eq!(without.lines().count() + 1, printed.lines().count());
    }

    #[test]
    fn the_classic_tail_matches_the_original() {
        assert_eq!(
            tail(&classic_trial()),
            "pg_stat_database stats:\n\
             \x20         datname| blks_hit| blks_read|tup_returned|tup_fetched|tup_updated\n\
             BEFORE:  pgio    |    98053 |     34640 |        34309 |        6780 |           8\n\
             AFTER:   pgio    | 19467796 |  11956992 |     30807460 |    29665212 |      115478\n\
             DBNAME:  pgio. 1 schemas, 1 threads(each). Run time: 120 seconds. \
             RIOPS >99352< CACHE_HITS/s >161414<\n\n"
        );
    }

    #[test]
    fn each_row_is_padded_on_its_own() {
        let row = DatabaseRow {
            blks_hit: 16_676_782,
            blks_read: 38_983_698,
            tup_returned: 50_520_035,
            tup_fetched: 48_666_552,
            tup_updated: 300_444,
        };
        assert_eq!(
            psql_row("pgiotest", &row),
            " pgiotest | 16676782 |  38983698 |     50520035 |    48666552 |      300444"
        );
        let wide = psql_row("pgio", &DatabaseRow { blks_hit: 1_234_567_890, ..row });
        assert!(wide.starts_with(" pgio    | 1234567890 |  38983698 |"));
    }

    #[test]
    fn rates_are_truncated_and_the_stored_one_counts() {
        let mut trial = classic_trial();
        trial.window.seconds = 119.6;
        let metric = |value| pgio_results::Metric::new(Some(value), "");
        trial.metrics.insert("riops".to_owned(), metric(5032.999));
        let printed = tail(&trial);
        assert!(printed.contains("Run time: 120 seconds. RIOPS >5032< "), "{printed}");
    }

    #[test]
    fn sessions_that_do_not_divide_evenly_are_a_range() {
        let on_four = |sessions| sessions_per_table(sessions, 4);
        assert_eq!([0, 3, 4, 6, 8, 11].map(on_four), ["0", "1", "1", "1 to 2", "2", "2 to 3"]);
        let mut trial = classic_trial();
        trial.dataset.as_mut().unwrap().tables = 4;
        trial.sessions = vec![trial.sessions[0].clone(); 6];
        let printed = head(&Head::new(&trial, "pgio"), false, &TimeZone::UTC);
        assert!(printed.contains("Testing 4 schemas with 1 to 2 thread(s) accessing"), "{printed}");
        assert!(printed.contains("4 schema(s) will be accessed by 1 to 2 thread(s) each.\n"));
        assert!(tail(&trial).contains("pgio. 4 schemas, 1 to 2 threads(each). Run time"));
    }

    #[test]
    fn the_classic_tail_prints_zeros_without_measurements() {
        let mut trial = classic_trial();
        trial.database = None;
        trial.window.seconds = 0.0;
        trial.sessions.clear();
        assert!(tail(&trial).contains("0 threads(each). Run time: 0 seconds. RIOPS >0<"));
    }

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
        assert_eq!(session_detail(&trial), format!("{head}{rows}"));
    }

    #[test]
    fn session_detail_without_sessions_has_only_the_heading() {
        let mut trial = classic_trial();
        trial.sessions.clear();
        assert_eq!(session_detail(&trial).lines().count(), 4);
    }
}
