//! `shared_store`: the store of state that several nodes share, for all areas. The crate `shared-store` does the work.
//!
//! The directive leaves its settings in a [`StoreSlot`], which may be filled after the zones that use it were read. The agent
//! is made when a configuration begins to serve, never by a test of a configuration, and is kept over reloads that do not
//! change its settings.

use crate::shared_secret::{SharedSecret, read_key_text};
use conf_schema::value::parse_msec;
use conf_schema::{Complaint, ComplaintLevel, Cx, Directive, Problem, ValueKind};
use metrics::store as row;
use observe::{ErrorLog, Severity};
pub use shared_store::StoreState;
use shared_store::{AgentOptions, StoreAddress, StoreAgent, StoreLoss};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

/// Time for the store's answer.
const PATIENCE: Duration = Duration::from_millis(500);
const PREFIX: &str = "tidegate";

/// Settings of a store, as a configuration has them.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct StoreSettings {
    /// As it is written.
    pub address_text: String,
    password: Option<String>,
    authorities: Option<Vec<u8>>,
    certificate: Option<(Vec<u8>, Vec<u8>)>,
    /// Of `key_file`.
    key: Option<Vec<u8>>,
    prefix: String,
    patience: Duration,
    loss: &'static str,
}

/// Without the password.
impl std::fmt::Debug for StoreSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StoreSettings({})", self.address_text)
    }
}

/// Where the directive leaves its settings, once, and zones find them after the whole configuration was read.
#[derive(Clone, Debug, Default)]
pub struct StoreSlot {
    settings: Arc<OnceLock<StoreSettings>>,
    /// Warnings that are due if there are no settings.
    missed: Arc<Mutex<Vec<Complaint>>>,
    /// Errors that are due if there is no secret.
    keyless: Arc<Mutex<Vec<Complaint>>>,
    starts: Arc<StoreStarts>,
}

/// Called when the store's agent runs.
type StoreStart = Box<dyn Fn(&Arc<StoreAgent>) + Send + Sync>;

/// Closures that are called with the agent.
#[derive(Default)]
struct StoreStarts(Mutex<Vec<StoreStart>>);

impl std::fmt::Debug for StoreStarts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StoreStarts")
    }
}

/// The agents that live, by their settings, with their metrics.
type Agents = HashMap<StoreSettings, (Weak<StoreAgent>, metrics::MetricZone<row::Of>)>;
static AGENTS: LazyLock<Mutex<Agents>> = LazyLock::new(Mutex::default);

impl StoreSlot {
    /// Returns the slot for a directive with `sync`. A configuration without a store gets a warning that the word
    /// has no effect, which ends with `lack`.
    pub fn for_sync(cx: &mut Cx, d: &Directive, name: &str, lack: &str) -> StoreSlot {
        let slot = cx.get::<StoreSlot>().clone();
        let directive = d.name.text();
        let text = format!("{directive} \"{name}\": \"sync\" has no effect without \"shared_store\": {lack}");
        let complaint = Complaint {
            level: ComplaintLevel::Warn,
            text,
            span: Some(d.span),
            line: d.line,
            hint: Some("write \"shared_store redis://HOST;\" in the main context".to_owned()),
        };
        slot.missed.lock().unwrap_or_else(PoisonError::into_inner).push(complaint);
        slot
    }

    /// Returns the settings. Call after the whole configuration was read.
    pub fn settings(&self) -> Option<&StoreSettings> {
        self.settings.get()
    }

    /// Lets a closure be called whenever the configuration begins to serve with a store: zones of other nodes are there before
    /// the first request asks for them. Call while the configuration is read.
    pub fn at_start(&self, start: impl Fn(&Arc<StoreAgent>) + Send + Sync + 'static) {
        self.starts.0.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(start));
    }

    /// Starts the agent, or takes over the running one, for a configuration that begins to serve.
    pub fn start(&self, log: &Arc<ErrorLog>) -> Option<Arc<StoreAgent>> {
        let agent = self.agent(log)?;
        self.starts.0.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|start| start(&agent));
        Some(agent)
    }

    /// Returns the slot for a directive whose secrets come into the store, encrypted. A configuration whose store has no `key_file`
    /// gets an error.
    pub fn for_key(cx: &mut Cx, words: &str) -> StoreSlot {
        let (slot, at) = (cx.get::<StoreSlot>().clone(), cx.at);
        let complaint = Complaint {
            span: Some(at.span),
            line: at.line,
            hint: Some(
                "write \"shared_store ... key_file=FILE;\" in the main context, a file of 32 random characters or more"
                    .to_owned(),
            ),
            ..Complaint::emerg(format!("\"{words}\" needs a \"shared_store\" with \"key_file\""))
        };
        slot.keyless.lock().unwrap_or_else(PoisonError::into_inner).push(complaint);
        slot
    }

    /// Returns the secret of a purpose, which all servers with the same `key_file` have.
    pub fn secret(&self, purpose: &str) -> Option<SharedSecret> {
        SharedSecret::derived(self.settings.get()?.key.as_ref()?, purpose, &[])
    }

    /// Returns the warnings of directives that have `sync` without a store, and an error of those that need a secret. Call after the
    /// whole configuration was read.
    pub fn take_complaints(&self) -> Vec<Complaint> {
        let take =
            |list: &Mutex<Vec<Complaint>>| std::mem::take(&mut *list.lock().unwrap_or_else(PoisonError::into_inner));
        let (mut missed, mut keyless) = (take(&self.missed), take(&self.keyless));
        let settings = self.settings.get();
        if settings.is_some() {
            missed.clear();
        }
        if settings.is_some_and(|settings| settings.key.is_some()) {
            keyless.clear();
        }
        missed.extend(keyless.into_iter().take(1));
        missed
    }

    /// Returns the agent, if it runs.
    pub fn running_agent(&self) -> Option<Arc<StoreAgent>> {
        let agents = AGENTS.lock().unwrap_or_else(PoisonError::into_inner);
        agents.get(self.settings.get()?).and_then(|(agent, _)| agent.upgrade())
    }

    /// Returns the agent, which is started if there is none. `None` without the directive, or if the system gives no
    /// thread, which is logged.
    pub fn agent(&self, log: &Arc<ErrorLog>) -> Option<Arc<StoreAgent>> {
        let settings = self.settings.get()?;
        let mut agents = AGENTS.lock().unwrap_or_else(PoisonError::into_inner);
        agents.retain(|_, (agent, _)| agent.strong_count() > 0);
        if let Some(agent) = agents.get(settings).and_then(|(agent, _)| agent.upgrade()) {
            return Some(agent);
        }
        match StoreAgent::start(settings.options(log.clone())) {
            Ok(agent) => {
                let agent = Arc::new(agent);
                let metrics = counted(&agent, &settings.address_text);
                agents.insert(settings.clone(), (Arc::downgrade(&agent), metrics));
                Some(agent)
            }
            Err(error) => {
                log.log(Severity::Alert, 0, format_args!("shared_store: no thread {}", observe::os_error(&error)));
                None
            }
        }
    }
}

/// Returns the addresses and states of all stores of the process.
pub fn store_states() -> Vec<(String, StoreState)> {
    let agents = AGENTS.lock().unwrap_or_else(PoisonError::into_inner);
    let living = agents.iter().filter_map(|(settings, (agent, _))| Some((settings, agent.upgrade()?)));
    living.map(|(settings, agent)| (settings.address_text.clone(), agent.state())).collect()
}

fn counted(agent: &Arc<StoreAgent>, address_text: &str) -> metrics::MetricZone<row::Of> {
    let (metrics, agent) = (metrics::MetricZone::named(&[address_text]), Arc::downgrade(agent));
    metrics.ask(move |values| {
        let Some(agent) = agent.upgrade() else { return };
        let state = agent.state();
        values.set(row::CONNECTED, u64::from(state.is_connected));
        values.set(row::NODES, state.nodes);
        values.set(row::PENDING, state.records_pending);
        values.set_count_at(row::RECORDS, 0, state.records_sent);
        values.set_count_at(row::RECORDS, 1, state.records_applied);
        values.set_count_at(row::RECORDS, 2, state.records_refused);
        values.set_count(row::FAILURES, state.failures);
        values.set_count_at(row::PERMITS, 0, state.permits_taken);
        values.set_count_at(row::PERMITS, 1, state.permits_refused);
    });
    metrics
}

impl StoreSettings {
    fn options(&self, log: Arc<ErrorLog>) -> AgentOptions {
        let address_text = self.address_text.clone();
        let report = move |is_failure: bool, words: &str| {
            let level = if is_failure { Severity::Error } else { Severity::Notice };
            log.log(level, 0, format_args!("shared_store \"{address_text}\": {words}"));
        };
        AgentOptions {
            // It was parsed before.
            address: StoreAddress::parse(&self.address_text).unwrap_or(StoreAddress::Memory),
            password: self.password.clone(),
            authorities: self.authorities.clone(),
            certificate: self.certificate.clone(),
            prefix: self.prefix.clone(),
            patience: self.patience,
            loss: loss_of(self.loss).unwrap_or_default(),
            node: node_number(),
            report: Box::new(report),
        }
    }
}

/// Random, for the lifetime of the process.
fn node_number() -> u64 {
    static NODE: LazyLock<u64> = LazyLock::new(|| {
        let mut bytes = [0; 8];
        // Without randomness, the clock distinguishes nodes.
        match aws_lc_rs::rand::fill(&mut bytes) {
            Ok(()) => u64::from_be_bytes(bytes),
            Err(_) => base::clock::unix_millis() ^ u64::from(std::process::id()) << 48,
        }
    });
    *NODE
}

/// Writes a zone's name as a part of a space's name, of letters, digits, `-`, `.` and `_`; different names stay different.
pub fn space_name(name: &str) -> String {
    let mut space = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' => space.push(char::from(byte)),
            other => space.push_str(&format!("_{other:02x}")),
        }
    }
    space
}

fn loss_of(word: &str) -> Option<StoreLoss> {
    Some(match word {
        "local" => StoreLoss::Local,
        "open" => StoreLoss::Open,
        "deny" => StoreLoss::Deny,
        _ => return None,
    })
}

/// `shared_store`
#[derive(Clone, Debug, Default)]
pub struct SharedStore;

impl ValueKind for SharedStore {
    const SYNTAX: &'static str = "address [prefix=name] [timeout=time] [password_file=file] [trusted_certificate=file] \
                                  [certificate=file certificate_key=file] [key_file=file] [fallback=local | open | deny]";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let text = d.args.first().map(|word| word.text().into_owned()).unwrap_or_default();
        let address = StoreAddress::parse(&text)
            .map_err(|fault| Problem::says(format!("invalid address: {}", fault.reason)).at(0).hint(fault.hint))?;
        let mut settings = StoreSettings {
            address_text: text,
            password: None,
            authorities: None,
            certificate: None,
            key: None,
            prefix: PREFIX.into(),
            patience: PATIENCE,
            loss: "local",
        };
        let (mut certificate, mut key) = (None, None);
        for (index, word) in d.args.iter().enumerate().skip(1) {
            let text = word.text();
            let invalid = || Problem::says(format!("invalid parameter \"{text}\"")).at(index);
            let (name, value) = text.split_once('=').filter(|(_, value)| !value.is_empty()).ok_or_else(invalid)?;
            match name {
                "prefix" => {
                    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
                    if !value.chars().all(is_plain) {
                        let hint = "a prefix is made of letters, digits, \"_\", \"-\", \".\" and \":\"";
                        return Err(invalid().hint(hint));
                    }
                    settings.prefix = value.to_string();
                }
                "timeout" => {
                    let millis = parse_msec(value.as_bytes()).filter(|millis| (1..=60_000).contains(millis));
                    settings.patience =
                        Duration::from_millis(millis.ok_or_else(|| invalid().hint("a time from 1ms to 60s"))?);
                }
                "password_file" => {
                    let bytes = read_file(cx, value, index)?;
                    let line = String::from_utf8_lossy(&bytes);
                    settings.password = Some(line.lines().next().unwrap_or_default().to_string());
                }
                "trusted_certificate" => settings.authorities = Some(read_pem(cx, value, index)?),
                "key_file" => {
                    let bytes = read_file(cx, value, index)?;
                    let fault = |fault: String| Problem::says(format!("\"{value}\": {fault}")).at(index);
                    let key = read_key_text(&bytes).map_err(fault);
                    settings.key =
                        Some(key.map_err(|problem| problem.hint("write it with \"openssl rand -base64 48\""))?);
                }
                "certificate" => certificate = Some(read_pem(cx, value, index)?),
                "certificate_key" => key = Some(read_pem(cx, value, index)?),
                "fallback" => {
                    let word = ["local", "open", "deny"].into_iter().find(|word| *word == value);
                    settings.loss = word.ok_or_else(|| invalid().hint("write local, open or deny"))?;
                }
                _ => return Err(invalid()),
            }
        }
        settings.certificate = match (certificate, key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => {
                return Err(Problem::says("\"certificate\" and \"certificate_key\" belong together"));
            }
        };
        let uses_tls = matches!(address, StoreAddress::Redis { uses_tls: true, .. });
        if !uses_tls && (settings.authorities.is_some() || settings.certificate.is_some()) {
            let problem = Problem::says("certificates have no effect on a connection in cleartext");
            return Err(problem.hint("the addresses with TLS begin with \"rediss\""));
        }
        // Another one is refused as a duplicate.
        let _ = cx.get::<StoreSlot>().settings.set(settings);
        Ok(SharedStore)
    }
}

fn read_file(cx: &mut Cx, name: &str, index: usize) -> Result<Vec<u8>, Problem> {
    let path = cx.full_name(name);
    let failed = |path: &Path, error: &std::io::Error| {
        Problem::says(format!("open() \"{}\" failed {}", path.display(), observe::os_error(error))).at(index)
    };
    Ok(cx.store.read(&path).map_err(|error| failed(&path, &error))?.to_vec())
}

fn read_pem(cx: &mut Cx, name: &str, index: usize) -> Result<Vec<u8>, Problem> {
    let bytes = read_file(cx, name, index)?;
    match bytes.windows(11).any(|window| window == b"-----BEGIN ") {
        true => Ok(bytes),
        false => Err(Problem::says(format!("no PEM in \"{name}\"")).at(index)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use conf_schema::table::synthetic_directive;

    fn parse(text: &str) -> Result<StoreSettings, String> {
        let mut cx = Cx::default();
        let result = SharedStore::parse(&mut cx, &synthetic_directive("shared_store", text));
        result.map_err(|problem| format!("{problem:?}"))?;
        Ok(cx.get::<StoreSlot>().settings.get().expect("settings").clone())
    }

    #[test]
    fn parameters_are_read() {
        let settings = parse("redis://a prefix=shop.eu timeout=50ms fallback=deny").expect("in order");
        assert_eq!((settings.prefix.as_str(), settings.patience), ("shop.eu", Duration::from_millis(50)));
        assert_eq!(loss_of(settings.loss), Some(StoreLoss::Deny));
        assert_eq!(parse("memory:").expect("in order").prefix, "tidegate");
    }

    #[test]
    fn wrong_parameters_are_refused() {
        for (text, words) in [
            ("http://a", "unknown scheme"),
            ("redis://me:secret@a", "password_file=FILE"),
            ("redis://a x", "invalid parameter \\\"x\\\""),
            ("redis://a x=1", "invalid parameter"),
            ("redis://a prefix=", "invalid parameter"),
            ("redis://a prefix=a*b", "a prefix is made of"),
            ("redis://a timeout=0", "1ms to 60s"),
            ("redis://a timeout=2m", "1ms to 60s"),
            ("redis://a fallback=shut", "local, open or deny"),
            ("redis://a password_file=/none/such", "open()"),
            ("rediss://a trusted_certificate=/none/such", "open()"),
            ("redis://a key_file=/none/such", "open()"),
            ("redis://a key_file=/dev/null", "less than 32 characters"),
        ] {
            let problem = parse(text).expect_err(text);
            assert!(problem.contains(words), "{text}: {problem}");
        }
    }
}
