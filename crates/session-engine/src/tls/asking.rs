//! Asking an authority about a certificate: one request over plain HTTP (nginx: `ngx_ssl_ocsp_request`).

use crate::upstreams::{Resolving, host_and_port};
use http_types::{BodyLength, Method, ResponseHead};
use observe::os;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Duration;
use tls::ocsp::{CertificateId, RESPONSE_MAX};
use upstream::{Address, Options, Stream};
use wire_h1::{HeadLimits, Progress, ResponseParser};

/// An authority may take so long (nginx: the same for each step).
const TIMEOUT: Duration = Duration::from_secs(60);
/// Octets of the head of an answer.
const HEAD_MAX: usize = 4096;

/// Where questions go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Responder {
    host: String,
    port: u16,
    /// With a slash at its end: the question follows it.
    uri: String,
    /// Known when the configuration is read; empty: the name is resolved when it is asked.
    addresses: Vec<SocketAddr>,
}

impl Responder {
    /// Reads a URL.
    ///
    /// # Errors
    /// nginx's words, without what the URL is of.
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

    /// The same, with its name resolved by the system: for what stands in the configuration.
    ///
    /// # Errors
    /// As [`Responder::parse`]; the host is not known.
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

    /// Asks; the answer's octets.
    ///
    /// # Errors
    /// Words for the error log.
    pub async fn ask(&self, id: &CertificateId, resolving: Option<&Resolving>) -> Result<Vec<u8>, String> {
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
        runtime::time::timeout(TIMEOUT, asking).await.map_err(|_| timed_out())?
    }

    async fn addresses(&self, resolving: Option<&Resolving>) -> Result<Vec<SocketAddr>, String> {
        if !self.addresses.is_empty() {
            return Ok(self.addresses.clone());
        }
        let name = host_and_port(&self.host).map_or("", |(name, _)| name);
        let Some(Resolving { resolver, timeout }) = resolving else {
            return Err(format!("no resolver defined to resolve {name} while requesting certificate status"));
        };
        let found = resolver.resolve(name, *timeout).await;
        let found = found.map_err(|why| format!("{name} could not be resolved ({}: {why})", why.code()))?;
        Ok(found.iter().map(|ip| SocketAddr::new(*ip, self.port)).collect())
    }

    async fn ask_one(&self, address: SocketAddr, id: &CertificateId) -> Result<Vec<u8>, String> {
        let io = |call: &'static str| move |e: std::io::Error| format!("{call}() failed {}", os(&e));
        let stream = Stream::connect(&Address::Ip(address), &Options::default()).await.map_err(io("connect"))?;
        let question = format!("GET {}{} HTTP/1.0\r\nHost: {}\r\n\r\n", self.uri, id.uri_part(), self.host);
        stream.write_all(question.as_bytes()).await.map_err(io("send"))?;
        let limits = HeadLimits {
            line_max: HEAD_MAX,
            field_max: HEAD_MAX,
            total_max: HEAD_MAX,
            fields_max: 100,
            underscores: true,
            ignore_invalid: true,
        };
        let mut parser = ResponseParser::default();
        let mut head = ResponseHead::default();
        let mut buf: Vec<u8> = Vec::with_capacity(4096);
        let mut body: Option<(usize, BodyLength)> = None;
        loop {
            if body.is_none() {
                match parser.parse(&buf, &limits, &mut head) {
                    Ok(Progress::Done { consumed }) => {
                        let length =
                            wire_h1::response_body(&head, &buf, Method::Get).map_err(|e| e.upstream_message())?;
                        if head.status != 200 {
                            return Err(format!("OCSP responder sent status {}", head.status));
                        }
                        body = Some((consumed, length));
                    }
                    Ok(Progress::Partial) => {}
                    Err(_) => return Err("OCSP responder sent invalid response".into()),
                }
            }
            if let Some((start, BodyLength::Exact(n))) = body {
                let n = usize::try_from(n).unwrap_or(usize::MAX).min(RESPONSE_MAX);
                if let Some(whole) = buf.get(start..start.saturating_add(n)) {
                    return Ok(whole.to_vec());
                }
            }
            if buf.len() > HEAD_MAX + RESPONSE_MAX {
                return Err("OCSP responder sent too big response".into());
            }
            buf.reserve(4096);
            if stream.read_buf(&mut buf).await.map_err(io("recv"))? == 0 {
                let end = body.filter(|(_, length)| !matches!(length, BodyLength::Exact(_)));
                let whole = end.and_then(|(start, _)| buf.get(start..)).map(<[u8]>::to_vec);
                return whole.ok_or_else(|| "OCSP responder prematurely closed connection".into());
            }
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
