//! The directives of nginx's http core module that the engine itself acts on.

use crate::file_io::{Aio, Directio};
use crate::listen::Listen;
use crate::template::Template;
use crate::values::{
    Alias, BodyInFile, ErrorPages, Identity, IfModifiedSince, KeepaliveDisable, KeepaliveTimeout, LingeringClose, Root,
    Satisfy, ServerNames, ServerTokens, SizeTemplate, Types,
};
use conf_schema::value::{Between, Buffers, Flag, List, Msec, Number, Offset, Sec, Size, Text};
use conf_schema::{Cx, Directive, Problem, Value, directives};
use observe::ErrorLogLines;

directives! {
    /// What the http core module is told in a block.
    pub struct CoreConf from CoreInput {
        /// Sets an address and port, or a path of a UNIX-domain socket, on which the server accepts requests.
        listen: List<Listen>,
        /// Sets names of a virtual server: exact, with a wildcard, or a regular expression.
        server_name: ServerNames,
        /// Sets the root directory for requests; the path of a file is made of it and the URI.
        root: RootValue = "html",
        /// Replaces the location's name in the URI by this path.
        /// Differs: a URI whose rest makes a step upwards of it (`/i../x` in `location /i` with `alias /data/`) is answered with 400.
        alias: AliasValue,
        /// Only internal requests may use this location, and those inside; others get 404.
        internal: Marker,
        /// Maps file name extensions to media types.
        types: Types,
        /// The media type of files whose extension is not in `types`.
        default_type: Text = "text/plain",
        /// Bounds the table of types; ours needs no tuning, the value is checked and has no effect.
        types_hash_max_size: Number = "1024",
        /// As `types_hash_max_size`.
        types_hash_bucket_size: Number = "64",
        /// Defines the URI that is shown for these errors.
        /// Differs: line ends and NUL in the target of a redirect are percent-encoded; an empty target is a redirect without a `Location`,
        /// which nginx sends empty.
        error_page: ErrorPages,
        /// Error pages may lead to further error pages.
        recursive_error_pages: Flag = "off",
        /// Whether the version stands in error pages and in the `Server` header.
        server_tokens: ServerTokens = "on",
        /// Whose name stands in error pages and in the `Server` header: ours, nginx's, or any word.
        server_identity: Identity = "tidegate",
        /// Memory in which each worker thread keeps small files, ready to be sent; `off`: none. Changes are seen at once, as the
        /// kernel reports them; writes through a shared memory map, which it does not report, after the time of `recheck`, by
        /// default 10 seconds.
        tidegate_cache: CacheBytes = "64m",
        /// Whether files may be reached through symbolic links: always, never, or when link and target have one owner.
        disable_symlinks: Symlinks = "off",
        /// Whether files' metadata and descriptors are kept. Ours are, by `tidegate_cache`, and changes are seen at once.
        open_file_cache: OpenFileCache = "off",
        /// After how long nginx looks again; ours is told by the kernel, or looks each time.
        open_file_cache_valid: Sec = "60s",
        /// How often a file must be used to be kept open; ours is kept from the first time on.
        open_file_cache_min_uses: Number = "1",
        /// Whether failures to find a file are kept; ours are, as long as nothing changes in its folder.
        open_file_cache_errors: Flag = "off",
        /// Whether the kernel is asked to report changes (a BSD feature of nginx; ours always does where it can).
        open_file_cache_events: Flag = "off",
        /// How long an idle connection is kept; the second value is sent in the `Keep-Alive` header.
        keepalive_timeout: KeepaliveTimeout = "75s",
        /// An idle connection is not closed before this time when a server wants to be rid of it.
        keepalive_min_timeout: Msec = "0",
        /// After this many requests a connection is closed.
        keepalive_requests: Number = "1000",
        /// After this time a connection is closed once its request is done.
        keepalive_time: Msec = "1h",
        /// Browsers that get no keep-alive connections after POST requests.
        keepalive_disable: KeepaliveDisable = "msie6",
        /// The largest body that a client may send; 0 turns the check off.
        client_max_body_size: Offset = "1m",
        /// Bodies up to this size are read into memory, larger ones into a file.
        client_body_buffer_size: Size = "16k",
        /// How long a client may be silent while it sends a body.
        client_body_timeout: Msec = "60s",
        /// Whether bodies are saved to files.
        client_body_in_file_only: BodyInFile = "off",
        /// Bodies are kept in one piece of memory (ours always are).
        client_body_in_single_buffer: Flag = "off",
        /// The folder, with up to three levels of sub-folders, of temporary files with bodies.
        client_body_temp_path: TempPath = "client_body_temp",
        /// How much of a request head is read at first.
        client_header_buffer_size: Size = "1k",
        /// The number and size of buffers for large heads: a request line, and each field, must fit into one.
        large_client_header_buffers: Buffers = "4 8k",
        /// How long a client may take to send its head.
        client_header_timeout: Msec = "60s",
        /// Fields with invalid names are dropped; off: such a request is answered with 400.
        ignore_invalid_headers: Flag = "on",
        /// Whether underscores are valid in field names.
        underscores_in_headers: Flag = "off",
        /// Whether adjacent slashes of a URI count as one.
        merge_slashes: Flag = "on",
        /// The most fields that a request may have.
        max_headers: Between<1, { u64::MAX }> = "1000",
        /// How long a client may take nothing while a response is sent to it.
        send_timeout: Msec = "60s",
        /// Sets SO_SNDLOWAT where the system has it (Linux has not: no effect).
        send_lowat: Size = "0",
        /// Whether files are sent by the kernel without passing through the process.
        sendfile: Flag = "off",
        /// The most that one sendfile() call sends, so that one fast client does not take a whole thread.
        sendfile_max_chunk: Size = "2m",
        /// Whether threads wait for slow disks, so that other connections need not: `threads` for every read of a file that is not
        /// in the kernel's memory, by the default pool or the one named; `on` for direct reads alone.
        /// Differs: `on` uses the default pool instead of the kernel's own asynchronous reads.
        aio: Aio = "off",
        /// Whether threads write temporary files.
        /// No effect: the thread that has read the bytes writes them into the kernel's memory. It waits for the disk only where the kernel
        /// has no room for more unwritten pages.
        aio_write: Flag = "off",
        /// Files of this size and more are read past the kernel's memory, into buffers, instead of being sent by the kernel.
        directio: Directio = "off",
        /// Direct reads begin at multiples of this; disks and file systems know which they need.
        directio_alignment: Offset = "512",
        /// Head and start of a file go out in full packets (TCP_CORK).
        tcp_nopush: Flag = "off",
        /// Turns Nagle's algorithm off.
        tcp_nodelay: Flag = "on",
        /// Connections that timed out are closed with RST, so that the kernel keeps nothing for them.
        reset_timedout_connection: Flag = "off",
        /// Redirects are absolute.
        absolute_redirect: Flag = "on",
        /// Absolute redirects use the server's first name instead of the request's host.
        server_name_in_redirect: Flag = "off",
        /// Absolute redirects name the port.
        port_in_redirect: Flag = "on",
        /// Error pages of more than 400 are padded to 512 bytes for MSIE.
        msie_padding: Flag = "on",
        /// Redirects for MSIE are made by a page.
        msie_refresh: Flag = "off",
        /// Whether a missing file is noted in the error log.
        log_not_found: Flag = "on",
        /// Whether subrequests are noted in the access log.
        /// Differs: variables of a line are those of its own request. In nginx all share one store, and what the first line asked
        /// for stands in the later ones.
        log_subrequest: Flag = "off",
        /// Whether files get an `ETag`.
        etag: Flag = "on",
        /// How `If-Modified-Since` is compared with a file's time.
        if_modified_since: IfModifiedSince = "exact",
        /// How many ranges a request may ask for; 0 turns ranges off.
        max_ranges: Number,
        /// Whether bodies of unknown length are chunked for HTTP/1.1 clients.
        chunked_transfer_encoding: Flag = "on",
        /// Whether, and when, what a client still sends is read before its connection is closed.
        lingering_close: LingeringClose = "on",
        /// How long in all.
        lingering_time: Msec = "30s",
        /// How long for each wait.
        lingering_timeout: Msec = "5s",
        /// Whether all access checks must allow a request, or any.
        satisfy: Satisfy = "all",
        /// Bytes a second that a response is sent at; 0: no limit.
        limit_rate: SizeTemplate = "0",
        /// The limit begins after this much.
        limit_rate_after: SizeTemplate = "0",
        /// Output is held back until there is this much (where the kernel would have to send small pieces).
        postpone_output: Size = "1460",
        /// Buffers for reading a file that is not sent by the kernel.
        output_buffers: Buffers = "2 32k",
        /// Tells the kernel that a file is read in order, for so many bytes from its beginning; 0 does not tell it.
        read_ahead: Size = "0",
        /// nginx's memory pool sizes: the values are checked; our requests have no pools to size.
        request_pool_size: Size = "4k",
        /// As `request_pool_size`.
        connection_pool_size: Size = "512",
        /// Bounds the table of server names; ours needs no tuning, the value is checked and has no effect.
        server_names_hash_max_size: Number = "512",
        /// As `server_names_hash_max_size`.
        server_names_hash_bucket_size: Number = "64",
        /// Bounds the table of variables; ours needs no tuning, the value is checked and has no effect.
        variables_hash_max_size: Number = "1024",
        /// As `variables_hash_max_size`.
        variables_hash_bucket_size: Number = "64",
        /// Where messages about requests go, and from which level on.
        error_log: ErrorLogLines,
        /// Unauthorised requests are answered this much later.
        auth_delay: Msec = "0",
        /// 103 responses of servers are passed on when one of these strings is neither empty nor `0`.
        /// Differs: so are other interim responses but 100 and 101; nginx takes those for the response itself.
        early_hints: Conditions,
        /// A URI or named location that is asked when a response has been sent; its own answer is not sent to anybody.
        post_action: Text,
        /// The most of a subrequest's response that is kept in memory.
        subrequest_output_buffer_size: Size = "4k",
    }
}

/// A directive that takes no argument.
#[derive(Clone, Copy, Debug)]
pub struct Marker;

impl Value for Marker {
    const SYNTAX: &'static str = "";
    fn parse(_: &mut Cx, _: &Directive) -> Result<Self, Problem> {
        Ok(Marker)
    }
}

/// `root`
#[derive(Clone, Debug)]
pub struct RootValue(pub Root);

/// `alias`
#[derive(Clone, Debug)]
pub struct AliasValue(pub Root);

/// Which of `root` and `alias` a block has had; kept in `Cx`.
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
        return Err(Problem::says(words).hint("a location has one folder: remove one of them"));
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
    // As in nginx, `root /` is the empty text before a path that begins with a slash, and one slash at the end goes in any other.
    let bare = if alias { &word.bytes[..] } else { word.bytes.strip_suffix(b"/").unwrap_or(&word.bytes) };
    let mut path = Template::compile(cx, d, bare).map_err(|p| p.at(0))?;
    let starts_with_variable = word.bytes.first() == Some(&b'$');
    if !starts_with_variable && word.bytes.first() != Some(&b'/') {
        let full = cx.full_name(&String::from_utf8_lossy(bare));
        path = Template::compile(cx, d, full.as_os_str().as_encoded_bytes())?;
    }
    // How much an alias replaces is known to the location that it stands in.
    let prefix = cx.full_name("").as_os_str().as_encoded_bytes().into();
    Ok(Root { path, alias: Alias::No, prefix })
}

impl Value for RootValue {
    const SYNTAX: &'static str = "path";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        folder(cx, d, false).map(RootValue)
    }
}

impl Value for AliasValue {
    const SYNTAX: &'static str = "path";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        folder(cx, d, true).map(AliasValue)
    }
}

/// A folder of temporary files with its levels of sub-folders.
#[derive(Clone, Debug)]
pub struct TempPath {
    pub path: std::path::PathBuf,
    pub levels: Vec<usize>,
}

impl Value for TempPath {
    const SYNTAX: &'static str = "path [level1 [level2 [level3]]]";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let text = d.args.first().map(|w| w.text().into_owned()).unwrap_or_default();
        let mut levels = Vec::new();
        for (index, word) in d.args.iter().enumerate().skip(1) {
            match word.text().parse::<usize>() {
                Ok(n @ 1..=3) => levels.push(n),
                _ => return Err(Problem::invalid().at(index).hint("a level is 1, 2 or 3")),
            }
        }
        Ok(TempPath { path: cx.full_name(&text), levels })
    }
}

/// Strings of which one must be true.
#[derive(Clone, Debug)]
pub struct Conditions(pub Vec<Template>);

impl Value for Conditions {
    const SYNTAX: &'static str = "string ...";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let one =
            |(index, word): (usize, &conf_syntax::Word)| Template::compile(cx, d, &word.bytes).map_err(|p| p.at(index));
        d.args.iter().enumerate().map(one).collect::<Result<_, _>>().map(Conditions)
    }
    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

/// `tidegate_cache`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheBytes {
    /// Bytes, 0 for `off`.
    pub bytes: u64,
    /// Milliseconds after which an entry is compared with its file, though nothing was reported.
    pub recheck: u64,
}

impl Value for CacheBytes {
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

/// `open_file_cache off | max=N [inactive=time]`: checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFileCache(pub Option<u64>);

impl Value for OpenFileCache {
    const SYNTAX: &'static str = "off | max=number [inactive=time]";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let mut max = None;
        for (index, word) in d.args.iter().enumerate() {
            let text = word.text();
            let invalid = || Problem::says(format!("invalid \"open_file_cache\" parameter \"{text}\"")).at(index);
            match text.split_once('=') {
                None if text == "off" => return Ok(OpenFileCache(None)),
                Some(("max", n)) => max = Some(n.parse::<u64>().ok().filter(|n| *n > 0).ok_or_else(invalid)?),
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
    pub mode: SymlinkMode,
    /// The part of the path that is not checked.
    pub from: Option<Template>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SymlinkMode {
    Allowed,
    Refused,
    IfNotOwner,
}

impl Value for Symlinks {
    const SYNTAX: &'static str = "off | on | if_not_owner [from=part]";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let mut symlinks = Symlinks { mode: SymlinkMode::Allowed, from: None };
        for (index, word) in d.args.iter().enumerate() {
            match word.bytes.as_slice() {
                b"off" => symlinks.mode = SymlinkMode::Allowed,
                b"on" => symlinks.mode = SymlinkMode::Refused,
                b"if_not_owner" => symlinks.mode = SymlinkMode::IfNotOwner,
                [b'f', b'r', b'o', b'm', b'=', rest @ ..] => {
                    symlinks.from = Some(Template::compile(cx, d, rest).map_err(|p| p.at(index))?);
                }
                _ => return Err(Problem::says(format!("invalid parameter \"{}\"", word.text())).at(index)),
            }
        }
        if symlinks.mode == SymlinkMode::Allowed && symlinks.from.is_some() {
            return Err(Problem::says("\"on\" or \"if_not_owner\" must be specified before \"from\""));
        }
        Ok(symlinks)
    }
}
