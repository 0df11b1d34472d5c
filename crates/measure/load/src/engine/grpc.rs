//! gRPC calls of a run: methods by their descriptors, and their messages from JSON (protobuf's JSON mapping).

use std::io::{Read as _, Write as _};

use prost_reflect::prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, MethodDescriptor};
use serde::de::{DeserializeSeed, Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

/// Octets of a message's prefix: a flag and the length (gRPC over HTTP/2, `Length-Prefixed-Message`).
pub const PREFIX: usize = 5;
/// Messages of one call at most.
const MESSAGES_MAX: usize = 1_000_000;
/// Octets of the messages of an inspected answer at most, decompressed.
const ANSWER_MAX: usize = 64 * 1024 * 1024;

/// The gRPC part of a job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GrpcJob {
    /// Encoded `FileDescriptorSet` with the called services.
    pub descriptors: Vec<u8>,
    /// Seconds between the messages of a call; 0: all at once.
    pub interval: f64,
    /// Messages are compressed with gzip, and compressed answers are accepted.
    #[serde(default)]
    pub gzip: bool,
}

impl GrpcJob {
    /// Decodes the descriptors. Fails on a set that is not complete.
    pub fn pool(&self) -> Result<DescriptorPool, String> {
        DescriptorPool::decode(self.descriptors.as_slice()).map_err(|e| format!("descriptors: {e}"))
    }
}

/// Form of the messages that a method takes.
#[derive(Clone, Debug)]
pub struct MessageForm {
    method: MethodDescriptor,
    gzip: bool,
}

impl MessageForm {
    /// Finds the method of `/package.Service/Method`. Fails with the known services or methods.
    pub fn find(pool: &DescriptorPool, path: &str) -> Result<MessageForm, String> {
        let name = path.trim_start_matches('/');
        let services: Vec<String> = pool.services().map(|service| service.full_name().to_string()).collect();
        let known = |service: &str| {
            let service = pool.get_service_by_name(service);
            let methods: Vec<String> =
                service.iter().flat_map(|service| service.methods()).map(|method| method.name().to_string()).collect();
            methods.join(", ")
        };
        let Some((service, method)) = name.rsplit_once('/') else {
            let methods = pool.get_service_by_name(name).map(|_| format!("its methods are {}", known(name)));
            let hint = methods.unwrap_or_else(|| format!("the services are {}", services.join(", ")));
            return Err(format!("`{path}` names no method: write /package.Service/Method ({hint})"));
        };
        let Some(found) = pool.get_service_by_name(service) else {
            return Err(format!("there is no service `{service}`: the services are {}", services.join(", ")));
        };
        let found = found.methods().find(|one| one.name() == method);
        let found = found.ok_or_else(|| format!("`{service}` has no method `{method}`: it has {}", known(service)))?;
        Ok(MessageForm { method: found, gzip: false })
    }

    /// Compresses messages with gzip, if `gzip`.
    pub fn compressed(self, gzip: bool) -> MessageForm {
        MessageForm { gzip, ..self }
    }

    /// Tells whether the client sends any number of messages.
    pub fn is_client_streaming(&self) -> bool {
        self.method.is_client_streaming()
    }

    /// Appends the framed messages of a JSON text: of an array for methods that take a stream, otherwise of one object;
    /// an empty text is an empty message. Fails with place, field and suggestion.
    pub fn frame_messages(&self, json: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        let input = self.method.input();
        let text = if json.trim_ascii().is_empty() { b"{}" } else { json };
        let is_list = text.trim_ascii_start().starts_with(b"[");
        let mut source = serde_json::Deserializer::from_slice(text);
        let read = match is_list && self.is_client_streaming() {
            true => source.deserialize_seq(MessageList(&input)),
            false => DynamicMessage::deserialize(input.clone(), &mut source).map(|message| vec![message]),
        };
        let messages =
            read.and_then(|messages| source.end().map(|()| messages)).map_err(|e| self.explain(&e, is_list))?;
        for message in messages {
            let mut octets = message.encode_to_vec();
            if self.gzip {
                octets = compress_message(&octets)?;
            }
            let length = octets.len();
            let prefix = u32::try_from(length).map_err(|_| format!("a message of {length} octets is too long"))?;
            out.push(u8::from(self.gzip));
            out.extend_from_slice(&prefix.to_be_bytes());
            out.extend_from_slice(&octets);
        }
        Ok(())
    }

    /// Reads framed messages of an answer, also compressed ones, as JSON: an object, of a stream an array of objects.
    /// `None` if they are not of this method, or longer than [`ANSWER_MAX`].
    pub fn answer_json(&self, mut frames: &[u8]) -> Option<Vec<u8>> {
        let mut messages = Vec::new();
        let mut left = ANSWER_MAX;
        while !frames.is_empty() {
            let (frame, rest) = split_message(frames);
            frames = rest;
            let octets = frame.get(PREFIX..)?;
            let plain = match frame.first()? {
                0 => octets.to_vec(),
                _ => expand_message(octets, left)?,
            };
            left = left.checked_sub(plain.len())?;
            let message = DynamicMessage::decode(self.method.output(), plain.as_slice()).ok()?;
            messages.push(serde_json::to_value(&message).ok()?);
        }
        let whole = match self.method.is_server_streaming() {
            true => serde_json::Value::Array(messages),
            false => messages.into_iter().next()?,
        };
        serde_json::to_vec(&whole).ok()
    }

    fn explain(&self, error: &serde_json::Error, is_list: bool) -> String {
        let (input, error) = (self.method.input(), error.to_string());
        let hint = if is_list && !self.is_client_streaming() {
            format!("; {} takes one message, not an array", self.method.full_name())
        } else if error.contains("unrecognized field name") {
            let fields: Vec<String> = input.fields().map(|field| field.json_name().to_string()).collect();
            format!("; {} has {}", input.full_name(), fields.join(", "))
        } else {
            String::new()
        };
        format!("JSON of the message {}: {error}{hint}", input.full_name())
    }
}

/// Reads an array of messages.
struct MessageList<'a>(&'a MessageDescriptor);

impl<'de> Visitor<'de> for MessageList<'_> {
    type Value = Vec<DynamicMessage>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "an array of {}", self.0.full_name())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut messages = Vec::new();
        while let Some(message) = items.next_element_seed(OneMessage(self.0))? {
            if messages.len() == MESSAGES_MAX {
                return Err(serde::de::Error::custom(format!("more than {MESSAGES_MAX} messages")));
            }
            messages.push(message);
        }
        Ok(messages)
    }
}

struct OneMessage<'a>(&'a MessageDescriptor);

impl<'de> DeserializeSeed<'de> for OneMessage<'_> {
    type Value = DynamicMessage;

    fn deserialize<D: Deserializer<'de>>(self, source: D) -> Result<DynamicMessage, D::Error> {
        DynamicMessage::deserialize(self.0.clone(), source)
    }
}

fn compress_message(octets: &[u8]) -> Result<Vec<u8>, String> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(octets).and_then(|()| encoder.finish()).map_err(|e| format!("gzip: {e}"))
}

/// Decompresses one message; `None` if it is damaged or longer than `most` octets.
fn expand_message(octets: &[u8], most: usize) -> Option<Vec<u8>> {
    let mut plain = Vec::new();
    let length = flate2::read::GzDecoder::new(octets).take(most as u64 + 1).read_to_end(&mut plain).ok()?;
    (length <= most).then_some(plain)
}

/// Splits framed messages behind the first one.
pub fn split_message(frames: &[u8]) -> (&[u8], &[u8]) {
    let length =
        frames.get(1..PREFIX).and_then(|length| <[u8; 4]>::try_from(length).ok()).map_or(0, u32::from_be_bytes);
    frames.split_at((PREFIX + length as usize).min(frames.len()))
}

/// Descriptors of the tests: `test.Echo` with a method of each kind.
#[cfg(test)]
pub fn test_pool() -> DescriptorPool {
    let text = "syntax = \"proto3\"; package test;
        message Ping { string name = 1; int32 count = 2; }
        service Echo {
          rpc Say(Ping) returns (Ping);
          rpc Down(Ping) returns (stream Ping);
          rpc Up(stream Ping) returns (Ping);
          rpc Both(stream Ping) returns (stream Ping);
        }";
    let file = protox_file("test.proto", text);
    DescriptorPool::from_file_descriptor_set(prost_reflect::prost_types::FileDescriptorSet { file: vec![file] })
        .unwrap()
}

#[cfg(test)]
fn protox_file(name: &str, text: &str) -> prost_reflect::prost_types::FileDescriptorProto {
    struct One(String, String);
    impl protox::file::FileResolver for One {
        fn open_file(&self, name: &str) -> Result<protox::file::File, protox::Error> {
            match name == self.0 {
                true => protox::file::File::from_source(name, &self.1),
                false => Err(protox::Error::file_not_found(name)),
            }
        }
    }
    let mut compiler = protox::Compiler::with_file_resolver(One(name.into(), text.into()));
    compiler.open_file(name).unwrap().file_descriptor_set().file.remove(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(method: &str, json: &str) -> Result<Vec<u8>, String> {
        let mut out = Vec::new();
        MessageForm::find(&test_pool(), &format!("/test.Echo/{method}"))?.frame_messages(json.as_bytes(), &mut out)?;
        Ok(out)
    }

    #[test]
    fn messages_are_framed_with_their_length() {
        assert_eq!(framed("Say", r#"{"name": "a", "count": 5}"#).unwrap(), b"\0\0\0\0\x05\x0a\x01a\x10\x05");
        assert_eq!(framed("Say", "").unwrap(), [0; 5]);
        let two = framed("Both", r#"[{"count": 1}, {}]"#).unwrap();
        assert_eq!(split_message(&two), (&b"\0\0\0\0\x02\x10\x01"[..], &[0; 5][..]));
        assert!(framed("Up", "[]").unwrap().is_empty());
        assert_eq!(framed("Up", r#"{"count": 1}"#).unwrap(), b"\0\0\0\0\x02\x10\x01");
    }

    #[test]
    fn compressed_messages_are_written_and_read() {
        let form = |method: &str| MessageForm::find(&test_pool(), &format!("/test.Echo/{method}")).unwrap();
        let (plain, packed) = (form("Say"), form("Say").compressed(true));
        let mut frames = Vec::new();
        packed.frame_messages(format!("{{\"name\": \"{}\"}}", "a".repeat(1000)).as_bytes(), &mut frames).unwrap();
        assert!(frames[0] == 1 && frames.len() < 100 && split_message(&frames).1.is_empty());
        let json = String::from_utf8(plain.answer_json(&frames).unwrap()).unwrap();
        assert_eq!(json, format!("{{\"name\":\"{}\"}}", "a".repeat(1000)));
        let two = [&frames[..], &[0, 0, 0, 0, 2, 0x10, 7]].concat();
        let stream = String::from_utf8(form("Down").answer_json(&two).unwrap()).unwrap();
        assert!(stream.starts_with("[{\"name\":") && stream.ends_with("{\"count\":7}]"), "{stream}");
        frames[20] ^= 0xff;
        assert!(plain.answer_json(&frames).is_none() && plain.answer_json(&[]).is_none());
        assert!(expand_message(&compress_message(&[0; 5000]).unwrap(), 4999).is_none());
    }

    #[test]
    fn wrong_messages_name_field_and_place() {
        let unknown = framed("Say", "{\n  \"nam\": 1}").unwrap_err();
        assert!(
            unknown.contains("'nam'") && unknown.contains("line 2") && unknown.contains("has name, count"),
            "{unknown}"
        );
        let list = framed("Down", "[{}]").unwrap_err();
        assert!(list.contains("takes one message"), "{list}");
        let kind = framed("Say", r#"{"count": "x"}"#).unwrap_err();
        assert!(kind.contains("line 1"), "{kind}");
        assert!(framed("Say", "{} {}").is_err());
    }

    #[test]
    fn unknown_methods_are_answered_with_the_known_ones() {
        for (path, words) in [
            ("/test.Echo/Sai", "it has Say, Down, Up, Both"),
            ("/test.Eco/Say", "the services are test.Echo"),
            ("/test.Echo", "its methods are Say"),
            ("/", "the services are test.Echo"),
        ] {
            let why = MessageForm::find(&test_pool(), path).unwrap_err();
            assert!(why.contains(words), "{path}: {why}");
        }
    }
}
