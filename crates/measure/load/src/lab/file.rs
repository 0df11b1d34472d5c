//! Format of an experiment: TOML, which can hold server configurations as text.

use std::collections::BTreeMap;

use figures::units::{parse_count, parse_seconds};
use serde::Deserialize;

use super::LabOptions;
use super::scale::Scale;
use crate::engine::request::{Expect, RequestSpec};

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lab {
    pub title: String,
    #[serde(default)]
    pub about: String,
    #[serde(default = "default_duration")]
    pub duration: String,
    #[serde(default = "default_warmup")]
    pub warmup: String,
    #[serde(default = "default_rounds")]
    pub rounds: usize,
    #[serde(default)]
    pub base: String,
    /// Client threads; one per client processor when 0.
    #[serde(default)]
    pub threads: usize,
    /// Runs one server at a time, for servers whose idle processes disturb others.
    #[serde(default)]
    pub isolate: bool,
    /// Files of the experiment's directory, by name; `size:5120` generates random bytes.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Commands run in that directory before anything starts.
    #[serde(default)]
    pub setup: Vec<String>,
    #[serde(default, rename = "backend")]
    pub backends: Vec<LabServer>,
    #[serde(rename = "server")]
    pub servers: Vec<LabServer>,
    #[serde(rename = "workload")]
    pub workloads: Vec<Workload>,
}

/// A process to start. In `command` and `files`, `@DIR@` is the experiment's directory, `@PORT@` the server's port,
/// `@PORT2@` to `@PORT9@` further ones, `@PORT:name@` a backend's, `@CPUS@` the number of the servers' processors,
/// `@FILE@` the directory of the experiment's file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabServer {
    pub name: String,
    /// Run without a shell, split at white space; must stay in the foreground. Empty for a backend as server.
    #[serde(default)]
    pub command: String,
    /// Name of a backend that is measured directly as a server.
    #[serde(default)]
    pub backend: String,
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Path requested until any answer arrives.
    #[serde(default = "default_ready")]
    pub ready: String,
    /// Command whose first output line names the version.
    #[serde(default)]
    pub version: String,
    #[serde(default)]
    pub tls: bool,
    /// Role of further processes, for the report.
    #[serde(default)]
    pub note: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    pub name: String,
    /// `connections`, `users`, `rate`, `connection-rate`.
    pub load: String,
    /// Levels: numbers, or `"80%"` of any server's greatest rate in a short closed loop.
    pub values: Vec<LoadLevel>,
    #[serde(default)]
    pub path: String,
    #[serde(default)]
    pub requests: Vec<RequestSpec>,
    #[serde(default)]
    pub headers: Vec<String>,
    #[serde(default)]
    pub expect: Expect,
    #[serde(default)]
    pub think: String,
    #[serde(default)]
    pub calls: Option<u32>,
    #[serde(default)]
    pub arrivals: String,
    #[serde(default = "default_connections")]
    pub connections: usize,
    #[serde(default = "default_timeout")]
    pub timeout: String,
    #[serde(default)]
    pub resume: bool,
    /// HTTP/2 with so many streams per connection.
    #[serde(default)]
    pub streams: Option<usize>,
    /// HTTP/3 instead, with `streams` or one stream per connection.
    #[serde(default)]
    pub http3: bool,
    /// HTTP/3: resumed connections send their first requests as 0-RTT data.
    #[serde(default)]
    pub early_data: bool,
    #[serde(default)]
    pub servers: Vec<String>,
    /// Upstream servers that are added and removed as the load changes.
    #[serde(default)]
    pub scale: Option<Scale>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "a level is a number, or a share such as \"80%\"")]
pub enum LoadLevel {
    Number(f64),
    Share(String),
}

fn default_duration() -> String {
    "2s".into()
}
fn default_warmup() -> String {
    "300ms".into()
}
fn default_rounds() -> usize {
    3
}
fn default_ready() -> String {
    "/".into()
}
fn default_connections() -> usize {
    2000
}
fn default_timeout() -> String {
    "5s".into()
}

impl std::fmt::Display for LoadLevel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LoadLevel::Number(value) => write!(f, "{value}"),
            LoadLevel::Share(text) => write!(f, "\"{text}\""),
        }
    }
}

impl LoadLevel {
    pub fn value(&self, greatest: f64) -> Option<f64> {
        match self {
            LoadLevel::Number(v) => Some(*v),
            LoadLevel::Share(text) => match text.strip_suffix('%') {
                Some(share) => share.trim().parse::<f64>().ok().map(|s| (greatest * s / 100.0).round().max(1.0)),
                None => parse_count(text),
            },
        }
        .filter(|v| *v > 0.0 && v.is_finite())
    }
    pub fn is_share(&self) -> bool {
        matches!(self, LoadLevel::Share(text) if text.ends_with('%'))
    }
}

impl Workload {
    pub fn quantity(&self) -> &'static str {
        match self.load.as_str() {
            "connections" => "connections",
            "users" => "users",
            "rate" => "requests/s offered",
            _ => "connections/s offered",
        }
    }
    pub fn is_open(&self) -> bool {
        matches!(self.load.as_str(), "rate" | "connection-rate")
    }
    /// Requests, with the workload's expectation as default.
    pub fn specs(&self) -> Vec<RequestSpec> {
        let mut list = self.requests.clone();
        if list.is_empty() {
            list.push(RequestSpec::get(&self.path));
        }
        for spec in &mut list {
            if spec.expect == Expect::default() {
                spec.expect = self.expect.clone();
            }
        }
        list
    }
    pub fn includes(&self, server: &str) -> bool {
        self.servers.is_empty() || self.servers.iter().any(|s| s == server)
    }
}

impl Lab {
    /// Seconds of a point, and of its warm-up.
    pub fn times(&self) -> (f64, f64) {
        (parse_seconds(&self.duration).unwrap_or(2.0), parse_seconds(&self.warmup).unwrap_or(0.3))
    }
}

/// Reads an experiment. Fails on syntax (with line and caret), and on invalid names and values.
pub fn read_lab(text: &str) -> Result<Lab, String> {
    let lab: Lab = toml::from_str(text).map_err(|e| figures::errors::plain_message(&e.to_string()))?;
    let time = |what: &str, text: &str| match parse_seconds(text) {
        Some(time) => Ok(time),
        None => Err(format!("{what} = \"{text}\" is not a time such as \"2s\"")),
    };
    let positive = |what: &str, text: &str| match time(what, text) {
        Ok(time) if time <= 0.0 => Err(format!("{what} must be above 0")),
        result => result.map(|_| ()),
    };
    positive("duration", &lab.duration)?;
    time("warmup", &lab.warmup)?;
    if lab.rounds == 0 {
        return Err("rounds must be 1 or more".into());
    }
    let mut names: Vec<&str> = lab.servers.iter().chain(&lab.backends).map(|s| s.name.as_str()).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|w| w[0] == w[1]) {
        return Err(format!("two servers are called `{}`", pair[0]));
    }
    if names.iter().any(|n| n.is_empty() || n.contains(['/', '@'])) {
        return Err("names of servers must not be empty or contain / or @".into());
    }
    for server in &lab.servers {
        match (server.command.is_empty(), server.backend.is_empty()) {
            (true, true) => return Err(format!("server `{}` has neither command nor backend", server.name)),
            (false, false) => {
                return Err(format!("server `{}` has a command and a backend: it is one of them", server.name));
            }
            (true, false) if !lab.backends.iter().any(|b| b.name == server.backend) => {
                return Err(format!("server `{}`: no backend is called `{}`", server.name, server.backend));
            }
            _ => {}
        }
    }
    if let Some(bad) = lab.backends.iter().find(|b| b.command.is_empty() || !b.backend.is_empty()) {
        return Err(format!("backend `{}` needs its own command", bad.name));
    }
    if !lab.base.is_empty() && !lab.servers.iter().any(|s| s.name == lab.base) {
        return Err(format!("base = \"{}\" is not a server", lab.base));
    }
    for w in &lab.workloads {
        if !["connections", "users", "rate", "connection-rate"].contains(&w.load.as_str()) {
            return Err(format!(
                "workload `{}`: load = \"{}\" is not connections, users, rate or connection-rate",
                w.name, w.load
            ));
        }
        if w.path.is_empty() && w.requests.is_empty() {
            return Err(format!("workload `{}` has neither path nor requests", w.name));
        }
        if let Some(bad) = w.values.iter().find(|v| v.value(1e6).is_none()) {
            return Err(format!(
                "workload `{}`: values: {bad} is not a level (a positive number, or a share such as \"80%\")",
                w.name
            ));
        }
        if w.values.is_empty() {
            return Err(format!("workload `{}` has no values", w.name));
        }
        if let Some(name) = w.servers.iter().find(|n| !lab.servers.iter().any(|s| s.name == **n)) {
            return Err(format!("workload `{}`: no server is called `{name}`", w.name));
        }
        if w.requests.iter().any(|r| !r.extract.is_empty() || !r.think.is_empty()) {
            return Err(format!("workload `{}`: extract and think of requests are for sessions of bench", w.name));
        }
        let one_at_a_time = w.load == "connection-rate" || !w.think.is_empty();
        if w.streams == Some(0) || (one_at_a_time && w.streams.is_some_and(|n| n > 1)) {
            let why = "at least 1, and exactly 1 with think or connection-rate";
            return Err(format!("workload `{}`: streams are {why}", w.name));
        }
        if w.early_data && !(w.http3 && w.resume) {
            return Err(format!("workload `{}`: early_data needs http3 and resume", w.name));
        }
        if w.http3
            && let Some(server) = lab.servers.iter().find(|server| w.includes(&server.name) && !server.tls)
        {
            return Err(format!(
                "workload `{}`: http3 needs tls, which server `{}` does not have",
                w.name, server.name
            ));
        }
        if let Some(scale) = &w.scale {
            if w.load != "rate" || w.values.iter().any(LoadLevel::is_share) {
                return Err(format!("workload `{}`: scale needs load = \"rate\" and levels in numbers", w.name));
            }
            let greatest = w.values.iter().filter_map(|v| v.value(0.0)).fold(0.0, f64::max);
            let backends: Vec<&str> = lab.backends.iter().map(|backend| backend.name.as_str()).collect();
            scale.check(&backends, greatest).map_err(|e| format!("workload `{}`: {e}", w.name))?;
        }
        positive("timeout", &w.timeout)?;
        if !w.think.is_empty() {
            time("think", w.think.trim_end_matches(",random"))?;
        }
    }
    Ok(lab)
}

/// Names that an option selects: equal ones, or else those that contain its words. Fails when a word selects none.
fn chosen(option: &str, words: &[String], names: Vec<String>) -> Result<Vec<String>, String> {
    if words.is_empty() {
        return Ok(names);
    }
    let mut out: Vec<String> = Vec::new();
    for word in words.iter().map(|w| w.trim()) {
        let same: Vec<&String> = names.iter().filter(|n| *n == word).collect();
        let holding = || names.iter().filter(|n| n.to_lowercase().contains(&word.to_lowercase())).collect();
        let found: Vec<&String> = if same.is_empty() { holding() } else { same };
        if found.is_empty() {
            return Err(format!("{option} {word}: no such name; the file has: {}", names.join("; ")));
        }
        out.extend(found.into_iter().cloned());
    }
    Ok(out)
}

/// Applies the command line. Fails when nothing is left to measure.
pub fn adapt_lab(lab: &mut Lab, options: &LabOptions) -> Result<(), String> {
    let servers = chosen("--only", &options.only, lab.servers.iter().map(|s| s.name.clone()).collect())?;
    let workloads = chosen("--workloads", &options.workloads, lab.workloads.iter().map(|w| w.name.clone()).collect())?;
    lab.servers.retain(|s| servers.contains(&s.name));
    lab.workloads.retain(|w| workloads.contains(&w.name));
    // Drops workloads without a selected server: an empty list would mean all.
    lab.workloads.retain(|w| w.servers.is_empty() || w.servers.iter().any(|name| servers.contains(name)));
    for w in &mut lab.workloads {
        w.servers.retain(|name| servers.contains(name));
    }
    if lab.servers.is_empty() || lab.workloads.is_empty() {
        return Err("no server or no workload is left".into());
    }
    if !lab.servers.iter().any(|s| s.name == lab.base) {
        lab.base = lab.servers[0].name.clone();
    }
    lab.rounds = options.rounds.unwrap_or(lab.rounds).max(1);
    if let Some(seconds) = options.duration {
        lab.duration = format!("{seconds}s");
    }
    if options.quick {
        lab.rounds = 1;
        lab.duration = "300ms".into();
        lab.warmup = "50ms".into();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "title='t'\n[[server]]\nname='a'\ncommand='a'\n[[workload]]\nname='w'\nload='rate'\npath='/'\nvalues=[10,'50%','2k']\n";

    #[test]
    fn experiments_are_read() {
        let lab = read_lab(SMALL).unwrap();
        let values: Vec<f64> = lab.workloads[0].values.iter().map(|v| v.value(1000.0).unwrap()).collect();
        assert_eq!(values, [10.0, 500.0, 2000.0]);
        assert!(lab.workloads[0].values[1].is_share() && lab.workloads[0].is_open());
        assert_eq!(lab.times(), (2.0, 0.3));
    }

    #[test]
    fn mistakes_are_named() {
        let bad = |from: &str, to: &str| read_lab(&SMALL.replace(from, to)).unwrap_err();
        assert!(bad("load='rate'", "load='speed'").contains("speed"));
        assert!(bad("command='a'", "comand='a'").contains("comand"));
        assert!(bad("path='/'", "").contains("neither path"));
        assert!(bad("command='a'", "").contains("neither command"));
        assert!(bad("command='a'", "backend='b'").contains("no backend"));
        assert!(bad("command='a'", "command='a'\nbackend='b'").contains("one of them"));
        assert!(bad("'50%'", "'x'").contains("\"x\" is not a level"));
        assert!(
            bad("'50%'", "-1").contains("-1 is not a level") && bad("'50%'", "true").contains("a level is a number")
        );
        assert!(bad("title='t'", "title='t'\nrounds=0").contains("rounds"));
        assert!(bad("title='t'", "title='t'\nduration='0s'").contains("duration must be above 0"));
        let why = bad("title='t'", "title='t'\nrounds=-1");
        assert!(why.contains("a whole number") && !why.contains("usize"), "{why}");
        assert!(bad("title='t'", "title='t'\nbase='z'").contains("base"));
        assert!(bad("[[workload]]", "[[server]]\nname='a'\ncommand='b'\n[[workload]]").contains("two servers"));
    }

    #[test]
    fn streams_are_of_clients_who_do_not_wait() {
        let with = |load: &str| read_lab(&SMALL.replace("load='rate'", load));
        assert_eq!(with("load='rate'\nstreams=8").unwrap().workloads[0].streams, Some(8));
        for bad in
            ["load='rate'\nstreams=0", "load='connection-rate'\nstreams=2", "load='users'\nthink='1s'\nstreams=2"]
        {
            assert!(with(bad).unwrap_err().contains("streams"), "{bad}");
        }
    }

    #[test]
    fn names_are_chosen_by_their_words() {
        let names = || ["nginx", "nginx tuned", "API, 1 kB"].map(String::from).to_vec();
        let choose =
            |words: &[&str]| chosen("--only", &words.iter().map(|w| w.to_string()).collect::<Vec<_>>(), names());
        assert_eq!(choose(&[]).unwrap().len(), 3);
        assert_eq!(choose(&["nginx"]).unwrap(), ["nginx"], "the same before what holds it");
        assert_eq!(choose(&["tuned", "api"]).unwrap(), ["nginx tuned", "API, 1 kB"]);
        assert!(choose(&["apache"]).unwrap_err().contains("nginx tuned; API, 1 kB"));
    }

    #[test]
    fn the_experiments_that_are_shipped_are_well_formed() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../examples/lab");
        let mut count = 0;
        for entry in std::fs::read_dir(directory).unwrap().flatten() {
            if entry.path().extension().is_some_and(|e| e == "toml") {
                let text = std::fs::read_to_string(entry.path()).unwrap();
                let lab = read_lab(&text).unwrap_or_else(|e| panic!("{}: {e}", entry.path().display()));
                let nowhere = std::path::Path::new("/nowhere");
                let testbed = super::super::servers::TestMachine::prepare(&lab, nowhere, nowhere, &[0]);
                assert!(testbed.is_ok(), "{}: {:?}", entry.path().display(), testbed.err());
                count += 1;
            }
        }
        assert!(count >= 4, "{count}");
    }
}
