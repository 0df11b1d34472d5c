//! State of a request and its subrequests: variables, blocks, captures.

use http_engine::Request;
use http_engine::regex::{Captures, HttpPattern, MatchFailed};
use observe::Severity;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// Maximum number of variables per request.
const VARIABLES_MAX: usize = 10_000;
/// Maximum bytes of all variables of a request: a value may contain others, and so double with each command.
const VARIABLE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Maximum bytes of a text with its variables expanded.
const EXPANDED_BYTES_MAX: usize = 1024 * 1024;
/// Maximum bytes of all blocks of a request.
const BLOCK_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A command failed; it has been logged, and the page shows its error message.
#[derive(Debug)]
pub struct CommandFailed;

#[derive(Default)]
struct SsiVariables {
    values: HashMap<Vec<u8>, Vec<u8>>,
    /// Of names and values.
    bytes: usize,
}

#[derive(Default)]
pub struct PageState {
    variables: RefCell<SsiVariables>,
    blocks: RefCell<Vec<(Vec<u8>, Vec<u8>)>>,
    captures: RefCell<Captures>,
}

impl PageState {
    /// Created on first use.
    pub fn of(r: &mut Request) -> Rc<PageState> {
        match r.shared::<PageState>() {
            Some(shared) => shared,
            None => {
                let shared = Rc::new(PageState::default());
                r.share(shared.clone());
                shared
            }
        }
    }
    /// Returns the value of the variable with this lower-case name.
    pub fn get(&self, name: &[u8]) -> Option<Vec<u8>> {
        if let [digit @ b'0'..=b'9'] = name {
            let captures = self.captures.borrow();
            if usize::from(digit - b'0') < captures.groups.len() {
                return Some(captures.get(usize::from(digit - b'0')).unwrap_or_default().to_vec());
            }
        }
        self.variables.borrow().values.get(name).cloned()
    }
    /// Fails when there are too many, or too much text in them.
    pub fn set(&self, name: &[u8], value: Vec<u8>) -> Result<(), &'static str> {
        let mut variables = self.variables.borrow_mut();
        let known = variables.values.get(name).map(|old| name.len() + old.len());
        if known.is_none() && variables.values.len() >= VARIABLES_MAX {
            return Err("too many SSI variables");
        }
        let bytes = variables.bytes - known.unwrap_or_default() + name.len() + value.len();
        if bytes > VARIABLE_BYTES_MAX {
            return Err("too much text in SSI variables");
        }
        variables.bytes = bytes;
        variables.values.insert(name.to_vec(), value);
        Ok(())
    }
    pub fn open_block(&self, name: &[u8]) {
        self.blocks.borrow_mut().push((name.to_vec(), Vec::new()));
    }
    /// Adds to the latest block. Fails beyond the limit.
    pub fn add_to_block(&self, text: &[u8]) -> Result<(), &'static str> {
        let mut blocks = self.blocks.borrow_mut();
        let held: usize = blocks.iter().map(|(_, text)| text.len()).sum();
        if held + text.len() > BLOCK_BYTES_MAX {
            return Err("too much text in SSI blocks");
        }
        if let Some((_, block)) = blocks.last_mut() {
            block.extend_from_slice(text);
        }
        Ok(())
    }
    pub fn block(&self, name: &[u8]) -> Option<Vec<u8>> {
        self.blocks.borrow().iter().find(|(n, _)| n == name).map(|(_, text)| text.clone())
    }
    /// Matches a regular expression and keeps its groups. Fails with a log message.
    pub fn matches(&self, pattern: &[u8], subject: &[u8]) -> Result<bool, String> {
        let (pattern, names) = HttpPattern::at_run_time(pattern)?;
        let mut captures = Captures::default();
        if !pattern.captures(subject, &mut captures).map_err(|MatchFailed(words)| words)? {
            return Ok(false);
        }
        for (group, name) in names {
            let value = captures.get(group).unwrap_or_default().to_vec();
            self.set(&name.to_ascii_lowercase().into_bytes(), value)?;
        }
        *self.captures.borrow_mut() = captures;
        Ok(true)
    }
}

pub fn variable_value(r: &mut Request, name: &[u8]) -> Option<Vec<u8>> {
    let name = name.to_ascii_lowercase();
    if let Some(value) = PageState::of(r).get(&name) {
        return Some(value);
    }
    let mut out = Vec::new();
    r.variable_named(&String::from_utf8_lossy(&name), &mut out).then_some(out)
}

/// Expands variables and removes escapes (nginx: `ngx_http_ssi_evaluate_string`). Fails on an invalid name and beyond
/// [`EXPANDED_BYTES_MAX`], logged.
pub fn evaluate_text(r: &mut Request, text: &[u8]) -> Result<Vec<u8>, CommandFailed> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&c, after)) = rest.split_first() {
        rest = after;
        match c {
            b'\\' => {
                let Some((&escaped, after)) = rest.split_first() else { break };
                rest = after;
                if !matches!(escaped, b'\\' | b'\'' | b'"' | b'$') {
                    out.push(b'\\');
                }
                out.push(escaped);
            }
            b'$' => {
                let word = |s: &[u8]| s.iter().take_while(|c| c.is_ascii_alphanumeric() || **c == b'_').count();
                let open = rest.strip_prefix(b"{");
                let from = open.unwrap_or(rest);
                let (name, after) = from.split_at_checked(word(from)).unwrap_or((from, b""));
                let Some(after) = (if open.is_some() { after.strip_prefix(b"}") } else { Some(after) }) else {
                    let name = String::from_utf8_lossy(name);
                    r.log(Severity::Error, format_args!("the closing bracket in \"{name}\" variable is missing"));
                    return Err(CommandFailed);
                };
                rest = after;
                if name.is_empty() {
                    let text = String::from_utf8_lossy(text);
                    r.log(Severity::Error, format_args!("invalid variable name in \"{text}\""));
                    return Err(CommandFailed);
                }
                out.extend_from_slice(&variable_value(r, name).unwrap_or_default());
                if out.len() > EXPANDED_BYTES_MAX {
                    r.log(Severity::Error, format_args!("too much text in variables of an SSI command"));
                    return Err(CommandFailed);
                }
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

/// Evaluates `if` and `elif`: a non-empty text, or a comparison with a text or `/regular expression/`. Failures are
/// logged.
pub fn condition_holds(r: &mut Request, expression: &[u8]) -> Result<bool, CommandFailed> {
    let in_left = |c: &u8| c.is_ascii_alphanumeric() || b"${}_\"'".contains(c);
    let end = expression.iter().take_while(|c| in_left(c)).count();
    let (left, rest) = expression.split_at_checked(end).unwrap_or((expression, b""));
    let left = evaluate_text(r, &left.to_ascii_lowercase())?;
    let rest = skip_spaces(rest);
    if rest.is_empty() {
        return Ok(!left.is_empty());
    }
    let (equal, right) = match (rest.strip_prefix(b"="), rest.strip_prefix(b"!=")) {
        (Some(right), _) => (true, right),
        (_, Some(right)) => (false, right),
        _ => return Err(invalid(r, expression)),
    };
    let right = skip_spaces(right);
    let same = if let Some(pattern) = right.strip_prefix(b"/").filter(|pattern| !pattern.is_empty()) {
        let Some(pattern) = pattern.strip_suffix(b"/") else { return Err(invalid(r, expression)) };
        let pattern = evaluate_text(r, pattern)?;
        PageState::of(r).matches(&pattern, &left).map_err(|words| {
            r.log(Severity::Error, format_args!("{words}"));
            CommandFailed
        })?
    } else {
        let right = right.strip_prefix(b"\\").filter(|right| right.starts_with(b"/")).unwrap_or(right);
        evaluate_text(r, right)? == left
    };
    Ok(same == equal)
}

fn skip_spaces(text: &[u8]) -> &[u8] {
    text.iter().position(|c| *c != b' ').and_then(|at| text.get(at..)).unwrap_or_default()
}

fn invalid(r: &mut Request, expression: &[u8]) -> CommandFailed {
    r.log(Severity::Error, format_args!("invalid expression in \"{}\"", String::from_utf8_lossy(expression)));
    CommandFailed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_and_blocks_have_bounds() {
        let shared = PageState::default();
        for n in 0..VARIABLES_MAX {
            shared.set(format!("v{n}").as_bytes(), vec![1]).expect("there is room");
        }
        assert_eq!(shared.set(b"one more", vec![1]), Err("too many SSI variables"));
        assert_eq!(shared.set(b"v7", vec![2]), Ok(()), "known ones still change");
        assert_eq!((shared.get(b"v7"), shared.get(b"one more")), (Some(vec![2]), None));

        assert_eq!(shared.set(b"v1", vec![b'x'; VARIABLE_BYTES_MAX]), Err("too much text in SSI variables"));
        shared.set(b"v1", vec![b'x'; VARIABLE_BYTES_MAX / 2]).expect("there is room");
        shared.set(b"v1", vec![b'x'; VARIABLE_BYTES_MAX / 2]).expect("a new value replaces the old one");
        assert_eq!(shared.set(b"v2", vec![b'x'; VARIABLE_BYTES_MAX / 2]), Err("too much text in SSI variables"));

        let half = vec![b'x'; BLOCK_BYTES_MAX / 2];
        for name in [b"a", b"b"] {
            shared.open_block(name);
            shared.add_to_block(&half).expect("there is room");
        }
        assert_eq!(shared.add_to_block(b"x"), Err("too much text in SSI blocks"));
        assert_eq!(shared.block(b"b").map(|text| text.len()), Some(half.len()));
    }
}
