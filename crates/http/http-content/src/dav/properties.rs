//! Responses to PROPFIND and PROPPATCH: properties of files and directories as XML, with their locks. Stored properties
//! come from [`dead`].

use super::condition::token_text;
use super::dead::{self, Property};
use super::locks::{Lock, Locks};
use super::xml::{DAV, PropertyName, WantedProperties, escape_xml, write_element};
use bytes::Bytes;
use http_engine::path::escape_uri;
use http_engine::{BodyError, BodySource, Piece, Request};
use observe::clock::http_time;
use observe::{Severity, os_error};
use std::fs::{Metadata, ReadDir};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll};

/// Directory entries per piece of the body, after which other connections get a turn.
const NAMES_A_PIECE: usize = 64;
/// Bytes of a piece, behind which no entry is added: each may have the texts of many locks.
const PIECE_BYTES: usize = 16 * 1024;
const HEAD: &[u8] = b"<?xml version=\"1.0\" encoding=\"utf-8\" ?>\n<D:multistatus xmlns:D=\"DAV:\">\n";
const TAIL: &[u8] = b"</D:multistatus>\n";

const KNOWN: [&str; 8] = [
    "displayname",
    "getcontentlength",
    "getlastmodified",
    "resourcetype",
    "lockdiscovery",
    "supportedlock",
    "getetag",
    "getcontenttype",
];

struct Resource<'a> {
    uri: &'a [u8],
    found: &'a Metadata,
    /// Locks that cover the resource; `None` if locks are disabled.
    locks: Option<Vec<Lock>>,
    media: Option<Arc<[u8]>>,
    dead: Vec<Property>,
    now: i64,
}

pub struct Listing {
    wanted: WantedProperties,
    locks: Option<Arc<Locks>>,
    dead: bool,
    uri: Vec<u8>,
    path: PathBuf,
    found: Option<Metadata>,
    inside: Option<ReadDir>,
    ended: bool,
}

impl Listing {
    pub fn new(
        wanted: WantedProperties,
        locks: Option<Arc<Locks>>,
        dead: bool,
        uri: Vec<u8>,
        path: PathBuf,
        found: Metadata,
        inside: Option<ReadDir>,
    ) -> Listing {
        Listing { wanted, locks, dead, uri, path, found: Some(found), inside, ended: false }
    }
    fn tell(&self, r: &Request, uri: &[u8], path: &Path, found: &Metadata, out: &mut Vec<u8>) {
        let now = base::clock::unix_seconds();
        let locks = self.locks.as_ref().map(|locks| locks.covering(uri, now));
        let media = found.is_file().then(|| media(r, uri));
        let dead = if self.dead { dead::read_properties(path) } else { Vec::new() };
        Resource { uri, found, locks, media, dead, now }.write(&self.wanted, out);
    }
    /// Writes the next entries of the directory. Returns `false` at its end.
    fn names(&mut self, r: &Request, out: &mut Vec<u8>) -> Result<bool, BodyError> {
        let Some(mut inside) = self.inside.take() else { return Ok(false) };
        for _ in 0..NAMES_A_PIECE {
            if out.len() >= PIECE_BYTES {
                break;
            }
            let Some(entry) = inside.next() else { return Ok(false) };
            let entry = entry.map_err(|e| {
                r.log(Severity::Crit, format_args!("readdir() failed {}", os_error(&e)));
                BodyError
            })?;
            let name = entry.file_name();
            let name = name.as_bytes();
            if name.starts_with(b".") {
                continue;
            }
            // Skips deleted files and dangling links.
            let Ok(found) = std::fs::metadata(entry.path()) else { continue };
            let mut uri = self.uri.clone();
            if !uri.ends_with(b"/") {
                uri.push(b'/');
            }
            uri.extend_from_slice(name);
            if found.is_dir() {
                uri.push(b'/');
            }
            self.tell(r, &uri, &entry.path(), &found, out);
        }
        self.inside = Some(inside);
        Ok(true)
    }
}

impl BodySource for Listing {
    fn poll_piece(&mut self, _: &mut Context<'_>, r: &mut Request) -> Poll<Option<Result<Piece, BodyError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let mut out = Vec::with_capacity(4096);
        if let Some(found) = self.found.take() {
            out.extend_from_slice(HEAD);
            self.tell(r, &self.uri, &self.path, &found, &mut out);
        }
        match self.names(r, &mut out) {
            Ok(true) => {}
            Ok(false) => {
                out.extend_from_slice(TAIL);
                self.ended = true;
            }
            Err(e) => return Poll::Ready(Some(Err(e))),
        }
        Poll::Ready(Some(Ok(Piece::Bytes(Bytes::from(out)))))
    }
    /// A piece reads up to 64 entries; the last one has the end of the text.
    fn needs_window(&self) -> bool {
        !self.ended
    }
}

fn media(r: &Request, uri: &[u8]) -> Arc<[u8]> {
    let core = &r.loc().core;
    let name = uri.rsplit(|c| *c == b'/').next().unwrap_or_default();
    let extension = name.iter().rposition(|c| *c == b'.').and_then(|dot| name.get(dot + 1..)).unwrap_or_default();
    core.types.0.get(&extension.to_ascii_lowercase()).unwrap_or(&core.default_type).clone()
}

impl Resource<'_> {
    fn write(&self, wanted: &WantedProperties, out: &mut Vec<u8>) {
        out.extend_from_slice(b"<D:response>\n<D:href>");
        let mut escaped = Vec::with_capacity(self.uri.len());
        escape_uri(self.uri, &mut escaped);
        escape_xml(&escaped, out);
        out.extend_from_slice(b"</D:href>\n");
        match wanted {
            WantedProperties::All => {
                let mut values = Vec::new();
                KNOWN.iter().for_each(|name| _ = self.property(name, &mut values));
                self.dead.iter().for_each(|(name, value)| write_element(name, Some(value), &mut values));
                propstat(&values, "200 OK", out);
            }
            WantedProperties::Names => {
                let mut names = KNOWN.iter().map(|name| format!("<D:{name}/>\n")).collect::<String>().into_bytes();
                self.dead.iter().for_each(|(name, _)| write_element(name, None, &mut names));
                propstat(&names, "200 OK", out);
            }
            WantedProperties::These(names) => {
                let (mut values, mut missing) = (Vec::new(), Vec::new());
                for name in names {
                    if name.namespace == DAV && self.property(&name.local, &mut values) {
                        continue;
                    }
                    match self.dead.iter().find(|(other, _)| other == name) {
                        Some((_, value)) => write_element(name, Some(value), &mut values),
                        None => write_element(name, None, &mut missing),
                    }
                }
                if !values.is_empty() || missing.is_empty() {
                    propstat(&values, "200 OK", out);
                }
                if !missing.is_empty() {
                    propstat(&missing, "404 Not Found", out);
                }
            }
        }
        out.extend_from_slice(b"</D:response>\n");
    }

    /// Returns `false` if the resource lacks the property.
    fn property(&self, name: &str, out: &mut Vec<u8>) -> bool {
        let mut text = |value: &[u8]| {
            out.extend_from_slice(format!("<D:{name}>").as_bytes());
            escape_xml(value, out);
            out.extend_from_slice(format!("</D:{name}>\n").as_bytes());
        };
        match name {
            "displayname" => {
                let path = self.uri.strip_suffix(b"/").unwrap_or(self.uri);
                text(path.rsplit(|c| *c == b'/').next().unwrap_or_default());
            }
            "getcontentlength" if !self.found.is_dir() => text(self.found.len().to_string().as_bytes()),
            "getlastmodified" => text(&http_time(self.found.mtime())),
            "getetag" if !self.found.is_dir() => text(&etag(self.found)),
            "getcontenttype" => match &self.media {
                Some(media) => text(media),
                None => return false,
            },
            "resourcetype" if self.found.is_dir() => {
                out.extend_from_slice(b"<D:resourcetype><D:collection/></D:resourcetype>\n");
            }
            "resourcetype" => out.extend_from_slice(b"<D:resourcetype></D:resourcetype>\n"),
            "lockdiscovery" => lock_discovery(self.locks.as_deref().unwrap_or_default(), self.now, out),
            "supportedlock" => {
                out.extend_from_slice(b"<D:supportedlock>\n");
                let scopes: &[&str] = if self.locks.is_some() { &["exclusive", "shared"] } else { &[] };
                for scope in scopes {
                    let entry = format!(
                        "<D:lockentry>\n<D:lockscope><D:{scope}/></D:lockscope>\n\
                         <D:locktype><D:write/></D:locktype>\n</D:lockentry>\n"
                    );
                    out.extend_from_slice(entry.as_bytes());
                }
                out.extend_from_slice(b"</D:supportedlock>\n");
            }
            _ => return false,
        }
        true
    }
}

/// Formats the response to PROPPATCH, with the status of each property.
pub fn proppatch_response(uri: &[u8], statuses: &[(&PropertyName, &str)]) -> Vec<u8> {
    let mut out = HEAD.to_vec();
    out.extend_from_slice(b"<D:response>\n<D:href>");
    let mut escaped = Vec::new();
    escape_uri(uri, &mut escaped);
    escape_xml(&escaped, &mut out);
    out.extend_from_slice(b"</D:href>\n");
    for (name, status) in statuses {
        let mut property = Vec::new();
        write_element(name, None, &mut property);
        propstat(&property, status, &mut out);
    }
    out.extend_from_slice(b"</D:response>\n");
    out.extend_from_slice(TAIL);
    out
}

fn etag(found: &Metadata) -> Vec<u8> {
    format!("\"{:x}-{:x}\"", found.mtime(), found.len()).into_bytes()
}

fn propstat(properties: &[u8], status: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"<D:propstat>\n<D:prop>\n");
    out.extend_from_slice(properties);
    out.extend_from_slice(format!("</D:prop>\n<D:status>HTTP/1.1 {status}</D:status>\n</D:propstat>\n").as_bytes());
}

pub fn lock_discovery(locks: &[Lock], now: i64, out: &mut Vec<u8>) {
    if locks.is_empty() {
        return out.extend_from_slice(b"<D:lockdiscovery/>\n");
    }
    out.extend_from_slice(b"<D:lockdiscovery>\n");
    for lock in locks {
        let scope = if lock.exclusive { "exclusive" } else { "shared" };
        let depth = if lock.infinite { "infinity" } else { "0" };
        let text = format!(
            "<D:activelock>\n<D:locktype><D:write/></D:locktype>\n<D:lockscope><D:{scope}/></D:lockscope>\n\
             <D:depth>{depth}</D:depth>\n"
        );
        out.extend_from_slice(text.as_bytes());
        if !lock.owner.is_empty() {
            out.extend_from_slice(b"<D:owner>");
            out.extend_from_slice(&lock.owner);
            out.extend_from_slice(b"</D:owner>\n");
        }
        let (seconds, token) = (lock.expires - now, token_text(&lock.token));
        let text = format!(
            "<D:timeout>Second-{seconds}</D:timeout>\n<D:locktoken><D:href>{token}</D:href></D:locktoken>\n\
             <D:lockroot><D:href>"
        );
        out.extend_from_slice(text.as_bytes());
        let mut root = Vec::new();
        escape_uri(&lock.root, &mut root);
        escape_xml(&root, out);
        out.extend_from_slice(b"</D:href></D:lockroot>\n</D:activelock>\n");
    }
    out.extend_from_slice(b"</D:lockdiscovery>\n");
}
