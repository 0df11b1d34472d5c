//! Tests of parsing references and of the log lines.

use super::files::path_of;

#[test]
fn references_are_files_alone() {
    assert_eq!(path_of("file:///a%20b.xml").expect("a file"), std::path::Path::new("/a b.xml"));
    assert_eq!(path_of("file://localhost/a").expect("a file"), std::path::Path::new("/a"));
    assert_eq!(path_of("a/b.xml").expect("a file"), std::path::Path::new("a/b.xml"));
    assert!(path_of("http://127.0.0.1/a.xml").is_err());
}
