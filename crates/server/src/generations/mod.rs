//! Configurations changed by the API: kept generations, candidates, and the messages between master and worker.
//!
//! Only the master reads and writes the files (`process/master/changes.rs`). The worker shows the active configuration
//! (`shown.rs`).

pub mod attachments;
pub mod candidate;
pub mod kept;
pub mod message;
pub mod shown;
pub mod steps;

use crate::conf::layout::{Digests, Layout};
use candidate::Texts;
use conf_syntax::SourceFiles;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Returns the files in the main file's directory, with files of generations under their original names, and these
/// generations.
pub fn natural_texts(layout: &Layout, files: &SourceFiles) -> (Texts, BTreeSet<u64>) {
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

/// Returns the attachments that a configuration reads.
pub fn attached_digests(layout: &Layout, files: &SourceFiles) -> Digests {
    files.all.iter().flat_map(|file| layout.attached(&file.text)).collect()
}

/// Formats attachments as a request may have them.
pub fn attachments_json(attached: &Digests) -> Value {
    attached
        .iter()
        .map(|(name, digest)| (name.clone(), json!({ "sha256": digest })))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// Returns the files that a configuration reads from directories of generations; a request with a new main file alone
/// keeps them.
pub fn moved_texts(layout: &Layout, files: &SourceFiles) -> Texts {
    let moved = files.all.iter().filter_map(|file| {
        let (generation, name) = layout.natural(&file.path)?;
        generation.map(|_| (name, layout.unmoved(&file.text)))
    });
    moved.collect()
}
