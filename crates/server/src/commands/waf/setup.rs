//! `tidegate waf setup`: the files around the OWASP Core Rule Set.

use crate::conf::paths::default_paths;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use waf::{RuleFiles, RuleSet, RuleText};

/// Folder of Debian's package.
const DEBIAN_RULES: &str = "/usr/share/modsecurity-crs";
/// Setup of Debian's package, beside its rules.
const DEBIAN_SETUP: &str = "/etc/modsecurity/crs/crs-setup.conf";

/// Applications with exclusions: the option, the variable of version 3, the plugin of version 4.
const APPLICATIONS: &[(&str, &str, &str)] = &[
    ("wordpress", "tx.crs_exclusions_wordpress", "wordpress-rule-exclusions"),
    ("nextcloud", "tx.crs_exclusions_nextcloud", "nextcloud-rule-exclusions"),
    ("phpmyadmin", "tx.crs_exclusions_phpmyadmin", "phpmyadmin-rule-exclusions"),
];

const BEFORE: &str = "\
# Exclusions that depend on the request, before the rules of the set. Ids from 10000 are free. Example:
# SecRule REQUEST_URI \"@beginsWith /editor\" \\
#     \"id:10001,phase:1,pass,nolog,ctl:ruleRemoveTargetById=941100-941999;ARGS:text\"
";
const AFTER: &str = "\
# Exclusions for all requests, behind the rules of the set. Examples:
# SecRuleRemoveById 920350
# SecRuleUpdateTargetById 942100 \"!ARGS:comment\"
";

#[derive(Debug)]
struct SetupOptions {
    folder: PathBuf,
    rules: PathBuf,
    audit_log: PathBuf,
    paranoia: u8,
    blocks: bool,
    applications: Vec<&'static (&'static str, &'static str, &'static str)>,
}

fn parse_options(words: &[String]) -> Result<SetupOptions, String> {
    let mut folder = None;
    let mut options = SetupOptions {
        folder: PathBuf::new(),
        rules: DEBIAN_RULES.into(),
        audit_log: default_paths(None).error_log.with_file_name("waf-audit.log"),
        paranoia: 1,
        blocks: false,
        applications: Vec::new(),
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--crs" => options.rules = value()?.into(),
            "--audit-log" => options.audit_log = value()?.into(),
            "--paranoia" => {
                let level = value()?;
                options.paranoia = level
                    .parse()
                    .ok()
                    .filter(|level| (1..=4).contains(level))
                    .ok_or_else(|| format!("invalid level \"{level}\" of --paranoia: it is from 1 to 4"))?;
            }
            "--block" => options.blocks = true,
            other => match (other.strip_prefix("--"), &folder) {
                (Some(name), _) => {
                    let known = APPLICATIONS.iter().find(|(known, ..)| *known == name);
                    options.applications.push(known.ok_or_else(|| format!("unknown option \"{other}\""))?);
                }
                (None, None) => folder = Some(PathBuf::from(other)),
                (None, Some(_)) => return Err(format!("setup writes one folder, and \"{other}\" is a second one")),
            },
        }
    }
    options.folder = std::path::absolute(folder.ok_or("setup needs a folder")?).map_err(|error| error.to_string())?;
    options.audit_log = std::path::absolute(&options.audit_log).map_err(|error| error.to_string())?;
    options.rules = std::path::absolute(&options.rules).map_err(|error| error.to_string())?;
    Ok(options)
}

/// Quotes a path for an `Include` line.
fn quoted(path: &Path) -> String {
    format!("\"{}\"", path.display())
}

/// Writes the files; returns the exit code.
pub fn write_setup(words: &[String]) -> Result<i32, String> {
    let options = parse_options(words)?;
    let rules = options.rules.join("rules");
    if !rules.is_dir() {
        return Err(format!(
            "\"{}\" has no folder \"rules\": install modsecurity-crs, or unpack a release of \
             https://github.com/coreruleset/coreruleset/releases and name its folder with --crs",
            options.rules.display()
        ));
    }
    let candidates = [options.rules.join("crs-setup.conf"), options.rules.join("crs-setup.conf.example")];
    let candidates =
        candidates.into_iter().chain((options.rules == Path::new(DEBIAN_RULES)).then(|| DEBIAN_SETUP.into()));
    let setup = candidates.into_iter().find(|path| path.is_file());
    let setup = setup.ok_or_else(|| format!("\"{}\" has no crs-setup.conf", options.rules.display()))?;
    let setup = fs::read_to_string(&setup).map_err(|error| format!("\"{}\": {error}", setup.display()))?;
    fs::create_dir_all(&options.folder).map_err(|error| format!("\"{}\": {error}", options.folder.display()))?;
    let (main, missing) = main_text(&options);
    for (name, text) in [
        ("main.conf", main.as_str()),
        ("crs-setup.conf", &setup),
        ("exclusions-before.conf", BEFORE),
        ("exclusions-after.conf", AFTER),
    ] {
        let path = options.folder.join(name);
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => {
                file.write_all(text.as_bytes()).map_err(|error| format!("\"{}\": {error}", path.display()))?;
                base::out!("wrote {}\n", path.display());
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                base::out!("kept  {}\n", path.display());
            }
            Err(error) => return Err(format!("\"{}\": {error}", path.display())),
        }
    }
    for (name, plugin) in missing {
        base::out!(
            "note: exclusions for {name} are a plugin of version 4: unpack https://github.com/coreruleset/{plugin}-plugin \
             into {}, then remove main.conf and run setup again\n",
            options.rules.join("plugins").display()
        );
    }
    compile(&options)
}

/// The text of main.conf, and applications whose plugin is missing, with its name.
fn main_text(options: &SetupOptions) -> (String, Vec<(&'static str, &'static str)>) {
    let own = |name: &str| quoted(&options.folder.join(name));
    let plugins = options.rules.join("plugins");
    let has_plugins = |end: &str| {
        let entries = fs::read_dir(&plugins).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name()).any(|name| name.to_string_lossy().ends_with(end))
    };
    let mut missing = Vec::new();
    let mut switches = String::new();
    for (name, variable, plugin) in options.applications.iter().copied() {
        if !plugins.is_dir() {
            switches.push_str(&format!(",\\\n    setvar:{variable}=1"));
        } else if !plugins.join(format!("{plugin}-config.conf")).is_file() {
            missing.push((*name, *plugin));
        }
    }
    let level = options.paranoia;
    let levels = match plugins.is_dir() {
        true => format!("setvar:tx.blocking_paranoia_level={level},setvar:tx.detection_paranoia_level={level}"),
        false => format!("setvar:tx.paranoia_level={level}"),
    };
    let engine = if options.blocks { "On" } else { "DetectionOnly" };
    let mut text = format!(
        "\
# Written by \"tidegate waf setup\". In nginx.conf:
#     modsecurity on;
#     modsecurity_rules_file {};

# On refuses requests; DetectionOnly only logs.
SecRuleEngine {engine}
SecRequestBodyAccess On
SecRequestBodyLimit 13107200
SecRequestBodyNoFilesLimit 131072
SecRequestBodyLimitAction Reject
SecResponseBodyAccess Off
SecArgumentSeparator &
SecRule REQUEST_HEADERS:Content-Type \"^(?:application(?:/soap\\+|/)|text/)xml\" \\
    \"id:200000,phase:1,t:none,t:lowercase,pass,nolog,ctl:requestBodyProcessor=XML\"
SecRule REQUEST_HEADERS:Content-Type \"^application/(?:[a-z0-9.-]+[+])?json\" \\
    \"id:200001,phase:1,t:none,t:lowercase,pass,nolog,ctl:requestBodyProcessor=JSON\"
SecRule REQBODY_ERROR \"!@eq 0\" \\
    \"id:200002,phase:2,t:none,log,deny,status:400,msg:'Failed to parse the body of the request'\"
SecRule MULTIPART_STRICT_ERROR \"!@eq 0\" \\
    \"id:200003,phase:2,t:none,log,deny,status:400,msg:'The multipart body is not strict'\"

# The audit log, which \"tidegate waf report\" reads.
SecAuditEngine RelevantOnly
SecAuditLogRelevantStatus \"^(?:5|4(?!04))\"
SecAuditLogParts ABHZ
SecAuditLogType Serial
SecAuditLogFormat JSON
SecAuditLog {}

Include {}
SecAction \"id:10000,phase:1,pass,nolog,t:none,\\
    {levels}{switches}\"
",
        options.folder.join("main.conf").display(),
        quoted(&options.audit_log),
        own("crs-setup.conf"),
    );
    for (end, file) in [("-config.conf", None), ("-before.conf", Some("exclusions-before.conf"))] {
        if has_plugins(end) {
            text.push_str(&format!("Include {}\n", quoted(&plugins.join(format!("*{end}")))));
        }
        if let Some(file) = file {
            text.push_str(&format!("Include {}\n", own(file)));
        }
    }
    text.push_str(&format!("Include {}\n", quoted(&options.rules.join("rules").join("*.conf"))));
    if has_plugins("-after.conf") {
        text.push_str(&format!("Include {}\n", quoted(&plugins.join("*-after.conf"))));
    }
    text.push_str(&format!("Include {}\n", own("exclusions-after.conf")));
    (text, missing)
}

/// Files on the disk.
struct DiskRules;

fn beside(from: &str, name: &str) -> PathBuf {
    Path::new(from).parent().unwrap_or(Path::new("/")).join(name)
}

fn read_text(path: &Path) -> Result<RuleText, String> {
    let text = fs::read(path).map_err(|error| format!("\"{}\": {error}", path.display()))?;
    Ok(RuleText { name: path.display().to_string().into(), text: String::from_utf8_lossy(&text).into_owned() })
}

impl RuleFiles for DiskRules {
    fn include(&self, pattern: &str, from: &str) -> Result<Vec<RuleText>, String> {
        use conf_syntax::TextSource as _;
        let full = beside(from, pattern);
        let is_pattern = conf_syntax::is_pattern(pattern);
        let paths = if is_pattern { conf_syntax::Disk.glob(&full.to_string_lossy()) } else { vec![full] };
        paths.iter().map(|path| read_text(path)).collect()
    }
    fn data(&self, name: &str, from: &str) -> Result<Vec<u8>, String> {
        fs::read(beside(from, name)).map_err(|error| error.to_string())
    }
}

/// Compiles the rules and says what to write into nginx.conf; returns the exit code.
fn compile(options: &SetupOptions) -> Result<i32, String> {
    let main = options.folder.join("main.conf");
    match RuleSet::compile(&[read_text(&main)?], &DiskRules) {
        Ok((rules, warnings)) => {
            warnings.iter().for_each(|warning| base::out!("warning: {warning}\n"));
            base::out!(
                "{} rules compile. In nginx.conf:\n    modsecurity on;\n    modsecurity_rules_file {};\n",
                rules.rules().count(),
                main.display()
            );
            if !options.blocks {
                base::out!("The rules only log. After a look at the audit log, write SecRuleEngine On.\n");
            }
            Ok(0)
        }
        Err(error) => {
            eprintln!("tidegate: {error}");
            Ok(1)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn options_that_are_unknown_or_lack_a_value_are_errors() {
        assert!(parse_options(&words(&[])).is_err());
        assert!(parse_options(&words(&["d", "--paranoia", "5"])).expect_err("level").contains("1 to 4"));
        assert!(parse_options(&words(&["d", "--crs"])).is_err());
        let options = parse_options(&words(&["d", "--audit-log", "/srv/audit.log"])).expect("options");
        assert_eq!(options.audit_log, Path::new("/srv/audit.log"));
        assert!(parse_options(&words(&["d", "--drupal"])).expect_err("option").contains("--drupal"));
        assert!(parse_options(&words(&["d", "e"])).is_err());
    }

    #[test]
    fn a_set_of_version_three_has_switches_and_one_of_version_four_plugins() {
        let folder = std::env::temp_dir().join(format!("tidegate-waf-{}", std::process::id()));
        fs::create_dir_all(folder.join("crs/rules")).expect("a folder");
        fs::write(folder.join("crs/rules/a.conf"), "SecAction \"id:1,phase:1,pass\"\n").expect("rules");
        fs::write(folder.join("crs/crs-setup.conf"), "").expect("a setup");
        let own = folder.join("own").display().to_string();
        let crs = folder.join("crs").display().to_string();
        let arguments = words(&[&own, "--crs", &crs, "--wordpress", "--paranoia", "2", "--block"]);
        assert_eq!(write_setup(&arguments), Ok(0));
        let main = fs::read_to_string(folder.join("own/main.conf")).expect("main.conf");
        assert!(main.contains("setvar:tx.crs_exclusions_wordpress=1"), "{main}");
        assert!(main.contains("setvar:tx.paranoia_level=2") && main.contains("SecRuleEngine On"), "{main}");
        // Beside the error log of a packaged system, whose folder exists.
        assert!(main.contains("/waf-audit.log\"\n") && main.contains("SecAuditLog \"/var/log/"), "{main}");
        // A second run keeps the files.
        fs::write(folder.join("own/exclusions-after.conf"), "SecRuleRemoveById 1\n").expect("exclusions");
        assert_eq!(write_setup(&arguments), Ok(0));
        let after = fs::read_to_string(folder.join("own/exclusions-after.conf")).expect("exclusions");
        assert_eq!(after, "SecRuleRemoveById 1\n");
        fs::create_dir_all(folder.join("crs/plugins")).expect("a folder");
        let options = parse_options(&arguments).expect("options");
        let (main, missing) = main_text(&options);
        assert!(main.contains("setvar:tx.blocking_paranoia_level=2"), "{main}");
        assert_eq!(missing, [("wordpress", "wordpress-rule-exclusions")]);
        fs::remove_dir_all(folder).expect("removed");
    }
}
