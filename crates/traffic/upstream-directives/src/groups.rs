//! Groups of a configuration by name, in `Cx`.

use super::state::StateFile;
use area::background::{Background, LocalFuture};
use area::host_port::host_and_port;
use area::listen;
use conf_schema::Problem;
use conf_schema::value::parse_decimal;
use observe::{ErrorLog, Severity};
use resolver::Word;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use upstream::names::NameTask;
use upstream::{Group, Roster, ServerSource};

pub struct UpstreamRef<R> {
    pub group: Arc<Group>,
    /// Templates evaluated per session: the key of `hash`, and the area's.
    pub rules: Option<Arc<R>>,
}

impl<R> Clone for UpstreamRef<R> {
    fn clone(&self) -> Self {
        UpstreamRef { group: self.group.clone(), rules: self.rules.clone() }
    }
}

impl<R> UpstreamRef<R> {
    pub fn plain(group: Arc<Group>) -> Self {
        UpstreamRef { group, rules: None }
    }
}

pub struct AreaGroups<R> {
    blocks: HashMap<String, UpstreamRef<R>>,
    /// Hosts of literal URLs; a URL with variables that names one uses its addresses.
    implied: Arc<Mutex<HashMap<String, UpstreamRef<R>>>>,
    pub names: Arc<GroupNames>,
}

impl<R> Clone for AreaGroups<R> {
    fn clone(&self) -> Self {
        AreaGroups { blocks: self.blocks.clone(), implied: self.implied.clone(), names: self.names.clone() }
    }
}

impl<R> Default for AreaGroups<R> {
    fn default() -> Self {
        AreaGroups { blocks: HashMap::new(), implied: Arc::default(), names: Arc::default() }
    }
}

impl<R> AreaGroups<R> {
    /// Fails on a duplicate.
    pub fn add(&mut self, name: &str, named: UpstreamRef<R>) -> Result<(), Problem> {
        if self.blocks.insert(name.to_ascii_lowercase(), named).is_some() {
            return Err(Problem::says(format!("duplicate upstream \"{name}\"")));
        }
        Ok(())
    }
    pub fn get(&self, name: &str) -> Option<&UpstreamRef<R>> {
        self.blocks.get(&name.to_ascii_lowercase())
    }
    pub fn imply(&mut self, host: &str, named: &UpstreamRef<R>) {
        let mut implied = self.implied.lock().unwrap_or_else(PoisonError::into_inner);
        implied.entry(host.to_ascii_lowercase()).or_insert_with(|| named.clone());
    }
    pub fn implied(&self, host: &str) -> Option<UpstreamRef<R>> {
        let implied = self.implied.lock().unwrap_or_else(PoisonError::into_inner);
        implied.get(&host.to_ascii_lowercase()).cloned()
    }
}

/// Name resolution of a configuration's groups, on the control thread.
#[derive(Default)]
pub struct GroupNames(Mutex<Vec<NameTask>>, Mutex<Vec<(Arc<Roster>, Arc<StateFile>)>>);

impl GroupNames {
    /// Reads a group's state file before its first request.
    pub fn restore(&self, roster: &Arc<Roster>, file: &Arc<StateFile>) {
        self.1.lock().unwrap_or_else(PoisonError::into_inner).push((roster.clone(), file.clone()));
    }
    /// Returns the errors of state files that could not be read.
    fn load_states(&self) -> Vec<String> {
        let states = self.1.lock().unwrap_or_else(PoisonError::into_inner).clone();
        states.iter().filter_map(|(roster, file)| file.load(roster).err()).collect()
    }
    fn log_states(&self, log: &ErrorLog) {
        for why in self.load_states() {
            log.log(Severity::Crit, 0, format_args!("{why}; its group has no servers and cannot be changed"));
        }
        for (_, file) in self.1.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            if let Err(e) = file.check_folder() {
                let path = file.path.display();
                let why = observe::os_error(&e);
                log.log(Severity::Warn, 0, format_args!("the folder of \"{path}\" cannot be written {why}"));
            }
        }
    }
    /// Keeps a group's servers current with its names, if any.
    pub fn keep(&self, naming: NameTask) {
        if naming.is_needed() {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(naming);
        }
    }
    fn all(&self) -> Vec<NameTask> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl<P: Send + Sync + 'static> Background<P> for GroupNames {
    fn prepare(self: Arc<Self>, _: Arc<P>) -> LocalFuture<()> {
        // At once, before work that needs the servers.
        let _ = self.load_states();
        Box::pin(async move {
            let all: Vec<_> = self.all().into_iter().map(|n| runtime::task::spawn_local(n.prepare())).collect();
            for one in all {
                let _ = one.await;
            }
        })
    }
    fn run(self: Arc<Self>, _: Weak<P>, log: Arc<ErrorLog>) -> LocalFuture<()> {
        Box::pin(async move {
            self.log_states(&log);
            let mut tasks = runtime::task::JoinSet::new();
            for naming in self.all() {
                let log = log.clone();
                let say = move |word: Word<'_>| {
                    let level = match word {
                        Word::Down { .. } => Severity::Warn,
                        Word::Found { .. } => Severity::Notice,
                        Word::Failed { .. } | Word::Target { .. } => Severity::Error,
                    };
                    log.log(level, 0, format_args!("{word}"));
                };
                tasks.spawn_local(naming.keep(say));
            }
            while tasks.join_next().await.is_some() {}
        })
    }
    fn unsettled(&self, _: &P) -> Vec<String> {
        let mut words = Vec::new();
        for naming in self.all() {
            for (index, entry) in naming.group.lines().iter().enumerate() {
                if let ServerSource::Named { host, .. } = &entry.line.source
                    && !naming.group.is_found(index)
                {
                    let why = "host not found";
                    words.push(Word::Down { host, group: &naming.group.name, why }.to_string());
                }
            }
        }
        words
    }
}

/// Source of a host's servers: an address, or a name for the system. Fails with nginx's message.
pub fn server_source(text: &str) -> Result<ServerSource, String> {
    let is_address = text.starts_with("unix:") || text.starts_with('[') || {
        let host = text.rsplit_once(':').map_or(text, |(host, _)| host);
        host.parse::<IpAddr>().is_ok()
    };
    if is_address {
        // Only listeners have port ranges.
        if !text.starts_with("unix:") && text.rsplit_once(':').is_some_and(|(_, port)| port.contains('-')) {
            return Err("invalid port".into());
        }
        // nginx reads the port before the address.
        if text.split_once("]:").is_some_and(|(_, port)| parse_decimal::<u16>(port).is_none()) {
            return Err("invalid port".into());
        }
        return Ok(ServerSource::Fixed(listen::parse_addresses(text, 80)?));
    }
    let (host, port) = host_and_port(text)?;
    let fits = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.' | b'_') || c >= 0x80;
    if !host.bytes().all(fits) {
        return Err("invalid host".into());
    }
    Ok(ServerSource::Named { host: host.into(), port: port.unwrap_or(80) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use net::Address;

    #[test]
    fn sources_are_addresses_or_names() {
        let named = |host: &str, port| Ok(ServerSource::Named { host: host.into(), port });
        let fixed = |text: &str| Ok(ServerSource::Fixed(vec![Address::Ip(text.parse().unwrap())]));
        for (text, want) in [
            ("a.example", named("a.example", 80)),
            ("a:81", named("a", 81)),
            ("127.0.0.1:81", fixed("127.0.0.1:81")),
            ("127.0.0.1", fixed("127.0.0.1:80")),
            ("[::1]:81", fixed("[::1]:81")),
            ("unix:/s", Ok(ServerSource::Fixed(vec![Address::Unix("/s".into())]))),
            ("a:0", Err("invalid port".into())),
            ("127.0.0.1:1-5", Err("invalid port".into())),
            ("a b", Err("invalid host".into())),
        ] {
            assert_eq!(server_source(text), want, "{text}");
        }
    }
}
