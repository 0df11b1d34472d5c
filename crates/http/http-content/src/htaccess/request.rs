//! The request in terms of Apache's variables.

use super::walk::FolderWalk;
use htaccess::rewrite::{ENV_BYTES_MAX, PathKind, RuleEnvironment};
use htaccess::settings::{Attribute, EnvCondition, EnvRule};
use http_engine::files::FileKind;
use http_engine::path::FilePath;
use http_engine::{Request, file_paths};
use net::Address;
use observe::Severity;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

/// Key of a rule's type (`[T=]`) among the variables; no file can set it.
pub const MEDIA: &str = "\0type";
/// Maximum number of variables per request.
const ENV_MAX: usize = 1_000;

pub type Env = Vec<(String, Option<Vec<u8>>)>;

/// Latest value of a variable, first case-sensitively, then without case.
pub fn find_variable(env: &Env, name: &str) -> Option<Vec<u8>> {
    let latest = env.iter().rev();
    let found = latest.clone().find(|(own, _)| own == name);
    found
        .or_else(|| latest.clone().find(|(own, _)| own.eq_ignore_ascii_case(name)))
        .and_then(|(_, value)| value.clone())
}

/// Variables after an internal redirect: old ones as `REDIRECT_...` (Apache: `internal_internal_redirect`). `here`:
/// caused by a directory.
pub fn after_redirect(r: &Request, here: bool, old: Env) -> Env {
    if old.is_empty() && !r.progress.is_internal() && !here {
        return old;
    }
    let mut env: Env = Vec::new();
    for (name, value) in old.into_iter().rev().filter(|(name, _)| name != MEDIA) {
        let name = format!("REDIRECT_{name}");
        if !env.iter().any(|(own, _)| *own == name) && env.len() < ENV_MAX && name.len() < 200 {
            env.push((name, value));
        }
    }
    let status = if r.progress.error_status() == 0 { 200 } else { r.progress.error_status() };
    env.push(("REDIRECT_STATUS".into(), Some(status.to_string().into_bytes())));
    env.push(("REDIRECT_URL".into(), Some(r.target.path().to_vec())));
    env
}

pub fn request_origin(r: &Request) -> String {
    let connection = r.connection();
    let scheme = if connection.tls.is_some() { "https" } else { "http" };
    let default = if connection.tls.is_some() { 443 } else { 80 };
    let host = String::from_utf8_lossy(if r.target.host().is_empty() { &r.srv().name } else { r.target.host() });
    match r.target.host_port().filter(|port| *port != default) {
        Some(port) => format!("{scheme}://{host}:{port}"),
        None => format!("{scheme}://{host}"),
    }
}

/// Time at which variables are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnvPhase {
    /// Conditional variables (mod_setenvif), which access rules and rewriting rules see.
    BeforeAccess,
    /// `SetEnv` and `UnsetEnv` (mod_env), for fields and scripts.
    AfterRewriting,
}

pub struct RequestValues {
    pub env: Env,
    pub peer: Option<IpAddr>,
    pub local: Option<IpAddr>,
    pub method: String,
    uri: Vec<u8>,
    protocol: String,
    fields: Vec<(String, Vec<u8>)>,
}

/// Fields of the request, named as over HTTP/1: later versions have names in lower case, and the host elsewhere.
fn fields(r: &Request) -> Vec<(String, Vec<u8>)> {
    let is_lower = !r.head.protocol.of(&r.buf).starts_with(b"HTTP/1");
    let named = |name: &[u8]| {
        let name = String::from_utf8_lossy(name).into_owned();
        if !is_lower {
            return name;
        }
        let parts = name.split('-').map(|part| match part.split_at_checked(1) {
            Some((first, rest)) => first.to_ascii_uppercase() + rest,
            None => part.to_string(),
        });
        parts.collect::<Vec<_>>().join("-")
    };
    let mut fields: Vec<_> = r.headers().map(|(name, value)| (named(name), value.to_vec())).collect();
    if !fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) && !r.target.host().is_empty() {
        let mut host = r.target.host().to_vec();
        host.extend(r.target.host_port().map(|port| format!(":{port}").into_bytes()).unwrap_or_default());
        fields.push(("Host".into(), host));
    }
    fields
}

impl RequestValues {
    pub fn new(r: &Request, env: Env) -> RequestValues {
        let connection = r.connection();
        let local = match &*connection.local {
            Address::Ip(address) => Some(address.ip()),
            Address::Unix(_) => None,
        };
        RequestValues {
            env,
            peer: connection.peer.map(|peer| peer.ip().to_canonical()),
            local,
            method: String::from_utf8_lossy(r.head.method_span.of(&r.buf)).into_owned(),
            uri: r.target.path().to_vec(),
            protocol: String::from_utf8_lossy(r.head.protocol.of(&r.buf)).into_owned(),
            fields: fields(r),
        }
    }
    /// Applies the rules of a phase. Fails when a pattern exceeds its limits, and when all variables have more than
    /// [`ENV_BYTES_MAX`].
    pub fn set(&mut self, rules: &[Arc<EnvRule>], phase: EnvPhase) -> Result<(), String> {
        let lengths = self.env.iter().map(|(name, value)| name.len() + value.as_ref().map_or(0, Vec::len));
        let mut left = ENV_BYTES_MAX.saturating_sub(lengths.sum());
        let is_of_phase = |rule: &&Arc<EnvRule>| rule.when.is_some() == (phase == EnvPhase::BeforeAccess);
        for rule in rules.iter().filter(is_of_phase) {
            let mut groups = Vec::new();
            if let Some(EnvCondition { attribute, pattern }) = &rule.when {
                let found = pattern.groups(&self.attribute(attribute)?)?;
                if found.is_some() == pattern.negated {
                    continue;
                }
                groups = found.unwrap_or_default();
            }
            for (name, value) in &rule.set {
                if self.env.len() >= ENV_MAX {
                    break;
                }
                let value = value.as_ref().map(|text| replace_groups(text, &groups, left));
                let rest = left.checked_sub(name.len() + value.as_ref().map_or(0, Vec::len));
                left = rest.ok_or_else(|| format!("variables have more than {ENV_BYTES_MAX} bytes"))?;
                self.env.push((name.clone(), value));
            }
        }
        Ok(())
    }
    fn attribute(&self, attribute: &Attribute) -> Result<Vec<u8>, String> {
        match attribute {
            Attribute::Name(name) => Ok(self.named(name)),
            Attribute::Fields(pattern) => {
                for (name, value) in &self.fields {
                    if pattern.holds(name.as_bytes())? {
                        return Ok(value.clone());
                    }
                }
                Ok(Vec::new())
            }
        }
    }
    fn named(&self, name: &str) -> Vec<u8> {
        let address = |ip: Option<IpAddr>| ip.map_or(Vec::new(), |ip| ip.to_string().into_bytes());
        match name.to_ascii_lowercase().as_str() {
            "remote_addr" | "remote_host" => address(self.peer),
            "server_addr" => address(self.local),
            "request_method" => self.method.clone().into_bytes(),
            "request_protocol" => self.protocol.clone().into_bytes(),
            "request_uri" => self.uri.clone(),
            _ => match self.field(name) {
                Some(value) => value.to_vec(),
                None => find_variable(&self.env, name).unwrap_or_default(),
            },
        }
    }
    fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_slice())
    }
}

/// Stops behind `most` bytes.
fn replace_groups(text: &str, groups: &[Vec<u8>], most: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let mut bytes = text.bytes().peekable();
    while out.len() <= most
        && let Some(byte) = bytes.next()
    {
        match (byte, bytes.peek()) {
            (b'$', Some(digit @ b'0'..=b'9')) if !groups.is_empty() => {
                out.extend_from_slice(groups.get(usize::from(digit - b'0')).map_or(&[][..], Vec::as_slice));
                bytes.next();
            }
            _ => out.push(byte),
        }
    }
    out
}

pub struct RewriteMachine<'a> {
    pub r: &'a mut Request,
    pub values: &'a RequestValues,
    /// `None`: the rules precede the choice of a file.
    pub root: Option<&'a FilePath>,
    /// Name of the rules, for the log.
    pub place: Vec<u8>,
    /// The path is that of a directory's index, which Apache looks up by a subrequest.
    pub is_lookup: bool,
    pub user: Option<String>,
}

impl RuleEnvironment for RewriteMachine<'_> {
    fn variable(&mut self, name: &str) -> Vec<u8> {
        let text = |text: &str| text.as_bytes().to_vec();
        let field = |values: &RequestValues, name: &str| values.field(name).unwrap_or_default().to_vec();
        let connection = self.r.connection();
        let port =
            |address: Option<std::net::SocketAddr>| address.map_or(Vec::new(), |a| a.port().to_string().into_bytes());
        if let Some(name) = name.strip_prefix("HTTP:") {
            return field(self.values, name);
        }
        match name {
            "HTTP_USER_AGENT" => field(self.values, "User-Agent"),
            "HTTP_REFERER" => field(self.values, "Referer"),
            "HTTP_COOKIE" => field(self.values, "Cookie"),
            "HTTP_FORWARDED" => field(self.values, "Forwarded"),
            "HTTP_HOST" => field(self.values, "Host"),
            "HTTP_ACCEPT" => field(self.values, "Accept"),
            "HTTP_PROXY_CONNECTION" => field(self.values, "Proxy-Connection"),
            "HTTPS" => text(if connection.tls.is_some() { "on" } else { "off" }),
            "REQUEST_SCHEME" => text(if connection.tls.is_some() { "https" } else { "http" }),
            "REMOTE_ADDR" | "REMOTE_HOST" => self.values.peer.map_or(Vec::new(), |ip| ip.to_string().into_bytes()),
            "REMOTE_PORT" => port(connection.peer),
            "REQUEST_METHOD" => text(&self.values.method),
            "SERVER_NAME" if !self.r.target.host().is_empty() => self.r.target.host().to_vec(),
            "SERVER_NAME" => self.r.srv().name.clone(),
            "SERVER_ADDR" => self.values.local.map_or(Vec::new(), |ip| ip.to_string().into_bytes()),
            "SERVER_PORT" => match &*connection.local {
                Address::Ip(address) => port(Some(*address)),
                Address::Unix(_) => Vec::new(),
            },
            "SERVER_PROTOCOL" => text(&self.values.protocol),
            "SERVER_SOFTWARE" => text("tidegate"),
            "THE_REQUEST" => self.r.head.line.of(&self.r.buf).to_vec(),
            "DOCUMENT_ROOT" | "CONTEXT_DOCUMENT_ROOT" => match FolderWalk::of(self.r) {
                Ok(Some(walk)) => walk.root.into_bytes(),
                _ => Vec::new(),
            },
            "IS_SUBREQ" => text(if self.is_lookup || self.r.is_subrequest() { "true" } else { "false" }),
            "REMOTE_USER" => self.user.clone().unwrap_or_default().into_bytes(),
            name => match name.strip_prefix("ENV:") {
                Some(name) => find_variable(&self.values.env, name).unwrap_or_default(),
                None => Vec::new(),
            },
        }
    }
    fn look(&mut self, path: &[u8], constant: bool) -> PathKind {
        // A client that influences the path must not learn which files exist.
        if !constant && !self.root.is_some_and(|root| root.holds(path)) {
            return PathKind::default();
        }
        let bare = path.strip_suffix(b"/").filter(|bare| !bare.is_empty()).unwrap_or(path);
        let Ok((kind, size)) = file_paths::probe_path(self.r, bare) else { return PathKind::default() };
        // A file has no final slash.
        let is_file = kind == FileKind::File && !path.ends_with(b"/");
        let named = std::path::Path::new(std::ffi::OsStr::from_bytes(bare));
        let link = || std::fs::symlink_metadata(named).ok();
        PathKind {
            is_file,
            is_folder: kind == FileKind::Folder,
            is_link: link().is_some_and(|meta| meta.is_symlink()),
            is_executable: is_file && link().is_some_and(|meta| meta.mode() & 0o111 != 0),
            size,
        }
    }
    fn note(&mut self, line: u32, words: &dyn Fn() -> String) {
        if self.r.trace().is_some() {
            let place = String::from_utf8_lossy(&self.place).into_owned();
            self.r.note(http_engine::trace::StepKind::Rewrite, conf_schema::At::default(), |_| {
                format!("{place}:{line}: {}", words())
            });
        }
        if self.r.loc().core.error_log.wants(Severity::Debug) {
            let place = String::from_utf8_lossy(&self.place).into_owned();
            self.r.log(Severity::Debug, format_args!("{place}:{line}: {}", words()));
        }
    }
}
