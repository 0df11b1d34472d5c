//! `tidegate certificates`: lists the certificates of a configuration, from files and from ACME.

use crate::options::refuse_both;
use crate::{conf, options, report};
use conf_schema::TextStore;
use conf_syntax::{Disk, SourceFiles, TreeItem, list_directives};
use http_acme::ListedCertificate as AcmeCertificate;
use observe::LogFiles;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use tls::x509::{Certificate, name, time};

pub const HELP: &str = "\
Usage: tidegate certificates [-c FILE] [-p PREFIX] [-g DIRECTIVES] [--json] [--within DAYS]
       tidegate certificates [-c FILE] [-p PREFIX] [-g DIRECTIVES]
                             --renew NAME ... | --renew-all | --local-root FILE

Lists the certificates of a configuration: names, issuer, expiry, and file and line in the
configuration. For ACME certificates also the state of the order, the last error and the time of the
next order, which the running server stores in \"state_path\".

  tidegate certificates                     the certificates of the default configuration
  tidegate certificates --within 14         for monitoring: exit code 1 if one expires within two weeks
  tidegate certificates --renew example.com order a certificate now
  tidegate certificates --json              print a JSON array
  tidegate certificates --local-root a.crt  export the certificate of the local authority, for clients to trust

  -c, -p, -g         as for the server; -c also finds a file of the current directory
  --json             print a JSON array
  --within DAYS      exit with 1 if a certificate expires within this number of days (default: 0)
  --renew NAME       make the running server order the ACME certificates with this name; may be repeated.
                     It starts within seconds, and uses the old certificate until the new one is available
  --renew-all        make it order all ACME certificates
  --local-root FILE  write the certificates of the configuration's local authorities to a file
                     (-: standard output)

Certificates whose file name contains variables are not listed. --renew writes a file to \"state_path\";
if the server is not running, it orders when it starts.

Exit code: 0 on success, 1 if a certificate is missing, unreadable or expires too soon, 2 if the
configuration cannot be read.
";

const DAY: i64 = 86_400;

#[derive(Default)]
struct CertificatesArguments {
    json: bool,
    within: Option<i64>,
    renew: Vec<String>,
    renew_all: bool,
    local_root: Option<String>,
    rest: Vec<OsString>,
}

fn parse(arguments: &[OsString]) -> Result<CertificatesArguments, String> {
    let mut asked = CertificatesArguments::default();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let mut value = || {
            let value = arguments.next().map(|value| value.to_string_lossy().into_owned());
            value.ok_or_else(|| format!("option \"{}\" requires a value", argument.to_string_lossy()))
        };
        match argument.to_str() {
            Some("--json") => asked.json = true,
            Some("--renew-all") => asked.renew_all = true,
            Some("--renew") => asked.renew.push(value()?),
            Some("--local-root") => asked.local_root = Some(value()?),
            Some("--within") => {
                let days = value()?;
                let number = days.parse().ok().filter(|days| (0..=36_500).contains(days));
                asked.within = Some(number.ok_or(format!("invalid number of days: \"{days}\""))?);
            }
            _ => asked.rest.push(argument.clone()),
        }
    }
    let tasks = [
        ("--renew", !asked.renew.is_empty()),
        ("--renew-all", asked.renew_all),
        ("--local-root", asked.local_root.is_some()),
    ];
    refuse_both(&tasks)?;
    for task in tasks {
        refuse_both(&[task, ("--json", asked.json)])?;
        refuse_both(&[task, ("--within", asked.within.is_some())])?;
    }
    Ok(asked)
}

struct CertificateRow {
    names: Vec<String>,
    places: Vec<String>,
    file: Option<PathBuf>,
    leaf: Result<Certificate, String>,
    acme: Option<AcmeCertificate>,
}

pub fn run_certificates(arguments: &[OsString]) -> i32 {
    let parsed = parse(arguments).and_then(|asked| Ok((options::parse_place(&asked.rest)?, asked)));
    let (invocation, asked) = match parsed {
        Ok(parsed) => parsed,
        Err(words) => {
            eprintln!("tidegate: {words}\n  = \"tidegate certificates --help\" lists the options");
            return 2;
        }
    };
    let reading = conf::read_config(&Disk, TextStore::default(), &invocation, LogFiles::default());
    let config = match reading.config {
        Ok(config) => config,
        Err(failure) => {
            report::print_failure(&failure, report::Style::new(true), None);
            return 2;
        }
    };
    if let Some(file) = &asked.local_root {
        let roots = config.http.as_deref().map(http_acme::local_roots).unwrap_or_default();
        return export(&roots, file);
    }
    let acme = config.http.as_deref().map(http_acme::list_certificates).unwrap_or_default();
    if asked.renew_all {
        return renew(&acme, None);
    }
    if !asked.renew.is_empty() {
        return asked.renew.iter().fold(0, |code, name| code.max(renew(&acme, Some(name))));
    }
    let Ok((files, items)) = conf::load_config(&Disk, &invocation) else { return 2 };
    let folder = invocation.conf_file.parent().unwrap_or(Path::new("/"));
    let mut rows = from_files(&files, &items, folder);
    rows.extend(acme.into_iter().map(by_acme));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64);
    match asked.json {
        true => base::outln!("{}", Value::Array(rows.iter().map(|row| row.json(now)).collect())),
        false if rows.is_empty() => base::outln!("The configuration has no certificates."),
        false => rows.iter().for_each(|row| base::out!("{}", row.text(now))),
    }
    let soon = |row: &CertificateRow| {
        row.leaf.as_ref().map_or(true, |leaf| leaf.not_after - now <= asked.within.unwrap_or(0) * DAY)
    };
    i32::from(rows.iter().any(soon))
}

fn export(roots: &[(String, Option<PathBuf>)], file: &str) -> i32 {
    if roots.is_empty() {
        eprintln!("tidegate: the configuration has no issuer with \"local_authority\"");
        return 1;
    }
    let mut out = String::new();
    for (issuer, root) in roots {
        let Some(root) = root else {
            eprintln!("tidegate: issuer \"{issuer}\" has \"state_path off\": its authority ends with the server");
            return 1;
        };
        match std::fs::read_to_string(root) {
            Ok(text) => out.push_str(&text),
            Err(e) => {
                eprintln!("tidegate: \"{}\" cannot be read {}", root.display(), observe::os_error(&e));
                eprintln!("  = the server creates the authority of issuer \"{issuer}\" when it starts");
                return 1;
            }
        }
    }
    if file == "-" {
        base::out!("{out}");
        return 0;
    }
    match std::fs::write(file, out) {
        Ok(()) => 0,
        Err(e) => {
            eprintln!("tidegate: \"{file}\" cannot be written {}", observe::os_error(&e));
            1
        }
    }
}

fn renew(acme: &[AcmeCertificate], name: Option<&str>) -> i32 {
    let lower = name.map(str::to_ascii_lowercase);
    let wanted = |one: &&AcmeCertificate| lower.as_ref().is_none_or(|name| one.identifiers.contains(name));
    let mut code = 0;
    let mut found = false;
    for one in acme.iter().filter(wanted) {
        found = true;
        let names = one.identifiers.join(", ");
        match one.renew() {
            Ok(()) => base::outln!("{names}: asked the server for an order of issuer \"{}\"", one.issuer),
            Err(why) => {
                eprintln!("tidegate: {names}: {why}");
                code = 1;
            }
        }
    }
    if !found {
        let which =
            name.map_or_else(|| "no certificate".into(), |name| format!("no certificate with the name \"{name}\""));
        eprintln!("tidegate: {which} is ordered by ACME\n  = \"tidegate certificates\" lists all");
        return 1;
    }
    code
}

fn read(path: &Path) -> Result<Certificate, String> {
    let text = std::fs::read(path).map_err(|e| observe::os_error(&e).to_string())?;
    let mut all = tls::certs::parse_certificates(&text)?;
    if all.is_empty() { Err("it has no certificate".into()) } else { Ok(all.swap_remove(0)) }
}

/// Names each file once.
fn from_files(files: &SourceFiles, items: &[TreeItem], folder: &Path) -> Vec<CertificateRow> {
    fn visit(files: &SourceFiles, items: &[TreeItem], folder: &Path, found: &mut BTreeMap<PathBuf, Vec<String>>) {
        for d in list_directives(items) {
            if let (b"ssl_certificate", [word]) = (d.name.bytes.as_slice(), d.args.as_slice()) {
                let text = word.text();
                let is_path =
                    !text.contains('$') && !["data:", "engine:", "store:"].iter().any(|p| text.starts_with(p));
                if is_path && !text.is_empty() {
                    let place = format!("{}:{}", files.path(d.span.file).display(), d.line);
                    found.entry(folder.join(&*text)).or_default().push(place);
                }
            }
            visit(files, d.block.as_deref().unwrap_or_default(), folder, found);
        }
    }
    let mut found = BTreeMap::new();
    visit(files, items, folder, &mut found);
    let row = |(file, places): (PathBuf, Vec<String>)| {
        let leaf = read(&file);
        let names = leaf.as_ref().map(Certificate::names).unwrap_or_default();
        CertificateRow { names, places, file: Some(file), leaf, acme: None }
    };
    found.into_iter().map(row).collect()
}

fn by_acme(acme: AcmeCertificate) -> CertificateRow {
    let file = acme.file();
    let leaf = match &file {
        Some(file) if file.exists() => read(file),
        Some(_) => Err("not issued yet".into()),
        None => Err("nothing is stored (\"state_path off\")".into()),
    };
    CertificateRow { names: acme.identifiers.clone(), places: acme.places.clone(), file, leaf, acme: Some(acme) }
}

impl CertificateRow {
    fn status(&self) -> Option<Value> {
        self.acme.as_ref()?.status()
    }

    fn json(&self, now: i64) -> Value {
        let status = self.status();
        let status = |name: &str| status.as_ref().and_then(|status| status.get(name)).cloned().unwrap_or(Value::Null);
        let acme = self.acme.as_ref().map(|acme| {
            json!({
                "issuer": acme.issuer, "uri": acme.uri, "challenge": acme.challenge, "state": status("state"),
                "failures": status("failures"), "last_error": status("error"), "last_error_at": status("error_at"),
                "next_order_at": status("next_order"), "served_by": status("served_by"),
            })
        });
        let leaf = self.leaf.as_ref().ok();
        json!({
            "names": self.names,
            "issuer": leaf.map(|leaf| name::format_rfc2253(leaf.issuer())),
            "serial": leaf.map(Certificate::serial_hex),
            "not_before": leaf.map(|leaf| leaf.not_before),
            "not_after": leaf.map(|leaf| leaf.not_after),
            "days_left": leaf.map(|leaf| (leaf.not_after - now).div_euclid(DAY)),
            "problem": self.leaf.as_ref().err(),
            "file": self.file.as_ref().map(|file| file.display().to_string()),
            "configured": self.places,
            "acme": acme,
        })
    }

    fn text(&self, now: i64) -> String {
        let mut out = String::new();
        let mut line = |what: &str, text: &str| {
            let _ = writeln!(out, "  {what:<12} {text}");
        };
        match &self.leaf {
            Ok(leaf) => {
                line("issuer", &name::format_rfc2253(leaf.issuer()));
                let left = match (leaf.not_after - now).div_euclid(DAY) {
                    days if days < 0 => "it has ended".into(),
                    days => format!("{days} days left"),
                };
                line("valid until", &format!("{} ({left})", time::print_time(leaf.not_after)));
            }
            Err(why) => line("problem", why),
        }
        if let Some(file) = &self.file {
            line("file", &file.display().to_string());
        }
        for place in &self.places {
            line("configured", place);
        }
        if let Some(acme) = &self.acme {
            let status = self.status();
            let number = |name: &str| status.as_ref()?.get(name)?.as_i64();
            let text = |name: &str| status.as_ref()?.get(name)?.as_str();
            let state = text("state").unwrap_or("no order yet");
            line("acme", &format!("issuer \"{}\", {}: {state}", acme.issuer, acme.challenge));
            if let Some(by) = text("served_by").filter(|by| *by != acme.issuer) {
                line("issued by", &format!("\"{by}\", in place of \"{}\"", acme.issuer));
            }
            if let Some(at) = number("next_order") {
                line("next order", &if at <= now { "now".into() } else { time::print_time(at) });
            }
            if let Some(why) = text("error") {
                let at = number("error_at").map(|at| format!(" ({})", time::print_time(at))).unwrap_or_default();
                line("last error", &format!("{why}{at}"));
            }
        }
        let names = if self.names.is_empty() { "(no name)".into() } else { self.names.join(", ") };
        format!("{names}\n{out}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let parse = |words: &[&str]| parse(&words.iter().map(OsString::from).collect::<Vec<_>>());
        let asked = parse(&["-c", "a", "--within", "14", "--json"]).expect("valid");
        assert!(asked.json && asked.within == Some(14) && asked.rest == ["-c", "a"]);
        for wrong in [&["--within"][..], &["--local-root"], &["--within", "-1"], &["--within", "x"], &["--renew"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(parse(&["--renew", "a", "--renew", "b"]).map(|asked| asked.renew), Ok(vec!["a".into(), "b".into()]));
    }
}
