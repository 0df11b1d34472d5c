//! Messages of OTLP, as far as traces need them: `opentelemetry/proto/{collector/trace,trace,resource,common}/v1` of
//! opentelemetry-proto 1.x. Field numbers are those of the `.proto` files; omitted fields are never sent and ignored on receipt.

use prost::{Message, Oneof};

/// `SpanKind`
pub const SERVER: i32 = 2;
pub const CLIENT: i32 = 3;
/// `StatusCode`
pub const STATUS_ERROR: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub struct ExportTraceServiceRequest {
    #[prost(message, repeated, tag = "1")]
    pub resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ExportTraceServiceResponse {
    #[prost(message, optional, tag = "1")]
    pub partial_success: Option<ExportTracePartialSuccess>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ExportTracePartialSuccess {
    #[prost(int64, tag = "1")]
    pub rejected_spans: i64,
    #[prost(string, tag = "2")]
    pub error_message: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, Message)]
pub struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    pub scope: Option<InstrumentationScope>,
    #[prost(message, repeated, tag = "2")]
    pub spans: Vec<Span>,
}

#[derive(Clone, PartialEq, Message)]
pub struct InstrumentationScope {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub version: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Span {
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

#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 3, 5")]
    pub value: Option<Value>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Number(i64),
    #[prost(message, tag = "5")]
    List(ArrayValue),
}

#[derive(Clone, PartialEq, Message)]
pub struct ArrayValue {
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<AnyValue>,
}

impl Span {
    fn attribute(&mut self, key: &str, value: Value) {
        self.attributes.push(KeyValue { key: key.into(), value: Some(AnyValue { value: Some(value) }) });
    }
    /// Adds a string; octets that are no UTF-8 are replaced.
    pub fn text(&mut self, key: &str, value: impl AsRef<[u8]>) {
        self.attribute(key, Value::Text(String::from_utf8_lossy(value.as_ref()).into_owned()));
    }
    pub fn number(&mut self, key: &str, value: u64) {
        self.attribute(key, Value::Number(i64::try_from(value).unwrap_or(i64::MAX)));
    }
    /// Adds a list of one string.
    pub fn list(&mut self, key: &str, value: impl AsRef<[u8]>) {
        let text = String::from_utf8_lossy(value.as_ref()).into_owned();
        self.attribute(key, Value::List(ArrayValue { values: vec![AnyValue { value: Some(Value::Text(text)) }] }));
    }
    pub fn failed(&mut self) {
        self.status = Some(Status { message: String::new(), code: STATUS_ERROR });
    }
}

pub fn attributes(rows: &[(String, String)]) -> Vec<KeyValue> {
    let row = |(key, value): &(String, String)| KeyValue {
        key: key.clone(),
        value: Some(AnyValue { value: Some(Value::Text(value.clone())) }),
    };
    rows.iter().map(row).collect()
}
