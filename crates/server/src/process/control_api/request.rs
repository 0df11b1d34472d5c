//! Requests and statuses of the control API.

use http_types::{RequestHead, Version};
use wire_h1::{HeadLimits, HeadParser};

/// Maximum length of a request line in bytes (nginx: `NGX_CTRL_MAX_REQUEST`).
pub const LINE_BYTES_MAX: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `GET /`: the versions of the API.
    Versions,
    /// `GET /1`: the namespaces of version 1.
    Namespaces,
    /// `GET /1/nginx`: version and build of the program.
    Program,
    /// `GET /1/control`: the resources of this namespace.
    Resources,
    /// `GET /1/control/processes`
    Processes,
    /// `GET /1/control/config`: the files of the active configuration.
    Configuration,
    /// `PATCH /1/control/config`
    Reload,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Ok,
    BadRequest,
    NotFound,
    /// Has the methods for the `Allow` field.
    NotAllowed(&'static str),
    Unprocessable,
}

impl Status {
    /// Returns code and reason phrase of the status line.
    pub fn line(self) -> &'static str {
        match self {
            Status::Ok => "200 OK",
            Status::BadRequest => "400 Bad Request",
            Status::NotFound => "404 Not Found",
            Status::NotAllowed(_) => "405 Not Allowed",
            Status::Unprocessable => "422 Unprocessable Entity",
        }
    }
}

/// Reads the request line, from octets that only grow. `None`: it is incomplete.
pub struct LineReader {
    parser: HeadParser,
    head: Box<RequestHead>,
}

impl LineReader {
    pub fn new() -> LineReader {
        LineReader { parser: HeadParser::default(), head: Box::default() }
    }

    pub fn read(&mut self, octets: &[u8]) -> Option<Result<Call, Status>> {
        let limits = HeadLimits { line_max: LINE_BYTES_MAX, ..HeadLimits::default() };
        let parsed = self.parser.parse(octets, &limits, &mut self.head);
        if self.parser.line_done() {
            // Fields have no meaning, so errors in them have none, either.
            return Some(call(octets, &self.head));
        }
        parsed.is_err().then_some(Err(Status::BadRequest))
    }
}

fn call(octets: &[u8], head: &RequestHead) -> Result<Call, Status> {
    if !matches!(head.version, Version::Http10 | Version::Http11) {
        return Err(Status::BadRequest);
    }
    let (path, args) = (head.path.of(octets), head.args.of(octets));
    // As nginx, which decodes no path.
    let is_odd = [path, args].iter().any(|part| part.iter().any(|octet| b".%+".contains(octet)));
    if is_odd || head.target.of(octets).contains(&b'#') {
        return Err(Status::BadRequest);
    }
    let (asked, methods) = match path.strip_suffix(b"/").unwrap_or(path) {
        b"" => (Call::Versions, "GET"),
        b"/1" => (Call::Namespaces, "GET"),
        b"/1/nginx" => (Call::Program, "GET"),
        b"/1/control" => (Call::Resources, "GET"),
        b"/1/control/processes" => (Call::Processes, "GET"),
        b"/1/control/config" => (Call::Configuration, "GET, PATCH"),
        _ => return Err(Status::NotFound),
    };
    match (head.method_span.of(octets), asked) {
        (b"GET", asked) => Ok(asked),
        (b"PATCH", Call::Configuration) => Ok(Call::Reload),
        _ => Err(Status::NotAllowed(methods)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Result<Call, Status>> {
        LineReader::new().read(text.as_bytes())
    }

    #[test]
    fn calls_are_recognised() {
        for (line, wanted) in [
            ("GET / HTTP/1.1\r\n", Ok(Call::Versions)),
            ("GET http://localhost HTTP/1.1\r\n", Ok(Call::Versions)),
            ("GET /1 HTTP/1.0\n", Ok(Call::Namespaces)),
            ("GET /1/ HTTP/1.1\r\n", Ok(Call::Namespaces)),
            ("GET /1/nginx?x=y HTTP/1.1\r\n", Ok(Call::Program)),
            ("GET http://localhost:80/1/control HTTP/1.1\r\nHo st: a\r\n\r\n", Ok(Call::Resources)),
            ("GET /1/control/processes HTTP/1.1\r\n", Ok(Call::Processes)),
            ("GET /1/control/config HTTP/1.1\r\n", Ok(Call::Configuration)),
            ("PATCH /1/control/config HTTP/1.1\r\n", Ok(Call::Reload)),
            ("PATCH /1/control HTTP/1.1\r\n", Err(Status::NotAllowed("GET"))),
            ("DELETE /1/control/config HTTP/1.1\r\n", Err(Status::NotAllowed("GET, PATCH"))),
            ("GET /2 HTTP/1.1\r\n", Err(Status::NotFound)),
            ("DELETE /1/no HTTP/1.1\r\n", Err(Status::NotFound)),
            ("GET /1nginx HTTP/1.1\r\n", Err(Status::NotFound)),
            ("GET /1/./nginx HTTP/1.1\r\n", Err(Status::BadRequest)),
            ("GET /%31 HTTP/1.1\r\n", Err(Status::BadRequest)),
            ("GET /1?a=%20 HTTP/1.1\r\n", Err(Status::BadRequest)),
            ("GET /1#a HTTP/1.1\r\n", Err(Status::BadRequest)),
            ("GET //1 HTTP/1.1\r\n", Err(Status::NotFound)),
            ("GET /1/\r\n", Err(Status::BadRequest)),
            ("GET /1 HTTP/2.0\r\n", Err(Status::BadRequest)),
            ("get /1 HTTP/1.1\r\n", Err(Status::BadRequest)),
            ("GET 1 HTTP/1.1\r\n", Err(Status::BadRequest)),
        ] {
            assert_eq!(read(line), Some(wanted), "{line}");
            let mut reader = LineReader::new();
            let octets = line.as_bytes();
            let bytewise = (1..=octets.len()).find_map(|end| reader.read(&octets[..end]));
            assert_eq!(bytewise, Some(wanted), "{line}, in single bytes");
        }
        assert_eq!(read("GET /1 HTTP/1.1"), None);
        assert_eq!(read(&format!("GET /{}", "a".repeat(LINE_BYTES_MAX))), Some(Err(Status::BadRequest)));
    }
}
