//! JSON schemas of the stored formats, from the types that read and write them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use pgio::cli::{DOCTOR_SCHEMA, DoctorDocument};
use pgio_report::analysis::across::{ACROSS_SCHEMA, Across};
use pgio_report::analysis::history::{HISTORY_SCHEMA, History};
use pgio_report::analysis::{ANALYSIS_SCHEMA, Analysis};
use pgio_report::report::json::{DEVICE_SCHEMA, DeviceV1};
use pgio_results::model::{TRIAL_SCHEMA, Trial};
use pgio_results::series::{SERIES_SCHEMA, Series};
use pgio_results::store::{MANIFEST_SCHEMA, Manifest};
use schemars::{JsonSchema, schema_for};
use serde_json::{Value, json};

pub(crate) const DIR: &str = "docs/schema";

/// The tag that each document carries, such as `pgio.trial/1`, and the schema of its type.
pub(crate) type Schema = (&'static str, Value);

pub(crate) fn schemas() -> Result<Vec<Schema>> {
    Ok(vec![
        schema::<Trial>(TRIAL_SCHEMA)?,
        schema::<Series>(SERIES_SCHEMA)?,
        schema::<Manifest>(MANIFEST_SCHEMA)?,
        schema::<Analysis>(ANALYSIS_SCHEMA)?,
        schema::<Across>(ACROSS_SCHEMA)?,
        schema::<History>(HISTORY_SCHEMA)?,
        schema::<DeviceV1>(DEVICE_SCHEMA)?,
        schema::<DoctorDocument>(DOCTOR_SCHEMA)?,
    ])
}

pub(crate) fn artifact((format, schema): &Schema) -> Result<(PathBuf, String)> {
    let path = Path::new(DIR).join(format!("{}.json", format.replace('/', ".")));
    Ok((path, serde_json::to_string_pretty(schema)? + "\n"))
}

fn schema<T: JsonSchema>(format: &'static str) -> Result<Schema> {
    let mut schema = schema_for!(T).to_value();
    let root = schema.as_object_mut().context("the schema of a struct is an object")?;
    root.insert("title".to_owned(), json!(format));
    let tag = root
        .get_mut("properties")
        .and_then(|p| p.get_mut("schema"))
        .and_then(Value::as_object_mut)
        .with_context(|| format!("{format} has no property `schema`"))?;
    tag.insert("const".to_owned(), json!(format));
    Ok((format, schema))
}
