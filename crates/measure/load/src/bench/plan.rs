//! Plan of a run from the options: the job and order of every point, and the watched processes.

use std::path::PathBuf;

use super::cli::Options;
use super::data::{DataFile, refuse_columns};
use super::gate::{self, GateCondition, Requirement};
use super::link::LinkTls;
use super::remote_write::{SeriesCollector, SeriesFormat};
use super::requests::UrlKind;
use super::sweep::parse_sweep;
use super::values::parse_time;
use super::worker::WorkerAccess;
use super::{grpc, refusals, replay, requests, watcher};
use figures::units::format_counted;

use crate::engine::feed::RowOrder;
use crate::engine::job::{Http2, Http3, Job, Model, Think};
use crate::engine::profile::{Arrivals, Profile, Stage};
use crate::observe::processes::{ProcessGroup, is_local};
use crate::observe::status::StatusText;

/// Default streams per connection of an open loop; servers usually allow as many.
const STREAMS: usize = 100;
/// Connections of a user over HTTP/1.1 whose session has parallel steps, as browsers have them for each host.
const LANES: usize = 6;

#[derive(Clone, Debug)]
pub struct Plan {
    /// Job without a value; see [`Plan::job`].
    base: Job,
    pub values: Vec<f64>,
    pub rounds: usize,
    pub find: Option<Find>,
    pub requirements: Vec<Requirement>,
    /// Conditions that end a run early, and the file for interval metrics.
    pub abort_on: Vec<(String, GateCondition)>,
    pub metrics: Option<PathBuf>,
    pub collectors: Vec<SeriesCollector>,
    pub title: String,
    pub url: String,
    pub quantity: &'static str,
    pub open_loop: bool,
    pub server: Option<ProcessGroup>,
    pub page: Option<StatusText>,
    pub live: bool,
    pub workers: Vec<String>,
    pub access: WorkerAccess,
    pub notes: Vec<String>,
    /// Shape of a load that is neither constant nor swept.
    fixed_profile: bool,
    duration: f64,
    ramp: f64,
}

#[derive(Clone, Debug)]
pub struct Find {
    pub text: String,
    pub conditions: Vec<GateCondition>,
}

/// Maximum number of intervals of a time series.
const INTERVALS_MAX: u32 = 500;

impl Plan {
    /// Makes the plan. Fails on contradicting options and unusable files.
    pub fn new(o: &Options) -> Result<Plan, String> {
        let (target, urls) = requests::request_target(o)?;
        let mut list = requests::build_requests(o, &urls)?;
        let kind = requests::url_kind(o)?;
        let data = o.data.as_deref().map(DataFile::read).transpose()?;
        let requirements: Vec<Requirement> =
            o.require.iter().map(|r| gate::parse_requirement(r)).collect::<Result<_, _>>()?;
        let find = match &o.find {
            Some(text) => Some(Find { text: text.clone(), conditions: gate::parse_conditions(text)? }),
            None => None,
        };
        let arrivals = if o.arrivals.as_deref() == Some("fixed") { Arrivals::Fixed } else { Arrivals::Poisson };
        let plain = o.rate.is_none() && o.conn_rate.is_none() && o.users.is_none() && o.connections.is_none();
        let asked: Vec<f64> = requirements.iter().filter_map(|r| r.at).collect();
        let by_requirement = plain && o.sweep.is_none() && find.is_none() && o.stages.is_none() && !asked.is_empty();
        let log = match &o.replay {
            Some(path) => Some(replay::read_log(path, o.log_format.as_deref(), o.speed)?),
            None => None,
        };
        let model = match () {
            () if o.conn_rate.is_some() => Model::Connections { arrivals, think: think(o.think.as_deref())? },
            () if o.rate.is_some() || find.is_some() || by_requirement => Model::Open { arrivals },
            () => Model::Closed { think: think(o.think.as_deref())? },
        };
        let each = o.connections_per_host.filter(|_| o.session.is_none() && o.users.is_none());
        let value = o.rate.or(o.conn_rate).unwrap_or(o.users.or(o.connections).or(each).unwrap_or(50) as f64);
        let mut values = match &o.sweep {
            Some(text) => parse_sweep(text)?,
            None if by_requirement => asked,
            None => vec![value],
        };
        // With a number of requests, the length is only a bound.
        let length = o.duration.unwrap_or(if o.requests.is_some() { 3600.0 } else { 10.0 });
        let mut profile = Profile::constant(value, length);
        if let Some(text) = &o.stages {
            profile = Profile::parse(text)?;
            values = vec![profile.highest()];
        }
        // Intervals fit the time in which a number of requests is due, not its bound.
        let slowest = values.iter().copied().fold(f64::INFINITY, f64::min);
        let span = match o.requests.filter(|_| o.duration.is_none() && o.stages.is_none() && model.is_open()) {
            Some(n) if slowest > 0.0 => n as f64 / slowest + o.timeout,
            _ => f64::INFINITY,
        };
        let (mut model, mut duration) = (model, length);
        let mut notes = Vec::new();
        if let Some(log) = log {
            notes.extend(log.left_out());
            duration = log.seconds;
            values = vec![log.at.len() as f64 / log.seconds.max(1e-9)];
            profile = Profile::constant(values[0], log.seconds);
            list = log.requests;
            model = Model::Replay { at: log.at };
        }
        let servers = requests::assign_servers(o, &target, &mut list)?;
        if each.is_some() && !model.is_open() {
            // The load of all servers together.
            let all = (servers.len() + 1) as f64;
            values.iter_mut().for_each(|value| *value *= all);
            for stage in &mut profile.stages {
                (stage.from, stage.to) = (stage.from * all, stage.to * all);
            }
        }
        let is_grouped = o.session.is_some() && list.iter().any(|step| step.parallel);
        if values.iter().any(|v| *v <= 0.0) || profile.seconds() <= 0.0 {
            let options =
                [("--sweep", o.sweep.is_some()), ("--stages", o.stages.is_some()), ("--replay", o.replay.is_some())];
            let given = options.iter().find(|(_, given)| *given).map_or(String::new(), |(name, _)| format!("{name}: "));
            return Err(format!("{given}the load and its duration must be positive"));
        }
        let open_loop = model.is_open();
        let default_connections = if open_loop { 1000 } else { 50 };
        let threads = o.threads.unwrap_or_else(|| threads(&target.address)).max(1);
        let steps = if o.session.is_some() { list.len() } else { 1 };
        let calls = if o.no_keepalive { 1 } else { o.calls.unwrap_or(if o.conn_rate.is_some() { steps } else { 0 }) };
        let server = match (o.pid.as_slice(), is_local(&target.address)) {
            // A proxy, or one of several servers, is not the server.
            ([], true) if target.proxy.is_some() || !servers.is_empty() => None,
            ([], true) => Some(ProcessGroup::by_port(target.address.port())),
            ([], false) => None,
            (pids, _) => Some(ProcessGroup::by_pids(pids)),
        };
        let secret = match &o.secret {
            Some(path) => requests::read_text(path)?.trim().to_string(),
            None => String::new(),
        };
        let link = match (&o.workers_cert, &o.workers_key, &o.workers_cacert) {
            (Some(cert), Some(key), Some(authorities)) => Some(LinkTls::read(cert, key, authorities)?),
            _ => None,
        };
        let access =
            WorkerAccess::new(secret, link).map_err(|why| format!("--workers-cert and --workers-key: {why}"))?;
        let span = span.min(profile.seconds());
        let quantity = if o.users.is_some() { "users" } else { model.quantity() };
        let own = Http2::default();
        let http2 = (o.http2 || kind == UrlKind::Grpc).then(|| Http2 {
            stream_window: o.stream_window.unwrap_or(own.stream_window),
            connection_window: o.connection_window.unwrap_or(own.connection_window),
            table: o.header_table.unwrap_or(own.table),
        });
        let http3 = o.http3.then(|| Http3 {
            stream_window: o.stream_window.unwrap_or(own.stream_window),
            connection_window: o.connection_window.unwrap_or(own.connection_window),
            early_data: o.early_data,
        });
        let streams = o.streams.unwrap_or(if open_loop || is_grouped { STREAMS } else { 1 });
        let priority = o.priority.iter().map(|field| format!("Priority: {field}"));
        let mut headers: Vec<String> = o.headers.iter().cloned().chain(priority).collect();
        let grpc = match kind {
            UrlKind::Grpc => {
                refusals::refuse_grpc(o)?;
                Some(grpc::prepare_calls(o, &target, true, &mut list)?)
            }
            UrlKind::Http if http2.is_some() && list.iter().any(|step| !step.grpc.is_empty()) => {
                Some(grpc::prepare_calls(o, &target, false, &mut list)?)
            }
            UrlKind::Http | UrlKind::WebSocket => None,
        };
        let once = data.as_ref().is_some_and(|data| data.order() == RowOrder::Once);
        let data = match data {
            Some(data) => Some(data.insert(&mut list, &mut headers)?),
            None => refuse_columns(&list, &headers, &requests::request_source(o)).map(|()| None)?,
        };
        let base = Job {
            websocket: kind == UrlKind::WebSocket,
            grpc,
            follow: o.follow.unwrap_or(0),
            cookies: o.cookies,
            data,
            servers,
            connections_each: o.connections_per_host.unwrap_or(if is_grouped { LANES } else { 0 }),
            requests: list,
            session: o.session.is_some(),
            headers,
            connections_max: o.connections.or(o.users).or(o.connections_per_host).unwrap_or(default_connections),
            calls: calls as u32,
            pipeline: if http2.is_some() || http3.is_some() { streams } else { o.pipeline.max(1) },
            http2,
            http3,
            warmup: match (o.ramp, o.warmup) {
                (Some(_), _) => 0.0,
                (None, Some(warmup)) => warmup,
                (None, None) if o.requests.is_some() || once => 0.0,
                (None, None) => 0.5,
            },
            timeout: o.timeout,
            connect_timeout: o.connect_timeout,
            budget: o.requests.map(|n| n as u64),
            threads,
            cores: o.pin.clone(),
            seed: o.seed,
            reset: o.reset,
            spin: o.spin,
            // Long runs get long intervals: each keeps its own distribution.
            interval: o.interval.unwrap_or((span / 40.0).clamp(0.1, 1.0)).max(span / f64::from(INTERVALS_MAX)),
            model,
            profile,
            ..Job::closed(target, 1, 1.0)
        };
        refusals::refuse_options(o, &base)?;
        let page = o.watch.as_deref().map(StatusText::new).transpose()?;
        if let (Some(page), Some(url)) = (&page, &o.watch) {
            page.read().map_err(|e| format!("--watch {url}: {e}"))?;
        }
        Ok(Plan {
            values,
            rounds: o.rounds.max(1),
            find,
            requirements,
            abort_on: watcher::abort_on(&o.abort_on)?,
            metrics: o.metrics.clone().filter(|path| !watcher::is_url(path)),
            collectors: collectors(o)?,
            title: o.title.clone().unwrap_or_else(|| format!("Load test of {}", o.urls[0])),
            url: o.urls.join(" "),
            quantity,
            open_loop,
            server,
            page,
            live: !o.no_live && !o.quiet,
            workers: o.workers.clone(),
            access,
            notes,
            fixed_profile: o.stages.is_some() || o.replay.is_some(),
            duration,
            ramp: o.ramp.unwrap_or(0.0),
            base,
        })
    }

    pub fn searches(&self) -> bool {
        self.find.is_some()
    }

    /// Job of the point at `value`. Seeds differ by round, so that arrivals are independent.
    pub fn job(&self, value: f64, round: usize) -> Job {
        let mut job = self.base.clone();
        job.seed = job.seed.wrapping_add(round as u64 * 7919);
        if !self.fixed_profile {
            job.profile = Profile::constant(value, self.duration);
            if self.ramp > 0.0 {
                job.profile.stages.insert(0, Stage { from: 0.0, to: value, seconds: self.ramp });
            }
        }
        if self.ramp > 0.0 {
            // A ramp is part of the result, not of the warm-up.
            job.warmup = 0.0;
        }
        job
    }

    pub fn sentence(&self) -> String {
        let j = &self.base;
        let point = match self.values.as_slice() {
            [one] if self.fixed_profile => format!("up to {}", crate::report::text::grouped_rate(*one)),
            [one] => crate::report::text::grouped_rate(*one),
            many => format!(
                "{} to {}",
                crate::report::text::grouped_rate(many.iter().copied().fold(f64::INFINITY, f64::min)),
                crate::report::text::grouped_rate(many.iter().copied().fold(0.0, f64::max))
            ),
        };
        let (connections, users) = if point == "1" { ("connection", "user") } else { ("connections", "users") };
        let spacing = |a: &Arrivals| if *a == Arrivals::Fixed { "evenly spaced" } else { "Poisson" };
        let what = match &j.model {
            _ if self.find.is_some() => "Open loop, searching the highest rate".into(),
            Model::Closed { think } if think.mean > 0.0 => {
                format!("Closed loop, {point} {users} thinking {}", figures::units::format_seconds(think.mean))
            }
            Model::Closed { .. } if j.session && j.connections_each > 0 && !j.is_multiplexed() => {
                let each = format_counted(j.connections_each as u64, "connection", "connections");
                format!("Closed loop, {point} users with up to {each} each")
            }
            Model::Closed { .. } if j.is_multiplexed() => {
                format!("Closed loop, {point} {connections} of {}", streams(j.pipeline))
            }
            Model::Closed { .. } => format!("Closed loop, {point} {connections}"),
            Model::Open { arrivals } => format!("Open loop, {point} requests/s, {}", spacing(arrivals)),
            Model::Connections { arrivals, .. } => {
                let calls = format_counted(u64::from(j.calls), "request", "requests");
                format!("Open loop, {point} connections/s with {calls} each, {}", spacing(arrivals))
            }
            Model::Replay { at } => format!("Replay of {}", format_counted(at.len() as u64, "request", "requests")),
        };
        let keep = if j.calls == 1 && !matches!(j.model, Model::Connections { .. }) {
            ", a connection for each request"
        } else {
            ""
        };
        let (count, unit) = match self.workers.len() {
            0 => (j.threads, "thread"),
            n => (n, "worker"),
        };
        let many = if count == 1 { "" } else { "s" };
        let seconds = figures::units::format_seconds;
        let length = match (&j.budget, &j.model) {
            (_, Model::Replay { .. }) => seconds(j.profile.seconds()),
            _ if self.fixed_profile => {
                let stages = format_counted(j.profile.stages.len() as u64, "stage", "stages");
                format!("{} in {stages}", seconds(j.profile.seconds()))
            }
            (Some(n), _) => format!("{} per point", format_counted(*n, "request", "requests")),
            _ => format!("{} per point", seconds(self.duration)),
        };
        let protocol = match (&j.http2, &j.http3) {
            _ if j.websocket => ", WebSocket",
            _ if j.grpc.is_some() && j.requests.iter().all(|call| !call.grpc.is_empty()) => ", gRPC",
            _ if j.grpc.is_some() => ", HTTP/2 and gRPC",
            (_, Some(_)) => ", HTTP/3",
            (Some(_), _) => ", HTTP/2",
            (None, None) => "",
        };
        format!("{what}{keep}{protocol}, {length}, {count} {unit}{many}")
    }

    /// Job shared by all points except for the value.
    pub fn base(&self) -> &Job {
        &self.base
    }

    /// Copies the plan with another point length in seconds (for searches).
    pub fn with_duration(&self, seconds: f64) -> Plan {
        Plan { duration: seconds, ..self.clone() }
    }
}

/// Collectors of metrics during the run.
fn collectors(o: &Options) -> Result<Vec<SeriesCollector>, String> {
    let metrics = o.metrics.as_ref().filter(|path| watcher::is_url(path)).map(|path| path.to_string_lossy());
    let token = o.influx_token.as_deref().map(requests::read_text).transpose()?;
    let token = token.map(|token| token.trim().to_string());
    if token.as_ref().is_some_and(|token| token.is_empty() || token.contains(char::is_control)) {
        return Err("--influx-token: the file has no token on its one line".into());
    }
    let all = [
        metrics.map(|url| (url.into_owned(), SeriesFormat::RemoteWrite)),
        o.influx.clone().map(|url| (url, SeriesFormat::Influx { token })),
        o.otlp.clone().map(|url| (url, SeriesFormat::Otlp)),
    ];
    all.into_iter().flatten().map(|(url, format)| SeriesCollector::new(&url, format)).collect()
}

fn streams(count: usize) -> String {
    if count == 1 { "1 stream".into() } else { format!("{count} streams") }
}

/// One thread per processor; half of them when the server shares the machine.
fn threads(address: &std::net::SocketAddr) -> usize {
    let all = std::thread::available_parallelism().map_or(1, |n| n.get());
    if is_local(address) { (all / 2).max(1) } else { all }
}

fn think(text: Option<&str>) -> Result<Think, String> {
    let Some(text) = text else { return Ok(Think::default()) };
    let (mean, random) = match text.split_once(',') {
        Some((mean, "random")) => (mean, true),
        Some((_, other)) => return Err(format!("--think: `{other}` is not `random`")),
        None => (text, false),
    };
    Ok(Think { mean: parse_time(mean)?, random })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    fn plan(text: &str) -> Result<Plan, String> {
        let args: Vec<OsString> = text.split_whitespace().map(OsString::from).collect();
        Plan::new(&super::super::cli::parse_arguments(&args).unwrap())
    }

    #[test]
    fn options_become_models() {
        let p = plan("http://127.0.0.1:1/ -c 7").unwrap();
        assert!(matches!(p.base.model, Model::Closed { .. }) && p.values == [7.0] && p.quantity == "connections");
        let p = plan("http://127.0.0.1:1/ -r 5k --arrivals fixed").unwrap();
        assert_eq!(p.base.model, Model::Open { arrivals: Arrivals::Fixed });
        assert_eq!(p.base.connections_max, 1000);
        let p = plan("http://127.0.0.1:1/ --conn-rate 100").unwrap();
        assert_eq!((p.base.calls, p.open_loop), (1, true));
        let p = plan("http://127.0.0.1:1/ --users 9 --think 1s,random --ramp 5s").unwrap();
        assert_eq!(p.job(9.0, 0).profile.seconds(), 15.0);
        let p = plan("http://127.0.0.1:1/ --require p99<5ms@200rps").unwrap();
        assert!(matches!(p.base.model, Model::Open { .. }) && p.values == [200.0]);
        assert_ne!(p.job(1.0, 0).seed, p.job(1.0, 1).seed);
        assert!(plan("http://127.0.0.1:1/ --think 1s,sometimes").is_err());
        let two = plan("http://127.0.0.1:1/a http://127.0.0.1:2/b http://127.0.0.1:1/c").unwrap().base;
        assert_eq!((two.servers.len(), two.servers[0].port), (1, 2));
        let paths: Vec<_> = two.requests.iter().map(|r| (r.path.as_str(), r.server)).collect();
        assert_eq!(paths, [("/a", 0), ("/b", 1), ("/c", 0)]);
        let behind = plan("http://h/ --proxy http://u:p@127.0.0.1:3128").unwrap().base.target;
        assert_eq!((behind.address.port(), behind.origin().as_str()), (3128, "http://h"));
        assert_eq!(behind.proxy.unwrap().authorization.as_deref(), Some("Basic dTpw"));
        let h2 = plan("http://127.0.0.1:1/ --http2 -c 3 -m 8 --stream-window 1M --priority u=1,i").unwrap();
        assert_eq!((h2.base.pipeline, h2.base.headers.as_slice()), (8, &["Priority: u=1,i".to_string()][..]));
        assert_eq!(h2.base.http2.map(|own| own.stream_window), Some(1_000_000));
        assert_eq!(plan("http://127.0.0.1:1/ --http2 -r 10").unwrap().base.pipeline, STREAMS);
        let h3 = plan("https://127.0.0.1:1/ --http3 -c 3 -m 8 --resume --early-data").unwrap();
        assert!(h3.base.pipeline == 8 && h3.base.http3.is_some_and(|own| own.early_data) && h3.base.http2.is_none());
        let n = plan("http://127.0.0.1:1/ -n 50").unwrap();
        assert_eq!((n.base.warmup, n.base.budget, n.base.profile.seconds()), (0.0, Some(50), 3600.0));
        assert_eq!(plan("http://127.0.0.1:1/ -n 50 --warmup 1s -d 5s").unwrap().base.warmup, 1.0);
    }

    #[test]
    fn options_without_effect_are_refused_before_the_run() {
        for (options, word) in [
            ("-r 100 --pipeline 4", "--pipeline"),
            ("--http3", "--http3"),
            ("-m 4", "--streams"),
            ("--priority u=1", "--priority"),
            ("-r 100 --think 1s", "--think"),
            ("-c 5 --arrivals fixed", "--arrivals"),
            ("--resume", "https"),
            ("--pin 4095", "4095"),
            ("--pid 4194304", "4194304"),
            ("--source 192.0.2.1", "192.0.2.1"),
            ("-H nonsense", "nonsense"),
            ("-H X:{{nope}}", "nope"),
            ("--expect-hash xyz", "xyz"),
            ("--require p99<5", "unit"),
            ("--http2 -m 4 --conn-rate 10", "--streams"),
            ("--http2 -m 4 --think 1s", "--streams"),
            ("--calls 2 --pipeline 3", "--calls"),
            ("--proxy socks5://h:1", "socks5"),
            ("--proxy http://127.0.0.1:1 --http2", "https://"),
            ("--users 5 --connections-per-host 6", "-c 30"),
            ("--conn-rate 5 --connections-per-host 6", "--conn-rate"),
            ("-c 5 --connections-per-host 6", "all servers together"),
            ("--cert a --key b", "a"),
            ("--data /dev/null", "no row"),
            ("--workers h:1,i:1,h:1 --secret Cargo.toml", "h:1 twice"),
            ("--no-keepalive --http2 -m 4", "--no-keepalive"),
        ] {
            let why = plan(&format!("http://127.0.0.1:1/ {options}")).unwrap_err();
            assert!(why.contains(word), "{options}: {why}");
        }
        assert!(plan("https://127.0.0.1:1/ --tls 1.4").unwrap_err().contains("1.4"));
    }
}
