//! A warning is a value: what happened, why, and what to try. Results carry warnings; reports show
//! them last.

use std::fmt;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Warning {
    pub what: String,
    pub why: String,
    #[serde(rename = "try")]
    pub try_this: String,
}

impl Warning {
    pub fn new(
        what: impl Into<String>,
        why: impl Into<String>,
        try_this: impl Into<String>,
    ) -> Warning {
        Warning { what: what.into(), why: why.into(), try_this: try_this.into() }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.what, self.why, self.try_this)
    }
}
