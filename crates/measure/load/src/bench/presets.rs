//! Translates the flags of wrk, wrk2, h2load, httperf, ab, JMeter, oha, hey, fortio and Nighthawk into Tidegate's,
//! which are printed.

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

/// wrk, and wrk2, whose program is also named `wrk`: a rate makes an open loop.
fn wrk_like(args: &[String], needs_rate: bool) -> Result<Vec<String>, String> {
    let mut a = ToolArguments::new(args);
    let mut out = Vec::new();
    let (mut rate, mut requests, mut timeout) = (None, None, "2s".to_string());
    // Defaults of wrk: 2 threads, 10 connections, 10 seconds.
    let (mut threads, mut connections, mut duration) = ("2".to_string(), "10".to_string(), "10s".to_string());
    while let Some((name, value)) = a.next() {
        match name.as_str() {
            "-t" | "--threads" => threads = a.value(&name, value)?,
            "-c" | "--connections" => connections = a.value(&name, value)?,
            "-d" | "--duration" => duration = a.value(&name, value)?,
            "-H" | "--header" => {
                let header = a.value(&name, value)?;
                push(&mut out, "-H", header);
            }
            "--timeout" | "-T" => timeout = a.value(&name, value)?,
            "-R" | "--rate" => rate = Some(a.value(&name, value)?),
            // wrk 1: a number of requests instead of a duration.
            "-r" | "--requests" => requests = Some(amount(&name, &a.value(&name, value)?)?),
            "-L" | "--latency" | "-U" | "--u_latency" | "-B" | "--batch_latency" => {}
            "-s" | "--script" => {
                return Err("Lua scripts are not run; see --request-file and templates ({{seq}}, {{rand:1:9}})".into());
            }
            other => return Err(format!("{other} is not a flag of this preset")),
        }
    }
    if needs_rate && rate.is_none() {
        return Err("-R (rate) is needed".into());
    }
    let mut all = vec![a.url()?];
    push(&mut all, "-t", threads);
    push(&mut all, "-c", connections);
    match requests {
        Some(requests) => push(&mut all, "-n", format!("{requests}")),
        None => {
            push(&mut all, "-d", duration);
            push(&mut all, "--warmup", "0s");
        }
    }
    push(&mut all, "--timeout", timeout);
    if let Some(rate) = rate {
        push(&mut all, "-r", rate);
        push(&mut all, "--arrivals", "fixed");
    }
    all.extend(out);
    Ok(all)
}

/// Rewrites options of Go's `flag` package: names of any length have one dash or two, and values follow after a space or
/// an equals sign.
fn go_options(args: &[String]) -> Vec<String> {
    let mut out = Vec::new();
    for arg in args {
        let Some(option) = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-').filter(|o| !o.is_empty())) else {
            out.push(arg.clone());
            continue;
        };
        match option.split_once('=') {
            Some((name, value)) if name.len() == 1 => out.extend([format!("-{name}"), value.into()]),
            None if option.len() == 1 => out.push(format!("-{option}")),
            _ => out.push(format!("--{option}")),
        }
    }
    out
}

/// The field of a name and password, `user:password`.
fn basic(login: &str) -> String {
    use base64::Engine as _;
    format!("Authorization: Basic {}", base64::engine::general_purpose::STANDARD.encode(login))
}

/// hey, whose rate is that of each worker.
fn hey(args: &[String]) -> Result<Vec<String>, String> {
    requests_or_time(&go_options(args), true)
}

/// oha, whose rate is that of all connections.
fn oha(args: &[String]) -> Result<Vec<String>, String> {
    requests_or_time(args, false)
}

/// A number of requests or a time. A rate becomes an open loop, where these tools queue behind their workers.
fn requests_or_time(args: &[String], hey: bool) -> Result<Vec<String>, String> {
    let mut a = ToolArguments::new(args);
    let (mut out, mut requests, mut time, mut rate) = (Vec::new(), "200".to_string(), None, None);
    let (mut connections, mut redirects) = ("50".to_string(), "10".to_string());
    while let Some((name, value)) = a.next() {
        match name.as_str() {
            "-n" => requests = a.value(&name, value)?,
            "-c" => connections = a.value(&name, value)?,
            "-z" => time = Some(a.value(&name, value)?),
            "-q" => rate = Some(a.value(&name, value)?),
            "-m" | "--method" => push(&mut out, "-X", a.value(&name, value)?),
            "-H" => push(&mut out, "-H", a.value(&name, value)?),
            "-d" => push(&mut out, "-b", a.value(&name, value)?),
            "-D" => push(&mut out, "-b", format!("@{}", a.value(&name, value)?)),
            "-T" => push(&mut out, "-H", format!("Content-Type: {}", a.value(&name, value)?)),
            "-t" => push(&mut out, "--timeout", a.value(&name, value)?),
            "-a" => push(&mut out, "-H", basic(&a.value(&name, value)?)),
            "-A" => push(&mut out, "-H", format!("Accept: {}", a.value(&name, value)?)),
            "--unix-socket" if !hey => push(&mut out, "--unix", a.value(&name, value)?),
            "--cpus" if hey => push(&mut out, "-t", a.value(&name, value)?),
            "--h2" if hey => out.push("--http2".into()),
            "--disable-keepalive" => out.push("--no-keepalive".into()),
            "-x" => push(&mut out, "--proxy", a.value(&name, value)?),
            "--disable-redirects" if hey => redirects = "0".into(),
            "-r" | "--redirect" if !hey => redirects = a.value(&name, value)?,
            "--cacert" | "--cert" | "--key" if !hey => push(&mut out, &name, a.value(&name, value)?),
            "--disable-compression" if hey => {}
            "--no-tui" | "--latency-correction" | "--insecure" if !hey => {}
            other => return Err(format!("{other} is not a flag of this preset")),
        }
    }
    if redirects != "0" {
        push(&mut out, "--follow", redirects);
    }
    let workers = if hey { number("-c", &connections)? } else { 1.0 };
    let mut all = vec![a.url()?];
    push(&mut all, "-c", connections);
    match time {
        Some(time) => {
            push(&mut all, "-d", time);
            push(&mut all, "--warmup", "0s");
        }
        None => push(&mut all, "-n", requests),
    }
    if let Some(rate) = rate {
        push(&mut all, "-r", format!("{}", number("-q", &rate)? * workers));
        push(&mut all, "--arrivals", "fixed");
    }
    all.extend(out);
    Ok(all)
}

/// `fortio load`: a rate over connections, 8 requests/s by default.
fn fortio(args: &[String]) -> Result<Vec<String>, String> {
    let args = go_options(&args.iter().filter(|a| *a != "load").cloned().collect::<Vec<_>>());
    let mut a = ToolArguments::new(&args);
    let (mut out, mut rate, mut connections) = (Vec::new(), 8.0, "4".to_string());
    let (mut time, mut requests) = ("5s".to_string(), None);
    while let Some((name, value)) = a.next() {
        match name.as_str() {
            "--qps" => rate = number(&name, &a.value(&name, value)?)?,
            "-c" => connections = a.value(&name, value)?,
            "-t" => time = a.value(&name, value)?,
            "-n" => requests = Some(a.value(&name, value)?),
            "-H" => push(&mut out, "-H", a.value(&name, value)?),
            "-X" => push(&mut out, "-X", a.value(&name, value)?),
            "--payload" => push(&mut out, "-b", a.value(&name, value)?),
            "--timeout" => push(&mut out, "--timeout", a.value(&name, value)?),
            "--unix-socket" => push(&mut out, "--unix", a.value(&name, value)?),
            "--keepalive" if value.as_deref() == Some("false") => out.push("--no-keepalive".into()),
            "--uniform" | "--nocatchup" | "--quiet" => {}
            other => return Err(format!("{other} is not a flag of this preset")),
        }
    }
    let mut all = vec![a.url()?];
    push(&mut all, "-c", connections);
    match requests {
        Some(requests) => push(&mut all, "-n", requests),
        None => {
            push(&mut all, "-d", time);
            push(&mut all, "--warmup", "0s");
        }
    }
    // A rate of 0 is unlimited.
    if rate > 0.0 {
        push(&mut all, "-r", format!("{rate}"));
        push(&mut all, "--arrivals", "fixed");
    }
    all.extend(out);
    Ok(all)
}

/// nighthawk_client: closed loop unless `--open-loop`; rate and connections are per worker.
fn nighthawk(args: &[String]) -> Result<Vec<String>, String> {
    let mut a = ToolArguments::new(args);
    let (mut out, mut rate, mut connections, mut workers) = (Vec::new(), 5.0, 100.0, 1.0);
    let mut time = "5".to_string();
    while let Some((name, value)) = a.next() {
        match name.as_str() {
            "--rps" => rate = number(&name, &a.value(&name, value)?)?,
            "--connections" => connections = number(&name, &a.value(&name, value)?)?,
            "--duration" => time = a.value(&name, value)?,
            "--concurrency" => workers = number(&name, &a.value(&name, value)?)?,
            "--timeout" => push(&mut out, "--timeout", format!("{}s", a.value(&name, value)?)),
            "--request-method" => push(&mut out, "-X", a.value(&name, value)?),
            "--request-header" => push(&mut out, "-H", a.value(&name, value)?),
            "--output-format" => drop(a.value(&name, value)?),
            "--open-loop" | "--prefetch-connections" => {}
            other => return Err(format!("{other} is not a flag of this preset")),
        }
    }
    let mut all = vec![a.url()?];
    push(&mut all, "-t", format!("{workers}"));
    push(&mut all, "-c", format!("{}", connections * workers));
    push(&mut all, "-r", format!("{}", rate * workers));
    push(&mut all, "--arrivals", "fixed");
    push(&mut all, "-d", format!("{}s", time.trim_end_matches('s')));
    push(&mut all, "--warmup", "0s");
    all.extend(out);
    Ok(all)
}

fn wrk(args: &[String]) -> Result<Vec<String>, String> {
    wrk_like(args, false)
}

fn wrk2(args: &[String]) -> Result<Vec<String>, String> {
    wrk_like(args, true)
}

fn httperf(args: &[String]) -> Result<Vec<String>, String> {
    let mut a = ToolArguments::new(args);
    let (mut server, mut port, mut uri) = ("localhost".to_string(), None, "/".to_string());
    let (mut rate, mut connections, mut calls, mut ssl) = (0.0, 1.0, "1".to_string(), false);
    let (mut out, mut arrivals, mut set) = (Vec::new(), "fixed", None);
    while let Some((name, value)) = a.next() {
        match name.as_str() {
            "--server" => server = a.value(&name, value)?,
            "--port" => port = Some(a.value(&name, value)?),
            "--uri" => uri = a.value(&name, value)?,
            "--rate" => rate = number(&name, &a.value(&name, value)?)?,
            "--period" => {
                let period = a.value(&name, value)?;
                let (kind, mean) = period.split_at(period.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(0));
                arrivals = match kind {
                    "" | "d" => "fixed",
                    "e" => "poisson",
                    other => return Err(format!("--period {other}: only d (fixed) and e (exponential) are known")),
                };
                rate = 1.0 / number(&name, mean)?;
            }
            "--num-conns" | "--num-conn" => connections = number(&name, &a.value(&name, value)?)?,
            "--num-calls" | "--num-call" => calls = a.value(&name, value)?,
            "--wsess" => {
                // Sessions, calls per session and pause between calls: each session keeps one connection.
                let text = a.value(&name, value)?;
                let parts: Vec<&str> = text.split(',').collect();
                let [sessions, each, think] = parts[..] else {
                    return Err(format!("--wsess {text}: sessions,calls,seconds are wanted"));
                };
                (connections, calls) = (number(&name, sessions)?, each.to_string());
                push(&mut out, "--think", format!("{think}s"));
            }
            "--wset" => {
                let text = a.value(&name, value)?;
                let (files, share) = text.split_once(',').ok_or(format!("--wset {text}: files,rate are wanted"))?;
                let (files, share) = (number(&name, files)?, number(&name, share)?);
                if files < 1.0 || share > 1.0 {
                    return Err(format!("--wset {text}: one file or more, and a rate of 0 to 1, are wanted"));
                }
                set = Some((files, share));
            }
            "--timeout" => {
                let t = a.value(&name, value)?;
                push(&mut out, "--timeout", t);
            }
            "--method" => {
                let m = a.value(&name, value)?;
                push(&mut out, "-X", m);
            }
            "--add-header" => {
                let header = a.value(&name, value)?;
                push(&mut out, "-H", header.replace("\\n", "").trim().to_string());
            }
            "--ssl" => ssl = true,
            "--hog" | "-v" | "--verbose" => {}
            "--client" => drop(a.value(&name, value)?),
            other => return Err(format!("{other} is not a flag of this preset")),
        }
    }
    if let Some((files, share)) = set {
        uri = format!("{}{{{{walk:{files}:{share}}}}}.html", uri.trim_end_matches('/'));
    }
    let scheme = if ssl { "https" } else { "http" };
    let port = port.map_or(String::new(), |p| format!(":{p}"));
    let mut all = vec![format!("{scheme}://{server}{port}{uri}")];
    if rate <= 0.0 {
        // Without a rate, httperf makes connections in sequence.
        push(&mut all, "-c", "1");
        push(&mut all, "-n", format!("{}", connections * number("--num-calls", &calls)?));
        push(&mut all, "-d", "1h");
    } else {
        push(&mut all, "--conn-rate", format!("{rate}"));
        push(&mut all, "-d", format!("{}s", connections / rate));
        push(&mut all, "--arrivals", arrivals);
        push(&mut all, "-c", "15000");
    }
    push(&mut all, "--calls", calls);
    push(&mut all, "--warmup", "0s");
    all.extend(out);
    Ok(all)
}

/// h2load: HTTP/2 by default; a number of requests or a time.
fn h2load(args: &[String]) -> Result<Vec<String>, String> {
    let mut a = ToolArguments::new(args);
    let (mut out, mut requests, mut duration, mut clients, mut streams) = (Vec::new(), 1.0, None, 1.0, "1".to_string());
    let (mut rate, mut period, mut rps) = (0.0, 1.0, 0.0);
    let (mut http1, mut clear1, mut http3) = (false, false, false);
    let (mut threads, mut warmup, mut windows, mut urls) = ("1".to_string(), "0".to_string(), Vec::new(), Vec::new());
    let window = |name: &str, text: &str| match text.parse::<u32>() {
        Ok(bits @ 16..=30) => Ok(((1u32 << bits) - 1).to_string()),
        _ => Err(format!("{name} {text}: 16 to 30 bits are known here")),
    };
    while let Some((name, value)) = a.next() {
        match name.as_str() {
            "-n" | "--requests" => requests = number(&name, &a.value(&name, value)?)?,
            "-c" | "--clients" => clients = number(&name, &a.value(&name, value)?)?.max(1.0),
            "-t" | "--threads" => threads = a.value(&name, value)?,
            "-m" | "--max-concurrent-streams" => streams = a.value(&name, value)?,
            "-D" | "--duration" => duration = Some(a.value(&name, value)?),
            "--warm-up-time" => warmup = a.value(&name, value)?,
            "-r" | "--rate" => rate = number(&name, &a.value(&name, value)?)?,
            "--rate-period" => {
                let text = a.value(&name, value)?;
                period = figures::units::parse_seconds(&text).filter(|p| *p > 0.0).ok_or(format!("{name} {text}"))?;
            }
            "--rps" => rps = number(&name, &a.value(&name, value)?)?,
            "-w" | "--window-bits" => {
                let bits = a.value(&name, value)?;
                push(&mut windows, "--stream-window", window(&name, &bits)?);
            }
            "-W" | "--connection-window-bits" => {
                let bits = a.value(&name, value)?;
                push(&mut windows, "--connection-window", window(&name, &bits)?);
            }
            "--header-table-size" => push(&mut windows, "--header-table", a.value(&name, value)?),
            "-H" | "--header" => push(&mut out, "-H", a.value(&name, value)?),
            "-d" | "--data" => {
                push(&mut out, "-X", "POST");
                push(&mut out, "-b", format!("@{}", a.value(&name, value)?));
            }
            "-i" | "--input-file" => {
                let file = a.value(&name, value)?;
                let text = std::fs::read_to_string(&file).map_err(|e| format!("{file}: {e}"))?;
                urls.extend(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(String::from));
            }
            "--ciphers" => push(&mut out, "--ciphers", a.value(&name, value)?.replace(':', ",")),
            "--connect-to" => push(&mut out, "--connect-to", a.value(&name, value)?),
            "-T" | "--connection-active-timeout" | "-N" | "--connection-inactivity-timeout" => {
                let limit = a.value(&name, value)?;
                // A bare number is seconds.
                let unit = if limit.ends_with(|c: char| c.is_ascii_digit()) { "s" } else { "" };
                push(&mut out, "--timeout", format!("{limit}{unit}"));
            }
            "--h1" => http1 = true,
            "-p" | "--no-tls-proto" => clear1 = a.value(&name, value)?.eq_ignore_ascii_case("http/1.1"),
            "--npn-list" | "--alpn-list" => {
                let list = a.value(&name, value)?;
                let first = list.split(',').next().unwrap_or_default().trim();
                http1 = first.eq_ignore_ascii_case("http/1.1");
                http3 = first.eq_ignore_ascii_case("h3");
            }
            "--encoder-header-table-size" | "--max-samples" => drop(a.value(&name, value)?),
            "-v" | "--verbose" => {}
            other => return Err(format!("{other} is not a flag of this preset")),
        }
    }
    if urls.is_empty() {
        urls.push(a.url()?);
    }
    let http1 = http1 || (clear1 && urls.iter().any(|url| url.starts_with("http://")));
    let mut all = urls;
    push(&mut all, "-t", threads);
    if rate > 0.0 {
        if duration.is_some() {
            return Err("-r is for a number of requests (-n), not for -D".into());
        }
        push(&mut all, "--conn-rate", format!("{}", rate / period));
        push(&mut all, "-d", format!("{}s", clients * period / rate));
        push(&mut all, "--calls", format!("{}", (requests / clients).ceil()));
        push(&mut all, "--arrivals", "fixed");
        push(&mut all, "-c", "15000");
    } else {
        push(&mut all, "-c", format!("{clients}"));
        match duration {
            Some(time) => {
                push(&mut all, "-d", format!("{}s", time.trim_end_matches('s')));
                push(&mut all, "--warmup", format!("{}s", warmup.trim_end_matches('s')));
            }
            None => push(&mut all, "-n", format!("{requests}")),
        }
        if rps > 0.0 {
            push(&mut all, "-r", format!("{}", rps * clients));
            push(&mut all, "--arrivals", "fixed");
        }
        match http1 {
            true if rps > 0.0 => {}
            true => push(&mut all, "--pipeline", streams),
            false => push(&mut all, "-m", streams),
        }
    }
    if !http1 {
        all.push(if http3 { "--http3" } else { "--http2" }.into());
        all.extend(windows);
    }
    all.extend(out);
    Ok(all)
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

fn ab(args: &[String]) -> Result<Vec<String>, String> {
    let mut a = ToolArguments::new(args);
    let (mut out, mut keep, mut duration, mut requests) = (Vec::new(), false, None, None);
    let mut connections = "1".to_string();
    while let Some((name, value)) = a.next() {
        match name.as_str() {
            "-n" => requests = Some(a.value(&name, value)?),
            "-c" => connections = a.value(&name, value)?,
            "-t" => duration = Some(a.value(&name, value)?),
            "-k" => keep = true,
            "-s" => {
                let t = a.value(&name, value)?;
                push(&mut out, "--timeout", t);
            }
            "-H" => {
                let h = a.value(&name, value)?;
                push(&mut out, "-H", h);
            }
            "-C" => {
                let c = a.value(&name, value)?;
                push(&mut out, "-H", format!("Cookie: {c}"));
            }
            "-T" => {
                let t = a.value(&name, value)?;
                push(&mut out, "-H", format!("Content-Type: {t}"));
            }
            "-m" => {
                let m = a.value(&name, value)?;
                push(&mut out, "-X", m);
            }
            "-p" => {
                let file = a.value(&name, value)?;
                push(&mut out, "-b", format!("@{file}"));
                push(&mut out, "-X", "POST");
            }
            "-A" => push(&mut out, "-H", basic(&a.value(&name, value)?)),
            "-i" => push(&mut out, "-X", "HEAD"),
            "-q" | "-r" | "-d" | "-S" | "-l" => {}
            other => return Err(format!("{other} is not a flag of this preset")),
        }
    }
    let mut all = vec![a.url()?];
    push(&mut all, "-c", connections);
    push(&mut all, "-t", "1");
    match duration {
        Some(seconds) => push(&mut all, "-d", format!("{seconds}s")),
        None => {
            push(&mut all, "-n", requests.unwrap_or("1".into()));
            push(&mut all, "-d", "1h");
        }
    }
    push(&mut all, "--warmup", "0s");
    if !keep {
        all.push("--no-keepalive".into());
    }
    all.extend(out);
    Ok(all)
}

fn jmeter(args: &[String]) -> Result<Vec<String>, String> {
    let mut a = ToolArguments::new(args);
    let mut out: Vec<String> = Vec::new();
    while let Some((name, value)) = a.next() {
        if name != "-J" {
            return Err(format!(
                "{name}: give properties: -Jthreads=50 (or a list: -Jthreads=10,20,50) -Jrampup=10 -Jduration=60 -Jdelay=500"
            ));
        }
        let property = a.value(&name, value)?;
        let (key, value) = property.split_once('=').ok_or_else(|| format!("-J{property} has no ="))?;
        match key {
            "threads" | "users" if value.contains(',') => {
                push(&mut out, "--users", "1");
                push(&mut out, "--sweep", value);
            }
            "threads" | "users" => push(&mut out, "--users", value),
            "rampup" => push(&mut out, "--ramp", format!("{value}s")),
            "duration" => push(&mut out, "-d", format!("{value}s")),
            // JMeter's timers are in milliseconds.
            "delay" | "think" => push(&mut out, "--think", format!("{value}ms")),
            "loops" => push(&mut out, "-n", value),
            other => return Err(format!("the property {other} is none of threads, rampup, duration, delay, loops")),
        }
    }
    let mut all = vec![a.url()?];
    all.extend(out);
    Ok(all)
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
