//! The workload `slob` of the client-side engine: the same statements, one at a time, with keys drawn
//! by the client. An UPDATE commits in its own round trip, so its latency includes the commit.

use super::calls::{AllCalls, BIGINT, Call, Calls, Counts, Parameter, Statement, Step};
use crate::workload::slob::Slob;
use crate::workload::slob::tables::key_range;
use crate::workload::{Script, Sessions, sql};

/// Returns the work of all sessions.
pub(in crate::workload) fn calls(slob: &Slob) -> AllCalls {
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
