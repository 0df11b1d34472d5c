//! `tidegate bench import`: recordings (HAR), descriptions (OpenAPI 3) and collections (Postman) as files for
//! `--session`. Every format becomes a [`ImportedSession`]; [`steps`] writes it.

mod har;
mod openapi;
mod postman;
mod steps;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;
use serde_json::Value;
use serde_saphyr::{budget, options};

use self::steps::ImportedSession;
use super::requests::read_text;
use super::{OK, USAGE, write_result};

/// Nested values of a document, and its values, at most.
const DEPTH_MAX: usize = 128;
const NODES_MAX: usize = 5_000_000;
/// Steps of a session file at most.
const STEPS_MAX: usize = 10_000;

/// Turns a HAR recording, an OpenAPI 3 document (JSON or YAML) or a Postman collection (2.0, 2.1) into a file for
/// `tidegate bench URL --session FILE`. Omitted parts are reported on the standard error, each with its place and the reason.
#[derive(Parser)]
#[command(name = "tidegate bench import")]
struct ImportArguments {
    /// File to read.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// File to write [default: the standard output].
    #[arg(short, long, value_name = "FILE", default_value = "-", hide_default_value = true)]
    output: PathBuf,
    /// Server whose requests are taken, such as `https://shop.example` [default: that of the first request].
    #[arg(long, value_name = "ORIGIN")]
    server: Option<String>,
}

/// The options, for help texts.
pub fn import_command() -> clap::Command {
    <ImportArguments as clap::CommandFactory>::command()
}

/// Runs `tidegate bench import`; returns the exit status.
pub fn main(args: Vec<OsString>) -> i32 {
    let args = std::iter::once(OsString::from("tidegate bench import")).chain(args);
    let args = match ImportArguments::try_parse_from(args) {
        Ok(args) => args,
        Err(e) => return crate::print_usage(&e),
    };
    let name = args.file.display().to_string();
    let read = read_text(&args.file)
        .and_then(|text| import_text(&text, args.server.as_deref()).map_err(|why| format!("{name}: {why}")));
    let session = match read {
        Ok(session) => session,
        Err(message) => {
            eprintln!("tidegate bench import: {message}");
            return USAGE;
        }
    };
    for left in &session.left_out {
        eprintln!("{name}: {left}");
    }
    if session.steps.is_empty() {
        eprintln!("tidegate bench import: {name}: there is no request that a session could send");
        return USAGE;
    }
    let file = args.file.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned());
    match session.session_text(&file).and_then(|text| write_result(&args.output, &text)) {
        Ok(()) => OK,
        Err(message) => {
            eprintln!("tidegate bench import: {message}");
            USAGE
        }
    }
}

/// Reads a document of any supported format. `server` selects the origin of a recording. Fails with the place and the
/// reason.
fn import_text(text: &str, server: Option<&str>) -> Result<ImportedSession, String> {
    let value = read_document(text)?;
    let has = |path: &str| value.pointer(path).is_some();
    let schema = value.pointer("/info/schema").and_then(Value::as_str).unwrap_or_default();
    let mut session = match () {
        () if has("/log/entries") => har::import_har(&value, server)?,
        () if has("/openapi") => openapi::import_openapi(&value)?,
        () if schema.contains("getpostman.com") || (has("/item") && has("/info")) => postman::import_postman(&value)?,
        () if has("/swagger") => {
            return Err("`swagger`: version 2 of OpenAPI is not read: convert the document to OpenAPI 3".into());
        }
        () if has("/log") => return Err("`log`: a HAR recording has a list `entries` in it".into()),
        () if has("/collection") => {
            return Err("`collection`: export the collection itself from Postman (Collection v2.1)".into());
        }
        () => {
            return Err("neither a HAR recording (log.entries), an OpenAPI 3 document (openapi) nor a Postman collection (info.schema)"
                .into());
        }
    };
    if session.steps.len() > STEPS_MAX {
        let more = session.steps.len() - STEPS_MAX;
        session.steps.truncate(STEPS_MAX);
        session.left_out.push(format!("{more} requests beyond the first {STEPS_MAX}"));
    }
    Ok(session)
}

fn read_document(text: &str) -> Result<Value, String> {
    if text.trim_start().starts_with(['{', '[']) {
        return serde_json::from_str(text).map_err(|e| figures::errors::plain_message(&e.to_string()));
    }
    let budget = budget! { max_depth: DEPTH_MAX, max_nodes: NODES_MAX, max_events: 2 * NODES_MAX };
    let options = options! { budget: budget, with_snippet: false };
    let read = serde_saphyr::from_str_with_options::<Value>(text, options);
    read.map_err(|e| e.to_string().lines().next().unwrap_or_default().to_string())
}

/// A member of an object that is a text; empty without one.
fn text_of<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Members of a list; none without one.
fn list_of<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_documents_are_told_by_their_kind() {
        for (text, words) in [
            ("{\"swagger\": \"2.0\"}", "convert the document to OpenAPI 3"),
            ("{\"log\": {}}", "list `entries`"),
            ("{\"a\": 1}", "neither a HAR recording"),
            ("{\"a\": ", "line 1 column"),
            ("a: [1", "line"),
            ("plain", "neither"),
            ("", ""),
        ] {
            let why = import_text(text, None).map(|session| session.steps.len()).unwrap_err();
            assert!(why.contains(words), "{text}: {why}");
        }
    }

    #[test]
    fn deep_documents_are_refused() {
        for text in ["[".repeat(100_000), "a:\n".to_string() + &"- ".repeat(5_000) + "x"] {
            assert!(import_text(&text, None).is_err());
        }
    }
}
