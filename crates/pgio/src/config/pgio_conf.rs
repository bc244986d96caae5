//! pgio.conf, the original's file: parsed like shell assignments, never executed.
//!
//! The original sources the file, so a plain assignment has the same meaning here as in bash, and so
//! has `$NAME` of an earlier line. Anything else that only a shell could evaluate is refused, with a hint. Unknown keys are errors,
//! because a misspelled key would silently leave its default in effect.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::str::Chars;

use super::keys::{self, Key, Layer};
use super::value::{ConfigError, nearest};
use pgio_results::Warning;

/// The original uses it for tracing.
const DEBUG_KEY: &str = "PGIO_DEBUG";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PgioConf {
    pub layer: Layer,
    pub warnings: Vec<Warning>,
}

/// Parses the text of a pgio.conf, with U+FFFD for what was not UTF-8; errors contain the name `file`.
pub fn parse(text: &str, file: &str) -> Result<PgioConf, ConfigError> {
    let mut conf = PgioConf::default();
    let mut seen = BTreeMap::new();
    let mut variables = Variables::default();
    let mut own: BTreeMap<&str, usize> = BTreeMap::new();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (at, line) in text.split('\n').enumerate() {
        let number = at + 1;
        let error = |key: Option<String>, message: String| ConfigError {
            file: file.to_owned(),
            line: number,
            key,
            message,
        };
        let line = line.strip_suffix('\r').unwrap_or(line);
        let Assignment { key, value } = match parse_line(line, &mut variables) {
            Ok(Some(assignment)) => assignment,
            Ok(None) => continue,
            Err(wrong) => return Err(error(wrong.key.map(str::to_owned), wrong.message)),
        };
        if value.contains(char::REPLACEMENT_CHARACTER) {
            let wrong = "is not UTF-8; convert the line, or keep a password in ~/.pgpass";
            return Err(error(Some(key.to_owned()), wrong.to_owned()));
        }
        variables.set(key, &value);
        if key == DEBUG_KEY {
            conf.warnings.push(debug_ignored(file, number));
            continue;
        }
        let Some(known) =
            keys::all().filter(|k| k.is_conf_key()).find(|known| known.conf_name() == key)
        else {
            own.entry(key).or_insert(number);
            continue;
        };
        let is_connection = known.conf_name() == "CONNECT_STRING";
        let value = if is_connection { words_of_psql(value) } else { value };
        known.set(&mut conf.layer, &value).map_err(|wrong| error(Some(key.to_owned()), wrong))?;
        if let Some(earlier) = seen.insert(key, number) {
            conf.warnings.push(repeated(file, key, earlier, number));
        }
    }
    // One that no other line uses is a misspelled key.
    let misspelled = own.into_iter().filter(|(key, _)| !variables.is_used(key));
    match misspelled.min_by_key(|(_, line)| *line) {
        None => Ok(conf),
        Some((key, line)) => Err(ConfigError {
            file: file.to_owned(),
            line,
            key: Some(key.to_owned()),
            message: unknown(key),
        }),
    }
}

/// Writes two names as psql's options: the original's shell makes a database and a user of them,
/// where they would be one name as an argument.
fn words_of_psql(text: String) -> String {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    match words[..] {
        [database, user]
            if !text.contains('=')
                && !text.contains("://")
                && !user.starts_with('-')
                && !database.starts_with('-') =>
        {
            format!("-d {database} -U {user}")
        }
        _ => text,
    }
}

fn unknown(key: &str) -> String {
    if key.starts_with("PG") {
        return "is not a key of pgio.conf; set host=, port=, user= and so on in \
                CONNECT_STRING, or export the variable before you start pgio"
            .to_owned();
    }
    let names: Vec<String> = keys::all().filter(|k| k.is_conf_key()).map(Key::conf_name).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    format!("is not a key of pgio.conf; {}", nearest(key, &names))
}

fn repeated(file: &str, key: &str, earlier: usize, line: usize) -> Warning {
    Warning {
        what: format!("{file}: {key} is set in line {earlier} and again in line {line}"),
        why: "the last setting takes effect, as in the original".to_owned(),
        try_this: format!("delete line {earlier}"),
    }
}

fn debug_ignored(file: &str, line: usize) -> Warning {
    Warning {
        what: format!("{file}: {DEBUG_KEY} in line {line} is ignored"),
        why: "it enables tracing in the original's scripts, which pgio does not use".to_owned(),
        try_this: format!("delete line {line}"),
    }
}

struct Assignment<'a> {
    key: &'a str,
    value: String,
}

struct LineError<'a> {
    key: Option<&'a str>,
    message: String,
}

/// What earlier lines have set.
#[derive(Debug, Default)]
struct Variables(BTreeMap<String, (String, bool)>);

impl Variables {
    fn set(&mut self, name: &str, value: &str) {
        let used = self.is_used(name);
        self.0.insert(name.to_owned(), (value.to_owned(), used));
    }

    fn is_used(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|(_, used)| *used)
    }

    /// Returns the value of `NAME` or `{NAME}` after a `$`. The values of the environment and other forms are a shell's.
    fn expand(&mut self, chars: &mut Peekable<Chars<'_>>) -> Result<&str, String> {
        let braced = chars.next_if_eq(&'{').is_some();
        let mut name = String::new();
        name.extend(std::iter::from_fn(|| chars.next_if(|c| is_part(*c))));
        let is_closed = !braced || chars.next_if_eq(&'}').is_some();
        match self.0.get_mut(&name).filter(|_| is_closed) {
            Some((value, used)) => {
                *used = true;
                Ok(value)
            }
            None => Err(needs_shell('$')),
        }
    }
}

/// Parses a line; returns `None` for a blank line or a comment.
fn parse_line<'a>(
    line: &'a str,
    variables: &mut Variables,
) -> Result<Option<Assignment<'a>>, LineError<'a>> {
    let line = line.trim_start_matches(is_blank);
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let line = match line.strip_prefix("export") {
        Some(rest) if rest.starts_with(is_blank) => rest.trim_start_matches(is_blank),
        _ => line,
    };
    let (key, rest) = line.split_at(name_length(line));
    if !key.is_empty() && rest.trim_start_matches(is_blank).starts_with('=') {
        let message = match rest.strip_prefix('=') {
            Some(value) => match value_of(value, variables) {
                Ok(value) => return Ok(Some(Assignment { key, value })),
                Err(message) => message,
            },
            None => NO_SPACES.to_owned(),
        };
        return Err(LineError { key: Some(key), message });
    }
    let message = "is not KEY=VALUE; write one setting per line, or # before a comment";
    Err(LineError { key: None, message: message.to_owned() })
}

const NO_SPACES: &str = "has spaces around `=`; write KEY=VALUE without spaces";

/// The shell's blanks; a no-break space is an ordinary character.
fn is_blank(c: char) -> bool {
    c == ' ' || c == '\t'
}

fn is_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn name_length(text: &str) -> usize {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return 0;
    }
    text.find(|c| !is_part(c)).unwrap_or(text.len())
}

/// Returns the word after `=` without quotes; only a comment may follow it.
fn value_of(text: &str, variables: &mut Variables) -> Result<String, String> {
    let mut value = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\'' => single_quoted(&mut chars, &mut value)?,
            '"' => double_quoted(&mut chars, &mut value, variables)?,
            '$' => value.push_str(variables.expand(&mut chars)?),
            ' ' | '\t' => {
                after_value(chars.collect::<String>().trim_start_matches(is_blank), text)?;
                break;
            }
            '`' | '\\' | ';' | '&' | '|' | '<' | '>' | '(' | ')' => {
                return Err(needs_shell(c));
            }
            // Bash expands a home directory here, also in lists such as PATH.
            '~' if value.is_empty() || value.ends_with(':') => return Err(needs_shell(c)),
            _ => value.push(c),
        }
    }
    Ok(value)
}

fn after_value(rest: &str, whole: &str) -> Result<(), String> {
    if rest.is_empty() || rest.starts_with('#') {
        Ok(())
    } else if let Some(c) = rest.chars().next().filter(|c| ";&|<>".contains(*c)) {
        Err(needs_shell(c))
    } else if whole.starts_with(is_blank) {
        Err(NO_SPACES.to_owned())
    } else {
        Err("has several words; quote the value, or write the next setting on its own line"
            .to_owned())
    }
}

fn single_quoted(chars: &mut Peekable<Chars<'_>>, value: &mut String) -> Result<(), String> {
    for c in chars {
        match c {
            '\'' => return Ok(()),
            _ => value.push(c),
        }
    }
    Err(unbalanced('\''))
}

fn double_quoted(
    chars: &mut Peekable<Chars<'_>>,
    value: &mut String,
    variables: &mut Variables,
) -> Result<(), String> {
    while let Some(c) = chars.next() {
        match c {
            '"' => return Ok(()),
            '$' => value.push_str(variables.expand(chars)?),
            '`' => return Err(needs_shell(c)),
            // Before other characters, the backslash is literal.
            '\\' => match chars.next_if(|next| "\"\\$`".contains(*next)) {
                Some(escaped) => value.push(escaped),
                None => value.push('\\'),
            },
            _ => value.push(c),
        }
    }
    Err(unbalanced('"'))
}

fn unbalanced(quote: char) -> String {
    format!("has an unterminated {quote}; close it on the same line")
}

fn needs_shell(c: char) -> String {
    format!(
        "contains {c}, which only a shell can evaluate, but pgio does not execute this file; write the \
         resulting value, or put a literal {c} in single quotes"
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::config::value::{Access, ConnectString};

    fn layer(text: &str) -> Layer {
        let conf = parse(text, "pgio.conf").unwrap();
        assert_eq!(conf.warnings, []);
        conf.layer
    }

    fn error(text: &str) -> String {
        parse(text, "pgio.conf").unwrap_err().to_string()
    }

    fn connect(text: &str) -> String {
        layer(text).connect_string.unwrap().expose().to_owned()
    }

    #[test]
    fn files_of_the_original_are_accepted() {
        let text = "UPDATE_PCT=10\nRUN_TIME=120\nNUM_SCHEMAS=1\nNUM_THREADS=1\nWORK_UNIT=255\n\
                    UPDATE_WORK_UNIT=8\nSCALE=200M\nDBNAME=pgio\nCONNECT_STRING=\"pgio\"\n\
                    CREATE_BASE_TABLE=TRUE\n";
        assert_eq!(
            layer(text),
            Layer {
                update_pct: Some(10),
                run_time: Some(Duration::from_secs(120)),
                num_schemas: Some(1),
                num_threads: Some(1),
                work_unit: Some(255),
                update_work_unit: Some(8),
                scale: Some("200M".parse().unwrap()),
                dbname: Some("pgio".to_owned()),
                connect_string: Some(ConnectString::new("pgio")),
                create_base_table: Some(true),
                ..Layer::default()
            }
        );
    }

    #[test]
    fn the_shipped_example_parses() {
        let shipped = layer(include_str!("../../../../examples/pgio.conf"));
        assert_eq!(shipped.update_work_unit, Some(8));
        assert_eq!(shipped.connect_string, Some(ConnectString::new("pgio")));
        let ours = include_str!("../../../../examples/pgio.conf").replace("\n#", "\n");
        let keys = ours
            .lines()
            .filter(|line| line.split_once('=').is_some_and(|(k, _)| k == k.to_ascii_uppercase()));
        let read = layer(&keys.collect::<Vec<_>>().join("\n"));
        assert_eq!(read.tablespace.as_deref(), Some("fast"), "commented-out keys are valid too");
    }

    #[test]
    fn keys_added_by_pgio_are_accepted() {
        let read = layer("ACCESS=bitmap\nCOMMIT_EVERY=0\nSEED=42\nWARMUP=2s\nTABLESPACE=fast\n");
        assert_eq!(read.access, Some(Access::Bitmap));
        assert_eq!(read.commit_every, Some(0));
        assert_eq!(read.seed, Some(42));
        assert_eq!(read.warmup, Some(Duration::from_secs(2)));
        assert_eq!(read.tablespace.as_deref(), Some("fast"));
    }

    #[test]
    fn an_empty_file_sets_nothing() {
        for text in ["", "\n", "\u{feff}", "# all defaults\n\n   \t\n  # here\r\n"] {
            assert_eq!(layer(text), Layer::default());
        }
    }

    #[test]
    fn editor_artifacts_are_tolerated() {
        let expected = Layer { work_unit: Some(8), update_pct: Some(5), ..Layer::default() };
        for text in [
            "\u{feff}WORK_UNIT=8\nUPDATE_PCT=5",
            "WORK_UNIT=8\r\nUPDATE_PCT=5\r\n",
            "  WORK_UNIT=8  \t\n\tUPDATE_PCT=5 ",
            "export WORK_UNIT=8\nexport\t UPDATE_PCT=5\n",
            "WORK_UNIT=8 # blocks\nUPDATE_PCT=\"5\"\t#percent $HOME `x` \"\n",
        ] {
            assert_eq!(layer(text), expected, "{text:?}");
        }
    }

    #[test]
    fn quotes_work_as_in_bash() {
        for (written, value) in [
            ("\"host=a dbname=b\"", "host=a dbname=b"),
            ("'host=a pass=$x`;'", "host=a pass=$x`;"),
            (r#""a\"b\\c\$d\`e\f""#, r#"a"b\c$d`e\f"#),
            (r"'a\b'", r"a\b"),
            (r#"a"b c"'d e'f"#, "ab cd ef"),
            ("a#b", "a#b"),
            ("\"a # b\" # c", "a # b"),
            ("postgresql://u@h/d?x=1", "postgresql://u@h/d?x=1"),
            ("", ""),
        ] {
            assert_eq!(connect(&format!("CONNECT_STRING={written}")), value);
        }
    }

    #[test]
    fn variables_of_earlier_lines_are_plain_text() {
        let own = "H=db1\nexport PORT=5461\nDBNAME=pg10\n";
        for (line, value) in [
            (
                "CONNECT_STRING=\"-h $H -p ${PORT} -U bench $DBNAME\"",
                "-h db1 -p 5461 -U bench pg10",
            ),
            ("CONNECT_STRING=$DBNAME.$H$PORT", "pg10.db15461"),
            ("U=\"$DBNAME $PORT\"\nCONNECT_STRING=${U}$H", "pg10 5461db1"),
        ] {
            let text = format!("{own}{line}\nSCALE=8M # $H $PORT\n");
            let all_used = text.replace("SCALE=8M", "SCALE=8M\nTABLESPACE=\"$H$PORT\"");
            let value = if value == "pg10 5461db1" { "-d pg10 -U 5461db1" } else { value };
            assert_eq!(connect(&all_used), value, "{line}");
        }
        // The last value before the line counts; a literal is not expanded.
        let text = "A=1\nA=2\nCONNECT_STRING=$A'$A'\nA=3\n";
        assert_eq!(parse(text, "f").unwrap().layer.connect_string.unwrap().expose(), "2$A");
        for line in
            ["X=a\nDBNAME=${X:-b}", "DBNAME=$LATER\nLATER=a", "X=a\nDBNAME=$Xa", "DBNAME=$?"]
        {
            assert!(error(line).contains("contains $, which only a shell"), "{line}");
        }
        assert!(error("H=db1\nDBNAME=pg10\n").contains("pgio.conf:1: H: is not a key"));
    }

    #[test]
    fn other_encodings_are_for_comments() {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(connect(&text(b"# M\xfcller\nCONNECT_STRING=d # \xfc\n")), "d");
        assert!(error(&text(b"CONNECT_STRING=d\xfc\n")).contains("CONNECT_STRING: is not UTF-8"));
    }

    #[test]
    fn two_names_are_a_database_and_a_user() {
        assert_eq!(connect("CONNECT_STRING=\"pg10 bench\""), "-d pg10 -U bench");
        for text in ["pg10", "pg10 -p 5461", "host=a user=b", "a b c", "postgresql://h/d x"] {
            assert_eq!(connect(&format!("CONNECT_STRING=\"{text}\"")), text);
        }
    }

    #[test]
    fn wrong_lines_are_named_by_file_line_and_key() {
        // The line's number counts comments and blank lines.
        let error = |line: &str| error(&format!("# ours\n\nNUM_SCHEMAS=1\n{line}\nX=1G\"'"));
        for (lines, message) in cases! {
            &["SCALE = 1G", "SCALE =1G", "SCALE= 1G"][..]
                => "SCALE: has spaces around `=`; write KEY=VALUE without spaces";
            &["DBNAME=my base", "DBNAME=a SCALE=1G", "DBNAME='a' b"]
                => "DBNAME: has several words; quote the value, or write the next setting on its own line";
            &["SCALE", "source other.conf", "if true; then", "=1", "1A=2", "A-B=1", "A+=1"]
                => "is not KEY=VALUE; write one setting per line, or # before a comment";
            &["UPDATE_PCT=101"] => "UPDATE_PCT: must be a whole number from 0 to 100, not `101`";
            &["UPDATE_PCT=ten"] => "UPDATE_PCT: must be a whole number from 0 to 100, not `ten`";
            &["UPDATE_PCT="] => "UPDATE_PCT: has no value; it must be a whole number from 0 to 100";
            &["NUM_SCHEMAS=8193"] => "NUM_SCHEMAS: must be a whole number from 1 to 8192, not `8193`";
            &["NUM_THREADS=0"] => "NUM_THREADS: must be a whole number from 1 to 10000, not `0`";
            &["WORK_UNIT=0"] => "WORK_UNIT: must be a whole number of at least 1, not `0`";
            &["RUN_TIME=0"]
                => "RUN_TIME: must be a duration above zero such as 500ms, 2s or 10m, at most 720h, not `0`";
            &["CREATE_BASE_TABLE=1"] => "CREATE_BASE_TABLE: must be TRUE or FALSE, not `1`";
            &["DBNAME=\"\""] => "DBNAME: has no value; it must be a non-empty string";
            &["SCALE=12X"]
                => "SCALE: `12X` is not a size: use N blocks of 8 kB or NM, NG, NT (25600 and 200M are the same), at least 1024 blocks (8M)";
        } {
            for line in lines {
                assert_eq!(error(line), format!("pgio.conf:4: {message}"), "{line}");
            }
        }
        for (line, words) in
            [("SCALE=0", "too small"), ("SCALE=1023", "too small"), ("SCALE=-8M", "not a size")]
        {
            let error = error(line);
            assert!(
                error.starts_with("pgio.conf:4: SCALE") && error.contains(words),
                "{line}: {error}"
            );
        }
        for (value, quote) in [("\"pgio", '"'), ("'pgio", '\''), ("\"pgio\\\"", '"'), ("a'", '\'')]
        {
            assert_eq!(
                error(&format!("DBNAME={value}")),
                format!(
                    "pgio.conf:4: DBNAME: has an unterminated {quote}; close it on the same line"
                )
            );
        }
    }

    #[test]
    fn shell_syntax_is_refused() {
        for (line, c) in [
            ("DBNAME=$HOME", '$'),
            ("DBNAME=\"$(date)\"", '$'),
            ("DBNAME=\"a`date`\"", '`'),
            ("DBNAME=`date`", '`'),
            ("DBNAME=a;b", ';'),
            ("DBNAME=a; rm x", ';'),
            ("DBNAME=a && b", '&'),
            ("DBNAME=a | b", '|'),
            ("DBNAME=a <b", '<'),
            ("DBNAME=a>b", '>'),
            ("DBNAME=(a b)", '('),
            ("DBNAME=a\\ b", '\\'),
            ("DBNAME=~/x", '~'),
            ("DBNAME=a:~", '~'),
            ("SCALE=$(touch x)", '$'),
            ("SCALE=`touch x`", '`'),
            ("SCALE=8M; touch x", ';'),
            ("CONNECT_STRING=\"$(touch x)\"", '$'),
        ] {
            let (key, _) = line.split_once('=').unwrap();
            assert_eq!(
                error(&format!("\n{line}")),
                format!(
                    "pgio.conf:2: {key}: contains {c}, which only a shell can evaluate, but pgio does \
                     not execute this file; write the resulting value, or put a literal {c} in single quotes"
                ),
                "{line}"
            );
        }
    }

    #[test]
    fn unknown_keys_suggest_the_nearest_key() {
        let nearest = "is not a key of pgio.conf; the nearest valid one is `UPDATE_PCT`";
        assert_eq!(
            error("SCALE=1G\n\nUPDTE_PCT=10\n"),
            format!("pgio.conf:3: UPDTE_PCT: {nearest}")
        );
        assert_eq!(error("update_pct=10"), format!("pgio.conf:1: update_pct: {nearest}"));
        assert!(error("COLOUR=blue").starts_with("pgio.conf:1: COLOUR"));
        assert!(error("COLOUR=blue").contains("valid names: "));
        assert_eq!(
            error("export PGPORT=5433"),
            "pgio.conf:1: PGPORT: is not a key of pgio.conf; set host=, port=, user= and so on in \
             CONNECT_STRING, or export the variable before you start pgio"
        );
    }

    #[test]
    fn repeated_keys_cause_a_warning_and_the_last_takes_effect() {
        let conf = parse("SCALE=1G\nWORK_UNIT=8\nSCALE=2G\nSCALE=3G\n", "my.conf").unwrap();
        assert_eq!(conf.layer.scale, Some("3G".parse().unwrap()));
        assert_eq!(conf.warnings.len(), 2);
        assert_eq!(
            conf.warnings[0],
            Warning {
                what: "my.conf: SCALE is set in line 1 and again in line 3".to_owned(),
                why: "the last setting takes effect, as in the original".to_owned(),
                try_this: "delete line 1".to_owned(),
            }
        );
        assert_eq!(conf.warnings[1].try_this, "delete line 3");
    }

    #[test]
    fn the_originals_debug_key_is_ignored_with_a_warning() {
        let conf = parse("PGIO_DEBUG=1\n", "pgio.conf").unwrap();
        assert_eq!(conf.layer, Layer::default());
        assert_eq!(conf.warnings[0].what, "pgio.conf: PGIO_DEBUG in line 1 is ignored");
    }

    #[test]
    fn errors_do_not_repeat_a_connect_string() {
        for line in ["CONNECT_STRING=host=h password=hunter2", "CONNECT_STRING=\"p=hunter2 $X\""] {
            assert!(!error(line).contains("hunter2"));
        }
    }

    fn double_quoted(value: &str) -> String {
        let escaped: String = value
            .chars()
            .flat_map(|c| "\"\\$`".contains(c).then_some('\\').into_iter().chain([c]))
            .collect();
        format!("\"{escaped}\"")
    }

    #[test]
    fn fuzzed_files_are_parsed_or_refused() {
        let samples = [
            include_str!("../../../../examples/pgio.conf"),
            "UPDATE_PCT=10 # c\nexport RUN_TIME=\"120\"\nSCALE='200M'\r\nCONNECT_STRING=\"a\\\"b\\$c\" ;\nCREATE_BASE_TABLE=TRUE",
            "DBNAME=$HOME\nX=`id`\nY=$(id)\nif true; then\nNUM_THREADS=1 && echo\nWORK_UNIT+=1 <<E\n",
        ];
        pgio_fuzz::fuzz(&samples, |bytes| match parse(&String::from_utf8_lossy(bytes), "x") {
            Ok(conf) => {
                conf.warnings.iter().for_each(|warning| assert!(!warning.to_string().is_empty()));
            }
            Err(error) => pgio_fuzz::print(&error),
        });
    }

    proptest! {
        #[test]
        fn double_quoted_values_round_trip(value in "[^\\p{C}\u{fffd}]*") {
            // Two names would be a database and a user.
            let value = format!("={value}");
            prop_assert_eq!(connect(&format!("CONNECT_STRING={}", double_quoted(&value))), value);
        }

        #[test]
        fn single_quoted_values_round_trip(value in "[^'\n\r\u{fffd}]*") {
            let value = format!("={value}");
            prop_assert_eq!(connect(&format!("CONNECT_STRING='{value}' # c")), value);
        }
    }

    /// Returns how bash, with which the original reads the file, reads the line, and whether it printed an error.
    fn by_bash(line: &str) -> (String, String) {
        let script = format!("{line}\nprintf %s \"$DBNAME\"");
        let output = std::process::Command::new("bash").arg("-c").arg(script).output().unwrap();
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]

        #[test]
        fn bash_reads_the_same_value(value in "[ab=\"'\\\\#$~:/ \t;\u{e9}{},*?!0-9-]{0,9}") {
            // Not CONNECT_STRING, whose words are read as psql's options.
            let line = format!("DBNAME={value}");
            if let Ok(conf) = parse(&line, "pgio.conf") {
                let ours = conf.layer.dbname.expect("the line sets it");
                prop_assert_eq!((ours, String::new()), by_bash(&line));
            }
        }
    }
}
