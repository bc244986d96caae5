//! The look of a condition in every chart: its color, dash and mark.
//!
//! Lines differ in three ways, so that they are distinguishable without color. The baseline is always the
//! first; its twin has the same color, dashed.

use maud::{Markup, html};

use super::svg::{percent, px};
use pgio_results::store::Manifest;

/// Colors of `page.css` beside the baseline's own.
const COLORS: usize = 6;
const DASHES: usize = 4;

#[derive(Debug)]
pub(super) struct LineStyles(Vec<(String, LineStyle)>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LineStyle {
    pub(super) color: usize,
    pub(super) dash: usize,
    mark: usize,
}

/// The color of the only line in a chart.
pub(super) const PLAIN: LineStyle = LineStyle { color: 0, dash: 0, mark: 0 };

impl LineStyles {
    pub(super) fn new(manifest: &Manifest) -> LineStyles {
        let mut others = 0;
        let look = |name: &str| {
            if name == manifest.baseline {
                return PLAIN;
            }
            if manifest.aa.as_deref() == Some(name) {
                return LineStyle { color: 0, dash: 1, mark: 1 };
            }
            let n = others;
            others += 1;
            LineStyle { color: 1 + n % COLORS, dash: (n + n / COLORS) % DASHES, mark: n + 2 }
        };
        let names = manifest.conditions.iter().map(|c| c.name.clone());
        let mut look = look;
        LineStyles(names.map(|name| (name.clone(), look(&name))).collect())
    }

    pub(super) fn get(&self, condition: &str) -> LineStyle {
        let found = self.0.iter().find(|(name, _)| name == condition);
        found.map_or(PLAIN, |(_, look)| *look)
    }

    /// The legend for the conditions of a chart.
    pub(super) fn legend<'a>(&self, conditions: impl Iterator<Item = &'a str>) -> Markup {
        html! {
            ul.legend {
                @for name in conditions {
                    @let look = self.get(name);
                    li {
                        svg.key width="36" height="14" aria-hidden="true" {
                            line.line.(look.class()) x1="0" x2="36" y1="7" y2="7" {}
                            (look.mark(0.5, 7.0, ""))
                        }
                        (name)
                    }
                }
            }
        }
    }
}

impl LineStyle {
    pub(super) fn class(self) -> String {
        format!("c{} d{}", self.color, self.dash)
    }

    /// The same without dashes.
    pub(super) fn solid(self) -> LineStyle {
        LineStyle { dash: 0, ..self }
    }

    /// The mark at a place of a chart, with a text for the pointer that rests on it.
    pub(super) fn mark(self, across: f64, y: f64, tip: &str) -> Markup {
        const SHAPES: [&str; 6] = [
            "M-5 0A5 5 0 1 1 5 0A5 5 0 1 1 -5 0Z",
            "M-5.2 0A5.2 5.2 0 1 1 5.2 0A5.2 5.2 0 1 1 -5.2 0ZM-2.4 0A2.4 2.4 0 1 0 2.4 0A2.4 2.4 0 1 0 -2.4 0Z",
            "M-4.5 -4.5H4.5V4.5H-4.5Z",
            "M0 -5.5L5.5 4.5H-5.5Z",
            "M0 -6L6 0L0 6L-6 0Z",
            "M0 5.5L5.5 -4.5H-5.5Z",
        ];
        html! {
            svg x=(percent(across)) y=(px(y)) class={ "mark c" (self.color) } {
                path d=(SHAPES[self.mark % SHAPES.len()]) {
                    @if !tip.is_empty() { title { (tip) } }
                }
            }
        }
    }
}

/// A name shortened for a chart, which does not wrap; the tables have the full name.
pub(super) fn clipped(name: &str, most: usize) -> String {
    if name.chars().count() <= most {
        return name.to_owned();
    }
    let kept: String = name.chars().take(most - 1).collect();
    format!("{}…", kept.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_results::store::ConditionInfo;
    use pgio_results::test_support::manifest;

    #[test]
    fn a_name_is_clipped_between_characters() {
        assert_eq!(clipped("µµµµ", 4), "µµµµ");
        assert_eq!(clipped("µµ µµ", 4), "µµ…");
    }

    #[test]
    fn no_two_conditions_look_alike() {
        let info = |i| ConditionInfo { name: format!("c{i}"), changes: Vec::new() };
        let conditions: Vec<ConditionInfo> = (0..14).map(info).collect();
        let manifest = Manifest {
            baseline: "c0".to_owned(),
            aa: Some("c1".to_owned()),
            conditions,
            ..manifest()
        };
        let looks = LineStyles::new(&manifest);
        let mut seen: Vec<String> = (0..14).map(|i| looks.get(&format!("c{i}")).class()).collect();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 14);
        assert_eq!(looks.get("c1").color, looks.get("c0").color);
    }
}
