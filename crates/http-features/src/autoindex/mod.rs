//! autoindex (nginx: `ngx_http_autoindex_module`): what is in a folder, as HTML, JSON, JSONP or XML.

mod render;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use conf_schema::value::Flag;
use conf_schema::{Area, Problem, Table, directives, words};
use http_engine::variables::{bytes_path, find_arg};
use http_engine::{BlockPlan, Body, Feature, Flow, Handler, HandlerOrder, Request, Str};
use http_types::Method;
use observe::{Level, os};
use std::any::Any;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

words! {
    /// `autoindex_format`
    pub enum Format { Html = "html", Xml = "xml", Json = "json", Jsonp = "jsonp" }
}

directives! {
    /// What the module is told in a block.
    pub struct AutoindexConf from AutoindexInput {
        /// Whether folders without an index file are listed.
        /// Differs: a listing goes out with its length, instead of in chunks.
        autoindex: Flag = "off",
        /// Whether HTML listings give sizes in bytes, instead of rounded to kilobytes, megabytes and gigabytes.
        autoindex_exact_size: Flag = "on",
        /// The form of listings.
        autoindex_format: Format = "html",
        /// Whether HTML listings give times in the server's time zone, instead of UTC.
        autoindex_localtime: Flag = "off",
    }
}

/// The feature.
pub struct Autoindex;

impl Feature for Autoindex {
    fn table(&self) -> Table {
        AutoindexConf::table("autoindex", Area::Http)
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

/// One line of a listing.
#[derive(Clone, Debug)]
struct Entry {
    name: Vec<u8>,
    kind: Kind,
    modified: i64,
    size: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Folder,
    File,
    Other,
}

/// A callback's name is no longer than this.
const CALLBACK_BYTES_MAX: usize = 128;

impl Handler for List {
    fn run(&self, r: &mut Request) -> Flow {
        if !r.path.ends_with(b"/") || !matches!(r.method, Method::Get | Method::Head) {
            return Flow::Declined;
        }
        let path = match http_engine::special::mapped_path(r) {
            Ok(path) => path.without_slash(),
            Err(status) => return Flow::Status(status),
        };
        let mut format = self.format;
        let mut callback = Vec::new();
        if format == Format::Jsonp {
            callback = find_arg(&r.args, b"callback").unwrap_or_default().to_vec();
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
        entries.sort_by(|a, b| (a.kind != Kind::Folder, &a.name).cmp(&(b.kind != Kind::Folder, &b.name)));
        r.out.status = 200;
        let (media, body) = match format {
            Format::Html => {
                let utf8 = r.loc().charset.clone().eval(r).eq_ignore_ascii_case(b"utf-8");
                ("text/html", render::html(self, &r.path, &entries, utf8))
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

/// What is in a folder, hidden files aside.
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
            // A link that leads nowhere is listed as what it is.
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
            (true, _) => Kind::Folder,
            (_, true) => Kind::File,
            _ => Kind::Other,
        };
        entries.push(Entry { name, kind, modified: meta.mtime(), size: meta.len() });
    }
    Ok(entries)
}
