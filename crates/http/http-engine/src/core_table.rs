//! Directives of nginx's http core module that the engine acts on.

use crate::area::{HttpArea, HttpTemplate};
use crate::listen::Listen;
use crate::route_match::RouteMatches;
use crate::used_paths::UsedPaths;
use crate::values::{Aio, Directio};
use crate::values::{
    Alias, BodyInFile, ErrorPages, IfModifiedSince, KeepaliveDisable, KeepaliveTimeout, LingeringClose, MemoryLimits,
    Root, Satisfy, ServerIdentity, ServerNameList, ServerTokens, SizeTemplate, Types,
};
use conf_schema::value::{Buffers, Flag, HashSize, Msec, Number, Offset, Sec, Size, Text, ValueList, parse_decimal};
use conf_schema::{Cx, Directive, Problem, ValueKind, directives};
use observe::ErrorLogLines;
use variables::SessionOf;

directives! {
    /// Input of the http core module in a block.
    pub struct CoreConf from CoreInput {
        /// Address and port, or path of a UNIX-domain socket, on which the server accepts requests.
        /// Differs: with `proxy_protocol`, a PROXY header may have 4,096 bytes, as in the stream area; nginx allows it
        /// `client_header_buffer_size`.
        listen: ValueList<Listen>,
        /// Names of the virtual server: exact, with a wildcard, or a regular expression.
        server_name: ServerNameList,
        /// Root directory: the path of a file is the root followed by the URI.
        root: RootValue = "html",
        /// Directory that replaces the location's prefix in the URI.
        /// Differs: a URI that would leave the directory (`/i../x` in `location /i` with `alias /data/`) gets 400.
        alias: AliasValue,
        /// Restricts the location to internal requests; others get 404.
        internal: Marker,
        /// Conditions of a location beside its name: `method NAME...;`, `header NAME [VALUE | ~ REGEX];`, `query NAME [VALUE | ~ REGEX];`
        /// and `variable $NAME VALUE | ~ REGEX;` (`~*` ignores case). All lines of a block must hold, of several blocks one. A location
        /// whose conditions do not hold is skipped: the search goes on with the next location of the same name, in the order of the
        /// configuration and with the one without conditions last, then with shorter prefixes.
        route_match: RouteMatches,
        /// Maps file name extensions to media types.
        types: Types,
        /// Media type of files whose extension is not in `types`.
        default_type: Text = "text/plain",
        /// Size of nginx's table of types. The value is checked and has no effect.
        types_hash_max_size: HashSize = "1024",
        /// As `types_hash_max_size`.
        types_hash_bucket_size: HashSize = "64",
        /// URI of the response to these errors.
        /// Differs: line breaks and NUL in the target of a redirect are percent-encoded; an empty target is a redirect
        /// without a `Location`, which nginx sends empty.
        error_page: ErrorPages,
        /// Applies `error_page` to errors of error pages, too.
        recursive_error_pages: Flag = "off",
        /// Shows the version in error pages and in the `Server` field.
        server_tokens: ServerTokens = "on",
        /// Name in error pages and in the `Server` field: Tidegate's, nginx's, or any word.
        server_identity: ServerIdentity = "tidegate",
        /// Memory per worker thread for small files that are ready to be sent; `off` disables it. Changes apply at
        /// once, as the kernel reports them; writes through shared memory maps and file systems that are mounted over a
        /// folder in use, which it does not report, apply after `recheck` (default: 10 seconds) or at a reload.
        tidegate_cache: CacheBytes = "64m",
        /// Forbids symbolic links in paths: `on` all of them, `if_not_owner` those whose owner differs from the
        /// target's.
        disable_symlinks: Symlinks = "off",
        /// Caches metadata and descriptors of files. Tidegate always does (`tidegate_cache`), and applies changes at
        /// once.
        open_file_cache: OpenFileCache = "off",
        /// Interval at which nginx revalidates entries. Tidegate is notified by the kernel, or checks each time.
        open_file_cache_valid: Sec = "60s",
        /// Minimum number of uses before nginx caches a file. Tidegate caches from the first use.
        open_file_cache_min_uses: Number = "1",
        /// Caches errors of file lookups. Tidegate always does, until the directory changes.
        open_file_cache_errors: Flag = "off",
        /// Uses the kernel's change notifications (only on BSD in nginx; always on in Tidegate where possible).
        open_file_cache_events: Flag = "off",
        /// Maximum idle time of a connection; the second value is sent in the `Keep-Alive` field.
        keepalive_timeout: KeepaliveTimeout = "75s",
        /// Minimum time before the server closes an idle connection of its own accord, for example at a reload.
        keepalive_min_timeout: Msec = "0",
        /// Maximum number of requests per connection.
        keepalive_requests: Number = "1000",
        /// Maximum age of a connection; it is closed after the current request.
        keepalive_time: Msec = "1h",
        /// Browsers whose connections are not kept alive after POST requests.
        keepalive_disable: KeepaliveDisable = "msie6",
        /// Maximum size of a request body; 0 disables the check.
        client_max_body_size: Offset = "1m",
        /// Maximum size of a request body in memory; larger ones are written to a temporary file. Over HTTP/1, an
        /// announced body stays in memory up to a quarter more.
        client_body_buffer_size: Size = "8k",
        /// Maximum time between two reads of a request body.
        client_body_timeout: Msec = "60s",
        /// Saves request bodies to files.
        client_body_in_file_only: BodyInFile = "off",
        /// Stores a request body in a single buffer; Tidegate always does.
        client_body_in_single_buffer: Flag = "off",
        /// Directory of temporary files for request bodies, with up to three levels of subdirectories.
        client_body_temp_path: TempPath = "client_body_temp",
        /// Initial buffer for a request head.
        client_header_buffer_size: Size = "1k",
        /// Number and size of buffers for large request heads; the request line and each field must fit into one
        /// buffer.
        large_client_header_buffers: Buffers = "4 8k",
        /// Maximum time to read a request head.
        client_header_timeout: Msec = "60s",
        /// Drops fields with invalid names; with `off` such requests get 400.
        ignore_invalid_headers: Flag = "on",
        /// Accepts underscores in field names.
        underscores_in_headers: Flag = "off",
        /// Merges adjacent slashes of a URI.
        merge_slashes: Flag = "on",
        /// Maximum number of fields in a request.
        max_headers: Number = "1000",
        /// Maximum time between two writes of a response.
        send_timeout: Msec = "60s",
        /// Sets SO_SNDLOWAT. Linux does not support it: no effect.
        send_lowat: conf_schema::value::SendLowat = "0",
        /// Memory for responses that are made in memory (directory listings, videos' indexes, pictures, documents of
        /// stylesheets, pages of metrics) and for compressors that continue a response: of one connection, and of the process
        /// (default: 256 megabytes). A response that finds none left waits, in order, until others have been sent; one
        /// that waits for `send_timeout` gets 503. A connection without such a response always gets one within the
        /// process's limit. A compressor that finds none left begins anew every 128 kilobytes (gzip: 32).
        generated_body_memory: MemoryLimits = "2m",
        /// Sends files with sendfile, without copying them through the process.
        sendfile: Flag = "off",
        /// Maximum number of bytes per sendfile call, so that a fast client does not occupy a worker thread.
        sendfile_max_chunk: Size = "2m",
        /// Reads from slow disks in threads, so that other connections do not wait: `threads` for every read that the
        /// page cache cannot answer, by the default pool or the named one; `on` for direct reads only.
        /// Differs: `on` uses the default pool instead of the kernel's asynchronous reads.
        aio: Aio = "off",
        /// Writes temporary files in threads.
        /// No effect: the thread that has read the bytes writes them into the page cache, and waits for the disk only
        /// if the kernel has no room for unwritten pages.
        aio_write: Flag = "off",
        /// Minimum size of files that are read with O_DIRECT, past the page cache, instead of being sent by sendfile.
        directio: Directio = "off",
        /// Alignment of direct reads, as the disk or file system requires it.
        directio_alignment: Offset = "512",
        /// Sends the head and the start of a file in full packets (TCP_CORK).
        tcp_nopush: Flag = "off",
        /// Sets TCP_NODELAY.
        tcp_nodelay: Flag = "on",
        /// Closes timed-out connections with RST, which frees the kernel's memory for them; idle ones are closed normally.
        reset_timedout_connection: Flag = "off",
        /// Sends absolute redirects.
        absolute_redirect: Flag = "on",
        /// Uses the server's first name in absolute redirects, instead of the request's host.
        server_name_in_redirect: Flag = "off",
        /// Includes the port in absolute redirects.
        port_in_redirect: Flag = "on",
        /// Pads error pages with status above 400 to 512 bytes, for MSIE.
        msie_padding: Flag = "on",
        /// Sends a page with a refresh instead of a redirect to MSIE.
        msie_refresh: Flag = "off",
        /// Logs missing files in the error log.
        log_not_found: Flag = "on",
        /// Logs subrequests in the access log.
        /// Differs: variables of a line are those of its own request. In nginx all lines share the values that the
        /// first one evaluated.
        log_subrequest: Flag = "off",
        /// Sends `ETag` with files.
        etag: Flag = "on",
        /// Comparison of `If-Modified-Since` with a file's modification time.
        if_modified_since: IfModifiedSince = "exact",
        /// Maximum number of ranges per request; 0 disables ranges.
        max_ranges: Number,
        /// Sends bodies of unknown length in chunks to HTTP/1.1 clients.
        chunked_transfer_encoding: Flag = "on",
        /// Reads and discards further data from the client before a connection is closed.
        lingering_close: LingeringClose = "on",
        /// Maximum duration of a lingering close.
        lingering_time: Msec = "30s",
        /// Maximum wait for further data during a lingering close.
        lingering_timeout: Msec = "5s",
        /// Allows a request if `all` access checks allow it, or `any` of them.
        satisfy: Satisfy = "all",
        /// Maximum bytes per second of a response; 0: no limit. Unbuffered responses of upstream servers have none.
        limit_rate: SizeTemplate = "0",
        /// Number of bytes sent before `limit_rate` applies.
        limit_rate_after: SizeTemplate = "0",
        /// Minimum amount of output per write, where the kernel would otherwise send small packets.
        postpone_output: Size = "1460",
        /// Number and size of buffers for reading files without sendfile.
        output_buffers: Buffers = "2 32k",
        /// Bytes of a file, from its start, for which the kernel is advised to read ahead; 0 gives no advice.
        read_ahead: Size = "0",
        /// Size of nginx's memory pool per request. The value is checked and has no effect.
        request_pool_size: PoolSize = "4k",
        /// As `request_pool_size`.
        connection_pool_size: PoolSize = "512",
        /// Size of nginx's table of server names. The value is checked and has no effect.
        server_names_hash_max_size: Number = "512",
        /// As `server_names_hash_max_size`.
        server_names_hash_bucket_size: Number = "64",
        /// Size of nginx's table of variables. The value is checked and has no effect.
        variables_hash_max_size: HashSize = "1024",
        /// As `variables_hash_max_size`.
        variables_hash_bucket_size: HashSize = "64",
        /// Destination and minimum level of error messages about requests.
        error_log: ErrorLogLines,
        /// Delay of responses with status 401.
        auth_delay: Msec = "0",
        /// Passes 103 responses from upstream servers to the client if one of the strings is neither empty nor `0`.
        /// Differs: interim responses other than 100, 101 and 103 are also passed; nginx treats them as the final
        /// response.
        early_hints: Conditions,
        /// URI or named location of a subrequest after the response was sent; its response is discarded.
        post_action: Text,
        /// Maximum size of a subrequest's response in memory.
        subrequest_output_buffer_size: Size = "4k",
    }
}

/// A directive without arguments (`internal`).
#[derive(Clone, Copy, Debug)]
pub struct Marker;

impl ValueKind for Marker {
    const SYNTAX: &'static str = "";
    fn parse(_: &mut Cx, _: &Directive) -> Result<Self, Problem> {
        Ok(Marker)
    }
}

/// `root`: a path that the URI is appended to.
#[derive(Clone, Debug)]
pub struct RootValue(pub Root);

/// `alias`: a path that takes the place of the location's name.
#[derive(Clone, Debug)]
pub struct AliasValue(pub Root);

/// `root` and `alias` lines of the blocks so far, in `Cx`.
#[derive(Default)]
struct Folders(hashbrown::HashMap<usize, bool>);

fn folder(cx: &mut Cx, d: &Directive, alias: bool) -> Result<Root, Problem> {
    if alias && crate::values::in_named_location(cx) {
        return Err(Problem::says("the \"alias\" directive cannot be used inside the named location"));
    }
    let block = cx.block;
    if let Some(earlier) = cx.get::<Folders>().0.insert(block, alias).filter(|earlier| *earlier != alias) {
        let (name, earlier) = (d.name.text(), if earlier { "alias" } else { "root" });
        let words = format!("\"{name}\" directive is duplicate, \"{earlier}\" directive was specified earlier");
        return Err(Problem::says(words).hint("a location has either \"root\" or \"alias\": remove one of them"));
    }
    let Some(word) = d.args.first() else { return Err(Problem::invalid()) };
    let text = word.text();
    for forbidden in ["$document_root", "${document_root}", "$realpath_root", "${realpath_root}"] {
        if text.contains(forbidden) {
            let name = forbidden.trim_matches(['$', '{', '}']);
            return Err(Problem::says(format!(
                "the ${name} variable cannot be used in the \"{}\" directive",
                d.name.text()
            ))
            .at(0));
        }
    }
    // As in nginx, `root /` becomes the empty string before a path with a leading slash; other roots lose one trailing
    // slash.
    let bare = if alias { &word.bytes[..] } else { word.bytes.strip_suffix(b"/").unwrap_or(&word.bytes) };
    let mut path = HttpTemplate::compile(cx, d, bare).map_err(|p| p.at(0))?;
    let starts_with_variable = word.bytes.first() == Some(&b'$');
    if !starts_with_variable && word.bytes.first() != Some(&b'/') {
        let full = cx.full_name(&String::from_utf8_lossy(bare));
        path = HttpTemplate::compile(cx, d, full.as_os_str().as_encoded_bytes())?;
    }
    // The location sets the length of the prefix that `alias` replaces.
    let prefix = cx.full_name("").as_os_str().as_encoded_bytes().into();
    Ok(Root { path, alias: Alias::No, prefix })
}

impl ValueKind for RootValue {
    const SYNTAX: &'static str = "path";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        folder(cx, d, false).map(RootValue)
    }
}

impl ValueKind for AliasValue {
    const SYNTAX: &'static str = "path";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        folder(cx, d, true).map(AliasValue)
    }
}

/// A folder of temporary files with its levels of subfolders.
#[derive(Clone, Debug)]
pub struct TempPath {
    /// The folder, absolute.
    pub path: std::path::PathBuf,
    /// Digits of the names of up to three levels of subfolders; empty without levels.
    pub levels: Vec<usize>,
}

/// Folder of temporary files where nginx's package has it, in `Cx`; defaults of `client_body_temp_path` and its siblings
/// are in it. `None`: below the prefix.
#[derive(Clone, Debug, Default)]
pub struct PackagedTempFolder(pub Option<(std::path::PathBuf, TempNames)>);

/// Names of the folders of temporary files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TempNames {
    /// As nginx's own: `client_body_temp`, `proxy_temp`.
    Plain,
    /// As Debian's package: `body`, `proxy`.
    Debian,
    /// As Fedora's package: `client_body`, `proxy`.
    Fedora,
    /// As nginx.org's packages: `client_temp`, `proxy_temp`.
    NginxOrg,
}

impl PackagedTempFolder {
    /// Returns the folder of a default such as `proxy_temp`.
    fn folder(&self, default: &str) -> Option<std::path::PathBuf> {
        let (folder, names) = self.0.as_ref()?;
        let kind = default.strip_suffix("_temp").unwrap_or(default);
        Some(folder.join(match (names, kind) {
            (TempNames::Plain, _) => default,
            (TempNames::Debian, "client_body") => "body",
            (TempNames::Debian | TempNames::Fedora, kind) => kind,
            (TempNames::NginxOrg, "client_body") => "client_temp",
            (TempNames::NginxOrg, _) => default,
        }))
    }
}

/// Digits of the files' numbers, which all levels share (`ngx_conf_set_path_slot`).
const DIGITS: usize = 10;

impl ValueKind for TempPath {
    const SYNTAX: &'static str = "path [level1 [level2 [level3]]]";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let text = d.args.first().map(|w| w.text().into_owned()).unwrap_or_default();
        let mut levels = Vec::new();
        for (index, word) in d.args.iter().enumerate().skip(1) {
            match parse_decimal::<usize>(&word.text()) {
                Some(n @ 1..=DIGITS) if levels.iter().sum::<usize>() + n <= DIGITS => levels.push(n),
                _ => {
                    return Err(Problem::invalid()
                        .at(index)
                        .hint("levels are numbers of digits, usually 1 or 2; at most 10 together"));
                }
            }
        }
        let packaged = if d.is_synthetic() { cx.get::<PackagedTempFolder>().folder(&text) } else { None };
        let path = packaged.unwrap_or_else(|| cx.full_name(&text));
        UsedPaths::add(cx, d, &path, Some(&levels))?;
        Ok(TempPath { path, levels })
    }
}

/// Texts with variables: one is true if it is neither empty nor `0`.
#[derive(Clone, Debug, Default)]
pub struct Conditions(pub Vec<HttpTemplate>);

impl ValueKind for Conditions {
    const SYNTAX: &'static str = "string ...";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let one = |(index, word): (usize, &conf_syntax::Word)| {
            HttpTemplate::compile(cx, d, &word.bytes).map_err(|p| p.at(index))
        };
        d.args.iter().enumerate().map(one).collect::<Result<_, _>>().map(Conditions)
    }
    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

impl Conditions {
    /// Tells whether no text is empty or `0`. Evaluates them in order up to the first that is.
    pub fn all_true(&self, r: &mut SessionOf<HttpArea>) -> bool {
        self.0.iter().all(|value| !matches!(value.eval(r).as_slice(), b"" | b"0"))
    }
}

/// Limit of the process, unless `generated_body_memory` names one.
const PROCESS_BYTES: u64 = 256 << 20;

impl ValueKind for MemoryLimits {
    const SYNTAX: &'static str = "connection-size [process-size]";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let size = |index: usize| match d.args.get(index).map(|word| conf_schema::value::parse_offset(&word.bytes)) {
            Some(Some(bytes)) if bytes > 0 => Ok(Some(bytes)),
            Some(_) => Err(Problem::invalid().at(index)),
            None => Ok(None),
        };
        let connection = size(0)?.unwrap_or_default();
        let process = size(1)?.unwrap_or(PROCESS_BYTES.max(connection));
        if process < connection {
            return Err(Problem::directive("has less for the process than for a connection").at(1));
        }
        Ok(MemoryLimits { connection, process })
    }
}

/// `tidegate_cache`: limits of a thread's cache of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheBytes {
    /// Bytes, 0 for `off`.
    pub bytes: u64,
    /// Milliseconds after which an entry is compared with its file without an event.
    pub recheck: u64,
}

impl ValueKind for CacheBytes {
    const SYNTAX: &'static str = "size [recheck=time] | off";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let mut cache = CacheBytes { bytes: 0, recheck: 10_000 };
        let word = d.args.first().map(|w| w.bytes.as_slice()).unwrap_or_default();
        if word != b"off" {
            cache.bytes = conf_schema::value::parse_offset(word).ok_or_else(|| Problem::invalid().at(0))?;
        }
        if let Some(word) = d.args.get(1) {
            let time = word.bytes.strip_prefix(b"recheck=").filter(|_| cache.bytes > 0);
            let invalid = || Problem::says(format!("invalid parameter \"{}\"", word.text())).at(1);
            cache.recheck = time.and_then(conf_schema::value::parse_msec).ok_or_else(invalid)?;
        }
        Ok(cache)
    }
}

/// `open_file_cache off | max=N [inactive=time]`: only checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFileCache(pub Option<u64>);

impl ValueKind for OpenFileCache {
    const SYNTAX: &'static str = "off | max=number [inactive=time]";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let mut max = None;
        for (index, word) in d.args.iter().enumerate() {
            let text = word.text();
            let invalid = || Problem::says(format!("invalid \"open_file_cache\" parameter \"{text}\"")).at(index);
            match text.split_once('=') {
                None if text == "off" => return Ok(OpenFileCache(None)),
                Some(("max", n)) => max = Some(parse_decimal::<u64>(n).filter(|n| *n > 0).ok_or_else(invalid)?),
                Some(("inactive", time)) => {
                    conf_schema::value::parse_sec(time.as_bytes()).ok_or_else(invalid)?;
                }
                _ => return Err(invalid()),
            }
        }
        match max {
            Some(max) => Ok(OpenFileCache(Some(max))),
            None => Err(Problem::says("\"open_file_cache\" must have the \"max\" parameter")),
        }
    }
}

/// `disable_symlinks off | on | if_not_owner [from=part]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symlinks {
    /// Permitted links.
    pub mode: SymlinkMode,
    /// Prefix of the path that is not checked.
    pub from: Option<HttpTemplate>,
}

/// Symbolic links that a path may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SymlinkMode {
    /// All links (`off`).
    Allowed,
    /// No links (`on`).
    Refused,
    /// Links whose owner also owns their target (`if_not_owner`).
    IfNotOwner,
}

/// Size of a memory pool of nginx, whose bounds it has.
#[derive(Clone, Copy, Debug)]
pub struct PoolSize(pub u64);

const POOL_BYTES_MIN: u64 = 112;
const POOL_ALIGNMENT: u64 = 16;

impl ValueKind for PoolSize {
    const SYNTAX: &'static str = Size::SYNTAX;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let Size(bytes) = Size::parse(cx, d)?;
        if bytes < POOL_BYTES_MIN {
            return Err(Problem::says(format!("the pool size must be no less than {POOL_BYTES_MIN}")).at(0));
        }
        if bytes % POOL_ALIGNMENT != 0 {
            return Err(Problem::says(format!("the pool size must be a multiple of {POOL_ALIGNMENT}")).at(0));
        }
        Ok(PoolSize(bytes))
    }
}

impl ValueKind for Symlinks {
    const SYNTAX: &'static str = "off | on | if_not_owner [from=part]";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let (mut mode, mut from) = (None, None);
        for (index, word) in d.args.iter().enumerate() {
            match word.bytes.as_slice() {
                b"off" => mode = Some(SymlinkMode::Allowed),
                b"on" => mode = Some(SymlinkMode::Refused),
                b"if_not_owner" => mode = Some(SymlinkMode::IfNotOwner),
                [b'f', b'r', b'o', b'm', b'=', rest @ ..] => {
                    from = Some(HttpTemplate::compile(cx, d, rest).map_err(|p| p.at(index))?);
                }
                _ => return Err(Problem::says(format!("invalid parameter \"{}\"", word.text())).at(index)),
            }
        }
        let Some(mode) = mode else {
            return Err(Problem::directive("must have \"off\", \"on\" or \"if_not_owner\" parameter"));
        };
        if let ([first, second, ..], None) = (d.args.as_slice(), &from) {
            let words = format!("duplicate parameters \"{} {}\"", first.text(), second.text());
            return Err(Problem::says(words).at(1));
        }
        if mode == SymlinkMode::Allowed && from.is_some() {
            return Err(Problem::says("\"from=\" cannot be used with \"off\" parameter"));
        }
        Ok(Symlinks { mode, from })
    }
}
