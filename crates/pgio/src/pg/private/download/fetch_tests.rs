//! Tests of fetching a build into the cache, from a local server.

use std::error::Error as _;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use std::{fs, thread};

use tempfile::TempDir;

use super::super::Progress;
use super::DownloadError;
use super::builds::Build;
use super::fetch::{SAMPLE, into_cache};
use super::http::Client;
use crate::host::stop::Stop;

/// Output of `sha256sum sample.jar`.
const HASH: &str = "2513c1522f35b47c36a9e4d901b39ce65b0fe892d83938e0bacef980fd2c2e1c";
const BUILD: Build = Build { major: 18, minor: 6, sha256: &[("x86_64", HASH), ("aarch64", HASH)] };

struct Cache(TempDir);

impl Cache {
    fn new() -> Cache {
        Cache(TempDir::new().unwrap())
    }

    fn server(&self) -> PathBuf {
        self.0.path().join("server")
    }

    fn fetch(&self, from: &TestServer) -> (Result<(), DownloadError>, Vec<Progress>) {
        let (client, url) = (Client::with_pause(Duration::ZERO), BUILD.address(Some(&from.url)));
        let mut seen = Vec::new();
        let mut observer = |progress: &Progress| seen.push(progress.clone());
        let (cache, server, stop) = (self.0.path(), self.server(), Stop::new());
        let fetched = into_cache(&BUILD, (&client, &url), cache, &server, &stop, &mut observer);
        (fetched, seen)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }
}

#[test]
fn a_build_is_downloaded_checked_and_unpacked() {
    let (cache, repository) =
        (Cache::new(), TestServer::start(SAMPLE, &[Reply::Cut(200), Reply::Whole]));
    let (fetched, seen) = cache.fetch(&repository);
    fetched.unwrap();
    assert_eq!(repository.paths().len(), 2, "the broken download started over");
    assert!(repository.paths()[0].ends_with("-18.6.0.jar"), "{:?}", repository.paths());
    let postgres = cache.server().join("bin/postgres");
    assert!(fs::read_to_string(&postgres).unwrap().contains("PostgreSQL"));
    let mode = fs::metadata(&postgres).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o755, "the server's user may run it");
    assert_eq!(cache.names(), ["server"], "no archive, no lock, no scratch directory");

    let texts: Vec<String> = seen.iter().map(Progress::to_string).collect();
    assert_eq!(texts.first().unwrap(), "downloading PostgreSQL 18.6: 0.0 of 0.0 MB");
    assert_eq!(texts.last().unwrap(), "unpacking PostgreSQL 18.6 …");
    let whole = Some(SAMPLE.len() as u64);
    let last = seen.iter().rev().nth(1).unwrap();
    assert!(
        matches!(last, Progress::Download { received, total, .. } if Some(*received) == whole && *total == whole),
        "{last:?}"
    );
}

#[test]
fn a_build_without_its_server_is_replaced_and_other_files_are_refused() {
    let (cache, repository) = (Cache::new(), TestServer::start(SAMPLE, &[Reply::Whole]));
    cache.fetch(&repository).0.unwrap();
    let postgres = cache.server().join("bin/postgres");
    // A clean-up removes files that were not used for long, and then perhaps empty directories.
    fs::remove_file(&postgres).unwrap();
    cache.fetch(&repository).0.unwrap();
    assert!(postgres.is_file());
    fs::remove_dir_all(cache.server().join("bin")).unwrap();
    cache.fetch(&repository).0.unwrap();
    assert!(postgres.is_file());
    assert_eq!(cache.names(), ["server"], "no scratch directory");
    cache.fetch(&repository).0.unwrap();
    assert_eq!(repository.paths().len(), 3, "the complete build is kept");

    let refused = || {
        let refused = cache.fetch(&repository).0.unwrap_err();
        assert!(matches!(refused, DownloadError::NotABuild { .. }), "{refused:?}");
    };
    fs::remove_file(&postgres).unwrap();
    let own = cache.server().join("notes");
    fs::write(&own, "mine").unwrap();
    refused();
    assert_eq!(fs::read_to_string(&own).unwrap(), "mine");
    fs::remove_file(&own).unwrap();
    let elsewhere = cache.0.path().join("elsewhere");
    fs::rename(cache.server(), &elsewhere).unwrap();
    symlink(&elsewhere, cache.server()).unwrap();
    refused();
    assert!(elsewhere.join("lib").is_dir());
    assert_eq!(repository.paths().len(), 3, "refused before the download");
}

#[test]
fn a_wrong_hash_leaves_nothing_behind() {
    let mut other = SAMPLE.to_owned();
    other[100] ^= 1;
    let (cache, repository) = (Cache::new(), TestServer::start(&other, &[Reply::Whole]));
    let refused = cache.fetch(&repository).0.unwrap_err();
    assert!(matches!(refused, DownloadError::WrongHash { .. }), "{refused:?}");
    assert!(refused.to_string().contains(HASH), "{refused}");
    assert!(cache.names().is_empty(), "{:?}", cache.names());
    assert_eq!(repository.paths().len(), 1, "the same file would come again");
}

#[test]
fn a_refused_download_leaves_nothing_behind() {
    let (cache, repository) = (Cache::new(), TestServer::start(SAMPLE, &[Reply::Status(404)]));
    let refused = cache.fetch(&repository).0.unwrap_err();
    assert!(matches!(refused, DownloadError::Transfer { .. }), "{refused:?}");
    assert!(refused.to_string().contains("PGIO_BINDIR"), "{refused}");
    assert!(cache.names().is_empty(), "{:?}", cache.names());
}

#[test]
fn a_download_without_an_end_leaves_nothing_behind() {
    let (cache, repository) = (Cache::new(), TestServer::start(SAMPLE, &[Reply::Huge]));
    let refused = cache.fetch(&repository).0.unwrap_err();
    assert!(refused.source().unwrap().to_string().contains("larger than any build"), "{refused:?}");
    assert!(cache.names().is_empty(), "{:?}", cache.names());
}

/// The reply to one request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reply {
    Whole,
    /// The connection ends after this number of bytes.
    Cut(usize),
    /// The file claims to be larger than any build.
    Huge,
    Status(u16),
}

/// Serves until the test's process ends.
pub(super) struct TestServer {
    pub(super) url: String,
    paths: Arc<Mutex<Vec<String>>>,
}

impl TestServer {
    /// One reply per request; the last one is repeated.
    pub(super) fn start(file: &[u8], replies: &[Reply]) -> TestServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let paths = Arc::new(Mutex::new(Vec::new()));
        let (file, replies, seen) = (file.to_owned(), replies.to_owned(), paths.clone());
        thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = connection.unwrap();
                let path = requested_path(&connection);
                let reply = {
                    let mut seen = seen.lock().unwrap();
                    seen.push(path);
                    replies[(seen.len() - 1).min(replies.len() - 1)]
                };
                // The client may have hung up.
                let _ = connection.write_all(&answer(&file, reply));
            }
        });
        TestServer { url, paths }
    }

    /// The paths of all requests so far.
    pub(super) fn paths(&self) -> Vec<String> {
        self.paths.lock().unwrap().clone()
    }
}

fn requested_path(connection: &TcpStream) -> String {
    let mut lines = BufReader::new(connection).lines().map(Result::unwrap);
    let path = lines.next().unwrap().split(' ').nth(1).unwrap().to_owned();
    lines.take_while(|line| !line.is_empty()).for_each(drop);
    path
}

fn answer(file: &[u8], reply: Reply) -> Vec<u8> {
    let (status, length, sent) = match reply {
        Reply::Whole => (200, file.len(), file.len()),
        Reply::Cut(sent) => (200, file.len(), sent.min(file.len())),
        Reply::Huge => (200, 1 << 40, 0),
        Reply::Status(status) => (status, 0, 0),
    };
    let head = format!(
        "HTTP/1.1 {status} Status\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    [head.as_bytes(), &file[..sent]].concat()
}
