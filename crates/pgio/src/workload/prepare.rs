//! Prepares a session and asks its server: settings, pinned or switched between slices, privileges, plans, clock,
//! version.

use std::collections::BTreeMap;

use pgio_connect::{Client, SimpleQueryMessage, SimpleQueryRow};

use super::error::EngineError;
use super::{PlanCheck, Script};
use crate::pg::literal;
use crate::pg::server::TIMEOUTS;

/// Pins the settings that must not differ between trials, then reads all of them back.
pub(super) fn pin(
    client: &mut Client,
    script: &Script,
    condition: &[(String, String)],
) -> Result<BTreeMap<String, String>, EngineError> {
    let mut pinned = BTreeMap::new();
    for name in TIMEOUTS {
        if exists(client, name)? {
            pinned.insert((*name).to_owned(), show(client, name)?);
        }
    }
    let mut wanted: Vec<(String, String)> = Vec::new();
    wanted.push(("default_transaction_isolation".to_owned(), "read committed".to_owned()));
    wanted.push(("default_transaction_read_only".to_owned(), "off".to_owned()));
    // Pin it to its current value, so that a reload in mid-trial cannot change it.
    wanted.push(("synchronous_commit".to_owned(), show(client, "synchronous_commit")?));
    wanted
        .extend(script.pins.iter().map(|(name, value)| (name.clone().into_owned(), value.clone())));
    wanted.extend(condition.iter().cloned());
    for (name, value) in &wanted {
        // Do not use SET, which takes the text of a list as one element.
        client
            .execute("SELECT set_config($1, $2, false)", &[name, value])
            .map_err(failed("pinning a setting"))?;
        pinned.insert(name.clone(), show(client, name)?);
    }
    Ok(pinned)
}

/// Checks the privileges that the session needs, so that the error can name the GRANT.
pub(super) fn check_privileges(client: &mut Client, script: &Script) -> Result<(), EngineError> {
    let row = client
        .query_one(
            "SELECT quote_ident(current_user), has_language_privilege('plpgsql', 'USAGE')",
            &[],
        )
        .map_err(failed("checking privileges"))?;
    let role: String = row.try_get(0)?;
    if !script.body.is_empty() && !row.try_get::<_, bool>(1)? {
        return Err(EngineError::Privilege {
            role,
            what: "run blocks of PL/pgSQL".to_owned(),
            grant: "USAGE ON LANGUAGE plpgsql".to_owned(),
        });
    }
    for (table, privilege) in &script.privileges {
        let row = client
            .query_one(
                "SELECT has_table_privilege($1::text, $2), $1::text::regclass::text",
                &[table, &&**privilege],
            )
            .map_err(failed("checking privileges"))?;
        if !row.try_get::<_, bool>(0)? {
            let table: String = row.try_get(1)?;
            return Err(EngineError::Privilege {
                role,
                what: format!("{privilege} {table}"),
                grant: format!("{privilege} ON {table}"),
            });
        }
    }
    Ok(())
}

fn exists(client: &mut Client, name: &str) -> Result<bool, EngineError> {
    let row = client
        .query_one("SELECT current_setting($1, true) IS NOT NULL", &[&name])
        .map_err(failed("reading a setting"))?;
    Ok(row.try_get(0)?)
}

fn show(client: &mut Client, name: &str) -> Result<String, EngineError> {
    client
        .query_one("SELECT current_setting($1)", &[&name])
        .and_then(|row| row.try_get(0))
        .map_err(failed("reading a setting"))
}

pub(super) fn check_plan(client: &mut Client, check: &PlanCheck) -> Result<(), EngineError> {
    // Empty parentheses are a syntax error.
    let listed = |items: Vec<String>| {
        if items.is_empty() { String::new() } else { format!("({})", items.join(", ")) }
    };
    let types = listed(vec!["bigint".to_owned(); check.parameters.len()]);
    let values = listed(check.parameters.iter().map(u64::to_string).collect());
    let sql = format!(
        "PREPARE pgio_plan{types} AS {}; EXPLAIN (FORMAT JSON) EXECUTE pgio_plan{values}; \
         DEALLOCATE pgio_plan",
        check.statement,
    );
    let messages = client.simple_query(&sql).map_err(failed("checking a plan"))?;
    let plan = first_row(&messages).and_then(|row| row.try_get(0).ok()?).unwrap_or_default();
    let nodes = node_types(plan);
    let scans = || nodes.iter().filter(|n| n.contains("Scan") && n.as_str() != "Function Scan");
    // The index part of a bitmap scan is a separate node.
    let right = |n: &&String| n.as_str() == &*check.node || n.as_str() == "Bitmap Index Scan";
    if scans().any(|n| *n == check.node) && scans().all(|n| right(&n)) {
        return Ok(());
    }
    Err(EngineError::Plan {
        statement: check.statement.clone(),
        found: nodes.join(" / "),
        wanted: check.node.clone().into_owned(),
    })
}

fn node_types(plan: &str) -> Vec<String> {
    fn walk(value: &serde_json::Value, found: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(map) => {
                if let Some(serde_json::Value::String(node)) = map.get("Node Type") {
                    found.push(node.clone());
                }
                map.values().for_each(|v| walk(v, found));
            }
            serde_json::Value::Array(items) => items.iter().for_each(|v| walk(v, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    if let Ok(value) = serde_json::from_str(plan) {
        walk(&value, &mut found);
    }
    found
}

/// Returns the first row of an answer.
pub(super) fn first_row(answer: &[SimpleQueryMessage]) -> Option<&SimpleQueryRow> {
    answer.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    })
}

pub(super) fn server_clock(client: &mut Client) -> Result<f64, EngineError> {
    let row = client
        .query_one("SELECT date_part('epoch', clock_timestamp())", &[])
        .map_err(failed("reading the server's clock"))?;
    Ok(row.try_get(0)?)
}

pub(crate) fn version_num(client: &mut Client) -> Result<u32, EngineError> {
    let row = client
        .query_one("SELECT current_setting('server_version_num')::int", &[])
        .map_err(failed("querying the version"))?;
    Ok(row.try_get::<_, i32>(0)?.unsigned_abs())
}

pub(super) fn backend_pid(client: &mut Client) -> Result<i32, EngineError> {
    let row = client
        .query_one("SELECT pg_backend_pid()", &[])
        .map_err(failed("querying the process ID"))?;
    Ok(row.try_get(0)?)
}

impl From<pgio_connect::Error> for EngineError {
    fn from(source: pgio_connect::Error) -> EngineError {
        failed("reading the server's answer")(source)
    }
}

pub(super) fn failed(doing: &'static str) -> impl Fn(pgio_connect::Error) -> EngineError {
    move |source| EngineError::Postgres { doing, source }
}

/// A setting of a condition, and its value; none: the value from before the first slice.
pub(super) type Switches = Vec<(String, Option<String>)>;

/// The values from before the first slice, in the order of the settings.
#[derive(Default)]
pub(super) struct Prior(Option<Vec<String>>);

impl Prior {
    /// Sets the values of a condition; returns all of them as the server reports them.
    pub(super) fn switch(
        &mut self,
        client: &mut Client,
        settings: &Switches,
    ) -> Result<Vec<(String, String)>, EngineError> {
        let prior = match self.0.take() {
            Some(prior) => prior,
            None => current_values(client, settings)?.into_iter().map(|(_, value)| value).collect(),
        };
        let set = settings.iter().zip(&prior).map(|((name, value), prior)| {
            let value = value.as_ref().unwrap_or(prior);
            format!("set_config({}, {}, false)", literal(name), literal(value))
        });
        let now = query_values(client, settings, &set.collect::<Vec<_>>());
        self.0 = Some(prior);
        now
    }
}

/// Returns the current values of these settings.
pub(super) fn current_values(
    client: &mut Client,
    settings: &Switches,
) -> Result<Vec<(String, String)>, EngineError> {
    query_values(client, settings, &expressions(settings))
}

/// Returns an expression for the current value of each setting.
pub(super) fn expressions(settings: &Switches) -> Vec<String> {
    settings.iter().map(|(name, _)| format!("current_setting({})", literal(name))).collect()
}

/// Returns the values of these expressions, one for each setting.
fn query_values(
    client: &mut Client,
    settings: &Switches,
    expressions: &[String],
) -> Result<Vec<(String, String)>, EngineError> {
    if expressions.is_empty() {
        return Ok(Vec::new());
    }
    let query = format!("SELECT {}", expressions.join(", "));
    let messages = client.simple_query(&query).map_err(failed("switching settings"))?;
    let row = first_row(&messages);
    let value =
        |at: usize| row.and_then(|row| row.try_get(at).ok()?).unwrap_or_default().to_owned();
    Ok(settings.iter().enumerate().map(|(at, (name, _))| (name.clone(), value(at))).collect())
}
