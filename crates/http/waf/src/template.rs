//! Texts of actions and operators with macros: `Found %{MATCHED_VAR_NAME}`.

use crate::failure::{Refusal, nearest};
use crate::variable::Variable;
use std::sync::Arc;

/// A part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Literal(Arc<[u8]>),
    /// A variable, and the name of its element in lower case.
    Variable(Variable, Option<Arc<[u8]>>),
}

/// A text with macros.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Template {
    pub parts: Vec<Part>,
}

impl Template {
    /// Parses a text; fails at an unknown variable. `%{` without an end is literal.
    pub fn parse(text: &[u8]) -> Result<Template, Refusal> {
        let mut parts = Vec::new();
        let mut literal = Vec::new();
        let mut rest = text;
        while let Some(start) = memchr::memmem::find(rest, b"%{") {
            let (before, macro_text) = rest.split_at(start);
            let inside = macro_text.get(2..).unwrap_or_default();
            let Some(end) = memchr::memchr(b'}', inside) else { break };
            let name = inside.get(..end).unwrap_or_default();
            let variable = parse_macro(name).map_err(|refusal| refusal.at(text.len() - rest.len() + start))?;
            literal.extend_from_slice(before);
            if !literal.is_empty() {
                parts.push(Part::Literal(std::mem::take(&mut literal).into()));
            }
            parts.push(variable);
            rest = inside.get(end + 1..).unwrap_or_default();
        }
        literal.extend_from_slice(rest);
        if !literal.is_empty() {
            parts.push(Part::Literal(literal.into()));
        }
        Ok(Template { parts })
    }

    /// A text without macros.
    pub fn literal(text: &[u8]) -> Template {
        let parts = if text.is_empty() { Vec::new() } else { vec![Part::Literal(text.into())] };
        Template { parts }
    }

    /// The text with its macros as written.
    pub fn shown(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for part in &self.parts {
            match part {
                Part::Literal(literal) => text.extend_from_slice(literal),
                Part::Variable(variable, element) => {
                    text.extend_from_slice(format!("%{{{}", variable.name()).as_bytes());
                    if let Some(element) = element {
                        text.push(b'.');
                        text.extend_from_slice(element);
                    }
                    text.push(b'}');
                }
            }
        }
        text
    }

    /// The text, if it has no macros.
    pub fn as_literal(&self) -> Option<&[u8]> {
        match self.parts.as_slice() {
            [] => Some(&[]),
            [Part::Literal(text)] => Some(text),
            _ => None,
        }
    }
}

/// Parses `TX.anomaly_score`, `tx:0` or `REMOTE_ADDR`.
fn parse_macro(name: &[u8]) -> Result<Part, Refusal> {
    let text = String::from_utf8_lossy(name);
    let (variable, element) = match text.split_once(['.', ':']) {
        Some((variable, element)) => (variable, Some(element)),
        None => (&*text, None),
    };
    let Some(found) = Variable::named(variable) else {
        let refusal = Refusal::new(format!("macro %{{{text}}} names an unknown variable"));
        return Err(match nearest(variable, Variable::names()) {
            Some(known) => refusal.suggest(format!("did you mean {known}?")),
            None => refusal,
        });
    };
    if element.is_some() && !found.is_collection() {
        return Err(Refusal::new(format!("macro %{{{text}}}: {} has no elements", found.name())));
    }
    Ok(Part::Variable(found, element.map(|element| Arc::from(element.to_ascii_lowercase().into_bytes()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn macros_are_variables_with_elements() {
        let template = Template::parse(b"a %{tx.Score}b%{MATCHED_VAR}%{").expect("template");
        assert_eq!(
            template.parts,
            [
                Part::Literal(Arc::from(&b"a "[..])),
                Part::Variable(Variable::Tx, Some(Arc::from(&b"score"[..]))),
                Part::Literal(Arc::from(&b"b"[..])),
                Part::Variable(Variable::MatchedVar, None),
                Part::Literal(Arc::from(&b"%{"[..])),
            ]
        );
        assert_eq!(Template::parse(b"plain").expect("template").as_literal(), Some(&b"plain"[..]));
    }

    #[test]
    fn an_unknown_variable_is_an_error_with_a_suggestion() {
        let refusal = Template::parse(b"xx%{MATCHED_VARR}").expect_err("an error");
        assert_eq!(refusal.suggestion.as_deref(), Some("did you mean MATCHED_VAR?"));
        assert_eq!(refusal.offset, 2);
    }
}
