//! Classes of failure of a request.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum LoadFailure {
    ConnectRefused,
    /// Connect timeout; also caused by a full backlog.
    ConnectTimeout,
    Connect,
    /// EADDRNOTAVAIL: a limit of the client.
    PortsExhausted,
    /// EMFILE, ENFILE: a limit of the client.
    DescriptorsExhausted,
    Tls,
    /// The proxy did not connect to the server.
    Proxy,
    /// The server did not upgrade the connection.
    Upgrade,
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
    /// The call ended with a status other than OK (gRPC).
    GrpcStatus,
    Body,
    /// More redirects than `--follow` allows, or one to another server.
    Redirect,
    /// Without a value that later requests of the session need.
    Extract,
    /// A template gave no message that can be encoded (gRPC).
    Message,
    Unfinished,
    /// Due but never sent: no connection became free.
    Unsent,
}

impl LoadFailure {
    /// In the order of reports.
    pub const ALL: [LoadFailure; 23] = [
        LoadFailure::ConnectRefused,
        LoadFailure::ConnectTimeout,
        LoadFailure::Connect,
        LoadFailure::PortsExhausted,
        LoadFailure::DescriptorsExhausted,
        LoadFailure::Tls,
        LoadFailure::Proxy,
        LoadFailure::Upgrade,
        LoadFailure::Reset,
        LoadFailure::ClosedEarly,
        LoadFailure::Truncated,
        LoadFailure::StreamReset,
        LoadFailure::Refused,
        LoadFailure::Timeout,
        LoadFailure::Protocol,
        LoadFailure::Status,
        LoadFailure::GrpcStatus,
        LoadFailure::Body,
        LoadFailure::Redirect,
        LoadFailure::Extract,
        LoadFailure::Message,
        LoadFailure::Unfinished,
        LoadFailure::Unsent,
    ];

    pub fn word(self) -> &'static str {
        match self {
            LoadFailure::ConnectRefused => "connection refused",
            LoadFailure::ConnectTimeout => "connect timeout",
            LoadFailure::Connect => "connect failed",
            LoadFailure::PortsExhausted => "no local port left",
            LoadFailure::DescriptorsExhausted => "no descriptor left",
            LoadFailure::Tls => "TLS",
            LoadFailure::Proxy => "proxy",
            LoadFailure::Upgrade => "upgrade",
            LoadFailure::Reset => "reset",
            LoadFailure::ClosedEarly => "closed before the response",
            LoadFailure::Truncated => "closed within the response",
            LoadFailure::StreamReset => "stream reset",
            LoadFailure::Refused => "stream refused",
            LoadFailure::Timeout => "timeout",
            LoadFailure::Protocol => "malformed response",
            LoadFailure::Status => "unexpected status",
            LoadFailure::GrpcStatus => "gRPC status",
            LoadFailure::Body => "unexpected body",
            LoadFailure::Redirect => "redirect not followed",
            LoadFailure::Extract => "nothing to extract",
            LoadFailure::Message => "message not encodable",
            LoadFailure::Unfinished => "unfinished at the end",
            LoadFailure::Unsent => "due but never sent",
        }
    }

    pub fn is_client_limit(self) -> bool {
        matches!(self, LoadFailure::PortsExhausted | LoadFailure::DescriptorsExhausted)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failures([u64; LoadFailure::ALL.len()]);

impl Failures {
    #[inline]
    pub fn add(&mut self, class: LoadFailure) {
        self.0[class as usize] += 1;
    }
    pub fn add_many(&mut self, class: LoadFailure, count: u64) {
        self.0[class as usize] += count;
    }
    pub fn of(&self, class: LoadFailure) -> u64 {
        self.0[class as usize]
    }
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
    pub fn merge(&mut self, other: &Failures) {
        self.0.iter_mut().zip(other.0).for_each(|(a, b)| *a += b);
    }
    pub fn seen(&self) -> impl Iterator<Item = (LoadFailure, u64)> + '_ {
        LoadFailure::ALL.into_iter().map(|c| (c, self.of(c))).filter(|(_, n)| *n > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_its_own_count() {
        let mut f = Failures::default();
        for (i, class) in LoadFailure::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, i, "the order of ALL is the order of the enum");
            f.add_many(class, i as u64 + 1);
        }
        assert_eq!(f.total(), (1..=23).sum::<u64>());
        assert_eq!(f.of(LoadFailure::Unsent), 23);
        let mut g = f;
        g.merge(&f);
        assert_eq!(g.of(LoadFailure::Tls), 12);
        assert_eq!(f.seen().count(), 23);
    }
}
