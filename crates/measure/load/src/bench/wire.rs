//! Outcomes as JSON, between workers and their coordinator.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::engine::failure::{Failures, LoadFailure};
use crate::engine::latency::Latency;
use crate::engine::record::{LoadRecord, Statuses};
use crate::engine::run::{Moment, RunOutcome};
use crate::engine::timeline::{Kinds, Timeline};
use crate::engine::transport::Cost;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WireOutcome {
    total: WireRecord,
    moments: Vec<WireMoment>,
    seconds: f64,
    busy: Vec<f64>,
    client_cpu: f64,
    waited: Vec<f64>,
    timeline: Timeline,
    kinds: Kinds,
    interval: f64,
    ports: u64,
    #[serde(default)]
    scheduled: Option<f64>,
    users: u64,
    starved: u64,
    last_answer: f64,
    last_failure: f64,
    tls_error: Option<String>,
    #[serde(default)]
    refused: Option<String>,
    #[serde(default)]
    answer_error: Option<String>,
    #[serde(default)]
    malformed: Option<String>,
    #[serde(default)]
    used_up: u64,
    rows_left: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct WireMoment {
    at: f64,
    seconds: f64,
    record: WireRecord,
    open: usize,
    pending: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct WireRecord {
    /// Corrected, raw, lag, first byte, connect, handshake; empty text for an empty histogram.
    histograms: [String; 6],
    /// Answers, good, due, sent, connections, body bytes, other bytes, idle closed, connects timed, their CPU time,
    /// local addresses, in time, late, sent again, redirects.
    counts: [u64; 15],
    failures: BTreeMap<LoadFailure, u64>,
    statuses: Statuses,
    #[serde(default)]
    codes: Statuses,
    #[serde(default)]
    messages: u64,
    resets: Statuses,
}

impl PartialOrd for LoadFailure {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for LoadFailure {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (*self as u8).cmp(&(*other as u8))
    }
}

impl WireRecord {
    fn pack(r: &LoadRecord) -> WireRecord {
        let text = |l: &Latency| if l.count() == 0 { String::new() } else { l.encode() };
        WireRecord {
            histograms: [&r.corrected, r.raw(), &r.lag, &r.first_byte, &r.connect, &r.handshake].map(text),
            counts: [
                r.answers,
                r.good,
                r.due,
                r.sent,
                r.connections,
                r.body_bytes,
                r.other_bytes,
                r.idle_closed,
                r.connect_cost.calls,
                r.connect_cost.cpu,
                r.connect_cost.sources,
                r.in_time,
                r.late,
                r.again,
                r.redirects,
            ],
            failures: r.failures.seen().collect(),
            statuses: r.statuses.clone(),
            codes: r.codes.clone(),
            messages: r.messages,
            resets: r.resets.clone(),
        }
    }

    fn unpack(&self) -> Result<LoadRecord, String> {
        let read = |t: &String| if t.is_empty() { Ok(Latency::default()) } else { Latency::decode(t) };
        let [corrected, raw, lag, first_byte, connect, handshake] = &self.histograms;
        let [
            answers,
            good,
            due,
            sent,
            connections,
            body_bytes,
            other_bytes,
            idle_closed,
            calls,
            cpu,
            sources,
            in_time,
            late,
            again,
            redirects,
        ] = self.counts;
        let mut failures = Failures::default();
        self.failures.iter().for_each(|(class, n)| failures.add_many(*class, *n));
        let mut record = LoadRecord::default();
        record.set_raw(read(raw)?);
        record.corrected = read(corrected)?;
        record.lag = read(lag)?;
        record.first_byte = read(first_byte)?;
        record.connect = read(connect)?;
        record.handshake = read(handshake)?;
        (record.answers, record.good, record.due, record.sent) = (answers, good, due, sent);
        (record.in_time, record.late) = (in_time, late);
        (record.connections, record.idle_closed) = (connections, idle_closed);
        (record.body_bytes, record.other_bytes) = (body_bytes, other_bytes);
        record.connect_cost = Cost { calls, cpu, sources };
        record.failures = failures;
        record.statuses = self.statuses.clone();
        (record.codes, record.messages) = (self.codes.clone(), self.messages);
        (record.resets, record.again) = (self.resets.clone(), again);
        record.redirects = redirects;
        Ok(record)
    }
}

impl WireOutcome {
    pub fn pack(o: &RunOutcome) -> WireOutcome {
        let moment = |m: &Moment| WireMoment {
            at: m.at,
            seconds: m.seconds,
            record: WireRecord::pack(&m.record),
            open: m.open,
            pending: m.pending,
        };
        WireOutcome {
            total: WireRecord::pack(&o.total),
            moments: o.moments.iter().map(moment).collect(),
            seconds: o.seconds,
            busy: o.busy.clone(),
            client_cpu: o.client_cpu,
            waited: o.waited.clone(),
            timeline: o.timeline.clone(),
            kinds: o.kinds.clone(),
            interval: o.interval,
            ports: o.ports,
            scheduled: o.scheduled,
            users: o.users,
            starved: o.starved,
            last_answer: o.last_answer,
            last_failure: o.last_failure,
            tls_error: o.tls_error.clone(),
            refused: o.refused.clone(),
            answer_error: o.answer_error.clone(),
            malformed: o.malformed.clone(),
            used_up: o.used_up,
            rows_left: o.rows_left,
        }
    }

    /// Restores the outcome. Fails on an invalid histogram.
    pub fn unpack(&self) -> Result<RunOutcome, String> {
        let moment = |m: &WireMoment| {
            let record = m.record.unpack()?;
            Ok(Moment { at: m.at, seconds: m.seconds, record, open: m.open, pending: m.pending })
        };
        Ok(RunOutcome {
            total: self.total.unpack()?,
            moments: self.moments.iter().map(moment).collect::<Result<_, String>>()?,
            seconds: self.seconds,
            busy: self.busy.clone(),
            client_cpu: self.client_cpu,
            waited: self.waited.clone(),
            timeline: self.timeline.clone(),
            kinds: self.kinds.clone(),
            interval: self.interval,
            ports: self.ports,
            scheduled: self.scheduled,
            users: self.users,
            starved: self.starved,
            last_answer: self.last_answer,
            last_failure: self.last_failure,
            tls_error: self.tls_error.clone(),
            refused: self.refused.clone(),
            answer_error: self.answer_error.clone(),
            malformed: self.malformed.clone(),
            used_up: self.used_up,
            rows_left: self.rows_left,
            machines: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::timeline::Coarse;

    #[test]
    fn outcomes_survive_the_wire() {
        let mut record = LoadRecord::default();
        (record.answers, record.due) = (5, 7);
        record.both(1_000_000);
        record.apart(9_000_000, 2_000_000);
        record.failures.add(LoadFailure::Reset);
        record.statuses.add(404);
        record.codes.add(5);
        record.messages = 8;
        record.settle();
        let moment = Moment { at: 1.0, seconds: 1.0, record: record.clone(), open: 3, pending: 4 };
        let outcome = RunOutcome {
            answer_error: Some("why".into()),
            malformed: Some("how".into()),
            used_up: 2,
            rows_left: 3,
            machines: Vec::new(),
            waited: vec![0.25],
            interval: 0.5,
            timeline: Timeline(vec![Coarse::default()]),
            kinds: Kinds::new(2),
            total: record,
            moments: vec![moment],
            seconds: 1.0,
            busy: vec![0.5],
            client_cpu: 0.5,
            scheduled: Some(0.9),
            ports: 9,
            users: 5,
            starved: 1,
            last_answer: 1.5,
            last_failure: 2.5,
            tls_error: Some("why".into()),
            refused: Some("who".into()),
        };
        let text = serde_json::to_string(&WireOutcome::pack(&outcome)).unwrap();
        let back = serde_json::from_str::<WireOutcome>(&text).unwrap().unpack().unwrap();
        assert_eq!((&back.tls_error, &back.refused), (&outcome.tls_error, &outcome.refused));
        assert_eq!((back.answer_error, back.malformed), (outcome.answer_error.clone(), outcome.malformed.clone()));
        assert_eq!((back.users, back.starved, back.ports), (5, 1, 9));
        assert_eq!((back.last_answer, back.last_failure, back.rows_left), (1.5, 2.5, 3));
        assert_eq!((back.total.answers, back.total.due, back.moments[0].open), (5, 7, 3));
        assert_eq!(back.total.corrected.quantile(0.99), outcome.total.corrected.quantile(0.99));
        assert_eq!(back.total.raw().count(), 2);
        assert_eq!((back.waited, back.interval, back.timeline.0.len()), (vec![0.25], 0.5, 1));
        assert_eq!(back.total.failures.of(LoadFailure::Reset), 1);
        assert_eq!(back.total.statuses.sorted(), [(404, 1)]);
        assert_eq!((back.total.codes.sorted(), back.total.messages), (vec![(5, 1)], 8));
    }

    #[test]
    fn machines_add_up_by_interval_number() {
        let of = |n: u64| {
            let mut record = LoadRecord::default();
            record.answers = n;
            let moment = Moment { at: 1.0, seconds: 1.0, record: record.clone(), open: 1, pending: 0 };
            let busy = vec![0.1];
            let (total, moments) = (record, vec![moment]);
            RunOutcome { total, moments, seconds: 1.0, busy, client_cpu: 0.1, ports: 9, ..RunOutcome::default() }
        };
        let mut sum = RunOutcome::default();
        sum.merge(of(3));
        sum.merge(of(4));
        assert_eq!((sum.total.answers, sum.moments[0].record.answers, sum.moments[0].open), (7, 7, 2));
        assert_eq!((sum.rps(), sum.busy.len(), sum.ports), (7.0, 2, 18));
    }
}
