//! Manual pages, one a command, and shell completions, from the command line's definition.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;

pub(crate) const MAN_DIR: &str = "docs/man";
pub(crate) const COMPLETIONS_DIR: &str = "completions";

pub(crate) fn artifacts() -> Result<Vec<(PathBuf, String)>> {
    let command = shown(&pgio::cli::command());
    let mut all = Vec::new();
    pages(&command, "pgio", &mut all)?;
    for (shell, name) in
        [(Shell::Bash, "pgio.bash"), (Shell::Zsh, "_pgio"), (Shell::Fish, "pgio.fish")]
    {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut command.clone(), "pgio", &mut script);
        all.push((Path::new(COMPLETIONS_DIR).join(name), text(script)?));
    }
    Ok(all)
}

/// The command without the subcommands that are not for people, and without `help`, which would
/// list them all once more: neither generator leaves out what is hidden.
fn shown(full: &Command) -> Command {
    let mut command = Command::new("pgio").disable_help_subcommand(true).subcommand_required(true);
    if let Some(about) = full.get_about() {
        command = command.about(about.clone());
    }
    if let Some(version) = full.get_version() {
        command = command.version(version.to_owned());
    }
    if let Some(more) = full.get_after_help() {
        command = command.after_help(more.clone());
    }
    command.subcommands(full.get_subcommands().filter(|sub| !sub.is_hide_set()).cloned())
}

/// Adds the pages of a command and of all subcommands below it, named as the pages refer to each other, such as
/// pgio-bench-load.
fn pages(command: &Command, name: &str, all: &mut Vec<(PathBuf, String)>) -> Result<()> {
    all.push(page(command, name)?);
    command
        .get_subcommands()
        .filter(|sub| !sub.is_hide_set())
        .try_for_each(|sub| pages(sub, &format!("{name}-{}", sub.get_name()), all))
}

fn page(command: &Command, name: &str) -> Result<(PathBuf, String)> {
    let mut command = command.clone().name(name.to_owned()).bin_name(name.replace('-', " "));
    // The generator's own synopsis lists options without their arguments.
    let usage = command.render_usage().to_string();
    if let Some(usage) = usage.strip_prefix("Usage: ") {
        command = command.override_usage(usage.to_owned());
    }
    let mut roff = Vec::new();
    clap_mangen::Man::new(command)
        .manual("pgio")
        .source(format!("pgio {}", env!("CARGO_PKG_VERSION")))
        .title(name)
        .render(&mut roff)?;
    Ok((Path::new(MAN_DIR).join(format!("{name}.1")), text(roff)?))
}

fn text(bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).context("generators write UTF-8")
}
