//! State shared by value parsers while a configuration is read.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::path::PathBuf;

use crate::complaint::{Complaint, ComplaintLevel};
use crate::context::Contexts;
use crate::store::TextStore;
use crate::table::At;
use conf_syntax::Directive;

/// State of one reading of a configuration. Keeps shared objects (variable names, zones, regular expressions) by type,
/// so that this crate depends on none of them.
#[derive(Default)]
pub struct Cx {
    /// `-p`: base of most relative paths; ends with `/`.
    pub prefix: PathBuf,
    /// Directory of the main file: base of relative certificate and include paths.
    pub conf_prefix: PathBuf,
    pub context: Contexts,
    pub block: usize,
    blocks: usize,
    /// Arguments of the enclosing blocks (`~ \.php$` of a location).
    pub around: Vec<Vec<u8>>,
    /// Index that the next inner block of the enclosing block gets.
    pub child_index: usize,
    pub at: At,
    /// Files as nginx names them, by the spans' file number.
    pub files: Vec<PathBuf>,
    pub warnings: Vec<Complaint>,
    /// Files named by directives and read with the configuration.
    pub store: TextStore,
    things: HashMap<TypeId, Box<dyn Any>, BuildHasherDefault<TypeIdHasher>>,
}

/// Uses a type's id, which is a hash itself.
#[derive(Default)]
struct TypeIdHasher(u64);

impl Hasher for TypeIdHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }
    fn write_u64(&mut self, id: u64) {
        self.0 = id;
    }
}

impl Cx {
    pub fn get<T: Default + 'static>(&mut self) -> &mut T {
        let any = self.things.entry(TypeId::of::<T>()).or_insert_with(|| Box::<T>::default());
        match any.downcast_mut::<T>() {
            Some(thing) => thing,
            None => unreachable!("the key is the type's own id"),
        }
    }
    pub fn take<T: Default + 'static>(&mut self) -> T {
        std::mem::take(self.get::<T>())
    }
    /// Makes a path absolute, relative to the prefix (`ngx_conf_full_name` with prefix 0).
    pub fn full_name(&self, path: &str) -> PathBuf {
        if path.starts_with('/') { PathBuf::from(path) } else { self.prefix.join(path) }
    }
    /// Makes a path absolute, relative to the main file's directory.
    pub fn conf_full_name(&self, path: &str) -> PathBuf {
        if path.starts_with('/') { PathBuf::from(path) } else { self.conf_prefix.join(path) }
    }
    /// Enters an inner block; returns the outer block's number, to be restored at its end.
    pub fn enter(&mut self) -> usize {
        self.blocks += 1;
        std::mem::replace(&mut self.block, self.blocks)
    }
    /// `FILE:LINE` of the current directive, for messages at run time.
    pub fn place(&self) -> String {
        self.place_of(self.at)
    }
    pub fn place_of(&self, at: At) -> String {
        let file = self.files.get(at.span.file.0 as usize);
        format!("{}:{}", file.map_or_else(String::new, |path| path.display().to_string()), at.line)
    }
    pub fn warn(&mut self, d: &Directive, text: impl Into<String>) {
        self.warnings.push(Complaint {
            level: ComplaintLevel::Warn,
            text: text.into(),
            span: Some(d.span),
            line: d.line,
            hint: None,
        });
    }
}
