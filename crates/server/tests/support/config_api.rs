//! Requests of the API below `/tidegate/`, for tests of configurations.

use super::client::Client;
use super::{Site, wait};
use serde_json::{Value, json};
use std::collections::BTreeMap;

#[derive(Debug)]
pub struct Said {
    pub status: u16,
    pub value: Value,
}

impl Said {
    pub fn code(&self) -> (u16, &str) {
        (self.status, self.value.pointer("/error/code").and_then(Value::as_str).unwrap_or_default())
    }
    pub fn generation(&self) -> u64 {
        assert_eq!(self.status, 200, "{}", self.value);
        self.value["generation"].as_u64().expect("a generation")
    }
}

pub fn try_ask(port: u16, method: &str, path: &str, fields: &str, body: &str) -> Result<Said, String> {
    let length = body.len();
    let head = format!(
        "{method} /api/tidegate{path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n{fields}\
         Content-Length: {length}\r\n\r\n{body}"
    );
    let (status, text) = Client::connect(port)?.ask(&head)?;
    let value =
        if text.is_empty() { Value::Null } else { serde_json::from_str(&text).map_err(|e| format!("{e} {text}"))? };
    Ok(Said { status, value })
}

pub fn ask(port: u16, method: &str, path: &str, fields: &str, body: &str) -> Said {
    try_ask(port, method, path, fields, body).expect("an answer")
}

pub fn get(port: u16, path: &str) -> Value {
    let said = ask(port, "GET", path, "", "");
    assert_eq!(said.status, 200, "{path}: {}", said.value);
    said.value
}

pub fn post(port: u16, path: &str, body: &str) -> Said {
    ask(port, "POST", path, "", body)
}

pub const CONFIG: &str = "/1/config";
pub const API: &str = "location /api { api write=on config=write keep=4; }";

/// A configuration whose page is `words`.
pub fn conf(port: u16, words: &str) -> String {
    format!(
        "error_log logs/error.log info;\ndaemon off; worker_processes 2;\nevents {{ }}\nhttp {{\n    server {{\n        \
         listen 127.0.0.1:{port};\n        {API}\n        location / {{ return 200 \"{words}\"; }}\n    }}\n}}\n"
    )
}

pub fn site_of(text: &str) -> Site {
    let site = Site::new("", "");
    site.write("conf/nginx.conf", text);
    site
}

pub fn page(port: u16) -> Result<String, String> {
    let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    Client::connect(port)?.ask(request).map(|(_, body)| body)
}

pub fn wait_for_page(port: u16, words: &str) {
    wait(words, || match page(port) {
        Ok(body) if body == words => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

pub fn files(all: &[(&str, &str)]) -> String {
    let all: BTreeMap<&str, &str> = all.iter().copied().collect();
    json!(all).to_string()
}
