//! What processes read from devices and wrote, from /proc/PID/io. Pure.
//!
//! `read_bytes` is exact. `write_bytes` is what was made dirty: a kernel with large folios charges a whole
//! folio each time one of its pages becomes dirty again, so a server that commits seems to write a hundred
//! times what its device does. `wchar` is what was passed to write calls, also to pipes. So the smaller
//! of the two bounds what a process can have written to a device. Pages written through a mapping are
//! missing from it; PostgreSQL writes none.
//!
//! The counters of a process that ends are added to its parent's.

use std::collections::{BTreeMap, BTreeSet};

/// Bytes since the start of a process, ended children included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct IoCounters {
    read: u64,
    /// Without pages that were truncated or removed before they were written.
    dirtied: u64,
    passed: u64,
}

impl IoCounters {
    fn plus(self, other: IoCounters) -> IoCounters {
        IoCounters {
            read: self.read.saturating_add(other.read),
            dirtied: self.dirtied.saturating_add(other.dirtied),
            passed: self.passed.saturating_add(other.passed),
        }
    }

    fn less(self, other: IoCounters) -> IoCounters {
        IoCounters {
            read: self.read.saturating_sub(other.read),
            dirtied: self.dirtied.saturating_sub(other.dirtied),
            passed: self.passed.saturating_sub(other.passed),
        }
    }

    fn bytes(self) -> Bytes {
        Bytes { read: self.read, written: self.dirtied.min(self.passed) }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Bytes {
    pub(super) read: u64,
    pub(super) written: u64,
}

/// What processes moved between two moments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Moved {
    /// At most; `None` if one of the processes could not be read.
    pub(super) own: Option<Bytes>,
    /// At least.
    pub(super) others: Bytes,
    /// The bytes of `others`, by program.
    pub(super) by_program: BTreeMap<String, u64>,
    /// Other processes that could not be read.
    pub(super) unreadable: usize,
}

/// The accounts of all processes at one moment.
#[derive(Debug, Clone, Default)]
pub(super) struct ProcessIoCounters(BTreeMap<i32, IoCounters>);

impl ProcessIoCounters {
    /// Parses lines `/proc/PID/io:NAME: BYTES`.
    pub(super) fn parse(text: &str) -> ProcessIoCounters {
        let mut all: BTreeMap<i32, IoCounters> = BTreeMap::new();
        let mut cancelled: BTreeMap<i32, u64> = BTreeMap::new();
        for line in text.lines() {
            let mut words = line.split(':').map(str::trim);
            let (Some(path), Some(name), Some(bytes)) = (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let (Some(pid), Ok(bytes)) = (pid(path), bytes.parse()) else { continue };
            let account = all.entry(pid).or_default();
            match name {
                "read_bytes" => account.read = bytes,
                "write_bytes" => account.dirtied = bytes,
                "wchar" => account.passed = bytes,
                "cancelled_write_bytes" => drop(cancelled.insert(pid, bytes)),
                _ => {}
            }
        }
        for (pid, bytes) in cancelled {
            let account = all.entry(pid).or_default();
            account.dirtied = account.dirtied.saturating_sub(bytes);
        }
        ProcessIoCounters(all)
    }

    pub(super) fn has(&self, pid: i32) -> bool {
        self.0.contains_key(&pid)
    }

    /// `own`: processes at either moment. `others`: processes at this moment, with their names. `parent`: of
    /// a process at the earlier moment. `None` if the kernel does not keep accounts.
    pub(super) fn moved_since(
        &self,
        earlier: &ProcessIoCounters,
        own: &BTreeSet<i32>,
        others: &BTreeMap<i32, &str>,
        parent: &dyn Fn(i32) -> Option<i32>,
    ) -> Option<Moved> {
        if self.0.is_empty() || earlier.0.is_empty() {
            return None;
        }
        let mut moved = Moved::default();
        let inherited = self.inherited(earlier, parent);
        for (pid, name) in others {
            let Some(now) = self.0.get(pid) else {
                moved.unreadable += 1;
                continue;
            };
            let known = |of: &BTreeMap<i32, IoCounters>| of.get(pid).copied().unwrap_or_default();
            let Bytes { read, written } =
                now.less(known(&earlier.0).plus(known(&inherited))).bytes();
            moved.others.read = moved.others.read.saturating_add(read);
            moved.others.written = moved.others.written.saturating_add(written);
            if read + written > 0 {
                *moved.by_program.entry(printable_name(name)).or_default() += read + written;
            }
        }
        // A process that ended is in its parent's account, so the sum grows. Not so with one that another
        // process adopted.
        let sum = |of: &ProcessIoCounters| {
            let accounts = own.iter().filter_map(|pid| of.0.get(pid).copied());
            accounts.reduce(IoCounters::plus)
        };
        moved.own = sum(self).zip(sum(earlier)).map(|(now, then)| now.less(then).bytes());
        Some(moved)
    }

    /// What processes since ended had moved before the earlier moment, by the process that inherited it.
    fn inherited(
        &self,
        earlier: &ProcessIoCounters,
        parent: &dyn Fn(i32) -> Option<i32>,
    ) -> BTreeMap<i32, IoCounters> {
        let mut inherited: BTreeMap<i32, IoCounters> = BTreeMap::new();
        for (pid, account) in earlier.0.iter().filter(|(pid, _)| !self.0.contains_key(pid)) {
            let mut heir = parent(*pid);
            // Bounded, because a reused process id could close a circle.
            for _ in 0..64 {
                match heir {
                    Some(pid) if !self.0.contains_key(&pid) => heir = parent(pid),
                    _ => break,
                }
            }
            if let Some(heir) = heir {
                let sum = inherited.entry(heir).or_default();
                *sum = sum.plus(*account);
            }
        }
        inherited
    }
}

/// Replaces unprintable characters: a program may choose any name.
fn printable_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_graphic() || c == ' ' { c } else { '?' }).collect()
}

/// The process of a path /proc/PID/FILE.
pub(super) fn pid(path: &str) -> Option<i32> {
    path.strip_prefix("/proc/")?.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;

    /// Accounts with megabytes read, dirtied and passed to write calls.
    fn accounts(of: &[(i32, [u64; 3])]) -> ProcessIoCounters {
        let lines = of.iter().map(|(pid, [read, dirtied, passed])| {
            let line = |name: &str, mb: u64| format!("/proc/{pid}/io:{name}: {}\n", mb * MB);
            line("read_bytes", *read) + &line("write_bytes", *dirtied) + &line("wchar", *passed)
        });
        ProcessIoCounters::parse(&lines.collect::<String>())
    }

    fn moved_since(now: &ProcessIoCounters, earlier: &ProcessIoCounters) -> Moved {
        // The server is 100 and 101; 300 is a shell, which 301 and 302 belong to.
        let own = BTreeSet::from([100, 101]);
        let others = BTreeMap::from([(300, "sh"), (301, "dd"), (302, "cp")]);
        let others = others.into_iter().filter(|(pid, _)| now.0.contains_key(pid)).collect();
        let parent = |pid| Some(if pid > 300 { 300 } else { 1 });
        now.moved_since(earlier, &own, &others, &parent).unwrap()
    }

    #[test]
    fn writes_of_a_process_are_at_most_what_it_passed_to_write_calls() {
        let before = accounts(&[(100, [0; 3]), (301, [0; 3])]);
        let after = accounts(&[(100, [1, 4400, 33]), (301, [0, 168, 168])]);
        let moved = moved_since(&after, &before);
        assert_eq!(moved.own, Some(Bytes { read: MB, written: 33 * MB }));
        assert_eq!(moved.others, Bytes { read: 0, written: 168 * MB });
        assert_eq!(moved.by_program, [("dd".to_owned(), 168 * MB)].into());
    }

    #[test]
    fn io_of_an_ended_process_before_the_window_is_not_counted() {
        let before = accounts(&[(100, [0; 3]), (300, [0; 3]), (301, [0, 900, 900])]);
        let after = accounts(&[(100, [0; 3]), (300, [0, 950, 950])]);
        assert_eq!(moved_since(&after, &before).others.written, 50 * MB);
        // One that began inside the window counts as a whole.
        let after = accounts(&[(100, [0; 3]), (300, [0; 3]), (301, [0, 900, 900]), (302, [7; 3])]);
        assert_eq!(moved_since(&after, &before).others, Bytes { read: 7 * MB, written: 7 * MB });
    }

    #[test]
    fn process_io_excludes_truncated_pages_and_unreadable_processes() {
        let before = accounts(&[(100, [0; 3]), (301, [0; 3])]);
        let mut text = "/proc/301/io:wchar: 800\n/proc/301/io:write_bytes: 700\n".to_owned();
        text +=
            "/proc/301/io:cancelled_write_bytes: 600\n/proc/x/io:wchar: 1\n/proc/301/io:wchar\n";
        let moved = moved_since(&ProcessIoCounters::parse(&text), &before);
        assert_eq!(moved.others.written, 100);
        assert_eq!(moved.own, None, "the server's processes cannot be read");
        let others = BTreeMap::from([(9, "secret")]);
        let moved =
            before.moved_since(&before, &BTreeSet::from([100]), &others, &|_| None).unwrap();
        assert_eq!((moved.unreadable, moved.others), (1, Bytes::default()));
        assert_eq!(printable_name("a\x1b[1mé"), "a?[1m?");
    }
}
