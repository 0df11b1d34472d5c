//! Parser of the `error_log` directive, for every context.

use crate::error_log::{ErrorLog, LineFormat, LogTarget, Severity, Sink};
use crate::log_file::LogFiles;
use crate::ring::Ring;
use crate::syslog::SyslogTarget;
use conf_schema::value::{parse_size, word_at};
use conf_schema::{Cx, Directive, Problem, ValueKind};
use std::sync::Arc;

/// Minimum buffer size: one complete line.
const MEMORY_BYTES_MIN: u64 = 2048 + 64;

/// All `error_log` lines of one block. They replace those of the enclosing block, as in nginx.
#[derive(Clone, Debug, Default)]
pub struct ErrorLogLines(pub Vec<LogTarget>);

impl ErrorLogLines {
    pub fn log(&self) -> Arc<ErrorLog> {
        Arc::new(ErrorLog::new(self.0.clone()))
    }
}

/// The main context's log, in `Cx`, for blocks without an `error_log`; set between check and planning.
#[derive(Clone, Debug, Default)]
pub struct MainLog(pub Arc<ErrorLog>);

/// An `error_log` writes to the standard error stream, which must not be redirected to a file.
pub static STDERR_USED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

impl ValueKind for ErrorLogLines {
    const SYNTAX: &'static str = "file [level] [json | format=text|json]";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let place = word_at(d, 0)?.text();
        // An empty name is the standard error stream, as in nginx.
        let sink = if place == "stderr" || place.is_empty() {
            STDERR_USED.store(true, std::sync::atomic::Ordering::Relaxed);
            Sink::Stderr
        } else if let Some(parameters) = place.strip_prefix("syslog:") {
            Sink::Syslog(Arc::new(SyslogTarget::parse(parameters).map_err(|text| Problem::says(text).at(0))?))
        } else if let Some(size) = place.strip_prefix("memory:") {
            match parse_size(size.as_bytes()).filter(|size| (MEMORY_BYTES_MIN..=1 << 32).contains(size)) {
                Some(size) => Sink::Memory(Arc::new(Ring::new(size as usize))),
                None => return Err(Problem::says(format!("invalid buffer size \"{size}\"")).at(0)),
            }
        } else {
            let path = cx.full_name(&place);
            Sink::File(cx.get::<LogFiles>().file(&path))
        };
        let (level, format) = options(d)?;
        Ok(ErrorLogLines(vec![LogTarget { level, sink, format }]))
    }
    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

/// nginx's levels for parts of its debug messages; all mean `debug`.
const DEBUG_PARTS: [&str; 7] =
    ["debug_core", "debug_alloc", "debug_mutex", "debug_event", "debug_http", "debug_mail", "debug_stream"];

/// Reads the words after the place.
fn options(d: &Directive) -> Result<(Severity, LineFormat), Problem> {
    let mut chosen = None;
    let mut level = None;
    let mut parts = false;
    for (index, word) in d.args.iter().enumerate().skip(1) {
        let word = word.text();
        let format = if word == "json" { Some("") } else { word.strip_prefix("format=") };
        if let Some(format) = format {
            if chosen.is_some() {
                return Err(Problem::says("duplicate log format").at(index));
            }
            chosen = Some(match format {
                _ if word == "json" => LineFormat::NginxJson,
                "json" => LineFormat::Json,
                "text" => LineFormat::Text,
                other => {
                    let problem = Problem::says(format!("unknown log format \"{other}\"")).at(index);
                    return Err(problem.hint("\"format=json\" or \"format=text\""));
                }
            });
        } else if let Some(named) = Severity::ALL.iter().find(|l| l.name() == word) {
            if level.is_some() {
                return Err(Problem::says(format!("duplicate log level \"{word}\"")).at(index));
            }
            level = Some(*named);
        } else if DEBUG_PARTS.contains(&&*word) && (parts || level.is_none()) {
            (level, parts) = (Some(Severity::Debug), true);
        } else {
            let names: Vec<&str> = Severity::ALL.iter().map(|l| l.name()).collect();
            let hint = match conf_schema::suggest::nearest_word(&word, names.iter().copied()) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => format!("one of: {}", names.join(", ")),
            };
            return Err(Problem::says(format!("invalid log level \"{word}\"")).at(index).hint(hint));
        }
    }
    Ok((level.unwrap_or(Severity::Error), chosen.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use conf_schema::table::synthetic_directive;

    fn read(text: &str) -> Result<ErrorLogLines, String> {
        let mut cx = Cx::default();
        cx.prefix = "/p".into();
        ErrorLogLines::parse(&mut cx, &synthetic_directive("error_log", text)).map_err(|p| format!("{:?}", p.words))
    }

    #[test]
    fn targets_and_levels() {
        let one = |text: &str| {
            let target = read(text).expect(text).0.remove(0);
            (target.level, format!("{:?}", target.sink))
        };
        let (level, sink) = one("logs/error.log");
        assert!(level == Severity::Error && sink.contains("/p/logs/error.log"));
        assert_eq!(one("stderr info"), (Severity::Info, "Stderr".into()));
        assert_eq!(one("memory:32k debug"), (Severity::Debug, "Memory(memory:32768)".into()));
        assert_eq!(one("/x debug_http debug_event").0, Severity::Debug);
        let format = |text: &str| read(text).expect(text).0.remove(0).format;
        for text in ["/x format=json", "/x format=json warn", "stderr info format=json"] {
            assert_eq!(format(text), LineFormat::Json, "{text}");
        }
        for text in ["/x json", "/x warn json", "stderr json info"] {
            assert_eq!(format(text), LineFormat::NginxJson, "{text}");
        }
        assert!(format("/x info") == LineFormat::Text && format("/x format=text") == LineFormat::Text);
        assert!(one("syslog:server=127.0.0.1:5140,tag=t warn").1.contains("tag=t"));
    }

    #[test]
    fn complaints_in_nginx_words() {
        for (text, want) in [
            ("/x loud", "invalid log level \\\"loud\\\""),
            ("/x info warn", "duplicate log level \\\"warn\\\""),
            ("/x info debug_http", "invalid log level \\\"debug_http\\\""),
            ("/x format=xml", "unknown log format \\\"xml\\\""),
            ("/x format=json format=json", "duplicate log format"),
            ("/x json format=json", "duplicate log format"),
            ("/x info json json", "duplicate log format"),
            ("memory:1", "invalid buffer size \\\"1\\\""),
            ("syslog:", "unknown syslog parameter"),
        ] {
            let got = read(text).expect_err(text);
            assert!(got.contains(want), "{text}: {got}");
        }
    }
}
