//! `cargo xtask waf`: the regression tests of the OWASP Core Rule Set, and ModSecurity's tests of operators and
//! transformations, straight through the engine; `--pairs` compares servers. All are read from checkouts that the caller names.

mod differ;
mod exchange;
mod operators;
mod pairs;
mod peer;

use crate::server_program;
use ::waf::{Budget, RuleFiles, RuleSet, RuleText, Services};
use differ::{DifferOptions, VALUES, compare_engines};
use exchange::RuleExchange;
use pairs::{PairOptions, TURN_REQUESTS, compare_pairs};
use peer::PeerProgram;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

pub const HELP: &str = "\
Usage: cargo xtask waf [--crs DIR] [--only PREFIX] [--fails FILE] [--operators DIR]
       cargo xtask waf --crs DIR --pairs [--binary PATH] [--nginx PATH] [--module PATH] [--other NAME=PROGRAM]
                                         [--requests N] [--out DIR]
       cargo xtask waf --differ PROGRAM [--seed N] [--count N] [--only PREFIX]

Runs the regression tests of a checkout of coreruleset/coreruleset through the engine of crates/http/waf:
detection only, paranoia level 4, with the answers of the tests' backend (/reflect). Prints the tests that
pass by family of rules. Each request is evaluated again with all values, and the matches are compared.
Tests that expect the server itself to refuse the request (400) are counted apart.

  --crs DIR        the checkout; its rules, crs-setup.conf.example and tests/regression are read
  --only PREFIX    only files of tests whose name begins so, as 942 or 942100; with --pairs, only such
                   requests (GET)
  --fails FILE     write the tests that fail, with the reason
  --operators DIR  run the JSON tests of a checkout of owasp-modsecurity/secrules-language-tests instead
  --differ PROGRAM compare transformations and operators on random values with PROGRAM, which reads lines
                   NAME<TAB>HEX and writes for each the result of a transformation in hexadecimal digits, or 1
                   or 0 for \"@operator parameter\"
  --seed N         of the random values (default: 1)
  --count N        values for each name (default: 10000)
  --pairs          compare servers instead: processor time and p99 of requests, memory of requests in flight
                   and of the rules, at paranoia 1 and 4. A server whose files are missing is named
                   and left out
  --binary PATH    Tidegate (default: release/tidegate in cargo's target folder)
  --nginx PATH     nginx (default: /usr/sbin/nginx)
  --module PATH    the connector (default: /usr/lib/nginx/modules/ngx_http_modsecurity_module.so); its
                   library, if it is elsewhere, is found by LD_LIBRARY_PATH
  --other N=PATH   another firewall: run as PATH PORT RULES_FILE FOLDER BACKEND_PORT, it serves FOLDER at PORT
                   and passes /form on to the backend; with an empty RULES_FILE it has no rules.
                   May be repeated
  --requests N     requests of a turn at most (default: 400); each server has five turns
  --out DIR        write the table to pairs.md there

  cargo xtask waf --crs ../coreruleset --only 942
  cargo xtask waf --crs ../coreruleset --pairs
";

/// The settings of the rule set's own tests.
pub const SETTINGS: &str = r#"SecRuleEngine DetectionOnly
SecRequestBodyAccess On
SecRule REQUEST_HEADERS:Content-Type "^(?:application(?:/soap\+|/)|text/)xml" "id:200000,phase:1,t:none,t:lowercase,pass,nolog,ctl:requestBodyProcessor=XML"
SecRule REQUEST_HEADERS:Content-Type "^application/json" "id:200001,phase:1,t:none,t:lowercase,pass,nolog,ctl:requestBodyProcessor=JSON"
SecRule REQUEST_HEADERS:Content-Type "^application/[a-z0-9.-]+[+]json" "id:200006,phase:1,t:none,t:lowercase,pass,nolog,ctl:requestBodyProcessor=JSON"
SecRequestBodyLimit 13107200
SecRequestBodyNoFilesLimit 131072
SecResponseBodyAccess On
SecResponseBodyMimeType text/plain text/html text/xml application/json
SecResponseBodyLimit 524288
SecResponseBodyLimitAction ProcessPartial
SecArgumentSeparator &
"#;

/// Variables of the rule set that its tests expect.
const VARIABLES: &str = "SecAction \"id:900005,phase:1,nolog,pass,t:none,ctl:ruleRemoveById=910000,\
setvar:tx.blocking_paranoia_level=4,setvar:tx.detection_paranoia_level=4,setvar:tx.crs_validate_utf8_encoding=1,\
setvar:tx.arg_name_length=100,setvar:tx.arg_length=400,setvar:tx.total_arg_length=64000,setvar:tx.max_num_args=255,\
setvar:tx.max_file_size=64100,setvar:tx.combined_file_sizes=65535\"\n";

/// The reason of a test that expects 400, which the server's parser of HTTP answers without the engine.
const SERVER: &str = "needs a server: it refuses the request (400)";

/// Reads data files beside the rules.
pub struct DiskFiles;

impl RuleFiles for DiskFiles {
    fn include(&self, _: &str, _: &str) -> Result<Vec<RuleText>, String> {
        Err("the rules of a checkout include nothing".into())
    }
    fn data(&self, name: &str, from: &str) -> Result<Vec<u8>, String> {
        let folder = Path::new(from).parent().unwrap_or(Path::new("."));
        std::fs::read(folder.join(name)).map_err(|error| error.to_string())
    }
}

struct Options<'a> {
    crs: Option<PathBuf>,
    operators: Option<PathBuf>,
    only: &'a str,
    fails: Option<PathBuf>,
}

pub fn run(arguments: &[String]) -> Result<(), String> {
    let mut options = Options { crs: None, operators: None, only: "", fails: None };
    let mut nginx = PathBuf::from("/usr/sbin/nginx");
    let mut module = PathBuf::from("/usr/lib/nginx/modules/ngx_http_modsecurity_module.so");
    let mut tidegate = server_program::target_folder().join("release/tidegate");
    let (mut others, mut requests, mut out, mut is_pair) = (Vec::new(), TURN_REQUESTS, None, false);
    let (mut other_engine, mut seed, mut count) = (None, 1, VALUES);
    let number = |word: &str, value: &str| value.parse().map_err(|_| format!("{word} needs a number, not {value}"));
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        if word == "--pairs" {
            is_pair = true;
            continue;
        }
        let value = words.next().ok_or_else(|| format!("{word} needs a value; see cargo xtask waf --help"))?;
        match word.as_str() {
            "--crs" => options.crs = Some(value.into()),
            "--operators" => options.operators = Some(value.into()),
            "--only" => options.only = value,
            "--fails" => options.fails = Some(value.into()),
            "--binary" => tidegate = value.into(),
            "--nginx" => nginx = value.into(),
            "--module" => module = value.into(),
            "--other" => {
                let (name, path) =
                    value.split_once('=').ok_or_else(|| format!("--other needs NAME=PROGRAM, not {value}"))?;
                others.push(PeerProgram::Other { name: name.into(), binary: path.into() });
            }
            "--requests" => requests = number(word, value)?,
            "--differ" => other_engine = Some(PathBuf::from(value)),
            "--seed" => seed = number(word, value)?,
            "--count" => count = number(word, value)?,
            "--out" => out = Some(value.into()),
            _ => return Err(format!("unknown option {word}; see cargo xtask waf --help")),
        }
    }
    if let Some(program) = &other_engine {
        return compare_engines(&DifferOptions { program, seed, count, only: options.only });
    }
    match (&options.crs, &options.operators) {
        (Some(folder), None) if is_pair => {
            let mut programs = vec![PeerProgram::Nginx { binary: nginx, module }];
            programs.append(&mut others);
            programs.push(PeerProgram::Tidegate { binary: tidegate });
            compare_pairs(&PairOptions { rules: folder.clone(), programs, requests, only: options.only.into(), out })
        }
        (Some(folder), None) => regression(folder, &options),
        (None, Some(folder)) => operators::run(folder, options.only),
        _ => Err("name a checkout by --crs or --operators; see cargo xtask waf --help".into()),
    }
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// The files below a folder whose name ends so, sorted.
pub fn files_below(folder: &Path, end: &str, found: &mut Vec<PathBuf>) -> Result<(), String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() {
            files_below(&path, end, found)?;
        } else if path.to_string_lossy().ends_with(end) {
            found.push(path);
        }
    }
    found.sort();
    Ok(())
}

/// Compiles the rules of a checkout with the settings of its tests.
fn compile(folder: &Path) -> Result<Arc<RuleSet>, String> {
    let text = |name: String, text: String| RuleText { name: name.into(), text };
    let setup = folder.join("crs-setup.conf.example");
    let mut texts = vec![
        text("settings".into(), SETTINGS.into()),
        text(setup.display().to_string(), read(&setup)?),
        text("variables".into(), VARIABLES.into()),
    ];
    let mut paths = Vec::new();
    files_below(&folder.join("rules"), ".conf", &mut paths)?;
    for path in paths {
        texts.push(text(path.display().to_string(), read(&path)?));
    }
    let (rules, warnings) = RuleSet::compile(&texts, &DiskFiles).map_err(|error| error.to_string())?;
    for warning in &warnings {
        eprintln!("{warning}");
    }
    Ok(rules)
}

fn regression(folder: &Path, options: &Options) -> Result<(), String> {
    let started = Instant::now();
    let rules = compile(folder)?;
    println!("{} rules compiled in {} ms", rules.rules().count(), started.elapsed().as_millis());
    // The time of a busy machine must not decide about a test.
    let budget = Budget { microseconds: u64::MAX, ..Budget::default() };
    let services = Arc::new(Services { budget, ..Services::default() });
    let mut paths = Vec::new();
    files_below(&folder.join("tests/regression/tests"), ".yaml", &mut paths)?;
    let mut families: BTreeMap<String, (u32, u32)> = BTreeMap::new();
    let mut fails = String::new();
    let mut of_server = 0;
    let started = Instant::now();
    for path in paths {
        let rule = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if !rule.starts_with(options.only) {
            continue;
        }
        let document = document(&read(&path)?).map_err(|error| format!("{}: {error}", path.display()))?;
        for test in document["tests"].as_array().into_iter().flatten() {
            let stages = test["stages"].as_array().into_iter().flatten();
            let failure = stages.map(|stage| run_stage(&rules, &services, stage)).find_map(Result::err);
            of_server += u32::from(failure.as_deref() == Some(SERVER));
            let family = families.entry(rule.get(..3).unwrap_or("?").to_string()).or_default();
            family.0 += u32::from(failure.is_none());
            family.1 += 1;
            if let Some(reason) = failure {
                let _ = writeln!(fails, "{rule}-{}: {reason}", test["test_id"]);
            }
        }
    }
    for (family, (passed, all)) in &families {
        print!("{family} {passed}/{all}  ");
    }
    let (passed, all) = families.values().fold((0, 0), |(passed, all), family| (passed + family.0, all + family.1));
    let elapsed = started.elapsed().as_millis();
    println!(
        "\n{passed} of {all} tests pass, {} fail, {of_server} need a server, {elapsed} ms",
        all - passed - of_server
    );
    match &options.fails {
        Some(path) => std::fs::write(path, fails).map_err(|error| format!("{}: {error}", path.display()))?,
        None => print!("{fails}"),
    }
    Ok(())
}

/// Reads a document of tests; the default limits of the reader are for files of strangers.
fn document(text: &str) -> Result<Value, String> {
    serde_saphyr::from_str(text).map_err(|error| error.to_string())
}

/// Runs one stage; fails with the reason.
fn run_stage(rules: &Arc<RuleSet>, services: &Arc<Services>, stage: &Value) -> Result<(), String> {
    let stage = if stage["stage"].is_object() { &stage["stage"] } else { stage };
    let exchange = RuleExchange::new(&stage["input"])?;
    let outcome = exchange.run(rules, services, false);
    let output = &stage["output"];
    let log = &output["log"];
    let ids = |name: &str| log[name].as_array().into_iter().flatten().filter_map(Value::as_u64).collect::<Vec<u64>>();
    let mut reasons = Vec::new();
    if exchange.run(rules, services, true).log != outcome.log {
        reasons.push("other matches with all values".to_string());
    }
    reasons.extend(ids("expect_ids").iter().filter(|id| !outcome.has(**id)).map(|id| format!("not {id}")));
    reasons.extend(ids("no_expect_ids").iter().filter(|id| outcome.has(**id)).map(|id| format!("unexpected {id}")));
    let expected = &output["status"];
    let statuses: Vec<u64> = match expected {
        Value::Array(list) => list.iter().filter_map(Value::as_u64).collect(),
        _ => expected.as_u64().into_iter().collect(),
    };
    if !statuses.is_empty() && !statuses.contains(&u64::from(outcome.status)) {
        reasons.push(format!("status {}", outcome.status));
    }
    for (name, wanted) in [("match_regex", true), ("no_match_regex", false)] {
        if let Some(pattern) = log[name].as_str() {
            let regex = pcre2::bytes::Regex::new(pattern).map_err(|error| error.to_string())?;
            if regex.is_match(outcome.log.as_bytes()).unwrap_or(false) != wanted {
                reasons.push(format!("{name} {pattern}"));
            }
        }
    }
    // The engine sees requests that a server would refuse itself, and answers none.
    if reasons.len() == 1 && statuses.contains(&400) && reasons.iter().all(|reason| reason.starts_with("status")) {
        return Err(SERVER.into());
    }
    if reasons.is_empty() { Ok(()) } else { Err(reasons.join("; ")) }
}
