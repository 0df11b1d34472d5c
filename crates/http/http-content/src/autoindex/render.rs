//! Formats of a listing, byte for byte as in nginx.

use super::{Entry, EntryKind, IndexSettings};
use observe::clock::{civil_time, http_time, local_offset};
use std::io::Write as _;

/// Characters to which HTML listings cut names.
const NAME_CHARS: usize = 50;
const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Writes the page; `utf8` counts characters instead of bytes.
pub fn render_html(list: &IndexSettings, path: &[u8], entries: &[Entry], utf8: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(256 + entries.len() * 160);
    out.extend_from_slice(b"<html>\r\n<head><title>Index of ");
    escape_html(path, &mut out);
    out.extend_from_slice(b"</title></head>\r\n<body>\r\n<h1>Index of ");
    escape_html(path, &mut out);
    out.extend_from_slice(b"</h1><hr><pre><a href=\"../\">../</a>\r\n");
    for entry in entries {
        line(list, entry, utf8, &mut out);
    }
    out.extend_from_slice(b"</pre><hr></body>\r\n</html>\r\n");
    out
}

fn line(list: &IndexSettings, entry: &Entry, utf8: bool, out: &mut Vec<u8>) {
    let folder = entry.kind == EntryKind::Folder;
    out.extend_from_slice(b"<a href=\"");
    escape_component(&entry.name, out);
    out.extend_from_slice(if folder { b"/\">" } else { b"\">" });
    let (mut length, short) = shorten(&entry.name, utf8);
    escape_html(short, out);
    if length > NAME_CHARS {
        out.extend_from_slice(b"..&gt;</a>");
    } else {
        if folder && length < NAME_CHARS {
            out.push(b'/');
            length += 1;
        }
        out.extend_from_slice(b"</a>");
        out.resize(out.len() + NAME_CHARS - length, b' ');
    }
    let offset = if list.local_time { i64::from(local_offset(entry.modified)) } else { 0 };
    let t = civil_time(entry.modified + offset);
    let month = MONTHS.get(usize::from(t.month).wrapping_sub(1)).unwrap_or(&"???");
    let _ = write!(out, " {:02}-{month}-{} {:02}:{:02} ", t.day, t.year, t.hour, t.minute);
    let _ = match (list.exact_size, folder) {
        (true, true) => write!(out, "{:>19}\r\n", '-'),
        (true, false) => write!(out, "{:>19}\r\n", entry.size),
        (false, true) => write!(out, "{:>7}\r\n", '-'),
        (false, false) => {
            let (number, unit) = rounded(entry.size);
            match unit {
                Some(unit) => write!(out, "{number:>6}{unit}\r\n"),
                None => write!(out, " {number:>6}\r\n"),
            }
        }
    };
}

/// Length in characters, and the shown part.
fn shorten(name: &[u8], utf8: bool) -> (usize, &[u8]) {
    let text = if utf8 { std::str::from_utf8(name).ok() } else { None };
    let keep = NAME_CHARS - 3;
    match text {
        Some(text) => {
            let length = text.chars().count();
            let end = text.char_indices().nth(keep).map_or(name.len(), |(at, _)| at);
            (length, if length > NAME_CHARS { name.get(..end).unwrap_or(name) } else { name })
        }
        None => (name.len(), if name.len() > NAME_CHARS { name.get(..keep).unwrap_or(name) } else { name }),
    }
}

/// Bytes up to 9999, then rounded kilobytes, megabytes, gigabytes.
fn rounded(size: u64) -> (u64, Option<char>) {
    let (shift, unit) = match size {
        0..=9999 => return (size, None),
        10_000..=0xf_ffff => (10, 'K'),
        0x10_0000..=0x3fff_ffff => (20, 'M'),
        _ => (30, 'G'),
    };
    let half = 1u64 << (shift - 1);
    (size.saturating_add(half) >> shift, Some(unit))
}

fn word(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::Folder => "directory",
        EntryKind::File => "file",
        EntryKind::Other => "other",
    }
}

/// With a callback as its call.
pub fn render_json(entries: &[Entry], callback: Option<&[u8]>) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + entries.len() * 120);
    if let Some(name) = callback {
        out.extend_from_slice(b"/* callback */\r\n");
        out.extend_from_slice(name);
        out.push(b'(');
    }
    out.push(b'[');
    for (index, entry) in entries.iter().enumerate() {
        out.extend_from_slice(if index > 0 { b",\r\n{ \"name\":\"" } else { b"\r\n{ \"name\":\"" });
        escape_json(&entry.name, &mut out);
        let _ = write!(out, "\", \"type\":\"{}\", \"mtime\":\"", word(entry.kind));
        out.extend_from_slice(&http_time(entry.modified));
        out.push(b'"');
        if entry.kind == EntryKind::File {
            let _ = write!(out, ", \"size\":{}", entry.size);
        }
        out.extend_from_slice(b" }");
    }
    out.extend_from_slice(b"\r\n]");
    if callback.is_some() {
        out.extend_from_slice(b");");
    }
    out
}

pub fn render_xml(entries: &[Entry]) -> Vec<u8> {
    let mut out = Vec::with_capacity(64 + entries.len() * 100);
    out.extend_from_slice(b"<?xml version=\"1.0\"?>\r\n<list>\r\n");
    for entry in entries {
        let (word, t) = (word(entry.kind), civil_time(entry.modified));
        let _ = write!(
            out,
            "<{word} mtime=\"{:4}-{:02}-{:02}T{:02}:{:02}:{:02}Z\"",
            t.year, t.month, t.day, t.hour, t.minute, t.second
        );
        if entry.kind == EntryKind::File {
            let _ = write!(out, " size=\"{}\"", entry.size);
        }
        out.push(b'>');
        escape_html(&entry.name, &mut out);
        let _ = write!(out, "</{word}>\r\n");
    }
    out.extend_from_slice(b"</list>\r\n");
    out
}

fn escape_html(text: &[u8], out: &mut Vec<u8>) {
    for &c in text {
        match c {
            b'&' => out.extend_from_slice(b"&amp;"),
            b'<' => out.extend_from_slice(b"&lt;"),
            b'>' => out.extend_from_slice(b"&gt;"),
            b'"' => out.extend_from_slice(b"&quot;"),
            c => out.push(c),
        }
    }
}

/// Percent-encodes everything but unreserved characters (RFC 3986, 2.3).
fn escape_component(text: &[u8], out: &mut Vec<u8>) {
    for &c in text {
        if c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.' | b'_' | b'~') {
            out.push(c);
        } else {
            let _ = write!(out, "%{c:02X}");
        }
    }
}

fn escape_json(text: &[u8], out: &mut Vec<u8>) {
    for &c in text {
        match c {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', c]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            8 => out.extend_from_slice(b"\\b"),
            12 => out.extend_from_slice(b"\\f"),
            0..0x20 => {
                let _ = write!(out, "\\u00{c:02X}");
            }
            c => out.push(c),
        }
    }
}
