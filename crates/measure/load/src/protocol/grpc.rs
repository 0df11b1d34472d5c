//! Answers of gRPC over HTTP/2: messages counted by their prefixes, and the status of the call.

use http_types::List;

use crate::engine::failure::LoadFailure;
use crate::engine::grpc::PREFIX;

/// Names of the status codes from 0 on (gRPC, "Status codes and their use").
const NAMES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];
const UNKNOWN: u16 = 2;
/// Status of a call without an answer in time.
pub const DEADLINE_EXCEEDED: u16 = 4;
/// Octets of a status message that are kept.
const TEXT_MAX: usize = 1024;

/// End of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrpcEnd {
    /// Status code of the call; 0 is OK.
    pub code: u16,
    /// Messages of the answer.
    pub messages: u32,
}

/// Name of a status code; codes without a name are written as numbers.
pub fn code_name(code: u16) -> String {
    NAMES.get(usize::from(code)).map_or_else(|| format!("code {code}"), |name| (*name).to_string())
}

/// Number of a status code, from its name in any case or its number. Fails with the known names.
pub fn code_number(name: &str) -> Result<u16, String> {
    let known = NAMES.iter().position(|known| known.eq_ignore_ascii_case(name.trim()));
    let number = known.and_then(|number| u16::try_from(number).ok()).or_else(|| name.trim().parse().ok());
    number.ok_or_else(|| format!("expect: `{name}` is no status of gRPC: {}, or a number", NAMES.join(", ")))
}

/// Answer to a call in progress.
#[derive(Debug, Default)]
pub struct GrpcAnswer {
    /// Octets of an unfinished prefix.
    prefix: Vec<u8>,
    /// Missing octets of the message in progress.
    left: u64,
    messages: u32,
    code: Option<u16>,
    text: Vec<u8>,
    /// The head names gzip as the encoding of messages.
    has_gzip: bool,
}

impl GrpcAnswer {
    /// Number of complete messages so far.
    pub fn messages(&self) -> u32 {
        self.messages
    }

    /// Takes in octets of the body; returns the number of messages so far. Fails on a compressed message whose
    /// encoding is not gzip.
    pub fn take_body(&mut self, mut bytes: &[u8]) -> Result<u32, LoadFailure> {
        while !bytes.is_empty() {
            if self.left > 0 {
                let taken = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
                bytes = &bytes[taken..];
                self.left -= taken as u64;
                self.messages += u32::from(self.left == 0);
                continue;
            }
            let taken = (PREFIX - self.prefix.len()).min(bytes.len());
            self.prefix.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            if let [flag, a, b, c, d] = self.prefix[..] {
                if flag > 1 || (flag == 1 && !self.has_gzip) {
                    return Err(LoadFailure::Protocol);
                }
                self.prefix.clear();
                self.left = u64::from(u32::from_be_bytes([a, b, c, d]));
                self.messages += u32::from(self.left == 0);
            }
        }
        Ok(self.messages)
    }

    /// Takes in trailers, or the head of an answer without a body. Fails on a status that is no number.
    pub fn take_fields(&mut self, list: &List) -> Result<(), LoadFailure> {
        for (name, value) in list.iter() {
            match name {
                b"grpc-status" => {
                    let code = std::str::from_utf8(value).ok().and_then(|code| code.parse().ok());
                    self.code = Some(code.ok_or(LoadFailure::Protocol)?);
                }
                b"grpc-encoding" => self.has_gzip = value == b"gzip",
                b"grpc-message" => self.text = unescape(&value[..value.len().min(TEXT_MAX)]),
                _ => {}
            }
        }
        Ok(())
    }

    /// Ends the call: its status, and the message of the status. Without a status, it follows from that of HTTP. Fails
    /// on an unfinished message.
    pub fn finish(self, http_status: u16) -> Result<(GrpcEnd, Vec<u8>), LoadFailure> {
        if self.left > 0 || !self.prefix.is_empty() {
            return Err(LoadFailure::Truncated);
        }
        let text = match self.code {
            None => format!("HTTP status {http_status} without grpc-status").into_bytes(),
            Some(_) => self.text,
        };
        Ok((GrpcEnd { code: self.code.unwrap_or_else(|| http_code(http_status)), messages: self.messages }, text))
    }
}

/// Code of an answer without `grpc-status` (gRPC, "HTTP to gRPC status code mapping").
fn http_code(status: u16) -> u16 {
    match status {
        400 => 13,
        401 => 16,
        403 => 7,
        404 => 12,
        429 | 502 | 503 | 504 => 14,
        _ => UNKNOWN,
    }
}

/// Decodes `grpc-message` (percent-encoded UTF-8).
fn unescape(value: &[u8]) -> Vec<u8> {
    let (mut out, mut at) = (Vec::new(), 0);
    while let Some(byte) = value.get(at) {
        let hex = value.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()).filter(|_| *byte == b'%') {
            Some(decoded) => {
                out.push(decoded);
                at += 3;
            }
            None => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_counted_however_they_arrive() {
        let bytes = [&[0, 0, 0, 0, 3][..], b"abc", &[0; 5], &[0, 0, 0, 1, 0], &[7; 256]].concat();
        for size in 1..=bytes.len() {
            let mut answer = GrpcAnswer::default();
            let counts: Vec<u32> = bytes.chunks(size).map(|piece| answer.take_body(piece).unwrap()).collect();
            assert_eq!(counts.last(), Some(&3), "{size}");
            answer.code = Some(0);
            assert_eq!(answer.finish(200).unwrap().0, GrpcEnd { code: 0, messages: 3 });
        }
        let mut cut = GrpcAnswer::default();
        cut.take_body(&bytes[..7]).unwrap();
        assert_eq!(cut.finish(200).unwrap_err(), LoadFailure::Truncated);
        assert_eq!(GrpcAnswer::default().take_body(&[1, 0, 0, 0, 0]), Err(LoadFailure::Protocol));
        let mut packed = GrpcAnswer { has_gzip: true, ..GrpcAnswer::default() };
        assert_eq!(packed.take_body(&[1, 0, 0, 0, 0]), Ok(1));
        assert_eq!(packed.take_body(&[2, 0, 0, 0, 0]), Err(LoadFailure::Protocol));
    }

    #[test]
    fn a_missing_status_follows_from_http() {
        for (status, name) in [(200, "UNKNOWN"), (404, "UNIMPLEMENTED"), (503, "UNAVAILABLE"), (401, "UNAUTHENTICATED")]
        {
            let (end, text) = GrpcAnswer::default().finish(status).unwrap();
            assert_eq!(code_name(end.code), name);
            assert!(String::from_utf8(text).unwrap().contains(&status.to_string()));
        }
        assert_eq!(code_name(99), "code 99");
        assert_eq!((code_number("not_found"), code_number("16")), (Ok(5), Ok(16)));
        assert!(code_number("LOST").unwrap_err().contains("DATA_LOSS"));
    }

    #[test]
    fn messages_of_a_call_are_sent_at_their_times() {
        use crate::engine::grpc::{GrpcJob, MessageForm, test_pool};
        use crate::engine::job::Job;
        use crate::engine::request::{PreparedRequest, RequestSpec};
        use crate::engine::session::SessionVariables;
        use crate::protocol::ClientProtocol as _;
        use crate::protocol::h2::H2;
        const MS: u64 = 1_000_000;
        let job =
            Job { grpc: Some(GrpcJob { interval: 0.01, ..GrpcJob::default() }), ..crate::engine::sim::sim_job(1, 1.0) };
        let spec = RequestSpec { body: "[{}, {\"count\": 1}, {}]".into(), ..RequestSpec::get("/test.Echo/Up") };
        let form = MessageForm::find(&test_pool(), &spec.path).unwrap();
        let request = PreparedRequest::new(&spec, "h", &[], false)
            .unwrap()
            .for_grpc(form, &GrpcJob::default(), 1.0)
            .unwrap()
            .for_http2(false);
        let mut core = H2::new(&H2::shared(&job, &[]).unwrap());
        core.submit(&request, 0, &SessionVariables::default(), &mut figures::rng::Rng::new(1), &mut Vec::new());
        let first = core.output().len();
        assert_eq!(
            core.output()[first - 14..first - 5],
            [0, 0, 5, 0, 0, 0, 0, 0, 1],
            "the first message, without the end"
        );
        core.advance(first);
        // The core learns the time, and nothing is due.
        assert_eq!(core.deadline(), Some(1));
        core.expire(100 * MS);
        assert!(core.output().is_empty());
        for (at, size, flags) in [(110, 7, 0), (120, 5, 1)] {
            assert_eq!(core.deadline(), Some(at * MS));
            core.expire(at * MS - 1);
            assert!(core.output().is_empty());
            core.expire(at * MS);
            let length = core.output().len();
            assert_eq!((length, core.output()[4]), (9 + size, flags), "{at} ms");
            core.advance(length);
        }
        assert_eq!(core.deadline(), None);
    }

    #[test]
    fn status_messages_are_decoded() {
        assert_eq!(unescape(b"no%20%c3%a4 100%"), "no ä 100%".as_bytes());
    }
}
