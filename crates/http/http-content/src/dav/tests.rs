//! Unit tests of file operations, methods and stored properties of WebDAV. Requests are tested in
//! `crates/server/tests`.

use super::files::{DavWork, RenameJob};
use super::*;
use conf_schema::table::synthetic_directive;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

struct DavFolder(PathBuf);

impl DavFolder {
    fn new() -> DavFolder {
        let name: String = net::random::bytes16().iter().map(|b| format!("{b:02x}")).collect();
        let path = std::env::temp_dir().join(format!("tidegate-dav-{name}"));
        std::fs::create_dir(&path).expect("a folder");
        DavFolder(path)
    }
    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
    fn write(&self, name: &str, text: &str) -> PathBuf {
        std::fs::write(self.path(name), text).expect("a file");
        self.path(name)
    }
}

impl Drop for DavFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn text(path: &Path) -> Vec<u8> {
    files::path_bytes(path).to_vec()
}

#[test]
fn method_names() {
    let parse =
        |text: &str| Methods::<super::Own>::parse(&mut Cx::default(), &synthetic_directive("dav_methods", text));
    let put = method_bit(Method::Put);
    assert_eq!(parse("PUT").map(|m| m.bits).ok(), Some(put));
    assert_eq!(parse("put off Delete").map(|m| m.bits).ok(), Some(put | method_bit(Method::Delete)));
    assert!(parse("LOCK").is_err());
}

#[test]
fn trees_are_removed_without_following_links() {
    let folder = DavFolder::new();
    let kept = folder.write("kept", "text");
    std::fs::create_dir_all(folder.path("tree/a/b")).expect("folders");
    std::os::unix::fs::symlink(&folder.0, folder.path("tree/a/link")).expect("a link");
    folder.write("tree/a/b/file", "x");
    let mut work = DavWork::default();
    let tree = [text(&folder.path("tree")), b"/".to_vec()].concat();
    assert_eq!(work.kind_to_delete(&tree), Ok(true));
    assert_eq!(work.delete(&tree, true), Ok(()));
    assert!(kept.exists() && !folder.path("tree").exists());
    assert_eq!(work.kind_to_delete(&tree), Err(404));
    assert_eq!(work.kind_to_delete(&[text(&kept), b"/".to_vec()].concat()), Err(409));
}

#[test]
fn a_directory_is_not_put_into_itself_by_a_link() {
    let folder = DavFolder::new();
    std::fs::create_dir_all(folder.path("tree/a")).expect("folders");
    std::os::unix::fs::symlink(&folder.0, folder.path("link")).expect("a link");
    let mut work = DavWork::default();
    let tree = folder.path("tree");
    assert_eq!(work.refuse_inside(&tree, &folder.path("link/tree/b")), Err(403));
    assert_eq!(work.refuse_inside(&tree, &folder.path("link/tree/a/b")), Err(403));
    assert_eq!(work.refuse_inside(&folder.path("tree/a"), &folder.path("link/tree")), Err(403));
    assert_eq!(work.refuse_inside(&tree, &folder.path("link/b")), Ok(()));
    assert_eq!(work.refuse_inside(&folder.path("tree/a"), &folder.path("tree/b")), Ok(()));
}

#[test]
fn files_keep_their_permissions_and_times() {
    let folder = DavFolder::new();
    let from = folder.write("from", "text");
    std::fs::set_permissions(&from, std::fs::Permissions::from_mode(0o640)).expect("permissions");
    let mut work = DavWork::default();
    let how = RenameJob { mode: Some(0o600), modified: Some(1_000_000_000), folders: None };
    assert_eq!(work.rename(&from, &folder.path("no/such"), how), Err(409));
    let to = folder.path("a/b/to");
    assert_eq!(work.rename(&from, &to, RenameJob { folders: Some(0o700), ..how }), Ok(()));
    let found = std::fs::metadata(&to).expect("renamed");
    assert_eq!(found.permissions().mode() & 0o777, 0o600);
    assert_eq!(std::os::unix::fs::MetadataExt::mtime(&found), 1_000_000_000);
    let copy = folder.path("copy");
    assert_eq!(work.copy_file(&to, &copy, &found, 409), Ok(()));
    let copied = std::fs::metadata(&copy).expect("copied");
    assert_eq!(copied.permissions().mode() & 0o777, 0o600);
    assert_eq!(std::os::unix::fs::MetadataExt::mtime(&copied), 1_000_000_000);
}

#[test]
fn a_file_is_not_copied_onto_itself() {
    let folder = DavFolder::new();
    let from = folder.write("from", "text");
    let link = folder.path("link");
    std::os::unix::fs::symlink(&from, &link).expect("a link");
    let mut work = DavWork::default();
    let found = std::fs::metadata(&from).expect("there");
    assert_eq!(work.copy_file(&from, &link, &found, 409), Err(403));
    assert_eq!(std::fs::read(&from).ok().as_deref(), Some(b"text".as_slice()));
}

#[test]
fn properties_stay_with_files() {
    use super::dead::{PropertyChange, change_properties, read_properties};
    use super::xml::PropertyName;
    let folder = DavFolder::new();
    let (from, to) = (folder.write("from", "text"), folder.path("to"));
    let name = |local: &str| PropertyName { namespace: "urn:a".into(), local: local.into() };
    match change_properties(
        &from,
        vec![PropertyChange::Set(name("a"), b"1".to_vec()), PropertyChange::Set(name("b"), Vec::new())],
    ) {
        // Some file systems lack extended attributes.
        Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => return,
        result => result.expect("set"),
    }
    assert_eq!(read_properties(&from), [(name("a"), b"1".to_vec()), (name("b"), Vec::new())]);
    let found = std::fs::metadata(&from).expect("there");
    assert_eq!(DavWork::default().copy_file(&from, &to, &found, 409), Ok(()));
    change_properties(&from, vec![PropertyChange::Remove(name("b")), PropertyChange::Set(name("a"), b"2".to_vec())])
        .expect("changed");
    assert_eq!(read_properties(&from), [(name("a"), b"2".to_vec())]);
    change_properties(&from, vec![PropertyChange::Remove(name("a"))]).expect("removed");
    assert_eq!((read_properties(&from).len(), read_properties(&to).len()), (0, 2));
    assert!(change_properties(&from, vec![PropertyChange::Set(name("a"), vec![b'x'; 70_000])]).is_err());
    assert!(change_properties(&folder.path("none"), vec![PropertyChange::Set(name("a"), Vec::new())]).is_err());
}
