//! The table: what is broken, how, and which check must see it.
//!
//! A line names what differs from [`BASE`], a private server on which one session commits. Lines with [`Place::Lab`]
//! need the lab, `lab/enter pgio-bench truth faults`: its hosts are virtual machines in user mode, where reading a
//! clock is a system call. Every fault is undone, so that the lab can be used afterwards.

use std::fs;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::accusations::Expected;
use super::experiment::{
    Fault, Place, Setup, Workload, failed, run, set, start_detached, wait_for,
};
use pgio::cli::exit::{Failure, Outcome};

/// Number of rules. The last one is the statistics' own: a window must be steady, and so must the blocks.
pub(super) const RULES: u32 = 16;

const BASE: Fault = Fault {
    rule: 0,
    what: "",
    expected: Expected::ImagesNote,
    place: Place::Server,
    standby: false,
    settings: &[],
    keys: "blocks = 1\nduration = \"1s\"",
    workload: Workload::Commit(1),
    conditions: &["a", "b"],
    last: "",
    prepare: |_| Ok(()),
    before_trial: |_, _| Ok(()),
    inside: &[],
    after: |_| Ok(()),
};

const fn slob(scale: &'static str, work_unit: u32, update_pct: u32) -> Workload {
    Workload::Slob { scale, work_unit, update_pct, more: "" }
}

/// At least one for each rule, in their order.
pub(super) const FAULTS: &[Fault] = &[
    Fault {
        rule: 1,
        what: "a setting of the server that no condition declares changes before each trial of `b`",
        expected: Expected::invalid("environment-differs", Some("b")),
        keys: "blocks = 2\nduration = \"1s\"",
        before_trial: |server, next| {
            server.set("random_page_cost", if next.is_b { "3" } else { "4" })
        },
        ..BASE
    },
    Fault {
        rule: 1,
        what: "the read-ahead of the server's device changes before each trial of `b`",
        expected: Expected::invalid("environment-differs", Some("b")),
        place: Place::LoopDisk,
        keys: "blocks = 2\nduration = \"1s\"",
        before_trial: |server, next| {
            let disk = server.disk.as_ref().expect("it is on a disk of its own");
            let queue = format!("/sys/dev/block/{}/queue/read_ahead_kb", disk.number());
            fs::write(queue, if next.is_b { "4096" } else { "128" }).map_err(failed)
        },
        ..BASE
    },
    OTHER_WRITE_BACK,
    OTHER_GOVERNOR,
    Fault {
        rule: 2,
        what: "a setting that the condition declares has another value for two seconds of the window",
        expected: Expected::invalid("treatment-in-force", Some("set")),
        keys: "blocks = 1\nduration = \"5s\"",
        conditions: &["as it is", "set"],
        last: "postgres = { wal_writer_delay = \"150ms\" }\n",
        inside: &[
            (0.5, |server| server.set("wal_writer_delay", "777ms")),
            (2.5, |server| server.set("wal_writer_delay", "150ms")),
        ],
        ..BASE
    },
    Fault {
        rule: 3,
        what: "lab: DRBD is disconnected inside the window of a condition that needs protocol C",
        expected: Expected::invalid("drbd-connection", Some("C")),
        conditions: &["C"],
        last: "drbd = { resource = \"pgio\", protocol = \"C\", secondary = \"secondary\" }\n",
        ..DISCONNECTED
    },
    Fault {
        rule: 3,
        what: "lab: DRBD below the server is disconnected inside the window of a condition without a drbd treatment",
        expected: Expected::warning("drbd-connection-lost", Some("a")),
        conditions: &["a"],
        ..DISCONNECTED
    },
    Fault {
        rule: 4,
        what: "synchronous_standby_names becomes empty inside a window with remote_apply",
        expected: Expected::invalid("treatment-in-force", Some("remote_apply")),
        standby: true,
        keys: "blocks = 1\nduration = \"4s\"",
        conditions: &["remote_apply"],
        last: "postgres = { synchronous_commit = \"remote_apply\" }\n",
        inside: &[(0.5, |server| server.set("synchronous_standby_names", ""))],
        ..BASE
    },
    Fault {
        rule: 5,
        what: "fsync is off, and no condition declares it",
        expected: Expected::invalid("durability", None),
        settings: &[("fsync", "off")],
        ..BASE
    },
    Fault {
        rule: 5,
        what: "fsync is off on the synchronous standby",
        expected: Expected::warning("standby-durability", None),
        standby: true,
        prepare: |server| {
            let standby = server.cluster.as_ref().and_then(|pair| pair.standby_conninfo());
            set(&standby.unwrap_or_default(), "fsync", "off")
        },
        ..BASE
    },
    Fault {
        rule: 6,
        what: "pgio's own process keeps all cores busy while one of its threads serves four sessions",
        expected: Expected::invalid("generator-bound", None),
        keys: "blocks = 1\nduration = \"3s\"\nburn_in = false",
        workload: Workload::Slob {
            scale: "32M",
            work_unit: 1,
            update_pct: 0,
            more: "engine = \"client\"\nsessions = 4\n",
        },
        conditions: &["a"],
        prepare: |server| {
            // Each session of terminals and services has an equal share, so other work would leave less than a
            // core. Without the right to it, an idle machine is needed.
            let _ = fs::write(OWN_SHARE, "-10");
            server.keep_cores_busy();
            Ok(())
        },
        after: |server| {
            server.busy.store(false, Ordering::Relaxed);
            let _ = fs::write(OWN_SHARE, "0");
            Ok(())
        },
        ..BASE
    },
    Fault {
        rule: 7,
        what: "dead rows of another program make the table larger after block 1",
        expected: Expected::invalid("data-drift", None),
        settings: &[("autovacuum", "off")],
        keys: "blocks = 3\nduration = \"1s\"\nburn_in = false",
        workload: slob("8M", 8, 0),
        before_trial: |server, next| {
            if next.block != 2 || !server.is_first() {
                return Ok(());
            }
            // Keys that no session visits.
            server.execute(
                "INSERT INTO pgio1 SELECT mykey + 1000000, scratch, filler FROM pgio1 WHERE mykey <= 200; \
                 DELETE FROM pgio1 WHERE mykey > 1000000",
            )
        },
        ..BASE
    },
    Fault {
        rule: 8,
        what: "an administrator's CHECKPOINT inside each window of `disturbed`",
        expected: Expected::warning("checkpoints", Some("disturbed")),
        keys: "blocks = 2\nduration = \"2s\"",
        conditions: &["a", "b", "disturbed"],
        inside: &[(0.5, |server| server.execute("CHECKPOINT"))],
        ..BASE
    },
    Fault {
        rule: 9,
        what: "each window of updates begins at a checkpoint and ends before it has changed a page twice",
        expected: Expected::ImagesNote,
        keys: "blocks = 1\nduration = \"1s\"\nwarmup = \"0s\"\nprimary = \"updates_per_second\"",
        workload: slob("128M", 8, 100),
        ..BASE
    },
    Fault {
        rule: 10,
        what: "another table is full of dead rows, and autovacuum starts on it inside the window",
        expected: Expected::warning("autovacuum", Some("disturbed")),
        // So slow that a worker is seen by a sample each second.
        settings: &[
            ("autovacuum_naptime", "1s"),
            ("autovacuum_vacuum_cost_delay", "20ms"),
            ("autovacuum_vacuum_cost_limit", "20"),
        ],
        keys: "blocks = 1\nduration = \"8s\"",
        conditions: &["disturbed"],
        prepare: |server| {
            server.execute(
                "CREATE TABLE other WITH (autovacuum_enabled = off) AS SELECT n FROM generate_series(1, 200000) n; \
                 UPDATE other SET n = n + 1",
            )
        },
        inside: &[(0.5, |server| {
            server.execute("ALTER TABLE other SET (autovacuum_enabled = on)")
        })],
        ..BASE
    },
    Fault {
        rule: 11,
        what: "the first trial meets empty buffers, without warm-up and burn-in; the others find the data there",
        expected: Expected::warning("cache-carry-over", None),
        settings: &[("shared_buffers", "256MB")],
        keys: "blocks = 3\nwarmup = \"0s\"\nburn_in = false",
        // Half as many visits as the table has blocks.
        workload: Workload::Slob {
            scale: "64M",
            work_unit: 8,
            update_pct: 0,
            more: "work_loop = 500\n",
        },
        prepare: |server| {
            server.cluster.as_ref().expect("it is a private server").restart_primary()?;
            Ok(())
        },
        ..BASE
    },
    COLD_ACTIVITY_LOG,
    Fault {
        rule: 13,
        what: "the WAL's file system never asks its device to flush (barrier=0)",
        expected: Expected::warning("lying-cache", None),
        place: Place::LoopDisk,
        keys: "blocks = 1\nduration = \"2s\"",
        prepare: |server| {
            let path = server.disk.as_ref().expect("it is on a disk of its own").path();
            run("mount", &["-o", "remount,barrier=0", &path.to_string_lossy()]).map(drop)
        },
        ..BASE
    },
    Fault {
        rule: 14,
        what: "another program writes to the server's device inside each window of `disturbed`, while the server commits",
        expected: Expected::warning("foreign-io", Some("disturbed")),
        place: Place::LoopDisk,
        keys: "blocks = 1\nduration = \"5s\"",
        conditions: &["alone", "disturbed"],
        // The shell stays until the window ends, so that its last sample has the writes.
        inside: &[(0.3, |server| {
            let disk = server.disk.as_ref().expect("it is on a disk of its own");
            let script = "for i in 1 2 3 4 5 6 7 8; do \
                          dd if=/dev/zero \"$1\" bs=1M count=100 oflag=direct conv=notrunc status=none; done; \
                          rm -f \"${1#of=}\"; cd /; sleep 7";
            start_detached(script, &format!("of={}", disk.path().join("other").display()))
        })],
        ..BASE
    },
    Fault {
        rule: 14,
        what: "three programs of others compute inside the window of `disturbed`",
        expected: Expected::any("foreign-load", Some("disturbed")),
        keys: "blocks = 1\nduration = \"5s\"",
        workload: slob("32M", 8, 0),
        conditions: &["disturbed"],
        // Until after the window's end.
        inside: &[(0.1, |_| {
            let script =
                "for i in 1 2 3; do timeout \"$1\" sh -c 'while :; do :; done' & done; wait";
            start_detached(script, "6")
        })],
        ..BASE
    },
    Fault {
        rule: 15,
        what: "lab: track_io_timing is on where a reading of the clock is a system call",
        expected: Expected::warning("clock-cost", None),
        place: Place::Lab,
        keys: "blocks = 1\nduration = \"2s\"",
        conditions: &["a"],
        prepare: |server| server.set("track_io_timing", "on"),
        after: |server| {
            server.execute("ALTER SYSTEM RESET track_io_timing")?;
            server.execute("SELECT pg_reload_conf()")
        },
        ..BASE
    },
    Fault {
        rule: 16,
        what: "from half of the window on, each row takes eight milliseconds to update instead of two",
        expected: Expected::warning("not-steady", Some("disturbed")),
        inside: &[(30.0, |server| set_update_time(server, 8))],
        ..SLOW_WINDOW
    },
    Fault {
        rule: 16,
        what: "for a third of the window, each row takes eight milliseconds to update instead of two",
        expected: Expected::warning("not-steady", Some("disturbed")),
        inside: &[
            (20.0, |server| set_update_time(server, 8)),
            (40.0, |server| set_update_time(server, 2)),
        ],
        ..SLOW_WINDOW
    },
    Fault {
        what: "each row takes two milliseconds more to update with every block",
        before_trial: |server, next| slow_trial(server, 2 * next.block),
        ..SLOW_BLOCKS
    },
    // The level blocks of the start are no evidence of a trend.
    Fault {
        what: "from the fifth block of ten on, each row takes two milliseconds more with every block",
        keys: "blocks = 10\nduration = \"1s\"\nprimary = \"updates_per_second\"",
        before_trial: |server, next| slow_trial(server, 2 + 2 * next.block.saturating_sub(4)),
        ..SLOW_BLOCKS
    },
    // A credit that is used up: a step, which a test for a trend finds if enough blocks lie on both sides.
    Fault {
        what: "from the 13th block of twenty on, each row takes twenty milliseconds to update instead of two",
        keys: "blocks = 20\nduration = \"500ms\"\nprimary = \"updates_per_second\"",
        before_trial: |server, next| slow_trial(server, if next.block > 12 { 20 } else { 2 }),
        ..SLOW_BLOCKS
    },
];

/// Resemble a fault without being one: the expected check must not be found.
pub(super) const LOOKALIKES: &[Fault] = &[
    Fault {
        what: "vm.dirty_background_ratio changes before each trial of `b` and is set back before the trial",
        before_trial: |server, next| {
            server.replaced().write("", if next.is_b { "50" } else { "10" })?;
            server.replaced().write("", "10")
        },
        ..OTHER_WRITE_BACK
    },
    // The environment names how many processors have which governor, not which one.
    Fault {
        what: "the same governors on as many processors, exchanged before each trial of `b`",
        before_trial: |server, next| {
            let names = ["powersave", "performance"];
            set_governor(server, 0, names[usize::from(next.is_b)])?;
            set_governor(server, 1, names[usize::from(!next.is_b)])
        },
        ..OTHER_GOVERNOR
    },
    Fault {
        what: "lab: the same writes, of which the load has warmed the activity log",
        inside: &[(1.5, |server| server.execute("CHECKPOINT"))],
        ..COLD_ACTIVITY_LOG
    },
    Fault {
        what: "the time of an update changes from trial to trial, in no order of the blocks",
        keys: "blocks = 10\nduration = \"1s\"\nprimary = \"updates_per_second\"",
        before_trial: |server, next| slow_trial(server, 2 + next.number % 2),
        ..SLOW_BLOCKS
    },
];

/// Nothing differs between their conditions. Windows as long as five of telemetry's intervals: in shorter ones it
/// samples more often, which costs a slow processor more than `telemetry-cost` allows.
pub(super) const HEALTHY: &[(&str, Fault)] = &[
    ("reads", Fault { workload: slob("32M", 8, 0), ..HEALTHY_BASE }),
    ("commits", Fault { workload: Workload::Commit(2), ..HEALTHY_BASE }),
    ("updates", Fault { workload: slob("32M", 8, 50), ..HEALTHY_BASE }),
];
const HEALTHY_BASE: Fault = Fault { keys: "blocks = 6\nduration = \"5s\"", ..BASE };

/// The weight of this process's session against others.
const OWN_SHARE: &str = "/proc/self/autogroup";

// Settings of the machine belong to everybody on it. They are replaced by files of this process's mount namespace, so
// that pgio reads another value and the kernel keeps its own.

const OTHER_WRITE_BACK: Fault = Fault {
    rule: 1,
    what: "vm.dirty_background_ratio, which no condition declares, changes before each trial of `b`",
    expected: Expected::invalid("environment-differs", Some("b")),
    place: Place::Namespace,
    keys: "blocks = 2\nduration = \"1s\"",
    prepare: |server| server.replace("/proc/sys/vm/dirty_background_ratio"),
    before_trial: |server, next| server.replaced().write("", if next.is_b { "50" } else { "10" }),
    ..BASE
};

/// Two processors, because a governor may change on one of them only. Most virtual machines have none.
const OTHER_GOVERNOR: Fault = Fault {
    rule: 1,
    what: "the frequency governor of one processor of two changes before each trial of `b`",
    expected: Expected::invalid("environment-differs", Some("b")),
    place: Place::Namespace,
    keys: "blocks = 2\nduration = \"1s\"",
    prepare: |server| {
        server.replace("/sys/devices/system/cpu")?;
        set_governor(server, 0, "performance")?;
        set_governor(server, 1, "performance")
    },
    before_trial: |server, next| {
        set_governor(server, 1, if next.is_b { "powersave" } else { "performance" })
    },
    ..BASE
};

fn set_governor(server: &Setup, processor: u32, governor: &str) -> Outcome {
    server.replaced().write(&format!("cpu{processor}/cpufreq/scaling_governor"), governor)
}

pub(super) const LAB_DSN: &str = "host=primary user=postgres dbname=pgio";
pub(super) const LAB_HOSTS: &str =
    "[hosts.primary]\nssh = \"primary\"\n\n[hosts.secondary]\nssh = \"secondary\"\n\n";

const DISCONNECTED: Fault = Fault {
    place: Place::Lab,
    keys: "blocks = 1\nduration = \"5s\"",
    inside: &[(1.5, |_| ssh("drbdadm disconnect pgio").map(drop))],
    after: |_| {
        // It fails if pgio has already connected.
        let _ = ssh("drbdadm connect pgio");
        let connected = "cs:Connected ro:Primary/Secondary ds:UpToDate/UpToDate";
        wait_for(
            Duration::from_secs(60),
            "DRBD of the lab is not up to date after a minute",
            || Ok(ssh("cat /proc/drbd")?.contains(connected)),
        )
    },
    ..BASE
};

/// Updates of single random rows of a table that fills 128 extents. Only a checkpoint inside the window writes
/// the pages: until then they stay in the buffers, and the device sees nothing but WAL, which fills its extents
/// one after the other. The file system is mounted with `sync` so that pages are written one by one: the
/// kernel's own write-back comes in batches, of which each costs one write to the log.
const COLD_ACTIVITY_LOG: Fault = Fault {
    rule: 12,
    what: "lab: DRBD's activity log is emptied in the first trial of synchronous writes, and there is no burn-in",
    expected: Expected::warning("drbd-cold-log", Some("a")),
    place: Place::Lab,
    keys: "blocks = 4\nduration = \"4s\"\nwarmup = \"0s\"\nburn_in = false",
    workload: slob("512M", 1, 100),
    conditions: &["a"],
    prepare: |server| {
        server.execute("CHECKPOINT")?;
        ssh("mount -o remount,sync /srv/drbd").map(drop)
    },
    inside: &[
        (0.1, |server| {
            // Each change of its size empties the log. Before the window pgio itself would fill it again.
            const EMPTY: &str = "drbdadm disk-options --al-extents=600 pgio && drbdadm disk-options --al-extents=1237 pgio";
            if server.is_first() { ssh(EMPTY).map(drop) } else { Ok(()) }
        }),
        (1.5, |server| server.execute("CHECKPOINT")),
    ],
    after: |server| {
        ssh("mount -o remount,async /srv/drbd")?;
        server.execute("DROP TABLE IF EXISTS pgio1")
    },
    ..BASE
};

/// Runs a command line on the lab's primary.
fn ssh(line: &str) -> Result<String, Failure> {
    run("ssh", &["-o", "BatchMode=yes", "primary", line])
}

/// Whether this runs in the lab's network: there the hosts have names.
pub(super) fn in_lab() -> bool {
    ssh("true").is_ok()
}

/// Long enough to distinguish a step from the noise of a busy machine, whose seconds resemble each other. A sleep
/// costs no processor time, so that the rate depends on the fault and hardly on other work of the machine.
const SLOW_WINDOW: Fault = Fault {
    keys: "blocks = 1\nduration = \"60s\"\nburn_in = false\nprimary = \"updates_per_second\"",
    workload: slob("8M", 1, 100),
    conditions: &["disturbed"],
    prepare: |server| set_update_time(server, 2),
    before_trial: |server, _| set_trigger(server),
    ..BASE
};

/// Two milliseconds, because where timers are slow, sleeps of three and of four take equally long.
const SLOW_BLOCKS: Fault = Fault {
    rule: 16,
    expected: Expected::warning("trial-trend", None),
    keys: "blocks = 6\nduration = \"1s\"\nprimary = \"updates_per_second\"",
    workload: slob("8M", 1, 100),
    prepare: |server| set_update_time(server, 2),
    ..BASE
};

fn slow_trial(server: &Setup, milliseconds: u32) -> Outcome {
    set_update_time(server, milliseconds)?;
    set_trigger(server)
}

/// Not before the first trial, since pgio refuses tables with triggers.
fn set_trigger(server: &Setup) -> Outcome {
    server.execute(
        "DROP TRIGGER IF EXISTS slow ON pgio1; \
         CREATE TRIGGER slow BEFORE UPDATE ON pgio1 FOR EACH ROW EXECUTE FUNCTION public.slow()",
    )
}

fn set_update_time(server: &Setup, milliseconds: u32) -> Outcome {
    server.execute(&format!(
        "CREATE OR REPLACE FUNCTION public.slow() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN PERFORM pg_sleep({milliseconds} * 0.001); RETURN NEW; END'"
    ))
}
