//! Tests of tables and errors.

use super::*;
use crate::testing::{TestArea, TestSession};
use conf_syntax::{FileId, TreeItem, parse_file};

fn line(text: &str) -> Directive {
    match parse_file(FileId(0), text.as_bytes()).into_iter().next() {
        Some(TreeItem::Directive(d)) => d,
        other => panic!("{other:?}"),
    }
}

fn lookup(body: &str) -> Result<MapLookup<TestArea>, String> {
    let d = line(&format!("map $x $y {{ {body} }}"));
    MapLookup::parse(&mut Cx::default(), &d, Template::default()).map(|(l, _)| l).map_err(|p| format!("{:?}", p.words))
}

fn found(lookup: &MapLookup<TestArea>, value: &str) -> String {
    let mut r = TestSession::default();
    let result = lookup.find(&mut r, value.as_bytes());
    result.map_or("-".into(), |i| String::from_utf8_lossy(lookup.results[i].as_literal().expect("text")).into_owned())
}

#[test]
fn names_in_any_case_then_patterns_then_the_default() {
    let table = lookup("default d; a 1; B 2; ~^c 3; ~*^x 4; \\default 5; '' 6;").expect("parses");
    for (value, want) in
        [("a", "1"), ("A", "1"), ("b", "2"), ("cc", "3"), ("CC", "d"), ("XX", "4"), ("default", "5"), ("", "6")]
    {
        assert_eq!(found(&table, value), want, "{value}");
    }
}

#[test]
fn without_a_default_there_is_nothing() {
    assert_eq!(found(&lookup("a 1;").expect("parses"), "b"), "-");
}

#[test]
fn host_names() {
    let table = lookup("hostnames; default d; .example.com 1; www.* 2; a.example.com 3;").expect("parses");
    for (value, want) in [("example.com", "1"), ("b.EXAMPLE.com", "1"), ("a.example.com", "3"), ("www.x.y", "2")] {
        assert_eq!(found(&table, value), want, "{value}");
    }
}

#[test]
fn complaints_in_nginx_words() {
    for (body, want) in [
        ("a 1; A 2;", "conflicting parameter \\\"A\\\""),
        ("default 1; default 2;", "duplicate default map parameter"),
        ("a;", "invalid number of the map parameters"),
        ("a b c;", "invalid number of the map parameters"),
        ("hostnames; a*b 1;", "invalid hostname or wildcard \\\"a*b\\\""),
        ("~( 1;", "pcre2_compile() failed"),
    ] {
        let got = lookup(body).err().expect(body);
        assert!(got.contains(want), "{body}: {got}");
    }
    let d = line("map $x y { }");
    assert!(
        format!("{:?}", Maps::<TestArea>::parse(&mut Cx::default(), &d).err())
            .contains("invalid variable name \\\"y\\\"")
    );
}

#[test]
fn the_line_at_fault_is_the_one_in_the_block() {
    let d = line("map $x $y {\n a 1;\n a 2;\n}");
    let problem = Maps::<TestArea>::parse(&mut Cx::default(), &d).err().expect("conflict");
    assert_eq!(problem.inner.map(|at| at.line), Some(3));
}
