//! First tests.
use crate::*;
fn parse(b: &[u8]) -> Result<(Progress, RequestHead), HeadError> {
    let mut p = HeadParser::default();
    let mut h = RequestHead::default();
    let r = p.parse(b, &HeadLimits::default(), &mut h)?;
    let mut p2 = HeadParser::default();
    let mut h2 = RequestHead::default();
    let mut r2 = Progress::Partial;
    for i in 1..=b.len() {
        r2 = p2.parse(&b[..i], &HeadLimits::default(), &mut h2)?;
        if r2 != Progress::Partial {
            break;
        }
    }
    assert_eq!(r, r2);
    assert_eq!(format!("{h:?}"), format!("{h2:?}"));
    Ok((r, h))
}
#[test]
fn basics() {
    let b = b"\r\nGET /a/b?x=1 HTTP/1.1\r\nHost: h\r\nX-A:  v \r\nConnection: close\r\n\r\nrest";
    let (p, h) = parse(b).unwrap();
    assert_eq!(
        p,
        Progress::Done {
            consumed: b.len() - 4
        }
    );
    assert_eq!(h.path.of(b), b"/a/b");
    assert_eq!(h.args.of(b), b"x=1");
    assert!(!h.complex);
    assert_eq!(h.request_uri().of(b), b"/a/b?x=1");
    assert!(!keep_alive(&h, b));
    assert_eq!(check_request(&h, b, false), Ok(BodyLength::None));
    let b = b"GET http://a.b:80?q HTTP/1.0\nA\n\n";
    let (_, h) = parse(b).unwrap();
    assert_eq!(h.authority.of(b), b"a.b:80");
    assert_eq!(h.request_uri().of(b), b"?q");
    assert!(h.path.is_empty());
    let b = b"GET http://a.b HTTP/1.0\n\n";
    let (_, h) = parse(b).unwrap();
    assert_eq!(h.request_uri().of(b), b"/");
    let b = b"CONNECT a:1 HTTP/1.1\n\n";
    let (_, h) = parse(b).unwrap();
    assert_eq!(h.request_uri().of(b), b"/");
    assert_eq!(h.authority.of(b), b"a:1");
    assert_eq!(
        parse(b"\x16\x03\x01").unwrap_err(),
        HeadError::InvalidMethod
    );
    assert_eq!(
        parse(b"GET / HTTP/2.0\r\n").unwrap_err(),
        HeadError::InvalidVersion
    );
    assert_eq!(
        parse(b"POST /\r\n").unwrap_err(),
        HeadError::InvalidMethodHttp09
    );
    assert_eq!(
        parse(b"GET /a b HTTP/1.1\r\n").unwrap_err(),
        HeadError::InvalidRequest
    );
    assert_eq!(
        parse(b"GET / HTTP/1.1\r\n a: b\r\n").unwrap_err().status(),
        400
    );
    let mut d = ChunkedDecoder::new(Role::Server);
    let x = d.decode(b"5\r\nhello\r\n0\r\n\r\nNEXT").unwrap();
    assert_eq!(
        x,
        Decoded {
            consumed: 10,
            data: 3..8,
            done: false
        }
    );
    let x = d.decode(b"0\r\n\r\nNEXT").unwrap();
    assert_eq!(
        x,
        Decoded {
            consumed: 5,
            data: 0..0,
            done: true
        }
    );
}
