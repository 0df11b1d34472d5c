//! Patterns (XSLT 1.0, section 5.2): their parser and default priorities.

use super::ast::{Axis, Expr, NodeTest, Predicate};
use super::lex::XPathToken;
use super::parse::{XPathParser, XPathScope};

#[derive(Clone, Debug)]
pub(crate) struct MatchPattern {
    pub alternatives: Vec<Alternative>,
}

/// One path of a pattern.
#[derive(Clone, Debug)]
pub(crate) struct Alternative {
    pub start: PatternStart,
    pub steps: Vec<PatternStep>,
    /// Default priority (section 5.5).
    pub priority: f64,
}

#[derive(Clone, Debug)]
pub(crate) enum PatternStart {
    Anywhere,
    Root,
    /// `id(...)` or `key(...)`.
    Set(Expr),
}

#[derive(Clone, Debug)]
pub(crate) struct PatternStep {
    /// `Child` or `Attribute`.
    pub axis: Axis,
    pub test: NodeTest,
    pub predicates: Vec<Predicate>,
    /// Behind `//`.
    pub descends: bool,
}

/// Compiles a pattern. `None`: the text is not one.
pub(crate) fn pattern(text: &str, scope: &mut XPathScope<'_>) -> Option<MatchPattern> {
    let mut parser = XPathParser::new(text, scope)?;
    let mut alternatives = vec![alternative(&mut parser)?];
    while parser.eat("|") {
        alternatives.push(alternative(&mut parser)?);
    }
    parser.ended().then_some(MatchPattern { alternatives })
}

fn alternative(parser: &mut XPathParser<'_, '_>) -> Option<Alternative> {
    let mut found = Alternative { start: PatternStart::Anywhere, steps: Vec::new(), priority: 0.5 };
    let mut descends = false;
    if parser.eat("//") {
        (found.start, descends) = (PatternStart::Root, true);
    } else if parser.eat("/") {
        found.start = PatternStart::Root;
        if parser.ended() || matches!(parser.peek(), Some(XPathToken::Sign("|"))) {
            return Some(found);
        }
    } else if let Some(function) = parser.name_ahead().filter(|name| matches!(*name, "id" | "key"))
        && matches!(parser.tokens.get(parser.at + 1), Some(XPathToken::Sign("(")))
    {
        let is_id = function == "id";
        parser.at += 1;
        let arguments = parser.arguments()?;
        let literals = arguments.iter().all(|argument| matches!(argument, Expr::Literal(_)));
        if !literals || arguments.len() != if is_id { 1 } else { 2 } {
            return None;
        }
        let function = if is_id { super::functions::Function::Id } else { super::functions::Function::Key };
        found.start = PatternStart::Set(Expr::Call(function, arguments));
        if parser.eat("//") {
            descends = true;
        } else if !parser.eat("/") {
            return Some(found);
        }
    }
    loop {
        let step = parser.step()?;
        if !matches!(step.axis, Axis::Child | Axis::Attribute) {
            return None;
        }
        found.steps.push(PatternStep { axis: step.axis, test: step.test, predicates: step.predicates, descends });
        descends = false;
        if parser.eat("//") {
            descends = true;
        } else if !parser.eat("/") {
            break;
        }
    }
    if let (PatternStart::Anywhere, [step]) = (&found.start, found.steps.as_slice())
        && step.predicates.is_empty()
    {
        found.priority = match &step.test {
            NodeTest::Name(_) | NodeTest::Instruction(Some(_)) => 0.0,
            NodeTest::InNamespace(_) => -0.25,
            _ => -0.5,
        };
    }
    Some(found)
}
