//! Answers queries: a datagram is a session, a connection has one query after another.

use super::pools::{Pool, random_number};
use super::variables::{QueryFacts, ResponseFacts};
use crate::client::SessionClient;
use crate::plan::{Content, ContentFuture, ContentResult};
use crate::session::StreamSession;
use area::first_bytes::write_out;
use dns_zone::{
    AddressFamily, Query, RateVerdict, ResponseCode, ResponseRate, Selection, Selector, ServerZones, Transport,
    UnreadQuery, answer_query, refuse_message, truncate_answer,
};
use metrics::process;
use observe::Severity;
use runtime::time::with_timeout;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use transport::Stream;
use upstream::Group;
use variables::Session;

/// Bytes of a query: a longer one over TCP ends its connection.
const QUERY_BYTES_MAX: usize = 4096;
/// Bytes of responses that wait for the client before further queries are read.
const RESPONSES_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a server's answer that a health check examines.
const CHECK_BYTES_MAX: usize = 16 * 1024;
/// Bytes in front of a message over TCP (RFC 1035, section 4.2.2).
const PREFIX_BYTES: usize = 2;

const BAD_QUERY: u16 = 400;
const LIMITED: u16 = 503;

/// Positions in the metrics' label `reason`.
const MALFORMED: usize = 0;
const BY_RATE: usize = 1;
const BY_SIZE: usize = 0;
const BY_RATE_TRUNCATED: usize = 1;

/// Zones of a server, with their pools by number.
pub struct NameServer {
    zones: ServerZones,
    pools: HashMap<usize, Pool>,
    rate: Option<ResponseRate>,
    idle: Duration,
    groups: Vec<Arc<Group>>,
}

impl NameServer {
    pub fn new(
        zones: ServerZones,
        pools: HashMap<usize, Pool>,
        rate: Option<ResponseRate>,
        idle: Duration,
    ) -> NameServer {
        let mut groups: Vec<Arc<Group>> = Vec::new();
        for group in pools.values().flat_map(Pool::groups) {
            if !groups.iter().any(|known| Arc::ptr_eq(known, group)) {
                groups.push(group.clone());
            }
        }
        NameServer { zones, pools, rate, idle, groups }
    }

    /// Appends the response to a message, if it gets one; returns the session's status.
    fn respond(&self, s: &mut StreamSession, message: &[u8], transport: Transport, out: &mut Vec<u8>) -> u16 {
        let is_udp = transport == Transport::Udp;
        s.forget::<QueryFacts>();
        s.forget::<ResponseFacts>();
        process::DNS_QUERIES.up_at(usize::from(!is_udp));
        let query = match Query::read(message) {
            Err(UnreadQuery::Dropped) => {
                process::DNS_DROPPED.up_at(MALFORMED);
                return BAD_QUERY;
            }
            Err(UnreadQuery::Refused(code)) => Err(code),
            Ok(query) => Ok(query),
        };
        let peer = s.peer.map(|peer| peer.ip());
        if let Ok(query) = &query {
            s.keep(QueryFacts::new(query, peer));
        }
        let verdict = match (&self.rate, peer) {
            (Some(rate), Some(peer)) if is_udp => rate.take(peer, base::clock::now().0),
            _ => RateVerdict::Send,
        };
        match (verdict, query) {
            (RateVerdict::Send, Ok(query)) => self.answer(s, &query, transport, out),
            (RateVerdict::Send, Err(code)) => {
                refuse_message(message, code, out);
                finish(s, ResponseFacts { code, zone: None, group: None }, false)
            }
            (RateVerdict::Truncate, Ok(query)) => {
                process::DNS_TRUNCATED.up_at(BY_RATE_TRUNCATED);
                truncate_answer(&query, out);
                LIMITED
            }
            (RateVerdict::Drop | RateVerdict::Truncate, _) => {
                process::DNS_DROPPED.up_at(BY_RATE);
                LIMITED
            }
        }
    }

    fn answer(&self, s: &mut StreamSession, query: &Query<'_>, transport: Transport, out: &mut Vec<u8>) -> u16 {
        let mut selector = PoolSelector { pools: &self.pools, session: s, group: None };
        let summary = answer_query(query, &self.zones, transport, &mut selector, out);
        let group = selector.group;
        if summary.truncated {
            process::DNS_TRUNCATED.up_at(BY_SIZE);
        }
        let zone = summary.zone.map(ToString::to_string);
        finish(s, ResponseFacts { code: summary.code, zone, group }, summary.no_data)
    }

    async fn serve_stream(&self, s: &mut StreamSession, stream: &Stream) -> u16 {
        let mut queries = std::mem::take(&mut s.preread);
        let mut responses = Vec::new();
        s.received = s.received.max(queries.len() as u64);
        // Of the last query; a connection without any is no failure.
        let mut status = 200;
        let mut is_first = true;
        loop {
            let mut taken = 0;
            while let Some(message) = next_message(queries.get(taken..).unwrap_or_default()) {
                let Ok(message) = message else {
                    s.log(Severity::Info, format_args!("client sent a DNS message of an invalid length"));
                    return BAD_QUERY;
                };
                if !std::mem::take(&mut is_first) {
                    s.log_and_renew(status);
                }
                let start = responses.len();
                responses.extend_from_slice(&[0; PREFIX_BYTES]);
                status = self.respond(s, message, Transport::Tcp, &mut responses);
                taken += PREFIX_BYTES + message.len();
                let length = (responses.len() - start - PREFIX_BYTES) as u16;
                if length == 0 {
                    // A message that gets no response: the client is none of DNS.
                    return status;
                }
                for (to, from) in responses.iter_mut().skip(start).zip(length.to_be_bytes()) {
                    *to = from;
                }
                if responses.len() >= RESPONSES_BYTES_MAX && !self.send(s, stream, &mut responses).await {
                    return status;
                }
            }
            queries.drain(..taken);
            if !self.send(s, stream, &mut responses).await {
                return status;
            }
            queries.reserve(QUERY_BYTES_MAX + PREFIX_BYTES - queries.len().min(QUERY_BYTES_MAX));
            match with_timeout(self.idle, stream.read_buf(&mut queries)).await {
                Ok(Ok(0)) | Err(_) => return status,
                Ok(Ok(n)) => s.received += n as u64,
                Ok(Err(e)) => {
                    s.log(Severity::Info, format_args!("recv() failed {}", observe::os_error(&e)));
                    return status;
                }
            }
        }
    }

    /// Sends what has been written; returns `false` if the client does not take it.
    async fn send(&self, s: &mut StreamSession, stream: &Stream, responses: &mut Vec<u8>) -> bool {
        if responses.is_empty() {
            return true;
        }
        let sent = with_timeout(self.idle, write_out(stream, responses)).await;
        s.sent += responses.len() as u64;
        responses.clear();
        match sent {
            Ok(Ok(())) => true,
            Ok(Err(e)) => {
                s.log(Severity::Info, format_args!("send() failed {}", observe::os_error(&e)));
                false
            }
            Err(_) => {
                s.log(Severity::Info, format_args!("client timed out (110: Connection timed out)"));
                false
            }
        }
    }
}

/// Returns the first message of a stream: `None` until it is complete, an error if its length is invalid.
fn next_message(bytes: &[u8]) -> Option<Result<&[u8], ()>> {
    let (prefix, rest) = bytes.split_first_chunk::<PREFIX_BYTES>()?;
    let length = usize::from(u16::from_be_bytes(*prefix));
    if length == 0 || length > QUERY_BYTES_MAX {
        return Some(Err(()));
    }
    rest.get(..length).map(Ok)
}

/// Keeps the facts of a response, counts it, and returns the session's status.
fn finish(s: &mut StreamSession, facts: ResponseFacts, no_data: bool) -> u16 {
    let (index, status) = match facts.code {
        ResponseCode::NoError => (usize::from(no_data), 200),
        ResponseCode::NxDomain => (2, 200),
        ResponseCode::FormErr => (3, BAD_QUERY),
        ResponseCode::ServFail => (4, 502),
        ResponseCode::NotImp => (5, BAD_QUERY),
        ResponseCode::Refused => (6, 403),
        ResponseCode::BadVers => (7, BAD_QUERY),
    };
    process::DNS_RESPONSES.up_at(index);
    s.keep(facts);
    status
}

struct PoolSelector<'a> {
    pools: &'a HashMap<usize, Pool>,
    session: &'a mut StreamSession,
    group: Option<Arc<Group>>,
}

impl Selector for PoolSelector<'_> {
    fn select(&mut self, pool: usize, family: AddressFamily, out: &mut Vec<IpAddr>) -> Selection {
        let Some(pool) = self.pools.get(&pool) else {
            base::bug!("no pool {pool}");
            return Selection { by_place: false, failed: true };
        };
        let (selection, group) = pool.select(self.session, family, out);
        self.group = group;
        selection
    }
    fn random(&mut self) -> u64 {
        random_number()
    }
}

impl Content for NameServer {
    fn run<'a>(&'a self, s: &'a mut StreamSession, client: &'a mut SessionClient) -> ContentFuture<'a> {
        Box::pin(async move {
            s.doing = "answering DNS queries";
            ContentResult::Status(match client {
                SessionClient::Stream(stream) => self.serve_stream(s, stream).await,
                SessionClient::Datagrams(flow) => {
                    let message = std::mem::take(&mut s.preread);
                    let mut response = Vec::new();
                    let status = self.respond(s, &message, Transport::Udp, &mut response);
                    // The client asks again for a response that is lost.
                    if !response.is_empty() && flow.send(&response).is_ok() {
                        s.sent += response.len() as u64;
                    }
                    status
                }
            })
        })
    }
    fn groups(&self) -> Vec<Arc<Group>> {
        self.groups.clone()
    }
    fn check_bytes_max(&self) -> usize {
        CHECK_BYTES_MAX
    }
}
