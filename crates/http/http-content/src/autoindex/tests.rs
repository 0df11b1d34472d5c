//! Tests of listings.

use super::*;

const TIME: i64 = 784_111_777;

fn entry(name: &str, kind: EntryKind, size: u64) -> Entry {
    Entry { name: name.into(), kind, modified: TIME, size }
}

fn page(exact_size: bool, entries: &[Entry]) -> String {
    let list = IndexSettings { format: Format::Html, exact_size, local_time: false };
    String::from_utf8(render::render_html(&list, b"/a&b/", entries, true)).expect("text")
}

#[test]
fn html_pages_equal_those_of_nginx() {
    let long = "x".repeat(51);
    let text = page(
        true,
        &[entry("d", EntryKind::Folder, 0), entry("a b", EntryKind::File, 7), entry(&long, EntryKind::File, 1)],
    );
    assert!(text.starts_with("<html>\r\n<head><title>Index of /a&amp;b/</title></head>\r\n<body>\r\n<h1>Index of "));
    let lines: Vec<&str> = text.split("\r\n").collect();
    assert_eq!(lines[4], format!("<a href=\"d/\">d/</a>{} 06-Nov-1994 08:49 {:>19}", " ".repeat(48), "-"));
    assert_eq!(lines[5], format!("<a href=\"a%20b\">a b</a>{} 06-Nov-1994 08:49 {:>19}", " ".repeat(47), 7));
    assert_eq!(lines[6], format!("<a href=\"{long}\">{}..&gt;</a> 06-Nov-1994 08:49 {:>19}", &long[..47], 1));
}

#[test]
fn characters_are_counted_when_names_are_utf8() {
    let name = "ä".repeat(50);
    let text = page(true, &[entry(&name, EntryKind::File, 1)]);
    assert!(text.contains(&format!(">{name}</a> 06-")), "{text}");
    let longer = "ä".repeat(51);
    let text = page(true, &[entry(&longer, EntryKind::File, 1)]);
    assert!(text.contains(&format!(">{}..&gt;</a> 06-", "ä".repeat(47))), "{text}");
}

#[test]
fn rounded_sizes() {
    for (size, want) in [
        (0, "       0"),
        (9999, "    9999"),
        (10_000, "     10K"),
        (1_048_575, "   1024K"),
        (1_048_576, "      1M"),
        (1_610_612_736, "      2G"),
    ] {
        let text = page(false, &[entry("f", EntryKind::File, size)]);
        assert!(text.contains(&format!(" 08:49 {}\r\n", &want[1..])), "{size}: {text}");
    }
}

#[test]
fn json_and_xml() {
    let entries = [entry("d", EntryKind::Folder, 0), entry("q\"\u{1}", EntryKind::File, 5)];
    let json = String::from_utf8(render::render_json(&entries, None)).expect("text");
    assert_eq!(
        json,
        "[\r\n{ \"name\":\"d\", \"type\":\"directory\", \"mtime\":\"Sun, 06 Nov 1994 08:49:37 GMT\" },\r\n\
         { \"name\":\"q\\\"\\u0001\", \"type\":\"file\", \"mtime\":\"Sun, 06 Nov 1994 08:49:37 GMT\", \"size\":5 }\r\n]"
    );
    assert_eq!(render::render_json(&[], Some(b"f")), b"/* callback */\r\nf([\r\n]);");
    let xml = String::from_utf8(render::render_xml(&entries)).expect("text");
    assert!(xml.contains("<directory mtime=\"1994-11-06T08:49:37Z\">d</directory>\r\n"), "{xml}");
    assert!(xml.contains("<file mtime=\"1994-11-06T08:49:37Z\" size=\"5\">q&quot;\u{1}</file>\r\n"), "{xml}");
}

#[test]
fn names_of_callbacks() {
    assert_eq!(check_callback(b"a.b_9"), Ok(()));
    assert_eq!(check_callback(b"alert(1)"), Err("invalid"));
    assert_eq!(check_callback(&[b'a'; 129]), Err("too long"));
}
