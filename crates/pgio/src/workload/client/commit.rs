//! The workload `commit` of the client-side engine: one INSERT that commits by itself, or BEGIN,
//! several INSERTs and COMMIT, sent together. Each row sends its filler, as an application would.

use std::borrow::Cow;

use super::calls::{AllCalls, BIGINT, Call, Calls, Counts, Parameter, Statement, Step, TEXT};
use crate::config::resolve::CommitSettings;
use crate::workload::commit::Commit;
use crate::workload::{Script, Sessions};

/// Returns the work of all sessions.
pub(in crate::workload) fn calls(commit: &Commit) -> AllCalls {
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
    let insert =
        Step { statement: "i".into(), parameters: vec![Parameter::Turn, filler], times: rows };
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
    use crate::workload::drivers::messages::Work;

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
        let calls = calls(&Commit { settings, schema: "public".to_owned() });
        assert_eq!(calls.sessions(), 1000);
        let message = serde_json::to_vec(&Work::Client { calls, settings: client }).unwrap();
        assert!(message.len() < 10_000, "{}", message.len());
    }
}
