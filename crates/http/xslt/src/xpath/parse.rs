//! Parser of expressions and patterns.

use super::ast::{Axis, Comparison, Expr, NodeTest, Operator, Path, PathStart, Predicate, Step};
use super::functions;
use super::lex::{XPathToken, tokens};
use crate::names::{ExpandedName, NameId, NameTable};

/// Nested expressions; also the length of chains of operators, which nest when they are evaluated.
pub(crate) const NESTING_MAX: usize = 150;

/// Names and namespaces where an expression stands.
pub(crate) struct XPathScope<'s> {
    pub names: &'s mut NameTable,
    /// Prefixes and namespaces in scope, without the default namespace.
    pub namespaces: &'s [(NameId, NameId)],
}

impl XPathScope<'_> {
    /// Resolves a name of XSLT: without a prefix, it has no namespace.
    pub fn resolve(&mut self, name: &str) -> Option<ExpandedName> {
        match name.split_once(':') {
            None => Some(ExpandedName { ns: NameId::NONE, local: self.names.id(name) }),
            Some((prefix, local)) => {
                let (prefix, local) = (self.names.id(prefix), self.names.id(local));
                if prefix == NameId::XML {
                    return Some(ExpandedName { ns: NameId::XML_NS, local });
                }
                let ns = self.namespaces.iter().find(|(bound, _)| *bound == prefix).map(|(_, uri)| *uri)?;
                Some(ExpandedName { ns, local })
            }
        }
    }
}

pub(super) struct XPathParser<'s, 'n> {
    pub tokens: Vec<XPathToken>,
    pub at: usize,
    pub scope: &'s mut XPathScope<'n>,
    depth: usize,
}

/// Compiles an expression. `None`: the text is not one, or nests too deeply.
pub(crate) fn expression(text: &str, scope: &mut XPathScope<'_>) -> Option<Expr> {
    let mut parser = XPathParser::new(text, scope)?;
    let expr = parser.expr(0)?;
    parser.ended().then_some(expr)
}

/// Precedence of binary operators, lowest first; `|` binds closest.
fn precedence(sign: &str) -> Option<u8> {
    Some(match sign {
        "or" => 1,
        "and" => 2,
        "=" | "!=" => 3,
        "<" | "<=" | ">" | ">=" => 4,
        "+" | "-" => 5,
        "*" | "div" | "mod" => 6,
        _ => return None,
    })
}

impl<'s, 'n> XPathParser<'s, 'n> {
    pub fn new(text: &str, scope: &'s mut XPathScope<'n>) -> Option<XPathParser<'s, 'n>> {
        Some(XPathParser { tokens: tokens(text)?, at: 0, scope, depth: 0 })
    }
    pub fn ended(&self) -> bool {
        self.at >= self.tokens.len()
    }
    pub fn peek(&self) -> Option<&XPathToken> {
        self.tokens.get(self.at)
    }
    fn peek_sign(&self, ahead: usize) -> Option<&'static str> {
        match self.tokens.get(self.at + ahead) {
            Some(XPathToken::Sign(sign)) => Some(sign),
            _ => None,
        }
    }
    pub fn eat(&mut self, sign: &str) -> bool {
        let eaten = self.peek_sign(0) == Some(sign);
        self.at += usize::from(eaten);
        eaten
    }
    pub fn name_ahead(&self) -> Option<&str> {
        match self.peek() {
            Some(XPathToken::Name(name)) => Some(name),
            _ => None,
        }
    }

    /// Expression of operators from a precedence on.
    pub fn expr(&mut self, least: u8) -> Option<Expr> {
        self.depth += 1;
        if self.depth > NESTING_MAX {
            return None;
        }
        let mut left = self.unary()?;
        let mut chain = 0;
        while let Some(sign) = self.peek_sign(0)
            && let Some(level) = precedence(sign).filter(|level| *level >= least.max(1))
        {
            self.at += 1;
            chain += 1;
            let right = self.expr(level + 1)?;
            left = match (sign, left) {
                ("or", Expr::Or(mut parts)) => {
                    parts.push(right);
                    Expr::Or(parts)
                }
                ("or", left) => Expr::Or(vec![left, right]),
                ("and", Expr::And(mut parts)) => {
                    parts.push(right);
                    Expr::And(parts)
                }
                ("and", left) => Expr::And(vec![left, right]),
                (_, left) => {
                    if chain > NESTING_MAX {
                        return None;
                    }
                    binary(sign, left, right)
                }
            };
        }
        self.depth -= 1;
        Some(left)
    }

    fn unary(&mut self) -> Option<Expr> {
        let mut negations = 0;
        while self.eat("-") {
            negations += 1;
        }
        let mut parts = vec![self.path()?];
        while self.eat("|") {
            parts.push(self.path()?);
        }
        let expr = if parts.len() > 1 { Expr::Union(parts) } else { parts.pop()? };
        Some(match negations {
            0 => expr,
            n if n % 2 == 1 => Expr::Negate(Box::new(expr)),
            // An even number of signs still converts to a number.
            _ => Expr::Negate(Box::new(Expr::Negate(Box::new(expr)))),
        })
    }

    fn path(&mut self) -> Option<Expr> {
        if self.starts_primary() {
            let primary = self.primary()?;
            let predicates = self.predicates()?;
            let expr = if predicates.is_empty() { primary } else { Expr::Filter(Box::new(primary), predicates) };
            if !matches!(self.peek_sign(0), Some("/" | "//")) {
                return Some(expr);
            }
            let mut steps = Vec::new();
            self.steps(&mut steps)?;
            return Some(Expr::Path(Box::new(Path { start: PathStart::Expr(expr), steps })));
        }
        let mut steps = Vec::new();
        let mut start = PathStart::Context;
        if matches!(self.peek_sign(0), Some("/" | "//")) {
            start = PathStart::Root;
            if self.peek_sign(0) == Some("/") && !self.starts_step(1) {
                self.at += 1;
                return Some(Expr::Path(Box::new(Path { start, steps })));
            }
            self.steps(&mut steps)?;
        } else {
            let step = self.step()?;
            steps.push(step);
            self.steps(&mut steps)?;
        }
        Some(Expr::Path(Box::new(Path { start, steps })))
    }

    fn starts_step(&self, ahead: usize) -> bool {
        match self.tokens.get(self.at + ahead) {
            Some(XPathToken::Name(_)) => true,
            Some(XPathToken::Sign(sign)) => matches!(*sign, "." | ".." | "@"),
            _ => false,
        }
    }

    fn starts_primary(&self) -> bool {
        match self.peek() {
            Some(XPathToken::Variable(_) | XPathToken::Literal(_) | XPathToken::Number(_) | XPathToken::Sign("(")) => {
                true
            }
            Some(XPathToken::Name(name)) => {
                self.peek_sign(1) == Some("(")
                    && !matches!(name.as_str(), "node" | "text" | "comment" | "processing-instruction")
            }
            _ => false,
        }
    }

    /// Steps behind `/` and `//`.
    fn steps(&mut self, steps: &mut Vec<Step>) -> Option<()> {
        loop {
            if self.eat("//") {
                let step = self.step()?;
                let plain = step.predicates.iter().all(|predicate| !predicate.positional);
                match step.axis {
                    // `//x` is one walk over the descendants, if no predicate counts siblings.
                    Axis::Child if plain => steps.push(Step { axis: Axis::Descendant, ..step }),
                    _ => {
                        let (axis, test) = (Axis::DescendantOrSelf, NodeTest::Node);
                        steps.push(Step { axis, test, predicates: Vec::new() });
                        steps.push(step);
                    }
                }
            } else if self.eat("/") {
                let step = self.step()?;
                steps.push(step);
            } else {
                return Some(());
            }
        }
    }

    pub fn step(&mut self) -> Option<Step> {
        if self.eat(".") {
            return Some(Step { axis: Axis::SelfNode, test: NodeTest::Node, predicates: Vec::new() });
        }
        if self.eat("..") {
            return Some(Step { axis: Axis::Parent, test: NodeTest::Node, predicates: Vec::new() });
        }
        let mut axis = Axis::Child;
        if self.eat("@") {
            axis = Axis::Attribute;
        } else if self.peek_sign(1) == Some("::") {
            axis = Axis::named(self.name_ahead()?)?;
            self.at += 2;
        }
        let test = self.node_test()?;
        let predicates = self.predicates()?;
        Some(Step { axis, test, predicates })
    }

    pub fn node_test(&mut self) -> Option<NodeTest> {
        let name = self.name_ahead()?.to_string();
        self.at += 1;
        if self.eat("(") {
            let mut argument = None;
            if let Some(XPathToken::Literal(text)) = self.peek().filter(|_| name == "processing-instruction") {
                argument = Some(text.clone());
                self.at += 1;
            }
            if !self.eat(")") {
                return None;
            }
            return Some(match name.as_str() {
                "node" => NodeTest::Node,
                "text" => NodeTest::Text,
                "comment" => NodeTest::Comment,
                "processing-instruction" => NodeTest::Instruction(argument.map(|name| self.scope.names.id(&name))),
                _ => return None,
            });
        }
        if name == "*" {
            return Some(NodeTest::Any);
        }
        if let Some(prefix) = name.strip_suffix(":*") {
            return Some(NodeTest::InNamespace(self.scope.resolve(&format!("{prefix}:x"))?.ns));
        }
        self.scope.resolve(&name).map(NodeTest::Name)
    }

    pub fn predicates(&mut self) -> Option<Vec<Predicate>> {
        let mut predicates = Vec::new();
        while self.eat("[") {
            let expr = self.expr(0)?;
            if !self.eat("]") {
                return None;
            }
            let positional = expr.is_positional();
            predicates.push(Predicate { expr, positional });
        }
        Some(predicates)
    }

    fn primary(&mut self) -> Option<Expr> {
        let token = self.peek()?.clone();
        self.at += 1;
        Some(match token {
            XPathToken::Literal(text) => Expr::Literal(text),
            XPathToken::Number(number) => Expr::Number(number),
            XPathToken::Variable(name) => match self.scope.resolve(&name) {
                Some(name) => Expr::Variable(name),
                None => Expr::Unbound(name),
            },
            XPathToken::Sign(_) => {
                let expr = self.expr(0)?;
                if !self.eat(")") {
                    return None;
                }
                expr
            }
            XPathToken::Name(name) => {
                let arguments = self.arguments()?;
                self.call(&name, arguments)
            }
        })
    }

    fn call(&mut self, name: &str, arguments: Vec<Expr>) -> Expr {
        let Some(resolved) = self.scope.resolve(name) else { return Expr::Unbound(name.into()) };
        let uri = self.scope.names.text(resolved.ns);
        match functions::find(uri, self.scope.names.text(resolved.local)) {
            Some(function) => Expr::Call(function, arguments),
            None => Expr::CallNamed(resolved, arguments),
        }
    }

    pub fn arguments(&mut self) -> Option<Vec<Expr>> {
        if !self.eat("(") {
            return None;
        }
        let mut arguments = Vec::new();
        if self.eat(")") {
            return Some(arguments);
        }
        loop {
            arguments.push(self.expr(0)?);
            if self.eat(")") {
                return Some(arguments);
            }
            if !self.eat(",") {
                return None;
            }
        }
    }
}

fn binary(sign: &str, left: Expr, right: Expr) -> Expr {
    let (left, right) = (Box::new(left), Box::new(right));
    match sign {
        "=" => Expr::Compare(Comparison::Equal, left, right),
        "!=" => Expr::Compare(Comparison::NotEqual, left, right),
        "<" => Expr::Compare(Comparison::Less, left, right),
        "<=" => Expr::Compare(Comparison::LessOrEqual, left, right),
        ">" => Expr::Compare(Comparison::Greater, left, right),
        ">=" => Expr::Compare(Comparison::GreaterOrEqual, left, right),
        "+" => Expr::Arithmetic(Operator::Add, left, right),
        "-" => Expr::Arithmetic(Operator::Subtract, left, right),
        "*" => Expr::Arithmetic(Operator::Multiply, left, right),
        "div" => Expr::Arithmetic(Operator::Divide, left, right),
        _ => Expr::Arithmetic(Operator::Modulo, left, right),
    }
}
