//! Length of bodies (RFC 9112, 6.3) and persistence of connections (9.3), decided only here.

use http_types::{BodyLength, Fields, Known, Method, RequestHead, ResponseHead, Version};

/// Reason to refuse a well-formed head before the request is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FramingError {
    /// HTTP/1.1 without `Host`.
    MissingHost,
    /// `Content-Length` that is no number, or beyond a file offset.
    InvalidContentLength,
    /// Several `Content-Length`.
    DuplicateContentLength,
    /// Several `Transfer-Encoding`.
    DuplicateTransferEncoding,
    /// `Transfer-Encoding` in HTTP/1.0.
    TransferEncodingOnHttp10,
    /// Both fields: request smuggling.
    ContentLengthAndTransferEncoding,
    /// A coding other than `chunked`.
    UnknownTransferEncoding,
    /// CONNECT without `tunnel_pass`.
    ConnectNotAllowed,
    /// CONNECT with a body.
    ConnectWithBody,
    /// TRACE.
    TraceNotAllowed,
}

impl FramingError {
    /// nginx's status for a client (`ngx_http_process_request_header`); 502 for any upstream.
    pub fn status(&self) -> u16 {
        match self {
            FramingError::UnknownTransferEncoding => 501,
            FramingError::ConnectNotAllowed | FramingError::TraceNotAllowed => 405,
            _ => 400,
        }
    }

    /// nginx's log message about a client, without values.
    pub fn message(&self) -> &'static str {
        match self {
            FramingError::MissingHost => "client sent HTTP/1.1 request without \"Host\" header",
            FramingError::InvalidContentLength => "client sent invalid \"Content-Length\" header",
            FramingError::DuplicateContentLength => "client sent duplicate header line: \"Content-Length\"",
            FramingError::DuplicateTransferEncoding => "client sent duplicate header line: \"Transfer-Encoding\"",
            FramingError::TransferEncodingOnHttp10 => "client sent HTTP/1.0 request with \"Transfer-Encoding\" header",
            FramingError::ContentLengthAndTransferEncoding => {
                "client sent \"Content-Length\" and \"Transfer-Encoding\" headers at the same time"
            }
            FramingError::UnknownTransferEncoding => "client sent unknown \"Transfer-Encoding\"",
            FramingError::ConnectNotAllowed => "client sent CONNECT method",
            FramingError::ConnectWithBody => "client sent CONNECT request with body",
            FramingError::TraceNotAllowed => "client sent TRACE method",
        }
    }

    /// Returns nginx's log message about a server, without values.
    pub fn upstream_message(&self) -> &'static str {
        match self {
            FramingError::DuplicateContentLength | FramingError::DuplicateTransferEncoding => {
                "upstream sent duplicate header line"
            }
            FramingError::ContentLengthAndTransferEncoding => {
                "upstream sent \"Content-Length\" and \"Transfer-Encoding\" headers at the same time"
            }
            FramingError::UnknownTransferEncoding => "upstream sent unknown \"Transfer-Encoding\"",
            _ => "upstream sent invalid \"Content-Length\" header",
        }
    }
}

impl FramingError {
    /// [`FramingError::message`] with the value that nginx adds.
    pub fn log(&self, fields: &Fields, buf: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(self.message().as_bytes());
        if *self == FramingError::UnknownTransferEncoding {
            quote(b": \"", fields, Known::TransferEncoding, buf, out);
        }
    }

    /// [`FramingError::upstream_message`] with the value that nginx adds.
    pub fn upstream_log(&self, fields: &Fields, buf: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(self.upstream_message().as_bytes());
        match self {
            FramingError::UnknownTransferEncoding => quote(b": \"", fields, Known::TransferEncoding, buf, out),
            FramingError::InvalidContentLength => {
                quote(b": \"Content-Length: ", fields, Known::ContentLength, buf, out)
            }
            FramingError::DuplicateContentLength => twice("Content-Length", fields, Known::ContentLength, buf, out),
            FramingError::DuplicateTransferEncoding => {
                twice("Transfer-Encoding", fields, Known::TransferEncoding, buf, out)
            }
            _ => {}
        }
    }
}

fn twice(name: &str, fields: &Fields, known: Known, buf: &[u8], out: &mut Vec<u8>) {
    let mut values = fields.each(known).map(|field| field.value.of(buf));
    let (first, second) = (values.next().unwrap_or_default(), values.next().unwrap_or_default());
    for (before, value) in [(": \"", second), (", previous value: \"", first)] {
        out.extend_from_slice(before.as_bytes());
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value);
        out.push(b'"');
    }
}

fn quote(before: &[u8], fields: &Fields, known: Known, buf: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(before);
    out.extend_from_slice(fields.first(known).map_or(&[], |span| span.of(buf)));
    out.push(b'"');
}

/// Checks a complete head in nginx's order: `Host`, framing, `CONNECT`, `TRACE`.
pub fn check_request(head: &RequestHead, buf: &[u8], allow_connect: bool) -> Result<BodyLength, FramingError> {
    if head.version == Version::Http11 && head.fields.first(Known::Host).is_none() {
        return Err(FramingError::MissingHost);
    }
    let body = request_body(head, buf)?;
    match head.method {
        Method::Connect if !allow_connect || head.version != Version::Http11 => Err(FramingError::ConnectNotAllowed),
        Method::Connect if !matches!(body, BodyLength::None | BodyLength::Exact(0)) => {
            Err(FramingError::ConnectWithBody)
        }
        Method::Trace => Err(FramingError::TraceNotAllowed),
        _ => Ok(body),
    }
}

/// Framing of a request's body; `None` only without any length.
pub fn request_body(head: &RequestHead, buf: &[u8]) -> Result<BodyLength, FramingError> {
    let (length, encoding) = lengths(&head.fields, buf)?;
    match encoding {
        None => Ok(length.map_or(BodyLength::None, BodyLength::Exact)),
        // HTTP/1.0 has no transfer codings: the message is not trustworthy (RFC 9112, 6.1).
        Some(_) if head.version < Version::Http11 => Err(FramingError::TransferEncodingOnHttp10),
        Some(value) if !value.eq_ignore_ascii_case(b"chunked") => Err(FramingError::UnknownTransferEncoding),
        Some(_) if length.is_some() => Err(FramingError::ContentLengthAndTransferEncoding),
        Some(_) => Ok(BodyLength::Chunked),
    }
}

/// Framing of a response (RFC 9112, 6.3); checks the head even without a body. `None` after `101` and successful
/// `CONNECT`: another protocol follows.
pub fn response_body(head: &ResponseHead, buf: &[u8], request: Method) -> Result<BodyLength, FramingError> {
    let (length, encoding) = lengths(&head.fields, buf)?;
    match encoding {
        Some(_) if length.is_some() => return Err(FramingError::ContentLengthAndTransferEncoding),
        Some(value) if !value.eq_ignore_ascii_case(b"chunked") => {
            return Err(FramingError::UnknownTransferEncoding);
        }
        _ => {}
    }
    let bodiless = request == Method::Head
        || matches!(head.status, 100..=199 | 204 | 304)
        || (request == Method::Connect && matches!(head.status, 200..=299));
    Ok(match (encoding, length) {
        _ if bodiless => BodyLength::None,
        (Some(_), _) => BodyLength::Chunked,
        (None, Some(length)) => BodyLength::Exact(length),
        (None, None) => BodyLength::UntilClose,
    })
}

type Lengths<'a> = (Option<u64>, Option<&'a [u8]>);

fn lengths<'a>(fields: &Fields, buf: &'a [u8]) -> Result<Lengths<'a>, FramingError> {
    let length = match fields.first(Known::ContentLength) {
        None => None,
        Some(_) if fields.each(Known::ContentLength).nth(1).is_some() => {
            return Err(FramingError::DuplicateContentLength);
        }
        Some(span) => Some(number(span.of(buf)).ok_or(FramingError::InvalidContentLength)?),
    };
    let encoding = match fields.first(Known::TransferEncoding) {
        None => None,
        Some(_) if fields.each(Known::TransferEncoding).nth(1).is_some() => {
            return Err(FramingError::DuplicateTransferEncoding);
        }
        Some(span) => Some(span.of(buf)),
    };
    Ok((length, encoding))
}

/// Digits only (RFC 9110, 8.6), up to the largest file offset.
fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let mut value = 0u64;
    for &b in text {
        let digit = b.checked_sub(b'0').filter(|&d| d < 10)?;
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    (value <= i64::MAX as u64).then_some(value)
}

/// Tells whether the client allows another request (RFC 9112, 9.3). As in nginx: words anywhere in the value, `close`
/// first, the last field wins.
pub fn keep_alive(head: &RequestHead, buf: &[u8]) -> bool {
    let mut alive = head.version >= Version::Http11;
    if head.method == Method::Connect {
        return false;
    }
    for field in head.fields.each(Known::Connection) {
        let value = field.value.of(buf);
        if contains(value, b"close") {
            alive = false;
        } else if contains(value, b"keep-alive") {
            alive = true;
        }
    }
    alive
}

/// Tells whether the head allows reuse of an upstream connection; a body until close excludes it, too.
pub fn response_keep_alive(head: &ResponseHead, buf: &[u8]) -> bool {
    head.version >= Version::Http11
        && head.status != 101
        && !head.fields.each(Known::Connection).any(|f| contains(f.value.of(buf), b"close"))
}

fn contains(value: &[u8], word: &[u8]) -> bool {
    value.windows(word.len()).any(|w| w.eq_ignore_ascii_case(word))
}
