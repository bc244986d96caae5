//! docs/FORMAT.md: a hand-written head, `format.md` beside this file, then the fields of every stored
//! document as tables, from its JSON schema.
//!
//! A type that several documents have is described once, where it is used first; a type that is only a choice of words is
//! named by these. The texts are the doc comments of the types.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use pgio::cli::{DOCTOR_SCHEMA, DoctorDocument};
use pgio_report::report::json::{DEVICE_SCHEMA, DeviceV1};
use pgio_results::model::{TRIAL_SCHEMA, Trial};
use pgio_results::store::{MANIFEST_SCHEMA, Manifest};
use pgio_results::telemetry::{SERIES_SCHEMA, Series};
use pgio_verdict::across::{ACROSS_SCHEMA, Across};
use pgio_verdict::history::{HISTORY_SCHEMA, History};
use pgio_verdict::{ANALYSIS_SCHEMA, Analysis};
use schemars::{JsonSchema, schema_for};
use serde_json::{Map, Value, json};

use crate::keys::table;

const HEAD: &str = include_str!("format.md");

pub(crate) const PAGE: &str = "docs/FORMAT.md";

pub(crate) fn artifact(schemas: &[Schema]) -> (PathBuf, String) {
    let mut text = HEAD.to_owned();
    let mut described = BTreeMap::new();
    for (format, schema) in schemas {
        let file = format.replace('/', ".");
        text += &format!("\n## {format}\n\n[Schema](schema/{file}.json). ");
        text += &document(schema, &mut described);
    }
    (PathBuf::from(PAGE), text)
}

/// The tables of one document: its own, then the tables of its types that are not `described` yet.
fn document(schema: &Value, described: &mut BTreeMap<String, Value>) -> String {
    let types = &schema["$defs"];
    let mut text = entry(schema, types);
    let mut names = Vec::new();
    references(schema, &mut names);
    let mut next = 0;
    while let Some(name) = names.get(next).cloned() {
        next += 1;
        let definition = &types[&name];
        references(definition, &mut names);
        if words(definition).is_some() || described.get(&name) == Some(definition) {
            continue;
        }
        described.insert(name.clone(), definition.clone());
        text += &format!("\n### {name}\n\n{}", entry(definition, types));
    }
    text.trim_end().to_owned() + "\n"
}

/// Adds the names of the types that a schema refers to, apart from its own definitions.
fn references(schema: &Value, names: &mut Vec<String>) {
    match schema {
        Value::Object(fields) => {
            if let Some(name) = reference(fields)
                && !names.contains(&name)
            {
                names.push(name);
            }
            fields
                .iter()
                .filter(|(key, _)| *key != "$defs")
                .for_each(|(_, v)| references(v, names));
        }
        Value::Array(all) => all.iter().for_each(|v| references(v, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn reference(fields: &Map<String, Value>) -> Option<String> {
    Some(fields.get("$ref")?.as_str()?.strip_prefix("#/$defs/")?.to_owned())
}

/// The description of a type and the table of its fields, or of its values.
fn entry(schema: &Value, types: &Value) -> String {
    let about = match description(schema) {
        text if text.is_empty() => text,
        text => text + "\n\n",
    };
    let table = match schema["oneOf"].as_array() {
        Some(variants) => values(variants, types),
        None => fields(schema, types),
    };
    about + &table
}

/// Required fields come first, in the order of the type; the schema has all others by name.
fn fields(schema: &Value, types: &Value) -> String {
    let properties = schema["properties"].as_object();
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let optional = properties.into_iter().flatten().map(|(name, _)| name.as_str());
    let optional = optional.filter(|name| !required.contains(name)).map(|name| (name, "?"));
    let all = required.iter().map(|name| (*name, "")).chain(optional);
    let rows = all.map(|(name, absent)| {
        let field = &schema["properties"][name];
        [format!("`{name}`{absent}"), value(field, types), description(field)]
    });
    table(["Field", "Value", "Meaning"], rows)
}

/// The variants of an enum: words, or objects that a field with a single value tells apart.
fn values(variants: &[Value], types: &Value) -> String {
    let object = |variant: &Value| {
        let fields = variant["properties"].as_object().into_iter().flatten();
        let mut fields: Vec<_> = fields
            .map(|(name, field)| match field["const"].as_str() {
                Some(word) => (0, format!("`{name}` = `{word}`")),
                None => (1, format!("`{name}`: {}", value(field, types))),
            })
            .collect();
        fields.sort();
        fields.into_iter().map(|(_, field)| field).collect::<Vec<_>>().join(", ")
    };
    let rows = variants
        .iter()
        .map(|variant| [words(variant).unwrap_or_else(|| object(variant)), description(variant)]);
    table(["Value", "Meaning"], rows)
}

/// What a value is, in words; a type that has a table of its own by name.
fn value(schema: &Value, types: &Value) -> String {
    let value = |schema: &Value| value(schema, types);
    let Some(fields) = schema.as_object() else { return "any".to_owned() };
    if let Some(name) = reference(fields) {
        return words(&types[&name]).unwrap_or(name);
    }
    if let Some(text) = words(schema) {
        return text;
    }
    if let Some(all) = fields.get("anyOf").and_then(Value::as_array) {
        return all.iter().map(value).collect::<Vec<_>>().join(" or ");
    }
    let names = match &schema["type"] {
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        Value::String(name) => vec![name.as_str()],
        _ => return "any".to_owned(),
    };
    let shown = names.into_iter().map(|name| match name {
        "string" => "text".to_owned(),
        "integer" => "whole number".to_owned(),
        "boolean" => "true or false".to_owned(),
        "array" => match schema["prefixItems"].as_array() {
            Some(items) => format!("[{}]", items.iter().map(value).collect::<Vec<_>>().join(", ")),
            None => format!("list of {}", value(&schema["items"])),
        },
        "object" => format!("{} by name", value(&schema["additionalProperties"])),
        other => other.to_owned(),
    });
    shown.collect::<Vec<_>>().join(" or ")
}

/// The words that a text is limited to.
fn words(schema: &Value) -> Option<String> {
    let shown = |word: &Value| Some(format!("`{}`", word.as_str()?));
    match (&schema["const"], &schema["enum"]) {
        (word @ Value::String(_), _) => shown(word),
        (_, Value::Array(all)) => Some(all.iter().filter_map(shown).collect::<Vec<_>>().join(", ")),
        _ => None,
    }
}

fn description(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

pub(crate) const DIR: &str = "docs/schema";

/// The tag that each document carries, such as `pgio.trial/1`, and the schema of its type.
pub(crate) type Schema = (&'static str, Value);

pub(crate) fn schemas() -> Result<Vec<Schema>> {
    Ok(vec![
        schema::<Trial>(TRIAL_SCHEMA)?,
        schema::<Series>(SERIES_SCHEMA)?,
        schema::<Manifest>(MANIFEST_SCHEMA)?,
        with_features(schema::<Analysis>(ANALYSIS_SCHEMA)?),
        schema::<Across>(ACROSS_SCHEMA)?,
        schema::<History>(HISTORY_SCHEMA)?,
        schema::<DeviceV1>(DEVICE_SCHEMA)?,
        schema::<DoctorDocument>(DOCTOR_SCHEMA)?,
    ])
}

pub(crate) fn schema_artifact((format, schema): &Schema) -> Result<(PathBuf, String)> {
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

/// Adds the fields of features, and the types of these.
fn with_features((format, mut schema): Schema) -> Schema {
    for feature in pgio::feature::all() {
        let own = (feature.schema)().map(schemars::Schema::to_value).unwrap_or_default();
        for part in ["properties", "$defs"] {
            if let (Some(all), Some(own)) = (schema[part].as_object_mut(), own[part].as_object()) {
                all.extend(own.clone());
            }
        }
    }
    (format, schema)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rendered() -> String {
        let schema = json!({
            "description": "A document.",
            "required": ["state", "pairs"],
            "properties": {
                "state": { "$ref": "#/$defs/State" },
                "verdict": { "$ref": "#/$defs/Verdict" },
                "pairs": { "type": "array", "items": { "prefixItems": [
                    { "type": "integer" }, { "type": "number" }], "type": "array" } },
                "by_name": { "type": "object", "additionalProperties": { "type": ["string", "null"] } },
                "free": { "description": "Anything.", "type": "object", "additionalProperties": true },
            },
            "$defs": {
                "State": { "oneOf": [
                    { "const": "done", "description": "It\nended." },
                    { "properties": { "error": { "type": "string" }, "state": { "const": "failed" } } },
                ] },
                "Verdict": { "enum": ["ok", "invalid"] },
                "Unused": { "properties": {} },
            },
        });
        artifact(&[("pgio.a/1", schema.clone()), ("pgio.b/1", schema)]).1
    }

    #[test]
    fn fields_types_and_values_are_named_in_words() {
        let text = rendered();
        for line in [
            "| `verdict`? | `ok`, `invalid` |  |",
            "| `state` | State |  |\n| `pairs` | list of [whole number, number] |  |",
            "| `by_name`? | text or null by name |  |",
            "| `free`? | any by name | Anything. |",
            "| `done` | It ended. |",
            "| `state` = `failed`, `error`: text |  |",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }

    #[test]
    fn a_type_is_described_once_and_only_where_it_is_used() {
        let text = rendered();
        assert_eq!(text.matches("### State").count(), 1, "{text}");
        assert!(!text.contains("Unused") && !text.contains("### Verdict"), "{text}");
        assert!(text.contains("[Schema](schema/pgio.b.1.json). A document."), "{text}");
    }
}
