//! Documents that filters rewrite (`--documents`): server-side includes, character sets, substitutions, indexes of folders, sizes of
//! images, slices. The documents are generated with the configuration.

use crate::Dice;
use crate::pool::{PoolRequest, make_ask};
use crate::server::Dirs;
use std::fs;
use std::io;
use std::time::{Duration, UNIX_EPOCH};

/// Number of generated documents.
const DOCUMENTS: usize = 6;
/// Documents that others include: they change no state of the request, because the order of subrequests is open.
const INCLUDED: [usize; 2] = [1, 2];
/// Modification time of the first file, in seconds; the next ones are older.
const NEWEST: u64 = 1_700_000_000;

/// Lines beside those of every comparison.
const LINES: &[&str] = &[
    "ssi off;",
    "ssi_silent_errors on;",
    "ssi_types text/plain text/css image/gif;",
    "ssi_types text/css text/plain;",
    "ssi_value_length 8;",
    "ssi_min_file_chunk 1;",
    "ssi_last_modified on;",
    "output_buffers 1 32;",
    "output_buffers 2 100;",
    "output_buffers 1 512;",
    "sendfile on; output_buffers 1 50;",
    "aio threads; output_buffers 1 64;",
    "directio 1; output_buffers 2 512;",
    "postpone_output 0;",
    "postpone_output 100;",
    "subrequest_output_buffer_size 16;",
    "subrequest_output_buffer_size 1k;",
    "sub_filter '<!--' '[';",
    "sub_filter o 00; sub_filter_once off;",
    "sub_filter hello ''; sub_filter_once off;",
    "sub_filter aab X; sub_filter ab Y; sub_filter b ''; sub_filter_once off;",
    "sub_filter $arg_i 'from $arg_i'; sub_filter_once off;",
    "sub_filter HELLO '$uri';",
    "sub_filter_types text/plain text/css image/gif;",
    "sub_filter_types text/plain;",
    "sub_filter_last_modified on;",
    "charset koi8-r;",
    "charset utf-8;",
    "charset windows-1251;",
    "charset off;",
    "source_charset koi8-r; charset utf-8;",
    "source_charset koi8-r; charset windows-1251;",
    "source_charset windows-1251; charset koi8-r;",
    "override_charset on;",
    "charset_types text/plain text/css;",
    "charset_types text/plain text/css image/gif;",
    "autoindex off;",
    "autoindex_format json;",
    "autoindex_format jsonp;",
    "autoindex_format xml;",
    "autoindex_exact_size off;",
    "autoindex_localtime on;",
    "index part.html;",
    "index 'a b';",
    "image_filter test;",
    "image_filter off;",
    "error_page 415 = /d/part.html; image_filter test;",
    "slice 0;",
    "slice 7;",
    "slice 64;",
    "slice 1k;",
    "proxy_cache off;",
    "proxy_force_ranges on;",
    "proxy_cache_min_uses 2;",
    "proxy_cache_valid any 1m;",
    "proxy_set_header Range $slice_range;",
    "proxy_set_header Range 'bytes=0-4';",
    "proxy_buffering off;",
    "proxy_buffers 2 1k; proxy_buffer_size 1k; proxy_busy_buffers_size 1k;",
    "max_ranges 1;",
    "max_ranges 0;",
    "add_header X-Slice '$slice_range $upstream_cache_status $upstream_status' always;",
    "userid on;",
    "userid v1;",
    "userid log;",
    "userid on; userid_name u; userid_expires 1d;",
    "userid on; userid_expires max; userid_domain example.com; userid_path /p;",
    "userid_p3p 'policyref=\"/p\"'; userid on;",
    "userid on; userid_mark =;",
    "userid on; userid_mark a;",
    "userid on; userid_flags secure samesite=lax;",
    "userid on; userid_flags httponly samesite=none; userid_flags off;",
    "userid_service 7;",
    "add_header X-Uid '$uid_got|$uid_reset' always;",
    "expires $arg_e;",
    "expires modified 1h;",
    "expires modified -1h;",
    "gzip_static always;",
    "gzip_static on; gzip_vary on;",
    "gzip_static always; gunzip on;",
    "gunzip on; ssi on;",
    "geo $own { proxy 127.0.0.1; default far; 192.0.2.0/24 near; 192.0.2.1/32 host; }",
    "geo $own { proxy 127.0.0.0/8; proxy_recursive; default far; 192.0.2.0/24 near; 10.0.0.0/8 inner; }",
    "geo $own { default far; 127.0.0.0/8 near; delete 127.0.0.0/8; ::/0 six; }",
    "geo $arg_ip $own { ranges; default far; 10.0.0.0-10.0.0.255 near; delete 10.0.0.7-10.0.0.7; }",
    "map $arg_i $own { default none; '' empty; ~^(?<first>.)b '$first-$uri'; ~*E $arg_i; \\default d; }",
    "error_page 404 /d/doc0.html;",
    "error_page 404 =200 /d/doc1.html;",
    "error_page 403 404 = @named;",
    "if_modified_since before;",
    "etag off;",
    "types { text/html html; text/plain txt; image/gif gif; }",
    "default_type text/html;",
    "try_files $uri /d/part.html;",
    "try_files $uri $uri/ /d/doc2.html?i=e;",
    "rewrite ^/d/none /d/doc3.html last;",
    "rewrite ^/d/part(.*) /d/doc4$1?i=$args break;",
    "default_type text/html; return 200 '<!--#echo var=\"uri\" --> hello <!--#if expr=\"$arg_i\" -->i<!--#endif -->';",
    "set $own 'a<b>&\"c\"';",
    "add_header X-Vars '$body_bytes_sent $sent_http_last_modified $sent_http_etag' always;",
    "add_header X-More '$request_completion $pipe $connection_requests $is_request_port $request_port $http2' always;",
    "limit_rate 1m;",
];

/// Tells whether a line is left out of this comparison. nginx cuts a response off that has slices and trailers or another tag, puts an
/// additional body into the middle of a page that waits for an include, logs subrequests with variables of each other, and closes
/// the connection of a page with an empty character set. Slices with one key get a wrong body, another folder has other files, the
/// excess of a limit depends on the time that the documents take, and compressed bodies name the program that made them.
pub fn is_left_out(line: &str) -> bool {
    const STARTS: [&str; 11] = [
        "add_header ETag ",
        "add_trailer ",
        "add_before_body ",
        "add_after_body ",
        "log_subrequest ",
        "proxy_cache_key ",
        "root ",
        "alias ",
        "charset $own",
        "limit_req ",
        "gzip on",
    ];
    STARTS.iter().any(|start| line.starts_with(start))
}

/// Returns the lines of this comparison.
pub fn document_lines() -> Vec<&'static str> {
    LINES.to_vec()
}

/// Returns the blocks of the http level.
pub fn document_maps() -> &'static str {
    "charset_map koi8-r windows-1251 { C1 E0; C2 E1; D7 E2; }
    charset_map koi8-r utf-8 { C1 D0B0; C2 D0B1; D7 D0B2; A3 D191; }
    charset_map windows-1251 utf-8 { E0 D0B0; E1 D0B1; E2 D0B2; 82 E2809A; }"
}

/// Returns the locations of the documents. A directive that the configuration has in them replaces the location's own.
pub fn document_locations(location: &str, nested: &str, if_: &str) -> String {
    let own = |lines: &[&'static str]| {
        let name = |line: &str| line.split(' ').next().unwrap_or_default().to_string() + " ";
        let kept = lines.iter().copied().filter(|line| !location.contains(&name(line)));
        kept.collect::<Vec<_>>().join(" ")
    };
    let sliced = own(&[
        "slice 10;",
        "proxy_cache one;",
        "proxy_cache_key $uri$is_args$args$slice_range;",
        "proxy_cache_valid 200 206 1m;",
        "proxy_set_header Range $slice_range;",
    ]);
    let (includes, index, random) = (own(&["ssi on;"]), own(&["autoindex on;"]), own(&["random_index on;"]));
    format!(
        "location /d/ {{
            {includes}
            {location}
            location /d/in/ {{ {nested} alias @dir/html/d/; }}
            if ($arg_i = if) {{ {if_} }}
        }}
        location /x/ {{ {index} {location} }}
        location /g/ {{ types {{ image/gif gif; image/png png; image/jpeg jpg; image/webp webp; }} {location} }}
        location /g/size/ {{ alias @dir/html/g/; add_header_inherit off; userid off; expires off; image_filter size; image_filter_buffer 60; }}
        location /f/ {{ {random} {location} }}
        location /z/ {{ {location} }}
        location /c/ {{
            {sliced}
            {location}
            proxy_pass http://127.0.0.1:@backend/;
            location /c/in/ {{ {nested} proxy_pass http://127.0.0.1:@backend/; }}
        }}"
    )
}

/// A compressed `hello from a compressed file, hello`.
const COMPRESSED: &[u8] = &[
    0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0xff, 0xcb, 0x48, 0xcd, 0xc9, 0xc9, 0x57, 0x48, 0x2b, 0xca,
    0xcf, 0x55, 0x48, 0x54, 0x48, 0xce, 0xcf, 0x2d, 0x28, 0x4a, 0x2d, 0x2e, 0x4e, 0x4d, 0x51, 0x48, 0xcb, 0xcc, 0x49,
    0xd5, 0x51, 0xc8, 0x00, 0xc9, 0x02, 0x00, 0xdd, 0xe4, 0xc8, 0x7b, 0x23, 0x00, 0x00, 0x00,
];
const GIF: &[u8] = b"GIF89a\x07\x00\x05\x00\x80\x00\x00\xff\xff\xff\x00\x00\x00!\xf9\x04\x01\x00\x00\x00\x00,\x00\x00\x00\x00\x07\x00\x05\x00\x00\x02\x06\x84\x8f\xa9\xcb\xed]\x00;";
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x01\x02\x00\x00\x00\x09\x08\x02\x00\x00\x00";
const JPEG: &[u8] = b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00\xff\xc0\x00\x11\x08\x00\x20\x00\x30\x03\x01\"\x00\x02\x11\x01\x03\x11\x01";

/// Files that every configuration has.
const FILES: &[(&str, &[u8])] = &[
    ("d/part.html", b"part with hello <!--#echo var=\"arg_i\" default=\"none\" --> aabab"),
    ("d/plain.txt", b"plain hello <!--#echo var=\"uri\" --> aab"),
    ("d/koi.html", b"koi \xc1 \xc2 \xd7 \xa3 \xff hello"),
    ("d/win.html", b"win \xe0 \xe1 \xe2 \x82 \x98 hello"),
    ("d/utf.html", b"utf \xd0\xb0\xd0\xb1 \xe2\x80\x9a \xf0\x9f\x98\x80 \xd0"),
    ("g/one.gif", GIF),
    ("g/two.png", PNG),
    ("g/three.jpg", JPEG),
    ("g/cut.jpg", b"\xff\xd8\xff\xe0\x00\x10JFIF"),
    ("g/cut.gif", b"GIF89a\x07"),
    ("g/text.png", b"this is no image at all"),
    ("g/empty.gif", b""),
    ("g/web.webp", b"RIFF\x24\x00\x00\x00WEBPVP8 \x18\x00\x00\x00\x30\x01\x00\x9d\x01\x2a\x10\x00\x08\x00"),
    ("f/only.html", b"the only file, hello"),
    ("z/page.html", b"not compressed, hello"),
    ("z/page.html.gz", COMPRESSED),
    ("z/gone.html.gz", COMPRESSED),
];

/// Names of files in the folder with an index.
const NAMES: &[&str] = &[
    "a b",
    "q?x",
    "100%",
    "\u{fc}n\u{ef}code \u{434}\u{43b}\u{438}\u{43d}\u{43d}\u{43e}\u{435} \u{438}\u{43c}\u{44f} \u{444}\u{430}\u{439}\u{43b}\u{430} \u{43e}\u{447}\u{435}\u{43d}\u{44c}",
    "<b>.html",
    "\"quoted\"",
    "it's",
    "#hash",
    "a&amp;b",
    "c:d",
    "back\\slash",
    "tab\there",
    "new\nline",
    "bell\u{7}",
    ".hidden",
    "exactly-fifty-characters-long-name-of-a-file-abcde",
    "fifty-one-characters-long-name-of-another-file-abcd",
    "a-name-that-is-longer-than-any-column-of-an-index-of-a-folder-could-show.html",
];

/// Returns the generated documents of a configuration.
fn documents(dice: &mut Dice) -> Vec<String> {
    (0..DOCUMENTS).map(|at| document(dice, INCLUDED.contains(&at))).collect()
}

fn dice(seed: u64) -> Dice {
    Dice::new(seed ^ 0x000D_0C5E)
}

/// Returns the generated documents of a configuration, for a report.
pub fn shown_documents(seed: u64) -> String {
    let lines = documents(&mut dice(seed)).into_iter().enumerate();
    lines.map(|(at, text)| format!("\n  doc{at}.html: {text:?}")).collect()
}

/// Writes the documents of a configuration.
///
/// # Errors
/// As the file system gives them.
pub fn write_documents(dirs: &Dirs, seed: u64) -> io::Result<()> {
    let root = dirs.folder.join("html");
    let mut dice = dice(seed);
    let mut files: Vec<(String, Vec<u8>)> =
        FILES.iter().map(|(name, content)| (name.to_string(), content.to_vec())).collect();
    for (at, text) in documents(&mut dice).into_iter().enumerate() {
        files.push((format!("d/doc{at}.html"), text.into_bytes()));
    }
    for (at, name) in NAMES.iter().enumerate() {
        // The first one is what a link points to.
        if at == 0 || dice.below(3) > 0 {
            files.push((format!("x/{name}"), vec![b'x'; dice.below(40)]));
        }
    }
    for (at, (name, content)) in files.iter().enumerate() {
        let path = root.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, content)?;
        let file = fs::File::options().write(true).open(&path)?;
        if name.starts_with("x/") {
            const SIZES: [u64; 8] = [0, 1023, 1024, 1_048_575, 1_048_576, 1_073_741_824, 10_000_000_000, 99];
            file.set_len(SIZES[dice.below(SIZES.len())])?;
        }
        file.set_modified(UNIX_EPOCH + Duration::from_secs(NEWEST - at as u64 * 40_000))?;
    }
    for folder in ["x/inner", "x/a", "x/zz y"] {
        fs::create_dir_all(root.join(folder))?;
    }
    std::os::unix::fs::symlink("a b", root.join("x/link"))?;
    // Its own time, the present, would stand in the index.
    std::os::unix::fs::symlink("nowhere", root.join("d/broken"))?;
    std::os::unix::fs::symlink("inner", root.join("x/link to a folder"))?;
    for folder in ["x/inner", "x/a", "x/zz y", "x", "d", "f", "g", "z"] {
        fs::File::open(root.join(folder))?.set_modified(UNIX_EPOCH + Duration::from_secs(NEWEST))?;
    }
    Ok(())
}

/// Returns a document with server-side includes, most of them well-formed. nginx drops an incomplete `<!--#` at the end of a
/// document, so that it ends with text.
fn document(dice: &mut Dice, is_included: bool) -> String {
    let count = 2 + dice.below(9);
    (0..count).map(|_| element(dice, 2, is_included)).chain([" end".to_string()]).collect()
}

fn one_of<'a>(dice: &mut Dice, all: &[&'a str]) -> &'a str {
    all[dice.below(all.len())]
}

fn element(dice: &mut Dice, depth: usize, is_included: bool) -> String {
    const NAMES: [&str; 13] = [
        "one",
        "two",
        "uri",
        "arg_i",
        "own",
        "http_x_own",
        "request_method",
        "args",
        "none",
        "document_uri",
        "1",
        "first",
        "got",
    ];
    const VALUES: [&str; 14] = [
        "value",
        "",
        "$one",
        "${two}s",
        "<b>&\\\"q\\\"",
        "$arg_i",
        "a b",
        "\\$one",
        "/(.)(?P<first>d)/",
        "$1 $first",
        "100%",
        "\u{434}",
        "$",
        "it's",
    ];
    const TARGETS: [&str; 16] = [
        "/d/part.html",
        "part.html",
        "/d/part.html?i=sub&x=1",
        "/d/none",
        "/t/x",
        "$one",
        "/d/koi.html",
        "/d/plain.txt",
        "/p/none",
        "/c/sliced",
        "/r/x",
        "/auth/no",
        "../a/x.html",
        "/d/%70art.html",
        "/z/page.html",
        // Not by documents that are included themselves: without end.
        "/d/doc1.html",
    ];
    const EXPRESSIONS: [&str; 22] = [
        "$arg_i",
        "$one",
        "$one = value",
        "$one != value",
        "$arg_i = /^e/",
        "$arg_i = /(.)(.)/",
        "$uri = /(?P<first>doc.)/",
        "$uri != /doc/",
        "$one = ''",
        "$one=$two",
        "value",
        "",
        "$arg_i = /[/",
        "$arg_i = /x",
        "a = b = c",
        "$one == value",
        "$one = \"value\"",
        "$one = 'value'",
        "${one}x = valuex",
        "!$one",
        "$none = $one",
        "$arg_i = \\/e",
    ];
    match dice.below(16) {
        0 | 1 => {
            one_of(dice, &["hello ", "text & more\n", "<!-- comment -->", "<", "<!", "<!-", "<!--", "--> ", "aabab "])
                .into()
        }
        2 | 3 => {
            // The value of `got` arrives after an included document has begun.
            let name = one_of(dice, &NAMES[..NAMES.len() - usize::from(is_included)]);
            let more = one_of(
                dice,
                &[
                    "",
                    "",
                    " default=\"d&\"",
                    " default=\"$one\"",
                    " encoding=\"none\"",
                    " encoding=\"url\"",
                    " encoding=\"entity\"",
                    " encoding=\"x\"",
                    " default=\"\"",
                ],
            );
            format!("[<!--#echo var=\"{name}\"{more} -->]")
        }
        4 | 5 if !is_included => {
            let (name, value) = (one_of(dice, &NAMES), one_of(dice, &VALUES));
            format!("<!--#set var=\"{name}\" value=\"{value}\" -->")
        }
        // nginx refuses includes in a response that becomes a variable's value.
        6 if !is_included => {
            let target = one_of(dice, &["/d/part.html", "/t/x", "/d/koi.html", "$one"]);
            format!("(<!--#include virtual=\"{target}\" set=\"got\" -->)")
        }
        7 => {
            let target = one_of(dice, &TARGETS[..TARGETS.len() - usize::from(is_included)]);
            let more = one_of(
                dice,
                &["", "", "", " wait=\"yes\"", " wait=\"no\"", " wait=\"x\"", " stub=\"block\"", " stub=\"none\""],
            );
            format!("(<!--#include virtual=\"{target}\"{more} -->)")
        }
        8 => {
            let other = if is_included { "part.html" } else { "doc2.html" };
            let target = one_of(dice, &["part.html", other, "none", "/d/part.html", "../a/x.html", "$one"]);
            format!("(<!--#include file=\"{target}\" -->)")
        }
        9 if depth > 0 => {
            let mut text = format!("<!--#if expr=\"{}\" -->", one_of(dice, &EXPRESSIONS));
            text += &element(dice, depth - 1, is_included);
            if dice.below(3) == 0 {
                text += &format!("<!--#elif expr=\"{}\" -->", one_of(dice, &EXPRESSIONS));
                text += &element(dice, depth - 1, is_included);
            }
            if dice.below(2) == 0 {
                text += "<!--#else -->";
                text += &element(dice, depth - 1, is_included);
            }
            text + "<!--#endif -->"
        }
        10 if depth > 0 && !is_included => {
            let name = one_of(dice, &["block", "block", "other", ""]);
            format!("<!--#block name=\"{name}\" -->{}<!--#endblock -->", element(dice, depth - 1, is_included))
        }
        11 => one_of(
            dice,
            &[
                "<!--#config errmsg=\"[failed]\" -->",
                "<!--#config timefmt=\"%Y-%m\" --><!--#echo var=\"date_gmt\" -->",
                "<!--#config timefmt=\"%Y\" --><!--#echo var=\"DATE_LOCAL\" -->",
                "<!--#config timefmt=\"%%\" --><!--#echo var=\"date_local\" -->",
            ],
        )
        .into(),
        12 if !is_included => one_of(
            dice,
            &[
                "<!--#unknown x=\"y\" -->",
                "<!--#echo -->",
                "<!--#echo var=one -->",
                "<!--#echo var='one' -->",
                "<!--#echo var=\"one -->",
                "<!--#echo var=\"one\"-->",
                "<!--#  echo   var = \"one\"   -->",
                "<!--#echo var=\"one\" var=\"two\" -->",
                "<!--#echo var=\"one\" wrong=\"two\" -->",
                "<!--#ECHO VAR=\"one\" -->",
                "<!--#include -->",
                "<!--#include virtual=\"/d/part.html\" file=\"part.html\" -->",
                "<!--#set var=\"one\" -->",
                "<!--#if -->",
                "<!--#else -->",
                "<!--#endif -->",
                "<!--#elif expr=\"$one\" -->",
                "<!--#endblock -->",
                "<!--#block name=\"block\" -->",
                "<!--#if expr=\"$one\" -->",
                "<!--#endif x=\"y\" -->",
                "<!--#echo var=\"one\" -- >",
                "<!--#echo var=\"one\" --!>",
                "<!--#echo var=\"a-->b\" -->",
                "<!--#-->",
                "<!--# -->",
                "<!--#echo\tvar=\"one\"\n-->",
                "<!--#set var=\"one\" value=\"a much longer value than eight octets\" -->",
                "<!--#echo var=\"o\\\"ne\" -->",
                "<!--#averylongcommandnamethatdoesnotexistanywhereatall x=\"\" -->",
            ],
        )
        .into(),
        13 if !is_included => "<!--#block name=\"block\" -->stub hello<!--#endblock -->".into(),
        _ => format!("text {} ", dice.below(100)),
    }
}

/// Requests for every configuration.
pub const REQUESTS: &[PoolRequest] = &[
    make_ask("GET", "/d/doc0.html", "", ""),
    make_ask("GET", "/d/doc0.html?i=e", "X-Own: <o>\r\n", ""),
    make_ask("HEAD", "/d/doc0.html", "", ""),
    make_ask("GET", "/d/doc0.html", "Range: bytes=1-3\r\n", ""),
    make_ask("GET", "/d/doc1.html?i=ab", "", ""),
    make_ask("GET", "/d/doc1.html?i=if", "", ""),
    make_ask("GET", "/d/doc2.html", "X-Own: o\r\n", ""),
    make_ask("GET", "/d/doc3.html?i=e&c=utf-8", "", ""),
    make_ask("GET", "/d/doc4.html", "If-Modified-Since: Tue, 14 Nov 2023 22:13:20 GMT\r\n", ""),
    make_ask("GET", "/d/doc5.html?i=%3Cb%3E", "", ""),
    make_ask("GET", "/d/in/doc3.html", "", ""),
    make_ask("GET", "/d/none?i=e", "", ""),
    make_ask("GET", "/d/part.html?i=hello", "Range: bytes=2-\r\n", ""),
    make_ask("GET", "/d/plain.txt", "", ""),
    make_ask("GET", "/d/koi.html?c=windows-1251", "", ""),
    make_ask("GET", "/d/koi.html?c=utf-8", "", ""),
    make_ask("GET", "/d/utf.html", "Accept-Charset: utf-8\r\n", ""),
    make_ask("GET", "/x/", "", ""),
    make_ask("HEAD", "/x/", "", ""),
    make_ask("GET", "/x/?callback=f", "", ""),
    make_ask("GET", "/x/?callback=a.b%5B1%5D", "", ""),
    make_ask("GET", "/x/inner/", "", ""),
    make_ask("GET", "/x/zz%20y", "", ""),
    make_ask("GET", "/x/link", "Range: bytes=0-1\r\n", ""),
    make_ask("GET", "/d/broken", "", ""),
    make_ask("GET", "/g/one.gif", "", ""),
    make_ask("HEAD", "/g/one.gif", "", ""),
    make_ask("GET", "/g/two.png", "", ""),
    make_ask("GET", "/g/three.jpg", "Range: bytes=0-3\r\n", ""),
    make_ask("GET", "/g/cut.jpg", "", ""),
    make_ask("GET", "/g/size/one.gif", "", ""),
    make_ask("HEAD", "/g/size/two.png", "", ""),
    make_ask("GET", "/g/size/two.png", "", ""),
    make_ask("GET", "/g/size/three.jpg", "", ""),
    make_ask("GET", "/g/size/cut.jpg", "", ""),
    make_ask("GET", "/g/size/cut.gif", "", ""),
    make_ask("GET", "/g/size/text.png", "", ""),
    make_ask("GET", "/g/size/empty.gif", "", ""),
    make_ask("GET", "/g/size/web.webp", "", ""),
    make_ask("GET", "/g/cut.gif", "", ""),
    make_ask("GET", "/g/text.png", "", ""),
    make_ask("GET", "/g/empty.gif", "", ""),
    make_ask("GET", "/g/web.webp", "", ""),
    make_ask("GET", "/f/", "", ""),
    make_ask("GET", "/z/page.html", "Accept-Encoding: gzip\r\n", ""),
    make_ask("GET", "/z/page.html", "", ""),
    make_ask("GET", "/z/gone.html", "Accept-Encoding: gzip;q=0\r\n", ""),
    make_ask("GET", "/z/gone.html", "Accept-Encoding: gzip\r\nRange: bytes=1-2\r\n", ""),
    make_ask("GET", "/c/sliced", "", ""),
    make_ask("GET", "/c/sliced", "Range: bytes=5-24\r\n", ""),
    make_ask("GET", "/c/sliced", "Range: bytes=-5\r\n", ""),
    make_ask("GET", "/c/sliced", "Range: bytes=60-\r\n", ""),
    make_ask("GET", "/c/sliced", "Range: bytes=100-\r\n", ""),
    make_ask("GET", "/c/sliced", "Range: bytes=0-1,8-12\r\n", ""),
    make_ask("HEAD", "/c/sliced?h", "", ""),
    make_ask("GET", "/c/sliced?etag", "Range: bytes=9-10\r\nIf-Range: \"e\"\r\n", ""),
    make_ask("GET", "/c/sliced?etag", "If-None-Match: \"e\"\r\n", ""),
    make_ask("GET", "/c/sliced?changing", "", ""),
    make_ask("GET", "/c/sliced?whole", "Range: bytes=5-24\r\n", ""),
    make_ask("GET", "/c/sliced?shifted", "", ""),
    make_ask("GET", "/c/sliced?short", "", ""),
    make_ask("GET", "/c/sliced?unknown", "", ""),
    make_ask("GET", "/c/in/sliced?nested", "Range: bytes=5-24\r\n", ""),
    make_ask("GET", "/c/error", "", ""),
    make_ask("GET", "/c/page?i=e", "Range: bytes=1-3\r\n", ""),
    make_ask("GET", "/d/part.html", "Cookie: uid=fwAAAWdFtQoAAAAAAwMDAg==; other=short\r\n", ""),
    make_ask(
        "GET",
        "/d/part.html",
        "Cookie: u=fwAAAWdFtQoAAAAAAwMDAg==\r\nX-Forwarded-For: 192.0.2.1, 10.1.1.1\r\n",
        "",
    ),
    make_ask("GET", "/d/part.html?e=1h&ip=10.0.0.7", "X-Forwarded-For: 192.0.2.200\r\n", ""),
];

/// Body of the resource that [`slice_response`] serves.
const SLICED: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+/";

/// Returns a response, whose type no filter rewrites, of an upstream server to a request for a part of 64 octets; the query names a fault of the server.
pub fn slice_response(query: &str, head: &str, count: usize) -> Vec<u8> {
    let size = SLICED.len();
    let lower = head.to_ascii_lowercase();
    let range = lower.split("\r\nrange: bytes=").nth(1).and_then(|rest| rest.split("\r\n").next());
    let range = range.and_then(|range| {
        let (from, to) = range.split_once('-')?;
        let from = from.parse::<usize>().ok()?;
        Some((from, to.parse::<usize>().map_or(size - 1, |to| to.min(size - 1))))
    });
    let tag = match query {
        "etag" => "ETag: \"e\"\r\n".to_string(),
        "changing" => format!("ETag: \"{count}\"\r\n"),
        _ => String::new(),
    };
    let head_only = head.starts_with("HEAD ");
    let respond = |status: &str, fields: &str, body: &[u8]| {
        let mut out = format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/octet-stream\r\n{tag}{fields}Content-Length: {}\r\n\r\n",
            body.len()
        );
        if !head_only {
            out += &String::from_utf8_lossy(body);
        }
        out.into_bytes()
    };
    match range.filter(|_| query != "whole") {
        None => respond("200 OK", "Accept-Ranges: bytes\r\n", SLICED),
        Some((from, _)) if from >= size => {
            respond("416 Range Not Satisfiable", &format!("Content-Range: bytes */{size}\r\n"), b"beyond")
        }
        Some((from, to)) => {
            let told = if query == "shifted" { from + 1 } else { from };
            let total = if query == "unknown" { "*".to_string() } else { size.to_string() };
            let to = if query == "short" { to.saturating_sub(2).max(from) } else { to };
            let body = SLICED.get(from..=to).unwrap_or_default();
            respond("206 Partial Content", &format!("Content-Range: bytes {told}-{to}/{total}\r\n"), body)
        }
    }
}
