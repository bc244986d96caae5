//! `note = { path, text }`: a file on the server's host with this text.
//!
//! It shows what a treatment as a feature needs; tests/dummy.rs tests it. The file is written in place, which keeps its
//! owner and its mode: after a kill it may have a part of the text.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::config::experiment::TreatmentSpec;
use crate::feature::Feature;
use crate::host::exec::{CommandLine, Exec};
use crate::host::rights::check_writable;
use crate::treatment::body::Body;
use crate::treatment::context::{Context, Machines};
use crate::treatment::contract::{
    Declared, InForce, Kind, Prepared, Preview, Treatment, failed_reading,
};
use crate::treatment::error::TreatmentError;
use crate::treatment::journal::Journal;
use crate::treatment::resource::{Resource, Touch};
use crate::treatment::step::{Label, OnConflict, StepOf, Undo, Undone, carry_out};
use pgio_results::change::{Change, Subject};
use pgio_results::model::{Evidence, When};

pub(super) static FEATURE: Feature = Feature { name: "note", treatments: &[KIND], ..Feature::NONE };

const KIND: Kind = Kind {
    name: "note",
    help: "a text in a file: { path = \"/etc/motd\", text = \"…\" }",
    parse,
    read: NoteStep::read,
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Note {
    path: String,
    text: String,
}

/// The prior value is the file's content, none without a file.
type NoteStep = StepOf<Option<String>, Note>;

fn parse(spec: &TreatmentSpec) -> Result<Box<dyn Treatment>, TreatmentError> {
    let example = "{ path = \"/etc/motd\", text = \"measuring\" }";
    let body = Body::table(spec, &["path", "text"], example)?;
    let path = body.required("path", "the file")?.to_owned();
    if !path.starts_with('/') {
        return Err(body.error("path", "must be an absolute path"));
    }
    let text = body.required("text", "what to write")?.to_owned();
    Ok(Box::new(Note { path, text }))
}

/// Returns the content, none without a file. The journal keeps texts only.
fn read(exec: &dyn Exec, path: &str) -> Result<Option<String>, TreatmentError> {
    if !exec.exists(Path::new(path))? {
        return Ok(None);
    }
    let content = exec.run(&CommandLine::new("cat").args(["--", path]))?;
    if content.contains(char::REPLACEMENT_CHARACTER) {
        return Err(TreatmentError::Refused(format!("{path} holds no UTF-8 text")));
    }
    Ok(Some(content))
}

fn write(exec: &dyn Exec, path: &str, text: Option<&str>) -> Result<(), TreatmentError> {
    let line = match text {
        Some(text) => CommandLine::new("sh").args(["-c", "cat >\"$1\"", "sh", path]).input(text),
        None => CommandLine::new("rm").args(["-f", "--", path]),
    };
    Ok(exec.run(&line).map(drop)?)
}

fn shown(text: Option<&str>) -> String {
    text.unwrap_or("absent").to_owned()
}

impl Note {
    fn what(&self) -> String {
        format!("note in {}", self.path)
    }
}

impl Treatment for Note {
    fn declared(&self) -> Declared {
        // No subject is a file; a user's command comes nearest.
        let change = Change::new(None, Subject::Command, self.what(), &self.text);
        let intents = vec![format!("{} = `{}` written in place", self.what(), self.text)];
        Declared { changes: vec![change], intents, ..Declared::default() }
    }

    fn preview(&self, context: &mut Context<'_>) -> Result<Vec<Preview>, TreatmentError> {
        let found = read(&*context.host(None)?, &self.path)?;
        let (now, then) = (shown(found.as_deref()), shown(Some(&self.text)));
        Ok(vec![Preview { what: self.what(), now, then, how: "written in place" }])
    }

    fn touches(&self, context: &mut Context<'_>) -> Result<Vec<Touch>, TreatmentError> {
        Ok(vec![Touch::Resource(Resource::on(&*context.host(None)?, self.what()))])
    }

    /// A file that was absent is removed again.
    fn check_rights(&self, machines: &Machines<'_>) -> Result<(), TreatmentError> {
        let host = machines.host(None)?;
        let directory = Path::new(&self.path).parent().unwrap_or(Path::new("/"));
        Ok(check_writable(&*host, host.name(), "a note", &[directory], None)?)
    }

    fn check(&self, context: &mut Context<'_>) -> Result<Box<dyn Prepared>, TreatmentError> {
        read(&*context.host(None)?, &self.path)?;
        Ok(Box::new(self.clone()))
    }
}

impl Prepared for Note {
    fn put_in_force(
        &self,
        context: &mut Context<'_>,
        journal: &mut Journal,
    ) -> Result<Box<dyn InForce>, TreatmentError> {
        let host = context.host(None)?;
        let label = Label::on_host(self.what(), host.name());
        let step = NoteStep { label, prior: read(&*host, &self.path)?, ours: self.clone() };
        carry_out(journal, &step, || write(&*host, &self.path, Some(&self.text)))?;
        Ok(Box::new(self.clone()))
    }
}

impl InForce for Note {
    /// Reads nothing inside the window: it would start a process several times a second.
    fn verify(&mut self, context: &mut Context<'_>, when: When) -> Vec<Evidence> {
        if when == When::During {
            return Vec::new();
        }
        let Ok(found) = context.host(None).and_then(|host| read(&*host, &self.path)) else {
            return vec![failed_reading(when, &self.what())];
        };
        let (found, expected) = (shown(found.as_deref()), Some(self.text.clone()));
        vec![Evidence { when, what: self.what(), found, expected }]
    }
}

impl Undo for NoteStep {
    const KIND: &'static str = KIND.name;

    fn undo(
        &self,
        context: &mut Context<'_>,
        on_conflict: OnConflict,
    ) -> Result<Undone, TreatmentError> {
        let StepOf { label, prior, ours } = self;
        let (prior, host) = (prior.as_deref(), context.host(label.host())?);
        let found = read(&*host, &ours.path)?;
        if found.as_deref() == prior {
            return Ok(Undone::Restored);
        }
        // A kill may have come in the midst of writing either of them.
        let mut both = [Some(&*ours.text), prior].into_iter().flatten();
        let is_ours = found.as_deref().is_some_and(|found| both.any(|t| t.starts_with(found)));
        let texts = [found.as_deref(), Some(&*ours.text), prior].map(shown);
        let [found, ours_text, prior_text] = texts;
        let conflict = || TreatmentError::changed_since(label, found, ours_text, prior_text);
        if !is_ours && !on_conflict.overwrites(conflict)? {
            return Ok(Undone::Kept);
        }
        write(&*host, &ours.path, prior)?;
        Ok(Undone::Restored)
    }
}
