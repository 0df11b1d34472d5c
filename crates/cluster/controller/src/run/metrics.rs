//! Counters of the controller, in Prometheus's text format.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::probes::SourceState;

/// Counters. All are written by one task each and read by scrapes.
#[derive(Default)]
pub struct Metrics {
    pub translations: AtomicU64,
    /// Translations of endpoints alone.
    pub translations_of_endpoints: AtomicU64,
    translation_micros: AtomicU64,
    pub pushes_whole: AtomicU64,
    pub pushes_groups: AtomicU64,
    pub pushes_refused: AtomicU64,
    pub pushes_failed: AtomicU64,
    push_micros: AtomicU64,
    pub watch_errors: AtomicU64,
    pub status_writes: AtomicU64,
    pub status_failures: AtomicU64,
    pub events: AtomicU64,
    pub complaints: AtomicU64,
    /// Objects that are left out because the server refuses them.
    pub objects_refused: AtomicU64,
    pub reviews: AtomicU64,
    pub reviews_denied: AtomicU64,
    pub generation: AtomicU64,
    pub is_leader: AtomicBool,
    /// The server serves a configuration of a controller.
    pub is_ready: AtomicBool,
    /// The server's last answer to a push was a refusal.
    pub is_refused: AtomicBool,
}

pub fn count_one(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Metrics {
    pub fn translated(&self, duration: Duration, is_partial: bool) {
        count_one(if is_partial { &self.translations_of_endpoints } else { &self.translations });
        self.translation_micros.fetch_add(micros(duration), Ordering::Relaxed);
    }

    pub fn pushed(&self, duration: Duration) {
        self.push_micros.fetch_add(micros(duration), Ordering::Relaxed);
    }

    /// Returns the number of translations of both kinds, and their time.
    #[cfg(test)]
    pub fn translations_and_time(&self) -> (u64, Duration) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let count = get(&self.translations) + get(&self.translations_of_endpoints);
        (count, Duration::from_micros(get(&self.translation_micros)))
    }

    /// Writes all metrics.
    pub fn text(&self, source: &dyn SourceState) -> String {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let seconds = |counter: &AtomicU64| get(counter) as f64 / 1e6;
        let flag = |flag: &AtomicBool| u64::from(flag.load(Ordering::Relaxed));
        let mut out = String::new();
        head(&mut out, "objects", "gauge", "Objects in memory by kind.");
        for (kind, count) in source.counts() {
            let _ = writeln!(out, "tidegate_controller_objects{{kind=\"{kind}\"}} {count}");
        }
        source.write_metrics(&mut out);
        head(&mut out, "pushes_total", "counter", "Changes that were sent to the server.");
        for (kind, counter) in [("configuration", &self.pushes_whole), ("servers", &self.pushes_groups)] {
            let _ = writeln!(out, "tidegate_controller_pushes_total{{kind=\"{kind}\"}} {}", get(counter));
        }
        let mut one = |name: &str, kind: &str, help: &str, value: String| {
            head(&mut out, name, kind, help);
            let _ = writeln!(out, "tidegate_controller_{name} {value}");
        };
        let counters = [
            ("pushes_refused_total", "Configurations that the server refused.", &self.pushes_refused),
            ("pushes_failed_total", "Attempts without an answer, which are repeated.", &self.pushes_failed),
            ("translations_total", "Translations of all objects.", &self.translations),
            ("translations_of_endpoints_total", "Translations of endpoints alone.", &self.translations_of_endpoints),
            ("watch_errors_total", "Failed lists and watches, which are repeated.", &self.watch_errors),
            ("status_writes_total", "Statuses that were written.", &self.status_writes),
            ("status_failures_total", "Statuses that could not be written.", &self.status_failures),
            ("events_total", "Events that were written.", &self.events),
            ("reviews_total", "Objects that the admission webhook reviewed.", &self.reviews),
            ("reviews_denied_total", "Objects that the admission webhook denied.", &self.reviews_denied),
        ];
        for (name, help, counter) in counters {
            one(name, "counter", help, get(counter).to_string());
        }
        let durations = [
            ("translation_seconds_total", "Time of all translations.", &self.translation_micros),
            ("push_seconds_total", "Time of all pushes.", &self.push_micros),
        ];
        for (name, help, counter) in durations {
            one(name, "counter", help, seconds(counter).to_string());
        }
        one("complaints", "gauge", "Objects and parts that are left out.", get(&self.complaints).to_string());
        let help = "Objects that are left out because the server refuses them.";
        one("objects_refused", "gauge", help, get(&self.objects_refused).to_string());
        one("generation", "gauge", "Generation that the server serves.", get(&self.generation).to_string());
        one("leader", "gauge", "1 if this replica writes statuses.", flag(&self.is_leader).to_string());
        one("ready", "gauge", "1 if the server serves a controller's configuration.", flag(&self.is_ready).to_string());
        let help = "1 if the server refused the last configuration, or could not bind an address of it.";
        one("configuration_refused", "gauge", help, flag(&self.is_refused).to_string());
        out
    }
}

fn head(out: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(out, "# HELP tidegate_controller_{name} {help}\n# TYPE tidegate_controller_{name} {kind}");
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
