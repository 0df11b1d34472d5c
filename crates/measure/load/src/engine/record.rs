//! Records of one interval, and their sums.

use serde::{Deserialize, Serialize};

use super::failure::Failures;
use super::latency::Latency;
use super::transport::Cost;

#[derive(Clone, Debug, Default)]
pub struct LoadRecord {
    /// Times from the schedule to the last byte, which is the wait of a user.
    pub corrected: Latency,
    /// Times from the send to the last byte that differ from `corrected`; see [`LoadRecord::raw`].
    raw_apart: Latency,
    same: Latency,
    /// Times from the schedule until the engine takes up the request: the generator's lateness.
    pub lag: Latency,
    pub first_byte: Latency,
    /// TCP connecting, then the TLS handshake.
    pub connect: Latency,
    pub handshake: Latency,
    pub answers: u64,
    pub good: u64,
    /// Due requests, sent requests and new connections of the interval.
    pub due: u64,
    /// Due requests answered right within the run, and after its end. With the failures they add up to `due`.
    pub in_time: u64,
    pub late: u64,
    pub sent: u64,
    pub connections: u64,
    pub body_bytes: u64,
    pub other_bytes: u64,
    pub failures: Failures,
    pub statuses: Statuses,
    /// Calls of gRPC by their status code, and messages of their answers.
    pub codes: Statuses,
    pub messages: u64,
    /// HTTP/2 streams reset by the server, by code, and unprocessed requests sent again.
    pub resets: Statuses,
    pub again: u64,
    /// Redirects followed; their answers are in no other count but the received bytes.
    pub redirects: u64,
    /// Cost of `connect`: mostly the search for a port, if ports are scarce.
    pub connect_cost: Cost,
    /// Connections closed by the server while idle; not a failure.
    pub idle_closed: u64,
}

impl LoadRecord {
    /// Records a time that is equal from plan, send and first byte (closed loop, one-piece answer).
    #[inline]
    pub fn both(&mut self, nanoseconds: u64) {
        self.same.record(nanoseconds);
    }

    /// Records a time that differs from the plan and from the send.
    #[inline]
    pub fn apart(&mut self, from_plan: u64, from_send: u64) {
        self.corrected.record(from_plan);
        self.raw_apart.record(from_send);
    }

    /// Completes `corrected` and [`LoadRecord::raw`] from the hot path's shortcuts.
    pub fn settle(&mut self) {
        self.corrected.merge(&self.same);
        self.raw_apart.merge(&self.same);
        self.first_byte.merge(&self.same);
        self.same = Latency::default();
    }

    /// Drops distributions that a time series does not show, once they are in the total.
    pub fn slim(&mut self) {
        let empty = LoadRecord::default();
        self.corrected = empty.corrected;
        self.raw_apart = empty.raw_apart;
        self.lag = empty.lag;
        self.first_byte = empty.first_byte;
        self.connect = empty.connect;
        self.handshake = empty.handshake;
    }

    /// Returns the times from the send to the last byte; complete after [`LoadRecord::settle`].
    pub fn raw(&self) -> &Latency {
        &self.raw_apart
    }

    pub fn set_raw(&mut self, raw: Latency) {
        self.raw_apart = raw;
    }

    pub fn merge(&mut self, other: &LoadRecord) {
        self.corrected.merge(&other.corrected);
        self.raw_apart.merge(&other.raw_apart);
        self.same.merge(&other.same);
        self.lag.merge(&other.lag);
        self.first_byte.merge(&other.first_byte);
        self.connect.merge(&other.connect);
        self.handshake.merge(&other.handshake);
        self.answers += other.answers;
        self.good += other.good;
        self.due += other.due;
        self.in_time += other.in_time;
        self.late += other.late;
        self.sent += other.sent;
        self.connections += other.connections;
        self.body_bytes += other.body_bytes;
        self.other_bytes += other.other_bytes;
        self.failures.merge(&other.failures);
        self.statuses.merge(&other.statuses);
        self.codes.merge(&other.codes);
        self.messages += other.messages;
        self.idle_closed += other.idle_closed;
        self.resets.merge(&other.resets);
        self.again += other.again;
        self.redirects += other.redirects;
        self.connect_cost.calls += other.connect_cost.calls;
        self.connect_cost.cpu += other.connect_cost.cpu;
        self.connect_cost.sources = self.connect_cost.sources.max(other.connect_cost.sources);
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statuses(Vec<(u16, u64)>);

impl Statuses {
    #[inline]
    pub fn add(&mut self, status: u16) {
        self.add_many(status, 1);
    }
    fn add_many(&mut self, status: u16, count: u64) {
        match self.0.iter_mut().find(|(s, _)| *s == status) {
            Some((_, n)) => *n += count,
            None => self.0.push((status, count)),
        }
    }
    pub fn merge(&mut self, other: &Statuses) {
        other.0.iter().for_each(|(s, n)| self.add_many(*s, *n));
    }
    pub fn sorted(&self) -> Vec<(u16, u64)> {
        let mut all = self.0.clone();
        all.sort_by_key(|(s, n)| (std::cmp::Reverse(*n), *s));
        all
    }
}

#[derive(Clone, Debug)]
pub struct Interval {
    pub world: usize,
    /// Index from the start of the measured part; late answers count into the last one.
    pub index: usize,
    pub record: LoadRecord,
    /// Open connections at its end, and waiting requests.
    pub open: usize,
    pub pending: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortcuts_end_up_in_both_histograms() {
        let mut r = LoadRecord::default();
        r.both(1000);
        r.apart(5000, 2000);
        let mut sum = LoadRecord::default();
        sum.merge(&r);
        sum.settle();
        assert_eq!((sum.corrected.count(), sum.raw().count()), (2, 2));
        assert!((sum.corrected.mean() - 3e-6).abs() < 1e-12 && (sum.raw().mean() - 1.5e-6).abs() < 1e-12);
        sum.settle();
        assert_eq!(sum.corrected.count(), 2, "settling twice changes nothing");
    }

    #[test]
    fn statuses_are_counted() {
        let mut s = Statuses::default();
        [200, 404, 200].into_iter().for_each(|x| s.add(x));
        let mut t = s.clone();
        t.merge(&s);
        assert_eq!(t.sorted(), [(200, 4), (404, 2)]);
    }
}
