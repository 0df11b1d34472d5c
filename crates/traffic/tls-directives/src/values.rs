//! Value types.

use super::dynamic::CertificateCache;
use crate::acme_clients::PLACEHOLDER;
use conf_schema::value::{parse_decimal, parse_sec, word_at};
use conf_schema::{At, Cx, Directive, Problem, ValueKind};
use std::path::PathBuf;
use std::sync::Arc;
use variables::{AreaTypes, Template};

conf_schema::word_set! {
    pub struct TlsProtocols {
        SSL2 = 1 "SSLv2", SSL3 = 2 "SSLv3", TLS1 = 4 "TLSv1", TLS1_1 = 8 "TLSv1.1", TLS1_2 = 16 "TLSv1.2", TLS1_3 = 32 "TLSv1.3",
    }
}

impl TlsProtocols {
    pub fn settings(self) -> tls::Protocols {
        let older = Self(Self::SSL2.0 | Self::SSL3.0 | Self::TLS1.0 | Self::TLS1_1.0);
        tls::Protocols { tls12: self.has(Self::TLS1_2), tls13: self.has(Self::TLS1_3), older: self.has(older) }
    }
}

/// Certificate or key: a file, `data:` with its text, or variables that evaluate to either.
pub struct Pem<A> {
    pub text: String,
    pub template: Template<A>,
    /// Position; the file is read with the server's plan.
    pub at: At,
}

impl<A> Clone for Pem<A> {
    fn clone(&self) -> Self {
        Pem { text: self.text.clone(), template: self.template.clone(), at: self.at }
    }
}

impl<A> Pem<A> {
    pub fn is_dynamic(&self) -> bool {
        self.template.as_literal().is_none()
    }
}

/// Start of the variables of an ACME client.
const CLIENT_VARIABLE: &[u8] = b"$acme_cert_";

fn is_of_variable(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || *byte == b'_'
}

impl<A: AreaTypes> ValueKind for Pem<A> {
    const SYNTAX: &'static str = "file";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let word = word_at(d, 0)?;
        // Before a client's first certificate, its placeholder: the variable itself is empty then.
        let own = word.bytes.strip_prefix(CLIENT_VARIABLE).filter(|name| name.iter().all(is_of_variable));
        let text = own.map(|name| [CLIENT_VARIABLE, PLACEHOLDER.as_bytes(), name].concat());
        let template = Template::compile(cx, d, text.as_deref().unwrap_or(&word.bytes)).map_err(|p| p.at(0))?;
        Ok(Pem { text: word.text().into_owned(), template, at: At { span: word.span, line: d.line } })
    }
}

/// `ssl_ciphers`: OpenSSL's cipher string.
#[derive(Clone, Debug)]
pub struct Ciphers {
    pub text: String,
    /// Position; the default position for a default.
    pub at: At,
}

impl ValueKind for Ciphers {
    const SYNTAX: &'static str = "ciphers";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let word = word_at(d, 0)?;
        let at = At { span: word.span, line: d.line };
        let written = word.span.file.0 != u32::MAX;
        Ok(Ciphers { text: word.text().into_owned(), at: if written { at } else { At::default() } })
    }
}

/// `ssl_password_file`: passwords of keys, one per line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passwords {
    /// Empty where the process that holds the keys reads the file.
    pub lines: Arc<Vec<Vec<u8>>>,
    pub file: Option<PathBuf>,
}

/// Longest line (nginx: `NGX_SSL_PASSWORD_BUFFER_SIZE`).
const LINE_MAX: usize = 4096;

impl ValueKind for Passwords {
    const SYNTAX: &'static str = "file";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let path = cx.conf_full_name(&word_at(d, 0)?.text());
        let shown = path.display();
        let unopened = |why: std::io::Error| {
            let call = if why.kind() == std::io::ErrorKind::IsADirectory { "read" } else { "open" };
            Problem::says(format!("{call}() \"{shown}\" failed {}", super::files::os(&why))).at(0)
        };
        if cx.store.has_stand_ins() {
            if !cx.store.replay {
                conf_syntax::open_regular(&path).map_err(unopened)?;
            }
            return Ok(Passwords { lines: Arc::default(), file: Some(path) });
        }
        let bytes = cx.store.read(&path).map_err(unopened)?;
        let lines =
            split_passwords(&bytes).ok_or_else(|| Problem::says(format!("too long line in \"{shown}\"")).at(0))?;
        Ok(Passwords { lines: Arc::new(lines), file: Some(path) })
    }
}

/// Splits a file of passwords; `None` if a line is too long.
pub fn split_passwords(text: &[u8]) -> Option<Vec<Vec<u8>>> {
    let lines = text.split(|c| *c == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let mut all: Vec<Vec<u8>> = lines.filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect();
    if all.iter().any(|line| line.len() >= LINE_MAX) {
        return None;
    }
    if all.is_empty() {
        all.push(Vec::new());
    }
    Some(all)
}

/// `ssl_certificate_cache`; blocks that inherit it share it.
#[derive(Clone, Debug)]
pub enum CacheOf {
    Off,
    On(Arc<CertificateCache>),
}

impl ValueKind for CacheOf {
    const SYNTAX: &'static str = "off | max=N [inactive=time] [valid=time]";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let (mut max, mut inactive, mut valid, mut off) = (0, 10, 60, false);
        for (index, word) in d.args.iter().enumerate() {
            let text = word.text();
            let invalid = || Problem::says(format!("invalid parameter \"{text}\"")).at(index);
            match text.split_once('=') {
                None if text == "off" && d.args.len() == 1 => return Ok(CacheOf::Off),
                None if text == "off" => off = true,
                Some(("max", n)) => max = parse_decimal(n).filter(|n| *n > 0).ok_or_else(invalid)?,
                Some(("inactive", t)) => inactive = parse_sec(t.as_bytes()).ok_or_else(invalid)?,
                Some(("valid", t)) => valid = parse_sec(t.as_bytes()).ok_or_else(invalid)?,
                _ => return Err(invalid()),
            }
        }
        if off {
            return Ok(CacheOf::Off);
        }
        if max == 0 {
            return Err(Problem::says(format!("\"{}\" must have the \"max\" parameter", d.name.text())));
        }
        Ok(CacheOf::On(Arc::new(CertificateCache::new(max, inactive, valid))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use conf_schema::table::synthetic_directive;

    #[test]
    fn caches_are_read_as_nginx_reads_them() {
        let read = |text: &str| {
            let read = CacheOf::parse(&mut Cx::default(), &synthetic_directive("ssl_certificate_cache", text));
            read.map_err(|p| format!("{:?}", p.words)).map(|cache| match cache {
                CacheOf::Off => None,
                CacheOf::On(cache) => Some((cache.max, cache.inactive, cache.valid)),
            })
        };
        assert_eq!(read("off"), Ok(None));
        assert_eq!(read("max=3"), Ok(Some((3, 10, 60))));
        assert_eq!(read("max=3 inactive=1m valid=2s"), Ok(Some((3, 60, 2))));
        assert!(read("valid=2s").expect_err("no max").contains("must have the \\\"max\\\" parameter"));
        assert!(read("max=0").expect_err("none").contains("invalid parameter \\\"max=0\\\""));
    }
}
