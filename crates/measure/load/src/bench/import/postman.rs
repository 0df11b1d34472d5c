//! Postman collections, format 2.0 and 2.1.

use std::collections::BTreeMap;

use base64::Engine as _;
use serde_json::Value;

use super::steps::{ImportedSession, ImportedStep, escape_braces, escape_form, split_url};
use super::{list_of, text_of};

/// Nested folders of a collection at most, and variables within variables.
const DEPTH_MAX: usize = 32;

struct PostmanCollection {
    variables: BTreeMap<String, String>,
    session: ImportedSession,
}

/// Reads the requests of all folders in their order. Variables of the collection are filled in; others become
/// `${name}`, for `--data`.
pub fn import_postman(value: &Value) -> Result<ImportedSession, String> {
    if value.get("item").and_then(Value::as_array).is_none() {
        return Err("`item` is not a list".into());
    }
    let mut collection = PostmanCollection { variables: BTreeMap::new(), session: ImportedSession::default() };
    for variable in list_of(value, "variable") {
        let name = match text_of(variable, "key") {
            "" => text_of(variable, "id"),
            key => key,
        };
        if let Some(value) = variable.get("value").filter(|value| !value.is_null()) {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_string);
            collection.variables.insert(name.to_string(), value);
        }
    }
    collection.folder(value, "", value.get("auth"), 0);
    Ok(collection.session)
}

impl PostmanCollection {
    fn folder(&mut self, folder: &Value, place: &str, auth: Option<&Value>, depth: usize) {
        let before = if place.is_empty() { String::new() } else { format!("{place}.") };
        self.scripts(folder, if place.is_empty() { "collection" } else { place });
        for (number, item) in list_of(folder, "item").iter().enumerate() {
            let place = format!("{before}item[{number}]");
            let own = item.get("auth").filter(|auth| !auth.is_null()).or(auth);
            if item.get("item").is_some() {
                match depth < DEPTH_MAX {
                    true => self.folder(item, &place, own, depth + 1),
                    false => self.session.leave_out(&place, format!("more than {DEPTH_MAX} folders within each other")),
                }
                continue;
            }
            self.scripts(item, &place);
            match item.get("request") {
                Some(request) => self.request(request, text_of(item, "name"), &place, own),
                None => self.session.leave_out(&place, "it has no request"),
            }
        }
    }

    fn scripts(&mut self, item: &Value, place: &str) {
        for event in list_of(item, "event") {
            let script = event.get("script").and_then(|script| script.get("exec"));
            let lines = script.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            if lines.iter().any(|line| line.as_str().is_some_and(|line| !line.trim().is_empty())) {
                let name = text_of(event, "listen");
                self.session
                    .leave_out(place, format!("the script `{name}`: write `extract` and `expect` into the step"));
            }
        }
    }

    fn request(&mut self, request: &Value, name: &str, place: &str, auth: Option<&Value>) {
        let none = Value::Null;
        let (url, method) = match request {
            Value::String(url) => (self.fill(url), "GET"),
            _ => (self.url(request.get("url").unwrap_or(&none)), text_of(request, "method")),
        };
        let own = request.get("auth").filter(|auth| !auth.is_null()).or(auth);
        // The server may be a variable without a value: then the command line names it.
        let (origin, path) = match url.strip_prefix("${").and_then(|rest| rest.split_once('}')) {
            Some((base, rest)) if !url.contains("://") => {
                self.session.unknown.retain(|known| known != base);
                self.session.leave_out(
                    place,
                    format!("`{{{{{base}}}}}` has no value: the URL of the command line stands for it"),
                );
                (String::new(), rest.to_string())
            }
            _ => match split_url(if url.contains("://") { url.clone() } else { format!("http://{url}") }.as_str()) {
                Ok(parts) => parts,
                Err(why) => return self.session.leave_out(place, why),
            },
        };
        if self.session.origin.is_empty() {
            self.session.origin.clone_from(&origin);
        }
        if !origin.is_empty() && origin != self.session.origin {
            let why = format!("{method} {url}: another server than {}", self.session.origin);
            return self.session.leave_out(place, why);
        }
        let mut step = ImportedStep {
            name: if name.is_empty() { format!("{method} {path}") } else { name.into() },
            method: if method == "GET" { String::new() } else { method.into() },
            path: if path.starts_with('/') { path } else { format!("/{path}") },
            ..ImportedStep::default()
        };
        for field in list_of(request, "header") {
            let lower = text_of(field, "key").to_ascii_lowercase();
            if field.get("disabled").and_then(Value::as_bool) != Some(true)
                && lower != "content-length"
                && lower != "host"
            {
                let value = self.fill(text_of(field, "value"));
                step.headers.push(format!("{}: {value}", text_of(field, "key")));
            }
        }
        if let Some(auth) = own {
            self.authorization(auth, place, &mut step);
        }
        if self.body(request.get("body").unwrap_or(&none), place, &mut step) {
            self.session.push_step(place, step);
        }
    }

    fn url(&mut self, url: &Value) -> String {
        if let Some(text) = url.as_str() {
            return self.fill(text);
        }
        let raw = text_of(url, "raw");
        let mut text = self.fill(raw);
        // `:name` in the path is a variable of the request.
        for variable in list_of(url, "variable") {
            let name = format!(":{}", text_of(variable, "key"));
            let value = match text_of(variable, "value") {
                "" => self.session.unknown_value(text_of(variable, "key")),
                value => self.fill(value),
            };
            let whole = |rest: &str| rest.is_empty() || rest.starts_with(['/', '?', '#']);
            if let Some(at) =
                text.match_indices(&format!("/{name}")).map(|(at, _)| at + 1).find(|at| whole(&text[at + name.len()..]))
            {
                text.replace_range(at..at + name.len(), &value);
            }
        }
        text
    }

    fn authorization(&mut self, auth: &Value, place: &str, step: &mut ImportedStep) {
        let kind = text_of(auth, "type");
        let parameters = auth.get(kind).cloned().unwrap_or_default();
        let mut parameter = |name: &str| {
            let found = match &parameters {
                Value::Array(list) => list.iter().find(|p| text_of(p, "key") == name).map(|p| text_of(p, "value")),
                other => other.get(name).and_then(Value::as_str),
            };
            let text = found.unwrap_or_default().to_string();
            self.fill(&text)
        };
        match kind {
            "noauth" | "" => {}
            "bearer" => step.headers.push(format!("Authorization: Bearer {}", parameter("token"))),
            "basic" => {
                let login = format!("{}:{}", parameter("username"), parameter("password"));
                if login.contains("${") || login.contains("{{") {
                    let field = self.session.unknown_value("basic");
                    step.headers.push(format!("Authorization: Basic {field}"));
                } else {
                    let login = base64::engine::general_purpose::STANDARD.encode(login);
                    step.headers.push(format!("Authorization: Basic {login}"));
                }
            }
            "apikey" if parameter("in") != "query" => {
                step.headers.push(format!("{}: {}", parameter("key"), parameter("value")));
            }
            other => self.session.leave_out(place, format!("its authorization `{other}`: add a header with -H")),
        }
    }

    /// Writes the body; false if it cannot be sent, which is noted.
    fn body(&mut self, body: &Value, place: &str, step: &mut ImportedStep) -> bool {
        let mut kind = "";
        match text_of(body, "mode") {
            "raw" => {
                step.body = self.fill(text_of(body, "raw"));
                if body.pointer("/options/raw/language").and_then(Value::as_str) == Some("json") {
                    kind = "application/json";
                }
            }
            "urlencoded" => {
                let pairs = list_of(body, "urlencoded");
                let pairs: Vec<String> = pairs
                    .iter()
                    .filter(|pair| pair.get("disabled").and_then(Value::as_bool) != Some(true))
                    .map(|pair| {
                        let value = self.fill(text_of(pair, "value"));
                        format!("{}={}", escape_form(text_of(pair, "key")), escape_form(&value))
                    })
                    .collect();
                (step.body, kind) = (pairs.join("&"), "application/x-www-form-urlencoded");
            }
            "graphql" => {
                let query = body.pointer("/graphql/query").and_then(Value::as_str).unwrap_or_default();
                let variables = body.pointer("/graphql/variables").and_then(Value::as_str).unwrap_or_default();
                let variables = serde_json::from_str(variables).unwrap_or(Value::Null);
                let whole = serde_json::json!({ "query": query, "variables": variables }).to_string();
                (step.body, kind) = (self.fill(&whole), "application/json");
            }
            "" => {}
            other => {
                self.session
                    .leave_out(place, format!("its body `{other}`, which needs files: the request is not imported"));
                return false;
            }
        }
        let typed = step.headers.iter().any(|line| line.to_ascii_lowercase().starts_with("content-type:"));
        if !kind.is_empty() && !typed {
            step.headers.push(format!("Content-Type: {kind}"));
        }
        true
    }

    /// Fills in the collection's variables; those without a value become columns of data.
    fn fill(&mut self, text: &str) -> String {
        self.fill_within(text, 0)
    }

    fn fill_within(&mut self, text: &str, depth: usize) -> String {
        let (mut out, mut rest) = (String::new(), text);
        while let Some(at) = rest.find("{{") {
            let Some(end) = rest[at..].find("}}").map(|n| at + n) else { break };
            let name = rest[at + 2..end].trim();
            out.push_str(&escape_braces(&rest[..at]));
            let written = match (name, self.variables.get(name).cloned()) {
                ("$guid" | "$randomUUID", _) => "{{hex:8}}-{{hex:4}}-4{{hex:3}}-8{{hex:3}}-{{hex:12}}".into(),
                ("$randomInt", _) => "{{rand:0:1000}}".into(),
                (_, Some(value)) if depth < DEPTH_MAX => self.fill_within(&value, depth + 1),
                _ if name.is_empty() || name.contains(['{', '"', '\n']) => escape_braces(&rest[at..end + 2]),
                _ => self.session.unknown_value(name.trim_start_matches('$')),
            };
            out.push_str(&written);
            rest = &rest[end + 2..];
        }
        out + &escape_braces(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn folders_variables_and_bodies_become_steps() {
        let collection = json!({
            "info": { "schema": "https://schema.getpostman.com/json/collection/v2.1.0/collection.json" },
            "variable": [{ "key": "base", "value": "https://{{host}}/v1" }, { "key": "host", "value": "api.example" }],
            "auth": { "type": "bearer", "bearer": [{ "key": "token", "value": "{{token}}" }] },
            "item": [{ "name": "users", "item": [
                { "name": "create", "request": { "method": "POST", "url": { "raw": "{{base}}/users/:id?q=1",
                    "variable": [{ "key": "id", "value": "7" }] }, "body": { "mode": "raw", "raw": "{\"n\": \"{{$guid}}\"}",
                    "options": { "raw": { "language": "json" } } } } },
                { "name": "form", "request": { "method": "POST", "url": "{{base}}/f", "auth": { "type": "noauth" }, "body": {
                    "mode": "urlencoded", "urlencoded": [{ "key": "a b", "value": "c&d" }, { "key": "x", "disabled": true }] } } }
            ] },
            { "name": "file", "request": { "method": "PUT", "url": "{{base}}/g", "body": { "mode": "file" } } },
            { "name": "other", "request": "https://other.example/" },
            { "name": "scripted", "event": [{ "listen": "test", "script": { "exec": ["pm.test()"] } }], "request": "https://api.example/z" }]
        });
        let session = import_postman(&collection).unwrap();
        let steps = &session.steps;
        assert_eq!(session.origin, "https://api.example");
        assert_eq!(steps.iter().map(|s| s.path.as_str()).collect::<Vec<_>>(), ["/v1/users/7?q=1", "/v1/f", "/z"]);
        assert_eq!(steps[0].headers, ["Authorization: Bearer ${token}", "Content-Type: application/json"]);
        assert!(steps[0].body.starts_with("{\"n\": \"{{hex:8}}-"));
        assert_eq!((steps[1].body.as_str(), steps[1].headers.len()), ("a%20b=c%26d", 1));
        assert_eq!((session.unknown.as_slice(), session.left_out.len()), (&["token".to_string()][..], 3));
        assert!(session.left_out[0].starts_with("item[1]: its body `file`"), "{:?}", session.left_out);
        assert!(session.left_out[2].starts_with("item[3]: the script `test`"));
        let text = session.session_text("c.json").unwrap();
        assert!(text.contains("# Values to give with --data FILE: token\n"), "{text}");
        assert_eq!(crate::bench::requests::parse_session(&text).unwrap().len(), 3);
    }

    #[test]
    fn a_base_without_a_value_is_the_command_lines() {
        let collection =
            json!({ "info": {}, "item": [{ "request": { "method": "GET", "url": { "raw": "{{base}}/a" } } }] });
        let session = import_postman(&collection).unwrap();
        assert_eq!((session.steps[0].path.as_str(), session.unknown.len()), ("/a", 0));
        assert!(session.left_out[0].contains("`{{base}}` has no value"), "{:?}", session.left_out);
        let endless = json!({ "info": {}, "variable": [{ "key": "a", "value": "{{a}}" }], "item": [{ "request": "http://h/{{a}}" }] });
        assert_eq!(import_postman(&endless).unwrap().unknown, ["a"]);
        assert!(import_postman(&json!({ "item": {} })).is_err());
    }
}
