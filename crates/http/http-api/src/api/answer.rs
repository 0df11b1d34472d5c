//! Answers and errors of the API.

use serde_json::{Map, Value, json};

/// Where clients read about errors.
const HREF: &str = "https://nginx.org/en/docs/http/ngx_http_api_module.html";

/// No body with 204.
#[derive(Debug)]
pub struct ApiResponse {
    pub status: u16,
    pub body: Option<String>,
    /// Version of the list of servers, for `If-Match`.
    pub etag: Option<String>,
}

impl ApiResponse {
    pub fn json(value: &Value) -> ApiResponse {
        ApiResponse::of(200, value)
    }
    pub fn of(status: u16, value: &Value) -> ApiResponse {
        ApiResponse { status, body: Some(value.to_string()), etag: None }
    }
    /// 204: a change without a result.
    pub fn done() -> ApiResponse {
        ApiResponse { status: 204, body: None, etag: None }
    }
    pub fn created() -> ApiResponse {
        ApiResponse { status: 201, body: None, etag: None }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub struct ApiError {
    pub status: u16,
    /// nginx's word for the error, which clients compare.
    pub code: &'static str,
    pub text: String,
    /// Complaints about a configuration.
    pub more: Option<Value>,
}

impl ApiError {
    pub fn new(status: u16, code: &'static str, text: impl Into<String>) -> ApiError {
        ApiError { status, code, text: text.into(), more: None }
    }
    pub fn foreign() -> ApiError {
        ApiError::new(403, "ForeignOrigin", "a page of another site may not change anything")
    }
    pub fn internal(text: impl Into<String>) -> ApiError {
        ApiError::new(500, "InternalError", text)
    }
    /// Only changes of servers and of the configuration can be rehearsed. The others must not happen instead.
    pub fn no_rehearsal() -> ApiError {
        ApiError::new(400, "DryRunUnsupported", "this change cannot be tried with \"dry_run\"")
    }
    pub fn no_path() -> ApiError {
        ApiError::new(404, "PathNotFound", "path not found")
    }
    pub fn method() -> ApiError {
        ApiError::new(405, "MethodDisabled", "method disabled")
    }
    /// The form depends on the version.
    pub fn answer(&self, version: u32, request_id: &str) -> ApiResponse {
        let mut body = json!({
            "error": { "status": self.status, "text": self.text, "code": self.code },
            "request_id": request_id,
            "href": HREF,
        });
        if let (Some(more), Value::Object(body)) = (&self.more, &mut body) {
            body.insert("complaints".into(), more.clone());
        }
        if let (1..=3, Value::Object(body)) = (version, &mut body) {
            body.insert("path".into(), json!(""));
            body.insert("method".into(), json!(""));
        }
        ApiResponse::of(self.status, &body)
    }
}

/// Keeps the fields that `fields` names.
pub fn keep_fields(value: Value, fields: Option<&str>) -> Value {
    let (Value::Object(all), Some(fields)) = (value, fields) else { return Value::Null };
    let wanted: Vec<&str> = fields.split(',').map(str::trim).collect();
    Value::Object(all.into_iter().filter(|(name, _)| wanted.contains(&name.as_str())).collect())
}

/// Keeps the fields that `fields` names, or all.
pub fn select_fields(value: Value, fields: Option<&str>) -> Value {
    match fields {
        None => value,
        Some(_) => keep_fields(value, fields),
    }
}

/// Returns a collection: objects by name, each with the fields that `fields` names; names alone if it is empty.
pub fn select_collection(all: Map<String, Value>, fields: Option<&str>) -> Value {
    match fields {
        None => Value::Object(all),
        Some("") => all.keys().cloned().map(Value::String).collect(),
        Some(_) => Value::Object(all.into_iter().map(|(name, value)| (name, keep_fields(value, fields))).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_objects() {
        let refused = ApiError::no_path();
        let text = refused.answer(9, "abc").body.expect("a body");
        assert!(text.contains("\"code\":\"PathNotFound\"") && text.contains("\"request_id\":\"abc\""), "{text}");
        assert!(!text.contains("\"method\""), "{text}");
        assert!(refused.answer(3, "").body.expect("a body").contains("\"method\":\"\""));
    }

    #[test]
    fn fields_select() {
        let all = json!({"a": {"x": 1, "y": 2}, "b": {"x": 3, "y": 4}});
        let Value::Object(map) = all.clone() else { panic!("an object") };
        assert_eq!(select_collection(map.clone(), None), all);
        assert_eq!(select_collection(map.clone(), Some("")), json!(["a", "b"]));
        assert_eq!(select_collection(map, Some("y,z")), json!({"a": {"y": 2}, "b": {"y": 4}}));
        assert_eq!(select_fields(json!({"x": 1, "y": 2}), Some("x")), json!({"x": 1}));
    }
}
