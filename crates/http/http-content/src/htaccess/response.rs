//! Response settings of directories: fields, types, expiry (mod_headers, mod_mime, mod_expires).

use super::HtaccessState;
use super::request::{MEDIA, find_variable};
use htaccess::Settings;
use htaccess::fields::{HeaderAction, HeaderRule};
use http_engine::{Request, Str};
use observe::Severity;

/// Octets of all values that `Header` directives set in a response.
const FIELD_BYTES_MAX: usize = 64 * 1024;

pub struct RuleFields;

pub fn media_type(settings: &Settings, name: &[u8]) -> Option<String> {
    if let Some(forced) = &settings.force_type {
        return Some(forced.clone());
    }
    let extension = extension(name)?;
    settings.types.iter().find(|(own, _)| *own == extension).map(|(_, media)| media.clone())
}

fn extension(name: &[u8]) -> Option<String> {
    let dot = name.iter().rposition(|byte| *byte == b'.')?;
    Some(String::from_utf8_lossy(name.get(dot + 1..)?).to_ascii_lowercase())
}

pub fn set_fields(r: &mut Request) {
    let Some(state) = r.ext::<HtaccessState>() else { return };
    let (settings, env, modified) = (state.settings.clone(), state.env.clone(), state.modified);
    let vary = state.vary.clone();
    // Responses of applications and of error documents count as success, whatever their status.
    let success = r.progress.error_status() == 0 || state.is_page;
    if success {
        for name in vary {
            append(r, "Vary", name.as_bytes(), true);
        }
        if settings.etag == Some(false) {
            r.out.set_etag(Str::default());
        }
        if let Some(media) = find_variable(&env, MEDIA) {
            r.out.set_content_type(media);
        }
        charset(r, &settings);
    }
    if r.progress.error_status() < 400 {
        expires(r, &settings, modified);
    }
    let mut left = FIELD_BYTES_MAX;
    for rule in settings.headers.iter().filter(|rule| success || rule.always) {
        let wanted = rule.env.as_ref().is_none_or(|name| match name.strip_prefix('!') {
            Some(name) => find_variable(&env, name).is_none(),
            None => find_variable(&env, name).is_some(),
        });
        if wanted {
            let Some(value) = value(r, &rule.value, &env, left) else {
                r.log(Severity::Error, format_args!("Header directives set more than {FIELD_BYTES_MAX} bytes"));
                return;
            };
            left -= value.len();
            field(r, rule, &value);
        }
    }
}

fn charset(r: &mut Request, settings: &Settings) {
    let media = r.out.content_type().to_ascii_lowercase();
    if media.contains(&b';') || !r.out.charset().is_empty() {
        return;
    }
    let name = r.target.path().rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec();
    let by_name = extension(&name).and_then(|own| settings.charsets.iter().find(|(known, _)| *known == own));
    // An application's response is independent of its file's name, and so is a forced type.
    if let Some((_, charset)) = by_name.filter(|_| r.loc().content.is_none() && settings.force_type.is_none()) {
        r.out.set_charset(charset.clone().into_bytes());
    } else if let Some(Some(charset)) = &settings.default_charset
        && matches!(media.as_slice(), b"text/html" | b"text/plain")
    {
        r.out.set_charset(charset.clone().into_bytes());
    }
}

/// `Expires` and `Cache-Control: max-age`.
fn expires(r: &mut Request, settings: &Settings, modified: Option<i64>) {
    if settings.expires_active != Some(true) || r.out.field(b"Expires").is_some() {
        return;
    }
    let media = String::from_utf8_lossy(r.out.content_type()).to_ascii_lowercase();
    let media = media.split(';').next().unwrap_or_default().trim().to_string();
    let major = format!("{}/*", media.split('/').next().unwrap_or_default());
    let by_type = |wanted: &str| settings.expires_by_type.iter().find(|(own, _)| own == wanted).map(|(_, e)| *e);
    let Some(rule) = by_type(&media).or_else(|| by_type(&major)).or(settings.expires_default) else { return };
    let now = base::clock::unix_seconds() as i64;
    let from = if rule.from_modification { modified.unwrap_or(now) } else { now };
    let until = from.saturating_add(rule.seconds);
    let age = until.saturating_sub(now).max(0);
    r.out.add("Expires", http_engine::head_out::date_text(until).to_vec());
    append(r, "Cache-Control", format!("max-age={age}").as_bytes(), true);
}

/// Expands a field's value; `None` if it is longer than `most`.
fn value(r: &Request, text: &str, env: &Vec<(String, Option<Vec<u8>>)>, most: usize) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('%').filter(|_| out.len() <= most) {
        out.extend_from_slice(rest.get(..at).unwrap_or_default().as_bytes());
        rest = rest.get(at..).unwrap_or_default();
        if let Some(after) = rest.strip_prefix("%%") {
            out.push(b'%');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix("%{").and_then(|inner| inner.split_once("}e")) {
            out.extend(find_variable(env, name).unwrap_or_else(|| b"(null)".to_vec()));
            rest = after;
        } else if let Some(after) = rest.strip_prefix("%t") {
            out.extend_from_slice(format!("t={}", base::clock::unix_micros_at(r.accounting.started())).as_bytes());
            rest = after;
        } else if let Some(after) = rest.strip_prefix("%D") {
            out.extend_from_slice(format!("D={}", base::clock::now().micros_since(r.accounting.started())).as_bytes());
            rest = after;
        } else {
            out.push(b'%');
            rest = rest.get(1..).unwrap_or_default();
        }
    }
    out.extend_from_slice(rest.as_bytes());
    (out.len() <= most).then_some(out)
}

fn field(r: &mut Request, rule: &HeaderRule, value: &[u8]) {
    let name = rule.name.as_str();
    if name.eq_ignore_ascii_case("Content-Type") {
        match rule.action {
            HeaderAction::Unset => r.out.set_content_type(Str::default()),
            HeaderAction::SetIfEmpty if !r.out.content_type().is_empty() => {}
            _ => {
                r.out.set_content_type(value.to_vec());
                r.out.set_charset(Str::default());
            }
        }
        return;
    }
    // Stored separately; a replacement joins the ordinary fields.
    let replaces = matches!(rule.action, HeaderAction::Unset | HeaderAction::Set);
    if replaces && name.eq_ignore_ascii_case("ETag") {
        r.out.set_etag(Str::default());
    } else if replaces && name.eq_ignore_ascii_case("Last-Modified") {
        r.out.drop_last_modified();
    } else if replaces && name.eq_ignore_ascii_case("Server") {
        // Apache sets it itself, whatever a file says.
        return;
    }
    match rule.action {
        HeaderAction::Unset => r.out.remove(name.as_bytes()),
        HeaderAction::Set => {
            r.out.remove(name.as_bytes());
            r.out.add(name.as_bytes().to_vec(), value.to_vec());
        }
        HeaderAction::SetIfEmpty => {
            if r.out.field(name.as_bytes()).is_none() {
                r.out.add(name.as_bytes().to_vec(), value.to_vec());
            }
        }
        HeaderAction::Add => r.out.add(name.as_bytes().to_vec(), value.to_vec()),
        HeaderAction::Append => append(r, name, value, false),
        HeaderAction::Merge => append(r, name, value, true),
    }
}

/// Appends to the list of the first field with a name; `once`: unless present there. Further fields stay.
fn append(r: &mut Request, name: &str, value: &[u8], once: bool) {
    let first = r.out.fields_mut().iter_mut().find(|field| field.name.bytes().eq_ignore_ascii_case(name.as_bytes()));
    let Some(first) = first else {
        r.out.add(name.as_bytes().to_vec(), value.to_vec());
        return;
    };
    let old = first.value.bytes();
    let there = old.split(|byte| *byte == b',').any(|part| part.trim_ascii() == value);
    if !(once && there) {
        first.value = [old, b", ", value].concat().into();
    }
}
