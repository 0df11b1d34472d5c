//! json_set (nginx: `ngx_http_json_module`): variables with values of a JSON document that another variable holds.

mod document;
mod path;

use conf_schema::value::Between;
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use document::{TargetNode, extract_values};
use http_engine::build::HttpBuild;
use http_engine::variable::{Compute, HttpVariables, VarId, directive_place};
use http_engine::{BlockPlan, Feature, HttpArea, Request};
use std::any::Any;
use std::sync::{Arc, OnceLock};

directives! {
    pub struct JsonConf from JsonInput {
        /// Defines a variable: the value at a path of the JSON document in another variable. A path consists of names
        /// of members, separated by dots, and indexes of elements in square brackets (`user.tags[0]`); other names are
        /// strings in brackets (`'["a.b"]'`). A string's value is decoded; other values are as in the document. If the
        /// document is invalid, no variable of it has a value. A request parses a document once.
        json_set: JsonTarget,
        /// Maximum nesting of objects and arrays in a document; documents with more are invalid.
        json_max_depth: Between<1, 256> = "32",
    }
}

/// A document, with its targets.
struct Document {
    source: VarId,
    root: TargetNode,
    targets: Vec<VarId>,
    depth_max: usize,
}

/// A document during the configuration; its variables find it in the cell.
struct DocumentDraft {
    source: VarId,
    root: TargetNode,
    targets: Vec<VarId>,
    document: Arc<OnceLock<Document>>,
}

#[derive(Default)]
struct Drafts(Vec<DocumentDraft>);

/// `json_set`
#[derive(Clone)]
pub struct JsonTarget;

impl ValueKind for JsonTarget {
    const SYNTAX: &'static str = "$variable $source path";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let [target, source, path] = d.args.as_slice() else { return Err(Problem::invalid()) };
        let name = |index: usize, text: &str| match text.strip_prefix('$').filter(|name| !name.is_empty()) {
            Some(name) => Ok(name.to_string()),
            None => Err(Problem::says(format!("invalid variable name \"{text}\""))
                .at(index)
                .hint("a variable name begins with \"$\"")),
        };
        let (target, source) = (name(0, &target.text())?, name(1, &source.text())?);
        if path.bytes.is_empty() {
            return Err(Problem::says("empty json_set path").at(2));
        }
        let parts = path::parse_path(&path.bytes).ok_or_else(|| {
            Problem::says(format!("invalid json_set path \"{}\"", path.text()))
                .at(2)
                .hint("write a path such as user.name, tags[0] or '[\"a.b\"]'")
        })?;
        let source = cx.get::<HttpVariables>().read(&source, directive_place(d));
        let drafts = &mut cx.get::<Drafts>().0;
        let index = match drafts.iter().position(|draft| draft.source == source) {
            Some(index) => index,
            None => {
                drafts.push(DocumentDraft {
                    source,
                    root: TargetNode::default(),
                    targets: Vec::new(),
                    document: Arc::default(),
                });
                drafts.len() - 1
            }
        };
        let own = drafts.get(index).map_or(0, |draft| draft.targets.len());
        let document = drafts.get(index).map(|draft| draft.document.clone()).unwrap_or_default();
        let taken: Vec<VarId> = drafts.iter().flat_map(|draft| &draft.targets).copied().collect();
        let variables = cx.get::<HttpVariables>();
        let id = variables.computed(&target, Arc::new(Extract { document, own }), false).map_err(|p| p.at(0))?;
        if taken.contains(&id) {
            return Err(Problem::says(format!("json_set variable \"{target}\" is already defined")).at(0));
        }
        if let Some(draft) = cx.get::<Drafts>().0.get_mut(index) {
            draft.root.add(parts, own);
            draft.targets.push(id);
        }
        Ok(JsonTarget)
    }
}

struct Extract {
    document: Arc<OnceLock<Document>>,
    own: usize,
}

impl Compute<HttpArea> for Extract {
    /// Stores the values of the document's other targets, too.
    fn get(&self, r: &mut Request, out: &mut Vec<u8>) -> bool {
        let Some(document) = self.document.get() else { return false };
        let mut text = Vec::new();
        r.variable(document.source, &mut text);
        let count = document.targets.len();
        let found =
            extract_values(&document.root, &text, document.depth_max, count).unwrap_or_else(|| vec![None; count]);
        let mut is_found = false;
        for (index, (id, found)) in document.targets.iter().zip(found).enumerate() {
            let value = found.map(|found| found.value(&text));
            if index != self.own {
                r.offer_value(*id, value.as_deref());
            } else if let Some(value) = value {
                out.extend_from_slice(&value);
                is_found = true;
            }
        }
        is_found
    }
}

pub struct Json;

impl Feature for Json {
    fn table(&self) -> FeatureTable {
        JsonConf::table("json", ContextArea::Http)
    }
    fn plan_http(&self, conf: &Arc<dyn Any + Send + Sync>, http: &mut HttpBuild<'_>) -> Result<(), Problem> {
        let depth_max = conf.downcast_ref::<JsonConf>().map_or(32, |conf| conf.json_max_depth.0 as usize);
        for DocumentDraft { source, root, targets, document } in http.cx.take::<Drafts>().0 {
            let _ = document.set(Document { source, root, targets, depth_max });
        }
        Ok(())
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, _: &Arc<dyn Any + Send + Sync>, _: &mut BlockPlan<'_>) -> Result<(), Problem> {
        Ok(())
    }
}
