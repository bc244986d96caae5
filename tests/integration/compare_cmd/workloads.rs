//! An experiment of several workloads: its one directory is what is resumed and reported. What a resumed one refuses:
//! `application::loop_tests`.

use std::fs;

use rustix::process::Signal;

use pgio_tests::fixture::{INSTALLED, fresh_database, own_primary, shared_primary};
use pgio_tests::workdir::{BETWEEN_TRIAL_CHECKS, Workdir, experiment, tolerate};

const KEYS: &str = "blocks = 1\nduration = \"200ms\"\naa = false\nseed = 5";
const CONDITIONS: [(&str, &str); 2] = [("lazy", "synchronous_commit = \"off\""), ("as it is", "")];

fn one(dsn: &str) -> String {
    experiment(dsn, KEYS, "name = \"one\"", &CONDITIONS)
}

fn two(dsn: &str) -> String {
    one(dsn).replace("[workload]", "[[workload]]")
        + "\n[[workload]]\nname = \"two\"\nkind = \"commit\"\nsessions = 2\n"
}

/// A stop during the last undo of the first workload, whose trials are all stored by then.
#[test]
fn a_stop_between_two_workloads_is_an_interruption() {
    let server = own_primary(INSTALLED);
    let dsn = fresh_database(&server);
    let dir = Workdir::new();
    let [set, undoing] = ["set", "undoing"].map(|name| dir.path().join(name));
    let quiet = tolerate(&BETWEEN_TRIAL_CHECKS);
    let keys = format!("blocks = 1\nduration = \"100ms\"\naa = false\nrepeats = 0\n{quiet}");
    let command = format!(
        "command = {{ name = \"slow\", apply = \"touch {0}\", verify = \"test -e {0}\", \
         undo = \"touch {1}; sleep 1; rm {0}\" }}\n",
        set.display(),
        undoing.display()
    );
    let one = experiment(&dsn, &keys, "name = \"one\"", &[("slow", "")]) + &command;
    let one = one.replace("[target]", "[target]\nhost = \"local\"");
    let two = one.replace("[workload]", "[[workload]]")
        + "\n[[workload]]\nname = \"two\"\nkind = \"commit\"\nsessions = 2\n";
    let mut running = dir.start_compare(&two);
    running.wait_until("the condition is being undone", || undoing.exists());
    running.signal(Signal::INT);
    let result = running.wait().expect(130, &["are kept in out; continue with --resume out"]);
    assert!(!result.out.contains("Results: "), "{result}");
    assert!(!set.exists() && dir.journals().is_empty() && !dir.out().join("two").exists());

    dir.pgio(&["compare", "--resume", "out"])
        .expect(0, &["out/one is already complete", "Results: out/one", "Results: out/two"]);
}

#[test]
fn the_report_of_the_common_directory_covers_all_workloads() {
    let dsn = fresh_database(shared_primary(INSTALLED));
    let dir = Workdir::new();
    dir.compare(&two(&dsn)).expect(0, &[]);
    for format in ["text", "markdown"] {
        dir.pgio(&["report", "out", "--format", format]).expect(0, &["test one: ", "test two: "]);
    }
    let rows = dir.pgio(&["report", "out", "--format", "csv"]).expect(0, &["\ntest two,"]).out;
    assert_eq!(rows.matches("experiment,condition").count(), 1, "{rows}");
    dir.pgio(&["report", "out", "--format", "json"])
        .expect(2, &["several workloads cannot be shown together as json"]);

    // The page that leads to both, as compare left it.
    let left = fs::read_to_string(dir.out().join("report.html")).unwrap();
    let page = dir.pgio(&["report", "out", "--format", "html"]).expect(0, &[]);
    assert!(left.contains("one/report.html") && left.contains("<h1>test</h1>"), "{left}");
    assert_eq!(page.out, left);
    dir.pgio(&["report", "out", "--format", "html", "--output", "again.html"]).expect(0, &[]);
    // Its links lead there from where it is.
    let again = fs::read_to_string(dir.path().join("again.html")).unwrap();
    let there = ["one", "two"].iter().fold(left, |page, workload| {
        page.replace(&format!("\"{workload}/report"), &format!("\"out/{workload}/report"))
    });
    assert_eq!(again, there);
    dir.pgio(&["report", "out", "--format", "html", "--baseline", "as it is"])
        .expect(2, &["name the directory of one workload"]);
    for workload in ["one", "two"] {
        let place = format!("out/{workload}");
        let page = dir.pgio(&["report", &place, "--format", "html"]).expect(0, &[]).out;
        let left = fs::read_to_string(dir.path().join(place).join("report.html")).unwrap();
        assert_eq!(page, left);
    }

    // The reverse, in every format that shows it.
    let other = ["--baseline", "as it is"];
    let expected = "Compared with as it is; the experiment's own baseline is lazy";
    for (place, format) in [("out", "text"), ("out", "markdown"), ("out/one", "html")] {
        dir.pgio(&[&["report", place, "--format", format][..], &other].concat())
            .expect(0, &[expected]);
    }
    dir.pgio(&[&["report", "out", "out"][..], &other].concat()).expect(0, &["A: test one"]);
    dir.pgio(&["report", "out", "--baseline", "b"])
        .expect(2, &["--baseline: out/one: unknown condition `b` (conditions: lazy, as it is)"]);

    let both = dir.pgio(&["report", "out", "out"]).expect(0, &["A: test one", "A: test two"]);
    assert!(!both.err.contains("excluded"), "{both}");
    dir.pgio(&["report", "out", "out/one"]).expect(0, &["A: test one", "out/two is excluded"]);
}
