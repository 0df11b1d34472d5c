//! Files of manifests and of recorded answers.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use cluster_objects::{Complaint, ObjectSet, read_manifests};

/// Folders below an input at most.
const FOLDER_DEPTH_MAX: usize = 32;

/// Adds the objects of files, folders and of the standard input (`-`) to a set.
///
/// # Errors
/// If a path cannot be read.
pub fn read_inputs(paths: &[PathBuf], set: &mut ObjectSet, complaints: &mut Vec<Complaint>) -> Result<(), String> {
    for (source, text) in read_bytes(paths)? {
        add(&source, text, set, complaints);
    }
    Ok(())
}

/// Returns the contents of files, of those in folders, and of the standard input (`-`), with their names.
///
/// # Errors
/// If a path cannot be read.
pub fn read_bytes(paths: &[PathBuf]) -> Result<Vec<(String, Vec<u8>)>, String> {
    let mut texts = Vec::new();
    for path in paths {
        if path.as_os_str() == "-" {
            let mut text = Vec::new();
            io::stdin().read_to_end(&mut text).map_err(|error| format!("standard input: {error}"))?;
            texts.push(("standard input".to_owned(), text));
            continue;
        }
        let mut files = Vec::new();
        collect(path, 0, &mut files)?;
        for file in files {
            let text = fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
            texts.push((file.display().to_string(), text));
        }
    }
    Ok(texts)
}

fn add(source: &str, text: Vec<u8>, set: &mut ObjectSet, complaints: &mut Vec<Complaint>) {
    match String::from_utf8(text) {
        Ok(text) => read_manifests(source, &text, set, complaints),
        Err(_) => complaints.push(Complaint::document(source, 1, "the file is not in UTF-8")),
    }
}

/// Lists the manifests of a folder, in order of their names; a file that is named itself may have any name.
fn collect(path: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), String> {
    let error = |error: io::Error| format!("{}: {error}", path.display());
    if !fs::metadata(path).map_err(error)?.is_dir() {
        let is_manifest = path.extension().is_some_and(|end| end == "yaml" || end == "yml" || end == "json");
        if depth == 0 || is_manifest {
            files.push(path.to_owned());
        }
        return Ok(());
    }
    if depth == FOLDER_DEPTH_MAX {
        return Err(format!("{}: more than {FOLDER_DEPTH_MAX} folders in each other", path.display()));
    }
    let mut entries = Vec::new();
    for entry in fs::read_dir(path).map_err(error)? {
        entries.push(entry.map_err(error)?.path());
    }
    entries.sort();
    entries.iter().try_for_each(|entry| collect(entry, depth + 1, files))
}
