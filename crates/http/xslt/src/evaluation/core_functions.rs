//! Functions of XPath 1.0 (section 4).

use crate::engine::{Engine, Focus};
use crate::failure::{RunResult, failed};
use crate::names::{ExpandedName, NameId};
use crate::store::NodeRef;
use crate::xpath::ast::Expr;
use crate::xpath::functions::Function;
use crate::xpath::{XPathValue, number};

impl Engine<'_> {
    pub fn call_core(&mut self, function: Function, arguments: &[Expr], focus: &Focus) -> RunResult<XPathValue> {
        use Function as F;
        let first = arguments.first();
        Ok(match function {
            F::Last => XPathValue::Number(focus.size as f64),
            F::Position => XPathValue::Number(focus.position as f64),
            F::True => XPathValue::Bool(true),
            F::False => XPathValue::Bool(false),
            F::Boolean | F::Not => {
                let truth = self.argument(first, focus)?.truth();
                XPathValue::Bool(truth == (function == F::Boolean))
            }
            F::Count => match self.argument(first, focus)? {
                XPathValue::Nodes(nodes) => XPathValue::Number(nodes.len() as f64),
                XPathValue::Fragment(_) => XPathValue::Number(1.0),
                _ => return failed("Invalid type"),
            },
            F::Id => {
                let value = self.argument(first, focus)?;
                XPathValue::Nodes(self.by_id(value, focus.node)?)
            }
            F::LocalName | F::NamespaceUri | F::Name => {
                let node = self.node_argument(first, focus)?;
                XPathValue::Text(node.map_or(String::new(), |node| self.node_name(node, function)))
            }
            F::Text => XPathValue::Text(self.text_argument(first, focus)?),
            F::Number => match first {
                Some(expr) => XPathValue::Number(self.eval_number(expr, focus)?),
                None => XPathValue::Number(number::parse(&self.text_argument(None, focus)?)),
            },
            F::Sum => match self.argument(first, focus)? {
                XPathValue::Nodes(nodes) => {
                    let mut sum = 0.0;
                    for node in nodes {
                        sum += number::parse(&self.string(node)?);
                    }
                    XPathValue::Number(sum)
                }
                _ => return failed("Invalid type"),
            },
            F::Floor | F::Ceiling | F::Round => {
                let value = self.argument(first, focus)?;
                let value = self.number_of(&value)?;
                XPathValue::Number(match function {
                    F::Floor => value.floor(),
                    F::Ceiling => value.ceil(),
                    _ => number::round(value),
                })
            }
            F::Lang => {
                let wanted = self.text_argument(first, focus)?.to_ascii_lowercase();
                XPathValue::Bool(self.language(focus.node).is_some_and(|lang| {
                    let lang = lang.to_ascii_lowercase();
                    lang == wanted || lang.strip_prefix(&wanted).is_some_and(|rest| rest.starts_with('-'))
                }))
            }
            F::Concat
            | F::StartsWith
            | F::Contains
            | F::SubstringBefore
            | F::SubstringAfter
            | F::Substring
            | F::StringLength
            | F::NormalizeSpace
            | F::Translate => self.call_text(function, arguments, focus)?,
            _ => self.call_xslt(function, arguments, focus)?,
        })
    }

    pub fn argument(&mut self, expr: Option<&Expr>, focus: &Focus) -> RunResult<XPathValue> {
        match expr {
            Some(expr) => self.eval(expr, focus),
            None => failed("Invalid number of arguments"),
        }
    }
    /// The argument as text; without one, the text of the context node.
    pub fn text_argument(&mut self, expr: Option<&Expr>, focus: &Focus) -> RunResult<String> {
        match expr {
            Some(expr) => self.eval_text(expr, focus),
            None => self.string(focus.node),
        }
    }
    /// The first node of the argument; without one, the context node.
    pub fn node_argument(&mut self, expr: Option<&Expr>, focus: &Focus) -> RunResult<Option<NodeRef>> {
        match expr {
            None => Ok(Some(focus.node)),
            Some(expr) => match self.eval(expr, focus)? {
                XPathValue::Nodes(nodes) => Ok(nodes.first().copied()),
                XPathValue::Fragment(node) => Ok(Some(node)),
                _ => failed("Invalid type"),
            },
        }
    }

    fn node_name(&self, node: NodeRef, function: Function) -> String {
        let name = self.store.name(node);
        let local = match function {
            Function::NamespaceUri => name.ns,
            _ => name.local,
        };
        match function {
            Function::Name => self.names.qualified(name),
            _ => self.names.text(local).into(),
        }
    }

    fn language(&mut self, node: NodeRef) -> Option<String> {
        let name = ExpandedName { ns: NameId::XML_NS, local: self.names.id("lang") };
        let mut at = Some(node);
        while let Some(node) = at {
            if let Some(lang) = self.store.doc(node.doc).attribute(node.node, name) {
                return Some(lang.into());
            }
            at = self.store.parent(node);
        }
        None
    }

    fn by_id(&mut self, value: XPathValue, context: NodeRef) -> RunResult<Vec<NodeRef>> {
        let mut texts = Vec::new();
        match value {
            XPathValue::Nodes(nodes) => {
                for node in nodes {
                    texts.push(self.string(node)?);
                }
            }
            value => texts.push(self.take_text(value)?),
        }
        let document = self.store.doc(context.doc);
        let words = texts.iter().flat_map(|text| text.split([' ', '\t', '\n', '\r']));
        let found = words.filter_map(|word| document.ids.get(word)).map(|node| context.at(*node)).collect();
        self.in_order(found)
    }

    fn call_text(&mut self, function: Function, arguments: &[Expr], focus: &Focus) -> RunResult<XPathValue> {
        use Function as F;
        let first = self.text_argument(arguments.first(), focus)?;
        if matches!(function, F::StringLength) {
            return Ok(XPathValue::Number(first.chars().count() as f64));
        }
        if matches!(function, F::NormalizeSpace) {
            return Ok(XPathValue::Text(normalize_space(&first)));
        }
        if matches!(function, F::Substring) {
            return self.substring(&first, arguments, focus);
        }
        if matches!(function, F::Concat) {
            let mut all = first;
            for argument in arguments.iter().skip(1) {
                all.push_str(&self.eval_text(argument, focus)?);
                self.check_text(&all)?;
            }
            return Ok(XPathValue::Text(all));
        }
        let second = self.text_argument(arguments.get(1), focus)?;
        self.step((first.len() as u64) / 16)?;
        Ok(match function {
            F::StartsWith => XPathValue::Bool(first.starts_with(&second)),
            F::Contains => XPathValue::Bool(first.contains(&second)),
            F::SubstringBefore => {
                XPathValue::Text(first.split_once(second.as_str()).map_or(String::new(), |(before, _)| before.into()))
            }
            F::SubstringAfter => {
                XPathValue::Text(first.split_once(second.as_str()).map_or(String::new(), |(_, after)| after.into()))
            }
            _ => {
                let third = self.text_argument(arguments.get(2), focus)?;
                XPathValue::Text(self.translate(&first, &second, &third)?)
            }
        })
    }

    fn translate(&mut self, text: &str, from: &str, to: &str) -> RunResult<String> {
        let mut map: std::collections::HashMap<char, Option<char>> = std::collections::HashMap::new();
        let mut targets = to.chars();
        for c in from.chars() {
            let target = targets.next();
            map.entry(c).or_insert(target);
        }
        self.step((text.len() + from.len()) as u64)?;
        Ok(text.chars().filter_map(|c| map.get(&c).copied().unwrap_or(Some(c))).collect())
    }

    fn substring(&mut self, text: &str, arguments: &[Expr], focus: &Focus) -> RunResult<XPathValue> {
        let value = self.argument(arguments.get(1), focus)?;
        let start = number::round(self.number_of(&value)?);
        let end = match arguments.get(2) {
            Some(length) => start + number::round(self.eval_number(length, focus)?),
            None => f64::INFINITY,
        };
        self.step(text.len() as u64 / 8)?;
        let inside = |at: usize| {
            let at = (at + 1) as f64;
            at >= start && at < end
        };
        Ok(XPathValue::Text(text.chars().enumerate().filter(|(at, _)| inside(*at)).map(|(_, c)| c).collect()))
    }
}

pub(crate) fn normalize_space(text: &str) -> String {
    let words: Vec<&str> = text.split([' ', '\t', '\n', '\r']).filter(|word| !word.is_empty()).collect();
    words.join(" ")
}
