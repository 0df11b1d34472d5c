//! Tree of a configuration's blocks with inheritance.

use conf_schema::{ContextArea, Contexts, Schema, vocabulary};
use conf_syntax::{Directive, SourceFiles, TreeItem, list_directives};
use std::collections::HashMap;

pub type ScopeId = usize;

/// main, http, server, location, `if`, upstream, ...
pub struct BlockScope<'t> {
    pub context: Contexts,
    pub directive: Option<&'t Directive>,
    /// Directives in order, including those of included files.
    pub own: Vec<&'t Directive>,
    /// Indices of `own` by directive.
    by_name: HashMap<&'t [u8], Vec<usize>>,
    pub children: Vec<ScopeId>,
    pub parent: Option<ScopeId>,
}

/// All blocks; the first is the main context.
pub struct Scopes<'t> {
    pub all: Vec<BlockScope<'t>>,
    pub files: &'t SourceFiles,
    pub schema: &'t Schema,
    /// Offsets of line ends, per file.
    line_ends: Vec<Vec<u32>>,
}

impl<'t> Scopes<'t> {
    pub fn new(schema: &'t Schema, files: &'t SourceFiles, items: &'t [TreeItem]) -> Scopes<'t> {
        let ends_of = |text: &[u8]| memchr::memchr_iter(b'\n', text).map(|at| at as u32).collect();
        let line_ends = files.all.iter().map(|file| ends_of(&file.text)).collect();
        let mut scopes = Scopes { all: Vec::new(), files, schema, line_ends };
        scopes.add(Contexts::main, None, list_directives(items), None);
        scopes
    }

    fn add(
        &mut self,
        context: Contexts,
        directive: Option<&'t Directive>,
        own: Vec<&'t Directive>,
        parent: Option<ScopeId>,
    ) -> ScopeId {
        let id = self.all.len();
        let mut by_name: HashMap<&[u8], Vec<usize>> = HashMap::new();
        for (at, d) in own.iter().enumerate() {
            by_name.entry(&d.name.bytes).or_default().push(at);
        }
        self.all.push(BlockScope { context, directive, own: own.clone(), by_name, children: Vec::new(), parent });
        for d in own {
            if let (Some(inner), Some(block)) = (inner_context(d, context), &d.block) {
                let child = self.add(inner, Some(d), list_directives(block), Some(id));
                if let Some(scope) = self.all.get_mut(id) {
                    scope.children.push(child);
                }
            }
        }
        id
    }

    #[allow(clippy::indexing_slicing, reason = "ids come from here")]
    pub fn get(&self, id: ScopeId) -> &BlockScope<'t> {
        &self.all[id]
    }
    pub fn of(&self, context: Contexts) -> impl Iterator<Item = ScopeId> + '_ {
        self.all.iter().enumerate().filter(move |(_, scope)| scope.context == context).map(|(id, _)| id)
    }
    /// The block and its enclosing blocks, innermost first.
    pub fn around(&self, id: ScopeId) -> impl Iterator<Item = ScopeId> + '_ {
        std::iter::successors(Some(id), |id| self.get(*id).parent)
    }
    /// Nearest block of a context, including the block itself.
    pub fn enclosing(&self, id: ScopeId, context: Contexts) -> Option<ScopeId> {
        self.around(id).find(|id| self.get(*id).context == context)
    }
    pub fn within(&self, id: ScopeId) -> Vec<ScopeId> {
        let mut out = vec![id];
        for child in &self.get(id).children {
            out.extend(self.within(*child));
        }
        out
    }
    pub fn own(&self, id: ScopeId, name: &str) -> Vec<&'t Directive> {
        let scope = self.get(id);
        let places = scope.by_name.get(name.as_bytes()).map(Vec::as_slice).unwrap_or_default();
        places.iter().filter_map(|at| scope.own.get(*at).copied()).collect()
    }
    pub fn has(&self, id: ScopeId, name: &str) -> bool {
        self.get(id).by_name.contains_key(name.as_bytes())
    }
    /// Names of the directives in the block and in the enclosing blocks.
    pub fn names_around(&self, id: ScopeId) -> impl Iterator<Item = &'t [u8]> + '_ {
        self.around(id).flat_map(|outer| self.get(outer).by_name.keys().copied())
    }
    /// The file and the line, from 1, of a directive's first byte.
    pub fn start_of(&self, d: &Directive) -> (String, u32) {
        let ends = self.line_ends.get(d.span.file.0 as usize).map(Vec::as_slice).unwrap_or_default();
        let line = ends.partition_point(|end| *end < d.span.start) as u32 + 1;
        (self.files.path(d.span.file).display().to_string(), line)
    }
    /// Lines in force in a block, with the block that they come from.
    pub fn effective_at(&self, id: ScopeId, name: &str) -> Option<(ScopeId, Vec<&'t Directive>)> {
        let here = self.get(id).context;
        let known = vocabulary::find_directives(name).iter().find(|known| known.contexts.has(here));
        let inherits = known.and_then(|known| self.schema.row(known)).is_none_or(|row| row.inherits);
        for outer in self.around(id) {
            if !same_area(self.get(outer).context, here) && outer != id {
                return None;
            }
            let own = self.own(outer, name);
            if !own.is_empty() {
                return Some((outer, own));
            }
            if !inherits {
                return None;
            }
        }
        None
    }
    pub fn effective(&self, id: ScopeId, name: &str) -> Vec<&'t Directive> {
        self.effective_at(id, name).map(|(_, lines)| lines).unwrap_or_default()
    }
    pub fn value(&self, id: ScopeId, name: &str) -> Option<String> {
        self.effective(id, name).first().and_then(|d| d.args.first()).map(|word| word.text().into_owned())
    }
    pub fn is_on(&self, id: ScopeId, name: &str) -> bool {
        self.value(id, name).is_some_and(|text| text == "on")
    }
    pub fn place(&self, d: &Directive) -> String {
        format!("{}:{}", self.files.path(d.span.file).display(), d.line)
    }
}

/// Tells whether the first context inherits from the second.
pub fn same_area(a: Contexts, b: Contexts) -> bool {
    // The tables treat main and events as one area, but they inherit nothing from each other.
    ContextArea::of(a) == ContextArea::of(b) && ContextArea::of(a) != ContextArea::Main
}

/// Context inside a directive's block of directives.
pub fn inner_context(d: &Directive, context: Contexts) -> Option<Contexts> {
    d.block.as_ref()?;
    Some(match (&*d.name.text(), ContextArea::of(context)) {
        ("events", _) => Contexts::events,
        ("http", _) => Contexts::http,
        ("stream", _) => Contexts::stream,
        ("mail", _) => Contexts::mail,
        ("server", ContextArea::Http) => Contexts::server,
        ("server", ContextArea::Stream) => Contexts::stream_server,
        ("server", ContextArea::Mail) => Contexts::mail_server,
        ("location", _) => Contexts::location,
        ("if", _) if context == Contexts::server => Contexts::if_in_server,
        ("if", _) => Contexts::if_in_location,
        ("limit_except", _) => Contexts::limit_except,
        ("upstream", ContextArea::Http) => Contexts::upstream,
        ("upstream", ContextArea::Stream) => Contexts::stream_upstream,
        _ => return None,
    })
}

/// A directive in one line that parses to equal words.
pub fn render_line(d: &Directive) -> String {
    let mut out = d.name.text().into_owned();
    for word in &d.args {
        out.push(' ');
        out.push_str(&quote_word(&word.text(), word.quoted));
    }
    out.push_str(if d.block.is_some() { " {" } else { ";" });
    out
}

/// A word in quotes, where it needs them or had them.
pub fn quote_word(text: &str, was_quoted: bool) -> String {
    let plain = !text.is_empty() && !text.contains([' ', '\t', '\n', '\r', ';', '{', '}', '"', '\'', '\\', '#']);
    if plain && !was_quoted {
        return text.to_string();
    }
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", escaped.replace('\n', "\\n").replace('\t', "\\t").replace('\r', "\\r"))
}
