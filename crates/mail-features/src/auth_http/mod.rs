//! auth_http (nginx: `ngx_mail_auth_http_module`): an HTTP server authenticates clients and selects their mail server.

mod client;
mod request;
mod response;

pub use response::{AuthResponse, MalformedHead, read_response};

use crate::build::{Feature, ServerBuild};
use area::host_port::host_and_port;
use conf_schema::value::{Flag, Msec, ValueList, word_at};
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use net::Address;
use std::any::Any;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

directives! {
    pub struct AuthHttpConf from AuthHttpInput {
        /// URL of the authentication server. It receives the credentials and returns the mail server's address.
        auth_http: AuthUrl,
        /// Field added to every request to the authentication server.
        auth_http_header: ValueList<AuthField>,
        /// Sends the client's certificate to the authentication server (`Auth-SSL-Cert`).
        auth_http_pass_client_cert: Flag = "off",
        /// Maximum time for a response of the authentication server.
        auth_http_timeout: Msec = "60s",
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthUrl {
    address: Address,
    /// Value of `Host`: without the port.
    host: String,
    uri: String,
}

impl ValueKind for AuthUrl {
    const SYNTAX: &'static str = "URL";
    const REPEATS: bool = true;
    fn append(&mut self, later: Self) {
        *self = later;
    }
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let text = word_at(d, 0)?.text().into_owned();
        let rest = text.strip_prefix("http://").unwrap_or(&text);
        let wrong = |why: &str| Problem::says(format!("{why} in auth_http \"{rest}\"")).at(0);
        if !rest.bytes().all(|c| c.is_ascii_graphic() || c >= 0x80) {
            return Err(wrong("invalid characters"));
        }
        if let Some(path) = rest.strip_prefix("unix:") {
            let (path, uri) = path.split_once(':').unwrap_or((path, ""));
            if path.is_empty() {
                return Err(wrong("no path in the unix domain socket"));
            }
            let uri = if uri.is_empty() { "/" } else { uri };
            return Ok(AuthUrl { address: Address::Unix(path.into()), host: "localhost".into(), uri: uri.into() });
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, uri) = rest.split_at(end);
        let uri = if uri.starts_with('/') { uri.to_string() } else { format!("/{uri}") };
        let (host, port) = host_and_port(authority).map_err(wrong)?;
        let port = port.unwrap_or(80);
        let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
        let address = match bare {
            Some(ip) => {
                ip.parse::<IpAddr>().ok().filter(IpAddr::is_ipv6).ok_or_else(|| wrong("invalid IPv6 address"))?
            }
            None => match host.parse::<IpAddr>() {
                Ok(ip) => ip,
                Err(_) => {
                    let found = (host, port).to_socket_addrs().ok().and_then(|mut found| found.next());
                    found.ok_or_else(|| wrong("host not found"))?.ip()
                }
            },
        };
        Ok(AuthUrl { address: Address::Ip(SocketAddr::new(address, port)), host: host.into(), uri })
    }
}

#[derive(Clone, Debug)]
pub struct AuthField(Vec<u8>);

impl ValueKind for AuthField {
    const SYNTAX: &'static str = "name value";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let (name, value) = (word_at(d, 0)?, word_at(d, 1)?);
        let line = [name.bytes.as_slice(), b": ", &value.bytes].concat();
        match crate::login::fits_command(&line) {
            true => Ok(AuthField([line.as_slice(), b"\r\n"].concat())),
            false => Err(Problem::directive("has a line break in its value")),
        }
    }
}

pub struct AuthHttp {
    address: Address,
    name: String,
    host: String,
    uri: String,
    /// Constant fields, each with its line break.
    fields: Vec<u8>,
    timeout: Duration,
    pass_client_cert: bool,
}

pub struct AuthHttpFeature;

impl Feature for AuthHttpFeature {
    fn table(&self) -> FeatureTable {
        AuthHttpConf::table("auth_http", ContextArea::Mail)
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut ServerBuild<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<AuthHttpConf>() else { return Ok(()) };
        let url = conf.auth_http.as_ref().ok_or_else(|| Problem::says("no \"auth_http\" is defined for server"))?;
        let fields = conf.auth_http_header.as_ref().map(|fields| fields.0.as_slice()).unwrap_or_default();
        block.server.authenticator = Some(Arc::new(AuthHttp {
            address: url.address.clone(),
            name: url.address.to_string(),
            host: url.host.clone(),
            uri: url.uri.clone(),
            fields: fields.iter().flat_map(|field| field.0.iter().copied()).collect(),
            timeout: conf.auth_http_timeout.duration(),
            pass_client_cert: conf.auth_http_pass_client_cert,
        }));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use conf_schema::table::synthetic_directive;

    #[test]
    fn urls_as_nginx_reads_them() {
        let read = |text: &str| AuthUrl::parse(&mut Cx::default(), &synthetic_directive("auth_http", text));
        for (text, address, host, uri) in [
            ("127.0.0.1:8080/mail/auth", "127.0.0.1:8080", "127.0.0.1", "/mail/auth"),
            ("http://127.0.0.1", "127.0.0.1:80", "127.0.0.1", "/"),
            ("http://127.0.0.1?a=b", "127.0.0.1:80", "127.0.0.1", "/?a=b"),
            ("http://[::1]:81/a?b", "[::1]:81", "[::1]", "/a?b"),
            ("http://unix:/run/auth:/check", "unix:/run/auth", "localhost", "/check"),
            ("unix:/run/auth", "unix:/run/auth", "localhost", "/"),
        ] {
            let url = read(text).expect(text);
            assert_eq!((url.address.to_string().as_str(), url.host.as_str(), url.uri.as_str()), (address, host, uri));
        }
        for (text, why) in [
            ("http://", "no host"),
            ("127.0.0.1:x", "invalid port"),
            ("[::g]", "invalid IPv6 address"),
            ("unix:", "no path"),
            ("no.such.host.invalid", "host not found"),
        ] {
            let said = format!("{:?}", read(text).expect_err(text));
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
