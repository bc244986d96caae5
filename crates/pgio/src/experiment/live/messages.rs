//! Messages of the stage: warnings after an undo, and the output files of a failed program. Short, as the stage
//! has no other messages; shared by nothing else.

use crate::treatment::{self, Record};
use crate::workload::command::ProgramOutput;
use pgio_results::model::Warning;

/// Names the files with the output of a failed program; empty if it wrote nothing.
pub(super) fn output_files(output: &ProgramOutput, number: usize) -> String {
    let streams = [("stderr", &output.stderr), ("stdout", &output.stdout)];
    let kept = streams.iter().filter(|(_, text)| !text.is_empty());
    let files: Vec<String> =
        kept.map(|(stream, _)| format!("output/{number:04}.{stream}")).collect();
    match files.as_slice() {
        [] => String::new(),
        files => format!(" (full output: {})", files.join(", ")),
    }
}

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
