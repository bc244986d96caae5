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
    let shipped = layer(include_str!("../../../../../examples/pgio.conf"));
    assert_eq!(shipped.update_work_unit, Some(8));
    assert_eq!(shipped.connect_string, Some(ConnectString::new("pgio")));
    let ours = include_str!("../../../../../examples/pgio.conf").replace("\n#", "\n");
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
    assert_eq!(connect("CONNECT_STRING=\"host=a dbname=b\""), "host=a dbname=b");
    assert_eq!(connect("CONNECT_STRING='host=a pass=$x`;'"), "host=a pass=$x`;");
    assert_eq!(connect(r#"CONNECT_STRING="a\"b\\c\$d\`e\f""#), r#"a"b\c$d`e\f"#);
    assert_eq!(connect(r"CONNECT_STRING='a\b'"), r"a\b");
    assert_eq!(connect(r#"CONNECT_STRING=a"b c"'d e'f"#), "ab cd ef");
    assert_eq!(connect("CONNECT_STRING=a#b"), "a#b");
    assert_eq!(connect("CONNECT_STRING=\"a # b\" # c"), "a # b");
    assert_eq!(connect("CONNECT_STRING=postgresql://u@h/d?x=1"), "postgresql://u@h/d?x=1");
    assert_eq!(connect("CONNECT_STRING="), "");
}

#[test]
fn variables_of_earlier_lines_are_plain_text() {
    let own = "H=db1\nexport PORT=5461\nDBNAME=pg10\n";
    for (line, value) in [
        ("CONNECT_STRING=\"-h $H -p ${PORT} -U bench $DBNAME\"", "-h db1 -p 5461 -U bench pg10"),
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
    for line in ["X=a\nDBNAME=${X:-b}", "DBNAME=$LATER\nLATER=a", "X=a\nDBNAME=$Xa", "DBNAME=$?"] {
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
fn shell_syntax_is_refused() {
    for (value, c) in [
        ("$HOME", '$'),
        ("\"$(date)\"", '$'),
        ("\"a`date`\"", '`'),
        ("`date`", '`'),
        ("a;b", ';'),
        ("a; rm x", ';'),
        ("a && b", '&'),
        ("a | b", '|'),
        ("a <b", '<'),
        ("a>b", '>'),
        ("(a b)", '('),
        ("a\\ b", '\\'),
        ("~/x", '~'),
        ("a:~", '~'),
    ] {
        assert_eq!(
            error(&format!("\nDBNAME={value}")),
            format!(
                "pgio.conf:2: DBNAME: contains {c}, which only a shell can evaluate, but pgio does \
                 not execute this file; write the resulting value, or put a literal {c} in single quotes"
            ),
            "{value}"
        );
    }
}

#[test]
fn wrong_lines_are_named_by_file_line_and_key() {
    for (line, key, words) in [
        ("UPDATE_PTC=10", "UPDATE_PTC", "the nearest valid one is `UPDATE_PCT`"),
        ("COLOUR=blue", "COLOUR", "valid names: "),
        ("SCALE=0", "SCALE", "too small"),
        ("SCALE=1023", "SCALE", "too small"),
        ("SCALE=12X", "SCALE", "not a size"),
        ("SCALE=-8M", "SCALE", "not a size"),
        ("UPDATE_PCT=101", "UPDATE_PCT", "from 0 to 100"),
        ("UPDATE_PCT=ten", "UPDATE_PCT", "from 0 to 100"),
        ("SCALE=$(touch x)", "SCALE", "contains $, which only a shell"),
        ("SCALE=`touch x`", "SCALE", "contains `, which only a shell"),
        ("SCALE=8M; touch x", "SCALE", "contains ;, which only a shell"),
        ("CONNECT_STRING=\"$(touch x)\"", "CONNECT_STRING", "contains $"),
    ] {
        // The line's number counts comments and blank lines.
        let error = error(&format!("# ours\n\nNUM_SCHEMAS=1\n{line}\n"));
        assert!(error.starts_with(&format!("pgio.conf:4: {key}")), "{line}: {error}");
        assert!(error.contains(words), "{line}: {error}");
    }
}

#[test]
fn unterminated_quotes_are_refused() {
    for (value, quote) in [("\"pgio", '"'), ("'pgio", '\''), ("\"pgio\\\"", '"'), ("a'", '\'')] {
        assert_eq!(
            error(&format!("DBNAME={value}\nSCALE=1G\"'")),
            format!("pgio.conf:1: DBNAME: has an unterminated {quote}; close it on the same line")
        );
    }
}

#[test]
fn spaces_around_the_equals_sign() {
    for line in ["SCALE = 1G", "SCALE =1G", "SCALE= 1G"] {
        assert_eq!(
            error(line),
            "pgio.conf:1: SCALE: has spaces around `=`; write KEY=VALUE without spaces"
        );
    }
}

#[test]
fn values_of_several_unquoted_words_are_refused() {
    for line in ["DBNAME=my base", "DBNAME=a SCALE=1G", "DBNAME='a' b"] {
        assert_eq!(
            error(line),
            "pgio.conf:1: DBNAME: has several words; quote the value, or write the next setting \
             on its own line"
        );
    }
}

#[test]
fn lines_that_are_not_assignments_are_refused() {
    for line in ["SCALE", "source other.conf", "if true; then", "=1", "1A=2", "A-B=1", "A+=1"] {
        assert_eq!(
            error(line),
            "pgio.conf:1: is not KEY=VALUE; write one setting per line, or # before a comment"
        );
    }
}

#[test]
fn unknown_keys_suggest_the_nearest_key() {
    assert_eq!(
        error("SCALE=1G\n\nUPDTE_PCT=10\n"),
        "pgio.conf:3: UPDTE_PCT: is not a key of pgio.conf; the nearest valid one is `UPDATE_PCT`"
    );
    assert_eq!(
        error("update_pct=10"),
        "pgio.conf:1: update_pct: is not a key of pgio.conf; the nearest valid one is `UPDATE_PCT`"
    );
    assert_eq!(
        error("export PGPORT=5433"),
        "pgio.conf:1: PGPORT: is not a key of pgio.conf; set host=, port=, user= and so on in \
         CONNECT_STRING, or export the variable before you start pgio"
    );
}

#[test]
fn values_out_of_range_name_key_and_line() {
    for (line, message) in [
        ("UPDATE_PCT=101", "must be a whole number from 0 to 100, not `101`"),
        ("UPDATE_PCT=", "has no value; it must be a whole number from 0 to 100"),
        ("NUM_SCHEMAS=8193", "must be a whole number from 1 to 8192, not `8193`"),
        ("NUM_THREADS=0", "must be a whole number from 1 to 10000, not `0`"),
        ("WORK_UNIT=0", "must be a whole number of at least 1, not `0`"),
        (
            "RUN_TIME=0",
            "must be a duration above zero such as 500ms, 2s or 10m, at most 720h, not `0`",
        ),
        ("CREATE_BASE_TABLE=1", "must be TRUE or FALSE, not `1`"),
        ("DBNAME=\"\"", "has no value; it must be a non-empty string"),
        (
            "SCALE=12X",
            "`12X` is not a size: use N blocks of 8 kB or NM, NG, NT (25600 and 200M are the \
             same), at least 1024 blocks (8M)",
        ),
    ] {
        let key = line.split('=').next().unwrap();
        assert_eq!(error(line), format!("pgio.conf:1: {key}: {message}"));
    }
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

#[test]
fn fuzzed_files_are_parsed_or_refused() {
    let samples = [
        include_str!("../../../../../examples/pgio.conf"),
        "UPDATE_PCT=10 # c\nexport RUN_TIME=\"120\"\nSCALE='200M'\r\nCONNECT_STRING=\"a\\\"b\\$c\" ;\nCREATE_BASE_TABLE=TRUE",
        "DBNAME=$HOME\nX=`id`\nY=$(id)\nif true; then\nNUM_THREADS=1 && echo\nWORK_UNIT+=1 <<E\n",
    ];
    pgio_fuzz::fuzz(&samples, |bytes| match parse(&String::from_utf8_lossy(bytes), "x") {
        Ok(conf) => {
            conf.warnings.iter().for_each(|warning| assert!(!warning.to_string().is_empty()))
        }
        Err(error) => pgio_fuzz::print(&error),
    });
}
