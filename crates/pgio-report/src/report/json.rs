//! The documents for other programs: analyses, two experiments compared, and devices.
//!
//! The JSON schemas in docs/schema/ are generated from their types.

pub mod device;
#[cfg(test)]
mod tests;

use serde::Serialize;

/// The document as indented JSON, ended by a newline.
pub fn render(document: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(document)
        .expect("plain data with string keys always serializes");
    printable::json(&text).into_owned() + "\n"
}
