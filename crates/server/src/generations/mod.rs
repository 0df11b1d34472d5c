//! Configurations that the API changes: kept generations, candidates, and messages of master and worker about them.
//!
//! The master alone reads and writes files (`process/master/changes.rs`); the worker shows what it serves (`shown.rs`).

pub mod candidate;
pub mod kept;
pub mod layout;
pub mod message;
pub mod shown;
pub mod steps;

use candidate::Texts;
use conf_syntax::Files;
use layout::Layout;
use std::collections::BTreeSet;

/// Returns the files of a configuration that are in the folder of its main file, as if all were there, and the generations
/// whose folders have some of them.
pub fn natural(layout: &Layout, files: &Files) -> (Texts, BTreeSet<u64>) {
    let (mut texts, mut named) = (Texts::new(), BTreeSet::new());
    for file in &files.all {
        let Some((generation, name)) = layout.natural(&file.path) else { continue };
        named.extend(generation);
        if name.split('/').all(|part| !part.is_empty() && part != "." && part != "..") {
            texts.entry(name).or_insert_with(|| layout.unmoved(&file.text));
        }
    }
    (texts, named)
}

/// Returns the files that a configuration reads from folders of generations: a new main file alone keeps them.
pub fn moved(layout: &Layout, files: &Files) -> Texts {
    let moved = files.all.iter().filter_map(|file| {
        let (generation, name) = layout.natural(&file.path)?;
        generation.map(|_| (name, layout.unmoved(&file.text)))
    });
    moved.collect()
}
