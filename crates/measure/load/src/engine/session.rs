//! State between the requests of a session: values from one answer in later requests.

use pcre2::bytes::Regex;

use super::cookies::CookieJar;
use super::feed::DataTable;

/// In bytes.
const VALUE_MAX: usize = 64 * 1024;

/// Values of one user: those taken from answers, the user's row of data, and the user's cookies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionVariables {
    values: Vec<(String, Vec<u8>)>,
    data: DataTable,
    row: u32,
    jar: CookieJar,
}

impl SessionVariables {
    /// Variables of a user of `data`.
    pub fn with_data(data: &DataTable) -> SessionVariables {
        SessionVariables { data: data.clone(), ..SessionVariables::default() }
    }

    /// Value of a column in the user's row.
    pub fn column(&self, index: usize) -> &[u8] {
        self.data.value(self.row, index)
    }

    pub fn row(&self) -> u32 {
        self.row
    }

    #[inline]
    pub fn set_row(&mut self, row: u32) {
        self.row = row;
    }

    pub fn jar(&self) -> &CookieJar {
        &self.jar
    }

    pub fn jar_mut(&mut self) -> &mut CookieJar {
        &mut self.jar
    }

    pub fn get(&self, name: &str) -> &[u8] {
        self.values.iter().find(|(n, _)| n == name).map_or(&[], |(_, value)| value)
    }

    /// Cuts at the limit.
    pub fn set(&mut self, name: &str, mut value: Vec<u8>) {
        value.truncate(VALUE_MAX);
        match self.values.iter_mut().find(|(n, _)| n == name) {
            Some((_, old)) => *old = value,
            None => self.values.push((name.into(), value)),
        }
    }

    /// Forgets the values and cookies of a session; the row stays.
    pub fn clear(&mut self) {
        self.values.clear();
        self.jar = CookieJar::default();
    }
}

#[derive(Clone, Debug)]
pub enum Extractor {
    Header(String),
    Cookie(String),
    /// JSON pointer (RFC 6901) into the body.
    Json(String),
    /// First group, or the whole match, of a pattern in the body.
    Regex(Box<Regex>),
}

impl Extractor {
    /// Reads `header:Location`, `cookie:session`, `json:/token`, `regex:token=(\w+)`.
    pub fn parse(text: &str) -> Result<Extractor, String> {
        let kinds = "header:NAME, cookie:NAME, json:/POINTER, regex:PATTERN";
        match text.split_once(':') {
            Some(("header", name)) if !name.is_empty() => Ok(Extractor::Header(name.trim().into())),
            Some(("cookie", name)) if !name.is_empty() => Ok(Extractor::Cookie(name.trim().into())),
            Some(("json", pointer)) if pointer.is_empty() || pointer.starts_with('/') => {
                Ok(Extractor::Json(pointer.into()))
            }
            Some(("regex", pattern)) if !pattern.is_empty() => {
                Regex::new(pattern).map(|r| Extractor::Regex(Box::new(r))).map_err(|e| format!("`{text}`: {e}"))
            }
            _ => Err(format!("`{text}` is none of {kinds}")),
        }
    }

    pub fn wants_body(&self) -> bool {
        matches!(self, Extractor::Json(_) | Extractor::Regex(_))
    }

    /// Value in an answer; `None` when absent or unsendable.
    pub fn extract(&self, head: &[u8], body: &[u8]) -> Option<Vec<u8>> {
        let value = match self {
            Extractor::Header(name) => head_fields(head, name).next()?.to_vec(),
            Extractor::Cookie(name) => head_fields(head, "set-cookie").find_map(|value| {
                let pair = value.split(|b| *b == b';').next()?;
                let at = pair.iter().position(|b| *b == b'=')?;
                (pair[..at].trim_ascii() == name.as_bytes()).then(|| pair[at + 1..].trim_ascii().to_vec())
            })?,
            Extractor::Json(pointer) => {
                match serde_json::from_slice::<serde_json::Value>(body).ok()?.pointer(pointer)? {
                    serde_json::Value::String(text) => text.clone().into_bytes(),
                    serde_json::Value::Null => return None,
                    other => other.to_string().into_bytes(),
                }
            }
            Extractor::Regex(regex) => {
                let groups = regex.captures(body).ok()??;
                groups.get(1).or(groups.get(0))?.as_bytes().to_vec()
            }
        };
        // A line end would inject another request.
        (!value.iter().any(|b| matches!(b, b'\r' | b'\n' | 0))).then_some(value)
    }
}

/// Values of the fields `name` of a head whose first line is its status line.
pub fn head_fields<'a>(head: &'a [u8], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    head.split(|b| *b == b'\n').skip(1).filter_map(move |line| {
        let at = line.iter().position(|b| *b == b':')?;
        line[..at].eq_ignore_ascii_case(name.as_bytes()).then(|| line[at + 1..].trim_ascii())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &[u8] =
        b"HTTP/1.1 200 OK\r\nX-Token: abc \r\nSet-Cookie: a=1; Path=/\r\nset-cookie: sid=x=y; HttpOnly\r\n\r\n";

    #[test]
    fn values_are_found_in_heads_and_bodies() {
        let body = br#"{"user": {"token": "t-1", "id": 42}, "list": [7]}"#;
        let of = |text: &str| {
            let value = Extractor::parse(text).unwrap().extract(HEAD, body);
            value.map(|v| String::from_utf8(v).unwrap())
        };
        assert_eq!(of("header:x-token").as_deref(), Some("abc"));
        assert_eq!(of("cookie:sid").as_deref(), Some("x=y"));
        assert_eq!(of("json:/user/token").as_deref(), Some("t-1"));
        assert_eq!(of("json:/user/id").as_deref(), Some("42"));
        assert_eq!(of("json:/list/0").as_deref(), Some("7"));
        assert_eq!(of(r#"regex:"id": (\d+)"#).as_deref(), Some("42"));
        assert_eq!(of("regex:t-.").as_deref(), Some("t-1"));
        for none in ["header:none", "cookie:none", "json:/nope", "regex:nope"] {
            assert_eq!(of(none), None, "{none}");
        }
        for bad in ["token", "header:", "json:token", "regex:(", "xpath://a"] {
            assert!(Extractor::parse(bad).is_err(), "{bad}");
        }
        let split = Extractor::parse("json:").unwrap().extract(b"", b"\"a\\r\\nb\"");
        assert_eq!(split, None, "nothing gets smuggled");
    }

    #[test]
    fn variables_are_set_and_forgotten() {
        let mut v = SessionVariables::default();
        v.set("a", b"1".to_vec());
        v.set("a", vec![b'x'; VALUE_MAX + 5]);
        assert_eq!((v.get("a").len(), v.get("b")), (VALUE_MAX, &b""[..]));
        v.clear();
        assert_eq!(v, SessionVariables::default());
    }
}
