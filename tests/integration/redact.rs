//! Takes out of a command's output what differs from run to run, so that the rest can be compared
//! character by character.

/// Pattern and replacement.
const CHANGING: &[(&str, &str)] = &[
    (r"(?m)^Date: \w{3} \w{3} [ 1-3]\d \d\d:\d\d:\d\d UTC \d{4}\$$", "Date: [date]$"),
    (r"\btest\d+ *\|", "[database] |"),
    (r"\btest\d+\b", "[database]"),
    // psql aligns numbers to the right, in columns as wide as their headings.
    (r"\|  *\d+", "| [n]"),
    (r">\d+<", ">[n]<"),
    (r"(Elapsed|loading time): \d+ seconds", "$1: [n] seconds"),
];

/// Line ends shown as `$`, since blanks before them count; changing parts as `[...]`.
#[macro_export]
macro_rules! assert_printed {
    ($text:expr, @$expected:literal) => {
        insta::allow_duplicates! {
            insta::assert_snapshot!($crate::redact::output(&$text.replace('\n', "$\n")), @$expected);
        }
    };
}

pub(crate) fn output(text: &str) -> String {
    replace(text, CHANGING)
}

/// Each pattern in turn, everywhere.
pub(crate) fn replace(text: &str, changing: &[(&str, &str)]) -> String {
    changing.iter().fold(text.to_owned(), |text, (pattern, replacement)| {
        let pattern = regex_lite::Regex::new(pattern).unwrap();
        pattern.replace_all(&text, *replacement).into_owned()
    })
}
