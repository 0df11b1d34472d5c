//! Details of a message, in lines of text and as members of objects.

use std::borrow::Cow;
use std::fmt::{self, Write};

/// A detail of a message: `, client: 127.0.0.1` in a line of text, and a member of an object.
#[derive(Clone, Debug)]
pub struct Detail<'a> {
    pub(crate) name: &'static str,
    /// The name in a line of text.
    label: &'static str,
    pub(crate) value: Cow<'a, str>,
    form: Form,
    /// Follows the value in a line of text.
    suffix: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Plain,
    Quoted,
    /// Without a name.
    Bare,
    /// In objects only.
    Hidden,
}

impl<'a> Detail<'a> {
    fn of(name: &'static str, value: impl Into<Cow<'a, str>>, form: Form) -> Self {
        Detail { name, label: name, value: value.into(), form, suffix: "" }
    }
    /// `, name: value`
    pub fn new(name: &'static str, value: impl Into<Cow<'a, str>>) -> Self {
        Detail::of(name, value, Form::Plain)
    }
    /// `, name: "value"`
    pub fn quoted(name: &'static str, value: impl Into<Cow<'a, str>>) -> Self {
        Detail::of(name, value, Form::Quoted)
    }
    /// `, value`
    pub fn bare(name: &'static str, value: impl Into<Cow<'a, str>>) -> Self {
        Detail::of(name, value, Form::Bare)
    }
    /// Not in lines of text.
    pub fn hidden(name: &'static str, value: impl Into<Cow<'a, str>>) -> Self {
        Detail::of(name, value, Form::Hidden)
    }
    /// Has another name in lines of text.
    #[must_use]
    pub fn labelled(mut self, label: &'static str) -> Self {
        self.label = label;
        self
    }
    /// Has words after the value in lines of text.
    #[must_use]
    pub fn followed_by(mut self, suffix: &'static str) -> Self {
        self.suffix = suffix;
        self
    }
    /// Tells whether lines of text have the detail.
    pub(crate) fn is_shown(&self) -> bool {
        self.form != Form::Hidden
    }
    pub(crate) fn write(&self, out: &mut impl Write) -> fmt::Result {
        let Detail { label, value, suffix, .. } = self;
        match self.form {
            Form::Plain => write!(out, ", {label}: {value}{suffix}"),
            Form::Quoted => write!(out, ", {label}: \"{value}\"{suffix}"),
            Form::Bare => write!(out, ", {value}{suffix}"),
            Form::Hidden => Ok(()),
        }
    }
}

/// Appends a string in quotes, cut at a character's end (RFC 8259, section 7).
pub(crate) fn string(text: &str, bytes_max: usize, out: &mut String) {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    out.push('"');
    for c in text.get(..end).unwrap_or_default().chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            // Also separators that readers of lines may take for line breaks.
            c if u32::from(c) < 0x20 || c == '\u{7f}' || ('\u{80}'..='\u{9f}').contains(&c) => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            '\u{2028}' | '\u{2029}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
