//! `kubernetes:N`: an Indexed Job, by kubectl as the user has configured it.
//!
//! The Job starts a lost driver again by itself (`backoffLimitPerIndex`), with the same rank. The token is
//! in a Secret of the run; both are deleted at its end.

use std::time::Duration;

use super::launch::{Invitation, Launcher};
use crate::config::drivers::DriverSpec;
use crate::host::command::CommandLine;
use crate::host::exec::{Exec, Local};
use crate::workload::drivers::DriverError;
use pgio_link::{COORDINATOR_VARIABLE, TOKEN_VARIABLE};

const TEMPLATE: &str = include_str!("job.yaml");
/// Time for nodes to pull the image.
const TIMEOUT: Duration = Duration::from_secs(300);
/// Time for the Job to complete once its drivers have been ordered to end.
const END_TIMEOUT_OPTION: &str = "--timeout=20s";
/// Time for one command of kubectl.
const KUBECTL_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) struct Kubernetes {
    spec: DriverSpec,
    invitation: Option<Invitation>,
    applied: bool,
}

impl Kubernetes {
    pub(super) fn new(spec: &DriverSpec) -> Kubernetes {
        Kubernetes { spec: spec.clone(), invitation: None, applied: false }
    }
}

/// Returns the manifest of Secret and Job, for a run or for the user to read.
pub fn manifest(spec: &DriverSpec, run_id: &str, coordinator: &str, token: &str) -> String {
    // A JSON string is a YAML scalar that nothing can break out of.
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let values = [
        ("{name}", name_of(run_id)),
        ("{count}", spec.count.to_string()),
        ("{image}", quoted(spec.image.as_deref().unwrap_or_default())),
        ("{cpu}", quoted(&spec.cpu)),
        ("{coordinator}", quoted(coordinator)),
        ("{token}", quoted(token)),
        ("{coordinator_variable}", COORDINATOR_VARIABLE.to_owned()),
        ("{token_variable}", TOKEN_VARIABLE.to_owned()),
    ];
    values.iter().fold(TEMPLATE.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// Returns a name that Kubernetes accepts: lower case, digits and hyphens.
fn name_of(run_id: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let id: String = run_id.chars().map(allowed).take(48).collect();
    format!("pgio-{}", id.trim_matches('-'))
}

fn kubectl() -> CommandLine {
    CommandLine::new("kubectl").timeout(KUBECTL_TIMEOUT)
}

/// Gives the manifest to kubectl on stdin: a token in arguments would be visible to every user. A Ctrl-C is for
/// this process, which then deletes what was applied.
fn apply(kubectl: CommandLine, manifest: &str) -> Result<(), DriverError> {
    Local.run(&kubectl.args(["apply", "-f", "-"]).input(manifest))?;
    Ok(())
}

impl Launcher for Kubernetes {
    fn check(&self) -> Result<(), DriverError> {
        match Local.output(&kubectl().args(["version", "--client"])) {
            Ok(_) => Ok(()),
            Err(_) => Err(DriverError::NoProgram {
                engine: "Kubernetes",
                program: "kubectl".to_owned(),
                hint: "install it and configure access to the cluster",
            }),
        }
    }

    fn invite(&mut self, invitation: Invitation) {
        self.invitation = Some(invitation);
    }

    /// The Job starts lost drivers again by itself.
    fn start(&mut self, _ranks: &[u32]) -> Result<(), DriverError> {
        let Some(Invitation { coordinator, token, run_id }) = &self.invitation else {
            return Ok(());
        };
        if !self.applied {
            self.applied = true;
            apply(kubectl(), &manifest(&self.spec, run_id, coordinator, token.expose()))?;
        }
        Ok(())
    }

    fn why_missing(&mut self, _missing: &[u32]) -> Option<String> {
        None
    }

    fn timeout(&self) -> Duration {
        TIMEOUT
    }

    fn end(&mut self) {
        let Some(invitation) = self.invitation.as_ref().filter(|_| self.applied) else { return };
        let name = name_of(&invitation.run_id);
        let ended = ["wait", "--for=condition=complete", "job", &name, END_TIMEOUT_OPTION];
        // Drivers have been ordered to end. One that does not is deleted with its Job.
        let _ = Local.run(&kubectl().args(ended));
        let delete = ["delete", "job,secret", &name, "--ignore-not-found", "--wait=false"];
        // A Job that cannot be deleted ends with its drivers, which were ordered to end.
        let _ = Local.run(&kubectl().args(delete));
        self.applied = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::drivers::{DriverEngine, Spread};

    fn spec(count: u32, image: &str, cpu: &str) -> DriverSpec {
        let (image, cpu) = (Some(image.to_owned()), cpu.to_owned());
        let (engine, spread) = (DriverEngine::Kubernetes, Spread::Sessions);
        DriverSpec { engine, count, image, cpu, spread, listen: None }
    }

    #[test]
    fn the_manifest_has_a_secret_an_indexed_job_and_nothing_left_to_fill_in() {
        let spec = spec(4, "registry/pgio:2\"\nkind: evil", "500m");
        let text = manifest(&spec, "20261125T011500Z-7", "10.0.0.1:7,host:7", "secret");
        let documents: Vec<&str> = text.split("---\n").collect();
        assert_eq!(documents.len(), 2);
        assert!(documents[0].contains("kind: Secret") && !documents[1].contains("\"secret\""));
        for line in [
            "  name: pgio-20261125t011500z-7",
            "  completions: 4",
            "  completionMode: Indexed",
            "  backoffLimitPerIndex: 6",
            "        podAntiAffinity:",
            "          value: \"10.0.0.1:7,host:7\"",
            "          requests: {cpu: \"500m\", memory: 256Mi}",
            "        image: \"registry/pgio:2\\\"\\nkind: evil\"",
        ] {
            assert!(text.contains(line), "{line}:\n{text}");
        }
        let open =
            ["{name}", "{count}", "{image}", "{cpu}", "{token}", "{coordinator}", "_variable}"];
        assert!(open.iter().all(|placeholder| !text.contains(placeholder)), "{text}");
    }

    #[test]
    fn a_kubectl_that_hangs_is_an_error_and_does_not_show_the_token() {
        let hangs = CommandLine::new("sh").args(["-c", "exec sleep 600"]);
        let error = apply(hangs.timeout(Duration::from_millis(50)), "token: secret").unwrap_err();
        let text = error.to_string();
        assert!(text.contains("did not finish within 0.05 s"), "{text}");
        assert!(!text.contains("secret"), "{text}");
        let fails = CommandLine::new("sh").args(["-c", "echo no cluster >&2; exit 1"]);
        let text = apply(fails, "token: secret").unwrap_err().to_string();
        assert!(text.ends_with(": no cluster") && !text.contains("secret"), "{text}");
        assert!(apply(CommandLine::new("sh").args(["-c", "grep -q secret"]), "secret").is_ok());
    }
}
