//! Observers of a running test: metric streams and conditions that end it.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use figures::units::{format_grouped, format_seconds};
use serde_json::json;

use super::gate::{GateCondition, parse_conditions};
use super::remote_write::{Sender, SeriesCollector, SeriesSample};
use crate::engine::record::LoadRecord;
use crate::engine::run::Moment;
use crate::protocol::grpc::code_name;
use crate::report::build::latency_times;
use crate::report::model::Round;

/// Requests before a condition may end a run.
const ENOUGH: u64 = 100;

pub fn abort_on(rules: &[String]) -> Result<Vec<(String, GateCondition)>, String> {
    let mut out = Vec::new();
    for rule in rules {
        out.extend(parse_conditions(rule)?.into_iter().map(|c| (rule.clone(), c)));
    }
    Ok(out)
}

/// Time in milliseconds since 1970.
fn milliseconds() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as i64)
}

pub fn is_url(path: &Path) -> bool {
    let text = path.to_string_lossy();
    text.starts_with("http://") || text.starts_with("https://")
}

pub struct Watcher<'a> {
    abort_on: &'a [(String, GateCondition)],
    metrics: Option<&'a PathBuf>,
    collectors: Vec<Sender>,
    label: &'a str,
    total: LoadRecord,
    seconds: f64,
    /// Beginning of the run, and seconds of its warm-up.
    began: Arc<OnceLock<Instant>>,
    warmup: f64,
    /// Intervals that the file has, those that it lacks, and why.
    written: u64,
    missed: u64,
    why_missed: String,
}

impl<'a> Watcher<'a> {
    pub fn new(abort_on: &'a [(String, GateCondition)], metrics: Option<&'a PathBuf>, label: &'a str) -> Watcher<'a> {
        Watcher {
            abort_on,
            metrics,
            collectors: Vec::new(),
            label,
            total: LoadRecord::default(),
            seconds: 0.0,
            began: Arc::default(),
            warmup: 0.0,
            written: 0,
            missed: 0,
            why_missed: String::new(),
        }
    }

    /// Sends the samples of every interval to collectors.
    pub fn with_collectors(self, collectors: &[SeriesCollector]) -> Watcher<'a> {
        let start = milliseconds();
        Watcher { collectors: collectors.iter().map(|own| Sender::new(own.clone(), start)).collect(), ..self }
    }

    /// Counts the time from the end of the warm-up, of `warmup` seconds: the last interval of a run ends early.
    pub fn with_start(self, began: &Arc<OnceLock<Instant>>, warmup: f64) -> Watcher<'a> {
        Watcher { began: began.clone(), warmup, ..self }
    }

    /// Waits until streamed metrics have arrived; returns sentences about losses.
    pub fn finish(&mut self) -> Vec<String> {
        let file = self.metrics.filter(|_| self.missed > 0).map(|path| {
            let all = self.written + self.missed;
            format!("--metrics {} lacks {} of {all} intervals: {}", path.display(), self.missed, self.why_missed)
        });
        file.into_iter().chain(self.collectors.drain(..).filter_map(Sender::finish)).collect()
    }

    /// Observes an interval; returns the reason to end the run.
    pub fn see(&mut self, moment: &Moment) -> Option<String> {
        if self.abort_on.is_empty() && self.metrics.is_none() && self.collectors.is_empty() {
            return None;
        }
        self.total.merge(&moment.record);
        let elapsed = self.began.get().map_or(f64::INFINITY, |began| began.elapsed().as_secs_f64() - self.warmup);
        self.seconds = moment.at.min(elapsed.max(1e-3));
        if let Some(path) = self.metrics {
            match self.stream(path, moment) {
                Ok(()) => self.written += 1,
                Err(why) => {
                    self.missed += 1;
                    self.why_missed = why.to_string();
                }
            }
        }
        if !self.collectors.is_empty() {
            let samples = self.samples(moment);
            let at = milliseconds();
            self.collectors.iter_mut().for_each(|sender| sender.send(&samples, at));
        }
        // Wrong answers are failures as well.
        let ended = self.total.in_time + self.total.failures.total();
        if self.abort_on.is_empty() || ended < ENOUGH {
            return None;
        }
        let round = self.so_far();
        let held = self.abort_on.iter().find(|(_, c)| c.of(&round).is_some_and(|v| c.met(v)));
        held.map(|(rule, c)| {
            let figure = c.of(&round).map_or(String::new(), |v| c.write(v));
            let seconds = format_seconds(self.seconds);
            format!("{rule}: {figure} after {} requests in {seconds}", format_grouped(ended as i64))
        })
    }

    fn so_far(&self) -> Round {
        let t = &self.total;
        let failures = t.failures.seen().map(|(c, n)| (c.word().to_string(), n)).collect();
        // Requests in transit are due without a result yet.
        let due = (t.in_time + t.failures.total()).max(1);
        let good_rps = t.good as f64 / self.seconds.max(1e-9);
        Round { due, failures, good_rps, latency: latency_times(&t.corrected), ..Round::default() }
    }

    fn stream(&self, path: &Path, moment: &Moment) -> std::io::Result<()> {
        if path.extension().is_some_and(|e| e == "prom") {
            // Collectors read the file at any time.
            return super::outputs::replace_file(path, self.prometheus(moment).as_bytes());
        }
        let (r, seconds) = (&moment.record, moment.seconds.max(1e-9));
        let time = |q: f64| Some(r.corrected.quantile(q)).filter(|v| v.is_finite());
        let line = json!({
            "run": self.label, "at": moment.at, "rps": r.answers as f64 / seconds, "good_rps": r.good as f64 / seconds,
            "offered": r.due as f64 / seconds, "failures": r.failures.total(), "p50": time(0.5), "p90": time(0.9),
            "p99": time(0.99), "max": time(1.0), "connections": moment.open, "waiting": moment.pending,
            "new_connections": r.connections, "bytes": r.body_bytes + r.other_bytes,
        });
        let mut file = fs::OpenOptions::new().append(true).create(true).open(path)?;
        file.write_all(format!("{line}\n").as_bytes())
    }

    /// Counters of the run, gauges of the last interval.
    fn metrics(&self, moment: &Moment) -> [Metric; 8] {
        let (t, r) = (&self.total, &moment.record);
        let one = |value: f64| vec![(None, value)];
        let labelled = |name: &'static str, value: String| Some((name, value));
        let http = t.statuses.sorted().into_iter().map(|(status, n)| (status.to_string(), n));
        let grpc = t.codes.sorted().into_iter().map(|(code, n)| (code_name(code), n));
        let statuses = http.chain(grpc).map(|(code, n)| (labelled("code", code), n as f64)).collect();
        let failures = t.failures.seen().map(|(c, n)| (labelled("class", c.word().into()), n as f64)).collect();
        let quantiles = [0.5, 0.9, 0.99, 1.0].iter();
        let quantiles = quantiles.map(|q| (labelled("quantile", q.to_string()), r.corrected.quantile(*q)));
        let metric = |name, kind, help, values| Metric { name, kind, help, values };
        [
            metric("due_total", "counter", "Requests due so far.", one(t.due as f64)),
            metric("answers_total", "counter", "Answers by status.", statuses),
            metric("failures_total", "counter", "Failed requests, by class.", failures),
            metric("received_bytes_total", "counter", "Bytes received.", one((t.body_bytes + t.other_bytes) as f64)),
            metric(
                "requests_per_second",
                "gauge",
                "Answers a second in the last interval.",
                one(r.answers as f64 / moment.seconds.max(1e-9)),
            ),
            metric(
                "latency_seconds",
                "gauge",
                "Latency in the last interval.",
                quantiles.filter(|(_, v)| v.is_finite()).collect(),
            ),
            metric("connections", "gauge", "Open connections.", one(moment.open as f64)),
            metric("waiting", "gauge", "Requests waiting for a connection.", one(moment.pending as f64)),
        ]
    }

    fn prometheus(&self, moment: &Moment) -> String {
        let mut out = String::new();
        for Metric { name, kind, help, values } in self.metrics(moment) {
            out.push_str(&format!("# HELP tidegate_bench_{name} {help}\n# TYPE tidegate_bench_{name} {kind}\n"));
            for (label, value) in values {
                let label = label.map_or(String::new(), |(name, value)| format!("{{{name}=\"{value}\"}}"));
                out.push_str(&format!("tidegate_bench_{name}{label} {value}\n"));
            }
        }
        out
    }

    fn samples(&self, moment: &Moment) -> Vec<SeriesSample> {
        let of = |metric: Metric| {
            let name = format!("tidegate_bench_{}", metric.name);
            let labels = move |label: Option<(&str, String)>| {
                let all =
                    [("__name__", name.clone()), ("job", "tidegate-bench".into()), ("run", self.label.to_string())];
                all.into_iter().chain(label).map(|(n, v)| (n.to_string(), v)).collect()
            };
            metric.values.into_iter().map(move |(label, value)| SeriesSample { labels: labels(label), value })
        };
        self.metrics(moment).into_iter().flat_map(of).collect()
    }
}

struct Metric {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    values: Vec<(Option<(&'static str, String)>, f64)>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::failure::LoadFailure;

    fn moment(answers: u64, failed: u64) -> Moment {
        let mut record = LoadRecord::default();
        (record.answers, record.good, record.in_time, record.due) = (answers, answers, answers, answers + failed);
        (0..answers).for_each(|_| record.both(2_000_000));
        record.settle();
        record.failures.add_many(LoadFailure::Reset, failed);
        (0..answers).for_each(|_| record.statuses.add(200));
        Moment { at: 1.0, seconds: 1.0, record, open: 3, pending: 0 }
    }

    #[test]
    fn a_condition_ends_a_run_when_there_is_enough_to_judge_by() {
        let rules = abort_on(&["errors>10%".into(), "p99>1s".into()]).unwrap();
        let mut watcher = Watcher::new(&rules, None, "x");
        assert_eq!(watcher.see(&moment(10, 20)), None, "too few");
        let why = watcher.see(&moment(80, 20)).unwrap();
        assert_eq!(why, "errors>10%: 30.8 % after 130 requests in 1 s");
        // Answers with a wrong status are failures, and count once.
        let mut wrong = moment(0, 50);
        wrong.record.answers = 50;
        assert_eq!(Watcher::new(&rules, None, "x").see(&wrong), None, "fifty requests are too few");
        let mut wrong = moment(0, 100);
        wrong.record.answers = 100;
        let why = Watcher::new(&rules, None, "x").see(&wrong).unwrap();
        assert_eq!(why, "errors>10%: 100 % after 100 requests in 1 s");
        // A number of requests ends a run long before its interval.
        let began = Arc::new(OnceLock::from(Instant::now()));
        let early = Moment { at: 1e6, ..wrong };
        let why = Watcher::new(&rules, None, "x").with_start(&began, 0.0).see(&early).unwrap();
        assert!(why.starts_with("errors>10%: 100 % after 100 requests in ") && !why.ends_with(" h"), "{why}");
        assert_eq!(Watcher::new(&rules, None, "x").see(&moment(1000, 20)), None);
        assert!(abort_on(&["p99>5".into()]).is_err());
    }

    #[test]
    fn metrics_can_be_read() {
        let folder = std::env::temp_dir().join(format!("bench-metrics-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (prom, lines) = (folder.join("m.prom"), folder.join("m.jsonl"));
        for path in [&prom, &lines] {
            let mut watcher = Watcher::new(&[], Some(path), "x");
            watcher.see(&moment(100, 1));
            watcher.see(&moment(50, 0));
        }
        let full = PathBuf::from("/dev/full");
        let mut watcher = Watcher::new(&[], Some(&full), "x");
        watcher.see(&moment(100, 1));
        let said = watcher.finish();
        assert!(said[0].starts_with("--metrics /dev/full lacks 1 of 1 intervals: No space left"), "{said:?}");
        let text = fs::read_to_string(&prom).unwrap();
        assert!(text.contains("tidegate_bench_answers_total{code=\"200\"} 150\n") && text.contains("} 1\n"), "{text}");
        assert!(text.contains("tidegate_bench_requests_per_second 50\n"));
        let all = fs::read_to_string(&lines).unwrap();
        let second: serde_json::Value = serde_json::from_str(all.lines().nth(1).unwrap()).unwrap();
        assert_eq!((second["rps"].as_f64(), second["connections"].as_u64()), (Some(50.0), Some(3)));
        fs::remove_dir_all(&folder).unwrap();
        let samples = Watcher::new(&[], None, "x").samples(&moment(10, 1));
        let latency = samples.iter().filter(|s| s.labels[0].1 == "tidegate_bench_latency_seconds").count();
        assert_eq!(latency, 4);
        assert!(samples.iter().all(|s| s.labels[2] == ("run".to_string(), "x".to_string())));
    }
}
