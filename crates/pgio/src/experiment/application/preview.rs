//! Collects what `--plan` shows beyond the files: the changes of each condition, and current values.
//!
//! Current values come from a server that answers within a few seconds, in a read-only session, and from
//! the hosts. If a server does not answer, or does not exist yet, each change is shown as the
//! file has it. Refuses mistakes in the file only; `validation` refuses the rest.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pgio_connect::Client;

use super::cells::{cells, varied};
use super::error::RunError;
use super::job::Job;
use super::servers;
use crate::config::experiment::{Condition, Experiment, Target, WorkloadSpec};
use crate::experiment::live::LiveCell;
use crate::host::stop::Stop;
use crate::host::{self, Host, Hosts, LOCAL};
use crate::pg::{leftovers, session, words};
use crate::treatment::{
    self, AdminSession, ChangedServer, Context, Layout, Treatment, TreatmentError,
};
use pgio_connect::{self, ConnectParams};
use pgio_results::points::Varied;

/// Time limit for a server to answer.
const TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub struct Preview<'a> {
    pub notes: Vec<PlanNote>,
    pub workloads: Vec<WorkloadPreview<'a>>,
}

#[derive(Debug)]
pub enum PlanNote {
    /// Current values are unknown, with the reason.
    ValuesUnknown(String),
    /// A run would refuse this.
    Refused(String),
}

#[derive(Debug)]
pub struct WorkloadPreview<'a> {
    pub spec: &'a WorkloadSpec,
    pub cells: Vec<LiveCell>,
    pub varied: Option<Varied>,
    /// Changes at the middle point, by condition; the sweep holds the changes of its axes.
    pub changes: Vec<ConditionChange>,
}

#[derive(Debug)]
pub struct ConditionChange {
    pub condition: String,
    pub change: PlannedChange,
}

#[derive(Debug, PartialEq, Eq)]
pub enum PlannedChange {
    Nothing,
    /// The change as the file has it.
    Intent(String),
    /// The change as the file has it; the current value is unknown.
    Unknown {
        intent: String,
        why: String,
    },
    Known(treatment::Preview),
}

pub fn preview(job: &Job) -> Result<Preview<'_>, RunError> {
    let e = &job.experiment;
    // `validation` reports their warnings.
    let params = servers::params(job, "plan", &mut |_| {})?;
    let mut servers = connect_servers(e, &params);
    let refused = servers.values().filter_map(|server| server.as_ref().err());
    let mut notes: Vec<PlanNote> = refused.cloned().map(PlanNote::ValuesUnknown).collect();
    let hosts = connect_hosts(e, &mut notes);
    let mut workloads = Vec::new();
    for spec in &e.workloads {
        let (cells, varied) = (cells(job, spec)?, varied(e, spec)?);
        let middle = |c: &&LiveCell| varied.as_ref().is_none_or(|s| c.cell.point == *s.middle());
        let mut all = Vec::new();
        for cell in cells.iter().filter(middle) {
            let mut changes_on = |target: &String| {
                let server = servers.get_mut(target).and_then(|s| s.as_mut().ok());
                let server = params.get(target).zip(server);
                planned_changes(&cell.treatments, server, host_of(e, target), &hosts)
            };
            let name = &cell.cell.condition;
            let first = changes_on(&cell.target)?;
            let mut others = Vec::new();
            for target in &cell.further_targets {
                // What servers share, and what they have in common, is shown once.
                let own = changes_on(target)?.into_iter().filter(|change| !first.contains(change));
                let condition = format!("{name} on {target}");
                others.extend(
                    own.map(|change| ConditionChange { condition: condition.clone(), change }),
                );
            }
            let condition = |change| ConditionChange { condition: name.clone(), change };
            all.extend(first.into_iter().map(condition).chain(others));
        }
        workloads.push(WorkloadPreview { spec, cells, varied, changes: all });
    }
    Ok(Preview { notes, workloads })
}

fn host_of<'a>(e: &'a Experiment, target: &str) -> Option<&'a str> {
    match e.targets.get(target) {
        Some(Target::Server { host, .. }) => host.as_deref(),
        _ => None,
    }
}

/// Opens a read-only session to each server of a condition that answers.
fn connect_servers(
    e: &Experiment,
    params: &BTreeMap<String, ConnectParams>,
) -> BTreeMap<String, Result<Client, String>> {
    let asked = params.iter().filter(|(name, _)| {
        let names = |c: &Condition| c.target.is_none() || c.targets().any(|t| t == *name);
        e.conditions.iter().any(names)
    });
    asked.map(|(name, params)| (name.clone(), connect_read_only(params))).collect()
}

fn connect_read_only(params: &ConnectParams) -> Result<Client, String> {
    let mut params = params.clone().with_application_name(leftovers::UNANNOUNCED);
    params.connect_timeout = Some(params.connect_timeout.map_or(TIMEOUT, |t| t.min(TIMEOUT)));
    let mut client = session::open(&params).map_err(|e| words::sentence(&e))?;
    client
        .batch_execute("SET default_transaction_read_only = on")
        .map_err(|e| words::sentence(&e))?;
    Ok(client)
}

/// Connects to the hosts that are reachable.
fn connect_hosts(e: &Experiment, notes: &mut Vec<PlanNote>) -> Hosts {
    let mut hosts = Hosts::from([(LOCAL.to_owned(), Arc::new(Host::local()))]);
    for (name, spec) in &e.hosts {
        match Host::connect(name, spec) {
            Ok(host) => drop(hosts.insert(name.clone(), Arc::new(host))),
            Err(why) => notes.push(PlanNote::ValuesUnknown(words::sentence(&why))),
        }
    }
    if let Err(why) = host::refuse_duplicates(&e.hosts, &hosts) {
        notes.push(PlanNote::Refused(words::sentence(&why)));
    }
    hosts
}

/// Returns the changes of one condition, with current values if its server answers.
fn planned_changes(
    treatments: &[Box<dyn Treatment>],
    server: Option<(&ConnectParams, &mut Client)>,
    host: Option<&str>,
    hosts: &Hosts,
) -> Result<Vec<PlannedChange>, TreatmentError> {
    let mut all = Vec::new();
    match server {
        None => {
            let intents = treatments.iter().flat_map(|t| t.declared().intents);
            all.extend(intents.map(PlannedChange::Intent));
        }
        Some((params, client)) => {
            let mut context = Context {
                params,
                session: AdminSession::Open(client),
                changed: ChangedServer::default(),
                hosts,
                // A session over a Unix-domain socket shows that the server runs on this machine.
                server_host: host.or(params.is_by_socket().then_some(LOCAL)),
                control: None,
                private: false,
                layout: Layout::default(),
                streaming: None,
                is_renewed: false,
                stop: Stop::new(),
            };
            for treatment in treatments.iter() {
                all.extend(treatment_changes(treatment.as_ref(), &mut context)?);
            }
        }
    }
    if all.is_empty() {
        all.push(PlannedChange::Nothing);
    }
    Ok(all)
}

fn treatment_changes(
    treatment: &dyn Treatment,
    context: &mut Context<'_>,
) -> Result<Vec<PlannedChange>, TreatmentError> {
    match treatment.preview(context) {
        Ok(changes) => Ok(changes.into_iter().map(PlannedChange::Known).collect()),
        // A mistake in the file is an error here, too.
        Err(error @ TreatmentError::Config(_)) => Err(error),
        Err(error) => {
            let why = words::sentence(&error);
            let unknown = |intent| PlannedChange::Unknown { intent, why: why.clone() };
            Ok(treatment.declared().intents.into_iter().map(unknown).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::application::scripted::{COMMITS, job};

    fn shown(preview: &Preview<'_>) -> Vec<String> {
        let changes = preview.workloads.iter().flat_map(|workload| &workload.changes);
        let shown = |ConditionChange { condition, change }: &ConditionChange| match change {
            PlannedChange::Nothing => format!("{condition}: nothing"),
            PlannedChange::Intent(intent) => format!("{condition}: {intent}"),
            other => panic!("{other:?}"),
        };
        changes.map(shown).collect()
    }

    #[test]
    fn a_preview_does_not_contact_a_private_server() {
        let job = job(COMMITS);
        let preview = preview(&job).unwrap();
        assert!(preview.notes.is_empty());
        let shown = shown(&preview);
        assert_eq!(shown.len(), 3);
        assert!(shown[0].starts_with("local: ") && shown[0].contains("synchronous_commit"));
        assert!(shown[2].starts_with("on: "), "{shown:?}");
    }

    #[test]
    #[cfg(feature = "sweep")]
    fn a_condition_without_treatments_changes_nothing_and_a_sweep_is_shown_once() {
        let plain = "sessions = [1, 4]\n[[condition]]\nname = 'as it is'\n";
        let job = job(&format!("{COMMITS}{plain}"));
        let preview = preview(&job).unwrap();
        let shown = shown(&preview);
        assert_eq!((shown.len(), shown[0].as_str()), (4, "as it is: nothing"));
        assert!(preview.workloads[0].varied.is_some());
        assert_eq!(preview.workloads[0].cells.len(), 4 + 3);
    }

    #[test]
    fn a_server_that_does_not_answer_leaves_present_values_out() {
        let dsn = "dsn = 'host=127.0.0.1 port=1 user=u dbname=d sslmode=disable'";
        let job = job(&COMMITS.replace("private = true", dsn));
        let preview = preview(&job).unwrap();
        assert!(
            matches!(preview.notes.as_slice(), [PlanNote::ValuesUnknown(_)]),
            "{:?}",
            preview.notes
        );
        assert_eq!(shown(&preview).len(), 3);
    }
}
