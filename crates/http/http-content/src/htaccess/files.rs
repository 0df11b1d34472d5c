//! Cache of parsed .htaccess files per thread. An entry is valid while the file cache, which watches the file, reports
//! it unchanged.

use htaccess::File;
use htaccess::reader;
use http_engine::files::{FileEntry, FileKind};
use http_engine::path::FilePath;
use http_engine::{Request, file_paths};
use observe::{Severity, os_error};
use std::cell::RefCell;
use std::collections::HashMap;
use std::os::unix::fs::FileExt;
use std::rc::Rc;

/// Maximum number of cached files per thread; the next file empties the cache.
const FILES_MAX: usize = 4_096;

pub enum FileAnswer {
    None,
    File(Rc<File>),
    Forbidden,
    Wrong(String),
}

struct ReadFiles {
    found: Rc<FileEntry>,
    read: Result<Rc<File>, String>,
}

thread_local! {
    static KNOWN: RefCell<HashMap<Vec<u8>, ReadFiles>> = RefCell::default();
}

pub fn read_files(r: &mut Request, folder: &FilePath) -> FileAnswer {
    let Ok(path) = folder.inside(b".htaccess") else { return FileAnswer::None };
    let found = match file_paths::folder_file(r, &path) {
        Ok(found) if found.kind == FileKind::File => found,
        Ok(_) => return FileAnswer::None,
        Err(e) => match e.raw_os_error() {
            Some(libc::ENOENT | libc::ENOTDIR) => return FileAnswer::None,
            _ => {
                let shown = String::from_utf8_lossy(&path).into_owned();
                r.log(Severity::Error, format_args!("unable to check htaccess file \"{shown}\" {}", os_error(&e)));
                return FileAnswer::Forbidden;
            }
        },
    };
    let answer = |read: &Result<Rc<File>, String>| match read {
        Ok(file) => FileAnswer::File(file.clone()),
        Err(words) => FileAnswer::Wrong(words.clone()),
    };
    KNOWN.with_borrow_mut(|known| {
        if let Some(known) = known.get(&path[..]).filter(|known| Rc::ptr_eq(&known.found, &found)) {
            return answer(&known.read);
        }
        let read = parse(&path, &found);
        let out = answer(&read);
        if known.len() >= FILES_MAX {
            known.clear();
        }
        known.insert(path.into_bytes(), ReadFiles { found, read });
        out
    })
}

fn parse(path: &[u8], found: &FileEntry) -> Result<Rc<File>, String> {
    let shown = String::from_utf8_lossy(path);
    let text = bytes(found).map_err(|e| format!("{shown}: {e}"))?;
    let file = reader::read_htaccess(&String::from_utf8_lossy(&text));
    file.map(Rc::new).map_err(|e| format!("{shown}: {} in {shown}:{}", e.text, e.line))
}

fn bytes(found: &FileEntry) -> std::io::Result<Vec<u8>> {
    if let Some(content) = &found.content {
        return Ok(content.to_vec());
    }
    let Some(open) = &found.file else { return Ok(Vec::new()) };
    // Reads one byte beyond the limit, to detect excess.
    let length = found.size.min(htaccess::syntax::FILE_BYTES_MAX as u64 + 1);
    let mut out = vec![0; length as usize];
    open.file.read_exact_at(&mut out, 0)?;
    Ok(out)
}
