//! `initdb = [...]` of a private target: options of initdb, except those that pgio sets itself.
//!
//! Pure. Whether a version knows an option is checked by `pg::private`, which has the program.

/// Options that pgio sets itself or that leave no server: long, short, and the remedy.
const RESERVED_OPTIONS: &[(&str, &str, &str)] = &[
    ("--pgdata", "-D", "set directory instead"),
    ("--waldir", "-X", "set wal_directory instead"),
    ("--username", "-U", "the superuser is postgres"),
    ("--auth", "-A", TRUST_REASON),
    ("--auth-host", "", TRUST_REASON),
    ("--auth-local", "", TRUST_REASON),
    ("--pwprompt", "-W", TRUST_REASON),
    ("--pwfile", "", TRUST_REASON),
    ("--no-sync", "-N", "pgio sets it; the server itself runs with fsync"),
    ("--sync-only", "-S", NO_SERVER_REASON),
    ("--show", "-s", NO_SERVER_REASON),
    ("--help", "-?", NO_SERVER_REASON),
    ("--version", "-V", NO_SERVER_REASON),
];

const TRUST_REASON: &str = "only pgio's user can enter the directory of the socket";
const NO_SERVER_REASON: &str = "it creates no server";

/// The name of an option without its value; `None` for a value of the option before.
pub fn option_name(argument: &str) -> Option<&str> {
    if argument.starts_with("--") {
        return argument.split('=').next();
    }
    let mut letters = argument.char_indices().skip(2);
    // A short option may have its value attached.
    argument.starts_with('-').then(|| &argument[..letters.next().map_or(argument.len(), |l| l.0)])
}

/// The error completes a sentence that begins with the key.
pub(super) fn check(arguments: &[String]) -> Result<(), String> {
    let mut may_be_value = false;
    for argument in arguments {
        let Some(name) = option_name(argument) else {
            if !may_be_value {
                return Err(format!("must be a list of options, and `{argument}` is none"));
            }
            may_be_value = false;
            continue;
        };
        if let Some((_, _, remedy)) =
            RESERVED_OPTIONS.iter().find(|(long, short, _)| [*long, *short].contains(&name))
        {
            return Err(format!("must not contain `{name}`: {remedy}"));
        }
        may_be_value = !argument.contains('=');
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_pgio_and_plain_words_are_refused() {
        let check = |arguments: &[&str]| {
            let owned: Vec<String> = arguments.iter().map(|a| (*a).to_owned()).collect();
            check(&owned)
        };
        assert_eq!(check(&["--data-checksums", "--wal-segsize=64", "-E", "UTF8", "-k"]), Ok(()));
        assert_eq!(check(&["--locale", "C", "-EUTF8"]), Ok(()));
        let error = check(&["--waldir=/srv/wal"]).unwrap_err();
        assert_eq!(error, "must not contain `--waldir`: set wal_directory instead");
        for own in ["-D", "-D/srv", "--pgdata"] {
            assert!(check(&[own, "/srv"]).unwrap_err().contains("set directory instead"), "{own}");
        }
        for word in ["checksums", "", "é"] {
            assert!(check(&[word]).unwrap_err().contains("is none"), "{word}");
        }
        assert!(check(&["--wal-segsize=64", "x"]).unwrap_err().contains("`x` is none"));
        assert_eq!(option_name("-é1"), Some("-é"));
    }
}
