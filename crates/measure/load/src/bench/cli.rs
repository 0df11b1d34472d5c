//! The options of `tidegate bench`.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::Parser;

use super::values::{
    factor, ip, parse_address, parse_cpu, parse_degradation, parse_number, parse_pid, parse_positive, parse_time,
    positive_time, priority, rate, redirects, statuses, table_size, whole, window,
};

const EXAMPLES: &str = "\
Loads:
  tidegate bench http://127.0.0.1:8080/ -c 100 -d 30s         closed loop: 100 connections, each sends its next request after the response
  tidegate bench URL -r 20k                                   open loop: 20,000 requests/s, independent of the responses
  tidegate bench URL --conn-rate 5000                         5,000 new connections/s
  tidegate bench URL --users 200 --think 1s --ramp 30s        200 users with 1 s think time, started over 30 s
  tidegate bench URL -c 50 --sweep 1,2,5,10,20,50,100         one point for each number of connections
  tidegate bench URL -r 1 --sweep 1k..30k/1k                  one point for each rate
  tidegate bench URL --find 'p99<5ms'                         the highest rate that meets the objective
  tidegate bench URL --replay access.log --speed 2            replay an access log at twice its speed
Flags of other tools:
  tidegate bench wrk -t2 -c100 -d30s URL                      also wrk2, h2load, httperf, ab, jmeter, oha, hey, vegeta, ghz, fortio, nighthawk
WebSocket (each request is a message, the server's next message its answer):
  tidegate bench ws://127.0.0.1:8080/echo -b 'n={{seq}}' -r 5k
gRPC (the body is JSON; an array for methods that take a stream):
  tidegate bench grpc://127.0.0.1:50051/pkg.Greeter/SayHello -b '{\"name\": \"n{{seq}}\"}' -c 10 -m 8
  tidegate bench grpcs://127.0.0.1:50051/pkg.Greeter/SayHello --proto greeter.proto -b @message.json -r 5k
HTTP/2 and HTTP/3:
  tidegate bench https://127.0.0.1:8443/ --http2 -c 10 -m 32  10 connections with 32 concurrent streams each
  tidegate bench https://127.0.0.1:8443/ --http3 --conn-rate 500 --resume --early-data   resumed QUIC connections with 0-RTT requests
Gates:
  tidegate bench URL --require 'p99<5ms@20000rps' --require 'errors<0.1%'
  tidegate bench URL -c 100 --rounds 5 --baseline before.json --by 2%
Saved runs side by side:
  tidegate bench compare before.json after.json --html both.html
  tidegate bench compare before.json after.json --by 5%       with an exit status
Sessions from recordings, descriptions and collections:
  tidegate bench import shop.har -o shop.toml                 also OpenAPI 3 and Postman
More than one load machine:
  tidegate bench worker --help

Exit status: 0 all requirements hold; 1 a requirement fails or the result is worse than the baseline; 2 wrong arguments, files or outputs; 3 undecided
(disturbed, client-bound, port-bound, too noisy): repeat the run; 4 no response, more than 1 % of the requests failed or were never sent, or -n requests
at a rate took longer than their schedule;
130, 143 stopped by INT or TERM, with the results so far.";

/// See `--help`.
#[derive(Parser, Clone, Debug)]
#[command(name = "tidegate bench", about = "Generates HTTP load and measures the server", after_help = EXAMPLES)]
pub struct Options {
    /// URL to request. Several URLs, also of several servers, are picked at random with equal weights.
    #[arg(value_name = "URL", required = true)]
    pub urls: Vec<String>,

    /// Connections of a closed loop, or maximum connections of an open loop [default: 50, open loop 1000].
    #[arg(short, long, value_name = "N", value_parser = parse_positive, allow_negative_numbers = true, help_heading = "Load")]
    pub connections: Option<usize>,
    /// Measured time per point [default: 10s; with --requests until they are done].
    #[arg(short, long, value_name = "TIME", value_parser = positive_time, allow_negative_numbers = true, help_heading = "Load")]
    pub duration: Option<f64>,
    /// Stop after N requests, warm-up not included.
    #[arg(short = 'n', long, value_name = "N", value_parser = parse_positive, allow_negative_numbers = true, conflicts_with_all = ["conn_rate", "stages", "find"], help_heading = "Load")]
    pub requests: Option<usize>,
    /// Open loop: scheduled requests per second.
    #[arg(short, long, value_name = "RATE", value_parser = rate, allow_hyphen_values = true, conflicts_with_all = ["conn_rate", "users"], help_heading = "Load")]
    pub rate: Option<f64>,
    /// Arrivals of an open loop: `poisson` (independent users) or `fixed` (even spacing) [default: poisson].
    #[arg(long, value_name = "KIND", value_parser = ["poisson", "fixed"], help_heading = "Load")]
    pub arrivals: Option<String>,
    /// Scheduled new connections per second.
    #[arg(long, value_name = "RATE", value_parser = rate, allow_hyphen_values = true, conflicts_with = "users", help_heading = "Load")]
    pub conn_rate: Option<f64>,
    /// Users of a closed loop (one connection each).
    #[arg(long, value_name = "N", value_parser = parse_positive, allow_negative_numbers = true, conflicts_with = "connections", help_heading = "Load")]
    pub users: Option<usize>,
    /// Pause of a user after a response; `1s,random` for an exponential distribution.
    #[arg(long, value_name = "TIME", help_heading = "Load")]
    pub think: Option<String>,
    /// Time to increase the load from zero before the measurement.
    #[arg(long, value_name = "TIME", value_parser = parse_time, conflicts_with = "warmup", help_heading = "Load")]
    pub ramp: Option<f64>,
    /// Load over time, instead of --duration: `100@10s,100..500@30s` (connections, users or requests per second).
    #[arg(long, value_name = "LIST", conflicts_with_all = ["sweep", "find", "ramp", "duration"], help_heading = "Load")]
    pub stages: Option<String>,
    /// Requests per connection before it is closed; 0 means no limit [default: 0; with --conn-rate 1].
    #[arg(long, value_name = "N", value_parser = whole, help_heading = "Load")]
    pub calls: Option<usize>,
    /// Connections to each server, instead of -c for all servers together; with a --session, of each user, for its parallel steps
    /// (over HTTP/1.1) [default: 6].
    #[arg(long, value_name = "N", value_parser = parse_positive, help_heading = "Load")]
    pub connections_per_host: Option<usize>,
    /// Open a new connection for every request.
    #[arg(long, conflicts_with = "calls", help_heading = "Load")]
    pub no_keepalive: bool,
    /// Requests in flight on each connection (closed loop, HTTP/1.1).
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_positive, help_heading = "Load")]
    pub pipeline: usize,
    /// Use HTTP/2: over TLS by ALPN, in cleartext with prior knowledge.
    #[arg(long, conflicts_with = "pipeline", help_heading = "HTTP/2 and HTTP/3")]
    pub http2: bool,
    /// Use HTTP/3, over QUIC.
    #[arg(long, conflicts_with_all = ["pipeline", "http2"], help_heading = "HTTP/2 and HTTP/3")]
    pub http3: bool,
    /// Send the first requests of resumed connections as 0-RTT data.
    #[arg(long, requires = "http3", requires = "resume", help_heading = "HTTP/2 and HTTP/3")]
    pub early_data: bool,
    /// Concurrent streams per connection, up to the server's limit [default: 1 in a closed loop, 100 in an open loop].
    #[arg(short = 'm', long, value_name = "N", value_parser = parse_positive, help_heading = "HTTP/2 and HTTP/3")]
    pub streams: Option<usize>,
    /// Flow-control window of a stream in bytes, 65535 to 2147483647 [default: 1 GiB].
    #[arg(long, value_name = "BYTES", value_parser = window, help_heading = "HTTP/2 and HTTP/3")]
    pub stream_window: Option<u32>,
    /// Flow-control window of a connection in bytes [default: 1 GiB].
    #[arg(long, value_name = "BYTES", value_parser = window, help_heading = "HTTP/2 and HTTP/3")]
    pub connection_window: Option<u32>,
    /// Size of the HPACK dynamic table announced to the server, in bytes; 0 disables it [default: 4096].
    #[arg(long, value_name = "BYTES", value_parser = table_size, requires = "http2", help_heading = "HTTP/2 and HTTP/3")]
    pub header_table: Option<u32>,
    /// Priority of every request (RFC 9218), such as `u=1,i`.
    #[arg(long, value_name = "FIELD", value_parser = priority, help_heading = "HTTP/2 and HTTP/3")]
    pub priority: Option<String>,
    /// File with the called service (.proto), of grpc:// and grpcs:// URLs; without it, the server's reflection is asked. May be repeated.
    #[arg(long, value_name = "FILE", help_heading = "gRPC")]
    pub proto: Vec<PathBuf>,
    /// Folder of --proto files and their imports [default: the folders of the files]. May be repeated.
    #[arg(long, value_name = "DIR", requires = "proto", help_heading = "gRPC")]
    pub import_path: Vec<PathBuf>,
    /// Descriptors that protoc has compiled with their imports, instead of --proto.
    #[arg(long, value_name = "FILE", conflicts_with = "proto", help_heading = "gRPC")]
    pub protoset: Option<PathBuf>,
    /// Compress messages with gzip, and accept compressed answers (grpc-encoding).
    #[arg(long, help_heading = "gRPC")]
    pub grpc_gzip: bool,
    /// Pause between the messages that a call sends [default: all at once].
    #[arg(long, value_name = "TIME", value_parser = positive_time, allow_negative_numbers = true, help_heading = "gRPC")]
    pub stream_interval: Option<f64>,
    /// Warm-up before each point [default: 500ms; none with --requests].
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = "Load")]
    pub warmup: Option<f64>,
    /// Random seed.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = parse_number::<u64>, help_heading = "Load")]
    pub seed: u64,

    /// One point for each value: `1,2,5,10`, `1000..30000/1000` (steps) or `1..1024*2` (factors).
    #[arg(long, value_name = "LIST", help_heading = "Experiment")]
    pub sweep: Option<String>,
    /// Rounds over all points; drift of the machine then affects all points equally.
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_positive, help_heading = "Experiment")]
    pub rounds: usize,
    /// Search for the highest rate that meets an objective such as `p99<5ms` or `p99.9<20ms,errors<0.1%`.
    #[arg(long, value_name = "OBJECTIVE", conflicts_with_all = ["sweep", "conn_rate", "users", "rate", "rounds", "baseline"], help_heading = "Experiment")]
    pub find: Option<String>,

    /// Request method.
    #[arg(short = 'X', long, value_name = "METHOD", default_value = "GET", help_heading = "Request")]
    pub method: String,
    /// Header field. Values, URLs and bodies may contain {{seq}}, {{rand:1:9}}, {{pick:a|b}}, {{hex:16}}.
    #[arg(short = 'H', long = "header", value_name = "LINE", help_heading = "Request")]
    pub headers: Vec<String>,
    /// Request body, or @FILE.
    #[arg(
        short = 'b',
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true,
        help_heading = "Request"
    )]
    pub body: String,
    /// File with [[request]] tables: path, weight, method, headers, body, expect (TOML).
    #[arg(long, value_name = "FILE", help_heading = "Request", conflicts_with_all =
        ["paths", "replay", "method", "body", "expect_status", "expect_length", "expect_contains", "expect_hash"])]
    pub request_file: Option<PathBuf>,
    /// File with [[step]] tables: the requests of a session, each sent after the previous response. Keys as for --request-file, and
    /// extract = { token = "json:/token" } for {{var:token}} in later steps (header:, cookie:, json:, regex:), think = "1s",
    /// parallel = true for a step that is sent at the same time as the step before, as a page's pictures; a call of gRPC has
    /// grpc = "pkg.Service/Method", data = { field = 1 } and expect = { grpc = ["OK"] }.
    #[arg(long, value_name = "FILE", help_heading = "Request", conflicts_with_all = ["rate", "find", "request_file", "paths",
        "replay", "method", "body", "expect_status", "expect_length", "expect_contains", "expect_hash"])]
    pub session: Option<PathBuf>,
    /// Follow up to N redirects of each request; its latency includes them.
    #[arg(long, value_name = "N", value_parser = redirects, help_heading = "Request")]
    pub follow: Option<u32>,
    /// Keep cookies for each user (in an open loop for each connection), until the end of its session.
    #[arg(long, help_heading = "Request")]
    pub cookies: bool,
    /// Rows of data, CSV with a line of names or JSON lines, for ${column} in URLs, headers and bodies: in order (the default), at
    /// `random`, or each row `once`, which ends the run. A session keeps its row.
    #[arg(long, value_name = "FILE[:ORDER]", help_heading = "Request")]
    pub data: Option<String>,
    /// File with one path or URL per line, optionally preceded by a weight.
    #[arg(long, value_name = "FILE", conflicts_with = "replay", help_heading = "Request")]
    pub paths: Option<PathBuf>,
    /// Replay an access log with its original timing.
    #[arg(long, value_name = "LOG", conflicts_with_all =
        ["rate", "arrivals", "conn_rate", "users", "sweep", "find", "stages", "duration", "method", "body", "ramp", "expect_status",
         "expect_length", "expect_contains", "expect_hash"], help_heading = "Request")]
    pub replay: Option<PathBuf>,
    /// Format of the log (nginx's log_format) [default: combined].
    #[arg(long, value_name = "FORMAT", requires = "replay", help_heading = "Request")]
    pub log_format: Option<String>,
    /// Speed factor of the replay.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = factor, allow_negative_numbers = true, requires = "replay", help_heading = "Request")]
    pub speed: f64,

    /// Expected status codes, such as `200,404`, `200-399` or `2xx` [default: 200-399].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = statuses, help_heading = "Expectation")]
    pub expect_status: Vec<RangeInclusive<u16>>,
    /// Expected body length.
    #[arg(long, value_name = "BYTES", value_parser = parse_number::<u64>, help_heading = "Expectation")]
    pub expect_length: Option<u64>,
    /// Text that the body must contain.
    #[arg(long, value_name = "TEXT", help_heading = "Expectation")]
    pub expect_contains: Option<String>,
    /// Expected hash of the body (64-bit FNV-1a, hexadecimal).
    #[arg(long, value_name = "HASH", help_heading = "Expectation")]
    pub expect_hash: Option<String>,
    /// Send one request, print status, length and hash of the response, and exit.
    #[arg(long, conflicts_with_all = ["find", "sweep", "json", "csv", "html", "junit", "markdown", "annotations", "save_baseline", "metrics", "influx", "otlp", "follow", "cookies", "data", "proxy", "spectrum", "require", "abort_on", "baseline"],
        help_heading = "Expectation")]
    pub show: bool,
    /// Request timeout; of calls of gRPC also their deadline (grpc-timeout).
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = positive_time, allow_negative_numbers = true, help_heading = "Expectation")]
    pub timeout: f64,
    /// Connect timeout.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = positive_time, allow_negative_numbers = true, help_heading = "Expectation")]
    pub connect_timeout: f64,

    /// CA certificates (PEM) to verify the server's certificate; without this option it is not verified.
    #[arg(long, value_name = "FILE", help_heading = "TLS")]
    pub cacert: Option<PathBuf>,
    /// Client certificate, with its chain (PEM).
    #[arg(long, value_name = "FILE", requires = "key", help_heading = "TLS")]
    pub cert: Option<PathBuf>,
    /// Private key of the client certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "cert", help_heading = "TLS")]
    pub key: Option<PathBuf>,
    /// Resume TLS sessions on later connections. By default every handshake is full.
    #[arg(long, help_heading = "TLS")]
    pub resume: bool,
    /// TLS version: 1.2 or 1.3.
    #[arg(long, value_name = "VERSION", default_value = "", hide_default_value = true, help_heading = "TLS")]
    pub tls: String,
    /// Cipher suites, by OpenSSL's names.
    #[arg(long, value_name = "LIST", value_delimiter = ',', help_heading = "TLS")]
    pub ciphers: Vec<String>,

    /// Client threads, one per CPU [default: number of available CPUs].
    #[arg(short, long, value_name = "N", value_parser = parse_positive, help_heading = "Client")]
    pub threads: Option<usize>,
    /// CPUs to pin the client's threads to: `1` or `2,3`.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_cpu, help_heading = "Client")]
    pub pin: Vec<usize>,
    /// Busy-wait: accurate to a microsecond, and uses its CPUs fully.
    #[arg(long, help_heading = "Client")]
    pub spin: bool,
    /// Local addresses to connect from, in rotation; each has its own port range.
    #[arg(long, value_name = "IP", value_delimiter = ',', value_parser = ip, help_heading = "Client")]
    pub source: Vec<IpAddr>,
    /// Connect to this address instead of the URL's.
    #[arg(long, value_name = "IP:PORT", value_parser = parse_address, help_heading = "Client")]
    pub connect_to: Option<SocketAddr>,
    /// Send requests through this HTTP proxy, `http://[USER:PASSWORD@]HOST:PORT`; https:// URLs by CONNECT.
    #[arg(long, value_name = "URL", conflicts_with_all = ["connect_to", "unix", "http3"], help_heading = "Client")]
    pub proxy: Option<String>,
    /// Connect to this unix socket; the URL still sets the host and the path.
    #[arg(long, value_name = "PATH", conflicts_with_all = ["connect_to", "source"], help_heading = "Client")]
    pub unix: Option<PathBuf>,
    /// Close connections with RST, which leaves no ports in TIME_WAIT.
    #[arg(long, help_heading = "Client")]
    pub reset: bool,
    /// Server processes to measure [default: local processes that listen on the port].
    #[arg(long, value_name = "PID", value_delimiter = ',', value_parser = parse_pid, help_heading = "Client")]
    pub pid: Vec<u32>,
    /// Status page to poll during the run (stub_status, or metrics in Prometheus' text format), for a remote server.
    #[arg(long, value_name = "URL", help_heading = "Client")]
    pub watch: Option<String>,
    /// Workers that share the load, `HOST:PORT`; see `bench worker`.
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "secret", help_heading = "Client")]
    pub workers: Vec<String>,
    /// File with the secret shared with the workers.
    #[arg(long, value_name = "FILE", requires = "workers", help_heading = "Client")]
    pub secret: Option<PathBuf>,
    /// Certificate of this coordinator, with its chain (PEM): the links to the workers are then over TLS.
    #[arg(long, value_name = "FILE", requires = "workers", requires_all = ["workers_key", "workers_cacert"], help_heading = "Client")]
    pub workers_cert: Option<PathBuf>,
    /// Private key of --workers-cert (PEM).
    #[arg(long, value_name = "FILE", requires = "workers_cert", help_heading = "Client")]
    pub workers_key: Option<PathBuf>,
    /// CA certificates (PEM) of the workers' certificates, which must name the hosts of --workers.
    #[arg(long, value_name = "FILE", requires = "workers_cert", help_heading = "Client")]
    pub workers_cacert: Option<PathBuf>,

    /// Title of the report.
    #[arg(long, value_name = "TEXT", help_heading = "Output")]
    pub title: Option<String>,
    /// Write the report as JSON. `-` is the standard output.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub json: Option<PathBuf>,
    /// Write one line per round as CSV. `-` is the standard output.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub csv: Option<PathBuf>,
    /// Write the report as one self-contained page with plots. `-` is the standard output.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub html: Option<PathBuf>,
    /// Write metrics at every interval of the run: Prometheus' text format, rewritten each time, if the name ends in .prom (for the
    /// node exporter's textfile collector); Prometheus' remote write for a URL; otherwise one appended line of JSON per interval.
    #[arg(long, value_name = "FILE|URL", help_heading = "Output")]
    pub metrics: Option<PathBuf>,
    /// Send metrics at every interval to InfluxDB: http://HOST:8086/?db=NAME (version 1) or ?org=NAME&bucket=NAME (version 2).
    #[arg(long, value_name = "URL", help_heading = "Output")]
    pub influx: Option<String>,
    /// File with the token of InfluxDB 2.
    #[arg(long, value_name = "FILE", requires = "influx", help_heading = "Output")]
    pub influx_token: Option<PathBuf>,
    /// Send metrics at every interval by OTLP over HTTP, to http://HOST:4318 (path /v1/metrics unless another is given).
    #[arg(long, value_name = "URL", help_heading = "Output")]
    pub otlp: Option<String>,
    /// Write gates and verdicts as JUnit's XML. `-` is the standard output.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub junit: Option<PathBuf>,
    /// Write a short summary in Markdown, for a pull request. `-` is the standard output.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub markdown: Option<PathBuf>,
    /// Print annotations for a build: `github` (workflow commands of GitHub Actions).
    #[arg(long, value_name = "KIND", value_parser = ["github"], help_heading = "Output")]
    pub annotations: Option<String>,
    /// Print complete latency distributions after the summary, from the schedule and from the send (uncorrected), as HdrHistogram's tools do.
    #[arg(long, help_heading = "Output")]
    pub spectrum: bool,
    /// Print all times of the summary in milliseconds.
    #[arg(long, help_heading = "Output")]
    pub ms: bool,
    /// Interval of the time series [default: a fortieth of the run, 100 ms to 1 s].
    #[arg(long, value_name = "TIME", value_parser = positive_time, allow_negative_numbers = true, help_heading = "Output")]
    pub interval: Option<f64>,
    /// Print no summary. Failures and their reasons still go to the standard error.
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
    /// Show no live view, even on a terminal.
    #[arg(long, help_heading = "Output")]
    pub no_live: bool,

    /// A requirement such as `p99<5ms@20000rps`, `rps>50k`, `errors<0.1%`, `cpu<20us`, `memory<20MB`. May be repeated.
    #[arg(long, value_name = "RULE", help_heading = "Gate")]
    pub require: Vec<String>,
    /// Stop when this rule holds for the results so far, after at least a hundred requests: `errors>10%`, `p99>1s`.
    #[arg(long, value_name = "RULE", conflicts_with = "workers", help_heading = "Gate")]
    pub abort_on: Vec<String>,
    /// Write the result as a baseline for --baseline and `bench compare`: the report of --json without time series.
    #[arg(long, value_name = "FILE", help_heading = "Gate")]
    pub save_baseline: Option<PathBuf>,
    /// Report (JSON) to compare with.
    #[arg(long, value_name = "FILE", help_heading = "Gate")]
    pub baseline: Option<PathBuf>,
    /// Tolerated degradation from the baseline.
    #[arg(long, value_name = "SHARE", default_value = "2%", requires = "baseline", value_parser = parse_degradation, help_heading = "Gate")]
    pub by: f64,
}

/// Parses the arguments. If there is nothing to run, prints help or an error and fails with the exit status.
pub fn parse_arguments(args: &[OsString]) -> Result<Options, i32> {
    let all = std::iter::once(OsString::from("tidegate bench")).chain(args.iter().cloned());
    Options::try_parse_from(all).map_err(|e| crate::print_usage(&e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{OK, USAGE};
    use clap::CommandFactory;

    #[test]
    fn statuses_have_ranges_and_classes() {
        let options = Options::try_parse_from("bench http://h/ --expect-status 204,2xx,400-404".split(' ')).unwrap();
        assert_eq!(options.expect_status, [204..=204, 200..=299, 400..=404]);
    }

    #[test]
    fn values_are_refused_in_plain_words() {
        for (arguments, words) in [
            ("-r -5", "the rate must be above 0"),
            ("-r -5k", "the rate must be above 0"),
            ("-r 0", "the rate must be above 0"),
            ("--conn-rate -1.5", "the rate must be above 0"),
            ("-r x", "`x` is not a positive number"),
            ("-c 0", "'--connections <N>': `0` is not positive"),
            ("--users 0", "'--users <N>': `0` is not positive"),
            ("--pin x", "`x` is not the number of a CPU"),
            ("--seed x", "`x` is not a whole number"),
            ("--expect-status 6xx", "`6xx` is not a status code"),
            ("--expect-status 200-", "`200-` is not a status code"),
            ("--expect-status 399-200", "the range `399-200` contains no status code"),
            ("--connect-to foo", "`foo` is not an IP address with a port"),
            ("--timeout 0", "the time must be above 0"),
        ] {
            let all = format!("bench http://h/ {arguments}");
            let why = Options::try_parse_from(all.split(' ')).unwrap_err().to_string();
            assert!(why.contains(words), "{arguments}: {why}");
        }
    }

    #[test]
    fn the_options_are_consistent() {
        Options::command().debug_assert();
        let parse = |text: &str| parse_arguments(&text.split_whitespace().map(OsString::from).collect::<Vec<_>>());
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
            "http://h/ --secret a",
            "http://h/ --ramp 1s --warmup 1s",
            "http://h/ --replay a --arrivals fixed",
            "http://h/ --replay a --expect-length 5",
            "http://h/ --show --json a",
            "http://h/ --show --require p99<5ms",
            "http://h/ --expect-status 9999",
            "http://h/ --interval 0",
            "http://h/ --timeout 0",
            "http://h/ -r -5",
        ] {
            assert_eq!(parse(wrong).unwrap_err(), USAGE, "{wrong}");
        }
    }
}
