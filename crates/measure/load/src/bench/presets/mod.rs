//! Translates the flags of wrk, wrk2, h2load, httperf, ab, JMeter, oha, hey, vegeta, ghz, fortio and Nighthawk into
//! Tidegate's, which are printed.

mod calls;
mod classics;
mod rates;
mod targets;
mod wrk;

use self::calls::{ghz, k6};
use self::classics::{ab, httperf, jmeter};
use self::rates::{fortio, hey, nighthawk, oha};
use self::targets::vegeta;
use self::wrk::{h2load, wrk, wrk2};

pub type Preset = fn(&[String]) -> Result<Vec<String>, String>;

fn find(name: &str) -> Option<Preset> {
    Some(match name {
        "wrk" => wrk,
        "wrk2" => wrk2,
        "h2load" => h2load,
        "httperf" => httperf,
        "ab" => ab,
        "jmeter" => jmeter,
        "oha" => oha,
        "hey" => hey,
        "vegeta" => vegeta,
        "ghz" => ghz,
        "k6" => k6,
        "fortio" => fortio,
        "nighthawk" => nighthawk,
        _ => return None,
    })
}

/// Translates the arguments of a tool; `None` for an unknown one. `--json`, `--csv` and `--html` are accepted beside
/// the tool's flags.
pub fn translate_arguments(tool: &str, args: &[String]) -> Option<Result<Vec<String>, String>> {
    // As printed in documents: `./wrk`, `/usr/bin/ab`. A URL is no path.
    let name = match tool.starts_with(['.', '/']) {
        true => tool.rsplit('/').next().unwrap_or_default(),
        false => tool,
    };
    let preset = find(name)?;
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let name = arg.split('=').next().unwrap_or_default();
        if !matches!(name, "--json" | "--csv" | "--html") {
            theirs.push(arg.clone());
            continue;
        }
        ours.push(arg.clone());
        if !arg.contains('=') {
            ours.extend(args.next().cloned());
        }
    }
    Some(preset(&theirs).map(|mut all| {
        all.extend(ours);
        all
    }))
}

/// Reads getopt-style arguments: `-c100`, `-c 100`, `--rate 5`, `--rate=5`, and operands.
struct ToolArguments {
    left: std::collections::VecDeque<String>,
    others: Vec<String>,
}

impl ToolArguments {
    fn new(args: &[String]) -> Self {
        ToolArguments { left: args.iter().cloned().collect(), others: Vec::new() }
    }

    fn next(&mut self) -> Option<(String, Option<String>)> {
        while let Some(arg) = self.left.pop_front() {
            if let Some(long) = arg.strip_prefix("--") {
                return Some(match long.split_once('=') {
                    Some((name, value)) => (format!("--{name}"), Some(value.into())),
                    None => (arg, None),
                });
            }
            if arg.len() > 1 && arg.starts_with('-') {
                let (name, value) = arg.split_at(2);
                return Some((name.into(), (!value.is_empty()).then(|| value.into())));
            }
            self.others.push(arg);
        }
        None
    }

    fn value(&mut self, name: &str, attached: Option<String>) -> Result<String, String> {
        attached.or_else(|| self.left.pop_front()).ok_or_else(|| format!("{name} needs a value"))
    }

    fn url(&self) -> Result<String, String> {
        self.others.first().cloned().ok_or_else(|| "no URL".into())
    }
}

fn push(out: &mut Vec<String>, name: &str, value: impl Into<String>) {
    out.extend([name.to_string(), value.into()]);
}

fn number(name: &str, text: &str) -> Result<f64, String> {
    text.parse::<f64>()
        .ok()
        .filter(|v| v.is_finite() && *v >= 0.0)
        .ok_or_else(|| format!("{name}: `{text}` is not a number"))
}

/// Reads a number with a unit of wrk: `k`, `M` and `G` in either case.
fn amount(name: &str, text: &str) -> Result<f64, String> {
    let factor = match text.bytes().last().map(|c| c.to_ascii_lowercase()) {
        Some(b'k') => 1e3,
        Some(b'm') => 1e6,
        Some(b'g') => 1e9,
        _ => return number(name, text),
    };
    number(name, text.get(..text.len() - 1).unwrap_or_default()).map(|n| n * factor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::{cli, plan::Plan};
    use crate::engine::job::Model;
    use std::ffi::OsString;

    fn plan(text: &str) -> Plan {
        let words: Vec<String> = text.split_whitespace().map(String::from).collect();
        let translated = find(&words[0]).unwrap()(&words[1..]).unwrap();
        let args: Vec<OsString> = translated.into_iter().map(OsString::from).collect();
        Plan::new(&cli::parse_arguments(&args).unwrap()).unwrap()
    }

    #[test]
    fn wrk_and_wrk2() {
        let p = plan("wrk -t2 -c100 -d30s --latency http://127.0.0.1:1/x");
        let job = p.job(p.values[0], 0);
        assert_eq!((p.values[0], job.threads, job.profile.seconds(), job.timeout), (100.0, 2, 30.0, 2.0));
        let p = plan("wrk2 --rate 1000000000 --latency -t 50 -c 1000 -d 60s https://127.0.0.1:1/1kb");
        assert_eq!((p.values[0], p.base().connections_max, p.base().threads), (1e9, 1000, 50));
        assert!(p.open_loop && p.base().target.tls.is_some());
        assert!(find("wrk2").unwrap()(&["http://h/".into()]).is_err());
        // The program of wrk2 is named wrk, too; wrk 1 had a number of requests.
        assert!(plan("wrk --rate 20k -t 50 -c 1000 http://127.0.0.1:1/").open_loop);
        let p = plan("wrk -t 10 -c 64 -r 10m http://127.0.0.1:1/index.html");
        assert_eq!((p.base().budget, p.values[0], p.open_loop), (Some(10_000_000), 64.0, false));
        assert!(find("wrk").unwrap()(&["-r".into(), "m".into(), "http://h/".into()]).is_err());
        assert!(find("wrk").unwrap()(&["-s".into(), "x.lua".into()]).unwrap_err().contains("Lua"));
    }

    #[test]
    fn httperf_and_ab() {
        let p =
            plan("httperf --server 127.0.0.1 --port 81 --uri /i.html --rate 500 --num-conns 5000 --num-calls 2 --hog");
        let job = p.job(p.values[0], 0);
        assert!(matches!(job.model, Model::Connections { .. }));
        assert_eq!((p.values[0], job.profile.seconds(), job.calls), (500.0, 10.0, 2));
        let p = plan("httperf --server=127.0.0.1 --period=e0.01 --num-conn=100");
        assert_eq!((p.values[0], p.base().requests[0].path.as_str()), (100.0, "/"));
        let p = plan("ab -n 1000 -c 10 -k http://127.0.0.1:1/");
        assert_eq!((p.base().budget, p.values[0], p.base().calls), (Some(1000), 10.0, 0));
        assert_eq!(plan("ab -n 10 http://127.0.0.1:1/").base().calls, 1);
    }

    #[test]
    fn h2load_clients_and_streams() {
        let p = plan("h2load -n 1000 -c 10 -m 32 -t 2 -w 20 -H X:1 http://127.0.0.1:1/");
        assert_eq!((p.values.as_slice(), p.base().pipeline, p.base().threads), (&[10.0][..], 32, 2));
        assert_eq!(p.base().http2.as_ref().map(|own| own.stream_window), Some((1 << 20) - 1));
        assert_eq!(p.base().budget, Some(1000));
        let timed = plan("h2load -D 5 --warm-up-time=1s -c2 -m 100 http://127.0.0.1:1/");
        assert_eq!((timed.base().warmup, timed.base().profile.seconds()), (1.0, 5.0));
        let one = plan("h2load --h1 -n 10 -c 2 -m 3 http://127.0.0.1:1/");
        assert_eq!((one.base().pipeline, &one.base().http2), (3, &None));
        let quic = plan("h2load --alpn-list=h3 -n 10 -c 2 -m 3 https://127.0.0.1:1/");
        assert!(quic.base().http3.is_some() && quic.base().http2.is_none() && quic.base().pipeline == 3);
        let opened = plan("h2load -n 1000 -c 100 -r 50 http://127.0.0.1:1/");
        assert!(matches!(opened.base().model, Model::Connections { .. }));
        assert_eq!((opened.values.as_slice(), opened.base().calls), (&[50.0][..], 10));
        let even = plan("h2load -D 5 -c 4 --rps 25 http://127.0.0.1:1/");
        assert_eq!(even.values, [100.0]);
        assert!(find("h2load").unwrap()(&["-w".into(), "10".into(), "http://h/".into()]).is_err());
    }

    #[test]
    fn reports_go_where_they_are_wanted() {
        let words = ["--server", "h", "--json", "a.json", "--html=b.html", "--num-conns", "5"].map(String::from);
        let all = translate_arguments("httperf", &words).unwrap().unwrap();
        assert!(all.ends_with(&["--json".into(), "a.json".into(), "--html=b.html".into()]), "{all:?}");
        assert!(translate_arguments("siege", &words).is_none());
        assert!(
            translate_arguments("./httperf", &words).is_some()
                && translate_arguments("/usr/bin/httperf", &words).is_some()
        );
        assert!(translate_arguments("http://h/httperf", &words).is_none());
        assert!(translate_arguments("wrk", &["--jsonn".into(), "http://h/".into()]).unwrap().is_err());
    }

    #[test]
    fn httperf_sessions() {
        let p = plan("httperf --server 127.0.0.1 --port 81 --rate 10 --wsess 50,4,2 --wset 100,0.5 --uri /d");
        let job = p.job(p.values[0], 0);
        assert!(matches!(job.model, Model::Connections { think, .. } if think.mean == 2.0));
        assert_eq!(
            (job.calls, job.profile.seconds(), job.requests[0].path.as_str()),
            (4, 5.0, "/d{{walk:100:0.5}}.html")
        );
        let p = plan("httperf --server 127.0.0.1 --port 81 --rate 10 --num-conns 50 --wset 100,0.5");
        assert_eq!(p.base().requests[0].path, "{{walk:100:0.5}}.html");
    }

    #[test]
    fn oha_fortio_and_nighthawk() {
        let p = plan("oha -n 1000 -c 20 --no-tui http://127.0.0.1:1/");
        assert_eq!((p.base().budget, p.values[0], p.open_loop), (Some(1000), 20.0, false));
        let p = plan("hey -z 10s -q 100 -c 20 -m POST -d x http://127.0.0.1:1/");
        let request = &p.base().requests[0];
        assert_eq!(
            (p.values[0], p.open_loop, request.method.as_str(), request.body.as_str()),
            (2000.0, true, "POST", "x")
        );
        assert_eq!(plan("oha -z 10s -q 100 -c 20 http://127.0.0.1:1/").values, [100.0]);
        // Go's options have one dash or two.
        let p = plan("hey -disable-keepalive -cpus=3 --n 9 -c=2 -a u:p http://127.0.0.1:1/");
        assert_eq!((p.base().calls, p.base().threads, p.base().budget), (1, 3, Some(9)));
        assert_eq!(p.base().requests[0].body, "");
        let words = hey(&["-a".into(), "u:p".into(), "http://h/".into()]).unwrap();
        assert!(words.contains(&"Authorization: Basic dTpw".into()), "{words:?}");
        assert_eq!(p.base().follow, 10, "as these tools do");
        let p = plan("hey -disable-redirects -x http://127.0.0.1:3128 http://h/");
        assert_eq!((p.base().follow, p.base().target.address.port()), (0, 3128));
        assert_eq!(plan("oha -r 3 http://127.0.0.1:1/").base().follow, 3);
        let p = plan("hey -h2 -host other -U me -t 7 https://127.0.0.1:1/");
        assert_eq!((p.base().http2.is_some(), p.base().timeout), (true, 7.0));
        assert_eq!(p.base().headers, ["Host: other", "User-Agent: me"]);
        assert!(plan("hey -h2 http://127.0.0.1:1/").base().http2.is_none(), "over TLS only");
        assert_eq!(
            (plan("hey http://127.0.0.1:1/").base().timeout, plan("oha http://127.0.0.1:1/").base().timeout),
            (20.0, 3600.0)
        );
        let p = plan("fortio load -qps 50 -c 2 -t 3s -H X:y http://127.0.0.1:1/");
        assert_eq!((p.values[0], p.base().connections_max, p.job(50.0, 0).profile.seconds()), (50.0, 2, 3.0));
        assert!(!plan("fortio load -qps 0 -c 2 http://127.0.0.1:1/").open_loop);
        let p = plan("nighthawk --rps 10 --connections 5 --concurrency 2 --duration 7 --open-loop http://127.0.0.1:1/");
        assert_eq!((p.values[0], p.base().connections_max, p.base().threads), (20.0, 10, 2));
        assert!(find("oha").unwrap()(&["--wait-for".into()]).is_err());
    }

    #[test]
    fn jmeter_users() {
        let p = plan("jmeter -Jthreads=10,20,50 -Jduration=5 -Jdelay=100 http://127.0.0.1:1/");
        assert_eq!(p.values, [10.0, 20.0, 50.0]);
        assert!(matches!(p.base().model, Model::Closed { think } if think.mean == 0.1));
    }
}
