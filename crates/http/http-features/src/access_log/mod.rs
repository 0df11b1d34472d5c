//! access_log, log_format, open_log_file_cache (nginx: `ngx_http_log_module`); see `access_logs`.

use access_logs as log;
use access_logs::by_path::CacheConf;
use access_logs::{AccessLogs as LogsOf, LogFormat as FormattedFor, LogWriter as WriteOf};
use conf_schema::{ContextArea, FeatureTable, Problem, ValueKind, directives};
use http_engine::{BlockPlan, Feature, HttpArea, HttpBuild, Logger, Request};
use observe::{DefaultAccessLog, LogFiles};
use std::any::Any;
use std::sync::Arc;

type HttpLogs = LogsOf<HttpArea>;
type HttpLogFormat = FormattedFor<HttpArea>;

directives! {
    pub struct LogConf from LogInput {
        /// Writes a log line per request to a file or syslog server, in a `log_format`. May be repeated for several
        /// logs.
        access_log: HttpLogs = "logs/access.log combined",
        /// Defines a named format of log lines.
        log_format: HttpLogFormat,
        /// Caches open descriptors of logs whose paths contain variables.
        open_log_file_cache: CacheConf = "off",
    }
}

pub struct AccessLog;

impl Feature for AccessLog {
    fn table(&self) -> FeatureTable {
        let mut table = LogConf::table("access_log", ContextArea::Http);
        table.fill = |input, cx| {
            let Some(input) = input.downcast_mut::<LogInput>() else { return };
            let default = cx.get::<DefaultAccessLog>().0.clone().unwrap_or_else(|| cx.full_name("logs/access.log"));
            let is_default = input.access_log.is_none() && !cx.get::<LogFiles>().is_used(&default);
            // Packages set the path of the default log.
            if let (None, Some(path)) = (&input.access_log, cx.get::<DefaultAccessLog>().0.clone()) {
                let line = conf_schema::table::synthetic_directive("access_log", &format!("{}", path.display()));
                if let Ok(value) = HttpLogs::parse(cx, &line) {
                    input.access_log = Some(conf_schema::GivenDirective::new(value, conf_schema::At::default()));
                }
            }
            input.fill(cx);
            if is_default {
                // Opened if a server has it (nginx: `ngx_http_log_merge_loc_conf`).
                cx.get::<LogFiles>().release(&default);
            }
        };
        table
    }
    fn plan_http(&self, _: &Arc<dyn Any + Send + Sync>, http: &mut HttpBuild<'_>) -> Result<(), Problem> {
        http.flushers.push(log::flush_thread);
        Ok(())
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<LogConf>() else { return Ok(()) };
        conf.access_log.keep_files(block.cx);
        if let Some(write) = conf.access_log.writer(conf.open_log_file_cache) {
            block.location.loggers.push(Arc::new(HttpLogWriter(write)));
        }
        Ok(())
    }
}

struct HttpLogWriter(WriteOf<HttpArea>);

impl Logger for HttpLogWriter {
    fn log(&self, r: &mut Request) {
        // Names the action in later error log messages.
        r.accounting.set_action(Some("logging request"));
        self.0.log(r);
    }
}
