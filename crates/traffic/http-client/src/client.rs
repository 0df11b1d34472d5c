//! Requests to URLs: resolves the host, connects, makes the TLS handshake, keeps the connection for a while.

use crate::failure::{ClientFailure, ClientStep};
use crate::reader::{Limits, Reader, Response, send_request};
use crate::{Request, Url};
use base::clock;
use http_types::Method;
use net::Address;
use resolver::NameResolver;
use runtime::time::with_timeout;
use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tls::{ClientRules, Target, TlsStream};
use transport::{ConnectOptions, Stream};

const IDLE_MAX: usize = 4;
/// Milliseconds for which a connection stays idle.
const IDLE_MS: u64 = 5_000;

struct Idle {
    tls: bool,
    host: String,
    port: u16,
    stream: Stream,
    since: clock::Instant,
}

#[derive(Clone)]
pub struct Settings {
    /// Resolves names; `None`: the system does, on a thread of its own.
    pub resolver: Option<(Arc<NameResolver>, Duration)>,
    /// The rules of `https`; `None`: such URLs are refused.
    pub rules: Option<Arc<ClientRules>>,
    /// Time for each address to connect, and for its TLS handshake.
    pub connect: Duration,
    /// Time for a request with everything that belongs to it.
    pub total: Duration,
    pub limits: Limits,
}

impl Default for Settings {
    /// System resolver, no TLS, 10 seconds to connect, 60 seconds for a request.
    fn default() -> Self {
        Settings {
            resolver: None,
            rules: None,
            connect: Duration::from_secs(10),
            total: Duration::from_secs(60),
            limits: Limits::default(),
        }
    }
}

/// A client of one thread. It keeps at most four idle connections, for five seconds.
#[derive(Default)]
pub struct Client {
    settings: Settings,
    idle: RefCell<Vec<Idle>>,
}

impl Client {
    pub fn new(settings: Settings) -> Client {
        Client { settings, idle: RefCell::default() }
    }

    /// Makes a request; redirects are returned, not followed. A request is sent again, once, if the idle connection that it was
    /// sent on ended without a byte of a response.
    ///
    /// # Errors
    /// [`ClientFailure`].
    pub async fn ask(&self, request: &Request) -> Result<Response, ClientFailure> {
        let asked = with_timeout(self.settings.total, async {
            if let Some(stream) = self.reuse(&request.url) {
                match self.exchange(stream, request).await {
                    Err(failure) if failure.is_stale() => {}
                    done => return done,
                }
            }
            let stream = self.open(&request.url, b"http/1.1").await?;
            self.exchange(stream, request).await
        });
        asked.await.map_err(|_| ClientFailure::TimedOut(ClientStep::Receive))?
    }

    /// Takes an idle connection to the server of a URL.
    fn reuse(&self, url: &Url) -> Option<Stream> {
        let mut idle = self.idle.borrow_mut();
        let now = clock::now();
        idle.retain(|one| now.millis_since(one.since) < IDLE_MS && one.stream.is_quiet());
        let at = idle.iter().position(|one| (one.tls, &one.host, one.port) == (url.tls, &url.host, url.port))?;
        Some(idle.swap_remove(at).stream)
    }

    async fn exchange(&self, stream: Stream, request: &Request) -> Result<Response, ClientFailure> {
        send_request(&stream, &request.bytes(false), self.settings.limits.idle).await?;
        let mut reader = Reader::new(&stream, Method::of(request.method.as_bytes()), self.settings.limits);
        let response = reader.response().await?;
        let keep = reader.keep_alive();
        let mut idle = self.idle.borrow_mut();
        if keep && idle.len() < IDLE_MAX {
            clock::update();
            let Url { tls, host, port, .. } = request.url.clone();
            idle.push(Idle { tls, host, port, stream, since: clock::now() });
        }
        Ok(response)
    }

    /// Connects to the first address of a URL's host that answers; over TLS with this protocol (ALPN).
    pub(crate) async fn open(&self, url: &Url, alpn: &[u8]) -> Result<Stream, ClientFailure> {
        let mut last = ClientFailure::Unresolved(format!("no addresses of {}", url.host));
        for address in self.addresses(url).await? {
            match self.connect(address, url, alpn).await {
                Ok(stream) => return Ok(stream),
                Err(why) => last = why,
            }
        }
        Err(last)
    }

    async fn addresses(&self, url: &Url) -> Result<Vec<SocketAddr>, ClientFailure> {
        if let Ok(ip) = url.host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, url.port)]);
        }
        let unresolved = |why: String| ClientFailure::Unresolved(format!("{} could not be resolved ({why})", url.host));
        match &self.settings.resolver {
            Some((resolver, limit)) => {
                let found = resolver.resolve(&url.host, *limit).await;
                let found = found.map_err(|why| unresolved(format!("{}: {why}", why.code())))?;
                Ok(found.iter().map(|ip| SocketAddr::new(*ip, url.port)).collect())
            }
            None => {
                let found = with_timeout(self.settings.connect, runtime::io::lookup_host(&url.host, url.port)).await;
                let found = found.map_err(|_| unresolved("timed out".into()))?;
                found.map_err(|e| unresolved(e.to_string()))
            }
        }
    }

    async fn connect(&self, address: SocketAddr, url: &Url, alpn: &[u8]) -> Result<Stream, ClientFailure> {
        let connecting =
            with_timeout(self.settings.connect, Stream::connect(&Address::Ip(address), &ConnectOptions::default()))
                .await;
        let connected = connecting.map_err(|_| ClientFailure::TimedOut(ClientStep::Connect))?;
        let mut stream = connected.map_err(|e| ClientFailure::Io(ClientStep::Connect, e))?;
        if url.tls {
            let rules = self
                .settings
                .rules
                .as_ref()
                .ok_or_else(|| ClientFailure::Tls("no TLS rules for an https URL".into()))?;
            let name = url.host.clone();
            let target = Target { peer: address.to_string(), name, send_name: true, alpn: vec![alpn.to_vec()] };
            let tls = TlsStream::client(rules, &target, None).map_err(|why| ClientFailure::Tls(why.to_string()))?;
            let shaken = with_timeout(self.settings.connect, stream.handshake(tls)).await;
            shaken.map_err(|_| ClientFailure::TimedOut(ClientStep::Handshake))?.map_err(ClientFailure::Handshake)?;
        }
        Ok(stream)
    }
}
