//! Factors of a screening experiment, and the design that made its conditions from them.
//!
//! Stored unchanged in the manifest. Each condition is a cell of the design: it has the treatments of
//! each factor's low or high level. Next: `benchmath::factorial` has the designs, `pgio_verdict::effects`
//! estimates the effects from the stored cells alone.

use serde::{Deserialize, Serialize};

use crate::change::Change;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(rename = "Screening"))]
pub struct FactorDesign {
    #[serde(rename = "design")]
    pub kind: DesignKind,
    /// In the order of the experiment file.
    pub factors: Vec<Factor>,
    /// In the order of the manifest's conditions; the first has all factors low.
    pub cells: Vec<DesignCell>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Factor {
    pub name: String,
    /// The changes of each level; empty if the level leaves everything as it is.
    pub low: Vec<Change>,
    pub high: Vec<Change>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DesignCell {
    pub condition: String,
    /// Names of the factors that are high; all others are low.
    pub high: Vec<String>,
}

/// How cells are chosen among the combinations of levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum DesignKind {
    /// Every combination.
    Full,
    /// A fraction of them, of resolution IV.
    Fractional,
    /// All factors low, then each of them high alone.
    OneAtATime,
}

impl DesignKind {
    /// All kinds by their names.
    pub const ALL: &[(&str, DesignKind)] = &[
        (Self::Fractional.name(), Self::Fractional),
        (Self::Full.name(), Self::Full),
        (Self::OneAtATime.name(), Self::OneAtATime),
    ];

    /// The name in an experiment file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Fractional => "fractional",
            Self::OneAtATime => "one-at-a-time",
        }
    }

    /// Whether an effect is a contrast of all cells. Otherwise each cell is compared with the baseline.
    pub fn is_factorial(self) -> bool {
        self != Self::OneAtATime
    }
}

impl FactorDesign {
    /// The level of each factor in each cell: true is high.
    pub fn levels(&self) -> Vec<Vec<bool>> {
        let level = |cell: &DesignCell| {
            self.factors.iter().map(|factor| cell.high.contains(&factor.name)).collect()
        };
        self.cells.iter().map(level).collect()
    }

    pub fn cell(&self, condition: &str) -> Option<&DesignCell> {
        self.cells.iter().find(|cell| cell.condition == condition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_design_survives_serialization_with_the_names_of_the_file() {
        let factor = |name: &str| Factor {
            name: name.to_owned(),
            low: Vec::new(),
            high: vec![Change::server(name, "off")],
        };
        let cell = |condition: &str, high: &[&str]| DesignCell {
            condition: condition.to_owned(),
            high: high.iter().map(|name| (*name).to_owned()).collect(),
        };
        let design = FactorDesign {
            kind: DesignKind::OneAtATime,
            factors: vec![factor("jit"), factor("fsync")],
            cells: vec![cell("all low", &[]), cell("jit", &["jit"]), cell("fsync", &["fsync"])],
        };
        let text = serde_json::to_string(&design).unwrap();
        assert_eq!(serde_json::from_str::<FactorDesign>(&text).unwrap(), design);
        for (name, kind) in DesignKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), *name);
        }
        assert_eq!(design.levels(), [[false, false], [true, false], [false, true]]);
        assert_eq!(design.cell("jit").unwrap().high, ["jit"]);
    }
}
