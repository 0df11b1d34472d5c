use super::*;
use std::path::{Path, PathBuf};

fn words(text: &str) -> Vec<Vec<String>> {
    list_directives(&parse_file(FileId(0), text.as_bytes()))
        .iter()
        .map(|d| std::iter::once(&d.name).chain(&d.args).map(|w| w.text().into_owned()).collect())
        .collect()
}

fn first_error(items: &[TreeItem]) -> Option<&SyntaxError> {
    items.iter().find_map(|i| match i {
        TreeItem::Error(e) => Some(e),
        TreeItem::Directive(d) => {
            d.block.as_deref().and_then(first_error).or_else(|| d.included.iter().find_map(|f| first_error(&f.items)))
        }
        TreeItem::Comment(_) => None,
    })
}

fn error(text: &str) -> (String, u32) {
    let items = parse_file(FileId(0), text.as_bytes());
    let e = first_error(&items).expect("an error");
    (e.text.clone(), e.line)
}

#[test]
fn words_quotes_and_escapes() {
    assert_eq!(words("a b;c 'd e' \"f\\\"g\";"), [vec!["a", "b"], vec!["c", "d e", "f\"g"]]);
    assert_eq!(words(r"a \n\t\x\\ b\;c;"), [vec!["a", "\n\t\\x\\", "b\\;c"]]);
    assert_eq!(words("a ${b}c$d{"), Vec::<Vec<String>>::from([vec!["a".into(), "${b}c$d".into()]]));
    assert_eq!(words("a b#c # d\n e;"), [vec!["a", "b#c", "e"]]);
    assert_eq!(words("if ($a = \"b\") { x; }")[0], ["if", "($a", "=", "b", ")"]);
    assert_eq!(words("a '';"), [vec!["a", ""]]);
    assert_eq!(words("a b'c\"d;"), [vec!["a", "b'c\"d"]]);
}

#[test]
fn words_may_be_so_long() {
    let most = "x".repeat(WORD_BYTES_MAX);
    assert_eq!(words(&format!("a {most};"))[0][1], most);
    assert!(error(&format!("a {most}x;")).0.starts_with("too long parameter \"xxxxxxxxxx...\" started"));
    assert_eq!(words(&format!("a '{}';", &most[1..]))[0][1], &most[1..]);
    assert!(error(&format!("a '{most}';")).0.starts_with("too long parameter, probably missing terminating \"'\""));
}

#[test]
fn errors_in_nginx_words() {
    assert_eq!(error("a b"), ("unexpected end of file, expecting \";\" or \"}\"".into(), 1));
    assert_eq!(error("a {\n b;\n"), ("unexpected end of file, expecting \"}\"".into(), 3));
    assert_eq!(error("a;\n}"), ("unexpected \"}\"".into(), 2));
    assert_eq!(error("a { b }"), ("unexpected \"}\"".into(), 1));
    assert_eq!(error(";"), ("unexpected \";\"".into(), 1));
    assert_eq!(error("{"), ("unexpected \"{\"".into(), 1));
    assert_eq!(error("a \"b\"c;"), ("unexpected \"c\"".into(), 1));
    assert_eq!(error("a \"b"), ("unexpected end of file, expecting \";\" or \"}\"".into(), 1));
    let long = format!("a '{}';", "x".repeat(WORD_BYTES_MAX + 1));
    assert_eq!(error(&long).0, "too long parameter, probably missing terminating \"'\" character");
    let long = format!("a {};", "x".repeat(WORD_BYTES_MAX + 1));
    assert_eq!(error(&long).0, "too long parameter \"xxxxxxxxxx...\" started");
}

#[test]
fn a_line_is_the_terminators() {
    let items = parse_file(FileId(0), b"a\n b\n c;\nd {\n e;\n}\n");
    let d = list_directives(&items);
    assert_eq!((d[0].line, d[1].line, d[1].block_end_line), (3, 4, 6));
}

fn memory(files: &[(&str, &str)]) -> Memory {
    Memory(files.iter().map(|(p, t)| (PathBuf::from(p), t.as_bytes().to_vec())).collect())
}

#[test]
fn includes_nest_and_glob() {
    let source = memory(&[
        ("/etc/n/nginx.conf", "a; http { include conf.d/*.conf; include sub/x; } z;"),
        ("/etc/n/conf.d/2.conf", "two;"),
        ("/etc/n/conf.d/1.conf", "one; include sub/x;"),
        ("/etc/n/sub/x", "x;"),
    ]);
    let read = load_files(&source, Path::new("/etc/n/nginx.conf")).expect("main file");
    assert!(first_error(&read.items).is_none());
    let top = list_directives(&read.items);
    let inner = list_directives(top[1].block.as_deref().expect("block"));
    let names: Vec<_> = inner.iter().map(|d| d.name.text().into_owned()).collect();
    assert_eq!(names, ["one", "x", "two", "x"]);
    assert_eq!(read.files.all.len(), 4, "a file that is included twice is listed once");
}

#[test]
fn a_missing_include_is_named_and_an_empty_glob_is_not() {
    let source = memory(&[("/c/nginx.conf", "include none/*; \ninclude gone;")]);
    let read = load_files(&source, Path::new("/c/nginx.conf")).expect("main file");
    let e = first_error(&read.items).expect("an error");
    assert_eq!((e.text.as_str(), e.line), ("open() \"/c/gone\" failed (2: No such file or directory)", 2));
    // It is not a line of its block, unlike an include with other arguments.
    let read = load_files(&memory(&[("/c/nginx.conf", "include none/*; include a b; c;")]), Path::new("/c/nginx.conf"));
    let items = read.expect("main file").items;
    assert_eq!(list_directives(&items).iter().map(|d| d.args.len()).collect::<Vec<_>>(), [2, 0]);
    assert!(include_of(&items).is_some() && include_of(&items[2..]).is_none());
}

#[test]
fn a_file_that_includes_itself_is_an_error_at_its_line() {
    let circle = [
        ("/c/nginx.conf", "a;\ninclude b*.conf;"),
        ("/c/b1.conf", "\ninclude sub/c.conf;"),
        ("/c/sub/c.conf", "include b1.conf;"),
    ];
    let read = load_files(&memory(&circle), Path::new("/c/nginx.conf")).expect("main file");
    let e = first_error(&read.items).expect("an error");
    assert_eq!((e.text.as_str(), e.line), ("\"/c/b1.conf\" includes itself", 1));
    let way = "it is read already: \"/c/b1.conf\" includes \"/c/sub/c.conf\" includes it";
    assert_eq!(e.hint.as_deref(), Some(way));
    // Twice in a file, and under a name that differs each time.
    for text in ["include nginx.conf; include nginx.conf;", "include ./nginx.conf; include ./././nginx.conf;"] {
        let read = load_files(&memory(&[("/c/nginx.conf", text)]), Path::new("/c/nginx.conf")).expect("main file");
        assert!(first_error(&read.items).is_some(), "{text}");
    }
}

#[test]
fn includes_that_multiply_end_and_a_file_may_be_included_often() {
    // 2^40 includes of small files without a circle.
    let mut files: Vec<(String, String)> = (0..40)
        .map(|n| (format!("/c/{n}"), format!("include {next}; include {next};", next = n + 1)))
        .chain([("/c/40".to_string(), "end;".to_string())])
        .collect();
    let all = |files: &[(String, String)]| {
        let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        load_files(&memory(&files), Path::new("/c/0")).expect("main file")
    };
    let read = all(&files);
    assert_eq!(
        first_error(&read.items).expect("an error").text,
        format!("more than {INCLUDES_MAX} files are included")
    );
    // Large files.
    for (_, text) in &mut files {
        *text = format!("{}{text}", "#".repeat(1 << 20) + "\n");
    }
    let words = first_error(&all(&files).items).expect("an error").text.clone();
    assert_eq!(words, "files that are included again have more than 64 MB");
    let often = [("/c/0".to_string(), "include p; ".repeat(10_000)), ("/c/p".to_string(), "param a b;".to_string())];
    assert!(first_error(&all(&often).items).is_none());
}
