//! Directories on the way to a file (Apache: `ap_directory_walk`).

use http_engine::files::FileKind;
use http_engine::path::FilePath;
use http_engine::values::Alias;
use http_engine::{Request, file_paths};

/// On a path.
const FOLDERS_MAX: usize = 128;

pub struct FolderWalk {
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

impl FolderWalk {
    /// Walks to the file of the request's path; `None`: the location has no directory of files. Fails on a path that is too
    /// deep.
    pub fn of(r: &mut Request) -> Result<Option<FolderWalk>, String> {
        match file_paths::mapped_path(r) {
            Ok(file) => FolderWalk::to(r, &file),
            Err(_) => Ok(None),
        }
    }

    /// Walks to any file of the request's location; `None`: outside of the location's directory.
    pub fn to(r: &mut Request, file: &FilePath) -> Result<Option<FolderWalk>, String> {
        let plan = r.plan_rc();
        let root = &plan.loc(r.location_index()).core.root;
        let mut folder = Vec::with_capacity(128);
        let mut root_uri = Vec::new();
        match root.alias {
            Alias::No => root.write(r, &mut folder),
            Alias::Prefix(length) => {
                root.write(r, &mut folder);
                let uri = r.target.path().get(..length).unwrap_or_default();
                root_uri = uri.strip_suffix(b"/").unwrap_or(uri).to_vec();
                // An alias of one file, or one that names continue without a slash.
                let bare = folder.strip_suffix(b"/").unwrap_or(&folder);
                let continues = file.strip_prefix(bare).is_none_or(|rest| !matches!(rest, [] | [b'/', ..]));
                let is_file = bare == &file[..] && !is_folder(r, file);
                if continues || is_file {
                    let slash = bare.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                    folder.truncate(slash);
                    root_uri.clear();
                }
            }
            Alias::Whole => match root.literal_folder() {
                Some(path) => folder = path,
                None => return Ok(None),
            },
        }
        while folder.last() == Some(&b'/') {
            folder.pop();
        }
        let below = file.strip_prefix(folder.as_slice()).filter(|rest| matches!(rest, [] | [b'/', ..]));
        let Some(rest) = below.map(<[u8]>::to_vec) else { return Ok(None) };
        let Some(root) = file.before(rest.len()) else { return Ok(None) };
        if !is_folder(r, &root) {
            return Ok(None);
        }
        let mut walk = FolderWalk {
            folders: vec![root.clone()],
            filename: root.clone(),
            root,
            root_uri,
            path_info: Vec::new(),
            is_folder: true,
            modified: None,
        };
        walk.descend(r, &rest)?;
        Ok(Some(walk))
    }

    fn descend(&mut self, r: &mut Request, rest: &[u8]) -> Result<(), String> {
        let mut names = rest.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        while let Some(name) = names.next() {
            let Ok(next) = self.filename.inside(name) else { return Err("a path has dot segments".into()) };
            match file_paths::folder_file(r, &next) {
                Ok(found) if found.kind == FileKind::Folder => {
                    if self.folders.len() >= FOLDERS_MAX {
                        return Err(format!("a path leads through more than {FOLDERS_MAX} folders"));
                    }
                    self.folders.push(next.clone());
                    self.filename = next;
                    continue;
                }
                Ok(found) => self.modified = Some(found.modified),
                Err(_) => {}
            }
            self.filename = next;
            self.is_folder = false;
            for name in names.by_ref() {
                self.path_info.push(b'/');
                self.path_info.extend_from_slice(name);
            }
            if rest.ends_with(b"/") {
                self.path_info.push(b'/');
            }
        }
        if self.is_folder && (rest.ends_with(b"/") || rest.is_empty()) {
            self.filename = self.filename.clone().with_extension("/");
        }
        Ok(())
    }

    pub fn name(&self) -> &[u8] {
        self.filename.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }

    /// Directories from the file system's root to the file's, each without a final slash except for `/`.
    pub fn ancestors(&self) -> Vec<Vec<u8>> {
        let mut all = vec![b"/".to_vec()];
        let last = self.folders.last().unwrap_or(&self.root);
        all.extend(
            last.iter()
                .enumerate()
                .skip(1)
                .filter(|(_, byte)| **byte == b'/')
                .filter_map(|(at, _)| last.get(..at))
                .map(<[u8]>::to_vec),
        );
        if last.len() > 1 {
            all.push(last.to_vec());
        }
        all
    }
}

fn is_folder(r: &mut Request, path: &FilePath) -> bool {
    file_paths::folder_file(r, path).is_ok_and(|found| found.kind == FileKind::Folder)
}
