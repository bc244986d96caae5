//! What the delivered copies say about a trial: the checks `mail-lost`, `mail-earlier` and
//! `mail-unverified`.

use pgio_mail::MailError;
use pgio_mail::verdict::Verdict;

use crate::pg::words;
use pgio_results::model::Check;
use pgio_results::thresholds::MAIL_EARLIER;

const ID: &str = "mail-lost";
const UNVERIFIED: &str = "mail-unverified";

pub(super) fn checks(verdict: &Verdict) -> Vec<Check> {
    std::iter::once(check_complete(verdict)).chain(check_earlier(verdict)).collect()
}

fn check_earlier(verdict: &Verdict) -> Option<Check> {
    const EARLIER: &str = "mail-earlier";
    let Verdict { found, earlier, .. } = verdict;
    if *earlier == 0 {
        return None;
    }
    let message = format!(
        "{earlier} messages of an earlier trial arrived during this one, in addition to {found} of its own: the server's queue was not empty"
    );
    let remedy = "see the mail server's log for the delay; lower messages_rate, or deliver with protocol = \"lmtp\"";
    Some(if *earlier as f64 > MAIL_EARLIER.0 * (found + earlier) as f64 {
        Check::invalid(EARLIER, message, remedy)
    } else {
        Check::warning(EARLIER, message, remedy)
    })
}

fn check_complete(verdict: &Verdict) -> Check {
    let Verdict { sent, found, lost, altered, surplus, .. } = verdict;
    match &verdict.example {
        None => Check::ok(
            ID,
            format!("{sent} messages sent and {found} copies found: none lost, altered or surplus"),
        ),
        Some(example) => Check::warning(
            ID,
            format!(
                "of {sent} messages, {lost} copies were lost, {altered} altered, {surplus} surplus; for example {example}"
            ),
            "see the mail server's log; check that the server delivers to maildir and that nothing else removes mail",
        ),
    }
}

/// The search was stopped before all copies had arrived.
pub(super) fn unfinished(verdict: &Verdict) -> Check {
    let Verdict { sent, found, lost, .. } = verdict;
    Check::invalid(
        UNVERIFIED,
        format!(
            "of {sent} messages, {found} copies were found and {lost} not yet when pgio was asked to stop"
        ),
        "let the trial end, or deliver with protocol = \"lmtp\"",
    )
}

pub(super) fn unverified(error: &MailError) -> Check {
    Check::invalid(
        UNVERIFIED,
        words::sentence(error),
        "give pgio read and write permission there, or remove maildir",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use pgio_results::CheckVerdict;

    #[test]
    fn a_lost_altered_or_surplus_copy_is_a_warning() {
        let sound = Verdict { sent: 1, found: 1, ..Verdict::default() };
        assert_eq!(checks(&sound)[0].verdict, CheckVerdict::Ok);
        let example = Some("t.1@pgio in /a".to_owned());
        let all = checks(&Verdict { lost: 1, example, ..sound });
        assert_eq!((all.len(), all[0].verdict), (1, CheckVerdict::Warning));
        assert!(all[0].message.contains("1 copies were lost, 0 altered"), "{}", all[0].message);
    }

    #[test]
    fn mail_of_an_earlier_trial_has_a_check_of_its_own() {
        for (earlier, verdict) in [(1, CheckVerdict::Warning), (2, CheckVerdict::Invalid)] {
            let checks = checks(&Verdict { sent: 100, found: 100, earlier, ..Verdict::default() });
            assert_eq!(checks[0].verdict, CheckVerdict::Ok, "{}", checks[0].message);
            assert_eq!((checks[1].id.as_str(), checks[1].verdict), ("mail-earlier", verdict));
            assert_eq!(
                checks[1].message,
                format!(
                    "{earlier} messages of an earlier trial arrived during this one, in addition to 100 of its own: the server's queue was not empty"
                )
            );
        }
        // Without copies of its own, the server did nothing for this trial.
        let none = checks(&Verdict { earlier: 1, ..Verdict::default() });
        assert_eq!([none[0].verdict, none[1].verdict], [CheckVerdict::Ok, CheckVerdict::Invalid]);
    }
}
