//! The nodes of an inventory: what Ansible, Kubernetes and Slurm print, or a list.
//!
//! Parses text and runs nothing. The format is recognized by its content: Ansible's JSON (`ansible-inventory --list`),
//! pods or nodes of Kubernetes (`kubectl get ... -o json`), a JSON array of names, or a name on each line
//! (`scontrol show hostnames`, `sinfo -N -h -o %N`). Next: [`expand`], which makes sections of the nodes.

mod ansible;
pub mod expand;
mod kubernetes;
mod node;

use serde_json::Value;

pub use self::node::Node;

/// More is a wrong command rather than a fleet.
const MAX_NODES: usize = 1000;

/// Returns the nodes in the order of the inventory, each once. `group` selects a group of Ansible's. The error
/// completes a sentence that begins with the command.
pub fn parse(text: &str, group: Option<&str>) -> Result<Vec<Node>, String> {
    let text = text.trim_start_matches('\u{feff}').trim();
    if text.starts_with(['{', '[']) {
        let value: Value = serde_json::from_str(text)
            .map_err(|error| format!("prints JSON that cannot be parsed: {error}"))?;
        return deduplicate(from_json(&value, group)?);
    }
    refuse_group(group)?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    deduplicate(lines.map(Node::from_name).collect::<Result<_, _>>()?)
}

/// Makes nodes of the names in an experiment file.
pub fn from_names(names: &[String]) -> Result<Vec<Node>, String> {
    let all = names.iter().map(|name| Node::from_name(name)).collect::<Result<Vec<_>, _>>()?;
    match all.iter().enumerate().find(|(at, node)| all[..*at].contains(node)) {
        Some((_, twice)) => Err(format!("names `{}` twice", twice.name)),
        None => deduplicate(all),
    }
}

fn from_json(value: &Value, group: Option<&str>) -> Result<Vec<Node>, String> {
    if let Some(items) = value.as_array() {
        refuse_group(group)?;
        let name = |item: &Value| match item.as_str() {
            Some(name) => Node::from_name(name),
            None => Err("prints a JSON array that holds more than names".to_owned()),
        };
        return items.iter().map(name).collect();
    }
    if value.get("_meta").is_some() || value.get("all").is_some() {
        return ansible::nodes(value, group.unwrap_or("all"));
    }
    if value.get("kind").is_some() {
        refuse_group(group)?;
        return kubernetes::nodes(value);
    }
    let known = "`ansible-inventory --list`, `kubectl get pods -o json` or a JSON array of names";
    Err(format!("prints JSON of an unknown kind; use {known}"))
}

fn refuse_group(group: Option<&str>) -> Result<(), String> {
    match group {
        Some(_) => Err("has no groups, unlike Ansible's inventories; remove group".to_owned()),
        None => Ok(()),
    }
}

/// A node may be in several groups or partitions.
fn deduplicate(nodes: Vec<Node>) -> Result<Vec<Node>, String> {
    let mut all: Vec<Node> = Vec::new();
    for node in nodes {
        if all.iter().all(|known| known.name != node.name) {
            all.push(node);
        }
    }
    match all.len() {
        0 => Err("names no node".to_owned()),
        1..=MAX_NODES => Ok(all),
        count => Err(format!("names {count} nodes; the maximum is {MAX_NODES}")),
    }
}

#[cfg(test)]
mod tests;
