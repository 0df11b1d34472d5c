//! A position in a text, and the tokens that documents and DTDs share.

use super::{NAME_MAX, XmlError};

/// Error without a position: libxml2's code and message.
pub(super) type ScanFault = (u32, String);

pub(super) fn fault<T>(code: u32, message: impl Into<String>) -> Result<T, ScanFault> {
    Err((code, message.into()))
}

pub(super) struct Scan<'t> {
    pub text: &'t str,
    pub at: usize,
    line_at: (usize, u32),
}

impl<'t> Scan<'t> {
    pub fn new(text: &'t str) -> Scan<'t> {
        Scan { text, at: 0, line_at: (0, 1) }
    }
    pub fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or("")
    }
    pub fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }
    pub fn ended(&self) -> bool {
        self.at >= self.text.len()
    }
    pub fn eat(&mut self, token: &str) -> bool {
        let eaten = self.rest().starts_with(token);
        if eaten {
            self.at += token.len();
        }
        eaten
    }
    pub fn skip_space(&mut self) -> bool {
        let start = self.at;
        while self.peek().is_some_and(is_space) {
            self.at += 1;
        }
        self.at > start
    }
    /// The text before a token, which is eaten, too.
    pub fn until(&mut self, token: &str) -> Option<&'t str> {
        let rest = self.rest();
        let end = rest.find(token)?;
        self.at += end + token.len();
        rest.get(..end)
    }
    /// Name (production 5); empty if there is none.
    pub fn name(&mut self) -> &'t str {
        let rest = self.rest();
        let mut end = 0;
        for (at, c) in rest.char_indices() {
            if !(if at == 0 { is_name_start(c) } else { is_name(c) }) || at > NAME_MAX {
                break;
            }
            end = at + c.len_utf8();
        }
        self.at += end;
        rest.get(..end).unwrap_or("")
    }
    pub fn line(&mut self) -> u32 {
        let (at, line) = self.line_at;
        let passed = self.text.as_bytes().get(at..self.at).unwrap_or(&[]);
        let line = line + passed.iter().filter(|byte| **byte == b'\n').count() as u32;
        self.line_at = (self.at, line);
        line
    }
    /// Character behind `&#`, with the semicolon eaten.
    pub fn char_reference(&mut self) -> Result<char, ScanFault> {
        let (radix, kind) = if self.eat("x") { (16, "hexadecimal") } else { (10, "decimal") };
        let Some(digits) = self.rest().split_once(';').map(|(digits, _)| digits).filter(|d| d.len() < 16) else {
            return fault(if radix == 16 { 6 } else { 7 }, format!("xmlParseCharRef: invalid {kind} value"));
        };
        let number = match digits.bytes().all(|b| (b as char).is_digit(radix)) {
            true => u32::from_str_radix(digits, radix).ok(),
            false => return fault(if radix == 16 { 6 } else { 7 }, format!("xmlParseCharRef: invalid {kind} value")),
        };
        self.at += digits.len() + 1;
        let number = number.unwrap_or(0x11_0000);
        match char::from_u32(number).filter(|c| is_char(*c)) {
            Some(c) => Ok(c),
            None => fault(9, format!("xmlParseCharRef: invalid xmlChar value {number}")),
        }
    }
    /// The error with the position of this scan.
    pub fn locate(&mut self, (code, message): ScanFault, uri: &str) -> XmlError {
        let mut at = self.at.min(self.text.len());
        while !self.text.is_char_boundary(at) {
            at -= 1;
        }
        let (done, rest) = self.text.split_at(at);
        let before = done.rsplit('\n').next().unwrap_or("");
        let after = rest.split('\n').next().unwrap_or("");
        let cut = before.char_indices().rev().nth(59).map_or(0, |(at, _)| at);
        let room = after.char_indices().nth(20).map_or(after.len(), |(at, _)| at);
        let line = self.line();
        XmlError {
            code,
            message,
            uri: uri.into(),
            line,
            before: before.get(cut..).unwrap_or("").into(),
            after: after.get(..room).unwrap_or("").into(),
        }
    }
}

pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

pub(crate) fn is_char(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

pub(crate) fn is_name_start(c: char) -> bool {
    matches!(c, ':' | '_' | 'a'..='z' | 'A'..='Z' | '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}' | '\u{f8}'..='\u{2ff}'
        | '\u{370}'..='\u{37d}' | '\u{37f}'..='\u{1fff}' | '\u{200c}' | '\u{200d}' | '\u{2070}'..='\u{218f}'
        | '\u{2c00}'..='\u{2fef}' | '\u{3001}'..='\u{d7ff}' | '\u{f900}'..='\u{fdcf}' | '\u{fdf0}'..='\u{fffd}'
        | '\u{10000}'..='\u{effff}')
}

pub(crate) fn is_name(c: char) -> bool {
    is_name_start(c) || matches!(c, '-' | '.' | '0'..='9' | '\u{b7}' | '\u{300}'..='\u{36f}' | '\u{203f}'..='\u{2040}')
}

/// NCName of namespaces: a name without a colon.
pub(crate) fn is_ncname(text: &str) -> bool {
    text.chars().enumerate().all(|(at, c)| c != ':' && if at == 0 { is_name_start(c) } else { is_name(c) })
        && !text.is_empty()
}
