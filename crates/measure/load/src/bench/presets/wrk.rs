//! Flags of wrk, wrk2 and h2load.

use super::{ToolArguments, amount, number, push};

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

pub(super) fn wrk(args: &[String]) -> Result<Vec<String>, String> {
    wrk_like(args, false)
}

pub(super) fn wrk2(args: &[String]) -> Result<Vec<String>, String> {
    wrk_like(args, true)
}

/// h2load: HTTP/2 by default; a number of requests or a time.
pub(super) fn h2load(args: &[String]) -> Result<Vec<String>, String> {
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
