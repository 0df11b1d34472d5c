//! Reads access logs as load: requests with their timing, in nginx's `combined` format or any `log_format`.

use std::collections::BTreeMap;
use std::path::Path;

use crate::engine::request::RequestSpec;

/// nginx's predefined format.
const COMBINED: &str = "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \"$http_referer\" \"$http_user_agent\"";
/// Maximum number of log lines, to bound memory.
const REQUESTS_MAX: usize = 20_000_000;

#[derive(Clone, Debug, PartialEq)]
pub struct Log {
    /// Start of each request in seconds from the beginning, and its index in `requests`.
    pub at: Vec<(f64, u32)>,
    /// Distinct requests.
    pub requests: Vec<RequestSpec>,
    pub seconds: f64,
    /// Omitted lines by method, other than GET and HEAD.
    pub methods: BTreeMap<String, usize>,
    /// Omitted lines in another format.
    pub broken: usize,
    /// Omitted lines beyond [`REQUESTS_MAX`].
    pub beyond: usize,
}

impl Log {
    pub fn left_out(&self) -> Option<String> {
        let mut parts: Vec<String> = self.methods.iter().map(|(method, n)| format!("{n} {method}")).collect();
        if self.broken > 0 {
            parts.push(format!("{} in another format", self.broken));
        }
        if self.beyond > 0 {
            parts.push(format!("{} beyond the first {REQUESTS_MAX}", self.beyond));
        }
        let all = self.methods.values().sum::<usize>() + self.broken + self.beyond;
        (all > 0).then(|| {
            let of = all + self.at.len();
            format!(
                "{all} of {of} lines of the log were left out: {} (only GET and HEAD are repeated)",
                parts.join(", ")
            )
        })
    }
}

/// Reads a log. Includes only GET and HEAD requests, because logs contain no bodies and other methods could change the
/// server's data. Each request expects the logged status.
///
/// # Errors
/// The file is unreadable, the format lacks the time or the request, or no line matches the format.
pub fn read_log(path: &Path, format: Option<&str>, speed: f64) -> Result<Log, String> {
    let text = super::requests::read_text(path)?;
    if !(speed > 0.0 && speed.is_finite()) {
        return Err("--speed must be positive".into());
    }
    parse_log(&text, format.unwrap_or(COMBINED), speed).map_err(|e| format!("{}: {e}", path.display()))
}

/// Reads a log from its text; see [`read_log`].
pub fn parse_log(text: &str, format: &str, speed: f64) -> Result<Log, String> {
    let format = Format::compile(format)?;
    let mut numbers: BTreeMap<(String, String, u16), u32> = BTreeMap::new();
    let mut log = Log {
        at: Vec::new(),
        requests: Vec::new(),
        seconds: 0.0,
        methods: BTreeMap::new(),
        broken: 0,
        beyond: text.lines().count().saturating_sub(REQUESTS_MAX),
    };
    let mut times: Vec<f64> = Vec::new();
    for line in text.lines().take(REQUESTS_MAX) {
        let Some(entry) = format.read(line) else {
            log.broken += usize::from(!line.is_empty());
            continue;
        };
        if !matches!(entry.method.as_str(), "GET" | "HEAD") {
            // Clients choose the methods in a log: limits the number of counted names.
            let known = log.methods.len() < 12 || log.methods.contains_key(&entry.method);
            *log.methods.entry(if known { entry.method } else { "other".into() }).or_default() += 1;
            continue;
        }
        let key = (entry.method, entry.path, entry.status);
        let number = *numbers.entry(key.clone()).or_insert_with(|| {
            let mut spec = RequestSpec::get(&key.1.replace("{{", "%7B%7B").replace("${", "$%7B"));
            spec.method = key.0.clone();
            if key.2 != 0 {
                spec.expect.status = vec![key.2];
            }
            log.requests.push(spec);
            log.requests.len() as u32 - 1
        });
        times.push(entry.time);
        log.at.push((0.0, number));
    }
    let Some(first) = times.iter().copied().reduce(f64::min) else {
        return Err("no line fits the format (--log-format)".into());
    };
    spread(&mut times);
    for (slot, time) in log.at.iter_mut().zip(times) {
        slot.0 = (time - first).max(0.0) / speed;
    }
    log.at.sort_by(|a, b| a.0.total_cmp(&b.0));
    // Extends the replay by the average interval after the last request.
    let last = log.at.last().map_or(0.0, |l| l.0);
    log.seconds = last + (last / (log.at.len() - 1).max(1) as f64).max(0.001);
    Ok(log)
}

/// Distributes the requests of each second evenly over that second, if the log has whole seconds.
fn spread(times: &mut [f64]) {
    if times.iter().any(|t| t.fract() != 0.0) {
        return;
    }
    let mut start = 0;
    while start < times.len() {
        let second = times[start];
        let count = times[start..].iter().take_while(|t| **t == second).count();
        for (i, time) in times[start..start + count].iter_mut().enumerate() {
            *time = second + i as f64 / count as f64;
        }
        start += count;
    }
}

struct Entry {
    time: f64,
    method: String,
    path: String,
    status: u16,
}

struct Format {
    parts: Vec<(String, String)>,
    prefix: String,
}

impl Format {
    fn compile(text: &str) -> Result<Format, String> {
        let mut pieces = text.split('$');
        let prefix = pieces.next().unwrap_or("").to_string();
        let parts: Vec<(String, String)> = pieces
            .map(|p| {
                let p = p.strip_prefix('{').map_or(p.to_string(), |inner| inner.replacen('}', "", 1));
                let end = p.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(p.len());
                (p[..end].to_string(), p[end..].to_string())
            })
            .collect();
        let has = |names: &[&str]| parts.iter().any(|(n, _)| names.contains(&n.as_str()));
        if !has(&["time_local", "time_iso8601", "msec"]) {
            return Err("the format has no $time_local, $time_iso8601 or $msec".into());
        }
        if !has(&["request", "request_uri", "uri"]) {
            return Err("the format has no $request or $request_uri".into());
        }
        Ok(Format { parts, prefix })
    }

    fn read(&self, line: &str) -> Option<Entry> {
        let mut rest = line.strip_prefix(self.prefix.as_str())?;
        let mut entry = Entry { time: f64::NAN, method: "GET".into(), path: String::new(), status: 0 };
        for (i, (name, after)) in self.parts.iter().enumerate() {
            let end = match after.is_empty() {
                true if i + 1 == self.parts.len() => rest.len(),
                true => return None,
                false => rest.find(after.as_str())?,
            };
            let value = &rest[..end];
            rest = &rest[end + after.len()..];
            match name.as_str() {
                "time_local" => entry.time = time_local(value)?,
                "time_iso8601" => entry.time = time_iso(value)?,
                "msec" => entry.time = value.parse().ok()?,
                "request_method" => entry.method = value.into(),
                "request_uri" | "uri" => entry.path = value.into(),
                "status" => entry.status = value.parse().ok()?,
                "request" => {
                    let mut words = value.split(' ');
                    entry.method = words.next()?.into();
                    entry.path = words.next()?.into();
                }
                _ => {}
            }
        }
        (entry.time.is_finite() && entry.path.starts_with('/')).then_some(entry)
    }
}

fn time_local(text: &str) -> Option<f64> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (stamp, zone) = text.split_once(' ')?;
    let (date, clock) = stamp.split_once(':')?;
    let date: Vec<&str> = date.split('/').collect();
    let [day, month, year] = date[..] else { return None };
    let month = MONTHS.iter().position(|m| *m == month)? as i64 + 1;
    seconds(year.parse().ok()?, month, day.parse().ok()?, clock, zone)
}

fn time_iso(text: &str) -> Option<f64> {
    let (date, rest) = text.split_once('T')?;
    let cut = rest.find(['+', '-', 'Z'])?;
    let date: Vec<i64> = date.split('-').map(|p| p.parse().ok()).collect::<Option<_>>()?;
    let [year, month, day] = date[..] else { return None };
    seconds(year, month, day, &rest[..cut], &rest[cut..].replace(':', ""))
}

fn seconds(year: i64, month: i64, day: i64, clock: &str, zone: &str) -> Option<f64> {
    let clock: Vec<f64> = clock.split(':').map(|p| p.parse().ok()).collect::<Option<_>>()?;
    let [h, m, s] = clock[..] else { return None };
    let offset = match zone.strip_prefix('Z') {
        Some(_) => 0.0,
        None => {
            let number: f64 = zone.get(1..)?.parse().ok()?;
            let minutes = (number / 100.0).floor() * 60.0 + number % 100.0;
            if zone.starts_with('-') { -minutes } else { minutes }
        }
    };
    // Computes the days from 1970 to a Gregorian date (algorithm days_from_civil).
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let of_era = y - era * 400;
    let of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    Some(days as f64 * 86_400.0 + h * 3600.0 + m * 60.0 + s - offset * 60.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "1.2.3.4 - - [21/Nov/2026:20:48:43 +0000] \"GET /a HTTP/1.1\" 200 5 \"-\" \"curl\"\n\
        1.2.3.4 - bob [21/Nov/2026:20:48:43 +0000] \"GET /missing HTTP/1.1\" 404 5 \"-\" \"a \\x22b\"\n\
        1.2.3.4 - - [21/Nov/2026:20:48:45 +0000] \"GET /a HTTP/1.1\" 200 5 \"-\" \"curl\"\n\
        1.2.3.4 - - [21/Nov/2026:20:48:45 +0000] \"POST /form HTTP/1.1\" 200 5 \"-\" \"curl\"\nnonsense\n";

    #[test]
    fn combined_logs_keep_their_timing_and_statuses() {
        let log = parse_log(LOG, COMBINED, 1.0).unwrap();
        assert_eq!(log.at, [(0.0, 0), (0.5, 1), (2.0, 0)]);
        assert_eq!(log.requests[1].expect.status, [404]);
        assert_eq!((log.requests.len(), log.methods["POST"], log.broken), (2, 1, 1));
        let said = log.left_out().unwrap();
        assert!(said.starts_with("2 of 5 lines") && said.contains("1 POST, 1 in another format"), "{said}");
        assert_eq!(parse_log(LOG.lines().next().unwrap(), COMBINED, 1.0).unwrap().left_out(), None);
        assert_eq!(parse_log(LOG, COMBINED, 4.0).unwrap().at[2].0, 0.5);
    }

    #[test]
    fn own_formats() {
        let log = parse_log("17.25|/x|GET\n17.75|/y|GET\n", "$msec|$request_uri|$request_method", 1.0).unwrap();
        assert_eq!(log.at, [(0.0, 0), (0.5, 1)]);
        assert!(parse_log(LOG, "$request", 1.0).is_err());
        assert!(parse_log(LOG, "$msec", 1.0).is_err());
        assert!(parse_log("nonsense\n", COMBINED, 1.0).is_err());
    }

    #[test]
    fn times_are_seconds_since_1970() {
        assert_eq!(time_local("01/Jan/1970:00:00:10 +0000"), Some(10.0));
        assert_eq!(time_local("29/Feb/2024:12:00:00 +0130"), Some(1_709_202_600.0));
        assert_eq!(time_iso("2024-02-29T10:30:00+00:00"), Some(1_709_202_600.0));
        assert_eq!(time_iso("2024-02-29T10:30:00Z"), Some(1_709_202_600.0));
        assert_eq!(time_local("yesterday"), None);
    }
}
