//! The cells of an experiment and their check: refuses what cannot work, before anything is changed.
//!
//! A check prepares the treatments of each cell, and notes with each target what its conditions may change. The
//! doctor and `--plan` check cells as well, without a runner.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::joint;
use super::session::{Controlled, context};
use crate::config::experiment::{Checkpoint, Rules, Weave};
use crate::experiment::companion::{Reservation, connections_beside};
use crate::experiment::live::LiveError;
use crate::experiment::target::Target;
use crate::experiment::{plan, reset};
use crate::host::Hosts;
use crate::host::stop::Stop;
use crate::pg::server::Connections;
use crate::pg::session::SEARCH_PATH;
use crate::treatment::{self, Prepared, Resource, Touch, Treatment, TreatmentError, Treatments};
use crate::workload::{self, NeededSessions, SessionSettings};
use pgio_results::points::Cell;

/// A condition at a point of the sweep, ready to run; the A/A twin is a cell of its own.
#[derive(Debug)]
pub struct LiveCell {
    pub cell: Cell,
    /// The title for users: the condition, and the point unless it is the middle one.
    pub title: String,
    pub target: String,
    /// Further targets, which share its window.
    pub further_targets: Vec<String>,
    pub treatments: Treatments,
    /// Index into the target's workloads.
    pub work: usize,
}

impl LiveCell {
    pub fn targets(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.target).chain(&self.further_targets)
    }
}

/// What [`check`] prepares for the trials.
#[derive(Debug, Default)]
pub struct CheckedCells {
    /// Prepared treatments, by cell.
    pub(super) prepared: Vec<Vec<Box<dyn Prepared>>>,
    /// Prepared treatments on further targets, by cell and target.
    pub(super) prepared_further: BTreeMap<(usize, String), Vec<Box<dyn Prepared>>>,
    /// Whether a treatment moves tables to a tablespace, which needs no restart.
    pub(super) any_tablespace: bool,
    /// Whether a condition has settings of sessions.
    pub(super) any_session_settings: bool,
    /// Mean length of the slices in which conditions take turns, if they do.
    pub(super) weave: Option<Duration>,
    /// Why conditions cannot take turns, if that was to be found out.
    pub(super) weave_obstacle: Option<String>,
}

/// Returns resources that these cells may change, as far as known before [`check`], and notes them with each target;
/// skips targets that are not among these.
pub fn touched_before_check(
    cells: &[LiveCell],
    targets: &mut BTreeMap<String, Target>,
    hosts: &Hosts,
    stop: &Stop,
) -> BTreeSet<Resource> {
    for cell in cells {
        for name in cell.targets() {
            let Some(target) = targets.get_mut(name) else { continue };
            let mut control = Controlled::new(target);
            let mut context = context(target, &mut control, hosts, stop);
            let touches = treatment::touched_before_check(&cell.treatments, &mut context);
            target.note(touches);
        }
    }
    touched(targets)
}

/// Returns resources that were noted with these targets.
pub fn touched(targets: &BTreeMap<String, Target>) -> BTreeSet<Resource> {
    targets.values().flat_map(|target| target.touches.iter().cloned()).collect()
}

/// Refuses, before anything is changed, what cannot work; skips cells of targets that are not among
/// these. Notes with each target the changes that must be undone even after a kill. `reserved` is what runs
/// beside the conditions.
pub fn check(
    cells: &[LiveCell],
    targets: &mut BTreeMap<String, Target>,
    hosts: &Hosts,
    rules: &Rules,
    reserved: &[Reservation],
    stop: &Stop,
) -> Result<CheckedCells, LiveError> {
    let mut all = CheckedCells::default();
    for (at, cell) in cells.iter().enumerate() {
        let mut taken = BTreeSet::new();
        for (number, name) in cell.targets().enumerate() {
            let prepared = match targets.get_mut(name) {
                Some(target) => {
                    let inputs = CheckInputs { cell, hosts, rules, reserved, stop };
                    check_on(&inputs, target, &mut taken, &mut all.any_tablespace)?
                }
                None => Vec::new(),
            };
            all.any_session_settings |= prepared.iter().any(|p| !p.session_settings().is_empty());
            match number {
                0 => all.prepared.push(prepared),
                _ => drop(all.prepared_further.insert((at, name.clone()), prepared)),
            }
        }
        let names: Vec<&String> = cell.targets().collect();
        if names.len() > 1 {
            joint::check(&cell.title, &names, cell.work, targets)?;
        }
    }
    let obstacle = || weave_obstacle(cells, &all, targets, rules);
    match rules.weave {
        Weave::Off => {}
        Weave::Slices(slice) => match obstacle() {
            None => all.weave = Some(slice),
            Some(why) => return Err(LiveError::Weave(why)),
        },
        Weave::Auto => all.weave_obstacle = obstacle(),
    }
    for target in targets.values_mut() {
        target.reset = reset::prepare(&rules.reset, target)?;
    }
    Ok(all)
}

/// What the check of a cell on one of its servers needs.
struct CheckInputs<'a> {
    cell: &'a LiveCell,
    hosts: &'a Hosts,
    rules: &'a Rules,
    reserved: &'a [Reservation],
    stop: &'a Stop,
}

/// Checks a cell on one server. `taken` are the resources that its treatments change for earlier servers.
fn check_on(
    inputs: &CheckInputs<'_>,
    target: &mut Target,
    taken: &mut BTreeSet<Resource>,
    any_tablespace: &mut bool,
) -> Result<Vec<Box<dyn Prepared>>, LiveError> {
    let CheckInputs { cell, hosts, rules, reserved, stop } = inputs;
    let mut control = Controlled::new(target);
    let mut context = context(target, &mut control, hosts, stop);
    let checked = if taken.is_empty() {
        treatment::check_all(&cell.treatments, &mut context)
    } else {
        treatment::check_further_server(&cell.treatments, taken, &mut context)
    };
    *any_tablespace |= context.layout.moved.iter().any(|moved| moved.is_tablespace);
    let checked = checked.map_err(|source| LiveError::Treatment {
        condition: cell.title.clone(),
        source: Box::new(source),
    })?;
    taken.extend(checked.touches.iter().filter_map(|touch| match touch {
        Touch::Resource(resource) => Some(resource.clone()),
        Touch::Server => None,
    }));
    target.note(checked.touches);
    refuse_useless_settings(cell, target, &checked.prepared)?;
    check_room(cell, target, reserved, stop)?;
    if rules.checkpoint == Checkpoint::Spread {
        let declared = treatment::declared_value(&cell.treatments, "checkpoint_timeout");
        let timeout = plan::cycle_seconds(&mut target.admin, declared.as_deref())?;
        plan::whole_cycles(target.workloads[cell.work].extent(), timeout)
            .map_err(|why| LiveError::Cycles { condition: cell.title.clone(), why })?;
    }
    Ok(checked.prepared)
}

/// Refuses a cell for whose sessions, and its companions', the server has no room under the condition.
fn check_room(
    cell: &LiveCell,
    target: &mut Target,
    reserved: &[Reservation],
    stop: &Stop,
) -> Result<(), LiveError> {
    // A value that only the server can read shows in the trials.
    let Some(declared) = declared_limits(&cell.treatments) else { return Ok(()) };
    let (beside, what) = connections_beside(reserved, &cell.cell.condition, &target.identity);
    let needed = NeededSessions { own: target.workloads[cell.work].connections(), beside };
    let room = workload::wait_for_declared_room(&mut target.admin, &declared, needed, stop);
    room.map_err(|source| LiveError::Room {
        condition: cell.title.clone(),
        beside: match beside {
            0 => String::new(),
            _ => format!(", with {beside} connections for {}", what.join(" and ")),
        },
        source: Box::new(source),
    })
}

/// Returns what a condition sets of the settings that limit connections; `None` if a value is no plain number.
fn declared_limits(treatments: &[Box<dyn Treatment>]) -> Option<Vec<(&'static str, i64)>> {
    let mut all = Vec::new();
    for name in Connections::SETTINGS {
        if let Some(value) = treatment::declared_value(treatments, name) {
            all.push((name, value.trim().parse::<i64>().ok()?));
        }
    }
    Some(all)
}

/// Settings that the server reads only when a session starts. Later they can be set and read back, without effect.
const READ_AT_START: [&str; 2] = ["local_preload_libraries", "session_preload_libraries"];

/// Refuses settings of sessions that would have no effect on this workload.
fn refuse_useless_settings(
    cell: &LiveCell,
    target: &Target,
    prepared: &[Box<dyn Prepared>],
) -> Result<(), LiveError> {
    let workload = &target.workloads[cell.work];
    let settings: Vec<(String, String)> =
        prepared.iter().flat_map(|prepared| prepared.session_settings()).collect();
    let names: Vec<String> = settings.iter().map(|(name, _)| name.clone()).collect();
    let condition = || cell.title.clone();
    if let Some(why) = useless_settings(&names, workload.session_settings(), &workload.info().kind)
    {
        let source = Box::new(TreatmentError::Refused(why));
        return Err(LiveError::Treatment { condition: condition(), source });
    }
    workload
        .check_settings(&target.params, &settings)
        .map_err(|source| LiveError::Settings { condition: condition(), source: Box::new(source) })
}

/// Returns why settings of sessions would have no effect on a workload of this kind, if so.
fn useless_settings(names: &[String], reach: SessionSettings, kind: &str) -> Option<String> {
    let names = names.iter().map(String::as_str);
    match reach {
        SessionSettings::AtStart => None,
        SessionSettings::Nowhere => listed(names).map(|names| {
            format!(
                "{names} would be set in pgio's own sessions, and the workload `{kind}` has none on the server; set it \
                 for the sessions that work there (ALTER ROLE … SET) in a `command` treatment, or use another workload"
            )
        }),
        SessionSettings::OnceOpen if names.clone().any(|name| name == SEARCH_PATH.0) => {
            Some(format!(
                "the sessions of the workload `{kind}` have {} = {} so that objects of others are not found, and name their tables with the schema: use the workload `command`",
                SEARCH_PATH.0, SEARCH_PATH.1
            ))
        }
        SessionSettings::OnceOpen => {
            listed(names.filter(|name| READ_AT_START.contains(name))).map(|names| {
                format!(
                    "{names} takes effect only when a session starts, and the workload `{kind}` sets it later: use \
                     shared_preload_libraries, set it for all sessions (ALTER ROLE … SET, ALTER DATABASE … SET) in a \
                     `command` treatment, or use the workload `command`, whose sessions start with it"
                )
            })
        }
    }
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> Option<String> {
    let names: Vec<&str> = names.collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Returns why conditions cannot take turns inside one window, if so.
fn weave_obstacle(
    cells: &[LiveCell],
    checked: &CheckedCells,
    targets: &BTreeMap<String, Target>,
    rules: &Rules,
) -> Option<String> {
    if rules.checkpoint == Checkpoint::Spread {
        return Some("checkpoint = \"spread\" needs windows of whole checkpoint cycles".to_owned());
    }
    for (cell, prepared) in cells.iter().zip(&checked.prepared) {
        let Some(target) = targets.get(&cell.target) else { continue };
        if !cell.further_targets.is_empty() {
            return Some(format!("condition `{}` runs on several servers", cell.title));
        }
        if let Some(why) = target.workloads[cell.work].weave_obstacle() {
            return Some(why.to_owned());
        }
        let treatments = cell.treatments.iter().zip(prepared);
        let fixed = treatments.filter(|(_, prepared)| !prepared.changes_sessions_only());
        let changes: Vec<String> = fixed
            .flat_map(|(treatment, _)| treatment.declared().changes)
            .map(|change| change.to_string())
            .collect();
        if !changes.is_empty() {
            let changes = changes.join(", ");
            return Some(format!(
                "condition `{}` changes {changes}, which sessions cannot switch",
                cell.title
            ));
        }
        let same = |other: &&LiveCell| {
            other.cell.point != cell.cell.point
                || (other.target == cell.target && other.work == cell.work)
        };
        if let Some(other) = cells.iter().find(|other| !same(other)) {
            return Some(format!(
                "conditions `{}` and `{}` run on different servers or workloads",
                cell.title, other.title
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::experiment::TreatmentSpec;

    #[test]
    fn settings_without_effect_on_a_workload_are_refused() {
        let useless = |names: &[&str], reach: SessionSettings| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            useless_settings(&names, reach, "commit")
        };
        let all = ["work_mem", "session_preload_libraries"];
        assert_eq!(useless(&all, SessionSettings::AtStart), None);
        assert_eq!(useless(&["work_mem"], SessionSettings::OnceOpen), None);
        let why = useless(&all, SessionSettings::OnceOpen).unwrap();
        assert!(why.starts_with("session_preload_libraries takes effect only when"), "{why}");
        assert!(why.contains("use shared_preload_libraries"), "{why}");
        let why = useless(&["local_preload_libraries"], SessionSettings::OnceOpen).unwrap();
        assert!(why.starts_with("local_preload_libraries takes effect only when"), "{why}");
        let why = useless(&all, SessionSettings::Nowhere).unwrap();
        assert!(why.starts_with("work_mem, session_preload_libraries would be set in"), "{why}");
        assert_eq!(useless(&[], SessionSettings::Nowhere), None);
        assert_eq!(useless(&["search_path"], SessionSettings::AtStart), None);
        let why = useless(&["work_mem", "search_path"], SessionSettings::OnceOpen).unwrap();
        assert!(why.contains("`commit` have search_path = pg_catalog, pg_temp"), "{why}");
    }

    #[test]
    fn the_limits_of_a_condition_are_those_that_it_sets() {
        let limits = |body: &str| {
            let table: toml::Table = toml::from_str(&format!("body = {body}")).unwrap();
            let kind = "postgres".to_owned();
            let spec = TreatmentSpec { kind, body: table["body"].clone(), line: 1 };
            declared_limits(&treatment::parse_all(&[spec]).unwrap())
        };
        assert_eq!(limits("{ work_mem = '7MB' }"), Some(Vec::new()));
        assert_eq!(limits("{ max_connections = 50 }"), Some(vec![("max_connections", 50)]));
        assert_eq!(
            limits("{ Reserved_Connections = '5', max_connections = 50 }"),
            Some(vec![("max_connections", 50), ("reserved_connections", 5)])
        );
        assert_eq!(limits("{ max_connections = '0x40' }"), None);
    }
}
