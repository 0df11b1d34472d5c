//! Everything that can go wrong with a request, by class: a figure without its errors by class is no figure.

use serde::{Deserialize, Serialize};

/// Why a request has no good answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Failure {
    /// The server's machine said no (ECONNREFUSED).
    ConnectRefused,
    /// No connection within the connect timeout (a full backlog looks like this).
    ConnectTimeout,
    /// Any other failure to connect.
    Connect,
    /// No local port left (EADDRNOTAVAIL): a limit of the client, not of the server.
    PortsExhausted,
    /// No descriptor left (EMFILE, ENFILE): a limit of the client.
    DescriptorsExhausted,
    /// The TLS handshake failed, or the peer broke the TLS protocol.
    Tls,
    /// The connection was reset (ECONNRESET, EPIPE).
    Reset,
    /// The server closed the connection before the answer began.
    ClosedEarly,
    /// The server closed the connection within an answer.
    Truncated,
    /// The server reset the stream of the request (HTTP/2, RST_STREAM), whatever the code.
    StreamReset,
    /// The server did nothing about the request (HTTP/2: REFUSED_STREAM, or behind the last stream of a GOAWAY), every time that it
    /// was sent again.
    Refused,
    /// No complete answer within the request timeout.
    Timeout,
    /// The answer breaks the protocol.
    Protocol,
    /// Complete, but another status than expected.
    Status,
    /// Complete and with the right status, but another body than expected.
    Body,
    /// Right, but without a value that later requests of the session need.
    Extract,
    /// Still without answer when the run ended.
    Unfinished,
    /// Due by the plan, but never sent: no connection became free.
    Unsent,
}

impl Failure {
    /// All classes, in the order of reports.
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

    /// The class in words.
    pub fn word(self) -> &'static str {
        match self {
            Failure::ConnectRefused => "connection refused",
            Failure::ConnectTimeout => "connect timeout",
            Failure::Connect => "connect failed",
            Failure::PortsExhausted => "no local port left",
            Failure::DescriptorsExhausted => "no descriptor left",
            Failure::Tls => "TLS",
            Failure::Reset => "reset",
            Failure::ClosedEarly => "closed before the answer",
            Failure::Truncated => "closed within the answer",
            Failure::StreamReset => "stream reset",
            Failure::Refused => "stream refused",
            Failure::Timeout => "timeout",
            Failure::Protocol => "broken answer",
            Failure::Status => "unexpected status",
            Failure::Body => "unexpected body",
            Failure::Extract => "nothing to extract",
            Failure::Unfinished => "unfinished at the end",
            Failure::Unsent => "due but never sent",
        }
    }

    /// Whether the class is a limit of the client's machine.
    pub fn is_client_limit(self) -> bool {
        matches!(self, Failure::PortsExhausted | Failure::DescriptorsExhausted)
    }
}

/// Counts by class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures([u64; Failure::ALL.len()]);

impl Failures {
    /// Counts one.
    #[inline]
    pub fn add(&mut self, class: Failure) {
        self.0[class as usize] += 1;
    }
    /// Counts many.
    pub fn add_many(&mut self, class: Failure, count: u64) {
        self.0[class as usize] += count;
    }
    /// How many of this class.
    pub fn of(&self, class: Failure) -> u64 {
        self.0[class as usize]
    }
    /// How many in all.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
    /// Adds the counts of another.
    pub fn merge(&mut self, other: &Failures) {
        self.0.iter_mut().zip(other.0).for_each(|(a, b)| *a += b);
    }
    /// The classes that occurred.
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
