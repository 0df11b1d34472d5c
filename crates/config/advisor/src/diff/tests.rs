//! Differences that are reported, and those that are not.

use super::*;
use conf_schema::value::{Flag, Own, Size, Text};
use conf_schema::{ContextArea, Schema, directives as table};
use conf_syntax::{Memory, load_text};
use std::path::Path;

table! {
    /// For the test.
    pub struct Some from SomeInput {
        /// One.
        gzip: Flag = "off",
        /// Two.
        root: Text,
        /// Two and a half.
        client_max_body_size: Size = "1m",
        /// Three.
        proxy_pass: Own<Text>,
    }
}

fn changes(old: &str, new: &str) -> Vec<(String, String, Vec<String>, Vec<String>)> {
    let schema = Schema::new(vec![Some::table("some", ContextArea::Http)], "tidegate 0");
    let mut memory = Memory::default();
    memory.0.insert("/inc".into(), b"location /i { root /inc; }".to_vec());
    let old = load_text(&memory, Path::new("/old.conf"), old.into());
    let new = load_text(&memory, Path::new("/new.conf"), new.into());
    let (a, b) = (Scopes::new(&schema, &old.files, &old.items), Scopes::new(&schema, &new.files, &new.items));
    let texts = |lines: &[DiffLine]| lines.iter().map(|line| line.text.clone()).collect::<Vec<_>>();
    diff_scopes(&a, &b).iter().map(|c| (c.path.join(" > "), c.what.clone(), texts(&c.old), texts(&c.new))).collect()
}

fn http(text: &str) -> String {
    format!("events {{ }} http {{ {text} }}")
}

#[test]
fn how_it_is_written_makes_no_difference() {
    let old = http(
        "gzip off; server { listen 80; server_name a b; location / { root /x; } location /i { root /inc; } } server { listen 80; server_name c; }",
    );
    let new = http(
        "# a comment\nserver { server_name a b; listen 80; include /inc; location / { root \"/x\"; } }\nserver { server_name c; listen *:80; }",
    );
    assert_eq!(changes(&old, &new), []);
}

#[test]
fn a_change_is_told_where_it_comes_from() {
    let body = "server { listen 80; server_name a; location / { } location /x { gzip off; } }";
    let got = changes(&http(body), &http(&format!("gzip on; {body}")));
    assert_eq!(got, [("http".into(), "gzip".into(), vec!["gzip off;".into()], vec!["gzip on;".into()])]);
}

#[test]
fn servers_locations_and_values() {
    let old = http("server { listen 80; server_name a; location /x { proxy_pass http://one; } location /gone { } }");
    let new = http(
        "server { listen 80; server_name a www.a; location /x { proxy_pass http://two; } location /new { } } server { listen 81; }",
    );
    let got = changes(&old, &new);
    let find =
        |what: &str| got.iter().find(|(_, own, ..)| own == what).unwrap_or_else(|| panic!("{what} is not in {got:?}"));
    assert_eq!(find("server_name").3, ["server_name a www.a;"]);
    assert_eq!(
        (&find("proxy_pass").2, &find("proxy_pass").3),
        (&vec!["proxy_pass http://one;".into()], &vec!["proxy_pass http://two;".into()])
    );
    assert_eq!((find("location /gone").3.len(), find("location /new").2.len(), find("server *:81").2.len()), (0, 0, 0));
    assert_eq!(find("proxy_pass").0, "http > server a www.a > location /x");
}

#[test]
fn order_counts_where_it_does() {
    let regexes = |first: &str, second: &str| {
        http(&format!("server {{ listen 80; location ~ {first} {{ }} location ~ {second} {{ }} }}"))
    };
    let got = changes(&regexes("a", "b"), &regexes("b", "a"));
    assert_eq!(got.len(), 1);
    assert_eq!(got[0].1, "order of regular expressions");
    let rules = |text: &str| http(&format!("server {{ listen 80; {text} }}"));
    assert_eq!(changes(&rules("allow 127.0.0.1; deny all;"), &rules("deny all; allow 127.0.0.1;")).len(), 1);
    assert_eq!(changes(&rules("set $a 1; return 200;"), &rules("return 200; set $a 1;")).len(), 1);
    let two = |first: &str, second: &str| {
        http(&format!("server {{ listen 80; server_name {first}; }} server {{ listen 80; server_name {second}; }}"))
    };
    let got = changes(&two("a", "b"), &two("b", "a"));
    assert_eq!(got.len(), 1);
    assert_eq!((got[0].1.as_str(), &got[0].3), ("default server of *:80", &vec!["server b".to_string()]));
}

#[test]
fn lines_that_commute_may_move() {
    let of = |text: &str| http(&format!("server {{ listen 80; {text} }}"));
    for (one, other) in [
        ("add_header X-A 1;", "add_header X-B 2;"),
        ("proxy_set_header X-A 1;", "proxy_set_header Host a;"),
        ("fastcgi_param A 1;", "fastcgi_param B 2;"),
        ("error_page 404 /404;", "error_page 500 502 /50x;"),
        ("proxy_cache_valid 200 1m;", "proxy_cache_valid 404 1s;"),
        ("access_log a;", "access_log b;"),
        ("set_real_ip_from 10.0.0.0/8;", "set_real_ip_from 192.0.2.0/24;"),
        ("grpc_hide_header A;", "grpc_hide_header B;"),
        ("allow 10.0.0.1;", "allow 10.0.0.2;"),
        ("gzip on;", "set $a 1;"),
    ] {
        assert_eq!(changes(&of(&[one, other].concat()), &of(&[other, one].concat())), [], "{one} {other}");
    }
    for (one, other) in [
        ("add_header X-A 1;", "add_header x-a 2;"),
        ("proxy_set_header X-A 1;", "proxy_set_header X-A 2;"),
        ("fastcgi_param A 1;", "fastcgi_param A 2;"),
        ("error_page 404 /404;", "error_page 404 =200 /other;"),
        ("proxy_cache_valid 1m;", "proxy_cache_valid 301 1s;"),
        ("proxy_cache_valid any 1m;", "proxy_cache_valid 404 1s;"),
        ("proxy_redirect /a /b;", "proxy_redirect / /c;"),
        ("allow 10.0.0.1;", "deny all;"),
        ("set $a 1;", "rewrite /a /b;"),
        ("if ($a) { return 403; }", "set $a 1;"),
    ] {
        // A line beside them that commutes is not told.
        let got =
            changes(&of(&[one, other, "add_header X-C 3;"].concat()), &of(&["add_header X-C 3;", other, one].concat()));
        assert_eq!((got.len(), got.first().map(|change| change.2.len())), (1, Some(2)), "{one} {other}: {got:?}");
    }
}

#[test]
fn moves_beside_other_changes_are_told() {
    let of = |text: &str| http(&format!("server {{ listen 80; {text} }}"));
    let got = changes(&of("allow 10.0.0.1; deny 10.0.0.0/8;"), &of("deny 10.0.0.0/8; allow 10.0.0.1; deny all;"));
    assert_eq!(got[0].2, ["allow 10.0.0.1;", "deny 10.0.0.0/8;"]);
    assert_eq!(got[0].3, ["deny all;", "deny 10.0.0.0/8;", "allow 10.0.0.1;"]);
}

#[test]
fn moves_are_called_so() {
    let schema = Schema::new(Vec::new(), "tidegate 0");
    let of = |text: &str| load_text(&Memory::default(), Path::new("/a.conf"), http(text).into());
    let (old, new) = (of("server { allow 10.0.0.1; deny all; }"), of("server { deny all; allow 10.0.0.1; }"));
    let changes =
        diff_scopes(&Scopes::new(&schema, &old.files, &old.items), &Scopes::new(&schema, &new.files, &new.items));
    assert!(changes_text(&changes, false).contains("  allow, deny: moved, and the order matters\n"), "{changes:?}");
    assert_eq!(changes_json(&changes)["changes"][0]["moved"], true);
    let new = of("server { deny all; }");
    let changes =
        diff_scopes(&Scopes::new(&schema, &old.files, &old.items), &Scopes::new(&schema, &new.files, &new.items));
    assert_eq!(changes_json(&changes)["changes"][0]["moved"], false);
}

#[test]
fn equal_servers_are_matched_one_by_one() {
    let twin = "server { listen 80; server_name a; root /x; }";
    let moved = "server { listen 80; server_name a b; }";
    assert_eq!(changes(&http(&[twin, twin].concat()), &http(&[twin, twin, moved].concat())).len(), 1);
    let gone = changes(&http(&[twin, moved, twin].concat()), &http(&[twin, moved].concat()));
    assert_eq!(gone.len(), 1, "{gone:?}");
    assert_eq!((gone[0].1.as_str(), gone[0].3.len()), ("server a", 0));
    // A thousand servers take a moment, not a thousand squared.
    let many =
        |port: u32| (0..1000).map(|n| format!("server {{ listen {port}; server_name s{n}; }}")).collect::<String>();
    assert!(changes(&http(&many(80)), &http(&many(80))).is_empty());
}
