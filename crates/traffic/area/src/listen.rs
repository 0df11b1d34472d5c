//! `listen`: an address and its options (nginx: `ngx_http_core_listen`, `ngx_stream_core_listen`,
//! `ngx_mail_core_listen`, `ngx_parse_url`).

use conf_schema::value::{parse_decimal, parse_sec, parse_size};
use conf_schema::{Cx, Directive, Problem, ValueKind, suggest};
use net::Address;
use net::listen::{ListenSpec, TcpKeepalive};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct Listen {
    pub specs: Vec<ListenSpec>,
    pub default_server: bool,
    /// Socket options are set: another `listen` with this address must not set any.
    pub options_set: bool,
    pub proxy_protocol: bool,
    pub ssl: bool,
    /// `http2`, deprecated in favour of the directive.
    pub http2: bool,
    /// `quic`: datagrams, over which HTTP/3 is spoken.
    pub quic: bool,
    pub at: conf_schema::At,
}

/// Area of a `listen`: determines its parameters and the default port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenKind {
    Http,
    /// Without a port the system chooses one.
    Stream,
    /// As `Stream`, with one server per address.
    Mail,
}

const PARAMETERS: &[&str] = &[
    "default_server",
    "default",
    "bind",
    "setfib=",
    "fastopen=",
    "backlog=",
    "rcvbuf=",
    "sndbuf=",
    "accept_filter=",
    "deferred",
    "ipv6only=",
    "reuseport",
    "ssl",
    "http2",
    "quic",
    "so_keepalive=",
    "proxy_protocol",
    "multipath",
    "udp",
];

const HTTP_ALONE: &[&str] = &["default", "http2", "quic"];
const STREAM_ALONE: &[&str] = &["udp"];
const NOT_OF_MAIL: &[&str] = &[
    "default",
    "default_server",
    "http2",
    "quic",
    "udp",
    "setfib",
    "fastopen",
    "accept_filter",
    "deferred",
    "reuseport",
];
/// Parameters without a meaning for datagrams.
const NOT_OF_DATAGRAMS: &[&str] =
    &["fastopen", "backlog", "deferred", "multipath", "ssl", "so_keepalive", "proxy_protocol"];
/// Parameters that nginx refuses beside `quic`.
const NOT_OF_QUIC: &[&str] = &[
    "fastopen",
    "backlog",
    "accept_filter",
    "deferred",
    "multipath",
    "ssl",
    "http2",
    "so_keepalive",
    "proxy_protocol",
];

impl ValueKind for Listen {
    const SYNTAX: &'static str = "address[:port] | port | unix:path [parameter ...]";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let listen = Listen::read(cx, d, ListenKind::Http)?;
        if listen.http2 {
            cx.warn(d, "the \"listen ... http2\" directive is deprecated, use the \"http2\" directive instead");
        }
        Ok(listen)
    }
}

impl Listen {
    /// Returns a line without parameters.
    #[must_use]
    pub fn plain(specs: Vec<ListenSpec>, at: conf_schema::At) -> Self {
        Listen {
            specs,
            default_server: false,
            options_set: false,
            proxy_protocol: false,
            ssl: false,
            http2: false,
            quic: false,
            at,
        }
    }
    /// Parses a line of this area; fails with nginx's message.
    pub fn read(cx: &mut Cx, d: &Directive, kind: ListenKind) -> Result<Self, Problem> {
        let default_port = if kind == ListenKind::Http { 80 } else { 0 };
        let address = d.args.first().map(|w| w.text().into_owned()).unwrap_or_default();
        let mut specs: Vec<ListenSpec> = parse_addresses(&address, default_port)
            .map_err(|why| Problem::says(format!("{why} in \"{address}\" of the \"listen\" directive")).at(0))?
            .into_iter()
            .map(ListenSpec::new)
            .collect();
        let mut listen = Listen::plain(Vec::new(), conf_schema::At { span: d.span, line: d.line });
        let mut option = specs.first().cloned().unwrap_or_else(|| ListenSpec::new(Address::Unix(PathBuf::new())));
        for (index, word) in d.args.iter().enumerate().skip(1) {
            let text = word.text();
            // FreeBSD's.
            if kind != ListenKind::Mail && text.starts_with("accept_filter=") {
                cx.warn(d, format!("accept filters \"{text}\" are not supported on this platform, ignored"));
                continue;
            }
            listen.parameter(&text, &mut option, kind).map_err(|p| p.at(index))?;
        }
        if option.datagram {
            let names = d.args.iter().skip(1).map(|word| word.text());
            let wrong = names.map(|text| text.split('=').next().unwrap_or_default().to_string());
            let (kind, not_of_it) = if listen.quic { ("quic", NOT_OF_QUIC) } else { ("udp", NOT_OF_DATAGRAMS) };
            if let Some(name) = wrong.into_iter().find(|name| not_of_it.contains(&name.as_str())) {
                return Err(Problem::directive(format!("\"{name}\" parameter is incompatible with \"{kind}\"")));
            }
        }
        for spec in &mut specs {
            *spec = ListenSpec { address: spec.address.clone(), bind: listen.options_set, ..option.clone() };
        }
        listen.specs = specs;
        Ok(listen)
    }
    fn parameter(&mut self, text: &str, spec: &mut ListenSpec, kind: ListenKind) -> Result<(), Problem> {
        let (name, value) = text.split_once('=').map_or((text, None), |(n, v)| (n, Some(v)));
        let number = |what: &str| {
            value
                .and_then(parse_decimal::<u32>)
                .filter(|n| *n > 0)
                .ok_or_else(|| Problem::says(format!("invalid {what} \"{text}\"")))
        };
        let size = |what: &str| {
            value
                .and_then(|v| parse_size(v.as_bytes()))
                .map(|n| n as usize)
                .ok_or_else(|| Problem::says(format!("invalid {what} \"{text}\"")))
        };
        let unix = matches!(spec.address, Address::Unix(_));
        let others = match kind {
            ListenKind::Http => STREAM_ALONE,
            ListenKind::Stream => HTTP_ALONE,
            ListenKind::Mail => NOT_OF_MAIL,
        };
        match (name, value) {
            _ if others.contains(&name) => return Err(Problem::says(format!("invalid parameter \"{text}\""))),
            ("udp", None) => {
                spec.datagram = true;
                return Ok(());
            }
            ("default_server" | "default", None) => {
                self.default_server = true;
                return Ok(());
            }
            ("proxy_protocol", None) => {
                self.proxy_protocol = true;
                return Ok(());
            }
            ("ssl", None) => {
                self.ssl = true;
                return Ok(());
            }
            ("http2", None) => {
                self.http2 = true;
                return Ok(());
            }
            ("quic", None) if unix => {
                return Err(Problem::says("\"quic\" is not supported for UNIX-domain sockets"));
            }
            ("quic", None) => {
                self.quic = true;
                spec.datagram = true;
                return Ok(());
            }
            // As nginx on Linux says of an unknown one.
            ("setfib", Some(_)) => {
                return Err(
                    Problem::says(format!("invalid parameter \"{text}\"")).hint("FreeBSD only: remove the parameter")
                );
            }
            ("multipath", None) => spec.multipath = true,
            ("bind", None) => {}
            ("backlog", Some(_)) => spec.backlog = Some(number("backlog")?),
            ("fastopen", Some(_)) => spec.fastopen = Some(number("fastopen")?),
            ("rcvbuf", Some(_)) => spec.receive_buffer = Some(size("rcvbuf")?),
            ("sndbuf", Some(_)) => spec.send_buffer = Some(size("sndbuf")?),
            ("deferred", None) => spec.deferred = true,
            ("reuseport", None) => spec.reuseport = true,
            ("ipv6only", Some(v @ ("on" | "off"))) => {
                // Without effect on other addresses, as in nginx.
                if matches!(spec.address, Address::Ip(SocketAddr::V6(_))) {
                    spec.ipv6_only = v == "on";
                }
            }
            ("ipv6only", Some(v)) if v.starts_with('o') => {
                return Err(Problem::says(format!("invalid ipv6only flags \"{v}\"")));
            }
            ("so_keepalive", Some(v)) => {
                spec.keepalive =
                    Some(keepalive(v).ok_or_else(|| Problem::says(format!("invalid so_keepalive value: \"{v}\"")))?);
            }
            _ => {
                let problem = Problem::says(format!("invalid parameter \"{text}\""));
                return Err(match suggest::nearest_word(name, PARAMETERS.iter().map(|p| p.trim_end_matches('='))) {
                    Some(near) => problem.hint(format!("did you mean \"{near}\"?")),
                    None => problem,
                });
            }
        }
        // (nginx does not start. Other options of TCP are logged as ignored when the socket is set up.)
        if unix && name == "reuseport" {
            return Err(Problem::says("\"reuseport\" is not supported for UNIX-domain sockets"));
        }
        self.options_set = true;
        Ok(())
    }
}

fn keepalive(text: &str) -> Option<TcpKeepalive> {
    match text {
        "on" => return Some(TcpKeepalive { on: true, ..TcpKeepalive::default() }),
        "off" => return Some(TcpKeepalive::default()),
        _ => {}
    }
    // Trailing times may be omitted with their colons.
    let mut parts = text.splitn(3, ':');
    let (idle, interval, count) = (parts.next()?, parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    if idle.is_empty() && interval.is_empty() && count.is_empty() {
        return None;
    }
    let time = |s: &str| match s {
        "" => Some(None),
        s => parse_sec(s.as_bytes()).filter(|n| *n > 0).map(|n| Some(Duration::from_secs(n))),
    };
    let count = match count {
        "" => None,
        s => Some(parse_decimal::<u32>(s).filter(|n| *n > 0)?),
    };
    Some(TcpKeepalive { on: true, idle: time(idle)?, interval: time(interval)?, count })
}

/// Addresses of a word: `80`, `127.0.0.1`, `*:80-82`, `[::1]:80`, `localhost:80`, `unix:/path`.
pub fn parse_addresses(text: &str, default_port: u16) -> Result<Vec<Address>, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        if path.is_empty() {
            return Err("no path in the unix domain socket".into());
        }
        if path.len() > 107 {
            return Err("too long path in the unix domain socket".into());
        }
        return Ok(vec![Address::Unix(PathBuf::from(path))]);
    }
    let (host, ports) = if let Some(rest) = text.strip_prefix('[') {
        let (host, after) = rest.split_once(']').ok_or("invalid host")?;
        let ports = match after {
            "" => None,
            after => Some(after.strip_prefix(':').ok_or("invalid host")?),
        };
        let range = ports_of(ports, default_port)?;
        if host.is_empty() {
            return Err("no host".into());
        }
        let ip: Ipv6Addr = host.parse().map_err(|_| "invalid IPv6 address")?;
        return Ok(range.map(|p| at(IpAddr::V6(ip), p)).collect());
    } else if text.contains(['/', '?']) {
        return Err("invalid host".into());
    } else {
        // The port begins at the first colon, as in nginx: IPv6 addresses need brackets.
        match text.split_once(':') {
            Some((host, ports)) => (host, Some(ports)),
            None if is_ports(text) => ("*", Some(text)),
            None => (text, None),
        }
    };
    let range: Vec<u16> = ports_of(ports, default_port)?.collect();
    if host == "*" {
        return Ok(range.into_iter().map(|p| at(IpAddr::V4(Ipv4Addr::UNSPECIFIED), p)).collect());
    }
    if host.is_empty() {
        return Err("no host".into());
    }
    if let Ok(ip) = host.parse::<Ipv4Addr>() {
        return Ok(range.into_iter().map(|p| at(IpAddr::V4(ip), p)).collect());
    }
    let found = (host, 0).to_socket_addrs().map_err(|_| "host not found")?;
    let mut ips: Vec<IpAddr> = found.map(|a| a.ip()).collect();
    ips.dedup();
    Ok(ips.iter().flat_map(|ip| range.iter().map(|p| at(*ip, *p))).collect())
}

fn at(ip: IpAddr, port: u16) -> Address {
    Address::Ip(SocketAddr::new(ip, port))
}

/// Tells a port or range of ports from a host name. A number of more than 18 digits is a name, as in nginx.
fn is_ports(text: &str) -> bool {
    const DIGITS_MAX: usize = 18;
    let is_number = |s: &str| (1..=DIGITS_MAX).contains(&s.len()) && s.bytes().all(|c| c.is_ascii_digit());
    text.split_once('-').map_or(is_number(text), |(first, last)| is_number(first) && is_number(last))
}

fn ports_of(text: Option<&str>, default_port: u16) -> Result<std::ops::RangeInclusive<u16>, String> {
    let Some(text) = text else { return Ok(default_port..=default_port) };
    let port = |s: &str| parse_decimal::<u16>(s).filter(|p| *p > 0).ok_or_else(|| "invalid port".to_string());
    match text.split_once('-') {
        Some((first, last)) => {
            let (first, last) = (port(first)?, port(last)?);
            if last < first {
                return Err("invalid port range".into());
            }
            Ok(first..=last)
        }
        None => port(text).map(|p| p..=p),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Result<Vec<String>, String> {
        parse_addresses(text, 80).map(|all| all.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn addresses_as_nginx_reads_them() {
        for (text, want) in [
            ("8080", vec!["0.0.0.0:8080"]),
            ("127.0.0.1", vec!["127.0.0.1:80"]),
            ("*:81", vec!["0.0.0.0:81"]),
            ("[::1]:8080", vec!["[::1]:8080"]),
            ("[::]", vec!["[::]:80"]),
            ("127.0.0.1:8080-8082", vec!["127.0.0.1:8080", "127.0.0.1:8081", "127.0.0.1:8082"]),
            ("unix:/run/x", vec!["unix:/run/x"]),
        ] {
            assert_eq!(shown(text).as_ref().ok(), Some(&want.iter().map(ToString::to_string).collect()), "{text}");
        }
        for (text, why) in [
            ("unix:", "no path in the unix domain socket"),
            ("127.0.0.1:", "invalid port"),
            ("127.0.0.1:99999", "invalid port"),
            ("99999", "invalid port"),
            ("http://", "invalid host"),
            ("/", "invalid host"),
            ("127.0.0.1:9-8", "invalid port range"),
            (":80", "no host"),
            ("[::1", "invalid host"),
            (":::80", "invalid port"),
            ("::1:80", "invalid port"),
            ("[]:80", "no host"),
        ] {
            assert_eq!(shown(text), Err(why.to_string()), "{text}");
        }
    }
}
