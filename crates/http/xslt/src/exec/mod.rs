//! Runs templates on a stack of frames of its own: the depth of templates costs memory, not stack of the thread.

mod apply;
mod build;
mod copy;
mod number;
mod sort;

use crate::engine::{Engine, Focus, Global};
use crate::failure::{RunResult, TransformFailure, failed};
use crate::names::ExpandedName;
use crate::sheet::{Avt, AvtPart, Instruction, Literal, LocatedNode, VariableValue, WithParam};
use crate::store::{DocId, NodeRef};
use crate::xpath::XPathValue;
use std::rc::Rc;

/// Local variables of all active templates, as libxslt's `xsltMaxVars`.
const LOCALS_MAX: usize = 15_000;

type Params = Rc<Vec<(ExpandedName, XPathValue)>>;

#[derive(Default)]
pub(crate) struct ExecMachine<'s> {
    frames: Vec<Frame<'s>>,
    outputs: Vec<TreeOutput>,
    depth: usize,
    /// Current template rule (section 5.6).
    rule: Option<usize>,
    /// Mode of the current template rule.
    mode: Option<ExpandedName>,
    params: Params,
    /// Values of `func:result`, one for each function in work.
    results: Vec<Option<XPathValue>>,
    /// Position of the current instruction, for messages.
    at: Option<&'s LocatedNode>,
}

/// Tree under construction.
#[derive(Clone, Copy)]
pub(crate) struct TreeOutput {
    pub doc: DocId,
    pub parent: u32,
}

struct Frame<'s> {
    block: &'s [LocatedNode],
    next: usize,
    focus: Focus,
    /// Local variables before the block.
    locals: usize,
    end: FrameEnd<'s>,
}

/// Action at the end of a frame's block.
enum FrameEnd<'s> {
    Nothing,
    CloseElement,
    /// The attribute sets of a literal result element are complete: its own attributes and content follow.
    Literal(&'s Literal),
    AttributeSet {
        frame: usize,
    },
    Variable(ExpandedName),
    WithParam(Box<TemplateCall<'s>>),
    Attribute {
        name: String,
        namespace: Option<String>,
    },
    Comment,
    Processing(String),
    Message {
        terminate: bool,
    },
    ForEach {
        nodes: Vec<NodeRef>,
        at: usize,
    },
    Apply {
        nodes: Vec<NodeRef>,
        at: usize,
        mode: Option<ExpandedName>,
        params: Params,
    },
    Template {
        frame: usize,
        rule: Option<usize>,
        mode: Option<ExpandedName>,
        params: Params,
        mark: usize,
    },
    FunctionResult,
}

/// Call whose parameters are being evaluated.
struct TemplateCall<'s> {
    target: ExecTarget,
    params: &'s [WithParam],
    at: usize,
    values: Vec<(ExpandedName, XPathValue)>,
    focus: Focus,
}

enum ExecTarget {
    Template(usize),
    Apply { nodes: Vec<NodeRef>, mode: Option<ExpandedName> },
    Imports,
}

/// Bytes of a call's parameters.
fn size_of_params(params: &Params) -> usize {
    params.iter().map(|(_, value)| value.bytes()).sum()
}

static NO_BLOCK: &[LocatedNode] = &[];

impl<'s> Engine<'s> {
    /// Message with the position of the current instruction, as libxslt words it.
    pub fn located(&self, failure: &TransformFailure) -> String {
        let TransformFailure::Error(message) = failure else { return String::new() };
        match self.machine.at {
            Some(at) => {
                let uri = &self.sheet.in_scope(at.scope).base;
                format!("runtime error: file {uri} line {} element {}: {message}", at.line, at.instruction.name())
            }
            None => format!("runtime error: {message}"),
        }
    }

    /// Runs the stylesheet on a document. Returns the result's document.
    pub fn transform(&mut self) -> RunResult<DocId> {
        self.permanent += 1;
        let sheet = self.sheet;
        for name in sheet.globals.keys() {
            self.globals.insert(*name, Global::Pending);
        }
        for name in &sheet.global_order {
            if let Some(Global::Pending) = self.globals.get(name) {
                self.evaluate_global(*name)?;
            }
        }
        let result = self.new_document()?;
        self.permanent -= 1;
        self.machine.outputs.push(TreeOutput { doc: result, parent: 0 });
        let root = NodeRef::root(self.source);
        let focus = Focus { node: root, position: 1, size: 1, current: root, scope: 0 };
        let end = FrameEnd::Apply { nodes: vec![root], at: 0, mode: None, params: Params::default() };
        self.push(NO_BLOCK, focus, end);
        self.run(0)?;
        Ok(result)
    }

    fn push(&mut self, block: &'s [LocatedNode], focus: Focus, end: FrameEnd<'s>) {
        let locals = self.locals.len();
        self.machine.frames.push(Frame { block, next: 0, focus, locals, end });
    }

    /// Runs until `floor` frames are left.
    fn run(&mut self, floor: usize) -> RunResult<()> {
        while self.machine.frames.len() > floor {
            self.step(1)?;
            let Some(frame) = self.machine.frames.last_mut() else { return Ok(()) };
            match frame.block.get(frame.next) {
                Some(located) => {
                    frame.next += 1;
                    let focus = Focus { scope: located.scope, ..frame.focus };
                    self.machine.at = Some(located);
                    self.instruct(&located.instruction, focus)?;
                }
                None => self.end_frame()?,
            }
        }
        Ok(())
    }

    fn end_frame(&mut self) -> RunResult<()> {
        let Some(mut frame) = self.machine.frames.pop() else { return Ok(()) };
        self.unbind(frame.locals);
        match frame.end {
            FrameEnd::Nothing => {}
            FrameEnd::CloseElement => self.close_element(),
            FrameEnd::Literal(literal) => self.literal_content(literal, &frame.focus)?,
            FrameEnd::AttributeSet { frame } => self.frame = frame,
            FrameEnd::Variable(name) => {
                let value = self.pop_fragment();
                self.bind(name, value)?;
            }
            FrameEnd::WithParam(mut call) => {
                let value = self.pop_fragment();
                let Some(param) = call.params.get(call.at) else { return Ok(()) };
                call.values.push((param.name, value));
                call.at += 1;
                self.invoke(*call)?;
            }
            FrameEnd::Attribute { name, namespace } => {
                let value = self.pop_text()?;
                self.add_named_attribute(&name, namespace.as_deref(), &value, &frame.focus)?;
            }
            FrameEnd::Comment => {
                let text = self.pop_text()?;
                self.add_comment(&text)?;
            }
            FrameEnd::Processing(name) => {
                let text = self.pop_text()?;
                self.add_processing(&name, &text)?;
            }
            FrameEnd::Message { terminate } => {
                let text = self.pop_text()?;
                self.messages.push(text);
                if terminate {
                    return Err(TransformFailure::Terminated);
                }
            }
            FrameEnd::ForEach { ref nodes, ref mut at } => {
                *at += 1;
                if let Some(node) = nodes.get(*at).copied() {
                    frame.focus = Focus { node, current: node, position: *at + 1, ..frame.focus };
                    frame.next = 0;
                    self.machine.frames.push(frame);
                }
            }
            FrameEnd::Apply { ref nodes, ref mut at, mode, ref params } => {
                if let Some(node) = nodes.get(*at).copied() {
                    *at += 1;
                    let (position, size, params) = (*at, nodes.len(), params.clone());
                    let focus = Focus { node, current: node, position, size, ..frame.focus };
                    self.machine.frames.push(frame);
                    self.apply_rule(focus, mode, params)?;
                }
            }
            FrameEnd::Template { frame, rule, mode, params, mark } => {
                self.bytes_left += size_of_params(&self.machine.params);
                self.frame = frame;
                self.machine.rule = rule;
                self.machine.mode = mode;
                self.machine.params = params;
                self.machine.depth -= 1;
                self.release(mark);
            }
            FrameEnd::FunctionResult => {
                let value = self.pop_fragment();
                self.set_result(value)?;
            }
        }
        Ok(())
    }

    fn bind(&mut self, name: ExpandedName, value: XPathValue) -> RunResult<()> {
        if self.locals.len() >= LOCALS_MAX {
            return failed(
                "xsltApplyXSLTTemplate: A potential infinite template recursion was detected: too many variables",
            );
        }
        self.spend(value.bytes())?;
        self.locals.push((name, value));
        Ok(())
    }

    /// Ends the local variables since a mark.
    fn unbind(&mut self, mark: usize) {
        while self.locals.len() > mark {
            let Some((_, value)) = self.locals.pop() else { return };
            self.bytes_left += value.bytes();
        }
    }

    fn instruct(&mut self, instruction: &'s Instruction, focus: Focus) -> RunResult<()> {
        let sheet = self.sheet;
        match instruction {
            Instruction::Text { text, raw } => self.add_text(text, *raw)?,
            Instruction::Literal(literal) => self.literal(literal, focus)?,
            Instruction::ValueOf { select, raw } => {
                let text = self.eval_text(select, &focus)?;
                self.add_text(&text, *raw)?;
            }
            Instruction::CopyOf(select) => {
                let value = self.eval(select, &focus)?;
                self.copy_of(value)?;
            }
            Instruction::Copy { sets, body } => self.copy(sets, sheet.block(*body), focus)?,
            Instruction::ApplyTemplates { select, mode, sorts, params } => {
                let nodes = match select {
                    Some(select) => self.eval_nodes(select, &focus)?,
                    None => self.children(focus.node),
                };
                let nodes = self.sort(nodes, sorts, &focus)?;
                let target = ExecTarget::Apply { nodes, mode: *mode };
                self.invoke(TemplateCall { target, params, at: 0, values: Vec::new(), focus })?;
            }
            Instruction::ApplyImports(params) => {
                self.invoke(TemplateCall { target: ExecTarget::Imports, params, at: 0, values: Vec::new(), focus })?;
            }
            Instruction::CallTemplate { name, params } => {
                let Some(template) = sheet.named.get(name).copied() else {
                    let local = self.names.text(name.local).to_string();
                    return failed(format!("The called template '{local}' was not found."));
                };
                let target = ExecTarget::Template(template);
                self.invoke(TemplateCall { target, params, at: 0, values: Vec::new(), focus })?;
            }
            Instruction::ForEach { select, sorts, body } => {
                let nodes = match self.eval(select, &focus)? {
                    XPathValue::Nodes(nodes) => nodes,
                    _ => return failed("The 'select' expression does not evaluate to a node set."),
                };
                let nodes = self.sort(nodes, sorts, &focus)?;
                if let Some(node) = nodes.first().copied() {
                    let focus = Focus { node, current: node, position: 1, size: nodes.len(), ..focus };
                    self.push(sheet.block(*body), focus, FrameEnd::ForEach { nodes, at: 0 });
                }
            }
            Instruction::If { test, body } => {
                if self.eval(test, &focus)?.truth() {
                    self.push(sheet.block(*body), focus, FrameEnd::Nothing);
                }
            }
            Instruction::Choose { whens, otherwise } => {
                for (test, body) in whens {
                    if self.eval(test, &focus)?.truth() {
                        self.push(sheet.block(*body), focus, FrameEnd::Nothing);
                        return Ok(());
                    }
                }
                if let Some(body) = otherwise {
                    self.push(sheet.block(*body), focus, FrameEnd::Nothing);
                }
            }
            Instruction::Variable { name, value } => {
                if self.locals.get(self.frame..).is_some_and(|visible| visible.iter().any(|(its, _)| its == name)) {
                    let name = self.names.text(name.local);
                    return failed(format!("XSLT-variable: Redefinition of variable '{name}'."));
                }
                self.define(*name, value, focus)?;
            }
            Instruction::Param { name, value } => {
                let given = self.machine.params.iter().find(|(its, _)| its == name).map(|(_, value)| value.clone());
                match given {
                    Some(given) => self.bind(*name, given)?,
                    None => self.define(*name, value, focus)?,
                }
            }
            Instruction::Element { name, namespace, sets, body } => {
                let name = self.avt(name, &focus)?;
                let namespace = self.optional_avt(namespace.as_ref(), &focus)?;
                self.open_named_element(&name, namespace.as_deref(), &focus)?;
                self.push(sheet.block(*body), focus, FrameEnd::CloseElement);
                self.push_sets(sets, focus)?;
            }
            Instruction::Attribute { name, namespace, body } => {
                let name = self.avt(name, &focus)?;
                let namespace = self.optional_avt(namespace.as_ref(), &focus)?;
                let body = sheet.block(*body);
                if let Some(text) = self.simple_text(body, &focus)? {
                    self.add_named_attribute(&name, namespace.as_deref(), &text, &focus)?;
                    return Ok(());
                }
                self.push_output()?;
                self.push(body, focus, FrameEnd::Attribute { name, namespace });
            }
            Instruction::Comment(body) => {
                self.push_output()?;
                self.push(sheet.block(*body), focus, FrameEnd::Comment);
            }
            Instruction::Processing { name, body } => {
                let name = self.avt(name, &focus)?;
                self.push_output()?;
                self.push(sheet.block(*body), focus, FrameEnd::Processing(name));
            }
            Instruction::Number(number) => {
                let text = self.number(number, &focus)?;
                match text.is_empty() {
                    true => self.add_empty_text()?,
                    false => self.add_text(&text, false)?,
                }
            }
            Instruction::Message { terminate, body } => {
                self.push_output()?;
                self.push(sheet.block(*body), focus, FrameEnd::Message { terminate: *terminate });
            }
            Instruction::Fallback(body) => self.push(sheet.block(*body), focus, FrameEnd::Nothing),
            Instruction::Unsupported(why) => return failed(why.clone()),
            Instruction::FunctionResult(value) => match value {
                VariableValue::Empty => self.set_result(XPathValue::Text(String::new()))?,
                VariableValue::Select(expr) => {
                    let value = self.eval(expr, &focus)?;
                    self.set_result(value)?;
                }
                VariableValue::Body(body) => {
                    self.push_output()?;
                    self.push(sheet.block(*body), focus, FrameEnd::FunctionResult);
                }
            },
        }
        Ok(())
    }

    /// Value of a body that is only text or `xsl:value-of`.
    fn simple_text(&mut self, body: &'s [LocatedNode], focus: &Focus) -> RunResult<Option<String>> {
        Ok(match body {
            [] => Some(String::new()),
            [LocatedNode { instruction: Instruction::Text { text, .. }, .. }] => Some(text.clone()),
            [LocatedNode { instruction: Instruction::ValueOf { select, .. }, scope, .. }] => {
                Some(self.eval_text(select, &Focus { scope: *scope, ..*focus })?)
            }
            _ => None,
        })
    }

    fn define(&mut self, name: ExpandedName, value: &'s VariableValue, focus: Focus) -> RunResult<()> {
        match value {
            VariableValue::Empty => self.bind(name, XPathValue::Text(String::new())),
            VariableValue::Select(expr) => {
                let value = self.eval(expr, &focus)?;
                self.bind(name, value)
            }
            VariableValue::Body(body) => {
                self.push_output()?;
                let block = self.sheet.block(*body);
                self.push(block, focus, FrameEnd::Variable(name));
                Ok(())
            }
        }
    }

    /// Evaluates a global variable, or a parameter without a given value.
    pub fn evaluate_global(&mut self, name: ExpandedName) -> RunResult<XPathValue> {
        let sheet = self.sheet;
        let Some(global) = sheet.globals.get(&name) else { return failed("Undefined variable") };
        self.globals.insert(name, Global::InWork);
        let root = NodeRef::root(self.source);
        let focus = Focus { node: root, position: 1, size: 1, current: root, scope: global.scope };
        let given = self.parameters.get(&name).cloned().filter(|_| global.is_param);
        let value = match (given, &global.value) {
            (Some(given), _) => given,
            (None, VariableValue::Empty) => XPathValue::Text(String::new()),
            (None, VariableValue::Select(expr)) => self.outside(|engine| engine.eval(expr, &focus))?,
            (None, VariableValue::Body(body)) => self.outside(|engine| {
                engine.push_output()?;
                let floor = engine.machine.frames.len();
                engine.push(sheet.block(*body), focus, FrameEnd::Nothing);
                engine.nested(floor)?;
                Ok(engine.pop_fragment())
            })?,
        };
        self.globals.insert(name, Global::Ready(value.clone()));
        Ok(value)
    }

    /// Evaluates for all templates: without local variables, with fragments that stay.
    pub fn outside<T>(&mut self, work: impl FnOnce(&mut Engine<'s>) -> RunResult<T>) -> RunResult<T> {
        let frame = std::mem::replace(&mut self.frame, self.locals.len());
        let params = std::mem::take(&mut self.machine.params);
        self.permanent += 1;
        let done = work(self);
        self.permanent -= 1;
        self.machine.params = params;
        self.frame = frame;
        done
    }

    /// Runs frames from within an expression.
    fn nested(&mut self, floor: usize) -> RunResult<()> {
        self.evaluations += 4;
        if self.evaluations > crate::engine::EVALUATION_DEPTH_MAX {
            return failed("the evaluation of an expression nests too deeply");
        }
        let at = self.machine.at;
        self.run(floor)?;
        self.machine.at = at;
        self.evaluations -= 4;
        Ok(())
    }

    /// Calls a function of the stylesheet (EXSLT functions).
    pub fn call_function(
        &mut self,
        name: ExpandedName,
        values: Vec<XPathValue>,
        focus: &Focus,
    ) -> RunResult<XPathValue> {
        let sheet = self.sheet;
        let Some(function) = sheet.functions.get(&name) else { return failed("Unregistered function") };
        let body = sheet.block(function.body);
        let frame = std::mem::replace(&mut self.frame, self.locals.len());
        let params = std::mem::take(&mut self.machine.params);
        let locals = self.locals.len();
        let mut body_at = 0;
        let mut values = values.into_iter();
        // Arguments are the parameters by position.
        for located in body {
            let Instruction::Param { name, .. } = &located.instruction else { break };
            let Some(value) = values.next() else { break };
            self.bind(*name, value)?;
            body_at += 1;
        }
        if values.next().is_some() {
            return failed("exsltFuncFunctionFunction: too many arguments");
        }
        self.machine.results.push(None);
        // Text of a function's body is not allowed; it ends with its output.
        self.push_output()?;
        let floor = self.machine.frames.len();
        let focus = Focus { current: focus.node, ..*focus };
        self.push(body.get(body_at..).unwrap_or(NO_BLOCK), focus, FrameEnd::Nothing);
        self.nested(floor)?;
        self.machine.outputs.pop();
        let value = self.machine.results.pop().flatten().unwrap_or(XPathValue::Text(String::new()));
        self.unbind(locals);
        self.machine.params = params;
        self.frame = frame;
        Ok(value)
    }

    fn set_result(&mut self, value: XPathValue) -> RunResult<()> {
        match self.machine.results.last_mut() {
            Some(result) if result.is_none() => {
                *result = Some(value);
                Ok(())
            }
            Some(_) => failed("func:result was instantiated more than once"),
            None => failed("func:result element not a descendant of a func:function"),
        }
    }

    pub fn avt(&mut self, avt: &Avt, focus: &Focus) -> RunResult<String> {
        let mut out = String::new();
        for part in &avt.0 {
            match part {
                AvtPart::Text(text) => out.push_str(text),
                AvtPart::Expr(expr) => out.push_str(&self.eval_text(expr, focus)?),
            }
        }
        self.check_text(&out)?;
        Ok(out)
    }
    fn optional_avt(&mut self, avt: Option<&Avt>, focus: &Focus) -> RunResult<Option<String>> {
        match avt {
            Some(avt) => self.avt(avt, focus).map(Some),
            None => Ok(None),
        }
    }
}
