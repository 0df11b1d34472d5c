//! What a value's parser may ask for and add to while a configuration is read.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::path::PathBuf;

use crate::complaint::{Complaint, Level};
use crate::context::Contexts;
use crate::store::Store;
use crate::table::At;
use conf_syntax::Directive;

/// The state of one reading of a configuration. Things that later stages share (variable names, zones, regular
/// expressions) are kept by type, so that this crate needs to know none of them.
#[derive(Default)]
pub struct Cx {
    /// `-p`: where relative paths of most directives start; ends with `/`.
    pub prefix: PathBuf,
    /// The folder of the main file: where relative certificate and include paths start.
    pub conf_prefix: PathBuf,
    /// The context that the directive stands in.
    pub context: Contexts,
    /// Number of the block that the directive stands in: what was said in one block before can be told by it.
    pub block: usize,
    blocks: usize,
    /// The words behind the name of the block that the directive stands in (`~ \.php$` of a location).
    pub around: Vec<Vec<u8>>,
    /// How many inner blocks the enclosing block has had so far: the index that this directive's own block will get.
    pub child_index: usize,
    /// The directive that is being read.
    pub at: At,
    /// The configuration's files as nginx names them, by the number that spans have.
    pub files: Vec<PathBuf>,
    /// Warnings so far.
    pub warnings: Vec<Complaint>,
    /// Files that directives name and that are read with the configuration.
    pub store: Store,
    things: HashMap<TypeId, Box<dyn Any>>,
}

impl Cx {
    /// The thing of this type, made when first asked for.
    pub fn get<T: Default + 'static>(&mut self) -> &mut T {
        let any = self.things.entry(TypeId::of::<T>()).or_insert_with(|| Box::<T>::default());
        match any.downcast_mut::<T>() {
            Some(thing) => thing,
            None => unreachable!("the key is the type's own id"),
        }
    }
    /// Takes the thing of this type out.
    pub fn take<T: Default + 'static>(&mut self) -> T {
        std::mem::take(self.get::<T>())
    }
    /// A path relative to the prefix made absolute (`ngx_conf_full_name` with prefix 0).
    pub fn full_name(&self, path: &str) -> PathBuf {
        if path.starts_with('/') { PathBuf::from(path) } else { self.prefix.join(path) }
    }
    /// A path relative to the main file's folder made absolute.
    pub fn conf_full_name(&self, path: &str) -> PathBuf {
        if path.starts_with('/') { PathBuf::from(path) } else { self.conf_prefix.join(path) }
    }
    /// Enters an inner block; the number of the outer one comes back, to be set again at its end.
    pub fn enter(&mut self) -> usize {
        self.blocks += 1;
        std::mem::replace(&mut self.block, self.blocks)
    }
    /// `FILE:LINE` of the directive that is being read, for messages at run time.
    pub fn place(&self) -> String {
        self.place_of(self.at)
    }
    /// `FILE:LINE` of a directive.
    pub fn place_of(&self, at: At) -> String {
        let file = self.files.get(at.span.file.0 as usize);
        format!("{}:{}", file.map_or_else(String::new, |path| path.display().to_string()), at.line)
    }
    /// Notes a `[warn]` about a directive.
    pub fn warn(&mut self, d: &Directive, text: impl Into<String>) {
        self.warnings.push(Complaint {
            level: Level::Warn,
            text: text.into(),
            span: Some(d.span),
            line: d.line,
            hint: None,
        });
    }
}
