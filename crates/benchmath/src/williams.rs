//! Orders of conditions that are balanced for position and for first-order carry-over.
//!
//! What a trial leaves behind (dirty pages, a warm cache, a device that still erases) reaches into the
//! next one. In a Williams design every condition stands at every position equally often, and directly
//! follows every other condition equally often, so that such a carry-over affects all conditions alike.
//! An even number of conditions needs one Latin square, an odd number a square and its mirror image.
//!
//! Source: E. J. Williams, "Experimental designs balanced for the estimation of residual effects of
//! treatments", Australian Journal of Scientific Research A 2(2), 1949. This module has the design only;
//! the caller draws the rows and assigns the conditions to the labels at random (D. R. Cox, Planning
//! of Experiments, Wiley 1958, chapter 13).

/// Number of rows of the whole design: `n` if that is even, else `2 n`. With one condition, 1.
pub fn rows(n: usize) -> usize {
    match n {
        0 | 1 => n,
        n if n.is_multiple_of(2) => n,
        n => 2 * n,
    }
}

/// One row of the design: the labels `0..n` in the order in which they run.
///
/// # Panics
///
/// If `row` is not below [`rows`].
pub fn row(n: usize, row: usize) -> Vec<usize> {
    assert!(row < rows(n), "a design of {n} conditions has {} rows", rows(n));
    // 0, n - 1, 1, n - 2, ...: all neighboring differences are distinct if n is even.
    let zigzag = |at: usize| if at.is_multiple_of(2) { at / 2 } else { n - at.div_ceil(2) };
    let mut labels: Vec<usize> = (0..n).map(|at| (zigzag(at) + row) % n).collect();
    if row >= n {
        labels.reverse();
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_label_is_at_each_position_and_follows_each_other_equally_often() {
        for n in 2..=13 {
            let mut position = vec![vec![0; n]; n];
            let mut follows = vec![vec![0; n]; n];
            for number in 0..rows(n) {
                let labels = row(n, number);
                for (at, label) in labels.iter().enumerate() {
                    position[*label][at] += 1;
                }
                for pair in labels.windows(2) {
                    follows[pair[1]][pair[0]] += 1;
                }
            }
            let often = rows(n) / n;
            assert!(position.iter().flatten().all(|count| *count == often), "{n}: {position:?}");
            for (label, counts) in follows.iter().enumerate() {
                let expected = |other| if other == label { 0 } else { often };
                assert!(
                    counts.iter().enumerate().all(|(o, c)| *c == expected(o)),
                    "{n}: {counts:?}"
                );
            }
        }
    }

    #[test]
    fn one_condition_has_one_order() {
        assert_eq!((rows(0), rows(1), row(1, 0)), (0, 1, vec![0]));
        assert_eq!((row(4, 0), row(3, 5)), (vec![0, 3, 1, 2], vec![0, 1, 2]));
    }

    #[test]
    #[should_panic(expected = "4 rows")]
    fn a_row_beyond_the_design_panics() {
        row(4, 4);
    }
}
