//! State of a transformation that expressions and instructions share: documents, variables, keys and the budget.

use crate::failure::{RunResult, UNWANTED, failed};
use crate::names::{ExpandedName, NameTable};
use crate::sheet::Stylesheet;
use crate::store::{DocId, NodeRef, Store};
use crate::tree::Document;
use crate::xml::Loader;
use crate::xpath::XPathValue;
use std::collections::HashMap;

/// Limits of a transformation.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Steps: visited nodes, instructions, and compared or copied bytes.
    pub steps: u64,
    /// Bytes of all trees and strings in memory.
    pub bytes: usize,
    /// Bytes of the result.
    pub result: usize,
    /// Templates in work, as libxslt's `xsltMaxDepth`.
    pub depth: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { steps: STEPS_MAX, bytes: BYTES_MAX, result: RESULT_MAX, depth: TEMPLATE_DEPTH_MAX }
    }
}

/// Steps of a transformation: some seconds of one thread.
pub const STEPS_MAX: u64 = 200_000_000;
/// Steps between two questions for the receiver, as a power of two: about a millisecond.
const STEPS_UNASKED_LOG: u32 = 16;
/// Bytes of the trees of a transformation.
pub const BYTES_MAX: usize = 128 << 20;
/// Bytes of a result.
pub const RESULT_MAX: usize = 64 << 20;
/// Nested templates, as in libxslt.
pub const TEMPLATE_DEPTH_MAX: usize = 3000;
/// Nested evaluations of expressions, with those of called functions.
pub(crate) const EVALUATION_DEPTH_MAX: usize = 400;

/// Context of an expression (XPath 1.0, section 1; XSLT 1.0, section 4).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Focus {
    pub node: NodeRef,
    pub position: usize,
    pub size: usize,
    pub current: NodeRef,
    /// Namespaces and base of the instruction: an index of `Stylesheet::scopes`.
    pub scope: u32,
}

#[derive(Clone)]
pub(crate) enum Global {
    Pending,
    InWork,
    Ready(XPathValue),
}

pub(crate) struct Engine<'s> {
    pub sheet: &'s Stylesheet,
    pub names: NameTable,
    pub store: Store,
    pub loader: &'s mut dyn Loader,
    pub limits: Limits,
    pub steps_left: u64,
    pub bytes_left: usize,
    /// Local variables of all active templates; those from `frame` on are visible.
    pub locals: Vec<(ExpandedName, XPathValue)>,
    pub frame: usize,
    pub globals: HashMap<ExpandedName, Global>,
    /// Values of global parameters, which take the place of `select`.
    pub parameters: HashMap<ExpandedName, XPathValue>,
    pub keys: HashMap<(DocId, ExpandedName), HashMap<String, Vec<NodeRef>>>,
    /// Documents of `document()` by address.
    pub loaded: HashMap<String, Option<DocId>>,
    pub source: DocId,
    /// Fragments are permanent: a global variable or a key is in work.
    pub permanent: usize,
    pub evaluations: usize,
    pub messages: Vec<String>,
    pub machine: crate::exec::ExecMachine<'s>,
    /// Seconds since the epoch.
    pub now: i64,
    /// Seconds east of UTC of the local time.
    pub zone: i64,
    pub random: u64,
}

impl<'s> Engine<'s> {
    /// Charges steps.
    pub fn step(&mut self, steps: u64) -> RunResult<()> {
        match self.steps_left.checked_sub(steps) {
            Some(left) => {
                let is_asked = (self.steps_left ^ left) >> STEPS_UNASKED_LOG != 0;
                self.steps_left = left;
                if is_asked && !self.loader.is_wanted() {
                    // Nothing that tolerates a failure goes on.
                    self.steps_left = 0;
                    return failed(UNWANTED);
                }
                Ok(())
            }
            None => failed("the transformation takes too many steps"),
        }
    }
    /// Charges memory and the work to fill it.
    pub fn spend(&mut self, bytes: usize) -> RunResult<()> {
        self.step(bytes as u64 / 16 + 1)?;
        match self.bytes_left.checked_sub(bytes) {
            Some(left) => {
                self.bytes_left = left;
                Ok(())
            }
            None => failed("the transformation takes too much memory"),
        }
    }
    /// Checks the bytes of a string in work, which is not kept.
    pub fn check_text(&mut self, text: &str) -> RunResult<()> {
        self.step(text.len() as u64 / 16)?;
        match text.len() > self.limits.result {
            true => failed("the transformation takes too much memory"),
            false => Ok(()),
        }
    }
    pub fn new_document(&mut self) -> RunResult<DocId> {
        self.spend(128)?;
        let document = Document::new(String::new());
        Ok(self.store.add(document, self.permanent > 0))
    }
    pub fn string(&mut self, node: NodeRef) -> RunResult<String> {
        let text = self.store.text(node, &self.names);
        self.check_text(&text)?;
        Ok(text)
    }

    pub fn text_of(&mut self, value: &XPathValue) -> RunResult<String> {
        Ok(match value {
            XPathValue::Text(text) => text.clone(),
            XPathValue::Number(number) => crate::xpath::number::text(*number),
            XPathValue::Bool(true) => "true".into(),
            XPathValue::Bool(false) => "false".into(),
            XPathValue::Fragment(node) => self.string(*node)?,
            XPathValue::Nodes(nodes) => match nodes.first() {
                Some(node) => self.string(*node)?,
                None => String::new(),
            },
        })
    }
    pub fn take_text(&mut self, value: XPathValue) -> RunResult<String> {
        match value {
            XPathValue::Text(text) => Ok(text),
            value => self.text_of(&value),
        }
    }
    pub fn number_of(&mut self, value: &XPathValue) -> RunResult<f64> {
        Ok(match value {
            XPathValue::Number(number) => *number,
            XPathValue::Bool(yes) => f64::from(u8::from(*yes)),
            value => {
                let text = self.text_of(value)?;
                crate::xpath::number::parse(&text)
            }
        })
    }

    /// Looks a variable up: local ones, then those of the stylesheet.
    pub fn variable(&mut self, name: ExpandedName) -> RunResult<XPathValue> {
        let visible = self.locals.get(self.frame..).unwrap_or(&[]);
        if let Some((_, value)) = visible.iter().rev().find(|(its, _)| *its == name) {
            let value = value.clone();
            self.step(value.bytes() as u64 / 16)?;
            return Ok(value);
        }
        match self.globals.get(&name) {
            Some(Global::Ready(value)) => {
                let value = value.clone();
                self.step(value.bytes() as u64 / 16)?;
                Ok(value)
            }
            Some(Global::InWork) => failed(format!("Recursive definition of {}", self.names.text(name.local))),
            Some(Global::Pending) => self.evaluate_global(name),
            None => failed(format!("Variable '{}' has not been declared", self.names.text(name.local))),
        }
    }

    /// Ends the fragments since a mark, and the keys of their nodes.
    pub fn release(&mut self, mark: usize) {
        if self.store.mark() > mark {
            let least = mark as u32 | crate::store::TEMPORARY;
            let mut bytes = 0;
            for id in least..(self.store.mark() as u32 | crate::store::TEMPORARY) {
                bytes += self.store.doc(id).bytes().max(128);
            }
            self.bytes_left = (self.bytes_left + bytes).min(self.limits.bytes);
            if !self.keys.is_empty() {
                self.keys.retain(|(doc, _), _| *doc < least);
            }
            self.store.release(mark);
        }
    }
}

impl XPathValue {
    /// Bytes in memory, without the documents of nodes.
    pub fn bytes(&self) -> usize {
        match self {
            XPathValue::Nodes(nodes) => nodes.len() * size_of::<NodeRef>(),
            XPathValue::Text(text) => text.len(),
            _ => 0,
        }
    }
    pub fn truth(&self) -> bool {
        match self {
            XPathValue::Bool(yes) => *yes,
            XPathValue::Number(number) => *number != 0.0 && !number.is_nan(),
            XPathValue::Text(text) => !text.is_empty(),
            XPathValue::Nodes(nodes) => !nodes.is_empty(),
            XPathValue::Fragment(_) => true,
        }
    }
}
