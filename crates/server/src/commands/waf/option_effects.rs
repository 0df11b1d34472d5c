//! Options of `tidegate waf setup` that have no effect, because a file that was there before says otherwise.

use super::setup::{SetupOptions, core_text, is_version_four, quoted, read_text};
use std::path::Path;
use waf::{EngineState, RuleSet};

/// Variables of the level in the Core Rule Set, version 4 first.
const LEVELS: [&str; 2] = ["tx.blocking_paranoia_level=", "tx.paranoia_level="];

/// The files that set levels and switches of the rule set.
pub struct CoreFiles {
    core: String,
    setup: String,
    /// The `SecAction` of crs.conf stands behind crs-setup.conf, as earlier versions wrote it, and overrides it.
    overrides_setup: bool,
}

/// The lines of a file of rules that are no comments.
fn effective_lines(path: &Path) -> String {
    let text = read_text(path).map(|file| file.text).unwrap_or_default();
    text.lines().filter(|line| !line.trim_start().starts_with('#')).flat_map(|line| [line, "\n"]).collect()
}

/// The last level that a file sets.
fn level_of(text: &str) -> Option<&str> {
    let starts = LEVELS.iter().filter_map(|name| Some(text.rfind(name)? + name.len()));
    let rest = text.get(starts.max()?..)?;
    rest.get(..rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len()))
}

impl CoreFiles {
    /// Reads crs.conf and crs-setup.conf of a folder; a file that cannot be read has no lines.
    pub fn read(folder: &Path) -> CoreFiles {
        let core = effective_lines(&folder.join("crs.conf"));
        let setup = effective_lines(&folder.join("crs-setup.conf"));
        let included = core.find("crs-setup.conf");
        let overrides_setup = included.zip(core.find("id:10000,")).is_some_and(|(setup, own)| setup < own);
        CoreFiles { core, setup, overrides_setup }
    }

    /// The level that counts, and the name of the file that sets it.
    fn level(&self) -> Option<(&str, &'static str)> {
        let (core, setup) = (
            level_of(&self.core).map(|level| (level, "crs.conf")),
            level_of(&self.setup).map(|level| (level, "crs-setup.conf")),
        );
        if self.overrides_setup { core.or(setup) } else { setup.or(core) }
    }

    /// What to change in a crs.conf of an earlier version.
    pub fn order_note(&self, folder: &Path) -> Option<String> {
        self.overrides_setup.then(|| {
            format!(
                "note: \"{}\" sets levels behind crs-setup.conf, where changes of them have no effect: move its line \
                 \"Include {}\" below the SecAction 10000, and take tx.detection_paranoia_level out of that",
                folder.join("crs.conf").display(),
                quoted(&folder.join("crs-setup.conf")),
            )
        })
    }
}

/// Returns why each given option without effect has none, with what to write where. `rules` are those of main.conf.
pub fn options_without_effect(options: &SetupOptions, files: &CoreFiles, rules: &RuleSet) -> Vec<String> {
    let own = |name: &str| options.folder.join(name).display().to_string();
    let mut found = Vec::new();
    let settings = &rules.settings;
    if options.blocks && settings.engine != EngineState::On {
        let state = if settings.engine == EngineState::Off { "Off" } else { "DetectionOnly" };
        let file = own("engine.conf");
        found.push(format!("--block has no effect: SecRuleEngine is {state} in the files that were kept. Write \"SecRuleEngine On\" into {file}"));
    }
    let log = options.audit_log.display().to_string();
    let audit_log = settings.audit_log.as_ref().map(|file| file.name.as_str());
    if options.given.contains(&"--audit-log") && audit_log != Some(log.as_str()) {
        let named = audit_log.unwrap_or("no file");
        let (line, file) = (format!("SecAuditLog {}", quoted(&options.audit_log)), own("engine.conf"));
        found.push(format!(
            "--audit-log has no effect: SecAuditLog is {named} in the files that were kept. Write {line} into {file}"
        ));
    }
    let level = options.paranoia.to_string();
    if options.given.contains(&"--paranoia") && files.level().is_none_or(|(known, _)| known != level) {
        let (known, file) = files.level().unwrap_or(("1", "crs.conf"));
        let name = if is_version_four(options) { LEVELS[0] } else { LEVELS[1] };
        let also = match files.overrides_setup && is_version_four(options) {
            true => format!(" and tx.detection_paranoia_level={level}"),
            false => String::new(),
        };
        let file = own(file);
        found.push(format!("--paranoia {level} has no effect: the level is {known} in {file}, which was kept. Write setvar:{name}{level}{also} there"));
    }
    let core = own("crs.conf");
    let (wanted, missing) = core_text(options);
    let rules_line = format!("Include {}", quoted(&options.rules.join("rules").join("*.conf")));
    if options.given.contains(&"--crs") && !files.core.contains(&rules_line) {
        found.push(format!("--crs has no effect: {core} was kept and includes other rules. Write {rules_line} there, or remove the file and run setup again"));
    }
    for plugin in &options.plugins {
        let mark = format!("Include \"{}/", plugin.display());
        if !files.core.contains(&mark) {
            let lines: Vec<&str> = wanted.lines().filter(|line| line.starts_with(&mark)).collect();
            let lines = lines.join(", ");
            found.push(format!(
                "--plugin {} has no effect: {core} was kept and does not include it. Write there {lines}, before the rules \
                 of the set (\"after\": behind them), or remove the file and run setup again",
                plugin.display()
            ));
        }
    }
    for (name, variable, plugin) in options.applications.iter().copied() {
        let switch = format!("{variable}=1");
        if missing.iter().any(|(known, _)| known == name) {
            found.push(format!(
                "--{name} has no effect: its exclusions are a plugin of version 4. Unpack \
                 https://github.com/coreruleset/{plugin}-plugin, remove {core} and run setup again with --plugin FOLDER"
            ));
        } else if !is_version_four(options) && !files.core.contains(&switch) && !files.setup.contains(&switch) {
            found.push(format!(
                "--{name} has no effect: {core} was kept. Write setvar:{switch} into its SecAction 10000"
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::setup::{DiskRules, parse_options, write_setup};
    use super::*;
    use std::path::PathBuf;
    use std::{fs, process};

    /// A rule set of version 4 in a folder of its own: a rule refuses with the status 400 and the level.
    fn rule_set(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("tidegate-waf-{name}-{}", process::id()));
        let level = |level: u8| {
            format!("SecRule TX:blocking_paranoia_level \"@eq {level}\" \"id:{level},phase:1,deny,status:40{level}\"\n")
        };
        for (file, text) in [
            ("crs/rules/a.conf", (1..=4).map(level).collect()),
            ("crs/plugins/empty-before.conf", String::new()),
            (
                "crs/crs-setup.conf",
                "#SecAction \"id:900000,phase:1,pass,setvar:tx.blocking_paranoia_level=1\"\n".into(),
            ),
            ("p/plugins/a-config.conf", String::new()),
        ] {
            let path = folder.join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        folder
    }

    fn arguments(folder: &Path, options: &[&str]) -> Vec<String> {
        let path = |name: &str| folder.join(name).display().to_string();
        let words = [path("own"), "--crs".into(), path("crs")].into_iter();
        words.chain(options.iter().map(ToString::to_string)).collect()
    }

    fn compiled(folder: &Path) -> std::sync::Arc<RuleSet> {
        RuleSet::compile(&[read_text(&folder.join("own/main.conf")).expect("main.conf")], &DiskRules).expect("rules").0
    }

    /// What setup says about options in a folder that is there.
    fn complaints(folder: &Path, options: &[&str]) -> String {
        let options = parse_options(&arguments(folder, options)).expect("options");
        options_without_effect(&options, &CoreFiles::read(&options.folder), &compiled(folder)).join("\n")
    }

    fn level(folder: &Path) -> u16 {
        let services = std::sync::Arc::new(waf::Services::default());
        let mut transaction = waf::Transaction::new(&compiled(folder), &services, waf::Connection::default());
        transaction.uri(b"GET", b"/", "1.1");
        match transaction.request_headers() {
            waf::Verdict::Deny { status, .. } => status - 400,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn levels_of_the_setup_file_go_before_those_of_the_option() {
        let folder = rule_set("levels");
        assert_eq!(write_setup(&arguments(&folder, &["--paranoia", "2", "--block"])), Ok(0));
        assert_eq!(level(&folder), 2);
        for wanted in [1, 4] {
            let line = format!("SecAction \"id:900000,phase:1,pass,setvar:tx.blocking_paranoia_level={wanted}\"\n");
            fs::write(folder.join("own/crs-setup.conf"), line).expect("written");
            assert_eq!(level(&folder), wanted);
            let words = complaints(&folder, &["--paranoia", "2"]);
            assert!(
                words.contains(&format!("the level is {wanted} in")) && words.contains("crs-setup.conf"),
                "{words}"
            );
        }
        assert_eq!(complaints(&folder, &["--paranoia", "4"]), "");
        let core = fs::read_to_string(folder.join("own/crs.conf")).expect("crs.conf");
        assert!(core.contains("change levels there"), "{core}");
        // A file of an earlier version.
        let mut lines: Vec<&str> = core.lines().collect();
        let include = lines.iter().position(|line| line.contains("crs-setup.conf\"")).expect("a line");
        let moved = lines.remove(include);
        lines.insert(0, moved);
        fs::write(folder.join("own/crs.conf"), lines.join("\n")).expect("written");
        let files = CoreFiles::read(&folder.join("own"));
        assert!(files.order_note(&folder.join("own")).is_some_and(|note| note.contains("below the SecAction 10000")));
        assert_eq!(files.level(), Some(("2", "crs.conf")));
        fs::remove_dir_all(folder).expect("removed");
    }

    #[test]
    fn options_that_kept_files_contradict_are_errors() {
        let folder = rule_set("kept");
        let plugin = folder.join("p").display().to_string();
        assert_eq!(write_setup(&arguments(&folder, &["--audit-log", "/srv/one.log"])), Ok(0));
        let given = ["--audit-log", "/srv/one.log", "--paranoia", "1"];
        assert_eq!((complaints(&folder, &given), write_setup(&arguments(&folder, &given))), (String::new(), Ok(0)));
        for (options, parts) in [
            (&["--block"][..], ["--block", "is DetectionOnly", "Write \"SecRuleEngine On\" into", "engine.conf"]),
            (
                &["--audit-log", "/srv/two.log"],
                ["--audit-log", "/srv/one.log", "Write SecAuditLog \"/srv/two.log\"", "engine.conf"],
            ),
            (&["--paranoia", "3"], ["--paranoia 3", "level is 1", "setvar:tx.blocking_paranoia_level=3", "crs.conf"]),
            (&["--plugin", &plugin], ["--plugin", "does not include it", "p/plugins/*-config.conf\"", "crs.conf"]),
            (&["--wordpress"], ["--wordpress", "wordpress-rule-exclusions-plugin", "--plugin FOLDER", "crs.conf"]),
        ] {
            let words = complaints(&folder, options);
            assert!(parts.iter().all(|part| words.contains(part)) && words.lines().count() == 1, "{words}");
            assert_eq!(write_setup(&arguments(&folder, options)), Ok(1), "{options:?}");
        }
        let other = rule_set("other");
        let path = other.join("crs").display().to_string();
        let words = complaints(&folder, &["--crs", &path]);
        assert!(words.starts_with("--crs has no effect") && words.contains("waf-other"), "{words}");
        fs::remove_dir_all(other).expect("removed");
        let engine = fs::read_to_string(folder.join("own/engine.conf")).expect("engine.conf");
        fs::write(folder.join("own/engine.conf"), engine.replace("SecRuleEngine DetectionOnly", "SecRuleEngine On"))
            .expect("written");
        assert_eq!(write_setup(&arguments(&folder, &["--block"])), Ok(0));
        fs::remove_dir_all(folder).expect("removed");
    }
}
