//! The engine: walks a tree, passes each directive to its row, and words errors (nginx: `ngx_conf_handler`).

use crate::complaint::{Complaint, ComplaintLevel, Problem, ProblemWords};
use crate::context::Contexts;
use crate::cx::Cx;
use crate::suggest;
use crate::table::{At, DirectiveRow, FeatureTable};
use crate::vocabulary::foreign::{self, Stand};
use crate::vocabulary::{self, ContextArea, KnownDirective};
use conf_syntax::{Directive, SyntaxError, TreeItem};
use std::any::Any;
use std::collections::HashMap;

/// Later errors are dropped.
pub const ERRORS_MAX: usize = 20;

pub struct Schema {
    tables: Vec<FeatureTable>,
    rows: HashMap<(&'static str, ContextArea), (usize, &'static DirectiveRow)>,
    /// Contexts inside block directives, by name and outer context.
    program: &'static str,
}

impl Schema {
    /// Indexes the tables; `program` appears in "not supported by ..." (`tidegate 0.1.0`).
    /// # Panics
    /// When two tables declare a directive in one area, or a directive is not in the vocabulary.
    pub fn new(tables: Vec<FeatureTable>, program: &'static str) -> Schema {
        let mut rows = HashMap::new();
        for (index, table) in tables.iter().enumerate() {
            for row in table.rows {
                let known = vocabulary::find_directives(row.name).iter().any(|k| k.area() == table.area);
                assert!(known, "\"{}\" of {} stands in no vocabulary", row.name, table.feature);
                let earlier = rows.insert((row.name, table.area), (index, row));
                assert!(earlier.is_none(), "\"{}\" is declared twice", row.name);
            }
        }
        Schema { tables, rows, program }
    }
    pub fn tables(&self) -> &[FeatureTable] {
        &self.tables
    }
    /// Index of a feature's table and of its input in [`CheckedBlock::inputs`].
    pub fn table_index(&self, feature: &str, area: ContextArea) -> Option<usize> {
        self.tables.iter().position(|t| t.feature == feature && t.area == area)
    }
    /// Returns `None` for a directive that this version lacks.
    pub fn row(&self, known: &KnownDirective) -> Option<&'static DirectiveRow> {
        self.rows.get(&(known.name, known.area())).map(|(_, row)| *row)
    }
    /// Tells whether this version supports a directive. Structural directives have no row.
    pub fn supports(&self, known: &KnownDirective) -> bool {
        let refused = |row: &DirectiveRow| row.doc.iter().any(|line| line.trim_start().starts_with("Refused:"));
        self.row(known).is_some_and(|row| !refused(row))
            || known.name == "include"
            || Self::opens(known).is_some_and(|inner| self.area_used(inner))
    }
    fn area_used(&self, inner: Contexts) -> bool {
        let area = ContextArea::of(inner);
        self.tables.iter().any(|t| t.area == area && !t.rows.is_empty())
    }
    /// Context inside a structural directive's block.
    fn opens(known: &KnownDirective) -> Option<Contexts> {
        Some(match (known.name, known.area()) {
            ("events", _) => Contexts::events,
            ("http", _) => Contexts::http,
            ("stream", _) => Contexts::stream,
            ("mail", _) => Contexts::mail,
            ("server", ContextArea::Http) if known.block => Contexts::server,
            ("server", ContextArea::Stream) if known.block => Contexts::stream_server,
            ("server", ContextArea::Mail) if known.block => Contexts::mail_server,
            ("location", _) => Contexts::location,
            ("if", _) => Contexts::if_in_location,
            ("limit_except", _) => Contexts::limit_except,
            ("upstream", ContextArea::Http) => Contexts::upstream,
            ("upstream", ContextArea::Stream) => Contexts::stream_upstream,
            _ => return None,
        })
    }
}

pub struct CheckedBlock<'t> {
    pub context: Contexts,
    pub directive: Option<&'t Directive>,
    /// Inputs by table index; few tables have one.
    inputs: Vec<(usize, Box<dyn Any>)>,
    pub children: Vec<CheckedBlock<'t>>,
}

impl CheckedBlock<'_> {
    /// Returns a block without directives.
    pub fn empty(context: Contexts) -> Self {
        CheckedBlock { context, directive: None, inputs: Vec::new(), children: Vec::new() }
    }
    pub fn input<T: 'static>(&self, table: usize) -> Option<&T> {
        self.inputs.iter().find(|(index, _)| *index == table)?.1.downcast_ref()
    }
    pub fn take<T: 'static>(&mut self, table: usize) -> Option<T> {
        self.take_any(table)?.downcast().ok().map(|input| *input)
    }
    pub fn take_any(&mut self, table: usize) -> Option<Box<dyn Any>> {
        let at = self.inputs.iter().position(|(index, _)| *index == table)?;
        Some(self.inputs.swap_remove(at).1)
    }
    /// Takes the inputs of all tables, with the tables' indices.
    pub fn take_all(&mut self) -> Vec<(usize, Box<dyn Any>)> {
        std::mem::take(&mut self.inputs)
    }
    /// Created by `blank` on first use.
    fn input_mut(&mut self, table: usize, blank: fn() -> Box<dyn Any>) -> Option<&mut dyn Any> {
        let at = self.inputs.iter().position(|(index, _)| *index == table).unwrap_or_else(|| {
            self.inputs.push((table, blank()));
            self.inputs.len() - 1
        });
        self.inputs.get_mut(at).map(|(_, input)| &mut **input)
    }
}

pub struct CheckedTree<'t> {
    pub root: CheckedBlock<'t>,
    /// Errors and warnings in nginx's order.
    pub complaints: Vec<Complaint>,
}

impl CheckedTree<'_> {
    pub fn failed(&self) -> bool {
        self.complaints.iter().any(|c| c.level == ComplaintLevel::Emerg)
    }
}

/// Checks a tree that starts in `context` (usually main).
pub fn check_tree<'t>(schema: &Schema, cx: &mut Cx, items: &'t [TreeItem], context: Contexts) -> CheckedTree<'t> {
    let mut checker = Checker { schema, complaints: Vec::new(), errors: 0, missing: Vec::new() };
    let mut root = Checker::blank(context, None);
    checker.items(cx, items, &mut root);
    checker.count_missing();
    let mut complaints = checker.complaints;
    complaints.append(&mut cx.warnings);
    CheckedTree { root, complaints }
}

struct Checker<'s> {
    schema: &'s Schema,
    complaints: Vec<Complaint>,
    errors: usize,
    /// Unsupported directives, each reported once: complaint, and number of further lines.
    missing: Vec<(&'static str, usize, usize)>,
}

impl Checker<'_> {
    fn blank<'t>(context: Contexts, directive: Option<&'t Directive>) -> CheckedBlock<'t> {
        CheckedBlock { context, directive, inputs: Vec::new(), children: Vec::new() }
    }

    fn items<'t>(&mut self, cx: &mut Cx, items: &'t [TreeItem], block: &mut CheckedBlock<'t>) {
        for item in items {
            if self.errors >= ERRORS_MAX {
                return;
            }
            match item {
                TreeItem::Comment(_) => {}
                TreeItem::Error(e) => self.syntax(e),
                TreeItem::Directive(d) if d.name.bytes == b"include" => {
                    if d.block.is_some() {
                        self.problem(d, Problem::says("directive \"include\" is not terminated by \";\""));
                    } else if d.args.len() != 1 {
                        self.problem(d, Problem::says("invalid number of arguments in \"include\" directive"));
                    }
                    for inner in &d.included {
                        self.items(cx, &inner.items, block);
                    }
                }
                TreeItem::Directive(d) => {
                    if let Err(problem) = self.directive(cx, d, block) {
                        self.problem(d, problem);
                    }
                    self.complaints.append(&mut cx.warnings);
                }
            }
        }
    }

    fn directive<'t>(&mut self, cx: &mut Cx, d: &'t Directive, block: &mut CheckedBlock<'t>) -> Result<(), Problem> {
        let mut name = d.name.text();
        match foreign::foreign_stand(&name) {
            Some(Stand::For(other)) => name = other.into(),
            Some(Stand::Without(why)) => return self.without_effect(d, &name, why),
            None => {}
        }
        let known = vocabulary::find_directives(&name);
        let Some(first) = known.first() else {
            return Err(unknown(&name, block.context));
        };
        let Some(known) = known.iter().find(|k| k.contexts.has(block.context)) else {
            let places: Vec<String> = known.iter().map(|k| k.contexts.to_string()).collect();
            return Err(Problem::says(format!("\"{name}\" directive is not allowed here")).hint(format!(
                "allowed in: {}; this context: {}",
                places.join(", "),
                block.context.name()
            )));
        };
        let _ = first;
        if known.block && d.block.is_none() && !known.may_lack_block(d) {
            return Err(Problem::says(format!("directive \"{name}\" has no opening \"{{\"")));
        }
        if !known.block && d.block.is_some() {
            return Err(Problem::says(format!("directive \"{name}\" is not terminated by \";\"")));
        }
        if !known.arity.takes(d.args.len()) {
            return Err(Problem::says(format!("invalid number of arguments in \"{name}\" directive")).hint(format!(
                "it takes {}, but {} {} given",
                known.arity.words(),
                d.args.len(),
                if d.args.len() == 1 { "was" } else { "were" }
            )));
        }
        let row = self.schema.rows.get(&(known.name, known.area()));
        let opens = Schema::opens(known).filter(|inner| self.schema.area_used(*inner));
        // Lines of a block that is a value (`types`, `map`) have no blocks.
        if let (None, Some(items)) = (opens, &d.block) {
            let nested = conf_syntax::list_directives(items).into_iter().find(|line| line.block.is_some());
            if let Some(line) = nested {
                return Err(Problem::says("unexpected \"{\"").on(line));
            }
        }
        // An error ends the lines of such a block; a problem of the whole block is that of the missing rest.
        let broken = match (opens, &d.block) {
            (None, Some(items)) => conf_syntax::first_error(items),
            _ => None,
        };
        if row.is_none() && opens.is_none() {
            if let Some((_, _, more)) = self.missing.iter_mut().find(|(name, ..)| *name == known.name) {
                *more += 1;
                return Ok(());
            }
            self.missing.push((known.name, self.complaints.len(), 0));
            let text = format!("\"{name}\" directive is not supported by {}", self.schema.program);
            return Err(Problem::says(text).hint(format!(
                "this version does not support it (module {}): remove the line, or use a version that does",
                known.module
            )));
        }
        cx.at = At { span: d.span, line: d.line };
        cx.context = block.context;
        cx.child_index = block.children.len();
        if let Some((index, row)) = row
            && let Some(input) = block.input_mut(*index, self.schema.tables[*index].blank)
        {
            match ((row.set)(input, cx, d), broken) {
                (Err(problem), Some(_)) if problem.inner.is_none() => {}
                (set, _) => set?,
            }
        }
        if let Some(error) = broken {
            self.syntax(error);
        }
        if let (Some(mut inner), Some(items)) = (opens, &d.block) {
            if inner == Contexts::if_in_location && block.context == Contexts::server {
                inner = Contexts::if_in_server;
            }
            if block.context == Contexts::main && block.children.iter().any(|child| child.context == inner) {
                return Err(Problem::duplicate().hint("only one such block is allowed: merge the contents"));
            }
            let mut child = Checker::blank(inner, Some(d));
            let (outer, words) = (cx.enter(), d.args.iter().map(|word| word.bytes.clone()).collect());
            let around = std::mem::replace(&mut cx.around, words);
            self.items(cx, items, &mut child);
            (cx.block, cx.around) = (outer, around);
            block.children.push(child);
        }
        Ok(())
    }

    /// Warns once about a directive of another module that has no effect here.
    fn without_effect(&mut self, d: &Directive, name: &str, why: &str) -> Result<(), Problem> {
        if d.block.is_some() {
            return Err(Problem::says(format!("directive \"{name}\" is not terminated by \";\"")));
        }
        let text = format!("\"{name}\" has no effect: this program does not include its module");
        if !self.complaints.iter().any(|complaint| complaint.text == text) {
            let (span, hint) = (Some(d.name.span), Some(why.to_string()));
            self.complaints.push(Complaint { level: ComplaintLevel::Warn, text, span, line: d.line, hint });
        }
        Ok(())
    }

    fn count_missing(&mut self) {
        for (_, at, more) in self.missing.drain(..).filter(|(.., more)| *more > 0) {
            if let Some(hint) = self.complaints.get_mut(at).and_then(|complaint| complaint.hint.as_mut()) {
                let lines =
                    if more == 1 { "1 more line uses it".to_string() } else { format!("{more} more lines use it") };
                hint.push_str(&format!(" ({lines})"));
            }
        }
    }

    fn syntax(&mut self, e: &SyntaxError) {
        self.errors += 1;
        self.complaints.push(Complaint {
            level: ComplaintLevel::Emerg,
            text: e.text.clone(),
            span: Some(e.span),
            line: e.line,
            hint: e.hint.clone(),
        });
    }

    fn problem(&mut self, d: &Directive, problem: Problem) {
        self.errors += 1;
        let mut complaint = word_complaint(d, problem);
        // A directive that follows a line without its end is among the words.
        if let Some(swallowed) = swallowed(d) {
            let words = format!("is a \";\" missing before \"{swallowed}\"?");
            complaint.hint = Some(complaint.hint.map_or_else(|| words.clone(), |hint| format!("{hint}; {words}")));
        }
        self.complaints.push(complaint);
    }
}

/// Returns the first word of a directive that is the name of another one, behind white space of a line's end.
fn swallowed(d: &Directive) -> Option<String> {
    let mut end = d.name.span.end;
    for word in &d.args {
        // (A line end and an indentation are two bytes at least; so are rarely other gaps.)
        let is_far = word.span.start >= end + 2;
        end = word.span.end;
        let name = word.text();
        if is_far && name.len() > 2 && !vocabulary::find_directives(&name).is_empty() {
            return Some(name.into_owned());
        }
    }
    None
}

/// Words an error about an unknown directive: its module, or the one that was meant.
fn unknown(name: &str, context: Contexts) -> Problem {
    let problem = Problem::says(format!("unknown directive \"{name}\""));
    if let Some(hint) = foreign::foreign_hint(name) {
        return problem.hint(hint);
    }
    let area = ContextArea::of(context);
    let fits = vocabulary::all().filter(|k| k.contexts.has(context) || area == ContextArea::Main);
    if let Some(near) = suggest::nearest_word(name, fits.map(|k| k.name)) {
        return problem.hint(format!("did you mean \"{near}\"?"));
    }
    let same_area = |k: &&KnownDirective| {
        matches!((area, k.area()), (ContextArea::Http, ContextArea::Http) | (ContextArea::Stream, ContextArea::Stream))
    };
    let elsewhere = vocabulary::all().filter(same_area).chain(vocabulary::all());
    match suggest::nearest_word(name, elsewhere.map(|k| k.name)) {
        Some(near) => {
            let places: Vec<String> =
                vocabulary::find_directives(near).iter().map(|k| k.contexts.to_string()).collect();
            problem.hint(format!("did you mean \"{near}\"? It is allowed in: {}", places.join(", ")))
        }
        None => problem,
    }
}

pub fn word_complaint(d: &Directive, problem: Problem) -> Complaint {
    let text = match problem.words {
        ProblemWords::Directive(words) => format!("\"{}\" directive {words}", d.name.text()),
        ProblemWords::Says(text) => text,
    };
    if let Some(at) = problem.inner {
        return Complaint {
            level: ComplaintLevel::Emerg,
            text,
            span: Some(at.span),
            line: at.line,
            hint: problem.hint,
        };
    }
    let span = problem.arg.and_then(|i| d.args.get(i)).map_or(d.name.span, |w| w.span);
    Complaint { level: ComplaintLevel::Emerg, text, span: Some(span), line: d.line, hint: problem.hint }
}
