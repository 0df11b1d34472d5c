//! A client of the API of nginx's commercial edition, and a site that has each part which the API shows.

use super::Site;
use super::client::Client;
use super::origin::Origin;
use serde_json::Value;

/// Asks the API; `path` is below `/api`. Returns status and JSON, `Null` without a body.
pub fn ask(port: u16, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
    ask_with(port, method, path, "", body)
}

pub fn ask_with(port: u16, method: &str, path: &str, fields: &str, body: Option<&Value>) -> (u16, Value) {
    let text = body.map(ToString::to_string).unwrap_or_default();
    raw(port, method, path, fields, &text)
}

pub fn raw(port: u16, method: &str, path: &str, fields: &str, text: &str) -> (u16, Value) {
    let length = text.len();
    let head = format!(
        "{method} /api{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}Content-Length: {length}\r\n\r\n{text}"
    );
    let (status, text) = Client::connect(port).and_then(|mut c| c.ask(&head)).expect("an answer");
    let value = if text.is_empty() { Value::Null } else { serde_json::from_str(&text).expect(&text) };
    (status, value)
}

pub fn get(port: u16, path: &str) -> Value {
    let (status, value) = ask(port, "GET", path, None);
    assert_eq!(status, 200, "{path}: {value}");
    value
}

pub fn code(answer: &(u16, Value)) -> (u16, &str) {
    (answer.0, answer.1.pointer("/error/code").and_then(Value::as_str).unwrap_or_default())
}

pub fn address(origin: &Origin) -> String {
    format!("127.0.0.1:{}", origin.port)
}

pub fn everything(port: u16, stream_port: u16, origin: &str, more: &str) -> Site {
    let conf = format!(
        "http {{
            proxy_cache_path cache keys_zone=store:1m max_size=1m;
            limit_req_zone $arg_key zone=rate:32k rate=1r/m;
            limit_conn_zone $arg_key zone=number:32k;
            keyval_zone zone=pairs:64k;
            keyval_zone zone=mortal:64k timeout=1h;
            keyval $arg_key $pair zone=pairs;
            resolver 127.0.0.1:1 status_zone=names;
            upstream app {{ zone app 64k; server {origin} max_conns=100; server 127.0.0.1:1 down; queue 5; }}
            upstream fixed {{ server {origin}; }}
            upstream hashed {{ zone hashed 64k; server {origin}; hash $uri; }}
            {more}
            server {{
                listen 127.0.0.1:{port}; status_zone site;
                location /api {{ api write=on; status_zone off; }}
                location /read/ {{ api; }}
                location / {{ status_zone app; proxy_pass http://app; }}
                location /cached {{ proxy_cache store; proxy_cache_valid 1h; proxy_pass http://app; }}
                location /limited {{ limit_req zone=rate; limit_conn number 9; return 200; }}
                location /pair {{ return 200 \"$pair\"; }}
                location /none {{ return 404; }}
            }}
        }}
        stream {{
            limit_conn_zone $remote_addr zone=sessions:32k;
            keyval_zone zone=stream_pairs:32k;
            upstream tcp {{ zone tcp 64k; server {origin}; }}
            server {{
                listen 127.0.0.1:{stream_port}; status_zone door; limit_conn sessions 10; proxy_pass tcp;
            }}
        }}"
    );
    Site::new("daemon off; worker_processes 2;", &conf)
}

pub fn generation_of(port: u16, path: &str) -> String {
    let head = format!("GET /api{path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let (_, head) = Client::connect(port).and_then(|mut c| c.ask_for_head(&head)).expect("an answer");
    head.lines().find_map(|line| line.strip_prefix("ETag: ")).expect("an ETag").to_string()
}

pub fn servers(port: u16, path: &str) -> Vec<(u64, String)> {
    let all = get(port, &format!("{path}/servers"));
    let one = |server: &Value| (server["id"].as_u64().expect("id"), server["server"].as_str().expect("server").into());
    all.as_array().expect("a list").iter().map(one).collect()
}
