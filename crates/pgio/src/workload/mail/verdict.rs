//! What was accepted against what is there: lost, altered, or there more often than it may be.
//!
//! Accepted means one copy for that recipient; each answer that never came allows one more and demands
//! none. Nothing else may be there. What an earlier trial sent and the server delivered only now is
//! told apart by its ids: nothing is wrong with it, but this trial's server had that work besides.

use std::collections::BTreeMap;

use super::MailError;
use super::maildir::Found;
use super::message::Sum;
use super::session::Sent;
use crate::pg::words;
use crate::results::model::Check;

pub(super) const ID: &str = "mail-lost";
/// The share of copies from an earlier trial above which the trial did other work than the one compared.
const EARLIER_SHARE: f64 = 0.01;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Verdict {
    /// Messages of the trial, warm-up included.
    pub(super) sent: usize,
    /// Copies found of them.
    pub(super) found: usize,
    pub(super) lost: usize,
    pub(super) altered: usize,
    /// Copies beyond what may be there.
    pub(super) surplus: usize,
    /// One of these, by its id.
    pub(super) example: Option<String>,
    /// Copies that another trial sent.
    pub(super) earlier: usize,
}

/// `token` is in every id of this trial; `places` are the mail directories, by recipient.
pub(super) fn compare(token: &str, sent: &[Sent], places: &[String], found: &[Found]) -> Verdict {
    let (own, others): (Vec<&Found>, Vec<&Found>) =
        found.iter().partition(|one| one.id.split('.').next() == Some(token));
    let mut there: BTreeMap<(&str, &str), Vec<&Sum>> = BTreeMap::new();
    for one in &own {
        there.entry((one.id.as_str(), one.place.as_str())).or_default().push(&one.sum);
    }
    let mut verdict =
        Verdict { sent: sent.len(), found: own.len(), earlier: others.len(), ..Verdict::default() };
    for message in sent {
        for copies in &message.copies {
            let place = places[copies.recipient as usize].as_str();
            let sums = there.remove(&(message.id.as_str(), place)).unwrap_or_default();
            let lost = (copies.least as usize).saturating_sub(sums.len());
            let surplus = sums.len().saturating_sub(copies.most as usize);
            let altered = sums.iter().filter(|sum| ***sum != message.sum).count();
            verdict.lost += lost;
            verdict.surplus += surplus;
            verdict.altered += altered;
            if lost + surplus + altered > 0 {
                verdict.example.get_or_insert_with(|| format!("{} in {place}", message.id));
            }
        }
    }
    // In a directory of nobody it was sent to, or under an id that was never given.
    for ((id, place), sums) in there {
        verdict.surplus += sums.len();
        verdict.example.get_or_insert_with(|| format!("{id} in {place}"));
    }
    verdict
}

impl Verdict {
    pub(super) fn checks(&self) -> Vec<Check> {
        std::iter::once(self.complete()).chain(self.undisturbed()).collect()
    }

    fn undisturbed(&self) -> Option<Check> {
        const ID: &str = "mail-earlier";
        let Verdict { found, earlier, .. } = self;
        if *earlier == 0 {
            return None;
        }
        let message = format!(
            "{earlier} messages of an earlier trial arrived in this one, beside {found} of its own: the server's queue was not empty"
        );
        let remedy = "see the mail server's log for what kept it; offer less by messages_rate, or deliver with protocol = \"lmtp\"";
        Some(match *earlier as f64 > EARLIER_SHARE * (found + earlier) as f64 {
            true => Check::invalid(ID, message, remedy),
            false => Check::warning(ID, message, remedy),
        })
    }

    fn complete(&self) -> Check {
        let Verdict { sent, found, lost, altered, surplus, .. } = self;
        match &self.example {
            None => Check::ok(
                ID,
                format!(
                    "{sent} messages were tried and {found} copies found: none lost, none altered, none too many"
                ),
            ),
            Some(example) => Check::warning(
                ID,
                format!(
                    "of {sent} messages {lost} copies were lost, {altered} altered, {surplus} too many; such as {example}"
                ),
                "see the mail server's log; maildir must be where it delivers to, and nothing else may take mail away",
            ),
        }
    }
}

pub(super) fn not_looked_up(error: &MailError) -> Check {
    Check::invalid(
        "mail-unverified",
        words::sentence(error),
        "let pgio read and write there, or leave out maildir",
    )
}

#[cfg(test)]
mod tests {
    use super::super::session::Copies;
    use super::*;
    use crate::results::CheckVerdict;

    fn sent(id: &str, sum: u8, copies: &[(u32, u32, u32)]) -> Sent {
        let copies = copies.iter().map(|(recipient, least, most)| Copies {
            recipient: *recipient,
            least: *least,
            most: *most,
        });
        Sent { id: format!("t.{id}@pgio"), sum: [sum; 32], copies: copies.collect() }
    }

    fn found(id: &str, place: &str, sum: u8) -> Found {
        Found { id: format!("t.{id}@pgio"), place: place.to_owned(), sum: [sum; 32] }
    }

    fn compared(sent: &[Sent], found: &[Found]) -> Verdict {
        compare("t", sent, &["/a".to_owned(), "/b".to_owned()], found)
    }

    fn judged(sent: &[Sent], found: &[Found]) -> (usize, usize, usize) {
        let verdict = compared(sent, found);
        let all_well = verdict.lost + verdict.altered + verdict.surplus == 0;
        let checks = verdict.checks();
        assert_eq!(checks.len(), 1);
        assert_eq!(checks[0].verdict == CheckVerdict::Ok, all_well);
        (verdict.lost, verdict.altered, verdict.surplus)
    }

    #[test]
    fn one_copy_for_each_that_was_accepted() {
        let both = [sent("1", 1, &[(0, 1, 1), (1, 1, 1)])];
        assert_eq!(judged(&both, &[found("1", "/a", 1), found("1", "/b", 1)]), (0, 0, 0));
        assert_eq!(judged(&both, &[found("1", "/a", 1)]), (1, 0, 0));
        assert_eq!(judged(&both, &[found("1", "/a", 1), found("1", "/b", 2)]), (0, 1, 0));
        let twice = [found("1", "/a", 1), found("1", "/b", 1), found("1", "/b", 1)];
        assert_eq!(judged(&both, &twice), (0, 0, 1));
    }

    #[test]
    fn an_unknown_fate_allows_a_copy_and_demands_none() {
        let unknown = [sent("1", 1, &[(0, 0, 1)])];
        assert_eq!(judged(&unknown, &[]), (0, 0, 0));
        assert_eq!(judged(&unknown, &[found("1", "/a", 1)]), (0, 0, 0));
        assert_eq!(judged(&unknown, &[found("1", "/a", 9)]), (0, 1, 0));
        let retried = [sent("1", 1, &[(0, 1, 2)])];
        assert_eq!(judged(&retried, &[]), (1, 0, 0));
        assert_eq!(judged(&retried, &[found("1", "/a", 1), found("1", "/a", 1)]), (0, 0, 0));
    }

    #[test]
    fn nothing_else_may_be_there() {
        let refused = [sent("1", 1, &[(0, 0, 0)])];
        assert_eq!(judged(&refused, &[found("1", "/a", 1)]), (0, 0, 1));
        assert_eq!(judged(&[], &[found("9", "/a", 1)]), (0, 0, 1));
        let elsewhere = [sent("1", 1, &[(0, 1, 1)])];
        assert_eq!(judged(&elsewhere, &[found("1", "/b", 1)]), (1, 0, 1));
    }

    #[test]
    fn mail_of_an_earlier_trial_is_neither_surplus_nor_passed_over() {
        let old = |n: usize| Found { id: format!("s.{n}@pgio"), ..found("0", "/a", 7) };
        for (earlier, verdict) in [(1, CheckVerdict::Warning), (2, CheckVerdict::Invalid)] {
            let ids: Vec<String> = (0..100).map(|n| n.to_string()).collect();
            let sent: Vec<Sent> = ids.iter().map(|id| sent(id, 1, &[(0, 1, 1)])).collect();
            let own = ids.iter().map(|id| found(id, "/a", 1));
            let all: Vec<Found> = own.chain((0..earlier).map(old)).collect();
            let checks = compared(&sent, &all).checks();
            assert_eq!(checks[0].verdict, CheckVerdict::Ok, "{}", checks[0].message);
            assert_eq!((checks[1].id.as_str(), checks[1].verdict), ("mail-earlier", verdict));
            assert_eq!(
                checks[1].message,
                format!(
                    "{earlier} messages of an earlier trial arrived in this one, beside 100 of its own: the server's queue was not empty"
                )
            );
        }
        // Where nothing of its own came, all the server did was another trial's.
        let none = compared(&[], &[old(1)]).checks();
        assert_eq!([none[0].verdict, none[1].verdict], [CheckVerdict::Ok, CheckVerdict::Invalid]);
    }
}
