//! Expected files of tests: one folder for each case, beside its input.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the folders of a folder, sorted by name.
///
/// # Panics
/// If it cannot be read.
pub fn folders_of(folder: impl AsRef<Path>) -> Vec<PathBuf> {
    let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.as_ref().display()));
    let mut folders: Vec<PathBuf> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
    folders.sort();
    folders
}

/// Compares texts with the files of each folder: `texts` returns names and texts, of which an empty one has no file. With
/// `TIDEGATE_EXPECTED=write` in the environment, the files are written instead: read the difference before committing it.
///
/// # Panics
/// If a text differs: the message has the first line that does.
pub fn assert_files(folders: &[PathBuf], texts: impl Fn(&Path) -> Vec<(&'static str, String)>) {
    let writes = std::env::var("TIDEGATE_EXPECTED").is_ok_and(|word| word == "write");
    let mut different = Vec::new();
    for folder in folders {
        for (name, text) in texts(folder) {
            let path = folder.join(name);
            let expected = fs::read_to_string(&path).unwrap_or_default();
            if text == expected {
                continue;
            }
            let written = match (writes, text.is_empty()) {
                (false, _) => {
                    different.push(format!("--- {}\n{}", path.display(), first_line_of_difference(&expected, &text)));
                    Ok(())
                }
                (true, true) => fs::remove_file(&path),
                (true, false) => fs::write(&path, text),
            };
            assert!(written.is_ok(), "{}: {written:?}", path.display());
        }
    }
    assert!(different.is_empty(), "{}\nTIDEGATE_EXPECTED=write writes them again", different.join("\n"));
}

fn first_line_of_difference(expected: &str, text: &str) -> String {
    let (mut a, mut b) = (expected.lines(), text.lines());
    for number in 1.. {
        match (a.next(), b.next()) {
            (None, None) => break,
            (expected, found) if expected == found => {}
            (expected, found) => {
                return format!("line {number}\n- {}\n+ {}\n", expected.unwrap_or(""), found.unwrap_or(""));
            }
        }
    }
    String::new()
}
