//! OpenAPI 3.0 and 3.1 documents: one request for each operation, with the document's examples.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::steps::{ImportedSession, ImportedStatus, ImportedStep, escape_braces, escape_form, split_url};
use super::{list_of, text_of};

/// Methods of operations, in the order of the specification.
const METHODS: [&str; 7] = ["get", "put", "post", "delete", "options", "head", "patch"];
/// Other members of a path; those that begin with `x-` are extensions.
const PATH_FIELDS: [&str; 5] = ["$ref", "summary", "description", "servers", "parameters"];
/// Depth of generated examples, and of references.
const DEPTH_MAX: usize = 12;

struct ApiDescription<'a> {
    document: &'a Value,
    session: ImportedSession,
    /// References of the current path or operation that lead nowhere.
    missing: RefCell<BTreeSet<String>>,
}

/// Reads the operations. Parameters and bodies take their examples, defaults or first choices; a parameter without one
/// becomes `${name}`, for `--data`, and a body is made from its schema.
pub fn import_openapi(document: &Value) -> Result<ImportedSession, String> {
    let version = document.get("openapi").map_or(String::new(), |v| v.as_str().map_or(v.to_string(), str::to_string));
    if !version.starts_with('3') {
        return Err(format!("`openapi: {version}`: only version 3 is read"));
    }
    let paths = document.get("paths").and_then(Value::as_object).ok_or("`paths` is missing or not a table")?;
    let mut description = ApiDescription { document, session: ImportedSession::default(), missing: RefCell::default() };
    let base = description.base();
    for (path, item) in paths {
        if !path.starts_with('/') {
            if !path.starts_with("x-") {
                description.session.leave_out(&format!("paths.{path}"), "a path begins with `/`");
            }
            continue;
        }
        let item = description.resolved(item).clone();
        description.note_missing(&format!("paths.{path}"));
        for method in METHODS {
            if let Some(operation) = item.get(method) {
                let place = format!("paths.{path}.{method}");
                description.operation(&place, method, &format!("{base}{path}"), &item, operation);
                description.note_missing(&place);
            }
        }
        for name in item.as_object().into_iter().flat_map(Map::keys) {
            let is_known = METHODS.contains(&name.as_str()) || PATH_FIELDS.contains(&name.as_str()) || name == "trace";
            if !is_known && !name.starts_with("x-") {
                let methods = METHODS.join(", ");
                let why = format!("`{name}` is no method of OpenAPI 3, which are {methods} and trace");
                description.session.leave_out(&format!("paths.{path}.{name}"), why);
            }
        }
        if item.get("trace").is_some() {
            description.session.leave_out(&format!("paths.{path}.trace"), "TRACE is no load");
        }
    }
    Ok(description.session)
}

impl<'a> ApiDescription<'a> {
    /// Path of the first server, whose origin becomes the session's.
    fn base(&mut self) -> String {
        let Some(server) = list_of(self.document, "servers").first() else { return String::new() };
        let mut url = text_of(server, "url").to_string();
        for (name, variable) in server.get("variables").and_then(Value::as_object).into_iter().flatten() {
            url = url.replace(&format!("{{{name}}}"), text_of(variable, "default"));
        }
        if url.starts_with('/') {
            return url.trim_end_matches('/').to_string();
        }
        match split_url(&url) {
            Ok((origin, path)) => {
                self.session.origin = origin;
                path.trim_end_matches('/').to_string()
            }
            Err(why) => {
                self.session.leave_out("servers[0].url", why);
                String::new()
            }
        }
    }

    /// Notes the references that led nowhere since the last call.
    fn note_missing(&mut self, place: &str) {
        for reference in self.missing.take() {
            let is_own = reference.starts_with('#');
            let why = if is_own { "does not exist, or leads back to itself" } else { "is in another document" };
            self.session.leave_out(place, format!("the $ref `{reference}`, which {why}"));
        }
    }

    /// Follows `$ref` within the document. An unknown reference is null, and noted in `missing`.
    fn resolved<'v>(&self, value: &'v Value) -> &'v Value
    where
        'a: 'v,
    {
        let mut next = value;
        for _ in 0..DEPTH_MAX {
            let Some(reference) = next.get("$ref").and_then(Value::as_str) else { return next };
            let found = reference.strip_prefix('#').and_then(|pointer| self.document.pointer(pointer));
            let Some(found) = found else {
                self.missing.borrow_mut().insert(reference.to_string());
                return &Value::Null;
            };
            next = found;
        }
        self.missing.borrow_mut().extend(value.get("$ref").and_then(Value::as_str).map(str::to_string));
        &Value::Null
    }

    fn operation(&mut self, place: &str, method: &str, path: &str, item: &Value, operation: &Value) {
        let placeholders = path.split('{').skip(1).filter_map(|rest| Some(rest.split_once('}')?.0));
        let placeholders: Vec<String> = placeholders.map(ToString::to_string).collect();
        let (mut path, mut query, mut headers) = (escape_braces(path), Vec::new(), Vec::new());
        let own = list_of(operation, "parameters");
        let key = |p: &Value| (text_of(p, "name").to_string(), text_of(p, "in").to_string());
        let own: Vec<Value> = own.iter().map(|p| self.resolved(p).clone()).collect();
        let common = list_of(item, "parameters").iter().map(|p| self.resolved(p).clone());
        let common: Vec<Value> = common.filter(|p| !own.iter().any(|o| key(o) == key(p))).collect();
        for parameter in common.iter().chain(&own) {
            let (name, kind) = (text_of(parameter, "name"), text_of(parameter, "in"));
            let example = self.parameter(parameter);
            let is_required = parameter.get("required").and_then(Value::as_bool).unwrap_or(kind == "path");
            if kind == "cookie" {
                self.session.leave_out(place, format!("the cookie `{name}`: use --cookies, or -H 'Cookie: ...'"));
                continue;
            }
            if example.is_none() && !is_required {
                if !name.is_empty() {
                    self.session.leave_out(place, format!("the optional parameter `{name}`, which has no example"));
                }
                continue;
            }
            let value = match example {
                Some(value) if kind == "header" => escape_braces(&value),
                Some(value) => escape_form(&escape_braces(&value)),
                None => self.session.unknown_value(name),
            };
            match kind {
                "path" => path = path.replace(&format!("{{{name}}}"), &value),
                "query" => query.push(format!("{}={value}", escape_form(name))),
                "header" => headers.push(format!("{name}: {value}")),
                other => self.session.leave_out(place, format!("the parameter `{name}`, which is in `{other}`")),
            }
        }
        // Replaces placeholders that no parameter declares: there is no example for them.
        for name in placeholders {
            let place = format!("{{{name}}}");
            if path.replace(&format!("${place}"), "").contains(&place) {
                path = path.replace(&place, &self.session.unknown_value(&name));
            }
        }
        if !query.is_empty() {
            path = format!("{path}?{}", query.join("&"));
        }
        let Some((kind, body)) = self.body(place, operation) else { return };
        if !kind.is_empty() {
            headers.push(format!("Content-Type: {kind}"));
        }
        for name in self.security(operation) {
            self.session.leave_out(place, format!("the credentials of `{name}`: add them with -H"));
        }
        let statuses = operation.get("responses").and_then(Value::as_object);
        let statuses = statuses.into_iter().flatten().filter_map(|(status, _)| status.parse::<u16>().ok());
        let status: Vec<u16> = statuses.filter(|status| (200..400).contains(status)).collect();
        let step = ImportedStep {
            name: match text_of(operation, "operationId") {
                "" => format!("{} {path}", method.to_uppercase()),
                id => id.into(),
            },
            method: if method == "get" { String::new() } else { method.to_uppercase() },
            path,
            headers,
            body,
            think: String::new(),
            parallel: false,
            expect: ImportedStatus { status },
        };
        self.session.push_step(place, step);
    }

    fn security(&self, operation: &Value) -> Vec<String> {
        let list = operation.get("security").or(self.document.get("security"));
        let first = list.and_then(Value::as_array).and_then(|list| list.first()).and_then(Value::as_object);
        first.into_iter().flatten().map(|(name, _)| name.clone()).collect()
    }

    /// Value of a parameter, as text.
    fn parameter(&self, parameter: &Value) -> Option<String> {
        let schema = self.resolved(parameter.get("schema").unwrap_or(&Value::Null));
        let value = self.named_example(parameter).or_else(|| self.schema_example(schema))?;
        match value {
            Value::String(text) => Some(text),
            Value::Array(list) => Some(list.iter().map(plain).collect::<Vec<_>>().join(",")),
            Value::Null | Value::Object(_) => None,
            other => Some(other.to_string()),
        }
    }

    fn named_example(&self, value: &Value) -> Option<Value> {
        let named = value.get("examples").and_then(Value::as_object).and_then(|all| all.values().next());
        let named = named.and_then(|example| self.resolved(example).get("value"));
        value.get("example").or(named).cloned()
    }

    fn schema_example(&self, schema: &Value) -> Option<Value> {
        let first = |name: &str| list_of(schema, name).first();
        schema
            .get("example")
            .or_else(|| first("examples"))
            .or(schema.get("const"))
            .or(schema.get("default"))
            .or_else(|| first("enum"))
            .cloned()
    }

    /// Type and text of a request's body, both empty without one; `None` if it cannot be written, which is noted.
    fn body(&mut self, place: &str, operation: &Value) -> Option<(String, String)> {
        let request = self.resolved(operation.get("requestBody").unwrap_or(&Value::Null)).clone();
        let Some(content) = request.get("content").and_then(Value::as_object).filter(|c| !c.is_empty()) else {
            return Some(Default::default());
        };
        let is_json =
            |kind: &&String| kind.split(';').next().is_some_and(|k| k.ends_with("/json") || k.ends_with("+json"));
        let is_form = |kind: &&String| kind.starts_with("application/x-www-form-urlencoded");
        let kind = content.keys().find(is_json).or_else(|| content.keys().find(is_form));
        let kind = kind.or_else(|| content.keys().find(|kind| kind.starts_with("text/")));
        let Some((kind, media)) = kind.and_then(|kind| Some((kind.clone(), content.get(kind)?))) else {
            let kinds = content.keys().cloned().collect::<Vec<_>>().join(", ");
            self.session.leave_out(place, format!("its body is neither JSON, a form nor text: {kinds}"));
            return None;
        };
        let schema = media.get("schema").unwrap_or(&Value::Null);
        let value = self.named_example(media).unwrap_or_else(|| self.made(schema, 0));
        let text = match &value {
            Value::String(text) if !is_json(&&kind) => text.clone(),
            Value::Object(members) if is_form(&&kind) => {
                let pair =
                    |(name, value): (&String, &Value)| format!("{}={}", escape_form(name), escape_form(&plain(value)));
                members.iter().map(pair).collect::<Vec<_>>().join("&")
            }
            other => other.to_string(),
        };
        Some((kind, escape_braces(&text)))
    }

    /// A value that a schema allows, as far as its types say.
    fn made(&self, schema: &Value, depth: usize) -> Value {
        let schema = self.resolved(schema);
        if let Some(example) = self.schema_example(schema) {
            return example;
        }
        if depth >= DEPTH_MAX {
            return Value::Null;
        }
        for choice in ["oneOf", "anyOf"] {
            if let Some(first) = list_of(schema, choice).first() {
                return self.made(first, depth + 1);
            }
        }
        let mut members = Map::new();
        for part in list_of(schema, "allOf") {
            if let Value::Object(own) = self.made(part, depth + 1) {
                members.extend(own);
            }
        }
        let kind = match schema.get("type") {
            // Several types: the first that is not null (JSON Schema 2020-12).
            Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null"),
            kind => kind.and_then(Value::as_str),
        };
        let number = |name: &str| schema.get(name).and_then(Value::as_f64);
        match kind.unwrap_or(if schema.get("properties").is_some() || !members.is_empty() { "object" } else { "" }) {
            "object" => {
                let required: Vec<&str> = list_of(schema, "required").iter().filter_map(Value::as_str).collect();
                for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
                    let is_read_only = self.resolved(property).get("readOnly").and_then(Value::as_bool) == Some(true);
                    if !is_read_only && (required.is_empty() || required.contains(&name.as_str())) {
                        members.insert(name.clone(), self.made(property, depth + 1));
                    }
                }
                Value::Object(members)
            }
            "array" => json!([self.made(schema.get("items").unwrap_or(&Value::Null), depth + 1)]),
            "integer" => json!(number("minimum").map_or(1, |least| least.ceil() as i64)),
            "number" => json!(number("minimum").unwrap_or(1.0)),
            "boolean" => json!(true),
            "string" => {
                let text = match text_of(schema, "format") {
                    "date" => "2026-01-01",
                    "date-time" => "2026-01-01T00:00:00Z",
                    "uuid" => "00000000-0000-4000-8000-000000000000",
                    "email" => "user@example.org",
                    "uri" | "url" => "https://example.org/",
                    "ipv4" => "192.0.2.1",
                    _ => "text",
                };
                let least = schema.get("minLength").and_then(Value::as_u64).unwrap_or(0).min(4096) as usize;
                json!(format!("{text:x<least$}"))
            }
            _ => Value::Null,
        }
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

#[cfg(test)]
mod tests {
    use super::super::import_text;
    use super::DEPTH_MAX;

    const SHOP: &str = r##"
openapi: 3.0.3
servers: [{ url: "https://{host}/v2/", variables: { host: { default: shop.example } } }]
security: [{ token: [] }]
paths:
  /items/{id}:
    parameters: [{ name: id, in: path, required: true, schema: { type: integer } }]
    get:
      operationId: item
      parameters:
        - { name: fields, in: query, example: "a b" }
        - { name: page, in: query, schema: { type: integer } }
        - { $ref: "#/components/parameters/Trace" }
      responses: { "200": {}, "404": {}, default: {} }
    trace: {}
  /orders:
    post:
      security: []
      requestBody: { content: { application/json: { schema: { $ref: "#/components/schemas/Order" } } } }
      responses: { "201": {} }
    put:
      requestBody: { content: { image/png: {} } }
components:
  parameters: { Trace: { name: X-Trace, in: header, required: true, schema: { enum: [full, none] } } }
  schemas:
    Order:
      type: object
      required: [item, count, part]
      properties:
        item: { type: string, minLength: 6 }
        count: { type: integer, minimum: 2 }
        note: { type: string }
        part: { $ref: "#/components/schemas/Order" }
"##;

    #[test]
    fn operations_become_steps_with_examples() {
        let session = import_text(SHOP, None).unwrap();
        assert_eq!(session.origin, "https://shop.example");
        let step = &session.steps[0];
        assert_eq!((step.name.as_str(), step.path.as_str()), ("item", "/v2/items/${id}?fields=a%20b"));
        assert_eq!(
            (step.headers.as_slice(), step.expect.status.as_slice()),
            (&["X-Trace: full".to_string()][..], &[200][..])
        );
        let order = &session.steps[1];
        assert_eq!((order.method.as_str(), order.expect.status.as_slice()), ("POST", &[201][..]));
        // A schema within itself ends.
        let depth = order.body.matches("\"count\":2").count();
        assert!(depth > 1 && depth <= DEPTH_MAX && order.body.contains("\"item\":\"textxx\""), "{}", order.body);
        assert_eq!((session.steps.len(), session.unknown.as_slice()), (2, &["id".to_string()][..]));
        let left = session.left_out.join("\n");
        for words in [
            "paths./items/{id}.get: the credentials of `token`",
            ".trace: TRACE",
            "neither JSON, a form nor text: image/png",
        ] {
            assert!(left.contains(words), "{left}");
        }
        let text = session.session_text("shop.yaml").unwrap();
        assert_eq!(crate::bench::requests::parse_session(&text).unwrap().len(), 2, "{text}");
    }

    #[test]
    fn placeholders_without_a_parameter_have_unknown_values() {
        let text = r##"{ "openapi": "3.0.0", "paths": { "/a/{id}/{of}": { "delete": { "parameters": [{ "name": "id",
            "in": "path", "example": 7 }] } } } }"##;
        let session = import_text(text, None).unwrap();
        assert_eq!(session.steps[0].path, "/a/7/${of}");
        assert_eq!(session.unknown, ["of"]);
    }

    #[test]
    fn references_that_lead_nowhere_or_round_end() {
        let text = r##"{ "openapi": "3.1.0", "paths": { "/a": { "$ref": "#/components/x" }, "/b": { "post": { "requestBody":
            { "$ref": "#/paths/~1b/post/requestBody" } } } } }"##;
        let session = import_text(text, None).unwrap();
        assert_eq!((session.steps.len(), session.steps[0].path.as_str()), (1, "/b"));
        assert_eq!(
            session.left_out,
            [
                "paths./a: the $ref `#/components/x`, which does not exist, or leads back to itself",
                "paths./b.post: the $ref `#/paths/~1b/post/requestBody`, which does not exist, or leads back to itself"
            ]
        );
        for (text, words) in
            [("{\"openapi\": \"2\"}", "only version 3"), ("{\"openapi\": \"3.0.0\"}", "`paths` is missing")]
        {
            assert!(import_text(text, None).unwrap_err().contains(words));
        }
    }

    #[test]
    fn everything_left_out_is_reported_with_its_place() {
        let text = r##"{ "openapi": "3.0.0", "paths": { "a": {}, "x-own": {}, "/a": { "summary": "s", "x-own": 1, "gett": {}, "post": {
            "parameters": [{ "name": "sid", "in": "cookie" }, { "name": "page", "in": "query" }],
            "requestBody": { "content": { "application/json": { "schema": { "properties": {
                "one": { "$ref": "#/components/schemas/Missing" }, "two": { "$ref": "other.yaml#/Two" } } } } } } } } } }"##;
        let session = import_text(text, None).unwrap();
        assert_eq!(session.steps[0].body, "{\"one\":null,\"two\":null}");
        let mut left = session.left_out;
        left.sort();
        assert_eq!(
            left,
            [
                "paths./a.gett: `gett` is no method of OpenAPI 3, which are get, put, post, delete, options, head, patch and trace",
                "paths./a.post: the $ref `#/components/schemas/Missing`, which does not exist, or leads back to itself",
                "paths./a.post: the $ref `other.yaml#/Two`, which is in another document",
                "paths./a.post: the cookie `sid`: use --cookies, or -H 'Cookie: ...'",
                "paths./a.post: the optional parameter `page`, which has no example",
                "paths.a: a path begins with `/`",
            ]
        );
    }
}
