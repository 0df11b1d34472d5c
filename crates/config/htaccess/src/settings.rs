//! Directives of .htaccess files, and their merging from the root to the directory.
//! An unsupported directive is an error, as in an Apache without its module: ignoring it could open a protected
//! resource.

use crate::access::{Ordered, Require, Subject};
use crate::pattern::{Pattern, glob};
use crate::rewrite::{Condition, Inherit, Rewrite, Rule};
use crate::syntax::{self, Line, ParseError};
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
    "deflate",
    "filter",
    "autoindex",
    "negotiation",
    "version",
    "core",
];

#[derive(Debug, Default)]
pub struct File {
    pub rewrite: Option<Rewrite>,
    pub base: Settings,
    pub parts: Vec<(Scope, Settings)>,
}

#[derive(Debug)]
pub enum Scope {
    Name(String),
    Pattern(Pattern),
    /// Methods; `true`: all others.
    Methods(Vec<String>, bool),
}

impl Scope {
    pub fn fits(&self, name: &[u8], method: &str) -> Result<bool, String> {
        match self {
            Scope::Name(pattern) => Ok(glob(pattern.as_bytes(), name)),
            Scope::Pattern(pattern) => pattern.holds(name),
            Scope::Methods(methods, others) => Ok(methods.iter().any(|own| own == method) != *others),
        }
    }
}

/// `None` or empty when unset.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub require: Option<Vec<Require>>,
    pub ordered: Option<Ordered>,
    pub indexes: Option<bool>,
    pub directory_index: Option<Vec<String>>,
    pub error_documents: Vec<(u16, ErrorDocument)>,
    pub redirects: Vec<Arc<Redirect>>,
    pub headers: Vec<HeaderRule>,
    pub env: Vec<Arc<EnvRule>>,
    pub types: Vec<(String, String)>,
    pub charsets: Vec<(String, String)>,
    pub default_charset: Option<Option<String>>,
    pub force_type: Option<String>,
    pub expires_active: Option<bool>,
    pub expires_default: Option<Expires>,
    pub expires_by_type: Vec<(String, Expires)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorDocument {
    Path(String),
    Url(String),
    Text(String),
    /// `default`: the server's own page.
    Builtin,
}

#[derive(Debug)]
pub struct Redirect {
    pub status: u16,
    pub from: RedirectFrom,
    /// Empty for statuses other than redirects.
    pub to: String,
}

#[derive(Debug)]
pub enum RedirectFrom {
    Prefix(String),
    Pattern(Pattern),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderRule {
    pub always: bool,
    pub action: HeaderAction,
    pub name: String,
    pub value: String,
    /// `env=NAME`, `env=!NAME`.
    pub env: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderAction {
    Set,
    SetIfEmpty,
    Add,
    Append,
    Merge,
    Unset,
}

#[derive(Debug)]
pub struct EnvRule {
    /// Attribute and pattern; `None`: always.
    pub when: Option<(String, Pattern)>,
    /// `None` unsets.
    pub set: Vec<(String, Option<String>)>,
}

/// Expiry in seconds after the access or the file's modification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expires {
    pub from_modification: bool,
    pub seconds: i64,
}

/// Ignored directives, and why that is safe.
pub const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("AddOutputFilterByType", "compression is set in the server's configuration (gzip, brotli)"),
    ("AddOutputFilter", "compression is set in the server's configuration"),
    ("SetOutputFilter", "compression is set in the server's configuration"),
    ("DeflateCompressionLevel", "compression is set in the server's configuration"),
    ("FileETag", "tags are made of time and size"),
    ("ServerSignature", "server_tokens decides"),
    ("AddDescription", "listings have no descriptions"),
    ("AddIcon", "listings have no icons"),
    ("AddIconByEncoding", "listings have no icons"),
    ("AddIconByType", "listings have no icons"),
    ("DefaultIcon", "listings have no icons"),
    ("IndexOptions", "autoindex decides how listings look"),
    ("IndexIgnore", "autoindex decides what listings show"),
    ("IndexOrderDefault", "autoindex decides how listings look"),
    ("ReadmeName", "listings have no readme"),
    ("HeaderName", "listings have no header"),
    ("AcceptPathInfo", "the location that runs scripts decides"),
    ("AddLanguage", "languages are not negotiated"),
    ("DefaultLanguage", "languages are not negotiated"),
    ("LanguagePriority", "languages are not negotiated"),
    ("ForceLanguagePriority", "languages are not negotiated"),
    ("AddEncoding", "gzip_static and brotli_static serve files that are compressed already"),
    ("DirectorySlash", "folders are redirected to their slash"),
    ("EnableSendfile", "sendfile decides"),
    ("EnableMMAP", "files are not mapped"),
    ("LimitRequestBody", "client_max_body_size decides"),
    ("ContentDigest", "it is obsolete"),
];

/// Parses a file. Fails on the first invalid or unsupported line.
pub fn read(text: &str) -> Result<File, ParseError> {
    let lines = syntax::parse(text)?;
    let mut reader = Reader::default();
    reader.lines(&lines)?;
    if let Some(condition) = reader.conditions.first() {
        // As in Apache, conditions without a rule are no error.
        let _ = condition;
    }
    Ok(reader.file)
}

#[derive(Default)]
struct Reader {
    file: File,
    conditions: Vec<Condition>,
}

/// Evaluates an `<IfModule>` or similar section; `None` for others.
pub fn section_holds(line: &Line) -> Option<bool> {
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

impl Reader {
    fn lines(&mut self, lines: &[Line]) -> Result<(), ParseError> {
        for line in lines {
            let fail = |text: String| ParseError { line: line.number, text };
            if let Some(inner) = &line.section {
                match section_holds(line) {
                    Some(true) => self.lines(inner)?,
                    Some(false) => {}
                    None => self.section(line, inner)?,
                }
                continue;
            }
            if line.name.get(..7).is_some_and(|head| head.eq_ignore_ascii_case("rewrite")) {
                self.rewrite(line).map_err(fail)?;
                continue;
            }
            self.file.base.take(line).map_err(fail)?;
        }
        Ok(())
    }

    fn section(&mut self, line: &Line, inner: &[Line]) -> Result<(), ParseError> {
        let fail = |text: String| ParseError { line: line.number, text };
        let name = line.name.to_ascii_lowercase();
        let scope = match (name.as_str(), line.args.as_slice()) {
            ("requireany" | "requireall" | "requirenone", _) => {
                let require = Require::of(line).map_err(fail)?;
                self.file.base.require.get_or_insert_default().push(require);
                return Ok(());
            }
            ("files", [sign, pattern]) if sign == "~" => Scope::Pattern(Pattern::new(pattern, false).map_err(fail)?),
            ("files", [pattern]) => Scope::Name(pattern.clone()),
            ("filesmatch", [pattern]) => Scope::Pattern(Pattern::new(pattern, false).map_err(fail)?),
            ("limit" | "limitexcept", [_, ..]) => {
                let mut methods = line.args.clone();
                if methods.iter().any(|method| method == "GET") {
                    methods.push("HEAD".into());
                }
                Scope::Methods(methods, name == "limitexcept")
            }
            ("if" | "elseif" | "else", _) => {
                return Err(fail(format!("<{}>: expressions are not supported", line.name)));
            }
            _ => return Err(fail(format!("<{}> not allowed here", line.name))),
        };
        let mut settings = Settings::default();
        part(inner, &mut settings)?;
        self.file.parts.push((scope, settings));
        Ok(())
    }

    fn rewrite(&mut self, line: &Line) -> Result<(), String> {
        let rewrite = self.file.rewrite.get_or_insert_default();
        let name = line.name.to_ascii_lowercase();
        match (name.as_str(), line.args.as_slice()) {
            ("rewriteengine", [word]) => rewrite.engine = Some(on(word, &line.name)?),
            ("rewritebase", [base]) if base.starts_with('/') => rewrite.base = Some(base.clone()),
            ("rewritebase", [_]) => return Err("RewriteBase: argument is not a valid URL".into()),
            ("rewritecond", _) => self.conditions.push(Condition::parse(line.number, &line.rest)?),
            ("rewriterule", _) => {
                let conditions = std::mem::take(&mut self.conditions);
                rewrite.rules.push(Rule::parse(line.number, &line.rest, conditions)?);
            }
            ("rewriteoptions", words) => {
                for word in words {
                    match word.to_ascii_lowercase().as_str() {
                        "inherit" => rewrite.inherit = Some(Inherit::After),
                        "inheritbefore" => rewrite.inherit = Some(Inherit::Before),
                        "allownoslash" => rewrite.allow_no_slash = true,
                        "ignoreinherit" | "mergebase" | "legacyprefixdocroot" => {}
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

fn part(lines: &[Line], settings: &mut Settings) -> Result<(), ParseError> {
    for line in lines {
        let fail = |text: String| ParseError { line: line.number, text };
        match (&line.section, section_holds(line)) {
            (Some(inner), Some(true)) => part(inner, settings)?,
            (Some(_), Some(false)) => {}
            (Some(_), None) => match Require::of(line) {
                Ok(require) if line.name.get(..7).is_some_and(|head| head.eq_ignore_ascii_case("require")) => {
                    settings.require.get_or_insert_default().push(require);
                }
                _ => return Err(fail(format!("<{}> not allowed here", line.name))),
            },
            (None, _) => settings.take(line).map_err(fail)?,
        }
    }
    Ok(())
}

fn on(word: &str, name: &str) -> Result<bool, String> {
    match word.to_ascii_lowercase().as_str() {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("{name} must be On or Off")),
    }
}

fn invalid(name: &str) -> String {
    format!(
        "Invalid command '{name}', perhaps misspelled or defined by a module not included in the server configuration"
    )
}

impl Settings {
    fn take(&mut self, line: &Line) -> Result<(), String> {
        let name = line.name.to_ascii_lowercase();
        let args = &line.args;
        let few = || format!("{} takes more arguments", line.name);
        match (name.as_str(), args.as_slice()) {
            ("require", _) => self.require.get_or_insert_default().push(Require::of(line)?),
            ("order", [word, ..]) => {
                let order = args.join(",").replace(",,", ",").to_ascii_lowercase();
                let _ = word;
                self.ordered.get_or_insert_default().deny_last = match order.as_str() {
                    "allow,deny" | "mutual-failure" => true,
                    "deny,allow" => false,
                    _ => return Err("unknown order".into()),
                };
            }
            ("allow", args) => self.ordered.get_or_insert_default().allow.extend(Subject::list(args)?),
            ("deny", args) => self.ordered.get_or_insert_default().deny.extend(Subject::list(args)?),
            ("satisfy", [word]) if word.eq_ignore_ascii_case("all") => {}
            ("options", words) => self.options(words)?,
            ("directoryindex", []) => return Err(few()),
            ("directoryindex", names) => {
                let list = if names.iter().any(|name| name == "disabled") { Vec::new() } else { names.to_vec() };
                self.directory_index = Some(list);
            }
            ("errordocument", [code, rest @ ..]) if !rest.is_empty() => {
                let code: u16 = code
                    .parse()
                    .ok()
                    .filter(|code| (400..600).contains(code))
                    .ok_or(format!("Unsupported HTTP response code {code}"))?;
                let word = rest.join(" ");
                let document = match word.as_str() {
                    "default" => ErrorDocument::Builtin,
                    _ if word.starts_with('/') => ErrorDocument::Path(word),
                    _ if word.starts_with("http://") || word.starts_with("https://") => ErrorDocument::Url(word),
                    _ => ErrorDocument::Text(word.trim_start_matches('"').to_string()),
                };
                self.error_documents.push((code, document));
            }
            ("redirect" | "redirectmatch" | "redirectpermanent" | "redirecttemp", words) => {
                self.redirects.push(Arc::new(redirect(&name, words)?));
            }
            ("header", words) => self.headers.extend(header(words)?),
            ("requestheader", [action, field])
                if action.eq_ignore_ascii_case("unset") && field.eq_ignore_ascii_case("proxy") =>
            {
                // Never passed on as a variable.
            }
            ("setenv", [name, rest @ ..]) => {
                let value = rest.first().cloned().unwrap_or_default();
                self.env.push(Arc::new(EnvRule { when: None, set: vec![(name.clone(), Some(value))] }));
            }
            ("unsetenv", names) => {
                let set = names.iter().map(|name| (name.clone(), None)).collect();
                self.env.push(Arc::new(EnvRule { when: None, set }));
            }
            ("setenvif" | "setenvifnocase", [attribute, pattern, rest @ ..]) if !rest.is_empty() => {
                let pattern = Pattern::new(pattern, name == "setenvifnocase")?;
                let set = assignments(rest);
                self.env.push(Arc::new(EnvRule { when: Some((attribute.clone(), pattern)), set }));
            }
            ("browsermatch" | "browsermatchnocase", [pattern, rest @ ..]) if !rest.is_empty() => {
                let pattern = Pattern::new(pattern, name == "browsermatchnocase")?;
                self.env.push(Arc::new(EnvRule { when: Some(("User-Agent".into(), pattern)), set: assignments(rest) }));
            }
            ("addtype", [media, extensions @ ..]) if !extensions.is_empty() => {
                let media = media.to_ascii_lowercase();
                if media.contains("httpd-php") || media.contains("x-httpd") {
                    return Err(format!("AddType {media}: which files are scripts is the configuration's matter"));
                }
                self.types
                    .extend(extensions.iter().map(|e| (e.trim_start_matches('.').to_ascii_lowercase(), media.clone())));
            }
            ("addcharset", [charset, extensions @ ..]) => {
                self.charsets.extend(
                    extensions.iter().map(|e| (e.trim_start_matches('.').to_ascii_lowercase(), charset.clone())),
                );
            }
            ("adddefaultcharset", [word]) => {
                self.default_charset = Some(match word.to_ascii_lowercase().as_str() {
                    "off" => None,
                    "on" => Some("iso-8859-1".into()),
                    _ => Some(word.clone()),
                });
            }
            ("forcetype", [media]) => self.force_type = (!media.eq_ignore_ascii_case("none")).then(|| media.clone()),
            ("expiresactive", [word]) => self.expires_active = Some(on(word, &line.name)?),
            ("expiresdefault", words) if !words.is_empty() => self.expires_default = Some(expires(&words.join(" "))?),
            ("expiresbytype", [media, rest @ ..]) if !rest.is_empty() => {
                self.expires_by_type.push((media.to_ascii_lowercase(), expires(&rest.join(" "))?));
            }
            _ if WITHOUT_EFFECT.iter().any(|(own, _)| own.eq_ignore_ascii_case(&name)) => {}
            ("authtype" | "authname" | "authuserfile" | "authgroupfile" | "authbasicprovider", _) => {
                return Err(format!(
                    "{} is not supported here: write auth_basic into the server's configuration",
                    line.name
                ));
            }
            ("addhandler" | "sethandler" | "action" | "removehandler" | "removetype", _) => {
                return Err(format!(
                    "{} is not supported here: which files are scripts is the configuration's matter",
                    line.name
                ));
            }
            _ => return Err(invalid(&line.name)),
        }
        Ok(())
    }

    fn options(&mut self, words: &[String]) -> Result<(), String> {
        let absolute = words.iter().any(|word| !word.starts_with(['+', '-']));
        if absolute {
            self.indexes = Some(false);
        }
        for word in words {
            let (on, name) = word.strip_prefix('-').map_or((true, word.trim_start_matches('+')), |name| (false, name));
            match name.to_ascii_lowercase().as_str() {
                "indexes" => self.indexes = Some(on),
                "followsymlinks" | "symlinksifownermatch" | "execcgi" | "none" => {}
                "includes" | "includesnoexec" if !on => {}
                "multiviews" if !on => {}
                "all" => self.indexes = Some(on),
                "multiviews" | "includes" | "includesnoexec" => {
                    return Err(format!("Options {word} is not supported here"));
                }
                _ => return Err(format!("Illegal option {name}")),
            }
        }
        Ok(())
    }

    pub fn merge(&mut self, inner: &Settings) {
        if inner.require.is_some() || inner.ordered.is_some() {
            // Rules replace outer rules of their kind.
            if inner.require.is_some() {
                self.require.clone_from(&inner.require);
            }
            if inner.ordered.is_some() {
                self.ordered.clone_from(&inner.ordered);
            }
        }
        let pick = |own: &mut Option<_>, other: &Option<_>| {
            if other.is_some() {
                own.clone_from(other);
            }
        };
        pick(&mut self.directory_index, &inner.directory_index);
        self.indexes = inner.indexes.or(self.indexes);
        self.expires_active = inner.expires_active.or(self.expires_active);
        self.expires_default = inner.expires_default.or(self.expires_default);
        if inner.default_charset.is_some() {
            self.default_charset.clone_from(&inner.default_charset);
        }
        if inner.force_type.is_some() {
            self.force_type.clone_from(&inner.force_type);
        }
        for (code, document) in &inner.error_documents {
            self.error_documents.retain(|(own, _)| own != code);
            self.error_documents.push((*code, document.clone()));
        }
        self.redirects.splice(0..0, inner.redirects.iter().cloned());
        self.headers.extend(inner.headers.iter().cloned());
        self.env.extend(inner.env.iter().cloned());
        self.types.splice(0..0, inner.types.iter().rev().cloned());
        self.charsets.splice(0..0, inner.charsets.iter().rev().cloned());
        self.expires_by_type.splice(0..0, inner.expires_by_type.iter().rev().cloned());
    }
}

/// Parses `NAME`, `NAME=value`, `!NAME`.
fn assignments(words: &[String]) -> Vec<(String, Option<String>)> {
    let one = |word: &String| match word.strip_prefix('!') {
        Some(name) => (name.to_string(), None),
        None => word.split_once('=').map_or((word.clone(), Some("1".into())), |(n, v)| (n.into(), Some(v.into()))),
    };
    words.iter().map(one).collect()
}

fn redirect(name: &str, words: &[String]) -> Result<Redirect, String> {
    let mut words = words.iter().map(String::as_str).collect::<Vec<_>>();
    let mut status = if name == "redirectpermanent" { 301 } else { 302 };
    if matches!(name, "redirect" | "redirectmatch")
        && let Some(first) = words.first()
    {
        let named = match first.to_ascii_lowercase().as_str() {
            "permanent" => Some(301),
            "temp" => Some(302),
            "seeother" => Some(303),
            "gone" => Some(410),
            number => number.parse().ok().filter(|code| (300..600).contains(code)),
        };
        if let Some(code) = named {
            status = code;
            words.remove(0);
        }
    }
    let is_redirect = (300..400).contains(&status);
    let (from, to) = match words.as_slice() {
        [from, to] if is_redirect => (*from, *to),
        [from] if !is_redirect => (*from, ""),
        _ => return Err(format!("{name}: bad arguments")),
    };
    if is_redirect && !to.starts_with('/') && !to.contains("://") {
        return Err("Redirect to non-URL".into());
    }
    let from = if name == "redirectmatch" {
        RedirectFrom::Pattern(Pattern::new(from, false)?)
    } else {
        RedirectFrom::Prefix(from.to_string())
    };
    Ok(Redirect { status, from, to: to.to_string() })
}

impl Redirect {
    /// Status and target of a path's redirect. Fails when a pattern exceeds its limits.
    pub fn of(&self, uri: &[u8]) -> Result<Option<(u16, Vec<u8>)>, String> {
        let mut target = Vec::new();
        match &self.from {
            RedirectFrom::Prefix(prefix) => {
                let Some(rest) = uri.strip_prefix(prefix.as_bytes()) else { return Ok(None) };
                // Matches whole names only.
                if !rest.is_empty() && !rest.starts_with(b"/") && !prefix.ends_with('/') {
                    return Ok(None);
                }
                target.extend_from_slice(self.to.as_bytes());
                crate::rewrite::escape_uri(rest, &mut target);
            }
            RedirectFrom::Pattern(pattern) => {
                let Some(groups) = pattern.groups(uri)? else { return Ok(None) };
                let mut bytes = self.to.bytes().peekable();
                while let Some(byte) = bytes.next() {
                    match (byte, bytes.peek()) {
                        (b'$', Some(digit @ b'0'..=b'9')) => {
                            let group = groups.get(usize::from(digit - b'0')).map_or(&[][..], Vec::as_slice);
                            crate::rewrite::escape_uri(group, &mut target);
                            bytes.next();
                        }
                        (b'\\', Some(_)) => target.extend(bytes.next()),
                        (byte, _) => target.push(byte),
                    }
                }
            }
        }
        Ok(Some((self.status, target)))
    }
}

fn header(words: &[String]) -> Result<Option<HeaderRule>, String> {
    let mut words = words.iter().map(String::as_str).collect::<Vec<_>>();
    let mut always = false;
    if let Some(first) =
        words.first().copied().filter(|w| w.eq_ignore_ascii_case("always") || w.eq_ignore_ascii_case("onsuccess"))
    {
        always = first.eq_ignore_ascii_case("always");
        words.remove(0);
    }
    let mut env = None;
    if let Some(last) = words.last().copied() {
        if let Some(name) = last.strip_prefix("env=") {
            env = Some(name.to_string());
            words.pop();
        } else if last.starts_with("expr=") {
            return Err("Header expr=: expressions are not supported".into());
        }
    }
    let (action, name, value) = match words.as_slice() {
        [action, name] => (*action, *name, ""),
        [action, name, value] => (*action, *name, *value),
        _ => return Err("Header: bad arguments".into()),
    };
    let action = match action.to_ascii_lowercase().as_str() {
        "set" => HeaderAction::Set,
        "setifempty" => HeaderAction::SetIfEmpty,
        "add" => HeaderAction::Add,
        "append" => HeaderAction::Append,
        "merge" => HeaderAction::Merge,
        "unset" => HeaderAction::Unset,
        // `echo` and `note` have no effect.
        "echo" | "note" => return Ok(None),
        _ => return Err(format!("Header {action} is not supported")),
    };
    let name = name.trim_end_matches(':');
    let bad = |text: &str| text.bytes().any(|byte| matches!(byte, b'\r' | b'\n' | 0));
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':') || bad(value) {
        return Err(format!("Header: \"{name}\" is no field"));
    }
    Ok(Some(HeaderRule { always, action, name: name.to_string(), value: value.to_string(), env }))
}

/// Parses `access plus 1 month`, `A3600`, `modification plus 2 hours 30 minutes`.
///
/// # Errors
/// Apache's message about a malformed time.
pub fn expires(text: &str) -> Result<Expires, String> {
    let wrong = || format!("bad expires code '{text}'");
    let short = text.strip_prefix('A').map(|rest| (false, rest)).or(text.strip_prefix('M').map(|rest| (true, rest)));
    if let Some((from_modification, rest)) = short
        && let Ok(seconds) = rest.parse()
    {
        return Ok(Expires { from_modification, seconds });
    }
    let mut words = text.split_whitespace();
    let from_modification = match words.next().unwrap_or_default().to_ascii_lowercase().as_str() {
        "access" | "now" => false,
        "modification" => true,
        _ => return Err(wrong()),
    };
    let mut words = words.peekable();
    words.next_if(|word| word.eq_ignore_ascii_case("plus"));
    let mut seconds = 0_i64;
    while let Some(number) = words.next() {
        let number: i64 = number.parse().map_err(|_| wrong())?;
        let unit = match words.next().unwrap_or_default().to_ascii_lowercase().trim_end_matches('s') {
            "year" => 31_536_000,
            "month" => 2_592_000,
            "week" => 604_800,
            "day" => 86_400,
            "hour" => 3_600,
            "minute" => 60,
            "second" => 1,
            _ => return Err(wrong()),
        };
        seconds = number.checked_mul(unit).and_then(|more| seconds.checked_add(more)).ok_or_else(wrong)?;
    }
    Ok(Expires { from_modification, seconds })
}
