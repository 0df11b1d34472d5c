//! Sources of the views: answers of the API, the plan, the history, and rates since the last look.

use super::super::ask::{ApiRequest, Verb};
use super::super::certificates::place_of;
use super::super::run;
use super::history::{View, bucket_quantile};
use super::html::Tone;
use base::clock::Instant;
use bytes::Bytes;
use conf_schema::At;
use http_engine::HttpPlan;
use metrics::Times;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use upstream_directives::inventory::Inventory;

/// Looks that are farther apart give no rates.
const RATE_MICROS_MAX: u64 = 120_000_000;
/// Shortest period over which recent times are shown; the longest is a minute.
const TIMES_MICROS: u64 = 20_000_000;
const TIMES_MICROS_MAX: u64 = 60_000_000;

/// Counts of the last look, and rates between the looks.
#[derive(Debug, Default)]
pub struct Rates {
    at: Option<Instant>,
    before: HashMap<String, u64>,
    now: HashMap<String, u64>,
    seconds: Option<f64>,
    times: HashMap<String, [TimeMark; 2]>,
}

/// Times at a look.
#[derive(Clone, Debug)]
struct TimeMark {
    at: Instant,
    times: Times,
}

/// Times of a period.
#[derive(Clone, Debug)]
pub struct Recent {
    pub times: Times,
    /// The period begins within the last minute; otherwise with the counters.
    pub is_last_minute: bool,
}

impl Recent {
    /// Returns the mean in milliseconds.
    pub fn mean(&self) -> Option<f64> {
        let count = self.times.count();
        (count > 0).then(|| self.times.sum as f64 / 1000.0 / count as f64)
    }
    /// Returns a quantile in milliseconds.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        bucket_quantile(&self.times.buckets, share)
    }
}

impl Rates {
    pub fn begin(&mut self, now: Instant) {
        let elapsed = self.at.map(|at| now.micros_since(at)).filter(|micros| (1..=RATE_MICROS_MAX).contains(micros));
        self.seconds = elapsed.map(|micros| micros as f64 / 1e6);
        self.at = Some(now);
        self.before = std::mem::take(&mut self.now);
        self.times.retain(|_, [_, newer]| now.micros_since(newer.at) <= 2 * RATE_MICROS_MAX);
    }
    /// Returns the times of the last minute at most, if looks were close enough together, or all times.
    pub fn recent(&mut self, key: String, times: Times) -> Recent {
        let now = self.at.unwrap_or_default();
        let mark = TimeMark { at: now, times: times.clone() };
        let [older, newer] = self.times.entry(key).or_insert_with(|| [mark.clone(), mark.clone()]);
        if now.micros_since(newer.at) >= TIMES_MICROS {
            *older = std::mem::replace(newer, mark);
        }
        let age = now.micros_since(older.at);
        // Counters that were reset begin again.
        let is_reset = times.count() < older.times.count();
        if is_reset || !(TIMES_MICROS..=TIMES_MICROS_MAX).contains(&age) {
            return Recent { times, is_last_minute: false };
        }
        let buckets =
            times.buckets.iter().zip(&older.times.buckets).map(|(now, old)| now.saturating_sub(*old)).collect();
        let sum = times.sum.saturating_sub(older.times.sum);
        Recent { times: Times { buckets, sum }, is_last_minute: true }
    }
    /// Returns the growth per second since the last look.
    pub fn rate(&mut self, key: String, count: u64) -> Option<f64> {
        let rate =
            self.seconds.zip(self.before.get(&key)).map(|(seconds, old)| count.saturating_sub(*old) as f64 / seconds);
        self.now.insert(key, count);
        rate
    }
}

#[derive(Clone, Debug)]
pub struct Alert {
    pub tone: Tone,
    pub text: String,
    /// Id of the section with more about it.
    pub section: &'static str,
}

pub struct Data<'a> {
    pub plan: &'a Arc<HttpPlan>,
    pub inventory: &'a Arc<Inventory>,
    pub files: &'a [PathBuf],
    pub writes: bool,
    pub history: View,
    pub rates: &'a mut Rates,
    pub alerts: Vec<Alert>,
    /// Milliseconds since 1970.
    pub now: u64,
    /// For forms that change something.
    pub token: &'a str,
}

impl Data<'_> {
    /// Asks the API, version 9; `Null` where it refuses.
    pub fn api(&self, path: &str) -> Value {
        let ask = ApiRequest {
            path: format!("/9{path}"),
            verb: Verb::Get,
            fields: None,
            key: None,
            tag: None,
            dry_run: false,
            if_match: None,
            foreign: false,
            body: Bytes::new(),
            writes: false,
            local: String::new(),
            inventory: self.inventory.clone(),
        };
        let answer = run::run_request(&ask).ok().and_then(|answer| answer.body);
        answer.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
    }
    /// Returns objects by name.
    pub fn collection(&self, path: &str) -> Map<String, Value> {
        match self.api(path) {
            Value::Object(all) => all,
            _ => Map::new(),
        }
    }
    pub fn alert(&mut self, tone: Tone, section: &'static str, text: String) {
        self.alerts.push(Alert { tone, text, section });
    }
    /// As `file:line`.
    pub fn place(&self, at: At) -> String {
        place_of(at, self.files)
    }
}

/// 0: absent.
pub fn count_at(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or_default()
}

pub fn text_at<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_need_two_looks() {
        let mut rates = Rates::default();
        rates.begin(Instant(1_000_000));
        assert_eq!(rates.rate("a".into(), 10), None);
        rates.begin(Instant(3_000_000));
        assert_eq!(rates.rate("a".into(), 30), Some(10.0));
        assert_eq!(rates.rate("b".into(), 30), None);
        rates.begin(Instant(4_000_000));
        // After a reset counters begin anew.
        assert_eq!(rates.rate("a".into(), 0), Some(0.0));
        rates.begin(Instant(200_000_000));
        assert_eq!(rates.rate("a".into(), 5), None);
    }

    #[test]
    fn mean_and_quantile_have_one_period() {
        let mut rates = Rates::default();
        let mut look = |second: u64, fast: u64, slow: u64| {
            rates.begin(Instant(second * 1_000_000));
            let mut buckets = vec![0; metrics::BOUNDS_MICROS.len() + 1];
            (buckets[0], buckets[5]) = (fast, slow);
            let recent = rates.recent("a".into(), Times { buckets, sum: fast * 1000 + slow * 90_000 });
            (recent.is_last_minute, recent.mean(), recent.quantile(0.95).map(f64::round))
        };
        // The first look knows only the counters; the slow responses before it are then no part of the last minute.
        assert_eq!(look(1, 0, 10), (false, Some(90.0), Some(99.0)));
        assert_eq!(look(2, 10, 10), (false, Some(45.5), Some(98.0)));
        assert_eq!(look(22, 100, 10), (true, Some(1.0), Some(5.0)));
        assert_eq!(look(60, 100, 10), (true, None, None));
        // Looks that are too far apart, and counters that begin again.
        assert_eq!(look(300, 190, 10), (false, Some(5.45), Some(5.0)));
        assert_eq!(look(321, 1, 0), (false, Some(1.0), Some(5.0)));
    }
}
