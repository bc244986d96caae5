//! Inputs for tests of parsers of what others write: arbitrary bytes, and valid samples that were damaged.
//!
//! A test whose name begins with `fuzzed_` hands [`fuzz`] its samples and the parser. PROPTEST_CASES is the number of
//! inputs, 256 by default; with FUZZ_SECONDS, inputs are made for that long. `lab/fuzz` runs all these tests. An input
//! that fails is shrunk and printed as a byte string: make it one of the test's samples, which are all tried as they
//! are as well.

use std::error::Error;
use std::fmt;
use std::time::{Duration, Instant};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, FileFailurePersistence, TestCaseError, TestRunner};
use rustix::time::{ClockId, clock_gettime};

/// No parser takes a thousandth of this processor time for a sample. It is so long for unoptimized tests.
const LONGEST: Duration = Duration::from_secs(10);
const MAX_BYTES: usize = 300;

/// What parsers treat specially: ends, numbers at the limits of their types, nesting, characters of several bytes.
const TOKENS: &[&[u8]] = &[
    b"\0",
    b"\xff",
    b"\n",
    b"\r\n",
    b" ",
    b"\t",
    b"\"",
    b"'",
    b"\\",
    b"#",
    b"=",
    b",",
    b":",
    b"/",
    b"%",
    b"%00",
    b"[",
    b"]",
    b"{",
    b"}",
    b"[[[[[[[[",
    b"{\"a\":",
    b"null",
    b"true",
    b"0",
    b"-1",
    b"1e999",
    b"NaN",
    b"inf",
    b"0.5",
    b"255",
    b"256",
    b"65536",
    b"4294967296",
    b"9223372036854775808",
    b"18446744073709551616",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\0\0\0\0",
    b"\x1b[2J",
    "é".as_bytes(),
    "\u{2028}".as_bytes(),
    "\u{202e}".as_bytes(),
];

/// Calls `parse` with each sample, then with inputs made from them.
///
/// # Panics
///
/// With the shrunk input, if `parse` panicked or took too long.
pub fn fuzz<S: AsRef<[u8]>>(samples: &[S], parse: impl Fn(&[u8])) {
    let samples: Vec<Vec<u8>> = samples.iter().map(|sample| sample.as_ref().to_vec()).collect();
    samples.iter().for_each(|sample| parse(sample));
    let config = Config {
        failure_persistence: Some(Box::new(FileFailurePersistence::Off)),
        ..Config::default()
    };
    let seconds = std::env::var("FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let limit = Duration::from_secs(seconds.unwrap_or(0));
    let (started, mut inputs) = (Instant::now(), 0);
    let mut runner = TestRunner::new(config.clone());
    let made = input(samples);
    loop {
        let result = runner.run(&made, |Input(bytes)| {
            let begin = processor_time();
            parse(&bytes);
            match processor_time() - begin {
                taken if taken > LONGEST => Err(TestCaseError::fail(format!("took {taken:?}"))),
                _ => Ok(()),
            }
        });
        if let Err(error) = result {
            panic!("{error}");
        }
        inputs += u64::from(config.cases);
        if started.elapsed() >= limit {
            break;
        }
    }
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("fuzzed");
    println!("{name}: {inputs} inputs, {:.0} s", started.elapsed().as_secs_f64());
}

/// Used by this thread, whatever else the machine does.
fn processor_time() -> Duration {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(used).expect("time used is not negative")
}

/// Formats an error with all its causes, as the program does, and checks that each says something.
///
/// # Panics
///
/// If one of them is empty.
pub fn print(error: &dyn Error) {
    let mut next = Some(error);
    while let Some(error) = next {
        assert!(!error.to_string().is_empty(), "no text: {error:?}");
        next = error.source();
    }
}

/// Shown as a byte string that can be copied into a test.
#[derive(Clone)]
struct Input(Vec<u8>);

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.0.escape_ascii())
    }
}

#[derive(Debug, Clone)]
enum Damage {
    Flip { at: Index, bits: u8 },
    Cut { at: Index, bytes: usize },
    End { at: Index },
    Repeat { at: Index, bytes: usize, times: usize },
    InsertToken { at: Index, token: &'static [u8] },
    InsertFrom { at: Index, sample: Index, from: Index, bytes: usize },
}

fn input(samples: Vec<Vec<u8>>) -> impl Strategy<Value = Input> {
    let count = samples.len();
    let damaged = (0..count, vec(damage(), 1..6)).prop_map(move |(sample, all)| {
        let whole = samples[sample].clone();
        Input(all.iter().fold(whole, |bytes, damage| damage.apply(bytes, &samples)))
    });
    prop_oneof![
        1 => vec(any::<u8>(), 0..MAX_BYTES).prop_map(Input),
        1 => vec(prop::sample::select(TOKENS), 0..20).prop_map(|tokens| Input(tokens.concat())),
        6 => damaged,
    ]
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = any::<Index>;
    prop_oneof![
        (at(), 1..=u8::MAX).prop_map(|(at, bits)| Damage::Flip { at, bits }),
        (at(), 1..40usize).prop_map(|(at, bytes)| Damage::Cut { at, bytes }),
        at().prop_map(|at| Damage::End { at }),
        (at(), 1..40usize, 1..8usize).prop_map(|(at, bytes, times)| Damage::Repeat {
            at,
            bytes,
            times
        }),
        (at(), prop::sample::select(TOKENS))
            .prop_map(|(at, token)| Damage::InsertToken { at, token }),
        (at(), at(), at(), 1..40usize).prop_map(|(at, sample, from, bytes)| Damage::InsertFrom {
            at,
            sample,
            from,
            bytes
        }),
    ]
}

impl Damage {
    fn apply(&self, mut bytes: Vec<u8>, samples: &[Vec<u8>]) -> Vec<u8> {
        let size = bytes.len();
        let place = |at: &Index| at.index(size + 1);
        match self {
            Damage::Flip { at, bits } => {
                if let Some(byte) = bytes.get_mut(place(at)) {
                    *byte ^= bits;
                }
            }
            Damage::Cut { at, bytes: count } => {
                bytes.drain(place(at)..size.min(place(at) + count));
            }
            Damage::End { at } => bytes.truncate(place(at)),
            Damage::Repeat { at, bytes: count, times } => {
                let repeated = bytes[place(at)..size.min(place(at) + count)].repeat(*times);
                insert(&mut bytes, place(at), &repeated);
            }
            Damage::InsertToken { at, token } => insert(&mut bytes, place(at), token),
            Damage::InsertFrom { at, sample, from, bytes: count } => {
                let other = sample.get(samples);
                let from = from.index(other.len() + 1);
                insert(&mut bytes, place(at), &other[from..other.len().min(from + count)]);
            }
        }
        bytes
    }
}

fn insert(bytes: &mut Vec<u8>, at: usize, inserted: &[u8]) {
    bytes.splice(at..at, inserted.iter().copied());
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn a_failing_input_is_shrunk_and_shown() {
        let samples = ["key = 1\n"];
        let failed = catch_unwind(|| fuzz(&samples, |bytes| assert!(!bytes.contains(&0xff))));
        let message = *failed.unwrap_err().downcast::<String>().unwrap();
        assert!(message.contains(r#"minimal failing input: b"\xff""#), "{message}");
    }

    #[test]
    fn samples_are_tried_as_they_are_and_damaged_in_every_way() {
        let (whole, shorter, longer) = (Cell::new(0), Cell::new(0), Cell::new(0));
        let sample = b"key = 'value'\n";
        fuzz(&[sample], |bytes| {
            let count = match bytes.len().cmp(&sample.len()) {
                std::cmp::Ordering::Less => &shorter,
                std::cmp::Ordering::Equal => &whole,
                std::cmp::Ordering::Greater => &longer,
            };
            count.set(count.get() + 1);
        });
        assert!([&whole, &shorter, &longer].iter().all(|count| count.get() > 0));
        let caught = catch_unwind(AssertUnwindSafe(|| print(&std::io::Error::other(""))));
        assert!(caught.is_err(), "an error without a text");
    }
}
