//! `server` lines.

use super::groups::server_source;
use area::host_port::host_and_port;
use conf_schema::value::{parse_decimal, parse_msec, parse_sec};
use conf_schema::{Cx, Directive, Problem, ValueKind};
use net::Address;
use upstream::{PeerSpec, ServerLine, ServerSource};

/// Maximum length of sids and routes (nginx: `NGX_HTTP_UPSTREAM_SID_LEN`).
const ROUTE_MAX: usize = 32;

#[derive(Clone)]
pub struct Servers(pub Vec<ServerLine>);

/// Servers of a stream group: port required, fewer parameters.
#[derive(Clone)]
pub struct StreamServers(pub Vec<ServerLine>);

/// Parameters that the stream area does not have.
const HTTP_ALONE: &[&str] = &["slow_start", "drain", "route"];

impl ValueKind for StreamServers {
    const SYNTAX: &'static str = "address [parameter ...]";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        for (index, word) in d.args.iter().enumerate().skip(1) {
            let text = word.text();
            if text.split('=').next().is_some_and(|name| HTTP_ALONE.contains(&name)) {
                return Err(Problem::says(format!("invalid parameter \"{text}\"")).at(index));
            }
        }
        let Servers(lines) = Servers::parse(cx, d)?;
        let name = d.args.first().map(|w| w.text().into_owned()).unwrap_or_default();
        let is_service =
            lines.iter().any(|line| matches!(&line.source, ServerSource::Resolved { service: Some(_), .. }));
        let has_port = name.starts_with("unix:") || host_and_port(&name).is_ok_and(|(_, port)| port.is_some());
        if !has_port && !is_service {
            return Err(Problem::says(format!("no port in upstream \"{name}\"")).at(0));
        }
        Ok(StreamServers(lines))
    }
    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

impl ValueKind for Servers {
    const SYNTAX: &'static str = "address [parameter ...]";
    const REPEATS: bool = true;
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let name = d.args.first().map(|w| w.text().into_owned()).unwrap_or_default();
        let mut spec = PeerSpec::new(name.clone(), Address::Unix("".into()));
        let (mut resolve, mut service) = (false, None);
        for (index, word) in d.args.iter().enumerate().skip(1) {
            match word.text().as_ref() {
                "resolve" => resolve = true,
                text => match text.strip_prefix("service=") {
                    Some("") => return Err(Problem::says("service is empty").at(index)),
                    Some(name) => service = Some(name.to_string()),
                    None => parameter(&mut spec, text).map_err(|p| p.at(index))?,
                },
            }
        }
        let at = |why: &str| Problem::says(format!("{why} in upstream \"{name}\"")).at(0);
        let mut source = server_source(&name).map_err(|why| at(&why))?;
        match (&source, &service) {
            (_, Some(_)) if !resolve => {
                let words = format!("service upstream \"{name}\" requires \"resolve\" parameter");
                return Err(Problem::says(words).at(0));
            }
            (_, Some(_)) if host_and_port(&name).is_ok_and(|(_, port)| port.is_some()) => {
                return Err(Problem::says(format!("service upstream \"{name}\" may not have port")).at(0));
            }
            (ServerSource::Fixed(_), Some(_)) => {
                return Err(Problem::says(format!("service upstream \"{name}\" requires domain name")).at(0));
            }
            _ => {}
        }
        if let ServerSource::Named { host, port } = &source
            && resolve
        {
            source = ServerSource::Resolved { host: host.clone(), port: *port, service };
        }
        Ok(Servers(vec![ServerLine { spec, source }]))
    }
    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

fn parameter(spec: &mut PeerSpec, text: &str) -> Result<(), Problem> {
    let invalid = || Problem::says(format!("invalid parameter \"{text}\""));
    let (name, value) = text.split_once('=').map_or((text, None), |(n, v)| (n, Some(v)));
    let number = || value.and_then(parse_decimal::<u32>).ok_or_else(invalid);
    match (name, value) {
        ("weight", Some(_)) => spec.weight = number().and_then(|n| if n > 0 { Ok(n) } else { Err(invalid()) })?,
        ("max_conns", Some(_)) => spec.max_conns = number()?,
        ("max_fails", Some(_)) => spec.max_fails = number()?,
        ("fail_timeout", Some(v)) => spec.fail_timeout_ms = parse_sec(v.as_bytes()).ok_or_else(invalid)? * 1000,
        ("slow_start", Some(v)) => spec.slow_start_ms = parse_msec(v.as_bytes()).ok_or_else(invalid)?,
        ("backup", None) => spec.backup = true,
        ("down", None) => (spec.down, spec.drain) = (true, false),
        ("drain", None) => (spec.drain, spec.down) = (true, false),
        ("route", Some("")) => return Err(Problem::says("route is empty")),
        ("route", Some(v)) if v.len() > ROUTE_MAX => {
            return Err(Problem::says(format!("route is longer than {ROUTE_MAX}")));
        }
        ("route", Some(v)) => spec.route = v.into(),
        _ => return Err(invalid()),
    }
    Ok(())
}

/// Checks the parameters of an upstream block's `server` lines against the balancing method, which like nginx's applies
/// to the lines after it only: `server a backup; hash $uri;` is accepted.
///
/// # Errors
/// A line with `backup` or `slow_start` below a method without backups.
pub fn check_parameters(block: &Directive) -> Result<(), Problem> {
    let mut takes_backups = true;
    for line in conf_syntax::list_directives(block.block.as_deref().unwrap_or_default()) {
        match &*line.name.bytes {
            b"hash" | b"ip_hash" | b"random" => takes_backups = false,
            b"least_conn" | b"least_time" => takes_backups = true,
            b"server" if !takes_backups => {
                let refused = |word: &&[u8]| *word == b"backup" || word.starts_with(b"slow_start=");
                if let Some(word) = line.args.iter().skip(1).map(|word| &*word.bytes).find(refused) {
                    let name = String::from_utf8_lossy(word);
                    let words = format!("balancing method does not support parameter \"{name}\"");
                    return Err(Problem::says(words).on(line));
                }
            }
            _ => {}
        }
    }
    Ok(())
}
