//! autoindex (nginx: `ngx_http_autoindex_module`): directory listings as HTML, JSON, JSONP or XML.

mod render;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use conf_schema::value::Flag;
use conf_schema::{Area, Problem, Table, directives, words};
use http_engine::path::bytes_path;
use http_engine::variables::find_arg;
use http_engine::{BlockPlan, Body, Feature, Flow, Handler, HandlerOrder, Request, Str};
use http_types::Method;
use observe::{Level, os};
use std::any::Any;
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
    fn table(&self) -> Table {
        AutoindexConf::table("autoindex", Area::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<AutoindexConf>() else { return Ok(()) };
        if conf.autoindex {
            let list = List {
                format: conf.autoindex_format,
                exact_size: conf.autoindex_exact_size,
                local_time: conf.autoindex_localtime,
            };
            block.handle(HandlerOrder::Autoindex, Arc::new(list));
        }
        Ok(())
    }
}

struct List {
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

impl Handler for List {
    fn run(&self, r: &mut Request) -> Flow {
        if !r.target.path.ends_with(b"/") || !matches!(r.target.method, Method::Get | Method::Head) {
            return Flow::Declined;
        }
        let path = match http_engine::special::mapped_path(r) {
            Ok(path) => path.without_slash(),
            Err(status) => return Flow::Status(status),
        };
        let mut format = self.format;
        let mut callback = Vec::new();
        if format == Format::Jsonp {
            callback = find_arg(&r.target.args, b"callback").unwrap_or_default().to_vec();
            if let Err(why) = check_callback(&callback) {
                let shown = String::from_utf8_lossy(&callback).into_owned();
                r.log(Level::Info, format_args!("client sent {why} callback name: \"{shown}\""));
                return Flow::Status(400);
            }
            if callback.is_empty() {
                format = Format::Json;
            }
        }
        let mut entries = match read(r, &path) {
            Ok(entries) => entries,
            Err(status) => return Flow::Status(status),
        };
        entries.sort_by(|a, b| (a.kind != EntryKind::Folder, &a.name).cmp(&(b.kind != EntryKind::Folder, &b.name)));
        r.out.status = 200;
        let (media, body) = match format {
            Format::Html => {
                let utf8 = r.loc().charset.clone().eval(r).eq_ignore_ascii_case(b"utf-8");
                ("text/html", render::html(self, &r.target.path, &entries, utf8))
            }
            Format::Xml => {
                r.out.charset = "utf-8".into();
                ("text/xml", render::xml(&entries))
            }
            Format::Json => ("application/json", render::json(&entries, None)),
            Format::Jsonp => ("application/javascript", render::json(&entries, Some(&callback))),
        };
        r.out.content_type = Str::from(media);
        r.out.content_length = Some(body.len() as u64);
        Flow::Content(Body::Bytes(Bytes::from(body)))
    }
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

fn read(r: &Request, path: &[u8]) -> Result<Vec<Entry>, u16> {
    let shown = || String::from_utf8_lossy(path);
    let folder = std::fs::read_dir(bytes_path(if path.is_empty() { b"/" } else { path })).map_err(|e| {
        let (level, status) = match e.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR | libc::ENAMETOOLONG) => (Level::Error, 404),
            Some(libc::EACCES) => (Level::Error, 403),
            _ => (Level::Crit, 500u16),
        };
        r.log(level, format_args!("opendir() \"{}\" failed {}", shown(), os(&e)));
        status
    })?;
    let mut entries = Vec::new();
    for item in folder {
        let item = item.map_err(|e| {
            r.log(Level::Crit, format_args!("readdir() \"{}\" failed {}", shown(), os(&e)));
            500u16
        })?;
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
                r.log(Level::Crit, format_args!("stat() \"{}\" failed {}", file.display(), os(&e)));
                continue;
            }
        };
        let kind = match (meta.is_dir(), meta.is_file()) {
            (true, _) => EntryKind::Folder,
            (_, true) => EntryKind::File,
            _ => EntryKind::Other,
        };
        entries.push(Entry { name, kind, modified: meta.mtime(), size: meta.len() });
    }
    Ok(entries)
}
