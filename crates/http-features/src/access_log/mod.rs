//! access_log, log_format, open_log_file_cache (nginx: `ngx_http_log_module`).
//!
//! A format is compiled while the configuration is read; a line is written straight into the thread's buffer. Buffers
//! belong to a thread and a file, so that nothing is locked; they are written out when full, when their time has come,
//! and whenever logs are reopened, the configuration is reloaded or the thread ends. A log that cannot be written never
//! disturbs a request.

mod by_path;
mod format;
mod line;
mod sink;
#[cfg(test)]
mod tests;

use by_path::CacheConf;
use conf_schema::value::{parse_msec, parse_size};
use conf_schema::{Area, Cx, Directive, Problem, Table, Value, directives};
use format::{Format, Formats};
use http_engine::template::truthy;
use http_engine::{BlockPlan, Feature, HttpBuild, Logger, Request, Template};
use observe::{DefaultAccessLog, LogFiles, SyslogTarget};
use sink::{Buffering, FileSink};
use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

directives! {
    /// What the module is told in a block.
    pub struct LogConf from LogInput {
        /// Where requests are logged, in which format, and how writes are buffered; several lines, several logs.
        access_log: Logs = "logs/access.log combined",
        /// Names a format for log lines.
        log_format: Formatted,
        /// Keeps files open whose names have variables.
        open_log_file_cache: CacheConf = "off",
    }
}

/// A `log_format` line; the format itself is found by its name.
#[derive(Clone)]
pub struct Formatted;

impl Value for Formatted {
    const SYNTAX: &'static str = "name [escape=default | json | none] string ...";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let Some((name, words)) = d.args.split_first() else { return Err(Problem::invalid()) };
        if cx.get::<Formats>().find(&name.bytes).is_some_and(|(own, _)| own == name.bytes) {
            let shown = name.text().into_owned();
            return Err(Problem::says(format!("duplicate \"log_format\" name \"{shown}\"")).at(0));
        }
        let format = Format::compile(cx, d, words)?;
        cx.get::<Formats>().add(&name.bytes, format);
        Ok(Formatted)
    }
}

/// The logs of a block.
#[derive(Clone)]
pub struct Logs {
    logs: Vec<Arc<Log>>,
    off: bool,
}

struct Log {
    target: Target,
    format: Arc<Format>,
    condition: Option<Template>,
}

enum Target {
    File(Arc<FileSink>),
    Syslog(Arc<SyslogTarget>),
    Path(Template),
}

/// The sinks of a configuration by path: buffering belongs to the file, whichever line asks for it.
#[derive(Default)]
struct Sinks(HashMap<PathBuf, Arc<FileSink>>);

impl Value for Logs {
    const SYNTAX: &'static str =
        "path [format [buffer=size] [gzip[=level]] [flush=time] [if=condition]] | syslog:server=... [format] | off";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let Some(place) = d.args.first() else { return Err(Problem::invalid()) };
        let shown = place.text().into_owned();
        if shown == "off" {
            return match d.args.get(1) {
                None => Ok(Logs { logs: Vec::new(), off: true }),
                Some(word) => Err(Problem::says(format!("invalid parameter \"{}\"", word.text())).at(1)),
            };
        }
        let name = d.args.get(1).map_or(b"combined".as_slice(), |w| &w.bytes);
        let is_path = place.bytes.contains(&b'$');
        let mut target = if let Some(parameters) = shown.strip_prefix("syslog:") {
            Target::Syslog(Arc::new(SyslogTarget::parse(parameters).map_err(|text| Problem::says(text).at(0))?))
        } else if is_path {
            let full = cx.full_name(&shown);
            Target::Path(Template::compile(cx, d, full.as_os_str().as_encoded_bytes()).map_err(|p| p.at(0))?)
        } else {
            let path = cx.full_name(&shown);
            let file = cx.get::<LogFiles>().file(&path);
            let sinks = &mut cx.get::<Sinks>().0;
            Target::File(sinks.entry(path).or_insert_with(|| Arc::new(FileSink::new(file))).clone())
        };
        let Some(format) = format::find(cx, name) else {
            let shown = String::from_utf8_lossy(name).into_owned();
            return Err(Problem::says(format!("unknown log format \"{shown}\""))
                .at(1)
                .hint("a \"log_format\" must stand above the lines that use it"));
        };
        let (buffering, condition) = parameters(cx, d, &shown)?;
        if let Some(buffering) = buffering {
            match &mut target {
                Target::Path(_) => return Err(Problem::says("buffered logs cannot have variables in name")),
                Target::Syslog(_) => return Err(Problem::says("logs to syslog cannot be buffered")),
                Target::File(sink) => {
                    if !sink.buffer(buffering) {
                        return Err(Problem::says(format!(
                            "access_log \"{shown}\" already defined with conflicting parameters"
                        )));
                    }
                }
            }
        }
        Ok(Logs { logs: vec![Arc::new(Log { target, format, condition })], off: false })
    }
    fn append(&mut self, later: Self) {
        self.logs.extend(later.logs);
        self.off |= later.off;
    }
}

/// What follows the format's name.
fn parameters(cx: &mut Cx, d: &Directive, shown: &str) -> Result<(Option<Buffering>, Option<Template>), Problem> {
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
            let level = value.parse::<u32>().ok().filter(|n| (1..=9).contains(n));
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
    Ok((size.map(|size| Buffering { size, flush_ms: flush, gzip }), condition))
}

/// The feature.
pub struct AccessLog;

impl Feature for AccessLog {
    fn table(&self) -> Table {
        let mut table = LogConf::table("access_log", Area::Http);
        table.fill = |input, cx| {
            let Some(input) = input.downcast_mut::<LogInput>() else { return };
            // Packaged systems have a place of their own for the log that nobody asked for.
            if let (None, Some(path)) = (&input.access_log, cx.get::<DefaultAccessLog>().0.clone()) {
                let line = conf_schema::table::synthetic("access_log", &format!("{}", path.display()));
                if let Ok(value) = Logs::parse(cx, &line) {
                    input.access_log = Some(conf_schema::Given { value, at: conf_schema::At::default() });
                }
            }
            input.fill(cx);
        };
        table
    }
    fn plan_http(&self, _: &Arc<dyn Any + Send + Sync>, http: &mut HttpBuild<'_>) -> Result<(), Problem> {
        http.flushers.push(sink::flush_thread);
        http.flushers.push(by_path::close_thread);
        Ok(())
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<LogConf>() else { return Ok(()) };
        if !conf.access_log.off && !conf.access_log.logs.is_empty() {
            let logs = conf.access_log.logs.clone();
            block.location.loggers.push(Arc::new(Write { logs, cache: conf.open_log_file_cache }));
        }
        Ok(())
    }
}

struct Write {
    logs: Vec<Arc<Log>>,
    cache: CacheConf,
}

thread_local! {
    /// Where conditions are evaluated and lines without a buffer of their own are put together.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Logger for Write {
    fn log(&self, r: &mut Request) {
        let mut scratch = SCRATCH.take();
        for log in &self.logs {
            scratch.clear();
            if let Some(condition) = &log.condition {
                condition.write(r, &mut scratch);
                if !truthy(&scratch) {
                    continue;
                }
                scratch.clear();
            }
            match &log.target {
                Target::File(sink) => sink.line(r, &log.format, &mut scratch),
                Target::Syslog(target) => {
                    log.format.write(r, &mut scratch);
                    if let Err(e) = target.send(target.severity(), &scratch) {
                        r.loc().core.error_log.syslog_failed(&e, target);
                    }
                }
                Target::Path(path) => {
                    log.format.write(r, &mut scratch);
                    scratch.push(b'\n');
                    by_path::write(r, path, &self.cache, &scratch);
                }
            }
        }
        SCRATCH.set(scratch);
    }
}
