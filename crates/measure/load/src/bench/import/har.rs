//! HAR 1.2 recordings of browsers.

use serde_json::Value;

use super::steps::{ImportedSession, ImportedStatus, ImportedStep, escape_braces, split_url};
use super::{list_of, text_of};

/// Fields that the engine or the connection sets, or that belong to the recorded user.
const OWN_FIELDS: [&str; 8] =
    ["host", "content-length", "connection", "cookie", "transfer-encoding", "te", "upgrade", "keep-alive"];
/// Pauses below this number of seconds are the browser's own.
const PAUSE_MIN: f64 = 0.2;

/// Reads the requests to `server`, or to the server of the first one. Pauses between the end of one response and the
/// next request become `think`; requests that overlapped are parallel, except with a page itself, whose answer names what
/// is loaded for it.
pub fn import_har(value: &Value, server: Option<&str>) -> Result<ImportedSession, String> {
    let entries = value.pointer("/log/entries").and_then(Value::as_array).ok_or("`log.entries` is not a list")?;
    let mut session = ImportedSession { origin: server.unwrap_or("").to_ascii_lowercase(), ..Default::default() };
    session.origin = session.origin.trim_end_matches('/').to_string();
    let (mut cookies, mut end): (u64, Option<f64>) = (0, None);
    // End of the requests that the next one may be parallel to.
    let mut group_end: Option<f64> = None;
    for (number, entry) in entries.iter().enumerate() {
        let place = format!("log.entries[{number}]");
        let request = entry.get("request").ok_or_else(|| format!("{place}: `request` is missing"))?;
        let url = request.get("url").and_then(Value::as_str);
        let url = url.ok_or_else(|| format!("{place}.request: `url` is missing or not a text"))?;
        let method = request.get("method").and_then(Value::as_str);
        let method = method.ok_or_else(|| format!("{place}.request: `method` is missing or not a text"))?;
        let (origin, path) = match split_url(url) {
            Ok(parts) => parts,
            Err(why) => {
                session.leave_out(&place, why);
                continue;
            }
        };
        if session.origin.is_empty() {
            session.origin.clone_from(&origin);
        }
        if origin != session.origin {
            let why = format!("{method} {url}: another server than {} (--server selects one)", session.origin);
            session.leave_out(&place, why);
            continue;
        }
        let status = entry.pointer("/response/status").and_then(Value::as_u64).unwrap_or(0);
        if method == "CONNECT" || status == 101 {
            session.leave_out(&place, format!("{method} {url}: a tunnel or an upgraded connection"));
            continue;
        }
        let Some(body) = body(request, &place, &mut session) else { continue };
        let mut headers = Vec::new();
        for field in list_of(request, "headers") {
            let (name, value) = (text_of(field, "name"), text_of(field, "value"));
            let lower = name.to_ascii_lowercase();
            cookies += u64::from(lower == "cookie");
            if !name.starts_with(':') && !OWN_FIELDS.contains(&lower.as_str()) {
                headers.push(format!("{name}: {}", escape_braces(value)));
            }
        }
        let started = text_of(entry, "startedDateTime");
        let begin = started_seconds(started);
        if begin.is_none() && !started.is_empty() {
            session.leave_out(&place, format!("the pause before it: `{started}` is no date and time"));
        }
        if let (Some(begin), Some(end), Some(last)) = (begin, end, session.steps.last_mut())
            && begin - end >= PAUSE_MIN
        {
            last.think = format!("{}ms", ((begin - end) * 1e3).round());
        }
        let time = entry.get("time").and_then(Value::as_f64).unwrap_or(0.0).max(0.0);
        let own_end = begin.map(|begin| begin + time / 1e3);
        end = own_end.map(|own| own.max(end.unwrap_or(0.0)));
        let parallel = begin.zip(group_end).is_some_and(|(begin, end)| begin < end) && !session.steps.is_empty();
        let is_page =
            entry.pointer("/response/content").is_some_and(|c| text_of(c, "mimeType").starts_with("text/html"));
        group_end = match () {
            () if is_page => None,
            () if parallel => own_end.map(|own| own.max(group_end.unwrap_or(0.0))),
            () => own_end,
        };
        let expected = u16::try_from(status).ok().filter(|status| (100..600).contains(status));
        let step = ImportedStep {
            name: format!("{method} {path}"),
            method: if method == "GET" { String::new() } else { method.into() },
            path: escape_braces(&path),
            headers,
            body,
            think: String::new(),
            parallel: parallel && !is_page,
            // A cache of the recording browser answered 304 where a user without one gets 200.
            expect: ImportedStatus {
                status: match expected {
                    Some(304) => vec![200, 304],
                    status => status.into_iter().collect(),
                },
            },
        };
        session.push_step(&place, step);
    }
    if cookies > 0 {
        session.leave_out("log.entries", format!(
            "the recorded cookies of {cookies} requests: `tidegate bench --cookies` keeps those that the server sets"
        ));
    }
    Ok(session)
}

/// Body of a request; `None` if it cannot be sent again, which is noted.
fn body(request: &Value, place: &str, session: &mut ImportedSession) -> Option<String> {
    let Some(data) = request.get("postData").filter(|data| data.is_object()) else { return Some(String::new()) };
    if data.get("encoding").is_some() || data.get("_encoding").is_some() {
        session.leave_out(place, "its body is not text");
        return None;
    }
    let text = text_of(data, "text");
    let parameters = list_of(data, "params");
    if !text.is_empty() || parameters.is_empty() {
        return Some(escape_braces(text));
    }
    if !text_of(data, "mimeType").starts_with("application/x-www-form-urlencoded") {
        session.leave_out(place, "its body has parts (multipart) that the recording does not have as text");
        return None;
    }
    // HAR has names and values as they were sent.
    let pair = |p: &Value| format!("{}={}", text_of(p, "name"), text_of(p, "value"));
    Some(escape_braces(&parameters.iter().map(pair).collect::<Vec<_>>().join("&")))
}

/// Seconds since 1970 of an ISO 8601 date and time.
fn started_seconds(text: &str) -> Option<f64> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || !(1970..=9999).contains(&year) {
        return None;
    }
    let rest = text.get(19..)?;
    let digits = rest.strip_prefix('.').map_or(0, |r| r.bytes().take_while(u8::is_ascii_digit).count());
    let fraction: f64 = if digits > 0 { format!("0.{}", rest.get(1..=digits)?).parse().ok()? } else { 0.0 };
    let zone = rest.get(if digits > 0 { digits + 1 } else { 0 }..)?;
    let offset = match zone.as_bytes() {
        [] | b"Z" => 0,
        [sign @ (b'+' | b'-'), ..] => {
            let minutes =
                zone.get(1..3)?.parse::<i64>().ok()? * 60 + zone.get(zone.len() - 2..)?.parse::<i64>().ok()?;
            if *sign == b'+' { minutes } else { -minutes }
        }
        _ => return None,
    };
    let days = crate::engine::cookies::calendar_days(year, month, day);
    Some((days * 86_400 + hour * 3600 + (minute - offset) * 60 + second) as f64 + fraction)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn entry(start: &str, method: &str, url: &str) -> Value {
        json!({ "startedDateTime": start, "time": 100.0, "response": { "status": 200 }, "request": {
            "method": method, "url": url, "headers": [
                { "name": "Accept", "value": "text/{{html}}" }, { "name": ":path", "value": "/" }, { "name": "Cookie", "value": "a=1" }
            ] } })
    }

    #[test]
    fn a_recording_becomes_steps_with_pauses() {
        let mut post = entry("2026-11-29T08:00:02.600+02:00", "POST", "https://shop.example/cart?x={{1}}&y=${b}");
        post["request"]["postData"] =
            json!({ "mimeType": "application/json", "text": "{\"a\":{{}},\"b\":\"${{b}}\"}" });
        let har = json!({ "log": { "entries": [
            entry("2026-11-29T06:00:00.500Z", "GET", "https://shop.example/"),
            post,
            entry("2026-11-29T06:00:02.610Z", "GET", "https://cdn.example/x.js"),
            entry("2026-11-29T06:00:02.650Z", "GET", "data:text/plain,x"),
            entry("2026-11-29T06:00:02.650Z", "GET", "https://shop.example:443/last"),
        ] } });
        let session = import_har(&har, None).unwrap();
        let paths: Vec<_> = session.steps.iter().map(|step| step.path.as_str()).collect();
        assert_eq!(paths, ["/", "/cart?x={{lbrace}}1}}&y={{dollar}}{b}", "/last"]);
        assert_eq!((session.steps[0].think.as_str(), session.steps[1].think.as_str()), ("2000ms", ""));
        assert_eq!(session.steps[0].headers, ["Accept: text/{{lbrace}}html}}"]);
        assert_eq!(session.steps[1].body, "{\"a\":{{lbrace}}}},\"b\":\"{{dollar}}{{lbrace}}b}}\"}");
        assert_eq!(session.left_out.len(), 3);
        assert!(session.left_out[0].starts_with("log.entries[2]: GET https://cdn.example/x.js: another server"));
        assert!(session.left_out[2].contains("cookies of 3 requests"), "{:?}", session.left_out);
        let text = session.session_text("a\nb.har").unwrap();
        assert!(text.starts_with("# Imported from a b.har: tidegate bench https://shop.example --session FILE\n"));
        let steps = crate::bench::requests::parse_session(&text).unwrap();
        assert_eq!((steps.len(), crate::bench::data::refuse_columns(&steps, &[], "FILE")), (3, Ok(())), "{text}");
        assert_eq!(import_har(&har, Some("https://CDN.example/")).unwrap().steps.len(), 1);
    }

    #[test]
    fn requests_that_overlapped_are_parallel_but_not_to_their_page() {
        let mut page = entry("2026-11-29T06:00:00.000Z", "GET", "https://shop.example/");
        page["response"]["content"] = json!({ "mimeType": "text/html; charset=utf-8" });
        let mut entries = vec![page.clone()];
        for (at, path) in [("00.050", "a"), ("00.060", "b"), ("00.155", "c"), ("00.270", "d")] {
            entries.push(entry(&format!("2026-11-29T06:00:{at}Z"), "GET", &format!("https://shop.example/{path}")));
        }
        let session = import_har(&json!({ "log": { "entries": entries } }), None).unwrap();
        let parallel: Vec<bool> = session.steps.iter().map(|step| step.parallel).collect();
        assert_eq!(parallel, [false, false, true, true, false]);
        let text = session.session_text("x").unwrap();
        assert_eq!(text.matches("parallel = true").count(), 2, "{text}");
    }

    #[test]
    fn wrong_entries_are_told_with_their_place() {
        let why = import_har(&json!({ "log": { "entries": [{ "request": {} }] } }), None).unwrap_err();
        assert_eq!(why, "log.entries[0].request: `url` is missing or not a text");
        assert!(import_har(&json!({ "log": { "entries": 5 } }), None).is_err());
        assert_eq!(started_seconds("1970-01-01T00:00:01.5Z"), Some(1.5));
        assert_eq!(started_seconds("1970-01-01T01:00:01+01:00"), Some(1.0));
        for wrong in
            ["", "yesterday", "1970-01-01", "1970-13-01T00:00:00Z", "1970-01-01T00:00:00X", "1970-01-01T00:00:00é"]
        {
            assert_eq!(started_seconds(wrong), None, "{wrong}");
        }
    }
}
