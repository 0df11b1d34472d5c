//! Tests of directives and errors.

use super::*;
use conf_schema::table::synthetic_directive;
use variables::testing::TestArea;

fn log(cx: &mut Cx, text: &str) -> Result<AccessLogs<TestArea>, String> {
    AccessLogs::parse(cx, &synthetic_directive("access_log", text)).map_err(|p| format!("{:?}", p.words))
}

fn cx() -> Cx {
    let mut cx = Cx::default();
    cx.prefix = "/p".into();
    LogFormat::<TestArea>::parse(&mut cx, &synthetic_directive("log_format", "short '$status $uri'")).expect("parses");
    cx
}

#[test]
fn complaints_in_nginx_words() {
    for (text, want) in [
        ("off combined", "invalid parameter \\\"combined\\\""),
        ("/x none", "unknown log format \\\"none\\\""),
        ("/x short buffer=0", "invalid buffer size \\\"0\\\""),
        ("/x short buffer=1k flush=0", "invalid flush time \\\"0\\\""),
        ("/x short flush=1s", "no buffer is defined for access_log \\\"/x\\\""),
        ("/x short gzip=10", "invalid compression level \\\"10\\\""),
        ("/x$uri short buffer=1k", "buffered logs cannot have variables in name"),
        ("syslog:server=127.0.0.1 short buffer=1k", "logs to syslog cannot be buffered"),
        ("/x short colour=red", "invalid parameter \\\"colour=red\\\""),
    ] {
        let got = log(&mut cx(), text).err().expect(text);
        assert!(got.contains(want), "{text}: {got}");
    }
}

#[test]
fn buffering_belongs_to_the_file() {
    let mut cx = cx();
    log(&mut cx, "/x short buffer=4k").expect("the first");
    log(&mut cx, "/x combined buffer=4k if=$arg_x").expect("the same again");
    let conflict = log(&mut cx, "/x short buffer=8k").err().expect("another size");
    assert!(conflict.contains("access_log \\\"/x\\\" already defined with conflicting parameters"), "{conflict}");
}

#[test]
fn formats_escape_values() {
    for (text, want) in [
        ("short x", "duplicate \\\"log_format\\\" name \\\"short\\\""),
        ("combined x", "duplicate \\\"log_format\\\" name \\\"combined\\\""),
        ("a escape=html x", "unknown log format escaping \\\"html\\\""),
        ("a '${uri'", "the closing bracket in \\\"uri\\\" variable is missing"),
        ("a 'x $'", "invalid parameter \\\"$\\\""),
        ("a 'x $ y'", "invalid parameter \\\"$ y\\\""),
    ] {
        let got = LogFormat::<TestArea>::parse(&mut cx(), &synthetic_directive("log_format", text))
            .err()
            .map(|p| format!("{:?}", p.words));
        assert!(got.as_ref().is_some_and(|got| got.contains(want)), "{text}: {got:?}");
    }
    assert!(log(&mut cx(), "/x COMBINED").is_ok());
}

#[test]
fn the_cache_of_open_files() {
    let parse = |text: &str| CacheConf::parse(&mut Cx::default(), &synthetic_directive("open_log_file_cache", text));
    assert!(parse("max=10 inactive=20s min_uses=2 valid=1m").is_ok());
    assert!(parse("off").is_ok());
    for (text, want) in [
        ("inactive=1s", "must have \\\"max\\\" parameter"),
        ("max=x", "invalid \\\"open_log_file_cache\\\" parameter \\\"max=x\\\""),
        ("maximum=1", "invalid \\\"open_log_file_cache\\\" parameter \\\"maximum=1\\\""),
    ] {
        let got = format!("{:?}", parse(text).expect_err(text).words);
        assert!(got.contains(want), "{text}: {got}");
    }
}
