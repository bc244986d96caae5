//! The workloads of the client-side engine: the statements of `slob` and `commit`.
//!
//! `slob` sends the same statements, one at a time, with keys drawn by the client. An UPDATE commits in its own
//! round trip, so its latency includes the commit. `commit` sends one INSERT that commits by itself, or BEGIN,
//! several INSERTs and COMMIT together; each row sends its filler, as an application would.

use std::borrow::Cow;

use super::calls::{AllCalls, BIGINT, Call, Calls, Counts, Parameter, Statement, Step, TEXT};
use crate::config::resolve::CommitSettings;
use crate::workload::commit::Commit;
use crate::workload::slob::Slob;
use crate::workload::slob::tables::key_range;
use crate::workload::{Script, Sessions, sql};

/// Returns the work of all sessions.
pub(in crate::workload) fn slob_calls(slob: &Slob) -> AllCalls {
    AllCalls::per_session((0..slob.count()).map(|session| session_calls(slob, session)).collect())
}

fn session_calls(slob: &Slob, session: u32) -> Calls {
    let s = &slob.settings;
    let script = Script { body: String::new(), ..slob.script(session) };
    let table = sql::qualified(&slob.schema, &script.table);
    let keys = s.scale.blocks();
    let (what, counts) = match s.work_unit {
        1 => ("scratch", Counts::Read),
        _ => ("count(*)", Counts::ReadCount),
    };
    let call = |statement: &'static str, share, counts, unit| Call {
        share,
        counts,
        steps: vec![Step {
            statement: statement.into(),
            parameters: vec![Parameter::Key(keys - unit + 1)],
            times: 1,
        }],
    };
    let statement =
        |name: &'static str, sql| Statement { name: name.into(), sql, types: vec![BIGINT] };
    let share = f64::from(s.update_pct) / 100.0;
    let mut calls = Calls { script, statements: Vec::new(), calls: Vec::new() };
    if share < 1.0 {
        let sql = format!("SELECT {what} FROM {table} WHERE {}", key_range("$1", s.work_unit));
        calls.statements.push(statement("r", sql));
        calls.calls.push(call("r", 1.0 - share, counts, s.work_unit));
    }
    if share > 0.0 {
        let range = key_range("$1", s.update_work_unit);
        let sql = format!("UPDATE {table} SET scratch = scratch + 1 WHERE {range}");
        calls.statements.push(statement("u", sql));
        calls.calls.push(call("u", share, Counts::Update, s.update_work_unit));
    }
    calls
}

/// Returns the work of all sessions.
pub(in crate::workload) fn commit_calls(commit: &Commit) -> AllCalls {
    let s = &commit.settings;
    let script = Script { body: String::new(), ..commit.script(0) };
    let statement = |name, sql: &str| Statement {
        name: Cow::Borrowed(name),
        sql: sql.to_owned(),
        types: Vec::new(),
    };
    let insert = format!("INSERT INTO {} (n, filler) VALUES ($1, $2)", commit.qualified());
    let insert = Statement { name: "i".into(), sql: insert, types: vec![BIGINT, TEXT] };
    let mut statements = vec![insert];
    if s.rows_per_transaction > 1 {
        statements.extend([statement("b", "BEGIN"), statement("c", "COMMIT")]);
    }
    let call = Call { share: 1.0, counts: Counts::Insert, steps: steps(s) };
    AllCalls::shared(Calls { script, statements, calls: vec![call] }, s.sessions)
}

fn steps(settings: &CommitSettings) -> Vec<Step> {
    let filler = match settings.payload {
        0 => Parameter::Null,
        length => Parameter::Filler(length),
    };
    let rows = settings.rows_per_transaction;
    let insert = Step {
        statement: "i".into(),
        parameters: vec![Parameter::Repetition, filler],
        times: rows,
    };
    let alone =
        |statement| Step { statement: Cow::Borrowed(statement), parameters: Vec::new(), times: 1 };
    match rows {
        1 => vec![insert],
        _ => vec![alone("b"), insert, alone("c")],
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::resolve::Extent;
    use crate::config::{ClientSettings, Engine};
    use crate::workload::drivers::Work;

    #[test]
    fn the_work_of_many_sessions_with_many_long_rows_is_a_short_message() {
        let client = ClientSettings { threads: 1, pipeline: 1, pace: None };
        let settings = CommitSettings {
            sessions: 1000,
            rows_per_transaction: 1_000_000,
            payload: 100_000,
            index: false,
            extent: Extent::Time(Duration::from_secs(1)),
            engine: Engine::Client(client),
            warmup: Duration::ZERO,
            seed: None,
        };
        let calls = commit_calls(&Commit { settings, schema: "public".to_owned() });
        assert_eq!(calls.sessions(), 1000);
        let message = serde_json::to_vec(&Work::Client { calls, settings: client }).unwrap();
        assert!(message.len() < 10_000, "{}", message.len());
    }
}
