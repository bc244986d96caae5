//! The table of mount options that pgio can restore. Accesses no machine.
//!
//! The kernel shows an option only where it differs from the file system's default, so the table has the
//! defaults; ext4 lists all of its options in /proc/fs/ext4, too. Tested on
//! Linux 6.1 and 6.18; options that a remount silently ignores are [`How::Mount`]. Not in
//! the table: options that cannot be read back, and those that would not change a measurement. Next:
//! [`super::mounts`] reads what is in force.

use crate::config::nearest;
use pgio_results::change::{Change, Subject};

/// A setting of one row of the table: the words by which the kernel shows it and mount(8) takes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    row: &'static Row,
    /// In the table's spelling.
    pub(super) word: String,
}

/// How an option is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Remount,
    /// A remount is refused or ignored: umount and mount.
    Mount,
    /// Affects only files created later: only a new file system has it for all files.
    Format,
}

#[derive(Debug, PartialEq, Eq)]
struct Row {
    /// The name of the declared change: two values of one row are one difference.
    name: &'static str,
    file_systems: &'static [&'static str],
    how: How,
    values: Values,
}

#[derive(Debug, PartialEq, Eq)]
enum Values {
    /// Spellings of each value; mount(8) takes the first. The first value is the default, which the
    /// kernel does not show.
    Words(&'static [&'static [&'static str]]),
    /// `NAME=N`, and N where none is shown.
    Number(&'static str, &'static str),
    /// `NAME=N`, in kB as the kernel shows it.
    Size(&'static str, &'static str),
    /// `NAME=TEXT`
    Text(&'static str, &'static str),
}

const EXT4: &[&str] = &["ext4"];
const XFS: &[&str] = &["xfs"];
const BTRFS: &[&str] = &["btrfs"];
const EXT4_BTRFS: &[&str] = &["ext4", "btrfs"];
/// The file systems of the table.
pub(super) const FILE_SYSTEMS: &[&str] = &["ext4", "xfs", "btrfs"];

const fn row(
    name: &'static str,
    file_systems: &'static [&'static str],
    how: How,
    values: Values,
) -> Row {
    Row { name, file_systems, how, values }
}

use How::{Format, Mount, Remount};
use Values::{Number, Size, Text, Words};

static TABLE: &[Row] = &[
    row("sync", FILE_SYSTEMS, Remount, Words(&[&["async"], &["sync"]])),
    row("dirsync", FILE_SYSTEMS, Mount, Words(&[&["nodirsync"], &["dirsync"]])),
    row(
        "atime",
        FILE_SYSTEMS,
        Remount,
        Words(&[&["strictatime"], &["relatime", "atime"], &["noatime"]]),
    ),
    row("diratime", FILE_SYSTEMS, Remount, Words(&[&["diratime"], &["nodiratime"]])),
    row("lazytime", FILE_SYSTEMS, Remount, Words(&[&["nolazytime"], &["lazytime"]])),
    row(
        "barrier",
        EXT4_BTRFS,
        Remount,
        Words(&[&["barrier", "barrier=1"], &["nobarrier", "barrier=0"]]),
    ),
    row("commit", EXT4, Remount, Number("commit", "5")),
    row("max_batch_time", EXT4, Remount, Number("max_batch_time", "15000")),
    row("min_batch_time", EXT4, Remount, Number("min_batch_time", "0")),
    row("inode_readahead_blks", EXT4, Remount, Number("inode_readahead_blks", "32")),
    row("discard", EXT4, Remount, Words(&[&["nodiscard"], &["discard"]])),
    row(
        "auto_da_alloc",
        EXT4,
        Remount,
        Words(&[&["auto_da_alloc", "auto_da_alloc=1"], &["noauto_da_alloc", "auto_da_alloc=0"]]),
    ),
    row(
        "dioread",
        EXT4,
        Remount,
        Words(&[&["dioread_nolock"], &["dioread_lock", "nodioread_nolock"]]),
    ),
    row("delalloc", EXT4, Mount, Words(&[&["delalloc"], &["nodelalloc"]])),
    row("journal_checksum", EXT4, Mount, Words(&[&["nojournal_checksum"], &["journal_checksum"]])),
    row("data", EXT4, Mount, Words(&[&["data=ordered"], &["data=writeback"], &["data=journal"]])),
    row("discard", XFS, Mount, Words(&[&["nodiscard"], &["discard"]])),
    row("wsync", XFS, Mount, Words(&[&["nowsync"], &["wsync"]])),
    row("largeio", XFS, Mount, Words(&[&["nolargeio"], &["largeio"]])),
    row("logbufs", XFS, Mount, Number("logbufs", "8")),
    row("logbsize", XFS, Mount, Size("logbsize", "32k")),
    row(
        "discard",
        BTRFS,
        Remount,
        Words(&[&["nodiscard"], &["discard=async"], &["discard=sync", "discard"]]),
    ),
    row("commit", BTRFS, Remount, Number("commit", "30")),
    row("flushoncommit", BTRFS, Remount, Words(&[&["noflushoncommit"], &["flushoncommit"]])),
    row("treelog", BTRFS, Remount, Words(&[&["treelog"], &["notreelog"]])),
    row("autodefrag", BTRFS, Remount, Words(&[&["noautodefrag"], &["autodefrag"]])),
    row("datacow", BTRFS, Format, Words(&[&["datacow"], &["nodatacow"]])),
    row("compress", BTRFS, Format, Text("compress", "no")),
];

/// Rows that belong to a mount; all others belong to the file system.
const PER_MOUNT_ROWS: &[&str] = &["atime", "diratime"];

/// Words that mount(8) does not accept: the option is left out instead.
const WORDS_NOT_ACCEPTED: &[&str] = &["nodirsync", "nowsync"];

impl Row {
    fn is_for(&self, file_system: &str) -> bool {
        self.file_systems.contains(&file_system)
    }

    /// The table's spelling, if the word belongs to this row.
    fn canonical(&self, word: &str) -> Option<String> {
        let value_of = |name: &str| word.strip_prefix(name)?.strip_prefix('=');
        match self.values {
            Words(values) => {
                let value = values.iter().find(|spellings| spellings.contains(&word))?;
                Some(value[0].to_owned())
            }
            Number(name, _) => Some(format!("{name}={}", value_of(name)?.parse::<u32>().ok()?)),
            Size(name, _) => Some(format!("{name}={}", kilobytes(value_of(name)?)?)),
            Text(name, _) => {
                let value = value_of(name).filter(|value| !value.is_empty())?;
                Some(format!("{name}={value}"))
            }
        }
    }

    fn default_word(&self) -> String {
        match self.values {
            Words(values) => values[0][0].to_owned(),
            Number(name, default) | Size(name, default) | Text(name, default) => {
                format!("{name}={default}")
            }
        }
    }

    /// Spellings as in a file, one per value.
    fn examples(&self) -> Vec<String> {
        match self.values {
            Words(values) => values.iter().flat_map(|v| v.iter().map(|&w| w.to_owned())).collect(),
            Number(..) | Size(..) | Text(..) => vec![self.default_word()],
        }
    }

    /// The value in force, from all words shown; a later one overrides an earlier one.
    fn word_in_force<S: AsRef<str>>(&self, shown: &[S]) -> String {
        let found = shown.iter().rev().find_map(|word| self.canonical(word.as_ref()));
        found.unwrap_or_else(|| self.default_word())
    }
}

/// `262144` and `256k` are the same.
fn kilobytes(text: &str) -> Option<String> {
    let (number, unit) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1024),
        None => (text, 1),
    };
    let bytes = number.parse::<u64>().ok()?.checked_mul(unit)?;
    (bytes % 1024 == 0).then(|| format!("{}k", bytes / 1024))
}

impl Setting {
    pub(super) fn how(&self) -> How {
        self.row.how
    }

    pub(super) fn name(&self) -> &'static str {
        self.row.name
    }

    /// Whether it affects one mount, as opposed to all mounts of the file system.
    pub(super) fn is_per_mount(&self) -> bool {
        PER_MOUNT_ROWS.contains(&self.row.name)
    }

    /// The value in force, in the table's spelling.
    pub(super) fn word_in_force<S: AsRef<str>>(&self, shown: &[S]) -> String {
        self.row.word_in_force(shown)
    }

    /// The same option with another value, in the table's spelling.
    pub(super) fn with_word(&self, word: &str) -> Setting {
        Setting { row: self.row, word: word.to_owned() }
    }
}

/// Parses words of the journal, which are in the table's spelling. The error is the unknown word.
pub(super) fn parse_stored(words: &[String], file_system: &str) -> Result<Vec<Setting>, String> {
    let read = |word: &String| find_setting(word, |row| row.is_for(file_system));
    words.iter().map(|word| read(word).ok_or_else(|| word.clone())).collect()
}

/// Every option of a comma-separated list for a file system; without one, an option of any.
pub(super) fn parse(text: &str, file_system: Option<&str>) -> Result<Vec<Setting>, String> {
    let mut settings: Vec<Setting> = Vec::new();
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let setting = setting(word, file_system)?;
        if settings.iter().any(|other| other.row == setting.row) {
            return Err(format!("`{word}` is given twice, or contradicts another option"));
        }
        settings.push(setting);
    }
    if settings.is_empty() { Err("names no option".to_owned()) } else { Ok(settings) }
}

fn find_setting(word: &str, fits: impl Fn(&Row) -> bool) -> Option<Setting> {
    let setting = |row: &'static Row| Some(Setting { row, word: row.canonical(word)? });
    TABLE.iter().filter(|row| fits(row)).find_map(setting)
}

fn setting(word: &str, file_system: Option<&str>) -> Result<Setting, String> {
    let fits = |row: &Row| file_system.is_none_or(|name| row.is_for(name));
    if let Some(setting) = find_setting(word, fits) {
        return Ok(setting);
    }
    let on = file_system.unwrap_or("ext4, xfs or btrfs");
    if file_system == Some("xfs") && word.contains("barrier") {
        return Err("xfs always uses barriers since Linux 4.19".into());
    }
    let known: Vec<String> = TABLE.iter().filter(|row| fits(row)).flat_map(Row::examples).collect();
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    Err(format!(
        "pgio cannot restore `{word}` of {on}, so it does not set it; {}",
        nearest(word, &known)
    ))
}

/// The whole list for mount(8): the words shown now, with these settings instead of their rows' values.
pub(super) fn compose<S: AsRef<str>>(shown: &[S], settings: &[Setting]) -> String {
    let replaced = |word: &str| settings.iter().any(|s| s.row.canonical(word).is_some());
    let kept = shown.iter().map(AsRef::as_ref).filter(|word| !replaced(word));
    let ours =
        settings.iter().map(|s| s.word.as_str()).filter(|word| !WORDS_NOT_ACCEPTED.contains(word));
    let mut words: Vec<&str> = kept.chain(ours).collect();
    // strictatime is not shown by the kernel, and mount(8) without a word means relatime.
    if !words.iter().any(|word| matches!(*word, "relatime" | "noatime" | "strictatime")) {
        words.push("strictatime");
    }
    words.join(",")
}

/// `nobarrier,commit=30`
pub(super) fn list(settings: &[Setting]) -> String {
    settings.iter().map(|s| s.word.as_str()).collect::<Vec<_>>().join(",")
}

/// Each option by its name in the table, so that two values of one are one difference.
pub(super) fn changes(settings: &[Setting], path: Option<&str>) -> impl Iterator<Item = Change> {
    let subject = Subject::Mount { path: path.map(str::to_owned) };
    settings.iter().map(move |s| Change::new(None, subject.clone(), s.name(), &s.word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&str> {
        text.split(',').collect()
    }

    fn word_in_force(option: &str, file_system: &str, shown: &str) -> String {
        parse(option, Some(file_system)).unwrap()[0].word_in_force(&words(shown))
    }

    #[test]
    fn an_option_not_shown_has_its_default() {
        for (option, file_system, expected) in [
            ("sync", "xfs", "async"),
            ("barrier=0", "ext4", "barrier"),
            ("max_batch_time=0", "ext4", "max_batch_time=15000"),
            ("commit=1", "ext4", "commit=5"),
            ("commit=1", "btrfs", "commit=30"),
            ("noatime", "btrfs", "strictatime"),
            ("logbsize=256k", "xfs", "logbsize=32k"),
            ("compress=zstd", "btrfs", "compress=no"),
        ] {
            assert_eq!(
                word_in_force(option, file_system, "rw"),
                expected,
                "{option} {file_system}"
            );
        }
    }

    #[test]
    fn a_shown_option_is_found_in_any_spelling() {
        for (option, file_system, shown, expected) in [
            ("barrier=1", "ext4", "rw,relatime,nobarrier", "nobarrier"),
            ("barrier=1", "ext4", "rw,barrier,relatime,barrier=0", "nobarrier"),
            ("noatime", "ext4", "rw,relatime", "relatime"),
            ("discard", "btrfs", "rw,discard=async,subvol=/", "discard=async"),
            ("discard=async", "btrfs", "rw,discard,subvol=/", "discard=sync"),
            ("logbsize=262144", "xfs", "rw,logbufs=8,logbsize=64k", "logbsize=64k"),
            ("dioread_lock", "ext4", "nodioread_nolock", "dioread_lock"),
            ("commit=9", "ext4", "commit=5,rw,commit=30", "commit=30"),
        ] {
            assert_eq!(word_in_force(option, file_system, shown), expected, "{option} {shown}");
        }
    }

    #[test]
    fn composed_lists_keep_other_options() {
        let list = |option: &str, file_system: &str, shown: &str| {
            compose(&words(shown), &parse(option, Some(file_system)).unwrap())
        };
        assert_eq!(list("barrier=0,sync", "ext4", "rw,relatime"), "rw,relatime,nobarrier,sync");
        assert_eq!(list("barrier", "ext4", "rw,noatime,nobarrier"), "rw,noatime,barrier");
        assert_eq!(list("relatime", "ext4", "rw,noatime,stripe=4"), "rw,stripe=4,relatime");
        assert_eq!(list("async", "xfs", "rw,sync"), "rw,async,strictatime", "as it was");
        let unspoken = parse("dirsync", Some("ext4")).unwrap()[0].with_word("nodirsync");
        assert_eq!(compose(&["rw", "relatime", "dirsync"], &[unspoken]), "rw,relatime");
        assert_eq!(
            list("commit=7", "btrfs", "rw,relatime,commit=9,subvol=/a,subvolid=5"),
            "rw,relatime,subvol=/a,subvolid=5,commit=7"
        );
    }

    #[test]
    fn options_that_cannot_be_restored_are_refused() {
        let refused = |text: &str, file_system: Option<&str>| parse(text, file_system).unwrap_err();
        let unknown = refused("barier=0", Some("ext4"));
        assert!(
            unknown.contains("`barier=0` of ext4") && unknown.contains("`barrier=0`"),
            "{unknown}"
        );
        assert!(refused("errors=panic", None).contains("cannot restore"));
        assert!(refused("barrier=0", Some("xfs")).contains("since Linux 4.19"));
        assert!(refused("max_batch_time=0", Some("btrfs")).contains("of btrfs"));
        assert!(refused("commit=often", Some("ext4")).contains("commit=often"));
        assert!(refused("sync,async", None).contains("given twice"));
        assert!(refused(" , ", None).contains("names no option"));
        assert!(refused("ro", None).contains("`ro`"));
    }

    #[test]
    fn the_table_spells_each_value_in_one_way_only() {
        for file_system in FILE_SYSTEMS {
            let mut seen = Vec::new();
            for row in TABLE.iter().filter(|row| row.is_for(file_system)) {
                for word in row.examples() {
                    let canonical = row.canonical(&word).unwrap();
                    assert_eq!(row.canonical(&canonical).unwrap(), canonical);
                    assert!(!seen.contains(&word), "{word} twice on {file_system}");
                    seen.push(word);
                }
            }
        }
    }
}
