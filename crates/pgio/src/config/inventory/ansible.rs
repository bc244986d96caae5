//! Groups and hosts of `ansible-inventory --list`.

use serde_json::Value;

use super::node::Node;

/// Returns the hosts of a group and of the groups in it, with the address that Ansible would use.
pub(super) fn nodes(value: &Value, group: &str) -> Result<Vec<Node>, String> {
    if value.get(group).is_none() {
        return Err(format!("has no group `{group}`"));
    }
    let address = |name: &str| {
        let hosts = value.pointer("/_meta/hostvars")?;
        hosts.get(name)?.get("ansible_host")?.as_str()
    };
    let hosts = hosts(value, group);
    hosts.into_iter().map(|name| Node::new(name, address(name).unwrap_or(name))).collect()
}

fn hosts<'a>(value: &'a Value, group: &'a str) -> Vec<&'a str> {
    let names = |group: &'a Value, key: &str| {
        let items = group.get(key).and_then(Value::as_array).into_iter().flatten();
        items.filter_map(Value::as_str)
    };
    let mut all = Vec::new();
    let (mut open, mut seen) = (vec![group], Vec::new());
    while let Some(name) = open.pop() {
        // Ansible itself refuses groups in a circle; another program that prints its format may not.
        if seen.contains(&name) {
            continue;
        }
        seen.push(name);
        if let Some(group) = value.get(name) {
            all.extend(names(group, "hosts"));
            let children: Vec<&str> = names(group, "children").collect();
            open.extend(children.into_iter().rev());
        }
    }
    all
}
