//! The request line (RFC 9112, 3): a fast path and a general one.

use crate::bytes::{self, HOST, LITERAL, METHOD, TARGET_END};
use crate::error::HeadError;
use crate::scan;
use http_types::{Method, RequestHead, Span, Version};

/// Fast path: common method, plain origin-form path, `HTTP/1.x`, CRLF. Returns the end; `None`: for [`any`].
#[inline(always)]
pub(crate) fn usual(buf: &[u8], start: usize, head: &mut RequestHead) -> Option<usize> {
    let (method, method_len) = match buf.get(start..)?.first_chunk()? {
        b"GET /" => (Method::Get, 3),
        b"HEAD " => (Method::Head, 4),
        b"POST " => (Method::Post, 4),
        b"PUT /" => (Method::Put, 3),
        _ => return None,
    };
    let target = start + method_len + 1;
    if buf.get(target) != Some(&b'/') {
        return None;
    }
    let mut at = target;
    let path_end = loop {
        let &bytes = buf.get(at..)?.first_chunk::<{ scan::WIDTH + 1 }>()?;
        let [first, next @ ..] = bytes;
        let next = u64::from_le_bytes(next);
        let found = scan::not_plain_path(next << 8 | u64::from(first), next);
        if found != 0 {
            break at + scan::index(found);
        }
        at += scan::WIDTH;
    };
    let mut end = path_end;
    head.args = Span::default();
    if buf.get(end) == Some(&b'?') {
        end = scan::first(buf, end + 1, scan::args_end)?;
        head.args = Span::at(path_end + 1, end);
    }
    let rest = buf.get(end..)?.first_chunk::<11>()?;
    head.version = match rest {
        b" HTTP/1.1\r\n" => Version::Http11,
        b" HTTP/1.0\r\n" => Version::Http10,
        _ => return None,
    };
    head.method = method;
    head.method_span = Span::at(start, start + method_len);
    head.target = Span::at(target, end);
    head.line = Span::at(start, end + 9);
    head.protocol = Span::at(end + 1, end + 9);
    head.path = Span::at(target, path_end);
    head.complex = false;
    Some(end + 11)
}

/// Reads a line without its end, at offset `base`; reports the leftmost fault (`ngx_http_parse_request_line`).
pub(crate) fn any(line: &[u8], base: usize, head: &mut RequestHead) -> Result<(), HeadError> {
    let span = |from: usize, to: usize| Span::at(base + from, base + to);
    let method_len = bytes::run(line, METHOD);
    if method_len == 0 || line.get(method_len) != Some(&b' ') {
        return Err(HeadError::InvalidMethod);
    }
    head.line = span(0, line.len());
    head.method_span = span(0, method_len);
    head.method = Method::of(line.get(..method_len).unwrap_or(&[]));
    let start = skip_spaces(line, method_len);
    let first = line.get(start).copied().unwrap_or(b'\r');
    let end = if first == b'/' && head.method != Method::Connect {
        origin(line, start, base, head)?
    } else if head.method == Method::Connect {
        let end = authority(line, start)?;
        if line.get(end) != Some(&b' ') || !has_port(line.get(start..end).unwrap_or(&[])) {
            return Err(HeadError::InvalidRequest);
        }
        head.authority = span(start, end);
        head.complex = true;
        end
    } else if first.is_ascii_alphabetic() {
        absolute(line, start, base, head)?
    } else {
        return Err(HeadError::InvalidRequest);
    };
    head.target = span(start, end);
    version(line, end, base, head)?;
    if head.scheme.start < head.scheme.end && head.authority.is_empty() {
        return Err(HeadError::InvalidHost);
    }
    Ok(())
}

fn skip_spaces(line: &[u8], mut at: usize) -> usize {
    while line.get(at) == Some(&b' ') {
        at += 1;
    }
    at
}

fn origin(line: &[u8], start: usize, base: usize, head: &mut RequestHead) -> Result<usize, HeadError> {
    let mut at = start;
    let mut complex = false;
    let mut previous = 0;
    let stop = loop {
        let Some(&b) = line.get(at) else { break b' ' };
        match b {
            b'?' | b'#' => break b,
            b'%' => complex = true,
            b'/' | b'.' if previous == b'/' => complex = true,
            _ if bytes::is(b, TARGET_END) => break b,
            _ => {}
        }
        previous = b;
        at += 1;
    };
    head.path = Span::at(base + start, base + at);
    complex |= at == start;
    let mut end = at;
    if stop == b'?' {
        end = target_end(line, at + 1);
        let args = line.get(at + 1..end).unwrap_or(&[]);
        let args_len = memchr::memchr(b'#', args).unwrap_or(args.len());
        complex |= args_len < args.len();
        head.args = Span::at(base + at + 1, base + at + 1 + args_len);
    } else if stop == b'#' {
        end = target_end(line, at + 1);
        complex = true;
    }
    head.complex = complex;
    match line.get(end) {
        None | Some(b' ') => Ok(end),
        Some(_) => Err(HeadError::InvalidRequest),
    }
}

fn target_end(line: &[u8], from: usize) -> usize {
    let rest = line.get(from..).unwrap_or(&[]);
    rest.iter().position(|&b| bytes::is(b, TARGET_END)).map_or(line.len(), |n| from + n)
}

/// absolute-form (RFC 9112, 3.2.2).
fn absolute(line: &[u8], start: usize, base: usize, head: &mut RequestHead) -> Result<usize, HeadError> {
    let rest = line.get(start..).unwrap_or(&[]);
    let is_scheme = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
    let scheme_len = rest.iter().position(|b| !is_scheme(b)).unwrap_or(rest.len());
    if !rest.get(scheme_len..).unwrap_or(&[]).starts_with(b"://") {
        return Err(HeadError::InvalidRequest);
    }
    let host = start + scheme_len + 3;
    let end = authority(line, host)?;
    head.scheme = Span::at(base + start, base + start + scheme_len);
    head.authority = Span::at(base + host, base + end);
    match line.get(end) {
        Some(b'/' | b'?') => origin(line, end, base, head),
        Some(b' ') => {
            head.complex = true;
            Ok(end)
        }
        _ => Err(HeadError::InvalidRequest),
    }
}

/// Reads `host[:port]`; returns its end. Callers validate the host.
fn authority(line: &[u8], start: usize) -> Result<usize, HeadError> {
    let rest = line.get(start..).unwrap_or(&[]);
    let mut len = match rest.first() {
        Some(b'[') => {
            let inner = bytes::run(rest.get(1..).unwrap_or(&[]), LITERAL);
            if rest.get(1 + inner) != Some(&b']') {
                return Err(HeadError::InvalidRequest);
            }
            inner + 2
        }
        _ => bytes::run(rest, HOST),
    };
    if rest.get(len) == Some(&b':') {
        let port = rest.get(len + 1..).unwrap_or(&[]);
        len += 1 + port.iter().position(|b| !b.is_ascii_digit()).unwrap_or(port.len());
    }
    Ok(start + len)
}

/// `CONNECT` names its port (RFC 9112, 3.2.3).
fn has_port(authority: &[u8]) -> bool {
    let digits = authority.iter().rev().take_while(|b| b.is_ascii_digit()).count();
    digits > 0 && authority.iter().rev().nth(digits) == Some(&b':')
}

/// Version with trailing spaces (RFC 9112, 2.3); none is HTTP/0.9.
fn version(line: &[u8], target_end: usize, base: usize, head: &mut RequestHead) -> Result<(), HeadError> {
    let at = skip_spaces(line, target_end);
    let rest = line.get(at..).unwrap_or(&[]);
    head.protocol = Span::at(base + at, base + line.len());
    match rest {
        b"HTTP/1.1" => head.version = Version::Http11,
        b"HTTP/1.0" => head.version = Version::Http10,
        [] => {
            head.version = Version::Http09;
            if head.method != Method::Get {
                return Err(HeadError::InvalidMethodHttp09);
            }
        }
        _ => head.version = odd_version(rest)?,
    }
    Ok(())
}

#[cold]
fn odd_version(rest: &[u8]) -> Result<Version, HeadError> {
    let digits = rest.strip_prefix(b"HTTP/").ok_or(HeadError::InvalidRequest)?;
    let minor = match digits {
        [b'1', b'.', minor @ ..] => minor,
        [b'2'..=b'9', ..] | [b'1', b'0'..=b'9', ..] => return Err(HeadError::InvalidVersion),
        _ => return Err(HeadError::InvalidRequest),
    };
    let len = minor.iter().position(|b| !b.is_ascii_digit()).unwrap_or(minor.len());
    let (number, rest) = minor.split_at_checked(len).ok_or(HeadError::InvalidRequest)?;
    // nginx ignores digits after the third.
    let mut value = 0u32;
    for digit in number {
        if value > 99 {
            return Err(HeadError::InvalidRequest);
        }
        value = value * 10 + u32::from(digit - b'0');
    }
    if number.is_empty() || rest.iter().any(|&b| b != b' ') {
        return Err(HeadError::InvalidRequest);
    }
    Ok(if value == 0 { Version::Http10 } else { Version::Http11 })
}
