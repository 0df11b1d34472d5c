//! Evaluation of expressions.

use crate::engine::{EVALUATION_DEPTH_MAX, Engine, Focus};
use crate::failure::{RunResult, failed};
use crate::names::ExpandedName;
use crate::store::NodeRef;
use crate::xpath::ast::{Comparison, Expr, Operator, Path, PathStart, Predicate, Step};
use crate::xpath::{XPathValue, axes, functions, number};
use std::collections::HashSet;

impl Engine<'_> {
    pub fn eval(&mut self, expr: &Expr, focus: &Focus) -> RunResult<XPathValue> {
        self.step(1)?;
        if self.evaluations >= EVALUATION_DEPTH_MAX {
            return failed("the evaluation of an expression nests too deeply");
        }
        self.evaluations += 1;
        let value = self.eval_inner(expr, focus);
        self.evaluations -= 1;
        value
    }

    fn eval_inner(&mut self, expr: &Expr, focus: &Focus) -> RunResult<XPathValue> {
        Ok(match expr {
            Expr::Literal(text) => XPathValue::Text(text.clone()),
            Expr::Number(number) => XPathValue::Number(*number),
            Expr::Variable(name) => self.variable(*name)?,
            Expr::Or(parts) => XPathValue::Bool(self.any(parts, focus, true)?),
            Expr::And(parts) => XPathValue::Bool(!self.any(parts, focus, false)?),
            Expr::Compare(how, left, right) => {
                let (left, right) = (self.eval(left, focus)?, self.eval(right, focus)?);
                XPathValue::Bool(self.compare(*how, left, right)?)
            }
            Expr::Arithmetic(operator, left, right) => self.arithmetic(*operator, left, right, focus)?,
            Expr::Negate(inner) => {
                let value = self.eval(inner, focus)?;
                XPathValue::Number(-self.number_of(&value)?)
            }
            Expr::Union(parts) => {
                let mut all = Vec::new();
                for part in parts {
                    all.extend(self.eval_nodes(part, focus)?);
                }
                XPathValue::Nodes(self.in_order(all)?)
            }
            Expr::Call(function, arguments) => self.call(*function, arguments, focus)?,
            Expr::CallNamed(name, arguments) => self.call_named(*name, arguments, focus)?,
            Expr::Unbound(name) => return failed(format!("Undefined namespace prefix: {name}")),
            Expr::Path(path) => XPathValue::Nodes(self.path(path, focus)?),
            Expr::Filter(inner, predicates) => {
                let nodes = self.eval_nodes(inner, focus)?;
                XPathValue::Nodes(self.filter(nodes, predicates, focus)?)
            }
        })
    }

    fn any(&mut self, parts: &[Expr], focus: &Focus, wanted: bool) -> RunResult<bool> {
        for part in parts {
            if self.eval(part, focus)?.truth() == wanted {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn arithmetic(&mut self, operator: Operator, left: &Expr, right: &Expr, focus: &Focus) -> RunResult<XPathValue> {
        let (left, right) = (self.eval(left, focus)?, self.eval(right, focus)?);
        let (a, b) = (self.number_of(&left)?, self.number_of(&right)?);
        Ok(XPathValue::Number(match operator {
            Operator::Add => a + b,
            Operator::Subtract => a - b,
            Operator::Multiply => a * b,
            Operator::Divide => a / b,
            Operator::Modulo => a % b,
        }))
    }

    pub fn eval_nodes(&mut self, expr: &Expr, focus: &Focus) -> RunResult<Vec<NodeRef>> {
        match self.eval(expr, focus)? {
            XPathValue::Nodes(nodes) => Ok(nodes),
            _ => failed("Invalid type"),
        }
    }
    pub fn eval_text(&mut self, expr: &Expr, focus: &Focus) -> RunResult<String> {
        let value = self.eval(expr, focus)?;
        self.take_text(value)
    }
    pub fn eval_number(&mut self, expr: &Expr, focus: &Focus) -> RunResult<f64> {
        let value = self.eval(expr, focus)?;
        self.number_of(&value)
    }

    /// Sorts nodes in document order and removes duplicates.
    pub fn in_order(&mut self, mut nodes: Vec<NodeRef>) -> RunResult<Vec<NodeRef>> {
        self.step(nodes.len() as u64)?;
        if !nodes.windows(2).all(|pair| matches!(pair, [a, b] if a < b)) {
            self.step(4 * nodes.len() as u64)?;
            nodes.sort_unstable();
            nodes.dedup();
        }
        Ok(nodes)
    }

    fn path(&mut self, path: &Path, focus: &Focus) -> RunResult<Vec<NodeRef>> {
        let mut nodes = match &path.start {
            PathStart::Context => vec![focus.node],
            PathStart::Root => vec![NodeRef::root(focus.node.doc)],
            PathStart::Expr(expr) => self.eval_nodes(expr, focus)?,
        };
        for step in &path.steps {
            nodes = self.walk(step, nodes, focus)?;
        }
        Ok(nodes)
    }

    fn walk(&mut self, step: &Step, nodes: Vec<NodeRef>, focus: &Focus) -> RunResult<Vec<NodeRef>> {
        let mut found: Vec<NodeRef> = Vec::new();
        if step.predicates.is_empty() {
            for node in nodes {
                let visited = axes::collect(&self.store, node, step.axis, &step.test, &mut found);
                self.step(visited)?;
                // Overlapping subtrees: bounded by the number of nodes, not by its square.
                if found.len() > 1_000_000 {
                    found = self.in_order(found)?;
                }
            }
            if step.axis.is_reverse() {
                found.reverse();
            }
            return self.in_order(found);
        }
        for node in nodes {
            let mut own = Vec::new();
            let visited = axes::collect(&self.store, node, step.axis, &step.test, &mut own);
            self.step(visited)?;
            found.extend(self.filter(own, &step.predicates, focus)?);
            if found.len() > 1_000_000 {
                found.sort_unstable();
                found.dedup();
            }
        }
        if step.axis.is_reverse() {
            found.reverse();
        }
        self.in_order(found)
    }

    /// Applies predicates to nodes in the order of their axis.
    pub fn filter(
        &mut self,
        mut nodes: Vec<NodeRef>,
        predicates: &[Predicate],
        focus: &Focus,
    ) -> RunResult<Vec<NodeRef>> {
        for predicate in predicates {
            if let Expr::Number(number) = predicate.expr {
                let at = number as usize;
                let found = (at as f64 == number).then(|| at.checked_sub(1).and_then(|at| nodes.get(at).copied()));
                nodes = found.flatten().into_iter().collect();
                continue;
            }
            let size = nodes.len();
            let mut kept = Vec::new();
            for (index, node) in nodes.into_iter().enumerate() {
                let inner = Focus { node, position: index + 1, size, ..*focus };
                if self.holds(predicate, &inner)? {
                    kept.push(node);
                }
            }
            nodes = kept;
        }
        Ok(nodes)
    }

    pub fn holds(&mut self, predicate: &Predicate, focus: &Focus) -> RunResult<bool> {
        Ok(match self.eval(&predicate.expr, focus)? {
            XPathValue::Number(number) => number == focus.position as f64,
            value => value.truth(),
        })
    }

    /// XPath 1.0, section 3.4.
    fn compare(&mut self, how: Comparison, left: XPathValue, right: XPathValue) -> RunResult<bool> {
        let nodes = |value: XPathValue| match value {
            XPathValue::Fragment(node) => XPathValue::Nodes(vec![node]),
            value => value,
        };
        match (nodes(left), nodes(right)) {
            (XPathValue::Nodes(a), XPathValue::Nodes(b)) => self.compare_sets(how, &a, &b),
            (XPathValue::Nodes(a), XPathValue::Bool(b)) => {
                Ok(compare_scalars(how, &XPathValue::Bool(!a.is_empty()), &XPathValue::Bool(b)))
            }
            (XPathValue::Bool(a), XPathValue::Nodes(b)) => {
                Ok(compare_scalars(how, &XPathValue::Bool(a), &XPathValue::Bool(!b.is_empty())))
            }
            (XPathValue::Nodes(a), b) => {
                for node in a {
                    let text = XPathValue::Text(self.string(node)?);
                    if compare_scalars(how, &text, &b) {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            (a, XPathValue::Nodes(b)) => {
                for node in b {
                    let text = XPathValue::Text(self.string(node)?);
                    if compare_scalars(how, &a, &text) {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            (a, b) => Ok(compare_scalars(how, &a, &b)),
        }
    }

    fn compare_sets(&mut self, how: Comparison, left: &[NodeRef], right: &[NodeRef]) -> RunResult<bool> {
        let mut texts = Vec::with_capacity(left.len());
        for node in left {
            texts.push(self.string(*node)?);
        }
        let mut others = Vec::with_capacity(right.len());
        for node in right {
            others.push(self.string(*node)?);
        }
        Ok(match how {
            Comparison::Equal => {
                let known: HashSet<&String> = texts.iter().collect();
                others.iter().any(|text| known.contains(text))
            }
            Comparison::NotEqual => match (texts.first(), others.first()) {
                (Some(first), Some(_)) => {
                    texts.iter().any(|text| text != first) || others.iter().any(|text| text != first)
                }
                _ => false,
            },
            _ => {
                // The extremes decide; texts that are not numbers never compare.
                let extremes = |texts: &[String]| {
                    let numbers = texts.iter().map(|text| number::parse(text)).filter(|number| !number.is_nan());
                    numbers.fold(None, |found: Option<(f64, f64)>, n| match found {
                        None => Some((n, n)),
                        Some((low, high)) => Some((low.min(n), high.max(n))),
                    })
                };
                match (extremes(&texts), extremes(&others)) {
                    (Some((low, high)), Some((other_low, other_high))) => match how {
                        Comparison::Less => low < other_high,
                        Comparison::LessOrEqual => low <= other_high,
                        Comparison::Greater => high > other_low,
                        _ => high >= other_low,
                    },
                    _ => false,
                }
            }
        })
    }

    /// Calls a function of the stylesheet.
    fn call_named(&mut self, name: ExpandedName, arguments: &[Expr], focus: &Focus) -> RunResult<XPathValue> {
        if !self.sheet.functions.contains_key(&name) {
            let local = self.names.text(name.local);
            return failed(match name.ns.is_none() {
                true => format!("xmlXPathCompOpEval: function {local} not found"),
                false => {
                    let ns = self.names.text(name.ns);
                    format!("xmlXPathCompOpEval: function {local} bound to {ns} not found")
                }
            });
        }
        let mut values = Vec::with_capacity(arguments.len());
        for argument in arguments {
            values.push(self.eval(argument, focus)?);
        }
        self.call_function(name, values, focus)
    }

    /// Checks the number of arguments of a built-in function, then calls it.
    fn call(&mut self, function: functions::Function, arguments: &[Expr], focus: &Focus) -> RunResult<XPathValue> {
        let (_, least, most) = functions::arity(function);
        if arguments.len() < least || arguments.len() > most {
            return failed("Invalid number of arguments");
        }
        self.call_core(function, arguments, focus)
    }
}

fn compare_scalars(how: Comparison, left: &XPathValue, right: &XPathValue) -> bool {
    let number = |value: &XPathValue| match value {
        XPathValue::Number(number) => *number,
        XPathValue::Bool(yes) => f64::from(u8::from(*yes)),
        XPathValue::Text(text) => number::parse(text),
        _ => f64::NAN,
    };
    let ordered = |holds: fn(&f64, &f64) -> bool| holds(&number(left), &number(right));
    match how {
        Comparison::Less => ordered(f64::lt),
        Comparison::LessOrEqual => ordered(f64::le),
        Comparison::Greater => ordered(f64::gt),
        Comparison::GreaterOrEqual => ordered(f64::ge),
        Comparison::Equal | Comparison::NotEqual => {
            let equal = match (left, right) {
                (XPathValue::Bool(_), _) | (_, XPathValue::Bool(_)) => left.truth() == right.truth(),
                (XPathValue::Number(_), _) | (_, XPathValue::Number(_)) => number(left) == number(right),
                (XPathValue::Text(a), XPathValue::Text(b)) => a == b,
                _ => false,
            };
            equal == (how == Comparison::Equal)
        }
    }
}
