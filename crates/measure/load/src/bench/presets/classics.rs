//! Flags of httperf, ab and JMeter.

use super::rates::basic;
use super::{ToolArguments, number, push};

pub(super) fn httperf(args: &[String]) -> Result<Vec<String>, String> {
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

pub(super) fn ab(args: &[String]) -> Result<Vec<String>, String> {
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

pub(super) fn jmeter(args: &[String]) -> Result<Vec<String>, String> {
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
