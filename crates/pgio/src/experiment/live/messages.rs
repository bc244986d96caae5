//! Messages of the stage: warnings after an undo. Short, as the stage has no other messages; shared by nothing else.

use crate::treatment::{self, Record};
use pgio_results::model::Warning;

pub(super) fn not_awaited(step: &Record) -> Warning {
    Warning::new(
        format!("{step} was restored; pgio did not wait for follow-up work such as a resync"),
        "a second signal, such as Ctrl-C, ended the wait",
        "check its state, for example with `drbdadm status`",
    )
}

pub(super) fn rewritten(step: &Record) -> Warning {
    Warning::new(
        format!("{step} was restored, but its file is not byte for byte as it was"),
        treatment::REWRITTEN,
        "rewrite lost comments if you need them",
    )
}
