//! Changes of servers of groups by forms: checked here, made by the API's own code.

use super::super::ask::{ApiRequest, Verb};
use super::super::{origin, run, servers};
use super::html::Tone;
use super::page::{Extra, show_page};
use super::{DashboardState, JSON, content, home, on_thread};
use bytes::Bytes;
use http_engine::{Flow, Request};
use http_upstream::body_store;
use observe::Severity;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Field with the token, for scripts.
const TOKEN_FIELD: &[u8] = b"x-tidegate-token";
const FIELDS_MAX: usize = 32;

/// Status and words.
type Refusal = (u16, String);

fn refusal(status: u16, words: &str) -> Refusal {
    (status, words.to_string())
}

/// Parses `application/x-www-form-urlencoded`.
fn parse(body: &[u8]) -> Option<BTreeMap<String, String>> {
    let plain = |text: &[u8]| {
        let text: Vec<u8> = text.iter().map(|c| if *c == b'+' { b' ' } else { *c }).collect();
        let mut out = Vec::with_capacity(text.len());
        http_engine::path::unescape_path(&text, &mut out);
        String::from_utf8(out).ok()
    };
    let mut fields = BTreeMap::new();
    for pair in body.split(|c| *c == b'&').filter(|pair| !pair.is_empty()) {
        let at = pair.iter().position(|c| *c == b'=')?;
        fields.insert(plain(pair.get(..at)?)?, plain(pair.get(at + 1..)?)?);
        if fields.len() > FIELDS_MAX {
            return None;
        }
    }
    Some(fields)
}

fn check(r: &Request, shared: &DashboardState, fields: &BTreeMap<String, String>) -> Result<(), Refusal> {
    if !origin::is_own(r) {
        return Err(refusal(403, "The change was not sent by this page: its origin is another one, or unknown."));
    }
    let field = r.headers().find(|(name, _)| name.eq_ignore_ascii_case(TOKEN_FIELD));
    let field = field.and_then(|(_, value)| std::str::from_utf8(value).ok());
    let token = field.or(fields.get("token").map(String::as_str)).unwrap_or_default();
    if !origin::is_token(&shared.location, token) {
        return Err(refusal(
            403,
            "The page is older than the process that serves it: load it again, and repeat the change.",
        ));
    }
    Ok(())
}

fn ask(shared: &DashboardState, fields: &BTreeMap<String, String>) -> Result<ApiRequest, Refusal> {
    let text =
        |name: &str| fields.get(name).map(String::as_str).ok_or_else(|| (400, format!("\"{name}\" is missing.")));
    let area = match text("area")? {
        area @ ("http" | "stream") => area,
        _ => return Err(refusal(400, "\"area\" is neither http nor stream.")),
    };
    let group = text("group")?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|c| c.is_ascii_digit());
    if group.is_empty() || group.contains('/') {
        return Err(refusal(400, "\"group\" is no name of a group."));
    }
    let mut body = Map::new();
    for name in ["weight", "max_conns", "max_fails"] {
        if let Some(value) = fields.get(name) {
            let number = value.trim().parse::<i64>().map_err(|_| (400, format!("\"{name}\" is no number.")))?;
            body.insert(name.into(), json!(number));
        }
    }
    for name in ["fail_timeout", "server"] {
        if let Some(value) = fields.get(name) {
            body.insert(name.into(), json!(value.trim()));
        }
    }
    match fields.get("state").map(String::as_str) {
        None => {}
        Some(state @ ("up" | "down" | "drain")) => {
            body.insert("down".into(), json!(state == "down"));
            if area == "http" {
                body.insert("drain".into(), json!(state == "drain"));
            }
        }
        Some(_) => return Err(refusal(400, "\"state\" is none of up, drain and down.")),
    }
    let path = format!("/9/{area}/upstreams/{group}/servers");
    let id = fields.get("id").filter(|id| is_number(id)).ok_or_else(|| refusal(400, "\"id\" is missing."));
    let (verb, path) = match text("action")? {
        "change" => (Verb::Patch, format!("{path}/{}", id?)),
        "remove" if fields.get("sure").is_some_and(|sure| sure == "yes") => (Verb::Delete, format!("{path}/{}", id?)),
        "remove" => return Err(refusal(400, "The removal was not confirmed.")),
        "add" => (Verb::Post, path),
        _ => return Err(refusal(400, "\"action\" is none of change, remove and add.")),
    };
    let generation = text("generation")?;
    let generation = generation.parse().ok().filter(|_| is_number(generation));
    let generation = generation.ok_or_else(|| refusal(400, "\"generation\" is no number."))?;
    Ok(ApiRequest {
        path,
        verb,
        fields: None,
        key: None,
        tag: None,
        dry_run: false,
        if_match: Some(servers::group_etag(generation)),
        foreign: false,
        body: Bytes::from(Value::Object(body).to_string()),
        writes: shared.writes,
        local: String::new(),
        inventory: shared.inventory.clone(),
    })
}

async fn make(r: &mut Request, shared: &Arc<DashboardState>) -> Result<String, Refusal> {
    let body = body_store::read_small(r).await.map_err(|status| match status {
        413 => refusal(413, "The form is too large."),
        status => refusal(status, "The form could not be read."),
    })?;
    let fields = parse(&body).ok_or_else(|| refusal(400, "The form is malformed."))?;
    check(r, shared, &fields)?;
    let ask = ask(shared, &fields)?;
    let field = |name: &str| fields.get(name).cloned().unwrap_or_default();
    let (action, group, what) = (field("action"), field("group"), field("id"));
    let what = if what.is_empty() { field("server") } else { what };
    let state = field("state");
    match on_thread(move || run::run_request(&ask)).await {
        Ok(Ok(_)) => {
            let state = if state.is_empty() { state } else { format!(", {state}") };
            let words = format!("server {what} of upstream \"{group}\": {action}{state}");
            r.log(Severity::Notice, format_args!("dashboard: {words}"));
            Ok(words)
        }
        Ok(Err(refused)) if refused.status == 412 => {
            Err(refusal(412, "The servers have changed since the page showed them: look again, and repeat the change."))
        }
        Ok(Err(refused)) => Err((refused.status, format!("Refused: {}.", refused.text))),
        Err(status) => Err(refusal(status, "Too many requests of the API are waiting.")),
    }
}

/// Makes a change and goes back to the page; scripts, which accept JSON, get an object with `done` or `error`.
pub async fn apply_form(r: &mut Request, shared: Arc<DashboardState>) -> Flow {
    let accept = r.headers().find(|(name, _)| name.eq_ignore_ascii_case(b"accept"));
    let wants_json = accept.is_some_and(|(_, value)| value == JSON.as_bytes());
    match make(r, &shared).await {
        Ok(words) => {
            // The next page shows the change.
            let forgetting = shared.clone();
            let _ = on_thread(move || super::page::forget_sections(&forgetting)).await;
            if wants_json {
                return content(r, 200, JSON, json!({ "done": words }).to_string());
            }
            r.out.set_location([home(&shared.location).as_slice(), b"#upstreams"].concat());
            content(r, 303, super::HTML, "")
        }
        Err((status @ (444 | 499), _)) => Flow::Status(status),
        Err((status, words)) if wants_json => content(r, status, JSON, json!({ "error": words }).to_string()),
        Err((status, words)) => show_page(r, shared, status, Extra::message(Tone::Bad, words)).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_parsed() {
        let fields = parse(b"a=1&b=x+y%26%3c&c=").expect("a form");
        let want = [("a", "1"), ("b", "x y&<"), ("c", "")].map(|(name, value)| (name.to_string(), value.to_string()));
        assert_eq!(fields, BTreeMap::from(want));
        assert!(parse(b"").is_some_and(|fields| fields.is_empty()));
        assert!(parse(b"a").is_none());
        assert!(parse(b"a=%ff").is_none());
        let many: String = (0..=FIELDS_MAX).map(|n| format!("f{n}=&")).collect();
        assert!(parse(many.as_bytes()).is_none());
    }
}
