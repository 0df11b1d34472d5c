//! One request to a receiver: HTTP/protobuf or gRPC, and what its answer means.

use crate::endpoint::{Endpoint, ExportProtocol};
use crate::proto::ExportTraceServiceResponse;
use bytes::Bytes;
use http_client::{Client, ClientFailure, H2Answer, H2Client, Request, Settings};
use prost::Message;
use std::time::Duration;

/// Longest time that a receiver may ask to wait.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// Octets of a receiver's words in a message.
const WORDS_MAX: usize = 200;

#[derive(Debug, PartialEq, Eq)]
pub enum SendOutcome {
    /// Accepted, except for so many spans, with the reason.
    Accepted(u64, String),
    /// May succeed later; the receiver may have named a time.
    Retry(String, Option<Duration>),
    Failed(String),
}

/// Clients of both protocols for one receiver.
pub struct Sender {
    endpoint: Endpoint,
    /// Fields of every request.
    headers: Vec<(String, String)>,
    h1: Client,
    h2: H2Client,
}

/// For a log line.
fn words(text: &[u8]) -> String {
    String::from_utf8_lossy(text.get(..WORDS_MAX).unwrap_or(text)).trim().to_string()
}

fn accepted(body: &[u8]) -> SendOutcome {
    match ExportTraceServiceResponse::decode(body).map(|response| response.partial_success) {
        Ok(Some(partial)) => SendOutcome::Accepted(
            u64::try_from(partial.rejected_spans).unwrap_or(0),
            words(partial.error_message.as_bytes()),
        ),
        // The status says that it was accepted.
        Ok(None) | Err(_) => SendOutcome::Accepted(0, String::new()),
    }
}

/// Connection errors may be gone later; the operator's errors will not.
fn failed(why: &ClientFailure) -> SendOutcome {
    match why {
        ClientFailure::Tls(_) | ClientFailure::Handshake(_) => SendOutcome::Failed(why.to_string()),
        _ => SendOutcome::Retry(why.to_string(), None),
    }
}

/// Decodes `%2F` of a gRPC message (gRPC's `PROTOCOL-HTTP2.md`); other percent signs stay.
fn decoded(message: &[u8]) -> Vec<u8> {
    let digit = |at: usize| message.get(at).and_then(|c| char::from(*c).to_digit(16));
    let (mut out, mut at) = (Vec::with_capacity(message.len()), 0);
    while let Some(byte) = message.get(at) {
        let octet = match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => u8::try_from(high << 4 | low).ok(),
            _ => None,
        };
        out.push(octet.unwrap_or(*byte));
        at += if octet.is_some() { 3 } else { 1 };
    }
    out
}

/// Reads the status of a gRPC response. Codes: gRPC's `statuscodes.md`; those to retry: OTLP's specification.
fn grpc(answer: &H2Answer) -> SendOutcome {
    let field = |name: &str| answer.trailer(name).or_else(|| answer.field(name));
    let Some(code) = field("grpc-status").and_then(|code| std::str::from_utf8(code).ok()?.parse::<u32>().ok()) else {
        return match answer.status {
            429 | 502..=504 => SendOutcome::Retry(format!("HTTP status {}", answer.status), None),
            status => SendOutcome::Failed(format!("no gRPC status, HTTP status {status}")),
        };
    };
    let said = field("grpc-message").map(|message| words(&decoded(message))).unwrap_or_default();
    let why = format!("gRPC status {code}{}{said}", if said.is_empty() { "" } else { ": " });
    match code {
        0 => {
            // Prefix: a flag of compression, and the length (gRPC's `PROTOCOL-HTTP2.md`).
            let message = match answer.body.split_at_checked(5) {
                Some(([0, length @ ..], message)) => {
                    let length = length.iter().fold(0, |n, octet| n << 8 | usize::from(*octet));
                    message.get(..length).unwrap_or_default()
                }
                _ => &[],
            };
            accepted(message)
        }
        // CANCELLED, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, ABORTED, OUT_OF_RANGE, UNAVAILABLE, DATA_LOSS
        1 | 4 | 8 | 10 | 11 | 14 | 15 => SendOutcome::Retry(why, None),
        _ => SendOutcome::Failed(why),
    }
}

impl Sender {
    pub fn new(endpoint: Endpoint, headers: Vec<(String, String)>, settings: Settings) -> Sender {
        let (h1, h2) = (Client::new(settings.clone()), H2Client::new(settings));
        Sender { endpoint, headers, h1, h2 }
    }

    pub async fn send(&self, message: &Bytes) -> SendOutcome {
        let mut request = Request::new("POST", self.endpoint.url.clone());
        for (name, value) in &self.headers {
            match request.field(name, value) {
                Ok(with) => request = with,
                Err(field) => return SendOutcome::Failed(format!("invalid header \"{}\"", field.0)),
            }
        }
        match self.endpoint.protocol {
            ExportProtocol::Http => self.http(request, message).await,
            ExportProtocol::Grpc => {
                let mut body = Vec::with_capacity(message.len() + 5);
                body.push(0);
                body.extend_from_slice(&u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
                body.extend_from_slice(message);
                let request = request.field("te", "trailers").and_then(|r| r.body("application/grpc", body));
                match request {
                    Ok(request) => match self.h2.ask(&request).await {
                        Ok(answer) => grpc(&answer),
                        Err(why) => failed(&why),
                    },
                    Err(field) => SendOutcome::Failed(format!("invalid header \"{}\"", field.0)),
                }
            }
        }
    }

    async fn http(&self, request: Request, message: &Bytes) -> SendOutcome {
        let request = match request.body("application/x-protobuf", message.to_vec()) {
            Ok(request) => request,
            Err(field) => return SendOutcome::Failed(format!("invalid header \"{}\"", field.0)),
        };
        match self.h1.ask(&request).await {
            Ok(response) => match response.status() {
                200..=299 => accepted(&response.body),
                status @ (429 | 502 | 503 | 504) => {
                    let wait = response.text("retry-after").and_then(|text| text.trim().parse().ok());
                    SendOutcome::Retry(
                        format!("HTTP status {status}"),
                        wait.map(|seconds| Duration::from_secs(seconds).min(WAIT_MAX)),
                    )
                }
                status => SendOutcome::Failed(format!("HTTP status {status}")),
            },
            Err(why) => failed(&why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::ExportTracePartialSuccess;

    fn answer(status: u16, fields: &[(&str, &str)], trailers: &[(&str, &str)], body: Vec<u8>) -> H2Answer {
        let own = |rows: &[(&str, &str)]| {
            rows.iter().map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).collect()
        };
        H2Answer { status, fields: own(fields), trailers: own(trailers), body }
    }

    #[test]
    fn answers_of_grpc() {
        let ok = |body: Vec<u8>| grpc(&answer(200, &[], &[("grpc-status", "0")], body));
        assert_eq!(ok(vec![0; 5]), SendOutcome::Accepted(0, String::new()));
        assert_eq!(ok(Vec::new()), SendOutcome::Accepted(0, String::new()));
        assert_eq!(ok(vec![0, 0, 0, 0, 9, 1]), SendOutcome::Accepted(0, String::new()), "cut");
        let partial = ExportTracePartialSuccess { rejected_spans: 2, error_message: "too old".into() };
        let message = ExportTraceServiceResponse { partial_success: Some(partial) }.encode_to_vec();
        let mut body = vec![0, 0, 0, 0, message.len() as u8];
        body.extend(message);
        assert_eq!(ok(body), SendOutcome::Accepted(2, "too old".into()));
        let only = |code: &str| grpc(&answer(200, &[("grpc-status", code), ("grpc-message", "why")], &[], Vec::new()));
        assert_eq!(only("14"), SendOutcome::Retry("gRPC status 14: why".into(), None));
        assert_eq!(only("16"), SendOutcome::Failed("gRPC status 16: why".into()));
        let said = |message| grpc(&answer(200, &[("grpc-status", "3"), ("grpc-message", message)], &[], Vec::new()));
        assert_eq!(said("50%25 of%20it%"), SendOutcome::Failed("gRPC status 3: 50% of it%".into()));
        assert_eq!(said("%zz%4"), SendOutcome::Failed("gRPC status 3: %zz%4".into()));
        assert_eq!(grpc(&answer(503, &[], &[], Vec::new())), SendOutcome::Retry("HTTP status 503".into(), None));
        assert_eq!(
            grpc(&answer(404, &[], &[], Vec::new())),
            SendOutcome::Failed("no gRPC status, HTTP status 404".into())
        );
    }
}
