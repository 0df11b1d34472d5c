//! EXSLT strings.

use crate::engine::{Engine, Focus};
use crate::failure::RunResult;
use crate::xpath::XPathValue;
use crate::xpath::ast::Expr;
use crate::xpath::functions::Function;
use std::fmt::Write;

/// Characters of `str:padding`, as in libexslt.
const PADDING_MAX: usize = 100_000;

impl Engine<'_> {
    pub(super) fn call_strings(
        &mut self,
        function: Function,
        arguments: &[Expr],
        focus: &Focus,
    ) -> RunResult<XPathValue> {
        use Function as F;
        if function == F::TextConcat {
            let mut all = String::new();
            for node in self.nodes_argument(arguments, 0, focus)? {
                all.push_str(&self.string(node)?);
                self.check_text(&all)?;
            }
            return Ok(XPathValue::Text(all));
        }
        if function == F::TextPadding {
            let length = self.argument(arguments.first(), focus)?;
            let length = self.number_of(&length)?;
            let text = match arguments.get(1) {
                Some(expr) => self.eval_text(expr, focus)?,
                None => " ".into(),
            };
            let length = if length.is_nan() { 0 } else { length.max(0.0) as usize };
            self.step(length.min(PADDING_MAX) as u64)?;
            return Ok(XPathValue::Text(text.chars().cycle().take(length.min(PADDING_MAX)).collect()));
        }
        let text = self.text_argument(arguments.first(), focus)?;
        self.step(text.len() as u64)?;
        let second = match arguments.get(1) {
            Some(expr) if !matches!(function, F::TextReplace) => Some(self.eval(expr, focus)?),
            _ => None,
        };
        Ok(match function {
            F::TextTokenize | F::TextSplit => {
                let is_split = function == F::TextSplit;
                let separator = match second {
                    Some(value) => self.take_text(value)?,
                    None => if is_split { " " } else { "\t\r\n " }.into(),
                };
                let parts: Vec<String> = if separator.is_empty() {
                    text.chars().map(String::from).collect()
                } else if is_split {
                    text.split(separator.as_str()).map(String::from).collect()
                } else {
                    text.split(|c| separator.contains(c)).map(String::from).collect()
                };
                let kept = parts.iter().map(String::as_str).filter(|part| !part.is_empty());
                XPathValue::Nodes(self.text_nodes(kept, Some("token"))?.1)
            }
            F::TextEncodeUri => XPathValue::Text(encode_uri(&text, second.is_some_and(|value| value.truth()))),
            F::TextDecodeUri => XPathValue::Text(decode_uri(&text)),
            F::TextAlign => {
                let padding = match second {
                    Some(value) => self.take_text(value)?,
                    None => String::new(),
                };
                let how = match arguments.get(2) {
                    Some(expr) => self.eval_text(expr, focus)?,
                    None => "left".into(),
                };
                XPathValue::Text(align(&text, &padding, &how))
            }
            _ => self.replace(text, arguments, focus)?,
        })
    }

    /// `str:replace`: the longest of the search strings at each position.
    fn replace(&mut self, text: String, arguments: &[Expr], focus: &Focus) -> RunResult<XPathValue> {
        let list = |engine: &mut Self, index: usize| -> RunResult<(Vec<String>, bool)> {
            Ok(match engine.argument(arguments.get(index), focus)? {
                XPathValue::Nodes(nodes) => {
                    let mut texts = Vec::with_capacity(nodes.len());
                    for node in nodes {
                        texts.push(engine.string(node)?);
                    }
                    (texts, true)
                }
                value => (vec![engine.take_text(value)?], false),
            })
        };
        let (search, _) = list(self, 1)?;
        let (replace, is_set) = list(self, 2)?;
        let mut pairs: Vec<(String, String)> = search
            .into_iter()
            .enumerate()
            .map(|(at, search)| {
                let replacement = if is_set { replace.get(at) } else { replace.first() };
                (search, replacement.cloned().unwrap_or_default())
            })
            .collect();
        pairs.sort_by_key(|(search, _)| std::cmp::Reverse(search.len()));
        let (mut out, mut rest) = (String::new(), text.as_str());
        while let Some(c) = rest.chars().next() {
            self.step(pairs.len() as u64 + 1)?;
            match pairs.iter().find(|(search, _)| !search.is_empty() && rest.starts_with(search.as_str())) {
                Some((search, replacement)) => {
                    out.push_str(replacement);
                    rest = rest.get(search.len()..).unwrap_or("");
                    if out.len() > self.limits.result {
                        self.check_text(&out)?;
                    }
                }
                None => {
                    // An empty search string goes in front of every character.
                    if let Some((_, replacement)) = pairs.iter().find(|(search, _)| search.is_empty()) {
                        out.push_str(replacement);
                    }
                    out.push(c);
                    rest = rest.get(c.len_utf8()..).unwrap_or("");
                }
            }
        }
        self.check_text(&out)?;
        Ok(XPathValue::Text(out))
    }
}

fn align(text: &str, padding: &str, how: &str) -> String {
    let (text, padding): (Vec<char>, Vec<char>) = (text.chars().collect(), padding.chars().collect());
    if text.len() >= padding.len() {
        return text.into_iter().take(padding.len()).collect();
    }
    let free = padding.len() - text.len();
    let before = match how {
        "right" => free,
        "center" => free / 2,
        _ => 0,
    };
    let end = before + text.len();
    let (left, right) = (padding.iter().take(before), padding.iter().skip(end));
    left.chain(&text).chain(right).collect()
}

fn encode_uri(text: &str, escape_reserved: bool) -> String {
    let kept: &[u8] = if escape_reserved { b"-_.!~*'()" } else { b"-_.!~*'();/?:@&=+$,[]" };
    let mut out = String::new();
    for byte in text.bytes() {
        match byte.is_ascii_alphanumeric() || kept.contains(&byte) {
            true => out.push(byte as char),
            false => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

/// Decodes escapes; a text that is not UTF-8 then is empty.
fn decode_uri(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((byte, after)) = rest.split_first() {
        let digit = |at: usize| after.get(at).and_then(|b| (*b as char).to_digit(16));
        match (byte, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                rest = after.get(2..).unwrap_or(&[]);
            }
            _ => {
                bytes.push(*byte);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_default()
}
