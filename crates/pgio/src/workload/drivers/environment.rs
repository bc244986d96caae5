//! The variables in which the coordinator's engines give drivers their ranks.
//!
//! They have a file to themselves because both processes need them: [`super::coordinator::launch`] sets them,
//! and `pgio drive` reads them.

/// The variable with the ranks of the processes that one start makes, separated by commas.
pub const RANKS_VARIABLE: &str = "PGIO_DRIVE_RANKS";

/// The variable in which Slurm gives each process of a step its number.
pub const SLURM_RANK_VARIABLE: &str = "SLURM_PROCID";
