//! Renewal information (RFC 9773): the consequences of an authority's answer for the renewal and for the next question.

use acme::{Error, RenewalWindow, Schedule};

/// Seconds between two questions: by default, least and most (nginx-acme has the same limits).
pub const DEFAULT_SECONDS: i64 = 12 * 3600;
const SECONDS_LEAST: i64 = 60;
const SECONDS_MOST: i64 = 24 * 3600;
/// Questions that are repeated after a temporary failure, and the first pause in seconds; each failure triples it.
const RETRIES_MAX: u32 = 4;
const RETRY_SECONDS: i64 = 60;

/// An authority's answer; `Ok(None)`: it does not tell.
pub type RenewalAnswer = Result<Option<RenewalWindow>, Error>;

/// The time of a renewal after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// In the window, in seconds since 1970.
    At(i64),
    /// As planned: the question is repeated soon.
    Unchanged,
    /// As the certificate alone requires, or sooner if that was planned.
    ByCertificate,
}

/// The consequences of an answer.
#[derive(Debug)]
pub struct Advice {
    pub renewal: Renewal,
    /// Seconds until the next question.
    pub again: i64,
    /// A text for the error log.
    pub complaint: Option<String>,
}

impl Advice {
    /// `not_before`, `not_after`: of the certificate. `failures`: temporary ones before this answer. `random`: 0 to 1.
    pub fn of(
        answer: &RenewalAnswer,
        (not_before, not_after): (i64, i64),
        now: i64,
        failures: u32,
        random: f64,
    ) -> Advice {
        let seconds = |after: Option<std::time::Duration>, default: i64| {
            let asked = after.and_then(|after| i64::try_from(after.as_secs()).ok());
            asked.unwrap_or(default).clamp(SECONDS_LEAST, SECONDS_MOST)
        };
        match answer {
            Ok(Some(window)) => {
                let again = seconds(window.again, DEFAULT_SECONDS);
                match Schedule::within(window, not_before, not_after, now, random) {
                    Some(Schedule { at }) => Advice { renewal: Renewal::At(at), again, complaint: None },
                    None => {
                        let complaint = Some("a renewal window after the end of the certificate".into());
                        Advice { renewal: Renewal::ByCertificate, again, complaint }
                    }
                }
            }
            // It may learn to.
            Ok(None) => Advice { renewal: Renewal::ByCertificate, again: SECONDS_MOST, complaint: None },
            Err(why) => {
                let is_repeated = why.is_temporary() && failures < RETRIES_MAX;
                let (renewal, default) = match is_repeated {
                    true => (Renewal::Unchanged, RETRY_SECONDS.saturating_mul(3_i64.pow(failures))),
                    false => (Renewal::ByCertificate, DEFAULT_SECONDS),
                };
                Advice { renewal, again: seconds(why.retry_after(), default), complaint: Some(why.to_string()) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const HOUR: i64 = 3600;
    const LIFE: (i64, i64) = (0, 90 * 24 * HOUR);

    fn window(start: i64, end: i64, again: Option<u64>) -> RenewalAnswer {
        let again = again.map(Duration::from_secs);
        Ok(Some(RenewalWindow { start, end, again, explanation: None }))
    }

    #[test]
    fn answers_have_consequences() {
        let after = |seconds| Some(Duration::from_secs(seconds));
        let garbage = || Err(Error::Protocol("an invalid renewal window".into()));
        for (answer, failures, renewal, again) in [
            (window(HOUR, 3 * HOUR, None), 0, Renewal::At(2 * HOUR), 12 * HOUR),
            (window(HOUR, 3 * HOUR, Some(6 * 3600)), 0, Renewal::At(2 * HOUR), 6 * HOUR),
            // Delays of less than a minute and of more than a day are no delays of a reasonable client.
            (window(HOUR, 3 * HOUR, Some(1)), 0, Renewal::At(2 * HOUR), 60),
            (window(HOUR, 3 * HOUR, Some(u64::MAX)), 0, Renewal::At(2 * HOUR), 12 * HOUR),
            (window(HOUR, 3 * HOUR, Some(7 * 86_400)), 0, Renewal::At(2 * HOUR), 24 * HOUR),
            // In the past: at once.
            (window(-9 * HOUR, -8 * HOUR, None), 0, Renewal::At(5), 12 * HOUR),
            // Lies and silence: by the certificate.
            (window(LIFE.1, LIFE.1 + HOUR, Some(6 * 3600)), 0, Renewal::ByCertificate, 6 * HOUR),
            (Ok(None), 0, Renewal::ByCertificate, 24 * HOUR),
            (garbage(), 0, Renewal::ByCertificate, 12 * HOUR),
            (Err(Error::Status(404, None)), 0, Renewal::ByCertificate, 12 * HOUR),
            (Err(Error::Status(404, after(3600))), 0, Renewal::ByCertificate, HOUR),
            // Failures that pass are followed by questions, in growing steps.
            (Err(Error::Status(503, None)), 0, Renewal::Unchanged, 60),
            (Err(Error::Status(503, None)), 1, Renewal::Unchanged, 180),
            (Err(Error::Status(503, None)), 3, Renewal::Unchanged, 27 * 60),
            (Err(Error::Status(503, None)), 4, Renewal::ByCertificate, 12 * HOUR),
            (Err(Error::Status(503, after(7200))), 1, Renewal::Unchanged, 2 * HOUR),
            (Err(Error::Status(503, None)), u32::MAX, Renewal::ByCertificate, 12 * HOUR),
        ] {
            let advice = Advice::of(&answer, LIFE, 5, failures, 0.5);
            assert_eq!((advice.renewal, advice.again), (renewal, again), "{answer:?} {failures}");
            let is_fine = matches!(answer, Ok(None)) || matches!(advice.renewal, Renewal::At(_));
            assert_eq!(advice.complaint.is_none(), is_fine, "{answer:?}");
        }
    }
}
