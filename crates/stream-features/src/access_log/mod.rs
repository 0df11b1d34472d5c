//! access_log, log_format, open_log_file_cache (nginx: `ngx_stream_log_module`); see `access_logs`.

use crate::StreamArea;
use crate::build::{Feature, ServerBuild};
use crate::plan::Logger;
use crate::session::StreamSession;
use access_logs::by_path::CacheConf;
use access_logs::{AccessLogs as LogsOf, LogFormat as FormattedFor, LogWriter as WriteOf};
use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use std::any::Any;
use std::sync::Arc;

type StreamLogs = LogsOf<StreamArea>;
type StreamLogFormat = FormattedFor<StreamArea>;

directives! {
    pub struct LogConf from LogInput {
        /// Writes a log line per session to a file or syslog server, in a `log_format`. May be repeated for several
        /// logs.
        access_log: StreamLogs = "off",
        /// Defines a named format of log lines.
        log_format: StreamLogFormat,
        /// Caches open descriptors of logs whose paths contain variables.
        open_log_file_cache: CacheConf = "off",
    }
}

pub struct AccessLog;

impl Feature for AccessLog {
    fn table(&self) -> FeatureTable {
        LogConf::table("access_log", ContextArea::Stream)
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut ServerBuild<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<LogConf>() else { return Ok(()) };
        if let Some(write) = conf.access_log.writer(conf.open_log_file_cache) {
            block.server.loggers.push(Arc::new(StreamLogWriter(write)));
        }
        Ok(())
    }
}

struct StreamLogWriter(WriteOf<StreamArea>);

impl Logger for StreamLogWriter {
    fn log(&self, s: &mut StreamSession) {
        self.0.log(s);
    }
}
