//! autoindex (nginx: `ngx_http_autoindex_module`): directory listings as HTML, JSON, JSONP or XML.

mod render;
#[cfg(test)]
mod tests;

use crate::shared::pooled;
use conf_schema::value::Flag;
use conf_schema::{ContextArea, FeatureTable, Problem, directives, words};
use http_engine::body_memory::{self, NoMemory, Reservation};
use http_engine::path::bytes_path;
use http_engine::variables::find_arg;
use http_engine::{BlockPlan, Feature, Flow, Handler, HandlerOrder, Request, ResponseBody, Str};
use http_types::Method;
use observe::{Severity, os_error};
use std::any::Any;
use std::fs::ReadDir;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

words! {
    pub enum Format { Html = "html", Xml = "xml", Json = "json", Jsonp = "jsonp" }
}

directives! {
    pub struct AutoindexConf from AutoindexInput {
        /// Lists directories that have no index file.
        /// Differs: a listing is sent with its length instead of in chunks.
        autoindex: Flag = "off",
        /// Shows sizes in HTML listings in bytes; with `off` rounded to kilobytes, megabytes and gigabytes.
        autoindex_exact_size: Flag = "on",
        /// Format of listings.
        autoindex_format: Format = "html",
        /// Shows times in HTML listings in the server's time zone; with `off` in UTC.
        autoindex_localtime: Flag = "off",
    }
}

pub struct Autoindex;

impl Feature for Autoindex {
    fn table(&self) -> FeatureTable {
        AutoindexConf::table("autoindex", ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<AutoindexConf>() else { return Ok(()) };
        if conf.autoindex {
            let list = IndexSettings {
                format: conf.autoindex_format,
                exact_size: conf.autoindex_exact_size,
                local_time: conf.autoindex_localtime,
            };
            block.handle(HandlerOrder::Autoindex, Arc::new(list));
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct IndexSettings {
    format: Format,
    exact_size: bool,
    local_time: bool,
}

#[derive(Clone, Debug)]
struct Entry {
    name: Vec<u8>,
    kind: EntryKind,
    modified: i64,
    size: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryKind {
    Folder,
    File,
    Other,
}

/// In bytes.
const CALLBACK_BYTES_MAX: usize = 128;
/// Memory that a page is expected to need.
const PAGE_BYTES: u64 = 64 * 1024;
/// Memory of a page of more entries than [`ENTRIES_AT_ONCE`], with its entries while it is made: a connection's share by default.
const LONG_PAGE_BYTES: u64 = 2 << 20;
/// Entries that a request reads at once: half a millisecond. A thread of the pool lists larger directories.
const ENTRIES_AT_ONCE: usize = 256;
/// Maximum number of lines that a request logs; a directory may have many unreadable entries.
const LINES_MAX: usize = 100;

impl Handler for IndexSettings {
    fn run(&self, r: &mut Request) -> Flow {
        if !r.target.path().ends_with(b"/") || !matches!(r.target.method(), Method::Get | Method::Head) {
            return Flow::Declined;
        }
        let path = match http_engine::file_paths::mapped_path(r) {
            Ok(path) => path.without_slash(),
            Err(status) => return Flow::Status(status),
        };
        let mut list = *self;
        let mut callback = Vec::new();
        if list.format == Format::Jsonp {
            callback = find_arg(r.target.args(), b"callback").unwrap_or_default().to_vec();
            if let Err(why) = check_callback(&callback) {
                let shown = String::from_utf8_lossy(&callback).into_owned();
                r.log(Severity::Info, format_args!("client sent {why} callback name: \"{shown}\""));
                return Flow::Status(400);
            }
            if callback.is_empty() {
                list.format = Format::Json;
            }
        }
        let mut folder = match FolderReader::open(r, &path) {
            Ok(folder) => folder,
            Err(status) => return Flow::Status(status),
        };
        let utf8 = list.format == Format::Html && {
            let charset = r.loc().charset.clone();
            charset.eval(r).eq_ignore_ascii_case(b"utf-8")
        };
        let uri = r.target.path().to_vec();
        let page = move |folder: FolderReader| list.page(folder, &uri, &callback, utf8);
        let is_whole = folder.read(ENTRIES_AT_ONCE);
        if is_whole && let Some(memory) = body_memory::try_reserve(r, PAGE_BYTES) {
            let made = page(folder);
            return answer(r, list.format, made, memory);
        }
        // The wait for memory holds no entries.
        drop(folder);
        Flow::Later(Box::new(move |mut r| {
            Box::pin(async move {
                let expected = if is_whole { PAGE_BYTES } else { LONG_PAGE_BYTES };
                let flow = match later(&r, path.to_vec(), expected, page).await {
                    Ok((made, memory)) => answer(&mut r, list.format, made, memory),
                    Err(status) => Flow::Status(status),
                };
                (r, flow)
            })
        }))
    }
}

/// Makes the page of a directory on the pool, as soon as there is memory for it.
async fn later(
    r: &Request,
    path: Vec<u8>,
    expected: u64,
    page: impl FnOnce(FolderReader) -> MadePage + Send + 'static,
) -> Result<(MadePage, Reservation), u16> {
    let memory = body_memory::reserve_memory(r, expected).await.map_err(NoMemory::status)?;
    let mut folder = FolderReader::open(r, &path)?;
    let made = pooled::run_long(r, move |wanted| {
        while wanted.is_wanted() && !folder.read(ENTRIES_AT_ONCE) {}
        page(folder)
    });
    made.await.map(|made| (made, memory)).ok_or(500)
}

/// A page, or the status of a directory that could not be read; and lines for the log.
type MadePage = (Result<Vec<u8>, u16>, Vec<String>);

impl IndexSettings {
    fn page(self, folder: FolderReader, uri: &[u8], callback: &[u8], utf8: bool) -> MadePage {
        let FolderReader { mut entries, lines, failed, .. } = folder;
        if failed {
            return (Err(500), lines);
        }
        entries.sort_by(|a, b| (a.kind != EntryKind::Folder, &a.name).cmp(&(b.kind != EntryKind::Folder, &b.name)));
        let page = match self.format {
            Format::Html => render::render_html(&self, uri, &entries, utf8),
            Format::Xml => render::render_xml(&entries),
            Format::Json => render::render_json(&entries, None),
            Format::Jsonp => render::render_json(&entries, Some(callback)),
        };
        (Ok(page), lines)
    }
}

fn answer(r: &mut Request, format: Format, (page, lines): MadePage, memory: Reservation) -> Flow {
    for line in lines {
        r.log(Severity::Crit, format_args!("{line}"));
    }
    let page = match page {
        Ok(page) => page,
        Err(status) => return Flow::Status(status),
    };
    r.out.set_status(200);
    r.out.set_content_type(Str::from(match format {
        Format::Html => "text/html",
        Format::Xml => "text/xml",
        Format::Json => "application/json",
        Format::Jsonp => "application/javascript",
    }));
    if format == Format::Xml {
        r.out.set_charset("utf-8");
    }
    r.out.set_content_length(Some(page.len() as u64));
    Flow::Content(ResponseBody::Bytes(memory.hold(page.into_boxed_slice())))
}

fn check_callback(name: &[u8]) -> Result<(), &'static str> {
    if name.len() > CALLBACK_BYTES_MAX {
        return Err("too long");
    }
    if !name.iter().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'.')) {
        return Err("invalid");
    }
    Ok(())
}

/// A directory that is being read.
struct FolderReader {
    path: Vec<u8>,
    rest: ReadDir,
    entries: Vec<Entry>,
    /// For the log.
    lines: Vec<String>,
    failed: bool,
}

impl FolderReader {
    /// Fails with the request's status.
    fn open(r: &Request, path: &[u8]) -> Result<FolderReader, u16> {
        let opened = std::fs::read_dir(bytes_path(if path.is_empty() { b"/" } else { path }));
        let rest = opened.map_err(|e| {
            let (level, status) = match e.raw_os_error() {
                Some(libc::ENOENT | libc::ENOTDIR | libc::ENAMETOOLONG) => (Severity::Error, 404),
                Some(libc::EACCES) => (Severity::Error, 403),
                _ => (Severity::Crit, 500u16),
            };
            let shown = String::from_utf8_lossy(path);
            r.log(level, format_args!("opendir() \"{shown}\" failed {}", os_error(&e)));
            status
        })?;
        Ok(FolderReader { path: path.to_vec(), rest, entries: Vec::new(), lines: Vec::new(), failed: false })
    }
    fn line(&mut self, text: String) {
        if self.lines.len() < LINES_MAX {
            self.lines.push(text);
        }
    }
    /// Reads up to this many further entries. Returns `true` at the end of the directory and after a failure.
    fn read(&mut self, most: usize) -> bool {
        for _ in 0..most {
            let item = match self.rest.next() {
                None => return true,
                Some(Ok(item)) => item,
                Some(Err(e)) => {
                    let shown = String::from_utf8_lossy(&self.path);
                    self.line(format!("readdir() \"{shown}\" failed {}", os_error(&e)));
                    self.failed = true;
                    return true;
                }
            };
            let name = item.file_name().into_vec();
            if name.starts_with(b".") {
                continue;
            }
            let file = item.path();
            let meta = match std::fs::metadata(&file) {
                Ok(meta) => meta,
                // Lists a dangling link as a link.
                Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::ELOOP)) => match item.metadata() {
                    Ok(meta) => meta,
                    Err(_) => continue,
                },
                Err(e) => {
                    self.line(format!("stat() \"{}\" failed {}", file.display(), os_error(&e)));
                    continue;
                }
            };
            let kind = match (meta.is_dir(), meta.is_file()) {
                (true, _) => EntryKind::Folder,
                (_, true) => EntryKind::File,
                _ => EntryKind::Other,
            };
            self.entries.push(Entry { name, kind, modified: meta.mtime(), size: meta.len() });
        }
        false
    }
}
