//! access_log, log_format, open_log_file_cache (nginx: `ngx_http_log_module`, `ngx_stream_log_module`).
//! Lines go to a buffer per thread and file, without locks; buffers are written when full, after their flush time, on
//! reopening, reload, and at the thread's end. An unwritable log never disturbs a request.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

pub mod by_path;
mod format;
mod line;
mod sink;
#[cfg(test)]
mod tests;

use by_path::CacheConf;
use conf_schema::value::{parse_decimal, parse_msec, parse_size};
use conf_schema::{Cx, Directive, Problem, ValueKind};
use format::{Formats, LineFormat};
use observe::{LogFiles, SyslogTarget};
use sink::{FileSink, LogBuffer};
use std::cell::RefCell;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::Arc;
use variables::template::is_true;
use variables::{AreaTypes, Session, Template};

/// A `log_format` line; formats are found by name.
pub struct LogFormat<A>(PhantomData<fn(A)>);

impl<A> Clone for LogFormat<A> {
    fn clone(&self) -> Self {
        LogFormat(PhantomData)
    }
}

impl<A: AreaTypes> ValueKind for LogFormat<A> {
    const SYNTAX: &'static str = "name [escape=default | json | none] string ...";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let Some((name, words)) = d.args.split_first() else { return Err(Problem::invalid()) };
        let is_predefined = A::LOG_FORMAT.is_some_and(|(own, _)| own.as_bytes() == &*name.bytes);
        if is_predefined || cx.get::<Formats<A>>().find(&name.bytes).is_some_and(|(own, _)| own == name.bytes) {
            let shown = name.text().into_owned();
            return Err(Problem::says(format!("duplicate \"log_format\" name \"{shown}\"")).at(0));
        }
        let format = LineFormat::compile(cx, d, words)?;
        cx.get::<Formats<A>>().add(&name.bytes, format);
        Ok(LogFormat(PhantomData))
    }
}

pub struct AccessLogs<A> {
    logs: Vec<Arc<Log<A>>>,
    off: bool,
}

impl<A> Clone for AccessLogs<A> {
    fn clone(&self) -> Self {
        AccessLogs { logs: self.logs.clone(), off: self.off }
    }
}

struct Log<A> {
    target: LogTarget<A>,
    format: Arc<LineFormat<A>>,
    condition: Option<Template<A>>,
}

enum LogTarget<A> {
    File(Arc<FileSink>),
    Syslog(Arc<SyslogTarget>),
    Path(Template<A>),
}

/// Sinks of a configuration by path: buffering belongs to the file, not to a line.
#[derive(Default)]
struct Sinks(HashMap<PathBuf, Arc<FileSink>>);

impl<A: AreaTypes> ValueKind for AccessLogs<A> {
    const SYNTAX: &'static str =
        "path [format [buffer=size] [gzip[=level]] [flush=time] [if=condition]] | syslog:server=... [format] | off";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let Some(place) = d.args.first() else { return Err(Problem::invalid()) };
        let shown = place.text().into_owned();
        if shown == "off" {
            return match d.args.get(1) {
                None => Ok(AccessLogs { logs: Vec::new(), off: true }),
                Some(word) => Err(Problem::says(format!("invalid parameter \"{}\"", word.text())).at(1)),
            };
        }
        let name = match (d.args.get(1), A::LOG_FORMAT) {
            (Some(word), _) => word.bytes.as_slice(),
            (None, Some((name, _))) => name.as_bytes(),
            (None, None) => return Err(Problem::says("log format is not specified")),
        };
        let is_path = place.bytes.contains(&b'$');
        let mut target = if let Some(parameters) = shown.strip_prefix("syslog:") {
            LogTarget::Syslog(Arc::new(SyslogTarget::parse(parameters).map_err(|text| Problem::says(text).at(0))?))
        } else if is_path {
            let full = cx.full_name(&shown);
            LogTarget::Path(Template::compile(cx, d, full.as_os_str().as_encoded_bytes()).map_err(|p| p.at(0))?)
        } else {
            // An empty name is the standard error stream, as in nginx.
            let path = if shown.is_empty() { PathBuf::from("/dev/stderr") } else { cx.full_name(&shown) };
            let file = cx.get::<LogFiles>().file(&path);
            let sinks = &mut cx.get::<Sinks>().0;
            LogTarget::File(sinks.entry(path).or_insert_with(|| Arc::new(FileSink::new(file))).clone())
        };
        let Some(format) = format::find_format(cx, name) else {
            let shown = String::from_utf8_lossy(name).into_owned();
            return Err(Problem::says(format!("unknown log format \"{shown}\""))
                .at(1)
                .hint("a \"log_format\" must precede the lines that use it"));
        };
        let (buffering, condition) = parameters(cx, d, &shown)?;
        if let Some(buffering) = buffering {
            match &mut target {
                LogTarget::Path(_) => return Err(Problem::says("buffered logs cannot have variables in name")),
                LogTarget::Syslog(_) => return Err(Problem::says("logs to syslog cannot be buffered")),
                LogTarget::File(sink) => {
                    if !sink.buffer(buffering) {
                        return Err(Problem::says(format!(
                            "access_log \"{shown}\" already defined with conflicting parameters"
                        )));
                    }
                }
            }
        }
        Ok(AccessLogs { logs: vec![Arc::new(Log { target, format, condition })], off: false })
    }
    fn append(&mut self, later: Self) {
        self.logs.extend(later.logs);
        self.off |= later.off;
    }
}

fn parameters<A: AreaTypes>(
    cx: &mut Cx,
    d: &Directive,
    shown: &str,
) -> Result<(Option<LogBuffer>, Option<Template<A>>), Problem> {
    let (mut size, mut flush, mut gzip, mut condition) = (None, 0, None, None);
    for (index, word) in d.args.iter().enumerate().skip(2) {
        let text = word.text().into_owned();
        let wrong = |what: &str, value: &str| Problem::says(format!("invalid {what} \"{value}\"")).at(index);
        if let Some(value) = text.strip_prefix("buffer=") {
            let bytes = parse_size(value.as_bytes()).filter(|n| *n > 0);
            size = Some(bytes.ok_or_else(|| wrong("buffer size", value))? as usize);
        } else if let Some(value) = text.strip_prefix("flush=") {
            flush = parse_msec(value.as_bytes()).filter(|n| *n > 0).ok_or_else(|| wrong("flush time", value))?;
        } else if text == "gzip" {
            gzip = Some(1);
            size = size.or(Some(64 * 1024));
        } else if let Some(value) = text.strip_prefix("gzip=") {
            let level = parse_decimal::<u32>(value).filter(|n| (1..=9).contains(n));
            gzip = Some(level.ok_or_else(|| wrong("compression level", value))?);
            size = size.or(Some(64 * 1024));
        } else if let Some(value) = word.bytes.strip_prefix(b"if=") {
            condition = Some(Template::compile(cx, d, value).map_err(|p| p.at(index))?);
        } else {
            return Err(wrong("parameter", &text));
        }
    }
    if flush > 0 && size.is_none() {
        return Err(Problem::says(format!("no buffer is defined for access_log \"{shown}\"")));
    }
    Ok((size.map(|size| LogBuffer { size, flush_ms: flush, gzip }), condition))
}

/// Writes this thread's buffered lines, and closes its cached files.
pub fn flush_thread() {
    sink::flush_thread();
    by_path::close_thread();
}

pub struct LogWriter<A> {
    logs: Vec<Arc<Log<A>>>,
    cache: CacheConf,
}

thread_local! {
    /// Buffer for conditions and unbuffered lines.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl<A: AreaTypes> AccessLogs<A> {
    /// Marks the files as used, which are then opened: a default is not, until a block has it.
    pub fn keep_files(&self, cx: &mut Cx) {
        for log in self.logs.iter().filter(|_| !self.off) {
            if let LogTarget::File(sink) = &log.target {
                cx.get::<LogFiles>().keep(sink.path());
            }
        }
    }
    /// Returns the writer of a block's requests or sessions; `None`: nothing is written.
    pub fn writer(&self, cache: CacheConf) -> Option<LogWriter<A>> {
        (!self.off && !self.logs.is_empty()).then(|| LogWriter { logs: self.logs.clone(), cache })
    }
}

impl<A: AreaTypes> LogWriter<A> {
    pub fn log(&self, s: &mut A::Session) {
        let mut scratch = SCRATCH.take();
        for log in &self.logs {
            scratch.clear();
            if let Some(condition) = &log.condition {
                condition.write(s, &mut scratch);
                if !is_true(&scratch) {
                    continue;
                }
                scratch.clear();
            }
            match &log.target {
                LogTarget::File(sink) => sink.line(s, &log.format, &mut scratch),
                LogTarget::Syslog(target) => {
                    log.format.write(s, &mut scratch);
                    if let Err(e) = target.send(target.severity(), &scratch) {
                        s.error_log().syslog_failed(&e, target);
                    }
                }
                LogTarget::Path(path) => {
                    log.format.write(s, &mut scratch);
                    scratch.push(b'\n');
                    by_path::write_by_path(s, path, &self.cache, &scratch);
                }
            }
        }
        SCRATCH.set(scratch);
    }
}
