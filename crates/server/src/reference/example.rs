//! Examples of directives: short lines from `examples.txt`, completed to configurations that `tidegate -t` accepts.
//!
//! Form of `examples.txt`: a line `[area]` starts an area. In an area, a line that is not indented is the example of its first
//! word; lines that are indented or begin with `}` continue it. `= NAME` starts an example of several directives, indented below
//! it. `*_` at the start of a name stands for the prefix of every module that passes requests on and knows the directive.
//!
//! Completion puts each line into the innermost permitted block, and adds required lines: certificates, the protocol of
//! a mail server, the server to pass a request to.

use conf_schema::{ContextArea, KnownDirective, vocabulary};
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::OnceLock;

const TEXT: &str = include_str!("examples.txt");

/// Proxy modules with the line that passes a request.
const FAMILIES: &[(&str, &str)] = &[
    ("proxy", "proxy_pass http://127.0.0.1:8080;"),
    ("fastcgi", "fastcgi_pass 127.0.0.1:9000;"),
    ("uwsgi", "uwsgi_pass 127.0.0.1:3031;"),
    ("scgi", "scgi_pass 127.0.0.1:4000;"),
    ("grpc", "grpc_pass grpc://127.0.0.1:50051;"),
    ("memcached", "set $memcached_key $uri; memcached_pass 127.0.0.1:11211;"),
    ("tunnel", "tunnel_pass;"),
];

const CERTIFICATE: &str = "ssl_certificate example.crt;";
const KEY: &str = "ssl_certificate_key example.key;";

/// Returns the example of a directive as a complete configuration, without `events { }` where it stands elsewhere.
pub fn directive_example(known: &KnownDirective) -> Option<String> {
    let lines = texts().get(&(known.area(), known.name.to_string()))?;
    Some(complete(known, lines))
}

type ExampleTexts = HashMap<(ContextArea, String), Vec<String>>;

fn texts() -> &'static ExampleTexts {
    static TEXTS: OnceLock<ExampleTexts> = OnceLock::new();
    TEXTS.get_or_init(|| {
        let mut texts = ExampleTexts::new();
        for (area, name, lines) in parsed(TEXT) {
            for (name, lines) in members(area, &name, &lines) {
                texts.entry((area, name)).or_insert(lines);
            }
        }
        texts
    })
}

/// Splits the file into examples: area, name, lines.
fn parsed(text: &str) -> Vec<(ContextArea, String, Vec<String>)> {
    let mut examples: Vec<(ContextArea, String, Vec<String>)> = Vec::new();
    let mut area = None;
    let mut is_headed = false;
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(name) = line.strip_prefix('[') {
            area = area_of(name.trim_end_matches(']'));
            continue;
        }
        let Some(area) = area else { continue };
        if let Some(name) = line.strip_prefix("= ") {
            examples.push((area, name.to_string(), Vec::new()));
            is_headed = true;
        } else if line.starts_with(' ') || line.starts_with('}') {
            if let Some((_, _, lines)) = examples.last_mut() {
                lines.push(if is_headed { line[4..].to_string() } else { line.to_string() });
            }
        } else {
            examples.push((area, first_word(line).to_string(), vec![line.to_string()]));
            is_headed = false;
        }
    }
    examples
}

fn area_of(name: &str) -> Option<ContextArea> {
    Some(match name {
        "main" => ContextArea::Main,
        "http" => ContextArea::Http,
        "upstream" => ContextArea::HttpUpstream,
        "stream" => ContextArea::Stream,
        "stream upstream" => ContextArea::StreamUpstream,
        "mail" => ContextArea::Mail,
        _ => return None,
    })
}

fn first_word(line: &str) -> &str {
    line.split([' ', ';']).next().unwrap_or_default()
}

/// Expands an example with `*_` to one per module that has the directive.
fn members(area: ContextArea, name: &str, lines: &[String]) -> Vec<(String, Vec<String>)> {
    let Some(rest) = name.strip_prefix("*_") else { return vec![(name.to_string(), lines.to_vec())] };
    let of_family = |(prefix, _): &(&str, &str)| {
        let prefix = format!("{prefix}_");
        let name = format!("{prefix}{rest}");
        known_in(area, &name)?;
        // Drops directives that this module does not have.
        let named = lines.iter().map(|line| line.replace("*_", &prefix));
        Some((name, named.filter(|line| !line.starts_with(&prefix) || is_known(area, line)).collect()))
    };
    FAMILIES.iter().filter_map(of_family).collect()
}

fn known_in(area: ContextArea, name: &str) -> Option<&'static KnownDirective> {
    vocabulary::find_directives(name).iter().copied().find(|known| known.area() == area)
}

fn is_known(area: ContextArea, line: &str) -> bool {
    known_in(area, first_word(line)).is_some()
}

/// The blocks of an area, from the outermost to the innermost, with the names of their contexts.
fn blocks(area: ContextArea) -> &'static [(&'static str, &'static str)] {
    match area {
        ContextArea::Main => &[("", "main"), ("events", "events")],
        ContextArea::Http => &[("", "main"), ("http", "http"), ("server", "server"), ("location /", "location")],
        ContextArea::HttpUpstream => &[("", "main"), ("http", "http"), ("upstream app", "upstream")],
        ContextArea::Stream => &[("", "main"), ("stream", "stream"), ("server", "stream server")],
        ContextArea::StreamUpstream => &[("", "main"), ("stream", "stream"), ("upstream databases", "stream upstream")],
        ContextArea::Mail => &[("", "main"), ("mail", "mail"), ("server", "mail server")],
    }
}

/// Returns the depths of the blocks of an area that may hold a directive, the outermost first.
fn depths(area: ContextArea, name: &str) -> Vec<usize> {
    let Some(known) = known_in(area, name) else { return vec![0] };
    let allowed = known.contexts.to_string();
    let allowed: Vec<&str> = allowed.split(", ").collect();
    let all = blocks(area).iter().enumerate();
    all.filter(|(_, (_, context))| allowed.contains(context)).map(|(depth, _)| depth).collect()
}

/// Returns the depth of the block that shows a directive: the innermost one.
fn depth(area: ContextArea, name: &str) -> usize {
    let depths = depths(area, name);
    // A location belongs into its server, not into the example's `location /`.
    let found = if name == "location" { depths.first() } else { depths.last() };
    found.copied().unwrap_or(0)
}

/// Returns the depth for a line of an example: that of the documented directive, if permitted.
fn depth_beside(area: ContextArea, name: &str, shown: usize) -> usize {
    let depths = depths(area, name);
    if name == "location" {
        return depths.first().copied().unwrap_or(0);
    }
    let outside = depths.iter().rev().find(|depth| **depth <= shown);
    outside.or(depths.first()).copied().unwrap_or(0)
}

fn complete(known: &KnownDirective, lines: &[String]) -> String {
    let area = known.area();
    let mut held: Vec<Vec<String>> = vec![Vec::new(); blocks(area).len()];
    let shown = depth(area, known.name);
    let mut level = shown;
    for line in lines {
        if !(line.starts_with(' ') || line.starts_with('}')) {
            let word = first_word(line);
            level = if word == known.name { shown } else { depth_beside(area, word, shown) };
        }
        held[level].push(line.clone());
    }
    add_needed(known, &mut held);
    let mut out = String::new();
    write_blocks(blocks(area), &held, 0, &mut out);
    out
}

/// Adds required lines that the example omits.
fn add_needed(known: &KnownDirective, held: &mut [Vec<String>]) {
    let area = known.area();
    let name = known.name;
    let has = |held: &[Vec<String>], word: &str| held.iter().flatten().any(|line| first_word(line) == word);
    let Some(innermost) = held.len().checked_sub(1) else { return };
    match area {
        ContextArea::Http => {
            let family = FAMILIES.iter().find(|(prefix, _)| name.starts_with(&format!("{prefix}_")));
            if let Some((prefix, pass)) = family
                && depth(area, name) == innermost
                && !has(held, &format!("{prefix}_pass"))
            {
                held[innermost].extend(pass.split_inclusive("; ").map(|line| line.trim().to_string()));
            }
            if name.starts_with("ssl_") || name.starts_with("http2") {
                add_certificate(held, "listen 443 ssl;");
            }
            if name.starts_with("http3") || name.starts_with("quic_") {
                add_certificate(held, "listen 443 quic reuseport;");
            }
            if name.starts_with("http2_") && !has(held, "http2") {
                held[innermost - 1].insert(3, "http2 on;".to_string());
            }
        }
        ContextArea::Stream if !lines_are_a_block(held, innermost) => {
            if name.starts_with("ssl_") && name != "ssl_preread" {
                add_certificate(held, "listen 127.0.0.1:5432 ssl;");
            } else if !has(held, "listen") {
                held[innermost].insert(0, "listen 127.0.0.1:5432;".to_string());
            }
            if !has(held, "proxy_pass") && !has(held, "return") && !has(held, "pass") {
                held[innermost].push("proxy_pass 127.0.0.1:15432;".to_string());
            }
        }
        ContextArea::Mail if !lines_are_a_block(held, innermost) => {
            if name.starts_with("ssl_") {
                add_certificate(held, "listen 127.0.0.1:993 ssl;");
            }
            let (port, protocol) = match name.split('_').next() {
                Some("smtp") => ("25", "smtp"),
                Some("pop3") => ("110", "pop3"),
                _ => ("143", "imap"),
            };
            if !has(held, "protocol") {
                held[innermost].insert(0, format!("protocol {protocol};"));
            }
            if !has(held, "listen") {
                held[innermost].insert(0, format!("listen 127.0.0.1:{port};"));
            }
            if !has(held, "auth_http") {
                held[innermost - 1].insert(0, "auth_http 127.0.0.1:9000/auth;".to_string());
            }
        }
        _ => {}
    }
}

/// Tells an example that brings its own servers, or that only concerns the outer block.
fn lines_are_a_block(held: &[Vec<String>], innermost: usize) -> bool {
    held[innermost].is_empty() && held.iter().flatten().any(|line| line.ends_with('{'))
}

/// Unless the example names its own.
fn add_certificate(held: &mut [Vec<String>], listen: &str) {
    let server = if held.len() > 3 { 2 } else { held.len() - 1 };
    let missing = [listen, CERTIFICATE, KEY];
    let missing: Vec<String> = missing
        .iter()
        .filter(|line| !held[server].iter().any(|own| first_word(own) == first_word(line)))
        .map(ToString::to_string)
        .collect();
    held[server].splice(0..0, missing);
}

/// Writes the lines of a block and the blocks inside it; blocks without lines are left out.
fn write_blocks(blocks: &[(&str, &str)], held: &[Vec<String>], indent: usize, out: &mut String) {
    let (Some((name, _)), Some(lines)) = (blocks.first(), held.first()) else { return };
    if held.iter().all(Vec::is_empty) {
        return;
    }
    let inner = if name.is_empty() { indent } else { indent + 1 };
    if !name.is_empty() {
        let _ = writeln!(out, "{}{name} {{", "    ".repeat(indent));
    }
    for line in lines {
        let _ = writeln!(out, "{}{line}", "    ".repeat(inner));
    }
    write_blocks(&blocks[1..], &held[1..], inner, out);
    if !name.is_empty() {
        let _ = writeln!(out, "{}}}", "    ".repeat(indent));
    }
}

#[cfg(test)]
#[path = "example_tests.rs"]
mod tests;
