//! Meaning of directives, and their merging from the server to the requested file.
//! An unsupported directive is an error, as in an Apache without its module: ignoring it could open a protected
//! resource.

use crate::access::{MethodLimit, OrderedAccess, Require};
use crate::fields::{ExpiresRule, HeaderRule, RedirectRule, header, parse_expires, redirect};
use crate::pattern::RulePattern;
use crate::syntax::SyntaxLine;
use std::sync::Arc;

/// Settings of a place; `None` or empty when unset.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Requirements of this place, joined with outer ones as `auth_merging` says.
    pub require: Option<Require>,
    pub auth_merging: AuthMerging,
    pub ordered: Option<OrderedAccess>,
    pub auth: Auth,
    /// `SSLRequireSSL`.
    pub tls_required: bool,
    pub indexes: Option<bool>,
    /// `Options FollowSymLinks`, and `SymLinksIfOwnerMatch`, which has no effect beside it.
    pub follows_links: Option<bool>,
    pub follows_owned_links: Option<bool>,
    /// `SetHandler none` and similar: scripts do not run here.
    pub scripts_off: Option<bool>,
    /// `SetHandler` for scripts (`true`), or for none.
    pub runs_scripts: Option<bool>,
    /// Extensions of scripts (`AddHandler`, `AddType`), in lower case.
    pub script_extensions: Vec<String>,
    /// `php_value` and `php_flag`, for the server that runs scripts; later ones win.
    pub php_values: Vec<(String, String)>,
    pub directory_index: Option<Vec<String>>,
    pub error_documents: Vec<(u16, ErrorDocument)>,
    pub redirects: Vec<Arc<RedirectRule>>,
    pub headers: Vec<HeaderRule>,
    pub env: Vec<Arc<EnvRule>>,
    pub types: Vec<(String, String)>,
    pub charsets: Vec<(String, String)>,
    pub default_charset: Option<Option<String>>,
    pub force_type: Option<String>,
    /// `FileETag None` (`false`).
    pub etag: Option<bool>,
    pub expires_active: Option<bool>,
    pub expires_default: Option<ExpiresRule>,
    pub expires_by_type: Vec<(String, ExpiresRule)>,
}

/// `AuthMerging`: how requirements of a place join those of the places around it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthMerging {
    #[default]
    Replace,
    And,
    Or,
}

/// `AuthType Basic` and its companions, each inherited on its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Auth {
    /// `AuthType Basic` (`true`), `AuthType None` (`false`).
    pub basic: Option<bool>,
    pub realm: Option<String>,
    pub user_file: Option<String>,
    pub group_file: Option<String>,
}

/// `Options FollowSymLinks` and its siblings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkRule {
    Follow,
    /// `SymLinksIfOwnerMatch`.
    SameOwner,
    Refuse,
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
pub struct EnvRule {
    /// Condition; `None`: always.
    pub when: Option<EnvCondition>,
    /// `None` unsets.
    pub set: Vec<(String, Option<String>)>,
}

#[derive(Debug)]
pub struct EnvCondition {
    pub attribute: Attribute,
    pub pattern: RulePattern,
}

/// First argument of `SetEnvIf`.
#[derive(Debug)]
pub enum Attribute {
    Name(String),
    /// A regular expression for names of request fields; the first field that fits both counts.
    Fields(RulePattern),
}

impl Attribute {
    fn of(text: &str) -> Result<Attribute, String> {
        // Apache: `is_header_regex`, for names with characters that no field has.
        let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
        if is_plain {
            return Ok(Attribute::Name(text.to_string()));
        }
        Ok(Attribute::Fields(RulePattern::new(text, true)?))
    }
}

/// Ignored directives, and why that is safe.
pub const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("AddOutputFilterByType", "compression is set in the server's configuration (gzip, brotli)"),
    ("AddOutputFilter", "compression is set in the server's configuration"),
    ("SetOutputFilter", "compression is set in the server's configuration"),
    ("DeflateCompressionLevel", "compression is set in the server's configuration"),
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

pub(crate) fn on(word: &str, name: &str) -> Result<bool, String> {
    match word.to_ascii_lowercase().as_str() {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("{name} must be On or Off")),
    }
}

pub(crate) fn invalid(name: &str) -> String {
    format!(
        "Invalid command '{name}', perhaps misspelled or defined by a module not included in the server configuration"
    )
}

impl Settings {
    /// Takes a directive; `limited`: inside of `<Limit>` for these methods, which only access rules heed.
    ///
    /// # Errors
    /// Apache's message about an invalid, unknown or unsupported directive.
    pub(crate) fn take(&mut self, line: &SyntaxLine, limited: &MethodLimit) -> Result<(), String> {
        let name = line.name.to_ascii_lowercase();
        let args = &line.args;
        let few = || format!("{} takes more arguments", line.name);
        match (name.as_str(), args.as_slice()) {
            ("require", _) => self.require(Require::of(line, limited)?)?,
            ("authmerging", [word]) => {
                self.auth_merging = match word.to_ascii_lowercase().as_str() {
                    "off" => AuthMerging::Replace,
                    "and" => AuthMerging::And,
                    "or" => AuthMerging::Or,
                    _ => return Err("AuthMerging must be one of: Off | And | Or".into()),
                }
            }
            ("order" | "allow" | "deny" | "satisfy", args) => {
                self.ordered.get_or_insert_default().take(&name, args, limited)?;
            }
            ("authtype", [word]) => {
                self.auth.basic = Some(match word.to_ascii_lowercase().as_str() {
                    "basic" => true,
                    "none" => false,
                    _ => return Err(format!("AuthType {word} is not supported")),
                });
            }
            ("authname", [realm]) => self.auth.realm = Some(realm.clone()),
            ("authuserfile", [file]) => self.auth.user_file = Some(file.clone()),
            ("authgroupfile", [file]) => self.auth.group_file = Some(file.clone()),
            ("authbasicprovider", [word]) if word.eq_ignore_ascii_case("file") => {}
            ("authbasicauthoritative", [word]) if on(word, &line.name)? => {}
            ("sslrequiressl", []) => self.tls_required = true,
            ("sethandler", [word]) if matches!(word.to_ascii_lowercase().as_str(), "none" | "default-handler") => {
                (self.scripts_off, self.runs_scripts) = (Some(true), Some(false));
            }
            ("removehandler" | "removetype", [_, ..]) => self.scripts_off = Some(true),
            ("php_flag" | "php_admin_flag", [name, value]) if name.eq_ignore_ascii_case("engine") => {
                self.scripts_off = Some(matches!(value.to_ascii_lowercase().as_str(), "off" | "0" | "false" | "no"));
            }
            ("php_value" | "php_flag", [name, rest @ ..]) if !rest.is_empty() => {
                let value = rest.join(" ");
                let is_name =
                    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
                if !is_name || value.contains(['\n', '\r', '\0']) {
                    return Err(format!("{}: \"{name}\" is no setting of PHP", line.name));
                }
                self.php_values.push((name.clone(), value));
            }
            ("sethandler", [word]) if is_script_handler(word) => {
                (self.runs_scripts, self.scripts_off) = (Some(true), self.scripts_off.map(|_| false));
            }
            ("addhandler" | "addtype", [handler, extensions @ ..])
                if is_script_handler(handler) && !extensions.is_empty() =>
            {
                let extensions = extensions.iter().map(|e| e.trim_start_matches('.').to_ascii_lowercase());
                self.script_extensions.extend(extensions);
            }
            ("options", words) => self.options(words)?,
            ("directoryindex", []) => return Err(few()),
            ("directoryindex", names) => {
                // Further lines of one place add names.
                match names {
                    [only] if only == "disabled" => self.directory_index = Some(Vec::new()),
                    names => self.directory_index.get_or_insert_default().extend_from_slice(names),
                }
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
                let pattern = RulePattern::new(pattern, name == "setenvifnocase")?;
                let when = Some(EnvCondition { attribute: Attribute::of(attribute)?, pattern });
                self.env.push(Arc::new(EnvRule { when, set: assignments(rest) }));
            }
            ("browsermatch" | "browsermatchnocase", [pattern, rest @ ..]) if !rest.is_empty() => {
                let pattern = RulePattern::new(pattern, name == "browsermatchnocase")?;
                let when = Some(EnvCondition { attribute: Attribute::Name("User-Agent".into()), pattern });
                self.env.push(Arc::new(EnvRule { when, set: assignments(rest) }));
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
            ("fileetag", words) if !words.is_empty() => {
                self.etag = Some(!words.iter().any(|word| word.eq_ignore_ascii_case("none")));
            }
            ("expiresactive", [word]) => self.expires_active = Some(on(word, &line.name)?),
            ("expiresdefault", words) if !words.is_empty() => {
                self.expires_default = Some(parse_expires(&words.join(" "))?)
            }
            ("expiresbytype", [media, rest @ ..]) if !rest.is_empty() => {
                self.expires_by_type.push((media.to_ascii_lowercase(), parse_expires(&rest.join(" "))?));
            }
            _ if WITHOUT_EFFECT.iter().any(|(own, _)| own.eq_ignore_ascii_case(&name)) => {}
            (name, _) if name.starts_with("auth") => return Err(format!("{} is not supported here", line.name)),
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
        if absolute && words.iter().any(|word| word.starts_with(['+', '-'])) {
            return Err("Either all Options must start with + or -, or no Option may.".into());
        }
        if absolute {
            self.indexes = Some(false);
            (self.follows_links, self.follows_owned_links) = (Some(false), Some(false));
        }
        for word in words {
            let (on, name) = word.strip_prefix('-').map_or((true, word.trim_start_matches('+')), |name| (false, name));
            match name.to_ascii_lowercase().as_str() {
                "indexes" => self.indexes = Some(on),
                "followsymlinks" => self.follows_links = Some(on),
                "symlinksifownermatch" => self.follows_owned_links = Some(on),
                "execcgi" | "none" => {}
                "includes" | "includesnoexec" if !on => {}
                "multiviews" if !on => {}
                "all" => {
                    (self.indexes, self.follows_links) = (Some(on), Some(on));
                }
                "multiviews" | "includes" | "includesnoexec" => {
                    return Err(format!("Options {word} is not supported here"));
                }
                _ => return Err(format!("Illegal option {name}")),
            }
        }
        Ok(())
    }

    /// Tells whether a file is a script, whose text must not be served.
    pub fn is_script(&self, name: &[u8]) -> bool {
        if let Some(runs) = self.runs_scripts {
            return runs;
        }
        let extensions =
            name.split(|byte| *byte == b'.').skip(1).map(|part| String::from_utf8_lossy(part).to_ascii_lowercase());
        extensions.into_iter().any(|own| self.script_extensions.contains(&own))
    }

    /// Rule for links below a place with these settings.
    pub fn links(&self) -> LinkRule {
        match (self.follows_links.unwrap_or(true), self.follows_owned_links.unwrap_or(false)) {
            (true, _) => LinkRule::Follow,
            (false, true) => LinkRule::SameOwner,
            (false, false) => LinkRule::Refuse,
        }
    }

    /// Adds a requirement to those of this place, any of which grants.
    pub(crate) fn require(&mut self, one: Require) -> Result<(), String> {
        if one.is_negated() {
            return Err("negative Require directive has no effect in <RequireAny> directive".into());
        }
        let old = self.require.take();
        self.require = Some(Require::beside(old, one));
        Ok(())
    }

    pub fn merge(&mut self, inner: &Settings) {
        match (inner.auth_merging, self.require.take(), &inner.require) {
            (_, outer, None) => self.require = outer,
            (AuthMerging::Replace, _, Some(own)) | (_, None, Some(own)) => self.require = Some(own.clone()),
            (merging, Some(outer), Some(own)) => {
                self.require = Some(Require::merged(outer, own.clone(), merging == AuthMerging::And));
            }
        }
        if inner.ordered.is_some() {
            self.ordered.clone_from(&inner.ordered);
        }
        self.auth.merge(&inner.auth);
        self.tls_required |= inner.tls_required;
        self.follows_links = inner.follows_links.or(self.follows_links);
        self.follows_owned_links = inner.follows_owned_links.or(self.follows_owned_links);
        self.scripts_off = inner.scripts_off.or(self.scripts_off);
        self.etag = inner.etag.or(self.etag);
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
        self.runs_scripts = inner.runs_scripts.or(self.runs_scripts);
        self.script_extensions.extend(inner.script_extensions.iter().cloned());
        self.php_values.extend(inner.php_values.iter().cloned());
        self.env.extend(inner.env.iter().cloned());
        self.types.splice(0..0, inner.types.iter().rev().cloned());
        self.charsets.splice(0..0, inner.charsets.iter().rev().cloned());
        self.expires_by_type.splice(0..0, inner.expires_by_type.iter().rev().cloned());
    }
}

/// Handlers of PHP: a module, or a FastCGI server.
fn is_script_handler(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains("httpd-php") && !text.ends_with("php-source")
        || text.starts_with("proxy:") && text.contains("fcgi://")
}

impl Auth {
    fn merge(&mut self, inner: &Auth) {
        self.basic = inner.basic.or(self.basic);
        for (own, inner) in [
            (&mut self.realm, &inner.realm),
            (&mut self.user_file, &inner.user_file),
            (&mut self.group_file, &inner.group_file),
        ] {
            if inner.is_some() {
                own.clone_from(inner);
            }
        }
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
