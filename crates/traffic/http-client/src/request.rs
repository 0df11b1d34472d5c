//! Requests of the client.

use crate::Url;

/// A field that could end its line, or whose name is no token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadField(pub String);

/// With the whole body.
#[derive(Clone, Debug)]
pub struct Request {
    /// An upper-case token: `GET`.
    pub method: &'static str,
    pub url: Url,
    fields: Vec<u8>,
    pub body: Vec<u8>,
}

impl Request {
    pub fn new(method: &'static str, url: Url) -> Request {
        Request { method, url, fields: Vec::new(), body: Vec::new() }
    }

    /// Adds a field. `Host`, `Content-Length` and `Connection` belong to the client.
    ///
    /// # Errors
    /// [`BadField`].
    pub fn field(mut self, name: &str, value: &str) -> Result<Request, BadField> {
        let token = |c: u8| c.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&c);
        let text = |c: u8| c == b'\t' || (c >= b' ' && c != 0x7f);
        if name.is_empty() || !name.bytes().all(token) || !value.bytes().all(text) {
            return Err(BadField(name.to_string()));
        }
        self.fields.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        Ok(self)
    }

    /// Sets the body and its type.
    ///
    /// # Errors
    /// [`BadField`] for the type.
    pub fn body(self, content_type: &str, body: Vec<u8>) -> Result<Request, BadField> {
        Ok(Request { body, ..self.field("Content-Type", content_type)? })
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.split(|c| *c == b'\n').filter_map(|line| {
            let line = line.strip_suffix(b"\r")?;
            let colon = line.iter().position(|c| *c == b':')?;
            Some((line.get(..colon)?, line.get(colon + 2..)?))
        })
    }

    /// Writes the request as HTTP/1.1.
    pub(crate) fn bytes(&self, close: bool) -> Vec<u8> {
        let (method, target) = (self.method, &self.url.target);
        let mut out = format!("{method} {target} HTTP/1.1\r\nHost: {}\r\n", self.url.authority()).into_bytes();
        out.extend_from_slice(&self.fields);
        if !self.body.is_empty() || ["POST", "PUT"].contains(&self.method) {
            out.extend_from_slice(format!("Content-Length: {}\r\n", self.body.len()).as_bytes());
        }
        if close {
            out.extend_from_slice(b"Connection: close\r\n");
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&self.body);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_one_form() {
        let url = Url::parse("http://a.example:81/b?c").expect("valid");
        let request = Request::new("GET", url.clone()).field("Accept", "text/plain").expect("valid");
        assert_eq!(request.bytes(false), b"GET /b?c HTTP/1.1\r\nHost: a.example:81\r\nAccept: text/plain\r\n\r\n");
        let request = Request::new("POST", url.clone()).body("text/plain", b"x".to_vec()).expect("valid");
        assert!(request.bytes(true).ends_with(b"Content-Length: 1\r\nConnection: close\r\n\r\nx"));
        for (name, value) in [("A", "b\r\nC: d"), ("A b", "c"), ("", "c"), ("A", "\0")] {
            let request = Request::new("GET", url.clone());
            assert_eq!(request.field(name, value).err(), Some(BadField(name.into())));
        }
    }
}
