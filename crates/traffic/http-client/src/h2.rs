//! Requests over HTTP/2, one at a time, for gRPC: with trailers, over a connection that is kept, or one of the caller.

use crate::client::{Client, Settings};
use crate::failure::{ClientFailure, ClientStep};
use crate::{Request, Url};
use base::clock;
use runtime::time::with_timeout;
use std::cell::RefCell;
use std::io::ErrorKind;
use std::task::{Context, Poll};
use std::time::Duration;
use transport::Stream;
use wire_h2::{ClientEvent, ClientLimits, Encoder};

/// Time for which a connection stays idle. Frames that arrive meanwhile are read before its next request.
const IDLE_MS: u64 = 60_000;
/// Maximum bytes per read.
const READ_BYTES: usize = 16 * 1024;

/// With the whole body.
#[derive(Clone, Debug, Default)]
pub struct H2Answer {
    pub status: u16,
    pub fields: Vec<(Vec<u8>, Vec<u8>)>,
    pub trailers: Vec<(Vec<u8>, Vec<u8>)>,
    pub body: Vec<u8>,
}

fn find<'a>(rows: &'a [(Vec<u8>, Vec<u8>)], name: &str) -> Option<&'a [u8]> {
    rows.iter().find(|(known, _)| known == name.as_bytes()).map(|(_, value)| value.as_slice())
}

impl H2Answer {
    /// The name in lower case.
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        find(&self.fields, name)
    }
    /// [`H2Answer::field`] for a trailer.
    pub fn trailer(&self, name: &str) -> Option<&[u8]> {
        find(&self.trailers, name)
    }
}

/// A connection whose socket the caller opened. After an error, it must not be used again.
pub struct H2Connection {
    core: wire_h2::Client,
    stream: Stream,
}

impl H2Connection {
    /// Begins a connection; over TLS, the handshake is complete.
    pub fn new(stream: Stream) -> H2Connection {
        stream.hurry();
        let limits = ClientLimits { stream_window: 65_535, connection_window: 65_535, ..ClientLimits::default() };
        H2Connection { core: wire_h2::Client::new(limits), stream }
    }

    /// Makes a request with an encoded header block ([`Encoder::stateless`]), without a limit of time. The response's body has at most
    /// `body_max` bytes.
    ///
    /// # Errors
    /// [`ClientFailure`].
    pub async fn ask(&mut self, block: &[u8], body: &[u8], body_max: usize) -> Result<H2Answer, ClientFailure> {
        // GOAWAY and the end of the connection may have arrived since the last request.
        std::future::poll_fn(|cx| Poll::Ready(transfer(self, cx))).await?;
        let Some(id) = self.core.open(block, body.is_empty()) else { return Err(ClientFailure::Closed) };
        let mut job = StreamJob { id, body, sent: 0, answer: H2Answer::default(), limit: body_max };
        std::future::poll_fn(|cx| job.poll(self, cx)).await?;
        self.core.forget(id);
        Ok(job.answer)
    }

    /// Sends the remaining frames. Returns `true` if a further request can follow.
    pub async fn settle(&mut self) -> bool {
        if self.core.is_going() {
            return false;
        }
        // A cancelled stream's frame must leave.
        let out = self.core.output().to_vec();
        self.core.advance(out.len());
        matches!(with_timeout(Duration::from_secs(1), self.stream.write_all(&out)).await, Ok(Ok(())))
    }
}

/// An idle connection.
struct IdleConnection {
    connection: H2Connection,
    url: Url,
    since: clock::Instant,
}

/// With one connection.
pub struct H2Client {
    client: Client,
    settings: Settings,
    kept: RefCell<Option<IdleConnection>>,
}

impl H2Client {
    pub fn new(settings: Settings) -> H2Client {
        H2Client { client: Client::new(settings.clone()), settings, kept: RefCell::default() }
    }

    /// Makes a request, with prior knowledge in cleartext and by ALPN over TLS. It is sent again, once, if a kept
    /// connection ended without a response.
    ///
    /// # Errors
    /// [`ClientFailure`].
    pub async fn ask(&self, request: &Request) -> Result<H2Answer, ClientFailure> {
        let asked = with_timeout(self.settings.total, async {
            if let Some(connection) = self.reuse(&request.url) {
                match self.exchange(connection, request).await {
                    Err(failure) if failure.is_stale() => {}
                    done => return done,
                }
            }
            let stream = self.client.open(&request.url, b"h2").await?;
            self.exchange(H2Connection::new(stream), request).await
        });
        asked.await.map_err(|_| ClientFailure::TimedOut(ClientStep::Receive))?
    }

    fn reuse(&self, url: &Url) -> Option<H2Connection> {
        let kept = self.kept.borrow_mut().take()?;
        let same = |a: &Url, b: &Url| (a.tls, &a.host, a.port) == (b.tls, &b.host, b.port);
        (same(&kept.url, url) && clock::now().millis_since(kept.since) < IDLE_MS).then_some(kept.connection)
    }

    async fn exchange(&self, mut connection: H2Connection, request: &Request) -> Result<H2Answer, ClientFailure> {
        let mut block = Vec::new();
        let mut encoder = Encoder::stateless();
        let url = &request.url;
        let (scheme, authority): (&[u8], _) = (if url.tls { b"https" } else { b"http" }, url.authority());
        for (name, value) in [
            (&b":method"[..], request.method.as_bytes()),
            (b":scheme", scheme),
            (b":authority", authority.as_bytes()),
            (b":path", url.target.as_bytes()),
        ] {
            encoder.field(name, value, &mut block);
        }
        for (name, value) in request.rows() {
            encoder.field(&name.to_ascii_lowercase(), value, &mut block);
        }
        let answer = connection.ask(&block, &request.body, self.settings.limits.body).await?;
        clock::update();
        let since = clock::now();
        if connection.settle().await {
            self.kept.borrow_mut().replace(IdleConnection { connection, url: url.clone(), since });
        }
        Ok(answer)
    }
}

/// Writes and reads without waiting; registers for the next readiness event.
fn transfer(connection: &mut H2Connection, cx: &mut Context<'_>) -> Result<(), ClientFailure> {
    let H2Connection { core, stream } = connection;
    while !core.output().is_empty() {
        match stream.try_write(core.output()) {
            Ok(0) => return Err(ClientFailure::Closed),
            Ok(n) => core.advance(n),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => match stream.poll_writable(cx) {
                Poll::Pending => break,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(e)) => return Err(ClientFailure::Io(ClientStep::Send, e)),
            },
            // The server's reason may be readable.
            Err(_) => break,
        }
    }
    let mut buf = Vec::with_capacity(READ_BYTES);
    loop {
        buf.clear();
        match stream.try_read_buf(&mut buf) {
            Ok(0) => return Err(ClientFailure::Closed),
            Ok(_) => core.receive(&buf).map_err(|error| ClientFailure::Framing(error.words))?,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => match stream.poll_readable(cx) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(e)) => return Err(ClientFailure::Io(ClientStep::Receive, e)),
            },
            Err(e) => return Err(ClientFailure::Io(ClientStep::Receive, e)),
        }
    }
}

struct StreamJob<'a> {
    id: u32,
    body: &'a [u8],
    sent: usize,
    answer: H2Answer,
    /// Octets of the response's body.
    limit: usize,
}

impl StreamJob<'_> {
    fn poll(&mut self, connection: &mut H2Connection, cx: &mut Context<'_>) -> Poll<Result<(), ClientFailure>> {
        self.put_body(connection);
        loop {
            let mut ended = false;
            let transferred = transfer(connection, cx);
            while let Some(event) = connection.core.poll_event() {
                match self.event(connection, event) {
                    Ok(false) => {}
                    Ok(true) => ended = true,
                    Err(why) => return Poll::Ready(Err(why)),
                }
            }
            if ended {
                return Poll::Ready(Ok(()));
            }
            if let Err(why) = transferred {
                return Poll::Ready(Err(why));
            }
            // The server may have opened windows.
            self.put_body(connection);
            if connection.core.output().is_empty() || connection.stream.poll_writable(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }

    fn put_body(&mut self, connection: &mut H2Connection) {
        let rest = self.body.get(self.sent..).unwrap_or_default();
        if !rest.is_empty() {
            self.sent += connection.core.send_body(self.id, rest, true);
        }
    }

    /// Takes an event; `true` at the end of the response.
    fn event(&mut self, connection: &mut H2Connection, event: ClientEvent) -> Result<bool, ClientFailure> {
        let rows = |list: &http_types::List| {
            let plain = list.iter().filter(|(name, _)| !name.starts_with(b":"));
            plain.map(|(name, value)| (name.to_vec(), value.to_vec())).collect::<Vec<_>>()
        };
        match event {
            ClientEvent::Head { stream, list, end, .. } if stream == self.id => {
                let status = list.iter().find(|(name, _)| *name == b":status");
                let status = status.and_then(|(_, value)| std::str::from_utf8(value).ok()?.parse().ok());
                self.answer.status = status.ok_or(ClientFailure::Malformed)?;
                self.answer.fields = rows(&list);
                Ok(end && self.answer.status >= 200)
            }
            ClientEvent::Body { stream, bytes, end, .. } if stream == self.id => {
                connection.core.consumed(stream, bytes.len());
                self.answer.body.extend_from_slice(&bytes);
                if self.answer.body.len() > self.limit {
                    return Err(ClientFailure::TooLarge);
                }
                Ok(end)
            }
            ClientEvent::Trailers { stream, list, .. } if stream == self.id => {
                self.answer.trailers = rows(&list);
                Ok(true)
            }
            ClientEvent::Reset { stream, unprocessed, .. } if stream == self.id => {
                // A server may end its side early, after a whole response (RFC 9113, 8.1).
                Err(if unprocessed { ClientFailure::Closed } else { ClientFailure::Cut })
            }
            _ => Ok(false),
        }
    }
}
