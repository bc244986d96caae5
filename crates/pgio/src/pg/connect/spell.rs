//! Resolved parameters spelled out again as a conninfo string, without the password: what a journal
//! keeps to find the server again. The password then comes from where libpq finds one.

use super::params::{ConnectParams, Endpoint, RootCert, SslMode};

impl ConnectParams {
    /// A conninfo string that reaches the same database, given a password from elsewhere.
    pub fn without_secrets(&self) -> String {
        let (mut hosts, mut addresses, mut ports) = (Vec::new(), Vec::new(), Vec::new());
        for endpoint in &self.hosts {
            let (host, address, port) = match endpoint {
                Endpoint::Socket { dir, port } => (dir.display().to_string(), String::new(), port),
                Endpoint::Tcp { host, addr, port } => {
                    (host.clone(), addr.map_or_else(String::new, |a| a.to_string()), port)
                }
            };
            hosts.push(host);
            addresses.push(address);
            ports.push(port.to_string());
        }
        let mut pairs = vec![
            ("host", hosts.join(",")),
            ("port", ports.join(",")),
            ("user", self.user.clone()),
            ("dbname", self.dbname.clone()),
            ("sslmode", mode(self.ssl.mode).to_owned()),
        ];
        if addresses.iter().any(|a| !a.is_empty()) {
            pairs.push(("hostaddr", addresses.join(",")));
        }
        match &self.ssl.root {
            RootCert::None => {}
            RootCert::File(path) => pairs.push(("sslrootcert", path.display().to_string())),
            RootCert::System => pairs.push(("sslrootcert", "system".to_owned())),
        }
        if let Some(client) = &self.ssl.client {
            pairs.push(("sslcert", client.cert.display().to_string()));
            pairs.push(("sslkey", client.key.display().to_string()));
        }
        let spelled: Vec<String> =
            pairs.into_iter().map(|(key, value)| format!("{key}={}", quoted(&value))).collect();
        spelled.join(" ")
    }
}

fn mode(mode: SslMode) -> &'static str {
    match mode {
        SslMode::Disable => "disable",
        SslMode::Allow => "allow",
        SslMode::Prefer => "prefer",
        SslMode::Require => "require",
        SslMode::VerifyCa => "verify-ca",
        SslMode::VerifyFull => "verify-full",
    }
}

fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use super::super::{Env, resolve};
    use std::collections::BTreeMap;

    fn env() -> Env {
        Env { vars: BTreeMap::new(), home: None, user: "dba".to_owned(), ..Env::default() }
    }

    #[test]
    fn what_is_spelled_resolves_to_the_same() {
        for text in [
            "postgresql://u:secret@h1:5433,h2/my%20db?sslmode=require",
            "host=/tmp dbname='it''s' user=o\\'x password=secret",
        ] {
            let Ok(params) = resolve(text, &env()) else { continue };
            let spelled = params.without_secrets();
            assert!(!spelled.contains("secret"), "{spelled}");
            let again = resolve(&spelled, &env()).unwrap();
            assert_eq!(again.describe(), params.describe());
            assert_eq!(again.ssl, params.ssl);
        }
    }
}
