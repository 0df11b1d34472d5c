//! Flags of hey, oha, fortio and Nighthawk, which have a rate.

use super::{ToolArguments, number, push};

/// Rewrites options of Go's `flag` package: names of any length have one dash or two, and values follow after a space or
/// an equals sign.
pub(super) fn go_options(args: &[String]) -> Vec<String> {
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
pub(super) fn basic(login: &str) -> String {
    use base64::Engine as _;
    format!("Authorization: Basic {}", base64::engine::general_purpose::STANDARD.encode(login))
}

/// hey, whose rate is that of each worker.
pub(super) fn hey(args: &[String]) -> Result<Vec<String>, String> {
    requests_or_time(&go_options(args), true)
}

/// oha, whose rate is that of all connections.
pub(super) fn oha(args: &[String]) -> Result<Vec<String>, String> {
    requests_or_time(args, false)
}

/// A timeout of these tools, where 0 means none.
pub(super) fn patience(text: String) -> String {
    let is_none = matches!(text.trim_end_matches(['s', 'm', 'h']), "0" | "");
    if is_none { "1h".into() } else { text }
}

/// A number of requests or a time. A rate becomes an open loop, where these tools queue behind their workers.
fn requests_or_time(args: &[String], hey: bool) -> Result<Vec<String>, String> {
    let mut a = ToolArguments::new(args);
    let (mut out, mut requests, mut time, mut rate) = (Vec::new(), "200".to_string(), None, None);
    let (mut connections, mut redirects) = ("50".to_string(), "10".to_string());
    let mut is_http2 = false;
    // hey gives up after 20 seconds, oha never.
    let mut timeout = if hey { "20s" } else { "1h" }.to_string();
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
            "-t" => timeout = patience(a.value(&name, value)?),
            "-U" if hey => push(&mut out, "-H", format!("User-Agent: {}", a.value(&name, value)?)),
            "--host" => push(&mut out, "-H", format!("Host: {}", a.value(&name, value)?)),
            "-o" if hey => {
                return Err(
                    "-o: single requests are not kept; --json FILE has all distributions, --csv FILE the figures"
                        .into(),
                );
            }
            "-a" => push(&mut out, "-H", basic(&a.value(&name, value)?)),
            "-A" => push(&mut out, "-H", format!("Accept: {}", a.value(&name, value)?)),
            "--unix-socket" if !hey => push(&mut out, "--unix", a.value(&name, value)?),
            "--cpus" if hey => push(&mut out, "-t", a.value(&name, value)?),
            // Over TLS only.
            "--h2" if hey => is_http2 = true,
            "--http2" if !hey => out.push("--http2".into()),
            "-p" if !hey => push(&mut out, "-m", a.value(&name, value)?),
            "-j" if !hey => push(&mut out, "--json", "-"),
            "--disable-keepalive" => out.push("--no-keepalive".into()),
            "-x" => push(&mut out, "--proxy", a.value(&name, value)?),
            "--disable-redirects" if hey => redirects = "0".into(),
            "-r" | "--redirect" if !hey => redirects = a.value(&name, value)?,
            "--cacert" | "--cert" | "--key" if !hey => push(&mut out, &name, a.value(&name, value)?),
            "--disable-compression" => {}
            "--no-tui" | "--latency-correction" | "--insecure" | "-w" if !hey => {}
            other => return Err(format!("{other} is not a flag of this preset")),
        }
    }
    if redirects != "0" {
        push(&mut out, "--follow", redirects);
    }
    push(&mut out, "--timeout", timeout);
    if is_http2 && a.url()?.starts_with("https:") {
        out.push("--http2".into());
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
pub(super) fn fortio(args: &[String]) -> Result<Vec<String>, String> {
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
pub(super) fn nighthawk(args: &[String]) -> Result<Vec<String>, String> {
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
