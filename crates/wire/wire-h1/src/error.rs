//! Reasons to refuse a head, with nginx's status and log message.

use http_types::{Field, Known, Span};

/// Reason to refuse a head; spans refer to the parsed buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadError {
    /// A method with bytes other than upper-case letters, `_` and `-`.
    InvalidMethod,
    /// A malformed request line or target.
    InvalidRequest,
    /// `HTTP/2.0` or above in the request line.
    InvalidVersion,
    /// HTTP/0.9 with a method other than `GET`.
    InvalidMethodHttp09,
    /// `http:///path`: an absolute target without a host.
    InvalidHost,
    /// A request line beyond the limit.
    LineTooLong,
    /// Field line beyond the limit: start and length read.
    FieldTooLong(Span),
    /// A head beyond the limit of all buffers.
    HeadTooLarge,
    /// More fields than `max_headers`.
    TooManyFields,
    /// A field with an invalid byte; the span extends from the start of the line to this byte.
    InvalidField(Span),
    /// Repeated field that must be unique.
    DuplicateField {
        /// The repeated field.
        field: Field,
        /// The first field of this name.
        previous: Field,
    },
    /// Responses: invalid status line.
    InvalidStatusLine,
}

impl HeadError {
    /// Tells whether the fault is in the request line.
    pub fn is_of_line(&self) -> bool {
        use HeadError::{InvalidHost, InvalidMethod, InvalidMethodHttp09, InvalidRequest, InvalidVersion, LineTooLong};
        matches!(
            self,
            InvalidMethod | InvalidRequest | InvalidVersion | InvalidMethodHttp09 | InvalidHost | LineTooLong
        )
    }

    /// nginx's status; 494 ("Request Header Or Cookie Too Large") becomes 400 for the client.
    pub fn status(&self) -> u16 {
        match self {
            HeadError::InvalidMethod
            | HeadError::InvalidRequest
            | HeadError::InvalidMethodHttp09
            | HeadError::InvalidHost
            | HeadError::InvalidField(_)
            | HeadError::DuplicateField { .. } => 400,
            HeadError::InvalidVersion => 505,
            HeadError::LineTooLong => 414,
            HeadError::FieldTooLong(_) | HeadError::HeadTooLarge | HeadError::TooManyFields => 494,
            HeadError::InvalidStatusLine => 502,
        }
    }

    /// Tells whether to drain the client's remaining bytes, so that it reads the answer (nginx: `lingering_close`).
    pub fn lingers(&self) -> bool {
        self.status() == 494
    }

    /// Returns nginx's log message, without the peer's bytes.
    pub fn message(&self) -> &'static str {
        match self {
            HeadError::InvalidMethod => "client sent invalid method",
            HeadError::InvalidRequest => "client sent invalid request",
            HeadError::InvalidVersion => "client sent invalid version",
            HeadError::InvalidMethodHttp09 => "client sent invalid method in HTTP/0.9 request",
            HeadError::InvalidHost => "client sent invalid host in request line",
            HeadError::LineTooLong => "client sent too long URI",
            HeadError::FieldTooLong(_) => "client sent too long header line",
            HeadError::HeadTooLarge => "client sent too large request",
            HeadError::TooManyFields => "client sent too many header lines",
            HeadError::InvalidField(_) => "client sent invalid header line",
            HeadError::DuplicateField { field, .. } if field.known == Known::Host => {
                "client sent duplicate host header"
            }
            HeadError::DuplicateField { .. } => "client sent duplicate header line",
            HeadError::InvalidStatusLine => "upstream sent no valid HTTP/1.0 header",
        }
    }

    /// Writes nginx's log message with the peer's raw bytes, which the log escapes.
    pub fn log(&self, buf: &[u8], out: &mut Vec<u8>) {
        const SHOWN_MAX: usize = 2048 - 300; // NGX_MAX_ERROR_STR - 300
        out.extend_from_slice(self.message().as_bytes());
        match self {
            HeadError::FieldTooLong(span) => {
                let line = span.of(buf);
                out.extend_from_slice(b": \"");
                out.extend_from_slice(line.get(..SHOWN_MAX).unwrap_or(line));
                out.extend_from_slice(b"...\"");
            }
            HeadError::InvalidField(span) => {
                let bad = buf.get(span.end as usize).copied().unwrap_or(0);
                out.extend_from_slice(b": \"");
                out.extend_from_slice(span.of(buf));
                out.extend_from_slice(format!("\\x{bad:02x}...\"").as_bytes());
            }
            HeadError::DuplicateField { field, previous } => {
                let mut pair = |before: &[u8], field: &Field| {
                    out.extend_from_slice(before);
                    out.extend_from_slice(field.name.of(buf));
                    out.extend_from_slice(b": ");
                    out.extend_from_slice(field.value.of(buf));
                    out.push(b'"');
                };
                pair(b": \"", field);
                pair(b", previous value: \"", previous);
            }
            _ => {}
        }
    }
}
