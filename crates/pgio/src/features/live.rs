//! `--live`: the report page while the experiment runs, for browsers, read only.
//!
//! [`Live`] is opened before anything else happens, hears the events of the run and waits at the end until browsers have
//! the last report. The report is rendered only while a browser is connected, and never while a window is open: it would
//! take processor time and page cache from what is measured. [`server`] speaks HTTP,
//! `live.js` follows the run in the browser.

mod server;

use std::env;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, FromArgMatches};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use self::server::{Page, Phase, lower_priority};
use crate::cli::exit::{FILES, Failure, USAGE};
use crate::cli::output;
use crate::cli::progress::rate;
use crate::experiment::event::{Event, WorkloadBegins};
use crate::experiment::pace::Pace;
use crate::experiment::plan::Planned;
use crate::experiment::run::Decision;
use crate::feature::{self, Feature, Watch, Watcher};
use crate::host::stop::Stop;
use crate::pg::words;
use pgio_connect::Secret;
use pgio_report::directories;
use pgio_results::files;

pub(super) static FEATURE: Feature = Feature { name: "live", watches: &[WATCH], ..Feature::NONE };

const WATCH: Watch = Watch {
    define: LiveArgs::augment_args,
    open: |matches, experiment, stop| {
        let args = LiveArgs::from_arg_matches(matches).map_err(|e| Failure::new(USAGE, e))?;
        let live = Live::open(&args, &experiment.name, stop)?;
        Ok(live.map(|live| Box::new(live) as Box<dyn Watcher>))
    },
};

/// The next trial waits so long for a report; only one of thousands of trials needs it.
const NEXT_TRIAL_TIMEOUT: Duration = Duration::from_secs(5);
/// After the last trial nothing waits but the user.
const FINAL_REPORT_TIMEOUT: Duration = Duration::from_secs(30);
/// Once a stop is requested, the user waits for the end.
const STOPPED_TIMEOUT: Duration = Duration::from_millis(600);
/// Browsers have the last report within this time, or do without. One that has it lets pgio end at once; on a
/// machine that other work keeps busy, rendering and fetching it took more than 5 s.
const LAST_REPORT_TIMEOUT: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);

/// The page of a run that is under way.
#[derive(Debug)]
struct Live {
    page: Arc<Page>,
    stop: Stop,
    workload: Option<Workload>,
    rendering: Option<JoinHandle<()>>,
}

/// The workload whose trials run.
#[derive(Debug)]
struct Workload {
    dir: Box<Path>,
    pace: Pace,
    primary: String,
    /// The trials under way.
    turn: Vec<Planned>,
    /// Trials of earlier processes, if the run was resumed.
    earlier: usize,
    /// Trials that are stored, and those in the rendered report.
    stored: usize,
    rendered: usize,
}

impl Live {
    /// Listens and prints the address; none without `--live`. `--live` is refused before anything is changed.
    fn open(args: &LiveArgs, experiment: &str, stop: &Stop) -> Result<Option<Live>, Failure> {
        let Some(endpoint) = args.endpoint()? else { return Ok(None) };
        let live = Live::new(experiment, stop);
        let (asked, needs_token) = (endpoint.address, endpoint.token.is_some());
        let address = server::start(endpoint, live.page.clone()).map_err(|e| {
            let what =
                format!("--live {asked}: cannot serve the page (choose another address or port)");
            Failure::new(USAGE, e).context(what)
        })?;
        let token = if needs_token { " (the token is the password)" } else { "" };
        output::note(&format!("live page: http://{address}/{token}"));
        Ok(Some(live))
    }

    fn new(experiment: &str, stop: &Stop) -> Live {
        let page = Page::new(clean(experiment));
        Live { page, stop: stop.clone(), workload: None, rendering: None }
    }

    fn begin(&mut self, begins: &WorkloadBegins<'_>) {
        let earlier = begins.earlier.trials.len();
        self.workload = Some(Workload {
            dir: begins.dir.into(),
            pace: begins.pace.clone(),
            primary: begins.primary.to_owned(),
            turn: Vec::new(),
            earlier,
            stored: earlier,
            rendered: 0,
        });
        self.page.update(|status| {
            (status.phase, status.open_ended) = (Phase::Running, begins.open_ended);
            status.workload = clean(&begins.workload.name);
        });
        self.show_doing("");
    }

    /// A trial begins, or its preparation goes on. Nothing is in force yet, and no window is open.
    fn begin_trials(&mut self, planned: &[Planned], condition: &str, doing: &str) {
        let Some(workload) = &mut self.workload else { return };
        if workload.turn != planned {
            workload.turn = planned.to_vec();
            self.render(NEXT_TRIAL_TIMEOUT);
        }
        let Some(workload) = &mut self.workload else { return };
        workload.pace.begin(planned, Instant::now());
        self.page.update(|status| status.condition = clean(condition));
        self.show_doing(doing);
    }

    fn show_doing(&self, text: &str) {
        self.page.update(|status| {
            status.doing = clean(text);
            if let Some(Workload { pace, earlier, .. }) = &self.workload {
                status.trial = earlier + pace.number();
                status.trials = earlier + pace.trials();
                status.seconds_left = pace.remaining(Instant::now()).map(|left| left.as_secs());
            }
        });
    }

    /// Renders what is stored, if a browser is connected and no other report is under way, in a thread at the lowest
    /// priority. Only a report that takes longer than this goes on beside the measurement.
    fn render(&mut self, timeout: Duration) {
        let Some(workload) = &mut self.workload else { return };
        let is_due = workload.stored > workload.rendered && self.page.is_watched();
        if !is_due || self.rendering.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return;
        }
        let (page, dir) = (self.page.clone(), workload.dir.clone());
        let work = move || {
            lower_priority();
            show_report(&page, &dir);
        };
        let spawned = thread::Builder::new().name("pgio-report".to_owned()).spawn(work);
        if let Ok(thread) = spawned {
            workload.rendered = workload.stored;
            self.rendering = Some(thread);
            self.await_report(timeout);
        }
    }

    fn await_report(&self, timeout: Duration) {
        let begun = Instant::now();
        while self.rendering.as_ref().is_some_and(|thread| !thread.is_finished()) {
            let limit = if self.stop.requested() { STOPPED_TIMEOUT } else { timeout };
            if begun.elapsed() >= limit {
                return;
            }
            thread::sleep(POLL);
        }
    }
}

impl Watcher for Live {
    fn hear(&mut self, event: &Event<'_>) {
        match event {
            Event::ServerStarts(step) => self.show_doing(&step.to_string()),
            Event::Loads(_) => self.show_doing("loading the data set"),
            Event::ServerStarted => self.show_doing(""),
            Event::WorkloadBegins(begins) => self.begin(begins),
            Event::WorkloadEnds { .. } => {
                // The last report follows one that still takes its time.
                if !self.stop.requested() {
                    self.await_report(FINAL_REPORT_TIMEOUT);
                }
                self.render(FINAL_REPORT_TIMEOUT);
            }
            Event::Begins { planned, condition } => {
                self.begin_trials(planned, condition, "preparing");
            }
            Event::Resets { planned, condition } => {
                let planned = std::slice::from_ref(*planned);
                self.begin_trials(planned, condition, "loading the data set");
            }
            Event::Calibrates { slice } => {
                self.show_doing(&format!("weaving: trying slices of {} ms", slice.as_millis()));
            }
            Event::Progress { progress, .. } => {
                let Some(workload) = &self.workload else { return };
                let rate = rate(&workload.primary, progress);
                let doing = rate.as_deref().unwrap_or("measuring");
                self.show_doing(&match progress.status.text() {
                    "" => doing.to_owned(),
                    printed => format!("{doing}: {printed}"),
                });
            }
            Event::Ended { .. } => {
                let Some(workload) = &mut self.workload else { return };
                workload.pace.end_window(Instant::now());
                // It is stored before the next event.
                workload.stored += 1;
                self.show_doing("judging");
            }
            Event::Decided { decision, .. } => {
                let Some(Workload { pace, .. }) = &mut self.workload else { return };
                match decision {
                    Decision::Repeats { planned, .. } | Decision::RepeatsBaseline { planned } => {
                        pace.add(planned.cell);
                    }
                    Decision::FurtherBlock { .. } => pace.add_block(),
                    Decision::Excludes { .. } => {}
                }
            }
            // The report says it, or the terminal alone.
            Event::OtherInterrupted(_)
            | Event::NothingLeft { .. }
            | Event::BlockLimit { .. }
            | Event::Calibrated(_)
            | Event::Warns(_)
            | Event::WidthChecked { .. } => {}
        }
    }

    /// Tells browsers how the run ended and gives them time to fetch the last report. A page closes its stream
    /// of events when it has it; after a stop it waits for the run to be resumed. Once the work is done, the first
    /// Ctrl-C ends this.
    fn end(self: Box<Self>, ended: Result<(), &Failure>) {
        let (phase, reason, timeout) = match ended {
            Ok(_) => (Phase::Complete, String::new(), LAST_REPORT_TIMEOUT),
            Err(failure) => (Phase::Stopped, failure.sentence(), STOPPED_TIMEOUT),
        };
        self.page.update(|status| {
            (status.phase, status.reason) = (phase, clean(&reason));
            (status.doing, status.seconds_left) = (String::new(), None);
        });
        let begun = Instant::now();
        let is_cut = || if ended.is_ok() { self.stop.requested() } else { self.stop.urgent() };
        while self.page.is_watched() && begun.elapsed() < timeout && !is_cut() {
            thread::sleep(POLL);
        }
    }
}

fn show_report(page: &Page, dir: &Path) {
    let rendered = directories::load(dir, &feature::findings()).and_then(|loaded| loaded.page());
    let reason = match &rendered {
        Ok(_) => String::new(),
        Err(error) => format!("the report cannot be shown: {}", words::sentence(error)),
    };
    if let Ok(report) = rendered {
        page.set_report(&report);
    }
    page.update(|status| {
        // Another reason is why the run ended.
        if status.phase == Phase::Running {
            status.reason = clean(&reason);
        }
    });
}

/// Names and messages of others, without what a browser would obey.
fn clean(text: &str) -> String {
    printable::line(text).into_owned()
}

const TOKEN_VARIABLE: &str = "PGIO_LIVE_TOKEN";
/// A guess is answered after a second, so 16 characters are enough.
const MIN_TOKEN_LENGTH: usize = 16;
const MAX_TOKEN_FILE_BYTES: u64 = 1024;

#[derive(Debug, Default, clap::Args)]
struct LiveArgs {
    /// Serve the report to browsers at this address, such as 127.0.0.1:8080, while the experiment runs
    #[arg(long, value_name = "IP:PORT", value_parser = parse_address, conflicts_with = "plan")]
    live: Option<SocketAddr>,
    /// Read the token that browsers must send from this file instead of PGIO_LIVE_TOKEN; an address that is not
    /// loopback requires a token
    #[arg(long, value_name = "FILE", requires = "live")]
    live_token_file: Option<PathBuf>,
}

fn parse_address(text: &str) -> Result<SocketAddr, &'static str> {
    let on_this_machine = || {
        let port = text.strip_prefix("localhost:")?.parse().ok()?;
        Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
    };
    let parsed = text.parse().ok().or_else(on_this_machine);
    parsed.ok_or("must be an IP address and a port such as 127.0.0.1:8080 or [::1]:8080")
}

/// Where to listen, and the token that a browser must have.
#[derive(Debug)]
struct Endpoint {
    address: SocketAddr,
    token: Option<Token>,
}

impl LiveArgs {
    /// Returns nothing without `--live`.
    fn endpoint(&self) -> Result<Option<Endpoint>, Failure> {
        let Some(address) = self.live else { return Ok(None) };
        let token = match &self.live_token_file {
            Some(file) => Some(read_token(file)?),
            None => token_from_environment()?,
        };
        if token.is_none() && !address.ip().is_loopback() {
            let why = format!(
                "--live {address}: anybody could read the page at an address that is not loopback; set \
                 {TOKEN_VARIABLE} or --live-token-file, or use 127.0.0.1 and an ssh tunnel"
            );
            return Err(Failure::message(USAGE, why));
        }
        Ok(Some(Endpoint { address, token }))
    }
}

fn token_from_environment() -> Result<Option<Token>, Failure> {
    let Some(text) = env::var_os(TOKEN_VARIABLE).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let refused = |why| Failure::message(USAGE, format!("{TOKEN_VARIABLE} {why}"));
    let text = text.into_string().map_err(|_| refused(Token::REQUIREMENT))?;
    Token::new(&text).map(Some).ok_or_else(|| refused(Token::REQUIREMENT))
}

fn read_token(file: &Path) -> Result<Token, Failure> {
    let shown = file.display();
    let unread = |e| Failure::new(FILES, e).context(format!("cannot read the token file {shown}"));
    let mode = file.metadata().map_err(unread)?.permissions().mode();
    if mode & 0o077 != 0 {
        let why =
            format!("the token file {shown} is accessible to other users; run chmod 0600 {shown}");
        return Err(Failure::message(USAGE, why));
    }
    let text = files::read_text(file, MAX_TOKEN_FILE_BYTES).map_err(unread)?;
    let refused =
        || Failure::message(USAGE, format!("the token in {shown} {}", Token::REQUIREMENT));
    Token::new(text.trim_end()).ok_or_else(refused)
}

/// What a browser must send as the password of HTTP's basic authentication, under any user name.
#[derive(Debug)]
struct Token(Secret);

impl Token {
    const REQUIREMENT: &str = "must have at least 16 printable ASCII characters without a space";

    fn new(text: &str) -> Option<Token> {
        let fits =
            text.len() >= MIN_TOKEN_LENGTH && text.bytes().all(|byte| byte.is_ascii_graphic());
        fits.then(|| Token(Secret::new(text)))
    }

    /// Whether the header `Authorization` has this token. The time that it takes tells nothing about the
    /// token: digests of equal length are compared in constant time.
    fn is_in(&self, header: &str) -> bool {
        let Some((scheme, sent)) = header.split_once(' ') else { return false };
        let offered = match scheme.to_ascii_lowercase().as_str() {
            "bearer" => sent.as_bytes().to_vec(),
            "basic" => {
                let Ok(pair) = STANDARD.decode(sent.trim()) else { return false };
                let Some(colon) = pair.iter().position(|byte| *byte == b':') else { return false };
                pair[colon + 1..].to_vec()
            }
            _ => return false,
        };
        let digest = |bytes: &[u8]| -> [u8; 32] { Sha256::digest(bytes).into() };
        digest(&offered).ct_eq(&digest(self.0.expose())).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(stop: &Stop) -> Live {
        let live = Live::new("test", stop);
        live.page.update(|status| status.phase = Phase::Running);
        live
    }

    #[test]
    fn the_first_stop_ends_the_wait_for_browsers_of_a_complete_run() {
        let stop = Stop::new();
        let live = live(&stop);
        let _viewer = live.page.watch();
        stop.request();
        let begun = Instant::now();
        Box::new(live).end(Ok(()));
        assert!(begun.elapsed() < LAST_REPORT_TIMEOUT / 2, "{:?}", begun.elapsed());
    }

    #[test]
    fn a_report_that_cannot_be_read_is_named_until_there_is_one() {
        let live = live(&Stop::new());
        show_report(&live.page, Path::new("/nonexistent"));
        let reason = || {
            let mut text = String::new();
            live.page.update(|status| text.clone_from(&status.reason));
            text
        };
        assert!(reason().starts_with("the report cannot be shown: "), "{}", reason());
        let parent = tempfile::tempdir().unwrap();
        let stored = pgio_verdict::test_support::stored_runs(1, |_| 1.0);
        let dirs = pgio_verdict::test_support::write_runs(parent.path(), &stored).unwrap();
        show_report(&live.page, &dirs[0]);
        assert_eq!(reason(), "");
    }

    #[test]
    fn a_stop_ends_the_wait_for_a_report() {
        let stop = Stop::new();
        let mut live = live(&stop);
        let (end, ended) = std::sync::mpsc::channel::<()>();
        live.rendering = Some(thread::spawn(move || ended.recv().unwrap_or_default()));
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(POLL);
                stop.request();
            });
            live.await_report(Duration::from_secs(3600));
        });
        assert!(live.rendering.as_ref().is_some_and(|thread| !thread.is_finished()));
        drop(end);
    }

    #[test]
    fn an_address_is_an_ip_and_a_port() {
        for (text, parsed) in [
            ("127.0.0.1:8080", "127.0.0.1:8080"),
            ("localhost:0", "127.0.0.1:0"),
            ("[::1]:80", "[::1]:80"),
            ("0.0.0.0:8080", "0.0.0.0:8080"),
        ] {
            assert_eq!(parse_address(text).unwrap().to_string(), parsed);
        }
        for rubbish in ["", "8080", ":8080", "127.0.0.1", "127.0.0.1:70000", "db:80", "localhost:"]
        {
            assert!(parse_address(rubbish).is_err(), "{rubbish}");
        }
    }

    fn args(address: &str, file: Option<PathBuf>) -> LiveArgs {
        LiveArgs { live: Some(address.parse().unwrap()), live_token_file: file }
    }

    #[test]
    fn a_token_file_must_be_private_and_hold_a_valid_token() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        let with = |text: &str, mode: u32| {
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
            args("0.0.0.0:0", Some(file.clone())).endpoint()
        };
        let found = with("0123456789abcdef\n", 0o600).unwrap().unwrap();
        assert!(found.token.unwrap().is_in("Bearer 0123456789abcdef"));
        let error = with("0123456789abcdef\n", 0o640).unwrap_err();
        assert_eq!(error.code(), USAGE);
        assert!(error.sentence().contains("chmod 0600"), "{}", error.sentence());
        for text in ["short\n", "has a space in its middle", ""] {
            let error = with(text, 0o600).unwrap_err();
            assert!(error.sentence().ends_with(Token::REQUIREMENT), "{}", error.sentence());
            assert!(text.is_empty() || !error.sentence().contains(text));
        }
        let absent = args("[::]:0", Some(dir.path().join("none"))).endpoint().unwrap_err();
        assert_eq!(absent.code(), FILES);
    }

    #[test]
    fn the_token_is_accepted_as_bearer_or_as_password_of_any_user() {
        let token = Token::new("0123456789abcdef").unwrap();
        let basic = |pair: &str| format!("Basic {}", STANDARD.encode(pair));
        assert!(token.is_in(&basic("dba:0123456789abcdef")));
        assert!(token.is_in(&basic(":0123456789abcdef")));
        assert!(token.is_in("bearer 0123456789abcdef"));
        let wrong = ["dba:0123456789abcdeF", "0123456789abcdef:", "dba:", "0123456789abcdef"];
        for pair in wrong {
            assert!(!token.is_in(&basic(pair)), "{pair}");
        }
        for header in ["", "Basic", "Basic ???", "Digest 0123456789abcdef", "0123456789abcdef"] {
            assert!(!token.is_in(header), "{header}");
        }
        assert!(!format!("{token:?}").contains("0123"));
    }
}
