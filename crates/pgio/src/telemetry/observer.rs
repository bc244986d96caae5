//! What a feature observes on the hosts of any trial, beside the counters that telemetry reads itself.
//!
//! Its commands are part of the scripts that run on a host anyway, so that it costs the window neither a round trip nor
//! a shell. Telemetry keeps its sections of the output as text and hands them over after the window. What it stores it
//! puts into [`HostUse`]; what must not change inside a trial is a fact of the environment.

use std::collections::BTreeMap;

use pgio_results::Warning;
use pgio_results::telemetry::{HostUse, Storage};

/// By name, as [`pgio_results::change::fact`] makes it.
pub type Facts = BTreeMap<String, String>;
/// An observer's sections of one sample, by name.
pub type Sections = BTreeMap<&'static str, String>;
/// A series of values between samples: subject, name and unit, and the values.
pub type Values = (String, &'static str, &'static str, Vec<Option<f64>>);

#[derive(Debug)]
pub struct Observer {
    /// Heads its section of the environment.
    pub name: &'static str,
    /// Shell commands that run once before sampling. They may print lines of a greeting, add files to `$files`, and add
    /// to `$observers` a function that prints a section, headed by `==> NAME <==`, in each sample.
    pub sampling: &'static str,
    /// Names of its sections in a sample: paths of files, or those that its function prints.
    pub sections: &'static [&'static str],
    /// Adds what it saw in the window.
    pub summarize: fn(&Samples<'_>, &mut HostUse) -> Vec<Warning>,
    pub tracks: fn(&[Interval<'_>]) -> Vec<Values>,
    /// Shell commands that print the settings of the host.
    pub environment: &'static str,
    /// Reads facts in what these print.
    pub facts: fn(&str, Of<'_>) -> Facts,
    /// Whether other hosts have settings as well, by the facts of the server's.
    pub asks_peers: fn(&Facts) -> bool,
}

/// The samples of a window.
#[derive(Debug)]
pub struct Samples<'a> {
    pub host: &'a str,
    pub greeting: &'a str,
    /// In order; the first and the last are the nearest to the window's ends.
    pub inside: Vec<&'a Sections>,
    pub seconds: f64,
}

/// Two samples, one after the other.
#[derive(Debug, Clone, Copy)]
pub struct Interval<'a> {
    pub from: &'a Sections,
    pub to: &'a Sections,
    pub seconds: f64,
}

/// The host that a section describes.
#[derive(Debug, Clone, Copy)]
pub enum Of<'a> {
    /// The server's, with what lies below its files.
    Server(&'a [Storage]),
    /// Another one, with the facts of the server's.
    Peer(&'a Facts),
}

impl Observer {
    pub(super) fn header(&self) -> String {
        format!("==> {} <==\n", self.name)
    }
}
