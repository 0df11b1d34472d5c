//! Reads .htaccess files and the sections of servers: lines, `<Files>`, `<Limit>`, conditions on modules, and the
//! classes of directives that `AllowOverride` permits.

use crate::access::{LimitedMethods, MethodLimit, Require};
use crate::pattern::{RulePattern, matches_glob};
use crate::rewrite::{Inherit, Rewrite, RewriteCondition, RewriteRule};
use crate::settings::{Settings, invalid, on};
use crate::syntax::{self, ParseError, SyntaxLine};
use std::sync::Arc;

/// Modules that `<IfModule>` finds: supported or irrelevant here.
pub const MODULES: &[&str] = &[
    "rewrite",
    "alias",
    "headers",
    "expires",
    "dir",
    "mime",
    "setenvif",
    "env",
    "authz_core",
    "authz_host",
    "access_compat",
    "authn_core",
    "authn_file",
    "auth_basic",
    "authz_user",
    "authz_groupfile",
    "deflate",
    "filter",
    "autoindex",
    "negotiation",
    "version",
    "core",
];

/// Contents of a .htaccess file or of a section of the server.
#[derive(Debug, Default)]
pub struct File {
    pub rewrite: Option<Rewrite>,
    pub base: Settings,
    /// `<Files>` sections, in their order.
    pub parts: Vec<(FilesScope, Settings)>,
    /// First directive of each class, with its line.
    pub classes: Vec<(OverrideClass, u32, String)>,
}

/// Names that a `<Files>` section applies to.
#[derive(Debug)]
pub enum FilesScope {
    Name(String),
    Pattern(RulePattern),
}

impl FilesScope {
    /// Fails when a pattern exceeds its limits.
    pub fn fits(&self, name: &[u8]) -> Result<bool, String> {
        match self {
            FilesScope::Name(pattern) => Ok(matches_glob(pattern.as_bytes(), name)),
            FilesScope::Pattern(pattern) => pattern.holds(name),
        }
    }
    /// Reads the words of `<Files>` and `<FilesMatch>`; `None`: another section.
    pub(crate) fn of(line: &SyntaxLine) -> Result<Option<FilesScope>, String> {
        Ok(match (line.name.to_ascii_lowercase().as_str(), line.args.as_slice()) {
            ("files", [sign, pattern]) if sign == "~" => Some(FilesScope::Pattern(RulePattern::new(pattern, false)?)),
            ("files", [pattern]) => Some(FilesScope::Name(pattern.clone())),
            ("filesmatch", [pattern]) => Some(FilesScope::Pattern(RulePattern::new(pattern, false)?)),
            ("files" | "filesmatch", _) => return Err(format!("<{}> takes one argument", line.name)),
            _ => None,
        })
    }
}

/// Classes of directives that `AllowOverride` names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverrideClass {
    AuthConfig,
    FileInfo,
    Indexes,
    Limit,
    Options,
    /// Permitted by `AllowOverride All` alone.
    Any,
    /// `<Limit>`: permitted with `Limit` or `AuthConfig`.
    Methods,
    /// `<Files>`, `<IfModule>`: permitted where anything is.
    Section,
}

impl OverrideClass {
    fn of(name: &str) -> OverrideClass {
        let name = name.to_ascii_lowercase();
        match name.as_str() {
            "order" | "allow" | "deny" => OverrideClass::Limit,
            "options" | "xbithack" | "contentdigest" => OverrideClass::Options,
            "limitrequestbody" => OverrideClass::Any,
            "limit" | "limitexcept" => OverrideClass::Methods,
            "files" | "filesmatch" | "ifmodule" | "ifdefine" | "ifversion" => OverrideClass::Section,
            "directoryindex" | "directoryslash" | "defaulticon" | "readmename" | "headername" => OverrideClass::Indexes,
            "satisfy" | "sslrequiressl" => OverrideClass::AuthConfig,
            _ if name.starts_with("auth") || name.starts_with("require") && name != "requestheader" => {
                OverrideClass::AuthConfig
            }
            _ if ["expires", "index", "addicon", "adddescription"].iter().any(|head| name.starts_with(head)) => {
                OverrideClass::Indexes
            }
            _ if name.starts_with("php_") => OverrideClass::Options,
            _ => OverrideClass::FileInfo,
        }
    }
}

/// Directives that a .htaccess file may contain (`AllowOverride`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Override {
    /// Files are not read.
    None,
    All,
    Classes(Vec<OverrideClass>),
}

impl Override {
    /// Fails on unknown and unsupported words.
    pub(crate) fn of(words: &[String]) -> Result<Override, String> {
        let mut classes = Vec::new();
        for word in words {
            classes.push(match word.to_ascii_lowercase().as_str() {
                "none" => continue,
                // Apache's state without the directive: files are read, and may contain nothing.
                "unset" if words.len() == 1 => return Ok(Override::Classes(Vec::new())),
                "all" => return Ok(Override::All),
                "authconfig" => OverrideClass::AuthConfig,
                "fileinfo" => OverrideClass::FileInfo,
                "indexes" => OverrideClass::Indexes,
                "limit" => OverrideClass::Limit,
                "options" => OverrideClass::Options,
                _ => return Err(format!("AllowOverride {word} is not supported")),
            });
        }
        Ok(if classes.is_empty() { Override::None } else { Override::Classes(classes) })
    }
    /// Fails with the first directive of a file that is not permitted, and its line.
    pub fn check(&self, file: &File) -> Result<(), ParseError> {
        let Override::Classes(permitted) = self else { return Ok(()) };
        let allows = |class: OverrideClass| match class {
            OverrideClass::Section => !permitted.is_empty(),
            OverrideClass::Methods => {
                permitted.iter().any(|own| matches!(own, OverrideClass::Limit | OverrideClass::AuthConfig))
            }
            class => permitted.contains(&class),
        };
        match file.classes.iter().find(|(class, ..)| !allows(*class)) {
            Some((_, line, name)) => Err(ParseError { line: *line, text: format!("{name} not allowed here") }),
            None => Ok(()),
        }
    }
}

/// Parses a .htaccess file. Fails on the first invalid or unsupported line.
pub fn read_htaccess(text: &str) -> Result<File, ParseError> {
    File::of(&syntax::parse_lines(text)?)
}

impl File {
    /// Reads the lines of a section or a file.
    pub(crate) fn of(lines: &[SyntaxLine]) -> Result<File, ParseError> {
        let mut reader = Reader::default();
        reader.lines(lines, &None)?;
        // As in Apache, conditions without a rule are no error.
        Ok(reader.file)
    }
}

#[derive(Default)]
struct Reader {
    file: File,
    conditions: Vec<RewriteCondition>,
}

/// Evaluates an `<IfModule>` or similar section; `None` for others.
pub fn section_holds(line: &SyntaxLine) -> Option<bool> {
    let (negated, word) = line.arg(0).strip_prefix('!').map_or((false, line.arg(0)), |word| (true, word));
    if line.is("IfModule") {
        let name = word.trim_end_matches(".c").trim_end_matches("_module").trim_start_matches("mod_");
        return Some(MODULES.contains(&name.to_ascii_lowercase().as_str()) != negated);
    }
    if line.is("IfDefine") {
        return Some(negated);
    }
    if line.is("IfVersion") {
        let (sign, wanted) = if line.args.len() > 1 { (line.arg(0), line.arg(1)) } else { ("=", line.arg(0)) };
        let numbers = |text: &str| -> Vec<u32> { text.split('.').map(|part| part.parse().unwrap_or(0)).collect() };
        let own = [2, 4, 60];
        let wanted = numbers(wanted);
        let order = own.iter().copied().take(wanted.len().max(1)).cmp(wanted.iter().copied());
        let (negated, sign) = sign.strip_prefix('!').map_or((false, sign), |sign| (true, sign));
        let holds = match sign {
            ">" => order.is_gt(),
            ">=" => order.is_ge(),
            "<" => order.is_lt(),
            "<=" => order.is_le(),
            _ => order.is_eq(),
        };
        return Some(holds != negated);
    }
    None
}

/// Reads `<Limit>` and `<LimitExcept>`; `None`: another section.
fn limit(line: &SyntaxLine, outer: &MethodLimit) -> Result<Option<MethodLimit>, String> {
    let others = line.is("LimitExcept");
    if !others && !line.is("Limit") {
        return Ok(None);
    }
    if outer.is_some() {
        return Err(format!("<{}> inside of another is not supported", line.name));
    }
    Ok(Some(Some(Arc::new(LimitedMethods::of(&line.args, others)?))))
}

fn requires(line: &SyntaxLine) -> bool {
    ["RequireAny", "RequireAll", "RequireNone"].iter().any(|name| line.is(name))
}

impl Reader {
    fn lines(&mut self, lines: &[SyntaxLine], limited: &MethodLimit) -> Result<(), ParseError> {
        for line in lines {
            let fail = |text: String| ParseError { line: line.number, text };
            self.classify(line);
            if let Some(inner) = &line.section {
                match section_holds(line) {
                    Some(true) => self.lines(inner, limited)?,
                    Some(false) => {}
                    None => self.section(line, inner, limited)?,
                }
                continue;
            }
            if line.name.get(..7).is_some_and(|head| head.eq_ignore_ascii_case("rewrite")) {
                self.rewrite(line).map_err(fail)?;
                continue;
            }
            self.file.base.take(line, limited).map_err(fail)?;
        }
        Ok(())
    }

    /// Notes the classes of a section's or a line's directives.
    fn classify(&mut self, line: &SyntaxLine) {
        let class = OverrideClass::of(&line.name);
        if self.file.classes.iter().all(|(own, ..)| *own != class) {
            self.file.classes.push((class, line.number, line.name.clone()));
        }
        if section_holds(line) == Some(false) {
            return;
        }
        for inner in line.section.iter().flatten() {
            self.classify(inner);
        }
    }

    fn section(&mut self, line: &SyntaxLine, inner: &[SyntaxLine], limited: &MethodLimit) -> Result<(), ParseError> {
        let fail = |text: String| ParseError { line: line.number, text };
        if let Some(limited) = limit(line, limited).map_err(fail)? {
            return self.lines(inner, &limited);
        }
        if requires(line) {
            let require = Require::of(line, limited).map_err(fail)?;
            return self.file.base.require(require).map_err(fail);
        }
        if limited.is_none()
            && let Some(scope) = FilesScope::of(line).map_err(fail)?
        {
            self.file.parts.push((scope, part(inner)?));
            return Ok(());
        }
        Err(fail(match line.name.to_ascii_lowercase().as_str() {
            "if" | "elseif" | "else" => format!("<{}>: expressions are not supported", line.name),
            _ => format!("<{}> not allowed here", line.name),
        }))
    }

    fn rewrite(&mut self, line: &SyntaxLine) -> Result<(), String> {
        let rewrite = self.file.rewrite.get_or_insert_default();
        let name = line.name.to_ascii_lowercase();
        match (name.as_str(), line.args.as_slice()) {
            ("rewriteengine", [word]) => rewrite.engine = Some(on(word, &line.name)?),
            ("rewritebase", [base]) if base.starts_with('/') => rewrite.base = Some(base.clone()),
            ("rewritebase", [_]) => return Err("RewriteBase: argument is not a valid URL".into()),
            ("rewritecond", _) => self.conditions.push(RewriteCondition::parse(line.number, &line.rest)?),
            ("rewriterule", _) => {
                let conditions = std::mem::take(&mut self.conditions);
                rewrite.rules.push(RewriteRule::parse(line.number, &line.rest, conditions)?);
            }
            ("rewriteoptions", words) => {
                for word in words {
                    match word.to_ascii_lowercase().as_str() {
                        "inherit" => rewrite.inherit = Some(Inherit::After),
                        "inheritbefore" => rewrite.inherit = Some(Inherit::Before),
                        "allownoslash" => rewrite.allow_no_slash = true,
                        "mergebase" => rewrite.merge_base = true,
                        "ignoreinherit" | "legacyprefixdocroot" => {}
                        _ => return Err(format!("RewriteOptions: unknown option '{word}'")),
                    }
                }
            }
            ("rewritemap", _) => return Err("RewriteMap not allowed here".into()),
            ("rewriteengine", _) => return Err("RewriteEngine must be On or Off".into()),
            _ => return Err(invalid(&line.name)),
        }
        Ok(())
    }
}

/// Reads the lines of a section without rewriting and without further sections of files: `<Files>`, `<Location>`.
pub(crate) fn part(lines: &[SyntaxLine]) -> Result<Settings, ParseError> {
    let mut settings = Settings::default();
    part_lines(lines, &mut settings, &None)?;
    Ok(settings)
}

fn part_lines(lines: &[SyntaxLine], settings: &mut Settings, limited: &MethodLimit) -> Result<(), ParseError> {
    for line in lines {
        let fail = |text: String| ParseError { line: line.number, text };
        let Some(inner) = &line.section else {
            settings.take(line, limited).map_err(fail)?;
            continue;
        };
        match section_holds(line) {
            Some(true) => part_lines(inner, settings, limited)?,
            Some(false) => {}
            None => {
                if let Some(limited) = limit(line, limited).map_err(fail)? {
                    part_lines(inner, settings, &limited)?;
                } else if requires(line) {
                    settings.require(Require::of(line, limited).map_err(fail)?).map_err(fail)?;
                } else {
                    return Err(fail(format!("<{}> not allowed here", line.name)));
                }
            }
        }
    }
    Ok(())
}
