//! Writes spans in their encoding, the message `Span` of `opentelemetry/proto/trace/v1/trace.proto`: one buffer for each span
//! instead of an allocation for each name and value.

use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};

/// `SpanKind`
#[derive(Clone, Copy)]
pub enum TraceKind {
    Server = 2,
    Client = 3,
}

/// `StatusCode`
const STATUS_ERROR: u64 = 2;
/// Size of most spans.
const USUAL: usize = 512;
/// Octets of the tag of a field below 16.
const TAG: usize = 1;

/// The fields that every span has.
pub struct SpanHead<'a> {
    pub trace_id: [u8; 16],
    pub span_id: [u8; 8],
    pub trace_state: &'a [u8],
    pub parent_span_id: Option<[u8; 8]>,
    pub name: &'a [u8],
    pub kind: TraceKind,
    /// Nanoseconds since 1970.
    pub start: u64,
    pub end: u64,
    /// Bits of `SpanFlags`.
    pub flags: u32,
}

/// A span that is being written. Octets of names and values that are no UTF-8 are replaced.
pub struct TraceSpan<'a> {
    out: Vec<u8>,
    /// Names that [`TraceSpan::text`] and its siblings leave out: names are unique within a span.
    reserved: &'a [String],
}

/// Number of octets of a value with its tag and length.
fn delimited(length: usize) -> usize {
    TAG + encoded_len_varint(length as u64) + length
}

impl<'a> TraceSpan<'a> {
    /// `reserved`: the attributes that only [`TraceSpan::own`] writes.
    pub fn new(head: &SpanHead<'_>, reserved: &'a [String]) -> TraceSpan<'a> {
        let mut span = TraceSpan { out: Vec::with_capacity(USUAL), reserved };
        span.bytes(1, &head.trace_id);
        span.bytes(2, &head.span_id);
        if !head.trace_state.is_empty() {
            span.bytes(3, String::from_utf8_lossy(head.trace_state).as_bytes());
        }
        if let Some(parent) = &head.parent_span_id {
            span.bytes(4, parent);
        }
        span.bytes(5, String::from_utf8_lossy(head.name).as_bytes());
        span.number_field(6, head.kind as u64);
        for (tag, time) in [(7, head.start), (8, head.end)] {
            encode_key(tag, WireType::SixtyFourBit, &mut span.out);
            span.out.extend_from_slice(&time.to_le_bytes());
        }
        encode_key(16, WireType::ThirtyTwoBit, &mut span.out);
        span.out.extend_from_slice(&head.flags.to_le_bytes());
        span
    }

    /// Returns the encoded message.
    pub fn encoded(self) -> Vec<u8> {
        self.out
    }

    fn prefix(&mut self, tag: u32, length: usize) {
        encode_key(tag, WireType::LengthDelimited, &mut self.out);
        encode_varint(length as u64, &mut self.out);
    }
    fn bytes(&mut self, tag: u32, value: &[u8]) {
        self.prefix(tag, value.len());
        self.out.extend_from_slice(value);
    }
    fn number_field(&mut self, tag: u32, value: u64) {
        encode_key(tag, WireType::Varint, &mut self.out);
        encode_varint(value, &mut self.out);
    }

    /// Writes the beginning of a `KeyValue` in `attributes`, up to its `AnyValue` of so many octets.
    fn key(&mut self, key: &str, value: usize) {
        self.prefix(9, delimited(key.len()) + delimited(value));
        self.bytes(1, key.as_bytes());
        self.prefix(2, value);
    }
    fn put_text(&mut self, key: &str, value: &[u8]) {
        let value = String::from_utf8_lossy(value);
        self.key(key, delimited(value.len()));
        self.bytes(1, value.as_bytes());
    }
    /// A list of one string.
    fn put_list(&mut self, key: &str, value: &[u8]) {
        let value = String::from_utf8_lossy(value);
        let text = delimited(value.len());
        let list = delimited(text);
        self.key(key, delimited(list));
        self.prefix(5, list);
        self.prefix(1, text);
        self.bytes(1, value.as_bytes());
    }
    fn is_reserved(&self, key: &str) -> bool {
        self.reserved.iter().any(|name| name == key)
    }

    /// Adds a string.
    pub fn text(&mut self, key: &str, value: impl AsRef<[u8]>) {
        if !self.is_reserved(key) {
            self.put_text(key, value.as_ref());
        }
    }
    pub fn number(&mut self, key: &str, value: u64) {
        if !self.is_reserved(key) {
            // `int64`
            let value = value.min(i64::MAX as u64);
            self.key(key, TAG + encoded_len_varint(value));
            self.number_field(3, value);
        }
    }
    /// Adds an attribute of the configuration: captured fields (semantic conventions of HTTP) are lists of one string.
    pub fn own(&mut self, key: &str, value: &[u8]) {
        match key.starts_with("http.request.header.") || key.starts_with("http.response.header.") {
            true => self.put_list(key, value),
            false => self.put_text(key, value),
        }
    }
    /// Sets the status to an error; to be called once.
    pub fn fail(&mut self) {
        self.prefix(15, TAG + encoded_len_varint(STATUS_ERROR));
        self.number_field(3, STATUS_ERROR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{AnyValue, ArrayValue, KeyValue, Value};
    use prost::Message;

    #[derive(Clone, PartialEq, Message)]
    pub struct Decoded {
        #[prost(bytes = "vec", tag = "1")]
        pub trace_id: Vec<u8>,
        #[prost(bytes = "vec", tag = "2")]
        pub span_id: Vec<u8>,
        #[prost(string, tag = "3")]
        pub trace_state: String,
        #[prost(bytes = "vec", tag = "4")]
        pub parent_span_id: Vec<u8>,
        #[prost(string, tag = "5")]
        pub name: String,
        #[prost(int32, tag = "6")]
        pub kind: i32,
        /// Since 1970.
        #[prost(fixed64, tag = "7")]
        pub start_time_unix_nano: u64,
        #[prost(fixed64, tag = "8")]
        pub end_time_unix_nano: u64,
        #[prost(message, repeated, tag = "9")]
        pub attributes: Vec<KeyValue>,
        #[prost(message, optional, tag = "15")]
        pub status: Option<Status>,
        #[prost(fixed32, tag = "16")]
        pub flags: u32,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Status {
        #[prost(string, tag = "2")]
        pub message: String,
        #[prost(int32, tag = "3")]
        pub code: i32,
    }

    fn row(key: &str, value: Value) -> KeyValue {
        KeyValue { key: key.into(), value: Some(AnyValue { value: Some(value) }) }
    }

    #[test]
    fn spans_decode_as_they_were_written() {
        let long = "x".repeat(300);
        let reserved = ["taken".to_string()];
        let mut span = TraceSpan::new(
            &SpanHead {
                trace_id: [1; 16],
                span_id: [2; 8],
                trace_state: b"a=b",
                parent_span_id: Some([3; 8]),
                name: b"/\xff",
                kind: TraceKind::Client,
                start: u64::MAX,
                end: 1 << 60,
                flags: 0x301,
            },
            &reserved,
        );
        span.text("text", &long);
        span.text("empty", "");
        span.text("taken", "automatic");
        span.number("taken", 1);
        span.number("number", u64::MAX);
        span.own("taken", b"\xfe");
        span.own("http.request.header.a", long.as_bytes());
        span.own("http.response.header.b", b"c");
        span.fail();
        let list =
            |text: &str| Value::List(ArrayValue { values: vec![AnyValue { value: Some(Value::Text(text.into())) }] });
        assert_eq!(
            Decoded::decode(&*span.encoded()),
            Ok(Decoded {
                trace_id: vec![1; 16],
                span_id: vec![2; 8],
                trace_state: "a=b".into(),
                parent_span_id: vec![3; 8],
                name: "/\u{fffd}".into(),
                kind: 3,
                start_time_unix_nano: u64::MAX,
                end_time_unix_nano: 1 << 60,
                attributes: vec![
                    row("text", Value::Text(long.clone())),
                    row("empty", Value::Text(String::new())),
                    row("number", Value::Number(i64::MAX)),
                    row("taken", Value::Text("\u{fffd}".into())),
                    row("http.request.header.a", list(&long)),
                    row("http.response.header.b", list("c")),
                ],
                status: Some(Status { message: String::new(), code: 2 }),
                flags: 0x301,
            })
        );
    }
}
