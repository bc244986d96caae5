use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::rng::SplitMix64;

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
        assert!(design.cells()[0].iter().all(|high| !high), "{k}: the present settings are a cell");
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
    let sizes: Vec<usize> = ten.iter().map(|c| 1 + c.aliases.len()).filter(|n| *n != 2).collect();
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
