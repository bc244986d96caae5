//! The workload `commit` of the client-side engine: one INSERT that commits by itself, or BEGIN,
//! several INSERTs and COMMIT, sent together. Each row sends its filler, as an application would.

use std::borrow::Cow;

use super::calls::{BIGINT, Call, Calls, Counts, Parameter, Statement, Step, TEXT};
use crate::config::resolve::CommitSettings;
use crate::workload::commit::Commit;
use crate::workload::{Script, Sessions};

/// Returns the work of each session.
pub(in crate::workload) fn calls(commit: &Commit) -> Vec<Calls> {
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
    let all = Calls { script, statements, calls: vec![call] };
    vec![all; s.sessions as usize]
}

fn steps(settings: &CommitSettings) -> Vec<Step> {
    let filler = match settings.payload {
        0 => Parameter::Null,
        n => Parameter::Text("X".repeat(n as usize)),
    };
    let insert = |n: u32| Step {
        statement: "i".into(),
        parameters: vec![Parameter::Number(i64::from(n)), filler.clone()],
    };
    let alone = |statement| Step { statement: Cow::Borrowed(statement), parameters: Vec::new() };
    let inserts = (1..=settings.rows_per_transaction).map(insert);
    match settings.rows_per_transaction {
        1 => inserts.collect(),
        _ => std::iter::once(alone("b")).chain(inserts).chain([alone("c")]).collect(),
    }
}
