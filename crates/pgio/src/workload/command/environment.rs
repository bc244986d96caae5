//! The environment of a command: the values of its placeholders, and the variables by which any libpq
//! program connects to the target with the condition's settings. Pure.
//!
//! The password is in neither: the runner passes it separately.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use pgio_connect::{Client, ConnectParams, Endpoint};

use super::CommandError;
use crate::config::command::{CommandSettings, CommandSpec, Template};
use crate::pg::leftovers;

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

// The server processes that serve a command. They are identified by the application name in the command's
// environment, and reported once they are found. Where that name stands in PGOPTIONS, it shows which sessions took
// those. A session of the same role and database that began meanwhile without it may be the program's, too; polling
// goes on to count those.

/// The processes must stay the same this long: a program may connect briefly before it opens its
/// working sessions.
const STABLE_TIME: Duration = Duration::from_millis(250);
/// The same while there are fewer processes than the program is to have: on a busy server, one may come later than
/// [`STABLE_TIME`] after the other.
const STABLE_TIME_OF_FEW: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Polling interval for a program that opens one session after the other.
const SLOW_POLL_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Backends {
    application_name: String,
    /// The sessions that the program is to have, where it has a number of them.
    expected: usize,
    begun: Instant,
    next_poll: Instant,
    pids: Vec<i32>,
    stable_since: Instant,
    reported: bool,
    /// The largest number of processes seen at once.
    most: usize,
    /// Whether sessions without the name are counted.
    counts_unproven: bool,
    /// The sessions without the name that were there before the program.
    before: BTreeSet<i32>,
    unproven: BTreeSet<i32>,
}

impl Backends {
    /// Call this before the program starts.
    pub(super) fn new(
        environment: &CommandEnvironment,
        expected: Option<u32>,
        admin: &mut Client,
    ) -> Backends {
        let mut backends = Backends::unseen(&environment.application_name, expected);
        backends.counts_unproven = environment.name_proves_options;
        backends.before = backends.others(admin);
        backends
    }

    fn unseen(application_name: &str, expected: Option<u32>) -> Backends {
        let now = Instant::now();
        Backends {
            application_name: application_name.to_owned(),
            expected: expected.unwrap_or_default() as usize,
            begun: now,
            next_poll: now,
            pids: Vec::new(),
            stable_since: now,
            reported: false,
            most: 0,
            counts_unproven: false,
            before: BTreeSet::new(),
            unproven: BTreeSet::new(),
        }
    }

    /// Returns the processes once, when they are stable.
    pub(super) fn poll(&mut self, admin: &mut Client) -> Option<Vec<i32>> {
        let now = Instant::now();
        if now < self.next_poll || self.reported && !self.counts_unproven {
            return None;
        }
        let others = self.others(admin);
        self.unproven.extend(others.difference(&self.before));
        if self.reported {
            self.next_poll = now + SLOW_POLL_INTERVAL;
            return None;
        }
        let is_young = now - self.begun < SLOW_POLL_INTERVAL;
        self.next_poll = now
            + if is_young || !self.pids.is_empty() { POLL_INTERVAL } else { SLOW_POLL_INTERVAL };
        // If the server is gone, the trial ends by other means.
        let pids = self.pids(admin).unwrap_or_default();
        self.note(pids, now);
        // A program that reconnects constantly is never stable; it costs one query per second.
        if now - self.begun > 4 * SLOW_POLL_INTERVAL {
            self.next_poll = now + SLOW_POLL_INTERVAL;
        }
        self.reported.then(|| self.pids.clone())
    }

    fn note(&mut self, pids: Vec<i32>, now: Instant) {
        self.most = self.most.max(pids.len());
        if pids != self.pids {
            self.pids = pids;
            self.stable_since = now;
        }
        let is_complete = self.pids.len() >= self.expected;
        let stable_time = if is_complete { STABLE_TIME } else { STABLE_TIME_OF_FEW };
        self.reported = !self.pids.is_empty() && now - self.stable_since >= stable_time;
    }

    /// The number of the program's sessions; the largest number seen at once if they were never stable.
    pub(super) fn sessions(&self) -> usize {
        if self.reported { self.pids.len() } else { self.most }
    }

    /// The number of sessions that may be the program's and lack its options.
    pub(super) fn unproven(&self) -> usize {
        self.unproven.len()
    }

    /// Returns the sessions of the same role in the same database that are not pgio's.
    fn others(&self, admin: &mut Client) -> BTreeSet<i32> {
        if !self.counts_unproven {
            return BTreeSet::new();
        }
        let sql = "SELECT pid FROM pg_catalog.pg_stat_activity \
                   WHERE usename = session_user AND datname = current_database() \
                     AND backend_type = 'client backend' AND application_name NOT LIKE 'pgio%'";
        // If the server is gone, the trial ends by other means.
        let rows = admin.query(sql, &[]).unwrap_or_default();
        rows.iter().map(|row| row.get(0)).collect()
    }

    fn pids(&self, admin: &mut Client) -> Result<Vec<i32>, pgio_connect::Error> {
        let sql =
            "SELECT pid FROM pg_catalog.pg_stat_activity WHERE application_name = $1 ORDER BY 1";
        let rows = admin.query(sql, &[&self.application_name])?;
        rows.iter().map(|row| row.try_get(0)).collect()
    }

    /// Terminates the sessions: a session that waits for a standby does not notice that its client is
    /// gone.
    pub(super) fn terminate(&self, admin: &mut Client) {
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity \
                   WHERE application_name = $1";
        // A server that is gone has no such sessions either.
        let _ = admin.execute(sql, &[&self.application_name]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::command::Line;
    use pgio_connect;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

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

    /// What is seen after so many milliseconds; returns when the sessions are reported, and how many.
    fn watch(expected: Option<u32>, seen: &[(u64, &[i32])]) -> (Option<u64>, usize) {
        let mut backends = Backends::unseen("pgio", expected);
        let begun = backends.begun;
        let reported = seen.iter().find(|(after, pids)| {
            backends.note(pids.to_vec(), begun + Duration::from_millis(*after));
            backends.reported
        });
        (reported.map(|(after, _)| *after), backends.sessions())
    }

    #[test]
    fn sessions_that_come_late_are_waited_for() {
        let late: [(u64, &[i32]); 4] = [(0, &[1]), (300, &[1]), (600, &[1, 2]), (900, &[1, 2])];
        assert_eq!(watch(Some(2), &late), (Some(900), 2));
        assert_eq!(watch(None, &late), (Some(300), 1));
    }

    #[test]
    fn fewer_sessions_than_expected_are_reported_in_the_end() {
        assert_eq!(watch(Some(3), &[(0, &[1]), (900, &[1]), (1000, &[1])]), (Some(1000), 1));
    }

    #[test]
    fn a_session_that_is_gone_is_not_counted_unless_the_others_are_never_stable() {
        assert_eq!(watch(Some(1), &[(0, &[1, 2]), (50, &[2]), (300, &[2])]), (Some(300), 1));
        assert_eq!(watch(Some(1), &[(0, &[1, 2]), (50, &[3])]), (None, 2));
    }
}
