//! Tests of the parser.

use super::lines::{LinesKind, MoreLines};
use super::*;
use conf_schema::table::synthetic_directive;
use conf_schema::{Cx, ValueKind};

fn read<K: LinesKind>(name: &str, text: &str) -> Result<Vec<Arc<MoreLine>>, String> {
    let lines = MoreLines::<K>::parse(&mut Cx::default(), &synthetic_directive(name, text));
    lines.map(|lines| lines.all().to_vec()).map_err(|problem| format!("{:?}", problem.words))
}

#[test]
fn options_and_fields() {
    let lines = read::<SetOut>("more_set_headers", "-s '404 500' -t \"a/b c/d\" -s 200 'X-A: b c' X-B 'X-C: ' ''");
    let line = &lines.expect("a line")[0];
    assert_eq!((line.statuses.as_slice(), line.types.len()), (&[404, 500, 200][..], 2));
    let fields: Vec<_> =
        line.fields.iter().map(|f| (&*f.name, f.value.as_ref().and_then(|v| v.as_literal()))).collect();
    assert_eq!(fields, [(b"X-A".as_slice(), Some(b"b c".as_slice())), (b"X-B", None), (b"X-C", None)]);
    let cleared = read::<ClearOut>("more_clear_headers", "X-* Server").expect("a line");
    assert!(cleared[0].fields[0].wildcard && cleared[0].fields[0].is(b"x-any") && !cleared[0].fields[0].is(b"y"));
    assert!(read::<SetOut>("more_set_headers", "-a 'X-A: b'").expect("a line")[0].append);
    assert!(read::<SetIn>("more_set_input_headers", "-r 'X-A: b'").expect("a line")[0].replace);
}

#[test]
fn faulty_lines_are_refused_with_a_reason() {
    for (text, words) in [
        ("-x", "invalid option name: \\\"-x\\\""),
        ("-r 'X-A: b'", "invalid option name: \\\"-r\\\""),
        ("-t", "option -t takes an argument."),
        ("-s", "option -s takes an argument."),
        ("-s 4x4 'A: b'", "invalid status code \\\"4x4\\\""),
        ("': b'", "no key found in the header argument: : b"),
        ("'X(A: b'", "invalid field name"),
        ("'Content-Length: 5'", "cannot be changed"),
        ("'Transfer-Encoding: chunked'", "cannot be changed"),
        ("-a 'Server: x'", "can not append builtin headers"),
    ] {
        let error = read::<SetOut>("more_set_headers", text).expect_err(words);
        assert!(error.contains(words), "{error}");
    }
    assert!(read::<ClearOut>("more_clear_headers", "*").expect_err("short").contains("wildcard key too short"));
    assert!(read::<SetIn>("more_set_input_headers", "-s 404 'A: b'").is_err());
    assert!(read::<ClearIn>("more_clear_input_headers", "Content-Length").is_err());
}
