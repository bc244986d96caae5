//! Puts the nodes of an inventory into an experiment file as sections.
//!
//! `[targets]` and `[hosts]` may name an inventory, and keys for each of its nodes with `{name}` and `{address}` in
//! them. These lines become comments and the sections follow at the end. So all other lines keep their numbers, and the
//! file as stored names its nodes and runs no command again. A file without an inventory stays as it is.

use std::fmt::Write;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Node, from_names, parse};
use crate::config::error::ConfigError;
use crate::config::sections;

/// Sections that may have an inventory.
const SECTIONS: [&str; 2] = ["hosts", "targets"];
/// The keys of an inventory; all others of its section are for each node.
const INVENTORY: &str = "inventory";
const GROUP: &str = "group";

/// Runs a command and returns what it prints.
pub type RunCommand<'a> = &'a mut dyn FnMut(&str) -> Result<String, String>;

/// Returns the text with its inventories expanded. None if it has none, or is no TOML, which the parser reports.
pub fn expand(text: &str, file: &str, run: RunCommand<'_>) -> Result<Option<String>, ConfigError> {
    let Ok(document) = DeTable::parse(text) else { return Ok(None) };
    let mut all = Vec::new();
    for section in SECTIONS {
        let table = document.get_ref().get(section).and_then(|item| item.get_ref().as_table());
        if let Some(table) = table.filter(|table| table.contains_key(INVENTORY)) {
            all.push(read_inventory(&Source { text, file, section }, table, run)?);
        }
    }
    Ok((!all.is_empty()).then(|| append_sections(text, &all)))
}

/// A section's inventory.
struct Inventory<'a> {
    section: &'static str,
    /// Byte ranges of its keys with their values.
    lines: Vec<Range<usize>>,
    /// Keys for each node and their values, as written.
    keys: Vec<(&'a str, &'a str)>,
    nodes: Vec<Node>,
}

/// A section of the file, for errors.
struct Source<'a> {
    text: &'a str,
    file: &'a str,
    section: &'static str,
}

impl Source<'_> {
    fn error(&self, at: usize, key: &str, message: impl Into<String>) -> ConfigError {
        let line = self.text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
        let key = Some(format!("{}.{key}", self.section));
        ConfigError { file: self.file.to_owned(), line, key, message: message.into() }
    }
}

fn read_inventory<'a>(
    source: &Source<'a>,
    table: &DeTable<'a>,
    run: RunCommand<'_>,
) -> Result<Inventory<'a>, ConfigError> {
    let (mut lines, mut keys) = (Vec::new(), Vec::new());
    let mut group = None;
    // Sections of single nodes may stand beside those of the inventory. A key may be a table as well.
    let keys_of_node = match source.section {
        "hosts" => sections::HOST.names(),
        _ => sections::TARGET.names(),
    };
    let own = table.iter().filter(|(key, value)| {
        value.get_ref().as_table().is_none() || keys_of_node.contains(&key.get_ref().as_ref())
    });
    for (key, value) in own {
        let name = key.get_ref().as_ref();
        let range = key.span().start..value.span().end;
        let line = source.text[..range.start].rfind('\n').map_or(0, |at| at + 1);
        if !source.text[line..range.start].trim().is_empty() {
            let message = format!("must be on a line of its own below [{}]", source.section);
            return Err(source.error(range.start, name, message));
        }
        match (name, value.get_ref().as_str()) {
            (INVENTORY, _) => {}
            (GROUP, Some(text)) => group = Some(text.to_owned()),
            (GROUP, None) => {
                return Err(source.error(
                    range.start,
                    name,
                    "must be a string, the name of a group",
                ));
            }
            _ => keys.push((&source.text[key.span()], &source.text[value.span()])),
        }
        lines.push(range);
    }
    let (key, value) = table.get_key_value(INVENTORY).expect("the caller looked for it");
    let refused = |message: String| source.error(key.span().start, INVENTORY, message);
    let nodes = read_nodes(value, group.as_deref(), run).map_err(refused)?;
    if let Some(node) = nodes.iter().find(|node| table.contains_key(node.name.as_str())) {
        let name = &node.name;
        return Err(refused(format!("names `{name}`, which has a section of its own; remove one")));
    }
    if source.section == "hosts" && !keys.iter().any(|(key, _)| *key == "ssh") {
        // Without it, every node would be this machine.
        keys.push(("ssh", "\"{address}\""));
    }
    Ok(Inventory { section: source.section, lines, keys, nodes })
}

fn read_nodes(
    value: &Spanned<DeValue<'_>>,
    group: Option<&str>,
    run: RunCommand<'_>,
) -> Result<Vec<Node>, String> {
    const KINDS: &str = "must be a command or an array of names";
    match value.get_ref() {
        DeValue::String(command) => {
            let printed = run(command)?;
            parse(&printed, group).map_err(|why| format!("the command {why}"))
        }
        DeValue::Array(_) if group.is_some() => {
            Err("is a list, which has no groups; remove group".to_owned())
        }
        DeValue::Array(items) => {
            let name = |item: &Spanned<DeValue<'_>>| item.get_ref().as_str().map(str::to_owned);
            let names: Option<Vec<String>> = items.iter().map(name).collect();
            from_names(&names.ok_or(KINDS)?)
        }
        other => Err(format!("{KINDS}, but is of type {}", other.type_str())),
    }
}

fn append_sections(text: &str, all: &[Inventory<'_>]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let end = at + line.len();
        let of_inventory = |range: &Range<usize>| range.start < end && range.end > at;
        if all.iter().flat_map(|inventory| &inventory.lines).any(of_inventory) {
            out += "# ";
        }
        out += line;
        at = end;
    }
    if !out.ends_with('\n') {
        out.push('\n');
    }
    for Inventory { section, keys, nodes, .. } in all {
        add(&mut out, &format!("\n# The nodes of the inventory of [{section}]:"));
        for node in nodes {
            // A name may hold a dot.
            add(&mut out, &format!("[{section}.\"{}\"]", node.name));
            for (key, value) in keys {
                let value = value.replace("{name}", &node.name).replace("{address}", &node.address);
                add(&mut out, &format!("{key} = {value}"));
            }
        }
    }
    out
}

fn add(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("writing to a String cannot fail");
}
