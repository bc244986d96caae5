//! JSON schemas of the stored formats, from the types that read and write them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use pgio::cli::{DOCTOR_SCHEMA, DoctorDocument};
use pgio_report::analysis::across::{ACROSS_SCHEMA, Across};
use pgio_report::analysis::history::{HISTORY_SCHEMA, History};
use pgio_report::analysis::{ANALYSIS_SCHEMA, Analysis};
use pgio_report::report::json::device::{DEVICE_SCHEMA, DeviceV1};
use pgio_results::model::{TRIAL_SCHEMA, Trial};
use pgio_results::series::{SERIES_SCHEMA, Series};
use pgio_results::store::{MANIFEST_SCHEMA, Manifest};
use schemars::{JsonSchema, schema_for};
use serde_json::{Value, json};

pub(crate) const DIR: &str = "docs/schema";

pub(crate) fn artifacts() -> Result<Vec<(PathBuf, String)>> {
    Ok(vec![
        artifact::<Trial>(TRIAL_SCHEMA)?,
        artifact::<Series>(SERIES_SCHEMA)?,
        artifact::<Manifest>(MANIFEST_SCHEMA)?,
        artifact::<Analysis>(ANALYSIS_SCHEMA)?,
        artifact::<Across>(ACROSS_SCHEMA)?,
        artifact::<History>(HISTORY_SCHEMA)?,
        artifact::<DeviceV1>(DEVICE_SCHEMA)?,
        artifact::<DoctorDocument>(DOCTOR_SCHEMA)?,
    ])
}

/// `format` is the tag that each document carries, such as `pgio.trial/1`.
fn artifact<T: JsonSchema>(format: &str) -> Result<(PathBuf, String)> {
    let mut schema = schema_for!(T).to_value();
    let root = schema.as_object_mut().context("the schema of a struct is an object")?;
    root.insert("title".to_owned(), json!(format));
    let tag = root
        .get_mut("properties")
        .and_then(|p| p.get_mut("schema"))
        .and_then(Value::as_object_mut)
        .with_context(|| format!("{format} has no property `schema`"))?;
    tag.insert("const".to_owned(), json!(format));
    let path = Path::new(DIR).join(format!("{}.json", format.replace('/', ".")));
    Ok((path, serde_json::to_string_pretty(&schema)? + "\n"))
}
