//! The options of `tidegate bench`.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::Parser;
use figures::units::{parse_count, parse_seconds, parse_share};

use super::{OK, USAGE};

const EXAMPLES: &str = "\
Loads:
  tidegate bench http://127.0.0.1:8080/ -c 100 -d 30s         closed loop: 100 connections, each asks as soon as it has its answer
  tidegate bench URL -r 20k                                   open loop: 20,000 requests/s by plan, whatever the answers do
  tidegate bench URL --conn-rate 5000                         5,000 new connections/s
  tidegate bench URL --users 200 --think 1s --ramp 30s        200 users who think a second, arriving over half a minute
  tidegate bench URL -c 50 --sweep 1,2,5,10,20,50,100         one point for each number of connections
  tidegate bench URL -r 1 --sweep 1k..30k/1k                  one point for each rate
  tidegate bench URL --find 'p99<5ms'                         the highest rate that keeps the objective
  tidegate bench URL --replay access.log --speed 2            an access log with its own timing, twice as fast
Flags of other tools:
  tidegate bench wrk -t2 -c100 -d30s URL                      also wrk2, h2load, httperf, ab, jmeter, oha, hey, fortio, nighthawk
HTTP/2:
  tidegate bench https://127.0.0.1:8443/ --http2 -c 10 -m 32  10 connections with 32 streams each
Gates:
  tidegate bench URL --require 'p99<5ms@20000rps' --require 'errors<0.1%'
  tidegate bench URL -c 100 --rounds 5 --baseline before.json --by 2%
Saved runs side by side:
  tidegate bench compare before.json after.json --html both.html
More than one load machine:
  tidegate bench worker --help

Exit status: 0 all requirements hold; 1 a requirement fails or worse than the baseline; 2 wrong arguments or files; 3 the run cannot
decide (disturbed, client-bound, port-bound, too noisy): try again; 4 nobody answered, or more than 1 % failed or were never sent;
130, 143 stopped by INT or TERM, with what there was.";

/// See `--help`.
#[derive(Parser, Clone, Debug)]
#[command(name = "tidegate bench", about = "Makes HTTP load and measures it", after_help = EXAMPLES)]
pub struct Options {
    /// What to ask. Several are asked in turn, at random, with equal weights.
    #[arg(value_name = "URL", required = true)]
    pub urls: Vec<String>,

    /// Connections of a closed loop; most connections at a time in an open one [default: 50, open loop 1000].
    #[arg(short, long, value_name = "N", value_parser = whole, help_heading = "Load")]
    pub connections: Option<usize>,
    /// How long each point is measured [default: 10s; with --requests as long as those take].
    #[arg(short, long, value_name = "TIME", value_parser = time, help_heading = "Load")]
    pub duration: Option<f64>,
    /// Stop after so many requests, warm-up not included.
    #[arg(short = 'n', long, value_name = "N", value_parser = positive, conflicts_with_all = ["conn_rate", "stages", "find"], help_heading = "Load")]
    pub requests: Option<usize>,
    /// Open loop: requests per second, by plan.
    #[arg(short, long, value_name = "RATE", value_parser = count, conflicts_with_all = ["conn_rate", "users"], help_heading = "Load")]
    pub rate: Option<f64>,
    /// Spacing of an open loop: `poisson` as independent users have it, or `fixed` [default: poisson].
    #[arg(long, value_name = "KIND", value_parser = ["poisson", "fixed"], help_heading = "Load")]
    pub arrivals: Option<String>,
    /// New connections per second, by plan.
    #[arg(long, value_name = "RATE", value_parser = count, conflicts_with = "users", help_heading = "Load")]
    pub conn_rate: Option<f64>,
    /// Users of a closed loop (a user is a connection).
    #[arg(long, value_name = "N", value_parser = whole, conflicts_with = "connections", help_heading = "Load")]
    pub users: Option<usize>,
    /// Pause of a user after an answer; `1s,random` for an exponentially distributed one.
    #[arg(long, value_name = "TIME", help_heading = "Load")]
    pub think: Option<String>,
    /// Let the load grow from nothing for so long before it is measured.
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Load")]
    pub ramp: Option<f64>,
    /// Load over time, instead of --duration: `100@10s,100..500@30s` in connections, users or per second.
    #[arg(long, value_name = "LIST", conflicts_with_all = ["sweep", "find", "ramp", "duration"], help_heading = "Load")]
    pub stages: Option<String>,
    /// Requests on one connection before it is closed; 0 for no limit [default: 0; with --conn-rate 1].
    #[arg(long, value_name = "N", value_parser = whole, help_heading = "Load")]
    pub calls: Option<usize>,
    /// A new connection for every request.
    #[arg(long, conflicts_with = "calls", help_heading = "Load")]
    pub no_keepalive: bool,
    /// Requests in flight on each connection (closed loop, HTTP/1.1).
    #[arg(long, value_name = "N", default_value = "1", value_parser = positive, help_heading = "Load")]
    pub pipeline: usize,
    /// Speak HTTP/2: over TLS as agreed (ALPN), in clear with prior knowledge.
    #[arg(long, conflicts_with = "pipeline", help_heading = "HTTP/2")]
    pub http2: bool,
    /// Streams at a time on each connection, as far as the server allows [default: 1 in a closed loop, 100 in an open one].
    #[arg(short = 'm', long, value_name = "N", value_parser = positive, requires = "http2", help_heading = "HTTP/2")]
    pub streams: Option<usize>,
    /// Bytes of a body that may be on their way on one stream, 65535 to 2147483647 [default: 1 GiB].
    #[arg(long, value_name = "BYTES", value_parser = window, requires = "http2", help_heading = "HTTP/2")]
    pub stream_window: Option<u32>,
    /// Bytes of bodies that may be on their way on a connection [default: 1 GiB].
    #[arg(long, value_name = "BYTES", value_parser = window, requires = "http2", help_heading = "HTTP/2")]
    pub connection_window: Option<u32>,
    /// Bytes of the table that the server may use to compress its heads; 0 for none [default: 4096].
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(0..=65536), requires = "http2", help_heading = "HTTP/2")]
    pub header_table: Option<u32>,
    /// Priority of every request (RFC 9218), such as `u=1,i`.
    #[arg(long, value_name = "FIELD", value_parser = priority, requires = "http2", help_heading = "HTTP/2")]
    pub priority: Option<String>,
    /// Time before each point that is not measured [default: 500ms; none with --requests].
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Load")]
    pub warmup: Option<f64>,
    /// Seed of everything random.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Load")]
    pub seed: u64,

    /// One point for each value: `1,2,5,10`, `1000..30000/1000` (steps) or `1..1024*2` (factors).
    #[arg(long, value_name = "LIST", help_heading = "Experiment")]
    pub sweep: Option<String>,
    /// Repeat every point; rounds go through all points in turn, so that drift of the machine hits all alike.
    #[arg(long, value_name = "N", default_value = "1", value_parser = positive, help_heading = "Experiment")]
    pub rounds: usize,
    /// Search the highest rate that keeps an objective such as `p99<5ms` or `p99.9<20ms,errors<0.1%`.
    #[arg(long, value_name = "OBJECTIVE", conflicts_with_all = ["sweep", "conn_rate", "users", "rate", "rounds", "baseline"], help_heading = "Experiment")]
    pub find: Option<String>,

    /// Method.
    #[arg(short = 'X', long, value_name = "METHOD", default_value = "GET", help_heading = "Request")]
    pub method: String,
    /// Header field; its value may hold {{seq}}, {{rand:1:9}}, {{pick:a|b}}, {{hex:16}}, as may URL and body.
    #[arg(short = 'H', long = "header", value_name = "LINE", help_heading = "Request")]
    pub headers: Vec<String>,
    /// Body, or @FILE.
    #[arg(short = 'b', long, value_name = "TEXT", default_value = "", help_heading = "Request")]
    pub body: String,
    /// File with [[request]] tables: path, weight, method, headers, body, expect (TOML).
    #[arg(long, value_name = "FILE", help_heading = "Request", conflicts_with_all =
        ["paths", "replay", "method", "body", "expect_status", "expect_length", "expect_contains", "expect_hash"])]
    pub request_file: Option<PathBuf>,
    /// File with [[step]] tables: the requests of a session, each sent after the answer to the one before. As --request-file, and
    /// extract = { token = "json:/token" } for {{var:token}} in later steps (header:, cookie:, json:, regex:), think = "1s".
    #[arg(long, value_name = "FILE", help_heading = "Request", conflicts_with_all = ["rate", "find", "request_file", "paths",
        "replay", "method", "body", "expect_status", "expect_length", "expect_contains", "expect_hash"])]
    pub session: Option<PathBuf>,
    /// File with one path a line, optionally with a weight in front.
    #[arg(long, value_name = "FILE", conflicts_with = "replay", help_heading = "Request")]
    pub paths: Option<PathBuf>,
    /// Repeat the requests of an access log with their own timing.
    #[arg(long, value_name = "LOG", conflicts_with_all =
        ["rate", "conn_rate", "users", "sweep", "find", "stages", "duration", "method", "body", "ramp", "expect_status"], help_heading = "Request")]
    pub replay: Option<PathBuf>,
    /// Format of the log (nginx's log_format) [default: combined].
    #[arg(long, value_name = "FORMAT", requires = "replay", help_heading = "Request")]
    pub log_format: Option<String>,
    /// Replay so many times as fast.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, requires = "replay", help_heading = "Request")]
    pub speed: f64,

    /// Statuses that are right [default: 200 to 399].
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "Expectation")]
    pub expect_status: Vec<u16>,
    /// Length that the body must have.
    #[arg(long, value_name = "BYTES", help_heading = "Expectation")]
    pub expect_length: Option<u64>,
    /// Text that the body must hold.
    #[arg(long, value_name = "TEXT", help_heading = "Expectation")]
    pub expect_contains: Option<String>,
    /// Hash (FNV-1a, 64 bits, hexadecimal) that the body must have.
    #[arg(long, value_name = "HASH", help_heading = "Expectation")]
    pub expect_hash: Option<String>,
    /// Ask once, print status, length and hash of the answer, and end.
    #[arg(long, help_heading = "Expectation")]
    pub show: bool,
    /// Time until a request counts as failed.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time, help_heading = "Expectation")]
    pub timeout: f64,
    /// Time until a connection attempt counts as failed.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time, help_heading = "Expectation")]
    pub connect_timeout: f64,

    /// Verify the server's certificate against these (PEM); without it nothing is verified.
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    pub cacert: Option<PathBuf>,
    /// Resume TLS sessions on later connections; otherwise every handshake is a full one.
    #[arg(long, help_heading = "TLS")]
    pub resume: bool,
    /// Only this version: 1.2 or 1.3.
    #[arg(long, value_name = "VERSION", default_value = "", help_heading = "TLS")]
    pub tls: String,
    /// Only these cipher suites, by OpenSSL's names.
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "TLS")]
    pub ciphers: Vec<String>,

    /// Client threads, one a processor [default: as many as there are for it].
    #[arg(short, long, value_name = "N", value_parser = positive, help_heading = "Client")]
    pub threads: Option<usize>,
    /// Processors to pin the client's threads to: `1` or `2,3`.
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "Client")]
    pub pin: Vec<usize>,
    /// Wait busily: exact to a microsecond, and burns its processors.
    #[arg(long, help_heading = "Client")]
    pub spin: bool,
    /// Local addresses to connect from, in turn; each brings its own ports.
    #[arg(long, value_name = "IP", value_delimiter = ',', help_heading = "Client")]
    pub source: Vec<IpAddr>,
    /// Connect to this address instead of the URL's.
    #[arg(long, value_name = "IP:PORT", help_heading = "Client")]
    pub connect_to: Option<SocketAddr>,
    /// Connect to this unix socket; the URL still says what is asked for, and of which host.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["connect_to", "source"], help_heading = "Client")]
    pub unix: Option<PathBuf>,
    /// Close connections by reset, which leaves no ports in TIME_WAIT.
    #[arg(long, help_heading = "Client")]
    pub reset: bool,
    /// Process of the server to watch [default: what listens on the port, if it is local].
    #[arg(long, value_name = "PID", value_delimiter = ',', help_heading = "Client")]
    pub pid: Vec<u32>,
    /// A status page of the server (stub_status, or metrics in Prometheus' text format) to watch meanwhile, for a server elsewhere.
    #[arg(long, value_name = "URL", help_heading = "Client")]
    pub watch: Option<String>,
    /// Workers that share the load, `HOST:PORT`; see `bench worker`.
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "secret", help_heading = "Client")]
    pub workers: Vec<String>,
    /// File with the secret that the workers know.
    #[arg(long, value_name = "FILE", help_heading = "Client")]
    pub secret: Option<PathBuf>,

    /// Heading of the report.
    #[arg(long, value_name = "TEXT", help_heading = "Output")]
    pub title: Option<String>,
    /// Write the report as JSON. `-` is the standard output.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub json: Option<PathBuf>,
    /// Write one line a round as CSV. `-` is the standard output.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub csv: Option<PathBuf>,
    /// Write the report as one self-contained page with plots. `-` is the standard output.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub html: Option<PathBuf>,
    /// Write what happens while it happens, at every interval: as metrics in Prometheus' text format, made anew each time, when the
    /// name ends in .prom (for the node exporter's textfile collector); to a collector by Prometheus' remote write, when it is a URL;
    /// otherwise a line of JSON each, appended.
    #[arg(long, value_name = "FILE|URL", help_heading = "Output")]
    pub metrics: Option<PathBuf>,
    /// Print the whole distribution after the summary, from the plan and from the send (uncorrected), as HdrHistogram's tools do.
    #[arg(long, help_heading = "Output")]
    pub spectrum: bool,
    /// All times of the summary in milliseconds.
    #[arg(long, help_heading = "Output")]
    pub ms: bool,
    /// Length of an interval of the time series [default: a fortieth of the run, 100 ms to 1 s].
    #[arg(long, value_name = "TIME", value_parser = time, help_heading = "Output")]
    pub interval: Option<f64>,
    /// No summary.
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
    /// No live view, even on a terminal.
    #[arg(long, help_heading = "Output")]
    pub no_live: bool,

    /// A requirement such as `p99<5ms@20000rps`, `rps>50k`, `errors<0.1%`, `cpu<20us`, `memory<20MB`. May be given several times.
    #[arg(long, value_name = "RULE", help_heading = "Gate")]
    pub require: Vec<String>,
    /// Stop as soon as this holds of what was measured so far, of a hundred requests or more: `errors>10%`, `p99>1s`.
    #[arg(long, value_name = "RULE", conflicts_with = "workers", help_heading = "Gate")]
    pub abort_on: Vec<String>,
    /// A report (JSON) to compare with.
    #[arg(long, value_name = "FILE", help_heading = "Gate")]
    pub baseline: Option<PathBuf>,
    /// How much worse than the baseline is still good.
    #[arg(long, value_name = "SHARE", default_value = "2%", requires = "baseline", value_parser = share, help_heading = "Gate")]
    pub by: f64,
}

/// Parses the arguments; prints help or a complaint and gives the exit status when there is nothing to run.
///
/// # Errors
/// The exit status.
pub fn parse(args: &[OsString]) -> Result<Options, i32> {
    let all = std::iter::once(OsString::from("tidegate bench")).chain(args.iter().cloned());
    Options::try_parse_from(all).map_err(|e| {
        let _ = e.print();
        if e.use_stderr() { USAGE } else { OK }
    })
}

/// A window of HTTP/2: `1M`, `65535`.
fn window(text: &str) -> Result<u32, String> {
    let value = count(text)?;
    if (65_535.0..=2_147_483_647.0).contains(&value) { Ok(value as u32) } else { Err("65535 to 2147483647".into()) }
}

/// A priority field: urgency 0 to 7, and whether parts are of use (RFC 9218, 4).
fn priority(text: &str) -> Result<String, String> {
    let is_part = |part: &str| match part.split_once('=') {
        Some(("u", urgency)) => matches!(urgency.as_bytes(), [b'0'..=b'7']),
        Some(("i", incremental)) => matches!(incremental, "?0" | "?1"),
        Some(_) => false,
        None => part == "i",
    };
    let all = text.split(',').all(|part| is_part(part.trim()));
    if all { Ok(text.into()) } else { Err("`u=0` to `u=7`, `i`, or both".into()) }
}

/// A positive count: `200`, `20k`, `1.5M`.
pub fn count(text: &str) -> Result<f64, String> {
    parse_count(text)
        .filter(|v| *v > 0.0)
        .ok_or_else(|| format!("`{text}` is not a positive number such as 200, 20k or 1.5M"))
}

fn whole(text: &str) -> Result<usize, String> {
    let value = parse_count(text).filter(|v| v.fract() == 0.0 && *v < 1e15);
    value.map(|v| v as usize).ok_or_else(|| format!("`{text}` is not a whole number"))
}

fn positive(text: &str) -> Result<usize, String> {
    whole(text).and_then(|n| if n > 0 { Ok(n) } else { Err(format!("`{text}` is not positive")) })
}

/// A time: `500ms`, `10s`, `2m`.
pub fn time(text: &str) -> Result<f64, String> {
    parse_seconds(text).ok_or_else(|| format!("`{text}` is not a time such as 500ms, 10s or 2m"))
}

fn share(text: &str) -> Result<f64, String> {
    parse_share(text).ok_or_else(|| format!("`{text}` is not a share such as 2%"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_options_are_consistent() {
        Options::command().debug_assert();
        let parse = |text: &str| parse(&text.split_whitespace().map(OsString::from).collect::<Vec<_>>());
        let o = parse("http://h/ -c 10k -d 2m --think 5ms").unwrap();
        assert_eq!((o.connections, o.duration), (Some(10_000), Some(120.0)));
        assert_eq!(parse("--help").unwrap_err(), OK);
        for wrong in [
            "",
            "http://h/ -c 1.5",
            "http://h/ -r 5 --conn-rate 5",
            "http://h/ --workers a:1",
            "http://h/ -n 0",
            "http://h/ -n 5 --conn-rate 5",
            "http://h/ --rounds 0",
            "http://h/ --find p99<5ms --rounds 3",
            "http://h/ --request-file a --paths b",
            "http://h/ --request-file a -X POST",
            "http://h/ --by 3%",
        ] {
            assert_eq!(parse(wrong).unwrap_err(), USAGE, "{wrong}");
        }
    }
}
