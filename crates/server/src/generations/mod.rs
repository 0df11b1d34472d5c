//! Configurations changed by the API: kept generations, candidates, and the messages between master and worker.
//!
//! Only the master reads and writes the files (`process/master/changes.rs`). The worker shows the active configuration
//! (`shown.rs`).

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

/// Returns the files in the main file's directory, with files of generations under their original names, and these
/// generations.
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

/// Returns the files that a configuration reads from directories of generations; a request with a new main file alone
/// keeps them.
pub fn moved(layout: &Layout, files: &Files) -> Texts {
    let moved = files.all.iter().filter_map(|file| {
        let (generation, name) = layout.natural(&file.path)?;
        generation.map(|_| (name, layout.unmoved(&file.text)))
    });
    moved.collect()
}
