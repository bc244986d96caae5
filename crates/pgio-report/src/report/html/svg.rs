//! The common parts of charts: scales, ticks, the frame with its grid, lines and marks.
//!
//! A chart fills the width of its container. Horizontal units are per cent of the width; lines are in a
//! stretched inner picture with unstretched strokes, so that text and marks have the same size on a phone
//! and on a desktop. Vertical units are pixels. Colors and dashes are classes of `page.css`. This file
//! does not depend on the data.

use std::fmt::Write;

use maud::{Markup, html};

/// Units across the stretched picture.
const ACROSS: f64 = 1000.0;

/// A scale is wider than the least number whose powers of ten and quotients are exact enough.
const MIN_WIDTH: f64 = 1e-300;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl Scale {
    pub(super) fn linear(low: f64, high: f64) -> Scale {
        // A scale without width, or with one that has no steps, would divide by nothing.
        let high = if high - low >= MIN_WIDTH { high } else { low + low.abs().max(1.0) };
        Scale { low, high, logarithmic: false }
    }

    /// Both bounds above 0.
    pub(super) fn logarithmic(low: f64, high: f64) -> Scale {
        let high = if high > low { high } else { low * 2.0 };
        Scale { low, high, logarithmic: true }
    }

    /// The position of a value: 0 at the low end, 1 at the high one.
    pub(super) fn at(&self, value: f64) -> f64 {
        if self.logarithmic {
            (value.ln() - self.low.ln()) / (self.high.ln() - self.low.ln())
        } else {
            (value - self.low) / (self.high - self.low)
        }
    }

    pub(super) fn bounds(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// Values that are round in KiB, MiB and so on.
    pub(super) fn binary_ticks(&self, most: usize) -> Vec<f64> {
        let size = self.low.abs().max(self.high.abs()).max(1.0);
        let unit = 1024f64.powf((size.log2() / 10.0 - 0.05).floor().max(0.0));
        let within = Scale::linear(self.low / unit, self.high / unit);
        within.ticks(most).into_iter().map(|tick| tick * unit).collect()
    }

    /// Round values inside, at most about `most` of them.
    pub(super) fn ticks(&self, most: usize) -> Vec<f64> {
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

#[derive(Debug, Clone)]
pub(super) struct Axis {
    pub(super) scale: Scale,
    /// Values with their labels.
    pub(super) ticks: Vec<(f64, String)>,
    pub(super) caption: String,
}

/// A chart's frame: what it is called, how high it is, its axes.
#[derive(Debug, Clone)]
pub(super) struct Frame {
    /// Unique on the page.
    pub(super) id: String,
    pub(super) title: String,
    /// A description of the chart for screen readers.
    pub(super) description: String,
    pub(super) height: f64,
    pub(super) x: Axis,
    pub(super) y: Axis,
}

impl Frame {
    pub(super) fn x_at(&self, value: f64) -> f64 {
        self.x.scale.at(value)
    }

    /// Pixels from the top.
    pub(super) fn y_at(&self, value: f64) -> f64 {
        self.height * (1.0 - self.y.scale.at(value))
    }

    /// The chart with its grid below `body`.
    pub(super) fn draw(&self, body: &Markup) -> Markup {
        let h = self.height;
        let grid = html! {
            g.grid {
                @for (value, label) in &self.y.ticks {
                    @let y = px(self.y_at(*value));
                    line x1="0" x2="100%" y1=(y) y2=(y) {}
                    text.tick x="-8" y=(y) dy="0.35em" text-anchor="end" { (label) }
                }
                @for (value, label) in &self.x.ticks {
                    @let x = percent(self.x_at(*value));
                    line x1=(x) x2=(x) y1="0" y2=(px(h)) {}
                    text.tick x=(x) y=(px(h + 18.0)) text-anchor="middle" { (label) }
                }
            }
        };
        html! {
            div.plot {
                p.caption aria-hidden="true" { (self.y.caption) }
                (picture(&self.id, &self.title, &self.description, h + 24.0, &html! {
                    (grid) (body)
                }))
                p.caption.below aria-hidden="true" { (self.x.caption) }
            }
        }
    }

    /// A line through values, broken where one is missing; `class` gives its color and dash.
    pub(super) fn line(&self, points: &[(f64, Option<f64>)], class: &str) -> Markup {
        let mut d = String::new();
        let mut pen_up = true;
        for (x, y) in points {
            let Some(y) = y.filter(|y| y.is_finite()) else {
                pen_up = true;
                continue;
            };
            let command = if pen_up { 'M' } else { 'L' };
            // A value below the axis, such as a standby that is ahead of the last reading, stays in the frame.
            let y = y.max(self.y.scale.low);
            // Writing to a string cannot fail.
            let _ = write!(d, "{command}{:.1} {:.1}", self.x_at(*x) * ACROSS, self.y_at(y));
            pen_up = false;
        }
        html! { @if !d.is_empty() { path.line.(class) d=(d) {} } }
    }

    /// The stretched picture that lines are drawn in.
    pub(super) fn lines(&self, lines: &Markup) -> Markup {
        html! {
            svg.lines width="100%" height=(px(self.height)) preserveAspectRatio="none"
                viewBox={ "0 0 " (ACROSS) " " (px(self.height)) } { (lines) }
        }
    }
}

/// A picture with a description, reachable by keyboard.
pub(super) fn picture(id: &str, title: &str, about: &str, height: f64, body: &Markup) -> Markup {
    html! {
        svg #(id) role="img" tabindex="0" width="100%" height=(px(height))
            aria-labelledby={ (id) "-title" } aria-describedby={ (id) "-desc" } {
            title #{ (id) "-title" } { (title) }
            desc #{ (id) "-desc" } { (about) }
            (body)
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

#[cfg(test)]
mod tests {
    use super::*;
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

    #[test]
    fn a_missing_value_breaks_the_line() {
        let axis = |scale| Axis { scale, ticks: Vec::new(), caption: String::new() };
        let frame = Frame {
            id: "x".to_owned(),
            title: String::new(),
            description: String::new(),
            height: 100.0,
            x: axis(Scale::linear(0.0, 3.0)),
            y: axis(Scale::linear(0.0, 10.0)),
        };
        let points = [(0.0, Some(0.0)), (1.0, None), (2.0, Some(10.0)), (3.0, Some(5.0))];
        let drawn = frame.line(&points, "c1").into_string();
        assert!(drawn.contains("d=\"M0.0 100.0M666.7 0.0L1000.0 50.0\""), "{drawn}");
        assert!(frame.line(&[(0.0, None)], "c1").into_string().is_empty());
        let below = frame.line(&[(0.0, Some(-9.0))], "c1").into_string();
        assert!(below.contains("M0.0 100.0"), "{below}");
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
}
