//! The checked-in JSON schemas, held against what pgio really writes.
//!
//! Knows just the keywords that our schemas use and fails on any other, so that none is passed
//! over. Stricter than a reader: a field that the schema does not name is a fault here, since it
//! would be an undocumented field.

use std::fs;
use std::path::Path;

use serde_json::Value;

/// `format` such as `pgio.trial/1`.
pub(crate) fn assert_valid(format: &str, document: &Value) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/schema");
    let path = dir.join(format!("{}.json", format.replace('/', ".")));
    let root: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    if let Err(fault) = check(&root, &root, document, format) {
        panic!("{fault}");
    }
}

fn check(root: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    let fail = |what: &str| Err(format!("{at}: {what}; found {value}"));
    let Value::Object(keywords) = schema else {
        return if schema == &Value::Bool(true) { Ok(()) } else { fail("nothing is allowed") };
    };
    for (keyword, wanted) in keywords {
        match keyword.as_str() {
            "$schema" | "$defs" | "title" | "description" | "format" | "default" => {}
            "$ref" => {
                let pointer = wanted.as_str().unwrap().trim_start_matches('#');
                check(root, root.pointer(pointer).unwrap(), value, at)?;
            }
            "const" if wanted != value => return fail("not the constant"),
            "enum" if !list(wanted).contains(value) => return fail("none of the names"),
            "type" if !is_type(wanted, value) => return fail(&format!("not of type {wanted}")),
            "minimum" if value.is_number() && value.as_f64() < wanted.as_f64() => {
                return fail("too small");
            }
            "maximum" if value.as_f64() > wanted.as_f64() => return fail("too large"),
            "minItems" if value.is_array() && length(value) < wanted.as_u64() => {
                return fail("too short");
            }
            "maxItems" if length(value) > wanted.as_u64() => return fail("too long"),
            "const" | "enum" | "type" | "minimum" | "maximum" | "minItems" | "maxItems" => {}
            "required" => {
                let missing =
                    list(wanted).iter().find(|k| value.get(k.as_str().unwrap()).is_none());
                if let Some(missing) = missing {
                    return fail(&format!("{missing} is missing"));
                }
            }
            "properties" | "additionalProperties" => fields(root, schema, value, at)?,
            "items" => {
                for (i, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(root, wanted, item, &format!("{at}[{i}]"))?;
                }
            }
            "prefixItems" => {
                for (wanted, item) in
                    list(wanted).iter().zip(value.as_array().into_iter().flatten())
                {
                    check(root, wanted, item, at)?;
                }
            }
            "anyOf" | "oneOf" => {
                let tried = list(wanted).iter().map(|s| check(root, s, value, at));
                let faults: Vec<String> = tried.filter_map(Result::err).collect();
                if faults.len() == list(wanted).len() {
                    return fail(&faults.join(" / "));
                }
            }
            other => {
                return fail(&format!("the schema's keyword {other} is not known to this test"));
            }
        }
    }
    Ok(())
}

fn fields(root: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    for (name, field) in value.as_object().into_iter().flatten() {
        let named = schema.get("properties").and_then(|p| p.get(name));
        let Some(wanted) = named.or_else(|| schema.get("additionalProperties")) else {
            return Err(format!("{at}: the schema does not name {name}"));
        };
        check(root, wanted, field, &format!("{at}.{name}"))?;
    }
    Ok(())
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

fn length(value: &Value) -> Option<u64> {
    value.as_array().map(|items| items.len() as u64)
}

fn is_type(wanted: &Value, value: &Value) -> bool {
    if let Some(types) = wanted.as_array() {
        return types.iter().any(|t| is_type(t, value));
    }
    match wanted.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other} is no type of JSON schema"),
    }
}
