//! Accepted and rejected request heads, by section of RFC 9112 and RFC 9110. The statuses are nginx's.

use http_types::{BodyLength, Method, NAMES, RequestHead, Version, known_name};
use wire_h1::{HeadError, HeadLimits, HeadParser, ParseProgress, check_request, keep_alive};

/// Parses, and checks what nginx checks after that. The status of an error, or the head.
fn read(bytes: &[u8]) -> Result<(RequestHead, BodyLength, usize), u16> {
    let mut head = RequestHead::default();
    match HeadParser::default().parse(bytes, &HeadLimits::default(), &mut head) {
        Ok(ParseProgress::Done { consumed }) => {
            let body = check_request(&head, bytes, true).map_err(|e| e.status())?;
            Ok((head, body, consumed))
        }
        Ok(ParseProgress::Partial) => Err(0),
        Err(error) => Err(error.status()),
    }
}

fn status(bytes: &[u8]) -> u16 {
    read(bytes).err().unwrap_or(200)
}

/// 200 stands for "taken", 0 for "more is needed".
fn table(rows: &[(&str, &[u8], u16)]) {
    for (what, bytes, wanted) in rows {
        assert_eq!(status(bytes), *wanted, "{what}: {}", bytes.escape_ascii());
    }
}

/// RFC 9112, 2.2: line ends, empty lines before the request, bare CR.
#[test]
fn line_ends() {
    table(&[
        ("CRLF", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 200),
        ("LF alone", b"GET / HTTP/1.1\nHost: a\n\n", 200),
        ("empty lines first", b"\r\n\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 200),
        ("nothing but empty lines", b"\r\n\r\n", 0),
        ("bare CR in the line", b"GET /\r HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("two CRs after the line", b"GET / HTTP/1.1\r\r\nHost: a\r\n\r\n", 400),
        ("bare CR in a value", b"GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n", 400),
        ("CRs at the end of a value", b"GET / HTTP/1.1\r\nHost: a\r\r\r\n\r\n", 200),
        ("bare CR at the end", b"GET / HTTP/1.1\r\nHost: a\r\n\rX\n", 400),
        ("white space before the first field", b"GET / HTTP/1.1\r\n X: y\r\nHost: a\r\n\r\n", 400),
    ]);
}

/// RFC 9112, 3.1 and RFC 9110, 9.1: any method of nginx's alphabet.
#[test]
fn methods_are_parsed() {
    table(&[
        ("unknown", b"BREW /pot HTTP/1.1\r\nHost: a\r\n\r\n", 200),
        ("with hyphen and underscore", b"M-SEARCH_X / HTTP/1.1\r\nHost: a\r\n\r\n", 200),
        ("lower case", b"get / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("empty", b" / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("alone", b"GET\r\n", 400),
        ("TLS on a plain port, before any line end", b"\x16\x03\x01\x02\x00", 400),
        ("TRACE", b"TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", 405),
        ("HTTP/2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    ]);
    for method in [Method::Get, Method::Propfind, Method::Proppatch, Method::Mkcol, Method::Unlock, Method::Patch] {
        let text = format!("{} / HTTP/1.1\r\nHost: a\r\n\r\n", method.name());
        assert_eq!(read(text.as_bytes()).unwrap().0.method, method);
    }
}

/// RFC 9112, 3.2: the forms of a target, and spaces in it.
#[test]
fn targets_are_parsed() {
    table(&[
        ("space inside", b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("space before HTTP-like text", b"GET /a HTTP HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("many spaces between", b"GET    /    HTTP/1.1   \r\nHost: a\r\n\r\n", 200),
        ("tab", b"GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("tab in the path", b"GET /\t HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("NUL", b"GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("DEL", b"GET /\x7f HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("control in the query", b"GET /?\x01 HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("bytes above 127", b"GET /\xc3\xa4 HTTP/1.1\r\nHost: a\r\n\r\n", 200),
        ("quotes and brackets", b"GET /\"<>[]{}|\\^` HTTP/1.1\r\nHost: a\r\n\r\n", 200),
        ("asterisk (nginx does not know the form)", b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("no target", b"GET HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("relative", b"GET a/b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("absolute", b"GET http://a/b HTTP/1.1\r\nHost: a\r\n\r\n", 200),
        ("absolute with port", b"GET http://a:80/b HTTP/1.1\r\nHost: a\r\n\r\n", 200),
        ("absolute with an empty port", b"GET http://a:/b HTTP/1.1\r\nHost: a\r\n\r\n", 200),
        ("absolute with letters for a port", b"GET http://a:b/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("absolute with user", b"GET http://u@a/b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("absolute with an underscore", b"GET http://a_b/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("absolute, IPv6", b"GET http://[::1]:80/ HTTP/1.1\r\nHost: a\r\n\r\n", 200),
        ("absolute, IPv6 not closed", b"GET http://[::1/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("absolute, text after the bracket", b"GET http://[::1]x/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("absolute, no host", b"GET http:///b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("absolute, one slash", b"GET http:/a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("absolute, fragment after the host", b"GET http://a#b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("CONNECT", b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n", 200),
        ("CONNECT without port", b"CONNECT a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("CONNECT with an empty port", b"CONNECT a: HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("CONNECT with a path", b"CONNECT a:1/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("CONNECT, origin-form", b"CONNECT / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("CONNECT, HTTP/1.0", b"CONNECT a:443 HTTP/1.0\r\n\r\n", 405),
    ]);
}

/// The parts of a target: path, args, authority, `$request_uri`, and whether the path needs work.
#[test]
fn heads_arrive_in_parts() {
    for (target, path, args, authority, uri, complex) in [
        ("/", "/", "", "", "/", false),
        ("/a/b.html?x=1&y=%20/../", "/a/b.html", "x=1&y=%20/../", "", "/a/b.html?x=1&y=%20/../", false),
        ("/A+b~c;d=e,f!g:h@i", "/A+b~c;d=e,f!g:h@i", "", "", "/A+b~c;d=e,f!g:h@i", false),
        ("/a.b/c..d/e.", "/a.b/c..d/e.", "", "", "/a.b/c..d/e.", false),
        ("/\\..\\", "/\\..\\", "", "", "/\\..\\", false),
        ("/a?", "/a", "", "", "/a?", false),
        ("/a??b?c", "/a", "?b?c", "", "/a??b?c", false),
        ("/%61", "/%61", "", "", "/%61", true),
        ("//a", "//a", "", "", "//a", true),
        ("/longer/path/with/a//b", "/longer/path/with/a//b", "", "", "/longer/path/with/a//b", true),
        ("/1234567/", "/1234567/", "", "", "/1234567/", false),
        ("/123456//", "/123456//", "", "", "/123456//", true),
        ("/1234567//", "/1234567//", "", "", "/1234567//", true),
        ("/a/./b", "/a/./b", "", "", "/a/./b", true),
        ("/a/.hidden", "/a/.hidden", "", "", "/a/.hidden", true),
        ("/a#b?c", "/a", "", "", "/a#b?c", true),
        ("/a?b#c?d", "/a", "b", "", "/a?b#c?d", true),
        ("http://h", "", "", "h", "/", true),
        ("http://h?q", "", "q", "h", "?q", true),
        ("HtTp+x://h:8080/p?q", "/p", "q", "h:8080", "/p?q", false),
        ("http://[::1]:8/", "/", "", "[::1]:8", "/", false),
    ] {
        // Once with fields after it and once without, so that both ways through a line are taken.
        for rest in ["\r\nHost: example.com\r\nAccept: */*\r\n\r\n", "\nHost:a\n\n"] {
            let bytes = format!("GET {target} HTTP/1.1{rest}").into_bytes();
            let (head, ..) = read(&bytes).unwrap();
            let text = |span: http_types::Span| std::str::from_utf8(span.of(&bytes)).unwrap();
            assert_eq!(text(head.target), target);
            assert_eq!(text(head.path), path, "{target}");
            assert_eq!(text(head.args), args, "{target}");
            assert_eq!(text(head.authority), authority, "{target}");
            assert_eq!(text(head.request_uri()), uri, "{target}");
            assert_eq!(head.complex, complex, "{target}");
            assert_eq!(text(head.line), format!("GET {target} HTTP/1.1"));
            assert_eq!(text(head.protocol), "HTTP/1.1");
        }
    }
    let bytes = b"CONNECT h:443 HTTP/1.1\r\nHost: h\r\n\r\n";
    let (head, ..) = read(bytes).unwrap();
    assert_eq!((head.authority.of(bytes), head.request_uri().of(bytes)), (&b"h:443"[..], &b"/"[..]));
}

/// RFC 9112, 2.3.
#[test]
fn versions_are_parsed() {
    table(&[
        ("0.9", b"GET /\r\n", 200),
        ("0.9 with spaces", b"GET /  \n", 200),
        ("0.9, not GET", b"HEAD /\r\n", 400),
        ("0.9 written out", b"GET / HTTP/0.9\r\n\r\n", 400),
        ("1.0", b"GET / HTTP/1.0\r\n\r\n", 200),
        ("1.2", b"GET / HTTP/1.2\r\nHost: a\r\n\r\n", 200),
        ("1.01", b"GET / HTTP/1.01\r\nHost: a\r\n\r\n", 200),
        ("1.999", b"GET / HTTP/1.999\r\nHost: a\r\n\r\n", 200),
        ("1.1000", b"GET / HTTP/1.1000\r\nHost: a\r\n\r\n", 400),
        ("1.", b"GET / HTTP/1.\r\nHost: a\r\n\r\n", 400),
        ("1", b"GET / HTTP/1\r\nHost: a\r\n\r\n", 400),
        ("01.1", b"GET / HTTP/01.1\r\nHost: a\r\n\r\n", 400),
        ("2.0", b"GET / HTTP/2.0\r\n\r\n", 505),
        ("10.1", b"GET / HTTP/10.1\r\nHost: a\r\n\r\n", 505),
        ("lower case", b"GET / http/1.1\r\nHost: a\r\n\r\n", 400),
        ("text after it", b"GET / HTTP/1.1 x\r\nHost: a\r\n\r\n", 400),
        ("tab after it", b"GET / HTTP/1.1\t\r\nHost: a\r\n\r\n", 400),
        ("1.1 needs a Host (RFC 9112, 3.2)", b"GET / HTTP/1.1\r\n\r\n", 400),
    ]);
    let (head, _, consumed) = read(b"GET /x\r\nGET /y").unwrap();
    assert_eq!((head.version, consumed), (Version::Http09, 8));
    assert_eq!(read(b"GET / HTTP/1.00\r\n\r\n").unwrap().0.version, Version::Http10);
}

/// RFC 9112, 5 and RFC 9110, 5.5: field lines.
#[test]
fn fields_are_parsed() {
    table(&[
        ("space before the colon (5.1)", b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        ("tab before the colon (5.1)", b"GET / HTTP/1.1\r\nHost\t: a\r\n\r\n", 400),
        ("folded line (5.2)", b"GET / HTTP/1.1\r\nHost: a\r\n b\r\n\r\n", 400),
        ("folded by a tab (5.2)", b"GET / HTTP/1.1\r\nHost: a\r\n\tb\r\n\r\n", 400),
        ("empty name", b"GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n", 400),
        ("NUL in a value", b"GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n", 400),
        ("NUL in a name", b"GET / HTTP/1.1\r\nHost: a\r\nX\0: b\r\n\r\n", 400),
        ("control in a name", b"GET / HTTP/1.1\r\nHost: a\r\nX\x01: b\r\n\r\n", 400),
        ("other controls in a value", b"GET / HTTP/1.1\r\nHost: a\r\nX: \x01\x7f\t\xff\r\n\r\n", 200),
        ("no colon", b"GET / HTTP/1.1\r\nHost: a\r\nlonely\r\n\r\n", 200),
        ("empty value", b"GET / HTTP/1.1\r\nHost: a\r\nX:\r\n\r\n", 200),
        ("name that is ignored", b"GET / HTTP/1.1\r\nHost: a\r\nX_Y: 1\r\na.b: 2\r\n(): 3\r\n\r\n", 200),
        ("duplicate Host (RFC 9112, 3.2)", b"GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n", 400),
        ("duplicate If-Range", b"GET / HTTP/1.1\r\nHost: a\r\nIf-Range: a\r\nIf-Range: a\r\n\r\n", 400),
        ("duplicate Authorization", b"GET / HTTP/1.0\r\nAuthorization: a\r\nAuthorization: a\r\n\r\n", 400),
        ("two Cookies", b"GET / HTTP/1.0\r\nCookie: a\r\nCookie: a\r\n\r\n", 200),
    ]);
    let bytes = b"GET / HTTP/1.0\r\nA:  b c  \r\nlonely\r\nX-Tab: \td\t\r\nE:\r\nx_y: z\r\n\r\n";
    let mut head = RequestHead::default();
    let mut parser = HeadParser::default();
    assert!(parser.parse(bytes, &HeadLimits::default(), &mut head).is_ok());
    let found: Vec<_> = head.fields.all.iter().map(|f| (f.name.of(bytes), f.value.of(bytes))).collect();
    let wanted: [(&[u8], &[u8]); 4] = [(b"A", b"b c"), (b"lonely", b""), (b"X-Tab", b"\td\t"), (b"E", b"")];
    assert_eq!(found, wanted);
    assert_eq!(parser.invalid_fields().iter().map(|s| s.of(bytes)).collect::<Vec<_>>(), [b"x_y: z"]);
    // underscores_in_headers on; ignore_invalid_headers off
    for (limits, count) in [
        (HeadLimits { underscores: true, ..HeadLimits::default() }, 5),
        (HeadLimits { ignore_invalid: false, ..HeadLimits::default() }, 5),
    ] {
        assert!(HeadParser::default().parse(bytes, &limits, &mut head).is_ok());
        assert_eq!(head.fields.all.len(), count);
    }
    assert_eq!(head.fields.by_name(bytes, b"X-tAB").unwrap().value.of(bytes), b"\td\t");
}

/// nginx's log messages.
#[test]
fn log_lines() {
    for (bytes, wanted) in [
        (&b"\x16\x03"[..], "client sent invalid method"),
        (b"GET / HTTP/3.0\r\n", "client sent invalid version"),
        (b"POST /\r\n", "client sent invalid method in HTTP/0.9 request"),
        (b"GET / HTTP/1.1\r\nA\x01: b\r\n", "client sent invalid header line: \"A\\x01...\""),
        (b"GET / HTTP/1.1\r\n fold\r\n", "client sent invalid header line: \"\\x20...\""),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\nHOST: b\r\n",
            "client sent duplicate host header: \"HOST: b\", previous value: \"Host: a\"",
        ),
        (
            b"GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n",
            "client sent duplicate header line: \"Content-Length: 2\", previous value: \"Content-Length: 1\"",
        ),
    ] {
        let error =
            HeadParser::default().parse(bytes, &HeadLimits::default(), &mut RequestHead::default()).unwrap_err();
        let mut log = Vec::new();
        error.log(bytes, &mut log);
        assert_eq!(String::from_utf8(log).unwrap(), wanted);
    }
}

/// `large_client_header_buffers`, `max_headers`: the last byte that fits and the first that does not.
#[test]
fn limits_of_heads_hold() {
    let limits = HeadLimits { line_max: 20, field_max: 10, total_max: 50, fields_max: 3, ..HeadLimits::default() };
    let read = |bytes: &[u8]| {
        let whole = HeadParser::default().parse(bytes, &limits, &mut RequestHead::default());
        let mut parser = HeadParser::default();
        let mut head = RequestHead::default();
        let drip = (1..=bytes.len())
            .map(|n| parser.parse(&bytes[..n], &limits, &mut head))
            .find(|r| *r != Ok(ParseProgress::Partial));
        assert_eq!(whole, drip.unwrap_or(Ok(ParseProgress::Partial)));
        whole.map_err(|e| (std::mem::discriminant(&e), e.status()))
    };
    let fails =
        |bytes: &[u8], error: HeadError| assert_eq!(read(bytes), Err((std::mem::discriminant(&error), error.status())));
    assert!(read(b"GET /12345 HTTP/1.0\n\n").is_ok());
    fails(b"GET /123456 HTTP/1.0\n\n", HeadError::LineTooLong);
    fails(b"GET /1234567890123456", HeadError::LineTooLong);
    assert!(read(b"GET / HTTP/1.0\nA: 345678\n\n").is_ok());
    fails(b"GET / HTTP/1.0\nA: 3456789\n\n", HeadError::FieldTooLong(http_types::Span::default()));
    fails(b"GET / HTTP/1.0\nA: 34567890", HeadError::FieldTooLong(http_types::Span::default()));
    assert!(read(b"GET / HTTP/1.0\na\nb\nc\n\n").is_ok());
    fails(b"GET / HTTP/1.0\na\nb\nc\nd\n\n", HeadError::TooManyFields);
    assert!(read(b"GET / HTTP/1.0\nA: 345678\nB: 345678\nC: 345678\n\n").is_ok());
    // The line at which the room for all of them ends.
    let of_line = HeadError::FieldTooLong(http_types::Span::default());
    fails(b"\n\n\n\n\n\n\n\n\nGET / HTTP/1.0\nA: 345678\nB: 345678\nC: 345678\n\n", of_line);
    fails(&[b'\n'; 51], HeadError::HeadTooLarge);
    assert_eq!((HeadError::LineTooLong.status(), HeadError::HeadTooLarge.status()), (414, 494));
}

/// RFC 9112, 9.3, as nginx reads it.
#[test]
fn persistence_follows_version_and_field() {
    for (bytes, wanted) in [
        (&b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..], true),
        (b"GET / HTTP/1.0\r\n\r\n", false),
        (b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", true),
        (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: CLOSE\r\n\r\n", false),
        (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade, close\r\n\r\n", false),
        (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, close\r\n\r\n", false),
        (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nConnection: keep-alive\r\n\r\n", true),
        (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n\r\n", true),
        (b"GET /\r\n", false),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", false),
    ] {
        assert_eq!(keep_alive(&read(bytes).unwrap().0, bytes), wanted, "{}", bytes.escape_ascii());
    }
}

/// Every name in any case, and nothing that merely looks like one.
#[test]
fn known_names() {
    for (name, wanted) in NAMES {
        assert_eq!((known_name(name.as_bytes()), wanted.name()), (*wanted, *name));
        assert_eq!(known_name(name.to_ascii_uppercase().as_bytes()), *wanted);
        for i in 0..name.len() {
            for b in 0..=255u8 {
                let mut other = name.to_ascii_lowercase().into_bytes();
                other[i] = b;
                let table = NAMES.iter().find(|(text, _)| other.eq_ignore_ascii_case(text.as_bytes()));
                assert_eq!(
                    known_name(&other),
                    table.map_or_else(Default::default, |(_, k)| *k),
                    "{}",
                    other.escape_ascii()
                );
            }
        }
    }
    assert_eq!(known_name(b""), http_types::Known::Other);
}

/// A byte at a time costs no more than a few looks at each byte.
#[test]
fn a_slow_feed_is_linear() {
    let limits = HeadLimits { field_max: 1 << 20, total_max: 1 << 20, ..HeadLimits::default() };
    let mut bytes = b"GET / HTTP/1.1\r\nCookie: ".to_vec();
    bytes.resize(400_000, b'x');
    let mut parser = HeadParser::default();
    let mut head = RequestHead::default();
    let started = std::time::Instant::now();
    for n in 1..=bytes.len() {
        assert_eq!(parser.parse(&bytes[..n], &limits, &mut head), Ok(ParseProgress::Partial));
    }
    // Quadratic would be 80 thousand million looks.
    assert!(started.elapsed().as_secs() < 5);
}
