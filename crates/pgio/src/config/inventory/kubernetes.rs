//! Pods and nodes of `kubectl get ... -o json`.

use serde_json::Value;

use super::node::Node;

/// Returns the nodes of a list, or of a single object.
pub(super) fn nodes(value: &Value) -> Result<Vec<Node>, String> {
    match value.get("items").and_then(Value::as_array) {
        Some(items) => items.iter().map(parse_node).collect(),
        None => Ok(vec![parse_node(value)?]),
    }
}

fn parse_node(item: &Value) -> Result<Node, String> {
    let text = |pointer: &str| item.pointer(pointer).and_then(Value::as_str);
    let kind = text("/kind").unwrap_or("object");
    let Some(name) = text("/metadata/name") else {
        return Err(format!("prints a {kind} without a name"));
    };
    let address = match kind {
        // A pod that does not run may keep its last address.
        "Pod" => text("/status/podIP").filter(|_| text("/status/phase") == Some("Running")),
        "Node" => ["InternalIP", "Hostname"].into_iter().find_map(|wanted| {
            let all = item.pointer("/status/addresses")?.as_array()?;
            let found = all.iter().find(|address| address["type"].as_str() == Some(wanted))?;
            found["address"].as_str()
        }),
        _ => return Err(format!("prints a {kind}, which is neither a pod nor a node")),
    };
    match address {
        Some(address) => Node::new(name, address),
        None => {
            let phase = text("/status/phase").map_or_else(String::new, |p| format!(" ({p})"));
            let kind = kind.to_lowercase();
            Err(format!("prints {kind} `{name}` without an address{phase}"))
        }
    }
}
