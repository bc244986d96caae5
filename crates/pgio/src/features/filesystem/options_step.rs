//! Mount options as a step: changed by a remount or by umount and mount, and restored the same way.

use serde::{Deserialize, Serialize};

use super::mounts::{Mounted, Mounts};
use super::options::{self, Setting};
use super::tools::{self, KIND, Tools, wait_for_orphans};
use crate::host::Host;
use crate::host::exec::Exec;
use crate::treatment::context::Context;
use crate::treatment::error::TreatmentError;
use crate::treatment::step::{Label, OnConflict, Record, Step, Undone};

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
    /// The mount as it was after the change by umount and mount. Unknown until then.
    pub(super) changed: Option<Mounted>,
}

/// The options as the journal keeps them.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Options {
    words: Vec<String>,
    /// The words for people.
    shown: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    changed: Option<Mounted>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "by", rename_all = "snake_case")]
enum Change {
    Remount(Options),
    Mount(Options),
}

/// What an undo finds at the mount point.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found<'m> {
    NotMounted,
    /// Our options have their prior values, whichever file system is mounted.
    PriorOptions,
    AnotherFileSystem(&'m Mounted),
    /// One of our options has a value that is neither ours nor the prior one, or an undo by umount and mount
    /// would revert a later change of another option.
    ChangedByOthers(&'m Mounted),
    /// Each of our options has our value or the prior one.
    OurOptions(&'m Mounted),
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
        let changed = options.changed.clone();
        Ok(OptionsStep { label: record.label(), prior, by_mount, settings, changed })
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

    /// Finds out what an undo has to do about the mount that is there now.
    pub(super) fn classify<'m>(&self, current: Option<&'m Mounted>) -> Found<'m> {
        let Some(current) = current else { return Found::NotMounted };
        let OptionsStep { prior, settings, .. } = self;
        let (current_options, prior_options) = (current.all_options(), prior.all_options());
        let is_prior =
            |s: &Setting| s.word_in_force(&current_options) == s.word_in_force(&prior_options);
        if settings.iter().all(is_prior) {
            return Found::PriorOptions;
        }
        if current.device != prior.device || current.file_system != prior.file_system {
            return Found::AnotherFileSystem(current);
        }
        let changed_by_others =
            |s: &Setting| s.word_in_force(&current_options) != s.word && !is_prior(s);
        // An undo by umount and mount gives the mount the whole prior list, so every word counts.
        let differs = |changed: &Mounted| sorted_options(changed) != sorted_options(current);
        let other_changed = self.by_mount && self.changed.as_ref().is_some_and(differs);
        if other_changed || settings.iter().any(changed_by_others) {
            Found::ChangedByOthers(current)
        } else {
            Found::OurOptions(current)
        }
    }

    pub(super) fn conflict(&self, current: &Mounted) -> TreatmentError {
        let OptionsStep { label, prior, settings, changed, .. } = self;
        let shown = |mounted: &Mounted| format!("{} of {}", mounted.options, mounted.source);
        let Some(changed) = changed else {
            let ours = options::list(settings);
            return TreatmentError::changed_since(label, shown(current), ours, shown(prior));
        };
        // mountinfo does not show all of them, such as `ro` after an error.
        let (mut words, ours) = (current.mountinfo_options(), changed.all_options());
        let new = current.detail.iter().map(String::as_str).filter(|word| !ours.contains(word));
        words.extend(new.filter(|word| !current.mountinfo_options().contains(word)));
        let found = format!("{} of {}", words.join(","), current.source);
        TreatmentError::changed_since(label, found, shown(changed), shown(prior))
    }

    /// Gives the mount its prior options in place of ours, and verifies them.
    fn restore(
        &self,
        host: &Host,
        current: &Mounted,
        context: &mut Context<'_>,
    ) -> Result<Undone, TreatmentError> {
        let OptionsStep { prior, by_mount, settings, .. } = self;
        let tools = Tools::find(host, "to mount", PROGRAMS)?;
        if *by_mount {
            // This mount has our options, and those that the kernel set along with them.
            context.stop_server(PURPOSE)?;
            tools.unmount_for_undo(&prior.point).inspect_err(|_| {
                // The mount is as it was, and the server must not stay down until the next undo.
                let _ = context.start_server(PURPOSE);
            })?;
            let list = options::compose(&prior.mountinfo_options(), &[]);
            tools.mount(&prior.file_system, &list, &prior.source, &prior.point)?;
            return verify_restored(host, prior, settings, true);
        }
        // Keep other options that someone changed since.
        let prior_options = prior.all_options();
        let with_prior = |s: &Setting| s.with_word(&s.word_in_force(&prior_options));
        let restored: Vec<Setting> = settings.iter().map(with_prior).collect();
        let others_unchanged = options::compose(&current.mountinfo_options(), settings)
            == options::compose(&prior.mountinfo_options(), settings);
        remount(&tools, current, &options::compose(&current.mountinfo_options(), &restored))?;
        verify_restored(host, prior, settings, others_unchanged)
    }
}

impl Step for OptionsStep {
    fn record(&self) -> Record {
        let words = self.settings.iter().map(|s| s.word.clone()).collect();
        let (shown, changed) = (options::list(&self.settings), self.changed.clone());
        let options = Options { words, shown, changed };
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
        let OptionsStep { label, prior, by_mount, settings, .. } = self;
        let host = context.host(label.host())?;
        wait_for_orphans(&host, &prior.point)?;
        let mounts = Mounts::read(&*host)?;
        match self.classify(mounts.at(&prior.point)) {
            Found::NotMounted => {
                if *by_mount {
                    mount_again(&host, prior, settings, on_conflict)
                } else {
                    // Not unmounted by pgio.
                    Ok(Undone::Kept)
                }
            }
            Found::PriorOptions => Ok(Undone::Restored),
            Found::AnotherFileSystem(current) => match on_conflict {
                OnConflict::Keep => Ok(Undone::Kept),
                // Restoring options would not make another file system the former one.
                OnConflict::Ask | OnConflict::Restore => {
                    Err(another_mounted(host.name(), current, prior))
                }
            },
            Found::ChangedByOthers(current) => {
                if on_conflict.overwrites(|| self.conflict(current))? {
                    self.restore(&host, current, context)
                } else {
                    Ok(Undone::Kept)
                }
            }
            Found::OurOptions(current) => self.restore(&host, current, context),
        }
    }
}

/// All options of a mount, to be compared: the kernel may list them in another order.
fn sorted_options(mounted: &Mounted) -> Vec<&str> {
    let mut words = mounted.all_options();
    words.sort_unstable();
    words
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
    settings: &[Setting],
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
    verify_restored(host, prior, settings, true)
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

pub(super) fn another_mounted(host: &str, current: &Mounted, prior: &Mounted) -> TreatmentError {
    TreatmentError::Refused(format!(
        "{} on host {host} is now {} on {} but was {} on {}: someone mounted another file system; remount the original one, then rerun `pgio undo`; `pgio undo --keep` keeps the current one",
        current.point, current.file_system, current.source, prior.file_system, prior.source
    ))
}

/// Compares all options if `whole`; otherwise only those that we changed.
fn verify_restored(
    host: &dyn Exec,
    prior: &Mounted,
    settings: &[Setting],
    whole: bool,
) -> Result<Undone, TreatmentError> {
    let current = Mounts::read(host)?.at(&prior.point).cloned().unwrap_or_default();
    let (current_options, prior_options) = (current.all_options(), prior.all_options());
    let is_prior =
        |s: &Setting| s.word_in_force(&current_options) == s.word_in_force(&prior_options);
    let same = if whole {
        sorted_options(&current) == sorted_options(prior)
    } else {
        settings.iter().all(is_prior)
    };
    if same {
        Ok(Undone::Restored)
    } else {
        Err(TreatmentError::NotInForce {
            what: format!("{} of {}", prior.options, prior.title()),
            seconds: 0,
            why: format!("the kernel shows {}", current.options),
        })
    }
}
