//! Value types of the core module's directives.

use crate::area::{HttpArea, HttpPattern, HttpTemplate};
use conf_schema::value::{parse_decimal, parse_msec, parse_sec};
use conf_schema::{At, Cx, Directive, Problem, ValueKind};
use hashbrown::HashMap;
use net::pool::DEFAULT;
use std::sync::Arc;
use variables::SessionOf;

conf_schema::words! {
    /// `server_tokens` without variables (strings, as in nginx's commercial edition, are rejected).
    pub enum ServerTokens { On = "on", Off = "off", Build = "build" }
}
conf_schema::words! {
    /// `satisfy`: all access checks must admit a request, or any.
    pub enum Satisfy { All = "all", Any = "any" }
}
conf_schema::words! {
    /// `if_modified_since`: `off` ignores the field, `exact` asks for equal times, `before` for a file that is not
    /// newer.
    pub enum IfModifiedSince { Off = "off", Exact = "exact", Before = "before" }
}
conf_schema::words! {
    /// `lingering_close`.
    pub enum LingeringClose { Off = "off", On = "on", Always = "always" }
}
conf_schema::words! {
    /// `client_body_in_file_only`; `clean` removes the file after the request.
    pub enum BodyInFile { Off = "off", On = "on", Clean = "clean" }
}
conf_schema::word_set! {
    /// `keepalive_disable`: a set of browsers.
    pub struct KeepaliveDisable { NONE = 1 "none", MSIE6 = 2 "msie6", SAFARI = 4 "safari" }
}

/// Name in the `Server` field and in the footer of error pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerIdentity {
    /// The name alone, without a version.
    pub name: Vec<u8>,
    /// With `server_tokens on`: name and version.
    pub full: Vec<u8>,
}

pub use variables::NGINX_VERSION;

impl ValueKind for ServerIdentity {
    const SYNTAX: &'static str = "tidegate | nginx | name";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let name = d.args.first().map(|w| w.bytes.clone()).unwrap_or_default();
        if name.is_empty() || !name.iter().all(|c| c.is_ascii_graphic()) {
            return Err(Problem::invalid().at(0).hint("a word without spaces, such as \"nginx\""));
        }
        let version = match name.as_slice() {
            b"nginx" => Some(NGINX_VERSION),
            b"tidegate" => Some(env!("CARGO_PKG_VERSION")),
            _ => None,
        };
        let full = version.map_or(name.clone(), |v| [&name, b"/".as_slice(), v.as_bytes()].concat());
        Ok(ServerIdentity { name, full })
    }
}

/// `keepalive_timeout`: the idle time, and the value of the `Keep-Alive` field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepaliveTimeout {
    /// Maximum idle time in milliseconds.
    pub millis: u64,
    /// Seconds; 0: no field. `None`: the enclosing block's value.
    pub header: Option<u64>,
}

impl ValueKind for KeepaliveTimeout {
    const SYNTAX: &'static str = "timeout [header_timeout]";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let word = |i: usize| d.args.get(i).map(|w| w.bytes.as_slice());
        let millis = word(0).and_then(parse_msec).ok_or_else(|| Problem::invalid().at(0))?;
        let header = match word(1) {
            None => None,
            Some(text) => Some(parse_sec(text).ok_or_else(|| Problem::invalid().at(1))?),
        };
        Ok(KeepaliveTimeout { millis, header })
    }
    // nginx merges the two parameters separately.
    const MERGES: bool = true;
    fn merge(&mut self, outer: &Self) {
        self.header = self.header.or(outer.header);
    }
}

/// Names of a `server_name` line.
pub type ServerNameList = variables::names::ServerNames<HttpArea>;
/// One name of a `server_name` line: exact, with a wildcard, or a regular expression.
pub type ServerName = variables::names::ServerName<HttpArea>;

/// Tells whether the directive being parsed stands directly in a named location.
pub fn in_named_location(cx: &Cx) -> bool {
    cx.context == conf_schema::Contexts::location && cx.around.first().is_some_and(|word| word.starts_with(b"@"))
}

/// Tells whether the directive being parsed stands directly in a location with a regular expression.
pub fn in_regex_location(cx: &Cx) -> bool {
    cx.context == conf_schema::Contexts::location && cx.around.first().is_some_and(|word| word.starts_with(b"~"))
}

/// Tells whether a block is a location that variables select (`location $name`).
pub fn in_predicate_location(cx: &Cx) -> bool {
    cx.context == conf_schema::Contexts::location && cx.around.first().is_some_and(|word| word.starts_with(b"$"))
}

/// How a prefix location matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefixRule {
    /// Of any path that begins so.
    Octets,
    /// `^~`: skips regular expressions.
    Final,
    /// `^/`: of whole path elements. `/a` is a prefix of `/a` and `/a/b`, not of `/ab`.
    Elements,
}

/// Name of a location, with the way it matches.
#[derive(Clone, Debug)]
pub enum LocationKind {
    /// `=`: the path itself.
    Exact(Vec<u8>),
    /// No modifier, `^~` or `^/`: paths that begin with this.
    Prefix(Vec<u8>, PrefixRule),
    /// `~` or `~*`: paths that the regular expression matches.
    Regex(Arc<HttpPattern>),
    /// `@name`: internal redirects to it only.
    Named(Vec<u8>),
    /// A text that begins with a variable, and as written: matches unless its value is empty or `0`.
    Predicate(HttpTemplate, Vec<u8>),
}

impl LocationKind {
    /// Returns the name as in nginx's messages.
    pub fn name(&self) -> &[u8] {
        match self {
            LocationKind::Exact(n)
            | LocationKind::Prefix(n, _)
            | LocationKind::Named(n)
            | LocationKind::Predicate(_, n) => n,
            LocationKind::Regex(p) => p.text(),
        }
    }
    /// Parses the arguments of a `location` line. Fails on an unknown modifier or a malformed expression.
    pub fn parse(cx: &mut Cx, d: &Directive) -> Result<LocationKind, Problem> {
        let word = |i: usize| d.args.get(i).map(|w| w.bytes.clone()).unwrap_or_default();
        let mut regex = |text: &[u8], caseless| HttpPattern::new(cx, text, caseless).map(Arc::new);
        if d.args.len() == 2 {
            let (modifier, name) = (word(0), word(1));
            return match modifier.as_slice() {
                b"=" => Ok(LocationKind::Exact(name)),
                b"^~" => Ok(LocationKind::Prefix(name, PrefixRule::Final)),
                b"^/" => {
                    let end = name.iter().rposition(|c| *c != b'/').map_or(1, |last| last + 1);
                    match name.get(..end) {
                        Some(elements @ [b'/', ..]) => {
                            Ok(LocationKind::Prefix(elements.to_vec(), PrefixRule::Elements))
                        }
                        _ => Err(Problem::says("a prefix of path elements begins with \"/\"").at(1)),
                    }
                }
                b"~" => regex(&name, false).map(LocationKind::Regex).map_err(|p| p.at(1)),
                b"~*" => regex(&name, true).map(LocationKind::Regex).map_err(|p| p.at(1)),
                other => {
                    let other = String::from_utf8_lossy(other);
                    Err(Problem::says(format!("invalid location modifier \"{other}\""))
                        .at(0)
                        .hint("one of: =, ^~, ^/, ~, ~*"))
                }
            };
        }
        let name = word(0);
        match name.as_slice() {
            [b'=', rest @ ..] => Ok(LocationKind::Exact(rest.to_vec())),
            [b'^', b'~', rest @ ..] => Ok(LocationKind::Prefix(rest.to_vec(), PrefixRule::Final)),
            [b'~', b'*', rest @ ..] => regex(rest, true).map(LocationKind::Regex).map_err(|p| p.at(0)),
            [b'~', rest @ ..] => regex(rest, false).map(LocationKind::Regex).map_err(|p| p.at(0)),
            [b'@', ..] => Ok(LocationKind::Named(name)),
            [b'$', ..] => {
                let predicate = HttpTemplate::compile(cx, d, &name).map_err(|p| p.at(0))?;
                Ok(LocationKind::Predicate(predicate, name))
            }
            _ => Ok(LocationKind::Prefix(name, PrefixRule::Octets)),
        }
    }
}

/// One `error_page` line, with one entry per code.
#[derive(Clone, Debug)]
pub struct ErrorPages(pub Vec<ErrorPage>);

/// The page of one error.
#[derive(Clone, Debug)]
pub struct ErrorPage {
    /// Status that the page is for.
    pub status: u16,
    /// `=code`: status of the response; `Some(0)` for `=` alone: the page's own status.
    pub overwrite: Option<u16>,
    /// Path, named location (`@name`) or URL.
    pub target: HttpTemplate,
}

impl ValueKind for ErrorPages {
    const SYNTAX: &'static str = "code ... [=[response]] uri";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let Some((uri, codes)) = d.args.split_last() else { return Err(Problem::invalid()) };
        let mut codes = codes;
        let mut overwrite = None;
        if let Some((last, rest)) = codes.split_last()
            && let [b'=', digits @ ..] = last.bytes.as_slice()
        {
            let shown = last.text().into_owned();
            let value = match digits {
                [] => 0,
                _ => std::str::from_utf8(digits)
                    .ok()
                    .and_then(parse_decimal::<u16>)
                    .ok_or_else(|| Problem::says(format!("invalid value \"{shown}\"")).at(codes.len() - 1))?,
            };
            overwrite = Some(value);
            codes = rest;
        }
        if codes.is_empty() {
            return Err(Problem::directive("invalid number of arguments"));
        }
        let target = HttpTemplate::compile(cx, d, &uri.bytes)?;
        let mut pages = Vec::new();
        for (index, code) in codes.iter().enumerate() {
            let shown = code.text().into_owned();
            let status = parse_decimal::<u64>(&shown)
                .ok_or_else(|| Problem::says(format!("invalid value \"{shown}\"")).at(index))?;
            if status == 499 {
                return Err(Problem::says("invalid value \"499\"").at(index));
            }
            if !(300..=599).contains(&status) {
                return Err(Problem::says(format!("value \"{shown}\" must be between 300 and 599")).at(index));
            }
            let status = status as u16;
            let overwrite = overwrite.or(match status {
                // nginx responds to these variants of 400 with 400.
                494..=497 => Some(400),
                _ => None,
            });
            pages.push(ErrorPage { status, overwrite, target: target.clone() });
        }
        Ok(ErrorPages(pages))
    }
    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

/// Media types by file name extension, in lower case.
#[derive(Clone, Debug, Default)]
pub struct Types(pub Arc<HashMap<Vec<u8>, Arc<[u8]>>>);

/// Extensions of the `types` blocks so far, with their types, in `Cx`.
#[derive(Default)]
struct TypesSeen(HashMap<(usize, Vec<u8>), Arc<[u8]>>);

impl ValueKind for Types {
    const SYNTAX: &'static str = "{ type extension ...; }";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let mut types: HashMap<Vec<u8>, Arc<[u8]>> = HashMap::new();
        let block = cx.block;
        let items = d.block.as_deref().unwrap_or_default();
        for line in conf_syntax::list_directives(items) {
            if line.name.bytes == b"include" {
                return Err(Problem::says("invalid number of arguments in \"include\" directive").on(line));
            }
            let media: Arc<[u8]> = line.name.bytes.as_slice().into();
            for word in &line.args {
                let extension = word.bytes.to_ascii_lowercase();
                let earlier = cx.get::<TypesSeen>().0.insert((block, extension.clone()), media.clone());
                if let Some(old) = earlier {
                    cx.warn(
                        line,
                        format!(
                            "duplicate extension \"{}\", content type: \"{}\", previous content type: \"{}\"",
                            word.text(),
                            line.name.text(),
                            String::from_utf8_lossy(&old)
                        ),
                    );
                }
                types.insert(extension, media.clone());
            }
        }
        Ok(Types(Arc::new(types)))
    }
    fn append(&mut self, later: Self) {
        let mut all = (*self.0).clone();
        all.extend(later.0.iter().map(|(k, v)| (k.clone(), v.clone())));
        self.0 = Arc::new(all);
    }
}

impl Types {
    /// Returns nginx's default types: html, gif, jpg.
    pub fn builtin() -> Types {
        let pairs: [(&[u8], &[u8]); 3] = [(b"html", b"text/html"), (b"gif", b"image/gif"), (b"jpg", b"image/jpeg")];
        Types(Arc::new(pairs.iter().map(|(k, v)| (k.to_vec(), Arc::from(*v))).collect()))
    }
}

/// `root` or `alias` of a block.
#[derive(Clone, Debug)]
pub struct Root {
    /// The path, with variables.
    pub path: HttpTemplate,
    /// `root`, or the part of the URI that `alias` replaces.
    pub alias: Alias,
    /// Base of a path that is relative or empty after evaluation; ends with `/`.
    pub prefix: Arc<[u8]>,
}

impl Root {
    /// Appends the folder for a request: the evaluated path, behind [`Root::prefix`] if it is relative.
    pub fn write(&self, r: &mut SessionOf<HttpArea>, out: &mut Vec<u8>) {
        if let Some(path) = self.path.as_literal() {
            return out.extend_from_slice(path);
        }
        let start = out.len();
        self.path.write(r, out);
        if out.get(start) != Some(&b'/') {
            out.splice(start..start, self.prefix.iter().copied());
        }
    }
}

impl Root {
    /// Folder before the first variable, without a final slash; `None`: the path begins with a variable, so its files have no
    /// common folder.
    pub fn literal_folder(&self) -> Option<Vec<u8>> {
        let first = match self.path.as_literal() {
            Some(path) => path,
            None => match self.path.parts().first()? {
                variables::template::Part::Literal(text) => text,
                _ => return None,
            },
        };
        let base: &[u8] = if first.starts_with(b"/") { b"" } else { &self.prefix };
        let path = [base, first].concat();
        let slash = path.iter().rposition(|byte| *byte == b'/')?;
        path.get(..slash).map(<[u8]>::to_vec)
    }
}

/// Part of the URI that `alias` replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Alias {
    /// A `root`: the whole URI is appended.
    No,
    /// Length in bytes of the location's name.
    Prefix(usize),
    /// The whole URI: the location is a regular expression.
    Whole,
}

/// A number of bytes that may contain variables.
pub type SizeTemplate = variables::template::SizeTemplate<HttpArea>;

/// `aio`: reads from disk in threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Aio {
    /// No read goes to a thread.
    #[default]
    Off,
    /// Direct reads (`directio`) only.
    Direct,
    /// All reads, in the pool of this name.
    Threads(HttpTemplate),
}

/// Pools named by `aio` lines, in the [`Cx`], to be checked against the declared pools.
#[derive(Debug, Default)]
pub struct PoolsAsked(pub Vec<(String, At)>);

impl ValueKind for Aio {
    const SYNTAX: &'static str = "on | off | threads[=pool]";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let Some(word) = d.args.first() else { return Err(Problem::invalid()) };
        match &word.bytes[..] {
            b"off" => Ok(Aio::Off),
            b"on" => Ok(Aio::Direct),
            b"threads" => Ok(Aio::Threads(HttpTemplate::literal(DEFAULT.as_bytes()))),
            [b't', b'h', b'r', b'e', b'a', b'd', b's', b'=', name @ ..] => {
                let pool = HttpTemplate::compile(cx, d, name).map_err(|p| p.at(0))?;
                if let Some(name) = pool.as_literal() {
                    let name = String::from_utf8_lossy(name).into_owned();
                    cx.get::<PoolsAsked>().0.push((name, At { span: d.span, line: d.line }));
                }
                Ok(Aio::Threads(pool))
            }
            b"sendfile" => Err(Problem::says("\"aio sendfile\" is unsupported on this platform")
                .at(0)
                .hint("FreeBSD only; on Linux, \"aio threads\" prevents slow disks from delaying other requests")),
            _ => Err(Problem::directive("invalid value").at(0)),
        }
    }
}

/// `directio`: minimum size of files, in bytes, that are read past the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Directio(pub Option<u64>);

impl ValueKind for Directio {
    const SYNTAX: &'static str = "size | off";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let word = d.args.first().map(|w| w.bytes.as_slice()).unwrap_or_default();
        if word == b"off" {
            return Ok(Directio(None));
        }
        match conf_schema::value::parse_offset(word) {
            Some(size) => Ok(Directio(Some(size))),
            None => Err(Problem::directive("invalid value").at(0)),
        }
    }
}

/// Limits of `generated_body_memory`, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Limit of one connection.
    pub connection: u64,
    /// Limit of the process.
    pub process: u64,
}
