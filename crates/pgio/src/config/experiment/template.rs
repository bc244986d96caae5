//! The TOML of a treatment with a placeholder for an axis's value: merging and filling in.

/// Merges a table into another; returns false if either is not a table or if both have a key.
pub(super) fn merge(own: &mut toml::Value, other: &toml::Value) -> bool {
    let (Some(own), Some(other)) = (own.as_table_mut(), other.as_table()) else { return false };
    if other.keys().any(|key| own.contains_key(key)) {
        return false;
    }
    own.extend(other.iter().map(|(key, value)| (key.clone(), value.clone())));
    true
}

/// Returns whether any string contains the placeholder.
pub(super) fn contains(body: &toml::Value, placeholder: &str) -> bool {
    match body {
        toml::Value::String(text) => text.contains(placeholder),
        toml::Value::Array(items) => items.iter().any(|item| contains(item, placeholder)),
        toml::Value::Table(table) => table.values().any(|value| contains(value, placeholder)),
        _ => false,
    }
}

/// Replaces the placeholder in every string.
pub(super) fn fill(body: &mut toml::Value, placeholder: &str, value: &str) {
    match body {
        toml::Value::String(text) if text.contains(placeholder) => {
            *text = text.replace(placeholder, value);
        }
        toml::Value::Array(items) => {
            items.iter_mut().for_each(|item| fill(item, placeholder, value));
        }
        toml::Value::Table(table) => {
            table.iter_mut().for_each(|(_, inner)| fill(inner, placeholder, value));
        }
        _ => {}
    }
}
