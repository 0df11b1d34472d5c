//! Sources of the views: answers of the API, the plan, the history, and rates since the last look.

use super::super::ask::{Ask, Verb};
use super::super::certificates::place_of;
use super::super::run;
use super::history::View;
use super::html::Tone;
use base::clock::Instant;
use bytes::Bytes;
use conf_schema::At;
use http_engine::HttpPlan;
use serde_json::{Map, Value};
use session_engine::inventory::Inventory;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Looks that are farther apart give no rates.
const RATE_MICROS_MAX: u64 = 120_000_000;

/// Counts of the last look, and rates between the looks.
#[derive(Debug, Default)]
pub struct Rates {
    at: Option<Instant>,
    before: HashMap<String, u64>,
    now: HashMap<String, u64>,
    seconds: Option<f64>,
}

impl Rates {
    pub fn begin(&mut self, now: Instant) {
        let elapsed = self.at.map(|at| now.micros_since(at)).filter(|micros| (1..=RATE_MICROS_MAX).contains(micros));
        self.seconds = elapsed.map(|micros| micros as f64 / 1e6);
        self.at = Some(now);
        self.before = std::mem::take(&mut self.now);
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
        let ask = Ask {
            path: format!("/9{path}"),
            verb: Verb::Get,
            fields: None,
            key: None,
            dry_run: false,
            if_match: None,
            foreign: false,
            body: Bytes::new(),
            writes: false,
            local: String::new(),
            inventory: self.inventory.clone(),
        };
        let answer = run::run(&ask).ok().and_then(|answer| answer.body);
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
pub fn count(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or_default()
}

pub fn text<'a>(value: &'a Value, name: &str) -> &'a str {
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
}
