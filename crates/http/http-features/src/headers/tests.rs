//! Tests of list inheritance.

use super::*;
use conf_schema::table::synthetic_directive;

fn input(lines: &[(&str, &str)]) -> HeadersInput {
    let mut input: Box<dyn Any> = Box::new(HeadersInput::default());
    let mut cx = Cx::default();
    for (name, text) in lines {
        let row = HeadersConf::ROWS.iter().find(|row| row.name == *name).expect("a row");
        (row.set)(input.as_mut(), &mut cx, &synthetic_directive(name, text)).expect("parses");
    }
    *input.downcast().expect("its type")
}

fn names(input: &HeadersInput) -> String {
    let list = input.add_header.as_ref().map(|given| given.value.0.clone()).unwrap_or_default();
    list.iter().map(|f| String::from_utf8_lossy(&f.name).into_owned()).collect::<Vec<_>>().join(" ")
}

#[test]
fn lists_replace_join_or_stop() {
    let outer = input(&[("add_header", "A 1"), ("add_header", "B 2 always")]);
    for (inner, want) in [
        (vec![], "A B"),
        (vec![("add_header", "C 3")], "C"),
        (vec![("add_header_inherit", "merge"), ("add_header", "C 3")], "C A B"),
        (vec![("add_header_inherit", "off")], ""),
        (vec![("add_header_inherit", "off"), ("add_header", "C 3")], "C"),
    ] {
        let mut inner = input(&inner);
        inherit(&mut inner, &outer);
        assert_eq!(names(&inner), want);
    }
}

#[test]
fn the_way_of_inheriting_is_inherited() {
    let outer = input(&[("add_header_inherit", "merge"), ("add_header", "A 1")]);
    let mut middle = input(&[("add_header", "B 1")]);
    inherit(&mut middle, &outer);
    let mut inner = input(&[("add_header", "C 1")]);
    inherit(&mut inner, &middle);
    assert_eq!(names(&inner), "C B A");
}

#[test]
fn only_always_is_a_parameter() {
    let problem = HeaderFields::parse(&mut Cx::default(), &synthetic_directive("add_header", "A b sometimes"))
        .err()
        .expect("wrong");
    assert!(format!("{problem:?}").contains("invalid parameter \\\"sometimes\\\""));
}
