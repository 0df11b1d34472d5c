//! JSON bodies as arguments: `{"a":{"b":[1]}}` becomes `json.a.b.array_0=1`.

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// Nested objects and arrays, unless `SecRequestBodyJsonDepthLimit` says otherwise.
pub const JSON_DEPTH_MAX: usize = 128;

/// Arguments of a body, in order: names and values.
#[derive(Debug, Default)]
pub(crate) struct JsonArguments {
    pub arguments: Vec<(Vec<u8>, Vec<u8>)>,
    /// The reason why the body is not JSON; arguments before the error are kept.
    pub error: Option<String>,
    /// The body has more arguments than were asked for.
    pub is_cut: bool,
}

/// Reads a body. `depth_max` is at most [`JSON_DEPTH_MAX`], `arguments_max` stops the reading without an error of its own.
pub(crate) fn arguments(body: &[u8], depth_max: usize, arguments_max: usize) -> JsonArguments {
    let mut collected = CollectedMembers { out: JsonArguments::default(), path: b"json".to_vec(), arguments_max };
    let depth_max = depth_max.min(JSON_DEPTH_MAX);
    let mut reader = serde_json::Deserializer::from_slice(body);
    let result = ValueSeed { collected: &mut collected, depth_left: depth_max }.deserialize(&mut reader);
    let result = result.and_then(|()| reader.end());
    if let Err(error) = result
        && !collected.out.is_cut
    {
        collected.out.error = Some(error.to_string());
    }
    collected.out
}

struct CollectedMembers {
    out: JsonArguments,
    /// The name of the value that comes next.
    path: Vec<u8>,
    arguments_max: usize,
}

struct ValueSeed<'c> {
    collected: &'c mut CollectedMembers,
    depth_left: usize,
}

impl ValueSeed<'_> {
    fn keep<E: de::Error>(self, value: &[u8]) -> Result<(), E> {
        let collected = self.collected;
        if collected.out.arguments.len() >= collected.arguments_max {
            collected.out.is_cut = true;
            return Err(E::custom("too many arguments"));
        }
        collected.out.arguments.push((collected.path.clone(), value.to_vec()));
        Ok(())
    }
    fn deeper<E: de::Error>(&self) -> Result<usize, E> {
        self.depth_left.checked_sub(1).ok_or_else(|| E::custom("Parsing depth limit exceeded"))
    }
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_bool<E: de::Error>(self, value: bool) -> Result<(), E> {
        self.keep(if value { b"true" } else { b"false" })
    }
    fn visit_i64<E: de::Error>(self, value: i64) -> Result<(), E> {
        self.keep(value.to_string().as_bytes())
    }
    fn visit_u64<E: de::Error>(self, value: u64) -> Result<(), E> {
        self.keep(value.to_string().as_bytes())
    }
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<(), E> {
        self.keep(value.to_string().as_bytes())
    }
    fn visit_str<E: de::Error>(self, value: &str) -> Result<(), E> {
        self.keep(value.as_bytes())
    }
    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        self.keep(b"")
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<(), A::Error> {
        let depth_left = self.deeper()?;
        let length = self.collected.path.len();
        for index in 0_usize.. {
            self.collected.path.extend_from_slice(format!(".array_{index}").as_bytes());
            let seed = ValueSeed { collected: &mut *self.collected, depth_left };
            let more = sequence.next_element_seed(seed)?;
            self.collected.path.truncate(length);
            if more.is_none() {
                break;
            }
        }
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let depth_left = self.deeper()?;
        let length = self.collected.path.len();
        while let Some(name) = map.next_key::<String>()? {
            self.collected.path.push(b'.');
            self.collected.path.extend_from_slice(name.as_bytes());
            map.next_value_seed(ValueSeed { collected: &mut *self.collected, depth_left })?;
            self.collected.path.truncate(length);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(body: &str) -> Vec<String> {
        let found = arguments(body.as_bytes(), 128, 1000);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        found.arguments.iter().map(|(name, value)| format!("{}={}", text(name), text(value))).collect()
    }

    #[test]
    fn values_are_named_by_their_path() {
        assert_eq!(
            shown("{\"a\":{\"b\":[1,\"x\",{\"c\":null}]},\"d\":true}"),
            ["json.a.b.array_0=1", "json.a.b.array_1=x", "json.a.b.array_2.c=", "json.d=true"]
        );
        assert_eq!(shown("7"), ["json=7"]);
    }

    #[test]
    fn malformed_and_deep_documents_are_errors() {
        assert!(arguments(b"{\"a\":", 10, 10).error.is_some());
        assert!(arguments(b"[1] x", 10, 10).error.is_some());
        let deep = "[".repeat(20) + &"]".repeat(20);
        assert!(arguments(deep.as_bytes(), 19, 10).error.is_some_and(|error| error.contains("depth")));
        assert!(arguments(deep.as_bytes(), 20, 10).error.is_none());
    }

    #[test]
    fn the_limit_of_arguments_cuts_a_document_that_has_more() {
        let found = arguments(b"[1,2,3]", 10, 2);
        assert_eq!((found.arguments.len(), found.error, found.is_cut), (2, None, true));
        let found = arguments(b"[1,2]", 10, 2);
        assert_eq!((found.arguments.len(), found.error, found.is_cut), (2, None, false));
        assert!(arguments(b"[1,2] x", 10, 2).error.is_some(), "an error behind the last argument");
    }
}
