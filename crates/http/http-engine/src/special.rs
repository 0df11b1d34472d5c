//! Responses to errors, and the way from a path to its file.
//! Errors: built-in pages, `error_page`, and checks of the client's browser (nginx: `ngx_http_special_response.c`).
//! Files: [`map_path`] maps the request's path by `root` and `alias`; [`look_up`], [`file_kind`] and [`probe_path`] look files up
//! under `disable_symlinks`, and [`look_up`] and [`guard_admits`] ask the location's guard.

use crate::core_table::SymlinkMode;
use crate::handler::{Flow, ResponseBody};
use crate::path::{self, CanonicalPath, FilePath};
use crate::request::{FolderPage, Request};
use crate::response::Str;
use crate::values::{Alias, KeepaliveDisable};
use bytes::Bytes;
use http_types::{Known, Method, Version};

const PADDING: &str = "<!-- a padding to disable MSIE and Chrome friendly error page -->\r\n";

/// Returns `None` for a status without a page.
fn words(status: u16) -> Option<(&'static str, Option<&'static str>)> {
    Some(match status {
        301 => ("301 Moved Permanently", None),
        302 => ("302 Found", None),
        303 => ("303 See Other", None),
        307 => ("307 Temporary Redirect", None),
        308 => ("308 Permanent Redirect", None),
        400 => ("400 Bad Request", None),
        401 => ("401 Authorization Required", None),
        402 => ("402 Payment Required", None),
        403 => ("403 Forbidden", None),
        404 | 498 => ("404 Not Found", None),
        405 => ("405 Not Allowed", None),
        406 => ("406 Not Acceptable", None),
        407 => ("407 Proxy Authentication Required", None),
        408 => ("408 Request Time-out", None),
        409 => ("409 Conflict", None),
        410 => ("410 Gone", None),
        411 => ("411 Length Required", None),
        412 => ("412 Precondition Failed", None),
        413 => ("413 Request Entity Too Large", None),
        414 => ("414 Request-URI Too Large", None),
        415 => ("415 Unsupported Media Type", None),
        416 => ("416 Requested Range Not Satisfiable", None),
        421 => ("421 Misdirected Request", None),
        429 => ("429 Too Many Requests", None),
        494 => ("400 Request Header Or Cookie Too Large", Some("Request Header Or Cookie Too Large")),
        495 => ("400 The SSL certificate error", Some("The SSL certificate error")),
        496 => ("400 No required SSL certificate was sent", Some("No required SSL certificate was sent")),
        497 => {
            ("400 The plain HTTP request was sent to HTTPS port", Some("The plain HTTP request was sent to HTTPS port"))
        }
        500 => ("500 Internal Server Error", None),
        501 => ("501 Not Implemented", None),
        502 => ("502 Bad Gateway", None),
        503 => ("503 Service Temporarily Unavailable", None),
        504 => ("504 Gateway Time-out", None),
        505 => ("505 HTTP Version Not Supported", None),
        507 => ("507 Insufficient Storage", None),
        _ => return None,
    })
}

/// With the server's signature in the footer.
pub fn status_page(status: u16, signature: &[u8]) -> Option<Vec<u8>> {
    let (title, extra) = words(status)?;
    let heading = if extra.is_some() { "400 Bad Request" } else { title };
    let mut out = Vec::with_capacity(256);
    out.extend_from_slice(b"<html>\r\n<head><title>");
    out.extend_from_slice(title.as_bytes());
    out.extend_from_slice(b"</title></head>\r\n<body>\r\n<center><h1>");
    out.extend_from_slice(heading.as_bytes());
    out.extend_from_slice(b"</h1></center>\r\n");
    if let Some(extra) = extra {
        out.extend_from_slice(format!("<center>{extra}</center>\r\n").as_bytes());
    }
    out.extend_from_slice(b"<hr><center>");
    out.extend_from_slice(signature);
    out.extend_from_slice(b"</center>\r\n</body>\r\n</html>\r\n");
    Some(out)
}

/// Uses `error_page` if configured, otherwise the built-in page.
pub fn respond_status(r: &mut Request, status: u16) -> Flow {
    r.progress.error_status = status;
    if r.reply.keep_alive && matches!(status, 400 | 413 | 414 | 497 | 495 | 496 | 500 | 501) {
        r.reply.keep_alive = false;
    }
    r.out.content_type = Str::default();
    let plan = r.plan_rc();
    let core = &plan.loc(r.scope.location).core;
    if !r.progress.error_page
        && r.progress.uri_changes_left > 0
        && let Some(pages) = r.progress.folder_pages.take()
        && let Some((_, page)) = pages.iter().find(|(own, _)| *own == status)
    {
        r.progress.error_page = true;
        return folder_page(r, status, page);
    }
    if !r.progress.error_page
        && r.progress.uri_changes_left > 0
        && let Some(pages) = &core.conf.error_page
    {
        if !core.conf.recursive_error_pages {
            r.progress.error_page = true;
        }
        if let Some(page) = pages.0.iter().find(|page| page.status == status) {
            return operators_page(r, page);
        }
    }
    r.incoming.expect_tested = true;
    if core.conf.msie_refresh && matches!(status, 301 | 302) && is_msie(r) {
        return refresh(r);
    }
    builtin(r, status)
}

pub(crate) fn last_resort(r: &mut Request) -> Flow {
    r.progress.error_page = true;
    r.incoming.expect_tested = true;
    r.reply.keep_alive = false;
    if r.progress.settled {
        return Flow::Status(500);
    }
    r.progress.error_status = 500;
    builtin(r, 500)
}

fn folder_page(r: &mut Request, status: u16, page: &FolderPage) -> Flow {
    match page {
        FolderPage::Path(target) => {
            let split = target.iter().position(|c| *c == b'?').unwrap_or(target.len());
            let (path, args) = target.split_at_checked(split).unwrap_or((target, b""));
            if r.target.method != Method::Head {
                r.target.method = Method::Get;
            }
            let args = args.get(1..).unwrap_or_default().to_vec();
            match canonical_path(r, path.to_vec()) {
                Ok(path) => Flow::Redirect { path, args, internal: false },
                Err(status) => {
                    r.progress.error_status = status;
                    builtin(r, status)
                }
            }
        }
        FolderPage::Url(url) => {
            r.progress.error_status = 302;
            r.out.location = url.clone().into();
            builtin(r, 302)
        }
        FolderPage::Text(text) => {
            r.out.content_type = Str::Static(b"text/html");
            r.out.content_length = Some(text.len() as u64);
            Flow::Content(ResponseBody::Bytes(Bytes::copy_from_slice(text)))
        }
        FolderPage::Builtin => builtin(r, status),
    }
}

fn operators_page(r: &mut Request, page: &crate::values::ErrorPage) -> Flow {
    // A refused client need not send the body; a page with another status may need it.
    if page.overwrite.is_none_or(|code| code != 0 && code != 200) {
        r.incoming.expect_tested = true;
        // A page that comes from a server would otherwise ask for the body, which was refused.
        if matches!(r.progress.error_status, 401..=403 | 407 | 411 | 413 | 415 | 417 | 429 | 503) && expects_continue(r)
        {
            r.discard_body();
        }
    }
    if let Some(code) = page.overwrite {
        r.progress.error_status = code;
    }
    let mut target = page.target.eval(r);
    match target.first() {
        Some(b'/') => {
            let split = target.iter().position(|c| *c == b'?');
            let args = split.and_then(|at| target.get(at + 1..)).unwrap_or_default().to_vec();
            target.truncate(split.unwrap_or(target.len()));
            let Ok(path) = canonical_path(r, target) else {
                r.incoming.expect_tested = true;
                return builtin(r, r.progress.error_status);
            };
            if r.target.method != Method::Head {
                r.target.method = Method::Get;
            }
            Flow::redirect(path, args)
        }
        Some(b'@') => Flow::Named(target),
        _ => {
            r.incoming.expect_tested = true;
            let code = page.overwrite.filter(|code| matches!(code, 301 | 302 | 303 | 307 | 308)).unwrap_or(302);
            r.progress.error_status = code;
            r.out.location = target.into();
            if r.loc().core.conf.msie_refresh && is_msie(r) {
                return refresh(r);
            }
            builtin(r, code)
        }
    }
}

/// Tells whether the client waits for 100 (Continue) with its body.
fn expects_continue(r: &Request) -> bool {
    r.target.version >= http_types::Version::Http11
        && r.header(Known::Expect).is_some_and(|value| value.eq_ignore_ascii_case(b"100-continue"))
}

fn builtin(r: &mut Request, status: u16) -> Flow {
    if matches!(status, 494..=497) {
        r.progress.error_status = 400;
    }
    let core = r.loc().core.clone();
    r.out.etag = Str::default();
    r.out.last_modified = None;
    r.out.last_modified_text = Str::default();
    r.out.ranges_allowed = false;
    r.out.accept_ranges = None;
    r.out.charset = Str::default();
    r.out.content_length = None;
    let Some(mut page) = status_page(status, &core.signature) else {
        r.out.content_length = Some(0);
        return Flow::Content(ResponseBody::Empty);
    };
    if core.conf.msie_padding && r.target.version >= Version::Http10 && status >= 400 && (is_msie(r) || is_chrome(r)) {
        for _ in 0..6 {
            page.extend_from_slice(PADDING.as_bytes());
        }
    }
    r.out.content_type = "text/html".into();
    r.out.content_length = Some(page.len() as u64);
    Flow::Content(ResponseBody::Bytes(Bytes::from(page)))
}

/// Responds with a refresh page, because MSIE then sends its Referer.
fn refresh(r: &mut Request) -> Flow {
    let location = std::mem::take(&mut r.out.location);
    let mut page = b"<html><head><meta http-equiv=\"Refresh\" content=\"0; URL=".to_vec();
    for &c in location.bytes() {
        match c {
            b'"' => page.extend_from_slice(b"%22"),
            b'<' => page.extend_from_slice(b"%3C"),
            b'>' => page.extend_from_slice(b"%3E"),
            b' ' | b'%' | b'\'' | b'\\' => page.extend_from_slice(format!("%{c:02X}").as_bytes()),
            c => page.push(c),
        }
    }
    page.extend_from_slice(b"\"></head><body></body></html>\r\n");
    r.progress.error_status = 200;
    r.out.content_type = "text/html".into();
    r.out.content_length = Some(page.len() as u64);
    r.out.last_modified = None;
    Flow::Content(ResponseBody::Bytes(Bytes::from(page)))
}

fn agent_has(r: &Request, word: &[u8]) -> bool {
    r.header(Known::UserAgent).is_some_and(|agent| memchr::memmem::find(agent, word).is_some())
}

/// Not Opera in disguise.
pub fn is_msie(r: &Request) -> bool {
    let Some(agent) = r.header(Known::UserAgent) else { return false };
    // nginx wants a version of more than two characters (`ngx_http_process_user_agent`).
    memchr::memmem::find(agent, b"MSIE ").is_some_and(|at| at + 7 < agent.len()) && !agent_has(r, b"Opera")
}

fn is_chrome(r: &Request) -> bool {
    agent_has(r, b"Chrome/") && !is_msie(r)
}

/// Up to 6, service pack 1.
pub fn is_msie6(r: &Request) -> bool {
    let Some(agent) = r.header(Known::UserAgent) else { return false };
    if agent_has(r, b"Opera") {
        return false;
    }
    let Some(at) = memchr::memmem::find(agent, b"MSIE ") else { return false };
    match agent.get(at + 5..at + 7) {
        Some([b'4' | b'5', b'.']) => true,
        Some(b"6.") => memchr::memmem::find(agent, b"SV1").is_none(),
        _ => false,
    }
}

pub(crate) fn keepalive_disabled(r: &Request) -> bool {
    let disabled = r.loc().core.conf.keepalive_disable;
    if disabled.0 <= KeepaliveDisable::NONE.0 {
        return false;
    }
    (disabled.has(KeepaliveDisable::MSIE6) && r.target.method == Method::Post && is_msie6(r))
        || (disabled.has(KeepaliveDisable::SAFARI) && agent_has(r, b"Safari/") && agent_has(r, b"Mac OS X"))
}

/// File of the request's path by `root` or `alias` (nginx: `ngx_http_map_uri_to_path`). Logged failures: 500 if a
/// rewritten path left `alias`, 400 outside of the folder.
pub fn mapped_path(r: &mut Request) -> Result<FilePath, u16> {
    map_path(r, Vec::with_capacity(128))
}

/// [`mapped_path`] with a caller's buffer.
pub fn map_path(r: &mut Request, buf: Vec<u8>) -> Result<FilePath, u16> {
    let path = std::mem::take(&mut r.target.path);
    let mapped = map_file(r, &path, buf);
    r.target.path = path;
    mapped
}

/// File of another path in the request's location.
pub fn map_file(r: &mut Request, path: &CanonicalPath, mut buf: Vec<u8>) -> Result<FilePath, u16> {
    let plan = r.plan_rc();
    let location = plan.loc(r.scope.location);
    let root = &location.core.root;
    if root.alias != Alias::No && r.target.left_location {
        let name = String::from_utf8_lossy(&location.name).into_owned();
        r.log(
            observe::Severity::Alert,
            format_args!("\"alias\" cannot be used in location \"{name}\" where URI was rewritten"),
        );
        return Err(500);
    }
    buf.clear();
    root.write(r, &mut buf);
    let made = match (root.path.as_literal(), root.alias) {
        (Some(_), _) => Ok(()),
        (None, _) => path::only_own_dots(&root.path, &buf),
    };
    let mapped = made.and_then(|()| match root.alias {
        Alias::No => FilePath::of(buf, path),
        Alias::Prefix(length) => FilePath::aliased(buf, path, length),
        Alias::Whole if r.target.append_to_alias => FilePath::of(buf, path),
        Alias::Whole => FilePath::configured(&root.path, buf),
    });
    mapped.map_err(|_| {
        let (name, path) = (String::from_utf8_lossy(&location.name), String::from_utf8_lossy(path));
        r.log(observe::Severity::Error, format_args!("\"{path}\" leads out of the root of location \"{name}\""));
        // A path without a slash comes from the configuration: nginx appends it to the root's name and finds nothing.
        if path.is_empty() || path.starts_with('/') { 400 } else { 404 }
    })
}

/// Redirects internally to a path from the configuration, a folder's file or a server.
pub fn go_to(r: &Request, path: Vec<u8>, args: Vec<u8>) -> Flow {
    match canonical_path(r, path) {
        Ok(path) => Flow::redirect(path, args),
        Err(status) => Flow::Status(status),
    }
}

/// Resolves dot segments of a path from the configuration, a file or a server. Fails with 400 above the root; logged.
pub fn canonical_path(r: &Request, path: Vec<u8>) -> Result<CanonicalPath, u16> {
    let shown = || String::from_utf8_lossy(&path).into_owned();
    CanonicalPath::made(path.clone()).map_err(|_| {
        r.log(observe::Severity::Error, format_args!("\"{}\" leads above the root", shown()));
        400
    })
}

/// Kind and size of any path, for conditions, which never read files.
pub fn probe_path(r: &mut Request, path: &[u8]) -> std::io::Result<(crate::files::FileKind, u64)> {
    match look_at(r, path) {
        Ok(found) => Ok((found.kind, found.size)),
        // As in nginx, a file exists without the permission to read it, or a free descriptor.
        Err(e)
            if r.loc().core.conf.disable_symlinks.mode == SymlinkMode::Allowed && !crate::files::is_about_path(&e) =>
        {
            crate::files::stat(path)
        }
        Err(e) => Err(e),
    }
}

/// Kind of a file that a handler tests and does not read. Fails with EACCES for `.ht` names where `.htaccess` applies,
/// and for paths that name no file; unreadable files have a kind, too. Does not ask the location's guard.
pub fn file_kind(r: &mut Request, path: &FilePath) -> std::io::Result<crate::files::FileKind> {
    visible(r, path)?;
    probe_path(r, path).map(|(kind, _)| kind)
}

/// Entry of a file under `disable_symlinks`. Fails with EACCES for `.ht` names where `.htaccess` applies, and for files that
/// the location's guard refuses.
pub fn look_up(r: &mut Request, path: &FilePath) -> std::io::Result<std::rc::Rc<crate::files::FileEntry>> {
    visible(r, path)?;
    if !guard_admits(r, path) {
        return Err(std::io::Error::from_raw_os_error(libc::EACCES));
    }
    look_at(r, path)
}

/// Asks the location's guard for a file that a handler is about to open, run, replace or create.
pub fn guard_admits(r: &mut Request, path: &FilePath) -> bool {
    match r.loc().file_guard.clone() {
        Some(guard) => guard.admits(r, path),
        None => true,
    }
}

fn visible(r: &Request, path: &FilePath) -> std::io::Result<()> {
    let name = path.rsplit(|c| *c == b'/').next().unwrap_or_default();
    match r.loc().ht_names_hidden && path::is_ht_name(name) {
        true => Err(std::io::Error::from_raw_os_error(libc::EACCES)),
        false => Ok(()),
    }
}

/// Entry of a `.htaccess` file, which [`look_up`] denies.
pub fn folder_file(r: &mut Request, path: &FilePath) -> std::io::Result<std::rc::Rc<crate::files::FileEntry>> {
    look_at(r, path)
}

fn look_at(r: &mut Request, path: &[u8]) -> std::io::Result<std::rc::Rc<crate::files::FileEntry>> {
    let core = &r.loc().core;
    if core.conf.disable_symlinks.mode == SymlinkMode::Allowed {
        return crate::files::look(path);
    }
    let core = core.clone();
    let from = core.conf.disable_symlinks.from.as_ref().map(|t| t.eval(r)).unwrap_or_default();
    // Checks the whole path unless the exempted prefix matches and ends at a segment boundary.
    let from = match path.strip_prefix(&from[..]) {
        Some([]) => return crate::files::look(path),
        Some([b'/', ..]) => from.len(),
        Some(_) if from.ends_with(b"/") => from.len() - 1,
        _ => 0,
    };
    crate::files::look_without_links(path, from, core.conf.disable_symlinks.mode == SymlinkMode::IfNotOwner)
}
