//! Messages of ours in mail directories, here or on another host: read, summed up, and removed.
//!
//! Ours is what has our header; everything else in a directory stays as it is, and so do the files
//! that the mail server keeps beside. Here files are read by ourselves, as there may be gigabytes of
//! them; on another host by a script of `awk` and `sha256sum`, so that nothing of pgio's has to be
//! there. A test holds the two together.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::message::{MARK, Sum};
use crate::files::{Directory, Refused};
use crate::host::Host;
use crate::host::exec::{CommandLine, Exec, ExecError};

const SCRIPT: &str = include_str!("maildir.sh");
/// Directories in one command line, which has to fit into 128 kB.
const BATCH: usize = 250;
/// No message of ours has more bytes.
const MESSAGE: u64 = 256 << 20;
/// The end of every Message-ID of pgio.
const DOMAIN: &str = "@pgio";

#[derive(Debug, thiserror::Error)]
pub enum LookError {
    #[error("{}", .path.display())]
    File { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Host(#[from] ExecError),
    #[error("the host's answer is not understood: {0}")]
    Answer(String),
}

/// One copy of one message.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Found {
    pub(super) id: String,
    /// As it was asked for.
    pub(super) place: String,
    pub(super) sum: Sum,
}

/// Finds and removes all that is ours. Directories that are not there are empty.
pub(super) fn collect(host: &Host, places: &[String]) -> Result<Vec<Found>, LookError> {
    match host.is_local() {
        true => here(places),
        false => by_script(host, places),
    }
}

fn here(places: &[String]) -> Result<Vec<Found>, LookError> {
    let mut found = Vec::new();
    for place in places {
        for part in ["new", "cur"] {
            let directory = Path::new(place).join(part);
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
                // Its users may put a link or a FIFO there meanwhile.
                let name = entry.file_name();
                let text = match open.read_bytes(Path::new(&name), MESSAGE) {
                    // A reader of mail moves files from one directory to the other.
                    Err(error) if error.kind() == ErrorKind::NotFound => continue,
                    // Not of our size or kind.
                    Err(error) if Refused::is_cause_of(&error) => continue,
                    text => text.map_err(failed(&path))?,
                };
                if let Some((id, sum)) = ours(&text) {
                    if !open.remove(&name).map_err(failed(&path))? {
                        continue;
                    }
                    found.push(Found { id, place: place.clone(), sum });
                }
            }
        }
    }
    if !found.is_empty() {
        settle(places);
    }
    Ok(found)
}

fn failed(path: &Path) -> impl Fn(io::Error) -> LookError {
    |source| LookError::File { path: path.to_owned(), source }
}

/// What was removed is not to be written while the next trial runs.
fn settle(places: &[String]) {
    let there = places.iter().find_map(|place| fs::File::open(place).ok());
    // Only a kindness to the next trial: what cannot be written fails there, and says so.
    if let Some(directory) = there {
        let _ = rustix::fs::syncfs(directory);
    }
}

/// The id and the text's sum, of a message of ours. Line ends are those of the store.
fn ours(message: &[u8]) -> Option<(String, Sum)> {
    let (mut id, mut marked) = (None, false);
    let mut lines = message.split_inclusive(|b| *b == b'\n').map(without_end);
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
            MARK => marked = true,
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

fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn by_script(host: &dyn Exec, places: &[String]) -> Result<Vec<Found>, LookError> {
    let mut found = Vec::new();
    for batch in places.chunks(BATCH) {
        let line = CommandLine::new("sh").args(["-c", SCRIPT, "sh", MARK, DOMAIN]).args(batch);
        for answer in host.run(&line)?.lines() {
            let one = parse(answer, batch);
            found.push(one.ok_or_else(|| LookError::Answer(answer.to_owned()))?);
        }
    }
    Ok(found)
}

/// `ID FILE`, a tab, `SUM  NAME`
fn parse(answer: &str, places: &[String]) -> Option<Found> {
    let (named, sum) = answer.split_once('\t')?;
    let (id, file) = named.split_once(' ')?;
    let directory = Path::new(file).parent()?.parent()?;
    let place = places.iter().find(|place| Path::new(place) == directory)?;
    let digits = sum.split_whitespace().next().filter(|digits| digits.len() == 64)?;
    let mut bytes: Sum = [0; 32];
    for (byte, at) in bytes.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()?;
    }
    Some(Found { id: id.to_owned(), place: place.clone(), sum: bytes })
}

#[cfg(test)]
mod tests {
    use super::super::message::{Draft, compose};
    use super::*;
    use crate::host::exec::Local;

    type Way = fn(&[String]) -> Result<Vec<Found>, LookError>;
    const WAYS: [(&str, Way); 2] = [("here", here), ("script", |places| by_script(&Local, places))];

    /// As a mail server stores it: bare line feeds, no dots doubled, a header more.
    fn stored(id: &str, crlf: bool, bytes: u64) -> (Vec<u8>, Sum) {
        let draft = Draft { id, sender: "p@l", to: &["a@b"], bytes, seed: 3 };
        let message = compose(&draft);
        let text = String::from_utf8(message.wire).unwrap();
        let text = text.strip_suffix(".\r\n").unwrap().replace("\r\n..", "\r\n.");
        let text = format!("Return-Path: <p@l>\r\nReceived: by\r\n x\r\n{text}");
        let text = if crlf { text } else { text.replace("\r\n", "\n") };
        (text.into_bytes(), message.sum)
    }

    fn filled() -> (tempfile::TempDir, Vec<String>, Vec<Found>) {
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
                // The second is all header, but for one letter.
                let (text, sum) = stored(&id, part == "cur", [5000, 1][n]);
                fs::write(at.join("1.M2P3.host:2,S"), &text).unwrap();
                if part != "tmp" {
                    wanted.push(Found { id, place: place.clone(), sum });
                }
                // Not ours: no mark, a mark in the text only, another's id, nothing at all.
                let (marked, _) = stored("x@example.org", false, 5000);
                fs::write(at.join("foreign"), marked).unwrap();
                let quoted = format!("Subject: x\n\n{}", String::from_utf8(text).unwrap());
                fs::write(at.join("quoted"), quoted).unwrap();
                fs::write(at.join("empty"), "").unwrap();
            }
        }
        // Ours, and its text is lost.
        let id = "t.emptied@pgio".to_owned();
        let (text, _) = stored(&id, false, 5000);
        let head = text.windows(2).position(|two| two == b"\n\n").unwrap() + 2;
        fs::write(Path::new(&places[0]).join("new/emptied"), &text[..head]).unwrap();
        wanted.push(Found { id, place: places[0].clone(), sum: Sha256::digest(b"").into() });
        wanted.sort();
        (dir, places, wanted)
    }

    fn files(places: &[String]) -> usize {
        let entries = |place: &String, part| fs::read_dir(Path::new(place).join(part)).unwrap();
        let both = places[..2].iter();
        both.flat_map(|place| ["new", "cur", "tmp"].map(|part| entries(place, part).count())).sum()
    }

    #[test]
    fn the_script_finds_and_removes_what_is_found_here_and_nothing_else() {
        for (way, collect) in WAYS {
            let (_dir, places, wanted) = filled();
            let before = files(&places);
            let mut found = collect(&places).unwrap();
            found.sort();
            assert_eq!(found, wanted, "{way}");
            assert_eq!(files(&places), before - wanted.len(), "{way}");
            assert_eq!(collect(&places).unwrap(), [], "{way}");
        }
    }

    #[test]
    fn what_a_reader_moves_meanwhile_is_found_once() {
        for (way, collect) in WAYS {
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
                wanted.push(Found { id, place: place.clone(), sum });
            }
            let mut found = std::thread::scope(|scope| {
                scope.spawn(|| {
                    for n in 0..500 {
                        // Who is quicker, the reader or we, differs.
                        let name = n.to_string();
                        let _ = fs::rename(new.join(&name), cur.join(format!("{name}:2,S")));
                        std::thread::sleep(std::time::Duration::from_micros(100));
                    }
                });
                collect(std::slice::from_ref(&place)).unwrap()
            });
            found.sort();
            assert_eq!(found.len(), wanted.len(), "{way}");
            assert!(found == wanted, "{way}");
        }
    }

    #[test]
    fn a_changed_text_has_another_sum() {
        let (mut text, sum) = stored("1@pgio", false, 5000);
        assert_eq!(ours(&text), Some(("1@pgio".to_owned(), sum)));
        let last = text.len() - 2;
        text[last] ^= 1;
        assert_ne!(ours(&text).unwrap().1, sum);
        text.truncate(last - 100);
        assert_ne!(ours(&text).unwrap().1, sum);
    }
}
