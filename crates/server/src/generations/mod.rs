//! Configurations changed by the API: kept generations, candidates, and the messages between master and worker.
//!
//! Only the master reads and writes the files (`process/master/changes.rs`). The worker shows the active configuration
//! (`shown.rs`).

pub mod attachments;
pub mod candidate;
pub mod kept;
pub mod layout;
pub mod message;
pub mod shown;
pub mod steps;

use crate::conf::source::Matches;
use candidate::Texts;
use conf_syntax::{Disk, SourceFiles, TextSource};
use layout::{Digests, Layout};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

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

/// Tells of files in the main file's directory that were edited after the API had replaced them: a configuration that
/// names a generation does not read them (certbot, for example, edits `conf.d`). Reads the disk.
pub fn unread_edits(layout: &Layout, files: &SourceFiles, matches: &Matches) -> Vec<String> {
    let mut words = Vec::new();
    let path_of = |name: &str| layout.folder.join(name);
    for file in &files.all {
        let Some((Some(generation), name)) = layout.natural(&file.path) else { continue };
        let edited = path_of(&name);
        if is_newer(&edited, &file.path) && Disk.read(&edited).is_ok_and(|text| text != layout.unmoved(&file.text)) {
            words.push(format!(
                "\"{}\" was edited, which has no effect: configuration {generation} of the API is read instead, \"{}\"",
                edited.display(),
                file.path.display()
            ));
        }
    }
    for (pattern, found) in matches {
        let Some((Some(generation), name)) = layout.natural(Path::new(pattern)) else { continue };
        let read: BTreeSet<PathBuf> =
            found.iter().filter_map(|path| layout.natural(path)).map(|(_, name)| path_of(&name)).collect();
        let folder = layout.files_of(generation);
        for added in Disk.glob(&path_of(&name).to_string_lossy()) {
            if !read.contains(&added) && is_newer(&added, &folder) {
                let added = added.display();
                words.push(format!(
                    "\"{added}\" is not read: configuration {generation} of the API has replaced the files of its folder"
                ));
            }
        }
    }
    words.sort();
    words.dedup();
    words
}

/// Tells whether a file was changed or replaced after another one.
fn is_newer(path: &Path, than: &Path) -> bool {
    let changed = |path: &Path| std::fs::metadata(path).ok().map(|found| (found.ctime(), found.ctime_nsec()));
    matches!((changed(path), changed(than)), (Some(one), Some(other)) if one > other)
}
