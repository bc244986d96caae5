//! postgresql.auto.conf as a whole: ALTER SYSTEM moves the line that it changes to the end.
//!
//! So an undo that restored a line moves those that followed it behind it again, by setting each to
//! the value that it has. ALTER SYSTEM drops comments that someone wrote there by hand with the first change
//! of any setting. The journal has a digest of the text instead of the text, which may hold a password.

use postgres::Client;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::list::survives_rewrite;
use super::setting::{alter_system, failed};
use crate::pg::secrets::may_hold_secret;
use crate::pg::words::Shown;
use crate::treatment::error::TreatmentError;

/// What the journal keeps of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AutoConf {
    /// Names in the order of their lines.
    order: Vec<String>,
    /// Digest of names and values.
    lines: String,
    /// Digest of the whole text; absent where the role may not read files of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
}

impl AutoConf {
    pub(super) fn read(client: &mut Client) -> Result<AutoConf, TreatmentError> {
        let found = lines(client)?;
        let digests = (digest_of(&found), digest(client));
        let order = found.into_iter().map(|(name, _)| name).collect();
        Ok(AutoConf { order, lines: digests.0, digest: digests.1 })
    }

    /// Restores the order of the lines. Returns whether the file is as it was, as far as is
    /// known; new lines of others stay at its end.
    pub(super) fn restore_order(&self, client: &mut Client) -> Result<bool, TreatmentError> {
        let found = lines(client)?;
        let at = |name: &String| self.order.iter().position(|n| n == name).unwrap_or(usize::MAX);
        let mut wanted = found.clone();
        wanted.sort_by_key(|(name, _)| at(name));
        let first = found.iter().zip(&wanted).position(|(found, wanted)| found.0 != wanted.0);
        let moved = first.map_or(&[][..], |first| &wanted[first..]);
        // The server may log what is sent as SQL; and what is not UTF-8 is not known exactly.
        let may_be_sent = |name: &str, value: &str| {
            !may_hold_secret(name)
                && survives_rewrite(name, value)
                && !value.contains(char::REPLACEMENT_CHARACTER)
        };
        if !moved.iter().all(|(name, value)| may_be_sent(name, value)) {
            return Ok(false);
        }
        for (name, value) in moved {
            // Fails where the role may change some settings only.
            if alter_system(client, name, Some(value)).is_err() {
                return Ok(false);
            }
        }
        if digest_of(&wanted) != self.lines {
            // Some lines of ours are not restored yet, or others added theirs.
            return Ok(true);
        }
        Ok(self.digest.is_none() || digest(client) == self.digest)
    }
}

fn lines(client: &mut Client) -> Result<Vec<(String, String)>, TreatmentError> {
    let rows = client
        .query(
            "SELECT name, coalesce(setting, '') FROM pg_file_settings \
             WHERE sourcefile LIKE '%/postgresql.auto.conf' AND name IS NOT NULL ORDER BY seqno",
            &[],
        )
        .map_err(failed("read the order of postgresql.auto.conf"))?;
    let line = |row: &postgres::Row| Ok((row.try_get(0)?, row.try_get::<_, Shown>(1)?.into()));
    rows.iter().map(line).collect()
}

fn digest(client: &mut Client) -> Option<String> {
    let text =
        "SELECT pg_read_binary_file(current_setting('data_directory') || '/postgresql.auto.conf')";
    let bytes: Vec<u8> = client.query_one(text, &[]).ok()?.try_get(0).ok()?;
    Some(hex(&bytes))
}

fn digest_of(lines: &[(String, String)]) -> String {
    let text: Vec<String> =
        lines.iter().map(|(name, value)| format!("{name}\0{value}\0")).collect();
    hex(text.concat().as_bytes())
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
