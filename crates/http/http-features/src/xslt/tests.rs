//! Tests of references to files, of errors of the configuration and of the inheritance of parameters.

use super::conf::{Entities, NamedParams, Sheets};
use super::files::path_of;
use super::{XsltFilter, XsltInput};
use conf_schema::table::synthetic_directive;
use conf_schema::{At, Cx, GivenDirective, ValueKind};
use http_engine::Feature;

#[test]
fn references_are_files_alone() {
    assert_eq!(path_of("file:///a%20b.xml").expect("a file"), std::path::Path::new("/a b.xml"));
    assert_eq!(path_of("file://localhost/a").expect("a file"), std::path::Path::new("/a"));
    assert_eq!(path_of("a/b.xml").expect("a file"), std::path::Path::new("a/b.xml"));
    assert!(path_of("http://127.0.0.1/a.xml").is_err());
}

#[test]
fn errors_name_the_file_and_its_line() {
    let folder = std::env::temp_dir().join(format!("tidegate-xslt-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("bad.xslt");
    std::fs::write(&path, "<xsl:stylesheet>\n<a></b>").expect("a file");
    let shown = path.display().to_string();
    let error = Sheets::parse(&mut Cx::default(), &synthetic_directive("xslt_stylesheet", &shown))
        .map(|_| ())
        .expect_err("bad");
    let text = format!("{error:?}");
    assert!(text.contains("xsltParseStylesheetFile") && text.contains("bad.xslt:2: parser error"), "{text}");
    assert!(Sheets::parse(&mut Cx::default(), &synthetic_directive("xslt_stylesheet", "/none.xslt")).is_err());
    assert!(Entities::parse(&mut Cx::default(), &synthetic_directive("xml_entities", "/none.dtd")).is_err());
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn a_level_with_a_parameter_inherits_none() {
    let params = || Some(GivenDirective::new(NamedParams(Vec::new()), At::default()));
    let outer = XsltInput { xslt_string_param: params(), ..XsltInput::default() };
    let mut empty = XsltInput::default();
    let mut own = XsltInput { xslt_param: params(), ..XsltInput::default() };
    let inherit = XsltFilter.table().inherit;
    inherit(&mut empty, &outer);
    inherit(&mut own, &outer);
    assert!(empty.xslt_string_param.is_some());
    assert!(own.xslt_string_param.is_none());
}
