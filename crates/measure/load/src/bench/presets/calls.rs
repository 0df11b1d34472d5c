//! Flags of ghz, which calls services of gRPC, and of k6, whose scripts have another form here.

use super::rates::patience;
use super::{ToolArguments, number, push};
use crate::bench::values::parse_time;

/// Stages of a step schedule at most.
const STAGES_MAX: usize = 200;

/// Flags of a schedule of rates.
#[derive(Debug, Default)]
struct RateSchedule {
    kind: String,
    start: f64,
    step: f64,
    end: f64,
    step_seconds: f64,
    most_seconds: f64,
}

impl RateSchedule {
    /// Writes the schedule as `--stages`; `None` for a constant rate.
    fn stages(&self) -> Result<Option<String>, String> {
        let lacking = |what: &str| format!("--load-schedule={}: {what}", self.kind);
        match self.kind.as_str() {
            "" | "const" => Ok(None),
            "step" if self.step_seconds <= 0.0 || self.step == 0.0 || self.end <= 0.0 => {
                Err(lacking("needs --load-step, --load-step-duration and --load-end"))
            }
            "step" => {
                let (mut rate, mut left, mut all) = (self.start, self.most_seconds, Vec::new());
                let is_within = |rate: f64| if self.step > 0.0 { rate <= self.end } else { rate >= self.end };
                while is_within(rate) && all.len() < STAGES_MAX {
                    all.push(format!("{}@{}s", rate.max(0.001), self.step_seconds));
                    rate += self.step;
                    left -= self.step_seconds;
                }
                if left > 0.0 {
                    all.push(format!("{}@{left}s", self.end));
                }
                Ok(Some(all.join(",")))
            }
            "line" if self.step == 0.0 || self.most_seconds <= 0.0 && self.end <= 0.0 => {
                Err(lacking("needs --load-step, and --load-end or --load-max-duration"))
            }
            "line" => {
                let end = if self.end > 0.0 { self.end } else { self.start + self.step * self.most_seconds };
                let seconds = ((end - self.start) / self.step).max(0.001);
                let ramp = format!("{}..{end}@{seconds}s", self.start);
                let left = self.most_seconds - seconds;
                Ok(Some(if left > 0.0 { format!("{ramp},{end}@{left}s") } else { ramp }))
            }
            other => Err(format!("--load-schedule: `{other}` is not const, step or line")),
        }
    }
}

/// Writes ghz's templates as those of `bench`. Fails on those without a counterpart.
fn message(text: &str) -> Result<String, String> {
    let text = text.replace("{{.RequestNumber}}", "{{seq}}").replace("{{ .RequestNumber }}", "{{seq}}");
    match text.find("{{.").or_else(|| text.find("{{ ")).or_else(|| text.find("{{new")) {
        Some(at) => {
            let word = text[at..].split("}}").next().unwrap_or_default();
            Err(format!(
                "the template `{word}}}}}` has no counterpart: {{{{seq}}}}, {{{{rand:1:9}}}}, {{{{hex:16}}}}, {{{{pick:a|b}}}} do"
            ))
        }
        None => Ok(text),
    }
}

/// ghz: calls by a number of workers over few connections, or at a rate.
pub(super) fn ghz(args: &[String]) -> Result<Vec<String>, String> {
    let mut a = ToolArguments::new(args);
    let (mut out, mut load) = (Vec::new(), RateSchedule::default());
    let (mut call, mut workers, mut connections, mut rate) = (None, 50.0, 1.0, 0.0);
    let (mut requests, mut time, mut most) = ("200".to_string(), None, None);
    let (mut scheme, mut name_of_server, mut timeout) = ("grpcs", None, "20s".to_string());
    let (mut format, mut file) = ("summary".to_string(), "-".to_string());
    while let Some((name, value)) = a.next() {
        match name.as_str() {
            "--call" => call = Some(a.value(&name, value)?),
            "--proto" | "--protoset" => push(&mut out, &name, a.value(&name, value)?),
            "-i" | "--import-paths" => {
                a.value(&name, value)?.split(',').for_each(|path| push(&mut out, "--import-path", path));
            }
            "--cacert" | "--cert" | "--key" => push(&mut out, &name, a.value(&name, value)?),
            "--cname" => name_of_server = Some(a.value(&name, value)?),
            "--insecure" => scheme = "grpc",
            "-r" | "--rps" => rate = number(&name, &a.value(&name, value)?)?,
            "--load-schedule" => load.kind = a.value(&name, value)?,
            "--load-start" => load.start = number(&name, &a.value(&name, value)?)?,
            "--load-step" => {
                let text = a.value(&name, value)?;
                load.step = text.parse().map_err(|_| format!("{name}: `{text}` is not a number"))?;
            }
            "--load-end" => load.end = number(&name, &a.value(&name, value)?)?,
            "--load-step-duration" => load.step_seconds = parse_time(&a.value(&name, value)?)?,
            "--load-max-duration" => load.most_seconds = parse_time(&a.value(&name, value)?)?,
            "-c" | "--concurrency" => workers = number(&name, &a.value(&name, value)?)?,
            "--connections" => connections = number(&name, &a.value(&name, value)?)?,
            "-n" | "--total" => requests = a.value(&name, value)?,
            "-z" | "--duration" => time = Some(a.value(&name, value)?),
            "-x" | "--max-duration" => most = Some(a.value(&name, value)?),
            "-t" | "--timeout" => timeout = patience(a.value(&name, value)?),
            "--connect-timeout" => push(&mut out, &name, a.value(&name, value)?),
            "-d" | "--data" => match a.value(&name, value)?.as_str() {
                "@" => push(&mut out, "-b", "@/dev/stdin"),
                text => push(&mut out, "-b", message(text)?),
            },
            "-D" | "--data-file" => push(&mut out, "-b", format!("@{}", a.value(&name, value)?)),
            "-m" | "--metadata" => {
                let text = a.value(&name, value)?;
                let all: serde_json::Map<String, serde_json::Value> =
                    serde_json::from_str(&text).map_err(|_| format!("{name}: `{text}` is no object in JSON"))?;
                for (key, value) in all {
                    push(&mut out, "-H", format!("{key}: {}", message(value.as_str().unwrap_or(&value.to_string()))?));
                }
            }
            "--stream-interval" => push(&mut out, &name, a.value(&name, value)?),
            "-e" | "--enable-compression" => out.push("--grpc-gzip".into()),
            "--cpus" => push(&mut out, "-t", a.value(&name, value)?),
            "--name" => push(&mut out, "--title", a.value(&name, value)?),
            "-o" | "--output" => file = a.value(&name, value)?,
            "-O" | "--format" => format = a.value(&name, value)?,
            "--duration-stop" | "--keepalive" | "--lb-strategy" => drop(a.value(&name, value)?),
            "--skipTLS" | "--count-errors" | "--async" => {}
            "--skipFirst" => return Err("--skipFirst: --warmup TIME measures what follows it".into()),
            "--stream-call-count" | "--stream-call-duration" => {
                return Err(format!("{name}: a call sends the elements of an array of messages, `-d '[{{}}, {{}}]'`"));
            }
            other => return Err(format!("{other} is not a flag of this preset")),
        }
    }
    let host = a.others.first().cloned().ok_or("no HOST:PORT")?;
    let call = call.ok_or("--call (package.Service/Method) is needed")?;
    let mut all = Vec::new();
    match name_of_server {
        Some(name) => {
            let port = host.rsplit_once(':').map_or("443", |(_, port)| port);
            all.push(format!("{scheme}://{name}:{port}/{call}"));
            push(&mut all, "--connect-to", host);
        }
        None => all.push(format!("{scheme}://{host}/{call}")),
    }
    push(&mut all, "-c", format!("{connections}"));
    push(&mut all, "-m", format!("{}", (workers / f64::max(connections, 1.0)).ceil().max(1.0)));
    let stages = load.stages()?;
    if rate > 0.0 || stages.is_some() {
        push(&mut all, "-r", format!("{}", if rate > 0.0 { rate } else { 1.0 }));
        push(&mut all, "--arrivals", "fixed");
    }
    match (stages, time) {
        (Some(stages), _) => push(&mut all, "--stages", stages),
        (None, Some(time)) => push(&mut all, "-d", time),
        (None, None) => {
            push(&mut all, "-n", requests);
            most.into_iter().for_each(|most| push(&mut all, "-d", most));
        }
    }
    push(&mut all, "--warmup", "0s");
    push(&mut all, "--timeout", timeout);
    match format.as_str() {
        "summary" => {}
        "json" | "pretty" => push(&mut all, "--json", file),
        "csv" | "html" => push(&mut all, &format!("--{format}"), file),
        other => return Err(format!("--format {other}: --json, --csv, --html and --influx URL are outputs")),
    }
    all.extend(out);
    Ok(all)
}

/// k6: names the counterparts of its flags, as its scripts are programs.
pub(super) fn k6(_: &[String]) -> Result<Vec<String>, String> {
    Err("scripts of k6 are not run. --session FILE has the steps of a user, and `tidegate bench import FILE` makes one from a \
         HAR recording, an OpenAPI document or a Postman collection; --vus 10 --duration 30s is --users 10 -d 30s, --stage 30s:10 is \
         --stages 1..10@30s, a threshold `p(99)<500` is --require 'p99<500ms'"
        .into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Result<String, String> {
        ghz(&text.split_whitespace().map(String::from).collect::<Vec<_>>()).map(|all| all.join(" "))
    }

    #[test]
    fn workers_of_ghz_are_streams_of_its_connections() {
        let all =
            words("--insecure --call a.B.C -d {\"n\":\"{{.RequestNumber}}\"} -c 20 --connections 5 -n 9 h:1").unwrap();
        let expected = "grpc://h:1/a.B.C -c 5 -m 4 -n 9 --warmup 0s --timeout 20s -b {\"n\":\"{{seq}}\"}";
        assert_eq!(all, expected);
        let all = words("--call a.B/C --cname name -r 50 -z 5s -e -m {\"k\":\"v\"} -O json -o f 127.0.0.1:9").unwrap();
        let expected = "grpcs://name:9/a.B/C --connect-to 127.0.0.1:9 -c 1 -m 50 -r 50 --arrivals fixed -d 5s --warmup 0s \
            --timeout 20s --json f --grpc-gzip -H k: v";
        assert_eq!(all, expected);
    }

    #[test]
    fn schedules_of_rates_are_stages() {
        let stages = |text: &str| {
            let all = words(&format!("--insecure --call a.B/C {text} h:1")).unwrap();
            all.split("--stages ").nth(1).unwrap().split(' ').next().unwrap().to_string()
        };
        let step = "--load-schedule=step --load-start=10 --load-step=10 --load-end=30 --load-step-duration=5s";
        assert_eq!(stages(step), "10@5s,20@5s,30@5s");
        assert_eq!(stages(&format!("{step} --load-max-duration=20s")), "10@5s,20@5s,30@5s,30@5s");
        let line = "--load-schedule=line --load-start=200 --load-step=-2 --load-end=50 --load-max-duration=80s";
        assert_eq!(stages(line), "200..50@75s,50@5s");
    }

    #[test]
    fn flags_without_a_counterpart_are_named() {
        for (text, word) in [
            ("h:1", "--call"),
            ("--call a.B/C", "HOST:PORT"),
            ("--call a.B/C -d {{.WorkerID}} h:1", "{{.WorkerID}}"),
            ("--call a.B/C -m x h:1", "JSON"),
            ("--call a.B/C --load-schedule=step h:1", "--load-step"),
            ("--call a.B/C --skipFirst 5 h:1", "--warmup"),
            ("--call a.B/C --format influx-summary h:1", "--influx"),
            ("--call a.B/C --nope h:1", "--nope"),
        ] {
            let why = words(text).unwrap_err();
            assert!(why.contains(word), "{text}: {why}");
        }
        assert!(k6(&[]).unwrap_err().contains("--session"));
    }
}
