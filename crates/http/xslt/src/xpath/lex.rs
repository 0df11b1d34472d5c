//! Tokens of expressions (XPath 1.0, section 3.7), with its rules for `*` and names of operators.

use crate::xml::scan_rules::{is_name, is_name_start};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum XPathToken {
    /// Punctuation and operators, also those that are names.
    Sign(&'static str),
    Literal(String),
    Number(f64),
    /// Name, `prefix:name`, `prefix:*` or `*`.
    Name(String),
    Variable(String),
}

const SIGNS: &[&str] =
    &["::", "..", "//", "!=", "<=", ">=", "(", ")", "[", "]", ".", "@", ",", "/", "|", "+", "-", "=", "<", ">"];

fn precedes_operator(last: Option<&XPathToken>) -> bool {
    match last {
        None => false,
        Some(XPathToken::Sign(sign)) => matches!(*sign, ")" | "]" | "." | ".."),
        Some(_) => true,
    }
}

fn ncname(text: &str) -> &str {
    let end = text
        .char_indices()
        .find(|(at, c)| *c == ':' || !(if *at == 0 { is_name_start(*c) } else { is_name(*c) }))
        .map_or(text.len(), |(at, _)| at);
    text.get(..end).unwrap_or("")
}

fn qname(text: &str) -> usize {
    let first = ncname(text).len();
    let rest = text.get(first..).unwrap_or("");
    match rest.strip_prefix(':') {
        Some(rest) if !rest.starts_with(':') => match rest.starts_with('*') {
            true => first + 2,
            false if !ncname(rest).is_empty() => first + 1 + ncname(rest).len(),
            false => first,
        },
        _ => first,
    }
}

/// Splits an expression. `None`: a character or a literal is not valid.
pub(crate) fn tokens(text: &str) -> Option<Vec<XPathToken>> {
    let (mut found, mut at): (Vec<XPathToken>, usize) = (Vec::new(), 0);
    loop {
        let rest = text.get(at..)?;
        let trimmed = rest.trim_start_matches([' ', '\t', '\n', '\r']);
        at += rest.len() - trimmed.len();
        let rest = trimmed;
        let Some(first) = rest.chars().next() else { return Some(found) };
        let operator_here = precedes_operator(found.last());
        if matches!(first, '"' | '\'') {
            let (literal, _) = rest.get(1..)?.split_once(first)?;
            at += literal.len() + 2;
            found.push(XPathToken::Literal(literal.into()));
        } else if first.is_ascii_digit()
            || (first == '.' && rest.as_bytes().get(1).copied().is_some_and(|b| b.is_ascii_digit()))
        {
            let (number, length) = super::number::literal(rest);
            at += length;
            found.push(XPathToken::Number(number));
        } else if first == '$' {
            let name = rest.get(1..)?.trim_start();
            let length = qname(name);
            let start = text.len() - name.len();
            let name = name.get(..length).filter(|name| !name.is_empty() && !name.ends_with('*'))?;
            at = start + length;
            found.push(XPathToken::Variable(name.into()));
        } else if first == '*' {
            at += 1;
            found.push(if operator_here { XPathToken::Sign("*") } else { XPathToken::Name("*".into()) });
        } else if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            at += sign.len();
            found.push(XPathToken::Sign(sign));
        } else {
            if operator_here {
                let word = ncname(rest);
                let sign = ["and", "or", "mod", "div"].into_iter().find(|sign| word == *sign)?;
                at += sign.len();
                found.push(XPathToken::Sign(sign));
                continue;
            }
            let length = qname(rest);
            if length == 0 {
                return None;
            }
            found.push(XPathToken::Name(rest.get(..length)?.into()));
            at += length;
        }
    }
}
