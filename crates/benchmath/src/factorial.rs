//! Two-level factorial designs: which factors are high in which cell, and which effects a design can
//! tell apart.
//!
//! Every cell of a balanced design contributes to every effect: an effect is the mean of the cells at
//! one level minus the mean of those at the other. The design therefore measures all factors with the
//! precision that one factor alone would have, and it also shows whether two factors act together.
//!
//! A fraction of all combinations cannot tell some effects apart: they are aliased. Resolution IV means
//! that no main effect is aliased with another or with a two-factor interaction, while interactions may
//! be aliased with each other; at resolution V they are not. Interactions of three and more factors are
//! assumed to be negligible, as far as the design leaves no contrasts to test that ([`Design::remaining`]).
//!
//! Sources: Box, Hunter and Hunter, Statistics for Experimenters, 2nd ed., Wiley 2005, chapters 5, 6 and
//! 8; Plackett and Burman, "The design of optimum multifactorial experiments", Biometrika 33(4), 1946.
//! Next: [`construct`] has the tables of the designs.

mod construct;
#[cfg(test)]
mod tests;

/// With more sets of factors of one size, larger ones are not searched for remaining contrasts.
const MAX_SUBSETS: usize = 5_000;

/// The factors of the largest design.
pub const MAX_FACTORS: usize = 32;

/// The cells of a design. A cell has a level for each factor: true is high.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Design {
    factors: usize,
    cells: Vec<Vec<bool>>,
}

/// An effect that a design can estimate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contrast {
    /// The factors of the effect: one for a main effect, two for an interaction.
    pub factors: Vec<usize>,
    /// Interactions that have the same cells on each side, and add to the effect.
    pub aliases: Vec<[usize; 2]>,
    /// The side of each cell; both sides have equally many.
    pub high: Vec<bool>,
}

impl Contrast {
    /// The mean of the cells on the high side minus the mean of the others.
    ///
    /// # Panics
    ///
    /// Unless there is one value for each cell.
    pub fn estimate(&self, values: &[f64]) -> f64 {
        assert_eq!(values.len(), self.high.len(), "a contrast needs one value for each cell");
        let signed = self.high.iter().zip(values).map(|(high, v)| if *high { *v } else { -v });
        signed.sum::<f64>() * 2.0 / values.len() as f64
    }
}

impl Design {
    /// Every combination of levels. `None` without factors and above [`MAX_FACTORS`] / 2, which nobody
    /// can run.
    pub fn full(factors: usize) -> Option<Design> {
        let few = (1..=MAX_FACTORS / 2).contains(&factors);
        few.then(|| Design { factors, cells: construct::full(factors) })
    }

    /// The smallest known design of resolution IV or higher whose first cell has all factors low. `None`
    /// below two factors and above [`MAX_FACTORS`].
    pub fn fractional(factors: usize) -> Option<Design> {
        Some(Design { factors, cells: construct::fractional(factors)? })
    }

    /// All factors low, then each of them high alone. This design has no contrasts: each cell is
    /// compared with the first.
    pub fn one_at_a_time(factors: usize) -> Design {
        let cell = |high: usize| (1..=factors).map(|factor| factor == high).collect();
        Design { factors, cells: (0..=factors).map(cell).collect() }
    }

    /// From stored cells. `None` if there are none or if they differ in length.
    pub fn from_cells(cells: Vec<Vec<bool>>) -> Option<Design> {
        let factors = cells.first().map(Vec::len).filter(|n| (1..=MAX_FACTORS).contains(n))?;
        cells.iter().all(|cell| cell.len() == factors).then_some(Design { factors, cells })
    }

    pub fn cells(&self) -> &[Vec<bool>] {
        &self.cells
    }

    pub fn factors(&self) -> usize {
        self.factors
    }

    /// The side of each cell in the contrast of these factors: the product of their levels as +1 and -1.
    fn column(&self, factors: &[usize]) -> Vec<bool> {
        let lows = |cell: &Vec<bool>| factors.iter().filter(|f| !cell[**f]).count();
        self.cells.iter().map(|cell| lows(cell).is_multiple_of(2)).collect()
    }

    fn pairs(&self) -> impl Iterator<Item = [usize; 2]> {
        let n = self.factors;
        (0..n).flat_map(move |a| (a + 1..n).map(move |b| [a, b]))
    }

    /// The main effects, if they are balanced and independent of each other and of the interactions
    /// (resolution IV); otherwise nothing.
    pub fn main_effects(&self) -> Vec<Contrast> {
        if self.resolution() < 4 {
            return Vec::new();
        }
        let main = |factor| Contrast {
            factors: vec![factor],
            aliases: Vec::new(),
            high: self.column(&[factor]),
        };
        (0..self.factors).map(main).collect()
    }

    /// The two-factor interactions, those that are aliased as one contrast under the name of the first.
    /// Nothing if some are aliased in part, as in a Plackett-Burman design: no contrast would then be
    /// that of a few interactions.
    pub fn interactions(&self) -> Vec<Contrast> {
        if self.resolution() < 4 {
            return Vec::new();
        }
        let mut all: Vec<Contrast> = Vec::new();
        for pair in self.pairs() {
            let high = self.column(&pair);
            match all.iter_mut().map(|c| (correlation(&c.high, &high), c)).find(|(r, _)| *r != 0) {
                None => {
                    all.push(Contrast { factors: pair.to_vec(), aliases: Vec::new(), high });
                }
                Some((r, same)) if r == high.len() as i64 => same.aliases.push(pair),
                Some(_) => return Vec::new(),
            }
        }
        all
    }

    /// Contrasts of three and more factors that are independent of the mean, of the main effects and of the
    /// interactions: what these leave in the cells. Empty if the design has no cells left for them, or no
    /// interactions of its own.
    pub fn remaining(&self) -> Vec<Contrast> {
        let interactions = self.interactions();
        if interactions.is_empty() {
            return Vec::new();
        }
        let mut columns = vec![self.column(&[])];
        columns.extend(self.main_effects().into_iter().chain(interactions).map(|c| c.high));
        let mut found = Vec::new();
        let mut subsets: Vec<Vec<usize>> = self.pairs().map(|pair| pair.to_vec()).collect();
        while columns.len() < self.cells.len() && !subsets.is_empty() {
            subsets = subsets
                .iter()
                .flat_map(|s| {
                    (s[s.len() - 1] + 1..self.factors).map(|f| [s.as_slice(), &[f]].concat())
                })
                .collect();
            for factors in &subsets {
                let high = self.column(factors);
                let is_new = columns.iter().all(|known| correlation(known, &high) == 0);
                if is_new && columns.len() < self.cells.len() {
                    columns.push(high.clone());
                    found.push(Contrast { factors: factors.clone(), aliases: Vec::new(), high });
                }
            }
            if subsets.len() > MAX_SUBSETS {
                break;
            }
        }
        found
    }

    /// The resolution: 2 if main effects are unbalanced or aliased with each other, 3 if some are aliased
    /// with interactions, 4 if interactions are aliased with each other, and 5 if these are not either.
    pub fn resolution(&self) -> u32 {
        let main: Vec<Vec<bool>> = (0..self.factors).map(|f| self.column(&[f])).collect();
        let pairs: Vec<Vec<bool>> = self.pairs().map(|pair| self.column(&pair)).collect();
        let mean = self.column(&[]);
        let apart = |a: &[Vec<bool>], b: &[Vec<bool>]| {
            a.iter().all(|x| b.iter().all(|y| correlation(x, y) == 0))
        };
        let among = |all: &[Vec<bool>]| {
            (0..all.len())
                .all(|n| correlation(&mean, &all[n]) == 0 && apart(&all[..n], &all[n..=n]))
        };
        match () {
            () if !among(&main) => 2,
            () if !apart(&main, &pairs) => 3,
            () if !among(&pairs) => 4,
            () => 5,
        }
    }
}

/// The sum of products of two columns of +1 and -1: 0 if they are orthogonal.
fn correlation(a: &[bool], b: &[bool]) -> i64 {
    let equal = a.iter().zip(b).filter(|(a, b)| a == b).count() as i64;
    2 * equal - a.len() as i64
}
