//! The `expires` directive.

use conf_schema::value::parse_sec;
use conf_schema::{Cx, Directive, Problem, ValueKind};
use http_engine::{HttpTemplate, Request};
use observe::clock::local_offset;

const DAY: u64 = 24 * 60 * 60;

#[derive(Clone, Debug)]
pub enum ExpiresRule {
    Fixed(Expiry),
    Computed { value: HttpTemplate, modified: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    Off,
    Epoch,
    Max,
    /// Seconds from now, possibly negative.
    Access(i64),
    /// Seconds after the file's modification.
    Modified(i64),
    /// Next time at which local clocks show these seconds since midnight.
    Daily(i64),
}

impl Expiry {
    /// Fails with nginx's message.
    pub fn parse(text: &[u8], modified: bool) -> Result<Expiry, &'static str> {
        if !modified {
            match text {
                b"epoch" => return Ok(Expiry::Epoch),
                b"max" => return Ok(Expiry::Max),
                b"off" => return Ok(Expiry::Off),
                _ => {}
            }
        }
        let (daily, minus, rest) = match text {
            [b'@', ..] if modified => return Err("daily time cannot be used with \"modified\" parameter"),
            [b'@', rest @ ..] => (true, false, rest),
            [b'+', rest @ ..] => (false, false, rest),
            [b'-', rest @ ..] => (false, true, rest),
            rest => (false, false, rest),
        };
        let seconds = parse_sec(rest).ok_or("invalid value")?;
        if daily && seconds > DAY {
            return Err("daily time value must be less than 24 hours");
        }
        let seconds = if minus { -(seconds as i64) } else { seconds as i64 };
        Ok(match (daily, modified) {
            (true, _) => Expiry::Daily(seconds),
            (_, true) => Expiry::Modified(seconds),
            _ => Expiry::Access(seconds),
        })
    }
    /// Time and `Cache-Control`; `last_modified` is the response's.
    fn resolve(self, now: i64, last_modified: Option<i64>) -> Option<([u8; 29], CacheControl)> {
        let (at, age) = match (self, last_modified) {
            (Expiry::Off, _) => return None,
            (Expiry::Epoch, _) => return Some((*b"Thu, 01 Jan 1970 00:00:01 GMT", CacheControl::NoCache)),
            (Expiry::Max, _) => return Some((*b"Thu, 31 Dec 2037 23:55:55 GMT", CacheControl::MaxAge(315_360_000))),
            (Expiry::Access(0) | Expiry::Modified(0), _) => (now, 0),
            (Expiry::Daily(seconds), _) => {
                let at = next_time(now, seconds);
                (at, at - now)
            }
            (Expiry::Modified(seconds), Some(modified)) => {
                let at = modified.saturating_add(seconds);
                // A time before the modification is stale, even if the modification lies in the future.
                (at, if seconds < 0 { -1 } else { at - now })
            }
            (Expiry::Access(seconds) | Expiry::Modified(seconds), _) => (now.saturating_add(seconds), seconds),
        };
        Some((
            http_engine::head_out::date_text(at),
            if age < 0 { CacheControl::NoCache } else { CacheControl::MaxAge(age) },
        ))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CacheControl {
    NoCache,
    MaxAge(i64),
}

/// As shown by local clocks.
fn next_time(now: i64, seconds: i64) -> i64 {
    let offset = |at: i64| i64::from(local_offset(at));
    let midnight = (now + offset(now)).div_euclid(86_400) * 86_400;
    let on = |day: i64| {
        let wall = midnight + day * 86_400 + seconds;
        // Offset at that moment, since summer time may have changed it.
        wall - offset(wall - offset(now))
    };
    let today = on(0);
    if today > now { today } else { on(1) }
}

impl ValueKind for ExpiresRule {
    const SYNTAX: &'static str = "[modified] time | epoch | max | off";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let (modified, index) = match d.args.as_slice() {
            [first, _] if first.bytes == b"modified" => (true, 1),
            [_, _] => return Err(Problem::invalid().at(0).hint("of two arguments, the first must be \"modified\"")),
            _ => (false, 0),
        };
        let text = d.args.get(index).map(|w| w.bytes.clone()).unwrap_or_default();
        let value = HttpTemplate::compile(cx, d, &text).map_err(|p| p.at(index))?;
        match value.as_literal() {
            Some(text) => Expiry::parse(text, modified)
                .map(ExpiresRule::Fixed)
                .map_err(|words| Problem::directive(words).at(index)),
            None => Ok(ExpiresRule::Computed { value, modified }),
        }
    }
}

impl ExpiresRule {
    pub fn is_off(&self) -> bool {
        matches!(self, ExpiresRule::Fixed(Expiry::Off))
    }
    pub fn apply(&self, r: &mut Request) {
        let when = match self {
            ExpiresRule::Fixed(when) => *when,
            // An invalid value sets nothing.
            ExpiresRule::Computed { value, modified } => match Expiry::parse(&value.eval(r), *modified) {
                Ok(when) => when,
                Err(_) => return,
            },
        };
        let Some((date, control)) = when.resolve(base::clock::unix_seconds(), r.out.last_modified()) else { return };
        r.out.replace("Expires", date.to_vec());
        match control {
            CacheControl::NoCache => r.out.replace("Cache-Control", "no-cache"),
            CacheControl::MaxAge(age) => {
                let mut value = Vec::with_capacity(32);
                value.extend_from_slice(b"max-age=");
                http_engine::head_out::write_number(age.max(0) as u64, &mut value);
                r.out.replace("Cache-Control", value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_expires_are_parsed() {
        for (text, modified, want) in [
            ("epoch", false, Ok(Expiry::Epoch)),
            ("max", false, Ok(Expiry::Max)),
            ("off", false, Ok(Expiry::Off)),
            ("30d", false, Ok(Expiry::Access(30 * 86_400))),
            ("+1h", false, Ok(Expiry::Access(3600))),
            ("-1", false, Ok(Expiry::Access(-1))),
            ("@15h30m", false, Ok(Expiry::Daily(55_800))),
            ("@25h", false, Err("daily time value must be less than 24 hours")),
            ("@1h", true, Err("daily time cannot be used with \"modified\" parameter")),
            ("-24h", true, Ok(Expiry::Modified(-86_400))),
            ("max", true, Err("invalid value")),
            ("", false, Err("invalid value")),
        ] {
            assert_eq!(Expiry::parse(text.as_bytes(), modified), want, "{text}");
        }
    }

    #[test]
    fn cache_control_follows_expires() {
        let control = |when: Expiry, modified| when.resolve(1_000_000, modified).map(|(_, control)| control);
        assert_eq!(control(Expiry::Access(60), None), Some(CacheControl::MaxAge(60)));
        assert_eq!(control(Expiry::Access(-60), None), Some(CacheControl::NoCache));
        assert_eq!(control(Expiry::Modified(60), Some(1_000_000 - 20)), Some(CacheControl::MaxAge(40)));
        assert_eq!(control(Expiry::Modified(60), Some(1_000_000 - 100)), Some(CacheControl::NoCache));
        assert_eq!(control(Expiry::Modified(-60), Some(2_000_000)), Some(CacheControl::NoCache));
        assert_eq!(control(Expiry::Modified(60), None), Some(CacheControl::MaxAge(60)));
        assert_eq!(control(Expiry::Off, None), None);
    }

    #[test]
    fn daily_is_within_a_day() {
        for now in [0, 1_700_000_000, 1_711_846_800, 1_729_990_800] {
            for seconds in [0, 1, 43_200, 86_399] {
                let at = next_time(now, seconds);
                assert!(at > now && at - now <= 90_000, "{now} {seconds} {at}");
            }
        }
    }
}
