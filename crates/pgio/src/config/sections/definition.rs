//! What a section of an experiment file is: its title and the keys that it takes.

/// A section and its keys.
#[derive(Debug, Clone, Copy)]
pub struct SectionDef {
    /// The section header as written in a file.
    pub title: &'static str,
    pub about: &'static str,
    pub keys: &'static [SectionKey],
}

#[derive(Debug, Clone, Copy)]
pub struct SectionKey {
    pub name: &'static str,
    /// The values that the key takes.
    pub value: &'static str,
    /// The default.
    pub default: &'static str,
    pub help: &'static str,
}

impl SectionDef {
    pub fn names(&self) -> Vec<&'static str> {
        self.keys.iter().map(|key| key.name).collect()
    }

    pub fn has(&self, name: &str) -> bool {
        self.keys.iter().any(|key| key.name == name)
    }
}

pub(super) const fn key(
    name: &'static str,
    value: &'static str,
    default: &'static str,
    help: &'static str,
) -> SectionKey {
    SectionKey { name, value, default, help }
}
