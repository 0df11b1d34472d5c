//! `tidegate waf setup`: the files around the OWASP Core Rule Set.

use super::option_effects::{CoreFiles, options_without_effect};
use crate::conf::paths::default_paths;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use waf::{EngineState, RuleFiles, RuleSet, RuleText};

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

/// Ends of the names of a plugin's files, in the order in which they are loaded, the rules before the last one.
const PLUGIN_ENDS: [&str; 3] = ["-config.conf", "-before.conf", "-after.conf"];

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

/// The command line.
#[derive(Debug)]
pub struct SetupOptions {
    /// The folder to write, absolute.
    pub folder: PathBuf,
    /// The folder of the rule set, with `rules` in it.
    pub rules: PathBuf,
    pub audit_log: PathBuf,
    pub paranoia: u8,
    /// `--block`.
    pub blocks: bool,
    pub applications: Vec<&'static (&'static str, &'static str, &'static str)>,
    /// Folders with files of plugins.
    pub plugins: Vec<PathBuf>,
    /// Options with a default that were given.
    pub given: Vec<&'static str>,
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
        plugins: Vec::new(),
        given: Vec::new(),
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        options.given.extend(["--crs", "--audit-log", "--paranoia"].into_iter().filter(|known| known == word));
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
            "--plugin" => {
                let folder = plugin_folder(Path::new(value()?))?;
                if !options.plugins.contains(&folder) {
                    options.plugins.push(folder);
                }
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

/// Returns the folder with the files of a plugin: `plugins` in its unpacked archive, or the folder itself. Fails if it has none.
fn plugin_folder(path: &Path) -> Result<PathBuf, String> {
    let path = std::path::absolute(path).map_err(|error| error.to_string())?;
    let is_plugin = |folder: &PathBuf| PLUGIN_ENDS.iter().any(|end| has_files(folder, end));
    let found = [path.join("plugins"), path.clone()].into_iter().find(is_plugin);
    let ends = PLUGIN_ENDS.map(|end| format!("\"*{end}\"")).join(", ");
    found
        .ok_or_else(|| format!("\"{}\" is no plugin: neither it nor its folder \"plugins\" has {ends}", path.display()))
}

/// Quotes a path for an `Include` line.
pub fn quote_path(path: &Path) -> String {
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
    let (core, _) = core_text(&options);
    for (name, text) in [
        ("main.conf", main_text(&options).as_str()),
        ("engine.conf", &engine_text(&options)),
        ("crs.conf", &core),
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
    compile(&options)
}

/// Folders with files of plugins: that of the rules, then those of the options.
fn plugin_folders(options: &SetupOptions) -> Vec<PathBuf> {
    let of_rules = Some(options.rules.join("plugins")).filter(|folder| folder.is_dir());
    of_rules.into_iter().chain(options.plugins.iter().cloned()).collect()
}

/// Tells whether the rule set is of version 4, which has a folder for plugins.
pub fn is_version_four(options: &SetupOptions) -> bool {
    options.rules.join("plugins").is_dir()
}

fn has_files(folder: &Path, end: &str) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name()).any(|name| name.to_string_lossy().ends_with(end))
}

/// The text of crs.conf, and applications whose plugin is missing, with its name.
pub fn core_text(options: &SetupOptions) -> (String, Vec<(&'static str, &'static str)>) {
    let own = |name: &str| quote_path(&options.folder.join(name));
    let is_version_four = is_version_four(options);
    let plugins = plugin_folders(options);
    let mut missing = Vec::new();
    let mut switches = String::new();
    for (name, variable, plugin) in options.applications.iter().copied() {
        let file = format!("{plugin}-config.conf");
        if !is_version_four {
            switches.push_str(&format!(",\\\n    setvar:{variable}=1"));
        } else if !plugins.iter().any(|folder| folder.join(&file).is_file()) {
            missing.push((*name, *plugin));
        }
    }
    let level = options.paranoia;
    let levels = match is_version_four {
        // The level of detection follows, unless crs-setup.conf sets it.
        true => format!("setvar:tx.blocking_paranoia_level={level}"),
        false => format!("setvar:tx.paranoia_level={level}"),
    };
    let mut text = format!(
        "\
# Written by \"tidegate waf setup\": the Core Rule Set with its plugins, and exclusions of your own.
# The values of setup. Those of crs-setup.conf go before them: change levels there (ids 900000 and 900001).
SecAction \"id:10000,phase:1,pass,nolog,t:none,\\
    {levels}{switches}\"
Include {}
",
        own("crs-setup.conf"),
    );
    let of_plugins = |end: &str| -> String {
        let folders = plugins.iter().filter(|folder| has_files(folder, end));
        folders.map(|folder| format!("Include {}\n", quote_path(&folder.join(format!("*{end}"))))).collect()
    };
    let rules = format!("Include {}\n", quote_path(&options.rules.join("rules").join("*.conf")));
    text.push_str(&of_plugins("-config.conf"));
    text.push_str(&of_plugins("-before.conf"));
    text.push_str(&format!("Include {}\n{rules}", own("exclusions-before.conf")));
    text.push_str(&of_plugins("-after.conf"));
    text.push_str(&format!("Include {}\n", own("exclusions-after.conf")));
    (text, missing)
}

/// The text of engine.conf.
fn engine_text(options: &SetupOptions) -> String {
    let engine = if options.blocks { "On" } else { "DetectionOnly" };
    format!(
        "\
# Written by \"tidegate waf setup\": settings of the engine.

# On refuses requests; DetectionOnly only logs.
SecRuleEngine {engine}
{}SecResponseBodyAccess Off
SecArgumentSeparator &

# The audit log, which \"tidegate waf report\" reads.
SecAuditEngine RelevantOnly
SecAuditLogRelevantStatus \"^(?:5|4(?!04))\"
SecAuditLogParts ABHZ
SecAuditLogType Serial
SecAuditLogFormat JSON
SecAuditLog {}
",
        waf::RECOMMENDED_SETTINGS,
        quote_path(&options.audit_log),
    )
}

/// The text of main.conf.
fn main_text(options: &SetupOptions) -> String {
    let own = |name: &str| quote_path(&options.folder.join(name));
    format!(
        "\
# Written by \"tidegate waf setup\". In nginx.conf:
#     modsecurity on;
#     modsecurity_rules_file {};
Include {}
Include {}
",
        options.folder.join("main.conf").display(),
        own("engine.conf"),
        own("crs.conf"),
    )
}

/// Files on the disk.
struct DiskRules;

fn beside(from: &str, name: &str) -> PathBuf {
    Path::new(from).parent().unwrap_or(Path::new("/")).join(name)
}

/// Reads a file of rules.
pub fn read_text(path: &Path) -> Result<RuleText, String> {
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
            let file = options.folder.join("engine.conf");
            let file = file.display();
            match rules.settings.engine {
                EngineState::On => {}
                EngineState::DetectionOnly => base::out!(
                    "The rules only log. After a look at the audit log, write SecRuleEngine On into {file}.\n"
                ),
                EngineState::Off => {
                    base::out!("The engine is off: no request is inspected. Write SecRuleEngine into {file}.\n")
                }
            }
            let files = CoreFiles::read(&options.folder);
            if let Some(note) = files.order_note(&options.folder) {
                base::out!("{note}\n");
            }
            let without_effect = options_without_effect(options, &files, &rules);
            without_effect.iter().for_each(|words| eprintln!("tidegate: {words}"));
            Ok(i32::from(!without_effect.is_empty()))
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
        let read = |name: &str| fs::read_to_string(folder.join("own").join(name)).expect(name);
        let (core, engine) = (read("crs.conf"), read("engine.conf"));
        assert!(core.contains("setvar:tx.crs_exclusions_wordpress=1"), "{core}");
        assert!(core.contains("setvar:tx.paranoia_level=2") && engine.contains("SecRuleEngine On"), "{core}");
        // Beside the error log of a packaged system, whose folder exists.
        assert!(engine.contains("/waf-audit.log\"\n") && engine.contains("SecAuditLog \"/var/log/"), "{engine}");
        // A second run keeps the files.
        fs::write(folder.join("own/exclusions-after.conf"), "SecRuleRemoveById 1\n").expect("exclusions");
        assert_eq!(write_setup(&arguments), Ok(0));
        let after = fs::read_to_string(folder.join("own/exclusions-after.conf")).expect("exclusions");
        assert_eq!(after, "SecRuleRemoveById 1\n");
        fs::create_dir_all(folder.join("crs/plugins")).expect("a folder");
        let options = parse_options(&arguments).expect("options");
        let (core, missing) = core_text(&options);
        assert!(core.contains("setvar:tx.blocking_paranoia_level=2"), "{core}");
        assert_eq!(missing, [("wordpress", "wordpress-rule-exclusions")]);
        fs::remove_dir_all(folder).expect("removed");
    }

    #[test]
    fn plugins_are_loaded_around_the_rules_in_the_order_of_the_set() {
        let folder = std::env::temp_dir().join(format!("tidegate-waf-plugins-{}", std::process::id()));
        for (name, text) in [
            ("crs/rules/a.conf", "SecAction \"id:2,phase:1,pass\"\n"),
            ("crs/rules/b.conf", "SecRule REMOTE_ADDR \"@rbl a.example\" \"id:3,phase:1,deny\"\n"),
            ("crs/plugins/empty-before.conf", ""),
            ("crs/crs-setup.conf", ""),
            ("p/plugins/wordpress-rule-exclusions-config.conf", "SecAction \"id:1,phase:1,pass\"\n"),
            ("p/plugins/wordpress-rule-exclusions-before.conf", ""),
            ("q/b-after.conf", "SecRuleRemoveById 2\n"),
        ] {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        let path = |name: &str| folder.join(name).display().to_string();
        let arguments = words(&[
            &path("own"),
            "--crs",
            &path("crs"),
            "--wordpress",
            "--plugin",
            &path("p"),
            "--plugin",
            &path("q"),
        ]);
        assert_eq!(write_setup(&arguments), Ok(0));
        let core = fs::read_to_string(folder.join("own/crs.conf")).expect("crs.conf");
        let names: Vec<&str> =
            core.lines().filter_map(|line| line.strip_prefix("Include ")?.rsplit('/').next()).collect();
        let order = [
            "crs-setup.conf\"",
            "*-config.conf\"",
            "*-before.conf\"",
            "*-before.conf\"",
            "exclusions-before.conf\"",
            "*.conf\"",
            "*-after.conf\"",
            "exclusions-after.conf\"",
        ];
        assert_eq!(names, order, "{core}");
        let (_, missing) = core_text(&parse_options(&arguments).expect("options"));
        assert!(missing.is_empty(), "{missing:?}");
        assert!(
            parse_options(&words(&["d", "--plugin", &path("crs/rules")]))
                .expect_err("no plugin")
                .contains("is no plugin")
        );
        let main = read_text(&folder.join("own/main.conf")).expect("main.conf");
        let (rules, _) = RuleSet::compile(&[main], &DiskRules).expect("rules");
        assert!(
            rules.rules().any(|rule| rule.id == 1) && !rules.rules().any(|rule| rule.id == 2),
            "removed by a plugin"
        );
        assert_eq!(rules.name_lookups().len(), 1, "rules that ask DNS are loaded as well");
        fs::remove_dir_all(folder).expect("removed");
    }
}
