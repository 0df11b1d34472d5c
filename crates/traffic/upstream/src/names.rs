//! Repeated name resolution of a group's lines, on the control thread.

use crate::group::{Group, ServerSource};
use crate::line::{Entry, is_named};
use resolver::{NameResolver, ResolveFailure};
use resolver::{ResolvedAddress, Word};
use runtime::task::JoinSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// First interval, and maximum (by doubling), of retries with the system.
const AGAIN_FIRST: Duration = Duration::from_secs(1);
const AGAIN_LAST: Duration = Duration::from_secs(30);
/// Least interval between queries of a name, whatever its TTL.
const AGAIN_LEAST: Duration = Duration::from_secs(1);

/// Resolution of a group's names; made for each configuration. [`NameTask::prepare`] before the start, then
/// [`NameTask::keep`].
#[derive(Clone, Debug)]
pub struct NameTask {
    /// The group whose lines are updated.
    pub group: Arc<Group>,
    /// The `resolver` for lines with `resolve`; without one these stay as they are.
    pub resolver: Option<Arc<NameResolver>>,
    /// `resolver_timeout`.
    pub timeout: Duration,
}

/// Asks the system on a separate thread.
pub async fn ask_system(host: &str) -> Result<Vec<IpAddr>, String> {
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

impl NameTask {
    /// Tells whether there are names, or an API may add some.
    pub fn is_needed(&self) -> bool {
        let may_come = self.resolver.is_some() && self.group.extras.roster.is_some();
        may_come || self.group.lines().iter().any(|entry| is_named(&entry.line))
    }

    /// Resolves names without addresses once, with the system. Failures are left to [`NameTask::keep`].
    pub async fn prepare(self) {
        for (index, entry) in self.group.lines().into_iter().enumerate() {
            if let ServerSource::Named { host, port } = &entry.line.source
                && entry.found.is_empty()
                && let Ok(ips) = ask_system(host).await
            {
                self.update(index, &entry, ips.into_iter().map(|ip| ResolvedAddress::plain(ip, *port)).collect());
            }
        }
    }

    /// Keeps the servers of all lines current. Returns when nothing can change.
    pub async fn keep(self, say: impl Fn(Word<'_>) + Clone + 'static) {
        let mut running: Vec<(u64, ServerSource)> = Vec::new();
        let mut tasks = JoinSet::new();
        loop {
            let seen = self.group.generation();
            let lines = self.group.lines();
            let is_there = |(number, source): &(u64, ServerSource)| {
                lines.iter().any(|entry| entry.number == *number && entry.line.source == *source)
            };
            running.retain(is_there);
            // (Without a roster all lines have the number 0, and never change.)
            let is_new = |entry: &Entry| {
                let id = (entry.number, entry.line.source.clone());
                is_named(&entry.line) && (self.group.extras.roster.is_none() || !running.contains(&id))
            };
            let new: Vec<(usize, Entry)> = lines.iter().cloned().enumerate().filter(|(_, e)| is_new(e)).collect();
            for (index, entry) in new {
                running.push((entry.number, entry.line.source.clone()));
                tasks.spawn_local(self.clone().keep_line(index, entry, say.clone()));
            }
            if self.group.extras.roster.is_none() {
                while tasks.join_next().await.is_some() {}
                return;
            }
            self.group.changed_since(seen).await;
            tasks.reap();
        }
    }

    async fn keep_line(self, index: usize, entry: Entry, say: impl Fn(Word<'_>)) {
        let kept = KeptLine { naming: &self, index, entry: &entry };
        match &entry.line.source {
            ServerSource::Fixed(_) => {}
            ServerSource::Named { host, port } => kept.keep_literal(host, *port, say).await,
            ServerSource::Resolved { host, port, service } => {
                kept.keep_resolved(host, *port, service.as_deref(), say).await
            }
        }
    }

    /// Updates the servers of a line. Lines that can be removed are found by number.
    fn update(&self, index: usize, entry: &Entry, now: Vec<ResolvedAddress>) -> bool {
        match self.group.extras.roster {
            Some(_) => self.group.update_numbered(entry.number, &entry.line.source, now),
            None => self.group.update(index, now),
        }
    }
}

/// A line whose name is asked for.
struct KeptLine<'a> {
    naming: &'a NameTask,
    index: usize,
    entry: &'a Entry,
}

impl KeptLine<'_> {
    fn group(&self) -> &Group {
        &self.naming.group
    }
    fn stays(&self) -> bool {
        let Entry { number, line, .. } = self.entry;
        self.group().lines().iter().any(|entry| entry.number == *number && entry.line.source == line.source)
    }
    fn is_found(&self) -> bool {
        let Entry { number, line, .. } = self.entry;
        match self.group().extras.roster {
            None => self.group().is_found(self.index),
            Some(_) => {
                let lines = self.group().lines();
                lines.iter().any(|e| e.number == *number && e.line.source == line.source && !e.found.is_empty())
            }
        }
    }
    fn update(&self, now: Vec<ResolvedAddress>) -> bool {
        self.naming.update(self.index, self.entry, now)
    }

    /// Retries until the system resolves it; then constant until a reload, as in nginx.
    async fn keep_literal(&self, host: &str, port: u16, say: impl Fn(Word<'_>)) {
        let group = &self.group().name;
        let mut pause = AGAIN_FIRST;
        let mut told = false;
        while self.stays() {
            let known = self.is_found();
            match ask_system(host).await {
                Ok(ips) => {
                    let changed = self.update(ips.into_iter().map(|ip| ResolvedAddress::plain(ip, port)).collect());
                    if changed && (told || !known) {
                        say(Word::Found { host, group });
                    }
                    return;
                }
                // Addresses from before a reload stay in use.
                Err(_) if known => return,
                Err(why) if !told => {
                    told = true;
                    say(Word::Down { host, group, why: &why });
                }
                Err(_) => {}
            }
            runtime::time::sleep_for(pause).await;
            pause = (pause * 2).min(AGAIN_LAST);
        }
    }

    async fn keep_resolved(&self, host: &str, port: u16, service: Option<&str>, say: impl Fn(Word<'_>)) {
        let Some(resolver) = &self.naming.resolver else { return };
        let timeout = self.naming.timeout;
        while self.stays() {
            let asked = match service {
                None => resolver.look(host, timeout).await.map(|(ips, valid)| {
                    let found = ips.iter().map(|ip| ResolvedAddress::plain(*ip, port)).collect();
                    (found, valid)
                }),
                Some(service) => resolver.service(host, service, timeout, &say).await,
            };
            let wait = match asked {
                Ok((found, valid)) => {
                    self.update(found);
                    valid
                }
                Err(why) => {
                    say(Word::Failed { host, service, why });
                    match why {
                        // NXDOMAIN: drops the servers of this line.
                        ResolveFailure::NoSuchName => {
                            self.update(Vec::new());
                            resolver.valid.unwrap_or(Duration::from_secs(10))
                        }
                        // Other failures keep the known addresses.
                        _ => timeout.max(Duration::from_secs(1)),
                    }
                }
            };
            runtime::time::sleep_for(wait.max(AGAIN_LEAST)).await;
        }
    }
}
