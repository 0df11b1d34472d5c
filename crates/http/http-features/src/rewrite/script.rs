//! Parses and runs the script.

use super::condition::Condition;
use crate::shared::script_steps::{self, ComputedValue, ScriptStep};
use base::bug;
use bytes::Bytes;
use conf_schema::{At, Cx, Directive, Problem};
use http_engine::order::Phase;
use http_engine::regex::HttpPattern;
use http_engine::template::{HttpTemplate, Part};
use http_engine::trace::StepKind;
use http_engine::variable::{HttpVariables, VarId};
use http_engine::{Flow, Handler, Request, ResponseBody, file_paths, path};
use observe::Severity;
use std::sync::Arc;

#[derive(Clone)]
pub struct Op {
    /// Position in the file, which orders the script.
    pub order: usize,
    pub at: At,
    pub kind: OpKind,
}

#[derive(Clone)]
pub enum OpKind {
    Break,
    Set { variable: VarId, value: HttpTemplate },
    Return(Return),
    Rewrite(RewriteStep),
    If { condition: Condition, child: usize },
    Step(Box<ScriptStep>),
}

#[derive(Clone)]
pub enum Return {
    Status(u16),
    /// Status with a text, or with a redirect's target.
    Text(u16, HttpTemplate),
}

#[derive(Clone)]
pub struct RewriteStep {
    pattern: Arc<HttpPattern>,
    replacement: HttpTemplate,
    drop_args: bool,
    redirect: Option<u16>,
    last: bool,
    stop: bool,
}

pub fn parse_operation(cx: &mut Cx, d: &Directive) -> Result<Op, Problem> {
    let order = script_steps::next_order(cx);
    let kind = match d.name.bytes.as_slice() {
        b"break" => OpKind::Break,
        b"set" => set(cx, d)?,
        b"return" => OpKind::Return(return_(cx, d)?),
        b"rewrite" => OpKind::Rewrite(rewrite(cx, d)?),
        _ => OpKind::If { child: cx.child_index, condition: Condition::parse(cx, d)? },
    };
    Ok(Op { order, at: cx.at, kind })
}

fn set(cx: &mut Cx, d: &Directive) -> Result<OpKind, Problem> {
    let (Some(name), Some(value)) = (d.args.first(), d.args.get(1)) else { return Err(Problem::invalid()) };
    let text = name.text().into_owned();
    let Some(variable) = text.strip_prefix('$').filter(|n| !n.is_empty()) else {
        return Err(Problem::says(format!("invalid variable name \"{text}\""))
            .at(0)
            .hint("a variable name begins with \"$\""));
    };
    let variable = cx.get::<HttpVariables>().script(variable).map_err(|p| p.at(0))?;
    let value = HttpTemplate::compile(cx, d, &value.bytes).map_err(|p| p.at(1))?;
    Ok(OpKind::Set { variable, value })
}

fn return_(cx: &mut Cx, d: &Directive) -> Result<Return, Problem> {
    let Some(first) = d.args.first() else { return Err(Problem::invalid()) };
    let word = first.text();
    let code = word.bytes().all(|c| c.is_ascii_digit()).then(|| word.parse::<u16>().ok()).flatten();
    let code = match code {
        Some(code) if code <= 999 => code,
        _ if d.args.len() == 1
            && (word.starts_with("http://") || word.starts_with("https://") || word.starts_with("$scheme")) =>
        {
            return HttpTemplate::compile(cx, d, &first.bytes).map(|t| Return::Text(302, t));
        }
        _ => return Err(Problem::says(format!("invalid return code \"{word}\"")).at(0)),
    };
    match d.args.get(1) {
        // nginx does not tell an empty text of an error from none: the error page answers.
        None => Ok(Return::Status(code)),
        Some(text) if code >= 400 && text.bytes.is_empty() => Ok(Return::Status(code)),
        Some(text) => HttpTemplate::compile(cx, d, &text.bytes).map(|t| Return::Text(code, t)).map_err(|p| p.at(1)),
    }
}

fn rewrite(cx: &mut Cx, d: &Directive) -> Result<RewriteStep, Problem> {
    let (Some(pattern), Some(target)) = (d.args.first(), d.args.get(1)) else { return Err(Problem::invalid()) };
    let mut text = target.bytes.clone();
    if text.is_empty() {
        return Err(Problem::says("empty replacement").at(1));
    }
    let pattern = HttpPattern::new(cx, &pattern.bytes, false).map_err(|p| p.at(0))?;
    let mut rewrite = RewriteStep {
        pattern: Arc::new(pattern),
        replacement: HttpTemplate::default(),
        drop_args: false,
        redirect: None,
        last: false,
        stop: false,
    };
    if text.starts_with(b"http://") || text.starts_with(b"https://") || text.starts_with(b"$scheme") {
        rewrite.redirect = Some(302);
        rewrite.stop = true;
    }
    if let Some(flag) = d.args.get(2) {
        match flag.text().as_ref() {
            "last" => (rewrite.last, rewrite.stop) = (true, true),
            "break" => rewrite.stop = true,
            "redirect" => (rewrite.redirect, rewrite.stop) = (Some(302), true),
            "permanent" => (rewrite.redirect, rewrite.stop) = (Some(301), true),
            other => {
                return Err(Problem::says(format!("invalid parameter \"{other}\""))
                    .at(2)
                    .hint("one of: last, break, redirect, permanent"));
            }
        }
    }
    if text.ends_with(b"?") {
        text.pop();
        rewrite.drop_args = true;
    }
    rewrite.replacement = HttpTemplate::compile(cx, d, &text).map_err(|p| p.at(1))?;
    Ok(rewrite)
}

pub struct Script {
    pub ops: Vec<Op>,
    /// Plan indices of inner blocks.
    pub children: Vec<usize>,
    pub log: bool,
}

impl Handler for Script {
    fn run(&self, r: &mut Request) -> Flow {
        // nginx escapes groups in values until the first rewrite of a run, including `if` blocks.
        if r.progress.script().depth == 0 {
            r.progress.script_mut().quote = true;
        }
        r.progress.script_mut().depth += 1;
        let flow = self.ops(r);
        r.progress.script_mut().depth -= 1;
        flow.unwrap_or(Flow::Declined)
    }
}

impl Script {
    /// `Some` ends the phase.
    fn ops(&self, r: &mut Request) -> Option<Flow> {
        for op in &self.ops {
            match &op.kind {
                OpKind::Break => {
                    r.note(StepKind::Rewrite, op.at, |_| "break".into());
                    return Some(stop(r));
                }
                OpKind::Set { variable, value } => {
                    let value = self.value(r, value);
                    r.note(StepKind::Rewrite, op.at, |r| {
                        let name = r.plan().variables.get(variable.0 as usize).map(|v| v.name.to_string());
                        format!("set ${} \"{}\"", name.unwrap_or_default(), String::from_utf8_lossy(&value))
                    });
                    r.set_variable(*variable, value);
                }
                OpKind::Step(step) => {
                    let quiet = step.arguments.iter().take(step.quiet).map(|argument| argument.eval(r));
                    let mut values: Vec<Vec<u8>> = quiet.collect();
                    for argument in step.arguments.iter().skip(step.quiet) {
                        values.push(self.value(r, argument));
                    }
                    let mut value = Vec::new();
                    let computed = step.compute.compute(r, &values, &mut value);
                    r.note(StepKind::Rewrite, op.at, |r| {
                        let name = r.plan().variables.get(step.variable.0 as usize).map(|v| v.name.to_string());
                        format!("set ${} \"{}\"", name.unwrap_or_default(), String::from_utf8_lossy(&value))
                    });
                    match computed {
                        ComputedValue::Value => r.set_variable(step.variable, value),
                        ComputedValue::Unchanged => {}
                        ComputedValue::Failed => return Some(Flow::Status(500)),
                    }
                }
                OpKind::Return(what) => {
                    let flow = answer(r, what);
                    r.note(StepKind::Rewrite, op.at, |_| match &flow {
                        Flow::Content(_) => "return: sends the response".into(),
                        flow => format!("return: {}", flow.words()),
                    });
                    return Some(flow);
                }
                OpKind::Rewrite(rewrite) => {
                    let before =
                        if r.trace().is_some() { r.target.path().clone() } else { path::CanonicalPath::default() };
                    let flow = self.rewrite(r, rewrite);
                    r.note(StepKind::Rewrite, op.at, |r| {
                        let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                        let pattern = shown(rewrite.pattern.text());
                        match &flow {
                            Some(Flow::Status(status)) => {
                                format!("rewrite {pattern}: {status} to \"{}\"", shown(r.out.location()))
                            }
                            _ if *r.target.path() != before => {
                                format!("rewrite {pattern}: \"{}\" to \"{}\"", shown(&before), shown(r.target.path()))
                            }
                            None => format!("rewrite {pattern}: does not match \"{}\"", shown(&before)),
                            Some(_) => format!("rewrite {pattern}: matches \"{}\"", shown(&before)),
                        }
                    });
                    if flow.is_some() {
                        return flow;
                    }
                }
                OpKind::If { condition, child } => {
                    let holds = condition.holds(r, self);
                    r.note(StepKind::Rewrite, op.at, |_| match holds {
                        Ok(true) => "if: holds".into(),
                        Ok(false) => "if: does not hold".into(),
                        Err(_) => "if: cannot be decided".into(),
                    });
                    match holds {
                        Ok(true) => {}
                        Ok(false) => continue,
                        Err(_) => return Some(Flow::Status(500)),
                    }
                    let plan = r.plan_rc();
                    let location = self.children.get(*child).copied();
                    let inner = location.and_then(|at| plan.locations.get(at));
                    let (Some(location), Some(inner)) = (location, inner) else {
                        bug!("an if block has no location");
                        continue;
                    };
                    if r.progress.phase() != Phase::ServerRewrite {
                        let lost = (r.progress.is_handler_lost() || r.loc().passes) && inner.content.is_none();
                        r.select_location(location);
                        http_engine::engine::enter_location(r);
                        r.progress.set_handler_lost(lost);
                    }
                    for script in &inner.rewrite {
                        match script.run(r) {
                            Flow::Declined => {}
                            flow => return Some(flow),
                        }
                    }
                }
            }
        }
        None
    }

    fn rewrite(&self, r: &mut Request, rewrite: &RewriteStep) -> Option<Flow> {
        let subject = r.target.path().clone();
        let Ok(matched) = rewrite.pattern.run(r, &subject) else { return Some(Flow::Status(500)) };
        let shown = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        if !matched {
            // Unlike elsewhere, a failed match clears earlier groups.
            r.target.captures_mut().clear();
            if self.log {
                let pattern = shown(rewrite.pattern.text());
                r.log(Severity::Notice, format_args!("\"{pattern}\" does not match \"{}\"", shown(&subject)));
            }
            return None;
        }
        if self.log {
            let pattern = shown(rewrite.pattern.text());
            r.log(Severity::Notice, format_args!("\"{pattern}\" matches \"{}\"", shown(&subject)));
        }
        if let Some(status) = rewrite.redirect {
            let mut target = Vec::new();
            self.replacement(r, &rewrite.replacement, true, &mut target);
            let mut target = unescape_redirect(&target);
            if !rewrite.drop_args && !r.target.args().is_empty() {
                target.push(if has_query(&rewrite.replacement) { b'&' } else { b'?' });
                target.extend_from_slice(r.target.args());
            }
            if self.log {
                r.log(Severity::Notice, format_args!("rewritten redirect: \"{}\"", shown(&target)));
            }
            r.out.set_location(target);
            return Some(Flow::Status(status));
        }
        let mut target = Vec::new();
        r.progress.script_mut().quote = false;
        self.replacement(r, &rewrite.replacement, false, &mut target);
        let (path, own_args) = match split_args(&rewrite.replacement, &target, r) {
            Some((path, args)) => (path, Some(args)),
            None => (target, None),
        };
        match own_args {
            Some(mut args) => {
                if !rewrite.drop_args && !r.target.args().is_empty() {
                    if !args.is_empty() {
                        args.push(b'&');
                    }
                    args.extend_from_slice(r.target.args());
                }
                r.target.set_args(args);
            }
            None if rewrite.drop_args => r.target.args_mut().clear(),
            None => {}
        }
        if self.log {
            let (path, args) = (shown(&path), shown(r.target.args()));
            r.log(Severity::Notice, format_args!("rewritten data: \"{path}\", args: \"{args}\""));
        }
        if path.is_empty() {
            r.log(Severity::Error, format_args!("the rewritten URI has a zero length"));
            return Some(Flow::Status(500));
        }
        r.target.set_path(match file_paths::canonical_path(r, path) {
            Ok(path) => path,
            Err(status) => return Some(Flow::Status(status)),
        });
        r.target.note_path_change();
        r.progress.allow_internal();
        if rewrite.last {
            r.target.request_match();
            return Some(Flow::Rewritten);
        }
        r.target.request_match();
        rewrite.stop.then(|| stop(r))
    }

    /// Writes a replacement; escapes groups, which are decoded paths, where a URL results.
    fn replacement(&self, r: &mut Request, template: &HttpTemplate, redirect: bool, out: &mut Vec<u8>) {
        let mut in_args = false;
        for part in template.parts() {
            match part {
                Part::Literal(text) => {
                    in_args |= text.contains(&b'?');
                    out.extend_from_slice(text);
                }
                Part::Variable(id) => {
                    r.variable(*id, out);
                }
                Part::Group(n) => {
                    let group = r.target.captures().get(usize::from(*n)).unwrap_or(b"").to_vec();
                    // nginx escapes groups of a decoded path in a URL or query.
                    if (redirect || in_args) && needs_escape(r) {
                        path::escape_args(&group, out);
                    } else {
                        out.extend_from_slice(&group);
                    }
                }
            }
        }
    }

    pub fn value(&self, r: &mut Request, template: &HttpTemplate) -> Vec<u8> {
        let mut out = Vec::new();
        for part in template.parts() {
            match part {
                Part::Literal(text) => out.extend_from_slice(text),
                Part::Variable(id) => _ = r.variable(*id, &mut out),
                Part::Group(n) => {
                    let group = r.target.captures().get(usize::from(*n)).unwrap_or(b"");
                    if r.progress.script().quote && needs_escape(r) {
                        path::escape_args(group, &mut out);
                    } else {
                        out.extend_from_slice(group);
                    }
                }
            }
        }
        out
    }
}

/// `break`: ends rewriting; the changed path stays in this location.
fn stop(r: &mut Request) -> Flow {
    r.target.stay_in_location();
    Flow::Rewritten
}

fn needs_escape(r: &Request) -> bool {
    r.head.path.of(&r.buf).iter().any(|c| matches!(c, b'%' | b'+'))
}

/// Unescapes printable bytes of a redirect up to the query (nginx: `NGX_UNESCAPE_REDIRECT`). Invalid escapes lose their
/// `%`, or are dropped.
fn unescape_redirect(target: &[u8]) -> Vec<u8> {
    let hex = |c: u8| (c as char).to_digit(16).map(|n| n as u8);
    let mut out = Vec::with_capacity(target.len());
    let mut rest = target;
    loop {
        match rest {
            [] | [b'%'] | [b'?', ..] => break,
            [b'%', first, after @ ..] => {
                let Some(high) = hex(*first) else {
                    out.push(*first);
                    rest = after;
                    continue;
                };
                let Some((second, after)) = after.split_first() else { return out };
                rest = after;
                match hex(*second).map(|low| high << 4 | low) {
                    Some(b'?') => {
                        out.push(b'?');
                        break;
                    }
                    Some(decoded) if decoded > b'%' && decoded < 0x7f => out.push(decoded),
                    Some(_) => out.extend_from_slice(&[b'%', *first, *second]),
                    None => {}
                }
            }
            [c, after @ ..] => {
                out.push(*c);
                rest = after;
            }
        }
    }
    if rest != b"%" {
        out.extend_from_slice(rest);
    }
    out
}

/// Splits a rewritten URI at the replacement's own `?`; one within a group belongs to the path.
fn split_args(template: &HttpTemplate, target: &[u8], r: &mut Request) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut before = Vec::new();
    for part in template.parts() {
        match part {
            Part::Literal(text) => {
                if let Some(at) = text.iter().position(|c| *c == b'?') {
                    let at = before.len() + at;
                    return Some((target.get(..at)?.to_vec(), target.get(at + 1..)?.to_vec()));
                }
                before.extend_from_slice(text);
            }
            Part::Variable(id) => {
                r.variable(*id, &mut before);
            }
            Part::Group(n) => before.extend_from_slice(r.target.captures().get(usize::from(*n)).unwrap_or(b"")),
        }
    }
    None
}

fn has_query(template: &HttpTemplate) -> bool {
    template.parts().iter().any(|part| matches!(part, Part::Literal(text) if text.contains(&b'?')))
}

fn answer(r: &mut Request, what: &Return) -> Flow {
    // Errors without a text keep their status.
    if !matches!(what, Return::Status(400..)) && r.incoming.take_broken_body() {
        return Flow::Status(400);
    }
    if !matches!(what, Return::Status(400..)) {
        r.incoming.require_continue();
    }
    match what {
        Return::Status(status @ (301 | 302 | 303 | 307 | 308 | 400..)) => Flow::Status(*status),
        Return::Status(status) => content(r, *status, Vec::new()),
        Return::Text(status, template) => {
            // `$status` of the text.
            r.out.set_status(*status);
            let text = template.eval(r);
            if matches!(status, 301 | 302 | 303 | 307 | 308) {
                r.out.set_location(text);
                return Flow::Status(*status);
            }
            content(r, *status, text)
        }
    }
}

fn content(r: &mut Request, status: u16, text: Vec<u8>) -> Flow {
    r.out.set_status(status);
    r.out.set_content_length(Some(text.len() as u64));
    r.set_content_type();
    Flow::Content(ResponseBody::Bytes(Bytes::from(text)))
}
