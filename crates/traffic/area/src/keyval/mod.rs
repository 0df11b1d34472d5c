//! keyval (nginx: `ngx_http_keyval_module`, `ngx_stream_keyval_module`): variables by lookup of a key in a zone of
//! pairs that change at run time; the zones themselves are the crate `keyval`.
//!
//! Zones outlive reloads. Only a zone that is new to the process reads its state file.

mod keeping;
mod sharing;
#[cfg(test)]
mod tests;

pub use keeping::StateKeeper;

use crate::zones;
use conf_schema::value::parse_msec;
use conf_schema::{At, Cx, Directive, Problem, ValueKind};
use keyval::{KeyMatch, KeyvalPair, KeyvalZone, PairChange, Refusal, state_file};
use sharing::SharedPairs;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use variables::variable::{Compute, VariableTable};
use variables::{AreaTypes, Template};

const KIND: &str = "keyval";

/// A zone as a configuration declares it: the interface of an API, which adds, changes and lists pairs.
pub struct Keyval {
    pub name: String,
    pub zone: Arc<KeyvalZone>,
    /// Default lifetime of a pair in milliseconds. Without it no pair may have a lifetime.
    pub timeout: Option<u64>,
    pub state: Option<PathBuf>,
    /// With `sync`.
    sharing: Option<SharedPairs>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyvalFailure {
    Refused(Refusal),
    /// A lifetime was given, and the zone has no `timeout`.
    NoTimeout,
}

impl From<Refusal> for KeyvalFailure {
    fn from(refusal: Refusal) -> KeyvalFailure {
        KeyvalFailure::Refused(refusal)
    }
}

impl std::fmt::Display for KeyvalFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            KeyvalFailure::Refused(refusal) => refusal.fmt(f),
            KeyvalFailure::NoTimeout => f.write_str("keyval timeout is not enabled"),
        }
    }
}

/// A pair to add, with its lifetime in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Addition<'a> {
    pub key: &'a str,
    pub value: &'a str,
    pub lifetime: Option<u64>,
}

impl Keyval {
    fn expires(&self, lifetime: Option<u64>, now: u64) -> Result<Option<u64>, KeyvalFailure> {
        match (self.timeout, lifetime) {
            (None, Some(_)) => Err(KeyvalFailure::NoTimeout),
            (None, None) => Ok(None),
            (Some(timeout), lifetime) => Ok(Some(now.saturating_add(lifetime.unwrap_or(timeout)))),
        }
    }
    fn pair(&self, addition: &Addition<'_>, now: u64) -> Result<KeyvalPair, KeyvalFailure> {
        Ok(KeyvalPair::new(addition.key, addition.value, self.expires(addition.lifetime, now)?))
    }
    /// # Errors
    /// See [`KeyvalZone::add`] and [`KeyvalFailure`].
    pub fn add(&self, addition: &Addition<'_>) -> Result<(), KeyvalFailure> {
        let now = base::clock::unix_millis();
        let pair = self.pair(addition, now)?;
        self.change_key(addition.key, now, || Ok(self.zone.add(pair, now)?))
    }
    /// Adds several pairs to an empty zone, all or none.
    ///
    /// # Errors
    /// See [`KeyvalZone::fill`] and [`KeyvalFailure`].
    pub fn fill(&self, additions: &[Addition<'_>]) -> Result<(), KeyvalFailure> {
        let now = base::clock::unix_millis();
        let pairs = additions.iter().map(|addition| self.pair(addition, now)).collect::<Result<_, _>>()?;
        let fill = || Ok(self.zone.fill(pairs, now)?);
        match self.replica() {
            None => fill(),
            Some(replica) => {
                let mut result = Ok(());
                replica.change_all(now, || result = fill());
                result
            }
        }
    }
    /// Changes a pair's value, its lifetime, or both. A new value starts the zone's timeout anew.
    ///
    /// # Errors
    /// See [`KeyvalZone::change`] and [`KeyvalFailure`].
    pub fn change(&self, key: &str, value: Option<&str>, lifetime: Option<u64>) -> Result<(), KeyvalFailure> {
        let now = base::clock::unix_millis();
        let change = PairChange { value, expires: self.expires(lifetime, now)? };
        self.change_key(key, now, || Ok(self.zone.change(key, change, now)?))
    }
    /// # Errors
    /// See [`KeyvalZone::remove`].
    pub fn remove(&self, key: &str) -> Result<(), KeyvalFailure> {
        let now = base::clock::unix_millis();
        self.change_key(key, now, || Ok(self.zone.remove(key, now)?))
    }
    /// Removes all pairs.
    pub fn clear(&self) {
        match self.replica() {
            None => self.zone.clear(),
            Some(replica) => replica.change_all(base::clock::unix_millis(), || self.zone.clear()),
        }
    }
    pub fn get(&self, key: &str) -> Option<KeyvalPair> {
        self.zone.get(key, base::clock::unix_millis())
    }
    /// Sorted by key.
    pub fn list(&self) -> Vec<KeyvalPair> {
        self.zone.list(base::clock::unix_millis())
    }
}

/// `keyval_zone`; zones are found by name.
pub struct KeyvalZones<A>(PhantomData<fn(A)>);

impl<A> Clone for KeyvalZones<A> {
    fn clone(&self) -> Self {
        KeyvalZones(PhantomData)
    }
}

/// Zones of an area, in the order of their declaration.
pub struct DeclaredKeyvals<A> {
    all: Vec<Arc<Keyval>>,
    area: PhantomData<fn(A)>,
}

impl<A> Default for DeclaredKeyvals<A> {
    fn default() -> Self {
        DeclaredKeyvals { all: Vec::new(), area: PhantomData }
    }
}

impl<A: AreaTypes> ValueKind for KeyvalZones<A> {
    const SYNTAX: &'static str = "zone=name:size [state=file] [timeout=time] [type=string | ip | prefix] [sync]";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let (mut zone, mut state, mut timeout, mut matching) = (None, None, None, None);
        let mut sync = None;
        for (index, word) in d.args.iter().enumerate() {
            let text = word.text();
            let invalid = || Problem::says(format!("invalid parameter \"{text}\"")).at(index);
            if text.starts_with("zone=") && zone.is_none() {
                zone = Some(zones::name_and_size(d, index)?);
            } else if let Some(path) = text.strip_prefix("state=").filter(|path| !path.is_empty() && state.is_none()) {
                state = Some((cx.full_name(path), index));
            } else if let Some(time) = text.strip_prefix("timeout=").filter(|_| timeout.is_none()) {
                let wrong = || Problem::says(format!("invalid timeout value \"{time}\"")).at(index);
                timeout = Some(parse_msec(time.as_bytes()).filter(|ms| *ms > 0).ok_or_else(wrong)?);
            } else if let Some(name) = text.strip_prefix("type=").filter(|_| matching.is_none()) {
                matching = Some(match name {
                    "string" => KeyMatch::String,
                    "ip" => KeyMatch::Ip,
                    "prefix" => KeyMatch::Prefix,
                    _ => return Err(invalid().hint("the types are string, ip and prefix")),
                });
            } else if text == "sync" && sync.is_none() {
                sync = Some(index);
            } else {
                return Err(invalid());
            }
        }
        let (name, size) = match zone {
            Some((name, size)) if !name.is_empty() => (name, size),
            _ => return Err(Problem::says("\"keyval_zone\" must have \"zone\" parameter")),
        };
        if let Some(index) = sync.filter(|_| timeout.is_none()) {
            let problem = Problem::says("\"sync\" requires the \"timeout\" parameter").at(index);
            return Err(problem.hint("set \"timeout\": pairs on other servers are removed only by their timeout"));
        }
        let sharing = sync.map(|_| SharedPairs::new::<A>(cx, d, &name));
        let matching = matching.unwrap_or_default();
        if let Some((path, index)) = &state
            && !cx.store.replay
            && !cx.store.elsewhere
        {
            check_state(path, size, matching, timeout).map_err(|problem| problem.at(*index))?;
        }
        let zone = zones::zone_state(KIND, &name, size, &[matching as u8], || KeyvalZone::new(size, matching));
        let state = state.map(|(path, _)| path);
        let keyval = Arc::new(Keyval { name: name.clone(), zone, timeout, state, sharing });
        zones::declare_named::<A, _>(cx, d, KIND, &name, keyval.clone())?;
        cx.get::<DeclaredKeyvals<A>>().all.push(keyval);
        Ok(KeyvalZones(PhantomData))
    }
}

/// Declares a zone of strings for a feature, as `keyval_zone zone=NAME:SIZE` does.
///
/// # Errors
/// The name is taken.
pub fn declare_zone<A: AreaTypes>(cx: &mut Cx, d: &Directive, name: &str, size: u64) -> Result<Arc<Keyval>, Problem> {
    let matching = KeyMatch::String;
    let zone = zones::zone_state(KIND, name, size, &[matching as u8], || KeyvalZone::new(size, matching));
    let keyval = Arc::new(Keyval { name: name.to_string(), zone, timeout: None, state: None, sharing: None });
    zones::declare_named::<A, _>(cx, d, KIND, name, keyval.clone())?;
    cx.get::<DeclaredKeyvals<A>>().all.push(keyval.clone());
    Ok(keyval)
}

/// Finds a zone by its name, after the whole configuration was read.
///
/// # Errors
/// A zone that is not declared, or of another kind.
pub fn find_zone<A: AreaTypes>(cx: &mut Cx, name: &str) -> Result<Arc<Keyval>, Problem> {
    zones::find_named::<A, Keyval>(cx, KIND, name)
        .map_err(|problem| problem.hint(format!("declare it: keyval_zone zone={name}:1m;")))
}

/// Reads the pairs of a state file, none if the file does not exist.
fn read_state(path: &Path, timeout: Option<u64>, now: u64) -> Result<Vec<KeyvalPair>, String> {
    let text = match conf_syntax::read_regular(path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(format!("open() \"{}\" failed {}", path.display(), observe::os_error(&e))),
    };
    state_file::parse_state(&text, timeout, now).map_err(|e| format!("invalid state file \"{}\": {e}", path.display()))
}

/// Finds out before the start whether the file can be read and its pairs fit into the zone.
fn check_state(path: &Path, size: u64, matching: KeyMatch, timeout: Option<u64>) -> Result<(), Problem> {
    let now = base::clock::unix_millis();
    let pairs = read_state(path, timeout, now).map_err(Problem::says)?;
    KeyvalZone::new(size, matching).fill(pairs, now).map_err(|refusal| {
        Problem::says(format!("the pairs of \"{}\" do not fit the zone: {refusal}", path.display()))
            .hint("give the zone a larger size, or keep the type that the file was written with")
    })
}

/// `keyval`
pub struct KeyvalLookups<A>(PhantomData<fn(A)>);

impl<A> Clone for KeyvalLookups<A> {
    fn clone(&self) -> Self {
        KeyvalLookups(PhantomData)
    }
}

/// A zone that may be declared after the lines that name it.
type NamedZones = Arc<OnceLock<Arc<KeyvalZone>>>;

struct PendingZone<A> {
    all: Vec<(String, At, NamedZones)>,
    area: PhantomData<fn(A)>,
}

impl<A> Default for PendingZone<A> {
    fn default() -> Self {
        PendingZone { all: Vec::new(), area: PhantomData }
    }
}

impl<A: AreaTypes> ValueKind for KeyvalLookups<A> {
    const SYNTAX: &'static str = "key $variable zone=name";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let [key, target, zone] = d.args.as_slice() else { return Err(Problem::invalid()) };
        let key = Template::<A>::compile(cx, d, &key.bytes).map_err(|p| p.at(0))?;
        let name = target.text().into_owned();
        let Some(name) = name.strip_prefix('$').filter(|n| !n.is_empty()) else {
            return Err(Problem::says(format!("invalid variable name \"{name}\""))
                .at(1)
                .hint("a variable name begins with \"$\""));
        };
        let text = zone.text();
        let Some(zone_name) = text.strip_prefix("zone=").filter(|zone| !zone.is_empty()) else {
            return Err(Problem::says(format!("invalid parameter \"{text}\"")).at(2).hint("write zone=NAME"));
        };
        let zone = NamedZones::default();
        let lookup = KeyvalLookup { key, zone: zone.clone() };
        // Not kept with the request: a token's claims, say, are known only from the access phase on.
        cx.get::<VariableTable<A>>().computed(name, Arc::new(lookup), true).map_err(|p| p.at(1))?;
        let at = At { span: d.span, line: d.line };
        cx.get::<PendingZone<A>>().all.push((zone_name.to_string(), at, zone));
        Ok(KeyvalLookups(PhantomData))
    }
}

/// Connects variables with their zones, after the whole configuration was read. Returns the area's zones.
///
/// # Errors
/// A zone that is not declared, or of another kind.
pub fn connect_variables<A: AreaTypes>(cx: &mut Cx) -> Result<Vec<Arc<Keyval>>, Problem> {
    for (name, at, named) in cx.take::<PendingZone<A>>().all {
        let found = find_zone::<A>(cx, &name).map_err(|mut problem| {
            problem.inner = Some(at);
            problem
        })?;
        let _ = named.set(found.zone.clone());
    }
    Ok(cx.take::<DeclaredKeyvals<A>>().all)
}

struct KeyvalLookup<A: AreaTypes> {
    key: Template<A>,
    zone: NamedZones,
}

impl<A: AreaTypes> Compute<A> for KeyvalLookup<A> {
    fn get(&self, s: &mut A::Session, out: &mut Vec<u8>) -> bool {
        let Some(zone) = self.zone.get() else { return false };
        let key = self.key.eval(s);
        zone.find(&key, base::clock::unix_millis(), |value| out.extend_from_slice(value.as_bytes())).is_some()
    }
}
