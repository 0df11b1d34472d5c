//! A scenario: a directory with a configuration, whose first line describes the load, and `goal.md`.

use super::sessions::SessionKind;
use std::path::Path;

/// `# bench: path=/5k.html connections=64 header=Connection:close rates=2000,8000`; `streams=16`: over HTTP/2, `http3`: over HTTP/3, `tls`: over TLS, `post=300000`: with a body of so many bytes, `fresh`: a connection for each request; `floor=5120`: beside the floor program; `session=tcp`: of the stream area
#[derive(Clone)]
pub struct Scenario {
    pub name: String,
    /// With the placeholder `@PORT@`.
    pub conf: String,
    pub path: String,
    pub connections: usize,
    pub headers: Vec<String>,
    /// Offered requests per second (open loop, Poisson), below the capacity: each request wakes the server.
    pub rate: Option<u64>,
    /// Streams at a time on each connection, over HTTP/2; the client is `tidegate bench`.
    pub streams: Option<usize>,
    /// Uses HTTP/3.
    pub http3: bool,
    /// Body size of POST requests.
    pub post: Option<usize>,
    /// A new connection for every request (`tidegate bench --no-keepalive`).
    pub fresh: bool,
    /// Over TLS, with a certificate that is made for the run (`cert.pem`, `key.pem`).
    pub tls: bool,
    /// Offered rates of variants, `NAME@RATE`.
    rates: Vec<u64>,
    /// Upstream server, whose port is `@ORIGIN@` in the others; runs on the client's CPU.
    pub origin: Option<String>,
    /// For php-fpm (FastCGI).
    pub php: Option<String>,
    /// For HAProxy.
    pub haproxy: Option<String>,
    /// For h2o.
    pub h2o: Option<String>,
    /// Arguments of the floor program after its port (`floor=5120`, `floor=6,close`, `floor=proxy`).
    pub floor: Option<Vec<String>>,
    /// Measures memory of idle connections instead of CPU time.
    pub idle: bool,
    /// Measures sessions of the stream area instead of requests.
    pub session: Option<SessionKind>,
}

impl Scenario {
    /// Returns the variant `NAME@RATE`, an open loop.
    pub fn at_rate(&self, rate: u64) -> Scenario {
        Scenario { name: format!("{}@{rate}", self.name), rate: Some(rate), ..self.clone() }
    }
    /// Uses `tidegate bench`, not wrk.
    pub fn by_bench(&self) -> bool {
        self.rate.is_some() || self.streams.is_some() || self.http3 || self.fresh || self.post.is_some()
    }
    /// Name in the options of `tidegate bench`.
    pub fn protocol(&self) -> Option<&'static str> {
        match self.http3 {
            true => Some("--http3"),
            false => self.streams.map(|_| "--http2"),
        }
    }

    pub fn url(&self, port: u16) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{port}{}", self.path)
    }

    /// The folder in `benches/scenarios`: variants share one.
    pub fn folder(&self) -> &str {
        self.name.split('@').next().unwrap_or(&self.name)
    }
}

/// The named ones, or all, by name; idle connections last.
pub fn all_scenarios(folder: &Path, names: &[String]) -> Result<Vec<Scenario>, String> {
    let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(conf) = std::fs::read_to_string(entry.path().join("nginx.conf")) else { continue };
        let beside = |file: &str| std::fs::read_to_string(entry.path().join(file)).ok();
        let whole = Scenario {
            origin: beside("origin.conf"),
            php: beside("php-fpm.conf"),
            haproxy: beside("haproxy.cfg"),
            h2o: beside("h2o.conf"),
            ..parse_scenario(name, conf)?
        };
        let variants: Vec<Scenario> = whole.rates.iter().map(|rate| whole.at_rate(*rate)).collect();
        found.extend(std::iter::once(whole).chain(variants));
    }
    found.retain(|scenario| names.is_empty() || names.contains(&scenario.name));
    if let Some(missing) = names.iter().find(|name| !found.iter().any(|s| s.name == **name)) {
        return Err(format!("there is no scenario \"{missing}\" in benches/scenarios"));
    }
    found.sort_by(|a, b| (a.idle, a.folder(), a.rate).cmp(&(b.idle, b.folder(), b.rate)));
    Ok(found)
}

/// Reads the first line of the configuration.
pub fn parse_scenario(name: String, conf: String) -> Result<Scenario, String> {
    let first = conf.lines().next().unwrap_or("");
    let words = first.strip_prefix("# bench: ").ok_or(format!("{name}: nginx.conf begins without \"# bench: \""))?;
    let mut scenario = Scenario {
        name,
        conf: conf.clone(),
        path: "/".into(),
        connections: 64,
        headers: Vec::new(),
        rate: None,
        streams: None,
        http3: false,
        post: None,
        fresh: false,
        tls: false,
        rates: Vec::new(),
        origin: None,
        php: None,
        haproxy: None,
        h2o: None,
        floor: None,
        idle: false,
        session: None,
    };
    for word in words.split_whitespace() {
        match word.split_once('=') {
            Some(("path", value)) => scenario.path = value.into(),
            Some(("header", value)) => scenario.headers.push(value.into()),
            Some(("connections", value)) => {
                scenario.connections = value.parse().map_err(|_| format!("{}: {word}", scenario.name))?;
            }
            Some(("rates", value)) => {
                let rates: Result<Vec<u64>, _> = value.split(',').map(str::parse).collect();
                scenario.rates = rates.map_err(|_| format!("{}: {word}", scenario.name))?;
            }
            Some(("streams", value)) => {
                scenario.streams = Some(value.parse().map_err(|_| format!("{}: {word}", scenario.name))?);
            }
            Some(("floor", value)) => scenario.floor = Some(value.split(',').map(String::from).collect()),
            Some(("session", "tcp")) => scenario.session = Some(SessionKind::Tcp),
            Some(("session", "udp")) => scenario.session = Some(SessionKind::Udp),
            Some(("post", value)) => {
                scenario.post = Some(value.parse().map_err(|_| format!("{}: {word}", scenario.name))?);
            }
            _ if word == "tls" => scenario.tls = true,
            _ if word == "http3" => (scenario.tls, scenario.http3) = (true, true),
            _ if word == "fresh" => scenario.fresh = true,
            _ if word == "idle" => scenario.idle = true,
            _ => return Err(format!("{}: \"{word}\" is not known", scenario.name)),
        }
    }
    Ok(scenario)
}
