//! Flags and targets of vegeta. Its targets come from a file or from the standard input.

use super::rates::{go_options, patience};
use super::{ToolArguments, number, push};
use crate::bench::requests::read_text;
use crate::bench::values::parse_time;

/// Requests of a target list: their common method, headers and body, and all URLs.
#[derive(Debug, Default, PartialEq)]
struct TargetList {
    method: String,
    headers: Vec<String>,
    body: Option<String>,
    urls: Vec<String>,
}

/// Reads targets: `METHOD URL`, then header lines and `@FILE` of a body; empty lines and comments separate them. Fails if
/// they differ in more than the URL.
fn read_targets(text: &str) -> Result<TargetList, String> {
    let mut all: Vec<TargetList> = Vec::new();
    for (number, line) in text.lines().map(str::trim).enumerate().filter(|(_, line)| !line.is_empty()) {
        let wrong = || format!("targets:{}: `{line}` is not `METHOD URL`, a header or `@FILE`", number + 1);
        match (line.split_once(' '), all.last_mut()) {
            _ if line.starts_with('#') => {}
            (Some((method, url)), _) if url.contains("://") && method.bytes().all(|b| b.is_ascii_uppercase()) => {
                let (method, urls) = (method.to_string(), vec![url.trim().to_string()]);
                all.push(TargetList { method, urls, ..TargetList::default() });
            }
            (_, Some(target)) if line.starts_with('@') => target.body = Some(line.into()),
            (_, Some(target)) if line.contains(':') => target.headers.push(line.into()),
            _ => return Err(wrong()),
        }
    }
    let mut targets = all.into_iter();
    let mut first = targets.next().ok_or("no target: write lines such as `GET http://127.0.0.1:8080/`")?;
    for other in targets {
        if (&other.method, &other.headers, &other.body) != (&first.method, &first.headers, &first.body) {
            let (one, two) = (first.urls.join(" "), other.urls.join(" "));
            return Err(format!(
                "the targets {one} and {two} differ in method, headers or body: write them as [[request]] tables of a --request-file"
            ));
        }
        first.urls.extend(other.urls);
    }
    Ok(first)
}

/// Requests per second of `50`, `50/s`, `3000/1m`; 0 and `infinity` are no rate.
fn read_rate(text: &str) -> Result<Option<f64>, String> {
    if matches!(text, "0" | "infinity") {
        return Ok(None);
    }
    let (count, unit) = text.split_once('/').unwrap_or((text, "1s"));
    let unit = if unit.starts_with(|c: char| c.is_ascii_digit()) { unit.to_string() } else { format!("1{unit}") };
    let seconds = parse_time(&unit).map_err(|why| format!("--rate {text}: {why}"))?;
    Ok(Some(number("--rate", count)? / seconds.max(1e-9)))
}

/// `vegeta attack`: an open loop, in which as many connections are opened as are needed.
pub(super) fn vegeta(args: &[String]) -> Result<Vec<String>, String> {
    let args = match args.split_first() {
        Some((command, args)) if command == "attack" => go_options(args),
        _ => return Err("only `vegeta attack` makes load; the summary, --json and --html are the reports".into()),
    };
    let mut a = ToolArguments::new(&args);
    let (mut out, mut targets, mut rate, mut most) = (Vec::new(), None, Some(50.0), None);
    let (mut time, mut timeout, mut redirects) = (None, "30s".to_string(), "10".to_string());
    while let Some((name, value)) = a.next() {
        let is_off = value.as_deref() == Some("false");
        match name.as_str() {
            "--targets" => targets = Some(a.value(&name, value)?),
            "--rate" => rate = read_rate(&a.value(&name, value)?)?,
            "--duration" => time = Some(a.value(&name, value)?),
            "--timeout" => timeout = patience(a.value(&name, value)?),
            "--redirects" => redirects = a.value(&name, value)?,
            "--max-workers" | "--max-connections" => most = Some(a.value(&name, value)?),
            "--header" => push(&mut out, "-H", a.value(&name, value)?),
            "--body" => push(&mut out, "-b", format!("@{}", a.value(&name, value)?)),
            "--cert" | "--key" => push(&mut out, &name, a.value(&name, value)?),
            "--root-certs" => push(&mut out, "--cacert", a.value(&name, value)?),
            "--laddr" => push(&mut out, "--source", a.value(&name, value)?),
            "--unix-socket" => push(&mut out, "--unix", a.value(&name, value)?),
            "--name" => push(&mut out, "--title", a.value(&name, value)?),
            "--session-tickets" => out.push("--resume".into()),
            "--keepalive" if is_off => out.push("--no-keepalive".into()),
            "--h2c" => out.push("--http2".into()),
            "--workers" | "--connections" | "--max-body" | "--dns-ttl" => drop(a.value(&name, value)?),
            "--keepalive" | "--insecure" | "--lazy" | "--http2" => {}
            "--output" => {
                return Err("--output: single requests are not kept; --json FILE has all distributions".into());
            }
            "--prometheus-addr" => return Err("--prometheus-addr: --metrics FILE.prom or URL has live metrics".into()),
            other => return Err(format!("{other} is not a flag of this preset")),
        }
    }
    let time = time.filter(|time| !matches!(time.as_str(), "0" | "0s"));
    let time = time.ok_or("--duration: a run has an end; write -duration=30s")?;
    let text = match targets.as_deref() {
        None | Some("stdin") => {
            std::io::read_to_string(std::io::stdin()).map_err(|e| format!("standard input: {e}"))?
        }
        Some(path) => read_text(path.as_ref())?,
    };
    let list = read_targets(&text)?;
    let mut all = list.urls;
    push(&mut all, "-d", time);
    push(&mut all, "--warmup", "0s");
    match (rate, most) {
        (Some(rate), most) => {
            push(&mut all, "-r", format!("{rate}"));
            push(&mut all, "--arrivals", "fixed");
            push(&mut all, "-c", most.unwrap_or_else(|| "10000".into()));
        }
        (None, Some(most)) => push(&mut all, "-c", most),
        (None, None) => return Err("--rate 0 needs -max-workers, the number of connections of a closed loop".into()),
    }
    push(&mut all, "--timeout", timeout);
    if !matches!(redirects.as_str(), "0" | "-1") {
        push(&mut all, "--follow", redirects);
    }
    if list.method != "GET" {
        push(&mut all, "-X", list.method);
    }
    list.headers.into_iter().for_each(|header| push(&mut all, "-H", header));
    list.body.into_iter().for_each(|body| push(&mut all, "-b", body));
    all.extend(out);
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_with_a_common_request_are_urls() {
        let list =
            read_targets("# all\nPOST http://h/a\nX: 1\n@body.json\n\nPOST http://h/b\nX: 1\n@body.json\n").unwrap();
        assert_eq!((list.method.as_str(), list.urls.len(), list.body.as_deref()), ("POST", 2, Some("@body.json")));
        assert_eq!(list.headers, ["X: 1"]);
        for (text, word) in [
            ("", "no target"),
            ("GET http://h/a\nPUT http://h/b\n", "--request-file"),
            ("GET http://h/a\nnonsense\n", "targets:2: `nonsense`"),
            ("X: 1\n", "targets:1:"),
        ] {
            let why = read_targets(text).unwrap_err();
            assert!(why.contains(word), "{text}: {why}");
        }
    }

    #[test]
    fn rates_have_a_unit_of_time() {
        for (text, rate) in [("50", Some(50.0)), ("50/s", Some(50.0)), ("3000/1m", Some(50.0)), ("0", None)] {
            assert_eq!(read_rate(text).unwrap(), rate, "{text}");
        }
        assert!(read_rate("50/x").is_err() && read_rate("x/s").is_err());
    }

    #[test]
    fn an_attack_is_an_open_loop() {
        let file = std::env::temp_dir().join(format!("targets-{}", std::process::id()));
        std::fs::write(&file, "GET http://127.0.0.1:1/a\nGET http://127.0.0.1:1/b\n").unwrap();
        let words = |text: &str| {
            let text = format!("{text} -targets={}", file.display());
            vegeta(&text.split_whitespace().map(String::from).collect::<Vec<_>>())
        };
        let all = words("attack -rate=100/1s -duration=5s -redirects -1 -keepalive=false -name x").unwrap().join(" ");
        let expected = "http://127.0.0.1:1/a http://127.0.0.1:1/b -d 5s --warmup 0s -r 100 --arrivals fixed -c 10000 \
            --timeout 30s --title x --no-keepalive";
        assert_eq!(all.replace("--no-keepalive --title x", "--title x --no-keepalive"), expected);
        let closed = words("attack -rate 0 -max-workers 7 -duration 1s -timeout 0").unwrap().join(" ");
        assert!(closed.contains("-c 7 --timeout 1h --follow 10") && !closed.contains("-r "), "{closed}");
        for (wrong, word) in [
            ("report", "attack"),
            ("attack -rate 0 -duration 1s", "-max-workers"),
            ("attack -rate 5", "-duration"),
            ("attack -duration 1s -output x.bin", "--json"),
            ("attack -duration 1s -chunked", "--chunked"),
        ] {
            let why = words(wrong).unwrap_err();
            assert!(why.contains(word), "{wrong}: {why}");
        }
        std::fs::remove_file(file).unwrap();
    }
}
