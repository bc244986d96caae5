//! Mount options as a step: changed by a remount or by umount and mount, and restored the same way.

use serde::{Deserialize, Serialize};

use super::mounts::{Mounted, Mounts};
use super::options::{self, Setting};
use super::tools::{self, KIND, Tools, wait_for_orphans};
use crate::host::Host;
use crate::host::exec::Exec;
use crate::treatment::context::Context;
use crate::treatment::error::TreatmentError;
use crate::treatment::record::{Label, Record};
use crate::treatment::step::{OnConflict, Step, Undone};

pub(super) const PROGRAMS: &[&str] = &["mount", "umount"];
pub(super) const PURPOSE: &str = "a mount option that a remount does not change";

#[derive(Debug)]
pub(super) struct OptionsStep {
    pub(super) label: Label,
    /// The mount with all options that it had.
    pub(super) prior: Mounted,
    /// By umount and mount, as opposed to a remount.
    pub(super) by_mount: bool,
    pub(super) settings: Vec<Setting>,
}

/// The options as the journal keeps them.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Options {
    words: Vec<String>,
    /// The words for people.
    shown: String,
}

#[derive(Debug, Serialize)]
#[serde(tag = "by", rename_all = "snake_case")]
enum Change {
    Remount(Options),
    Mount(Options),
}

impl OptionsStep {
    pub(super) fn read(
        record: &Record,
        by_mount: bool,
        options: &Options,
    ) -> Result<OptionsStep, TreatmentError> {
        let prior: Mounted = record.prior_as()?;
        let settings = options::parse_stored(&options.words, &prior.file_system)
            .map_err(|word| record.misread(word))?;
        Ok(OptionsStep { label: record.label(), prior, by_mount, settings })
    }

    pub(super) fn apply(&self, context: &Context<'_>) -> Result<(), TreatmentError> {
        let OptionsStep { prior, by_mount, settings, .. } = self;
        let host = context.host(self.label.host())?;
        let tools = Tools::find(&host, "to mount", PROGRAMS)?;
        let list = options::compose(&prior.mountinfo_options(), settings);
        if *by_mount {
            tools.unmount(&prior.point)?;
            tools.mount(&prior.file_system, &list, &prior.source, &prior.point)?;
            return Ok(());
        }
        remount(&tools, prior, &list)
    }
}

impl Step for OptionsStep {
    fn record(&self) -> Record {
        let words = self.settings.iter().map(|s| s.word.clone()).collect();
        let options = Options { words, shown: options::list(&self.settings) };
        let change = if self.by_mount { Change::Mount(options) } else { Change::Remount(options) };
        Record::new(KIND, &self.label, &self.prior, change)
    }

    fn prior(&self) -> String {
        self.prior.options.clone()
    }

    /// Restores all options that were found, and verifies them.
    fn undo(
        &self,
        context: &mut Context<'_>,
        on_conflict: OnConflict,
    ) -> Result<Undone, TreatmentError> {
        let OptionsStep { label, prior, by_mount, settings: ours } = self;
        let host = context.host(label.host())?;
        wait_for_orphans(&host, &prior.point)?;
        let now = Mounts::read(&*host)?.at(&prior.point).cloned();
        let Some(now) = now else {
            return match *by_mount {
                true => mount_again(&host, prior, ours, on_conflict),
                // Not unmounted by pgio.
                false => Ok(Undone::Kept),
            };
        };
        let (known, was) = (now.all_options(), prior.all_options());
        if ours.iter().all(|s| s.word_in_force(&known) == s.word_in_force(&was)) {
            return Ok(Undone::Restored);
        }
        let same_device = now.device == prior.device && now.file_system == prior.file_system;
        if !same_device {
            return match on_conflict {
                OnConflict::Keep => Ok(Undone::Kept),
                // Restoring options would not make another file system the former one.
                OnConflict::Ask | OnConflict::Restore => {
                    Err(another_mounted(host.name(), &now, prior))
                }
            };
        }
        let foreign = |s: &Setting| {
            ![s.word.clone(), s.word_in_force(&was)].contains(&s.word_in_force(&known))
        };
        if ours.iter().any(foreign) {
            let shown = |m: &Mounted| format!("{} of {}", m.options, m.source);
            let (found, prior) = (shown(&now), shown(prior));
            let conflict =
                || TreatmentError::changed_since(label, found, options::list(ours), prior);
            if !on_conflict.overwrites(conflict)? {
                return Ok(Undone::Kept);
            }
        }
        let tools = Tools::find(&host, "to mount", PROGRAMS)?;
        if *by_mount {
            // This mount has our options, and those that the kernel set along with them.
            context.stop_server(PURPOSE)?;
            tools.unmount_for_undo(&prior.point).inspect_err(|_| {
                // The mount is as it was, and the server must not stay down until the next undo.
                let _ = context.start_server(PURPOSE);
            })?;
            let list = options::compose(&prior.mountinfo_options(), &[]);
            tools.mount(&prior.file_system, &list, &prior.source, &prior.point)?;
            return verify_restored(&*host, prior, ours, true);
        }
        // Keep other options that someone changed since.
        let back: Vec<Setting> = ours.iter().map(|s| s.with_word(&s.word_in_force(&was))).collect();
        let whole = options::compose(&now.mountinfo_options(), ours)
            == options::compose(&prior.mountinfo_options(), ours);
        remount(&tools, &now, &options::compose(&now.mountinfo_options(), &back))?;
        verify_restored(&*host, prior, ours, whole)
    }
}

fn remount(tools: &Tools<'_>, mounted: &Mounted, list: &str) -> Result<(), TreatmentError> {
    let options = format!("remount,{list}");
    tools.run(["mount", "-o", &options, &mounted.source, &mounted.point])?;
    Ok(())
}

/// Mounts a file system again that a killed run had unmounted, or that is not mounted after a reboot.
fn mount_again(
    host: &Host,
    prior: &Mounted,
    ours: &[Setting],
    on_conflict: OnConflict,
) -> Result<Undone, TreatmentError> {
    if !host.exists(prior.source.as_ref())? {
        let Mounted { source, point, .. } = prior;
        return match on_conflict {
            OnConflict::Keep => Ok(Undone::Kept),
            OnConflict::Ask | OnConflict::Restore => Err(TreatmentError::Refused(format!(
                "the file system mounted at {point} is not mounted now, and host {} has no {source} any more: attach it again, or mount it there from its new device, then rerun `pgio undo`; `pgio undo --keep` leaves it unmounted",
                host.name()
            ))),
        };
    }
    let found = tools::uuid(host, &prior.source)?;
    if let Some(why) = another_file_system(host.name(), prior, found.as_deref()) {
        return match on_conflict {
            OnConflict::Keep => Ok(Undone::Kept),
            OnConflict::Ask | OnConflict::Restore => Err(TreatmentError::Refused(why)),
        };
    }
    let tools = Tools::find(host, "to mount", PROGRAMS)?;
    let list = options::compose(&prior.mountinfo_options(), &[]);
    tools.mount(&prior.file_system, &list, &prior.source, &prior.point)?;
    verify_restored(host, prior, ours, true)
}

/// Describes why a device does not hold the file system that was mounted. `found` is the UUID on it now.
pub(super) fn another_file_system(
    host: &str,
    prior: &Mounted,
    found: Option<&str>,
) -> Option<String> {
    let was = prior.uuid.as_deref().filter(|was| found != Some(*was))?;
    let Mounted { source, point, .. } = prior;
    let holds = match found {
        Some(uuid) => format!("holds the file system with UUID {uuid}"),
        None => "holds no known file system".to_owned(),
    };
    Some(format!(
        "{source} on host {host} now {holds}, but the file system mounted at {point} had the UUID {was}: find it with `blkid` and mount it there, then rerun `pgio undo`; `pgio undo --keep` leaves it unmounted"
    ))
}

pub(super) fn another_mounted(host: &str, now: &Mounted, prior: &Mounted) -> TreatmentError {
    TreatmentError::Refused(format!(
        "{} on host {host} is now {} on {} but was {} on {}: someone mounted another file system; remount the original one, then rerun `pgio undo`; `pgio undo --keep` keeps the current one",
        now.point, now.file_system, now.source, prior.file_system, prior.source
    ))
}

/// Compares all options if `whole`; otherwise only those that we changed.
fn verify_restored(
    host: &dyn Exec,
    prior: &Mounted,
    ours: &[Setting],
    whole: bool,
) -> Result<Undone, TreatmentError> {
    let now = Mounts::read(host)?.at(&prior.point).cloned().unwrap_or_default();
    let sorted = |mounted: &Mounted| {
        let mut words: Vec<String> = mounted.all_options().into_iter().map(str::to_owned).collect();
        words.sort();
        words
    };
    let (known, was) = (now.all_options(), prior.all_options());
    let same = match whole {
        true => sorted(&now) == sorted(prior),
        false => ours.iter().all(|s| s.word_in_force(&known) == s.word_in_force(&was)),
    };
    match same {
        true => Ok(Undone::Restored),
        false => Err(TreatmentError::NotInForce {
            what: format!("{} of {}", prior.options, prior.title()),
            seconds: 0,
            why: format!("the kernel shows {}", now.options),
        }),
    }
}
