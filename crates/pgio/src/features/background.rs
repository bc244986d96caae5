//! `[[background]]`: workloads that run beside the judged one, in named conditions.
//!
//! [`spec`] reads the file, [`prepare`] makes the work ready on its servers, [`running`] runs it beside a trial and
//! judges it, [`work`] is the thread of each. [`rates`] reports what it did.

mod prepare;
mod rates;
mod running;
mod spec;
mod work;

use std::collections::BTreeMap;

use self::spec::BackgroundSpec;
use crate::config::experiment::WorkloadSpec;
use crate::experiment::application::{Job, OpenError, TargetServer};
use crate::experiment::companion::{Accompanied, Companion, Companions, Reservation};
use crate::experiment::event::Observer;
use crate::feature::Feature;
use crate::host::Hosts;
use crate::host::stop::Stop;

pub(super) static FEATURE: Feature = Feature {
    name: NAME,
    file: Some(&spec::PART),
    companions: |job| Some(Box::new(Specs(specs(job)))),
    checks: running::checks,
    findings: &[rates::section],
    #[cfg(feature = "schema")]
    schema: || Some(schemars::schema_for!(rates::Field)),
    examples: &[example!("background-work"), example!("backup"), example!("replica-reads")],
    ..Feature::NONE
};

/// Also the name of its section, of its check and of its field in the JSON of an analysis.
const NAME: &str = "background";

/// The background work of a file.
fn specs(job: &Job) -> Vec<BackgroundSpec> {
    let specs = job.read_again(|root| spec::parse(root, &job.experiment));
    specs.expect("the file was read before")
}

#[derive(Debug)]
struct Specs(Vec<BackgroundSpec>);

impl Companions for Specs {
    fn plan_lines(&self) -> Vec<String> {
        let line = |spec: &BackgroundSpec| {
            let (name, kind, place) = (&spec.work.name, spec.work.kind.name(), spec.place());
            let conditions = spec.conditions().join(", ");
            format!(
                "Background work `{name}` ({kind}) runs on {place} during the trials of {conditions}."
            )
        };
        self.0.iter().map(line).collect()
    }

    fn work(&self) -> Vec<&WorkloadSpec> {
        self.0.iter().map(|spec| &spec.work).collect()
    }

    fn check(
        &self,
        job: &Job,
        servers: &BTreeMap<String, TargetServer>,
        hosts: &Hosts,
        observe: &mut Observer<'_>,
    ) -> Result<Vec<Reservation>, OpenError> {
        prepare::check(&self.0, job, servers, hosts)?;
        prepare::check_on(&self.0, job, servers, &Stop::new(), observe)
    }

    fn prepare(
        &self,
        run: &Accompanied<'_>,
        observe: &mut Observer<'_>,
    ) -> Result<Box<dyn Companion>, OpenError> {
        Ok(Box::new(prepare::prepare(&self.0, run, observe)?))
    }
}
