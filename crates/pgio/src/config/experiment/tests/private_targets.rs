//! Targets with `private = true`: initdb, settings, directories, standbys.

use std::time::Duration;

use super::{error_of, read};
use crate::config::experiment::{PrivateTarget, SINGLE_TARGET, StandbyTarget, Target};

fn private(lines: &str) -> PrivateTarget {
    let file = format!("[target]\nprivate = true\n{lines}\n[[condition]]\nname = 'a'\n");
    match &read(&file).targets[SINGLE_TARGET] {
        Target::Private(private) => private.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_private_target_is_read_with_settings_and_standbys() {
    let target = private(
        "pg = 18\ninitdb = ['--data-checksums', '--wal-segsize=64']\n\
         postgres = { shared_buffers = '4GB', Jit = false, max_wal_senders = 20 }\n\
         directory = '/srv/fast'\nwal_directory = '/srv/wal'\n\
         standbys = [{ name = 'a' }, { name = 'b', directory = '/srv/slow', apply_delay = '1500ms', \
         archive = true, from = 'a', postgres = { fsync = false } }]",
    );
    assert_eq!((target.major, target.initdb.len()), (Some(18), 2));
    let settings: Vec<(&str, &str)> =
        target.settings.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    assert_eq!(settings, [("shared_buffers", "4GB"), ("jit", "off"), ("max_wal_senders", "20")]);
    let directories: Vec<_> = target.directories().map(|d| d.to_str().unwrap()).collect();
    assert_eq!(directories, ["/srv/fast", "/srv/wal", "/srv/slow"]);
    let b = StandbyTarget {
        directory: Some("/srv/slow".into()),
        from: Some("a".to_owned()),
        apply_delay: Duration::from_millis(1500),
        archive: true,
        settings: vec![("fsync".to_owned(), "off".to_owned())],
        ..StandbyTarget::named("b")
    };
    assert_eq!(target.standbys, [StandbyTarget::named("a"), b]);
}

#[test]
fn standbys_may_be_a_number_or_tables() {
    let names = |lines: &str| -> Vec<String> {
        private(lines).standbys.into_iter().map(|s| s.name).collect()
    };
    assert_eq!(names(""), [""; 0]);
    assert_eq!(names("standby = true"), ["standby"]);
    assert_eq!(names("standbys = 2"), ["standby1", "standby2"]);
    assert_eq!(names("standbys = 0"), [""; 0]);
    let tables = "[[target.standbys]]\nname = 'east'\n[[target.standbys]]\nname = 'west'";
    assert_eq!(names(tables), ["east", "west"]);
}

#[test]
fn errors_name_the_line_and_the_remedy() {
    let long = "s".repeat(41);
    for (lines, expected) in [
        (
            "standbys = [{ name = 'a' }, { name = 'a' }]",
            "target.standbys.name: `a` is already a standby of this target",
        ),
        (
            "standbys = [{ name = 'a', apply_delay = 'soon' }]",
            "target.standbys.apply_delay: `soon`",
        ),
        (
            "standbys = [{ name = 'a', apply_delay = '600h' }]",
            "target.standbys.apply_delay: must be at most 596h",
        ),
        (
            "standbys = [{ name = 'a', from = 'b' }, { name = 'b' }]",
            "target.standbys.from: `b` is not a standby listed before this one; this is the first standby; remove `from`",
        ),
        (
            "standbys = [{ name = 'east' }, { name = 'b', from = 'eats' }]",
            "target.standbys.from: `eats` is not a standby listed before this one; the nearest valid one is `east`",
        ),
        ("standbys = [{ directory = '/srv' }]", "target.standbys: requires name = \"...\""),
        ("standbys = [{ name = 'run' }]", "target.standbys.name: cannot be `run`"),
        ("standbys = [{ name = 'any' }]", "target.standbys.name: cannot be `any`"),
        ("standbys = [{ name = 'a-b' }]", "target.standbys.name: must be a name for"),
        ("standbys = [{ name = 'a', port = 1 }]", "target.standbys.port: is an unknown key"),
        ("standbys = 9", "target.standbys: must be a whole number from 0 to 8, not `9`"),
        ("standbys = 'two'", "target.standbys: must be a whole number"),
        (
            "standby = true\nstandbys = 2",
            "target.standbys: conflicts with standby = true; keep only one of them",
        ),
        ("initdb = ['-D', '/srv']", "target.initdb: must not contain `-D`: set directory instead"),
        ("initdb = '--data-checksums'", "target.initdb: must be an array of strings"),
        ("wal_directory = 'wal'", "target.wal_directory: must be an absolute path"),
        (
            "postgres = { port = 5 }",
            "target.postgres.port: cannot be set for a private server: a private server has its own",
        ),
        ("postgres = { a = [1] }", "target.postgres.a: must be one line of text"),
        ("postgres = { \"a'\" = 1 }", "target.postgres.a': is not the name of a setting"),
        ("postgres = { a = \"x\\ny\" }", "target.postgres.a: must be one line of text"),
        ("postgres = { a = 1, A = 2 }", "target.postgres.A: is set twice"),
        ("postgres = 'fsync'", "target.postgres: must be a table"),
    ] {
        let error = error_of(&format!("[target]\nprivate = true\n{lines}"));
        let line = 2 + lines.lines().count();
        assert!(error.starts_with(&format!("x.toml:{line}: {expected}")), "{lines}: {error}");
    }
    let error = error_of(&format!("[target]\nprivate = true\nstandbys = [{{ name = '{long}' }}]"));
    assert!(error.contains("at most 40"), "{error}");
    for key in ["initdb = []", "postgres = {}", "wal_directory = '/w'", "standbys = 2"] {
        let error = error_of(&format!("[target]\ndsn = 'x'\n{key}"));
        assert!(error.ends_with("requires private = true"), "{error}");
    }
}
