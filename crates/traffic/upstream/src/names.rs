//! Repeated name resolution of a group's lines, on the control thread.

use crate::group::{Group, ResolvedAddress, Source};
use crate::resolver::{Failed, Resolver};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// First interval, and maximum (by doubling), of retries with the system.
const AGAIN_FIRST: Duration = Duration::from_secs(1);
const AGAIN_LAST: Duration = Duration::from_secs(30);
/// Least interval between queries of a name, whatever its TTL.
const AGAIN_LEAST: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub struct Naming {
    pub group: Arc<Group>,
    pub resolver: Option<Arc<Resolver>>,
    pub timeout: Duration,
}

/// Asks the system on a separate thread.
pub async fn system(host: &str) -> Result<Vec<IpAddr>, String> {
    match runtime::io::lookup_host(host, 0).await {
        Ok(all) => {
            let mut found: Vec<IpAddr> = Vec::new();
            for ip in all.iter().map(std::net::SocketAddr::ip) {
                if !found.contains(&ip) {
                    found.push(ip);
                }
            }
            if found.is_empty() { Err("host not found".into()) } else { Ok(found) }
        }
        Err(_) => Err("host not found".into()),
    }
}

impl Naming {
    pub fn is_needed(group: &Group) -> bool {
        group.lines.iter().any(|line| !matches!(line.source, Source::Fixed(_)))
    }

    pub async fn prepare(self) {
        for (index, line) in self.group.lines.iter().enumerate() {
            if let Source::Named { host, port } = &line.source
                && !self.group.is_found(index)
                && let Ok(ips) = system(host).await
            {
                self.group.update(index, ips.into_iter().map(|ip| ResolvedAddress::plain(ip, *port)).collect());
            }
        }
    }

    /// Keeps a line's servers current; returns when there is nothing to do.
    pub async fn keep(self, line: usize, say: impl Fn(Word<'_>)) {
        let Some(source) = self.group.lines.get(line).map(|l| l.source.clone()) else { return };
        match source {
            Source::Fixed(_) => {}
            Source::Named { host, port } => self.keep_literal(line, &host, port, say).await,
            Source::Resolved { host, port, service } => {
                self.keep_resolved(line, &host, port, service.as_deref(), say).await;
            }
        }
    }

    /// Retries until the system resolves it; then constant until a reload, as in nginx.
    async fn keep_literal(&self, line: usize, host: &str, port: u16, say: impl Fn(Word<'_>)) {
        let mut pause = AGAIN_FIRST;
        let mut told = false;
        loop {
            let known = self.group.is_found(line);
            match system(host).await {
                Ok(ips) => {
                    let changed =
                        self.group.update(line, ips.into_iter().map(|ip| ResolvedAddress::plain(ip, port)).collect());
                    if changed && (told || !known) {
                        say(Word::Found { host, group: &self.group.name });
                    }
                    return;
                }
                // Addresses from before a reload stay in use.
                Err(_) if known => return,
                Err(why) if !told => {
                    told = true;
                    say(Word::Down { host, group: &self.group.name, why: &why });
                }
                Err(_) => {}
            }
            runtime::time::sleep(pause).await;
            pause = (pause * 2).min(AGAIN_LAST);
        }
    }

    async fn keep_resolved(&self, line: usize, host: &str, port: u16, service: Option<&str>, say: impl Fn(Word<'_>)) {
        let Some(resolver) = &self.resolver else { return };
        loop {
            let asked = match service {
                None => resolver.look(host, self.timeout).await.map(|(ips, valid)| {
                    let found = ips.iter().map(|ip| ResolvedAddress::plain(*ip, port)).collect();
                    (found, valid)
                }),
                Some(service) => resolver.service(host, service, self.timeout, &say).await,
            };
            let wait = match asked {
                Ok((found, valid)) => {
                    self.group.update(line, found);
                    valid
                }
                Err(why) => {
                    say(Word::Failed { host, service, why });
                    match why {
                        // NXDOMAIN: drops the servers of this line.
                        Failed::NoSuchName => {
                            self.group.update(line, Vec::new());
                            resolver.valid.unwrap_or(Duration::from_secs(10))
                        }
                        // Other failures keep the known addresses.
                        _ => self.timeout.max(Duration::from_secs(1)),
                    }
                }
            };
            runtime::time::sleep(wait.max(AGAIN_LEAST)).await;
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Word<'a> {
    Down { host: &'a str, group: &'a str, why: &'a str },
    Found { host: &'a str, group: &'a str },
    Failed { host: &'a str, service: Option<&'a str>, why: Failed },
    Target { host: &'a str, service: &'a str, of: &'a str, why: Failed },
}

impl std::fmt::Display for Word<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Word::Down { host, group, why } => {
                write!(f, "{why} in upstream \"{group}\": \"{host}\" is down until it resolves")
            }
            Word::Found { host, group } => write!(f, "\"{host}\" in upstream \"{group}\" is resolved now"),
            Word::Failed { host, service: None, why } => {
                write!(f, "{host} could not be resolved ({}: {why})", why.code())
            }
            Word::Failed { host, service: Some(service), why } => {
                write!(f, "service {service} of {host} could not be resolved ({}: {why})", why.code())
            }
            Word::Target { host, service, of, why } => write!(
                f,
                "{host} could not be resolved ({}: {why}) while resolving service {service} of {of}",
                why.code()
            ),
        }
    }
}
