//! Compiles the patterns that ordinary requests need, before the first request does.

use super::{Connection, Services, Transaction};
use crate::engine::Budget;
use crate::rule::EngineState;
use crate::set::{ExhaustedAction, RuleSet};
use std::sync::Arc;

/// A request as a browser or a program sends it.
struct OrdinaryRequest {
    method: &'static [u8],
    uri: &'static [u8],
    headers: &'static [(&'static [u8], &'static [u8])],
    body: &'static [u8],
}

const ORDINARY_REQUESTS: &[OrdinaryRequest] = &[
    OrdinaryRequest {
        method: b"GET",
        uri: b"/products/list.html?page=2&sort=name&q=caf%C3%A9+%26+bar",
        headers: &[
            (b"Accept", b"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
            (b"Accept-Language", b"en-US,en;q=0.5"),
            (b"Accept-Encoding", b"gzip, deflate, br"),
            (b"Referer", b"https://www.example.com/products/?page=1"),
            (b"Cookie", b"session=0123456789abcdef; theme=dark"),
        ],
        body: b"",
    },
    OrdinaryRequest {
        method: b"POST",
        uri: b"/account/edit",
        headers: &[
            (b"Accept", b"*/*"),
            (b"Origin", b"https://www.example.com"),
            (b"Content-Type", b"application/x-www-form-urlencoded"),
        ],
        body: b"name=Ann+O%27Hara&mail=ann%40example.com&text=Yes%2C+at+10%3A30+(room+%2312)%3B+100%25%21%0D%0A&n=-1.5&ok=on",
    },
    OrdinaryRequest {
        method: b"POST",
        uri: b"/api/items",
        headers: &[(b"Accept", b"application/json"), (b"Content-Type", b"application/json")],
        body: b"{\"id\":7,\"name\":\"A \\\"new\\\" item\",\"tags\":[\"a-b\",\"c_d\"],\"url\":\"https://example.com/x?y=1\",\"ok\":true}",
    },
];

/// Evaluates some ordinary requests with rules that nothing has used yet, so that the first request of a client does not wait
/// for the compilation of patterns. Blocks meanwhile: call it on a thread of a pool. Collections and logs of others stay as
/// they are.
pub fn prepare_patterns(rules: &Arc<RuleSet>) {
    let budget = Budget { microseconds: u64::MAX, ..Budget::default() };
    let services = Arc::new(Services { budget, exhausted: ExhaustedAction::Pass, ..Services::default() });
    for request in ORDINARY_REQUESTS {
        let connection = Connection {
            client_address: "192.0.2.1".into(),
            client_port: 40_000,
            server_address: "192.0.2.2".into(),
            server_port: 443,
            unique_id: "preparation".into(),
            hostname: "www.example.com".into(),
        };
        let mut transaction = Transaction::new(rules, &services, connection);
        if transaction.is_off() {
            return;
        }
        // A refusal would leave out the phases behind it.
        transaction.engine = EngineState::DetectionOnly;
        transaction.uri(request.method, request.uri, "1.1");
        transaction.request_header(b"Host", b"www.example.com");
        let agent = b"Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0";
        transaction.request_header(b"User-Agent", agent);
        for (name, value) in request.headers {
            transaction.request_header(name, value);
        }
        if !request.body.is_empty() {
            transaction.request_header(b"Content-Length", request.body.len().to_string().as_bytes());
        }
        transaction.request_headers();
        transaction.request_body(request.body);
        transaction.response_header(b"Content-Type", b"text/html; charset=utf-8");
        transaction.response_headers(200, "HTTP/1.1");
        transaction
            .response_body(b"<!DOCTYPE html><html><head><title>Items</title></head><body><p>2 items</p></body></html>");
        transaction.log();
    }
}
