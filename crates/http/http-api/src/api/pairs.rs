//! Key-value zones: `/http/keyvals/`, `/stream/keyvals/`.

use super::answer::{ApiError, ApiResponse, select_collection};
use super::ask::{ApiRequest, Verb};
use crate::shared::status_tree::Side;
use area::keyval::{Addition, Keyval, KeyvalFailure};
use keyval::Refusal;
use serde_json::{Map, Value, json};

fn wrong(text: impl Into<String>) -> ApiError {
    ApiError::new(400, "KeyvalFormatError", text)
}

fn refused(failure: KeyvalFailure) -> ApiError {
    match failure {
        KeyvalFailure::NoTimeout => wrong("keyval timeout is not enabled"),
        KeyvalFailure::Refused(Refusal::Exists) => ApiError::new(409, "KeyvalKeyExists", "key already exists"),
        KeyvalFailure::Refused(Refusal::Missing) => ApiError::new(404, "KeyvalKeyNotFound", "keyval key not found"),
        KeyvalFailure::Refused(Refusal::BadKey) => wrong("invalid key format"),
        KeyvalFailure::Refused(Refusal::TooLarge) => {
            ApiError::new(413, "RequestEntityTooLarge", "the key or the value is too large")
        }
        KeyvalFailure::Refused(Refusal::Full) => ApiError::new(413, "KeyvalOutOfMemory", "the zone has no room left"),
    }
}

/// A value as clients write it: text, or an object with `value` and `expire` in milliseconds.
struct PairValue<'a> {
    value: Option<&'a str>,
    expire: Option<u64>,
}

fn given<'a>(key: &str, value: &'a Value) -> Result<PairValue<'a>, ApiError> {
    let invalid = || wrong(format!("invalid value of \"{key}\""));
    match value {
        Value::String(value) => Ok(PairValue { value: Some(value), expire: None }),
        Value::Object(both) => {
            if let Some(name) = both.keys().find(|name| !matches!(name.as_str(), "value" | "expire")) {
                return Err(wrong(format!("unknown parameter \"{name}\"")));
            }
            let value = both.get("value").map(|value| value.as_str().ok_or_else(invalid)).transpose()?;
            let expire = both.get("expire").map(|ms| ms.as_u64().ok_or_else(invalid)).transpose()?;
            Ok(PairValue { value, expire })
        }
        _ => Err(invalid()),
    }
}

fn pairs(zone: &Keyval) -> Value {
    zone.list().into_iter().map(|pair| (pair.key.to_string(), json!(&*pair.value))).collect::<Map<_, _>>().into()
}

pub fn answer_pairs(ask: &ApiRequest, verb: Verb, side: Side, name: Option<&str>) -> Result<ApiResponse, ApiError> {
    let zones = ask.area(side).keyvals();
    let Some(name) = name else {
        if verb != Verb::Get {
            return Err(ApiError::method());
        }
        let all = zones.iter().map(|zone| (zone.name.clone(), pairs(zone))).collect();
        return Ok(ApiResponse::json(&select_collection(all, ask.fields.as_deref())));
    };
    let missing = || ApiError::new(404, "KeyvalNotFound", "keyval not found");
    let zone = zones.iter().find(|zone| zone.name == name).ok_or_else(missing)?;
    match verb {
        Verb::Get => match &ask.key {
            None => Ok(ApiResponse::json(&pairs(zone))),
            Some(key) => {
                let pair = zone.get(key).ok_or_else(|| refused(Refusal::Missing.into()))?;
                Ok(ApiResponse::json(&json!({ key.as_str(): &*pair.value })))
            }
        },
        Verb::Post => add(zone, &object(ask)?),
        Verb::Patch => change(zone, &object(ask)?),
        Verb::Delete => {
            zone.clear();
            Ok(ApiResponse::done())
        }
        Verb::Put | Verb::Other => Err(ApiError::method()),
    }
}

fn object(ask: &ApiRequest) -> Result<Map<String, Value>, ApiError> {
    match ask.json()? {
        Value::Object(all) if all.is_empty() => Err(wrong("key required")),
        Value::Object(all) => Ok(all),
        _ => Err(wrong("invalid JSON")),
    }
}

fn add(zone: &Keyval, all: &Map<String, Value>) -> Result<ApiResponse, ApiError> {
    let mut additions = Vec::with_capacity(all.len());
    for (key, value) in all {
        let PairValue { value, expire } = given(key, value)?;
        let value = value.ok_or_else(|| wrong(format!("value required for \"{key}\"")))?;
        additions.push(Addition { key, value, lifetime: expire });
    }
    let done = match additions.as_slice() {
        [one] => zone.add(one),
        several => match zone.fill(several) {
            Err(KeyvalFailure::Refused(Refusal::Exists)) => return Err(wrong("only one key can be added")),
            done => done,
        },
    };
    done.map_err(refused)?;
    Ok(ApiResponse::created())
}

fn change(zone: &Keyval, all: &Map<String, Value>) -> Result<ApiResponse, ApiError> {
    let mut pairs = all.iter();
    let (Some((key, value)), None) = (pairs.next(), pairs.next()) else {
        return Err(wrong("only one key can be updated"));
    };
    let done = match value {
        Value::Null => zone.remove(key),
        value => {
            let PairValue { value, expire } = given(key, value)?;
            if value.is_none() && expire.is_none() {
                return Err(wrong(format!("nothing to change for \"{key}\"")));
            }
            zone.change(key, value, expire)
        }
    };
    done.map_err(refused)?;
    Ok(ApiResponse::done())
}
