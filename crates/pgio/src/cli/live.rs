//! `--live`: the report page while the experiment runs, for browsers, read only.
//!
//! [`Live`] is opened before anything else happens, hears the events of the run and waits at the end until
//! browsers have the last report. `listener` turns events into the `state` of the page, `renderer` makes the
//! report, `server` and `answer` speak HTTP, `address` is the command line. The page itself is in `assets`.

mod address;
mod answer;
mod listener;
mod priority;
mod renderer;
mod server;
mod state;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use self::listener::Listener;
use self::renderer::Renderer;
use self::state::{Phase, Shared};
use super::exit::{Failure, USAGE};
use super::output;
use crate::experiment::event::Event;
use crate::host::stop::Stop;

pub(super) use self::address::LiveArgs;

/// Browsers have the last report within this time, or do without. One that has it lets pgio end at once; on a
/// machine that other work keeps busy, rendering and fetching it took more than 5 s.
const LAST_REPORT_TIMEOUT: Duration = Duration::from_secs(20);
/// After a stop, only a line of text is under way.
const LAST_STATUS_TIMEOUT: Duration = Duration::from_millis(600);
const POLL: Duration = Duration::from_millis(20);

/// The page of a run that is under way.
#[derive(Debug)]
pub(super) struct Live {
    shared: Arc<Shared>,
    listener: Listener,
}

impl Live {
    /// Listens and prints the address; none without `--live`. `--live` is refused before anything is changed.
    pub(super) fn open(
        args: &LiveArgs,
        experiment: &str,
        stop: &Stop,
    ) -> Result<Option<Live>, Failure> {
        let Some(endpoint) = args.endpoint()? else { return Ok(None) };
        let shared = Shared::new();
        let (asked, needs_token) = (endpoint.address, endpoint.token.is_some());
        let opened = server::start(endpoint, shared.clone())
            .and_then(|address| Ok((address, Renderer::start(shared.clone(), stop.clone())?)));
        let (address, renderer) = opened.map_err(|e| {
            let what =
                format!("--live {asked}: cannot serve the page (choose another address or port)");
            Failure::new(USAGE, e).context(what)
        })?;
        let token = if needs_token { " (the token is the password)" } else { "" };
        output::note(&format!("live page: http://{address}/{token}"));
        let listener = Listener::new(experiment, shared.clone(), renderer);
        Ok(Some(Live { shared, listener }))
    }

    pub(super) fn handle(&mut self, event: &Event<'_>) {
        self.listener.handle(event);
    }

    /// Tells browsers how the run ended and gives them time to fetch the last report. A page closes its stream
    /// of events when it has it; after a stop it waits for the run to be resumed. Once the work is done, the first
    /// Ctrl-C ends this.
    pub(super) fn finish<T>(mut self, ended: &Result<T, Failure>, stop: &Stop) {
        let timeout = match ended {
            Ok(_) => {
                self.listener.show_end(Phase::Complete, "");
                LAST_REPORT_TIMEOUT
            }
            Err(failure) => {
                self.listener.show_end(Phase::Stopped, &failure.sentence());
                LAST_STATUS_TIMEOUT
            }
        };
        let begun = Instant::now();
        let is_cut = || if ended.is_ok() { stop.requested() } else { stop.urgent() };
        while self.shared.viewers() > 0 && begun.elapsed() < timeout && !is_cut() {
            thread::sleep(POLL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::state::Viewer;
    use super::*;

    #[test]
    fn the_first_stop_ends_the_wait_for_browsers_of_a_complete_run() {
        let (shared, stop) = (Shared::new(), Stop::new());
        let renderer = Renderer::start(shared.clone(), stop.clone()).unwrap();
        let listener = Listener::new("test", shared.clone(), renderer);
        let _viewer = Viewer::new(&shared);
        stop.request();
        let begun = Instant::now();
        Live { shared, listener }.finish(&Ok(()), &stop);
        assert!(begun.elapsed() < LAST_REPORT_TIMEOUT / 2, "{:?}", begun.elapsed());
    }
}
