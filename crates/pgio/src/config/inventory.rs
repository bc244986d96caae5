//! The nodes of an inventory: a list, or a command that prints one host a line.
//!
//! `[targets]` and `[hosts]` may name an inventory, and keys for each of its nodes with `{name}` in them. These lines
//! become comments and the sections follow at the end. So all other lines keep their numbers, and the file as stored
//! names its nodes and runs no command again. A file without an inventory stays as it is. Runs nothing itself.

use std::fmt::Write;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::experiment::{hosts, target};
use super::value::ConfigError;

/// Sections that may have an inventory.
const SECTIONS: [&str; 2] = ["hosts", "targets"];
/// The key of an inventory; all others of its section are for each node.
const INVENTORY: &str = "inventory";
/// More is a wrong command rather than a fleet.
const MAX_NODES: usize = 1000;
/// The longest name: a part of a host name.
const MAX_LENGTH: usize = 64;
/// Characters of a bad name that an error shows.
const MAX_SHOWN: usize = 40;

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
    nodes: Vec<String>,
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
    // Sections of single nodes may stand beside the inventory's. A key may be a table as well.
    let keys_of_node = match source.section {
        "hosts" => hosts::keys::SECTION,
        _ => target::keys::SECTION,
    };
    let own = table.iter().filter(|(key, value)| {
        value.get_ref().as_table().is_none() || keys_of_node.names.contains(&key.get_ref().as_ref())
    });
    for (key, value) in own {
        let name = key.get_ref().as_ref();
        let range = key.span().start..value.span().end;
        let line = source.text[..range.start].rfind('\n').map_or(0, |at| at + 1);
        if !source.text[line..range.start].trim().is_empty() {
            let message = format!("must be on a line of its own below [{}]", source.section);
            return Err(source.error(range.start, name, message));
        }
        if name != INVENTORY {
            keys.push((&source.text[key.span()], &source.text[value.span()]));
        }
        lines.push(range);
    }
    let (key, value) = table.get_key_value(INVENTORY).expect("the caller looked for it");
    let refused = |message: String| source.error(key.span().start, INVENTORY, message);
    let nodes = read_nodes(value, run).map_err(refused)?;
    if let Some(name) = nodes.iter().find(|name| table.contains_key(name.as_str())) {
        return Err(refused(format!("names `{name}`, which has a section of its own; remove one")));
    }
    if source.section == "hosts" && !keys.iter().any(|(key, _)| *key == "ssh") {
        // Without it, every node would be this machine.
        keys.push(("ssh", "\"{name}\""));
    }
    Ok(Inventory { section: source.section, lines, keys, nodes })
}

fn read_nodes(value: &Spanned<DeValue<'_>>, run: RunCommand<'_>) -> Result<Vec<String>, String> {
    const KINDS: &str = "must be a command or an array of names";
    match value.get_ref() {
        DeValue::String(command) => {
            let printed = run(command)?;
            let lines = printed
                .trim_start_matches('\u{feff}')
                .lines()
                .map(str::trim)
                .filter(|line| !line.is_empty());
            let mut names = Vec::new();
            // A node may be in several groups or partitions.
            for name in lines.map(str::to_owned) {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            check(names).map_err(|why| format!("the command {why}"))
        }
        DeValue::Array(items) => {
            let name = |item: &Spanned<DeValue<'_>>| item.get_ref().as_str().map(str::to_owned);
            let names: Vec<String> = items.iter().map(name).collect::<Option<_>>().ok_or(KINDS)?;
            match names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
                Some((_, twice)) => Err(format!("names `{twice}` twice")),
                None => check(names),
            }
        }
        other => Err(format!("{KINDS}, but is of type {}", other.type_str())),
    }
}

/// Refuses text that could be read as more than a name: quotes, spaces, options. The names go into the experiment
/// file, and to ssh and PostgreSQL.
fn check(names: Vec<String>) -> Result<Vec<String>, String> {
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphanumeric())
            && name.len() <= MAX_LENGTH
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
    };
    if let Some(bad) = names.iter().find(|name| !is_name(name)) {
        let shown: String = bad.chars().filter(|c| !c.is_control()).take(MAX_SHOWN).collect();
        return Err(format!("prints `{shown}`, which is not a node name"));
    }
    match names.len() {
        0 => Err("names no node".to_owned()),
        1..=MAX_NODES => Ok(names),
        count => Err(format!("names {count} nodes; the maximum is {MAX_NODES}")),
    }
}

fn append_sections(text: &str, all: &[Inventory<'_>]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let end = at + line.len();
        let overlaps = |range: &Range<usize>| range.start < end && range.end > at;
        if all.iter().flat_map(|inventory| &inventory.lines).any(overlaps) {
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
        for name in nodes {
            // A name may hold a dot.
            add(&mut out, &format!("[{section}.\"{name}\"]"));
            for (key, value) in keys {
                add(&mut out, &format!("{key} = {}", value.replace("{name}", name)));
            }
        }
    }
    out
}

fn add(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("writing to a String cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::experiment::{self, Target};

    const FILE: &str = r#"# A fleet.
[experiment]
together = true

[hosts]
inventory = "list"   # by hand
ssh = "root@{name}"

[targets]
inventory = "list"
dsn = "host={name} user=u dbname=d"
host = "{name}"

[workload]
kind = "commit"

[[condition]]
name = "a"
"#;

    #[test]
    fn each_node_becomes_a_section_and_all_other_lines_stay() {
        let mut commands = Vec::new();
        let mut run = |command: &str| {
            commands.push(command.to_owned());
            Ok("db1.example.com\ndb2\n".to_owned())
        };
        let text = expand(FILE, "x.toml", &mut run).unwrap().unwrap();
        assert_eq!(commands, ["list", "list"]);
        for (before, after) in FILE.lines().zip(text.lines()) {
            assert!(after == before || after == format!("# {before}"), "{before} {after}");
        }
        let e = experiment::parse(&text, "x.toml", "x", &[], &[]).unwrap();
        assert_eq!(e.hosts["db1.example.com"].ssh.as_deref(), Some("root@db1.example.com"));
        let Target::Server { dsn, host, .. } = &e.targets["db2"] else { panic!("{e:?}") };
        assert_eq!(dsn.expose(), "host=db2 user=u dbname=d");
        assert_eq!(host.as_deref(), Some("db2"));
        assert_eq!(e.conditions[0].targets().count(), 2);
        // Once expanded, it stays as it is.
        assert_eq!(expand(&text, "x.toml", &mut |_| panic!("nothing to run")).unwrap(), None);
    }

    #[test]
    fn a_list_needs_no_command_and_a_file_without_an_inventory_no_change() {
        let list = "[targets]\ninventory = [\n  \"a\",\n  \"b\",\n]\nprivate = true\n\
                    [targets.c]\nprivate = true\n[workload]\nkind = \"commit\"\n\
                    [[condition]]\nname = \"x\"\ntarget = [\"a\", \"b\", \"c\"]\n";
        let text = expand(list, "x.toml", &mut |_| panic!("nothing to run")).unwrap().unwrap();
        let e = experiment::parse(&text, "x.toml", "x", &[], &[]).unwrap();
        assert_eq!(e.targets.keys().collect::<Vec<_>>(), ["a", "b", "c"]);
        for text in ["[target]\nprivate = true\n", "no toml ]["] {
            assert_eq!(expand(text, "x.toml", &mut |_| panic!("nothing to run")).unwrap(), None);
        }
    }

    #[test]
    fn what_is_no_list_of_names_is_refused_in_one_line() {
        let refused = |text: &str, expected: &str| {
            let file = "[targets]\ninventory = \"list\"\nprivate = true\n";
            let error =
                expand(file, "x.toml", &mut |_| Ok(text.to_owned())).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains('\n'), "{error}");
        };
        refused("", "the command names no node");
        refused("  hosts (2):\n    db1\n", "prints `hosts (2):`, which is not a node name");
        refused("pod/pg-0", "`pod/pg-0`");
        refused("{\"all\": {}}", "which is not a node name");
        refused("n1\n-oProxyCommand=touch x", "`-oProxyCommand=touch x`");
        refused("n1\nn2\u{7}\u{1b}[31m", "which is not a node name");
        refused("n1 user=postgres", "`n1 user=postgres`");
        let many: String = (0..=MAX_NODES).map(|n| format!("n{n}\n")).collect();
        refused(&many, "names 1001 nodes; the maximum is 1000");
    }

    #[test]
    fn errors_name_the_line_of_the_inventory() {
        let refused = |text: &str, printed: Result<&str, &str>, expected: &str| {
            let mut run = |_: &str| printed.map(str::to_owned).map_err(str::to_owned);
            let error = expand(text, "x.toml", &mut run).unwrap_err().to_string();
            assert_eq!(error, expected);
        };
        let at = "x.toml:6: hosts.inventory: ";
        let rubbish = "the command prints `No inventory was parsed`, which is not a node name";
        refused(FILE, Ok("No inventory was parsed"), &format!("{at}{rubbish}"));
        refused(FILE, Err("`list` failed"), &format!("{at}`list` failed"));
        let wrong = "must be a command or an array of names, but is of type integer";
        refused(
            "[targets]\ninventory = 5\n",
            Ok(""),
            &format!("x.toml:2: targets.inventory: {wrong}"),
        );
        let inline = "x.toml:1: targets.inventory: must be on a line of its own below [targets]";
        refused("targets = { inventory = \"list\" }\n", Ok("n1"), inline);
        let again = "[targets]\ninventory = [\"a\", \"a\"]\n";
        refused(again, Ok(""), "x.toml:2: targets.inventory: names `a` twice");
        let twice = "[targets]\ninventory = [\"a\"]\nprivate = true\n[targets.a]\nprivate = true\n";
        let both = "names `a`, which has a section of its own; remove one";
        refused(twice, Ok(""), &format!("x.toml:2: targets.inventory: {both}"));
    }
}
