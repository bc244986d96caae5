//! Of `[experiment]`: when trials are repeated, how far blocks go on, what is made anew before each
//! trial, which checks are tolerated.

use super::limits;
use super::question::{self, Question};
use super::section::Section;
use super::target::Target;
use crate::config::error::{ConfigError, nearest};

/// How the loop goes on beyond its blocks and back to a trial.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    /// Of a ratio: 0.05 is ±5 %. Blocks are added until every primary interval is as narrow.
    pub precision: Option<f64>,
    /// At most so many blocks; without a precision they are `blocks`.
    pub max_blocks: u32,
    /// How often an invalid trial is repeated.
    pub repeats: u32,
    pub reset: Reset,
    pub checkpoint: Checkpoint,
    /// Ids of checks that only warn.
    pub tolerate: Vec<String>,
    pub question: Question,
}

/// What is made the same again before each trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reset {
    /// Nothing but a CHECKPOINT, which every trial begins with.
    Checkpoint,
    /// What updates and deletes left behind is given back, for the next trial to use again.
    Vacuum,
    /// The data set is loaded again.
    Reload,
    /// The database is dropped and made again. `named` is its name, said twice so that no slip
    /// drops another; absent only where all servers are private.
    Recreate { named: Option<String> },
}

/// Which checkpoints a window meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checkpoint {
    /// A CHECKPOINT before each warm-up: windows at the beginning of a cycle.
    Before,
    /// Windows of whole checkpoint cycles.
    Spread,
    /// pgio issues none.
    None,
}

impl Checkpoint {
    const NAMES: &[(&str, Checkpoint)] =
        &[("before", Self::Before), ("spread", Self::Spread), ("none", Self::None)];

    pub fn name(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::Spread => "spread",
            Self::None => "none",
        }
    }
}

impl Reset {
    pub fn name(&self) -> &'static str {
        match self {
            Reset::Checkpoint => "checkpoint",
            Reset::Vacuum => "vacuum",
            Reset::Reload => "reload",
            Reset::Recreate { .. } => "recreate",
        }
    }
}

const RESETS: &[&str] = &["checkpoint", "vacuum", "reload", "recreate"];

/// Where `precision` says when to stop, so many blocks are enough for anything worth it.
const MAX_BLOCKS: u32 = 30;
const REPEATS: u32 = 2;

pub(super) fn parse<'a>(
    head: &Section<'_>,
    blocks: u32,
    targets: impl Iterator<Item = &'a Target>,
    checks: &[&str],
    conditions: &[&str],
) -> Result<Rules, ConfigError> {
    let precision =
        share(head, "precision", "must be a share from 0.1% to below 100% such as \"5%\"")?;
    let whole = |key, low: u32, most: u64, default: u32| -> Result<u32, ConfigError> {
        let found = head.whole(key, u64::from(low)..=most)?;
        Ok(found.and_then(|n| u32::try_from(n).ok()).unwrap_or(default))
    };
    let max_blocks = match precision {
        Some(_) => whole("max_blocks", blocks, limits::BLOCKS, MAX_BLOCKS.max(blocks))?,
        None if head.has("max_blocks") => {
            let message = "limits precision = \"5%\" or the like: add that, or write blocks =";
            return Err(head.error("max_blocks", message));
        }
        None => blocks,
    };
    Ok(Rules {
        precision,
        max_blocks,
        repeats: whole("repeats", 0, limits::REPEATS, REPEATS)?,
        reset: reset(head, targets)?,
        checkpoint: checkpoint(head)?,
        tolerate: tolerate(head, checks)?,
        question: question::parse(head, conditions)?,
    })
}

fn checkpoint(head: &Section<'_>) -> Result<Checkpoint, ConfigError> {
    let Some(text) = head.string("checkpoint")? else { return Ok(Checkpoint::Before) };
    let found = Checkpoint::NAMES.iter().find(|(name, _)| *name == text).map(|(_, mode)| *mode);
    found.ok_or_else(|| {
        let names: Vec<&str> = Checkpoint::NAMES.iter().map(|(name, _)| *name).collect();
        head.error("checkpoint", format!("must be one of {}, not `{text}`", names.join(", ")))
    })
}

/// A share of a ratio, such as `"5%"`.
pub(super) fn share(head: &Section<'_>, key: &str, rule: &str) -> Result<Option<f64>, ConfigError> {
    let Some(text) = head.string(key)? else { return Ok(None) };
    let percent = text.strip_suffix('%').and_then(|n| n.trim_end().parse::<f64>().ok());
    match percent.filter(|p| *p >= 0.1 && *p < 100.0) {
        Some(percent) => Ok(Some(percent / 100.0)),
        None => Err(head.error(key, format!("{rule}, not `{text}`"))),
    }
}

fn reset<'a>(
    head: &Section<'_>,
    mut targets: impl Iterator<Item = &'a Target>,
) -> Result<Reset, ConfigError> {
    let named = head.name("recreate_database")?;
    let reset = said_reset(head, RESETS, &named)?.unwrap_or(Reset::Checkpoint);
    let mut none = true;
    let private = targets.all(|t| {
        none = false;
        matches!(t, Target::Private { .. })
    }) && !none;
    match (&reset, &named) {
        (Reset::Recreate { .. }, None) if !private => Err(head.error(
            "reset",
            "recreate drops the database: name it once more, recreate_database = \"NAME\"",
        )),
        (Reset::Recreate { .. }, _) | (_, None) => Ok(reset),
        (_, Some(_)) => Err(head.error("recreate_database", "goes with reset = \"recreate\" only")),
    }
}

/// What a workload says instead. To drop the database is said once, for all of them.
pub(super) fn reset_of_workload(section: &Section<'_>) -> Result<Option<Reset>, ConfigError> {
    if section.string("reset")? == Some("recreate") {
        let message = "recreate belongs to [experiment], where it holds for every workload";
        return Err(section.error("reset", message));
    }
    said_reset(section, &RESETS[..3], &None)
}

fn said_reset(
    section: &Section<'_>,
    valid: &[&str],
    named: &Option<String>,
) -> Result<Option<Reset>, ConfigError> {
    match section.string("reset")? {
        None => Ok(None),
        Some("checkpoint") => Ok(Some(Reset::Checkpoint)),
        Some("vacuum") => Ok(Some(Reset::Vacuum)),
        Some("reload") => Ok(Some(Reset::Reload)),
        Some("recreate") => Ok(Some(Reset::Recreate { named: named.clone() })),
        Some(other) => {
            let message = format!("`{other}` is no reset; {}", nearest(other, valid));
            Err(section.error("reset", message))
        }
    }
}

fn tolerate(head: &Section<'_>, checks: &[&str]) -> Result<Vec<String>, ConfigError> {
    let tolerated = head.strings("tolerate")?.unwrap_or_default();
    match tolerated.iter().find(|id| !checks.contains(&id.as_str())) {
        Some(id) => {
            let message = format!("`{id}` is no check that invalidates; {}", nearest(id, checks));
            Err(head.error("tolerate", message))
        }
        None => Ok(tolerated),
    }
}
