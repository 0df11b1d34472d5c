//! EXSLT dates and times. Texts that are not dates give the empty string or NaN.

use super::calendar::{self, DateParts, Duration, StampKind};
use crate::engine::{Engine, Focus};
use crate::failure::RunResult;
use crate::xpath::XPathValue;
use crate::xpath::ast::Expr;
use crate::xpath::functions::Function;

const DAYS: &[&str] = &["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: &[&str] = &[
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

impl Engine<'_> {
    /// The local time.
    fn stamp_now(&self) -> DateParts {
        let local = self.now + self.zone;
        let (year, month, day) = calendar::civil(local.div_euclid(86_400));
        let rest = local.rem_euclid(86_400);
        DateParts {
            kind: StampKind::DateTime,
            year,
            month,
            day,
            hour: rest / 3600,
            minute: rest / 60 % 60,
            second: (rest % 60) as f64,
            zone: Some(self.zone / 60),
        }
    }

    pub(super) fn call_dates(
        &mut self,
        function: Function,
        arguments: &[Expr],
        focus: &Focus,
    ) -> RunResult<XPathValue> {
        use Function as F;
        match function {
            F::DateDateTime => return Ok(XPathValue::Text(self.stamp_now().text())),
            F::DateAdd | F::DateAddDuration | F::DateDifference => {
                let first = self.text_argument(arguments.first(), focus)?;
                let second = self.text_argument(arguments.get(1), focus)?;
                return Ok(XPathValue::Text(two(function, &first, &second).unwrap_or_default()));
            }
            F::DateSum => {
                let mut sum = Some(Duration::default());
                let nodes = self.nodes_argument(arguments, 0, focus)?;
                for node in &nodes {
                    let text = self.string(*node)?;
                    sum = sum.zip(calendar::parse_duration(&text)).and_then(|(a, b)| plus(&a, &b));
                }
                return Ok(XPathValue::Text(sum.filter(|_| !nodes.is_empty()).map_or(String::new(), |sum| sum.text())));
            }
            F::DateDuration => {
                let seconds = match arguments.first() {
                    Some(expr) => self.eval_number(expr, focus)?,
                    None => self.now as f64,
                };
                if !seconds.is_finite() || seconds.abs() > 1e15 {
                    return Ok(XPathValue::Text(String::new()));
                }
                return Ok(XPathValue::Text(Duration { seconds, ..Duration::default() }.normalized().text()));
            }
            _ => {}
        }
        let text = match arguments.first() {
            Some(expr) => Some(self.eval_text(expr, focus)?),
            None => None,
        };
        let stamp = match &text {
            Some(text) => calendar::parse(text),
            None => Some(self.stamp_now()),
        };
        if function == F::DateSeconds {
            let duration = text.as_deref().and_then(calendar::parse_duration).filter(|d| d.months == 0);
            let seconds = match (&stamp, duration) {
                (_, Some(duration)) => duration.days as f64 * 86_400.0 + duration.seconds,
                (Some(stamp), _)
                    if !matches!(
                        stamp.kind,
                        StampKind::Time | StampKind::MonthDay | StampKind::Month | StampKind::Day
                    ) =>
                {
                    stamp.seconds()
                }
                _ => f64::NAN,
            };
            return Ok(XPathValue::Number(seconds));
        }
        Ok(match function {
            F::DateDate => XPathValue::Text(
                stamp.filter(DateParts::has_date).map_or(String::new(), |s| s.with_zone(s.date_text())),
            ),
            F::DateTime => {
                let stamp = stamp.filter(|stamp| matches!(stamp.kind, StampKind::DateTime | StampKind::Time));
                XPathValue::Text(stamp.map_or(String::new(), |s| s.with_zone(s.time_text())))
            }
            F::DateMonthName | F::DateMonthAbbreviation | F::DateDayName | F::DateDayAbbreviation => {
                let name = stamp.and_then(|stamp| name(function, &stamp)).unwrap_or("");
                let short = matches!(function, F::DateMonthAbbreviation | F::DateDayAbbreviation);
                XPathValue::Text(if short { name.get(..3).unwrap_or("") } else { name }.into())
            }
            F::DateLeapYear => match stamp.filter(has_year) {
                Some(stamp) => XPathValue::Bool(calendar::is_leap(stamp.year)),
                None => XPathValue::Number(f64::NAN),
            },
            _ => XPathValue::Number(stamp.and_then(|stamp| number(function, &stamp)).unwrap_or(f64::NAN)),
        })
    }
}

fn has_year(stamp: &DateParts) -> bool {
    matches!(stamp.kind, StampKind::DateTime | StampKind::Date | StampKind::YearMonth | StampKind::Year)
}
fn has_month(stamp: &DateParts) -> bool {
    matches!(
        stamp.kind,
        StampKind::DateTime | StampKind::Date | StampKind::YearMonth | StampKind::Month | StampKind::MonthDay
    )
}

/// 0 for Sunday.
fn weekday(stamp: &DateParts) -> i64 {
    (calendar::day_number(stamp.year, stamp.month, stamp.day) + 4).rem_euclid(7)
}

fn name(function: Function, stamp: &DateParts) -> Option<&'static str> {
    match function {
        Function::DateMonthName | Function::DateMonthAbbreviation => {
            has_month(stamp).then(|| MONTHS.get(stamp.month as usize - 1).copied()).flatten()
        }
        _ => stamp.has_date().then(|| DAYS.get(weekday(stamp) as usize).copied()).flatten(),
    }
}

fn number(function: Function, stamp: &DateParts) -> Option<f64> {
    use Function as F;
    let day_of_year = calendar::day_number(stamp.year, stamp.month, stamp.day) - calendar::day_number(stamp.year, 1, 1);
    let has_time = matches!(stamp.kind, StampKind::DateTime | StampKind::Time);
    let has_day = stamp.has_date() || matches!(stamp.kind, StampKind::MonthDay | StampKind::Day);
    let (valid, number) = match function {
        F::DateYear => (has_year(stamp), stamp.year),
        F::DateMonthInYear => (has_month(stamp), stamp.month),
        F::DateDayInYear => (stamp.has_date(), day_of_year + 1),
        F::DateDayInMonth => (has_day, stamp.day),
        F::DateDayInWeek => (stamp.has_date(), weekday(stamp) + 1),
        F::DateDayOfWeekInMonth => (has_day, (stamp.day - 1) / 7 + 1),
        F::DateWeekInYear => (stamp.has_date(), week_in_year(stamp)),
        F::DateWeekInMonth => {
            let first = weekday(&DateParts { day: 1, ..*stamp });
            // Weeks start on Monday.
            (stamp.has_date(), (stamp.day - 1 + (first + 6) % 7) / 7 + 1)
        }
        F::DateHourInDay => (has_time, stamp.hour),
        F::DateMinuteInHour => (has_time, stamp.minute),
        F::DateSecondInMinute => return has_time.then_some(stamp.second),
        _ => return None,
    };
    valid.then_some(number as f64)
}

/// ISO 8601.
fn week_in_year(stamp: &DateParts) -> i64 {
    let day = calendar::day_number(stamp.year, stamp.month, stamp.day);
    let thursday = day - (weekday(stamp) + 6) % 7 + 3;
    let (year, ..) = calendar::civil(thursday);
    (thursday - calendar::day_number(year, 1, 1)) / 7 + 1
}

fn plus(a: &Duration, b: &Duration) -> Option<Duration> {
    let sum = Duration {
        months: a.months.checked_add(b.months)?,
        days: a.days.checked_add(b.days)?,
        seconds: a.seconds + b.seconds,
    };
    let sum = sum.normalized();
    // A sum of both signs has no text.
    let signs = [sum.months as f64, sum.days as f64, sum.seconds];
    (!(signs.iter().any(|n| *n > 0.0) && signs.iter().any(|n| *n < 0.0))).then_some(sum)
}

fn two(function: Function, first: &str, second: &str) -> Option<String> {
    match function {
        Function::DateAddDuration => {
            Some(plus(&calendar::parse_duration(first)?, &calendar::parse_duration(second)?)?.text())
        }
        Function::DateAdd => {
            let stamp = calendar::parse(first).filter(has_year)?;
            Some(calendar::add(&stamp, &calendar::parse_duration(second)?)?.text())
        }
        _ => {
            let (first, second) = (calendar::parse(first).filter(has_year)?, calendar::parse(second).filter(has_year)?);
            let (a, b) = (first, second);
            if matches!(a.kind, StampKind::Year | StampKind::YearMonth)
                || matches!(b.kind, StampKind::Year | StampKind::YearMonth)
            {
                let year_only = a.kind == StampKind::Year || b.kind == StampKind::Year;
                let months = (b.year - a.year) * 12 + if year_only { 0 } else { b.month - a.month };
                return Some(Duration { months, ..Duration::default() }.text());
            }
            let mut duration = Duration::default();
            if a.kind == StampKind::Date || b.kind == StampKind::Date {
                duration.days =
                    calendar::day_number(b.year, b.month, b.day) - calendar::day_number(a.year, a.month, a.day);
            } else {
                duration.seconds = b.seconds() - a.seconds();
            }
            Some(duration.normalized().text())
        }
    }
}
