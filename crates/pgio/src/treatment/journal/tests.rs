use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};

use serde_json::json;

use super::*;

/// The journals of runs that were killed.
fn dead(dir: &Path) -> Result<Vec<Journal>, JournalError> {
    let all = unfinished(dir)?;
    assert!(all.living.is_empty());
    all.unreadable.into_iter().next().map_or(Ok(all.dead), Err)
}

fn step(what: &str) -> Record {
    Record {
        kind: "postgres".to_owned(),
        what: what.to_owned(),
        host: None,
        prior: json!(null),
        ours: json!("on"),
    }
}

fn on(dir: &Path, connect: &str) -> Journal {
    let mut journal = Journal::new(dir, "r1");
    journal.set_target(server(connect)).unwrap();
    journal
}

fn server(connect: &str) -> UndoTarget {
    UndoTarget { connect: connect.to_owned(), ..UndoTarget::default() }
}

#[test]
fn a_journal_names_the_changed_server() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = on(dir.path(), "host=a");
    let number = journal.intent(&step("x")).unwrap();
    journal.undone(number).unwrap();
    journal.set_target(server("host=b")).unwrap();
    let number = journal.intent(&step("y")).unwrap();
    journal.undone(number).unwrap();
    journal.set_target(UndoTarget { private: true, ..UndoTarget::default() }).unwrap();
    journal.intent(&step("a private cluster's")).unwrap();
    assert!(check_finished(dir.path()).is_ok(), "nothing on disk");
    let of_a_host = Record { host: Some("db".to_owned()), ..step("a device of this machine's") };
    journal.intent(&of_a_host).unwrap();
    journal.intent(&step("the private cluster's again")).unwrap();
    drop(journal);
    let [found] = &mut dead(dir.path()).unwrap()[..] else { panic!() };
    assert_eq!(found.open_steps(), [(4, of_a_host)]);
    found.undone(4).unwrap();
    found.remove().unwrap();
    let mut journal = on(dir.path(), "host=b");
    journal.intent(&step("y")).unwrap();
    drop(journal);
    assert_eq!(dead(dir.path()).unwrap()[0].target(), &server("host=b"));
}

#[test]
fn a_run_without_changes_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    on(dir.path(), "").finish().unwrap();
    assert!(check_finished(dir.path()).is_ok());
}

#[test]
fn an_amended_step_replaces_the_first_record_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = on(dir.path(), "host=/tmp");
    journal.intent(&step("a")).unwrap();
    let number = journal.intent(&step("b")).unwrap();
    let amended = Record { ours: json!({ "value": "on", "found": "1" }), ..step("b") };
    journal.amend(number, &amended).unwrap();
    let open = [(2, amended), (1, step("a"))];
    assert_eq!(journal.open_steps(), open);
    drop(journal);
    let [found] = &mut dead(dir.path()).unwrap()[..] else { panic!() };
    assert_eq!(found.open_steps(), open);
    assert_eq!(found.intent(&step("c")).unwrap(), 3);
    found.undone(2).unwrap();
    assert_eq!(found.open_steps(), [(3, step("c")), (1, step("a"))]);
}

#[test]
fn an_intent_survives_a_crash_and_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = on(dir.path(), "host=/tmp");
    let first = journal.intent(&step("a")).unwrap();
    journal.done(first).unwrap();
    journal.intent(&step("b")).unwrap();
    assert!(matches!(check_finished(dir.path()), Err(JournalError::Busy { .. })));
    drop(journal);
    assert!(matches!(check_finished(dir.path()), Err(JournalError::Unfinished(_))));
    let mut found = dead(dir.path()).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].target().connect, "host=/tmp");
    let steps = found[0].open_steps();
    assert_eq!(steps.iter().map(|(_, s)| s.what.as_str()).collect::<Vec<_>>(), ["b", "a"]);
    for (number, _) in steps {
        found[0].undone(number).unwrap();
    }
    found.remove(0).finish().unwrap();
    assert!(check_finished(dir.path()).is_ok());
}

#[test]
fn a_torn_last_line_is_no_change() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = on(dir.path(), "");
    journal.intent(&step("a")).unwrap();
    drop(journal);
    let path = dir.path().join("r1.journal");
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"{\"event\":\"int").unwrap();
    let mut found = dead(dir.path()).unwrap().remove(0);
    assert_eq!(found.open_steps().len(), 1);
    // An undo that is interrupted in its turn leaves a journal that can be read.
    found.intent(&step("b")).unwrap();
    drop(found);
    assert_eq!(dead(dir.path()).unwrap()[0].open_steps().len(), 2);
    file.write_all(b"{\"event\":\"int\n").unwrap();
    assert!(matches!(dead(dir.path()), Err(JournalError::Broken { line: 4, .. })));
}

#[test]
fn the_rest_of_a_torn_line_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = on(dir.path(), "");
    journal.intent(&step("a")).unwrap();
    let path = dir.path().join("r1.journal");
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    // Within a character, too.
    file.write_all(b"{\"event\":\"intent\",\"number\":2,\"step\":\"\xc3").unwrap();
    assert_eq!(unfinished_after_its_end(dir.path()).len(), 1);
    journal.intent(&step("b")).unwrap();
    drop(journal);
    let found = dead(dir.path()).unwrap().remove(0);
    let steps: Vec<Record> = found.open_steps().into_iter().map(|(_, step)| step).collect();
    assert_eq!(steps, [step("b"), step("a")]);
}

/// Reads a copy of the journal, since its writer still holds the lock.
fn unfinished_after_its_end(dir: &Path) -> Vec<(u32, Record)> {
    let copy = tempfile::tempdir().unwrap();
    fs::copy(dir.join("r1.journal"), copy.path().join("r1.journal")).unwrap();
    dead(copy.path()).unwrap()[0].open_steps()
}

#[test]
fn a_step_that_could_not_be_marked_as_undone_stays() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = on(dir.path(), "");
    let number = journal.intent(&step("a")).unwrap();
    journal.refuse_writes();
    assert!(matches!(journal.undone(number), Err(JournalError::Io { doing: "write", .. })));
    assert_eq!(journal.open_steps().len(), 1);
    journal.finish().unwrap();
    assert_eq!(dead(dir.path()).unwrap()[0].open_steps().len(), 1);
}

#[test]
fn a_journal_of_another_server_does_not_block_a_run() {
    let dir = tempfile::tempdir().unwrap();
    let set = |names: &[&str]| names.iter().map(|n| Resource::server(n)).collect::<BTreeSet<_>>();
    let connects = |all: &[&str]| all.iter().map(|c| (*c).to_owned()).collect::<BTreeSet<_>>();
    let checked = |connects: &BTreeSet<String>, resources: &BTreeSet<Resource>| {
        check(dir.path(), &Subject { connects, resources, is_another_server: &|_| false })
    };
    let mut journal = Journal::new(dir.path(), "r1");
    let touches = set(&["1", "disk"]).into_iter().collect();
    journal.set_target(UndoTarget { touches, ..server("host=a") }).unwrap();
    journal.intent(&step("x")).unwrap();
    let none = BTreeSet::new();
    assert!(checked(&connects(&["host=b"]), &set(&["2"])).unwrap().is_empty(), "it lives");
    let error = checked(&none, &set(&["disk"])).unwrap_err().to_string();
    let who = format!("run r1, process {} (", std::process::id());
    assert!(error.starts_with(&who) && error.contains("changing server 1, server disk"), "{error}");
    let living = unfinished(dir.path()).unwrap();
    assert_eq!((living.dead.len(), living.living.len()), (0, 1), "not to be undone by others");
    drop(journal);
    let others = checked(&connects(&["host=b"]), &set(&["2"])).unwrap();
    assert_eq!(others.len(), 1);
    assert!(others[0].describe_changes().starts_with("server 1"));
    for (connect, resource) in [("host=a", "2"), ("host=b", "1"), ("host=b", "disk")] {
        let error = checked(&connects(&[connect]), &set(&[resource])).unwrap_err();
        assert!(matches!(error, JournalError::Unfinished(_)), "{connect} {resource}: {error}");
    }
    // One that does not say.
    on(dir.path(), "host=c").intent(&step("x")).unwrap_err();
    let mut old = Journal::new(dir.path(), "r2");
    old.set_target(server("host=c")).unwrap();
    old.intent(&step("x")).unwrap();
    drop(old);
    assert!(checked(&connects(&["host=b"]), &set(&["2"])).is_err());
}

#[test]
fn a_foreign_journal_is_refused_and_others_are_read() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    on(dir.path(), "host=a").intent(&step("a")).unwrap();
    let planted = dir.path().join("planted.journal");
    fs::copy(dir.path().join("r1.journal"), &planted).unwrap();
    fs::set_permissions(&planted, fs::Permissions::from_mode(0o666)).unwrap();
    let all = unfinished(dir.path()).unwrap();
    assert_eq!((all.dead.len(), all.unreadable.len()), (1, 1));
    assert!(all.unreadable[0].to_string().contains("is writable by other users"));
    drop(all);
    fs::remove_file(&planted).unwrap();
    std::os::unix::fs::symlink("r1.journal", &planted).unwrap();
    assert_eq!(unfinished(dir.path()).unwrap().unreadable.len(), 1, "a link");
    fs::remove_file(&planted).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(unfinished(dir.path()), Err(JournalError::Directory(_))));
    assert!(matches!(check_finished(dir.path()), Err(JournalError::Directory(_))));
    let mut journal = Journal::new(dir.path(), "r2");
    journal.set_target(server("host=a")).unwrap();
    assert!(journal.intent(&step("a")).is_err(), "nothing is changed before it is on disk");
}

/// The disk was full: the journal was begun, and its first change was not made.
#[test]
fn a_journal_without_a_change_keeps_no_run_from_starting() {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = on(dir.path(), "host=a");
    let number = journal.intent(&step("a")).unwrap();
    assert!(matches!(check_finished(dir.path()), Err(JournalError::Busy { .. })));
    journal.undone(number).unwrap();
    drop(journal);
    assert!(dir.path().join("r1.journal").exists());
    assert!(check_finished(dir.path()).is_ok());
    assert!(unfinished_journal_of(dir.path(), "r1").is_none());
}
