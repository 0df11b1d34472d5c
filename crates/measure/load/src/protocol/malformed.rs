//! Reasons of malformed responses, with the bytes that show them.

use wire_h1::{HeadError, HeadLimits};

/// Quotes the first line of what a server sent, at most sixty bytes.
pub fn quote_line(bytes: &[u8]) -> String {
    let line = bytes.split(|b| matches!(b, b'\r' | b'\n')).next().unwrap_or_default();
    let start = line.get(..60).unwrap_or(line);
    let more = if start.len() < line.len() { "…" } else { "" };
    format!("`{}{more}`", String::from_utf8_lossy(start).escape_debug())
}

/// Explains a malformed head.
pub(super) fn explain_head(error: HeadError, limits: &HeadLimits, bytes: &[u8]) -> String {
    let line = |from: u32| quote_line(bytes.get(from as usize..).unwrap_or_default());
    match error {
        HeadError::LineTooLong => format!("its status line is longer than {} bytes", limits.line_max),
        HeadError::FieldTooLong(_) | HeadError::HeadTooLarge => {
            format!("its head is longer than {} bytes", limits.total_max)
        }
        HeadError::TooManyFields => format!("its head has more than {} fields", limits.fields_max),
        HeadError::InvalidField(span) => format!("an invalid field in its head: {}", line(span.start)),
        HeadError::DuplicateField { field, .. } => {
            format!("a field that its head has twice: {}", line(field.name.start))
        }
        _ => format!("it begins with {}, not with `HTTP/1.1` and a status", quote_line(bytes)),
    }
}
