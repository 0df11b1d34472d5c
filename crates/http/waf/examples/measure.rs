//! Prints the CPU time of requests with the rules of a checkout of coreruleset/coreruleset, at paranoia 1 and 4:
//! `cargo run --release -p waf --example measure -- DIR [WORD]`. `WORD` chooses requests by their names, for
//! profilers; `first` prints the cost of first requests instead.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use waf::{Connection, RuleFiles, RuleSet, RuleText, Services, Transaction};

struct Disk;

impl RuleFiles for Disk {
    fn include(&self, _: &str, _: &str) -> Result<Vec<RuleText>, String> {
        Err("nothing is included".into())
    }
    fn data(&self, name: &str, from: &str) -> Result<Vec<u8>, String> {
        let folder = Path::new(from).parent().unwrap_or(Path::new("."));
        std::fs::read(folder.join(name)).map_err(|error| error.to_string())
    }
}

/// Prints what the first requests cost with rules that nothing has used, and what the second ones do; then the same behind
/// [`waf::prepare_patterns`].
fn measure_first(
    folder: &Path,
    services: &Arc<Services>,
    requests: &[(&str, &str, Option<&str>, &str)],
) -> Result<(), String> {
    for is_prepared in [false, true] {
        for (name, uri, kind, body) in requests {
            let rules = compile(folder, 1)?;
            let before = resident();
            let started = processor_time();
            if is_prepared {
                waf::prepare_patterns(&rules);
                println!("  prepared in {:.1} ms of CPU", (processor_time() - started) as f64 / 1e6);
            }
            let mut spent = Vec::new();
            for _ in 0..3 {
                let started = processor_time();
                request(&rules, services, uri, *kind, body.as_bytes());
                spent.push(format!("{:.2}", (processor_time() - started) as f64 / 1e6));
            }
            let grown = resident().saturating_sub(before);
            println!("  {name}, prepared {is_prepared}: {} ms of CPU, {grown} KB more", spent.join(", then "));
        }
    }
    Ok(())
}

/// Resident memory in KB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// Nanoseconds of CPU of the process.
fn processor_time() -> u64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

fn compile(folder: &Path, paranoia: u32) -> Result<Arc<RuleSet>, String> {
    let read = |path: &Path| std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()));
    let setup = folder.join("crs-setup.conf.example");
    let settings = "SecRuleEngine On\nSecRequestBodyAccess On\nSecRule REQUEST_HEADERS:Content-Type \"^application/json\" \
                    \"id:200001,phase:1,t:none,pass,nolog,ctl:requestBodyProcessor=JSON\"\n";
    let variables = format!(
        "SecAction \"id:900000,phase:1,nolog,pass,setvar:tx.blocking_paranoia_level={paranoia},setvar:tx.detection_paranoia_level={paranoia}\"\n"
    );
    let mut texts = vec![
        RuleText { name: "settings".into(), text: settings.into() },
        RuleText { name: setup.display().to_string().into(), text: read(&setup)? },
        RuleText { name: "variables".into(), text: variables },
    ];
    let entries = std::fs::read_dir(folder.join("rules")).map_err(|error| error.to_string())?;
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "conf"));
    paths.sort();
    for path in paths {
        texts.push(RuleText { name: path.display().to_string().into(), text: read(&path)? });
    }
    RuleSet::compile(&texts, &Disk).map(|(rules, _)| rules).map_err(|error| error.to_string())
}

fn request(rules: &Arc<RuleSet>, services: &Arc<Services>, uri: &str, kind: Option<&str>, body: &[u8]) -> usize {
    let connection = Connection { client_address: "192.0.2.1".into(), unique_id: "u".into(), ..Connection::default() };
    let mut transaction = Transaction::new(rules, services, connection);
    let method: &[u8] = if body.is_empty() { b"GET" } else { b"POST" };
    transaction.uri(method, uri.as_bytes(), "1.1");
    transaction.request_header(b"Host", b"www.example.com");
    transaction
        .request_header(b"User-Agent", b"Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0");
    transaction.request_header(b"Accept", b"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8");
    if let Some(kind) = kind {
        transaction.request_header(b"Content-Type", kind.as_bytes());
        transaction.request_header(b"Content-Length", body.len().to_string().as_bytes());
    }
    transaction.request_headers();
    transaction.request_body(body);
    transaction.response_header(b"Content-Type", b"text/html");
    transaction.response_headers(200, "HTTP/1.1");
    transaction.response_body(b"");
    transaction.log();
    transaction.matches().iter().filter(|found| found.logged).count()
}

fn main() -> Result<(), String> {
    let folder = std::env::args().nth(1).ok_or("usage: measure DIR [WORD]")?;
    let chosen = std::env::args().nth(2).unwrap_or_default();
    let services = Arc::new(Services::default());
    let form = (0..40).map(|n| format!("field{n}=some ordinary text of a form {n}")).collect::<Vec<_>>().join("&");
    let items = (0..400).map(|n| format!("{{\"id\":{n},\"name\":\"item number {n}\"}}")).collect::<Vec<_>>().join(",");
    let document = format!("[{items}]");
    println!("memory before {} KB", resident());
    let requests = [
        ("GET with one argument", "/index.html?q=hello", None, ""),
        ("form of 2 KB", "/form", Some("application/x-www-form-urlencoded"), form.as_str()),
        ("JSON of 15 KB", "/api", Some("application/json"), document.as_str()),
    ];
    if chosen == "first" {
        return measure_first(Path::new(&folder), &services, &requests);
    }
    for paranoia in [1, 4] {
        let started = Instant::now();
        let rules = compile(Path::new(&folder), paranoia)?;
        println!(
            "paranoia {paranoia}: {} rules, {} ms to compile, {} KB",
            rules.rules().count(),
            started.elapsed().as_millis(),
            resident()
        );
        for (name, uri, kind, body) in requests {
            if !name.contains(chosen.as_str()) {
                continue;
            }
            // The first requests fill the caches of the patterns' states.
            let mut matches = 0;
            for _ in 0..10 {
                matches += request(&rules, &services, uri, kind, body.as_bytes());
            }
            let rounds = if body.is_empty() { 2000 } else { 100 };
            let started = processor_time();
            for _ in 0..rounds {
                matches = request(&rules, &services, uri, kind, body.as_bytes());
            }
            let spent = processor_time().saturating_sub(started) / rounds;
            println!("  {name}: {:.1} us of CPU, {matches} matches", spent as f64 / 1000.0);
        }
        println!("  memory {} KB", resident());
    }
    Ok(())
}
