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
        few.then(|| Design { factors, cells: full(factors) })
    }

    /// The smallest known design of resolution IV or higher whose first cell has all factors low. `None`
    /// below two factors and above [`MAX_FACTORS`].
    pub fn fractional(factors: usize) -> Option<Design> {
        Some(Design { factors, cells: fractional(factors)? })
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
    /// the table of a few interactions.
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

// The tables from which designs are made.
//
// A regular fraction has 2^p cells, numbered in binary. A factor is a word of base factors, and is high
// in a cell if an odd number of the word's bits are set in the cell's number: cell 0 then has every
// factor low, whatever the words. If every word has an odd number of letters, every product of an odd
// number of factors has one too, so no main effect equals an interaction of two: resolution IV. For
// five, nine and ten factors, words with four letters alias fewer interactions with each other; these
// and those up to eight factors are the fractions of Box, Hunter and Hunter, 2nd ed., table 6.22.
//
// Between 17 and 24 factors, a Plackett-Burman design with its mirror image (all levels exchanged) and
// one more factor that tells the two apart is smaller than a regular fraction. Folding it over frees
// the main effects from interactions (Box, Hunter and Hunter, chapter 7).

/// The level of each factor in each cell.
type Cells = Vec<Vec<bool>>;

/// First rows of the Plackett-Burman designs (Biometrika 33(4), 1946, p. 323): the next rows shift it
/// by one place, and the last row is all low.
const PLACKETT_BURMAN: [&str; 2] = ["++--++++-+-+----++-", "+++++-+-++--++--+-+----"];

/// Every combination of levels.
fn full(factors: usize) -> Cells {
    regular(&base(factors), factors)
}

/// The words of `factors` base factors.
fn base(factors: usize) -> Vec<u32> {
    (0..factors).map(|bit| 1 << bit).collect()
}

fn fractional(factors: usize) -> Option<Cells> {
    let added: &[u32] = match factors {
        0 | 1 => return None,
        2 | 3 => return Some(full(factors)),
        4 => return Some(regular(&odd_words(3, 4), 3)),
        5 => &[0b1111],
        6 => &[0b0111, 0b1110],
        7 => &[0b0111, 0b1110, 0b1101],
        8 => &[0b0111, 0b1110, 0b1101, 0b1011],
        9 => &[0b11110, 0b11101, 0b11011, 0b10111],
        10 => &[0b01111, 0b10111, 0b11011, 0b11101, 0b11110],
        11..=16 => return Some(regular(&odd_words(5, factors), 5)),
        17..=24 => return Some(folded(factors)),
        25..=32 => return Some(regular(&odd_words(6, factors), 6)),
        _ => return None,
    };
    let bits = factors - added.len();
    Some(regular(&[base(bits), added.to_vec()].concat(), bits))
}

/// The first words with an odd number of letters, the shortest first.
fn odd_words(bits: usize, factors: usize) -> Vec<u32> {
    let mut words: Vec<u32> = (1..1 << bits).filter(|w: &u32| w.count_ones() % 2 == 1).collect();
    words.sort_by_key(|word| word.count_ones());
    words.truncate(factors);
    words
}

/// The cells in which each factor is the sum of its word's base factors.
fn regular(words: &[u32], bits: usize) -> Cells {
    let level = |cell: u32, word: &u32| (cell & word).count_ones() % 2 == 1;
    let cell = |cell: u32| words.iter().map(|word| level(cell, word)).collect();
    (0..1 << bits).map(cell).collect()
}

/// A Plackett-Burman design and its mirror image, cut to this number of factors. The cell with all
/// factors low comes first.
fn folded(factors: usize) -> Cells {
    let fits = |row: &&&str| row.len() + 1 >= factors;
    let row = PLACKETT_BURMAN.iter().find(fits).expect("the longer row has 23 signs");
    let row: Vec<bool> = row.bytes().map(|sign| sign == b'+').collect();
    let n = row.len();
    let shifted = |by: usize| (0..n).map(|at| row[(at + n - by) % n]).collect::<Vec<bool>>();
    let rows = std::iter::once(vec![false; n]).chain((0..n).map(shifted));
    let cells = rows.flat_map(|row| {
        // The factor that tells the two apart comes first, so that cutting never removes it.
        let own = [vec![false], row].concat();
        let mirrored = own.iter().map(|level| !level).collect();
        [own, mirrored]
    });
    let cut = |mut cell: Vec<bool>| {
        cell.truncate(factors);
        cell
    };
    cells.map(cut).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn fractional(factors: usize) -> Design {
        Design::fractional(factors).unwrap()
    }

    #[test]
    fn designs_have_the_smallest_known_number_of_cells_and_their_resolution() {
        let cells = |k: usize| match k {
            2..=3 => 1 << k,
            4 => 8,
            5..=8 => 16,
            9..=16 => 32,
            17..=20 => 40,
            21..=24 => 48,
            _ => 64,
        };
        for k in 2..=MAX_FACTORS {
            let design = fractional(k);
            assert_eq!((design.factors(), design.cells().len()), (k, cells(k)), "{k} factors");
            let expected = if matches!(k, 2 | 3 | 5) { 5 } else { 4 };
            assert_eq!(design.resolution(), expected, "{k} factors");
            assert_eq!(design.main_effects().len(), k);
            assert!(
                design.cells()[0].iter().all(|high| !high),
                "{k}: the present settings are a cell"
            );
            let distinct: BTreeSet<_> = design.cells().iter().collect();
            assert_eq!(distinct.len(), cells(k), "{k} factors: no cell runs twice");
        }
        assert_eq!([0, 1, 33].map(Design::fractional), [None, None, None]);
        assert_eq!([0, 17].map(Design::full), [None, None]);
    }

    #[test]
    fn columns_are_balanced_and_orthogonal() {
        for k in 2..=MAX_FACTORS {
            let design = fractional(k);
            let all = [design.main_effects(), design.interactions()].concat();
            for (n, contrast) in all.iter().enumerate() {
                let highs = contrast.high.iter().filter(|high| **high).count();
                assert_eq!(2 * highs, design.cells().len(), "{k}: {contrast:?}");
                for other in &all[..n] {
                    assert_eq!(
                        correlation(&contrast.high, &other.high),
                        0,
                        "{k}: {contrast:?}, {other:?}"
                    );
                }
            }
        }
    }

    /// The alias structure of the 2^(6-2) design with E = ABC and F = BCD, as in Box, Hunter and Hunter.
    #[test]
    fn aliases_are_those_of_the_textbook() {
        let name =
            |pair: &[usize]| pair.iter().map(|f| char::from(b'A' + *f as u8)).collect::<String>();
        let sets = |design: &Design| -> Vec<String> {
            let set = |c: &Contrast| {
                let others = c.aliases.iter().map(|pair| name(pair));
                std::iter::once(name(&c.factors)).chain(others).collect::<Vec<_>>().join("=")
            };
            design.interactions().iter().map(set).collect()
        };
        assert_eq!(
            sets(&fractional(6)),
            ["AB=CE", "AC=BE", "AD=EF", "AE=BC=DF", "AF=DE", "BD=CF", "BF=CD"]
        );
        assert_eq!(sets(&fractional(4)), ["AB=CD", "AC=BD", "AD=BC"]);
        assert_eq!(fractional(5).interactions().len(), 10, "resolution V");
        // Words with four letters leave more contrasts than the 15 of words with three.
        let ten = fractional(10).interactions();
        assert_eq!(ten.len(), 21);
        assert_eq!(ten.iter().map(|c| 1 + c.aliases.len()).sum::<usize>(), 45);
        // In pairs, except for one set that has each factor once.
        let sizes: Vec<usize> =
            ten.iter().map(|c| 1 + c.aliases.len()).filter(|n| *n != 2).collect();
        assert_eq!(sizes, [5]);
        for k in 17..=24 {
            assert!(fractional(k).interactions().is_empty(), "{k}: aliased in part");
            assert_eq!(fractional(k).resolution(), 4);
        }
    }

    #[test]
    fn a_full_design_tells_all_interactions_apart_and_one_at_a_time_has_no_contrast() {
        let full = Design::full(4).unwrap();
        assert_eq!((full.cells().len(), full.interactions().len(), full.resolution()), (16, 6, 5));
        let single = Design::one_at_a_time(3);
        let expected = ["---", "+--", "-+-", "--+"];
        let shown =
            |cell: &Vec<bool>| cell.iter().map(|h| if *h { '+' } else { '-' }).collect::<String>();
        assert_eq!(single.cells().iter().map(shown).collect::<Vec<_>>(), expected);
        assert!(single.main_effects().is_empty() && single.interactions().is_empty());
    }

    #[test]
    fn stored_cells_make_the_same_design_or_none() {
        let design = fractional(7);
        assert_eq!(Design::from_cells(design.cells().to_vec()), Some(design.clone()));
        let mut torn = design.cells().to_vec();
        torn[3].pop();
        assert_eq!(Design::from_cells(torn), None);
        assert_eq!(Design::from_cells(Vec::new()), None);
        // A design with a cell missing is not balanced, so it has no contrasts.
        let cut = Design::from_cells(design.cells()[1..].to_vec()).unwrap();
        assert_eq!(cut.resolution(), 2);
        assert!(cut.main_effects().is_empty() && cut.interactions().is_empty());
    }

    proptest! {
        /// Without noise, a contrast is its main effect, or the sum of its aliased interactions.
        #[test]
        fn contrasts_equal_main_effects_and_sums_of_aliased_interactions(k in 2usize..=16, seed: u64) {
            let design = fractional(k);
            let mut rng = SplitMix64::new(seed);
            let main: Vec<f64> = (0..k).map(|_| rng.next_f64() - 0.5).collect();
            let pairs: Vec<([usize; 2], f64)> = design.pairs().map(|p| (p, rng.next_f64() - 0.5)).collect();
            let sign = |high: bool| if high { 0.5 } else { -0.5 };
            let value = |cell: &Vec<bool>| -> f64 {
                let own = main.iter().zip(cell).map(|(effect, high)| effect * sign(*high));
                let joint = pairs.iter().map(|([a, b], effect)| effect * sign(cell[*a] == cell[*b]));
                own.chain(joint).sum()
            };
            let values: Vec<f64> = design.cells().iter().map(value).collect();
            for contrast in design.main_effects() {
                prop_assert!((contrast.estimate(&values) - main[contrast.factors[0]]).abs() < 1e-9);
            }
            for contrast in design.interactions() {
                let adds = |pair: &[usize; 2]| *pair == *contrast.factors || contrast.aliases.contains(pair);
                let sum: f64 = pairs.iter().filter(|(pair, _)| adds(pair)).map(|(_, e)| e).sum();
                prop_assert!((contrast.estimate(&values) - sum).abs() < 1e-9);
            }
        }
    }

    #[test]
    fn what_single_factors_and_pairs_leave_is_a_contrast_of_its_own() {
        let factors = |design: Design| -> Vec<Vec<usize>> {
            design.remaining().into_iter().map(|c| c.factors).collect()
        };
        assert_eq!(factors(Design::full(2).unwrap()), [[0; 0]; 0]);
        assert_eq!(factors(Design::full(3).unwrap()), [[0, 1, 2]]);
        assert_eq!(factors(Design::full(4).unwrap()).len(), 5);
        // 16 cells: the mean, six factors and seven pairs of pairs.
        let design = Design::fractional(6).unwrap();
        let left = design.remaining();
        assert_eq!((design.cells().len(), left.len()), (16, 2));
        let known = [design.main_effects(), design.interactions()].concat();
        for c in &left {
            assert!(known.iter().all(|k| correlation(&k.high, &c.high) == 0), "{c:?}");
        }
    }
}
