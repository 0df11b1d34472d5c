//! The crates of the product, by their folders: `crates/NAME`, or `crates/WING/NAME`.

use std::fs;
use std::path::{Path, PathBuf};

pub fn all_crates() -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    collect(Path::new("crates"), &mut found);
    found.sort();
    found
}

fn collect(folder: &Path, found: &mut Vec<(String, PathBuf)>) {
    for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.join("Cargo.toml").is_file() {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            found.push((name, path));
        } else if path.is_dir() {
            collect(&path, found);
        }
    }
}

/// Includes tools.
pub fn crate_of(file: &Path) -> Option<(String, PathBuf)> {
    let folder = file.ancestors().skip(1).find(|folder| folder.join("Cargo.toml").is_file())?;
    Some((folder.file_name()?.to_string_lossy().into_owned(), folder.to_path_buf()))
}
