//! EXSLT (http://exslt.org): math, sets, strings, dynamic, dates and times, as libexslt has them.

mod calendar;
mod dates;
mod strings;

use crate::engine::{Engine, Focus};
use crate::failure::{RunResult, failed};
use crate::store::NodeRef;
use crate::tree::NodeKind;
use crate::xpath::XPathValue;
use crate::xpath::ast::Expr;
use crate::xpath::functions::Function;
use crate::xpath::number;
use std::collections::HashSet;

impl Engine<'_> {
    pub fn call_exslt(&mut self, function: Function, arguments: &[Expr], focus: &Focus) -> RunResult<XPathValue> {
        use Function as F;
        match function {
            F::MathMin | F::MathMax | F::MathHighest | F::MathLowest => self.extremes(function, arguments, focus),
            F::SetDifference
            | F::SetIntersection
            | F::SetDistinct
            | F::SetHasSameNode
            | F::SetLeading
            | F::SetTrailing => self.sets(function, arguments, focus),
            F::TextTokenize
            | F::TextSplit
            | F::TextEncodeUri
            | F::TextDecodeUri
            | F::TextPadding
            | F::TextAlign
            | F::TextConcat
            | F::TextReplace => self.call_strings(function, arguments, focus),
            F::DynamicMap => self.map(arguments, focus),
            F::MathConstant
            | F::MathRandom
            | F::MathAbs
            | F::MathSqrt
            | F::MathPower
            | F::MathLog
            | F::MathSin
            | F::MathCos
            | F::MathTan
            | F::MathAsin
            | F::MathAcos
            | F::MathAtan
            | F::MathAtan2
            | F::MathExp => self.math(function, arguments, focus),
            _ => self.call_dates(function, arguments, focus),
        }
    }

    fn nodes_argument(&mut self, arguments: &[Expr], index: usize, focus: &Focus) -> RunResult<Vec<NodeRef>> {
        match self.argument(arguments.get(index), focus)? {
            XPathValue::Nodes(nodes) => Ok(nodes),
            XPathValue::Fragment(node) => Ok(vec![node]),
            _ => failed("Invalid type"),
        }
    }

    fn extremes(&mut self, function: Function, arguments: &[Expr], focus: &Focus) -> RunResult<XPathValue> {
        let nodes = self.nodes_argument(arguments, 0, focus)?;
        let mut numbers = Vec::with_capacity(nodes.len());
        for node in &nodes {
            numbers.push(number::parse(&self.string(*node)?));
        }
        let is_max = matches!(function, Function::MathMax | Function::MathHighest);
        let extreme = match numbers.iter().any(|number| number.is_nan()) {
            true => f64::NAN,
            false => numbers.iter().copied().reduce(if is_max { f64::max } else { f64::min }).unwrap_or(f64::NAN),
        };
        Ok(match function {
            Function::MathMin | Function::MathMax => XPathValue::Number(extreme),
            _ => {
                let found = nodes.into_iter().zip(numbers).filter(|(_, number)| *number == extreme);
                XPathValue::Nodes(found.map(|(node, _)| node).collect())
            }
        })
    }

    fn math(&mut self, function: Function, arguments: &[Expr], focus: &Focus) -> RunResult<XPathValue> {
        use Function as F;
        if function == F::MathRandom {
            // Not for secrets: a linear congruential generator (Knuth's constants).
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            return Ok(XPathValue::Number((self.random >> 11) as f64 / (1u64 << 53) as f64));
        }
        if function == F::MathConstant {
            let name = self.text_argument(arguments.first(), focus)?;
            let precision = self.argument(arguments.get(1), focus)?;
            return Ok(XPathValue::Number(constant(&name, self.number_of(&precision)?)));
        }
        let first = self.argument(arguments.first(), focus)?;
        let first = self.number_of(&first)?;
        let second = match arguments.get(1) {
            Some(expr) => self.eval_number(expr, focus)?,
            None => f64::NAN,
        };
        Ok(XPathValue::Number(match function {
            F::MathAbs => first.abs(),
            F::MathSqrt => first.sqrt(),
            F::MathPower => first.powf(second),
            F::MathLog => first.ln(),
            F::MathSin => first.sin(),
            F::MathCos => first.cos(),
            F::MathTan => first.tan(),
            F::MathAsin => first.asin(),
            F::MathAcos => first.acos(),
            F::MathAtan => first.atan(),
            F::MathAtan2 => first.atan2(second),
            _ => first.exp(),
        }))
    }

    fn sets(&mut self, function: Function, arguments: &[Expr], focus: &Focus) -> RunResult<XPathValue> {
        let first = self.nodes_argument(arguments, 0, focus)?;
        if function == Function::SetDistinct {
            let mut seen = HashSet::new();
            let mut found = Vec::new();
            for node in first {
                let text = self.string(node)?;
                self.step(text.len() as u64 + 1)?;
                if seen.insert(text) {
                    found.push(node);
                }
            }
            return Ok(XPathValue::Nodes(found));
        }
        let second = self.nodes_argument(arguments, 1, focus)?;
        self.step((first.len() + second.len()) as u64)?;
        let has = |node: &NodeRef| second.binary_search(node).is_ok();
        let bound = second.first().copied();
        let contains_bound = bound.is_some_and(|bound| first.binary_search(&bound).is_ok());
        Ok(match function {
            Function::SetDifference => XPathValue::Nodes(first.iter().filter(|node| !has(node)).copied().collect()),
            Function::SetIntersection => XPathValue::Nodes(first.iter().filter(|node| has(node)).copied().collect()),
            Function::SetHasSameNode => XPathValue::Bool(first.iter().any(has)),
            Function::SetLeading | Function::SetTrailing => match bound {
                None => XPathValue::Nodes(first),
                Some(_) if !contains_bound => XPathValue::Nodes(Vec::new()),
                Some(bound) => {
                    let leading = function == Function::SetLeading;
                    let kept = first.into_iter().filter(|node| if leading { *node < bound } else { *node > bound });
                    XPathValue::Nodes(kept.collect())
                }
            },
            _ => return failed("Unregistered function"),
        })
    }

    /// `dyn:map`: the values of an expression for each node.
    fn map(&mut self, arguments: &[Expr], focus: &Focus) -> RunResult<XPathValue> {
        let nodes = self.nodes_argument(arguments, 0, focus)?;
        let text = self.text_argument(arguments.get(1), focus)?;
        let Some(expr) = self.dynamic(&text, focus)? else { return Ok(XPathValue::Nodes(Vec::new())) };
        let size = nodes.len();
        let mut found = Vec::new();
        let mut texts: Vec<(&'static str, String)> = Vec::new();
        for (index, node) in nodes.into_iter().enumerate() {
            let inner = Focus { node, position: index + 1, size, ..*focus };
            match self.eval(&expr, &inner)? {
                XPathValue::Nodes(nodes) => found.extend(nodes),
                XPathValue::Fragment(node) => found.push(node),
                value => {
                    let name = match value {
                        XPathValue::Bool(_) => "boolean",
                        XPathValue::Number(_) => "number",
                        _ => "string",
                    };
                    let text = match value {
                        XPathValue::Bool(false) => String::new(),
                        value => self.take_text(value)?,
                    };
                    texts.push((name, text));
                }
            }
        }
        if !texts.is_empty() {
            let doc = self.new_document()?;
            let ns = self.names.id(crate::xpath::functions::COMMON);
            let prefix = self.names.id("exsl");
            for (name, text) in texts {
                self.spend(text.len() + 160)?;
                let name = crate::names::QName { ns, local: self.names.id(name), prefix };
                let document = self.store.doc_mut(doc);
                let node = document.append(0, NodeKind::Element, name, "", 0);
                document.declare(node, prefix, ns);
                document.append_text(node, NodeKind::Text, &text, 0);
                found.push(NodeRef { doc, node, ns: 0 });
            }
        }
        Ok(XPathValue::Nodes(self.in_order(found)?))
    }
}

/// A constant, cut to some characters of its digits.
fn constant(name: &str, precision: f64) -> f64 {
    let digits = match name {
        "PI" => "3.1415926535897932384626433832795028841971693993751",
        "E" => "2.71828182845904523536028747135266249775724709369996",
        "SQRRT2" => "1.41421356237309504880168872420969807856967187537694",
        "LN2" => "0.69314718055994530941723212145817656807550013436025",
        "LN10" => "2.30258509299404568402",
        "LOG2E" => "1.4426950408889634074",
        "SQRT1_2" => "0.70710678118654752440",
        _ => return f64::NAN,
    };
    if precision.is_nan() || precision < 1.0 {
        return f64::NAN;
    }
    let length = (precision as usize).min(digits.len());
    number::parse(digits.get(..length).unwrap_or(digits))
}
