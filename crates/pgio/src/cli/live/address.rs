//! `--live` and its token: parsed, read and refused before anything is started.
//!
//! The token never comes from the command line, where every user of the machine could read it.

use std::env;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::cli::exit::{FILES, Failure, USAGE};
use pgio_connect::Secret;
use pgio_results::files;

const TOKEN_VARIABLE: &str = "PGIO_LIVE_TOKEN";
/// A guess is answered after a second, so 16 characters are enough.
const MIN_TOKEN_LENGTH: usize = 16;
const MAX_TOKEN_FILE_BYTES: u64 = 1024;

#[derive(Debug, Default, clap::Args)]
pub(crate) struct LiveArgs {
    /// Serve the report to browsers at this address, such as 127.0.0.1:8080, while the experiment runs
    #[arg(long, value_name = "IP:PORT", value_parser = parse_address, conflicts_with = "plan")]
    live: Option<SocketAddr>,
    /// Read the token that browsers must send from this file instead of PGIO_LIVE_TOKEN; an address that is not
    /// loopback requires a token
    #[arg(long, value_name = "FILE", requires = "live")]
    live_token_file: Option<PathBuf>,
}

fn parse_address(text: &str) -> Result<SocketAddr, &'static str> {
    let on_this_machine = || {
        let port = text.strip_prefix("localhost:")?.parse().ok()?;
        Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port))
    };
    let parsed = text.parse().ok().or_else(on_this_machine);
    parsed.ok_or("must be an IP address and a port such as 127.0.0.1:8080 or [::1]:8080")
}

/// Where to listen, and the token that a browser must have.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) address: SocketAddr,
    pub(super) token: Option<Token>,
}

impl LiveArgs {
    /// Returns nothing without `--live`.
    pub(super) fn endpoint(&self) -> Result<Option<Endpoint>, Failure> {
        let Some(address) = self.live else { return Ok(None) };
        let token = match &self.live_token_file {
            Some(file) => Some(read_token(file)?),
            None => token_from_environment()?,
        };
        if token.is_none() && !address.ip().is_loopback() {
            let why = format!(
                "--live {address}: anybody could read the page at an address that is not loopback; set \
                 {TOKEN_VARIABLE} or --live-token-file, or use 127.0.0.1 and an ssh tunnel"
            );
            return Err(Failure::message(USAGE, why));
        }
        Ok(Some(Endpoint { address, token }))
    }
}

fn token_from_environment() -> Result<Option<Token>, Failure> {
    let Some(text) = env::var_os(TOKEN_VARIABLE).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let refused = |why| Failure::message(USAGE, format!("{TOKEN_VARIABLE} {why}"));
    let text = text.into_string().map_err(|_| refused(Token::REQUIREMENT))?;
    Token::new(&text).map(Some).ok_or_else(|| refused(Token::REQUIREMENT))
}

fn read_token(file: &Path) -> Result<Token, Failure> {
    let shown = file.display();
    let unread = |e| Failure::new(FILES, e).context(format!("cannot read the token file {shown}"));
    let mode = file.metadata().map_err(unread)?.permissions().mode();
    if mode & 0o077 != 0 {
        let why =
            format!("the token file {shown} is accessible to other users; run chmod 0600 {shown}");
        return Err(Failure::message(USAGE, why));
    }
    let text = files::read_text(file, MAX_TOKEN_FILE_BYTES).map_err(unread)?;
    let refused =
        || Failure::message(USAGE, format!("the token in {shown} {}", Token::REQUIREMENT));
    Token::new(text.trim_end()).ok_or_else(refused)
}

/// What a browser must send as the password of HTTP's basic authentication, under any user name.
#[derive(Debug)]
pub(super) struct Token(Secret);

impl Token {
    const REQUIREMENT: &str = "must have at least 16 printable ASCII characters without a space";

    fn new(text: &str) -> Option<Token> {
        let fits =
            text.len() >= MIN_TOKEN_LENGTH && text.bytes().all(|byte| byte.is_ascii_graphic());
        fits.then(|| Token(Secret::new(text)))
    }

    /// Whether the header `Authorization` has this token. The time that it takes tells nothing about the
    /// token: digests of equal length are compared in constant time.
    pub(super) fn is_in(&self, header: &str) -> bool {
        let Some((scheme, sent)) = header.split_once(' ') else { return false };
        let offered = match scheme.to_ascii_lowercase().as_str() {
            "bearer" => sent.as_bytes().to_vec(),
            "basic" => {
                let Ok(pair) = STANDARD.decode(sent.trim()) else { return false };
                let Some(colon) = pair.iter().position(|byte| *byte == b':') else { return false };
                pair[colon + 1..].to_vec()
            }
            _ => return false,
        };
        let digest = |bytes: &[u8]| -> [u8; 32] { Sha256::digest(bytes).into() };
        digest(&offered).ct_eq(&digest(self.0.expose())).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_an_ip_and_a_port() {
        for (text, parsed) in [
            ("127.0.0.1:8080", "127.0.0.1:8080"),
            ("localhost:0", "127.0.0.1:0"),
            ("[::1]:80", "[::1]:80"),
            ("0.0.0.0:8080", "0.0.0.0:8080"),
        ] {
            assert_eq!(parse_address(text).unwrap().to_string(), parsed);
        }
        for rubbish in ["", "8080", ":8080", "127.0.0.1", "127.0.0.1:70000", "db:80", "localhost:"]
        {
            assert!(parse_address(rubbish).is_err(), "{rubbish}");
        }
    }

    fn args(address: &str, file: Option<PathBuf>) -> LiveArgs {
        LiveArgs { live: Some(address.parse().unwrap()), live_token_file: file }
    }

    #[test]
    fn a_token_file_must_be_private_and_hold_a_valid_token() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        let with = |text: &str, mode: u32| {
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
            args("0.0.0.0:0", Some(file.clone())).endpoint()
        };
        let found = with("0123456789abcdef\n", 0o600).unwrap().unwrap();
        assert!(found.token.unwrap().is_in("Bearer 0123456789abcdef"));
        let error = with("0123456789abcdef\n", 0o640).unwrap_err();
        assert_eq!(error.code(), USAGE);
        assert!(error.sentence().contains("chmod 0600"), "{}", error.sentence());
        for text in ["short\n", "has a space in its middle", ""] {
            let error = with(text, 0o600).unwrap_err();
            assert!(error.sentence().ends_with(Token::REQUIREMENT), "{}", error.sentence());
            assert!(text.is_empty() || !error.sentence().contains(text));
        }
        let absent = args("[::]:0", Some(dir.path().join("none"))).endpoint().unwrap_err();
        assert_eq!(absent.code(), FILES);
    }

    #[test]
    fn the_token_is_accepted_as_bearer_or_as_password_of_any_user() {
        let token = Token::new("0123456789abcdef").unwrap();
        let basic = |pair: &str| format!("Basic {}", STANDARD.encode(pair));
        assert!(token.is_in(&basic("dba:0123456789abcdef")));
        assert!(token.is_in(&basic(":0123456789abcdef")));
        assert!(token.is_in("bearer 0123456789abcdef"));
        let wrong = ["dba:0123456789abcdeF", "0123456789abcdef:", "dba:", "0123456789abcdef"];
        for pair in wrong {
            assert!(!token.is_in(&basic(pair)), "{pair}");
        }
        for header in ["", "Basic", "Basic ???", "Digest 0123456789abcdef", "0123456789abcdef"] {
            assert!(!token.is_in(header), "{header}");
        }
        assert!(!format!("{token:?}").contains("0123"));
    }
}
