//! What a world writes down during one interval, and how intervals add up.

use serde::{Deserialize, Serialize};

use super::failure::Failures;
use super::latency::Latency;
use super::transport::Cost;

/// Figures of one interval of one world, or of many merged.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// From the plan to the last byte: what users wait.
    pub corrected: Latency,
    /// From the send to the last byte, only where it differs from `corrected`; see [`Record::raw`].
    raw_apart: Latency,
    /// Times that are the same from the plan, from the send, and to the first byte.
    same: Latency,
    /// From the plan to the moment at which the engine took the request up: the generator's own lateness.
    pub lag: Latency,
    /// From the plan to the first byte of the answer.
    pub first_byte: Latency,
    /// From the start of a connection until it stood (TCP), and the TLS handshake after that.
    pub connect: Latency,
    pub handshake: Latency,
    /// Answers that came within the interval, right or wrong, and those that were right.
    pub answers: u64,
    pub good: u64,
    /// Requests that were due, that were sent, connections that were made, within the interval.
    pub due: u64,
    /// Of the due requests: those whose right answer came within the run, and those that were owed one and got it after its end.
    /// With the failures they add up to `due`.
    pub in_time: u64,
    pub late: u64,
    pub sent: u64,
    pub connections: u64,
    /// Bytes of bodies and of everything else received.
    pub body_bytes: u64,
    pub other_bytes: u64,
    pub failures: Failures,
    /// Answers by status.
    pub statuses: Statuses,
    /// Streams that servers reset, by the code of their RST_STREAM, and requests that were sent again because the server had done
    /// nothing about them (HTTP/2).
    pub resets: Statuses,
    pub again: u64,
    /// What `connect` took: most of it, when ports are short, is the search for one.
    pub connect_cost: Cost,
    /// Connections that the server closed while nothing was in flight; not a failure.
    pub idle_closed: u64,
}

impl Record {
    /// A time that is the same from the plan and from the send (closed loop on a standing connection), of an answer that came in
    /// one piece.
    #[inline]
    pub fn both(&mut self, nanoseconds: u64) {
        self.same.record(nanoseconds);
    }

    /// A time that differs: from the plan, from the send.
    #[inline]
    pub fn apart(&mut self, from_plan: u64, from_send: u64) {
        self.corrected.record(from_plan);
        self.raw_apart.record(from_send);
    }

    /// Brings the shortcuts of the hot path together; afterwards `corrected` and [`Record::raw`] are complete.
    pub fn settle(&mut self) {
        self.corrected.merge(&self.same);
        self.raw_apart.merge(&self.same);
        self.first_byte.merge(&self.same);
        self.same = Latency::default();
    }

    /// Gives up the distributions that a time series does not show, once they are part of the total.
    pub fn slim(&mut self) {
        let empty = Record::default();
        self.corrected = empty.corrected;
        self.raw_apart = empty.raw_apart;
        self.lag = empty.lag;
        self.first_byte = empty.first_byte;
        self.connect = empty.connect;
        self.handshake = empty.handshake;
    }

    /// From the send to the last byte. Call [`Record::settle`] first.
    pub fn raw(&self) -> &Latency {
        &self.raw_apart
    }

    /// Replaces the raw histogram (when a record is read back from a worker).
    pub fn set_raw(&mut self, raw: Latency) {
        self.raw_apart = raw;
    }

    /// Adds everything of another record.
    pub fn merge(&mut self, other: &Record) {
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
        self.idle_closed += other.idle_closed;
        self.resets.merge(&other.resets);
        self.again += other.again;
        self.connect_cost.calls += other.connect_cost.calls;
        self.connect_cost.cpu += other.connect_cost.cpu;
        self.connect_cost.sources = self.connect_cost.sources.max(other.connect_cost.sources);
    }
}

/// Counts by status; there are few different ones, so a list beats a map.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statuses(Vec<(u16, u64)>);

impl Statuses {
    /// Counts one.
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
    /// Adds the counts of another.
    pub fn merge(&mut self, other: &Statuses) {
        other.0.iter().for_each(|(s, n)| self.add_many(*s, *n));
    }
    /// All, most frequent first.
    pub fn sorted(&self) -> Vec<(u16, u64)> {
        let mut all = self.0.clone();
        all.sort_by_key(|(s, n)| (std::cmp::Reverse(*n), *s));
        all
    }
}

/// A record with its place in time and its world.
#[derive(Clone, Debug)]
pub struct Interval {
    pub world: usize,
    /// Number of the interval from the start of the measured part; late answers count into the last one.
    pub index: usize,
    pub record: Record,
    /// Connections that stand at its end, and requests that wait for one.
    pub open: usize,
    pub pending: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortcuts_end_up_in_both_histograms() {
        let mut r = Record::default();
        r.both(1000);
        r.apart(5000, 2000);
        let mut sum = Record::default();
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
