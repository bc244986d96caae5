//! What CI needs: rules against older runs, JUnit, OpenMetrics, the wide table, and the shipped recipes, whose
//! shell steps run here as they stand.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pgio_results::Outcome;
use pgio_verdict::test_support::{demo, stored_runs, write_runs};

use pgio_tests::fixture::{INSTALLED, fresh_database, is_installed, pgio_exe, shared_primary};
use pgio_tests::workdir::{Workdir, experiment};

/// Runs that vary by 0.4 %, at this level.
fn write(dir: &Path, runs: u32, level: f64) {
    write_runs(dir, &stored_runs(runs, |run| level * (1.0 + 0.004 * f64::from(run % 3)))).unwrap();
}

#[test]
fn rules_decide_by_the_runs_and_their_exit_code() {
    let dir = Workdir::new();
    for (name, runs, level) in [("old", 3, 1.0), ("same", 3, 1.0), ("slow", 3, 0.8)] {
        write(&dir.path().join(name), runs, level);
    }
    let paths =
        |name: &str| -> Vec<String> { (1..=3).map(|n| format!("{name}/run-{n:04}")).collect() };
    let report = |new: &[String], more: &[&str]| {
        let (old, mut args) = (paths("old"), vec!["report"]);
        args.extend(new.iter().map(String::as_str));
        args.push("--against");
        args.extend(old.iter().map(String::as_str));
        args.extend(more);
        dir.pgio(&args)
    };
    let rule = ["--fail-if", "slower:5%"];
    let slow = report(&paths("slow"), &rule)
        .expect(8, &["gate failed: slower by more than 5 %: local, on"]);
    assert!(slow.out.contains("−20.0 %"), "the new runs are B: {slow}");
    report(&paths("same"), &rule).expect(0, &["gate passed"]);
    report(&paths("slow")[..1], &rule).expect(9, &["1 new and 3 old runs, 3 of each are needed"]);
    report(&paths("slow"), &["--gate", "--matters", "5%"]).expect(8, &["gate failed"]);
    report(&paths("slow"), &["--gate"]).expect(2, &["no margin is named"]);
    report(&paths("slow"), &["--fail-if", "tps:slower:5%"])
        .expect(2, &["no run has the metric `tps`"]);
    let xml =
        report(&paths("slow"), &["--fail-if", "slower:5%", "--format", "junit"]).expect(8, &[]);
    assert!(
        xml.out.contains("tests=\"3\" failures=\"3\"") && xml.out.ends_with("</testsuites>\n"),
        "{xml}"
    );
    well_formed(&dir, &xml.out);
    report(&paths("slow"), &["--format", "junit"]).expect(2, &["add --fail-if or --gate"]);

    for wrong in ["slower", "slower:5", "faster:5%", "slower:0%", "slower:90%", "rubbish"] {
        let refused =
            report(&paths("slow"), &["--fail-if", wrong]).expect(2, &["such as slower:5%"]);
        assert_eq!(refused.out, "");
    }
    dir.pgio(&["report", "old/run-0001", "--fail-if", "slower:5%"]).expect(2, &["--against"]);
    for new in [&["slow/run-0001"][..], &["slow/run-0001", "slow/run-0002"]] {
        let without_rules = [&["report", "old/run-0001"][..], new, &["--format", "junit"]].concat();
        let refused = dir.pgio(&without_rules).expect(2, &["name the older ones after --against"]);
        assert_eq!(refused.out, "", "no suite without a case");
    }
    let both =
        ["report", "old/run-0001", "--against", "slow/run-0001", "--wide", "--format", "csv"];
    dir.pgio(&both).expect(2, &["--wide is a form of --format csv for one experiment"]);
    dir.pgio(&["report", "old/run-0001", "--wide"]).expect(2, &["--wide is a form of"]);
}

#[test]
fn failed_trials_of_the_new_runs_let_no_rule_pass() {
    let dir = Workdir::new();
    let write = |name: &str, fails: fn(usize, u32) -> bool| {
        let mut runs = stored_runs(4, |run| 1.0 + 0.004 * f64::from(run % 3));
        for (number, run) in (1..).zip(&mut runs) {
            for trial in &mut run.trials {
                let place = trial.place.as_ref().unwrap();
                if place.condition == "on" && fails(number, place.block) {
                    trial.outcome = Outcome::Failed { error: "out of memory".to_owned() };
                }
            }
        }
        write_runs(&dir.path().join(name), &runs).unwrap();
    };
    write("old", |_, _| false);
    write("dead", |run, _| run == 2);
    write("half", |_, block| block <= 2);
    let report = |new: &str| {
        let paths =
            |name: &str| -> Vec<String> { (1..=4).map(|n| format!("{name}/run-{n:04}")).collect() };
        let (new, old) = (paths(new), paths("old"));
        let mut args = vec!["report"];
        args.extend(new.iter().map(String::as_str));
        args.push("--against");
        args.extend(old.iter().map(String::as_str));
        args.extend(["--fail-if", "slower:5%"]);
        dir.pgio(&args)
    };
    let why = ["gate undecided", "new run 2 of 4 has no valid trial", "missing-runs", "4 / 3"];
    report("dead").expect(9, &why);
    report("half").expect(8, &["gate failed", "on (failed in 8 of 16 trials", "failed-trials"]);
    report("old").expect(0, &["gate passed"]);
}

/// By Python's parser, if there is one.
fn well_formed(dir: &Workdir, xml: &str) {
    dir.write("junit.xml", xml);
    if is_installed("python3") {
        let parse = "import xml.etree.ElementTree as E; E.parse('junit.xml')";
        let parsed =
            Command::new("python3").args(["-c", parse]).current_dir(dir.path()).output().unwrap();
        assert!(parsed.status.success(), "{}", String::from_utf8_lossy(&parsed.stderr));
    }
}

#[test]
fn report_renders_openmetrics_wide_csv_and_junit() {
    let dir = Workdir::new();
    write_runs(dir.path(), &[demo()]).unwrap();
    let shown = |more: &[&str]| {
        dir.pgio(&[&["report", "run-0001", "--format"], more].concat()).expect(0, &[]).out
    };
    let metrics = shown(&["openmetrics"]);
    assert!(
        metrics.contains("# TYPE pgio_commits_per_second gauge\n") && metrics.ends_with("# EOF\n"),
        "{metrics}"
    );
    if is_installed("promtool") {
        dir.write("pgio.prom", &metrics);
        let check = "promtool check metrics < pgio.prom";
        let checked =
            Command::new("sh").args(["-c", check]).current_dir(dir.path()).output().unwrap();
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    }
    let wide = shown(&["csv", "--wide"]);
    assert_eq!(wide.lines().count(), 1 + 24);
    assert!(wide.starts_with("experiment,run_id,line,condition,is_baseline,block,"), "{wide}");
    let xml = shown(&["junit"]);
    assert!(xml.contains("tests=\"4\" failures=\"0\" errors=\"0\" skipped=\"0\""), "{xml}");
    well_formed(&dir, &xml);
}

/// The shell steps of a recipe, in their order.
fn steps(recipe: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/ci").join(recipe);
    let text = fs::read_to_string(path).unwrap();
    assert!(!text.contains('\t'), "YAML has no tabs");
    let mut steps = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let begins = ["run: |", "- |"].iter().any(|block| line.trim_start() == *block);
        if !begins {
            continue;
        }
        let indent = line.len() - line.trim_start().len();
        let inside =
            |line: &&str| line.trim().is_empty() || line.len() - line.trim_start().len() > indent;
        let mut step = String::new();
        while let Some(line) = lines.next_if(inside) {
            step += &format!("{}\n", line.trim_start());
        }
        steps.push(step);
    }
    steps
}

struct Runner {
    dir: Workdir,
    bin: PathBuf,
}

impl Runner {
    /// A checkout with a short experiment, and pgio in the path.
    fn new() -> Runner {
        let dir = Workdir::new();
        let dsn = fresh_database(shared_primary(INSTALLED));
        let keys = "blocks = 1\nduration = \"100ms\"\naa = false";
        fs::create_dir(dir.path().join("bench")).unwrap();
        dir.write(
            "bench/experiment.toml",
            &experiment(&dsn, keys, "sessions = 1", &[("plain", "")]),
        );
        Runner { bin: pgio_exe().parent().unwrap().to_owned(), dir }
    }

    #[track_caller]
    fn run(&self, step: &str, code: i32) -> String {
        // As both runners do: bash, ended by the first failure.
        let output = Command::new("bash")
            .args(["-e", "-o", "pipefail", "-c", step])
            .current_dir(self.dir.path())
            .env("PATH", format!("{}:{}", self.bin.display(), std::env::var("PATH").unwrap()))
            .env("PGIO_STATE_DIR", self.dir.path().join("state"))
            .env("EXPERIMENT", "bench/experiment.toml")
            .env("RULE", "slower:5%")
            .env("GITHUB_STEP_SUMMARY", self.dir.path().join("summary.md"))
            .envs([("CI_COMMIT_BRANCH", "main"), ("CI_DEFAULT_BRANCH", "main")])
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].map(|s| String::from_utf8(s).unwrap()).concat();
        assert_eq!(output.status.code(), Some(code), "{step}\n{text}");
        text
    }

    fn has(&self, name: &str) -> bool {
        self.dir.path().join(name).exists()
    }

    /// Replaces the runs of one side by made-up ones.
    fn replace(&self, side: &str, level: f64) {
        let side = self.dir.path().join(side);
        fs::remove_dir_all(&side).unwrap();
        write(&side, 3, level);
    }
}

#[test]
fn the_recipe_for_github_actions_runs() {
    let steps = steps("github-actions.yml");
    let [measure, judge, keep] = steps.as_slice() else { panic!("{steps:?}") };
    let runner = Runner::new();
    runner.run(measure, 0);
    assert!(runner.has("pgio-new/run-3/report.html"));
    assert!(runner.run(judge, 0).contains("no runs of main yet"));
    runner.run(keep, 0);
    assert!(runner.has("pgio-old/run-1/trials.jsonl"));
    // The three runs of a real machine against copies of themselves may be undecided, never slower.
    runner.run(judge, 0);
    assert!(runner.has("pgio.xml") && runner.has("summary.md"));
    runner.replace("pgio-old", 1.0);
    runner.replace("pgio-new", 0.8);
    assert!(runner.run(judge, 8).contains("gate failed: slower by more than 5 %"));
    runner.replace("pgio-new", 0.95);
    assert!(runner.run(judge, 0).contains("::warning title=pgio::undecided"));
}

#[test]
fn the_recipe_for_gitlab_runs() {
    let steps = steps("gitlab-ci.yml");
    let [measure, judge] = steps.as_slice() else { panic!("{steps:?}") };
    let runner = Runner::new();
    runner.run(measure, 0);
    runner.run(judge, 0);
    assert!(runner.has("pgio-old/run-3/trials.jsonl"));
    runner.replace("pgio-old", 1.0);
    runner.replace("pgio-new", 0.8);
    runner.run(judge, 8);
    assert!(runner.has("pgio.xml"));
}
