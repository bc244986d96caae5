//! A node of an inventory, checked: its name and address go into the experiment file, and to ssh and PostgreSQL.

/// A node's name, and the address at which it is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    pub address: String,
}

/// The longest name and address: that of a host name's part.
const MAX_LENGTH: usize = 64;
/// Characters of a bad name that an error shows.
const MAX_SHOWN: usize = 40;

impl Node {
    /// Refuses text that could be read as more than a name: quotes, spaces, options.
    pub(super) fn new(name: &str, address: &str) -> Result<Node, String> {
        // The colons are those of an IPv6 address.
        for (text, also) in [(name, ""), (address, ":")] {
            if !is_name(text, also) {
                let shown: String =
                    text.chars().filter(|c| !c.is_control()).take(MAX_SHOWN).collect();
                return Err(format!("prints `{shown}`, which is not a node name"));
            }
        }
        Ok(Node { name: name.to_owned(), address: address.to_owned() })
    }

    /// A node that is reached by its name.
    pub(super) fn from_name(name: &str) -> Result<Node, String> {
        Node::new(name, name)
    }
}

fn is_name(text: &str, also: &str) -> bool {
    let first = |c: char| c.is_ascii_alphanumeric() || also.contains(c);
    let any = |c: char| first(c) || "._-".contains(c);
    text.starts_with(first) && text.len() <= MAX_LENGTH && text.chars().all(any)
}
