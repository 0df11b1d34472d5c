//! The whole way of a document: parameters, template rules, and the bytes of the result.

use crate::engine::{Engine, Focus, Limits};
use crate::exec::ExecMachine;
use crate::failure::{RunResult, TransformFailure, failed};
use crate::names::{ExpandedName, NameId, NameTable, QName};
use crate::serialize::{self, OutputMethod};
use crate::sheet::Stylesheet;
use crate::store::{NodeRef, Store};
use crate::tree::Document;
use crate::xml::{self, Loader, ParseOptions, XmlError};
use crate::xpath::XPathValue;
use std::collections::HashMap;
use std::sync::Arc;

/// Value of a global parameter.
#[derive(Clone, Debug)]
pub struct Param {
    pub name: String,
    pub value: String,
    /// The value is an expression, evaluated at the root; otherwise a text.
    pub is_expression: bool,
}

/// The time and its zone, for `date:date-time()`; a seed of `math:random()`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    /// Seconds since the epoch.
    pub now: i64,
    /// Seconds east of UTC.
    pub zone: i64,
    pub seed: u64,
}

/// Document to transform.
pub struct DocumentSource {
    document: Document,
    names: NameTable,
    /// Violations of Namespaces in XML and references to unknown entities.
    pub errors: Vec<XmlError>,
    /// External entities that were not read: name, public and system identifiers.
    pub ignored: Vec<(String, String, String)>,
}

impl DocumentSource {
    /// Parses a document.
    pub fn parse(
        bytes: &[u8],
        options: &ParseOptions<'_>,
        loader: &mut dyn Loader,
    ) -> Result<DocumentSource, XmlError> {
        let mut names = NameTable::default();
        let parsed = xml::parse_document(bytes, options, &mut names, loader)?;
        let xml::ParsedDocument { document, errors, ignored } = parsed;
        Ok(DocumentSource { document, names, errors, ignored })
    }
}

/// Result of the last stylesheet.
#[derive(Debug)]
pub struct TransformOutcome {
    pub bytes: Vec<u8>,
    /// The method is `html`, also by the result's first element.
    pub is_html: bool,
    /// Texts of `xsl:message`, and warnings.
    pub messages: Vec<String>,
}

#[derive(Debug)]
pub struct TransformError {
    /// Empty if a message terminated the transformation.
    pub message: String,
    pub messages: Vec<String>,
    /// The number of the stylesheet that failed, from 0.
    pub stylesheet: usize,
    /// The tree was complete; its serialization failed.
    pub serializing: bool,
}

/// Applies stylesheets one after another.
pub fn transform_document(
    source: DocumentSource,
    sheets: &[(Arc<Stylesheet>, Vec<Param>)],
    loader: &mut dyn Loader,
    limits: Limits,
    clock: Clock,
) -> Result<TransformOutcome, TransformError> {
    let (mut document, mut names) = (source.document, source.names);
    let mut messages = Vec::new();
    let mut steps = limits.steps;
    for (index, (sheet, params)) in sheets.iter().enumerate() {
        let mut engine = engine(sheet, document, &names, &mut *loader, limits, clock);
        engine.steps_left = steps;
        let done = run(&mut engine, params);
        messages.append(&mut engine.messages);
        match done {
            Ok(result) => {
                document = result;
                steps = engine.steps_left;
                names = engine.names;
            }
            Err(failure) => {
                let message = engine.located(&failure);
                return Err(TransformError { message, messages, stylesheet: index, serializing: false });
            }
        }
    }
    let Some((last, _)) = sheets.last() else {
        let message = "no stylesheet".into();
        return Err(TransformError { message, messages, stylesheet: 0, serializing: false });
    };
    let is_html = serialize::method(&document, &names, &last.output) == OutputMethod::Html;
    match serialize::serialize(&mut document, &mut names, &last.output, limits.result, loader) {
        Ok(bytes) => Ok(TransformOutcome { bytes, is_html, messages }),
        Err(failure) => {
            let message = match failure {
                TransformFailure::Error(message) => message,
                TransformFailure::Terminated => String::new(),
            };
            Err(TransformError { message, messages, stylesheet: sheets.len() - 1, serializing: true })
        }
    }
}

fn engine<'s>(
    sheet: &'s Stylesheet,
    mut document: Document,
    names: &NameTable,
    loader: &'s mut dyn Loader,
    limits: Limits,
    clock: Clock,
) -> Engine<'s> {
    let mut own = NameTable::extending(sheet.names.clone());
    document.rename_all(|id| own.id(names.text(id)));
    let bytes = document.bytes();
    let mut engine = Engine {
        sheet,
        names: own,
        store: Store::default(),
        loader,
        limits,
        steps_left: limits.steps,
        bytes_left: limits.bytes.saturating_sub(bytes),
        locals: Vec::new(),
        frame: 0,
        globals: HashMap::new(),
        parameters: HashMap::new(),
        keys: HashMap::new(),
        loaded: HashMap::new(),
        source: 0,
        permanent: 0,
        evaluations: 0,
        messages: Vec::new(),
        machine: ExecMachine::default(),
        now: clock.now,
        zone: clock.zone,
        random: clock.seed,
    };
    crate::functions::strip_spaces(&mut document, sheet, &mut engine);
    engine.source = engine.store.add(document, true);
    engine
}

fn run(engine: &mut Engine<'_>, params: &[Param]) -> RunResult<Document> {
    for param in params {
        let name = match param.name.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
            Some((uri, local)) => ExpandedName { ns: engine.names.id(uri), local: engine.names.id(local) },
            None => ExpandedName { ns: NameId::NONE, local: engine.names.id(&param.name) },
        };
        let value = match param.is_expression {
            false => XPathValue::Text(param.value.clone()),
            true => evaluate(engine, param)?,
        };
        engine.parameters.insert(name, value);
    }
    let doc = engine.transform()?;
    Ok(engine.store.take(doc))
}

fn evaluate(engine: &mut Engine<'_>, param: &Param) -> RunResult<XPathValue> {
    let root = NodeRef::root(engine.source);
    let focus = Focus { node: root, position: 1, size: 1, current: root, scope: 0 };
    let Some(expr) = engine.dynamic(&param.value, &focus)? else {
        return failed(format!("Evaluating user parameter {} failed", param.name));
    };
    engine.outside(|engine| engine.eval(&expr, &focus))
}

impl Document {
    /// Replaces all names, for another table.
    fn rename_all(&mut self, mut id: impl FnMut(NameId) -> NameId) {
        let mut rename = |name: QName| QName { ns: id(name.ns), local: id(name.local), prefix: id(name.prefix) };
        self.for_each_name(&mut rename);
    }
}
