//! The active configuration in the API: facts, tree, plan, texts, differences.

use super::{attached_digests, attachments_json, natural_texts};
use crate::conf::effective::{PlanLine, plan_lines};
use crate::conf::layout::Layout;
use crate::conf::source::Replay;
use crate::conf::{self, ConfTexts, GLOBALS, Invocation};
use crate::generations::message::SubmittedWork;
use crate::report::Positions;
use advisor::diff;
use advisor::scope::Scopes;
use conf_syntax::{SourceFiles, TreeItem, list_directives};
use http_api::{ConfigRefusal, ConfigReply, ConfigRequest, Configuration};
use metrics::Lifecycle;
use serde_json::{Map, Value, json};
use std::path::Path;
use tokio::sync::{mpsc, oneshot};

pub struct ShownGeneration {
    invocation: Invocation,
    /// Excludes the files that directives name.
    texts: ConfTexts,
    sender: mpsc::Sender<SubmittedWork>,
}

/// As received.
fn shown(layout: Option<&Layout>, path: &Path) -> String {
    layout.map_or_else(|| path.display().to_string(), |layout| layout.shown(path))
}

impl ShownGeneration {
    pub fn new(invocation: &Invocation, texts: &ConfTexts, sender: mpsc::Sender<SubmittedWork>) -> ShownGeneration {
        ShownGeneration { invocation: invocation.clone(), texts: without_secrets(texts), sender }
    }
    fn layout(&self) -> Option<Layout> {
        Layout::of(&self.invocation.conf_file)
    }
    fn load(&self) -> (SourceFiles, Vec<TreeItem>) {
        loaded(&self.invocation, &self.texts)
    }
    fn generation(&self) -> Value {
        json!(self.texts.came.as_ref().map(|came| came.generation))
    }
}

fn without_secrets(texts: &ConfTexts) -> ConfTexts {
    let (files, matches, came) = (texts.files.clone(), texts.matches.clone(), texts.came.clone());
    ConfTexts { files, matches, came, ..ConfTexts::default() }
}

fn loaded(invocation: &Invocation, texts: &ConfTexts) -> (SourceFiles, Vec<TreeItem>) {
    let replay = Replay { files: &texts.files, matches: &texts.matches };
    conf::load_config(&replay, invocation).unwrap_or_default()
}

/// In the form of the program crossplane.
fn tree(items: &[TreeItem], files: &SourceFiles, layout: Option<&Layout>, positions: &mut Positions) -> Value {
    let one = |d: &&conf_syntax::Directive| {
        let (line, column) = positions.find(files, d.span.file, d.span.start);
        let mut all = Map::new();
        all.insert("directive".into(), json!(d.name.text()));
        all.insert("args".into(), d.args.iter().map(|word| json!(word.text())).collect());
        all.insert("file".into(), json!(shown(layout, files.path(d.span.file))));
        all.insert("line".into(), json!(line));
        all.insert("column".into(), json!(column));
        if let Some(block) = &d.block {
            all.insert("block".into(), tree(block, files, layout, positions));
        }
        Value::Object(all)
    };
    list_directives(items).iter().map(one).collect()
}

impl Configuration for ShownGeneration {
    fn facts(&self) -> Value {
        let life = Lifecycle::now();
        let layout = self.layout();
        let came = self.texts.came.as_ref();
        let names = self.texts.files.all.iter().filter(|file| file.path.as_os_str() != GLOBALS);
        json!({
            "generation": self.generation(),
            "by": came.map(|came| &came.by),
            "from": came.and_then(|came| came.from),
            "at": came.map(|came| came.at),
            "load": life.loads,
            "loaded_at": life.loaded_at,
            "main": self.invocation.conf_file.display().to_string(),
            "paths": names.map(|file| shown(layout.as_ref(), &file.path)).collect::<Vec<_>>(),
        })
    }

    fn tree(&self) -> Value {
        let (files, items) = self.load();
        json!({ "generation": self.generation(), "tree": tree(&items, &files, self.layout().as_ref(), &mut Positions::default()) })
    }

    fn plan(&self) -> Value {
        let (files, items) = self.load();
        let layout = self.layout();
        let lines = plan_lines(&conf::full_schema(), &files, &items, &|path| shown(layout.as_ref(), path));
        let one = |line: PlanLine| json!({ "depth": line.depth, "text": line.text, "place": line.place });
        json!({ "generation": self.generation(), "plan": lines.into_iter().map(one).collect::<Vec<_>>() })
    }

    fn files(&self) -> Result<Value, ConfigRefusal> {
        let Some(layout) = self.layout().filter(|_| self.invocation.text.is_none()) else {
            return Err(ConfigRefusal::new(404, "ConfigNotFound", "the configuration has no main file"));
        };
        let (texts, _) = natural_texts(&layout, &self.texts.files);
        let mut files = Map::new();
        for (name, text) in texts {
            let Ok(text) = String::from_utf8(text) else {
                let words = format!("\"{name}\" is not UTF-8, and has no form in JSON");
                return Err(ConfigRefusal::new(409, "ConfigFormatError", words));
            };
            files.insert(name, json!(text));
        }
        let mut value = json!({ "generation": self.generation(), "files": files });
        let attached = attached_digests(&layout, &self.texts.files);
        if !attached.is_empty() {
            value["attachments"] = attachments_json(&attached);
        }
        Ok(value)
    }

    fn logs(&self) -> Value {
        fn visit(items: &[TreeItem], files: &SourceFiles, layout: Option<&Layout>, out: &mut Vec<Value>) {
            for d in list_directives(items) {
                if d.name.bytes == b"error_log" {
                    let word = |at: usize| d.args.get(at).map(|word| word.text().into_owned());
                    let names = observe::Severity::ALL.map(observe::Severity::name);
                    let level = word(1).filter(|level| names.contains(&level.as_str()));
                    out.push(json!({
                        "target": word(0),
                        "level": level.unwrap_or_else(|| "error".into()),
                        "file": shown(layout, files.path(d.span.file)),
                        "line": d.line,
                    }));
                }
                visit(d.block.as_deref().unwrap_or_default(), files, layout, out);
            }
        }
        let (files, items) = self.load();
        let mut all = Vec::new();
        visit(&items, &files, self.layout().as_ref(), &mut all);
        json!({ "level": observe::level_of_all().map(observe::Severity::name), "error_logs": all })
    }

    fn submit(&self, what: ConfigRequest) -> Result<oneshot::Receiver<ConfigReply>, ConfigRefusal> {
        let (end, receiver) = oneshot::channel();
        match self.sender.try_send((what, end)) {
            Ok(()) => Ok(receiver),
            Err(_) => {
                Err(ConfigRefusal::new(503, "ConfigUnavailable", "too many requests wait for the master process"))
            }
        }
    }
}

/// Returns the comparison of two configurations, to be run elsewhere.
pub fn diff_texts(invocation: Invocation, old: &ConfTexts, new: ConfTexts) -> Box<dyn FnOnce() -> Value + Send> {
    let old = without_secrets(old);
    Box::new(move || {
        let schema = conf::full_schema();
        let (old, new) = (loaded(&invocation, &old), loaded(&invocation, &new));
        let changes = diff::diff_scopes(&Scopes::new(&schema, &old.0, &old.1), &Scopes::new(&schema, &new.0, &new.1));
        let mut value = diff::changes_json(&changes);
        if let Some(layout) = Layout::of(&invocation.conf_file) {
            name_files(&mut value, &layout);
        }
        value
    })
}

fn name_files(value: &mut Value, layout: &Layout) {
    match value {
        Value::Object(all) => {
            if let Some(Value::String(file)) = all.get_mut("file") {
                *file = layout.shown(Path::new(file.as_str()));
            }
            all.values_mut().for_each(|inner| name_files(inner, layout));
        }
        Value::Array(all) => all.iter_mut().for_each(|inner| name_files(inner, layout)),
        _ => {}
    }
}
