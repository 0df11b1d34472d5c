//! Path from the root to the requested file (Apache: `ap_directory_walk`).

use http_engine::files::FileKind;
use http_engine::path::FilePath;
use http_engine::values::Alias;
use http_engine::{Request, special};

/// On a path.
const FOLDERS_MAX: usize = 128;

pub struct Walk {
    /// Document root without a final slash, and its URI.
    pub root: FilePath,
    pub root_uri: Vec<u8>,
    /// Existing directories from the root on, without final slashes.
    pub folders: Vec<FilePath>,
    /// The file, or first missing name; and the remainder.
    pub filename: FilePath,
    pub path_info: Vec<u8>,
    pub is_folder: bool,
    pub modified: Option<i64>,
}

impl Walk {
    /// Returns `None` for a location without a directory of files. Fails on a path that is too deep.
    pub fn of(r: &mut Request) -> Result<Option<Walk>, String> {
        let alias = r.loc().core.root.alias;
        let named = match alias {
            Alias::No => 0,
            Alias::Prefix(length) => length,
            Alias::Whole => return Ok(None),
        };
        let Ok(mapped) = special::mapped_path(r) else { return Ok(None) };
        let rest = r.target.path.get(named..).unwrap_or_default().to_vec();
        let Some(root) = mapped.before(rest.len()) else { return Ok(None) };
        let uri = r.target.path.get(..named).unwrap_or_default();
        let root_uri = uri.strip_suffix(b"/").unwrap_or(uri).to_vec();
        if !special::look(r, &root).is_ok_and(|found| found.kind == FileKind::Folder) {
            return Ok(None);
        }
        let mut walk = Walk {
            folders: vec![root.clone()],
            filename: root.clone(),
            root,
            root_uri,
            path_info: Vec::new(),
            is_folder: true,
            modified: None,
        };
        let mut names = rest.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        while let Some(name) = names.next() {
            let Ok(next) = walk.filename.inside(name) else { return Ok(None) };
            match special::folder_file(r, &next) {
                Ok(found) if found.kind == FileKind::Folder => {
                    if walk.folders.len() >= FOLDERS_MAX {
                        return Err(format!("a path leads through more than {FOLDERS_MAX} folders"));
                    }
                    walk.folders.push(next.clone());
                    walk.filename = next;
                    continue;
                }
                Ok(found) => walk.modified = Some(found.modified),
                Err(_) => {}
            }
            walk.filename = next;
            walk.is_folder = false;
            for name in names.by_ref() {
                walk.path_info.push(b'/');
                walk.path_info.extend_from_slice(name);
            }
            if rest.ends_with(b"/") {
                walk.path_info.push(b'/');
            }
        }
        if walk.is_folder && (rest.ends_with(b"/") || rest.is_empty()) {
            walk.filename = walk.filename.with_extension("/");
        }
        Ok(Some(walk))
    }
    pub fn name(&self) -> &[u8] {
        self.filename.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }
}
