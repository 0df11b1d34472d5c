//! A small schema checked against nginx's own wording.

use conf_schema::value::{Between, Buffers, Flag, Msec, Size, Text, ValueList};
use conf_schema::{ContextArea, Contexts, Cx, Schema, check_tree, directives};
use conf_syntax::{Memory, load_text};
use std::path::Path;

conf_schema::words! {
    /// For the test.
    pub enum Satisfy { All = "all", Any = "any" }
}

directives! {
    /// For the test.
    pub struct Core from CoreInput {
        /// One.
        gzip: Flag = "off",
        /// Two.
        gzip_buffers: Buffers = "32 4k",
        /// Three.
        gzip_comp_level: Between<1, 9> = "1",
        /// Four.
        send_timeout: Msec = "60s",
        /// Five.
        server_name: ValueList<Text> = "\"\"",
        /// Six.
        satisfy: Satisfy = "all",
        /// Seven.
        client_max_body_size: Size,
    }
}

fn complaints(text: &str) -> Vec<String> {
    let schema = Schema::new(vec![Core::table("core", ContextArea::Http)], "tidegate 0");
    let read = load_text(&Memory::default(), Path::new("/n.conf"), text.into());
    let checked = check_tree(&schema, &mut Cx::default(), &read.items, Contexts::main);
    checked.complaints.iter().map(|c| c.first_line(&read.files)).collect()
}

#[test]
fn nginx_wording() {
    for (text, want) in [
        ("foo;", "[emerg] unknown directive \"foo\" in /n.conf:1"),
        ("http {\n gzip on;\n gzip bogus; }", "[emerg] \"gzip\" directive is duplicate in /n.conf:3"),
        (
            "http { gzip yes; }",
            "[emerg] invalid value \"yes\" in \"gzip\" directive, it must be \"on\" or \"off\" in /n.conf:1",
        ),
        ("gzip on;", "[emerg] \"gzip\" directive is not allowed here in /n.conf:1"),
        ("http { gzip_buffers 4; }", "[emerg] invalid number of arguments in \"gzip_buffers\" directive in /n.conf:1"),
        ("http { gzip_buffers 4 x; }", "[emerg] \"gzip_buffers\" directive invalid value in /n.conf:1"),
        ("http { gzip_comp_level 10; }", "[emerg] value must be between 1 and 9 in /n.conf:1"),
        ("http { send_timeout 1x; }", "[emerg] \"send_timeout\" directive invalid value in /n.conf:1"),
        ("http { server { location / { } } ", "[emerg] unexpected end of file, expecting \"}\" in /n.conf:1"),
        ("http;", "[emerg] directive \"http\" has no opening \"{\" in /n.conf:1"),
        ("http { gzip on { } }", "[emerg] directive \"gzip\" is not terminated by \";\" in /n.conf:1"),
        ("http { proxy_pass x; }", "[emerg] \"proxy_pass\" directive is not allowed here in /n.conf:1"),
        ("http { satisfy none; }", "[emerg] invalid value \"none\" in /n.conf:1"),
        (
            "http { server { location / { proxy_pass http://x; } } }",
            "[emerg] \"proxy_pass\" directive is not supported by tidegate 0 in /n.conf:1",
        ),
    ] {
        assert_eq!(complaints(text).first().map(String::as_str), Some(want), "{text}");
    }
    assert!(complaints("http { gzip on; server { gzip off; server_name a; server_name b; } }").is_empty());
}

#[test]
fn a_caret_points_at_the_word() {
    let schema = Schema::new(vec![Core::table("core", ContextArea::Http)], "tidegate 0");
    let read = load_text(&Memory::default(), Path::new("/n.conf"), "http {\n  gzipp on;\n}".into());
    let checked = check_tree(&schema, &mut Cx::default(), &read.items, Contexts::main);
    assert_eq!(
        checked.complaints[0].explain(&read.files, false),
        "  --> /n.conf:2:3\n2 |   gzipp on;\n  |   ^^^^^\n  = did you mean \"gzip\"?\n"
    );
}

#[test]
fn inheritance_and_defaults() {
    let schema = Schema::new(vec![Core::table("core", ContextArea::Http)], "tidegate 0");
    let mut cx = Cx::default();
    let text = "http { gzip on; server { gzip_comp_level 5; location / { gzip off; } } }";
    let read = load_text(&Memory::default(), Path::new("/n.conf"), text.into());
    let mut checked = check_tree(&schema, &mut cx, &read.items, Contexts::main);
    let http = &mut checked.root.children[0];
    let mut outer: CoreInput = http.take(0).expect("gzip was set");
    outer.fill(&mut cx);
    let mut server: CoreInput = http.children[0].take(0).expect("level was set");
    server.inherit(&outer);
    let mut location: CoreInput = http.children[0].children[0].take(0).expect("gzip was set");
    location.inherit(&server);
    let (server, location) = (server.resolve(), location.resolve());
    assert!(server.gzip && !location.gzip);
    assert_eq!((server.gzip_comp_level.0, location.gzip_comp_level.0), (5, 5));
    assert_eq!(location.gzip_buffers, Buffers { count: 32, size: 4096 });
    assert!(location.client_max_body_size.is_none());
}

#[test]
fn a_directive_that_is_not_supported_is_named_once() {
    let text = "http { index a; gzip maybe; index b; server { index c; root d; } }";
    let words = complaints(text);
    assert_eq!(words.len(), 3, "{words:?}");
    assert!(words[0].contains("\"index\" directive is not supported") && words[2].contains("\"root\" directive"));
    let schema = Schema::new(vec![Core::table("core", ContextArea::Http)], "tidegate 0");
    let read = load_text(&Memory::default(), Path::new("/n.conf"), text.into());
    let checked = check_tree(&schema, &mut Cx::default(), &read.items, Contexts::main);
    let hints: Vec<_> = checked.complaints.iter().map(|c| c.hint.clone().unwrap_or_default()).collect();
    assert!(hints[0].ends_with("(2 more lines use it)") && !hints[2].contains("more line"), "{hints:?}");
}
