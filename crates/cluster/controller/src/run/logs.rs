//! The controller's log: one JSON object a line on the standard error stream.

use std::io::Write as _;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value};

#[derive(Clone, Copy)]
pub enum ControllerLevel {
    Info,
    Warning,
    Error,
}

/// Writes a line with `time`, `level`, `message` and further members. Members without a value are left out.
pub fn write_line(level: ControllerLevel, message: &str, members: &[(&str, &str)]) {
    let line = line(&Timestamp::now().to_string(), level, message, members);
    // A closed stream ends no controller.
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

pub fn info(message: &str, members: &[(&str, &str)]) {
    write_line(ControllerLevel::Info, message, members);
}

pub fn warn(message: &str, members: &[(&str, &str)]) {
    write_line(ControllerLevel::Warning, message, members);
}

pub fn error(message: &str, members: &[(&str, &str)]) {
    write_line(ControllerLevel::Error, message, members);
}

fn line(time: &str, level: ControllerLevel, message: &str, members: &[(&str, &str)]) -> String {
    let level = match level {
        ControllerLevel::Info => "info",
        ControllerLevel::Warning => "warning",
        ControllerLevel::Error => "error",
    };
    let mut object = Map::new();
    for (name, value) in [("time", time), ("level", level), ("message", message)].iter().chain(members) {
        if !value.is_empty() {
            object.insert((*name).into(), Value::from(*value));
        }
    }
    format!("{}\n", Value::Object(object))
}

#[cfg(test)]
mod tests {
    use super::{ControllerLevel, line};

    #[test]
    fn a_line_is_one_json_object() {
        let line =
            line("T", ControllerLevel::Warning, "left\nout", &[("namespace", "shop"), ("name", "api"), ("kind", "")]);
        assert_eq!(line.matches('\n').count(), 1);
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["namespace"], "shop");
        assert_eq!(value["message"], "left\nout");
        assert!(value.get("kind").is_none());
    }
}
