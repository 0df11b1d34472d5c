//! Response of the authentication server (nginx: `ngx_mail_auth_http_process_headers`): only fields count, not the
//! status.

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthResponse {
    /// `Auth-Status`, unless `OK` or `WAIT`: the reason for refusal.
    pub refused: Option<Vec<u8>>,
    /// `Auth-Status: WAIT`: ask again.
    pub wait: bool,
    pub server: Vec<u8>,
    pub port: Vec<u8>,
    pub user: Option<Vec<u8>>,
    pub password: Option<Vec<u8>>,
    pub wait_seconds: u64,
    pub error_code: Option<Vec<u8>>,
}

/// Invalid part of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MalformedHead {
    StatusLine,
    Field,
}

/// Reads a head; `None` if incomplete. Fails on a malformed one.
pub fn read_response(bytes: &[u8]) -> Result<Option<AuthResponse>, MalformedHead> {
    let mut response = AuthResponse::default();
    let mut rest = bytes;
    let mut is_first = true;
    loop {
        let Some(end) = memchr::memchr(b'\n', rest) else {
            // Nothing that may follow makes this line valid.
            let lone = memchr::memchr(b'\r', rest).is_some_and(|at| at + 1 < rest.len());
            return if lone { Err(malformed(is_first, rest)) } else { Ok(None) };
        };
        let (line, after) = rest.split_at_checked(end + 1).ok_or(MalformedHead::Field)?;
        rest = after;
        let line = line.get(..end).unwrap_or_default();
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.contains(&b'\r') {
            return Err(malformed(is_first, line));
        }
        if std::mem::take(&mut is_first) && line.starts_with(VERSION) {
            continue;
        }
        if line.is_empty() {
            return Ok(Some(response));
        }
        let colon = memchr::memchr(b':', line).unwrap_or(line.len());
        let (name, value) = line.split_at_checked(colon).ok_or(MalformedHead::Field)?;
        let first = name.first().is_some_and(u8::is_ascii_alphanumeric);
        if !first || !name.iter().all(|c| c.is_ascii_alphanumeric() || *c == b'-') {
            return Err(MalformedHead::Field);
        }
        let value = value.get(1..).unwrap_or_default();
        response.field(&name.to_ascii_lowercase(), trim(value))?;
    }
}

/// Start of a status line.
const VERSION: &[u8] = b"HTTP/";

fn malformed(is_first: bool, line: &[u8]) -> MalformedHead {
    if is_first && line.starts_with(VERSION) { MalformedHead::StatusLine } else { MalformedHead::Field }
}

fn trim(value: &[u8]) -> &[u8] {
    let start = value.iter().take_while(|c| **c == b' ').count();
    let value = value.get(start..).unwrap_or_default();
    let spaces = value.iter().rev().take_while(|c| **c == b' ').count();
    value.get(..value.len() - spaces).unwrap_or_default()
}

impl AuthResponse {
    /// `name` in lower case.
    fn field(&mut self, name: &[u8], value: &[u8]) -> Result<(), MalformedHead> {
        // Values become parts of commands: they contain no line break, and NUL would separate.
        if value.contains(&0) {
            return Err(MalformedHead::Field);
        }
        let some = || Some(value.to_vec());
        match name {
            b"auth-status" if value == b"OK" => {}
            b"auth-status" if value == b"WAIT" => self.wait = true,
            b"auth-status" => self.refused = some(),
            b"auth-server" => self.server = value.to_vec(),
            b"auth-port" => self.port = value.to_vec(),
            b"auth-user" => self.user = some(),
            b"auth-pass" => self.password = some(),
            b"auth-wait" => {
                let seconds = std::str::from_utf8(value).ok().filter(|v| v.bytes().all(|c| c.is_ascii_digit()));
                self.wait_seconds = seconds.and_then(|v| v.parse().ok()).unwrap_or(self.wait_seconds);
            }
            b"auth-error-code" => self.error_code = some(),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "HTTP/1.1 204 No Content\r\nServer: x\r\nAuth-Status:  OK \r\nauth-server: 127.0.0.1\r\n\
                        Auth-Port: 143\nAuth-User: a b\r\nAuth-Pass: p\r\nAuth-Wait: 3\r\nAuth-Error-Code: 451 4.3.0\r\n\r\nbody";

    #[test]
    fn fields_at_every_cut() {
        let whole = read_response(HEAD.as_bytes()).expect("fields").expect("whole");
        let want = AuthResponse {
            refused: None,
            wait: false,
            server: b"127.0.0.1".to_vec(),
            port: b"143".to_vec(),
            user: Some(b"a b".to_vec()),
            password: Some(b"p".to_vec()),
            wait_seconds: 3,
            error_code: Some(b"451 4.3.0".to_vec()),
        };
        assert_eq!(whole, want);
        for at in 0..HEAD.len() - "body".len() {
            assert_eq!(read_response(&HEAD.as_bytes()[..at]), Ok(None), "cut at {at}");
        }
    }

    #[test]
    fn statuses_are_read() {
        let read = |text: &str| read_response(text.as_bytes()).map(|r| r.expect("whole"));
        assert_eq!(read("Auth-Status: Invalid login\r\n\r\n").map(|r| r.refused), Ok(Some(b"Invalid login".to_vec())));
        assert_eq!(read("HTTP/1.0 200\r\nAuth-Status: WAIT\r\n\r\n").map(|r| r.wait), Ok(true));
        assert_eq!(read("\r\n"), Ok(AuthResponse::default()));
        assert_eq!(read("Auth-Wait: x\r\nAuth-Wait: -1\r\n\r\n").map(|r| r.wait_seconds), Ok(0));
    }

    #[test]
    fn malformed_heads_are_refused() {
        for text in [
            "HTTP/1.0 200\r\n bad\r\n\r\n",
            "a b: c\r\n\r\n",
            ": x\r\n\r\n",
            "a: b\rc\r\n\r\n",
            "a: b\rc",
            "a: b\r\n\rX",
            "Auth-User: a\0b\r\n\r\n",
        ] {
            assert_eq!(read_response(text.as_bytes()), Err(MalformedHead::Field), "{text:?}");
        }
        for text in ["HTTP/1.0 200\rX", "HTTP/1.0 200 OK\rX\r\n\r\n"] {
            assert_eq!(read_response(text.as_bytes()), Err(MalformedHead::StatusLine), "{text:?}");
        }
    }
}
