//! Keeps CR, LF and NUL out of heads: decoded values (`$uri`, captures) could inject a field or a request; nginx sends
//! them unchanged.
//! Percent-encodes them in request targets, `Location` and `Refresh`; drops other fields with an error log message;
//! replaces line ends of configured values by spaces (RFC 9112, 5.2).

pub use crate::line_ends::{encode_line_ends, encode_target, ends_line, one_line};
use crate::request::Request;
use observe::Severity;

fn is_url(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"location") || name.eq_ignore_ascii_case(b"refresh")
}

impl Request {
    /// Sendable form of a field's value; `None`: dropped, and logged.
    pub fn field_value(&self, directive: &str, name: &[u8], value: Vec<u8>) -> Option<Vec<u8>> {
        if !ends_line(&value) {
            return Some(value);
        }
        if is_url(name) {
            return Some(encode_line_ends(&value).into_owned());
        }
        self.dropped(directive, name, &value);
        None
    }
    /// Logs that a field was left out because its value contains a line end or NUL. `directive` names the origin of the
    /// value.
    #[cold]
    pub fn dropped(&self, directive: &str, name: &[u8], value: &[u8]) {
        let (name, value) = (String::from_utf8_lossy(name), String::from_utf8_lossy(value));
        let words = format_args!(
            "\"{directive}\": field \"{name}\" is dropped: its value contains a line end or NUL: \"{value}\""
        );
        self.log(Severity::Error, words);
    }
}
