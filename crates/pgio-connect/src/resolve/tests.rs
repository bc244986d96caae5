//! Tests precedence, defaults and files with a fake environment.

use super::*;
use crate::{ConnectWarning, Endpoint, RootCert, SslMode};
use proptest::prelude::*;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn env(vars: &[(&str, &str)]) -> Env {
    Env {
        vars: vars.iter().map(|(k, v)| ((*k).to_owned(), (*v).into())).collect(),
        home: None,
        user: "me".to_owned(),
        socket_dir: PathBuf::from("/run/pg"),
        sysconf_dirs: Vec::new(),
    }
}

fn described(text: &str, vars: &[(&str, &str)]) -> String {
    resolve(text, &env(vars)).unwrap().describe()
}

fn problem(text: &str, vars: &[(&str, &str)]) -> String {
    resolve(text, &env(vars)).unwrap_err().to_string()
}

fn write(path: &Path, text: &str, mode: u32) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn defaults_and_the_three_forms() {
    assert_eq!(described("", &[]), "me on /run/pg:5432 as me");
    assert_eq!(described("", &[("PGUSER", "u")]), "u on /run/pg:5432 as u");
    assert_eq!(described("mydb", &[]), "mydb on /run/pg:5432 as me");
    assert_eq!(described("host=h dbname=d", &[]), "d on h:5432 as me");
    assert_eq!(described("postgres://u@h:1,[::1]/d", &[]), "d on h:1,[::1]:5432 as u");
    assert_eq!(described("-h h -p1 -U u d", &[("PGPORT", "2")]), "d on h:1 as u");
    // A dbname inside a connection string is a name, not another string.
    assert_eq!(described("dbname='a=b'", &[]), "a=b on /run/pg:5432 as me");
}

#[test]
fn the_string_wins_over_the_environment() {
    let vars = [("PGHOST", "eh"), ("PGPORT", "1"), ("PGDATABASE", "ed"), ("PGUSER", "eu")];
    assert_eq!(described("", &vars), "ed on eh:1 as eu");
    assert_eq!(described("port=2 user=su", &vars), "ed on eh:2 as su");
    assert_eq!(described("port=2 port=3", &vars), "ed on eh:3 as eu");
    // An empty value overrides the environment.
    assert_eq!(described("host='' port=''", &vars), "ed on /run/pg:5432 as eu");
}

#[test]
fn lists_of_hosts_and_ports_are_combined() {
    assert_eq!(described("host=a,,/s port=1,,3", &[]), "me on a:1,/run/pg:5432,/s:3 as me");
    assert_eq!(described("host=a,b port=7", &[]), "me on a:7,b:7 as me");
    assert_eq!(described("hostaddr=10.0.0.1", &[]), "me on 10.0.0.1:5432 as me");
    let params = resolve("host=n hostaddr=::1", &env(&[])).unwrap();
    let addr = Some("[::1]:5432".parse().unwrap());
    assert_eq!(params.hosts, [Endpoint::Tcp { host: "n".to_owned(), addr, port: 5432 }]);

    assert!(problem("host=a,b port=1,2,3", &[]).contains("3 ports for 2 hosts"));
    assert!(problem("host=a,b hostaddr=::1", &[]).contains("1 addresses for 2 hosts"));
    assert!(problem("hostaddr=localhost", &[]).contains("not an IP address"));
    for port in ["0", "65536", "x", "-1", "5 6"] {
        let problem = problem("", &[("PGPORT", port)]);
        assert_eq!(problem, "invalid value of port from PGPORT: not a number from 1 to 65535");
    }
}

#[test]
fn each_variable_has_its_effect() {
    let of = |name, value| resolve("", &env(&[(name, value)])).unwrap();
    assert_eq!(of("PGHOSTADDR", "::1").describe(), "me on [::1]:5432 as me");
    assert_eq!(of("PGPASSWORD", "hush").password.unwrap().expose(), b"hush");
    assert_eq!(of("PGOPTIONS", "-c a=b").options.as_deref(), Some("-c a=b"));
    assert_eq!(of("PGAPPNAME", "app").application_name, "app");
    assert_eq!(of("PGUSER", "x").application_name, "pgio");
    assert_eq!(of("PGSSLMODE", "verify-ca").ssl.mode, SslMode::VerifyCa);
    assert_eq!(of("PGREQUIRESSL", "1").ssl.mode, SslMode::Require);
    assert_eq!(of("PGREQUIRESSL", "0").ssl.mode, SslMode::Prefer);
    assert_eq!(of("PGSSLROOTCERT", "/r").ssl.root, RootCert::File("/r".into()));
    assert_eq!(of("PGTARGETSESSIONATTRS", "standby").session_attrs, SessionAttrs::Standby);
    assert_eq!(of("PGCHANNELBINDING", "require").channel_binding, ChannelBinding::Require);
    for (given, seconds) in [("5", Some(5)), ("1", Some(2)), ("0", None), ("-1", None)] {
        let timeout = of("PGCONNECT_TIMEOUT", given).connect_timeout;
        assert_eq!(timeout, seconds.map(Duration::from_secs), "for {given}");
    }
    let given_none = resolve("", &env(&[])).unwrap();
    assert_eq!(given_none.connect_timeout, Some(Duration::from_secs(10)));
    assert!(problem("", &[("PGSSLMODE", "always")]).contains("must be one of prefer, disable"));
    assert!(problem("", &[("PGSSLCRL", "/crl")]).contains("sslcrl from PGSSLCRL is not supported"));
}

#[test]
fn the_service_file_ranks_between_string_and_environment() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("services");
    write(&file, "[s]\nhost=sh\nport=7\nuser=su\n[bad]\nhost = x\n", 0o644);
    let path = file.to_str().unwrap();
    let vars = [("PGSERVICEFILE", path), ("PGPORT", "1"), ("PGDATABASE", "ed")];
    assert_eq!(described("service=s", &vars), "ed on sh:7 as su");
    assert_eq!(described("service=s port=2", &vars), "ed on sh:2 as su");

    let by_variable = [("PGSERVICEFILE", path), ("PGSERVICE", "s")];
    assert_eq!(described("d", &by_variable), "d on sh:7 as su");
    assert_eq!(problem("service=none", &vars), format!("no service `none` in {path}"));
    assert!(problem("service=bad", &vars).contains("line 6: no spaces"));
    assert!(problem("service=s", &[("PGSERVICEFILE", "/none")]).contains("/none"));
    assert!(problem("service=s", &[]).contains("PGSERVICEFILE"));
}

#[test]
fn the_users_service_file_comes_before_the_systems() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join(".pg_service.conf"), "[mine]\nhost=home\n", 0o644);
    write(&dir.path().join("etc/pg_service.conf"), "[mine]\nhost=etc\n[ours]\nhost=etc\n", 0o644);
    let mut env = env(&[]);
    env.home = Some(dir.path().to_owned());
    env.sysconf_dirs = vec![dir.path().join("none"), dir.path().join("etc")];
    let host = |env: &Env, name: &str| resolve(&format!("service={name}"), env).unwrap().describe();
    assert_eq!(host(&env, "mine"), "me on home:5432 as me");
    assert_eq!(host(&env, "ours"), "me on etc:5432 as me");

    env.sysconf_dirs.clear();
    env.vars.insert("PGSYSCONFDIR".to_owned(), dir.path().join("etc").into());
    assert_eq!(host(&env, "ours"), "me on etc:5432 as me");
}

#[test]
fn the_password_file_is_searched_last_and_matches_the_database() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(".pgpass");
    write(&file, "h:*:a:me:pa\nh:*:b:me:pb\n", 0o600);
    let mut env = env(&[]);
    env.home = Some(dir.path().to_owned());
    let password = |params: &ConnectParams| {
        params.password_for(&params.hosts[0]).map(|secret| secret.expose().to_owned())
    };
    let params = resolve("host=h dbname=a", &env).unwrap();
    assert_eq!(password(&params).as_deref(), Some(&b"pa"[..]));
    assert_eq!(password(&params.with_dbname("b")).as_deref(), Some(&b"pb"[..]));
    assert_eq!(password(&resolve("host=h dbname=c", &env).unwrap()), None);
    let given = resolve("host=h dbname=a password=given", &env).unwrap();
    assert_eq!(password(&given).as_deref(), Some(&b"given"[..]));

    write(&file, "h:*:a:me:pa\n", 0o640);
    let params = resolve("host=h dbname=a", &env).unwrap();
    assert_eq!(password(&params), None);
    assert_eq!(params.warnings(), [ConnectWarning::PassfileExposed(file.clone())]);

    let elsewhere = dir.path().join("elsewhere");
    fs::rename(&file, &elsewhere).unwrap();
    write(&elsewhere, "h:*:a:me:pe\n", 0o600);
    env.vars.insert("PGPASSFILE".to_owned(), elsewhere.into());
    assert_eq!(password(&resolve("host=h dbname=a", &env).unwrap()).as_deref(), Some(&b"pe"[..]));
}

#[test]
fn default_certificates_are_used_if_they_exist() {
    let dir = tempfile::tempdir().unwrap();
    let mut env = env(&[]);
    env.home = Some(dir.path().to_owned());
    let ssl = resolve("", &env).unwrap().ssl;
    assert_eq!((ssl.root, ssl.client), (RootCert::None, None));

    let own = dir.path().join(".postgresql");
    write(&own.join("root.crt"), "", 0o644);
    write(&own.join("postgresql.crt"), "", 0o644);
    let ssl = resolve("", &env).unwrap().ssl;
    assert_eq!(ssl.root, RootCert::File(own.join("root.crt")));
    assert_eq!(ssl.client.unwrap().key, own.join("postgresql.key"));
    assert_eq!(resolve("sslcertmode=disable", &env).unwrap().ssl.client, None);
    write(&own.join("root.crl"), "", 0o644);
    let ssl = resolve("", &env).unwrap().ssl;
    assert_eq!(ssl.revoked, Some(own.join("root.crl")));
}

#[test]
fn a_root_certificate_makes_require_the_same_as_verify_ca() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("ca.crt");
    write(&root, "", 0o644);
    for (mode, expected) in [
        ("prefer", SslMode::Prefer),
        ("require", SslMode::VerifyCa),
        ("verify-full", SslMode::VerifyFull),
    ] {
        let text = format!("sslmode={mode} sslrootcert={}", root.display());
        assert_eq!(resolve(&text, &env(&[])).unwrap().ssl.mode, expected, "{mode}");
    }
    let missing = resolve("sslmode=require sslrootcert=/none", &env(&[])).unwrap();
    assert_eq!(missing.ssl.mode, SslMode::Require);
}

#[test]
fn a_password_is_bytes_and_other_values_are_text() {
    let dir = tempfile::tempdir().unwrap();
    let mut env = env(&[]);
    env.home = Some(dir.path().to_owned());
    let file = b"# M\xfcller\n[s]\npassword=p\xfcw\n[u]\nuser=m\xfc\n";
    fs::write(dir.path().join(".pg_service.conf"), file).unwrap();
    let password = |text: &str, env: &Env| resolve(text, env).unwrap().password.unwrap();
    let exact = Secret::new(b"p\xfcw");
    assert_eq!(password("service=s", &env), exact);
    assert_eq!(password("postgresql://u:p%FCw@h/d", &env), exact);
    let refused = resolve("service=u", &env).unwrap_err().to_string();
    assert!(refused.contains("value of user") && refused.contains("not UTF-8"), "{refused}");
    assert!(problem("postgresql://m%FC@h/d", &[]).contains("not UTF-8"));

    let latin = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
    env.vars.insert("PGPASSWORD".to_owned(), latin(b"p\xfcw"));
    assert_eq!(password("", &env), exact);
    env.vars.insert("PGDATABASE".to_owned(), latin(b"d\xfc"));
    let refused = resolve("", &env).unwrap_err().to_string();
    assert!(refused.contains("value of dbname from PGDATABASE"), "{refused}");
}

#[test]
fn the_system_store_implies_verify_full() {
    assert_eq!(resolve("sslrootcert=system", &env(&[])).unwrap().ssl.mode, SslMode::VerifyFull);
    let problem = problem("sslrootcert=system", &[("PGSSLMODE", "require")]);
    assert_eq!(
        problem,
        "invalid value of sslmode from PGSSLMODE: sslrootcert=system requires verify-full"
    );
}

#[test]
fn missing_certificate_files_are_warnings() {
    let params = resolve("sslmode=require sslrootcert=/none sslcert=/nor", &env(&[])).unwrap();
    let expected = [
        ConnectWarning::RootCertMissing("/none".into()),
        ConnectWarning::ClientCertMissing("/nor".into()),
    ];
    assert_eq!(params.warnings(), expected);
}

#[test]
fn all_secrets_of_a_string_are_found() {
    let found = |text: &str| -> Vec<String> {
        let found = secrets(text);
        let text = |s: &Secret| String::from_utf8(s.expose().to_owned()).unwrap();
        found.iter().map(text).collect()
    };
    let text = "host=h password=a sslpassword='b c' oauth_client_secret=d passfile=/e sslkey=f";
    assert_eq!(found(text), ["a", "b c", "d"]);
    assert_eq!(found("postgres://u:p%40@h/d?ssl%70assword=x"), ["p@", "x"]);
    for text in ["", "mydb", "host=h password=''", "password='"] {
        assert_eq!(found(text), [""; 0], "{text}");
    }
}

#[test]
fn descriptions_contain_no_secrets() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join(".pgpass"), "*:*:*:*:hush\n", 0o600);
    let mut env = env(&[]);
    env.home = Some(dir.path().to_owned());
    for text in ["user=u password=hush", "postgres://u:hush@h/d", ""] {
        let params = resolve(text, &env).unwrap();
        assert!(params.password_for(&params.hosts[0]).is_some());
        let shown = format!("{params:?} {}", params.describe());
        assert!(!shown.contains("hush"), "{shown}");
    }
}

proptest! {
    #[test]
    fn never_panics(text in "(postgres://)?[a-z0-9=:,/?@ ']{0,30}|.*", port in ".*") {
        let _ = resolve(&text, &env(&[("PGPORT", &port)]));
    }
}
