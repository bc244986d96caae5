//! Every key of pgio.conf as a flag, from the one table of keys.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, FromArgMatches};

use crate::config::value::Kind;
use crate::config::{KEYS, Layer, Use};

/// The keys given on the command line: the uppermost layer.
#[derive(Debug, Clone, Default)]
pub(super) struct KeyFlags(pub(super) Layer);

impl clap::Args for KeyFlags {
    fn augment_args(command: clap::Command) -> clap::Command {
        KEYS.iter().filter(|k| k.is_of_conf()).fold(command, |command, key| {
            let default = match (key.default, key.default_for(Use::Load)) {
                (None, _) => String::new(),
                (Some(run), Some(load)) if run != load => {
                    format!("; default {run}, of setup {load}")
                }
                (Some(default), _) => format!("; default {default}"),
            };
            let help = format!("{} [{}{default}]", key.help, key.conf_name());
            command.arg(
                Arg::new(key.name)
                    .long(key.flag())
                    .value_name(key.kind.placeholder())
                    // A size of -8M is a wrong value, not a flag that nobody knows.
                    .allow_hyphen_values(!matches!(key.kind, Kind::Text))
                    // Said here, clap adds the flag and the value, and no usage after it.
                    .value_parser(move |text: &str| {
                        key.set(&mut Layer::default(), text).map(|()| text.to_owned())
                    })
                    .help(help)
                    .help_heading("Keys of pgio.conf"),
            )
        })
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for KeyFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<KeyFlags, clap::Error> {
        let mut flags = KeyFlags::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for key in KEYS.iter().filter(|k| k.is_of_conf()) {
            if let Some(text) = matches.get_one::<String>(key.name) {
                key.set(&mut self.0, text)
                    .map_err(|message| clap::Error::raw(ErrorKind::InvalidValue, message))?;
            }
        }
        Ok(())
    }
}

/// Where the keys come from.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Source {
    /// Read this instead of ./pgio.conf
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    #[command(flatten)]
    pub(super) keys: KeyFlags,
}
