//! Classes of failure of a request.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Failure {
    ConnectRefused,
    /// Connect timeout; also caused by a full backlog.
    ConnectTimeout,
    Connect,
    /// EADDRNOTAVAIL: a limit of the client.
    PortsExhausted,
    /// EMFILE, ENFILE: a limit of the client.
    DescriptorsExhausted,
    Tls,
    Reset,
    ClosedEarly,
    /// Closed within the response.
    Truncated,
    /// HTTP/2 RST_STREAM, with any code.
    StreamReset,
    /// Unprocessed (HTTP/2: REFUSED_STREAM, or beyond a GOAWAY's last stream) at every retry.
    Refused,
    Timeout,
    Protocol,
    Status,
    Body,
    /// Without a value that later requests of the session need.
    Extract,
    Unfinished,
    /// Due but never sent: no connection became free.
    Unsent,
}

impl Failure {
    /// In the order of reports.
    pub const ALL: [Failure; 18] = [
        Failure::ConnectRefused,
        Failure::ConnectTimeout,
        Failure::Connect,
        Failure::PortsExhausted,
        Failure::DescriptorsExhausted,
        Failure::Tls,
        Failure::Reset,
        Failure::ClosedEarly,
        Failure::Truncated,
        Failure::StreamReset,
        Failure::Refused,
        Failure::Timeout,
        Failure::Protocol,
        Failure::Status,
        Failure::Body,
        Failure::Extract,
        Failure::Unfinished,
        Failure::Unsent,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Failure::ConnectRefused => "connection refused",
            Failure::ConnectTimeout => "connect timeout",
            Failure::Connect => "connect failed",
            Failure::PortsExhausted => "no local port left",
            Failure::DescriptorsExhausted => "no descriptor left",
            Failure::Tls => "TLS",
            Failure::Reset => "reset",
            Failure::ClosedEarly => "closed before the response",
            Failure::Truncated => "closed within the response",
            Failure::StreamReset => "stream reset",
            Failure::Refused => "stream refused",
            Failure::Timeout => "timeout",
            Failure::Protocol => "malformed response",
            Failure::Status => "unexpected status",
            Failure::Body => "unexpected body",
            Failure::Extract => "nothing to extract",
            Failure::Unfinished => "unfinished at the end",
            Failure::Unsent => "due but never sent",
        }
    }

    pub fn is_client_limit(self) -> bool {
        matches!(self, Failure::PortsExhausted | Failure::DescriptorsExhausted)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures([u64; Failure::ALL.len()]);

impl Failures {
    #[inline]
    pub fn add(&mut self, class: Failure) {
        self.0[class as usize] += 1;
    }
    pub fn add_many(&mut self, class: Failure, count: u64) {
        self.0[class as usize] += count;
    }
    pub fn of(&self, class: Failure) -> u64 {
        self.0[class as usize]
    }
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
    pub fn merge(&mut self, other: &Failures) {
        self.0.iter_mut().zip(other.0).for_each(|(a, b)| *a += b);
    }
    pub fn seen(&self) -> impl Iterator<Item = (Failure, u64)> + '_ {
        Failure::ALL.into_iter().map(|c| (c, self.of(c))).filter(|(_, n)| *n > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_its_own_count() {
        let mut f = Failures::default();
        for (i, class) in Failure::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, i, "the order of ALL is the order of the enum");
            f.add_many(class, i as u64 + 1);
        }
        assert_eq!(f.total(), (1..=18).sum::<u64>());
        assert_eq!(f.of(Failure::Unsent), 18);
        let mut g = f;
        g.merge(&f);
        assert_eq!(g.of(Failure::Tls), 12);
        assert_eq!(f.seen().count(), 18);
    }
}
