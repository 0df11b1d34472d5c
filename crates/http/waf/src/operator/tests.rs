use super::*;
use crate::source::NoFiles;

fn matches(name: &str, parameter: &str, input: &str) -> bool {
    let template = Template::parse(parameter.as_bytes()).expect("template");
    let cx = OperatorContext { files: &NoFiles, file: "", match_steps: MATCH_STEPS_MAX };
    let (operator, _) = make_operator(name, (parameter, 0), &template, &cx).expect(name);
    operator.evaluate(input.as_bytes(), parameter.as_bytes(), true, MATCH_STEPS_MAX, None).matches
}

#[test]
fn texts_are_compared() {
    for (name, parameter, input, expected) in [
        ("beginsWith", "ab", "abc", true),
        ("beginsWith", "ab", "xab", false),
        ("endsWith", "bc", "abc", true),
        ("contains", "", "abc", true),
        ("contains", "b", "abc", true),
        ("within", "GET POST", "POST", true),
        ("within", "GET POST", "", true),
        ("within", "GET POST", "PUT", false),
        ("streq", "a", "A", false),
        ("containsWord", "two", "one two three", true),
        ("containsWord", "two", "onetwo", false),
        ("containsWord", "two", "two2", true),
    ] {
        assert_eq!(matches(name, parameter, input), expected, "@{name} {parameter} on {input}");
    }
}

#[test]
fn numbers_are_compared_and_text_counts_as_zero() {
    assert!(matches("eq", "0", "x"));
    assert!(matches("gt", "4", "10"));
    assert!(matches("le", "4", " 4x"));
    assert!(!matches("lt", "4", "4"));
}

#[test]
fn encodings_are_validated() {
    assert!(matches("validateUrlEncoding", "", "a%zz"));
    assert!(matches("validateUrlEncoding", "", "a%2"));
    assert!(!matches("validateUrlEncoding", "", "a%20"));
    assert!(!matches("validateUtf8Encoding", "", "é"));
    assert!(matches("validateByteRange", "32-126", "a\n"));
    assert!(!matches("validateByteRange", "10,32-126", "a\n"));
}

#[test]
fn injections_are_detected() {
    assert!(matches("detectSQLi", "", "1' OR '1'='1"));
    assert!(!matches("detectSQLi", "", "hello"));
    assert!(matches("detectXSS", "", "<script>alert(1)</script>"));
}

#[test]
fn a_number_is_found_behind_invalid_ones() {
    assert!(matches("verifyCC", "\\b\\d{16}\\b", "5484605089158217 5484605089158216"));
    assert!(!matches("verifyCC", "\\b\\d{16}\\b", "5484605089158217"));
}

#[test]
fn captures_are_numbered_by_group() {
    let cx = OperatorContext { files: &NoFiles, file: "", match_steps: MATCH_STEPS_MAX };
    let template = Template::literal(b"(a)|(b)");
    let (operator, _) = make_operator("rxGlobal", ("(a)|(b)", 0), &template, &cx).expect("rxGlobal");
    let evaluation = operator.evaluate(b"ab", b"", true, MATCH_STEPS_MAX, None);
    assert_eq!(evaluation.captures, [(0, b"a".to_vec()), (1, b"a".to_vec()), (2, b"b".to_vec()), (4, b"b".to_vec())]);
}

#[test]
fn refused_and_unknown_operators_are_errors() {
    let cx = OperatorContext { files: &NoFiles, file: "", match_steps: MATCH_STEPS_MAX };
    let refusal = make_operator("inspectFile", ("x", 0), &Template::default(), &cx).expect_err("refused");
    assert!(refusal.reason.contains("@inspectFile"), "{}", refusal.reason);
    let refusal = make_operator("beginWith", ("x", 0), &Template::default(), &cx).expect_err("unknown");
    assert_eq!(refusal.suggestion.as_deref(), Some("did you mean @beginsWith?"));
}
