//! The tables from which designs are made.
//!
//! A regular fraction has 2^p cells, numbered in binary. A factor is a word of base factors, and is high
//! in a cell if an odd number of the word's bits are set in the cell's number: cell 0 then has every
//! factor low, whatever the words. If every word has an odd number of letters, every product of an odd
//! number of factors has one too, so no main effect equals an interaction of two: resolution IV. For
//! five, nine and ten factors, words with four letters alias fewer interactions with each other; these
//! and those up to eight factors are the fractions of Box, Hunter and Hunter, 2nd ed., table 6.22.
//!
//! Between 17 and 24 factors, a Plackett-Burman design with its mirror image (all levels exchanged) and
//! one more factor that tells the two apart is smaller than a regular fraction. Folding it over frees
//! the main effects from interactions (Box, Hunter and Hunter, chapter 7).

/// The level of each factor in each cell.
type Cells = Vec<Vec<bool>>;

/// First rows of the Plackett-Burman designs (Biometrika 33(4), 1946, p. 323): the next rows shift it
/// by one place, and the last row is all low.
const PLACKETT_BURMAN: [&str; 2] = ["++--++++-+-+----++-", "+++++-+-++--++--+-+----"];

/// Every combination of levels.
pub(super) fn full(factors: usize) -> Cells {
    regular(&base(factors), factors)
}

/// The words of `factors` base factors.
fn base(factors: usize) -> Vec<u32> {
    (0..factors).map(|bit| 1 << bit).collect()
}

pub(super) fn fractional(factors: usize) -> Option<Cells> {
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
