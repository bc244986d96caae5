//! Finds pgio's messages in mail directories, computes their checksums, and removes them.
//!
//! Only messages with pgio's header are touched; other messages and the mail server's own files stay.
//! On this machine pgio reads the files itself, because there may be gigabytes of them. On another host
//! a script of `awk` and `sha256sum` does it, so that nothing needs to be installed there. A test checks
//! that both return the same.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use pgio_results::files::{Directory, Refused};
use sha2::{Digest, Sha256};

use super::message::{SUM_HEADER, Sum};
use super::session::Sent;

const SCRIPT: &str = include_str!("maildir.sh");
/// Directories per command line, which must fit into 128 kB.
const BATCH: usize = 250;
/// Larger files are not pgio's.
const MAX_BYTES: u64 = 256 << 20;
/// The end of every Message-ID of pgio.
const DOMAIN: &str = "@pgio";

#[derive(Debug, thiserror::Error)]
pub enum MaildirError {
    #[error("{}", .path.display())]
    File { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Host(Box<dyn Error + Send + Sync>),
    #[error("unexpected output of the script: {0}")]
    Answer(String),
}

/// A delivered copy of a message.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoredCopy {
    pub id: String,
    /// The mail directory, as passed in.
    pub directory: String,
    pub sum: Sum,
}

/// Finds and removes all messages of pgio's below these directories of this machine. A directory that
/// does not exist is empty.
pub fn collect(directories: &[String]) -> Result<Vec<StoredCopy>, MaildirError> {
    let mut found = Vec::new();
    for maildir in directories {
        for part in ["new", "cur"] {
            let directory = Path::new(maildir).join(part);
            let entries = match fs::read_dir(&directory) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                entries => entries.map_err(failed(&directory))?,
            };
            let open = Directory::open(&directory).map_err(failed(&directory))?;
            for entry in entries {
                let entry = entry.map_err(failed(&directory))?;
                let path = entry.path();
                if !entry.file_type().is_ok_and(|t| t.is_file()) {
                    continue;
                }
                // The mailbox's owner may put a link or a FIFO there meanwhile.
                let name = entry.file_name();
                let text = match open.read_bytes(Path::new(&name), MAX_BYTES) {
                    // A mail reader moves files from one directory to the other.
                    Err(error) if error.kind() == ErrorKind::NotFound => continue,
                    // Too large, or not a regular file.
                    Err(error) if Refused::is_cause_of(&error) => continue,
                    text => text.map_err(failed(&path))?,
                };
                if let Some((id, sum)) = id_and_sum(&text) {
                    if !open.remove(&name).map_err(failed(&path))? {
                        continue;
                    }
                    found.push(StoredCopy { id, directory: maildir.clone(), sum });
                }
            }
        }
    }
    if !found.is_empty() {
        sync(directories);
    }
    Ok(found)
}

fn failed(path: &Path) -> impl Fn(io::Error) -> MaildirError {
    |source| MaildirError::File { path: path.to_owned(), source }
}

/// Writes out the removals, so that they do not disturb the next trial.
fn sync(directories: &[String]) {
    let opened = directories.iter().find_map(|directory| fs::File::open(directory).ok());
    // Failure is harmless here; a broken file system fails in the next trial.
    if let Some(directory) = opened {
        let _ = rustix::fs::syncfs(directory);
    }
}

/// Returns the id and the checksum of the text, if this is a message of pgio's. Accepts both line ends.
fn id_and_sum(message: &[u8]) -> Option<(String, Sum)> {
    let (mut id, mut marked) = (None, false);
    let mut lines = message.split_inclusive(|b| *b == b'\n').map(trim_line_end);
    for line in lines.by_ref() {
        if line.is_empty() {
            break;
        }
        let Some((name, value)) = std::str::from_utf8(line).ok().and_then(|l| l.split_once(':'))
        else {
            continue;
        };
        match name {
            "Message-ID" => id = Some(value.trim().trim_matches(['<', '>']).to_owned()),
            SUM_HEADER => marked = true,
            _ => {}
        }
    }
    let id = id.filter(|id| marked && id.ends_with(DOMAIN))?;
    let mut sum = Sha256::new();
    for line in lines {
        sum.update(line);
        sum.update(b"\n");
    }
    Some((id, sum.finalize().into()))
}

fn trim_line_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Does the same by a script that `run` executes with `sh` and these arguments on any host. Returns the
/// script's output.
pub fn collect_by_script(
    directories: &[String],
    run: impl Fn(&[&str]) -> Result<String, Box<dyn Error + Send + Sync>>,
) -> Result<Vec<StoredCopy>, MaildirError> {
    let mut found = Vec::new();
    for batch in directories.chunks(BATCH) {
        let mut arguments = vec!["-c", SCRIPT, "sh", SUM_HEADER, DOMAIN];
        arguments.extend(batch.iter().map(String::as_str));
        for line in run(&arguments).map_err(MaildirError::Host)?.lines() {
            let copy = parse(line, batch);
            found.push(copy.ok_or_else(|| MaildirError::Answer(line.to_owned()))?);
        }
    }
    Ok(found)
}

/// `ID FILE`, a tab, `SUM  NAME`
fn parse(answer: &str, directories: &[String]) -> Option<StoredCopy> {
    let (named, sum) = answer.split_once('\t')?;
    let (id, file) = named.split_once(' ')?;
    let directory = Path::new(file).parent()?.parent()?;
    let maildir = directories.iter().find(|maildir| Path::new(maildir) == directory)?;
    let digits = sum.split_whitespace().next().filter(|digits| digits.len() == 64)?;
    let mut bytes: Sum = [0; 32];
    for (byte, at) in bytes.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()?;
    }
    Some(StoredCopy { id: id.to_owned(), directory: maildir.clone(), sum: bytes })
}

// Compares accepted messages with delivered copies: lost, altered, or too many. An accepted message requires one
// copy for that recipient. Each reply that never came allows one more copy and requires none. Any other copy is one
// too many. Copies of an earlier trial are recognized by their ids and counted separately: they are not wrong, but
// the server did that work during this trial.

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Messages of the trial, including the warm-up.
    pub sent: usize,
    /// Copies of them that were found.
    pub found: usize,
    pub lost: usize,
    pub altered: usize,
    /// Copies beyond the permitted number.
    pub surplus: usize,
    /// The id of a lost, altered or surplus message.
    pub example: Option<String>,
    /// Copies that an earlier trial sent.
    pub earlier: usize,
}

/// `token` is in every id of this trial; `directories` are the mail directories by recipient.
pub fn compare(
    token: &str,
    sent: &[Sent],
    directories: &[String],
    found: &[StoredCopy],
) -> Verdict {
    let (own, others): (Vec<&StoredCopy>, Vec<&StoredCopy>) =
        found.iter().partition(|one| one.id.split('.').next() == Some(token));
    let mut copies_of: BTreeMap<(&str, &str), Vec<&Sum>> = BTreeMap::new();
    for one in &own {
        copies_of.entry((one.id.as_str(), one.directory.as_str())).or_default().push(&one.sum);
    }
    let mut verdict =
        Verdict { sent: sent.len(), found: own.len(), earlier: others.len(), ..Verdict::default() };
    for message in sent {
        for copies in &message.copies {
            let directory = directories[copies.recipient as usize].as_str();
            let sums = copies_of.remove(&(message.id.as_str(), directory)).unwrap_or_default();
            let lost = (copies.min as usize).saturating_sub(sums.len());
            let surplus = sums.len().saturating_sub(copies.max as usize);
            let altered = sums.iter().filter(|sum| ***sum != message.sum).count();
            verdict.lost += lost;
            verdict.surplus += surplus;
            verdict.altered += altered;
            if lost + surplus + altered > 0 {
                verdict.example.get_or_insert_with(|| format!("{} in {directory}", message.id));
            }
        }
    }
    // Copies for a wrong recipient, or with an unknown id.
    for ((id, directory), sums) in copies_of {
        verdict.surplus += sums.len();
        verdict.example.get_or_insert_with(|| format!("{id} in {directory}"));
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::super::message::{Draft, compose};
    use super::super::session::CopyLimits;
    use super::*;
    use std::process::Command;

    type Collect = fn(&[String]) -> Result<Vec<StoredCopy>, MaildirError>;
    const METHODS: [(&str, Collect); 2] = [("direct", collect), ("script", by_script)];

    fn by_script(directories: &[String]) -> Result<Vec<StoredCopy>, MaildirError> {
        collect_by_script(directories, |arguments| {
            let output = Command::new("sh").args(arguments).output()?;
            assert!(output.status.success());
            Ok(String::from_utf8(output.stdout)?)
        })
    }

    /// The form in which a mail server stores it: bare line feeds, no doubled dots, one more header.
    fn stored(id: &str, crlf: bool, bytes: u64) -> (Vec<u8>, Sum) {
        let draft = Draft { id, sender: "p@l", to: &["a@b"], bytes, seed: 3 };
        let message = compose(&draft);
        let text = String::from_utf8(message.wire).unwrap();
        let text = text.strip_suffix(".\r\n").unwrap().replace("\r\n..", "\r\n.");
        let text = format!("Return-Path: <p@l>\r\nReceived: by\r\n x\r\n{text}");
        let text = if crlf { text } else { text.replace("\r\n", "\n") };
        (text.into_bytes(), message.sum)
    }

    fn filled() -> (tempfile::TempDir, Vec<String>, Vec<StoredCopy>) {
        let dir = tempfile::tempdir().unwrap();
        let places: Vec<String> = ["it's a", "b", "none"]
            .map(|name| dir.path().join(name).to_str().unwrap().to_owned())
            .into();
        let mut wanted = Vec::new();
        for (n, place) in places[..2].iter().enumerate() {
            for part in ["new", "cur", "tmp"] {
                let at = Path::new(place).join(part);
                fs::create_dir_all(&at).unwrap();
                let id = format!("t.{n}.{part}@pgio");
                // The second has one letter of text.
                let (text, sum) = stored(&id, part == "cur", [5000, 1][n]);
                fs::write(at.join("1.M2P3.host:2,S"), &text).unwrap();
                if part != "tmp" {
                    wanted.push(StoredCopy { id, directory: place.clone(), sum });
                }
                // Not pgio's: no mark, a mark in the text only, a foreign id, an empty file.
                let (marked, _) = stored("x@example.org", false, 5000);
                fs::write(at.join("foreign"), marked).unwrap();
                let quoted = format!("Subject: x\n\n{}", String::from_utf8(text).unwrap());
                fs::write(at.join("quoted"), quoted).unwrap();
                fs::write(at.join("empty"), "").unwrap();
            }
        }
        // A message of pgio's that lost its text.
        let id = "t.emptied@pgio".to_owned();
        let (text, _) = stored(&id, false, 5000);
        let head = text.windows(2).position(|two| two == b"\n\n").unwrap() + 2;
        fs::write(Path::new(&places[0]).join("new/emptied"), &text[..head]).unwrap();
        wanted.push(StoredCopy {
            id,
            directory: places[0].clone(),
            sum: Sha256::digest(b"").into(),
        });
        wanted.sort();
        (dir, places, wanted)
    }

    fn files(places: &[String]) -> usize {
        let entries = |place: &String, part| fs::read_dir(Path::new(place).join(part)).unwrap();
        let both = places[..2].iter();
        both.flat_map(|place| ["new", "cur", "tmp"].map(|part| entries(place, part).count())).sum()
    }

    #[test]
    fn both_methods_find_and_remove_the_same_messages_and_nothing_else() {
        for (method, collect) in METHODS {
            let (_dir, places, wanted) = filled();
            let before = files(&places);
            let mut found = collect(&places).unwrap();
            found.sort();
            assert_eq!(found, wanted, "{method}");
            assert_eq!(files(&places), before - wanted.len(), "{method}");
            assert_eq!(collect(&places).unwrap(), [], "{method}");
        }
    }

    #[test]
    fn a_message_moved_meanwhile_is_found_once() {
        for (method, collect) in METHODS {
            let dir = tempfile::tempdir().unwrap();
            let place = dir.path().to_str().unwrap().to_owned();
            let [new, cur] = ["new", "cur"].map(|part| dir.path().join(part));
            fs::create_dir(&new).unwrap();
            fs::create_dir(&cur).unwrap();
            let mut wanted = Vec::new();
            for n in 0..500 {
                let id = format!("t.{n:03}@pgio");
                let (text, sum) = stored(&id, false, 500);
                fs::write(new.join(n.to_string()), text).unwrap();
                wanted.push(StoredCopy { id, directory: place.clone(), sum });
            }
            let mut found = std::thread::scope(|scope| {
                scope.spawn(|| {
                    for n in 0..500 {
                        // The move may come before or after ours.
                        let name = n.to_string();
                        let _ = fs::rename(new.join(&name), cur.join(format!("{name}:2,S")));
                        std::thread::sleep(std::time::Duration::from_micros(100));
                    }
                });
                collect(std::slice::from_ref(&place)).unwrap()
            });
            found.sort();
            assert_eq!(found.len(), wanted.len(), "{method}");
            assert!(found == wanted, "{method}");
        }
    }

    #[test]
    fn a_changed_text_has_a_different_checksum() {
        let (mut text, sum) = stored("1@pgio", false, 5000);
        assert_eq!(id_and_sum(&text), Some(("1@pgio".to_owned(), sum)));
        let last = text.len() - 2;
        text[last] ^= 1;
        assert_ne!(id_and_sum(&text).unwrap().1, sum);
        text.truncate(last - 100);
        assert_ne!(id_and_sum(&text).unwrap().1, sum);
    }

    fn sent(id: &str, sum: u8, copies: &[(u32, u32, u32)]) -> Sent {
        let copies = copies.iter().map(|(recipient, min, max)| CopyLimits {
            recipient: *recipient,
            min: *min,
            max: *max,
        });
        Sent { id: format!("t.{id}@pgio"), sum: [sum; 32], copies: copies.collect() }
    }

    fn found(id: &str, directory: &str, sum: u8) -> StoredCopy {
        StoredCopy { id: format!("t.{id}@pgio"), directory: directory.to_owned(), sum: [sum; 32] }
    }

    fn compared(sent: &[Sent], found: &[StoredCopy]) -> Verdict {
        compare("t", sent, &["/a".to_owned(), "/b".to_owned()], found)
    }

    fn judged(sent: &[Sent], found: &[StoredCopy]) -> (usize, usize, usize) {
        let verdict = compared(sent, found);
        let wrong = verdict.lost + verdict.altered + verdict.surplus;
        assert_eq!(verdict.example.is_some(), wrong > 0);
        (verdict.lost, verdict.altered, verdict.surplus)
    }

    #[test]
    fn each_acceptance_requires_one_copy() {
        let both = [sent("1", 1, &[(0, 1, 1), (1, 1, 1)])];
        assert_eq!(judged(&both, &[found("1", "/a", 1), found("1", "/b", 1)]), (0, 0, 0));
        assert_eq!(judged(&both, &[found("1", "/a", 1)]), (1, 0, 0));
        assert_eq!(judged(&both, &[found("1", "/a", 1), found("1", "/b", 2)]), (0, 1, 0));
        let twice = [found("1", "/a", 1), found("1", "/b", 1), found("1", "/b", 1)];
        assert_eq!(judged(&both, &twice), (0, 0, 1));
    }

    #[test]
    fn an_unknown_fate_allows_a_copy_and_requires_none() {
        let unknown = [sent("1", 1, &[(0, 0, 1)])];
        assert_eq!(judged(&unknown, &[]), (0, 0, 0));
        assert_eq!(judged(&unknown, &[found("1", "/a", 1)]), (0, 0, 0));
        assert_eq!(judged(&unknown, &[found("1", "/a", 9)]), (0, 1, 0));
        let retried = [sent("1", 1, &[(0, 1, 2)])];
        assert_eq!(judged(&retried, &[]), (1, 0, 0));
        assert_eq!(judged(&retried, &[found("1", "/a", 1), found("1", "/a", 1)]), (0, 0, 0));
    }

    #[test]
    fn any_other_copy_is_surplus() {
        let refused = [sent("1", 1, &[(0, 0, 0)])];
        assert_eq!(judged(&refused, &[found("1", "/a", 1)]), (0, 0, 1));
        assert_eq!(judged(&[], &[found("9", "/a", 1)]), (0, 0, 1));
        let elsewhere = [sent("1", 1, &[(0, 1, 1)])];
        assert_eq!(judged(&elsewhere, &[found("1", "/b", 1)]), (1, 0, 1));
    }

    #[test]
    fn copies_of_an_earlier_trial_are_counted_separately() {
        let own = [sent("1", 1, &[(0, 1, 1)])];
        let earlier = StoredCopy { id: "s.1@pgio".to_owned(), ..found("0", "/a", 7) };
        let verdict = compared(&own, &[found("1", "/a", 1), earlier]);
        assert_eq!((verdict.found, verdict.earlier), (1, 1));
        assert_eq!((verdict.lost, verdict.altered, verdict.surplus), (0, 0, 0));
    }
}
