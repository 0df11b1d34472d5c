//! The server behind `fastcgi_pass`, `scgi_pass`, `uwsgi_pass` and `memcached_pass`: it lists the parameters that it received, in
//! their order, or answers as the name in the path says.

use std::io::{self, BufRead, Write};

/// A request of a gateway protocol.
#[derive(Default)]
struct GatewayCall {
    /// How the protocol announced it: role and flags, modifiers.
    opening: String,
    params: Vec<(String, String)>,
    body: Vec<u8>,
}

impl GatewayCall {
    fn param(&self, name: &str) -> &str {
        self.params.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value.as_str())
    }
    fn listing(&self) -> String {
        let lines: Vec<String> = self.params.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        format!("{}\n{}[{}]", self.opening, lines.concat(), String::from_utf8_lossy(&self.body))
    }
}

/// The response: CGI's head and body, and text for the error log (FastCGI).
struct GatewayReply {
    head: String,
    body: Vec<u8>,
    errors: &'static str,
    /// Ends the connection in the middle.
    broken: bool,
}

/// Serves one connection whose first byte was `first` (unread).
pub fn serve_connection(first: u8, reader: &mut impl BufRead, out: &mut impl Write) -> io::Result<()> {
    match first {
        1 => fastcgi(reader, out),
        b'0'..=b'9' => scgi(reader, out),
        b'g' => memcached(reader, out),
        _ => uwsgi(reader, out),
    }
}

fn reply(call: &GatewayCall) -> GatewayReply {
    if call.param("COMPARE_SCRIPT") == "1" {
        return script(call);
    }
    let path = call.param("SCRIPT_NAME").to_string();
    let name = path.rsplit('/').next().unwrap_or("");
    let (head, body): (&str, String) = match name {
        "redirect" => ("Status: 302 Found\r\nLocation: http://127.0.0.1/to?x\r\nX-Powered-By: b\r\n", String::new()),
        "relative" => ("Location: /relative/to\r\n", "moved".into()),
        "local" => ("Status: 200 OK\r\nLocation: /a/x.html\r\n", "here".into()),
        "cookie" => (
            "Set-Cookie: one=1; domain=example.com; path=/\r\nSet-Cookie: two=2; Path=/x\r\nContent-Type: text/html\r\n",
            "cookies, hello hello".into(),
        ),
        "error" => ("Status: 500 Own Error\r\nContent-Type: text/plain\r\nX-Powered-By: b\r\n", "an error".into()),
        "missing" => ("Status: 404 Not Found\r\nContent-Type: text/html\r\n", "not here".into()),
        "denied" => ("Status: 403\r\n", "denied".into()),
        "login" => ("Status: 401 Who\r\nWWW-Authenticate: Basic realm=\"b\"\r\n", "login".into()),
        "page" => (
            "Server: behind\r\nETag: \"page\"\r\nLast-Modified: Mon, 01 Jan 2024 00:00:00 GMT\r\nContent-Type: text/html\r\n\
             Accept-Ranges: bytes\r\nContent-Length: 11\r\n",
            "hello, page".into(),
        ),
        "accel" => ("X-Accel-Redirect: /a/x.html\r\nX-Own: o\r\n", "not seen".into()),
        "expires" => {
            ("X-Accel-Expires: 60\r\nCache-Control: max-age=10\r\nExpires: 0\r\nVary: X-Own\r\n", "kept".into())
        }
        "limit" => (
            "X-Accel-Limit-Rate: 1000000\r\nX-Accel-Buffering: no\r\nX-Accel-Charset: koi8-r\r\nContent-Type: text/html\r\n",
            "text".into(),
        ),
        "none" => ("", String::new()),
        "bare" => ("Content-Type: text/plain\nX-Bare: 1\n", "lines end with LF".into()),
        "folded" => ("Content-Type: text/plain\r\nX-Folded: a\r\n b\r\n", "folded".into()),
        "bad" => ("no colon here\r\nX-After: 1\r\n", "bad".into()),
        "under_score" => ("X_Under: 1\r\nContent-Type: text/plain\r\n", "under".into()),
        "status" => ("Status: abc\r\n", "no number".into()),
        "early" => ("Status: 103 Early\r\nLink: </x>\r\n", String::new()),
        "empty204" => ("Status: 204 None\r\n", String::new()),
        "same304" => ("Status: 304 Same\r\nETag: \"x\"\r\n", String::new()),
        "short" => ("Content-Length: 20\r\n", "ten bytes.".into()),
        "long" => ("Content-Length: 3\r\n", "three and more".into()),
        "twice" => {
            ("Content-Type: text/plain\r\nContent-Type: text/html\r\nStatus: 200\r\nStatus: 404\r\n", "twice".into())
        }
        "large" => ("Content-Type: text/plain\r\n", "0123456789abcdef".repeat(2000)),
        _ => ("Content-Type: text/plain\r\nX-Powered-By: b\r\nVary: X\r\n", call.listing()),
    };
    let end = if head.ends_with("\r\n") || head.is_empty() { "\r\n" } else { "\n" };
    let end = if name == "none" { "" } else { end };
    let head_only = call.param("REQUEST_METHOD") == "HEAD";
    GatewayReply {
        head: format!("{head}{end}"),
        body: if head_only { Vec::new() } else { body.into_bytes() },
        errors: if name == "error" || name == "none" { "a line of the script" } else { "" },
        broken: name == "cut",
    }
}

/// The answer of `apache/pool.rs`'s script, which Apache runs itself.
fn script(call: &GatewayCall) -> GatewayReply {
    let (name, info) = (call.param("SCRIPT_NAME"), call.param("PATH_INFO"));
    let body = format!("script={name} info={info} query={}", call.param("QUERY_STRING"));
    let head_only = call.param("REQUEST_METHOD") == "HEAD";
    GatewayReply {
        head: "Content-Type: text/plain\r\n\r\n".into(),
        body: if head_only { Vec::new() } else { body.into_bytes() },
        errors: "",
        broken: false,
    }
}

const RECORD_MAX: usize = 8 * 1024;
const BEGIN: u8 = 1;
const END: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;

fn fastcgi(reader: &mut impl BufRead, out: &mut impl Write) -> io::Result<()> {
    loop {
        let (mut call, mut params, mut keep) = (GatewayCall::default(), Vec::new(), false);
        loop {
            let mut head = [0; 8];
            reader.read_exact(&mut head)?;
            let length = usize::from(u16::from_be_bytes([head[4], head[5]]));
            let mut content = vec![0; length + usize::from(head[6])];
            reader.read_exact(&mut content)?;
            content.truncate(length);
            match head[1] {
                BEGIN => {
                    keep = content.get(2).is_some_and(|flags| flags & 1 != 0);
                    call.opening = format!("FastCGI {content:?} of {}", head[3]);
                }
                PARAMS => params.extend_from_slice(&content),
                STDIN if content.is_empty() => break,
                STDIN => call.body.extend_from_slice(&content),
                _ => return Ok(()),
            }
        }
        call.params = pairs(&params);
        let reply = reply(&call);
        let mut record = |kind: u8, content: &[u8]| {
            let length = (content.len() as u16).to_be_bytes();
            // At once: nginx logs the text of a record that is cut behind its head as empty.
            out.write_all(&[&[1, kind, 0, 1, length[0], length[1], 0, 0], content].concat())
        };
        if !reply.errors.is_empty() {
            record(STDERR, reply.errors.as_bytes())?;
        }
        let all = [reply.head.as_bytes(), &reply.body].concat();
        for piece in all.chunks(RECORD_MAX) {
            record(STDOUT, piece)?;
        }
        if reply.broken {
            return Ok(());
        }
        record(STDOUT, b"")?;
        record(END, &[0; 8])?;
        out.flush()?;
        if !keep {
            return Ok(());
        }
    }
}

/// Names and values with lengths of one or four bytes.
fn pairs(mut rest: &[u8]) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let length = |rest: &mut &[u8]| -> Option<usize> {
        let first = *rest.first()?;
        let size = if first < 128 { 1 } else { 4 };
        let bytes = rest.get(..size)?;
        *rest = &rest[size..];
        Some(match bytes {
            [one] => usize::from(*one),
            bytes => bytes.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)) & 0x7FFF_FFFF,
        })
    };
    while let (Some(name), Some(value)) = (length(&mut rest), length(&mut rest)) {
        let Some(text) = rest.get(..name + value) else { break };
        let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        all.push((shown(&text[..name]), shown(&text[name..])));
        rest = &rest[name + value..];
    }
    all
}

fn scgi(reader: &mut impl BufRead, out: &mut impl Write) -> io::Result<()> {
    let mut length = Vec::new();
    reader.read_until(b':', &mut length)?;
    let length: usize = String::from_utf8_lossy(&length).trim_end_matches(':').parse().unwrap_or(0);
    let mut head = vec![0; length + 1];
    reader.read_exact(&mut head)?;
    let text = String::from_utf8_lossy(head.get(..length).unwrap_or_default()).into_owned();
    let words: Vec<&str> = text.split('\0').collect();
    let params = words.chunks_exact(2).map(|pair| (pair[0].to_string(), pair[1].to_string())).collect();
    let mut call = GatewayCall { opening: format!("SCGI, end {}", head[length]), params, body: Vec::new() };
    call.body = vec![0; call.param("CONTENT_LENGTH").parse().unwrap_or(0)];
    reader.read_exact(&mut call.body)?;
    finish(&call, out)
}

fn uwsgi(reader: &mut impl BufRead, out: &mut impl Write) -> io::Result<()> {
    let mut head = [0; 4];
    reader.read_exact(&mut head)?;
    let mut vars = vec![0; usize::from(u16::from_le_bytes([head[1], head[2]]))];
    reader.read_exact(&mut vars)?;
    let mut call = GatewayCall { opening: format!("uwsgi {} {}", head[0], head[3]), ..GatewayCall::default() };
    let mut rest = vars.as_slice();
    let word = |rest: &mut &[u8]| -> Option<String> {
        let length = usize::from(u16::from_le_bytes([*rest.first()?, *rest.get(1)?]));
        let text = rest.get(2..2 + length)?;
        *rest = &rest[2 + length..];
        Some(String::from_utf8_lossy(text).into_owned())
    };
    while let (Some(name), Some(value)) = (word(&mut rest), word(&mut rest)) {
        call.params.push((name, value));
    }
    if !rest.is_empty() {
        call.opening += &format!(" and {:?}", String::from_utf8_lossy(rest));
    }
    call.body = vec![0; call.param("CONTENT_LENGTH").parse().unwrap_or(0)];
    reader.read_exact(&mut call.body)?;
    finish(&call, out)
}

fn finish(call: &GatewayCall, out: &mut impl Write) -> io::Result<()> {
    let reply = reply(call);
    // Half of the protocol's servers send a status line.
    if call.opening.starts_with("uwsgi") && call.param("SCRIPT_NAME").ends_with("page") {
        out.write_all(b"HTTP/1.1 200 Fine\r\n")?;
    }
    out.write_all(&[reply.head.as_bytes(), &reply.body].concat())
}

fn memcached(reader: &mut impl BufRead, out: &mut impl Write) -> io::Result<()> {
    loop {
        let mut line = Vec::new();
        if reader.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let line = String::from_utf8_lossy(&line).trim_end().to_string();
        let key = line.strip_prefix("get ").unwrap_or("");
        let value = |flags: &str, length: usize, value: &str| format!("VALUE {key} {flags} {length}\r\n{value}");
        let answer = match key.rsplit('/').next().unwrap_or("") {
            "none" => "END\r\n".into(),
            "error" => "SERVER_ERROR out of memory\r\n".into(),
            "bad" => "VALUE other 0 3\r\nabc\r\nEND\r\n".into(),
            "length" => "VALUE length x\r\nabc\r\nEND\r\n".into(),
            "flags" => value("2", 5, "flags\r\nEND\r\n"),
            "short" => value("0", 9, "abc\r\nEND\r\n"),
            "end" => value("0", 3, "abc\r\nEXD\r\n"),
            "empty" => value("0", 0, "\r\nEND\r\n"),
            name => value("0", line.len() + name.len(), &format!("{line}{name}\r\nEND\r\n")),
        };
        out.write_all(answer.as_bytes())?;
        out.flush()?;
        if key.ends_with("short") {
            return Ok(());
        }
    }
}
