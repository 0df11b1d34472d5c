//! Requests as files, options and jobs describe them, and the conditions of a right answer.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestSpec {
    #[serde(default = "get")]
    pub method: String,
    /// Path and query; may contain templates. Of a call, `grpc` stands in its place.
    #[serde(default)]
    pub path: String,
    #[serde(default = "one")]
    pub weight: f64,
    /// Header fields, `Name: value`; values may contain templates.
    #[serde(default)]
    pub headers: Vec<String>,
    /// Body; may contain templates. `Content-Length` is added.
    #[serde(default)]
    pub body: String,
    /// Number of the server in the job: 0 is its target. Read from the URL in `path`, not from a file.
    #[serde(default, skip_serializing_if = "is_first")]
    pub server: usize,
    /// Body that is no text, without templates; instead of `body`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub binary: Vec<u8>,
    #[serde(default)]
    pub expect: Expect,
    /// In a session: variables for later requests and their sources in the answer (see [`Extractor::parse`]).
    #[serde(default)]
    pub extract: BTreeMap<String, String>,
    /// In a session: pause after the answer, as `200ms`.
    #[serde(default)]
    pub think: String,
    /// In a session: sent at the same time as the step before.
    #[serde(default, skip_serializing_if = "is_false")]
    pub parallel: bool,
    /// Method of a call of gRPC, `package.Service/Method`; empty for a request over HTTP.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub grpc: String,
    /// Message of a call, as JSON or as a text of JSON with templates; instead of `body`.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub data: Value,
}

fn get() -> String {
    "GET".into()
}

fn is_first(server: &usize) -> bool {
    *server == 0
}

fn is_false(flag: &bool) -> bool {
    !*flag
}

fn one() -> f64 {
    1.0
}

impl RequestSpec {
    pub fn get(path: &str) -> RequestSpec {
        RequestSpec {
            method: get(),
            path: path.into(),
            weight: 1.0,
            headers: Vec::new(),
            body: String::new(),
            server: 0,
            binary: Vec::new(),
            expect: Expect::default(),
            extract: BTreeMap::new(),
            think: String::new(),
            parallel: false,
            grpc: String::new(),
            data: Value::Null,
        }
    }
}

/// Conditions of a right answer. An expected 404 is right.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Expect {
    /// Statuses; empty means 200 to 399.
    pub status: Vec<u16>,
    pub length: Option<u64>,
    pub contains: Option<String>,
    /// FNV-1a hash (64 bits, hexadecimal) of the body, as `bench --show` prints it.
    pub hash: Option<String>,
    /// Statuses of a call, by name or number; empty means OK.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub grpc: Vec<String>,
}

impl Expect {
    pub fn wants_body(&self) -> bool {
        self.contains.is_some() || self.hash.is_some()
    }

    #[inline]
    pub fn allows(&self, status: u16) -> bool {
        if self.status.is_empty() { (200..400).contains(&status) } else { self.status.contains(&status) }
    }
}

/// FNV-1a, 64 bits; not cryptographic.
#[derive(Clone, Copy, Debug)]
pub struct Fnv(pub u64);

impl Default for Fnv {
    fn default() -> Self {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    pub fn update(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.0 = (self.0 ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}
