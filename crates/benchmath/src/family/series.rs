//! The input of one member of a family: its log-ratios, with the block of each. Pure data;
//! `extreme` and `flips` compute with it.

/// The log-ratios of one comparison, by block.
#[derive(Debug, Clone, Default)]
pub struct Series {
    /// Members of the same kind have the same unit and source of noise, such as one metric under
    /// several conditions; their sizes are compared directly.
    pub kind: usize,
    /// Block numbers, each once, in any order.
    pub blocks: Vec<u32>,
    /// One finite log-ratio per block.
    pub logs: Vec<f64>,
}
