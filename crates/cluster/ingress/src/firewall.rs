//! ModSecurity's annotations and keys: rules of a location, or of all servers.
//!
//! The order of directives is that of ingress-nginx: `modsecurity on`, the snippet or the settings of the engine, the Core
//! Rule Set. Its image has the last two as files; here they are those of a folder that `tidegate waf setup` has written
//! (`--firewall-folder`). A protection that cannot be set up makes its paths answer 503.

use conf_syntax::writer::{Argument, NewDirective, WriteNode};
use waf::{AuditType, RECOMMENDED_SETTINGS, RuleFiles, RuleSet, RuleText};

use crate::config_types::{GlobalFirewall, IngressFirewall};
use crate::values::{Reader, SNIPPET_BYTES_MAX, parse_bool};

/// Files of `tidegate waf setup`: the settings of the engine, and the Core Rule Set.
const ENGINE_FILE: &str = "engine.conf";
const CORE_FILE: &str = "crs.conf";

/// Files of ingress-nginx's image, which snippets include, and those of the folder in their place.
const IMAGE_FILES: [(&str, &str); 2] = [
    ("/etc/nginx/modsecurity/modsecurity.conf", ENGINE_FILE),
    ("/etc/nginx/owasp-modsecurity-crs/nginx-modsecurity.conf", CORE_FILE),
];

/// Bytes of a `modsecurity_rules` argument, as the writer counts them: a word of nginx.conf has 4096 at most.
const ARGUMENT_BYTES_MAX: usize = 4000;

/// Permissions of the operator.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FirewallPolicy<'s> {
    /// Folder of `tidegate waf setup` (`--firewall-folder`).
    pub folder: Option<&'s str>,
    pub allows_snippets: bool,
}

fn line(name: &'static str, word: impl AsRef<[u8]>) -> WriteNode {
    NewDirective::new(name).arg(Argument::plain(word)).into()
}

/// Returns a truth value. Fails for another word: a protection that was meant must not be left out.
fn switch_of(reader: &Reader<'_>, name: &str) -> Result<Option<bool>, String> {
    let Some(value) = reader.text(name) else { return Ok(None) };
    parse_bool(value).map(Some).ok_or_else(|| format!("{name}: expected \"true\" or \"false\""))
}

/// Returns a file of `tidegate waf setup`. Fails without `--firewall-folder`.
fn folder_file(policy: FirewallPolicy<'_>, name: &str, reason: &str) -> Result<String, String> {
    let folder = policy.folder.ok_or_else(|| format!("{reason} needs --firewall-folder"))?;
    Ok(format!("{}/{name}", folder.trim_end_matches('/')))
}

/// Returns the settings of the engine without a folder.
fn default_settings() -> String {
    format!("SecRuleEngine DetectionOnly\n{RECOMMENDED_SETTINGS}")
}

/// Returns the directives of the engine's settings, and of the snippet, which stands in their place.
fn engine_lines(snippet: Option<Vec<String>>, policy: FirewallPolicy<'_>) -> Vec<WriteNode> {
    match (snippet, folder_file(policy, ENGINE_FILE, "")) {
        (Some(parts), _) => parts.iter().map(|part| line("modsecurity_rules", part)).collect(),
        (None, Ok(file)) => vec![line("modsecurity_rules_file", file)],
        (None, Err(_)) => vec![line("modsecurity_rules", default_settings())],
    }
}

/// Reads the keys of the ConfigMap; returns the directives of all servers as well. Paths answer 503 if one is invalid.
pub(crate) fn read_global(reader: &mut Reader<'_>, policy: FirewallPolicy<'_>) -> (GlobalFirewall, Vec<WriteNode>) {
    let mut read = || -> Result<Option<(Vec<WriteNode>, bool)>, String> {
        if switch_of(reader, "enable-modsecurity")? != Some(true) {
            for name in ["enable-owasp-modsecurity-crs", "modsecurity-snippet"] {
                if reader.text(name).is_some_and(|value| parse_bool(value) != Some(false)) {
                    reader.complaints.push(format!("{name} has no effect without enable-modsecurity: \"true\""));
                }
            }
            return Ok(None);
        }
        let core = switch_of(reader, "enable-owasp-modsecurity-crs")? == Some(true);
        let snippet = snippet_of(reader, policy)?;
        let mut lines = vec![line("modsecurity", "on")];
        lines.extend(engine_lines(snippet, policy));
        if core {
            lines.push(line("modsecurity_rules_file", folder_file(policy, CORE_FILE, "enable-owasp-modsecurity-crs")?));
        }
        Ok(Some((lines, core)))
    };
    match read() {
        Ok(None) => (GlobalFirewall::default(), Vec::new()),
        Ok(Some((lines, has_core_rules))) => (GlobalFirewall { is_on: true, has_core_rules, denied: None }, lines),
        Err(reason) => {
            reader.complaints.push(format!("{reason}: paths answer 503"));
            let denied = Some(format!("ConfigMap: {reason}"));
            (GlobalFirewall { denied, ..GlobalFirewall::default() }, Vec::new())
        }
    }
}

/// Returns the parts of `modsecurity-snippet`. Fails if snippets are not permitted, or if it is refused.
fn snippet_of(reader: &Reader<'_>, policy: FirewallPolicy<'_>) -> Result<Option<Vec<String>>, String> {
    let Some(text) = reader.text("modsecurity-snippet") else { return Ok(None) };
    if !policy.allows_snippets {
        return Err("modsecurity-snippet: snippets need --allow-snippets".into());
    }
    check_rules(text, policy).map(Some).map_err(|error| format!("modsecurity-snippet: {error}"))
}

/// Reads the annotations of an Ingress.
///
/// # Errors
/// With the reason why its paths answer 503.
pub(crate) fn read_ingress(
    reader: &mut Reader<'_>,
    global: &GlobalFirewall,
    policy: FirewallPolicy<'_>,
) -> Result<IngressFirewall, String> {
    let own = switch_of(reader, "enable-modsecurity")?;
    if own == Some(false) {
        let lines = if global.is_on { vec![line("modsecurity", "off")] } else { Vec::new() };
        return Ok(IngressFirewall { lines, transaction_id: None });
    }
    if let Some(reason) = &global.denied {
        return Err(reason.clone());
    }
    if own.is_none() && !global.is_on {
        for name in ["enable-owasp-core-rules", "modsecurity-snippet", "modsecurity-transaction-id"] {
            if reader.text(name).is_some_and(|value| parse_bool(value) != Some(false)) {
                reader.complaints.push(format!("{name} has no effect without enable-modsecurity: \"true\""));
            }
        }
        return Ok(IngressFirewall::default());
    }
    let core = switch_of(reader, "enable-owasp-core-rules")? == Some(true);
    let snippet = snippet_of(reader, policy)?;
    let mut lines = Vec::new();
    match (global.is_on, snippet) {
        (false, snippet) => {
            lines.push(line("modsecurity", "on"));
            lines.extend(engine_lines(snippet, policy));
        }
        // The server's settings of the engine are inherited.
        (true, Some(parts)) => lines.extend(parts.iter().map(|part| line("modsecurity_rules", part))),
        (true, None) => {}
    }
    if core && !global.has_core_rules {
        lines.push(line("modsecurity_rules_file", folder_file(policy, CORE_FILE, "enable-owasp-core-rules")?));
    }
    Ok(IngressFirewall { lines, transaction_id: reader.text("modsecurity-transaction-id").map(Into::into) })
}

/// Files that rules of a snippet may include: those of the folder, whose content is not known here.
struct FolderFiles<'s>(FirewallPolicy<'s>);

impl RuleFiles for FolderFiles<'_> {
    fn include(&self, pattern: &str, _: &str) -> Result<Vec<RuleText>, String> {
        let is_known =
            [ENGINE_FILE, CORE_FILE].iter().any(|name| folder_file(self.0, name, "").is_ok_and(|file| file == pattern));
        match is_known {
            true => Ok(vec![RuleText { name: pattern.into(), text: String::new() }]),
            false => Err("it reads a file".into()),
        }
    }
    fn data(&self, _: &str, _: &str) -> Result<Vec<u8>, String> {
        Err("it reads a file".into())
    }
}

/// Checks rules of SecLang and divides them into arguments of `modsecurity_rules`. The files of ingress-nginx's image
/// become those of the folder.
///
/// # Errors
/// If the server would refuse the rules, or if they read or write files.
pub(crate) fn check_rules(text: &str, policy: FirewallPolicy<'_>) -> Result<Vec<String>, String> {
    if text.len() > SNIPPET_BYTES_MAX {
        return Err(format!("a snippet longer than {SNIPPET_BYTES_MAX} bytes"));
    }
    if text.contains('\0') {
        return Err("a snippet with a NUL".into());
    }
    let mut text = text.to_owned();
    for (image, own) in IMAGE_FILES {
        if text.contains(image) {
            text = text.replace(image, &folder_file(policy, own, &format!("\"{image}\""))?);
        }
    }
    let parts = divide_rules(&text)?;
    // The parts are compiled as the server does it: a rule that was divided in its middle would be an error here.
    let texts: Vec<RuleText> =
        parts.iter().map(|part| RuleText { name: "snippet".into(), text: part.clone() }).collect();
    let (rules, _) = RuleSet::compile(&texts, &FolderFiles(policy)).map_err(|error| {
        let reason = error.reason;
        let hint = error.suggestion.map_or(String::new(), |suggestion| format!(" ({suggestion})"));
        format!("{reason}{hint}").escape_debug().to_string()
    })?;
    let set = &rules.settings;
    let has_log = set.audit_log.is_some() || set.audit_log_second.is_some();
    if has_log || set.audit_directory.is_some() || set.audit_type != AuditType::Serial {
        return Err("an audit log is refused (writes a file): the error log has the matches".into());
    }
    if set.geo_database.is_some() || !rules.place_lookups().is_empty() {
        return Err("SecGeoLookupDb and @geoLookup are refused (read a file)".into());
    }
    if !rules.name_lookups().is_empty() {
        return Err("@rbl is refused (asks DNS for names that clients choose)".into());
    }
    Ok(parts)
}

/// Divides rules at the ends of lines that no other line continues.
fn divide_rules(text: &str) -> Result<Vec<String>, String> {
    let width = |text: &str| text.bytes().map(|byte| if b"\\\"'\n\r\t".contains(&byte) { 2 } else { 1 }).sum::<usize>();
    let mut parts = vec![String::new()];
    let mut directive = String::new();
    let mut lines = text.lines().peekable();
    while let Some(row) = lines.next() {
        directive.push_str(row);
        directive.push('\n');
        let is_comment = row.trim_start().starts_with('#') && directive.lines().count() == 1;
        if row.trim_end().ends_with('\\') && !is_comment && lines.peek().is_some() {
            continue;
        }
        if width(&directive) > ARGUMENT_BYTES_MAX {
            return Err(format!("a rule longer than {ARGUMENT_BYTES_MAX} bytes"));
        }
        match parts.last_mut() {
            Some(part) if width(part) + width(&directive) <= ARGUMENT_BYTES_MAX => part.push_str(&directive),
            _ => parts.push(directive.clone()),
        }
        directive.clear();
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::{ARGUMENT_BYTES_MAX, FirewallPolicy, check_rules, default_settings, divide_rules};

    fn check(text: &str) -> Result<Vec<String>, String> {
        check_rules(text, FirewallPolicy { folder: Some("/etc/tidegate/waf"), ..FirewallPolicy::default() })
    }

    #[test]
    fn rules_that_reach_files_are_refused_with_their_reason() {
        for (text, words) in [
            ("Include /etc/passwd", "reads a file"),
            ("Include /etc/tidegate/waf/*.conf", "reads a file"),
            ("SecRule ARGS \"@pmFromFile /etc/passwd\" \"id:1,deny\"", "reads a file"),
            ("SecRule ARGS \"@pmf /etc/passwd\" \"id:1,deny\"", "reads a file"),
            ("SecRule REMOTE_ADDR \"@ipMatchFromFile /etc/hosts\" \"id:1,deny\"", "reads a file"),
            ("SecRule REMOTE_ADDR \"@ipMatchF /etc/hosts\" \"id:1,deny\"", "reads a file"),
            ("SecUnicodeMapFile unicode.mapping 20127", "reads a file"),
            ("SecRule FILES_TMPNAMES \"@inspectFile /bin/sh\" \"id:1,deny\"", ""),
            ("SecRule REMOTE_ADDR \"@geoLookup\" \"id:1,deny\"", "read a file"),
            ("SecRule REMOTE_ADDR \"@rbl list.example\" \"id:1,deny\"", "asks DNS"),
            ("SecGeoLookupDb /etc/geo.mmdb", "read a file"),
            ("SecAuditLog /etc/cron.d/x", "writes a file"),
            ("SecAuditLog2 /etc/cron.d/x", "writes a file"),
            ("SecAuditLogType Parallel\nSecAuditLogStorageDir /tmp", "writes a file"),
            ("SecAuditLogType HTTPS", "writes a file"),
            ("SecRule ARGS x \"id:1,exec:/bin/sh\"", "exec"),
            ("SecRuleScript /tmp/x.lua \"id:1\"", "script"),
            ("SecRemoteRules key https://a.example/", "network"),
            ("SecRuleEngin On", "SecRuleEngine"),
            ("SecRule ARGS x \"id:1,chain\"", "chain"),
        ] {
            let error = check(text).expect_err(text);
            assert!(error.contains(words), "{text}: {error}");
            assert!(!error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn files_of_the_image_become_those_of_the_folder() {
        let text = "Include /etc/nginx/owasp-modsecurity-crs/nginx-modsecurity.conf\n\
                    Include /etc/nginx/modsecurity/modsecurity.conf\nSecRuleEngine On\nSecRuleRemoveById 920350";
        let parts = check(text).unwrap();
        assert_eq!(parts.len(), 1);
        assert!(parts[0].starts_with("Include /etc/tidegate/waf/crs.conf\nInclude /etc/tidegate/waf/engine.conf\n"));
        assert!(check_rules(text, FirewallPolicy::default()).unwrap_err().contains("--firewall-folder"));
    }

    #[test]
    fn long_rules_are_divided_between_directives() {
        let rule = "SecRule ARGS:a \"@rx x\" \\\n    \"id:1,phase:2,deny,chain\"\nSecRule ARGS:b \"@rx y\"\n# \\\n";
        let text: String = (1..200).map(|id| rule.replace("id:1,", &format!("id:{id},"))).collect();
        let parts = check(&text).unwrap();
        assert!(parts.len() > 2, "{}", parts.len());
        assert!(parts.iter().all(|part| part.len() <= ARGUMENT_BYTES_MAX));
        assert_eq!(parts.concat(), text);
        let long = format!("SecRule ARGS \"@rx {}\" \"id:1,deny\"", "x".repeat(ARGUMENT_BYTES_MAX));
        assert!(divide_rules(&long).unwrap_err().contains("longer"));
    }

    #[test]
    fn the_settings_of_the_engine_compile() {
        assert_eq!(check(&default_settings()).unwrap().len(), 1);
    }
}
