//! Directives of the upstream block that nginx lacks: `outlier_ejection` and `retry_budget`. The `upstream` crate
//! implements them.

use conf_schema::value::{parse_decimal, parse_msec};
use conf_schema::{Cx, Directive, Problem, ValueKind};
use upstream::health::{Budget, Ejection};

fn invalid(text: &str, index: usize) -> Problem {
    Problem::says(format!("invalid parameter \"{text}\"")).at(index)
}

fn percent(text: &str) -> Option<u32> {
    text.strip_suffix('%')?.parse().ok().filter(|n| (1..=100).contains(n))
}

/// `outlier_ejection [errors=number] [rate=percent%] [requests=number] [window=time] [time=time] [share=percent%]`
#[derive(Clone, Copy)]
pub struct EjectionValue(pub Ejection);

impl ValueKind for EjectionValue {
    const SYNTAX: &'static str =
        "[errors=number] [rate=percent%] [requests=number] [window=time] [time=time] [share=percent%]";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let mut rule = Ejection::default();
        for (index, word) in d.args.iter().enumerate() {
            let text = word.text();
            let (name, value) = text.split_once('=').ok_or_else(|| invalid(&text, index))?;
            let number = || parse_decimal::<u32>(value);
            let time = || parse_msec(value.as_bytes()).filter(|ms| *ms > 0);
            let wrong = || invalid(&text, index);
            match name {
                "errors" => rule.errors = number().ok_or_else(wrong)?,
                "rate" => rule.rate = percent(value).ok_or_else(wrong)?,
                "requests" => rule.requests = number().filter(|n| *n > 0).ok_or_else(wrong)?,
                "window" => rule.window_ms = time().ok_or_else(wrong)?,
                "time" => rule.time_ms = time().ok_or_else(wrong)?,
                "share" => rule.share = percent(value).ok_or_else(wrong)?,
                _ => return Err(wrong()),
            }
        }
        if rule.errors == 0 && rule.rate == 0 {
            return Err(Problem::says("with \"errors\" and \"rate\" off no server is ever ejected").at(0));
        }
        Ok(EjectionValue(rule))
    }
}

/// `retry_budget percent% [least=number]`
#[derive(Clone)]
pub struct RetryBudget(pub Budget);

impl ValueKind for RetryBudget {
    const SYNTAX: &'static str = "percent% [least=number]";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let text = d.args.first().map(|w| w.text().into_owned()).unwrap_or_default();
        let share = percent(&text).ok_or_else(|| invalid(&text, 0))?;
        let mut least = 1;
        if let Some(word) = d.args.get(1) {
            let text = word.text();
            let number = text.strip_prefix("least=").and_then(|n| n.parse().ok());
            least = number.ok_or_else(|| invalid(&text, 1))?;
        }
        Ok(RetryBudget(Budget::new(share, least)))
    }
}
