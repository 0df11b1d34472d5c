//! Queries an OCSP responder over HTTP (nginx: `ngx_ssl_ocsp_request`).

use area::host_port::host_and_port;
use http_client::{ClientFailure, ClientStep, Limits, Reader, send_request};
use http_types::Method;
use net::Address;
use resolver::ResolveRules;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Duration;
use tls::ocsp::{CertificateId, RESPONSE_MAX};
use transport::{ConnectOptions, Stream};

/// Longest query (nginx: per step).
const TIMEOUT: Duration = Duration::from_secs(60);
/// Longest attempt to connect to one of several addresses.
const CONNECT: Duration = Duration::from_secs(10);
/// Octets of a response head.
const HEAD_MAX: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Responder {
    host: String,
    port: u16,
    /// With a final slash, before the request.
    uri: String,
    /// Resolved with the configuration; empty: at run time.
    addresses: Vec<SocketAddr>,
}

impl Responder {
    /// Fails with nginx's message.
    pub fn parse(url: &str) -> Result<Responder, String> {
        let rest = url.get(..7).filter(|s| s.eq_ignore_ascii_case("http://")).and_then(|_| url.get(7..));
        let rest = rest.ok_or_else(|| format!("invalid URL prefix in OCSP responder \"{url}\""))?;
        let end = rest.find('/').unwrap_or(rest.len());
        let (written, uri) = rest.split_at(end);
        let (host, port) = host_and_port(written).map_err(|why| format!("{why} in OCSP responder \"{rest}\""))?;
        if !url.bytes().all(|c| c.is_ascii_graphic()) {
            return Err(format!("invalid characters in OCSP responder \"{rest}\""));
        }
        let slash = if uri.ends_with('/') { "" } else { "/" };
        let port = port.unwrap_or(80);
        let bare = host.trim_matches(['[', ']']);
        let addresses = bare.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, port)).into_iter().collect();
        Ok(Responder { host: written.to_string(), port, uri: format!("{uri}{slash}"), addresses })
    }

    /// [`Responder::parse`] with the host resolved by the system, for configured URLs.
    pub fn resolved(url: &str) -> Result<Responder, String> {
        let mut responder = Responder::parse(url)?;
        if responder.addresses.is_empty() {
            let name = host_and_port(&responder.host).map_or("", |(name, _)| name);
            let found = (name, responder.port).to_socket_addrs();
            let unknown = || format!("host not found in OCSP responder \"{}\"", responder.host);
            responder.addresses = found.map_err(|_| unknown())?.collect();
        }
        Ok(responder)
    }

    /// Sends a query; returns the response's octets, or an error log message.
    pub async fn ask(&self, id: &CertificateId, resolving: Option<&ResolveRules>) -> Result<Vec<u8>, String> {
        let asking = async {
            let mut last = format!("no addresses of the OCSP responder \"{}\"", self.host);
            for address in self.addresses(resolving).await? {
                match self.ask_one(address, id).await {
                    Ok(answer) => return Ok(answer),
                    Err(why) => last = format!("{why} while requesting certificate status, responder: {}", self.host),
                }
            }
            Err(last)
        };
        let timed_out = || format!("OCSP responder timed out, responder: {}", self.host);
        runtime::time::with_timeout(TIMEOUT, asking).await.map_err(|_| timed_out())?
    }

    /// Returns host and port as they are written.
    pub fn host(&self) -> &str {
        &self.host
    }

    async fn addresses(&self, resolving: Option<&ResolveRules>) -> Result<Vec<SocketAddr>, String> {
        if !self.addresses.is_empty() {
            return Ok(self.addresses.clone());
        }
        let name = host_and_port(&self.host).map_or("", |(name, _)| name);
        let Some(ResolveRules { resolver, timeout }) = resolving else {
            return Err(format!("no resolver defined to resolve {name} while requesting certificate status"));
        };
        let found = resolver.resolve(name, *timeout).await;
        let found = found.map_err(|why| format!("{name} could not be resolved ({}: {why})", why.code()))?;
        Ok(found.iter().map(|ip| SocketAddr::new(*ip, self.port)).collect())
    }

    async fn ask_one(&self, address: SocketAddr, id: &CertificateId) -> Result<Vec<u8>, String> {
        let words = |failure: ClientFailure| match failure {
            ClientFailure::Closed | ClientFailure::Cut => "OCSP responder prematurely closed connection".into(),
            ClientFailure::Malformed => "OCSP responder sent invalid response".into(),
            ClientFailure::TooLarge => "OCSP responder sent too big response".into(),
            other => other.to_string(),
        };
        let (address, options) = (Address::Ip(address), ConnectOptions::default());
        let connected = runtime::time::with_timeout(CONNECT, Stream::connect(&address, &options)).await;
        let stream = connected.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
        let stream = stream.map_err(|e| words(ClientFailure::Io(ClientStep::Connect, e)))?;
        let question = format!("GET {}{} HTTP/1.0\r\nHost: {}\r\n\r\n", self.uri, id.uri_part(), self.host);
        send_request(&stream, question.as_bytes(), TIMEOUT).await.map_err(words)?;
        let limits = Limits { head: HEAD_MAX, body: RESPONSE_MAX, idle: TIMEOUT };
        let mut reader = Reader::new(&stream, Method::Get, limits);
        let (head, _) = reader.head().await.map_err(words)?;
        if head.status != 200 {
            return Err(format!("OCSP responder sent status {}", head.status));
        }
        match reader.body().await.map_err(words)? {
            (body, true) => Ok(body),
            _ => Err(words(ClientFailure::TooLarge)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_responders() {
        let read = |url: &str| Responder::parse(url).map(|r| (r.host, r.port, r.uri, r.addresses.len()));
        assert_eq!(read("http://127.0.0.1:81"), Ok(("127.0.0.1:81".into(), 81, "/".into(), 1)));
        assert_eq!(read("http://a.example/ocsp"), Ok(("a.example".into(), 80, "/ocsp/".into(), 0)));
        assert_eq!(read("HTTP://a.example/b/"), Ok(("a.example".into(), 80, "/b/".into(), 0)));
        assert!(read("https://a.example/").expect_err("https").starts_with("invalid URL prefix in OCSP responder"));
        assert!(read("http://:80/").is_err() && read("http://a b/").is_err() && read("http://a\r\nb/").is_err());
    }
}
