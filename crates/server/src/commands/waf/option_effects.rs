//! Options of `tidegate waf setup` that have no effect, because a file that was there before says otherwise.

use super::setup::{SetupOptions, core_text, is_version_four, quote_path, read_text};
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

    /// The change that a crs.conf of an earlier version needs.
    pub fn order_note(&self, folder: &Path) -> Option<String> {
        self.overrides_setup.then(|| {
            format!(
                "note: \"{}\" sets levels behind crs-setup.conf, where changes of them have no effect: move its line \
                 \"Include {}\" below the SecAction 10000, and take tx.detection_paranoia_level out of that",
                folder.join("crs.conf").display(),
                quote_path(&folder.join("crs-setup.conf")),
            )
        })
    }
}

/// Returns why each given option without effect has none, with the line to write and its file. `rules` are those of main.conf.
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
        let (line, file) = (format!("SecAuditLog {}", quote_path(&options.audit_log)), own("engine.conf"));
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
    let rules_line = format!("Include {}", quote_path(&options.rules.join("rules").join("*.conf")));
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
