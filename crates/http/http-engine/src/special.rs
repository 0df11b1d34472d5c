//! Responses to errors: built-in pages, `error_page`, last resorts (nginx: `ngx_http_special_response.c`).

use crate::browsers::{is_chrome, is_msie};
use crate::file_paths::canonical_path;
use crate::handler::{Flow, ResponseBody};
use crate::request::{FolderPage, Request};
use crate::response::Str;
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

/// Redirects internally to a path from the configuration, a folder's file or a server.
pub fn go_to(r: &Request, path: Vec<u8>, args: Vec<u8>) -> Flow {
    match canonical_path(r, path) {
        Ok(path) => Flow::redirect(path, args),
        Err(status) => Flow::Status(status),
    }
}
