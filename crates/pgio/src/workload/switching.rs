//! Switches the settings of a session between slices, with one round trip for all of them.

use postgres::{Client, SimpleQueryMessage};

use super::error::EngineError;
use super::prepare::failed;
use crate::pg::quote::literal;

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
    let row = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let value =
        |at: usize| row.and_then(|row| row.try_get(at).ok()?).unwrap_or_default().to_owned();
    Ok(settings.iter().enumerate().map(|(at, (name, _))| (name.clone(), value(at))).collect())
}
