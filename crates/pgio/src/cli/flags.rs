//! Generates flags from the table of keys: each command takes the keys that it uses.
//!
//! A flag of another command is refused with the name of the command that accepts it ([`explain`]).

use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgMatches, FromArgMatches};
use pgio_connect::{Client, ConnectParams};
use pgio_results::files;
use rustix::fs::Access;

use super::exit::{FILES, Failure, Outcome};
use super::output;
use crate::config::experiment::limits::FILE_BYTES;
use crate::config::value::Kind;
use crate::config::{ConnectString, Key, Layer, Use, keys, kinds, pgio_conf};
use crate::experiment::admin::{self, refuse_other_runs as refuse_other_runs_on};
use crate::experiment::live::LiveError;
use crate::experiment::target::{self, ConnectionKeys};
use crate::pg::server;
use crate::treatment::Resource;
use crate::treatment::journal::Claims;

/// A command that takes keys as flags.
pub(super) trait KeyedCommand: Clone + Default + Send + Sync + 'static {
    const NAME: &'static str;
    const USES: &'static [Use];

    fn takes(key: &Key) -> bool {
        is_used(key, Self::USES)
    }
}

macro_rules! commands {
    ($($(#[$doc:meta])* $name:ident: $text:literal, $uses:expr;)*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Default)]
            pub(super) struct $name;

            impl KeyedCommand for $name {
                const NAME: &'static str = $text;
                const USES: &'static [Use] = $uses;
            }
        )*

        /// The commands and the uses of their keys.
        const COMMANDS: &[(&str, &[Use])] = &[$(($name::NAME, $name::USES),)*];
    };
}

/// The workload of `run`.
const SLOB: Use = Use::Work(kinds::SLOB);

commands! {
    ForSetup: "setup", &[Use::Connect, Use::Load];
    ForRun: "run", &[Use::Connect, SLOB];
    /// Checks what `run` would use.
    ForDoctor: "doctor", &[Use::Connect, SLOB];
    ForDestroy: "destroy", &[Use::Connect];
}

fn is_used(key: &Key, uses: &[Use]) -> bool {
    uses.iter().any(|using| key.is_used_by(*using))
}

/// Orders flags: server first, then data, then work.
fn heading(key: &Key) -> &'static str {
    if key.is_used_by(Use::Connect) {
        "Connection"
    } else if key.is_used_by(Use::Load) && key.name != "seed" {
        "Data set"
    } else {
        "Work"
    }
}

const HEADINGS: [&str; 3] = ["Connection", "Data set", "Work"];

/// The keys given on the command line: the top layer.
#[derive(Debug, Clone, Default)]
pub(super) struct KeyFlags<C>(pub(super) Layer, PhantomData<C>);

impl<C: KeyedCommand> clap::Args for KeyFlags<C> {
    fn augment_args(command: clap::Command) -> clap::Command {
        let args_below = |heading_of: &'static str| {
            keys::all().filter(move |k| C::takes(k) && heading(k) == heading_of)
        };
        HEADINGS
            .into_iter()
            .flat_map(args_below)
            .fold(command, |command, key| command.arg(arg::<C>(key)))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

fn arg<C: KeyedCommand>(key: &'static Key) -> Arg {
    let help = format!("{} [{}{}]", capitalized(key.help), key.conf_name(), default::<C>(key));
    Arg::new(key.name)
        .long(key.flag())
        .value_name(key.kind.placeholder())
        // Report -8M as a wrong size, not as an unknown flag. A connection string may begin with psql's options.
        .allow_hyphen_values(!matches!(key.kind, Kind::Text) || key.name == "connect_string")
        // An error from the value parser makes clap add flag and value, and omit the usage.
        .value_parser(move |text: &str| {
            key.set(&mut Layer::default(), text).map(|()| text.to_owned())
        })
        .help(help)
        .help_heading(heading(key))
}

/// The default of a key as the help of a command shows it.
fn default<C: KeyedCommand>(key: &Key) -> String {
    let using = if C::USES.contains(&Use::Load) { Use::Load } else { SLOB };
    if using == SLOB && key.is_as_loaded() {
        return "; default: as loaded".to_owned();
    }
    match key.default_for(using) {
        // Without a pgio.conf the PG* variables apply.
        Some(default) if key.is_used_by(Use::Connect) => {
            format!("; default with a pgio.conf: {default}")
        }
        Some(default) => format!("; default {default}"),
        None => String::new(),
    }
}

/// As clap writes the help of the other flags; the table of docs/KEYS.md begins in lower case.
fn capitalized(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().into_iter().flat_map(char::to_uppercase).chain(rest).collect()
}

impl<C: KeyedCommand> FromArgMatches for KeyFlags<C> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<KeyFlags<C>, clap::Error> {
        let mut flags = KeyFlags::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for key in keys::all().filter(|k| C::takes(k)) {
            if let Some(text) = matches.get_one::<String>(key.name) {
                key.set(&mut self.0, text)
                    .map_err(|message| clap::Error::raw(ErrorKind::InvalidValue, message))?;
            }
        }
        Ok(())
    }
}

/// The sources of keys.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Source<C: KeyedCommand> {
    /// Read this instead of ./pgio.conf
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    #[command(flatten)]
    pub(super) keys: KeyFlags<C>,
}

impl<C: KeyedCommand> Source<C> {
    /// Whether the command line gives no key and no file.
    pub(super) fn is_empty(&self) -> bool {
        self.config.is_none() && self.keys.0 == Layer::default()
    }
}

/// Explains an unknown flag that is a key of another command.
pub(super) fn explain(error: clap::Error) -> clap::Error {
    let flag = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(flag))) => flag,
        _ => return error,
    };
    let named = |key: &&Key| flag.strip_prefix("--") == Some(key.flag().as_str());
    match keys::all().find(named) {
        Some(key) => {
            clap::Error::raw(ErrorKind::UnknownArgument, format!("{flag} {}\n", elsewhere(key)))
        }
        None => error,
    }
}

fn elsewhere(key: &Key) -> String {
    let takes = |(_, uses): &&(&str, &[Use])| is_used(key, uses);
    let commands: Vec<String> =
        COMMANDS.iter().filter(takes).map(|(name, _)| format!("`pgio {name}`")).collect();
    match commands.as_slice() {
        [] => format!(
            "has no effect on this command: {} is a key of [workload] in the experiment file of `pgio compare`",
            key.name
        ),
        commands => format!("has no effect on this command: it is for {}", commands.join(" and ")),
    }
}

const DEFAULT_CONF: &str = "pgio.conf";

/// Reads pgio.conf, which must exist if it is named, and overrides it by the flags.
pub(super) fn read_keys<C: KeyedCommand>(source: &Source<C>) -> Result<ConnectionKeys, Failure> {
    let conf = read_conf(source.config.as_deref())?;
    let from_conf = conf.is_some();
    let layer = source.keys.0.clone().over(conf.unwrap_or_default());
    Ok(ConnectionKeys { layer, from_conf })
}

/// Reads `./pgio.conf` alone, for an experiment.
pub fn read_conf_keys() -> Result<ConnectionKeys, Failure> {
    let conf = read_conf(None)?;
    Ok(ConnectionKeys { from_conf: conf.is_some(), layer: conf.unwrap_or_default() })
}

fn read_conf(named: Option<&Path>) -> Result<Option<Layer>, Failure> {
    let path = named.unwrap_or(Path::new(DEFAULT_CONF));
    let shown = path.display().to_string();
    // A shell sources comments in any encoding.
    let text = match files::read(path, FILE_BYTES) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(e) if e.kind() == io::ErrorKind::NotFound && named.is_none() => return Ok(None),
        // Who may not search the directory cannot have meant a file there.
        Err(e)
            if e.kind() == io::ErrorKind::PermissionDenied
                && named.is_none()
                && rustix::fs::access(".", Access::EXEC_OK).is_err() =>
        {
            return Ok(None);
        }
        Err(e) => {
            return Err(Failure::new(FILES, e).context(format!("cannot read {shown}")));
        }
    };
    let conf = pgio_conf::parse(&text, &shown)?;
    output::warn_all(&conf.warnings);
    Ok(Some(conf.layer))
}

/// Resolves the connection parameters of the server that the keys name.
pub fn params_of(keys: &ConnectionKeys, run_id: &str) -> Result<ConnectParams, Failure> {
    params(&keys.connect_string(), run_id)
}

pub fn params(text: &ConnectString, run_id: &str) -> Result<ConnectParams, Failure> {
    Ok(target::params_with_warnings(text, run_id, &mut output::warn)?)
}

/// Before connecting: refuses a server that an interrupted run changed. Its undo needs the tables as the run left
/// them, and until then tables may be loaded in the wrong place.
pub(super) fn refuse_unfinished(params: &ConnectParams) -> Outcome {
    for other in admin::refuse_unfinished([params])? {
        output::warn_unfinished(&other);
    }
    Ok(())
}

/// Refuses while another run is at work in the database, and a server that an interrupted run changed or another
/// run is changing.
pub(super) fn refuse_other_runs(admin: &mut Client, database: &str, run_id: &str) -> Outcome {
    let identity = server::identity(admin).map_err(LiveError::from)?;
    admin::refuse_changed(&[Resource::server(&identity)].into(), &Claims::default())?;
    // What a load or a removal does to runs in other databases, they report.
    refuse_other_runs_on(admin, database, run_id, false)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags<C: KeyedCommand>() -> Vec<String> {
        let command = <Source<C> as clap::Args>::augment_args(clap::Command::new("x"));
        command.get_arguments().filter_map(|a| a.get_long().map(str::to_owned)).collect()
    }

    #[test]
    fn a_command_has_the_flags_that_it_uses() {
        assert_eq!(flags::<ForDestroy>(), ["config", "dbname", "connect-string"]);
        let (setup, run) = (flags::<ForSetup>(), flags::<ForRun>());
        let has = |all: &[String], flag: &str| all.iter().any(|f| f == flag);
        assert!(has(&setup, "filler") && has(&setup, "tablespace") && has(&setup, "seed"));
        assert!(!has(&setup, "update-pct") && !has(&setup, "engine"));
        // `run` refuses a data set with another filler; it does not check the tablespace.
        assert!(has(&run, "update-pct") && has(&run, "filler") && !has(&run, "tablespace"));
        assert!(!has(&run, "payload"), "commit runs in experiments only");
        assert_eq!(run, flags::<ForDoctor>());
    }

    #[test]
    fn help_shows_the_default_that_applies_to_the_command() {
        fn help<C: KeyedCommand>(key: &str) -> String {
            arg::<C>(Key::named(key).unwrap()).get_help().unwrap().to_string()
        }
        let setup = help::<ForSetup>("scale");
        assert!(setup.ends_with(" [SCALE; default 4G]"), "{setup}");
        for key in ["scale", "num_schemas", "filler", "scan_scale"] {
            let run = help::<ForRun>(key);
            assert!(run.ends_with("; default: as loaded]"), "{run}");
        }
        let connecting = help::<ForRun>("connect_string");
        let ending = " [CONNECT_STRING; default with a pgio.conf: pg10]";
        assert!(connecting.ends_with(ending), "{connecting}");
        let work = help::<ForRun>("run_time");
        assert!(work.ends_with(" [RUN_TIME; default 300]"), "{work}");
    }

    #[test]
    fn a_flag_of_another_command_is_refused_with_its_name() {
        let refused = |flag: &str| {
            let command = <Source<ForDestroy> as clap::Args>::augment_args(clap::Command::new("x"));
            explain(command.try_get_matches_from(["x", flag, "1"]).unwrap_err()).to_string()
        };
        assert_eq!(
            refused("--update-pct"),
            "error: --update-pct has no effect on this command: it is for `pgio run` and `pgio doctor`\n"
        );
        assert!(refused("--tablespace").contains("it is for `pgio setup`\n"));
        let payload = refused("--payload");
        assert!(payload.contains("payload is a key of [workload] in the experiment"), "{payload}");
        assert!(refused("--no-such").contains("unexpected argument"));
    }

    fn error<C: KeyedCommand>(flag: &str, value: &str) -> String {
        let command = <Source<C> as clap::Args>::augment_args(clap::Command::new("x"));
        explain(command.try_get_matches_from(["x", flag, value]).unwrap_err()).to_string()
    }

    #[test]
    fn a_command_that_takes_the_flag_refuses_wrong_values() {
        let command = <Source<ForRun> as clap::Args>::augment_args(clap::Command::new("x"));
        let psql = ["x", "--connect-string", "-h db1 -p 5433 pgio"];
        assert!(command.try_get_matches_from(psql).is_ok(), "psql's options are no flags");
        for (flag, value, words) in [
            ("--scale", "0", "`0` is too small"),
            ("--scale", "1023", "at least 1024 blocks (8M)"),
            ("--scale", "12X", "`12X` is not a size"),
            ("--scale", "-8M", "`-8M` is not a size"),
            ("--update-pct", "101", "from 0 to 100, not `101`"),
            ("--update-pct", "ten", "from 0 to 100, not `ten`"),
            ("--num-threads", "0", "not `0`"),
        ] {
            for (error, takes) in [
                (error::<ForSetup>(flag, value), flag != "--update-pct"),
                (error::<ForRun>(flag, value), true),
                (error::<ForDestroy>(flag, value), false),
            ] {
                // An ignored flag would seem to have an effect.
                let elsewhere = "has no effect on this command: it is for `pgio ";
                let words = if takes { words } else { elsewhere };
                assert!(error.contains(flag) && error.contains(words), "{error}");
            }
        }
    }
}
