//! Compares accepted messages with delivered copies: lost, altered, or too many.
//!
//! An accepted message requires one copy for that recipient. Each reply that never came allows one more
//! copy and requires none. Any other copy is one too many. Copies of an earlier trial are recognized by
//! their ids and counted separately: they are not wrong, but the server did that work during this trial.

use std::collections::BTreeMap;

use super::maildir::StoredCopy;
use super::message::Sum;
use super::session::Sent;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Messages of the trial, including the warm-up.
    pub sent: usize,
    /// Copies of them that were found.
    pub found: usize,
    pub lost: usize,
    pub altered: usize,
    /// Copies beyond the permitted number.
    pub surplus: usize,
    /// The id of a lost, altered or surplus message.
    pub example: Option<String>,
    /// Copies that an earlier trial sent.
    pub earlier: usize,
}

/// `token` is in every id of this trial; `directories` are the mail directories by recipient.
pub fn compare(
    token: &str,
    sent: &[Sent],
    directories: &[String],
    found: &[StoredCopy],
) -> Verdict {
    let (own, others): (Vec<&StoredCopy>, Vec<&StoredCopy>) =
        found.iter().partition(|one| one.id.split('.').next() == Some(token));
    let mut copies_of: BTreeMap<(&str, &str), Vec<&Sum>> = BTreeMap::new();
    for one in &own {
        copies_of.entry((one.id.as_str(), one.directory.as_str())).or_default().push(&one.sum);
    }
    let mut verdict =
        Verdict { sent: sent.len(), found: own.len(), earlier: others.len(), ..Verdict::default() };
    for message in sent {
        for copies in &message.copies {
            let directory = directories[copies.recipient as usize].as_str();
            let sums = copies_of.remove(&(message.id.as_str(), directory)).unwrap_or_default();
            let lost = (copies.min as usize).saturating_sub(sums.len());
            let surplus = sums.len().saturating_sub(copies.max as usize);
            let altered = sums.iter().filter(|sum| ***sum != message.sum).count();
            verdict.lost += lost;
            verdict.surplus += surplus;
            verdict.altered += altered;
            if lost + surplus + altered > 0 {
                verdict.example.get_or_insert_with(|| format!("{} in {directory}", message.id));
            }
        }
    }
    // Copies for a wrong recipient, or with an unknown id.
    for ((id, directory), sums) in copies_of {
        verdict.surplus += sums.len();
        verdict.example.get_or_insert_with(|| format!("{id} in {directory}"));
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::super::session::CopyLimits;
    use super::*;

    fn sent(id: &str, sum: u8, copies: &[(u32, u32, u32)]) -> Sent {
        let copies = copies.iter().map(|(recipient, min, max)| CopyLimits {
            recipient: *recipient,
            min: *min,
            max: *max,
        });
        Sent { id: format!("t.{id}@pgio"), sum: [sum; 32], copies: copies.collect() }
    }

    fn found(id: &str, directory: &str, sum: u8) -> StoredCopy {
        StoredCopy { id: format!("t.{id}@pgio"), directory: directory.to_owned(), sum: [sum; 32] }
    }

    fn compared(sent: &[Sent], found: &[StoredCopy]) -> Verdict {
        compare("t", sent, &["/a".to_owned(), "/b".to_owned()], found)
    }

    fn judged(sent: &[Sent], found: &[StoredCopy]) -> (usize, usize, usize) {
        let verdict = compared(sent, found);
        let wrong = verdict.lost + verdict.altered + verdict.surplus;
        assert_eq!(verdict.example.is_some(), wrong > 0);
        (verdict.lost, verdict.altered, verdict.surplus)
    }

    #[test]
    fn each_acceptance_requires_one_copy() {
        let both = [sent("1", 1, &[(0, 1, 1), (1, 1, 1)])];
        assert_eq!(judged(&both, &[found("1", "/a", 1), found("1", "/b", 1)]), (0, 0, 0));
        assert_eq!(judged(&both, &[found("1", "/a", 1)]), (1, 0, 0));
        assert_eq!(judged(&both, &[found("1", "/a", 1), found("1", "/b", 2)]), (0, 1, 0));
        let twice = [found("1", "/a", 1), found("1", "/b", 1), found("1", "/b", 1)];
        assert_eq!(judged(&both, &twice), (0, 0, 1));
    }

    #[test]
    fn an_unknown_fate_allows_a_copy_and_requires_none() {
        let unknown = [sent("1", 1, &[(0, 0, 1)])];
        assert_eq!(judged(&unknown, &[]), (0, 0, 0));
        assert_eq!(judged(&unknown, &[found("1", "/a", 1)]), (0, 0, 0));
        assert_eq!(judged(&unknown, &[found("1", "/a", 9)]), (0, 1, 0));
        let retried = [sent("1", 1, &[(0, 1, 2)])];
        assert_eq!(judged(&retried, &[]), (1, 0, 0));
        assert_eq!(judged(&retried, &[found("1", "/a", 1), found("1", "/a", 1)]), (0, 0, 0));
    }

    #[test]
    fn any_other_copy_is_surplus() {
        let refused = [sent("1", 1, &[(0, 0, 0)])];
        assert_eq!(judged(&refused, &[found("1", "/a", 1)]), (0, 0, 1));
        assert_eq!(judged(&[], &[found("9", "/a", 1)]), (0, 0, 1));
        let elsewhere = [sent("1", 1, &[(0, 1, 1)])];
        assert_eq!(judged(&elsewhere, &[found("1", "/b", 1)]), (1, 0, 1));
    }

    #[test]
    fn copies_of_an_earlier_trial_are_counted_separately() {
        let own = [sent("1", 1, &[(0, 1, 1)])];
        let earlier = StoredCopy { id: "s.1@pgio".to_owned(), ..found("0", "/a", 7) };
        let verdict = compared(&own, &[found("1", "/a", 1), earlier]);
        assert_eq!((verdict.found, verdict.earlier), (1, 1));
        assert_eq!((verdict.lost, verdict.altered, verdict.surplus), (0, 0, 0));
    }
}
