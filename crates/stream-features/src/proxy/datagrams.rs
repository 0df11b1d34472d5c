//! Copies datagrams in both directions (nginx: the functions of `ngx_stream_proxy_process` for `SOCK_DGRAM`).

use super::connect::{ConnectFailure, ServerTries, blame_peer, end_try, not_connected, proxy_header};
use super::{PassSettings, ProxyProtocol};
use crate::client::DatagramClient;
use crate::session::StreamSession;
use crate::udp::{self, DATAGRAM_MAX, Flow};
use base::clock::{self, Instant};
use net::Address;
use net::outbound::Outbound;
use observe::{Severity, os_error};
use runtime::budget;
use runtime::time::{Sleep, sleep_until};
use socket2::SockRef;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use transport::ConnectOptions;
use upstream::PeerLease;
use variables::Session;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

enum Over {
    /// All expected responses arrived.
    Done,
    Silence,
    Broken(io::Error),
}

struct Exchange<'a> {
    client: &'a dyn DatagramClient,
    server: &'a Outbound,
    requests: u64,
    responses: u64,
    requests_max: u64,
    responses_wanted: Option<u64>,
    received: u64,
    sent: u64,
    from_server: u64,
    to_server: u64,
    upload_rate: u64,
    download_rate: u64,
    upload_delay: Option<Box<Sleep>>,
    download_delay: Option<Box<Sleep>>,
    began: Instant,
    timeout_ms: u64,
    moved: Instant,
    idle: Sleep,
    /// A datagram waiting for room in the server's socket.
    waiting: Option<Vec<u8>>,
    /// A response arrived and was not reported yet.
    answered: bool,
    /// ICMP error: the server's port is closed.
    failed: Option<io::Error>,
    detached: bool,
}

struct Terms {
    /// `proxy_requests`; 0: no limit.
    requests_max: u64,
    responses_wanted: Option<u64>,
    /// Bytes per second; 0: no limit.
    upload_rate: u64,
    download_rate: u64,
    timeout_ms: u64,
}

impl<'a> Exchange<'a> {
    /// Creates a session whose first datagram, after its prefix, waits for the server.
    fn new(
        client: &'a dyn DatagramClient,
        server: &'a Outbound,
        terms: &Terms,
        first: Vec<u8>,
        received: u64,
    ) -> Exchange<'a> {
        let now = clock::now();
        Exchange {
            client,
            server,
            requests: 1,
            responses: 0,
            requests_max: terms.requests_max,
            responses_wanted: terms.responses_wanted,
            received,
            sent: 0,
            from_server: 0,
            to_server: 0,
            upload_rate: terms.upload_rate,
            download_rate: terms.download_rate,
            upload_delay: None,
            download_delay: None,
            began: now,
            timeout_ms: terms.timeout_ms,
            moved: now,
            idle: sleep_until(now.plus_millis(terms.timeout_ms)),
            waiting: Some(first),
            answered: false,
            failed: None,
            detached: false,
        }
    }
}

fn connect(servers: &mut ServerTries<'_>, s: &mut StreamSession) -> Result<(Outbound, PeerLease), u16> {
    loop {
        let active = servers.next(s)?;
        match udp::open_outbound(&active.peer().spec.address, servers.options()) {
            Ok(socket) => return Ok((socket, active)),
            Err(e) => match not_connected(s, &active, &e) {
                ConnectFailure::Final(status) => return Err(status),
                ConnectFailure::Next => servers.failed(s, active)?,
            },
        }
    }
}

/// Returns the session's status.
pub async fn copy_datagrams(passing: &PassSettings, s: &mut StreamSession, client: &dyn DatagramClient) -> u16 {
    let Some(named) = Box::pin(passing.group(s)).await else { return 500 };
    let mut servers = ServerTries::new(passing, &named, s);
    let (server, mut active) = match connect(&mut servers, s) {
        Ok(connected) => connected,
        Err(status) => {
            end_try(s);
            return status;
        }
    };
    let conf = &passing.conf;
    let (upload_rate, download_rate) = (conf.proxy_upload_rate.get(s), conf.proxy_download_rate.get(s));
    s.doing = "proxying connection";
    // Only a response proves that a server listens.
    servers.connected(s, &mut active, false);
    if s.srv().error_log.wants(Severity::Info)
        && let Some(local) = SockRef::from(&server).local_addr().ok().and_then(|local| local.as_socket())
    {
        s.note(Severity::Info, format_args!("udp proxy {local} connected to {}", active.peer().text));
    }
    let mut first = Vec::new();
    if conf.proxy_protocol != ProxyProtocol::Off {
        match proxy_header(conf.proxy_protocol, s, true) {
            Some(header) => first = header,
            None => return 500,
        }
    }
    first.append(&mut s.preread);
    let terms = Terms {
        requests_max: conf.proxy_requests.0,
        responses_wanted: conf.proxy_responses.map(|n| n.0),
        upload_rate,
        download_rate,
        timeout_ms: conf.proxy_timeout.0,
    };
    let mut exchange = Exchange::new(client, &server, &terms, first, s.received);
    let mut blamed = false;
    let over = poll_fn(|cx| {
        let over = exchange.poll(cx);
        exchange.account(s);
        if let Some(e) = exchange.failed.take() {
            let doing = std::mem::replace(&mut s.doing, "proxying and reading from upstream");
            s.log(Severity::Error, format_args!("recv() failed {}", os_error(&e)));
            s.doing = doing;
            // Records one failure per session.
            if !std::mem::replace(&mut blamed, true) {
                blame_peer(s, &mut active);
            }
        }
        if std::mem::take(&mut exchange.answered) {
            servers.answered(s, &mut active);
        }
        over
    })
    .await;
    let Exchange { requests, responses, responses_wanted, .. } = exchange;
    if let Some(one) = s.tries.last() {
        active.transferred(one.bytes_sent, one.bytes_received);
    }
    end_try(s);
    let figures = |s: &StreamSession| {
        let (from, to) = s.tries.last().map_or((0, 0), |one| (one.bytes_received, one.bytes_sent));
        format!(
            "packets from/to client:{requests}/{responses}, bytes from/to client:{}/{}, bytes from/to upstream:{from}/{to}",
            s.received, s.sent
        )
    };
    match over {
        Over::Done => {
            s.note(Severity::Info, format_args!("udp done, {}", figures(s)));
            200
        }
        Over::Silence if responses_wanted.is_none_or(|wanted| responses >= wanted.saturating_mul(requests)) => {
            s.note(Severity::Info, format_args!("udp timed out, {}", figures(s)));
            200
        }
        Over::Silence => {
            s.log(Severity::Error, format_args!("upstream timed out (110: Connection timed out)"));
            if !blamed {
                blame_peer(s, &mut active);
            }
            502
        }
        Over::Broken(e) => {
            s.log(Severity::Info, format_args!("sendmsg() failed {}", os_error(&e)));
            200
        }
    }
}

/// Returns the milliseconds that the next datagram has to wait for the rate.
fn wait_of(rate: u64, began: Instant, moved: u64) -> Option<u64> {
    if rate == 0 {
        return None;
    }
    let allowed = rate.saturating_mul(clock::now().millis_since(began) / 1000 + 1);
    (moved >= allowed).then(|| (moved - allowed).saturating_mul(1000) / rate + 1)
}

fn hold(ms: u64) -> Option<Box<Sleep>> {
    Some(Box::new(sleep_until(clock::now().plus_millis(ms))))
}

fn rest(length: usize, rate: u64) -> Option<Box<Sleep>> {
    match (length as u64).saturating_mul(1000).checked_div(rate) {
        Some(ms @ 1..) => hold(ms),
        _ => None,
    }
}

/// Simulates client and server as `data` says (send, respond, leave, return, wait); panics if the thread blocks or
/// counters differ.
pub(crate) fn course(data: &[u8]) {
    let Some((terms, steps)) = data.split_first_chunk::<3>() else { return };
    let bind = || {
        let socket = std::net::UdpSocket::bind((std::net::Ipv4Addr::LOCALHOST, 0)).ok()?;
        socket.set_nonblocking(true).ok()?;
        Some(socket)
    };
    let (Some(listener), Some(client), Some(server)) = (bind(), bind(), bind()) else { return };
    let (Ok(at), Ok(peer)) = (server.local_addr(), client.local_addr()) else { return };
    clock::freeze();
    runtime::block_on(async {
        let Some(flow) = Flow::alone(listener.into(), peer) else { return };
        let Ok(outbound) = udp::open_outbound(&Address::Ip(at), &ConnectOptions::default()) else { return };
        let [requests, responses, rate] = terms.map(u64::from);
        let terms = Terms {
            requests_max: requests % 8,
            responses_wanted: (responses % 2 == 1).then_some(responses % 8),
            upload_rate: rate % 16,
            download_rate: rate / 16,
            timeout_ms: 5000,
        };
        let mut exchange = Exchange::new(&flow, &outbound, &terms, b"first".to_vec(), 5);
        let (mut server, mut from, mut said, mut answered) = (Some(server), None, 5, 0);
        let (mut buf, is_faulty) = ([0; 64], Cell::new(false));
        for step in steps.iter().take(256) {
            let length = usize::from(step / 8);
            match step % 8 {
                0 | 1 => {
                    said += length as u64;
                    flow.offer(&vec![b'q'; length]);
                }
                2 => {
                    if let Some(Ok((_, sender))) = server.as_ref().map(|server| server.recv_from(&mut buf)) {
                        from = Some(sender);
                    }
                    if let (Some(server), Some(from)) = (&server, from) {
                        answered += server.send_to(&vec![b'a'; length], from).unwrap_or(0) as u64;
                    }
                }
                3 => server = None,
                4 => {
                    server = server.or_else(|| std::net::UdpSocket::bind(at).ok());
                    if let Some(server) = &server {
                        let _ = server.set_nonblocking(true);
                    }
                }
                6 => clock::set_frozen(clock::now().plus_millis(length as u64 * 50)),
                _ => {}
            }
            runtime::task::yield_now().await;
            #[cfg(debug_assertions)]
            let _injected = (step % 8 == 5).then(|| {
                use net::faults::{SocketFault, inject_fault};
                is_faulty.set(true);
                inject_fault(match length % 3 {
                    0 => SocketFault::Again,
                    1 => SocketFault::Error(libc::ECONNREFUSED),
                    _ => SocketFault::Endless(b'x'),
                })
            });
            let over = poll_fn(|cx| Poll::Ready(exchange.poll(cx).is_ready())).await;
            // A simulated faulty peer transfers uncounted datagrams.
            if !is_faulty.get() {
                assert!(exchange.received <= said && exchange.from_server <= answered && exchange.sent <= answered);
                assert!(exchange.to_server <= said);
            }
            if over {
                break;
            }
        }
    });
    clock::thaw();
}

impl Exchange<'_> {
    fn account(&self, s: &mut StreamSession) {
        s.received = self.received;
        s.sent = self.sent;
        if let Some(one) = s.tries.last_mut() {
            one.bytes_received = self.from_server;
            one.bytes_sent = self.to_server;
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Over> {
        if let Poll::Ready(over) = self.poll_up(cx) {
            return Poll::Ready(over);
        }
        if let Poll::Ready(over) = self.poll_down(cx) {
            return Poll::Ready(over);
        }
        let held = self.upload_delay.is_some() || self.download_delay.is_some();
        loop {
            if held {
                self.moved = clock::now();
            }
            let due = self.moved.plus_millis(self.timeout_ms);
            if due != self.idle.deadline() {
                self.idle.reset(due);
            }
            ready!(Pin::new(&mut self.idle).poll(cx));
            if !held {
                return Poll::Ready(Over::Silence);
            }
        }
    }

    /// Tells whether the session is complete (nginx: `ngx_stream_proxy_test_finalize`).
    fn is_done(&mut self) -> bool {
        if self.requests_max > 0 {
            if self.requests < self.requests_max {
                return false;
            }
            if !std::mem::replace(&mut self.detached, true) {
                self.client.detach();
            }
        }
        self.waiting.is_none()
            && self.responses_wanted.is_some_and(|wanted| self.responses >= wanted.saturating_mul(self.requests))
    }

    fn poll_up(&mut self, cx: &mut Context<'_>) -> Poll<Over> {
        loop {
            if let Some(datagram) = &self.waiting {
                match self.server.try_send(datagram) {
                    Ok(n) => {
                        self.to_server += n as u64;
                        self.moved = clock::now();
                        self.waiting.take().into_iter().for_each(udp::recycle_buffer);
                    }
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                        ready!(self.server.poll_writable(cx));
                        continue;
                    }
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                    // The datagram is lost; an earlier one may have reached a closed port.
                    Err(e) => {
                        self.failed = Some(e);
                        self.waiting = None;
                    }
                }
                if self.is_done() {
                    return Poll::Ready(Over::Done);
                }
            }
            ready!(budget::poll_proceed(cx));
            if let Some(delay) = &mut self.upload_delay {
                ready!(Pin::new(&mut **delay).poll(cx));
                self.upload_delay = None;
            }
            if let Some(ms) = wait_of(self.upload_rate, self.began, self.received) {
                self.upload_delay = hold(ms);
                continue;
            }
            let datagram = ready!(self.client.poll_next(cx));
            budget::spend(datagram.len());
            self.requests += 1;
            self.received += datagram.len() as u64;
            self.upload_delay = rest(datagram.len(), self.upload_rate);
            self.waiting = Some(datagram);
        }
    }

    fn poll_down(&mut self, cx: &mut Context<'_>) -> Poll<Over> {
        loop {
            ready!(budget::poll_proceed(cx));
            if let Some(ms) = wait_of(self.download_rate, self.began, self.from_server)
                && self.download_delay.is_none()
            {
                self.download_delay = hold(ms);
            }
            if let Some(delay) = &mut self.download_delay {
                if Pin::new(&mut **delay).poll(cx).is_pending() {
                    return if self.is_done() { Poll::Ready(Over::Done) } else { Poll::Pending };
                }
                self.download_delay = None;
                continue;
            }
            let mut buf = BUFFER.take();
            buf.clear();
            buf.reserve(DATAGRAM_MAX);
            let got = self.server.try_recv(&mut buf);
            let done = match got {
                Ok(n) => {
                    self.from_server += n as u64;
                    self.moved = clock::now();
                    self.answered |= self.responses == 0;
                    self.responses += 1;
                    self.download_delay = rest(n, self.download_rate);
                    match self.client.send(&buf) {
                        Ok(n) => self.sent += n as u64,
                        Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                        Err(e) => return Poll::Ready(Over::Broken(e)),
                    }
                    None
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    BUFFER.set(buf);
                    // As in nginx, datagrams that are there pass, even more than expected.
                    if self.is_done() {
                        return Poll::Ready(Over::Done);
                    }
                    ready!(self.server.poll_readable(cx));
                    continue;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => None,
                // nginx counts it as an answer.
                Err(e) => {
                    self.failed = Some(e);
                    self.responses += 1;
                    self.is_done().then_some(Over::Done)
                }
            };
            BUFFER.set(buf);
            if let Some(over) = done {
                return Poll::Ready(over);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, UdpSocket};

    #[test]
    fn responses_that_have_arrived_pass_even_above_the_expected_number() {
        let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        let (listener, client, server) = (bind(), bind(), bind());
        listener.set_nonblocking(true).expect("set");
        runtime::block_on(async {
            let flow = Flow::alone(listener.into(), client.local_addr().expect("address")).expect("a session");
            let to = Address::Ip(server.local_addr().expect("address"));
            let outbound = udp::open_outbound(&to, &ConnectOptions::default()).expect("a socket");
            let (requests_max, upload_rate, download_rate) = (0, 0, 0);
            let terms =
                Terms { requests_max, responses_wanted: Some(1), upload_rate, download_rate, timeout_ms: 60_000 };
            let mut exchange = Exchange::new(&flow, &outbound, &terms, b"first".to_vec(), 5);
            assert!(poll_fn(|cx| Poll::Ready(exchange.poll(cx).is_pending())).await);
            let (_, from) = server.recv_from(&mut [0; 16]).expect("the request");
            for response in [b"one", b"two"] {
                server.send_to(response, from).expect("sent");
            }
            assert!(matches!(poll_fn(|cx| exchange.poll(cx)).await, Over::Done));
            assert_eq!((exchange.responses, exchange.from_server, exchange.sent), (2, 6, 6));
        });
    }
}
