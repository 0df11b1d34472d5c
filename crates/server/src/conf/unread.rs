//! Edited files that a configuration of the API hides.

use crate::conf::layout::Layout;
use crate::conf::source::Matches;
use conf_syntax::{Disk, SourceFiles, TextSource};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

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
