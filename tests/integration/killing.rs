//! kill -9 at any moment of an experiment that uses every treatment: `pgio undo` puts back exactly
//! what was there.
//!
//! The server, its loop device, the limits and the control groups are real; what this machine has
//! not (DRBD, netem) is played by the programs in killing/fakes. PGIO_TEST_KILLS is the number of
//! moments, here and in the other tests that kill; a few are enough for every day.

mod stage;

use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

use pgio::rng::SplitMix64;

use self::stage::{FOREIGN_CHANGES, Stage};
use crate::disk;

/// From the start of pgio: refused before, and several blocks after.
const EARLIEST_MS: u64 = 300;
const LATEST_MS: u64 = 3000;

/// So many on an ordinary day.
pub(crate) fn kills(ordinary: u64) -> u64 {
    std::env::var("PGIO_TEST_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(ordinary)
}

#[test]
fn killed_at_any_moment_everything_is_restored() {
    if !disk::is_root("killing") {
        return;
    }
    let stage = Stage::set_up();
    let before = stage.snapshot();
    let mut random = SplitMix64::new(11);
    let (mut open, mut changed) = (BTreeSet::new(), 0);
    let kills = kills(7);
    for kill in 0..kills {
        let begun = Instant::now();
        let mut running = if kill == 0 { stage.start_lasting() } else { stage.start() };
        match kill {
            // One inside a change and one before any, whatever the others are.
            0 => running.wait_until("all in force", || stage.is_all_in_force()),
            4 => {}
            _ => {
                let moment = EARLIEST_MS + random.next_u64() % (LATEST_MS - EARLIEST_MS);
                thread::sleep(Duration::from_millis(moment));
            }
        }
        let moment = begun.elapsed().as_millis();
        // Every other time all that pgio started goes as well, as when a machine goes down.
        stage.kill(running, kill % 2 == 1);
        open.insert(stage.open_steps());
        changed += usize::from(stage.snapshot() != before);
        if kill % 3 == 2 {
            // An undo that is killed in its turn is taken up by the next one.
            let undo = stage.start_undo(&[]);
            thread::sleep(Duration::from_millis(random.next_u64() % 300));
            stage.kill_if_running(undo);
        }
        stage.undo(&[]).expect(0, &[]);
        stage
            .assert_same(&before, &format!("killed for the {}. time, after {moment} ms", kill + 1));
        assert_eq!(stage.undo(&[]).expect(0, &[]).out, stage.dir.nothing_to_undo());
    }
    eprintln!("{kills} kills, {changed} left something; steps not taken back: {open:?}");
    assert!(changed > 0 && open.len() > 1, "some moments lie inside a change: {open:?}");
}

#[test]
fn undo_handles_a_reboot_in_between() {
    if !disk::is_root("killing") {
        return;
    }
    let stage = Stage::set_up();
    let before = stage.snapshot();
    let mut running = stage.start_lasting();
    running.wait_until("all in force", || stage.is_all_in_force());
    stage.kill(running, true);
    assert_ne!(stage.snapshot(), before);
    stage.reboot();
    // Only files on disk survive a reboot.
    let rebooted = stage.snapshot();
    stage.undo(&[]).expect(0, &["Restored wal_writer_delay"]);
    let after = stage.snapshot();
    assert!(stage.dir.journals().is_empty());
    for (name, value) in &after {
        let expected =
            if ["auto.conf", "file"].contains(&name.as_str()) { &before } else { &rebooted };
        assert_eq!(expected.get(name), Some(value), "{name}");
    }
    assert_eq!(before.len(), after.len());
}

#[test]
fn undo_asks_about_a_later_change() {
    if !disk::is_root("killing") {
        return;
    }
    let stage = Stage::set_up();
    let before = stage.snapshot();
    for kinds in FOREIGN_CHANGES {
        let mut running = stage.start_lasting();
        running.wait_until("all in force", || stage.is_all_in_force());
        stage.kill(running, true);
        kinds.iter().for_each(|kind| stage.change_foreign(kind));
        let meanwhile = stage.snapshot();
        let asked_about =
            stage.undo(&[]).expect(6, &["someone changed it since", "--keep", "--restore"]);
        for kind in *kinds {
            let is_asked = |l: &str| l.contains(kind) && l.contains("someone changed it since");
            assert!(asked_about.out.lines().any(is_asked), "{kind}: {asked_about}");
        }
        assert_eq!(stage.dir.journals().len(), 1, "{asked_about}");
        let asked = stage.snapshot();
        let changed: Vec<&String> = asked
            .iter()
            .filter(|(name, value)| before.get(*name) != Some(value))
            .map(|(n, _)| n)
            .collect();
        assert!(!changed.is_empty(), "{kinds:?}: the stranger's value stays until he is asked");
        assert_ne!(meanwhile, before);
        stage.undo(&["--restore"]).expect(0, &["Restored"]);
        stage.assert_same(&before, &kinds.join(" and "));
    }
}
