//! The environment of a command: the values of its placeholders, and the variables by which any libpq
//! program connects to the target with the condition's settings. Pure.
//!
//! The password is in neither: the runner passes it separately.

use std::collections::BTreeMap;

use super::error::CommandError;
use crate::config::command::{CommandSettings, CommandSpec, Template};
use crate::pg::leftovers;
use pgio_connect::{ConnectParams, Endpoint};

#[derive(Debug, Clone)]
pub(super) struct CommandEnvironment {
    values: BTreeMap<String, String>,
    pub(super) env: Vec<(String, String)>,
    /// The application name that identifies its sessions.
    pub(super) application_name: String,
    /// PGOPTIONS: the settings of the sessions.
    pub(super) options: String,
    /// Whether a session has the name only if it took its settings: both are in PGOPTIONS.
    pub(super) name_proves_options: bool,
}

/// Refuses a target with several hosts if the program would always connect to the first one.
pub(super) fn check(spec: &CommandSpec, params: &ConnectParams) -> Result<(), CommandError> {
    let Some((first, others)) = params.hosts.split_first() else { return Ok(()) };
    let mut used = spec.all_texts().flat_map(Template::placeholders);
    if let (Some(name), false) = (used.find(|n| ["host", "port"].contains(n)), others.is_empty()) {
        return Err(CommandError::Refused(format!(
            "the command uses {{{name}}}, which is only the first of several hosts in the target's dsn: name the host to use, or use {{dsn}} if the program accepts a connection string"
        )));
    }
    let secret = params.password_for(first);
    if others.iter().any(|other| params.password_for(other) != secret) {
        return Err(CommandError::Refused(
            "the hosts of the target's dsn have different passwords, but the command's environment can hold only one: name the host to use".to_owned(),
        ));
    }
    Ok(())
}

impl CommandEnvironment {
    /// `pinned` has the condition's settings; `dir` is the trial's directory on the command's host.
    pub(super) fn new(
        settings: &CommandSettings,
        params: &ConnectParams,
        pinned: &[(String, String)],
        seed: u64,
        dir: &str,
    ) -> CommandEnvironment {
        let spec = &settings.spec;
        let application_name = leftovers::application_name_of_command(&params.application_name);
        let name_proves_options = spec.schema.is_some() || !pinned.is_empty();
        let name = name_proves_options.then_some(application_name.as_str());
        let options = options(params.options.as_deref(), spec.schema.as_deref(), pinned, name);
        let (host, port) = match &params.hosts[0] {
            Endpoint::Socket { dir, port } => (dir.display().to_string(), port),
            Endpoint::Tcp { host, port, .. } => (host.clone(), port),
        };
        // PGOPTIONS has its options and the condition's settings; options in a dsn would hide them.
        let mut without_options = params.clone();
        without_options.options = None;
        let run_time = settings.run_time.unwrap_or_default();
        let builtin_values = [
            ("seconds", run_time.as_secs_f64().to_string()),
            ("warmup", settings.warmup.as_secs_f64().to_string()),
            // Some programs do not accept more than half of the usual 64 bits.
            ("seed", (seed >> 33).to_string()),
            ("sessions", settings.sessions.to_string()),
            ("dsn", without_options.without_secrets()),
            ("host", host),
            ("port", port.to_string()),
            ("user", params.user.clone()),
            ("dbname", params.dbname.clone()),
            ("schema", spec.schema.clone().unwrap_or_default()),
            ("dir", dir.to_owned()),
        ];
        let mut values: BTreeMap<String, String> =
            builtin_values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let own = spec.parameters.iter();
        let own: Vec<(String, String)> = own
            .map(|(name, text)| (name.clone(), text.fill(&|name| values.get(name).cloned())))
            .collect();
        values.extend(own);

        let mut env: Vec<(String, String)> =
            params.environment().into_iter().map(|(name, v)| (name.to_owned(), v)).collect();
        // An empty one keeps libpq from sending a name of the program's, which would replace the one in PGOPTIONS.
        let name = if name_proves_options { "" } else { &application_name };
        env.push(("PGAPPNAME".to_owned(), name.to_owned()));
        if !options.is_empty() {
            env.push(("PGOPTIONS".to_owned(), options.clone()));
        }
        let filled = |text: &Template| text.fill(&|name| values.get(name).cloned());
        env.extend(spec.env.iter().map(|(name, text)| (name.clone(), filled(text))));
        CommandEnvironment { values, env, application_name, options, name_proves_options }
    }

    pub(super) fn value(&self, placeholder: &str) -> Option<String> {
        self.values.get(placeholder).cloned()
    }
}

/// Returns the target's own options, then the ones of this command's sessions. The search path is the
/// schema alone, without `public`: a `DROP TABLE IF EXISTS` finds only the command's tables.
fn options(
    own: Option<&str>,
    schema: Option<&str>,
    pinned: &[(String, String)],
    application_name: Option<&str>,
) -> String {
    let escaped = |value: &str| -> String {
        let special = |c: char| c.is_ascii_whitespace() || c == '\\';
        value.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
    };
    let schema = schema.map(|name| ("search_path", name));
    let settings = schema.into_iter().chain(pinned.iter().map(|(n, v)| (n.as_str(), v.as_str())));
    let settings = settings.chain(application_name.map(|name| ("application_name", name)));
    let settings = settings.map(|(name, value)| format!("-c {name}={}", escaped(value)));
    let own = own.filter(|text| !text.is_empty()).map(str::to_owned);
    own.into_iter().chain(settings).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use super::*;
    use crate::config::command::Line;
    use pgio_connect;

    fn settings() -> CommandSettings {
        let template = |text: &str| Template::new(text);
        let spec = CommandSpec {
            preset: None,
            run: Line::Words(vec![template("prog"), template("{dsn}")]),
            warm_up: None,
            setup: None,
            setup_once: false,
            setup_limit: Duration::from_secs(1),
            cleanup: None,
            host: None,
            schema: Some("pgio_command".to_owned()),
            env: BTreeMap::from([("X".to_owned(), template("{double} in {dir}"))]),
            parameters: BTreeMap::from([("double".to_owned(), template("2{sessions}"))]),
            time_limit: None,
            metrics: Vec::new(),
        };
        CommandSettings {
            spec,
            run_time: Some(Duration::from_millis(2500)),
            warmup: Duration::from_secs(2),
            sessions: 8,
            time_limit: Duration::from_secs(1),
        }
    }

    #[test]
    fn the_command_environment_contains_no_password() {
        let text = "host=h port=6432 user=u dbname=d password=geheim options='-c a=b'";
        let params = pgio_connect::resolve(text, &pgio_connect::Env::default()).unwrap();
        let params = params.with_application_name("pgio:1");
        let pinned = [("work_mem".to_owned(), "4 MB".to_owned())];
        let found = CommandEnvironment::new(&settings(), &params, &pinned, u64::MAX, "/tmp/x");
        let value = |name: &str| found.value(name).unwrap();
        assert_eq!((value("seconds").as_str(), value("warmup").as_str()), ("2.5", "2"));
        assert_eq!((value("host").as_str(), value("port").as_str()), ("h", "6432"));
        assert_eq!(value("seed"), i32::MAX.to_string());
        assert_eq!(value("double"), "28");
        assert!(value("dsn").contains("dbname='d'"));
        assert_eq!(found.value("nothing"), None);
        let env: BTreeMap<&str, &str> =
            found.env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!((env["PGHOST"], env["PGPORT"], env["PGDATABASE"]), ("h", "6432", "d"));
        assert_eq!(env["PGAPPNAME"], "");
        assert_eq!(
            env["PGOPTIONS"],
            "-c a=b -c search_path=pgio_command -c work_mem=4\\ MB -c application_name=pgio:1\\ command"
        );
        assert_eq!(env["X"], "28 in /tmp/x");
        assert!(!format!("{found:?}").contains("geheim"));
        let mut bare = settings();
        bare.spec.schema = None;
        let env = CommandEnvironment::new(&bare, &params, &[], 0, "").env;
        assert!(env.contains(&("PGAPPNAME".to_owned(), "pgio:1 command".to_owned())), "{env:?}");
    }

    #[test]
    fn host_placeholders_are_refused_if_the_target_has_several_hosts() {
        let spec_of = |text: &str| {
            let words = vec![Template::new("prog"), Template::new(text)];
            CommandSpec { run: Line::Words(words), ..settings().spec }
        };
        let params =
            |text: &str| pgio_connect::resolve(text, &pgio_connect::Env::default()).unwrap();
        let one = params("host=a user=u dbname=d");
        let two = params("host=a,b user=u dbname=d target_session_attrs=read-write");
        for (text, refused) in
            [("{dsn}", false), ("{user}", false), ("{host}", true), ("-p{port}", true)]
        {
            let spec = spec_of(text);
            check(&spec, &one).unwrap();
            let error = check(&spec, &two).err().map(|e| e.to_string());
            assert_eq!(error.is_some(), refused, "{text}: {error:?}");
            let name = text.trim_start_matches("-p");
            assert!(error.is_none_or(|e| e.contains(&format!("the command uses {name}, which"))));
        }
        let warming = CommandSpec { warm_up: Some(spec_of("{host}").run), ..spec_of("{dsn}") };
        check(&warming, &two).unwrap_err();
    }

    #[test]
    fn hosts_with_passwords_of_their_own_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let passfile = dir.path().join("pass");
        let spec = CommandSpec { run: Line::Shell(Template::new("prog")), ..settings().spec };
        for (lines, refused) in [("*:*:*:*:one\n", false), ("a:*:*:*:one\nb:*:*:*:two\n", true)] {
            fs::write(&passfile, lines).unwrap();
            fs::set_permissions(&passfile, Permissions::from_mode(0o600)).unwrap();
            let text = format!("host=a,b user=u dbname=d passfile={}", passfile.display());
            let params = pgio_connect::resolve(&text, &pgio_connect::Env::default()).unwrap();
            let error = check(&spec, &params).err().map(|e| e.to_string());
            assert_eq!(error.is_some(), refused, "{error:?}");
        }
    }
}
