//! The common parts of charts: scales, ticks, the picture with its description, and the look of a condition (its color,
//! dash and mark), which is the same in every chart.
//!
//! A chart fills the width of its container. Horizontal units are per cent of the width, vertical ones pixels. Colors and
//! dashes are classes of `page.css`. Lines differ in three ways, so that they are distinguishable without color. The
//! baseline is always the first; its twin has the same color, dashed. Next: the two kinds of charts, `intervals` and
//! `timeline`.

use maud::{Markup, html};
use pgio_results::store::Manifest;

/// Colors of `page.css` beside the baseline's own.
const COLORS: usize = 6;
const DASHES: usize = 4;

/// A scale is wider than the least number whose powers of ten and quotients are exact enough.
const MIN_WIDTH: f64 = 1e-300;

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl Scale {
    pub fn linear(low: f64, high: f64) -> Scale {
        // A scale without width, or with one that has no steps, would divide by nothing.
        let high = if high - low >= MIN_WIDTH { high } else { low + low.abs().max(1.0) };
        Scale { low, high, logarithmic: false }
    }

    /// Both bounds above 0.
    pub fn logarithmic(low: f64, high: f64) -> Scale {
        let high = if high > low { high } else { low * 2.0 };
        Scale { low, high, logarithmic: true }
    }

    /// The position of a value: 0 at the low end, 1 at the high one.
    pub fn at(&self, value: f64) -> f64 {
        if self.logarithmic {
            (value.ln() - self.low.ln()) / (self.high.ln() - self.low.ln())
        } else {
            (value - self.low) / (self.high - self.low)
        }
    }

    pub fn bounds(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// Values that are round in KiB, MiB and so on.
    pub fn binary_ticks(&self, most: usize) -> Vec<f64> {
        let size = self.low.abs().max(self.high.abs()).max(1.0);
        let unit = 1024f64.powf((size.log2() / 10.0 - 0.05).floor().max(0.0));
        let within = Scale::linear(self.low / unit, self.high / unit);
        within.ticks(most).into_iter().map(|tick| tick * unit).collect()
    }

    /// Round values inside, at most about `most` of them.
    pub fn ticks(&self, most: usize) -> Vec<f64> {
        if self.logarithmic {
            return logarithmic_ticks(self.low, self.high, most);
        }
        let rough = (self.high - self.low) / most.max(1) as f64;
        let power = 10f64.powf(rough.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|s| s * power);
        let step = steps.into_iter().find(|s| *s >= rough * 0.999).unwrap_or(10.0 * power);
        let from = (self.low / step - 1e-9).ceil() as i64;
        let to = (self.high / step + 1e-9).floor() as i64;
        (from..=to).map(|i| i as f64 * step).collect()
    }
}

/// Ticks at 1, 2 and 5 of each decade; if these are too many, only at 1, perhaps of every other decade.
fn logarithmic_ticks(low: f64, high: f64, most: usize) -> Vec<f64> {
    let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let inside = |v: &f64| *v >= low * 0.999 && *v <= high * 1.001;
    let with = |of_decade: &[f64], every: usize| -> Vec<f64> {
        let each = decades.clone().step_by(every);
        let values = each.flat_map(|d| of_decade.iter().map(move |m| m * 10f64.powi(d)));
        values.filter(inside).collect()
    };
    let choices = [with(&[1.0, 2.0, 5.0], 1), with(&[1.0, 3.0], 1), with(&[1.0], 1)];
    let fits = |ticks: &Vec<f64>| ticks.len() <= most;
    choices.into_iter().find(fits).unwrap_or_else(|| with(&[1.0], 2))
}

#[derive(Debug, Clone, Default)]
pub struct Axis {
    pub scale: Scale,
    /// Values with their labels.
    pub ticks: Vec<(f64, String)>,
    pub caption: String,
}

/// A picture with a description, reachable by keyboard.
pub(super) fn picture(id: &str, title: &str, about: &str, height: &str, body: &Markup) -> Markup {
    html! {
        svg #(id) role="img" tabindex="0" width="100%" height=(height)
            aria-labelledby={ (id) "-title" } aria-describedby={ (id) "-desc" } {
            title #{ (id) "-title" } { (title) }
            desc #{ (id) "-desc" } { (about) }
            (body)
        }
    }
}

/// A name and a text above a strip of the chart. Both are text of the page, which the browser wraps.
pub(super) struct Row<'a> {
    pub(super) name: &'a str,
    pub(super) text: String,
    pub(super) strip: Markup,
}

/// Rows over a picture that is as high as all of them; each strip has this height.
pub(super) fn rows(picture: &Markup, height: f64, rows: &[Row<'_>]) -> Markup {
    html! {
        div.rows {
            (picture)
            @for row in rows { div.row {
                span.name { (row.name) } " " span.effect { (row.text) }
                svg.strip width="100%" height=(px(height)) aria-hidden="true" { (row.strip) }
            } }
        }
    }
}

/// A place across the chart, 0 to 1.
pub(super) fn percent(fraction: f64) -> String {
    format!("{:.2}%", fraction * 100.0)
}

pub(super) fn px(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

#[derive(Debug)]
pub struct LineStyles(Vec<(String, LineStyle)>);

/// The default is of the baseline, and of the only line in a chart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LineStyle {
    pub(super) color: usize,
    pub(super) dash: usize,
    mark: usize,
}

impl LineStyles {
    pub fn new(manifest: &Manifest) -> LineStyles {
        let mut others = 0;
        let look = |name: &str| {
            if name == manifest.baseline {
                return LineStyle::default();
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

    pub fn get(&self, condition: &str) -> LineStyle {
        let found = self.0.iter().find(|(name, _)| name == condition);
        found.map(|(_, look)| *look).unwrap_or_default()
    }

    /// The legend for the conditions of a chart.
    pub fn legend<'a>(&self, conditions: impl Iterator<Item = &'a str>) -> Markup {
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

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_results::store::ConditionInfo;
    use pgio_results::test_support::manifest;
    use proptest::prelude::*;

    #[test]
    fn ticks_are_round() {
        assert_eq!(Scale::linear(0.0, 3000.0).ticks(4), [0.0, 1000.0, 2000.0, 3000.0]);
        assert_eq!(Scale::linear(-0.6, 0.1).ticks(4).len(), 4);
        assert_eq!(Scale::logarithmic(0.3, 12.0).ticks(6), [0.5, 1.0, 2.0, 5.0, 10.0]);
        assert_eq!(Scale::logarithmic(1.0, 1e6).ticks(7).len(), 7);
        assert_eq!(Scale::linear(5.0, 5.0).at(5.0), 0.0);
        for (low, high) in [(0.0, 5e-324), (5e-324, 1e-323), (1e17, 1e17), (-5e-324, 5e-324)] {
            let ticks = Scale::linear(low, high).ticks(4);
            assert!((1..=6).contains(&ticks.len()), "{low} {high}: {ticks:?}");
        }
        assert!(Scale::logarithmic(5e-324, 1e308).ticks(6).len() < 400);
        let bytes = Scale::linear(0.0, 2.3 * 1_048_576.0).binary_ticks(4);
        assert_eq!(bytes, [0.0, 1_048_576.0, 2_097_152.0]);
    }

    proptest! {
        #[test]
        fn ticks_lie_inside_and_are_few(low in -1e6f64..1e6, width in 1e-3f64..1e6,
                                        most in 2usize..9) {
            let ticks = Scale::linear(low, low + width).ticks(most);
            prop_assert!(ticks.len() <= most + 1, "{:?}", ticks);
            let slack = width * 1e-6 + low.abs() * 1e-9;
            prop_assert!(ticks.iter().all(|t| *t >= low - slack && *t <= low + width + slack));
        }
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
