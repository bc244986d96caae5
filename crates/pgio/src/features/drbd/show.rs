//! `drbdsetup show --show-defaults`, as text (both modules) or with `--json` (module 9): the
//! configuration that the kernel uses, which may differ from the configuration files.
//!
//! Values are stored as in the text: `yes` and `no`, numbers with units. The parser discards a shared
//! secret immediately.

use std::collections::BTreeMap;

use serde_json::Value;

use super::state::DrbdError;
use crate::host::json;

const FROM: &str = "drbdsetup show --show-defaults";

/// Must never be kept, shown or stored.
const SECRET: &str = "shared-secret";

pub(super) type Options = BTreeMap<String, String>;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Config {
    pub(super) resource: String,
    pub(super) options: Options,
    pub(super) volumes: Vec<Volume>,
    /// With module 8.4, empty without a connection: the options exist only with it.
    pub(super) connections: Vec<Connection>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Volume {
    pub(super) minor: u32,
    /// A path in /dev; absent if the volume has no disk on this node.
    pub(super) backing: Option<String>,
    pub(super) options: Options,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Connection {
    /// The peer's node id; module 9 only.
    pub(super) node_id: Option<u32>,
    pub(super) options: Options,
}

impl Config {
    /// Returns the quorum without which a node does no I/O: `majority`, `all` or a number of nodes. None if it is off,
    /// and with module 8.4, which has none.
    pub(super) fn quorum(&self) -> Option<&str> {
        self.options.get("quorum").map(String::as_str).filter(|quorum| *quorum != "off")
    }

    /// Returns the protocol if all connections have the same.
    pub(super) fn protocol(&self) -> Option<&str> {
        let mut all = self.connections.iter().map(|c| c.options.get("protocol"));
        let first = all.next()??;
        all.all(|p| p == Some(first)).then_some(first)
    }
}

pub(super) fn parse(text: &str) -> Result<Vec<Config>, DrbdError> {
    let mut all = Vec::new();
    for resource in entries(text).iter().filter(|e| e.is("resource")) {
        let name = resource.value().unwrap_or_default().to_owned();
        let sections = |name: &'static str| resource.children.iter().filter(move |e| e.is(name));
        let volumes = sections("_this_host").flat_map(|host| &host.children);
        let volumes = volumes.filter(|e| e.is("volume")).map(|v| volume(v, &name));
        let net = |entry: &Entry| entry.children.iter().find(|e| e.is("net")).map(options);
        // Module 8.4 has one connection, whose options are directly in the resource.
        let mut connections: Vec<Connection> =
            sections("net").map(|n| Connection { node_id: None, options: options(n) }).collect();
        connections.extend(sections("connection").map(|c| Connection {
            node_id: c.leaf("_peer_node_id").and_then(|id| id.parse().ok()),
            options: net(c).unwrap_or_default(),
        }));
        let volumes = volumes.collect::<Result<_, _>>()?;
        let options = sections("options").next().map(options).unwrap_or_default();
        all.push(Config { resource: name, options, volumes, connections });
    }
    Ok(all)
}

fn volume(entry: &Entry, resource: &str) -> Result<Volume, DrbdError> {
    let device = entry.children.iter().find(|e| e.is("device"));
    let minor = device.and_then(|d| d.words.last()?.parse().ok());
    let disk = entry.children.iter().find(|e| e.is("disk") && e.value().is_some());
    let section = entry.children.iter().find(|e| e.is("disk") && e.value().is_none());
    Ok(Volume {
        minor: minor.ok_or_else(|| DrbdError::missing(FROM, "the minor", resource))?,
        backing: disk.and_then(Entry::value).filter(|p| p.starts_with('/')).map(str::to_owned),
        options: section.map(options).unwrap_or_default(),
    })
}

fn options(section: &Entry) -> Options {
    let leaf = |e: &Entry| Some((e.words.first()?.clone(), e.value()?.to_owned()));
    filter(section.children.iter().filter_map(leaf))
}

pub(super) fn parse_json(text: &str) -> Result<Vec<Config>, DrbdError> {
    let resources: Value =
        json::parse(text.trim_end()).map_err(|source| DrbdError::Json { from: FROM, source })?;
    let items =
        |value: Option<&Value>| value.and_then(Value::as_array).cloned().unwrap_or_default();
    let number = |v: Option<&Value>| v.and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
    let mut all = Vec::new();
    for resource in items(Some(&resources)) {
        let Some(name) = resource.get("resource").and_then(Value::as_str) else {
            return Err(DrbdError::missing(FROM, "the name", "a resource"));
        };
        let volume = |v: &Value| -> Result<Volume, DrbdError> {
            let minor = number(v.get("device_minor"));
            Ok(Volume {
                minor: minor.ok_or_else(|| DrbdError::missing(FROM, "the minor", name))?,
                backing: v.get("backing-disk").and_then(Value::as_str).map(str::to_owned),
                options: json_options(v.get("disk")),
            })
        };
        let volumes = items(resource.pointer("/_this_host/volumes"));
        let connection = |c: &Value| Connection {
            node_id: number(c.get("_peer_node_id")),
            options: json_options(c.get("net")),
        };
        all.push(Config {
            resource: name.to_owned(),
            options: json_options(resource.get("options")),
            volumes: volumes.iter().map(volume).collect::<Result<_, _>>()?,
            connections: items(resource.get("connections")).iter().map(connection).collect(),
        });
    }
    Ok(all)
}

fn json_options(section: Option<&Value>) -> Options {
    let text = |value: &Value| match value {
        Value::Bool(yes) => Some(if *yes { "yes" } else { "no" }.to_owned()),
        Value::String(text) => Some(text.clone()),
        Value::Number(n) => Some(n.to_string()),
        _ => None,
    };
    let all = section.and_then(Value::as_object).into_iter().flatten();
    filter(all.filter_map(|(name, value)| Some((name.clone(), text(value)?))))
}

/// Removes the shared secret and the options that only `drbdsetup` uses internally.
fn filter(options: impl Iterator<Item = (String, String)>) -> Options {
    options.filter(|(name, _)| name != SECRET && !name.starts_with('_')).collect()
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Entry {
    words: Vec<String>,
    /// The entries in braces; empty for a line that ends with a semicolon.
    children: Vec<Entry>,
}

impl Entry {
    fn is(&self, name: &str) -> bool {
        self.words.first().is_some_and(|word| word == name)
    }

    /// Returns the word after the name.
    fn value(&self) -> Option<&str> {
        self.words.get(1).map(String::as_str)
    }

    fn leaf(&self, name: &str) -> Option<&str> {
        self.children.iter().find(|e| e.is(name)).and_then(Entry::value)
    }
}

/// Parses the entries; unbalanced braces end at the end of the text.
fn entries(text: &str) -> Vec<Entry> {
    // The innermost section is last; the first is the top level.
    let mut open = vec![Entry::default()];
    let mut words = Vec::new();
    for token in tokens(text) {
        match token {
            Token::Word(word) => words.push(word),
            Token::Open => open.push(Entry { words: std::mem::take(&mut words), children: vec![] }),
            Token::End => {
                let words = std::mem::take(&mut words);
                if let Some(section) = open.last_mut().filter(|_| !words.is_empty()) {
                    section.children.push(Entry { words, children: Vec::new() });
                }
            }
            Token::Close => close(&mut open),
        }
    }
    while open.len() > 1 {
        close(&mut open);
    }
    open.pop().map(|root| root.children).unwrap_or_default()
}

fn close(open: &mut Vec<Entry>) {
    if open.len() > 1
        && let Some(closed) = open.pop()
        && let Some(outer) = open.last_mut()
    {
        outer.children.push(closed);
    }
}

enum Token {
    Word(String),
    Open,
    Close,
    End,
}

fn tokens(text: &str) -> Vec<Token> {
    let mut all = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '{' => all.push(Token::Open),
            '}' => all.push(Token::Close),
            ';' => all.push(Token::End),
            '#' => while chars.next_if(|c| *c != '\n').is_some() {},
            '"' => {
                let mut word = String::new();
                while let Some(c) = chars.next().filter(|c| *c != '"') {
                    // A backslash escapes the next character.
                    let plain = if c == '\\' { chars.next() } else { Some(c) };
                    word.extend(plain);
                }
                all.push(Token::Word(word));
            }
            c if c.is_whitespace() => {}
            c => {
                let mut word = String::from(c);
                let is_word_char = |c: &char| !c.is_whitespace() && !"{};\"#".contains(*c);
                while let Some(c) = chars.next_if(is_word_char) {
                    word.push(c);
                }
                all.push(Token::Word(word));
            }
        }
    }
    all
}
