//! A line of postgresql.auto.conf, or its absence: changed by ALTER SYSTEM, and restored.

use serde::{Deserialize, Serialize};

use super::auto_conf::AutoConf;
use super::setting::{
    Route, alter_system, auto_conf, describe_setting, reload, route, same_line, wait_for,
};
use crate::treatment::context::Context;
use crate::treatment::error::TreatmentError;
use crate::treatment::record::{Label, Record};
use crate::treatment::step::{OnConflict, Step, Undone};
use crate::treatment::values::agree;

pub(super) const KIND: &str = "postgres";

#[derive(Debug)]
pub(super) struct SettingStep {
    pub(super) name: String,
    /// The prior line.
    pub(super) prior: Option<String>,
    pub(super) ours: Ours,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Ours {
    pub(super) value: String,
    /// The file as it was before the first step; unknown in journals of early versions.
    pub(super) file: Option<AutoConf>,
}

pub(super) fn read(record: &Record) -> Result<Box<dyn Step>, TreatmentError> {
    // Early versions stored the value alone.
    let ours = match record.ours_as::<String>() {
        Ok(value) => Ours { value, file: None },
        Err(_) => record.ours_as()?,
    };
    Ok(Box::new(SettingStep { name: record.what.clone(), prior: record.prior_as()?, ours }))
}

impl Step for SettingStep {
    fn record(&self) -> Record {
        Record::new(KIND, &Label::on_server(&self.name), &self.prior, &self.ours)
    }

    fn prior(&self) -> String {
        format!("{} in postgresql.auto.conf", self.record().prior_in_words())
    }

    fn undo(
        &self,
        context: &mut Context<'_>,
        on_conflict: OnConflict,
    ) -> Result<Undone, TreatmentError> {
        context.ensure_running()?;
        let undone = context.within_limit(|context| self.restore_line(context, on_conflict))?;
        let described = describe_setting(context.admin()?, &self.name)?;
        let restarts = route(&self.name, &described.context)? == Route::Restart;
        if undone == Undone::Kept || !restarts || context.control.is_none() {
            return Ok(undone);
        }
        context.restart_server("a setting").map(|()| undone)
    }
}

impl SettingStep {
    pub(super) fn apply(&self, context: &mut Context<'_>) -> Result<(), TreatmentError> {
        alter_system(context.admin()?, &self.name, Some(&self.ours.value))
    }

    fn restore_line(
        &self,
        context: &mut Context<'_>,
        on_conflict: OnConflict,
    ) -> Result<Undone, TreatmentError> {
        let name = &self.name;
        let found = auto_conf(context.admin()?, name)?;
        let (prior, ours) = (self.prior.as_deref(), Some(self.ours.value.as_str()));
        let is_ours = same_line(found.as_deref(), ours);
        let is_prior = same_line(found.as_deref(), prior);
        if !is_ours && !is_prior {
            let shown = |v: Option<&str>| v.map_or("absent".to_owned(), |v| format!("`{v}`"));
            let label = Label::on_server(format!("{name} in postgresql.auto.conf"));
            let overwrites = on_conflict.overwrites(|| {
                let found = shown(found.as_deref());
                TreatmentError::changed_since(&label, found, shown(ours), shown(prior))
            })?;
            if !overwrites {
                return Ok(Undone::Kept);
            }
        }
        if !is_prior {
            alter_system(context.admin()?, name, prior)?;
        }
        let file = self.ours.file.as_ref();
        let same = file.map(|file| file.restore_order(context.admin()?)).transpose()?;
        let undone = if same == Some(false) { Undone::Rewritten } else { Undone::Restored };
        let described = describe_setting(context.admin()?, name)?;
        if route(name, &described.context)? == Route::Restart && context.control.is_some() {
            return Ok(undone);
        }
        // Reload even if the line was right already: a crash may have come between it and the reload.
        reload(context.admin()?)?;
        // Without a line the value comes from elsewhere: any but a pending one is right.
        if let Some(prior) = prior {
            wait_for(context.admin()?, name, &|found| agree(found, prior))?;
        }
        Ok(undone)
    }
}
