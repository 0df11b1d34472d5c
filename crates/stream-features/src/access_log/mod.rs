//! access_log, log_format, open_log_file_cache (nginx: `ngx_stream_log_module`); see `session_engine::log`.

use crate::StreamArea;
use crate::build::{Feature, ServerBuild};
use crate::plan::Logger;
use crate::session::StreamSession;
use conf_schema::{Area, Problem, Table, directives};
use session_engine::log::by_path::CacheConf;
use session_engine::log::{Formatted as FormattedFor, Logs as LogsOf, Write as WriteOf};
use std::any::Any;
use std::sync::Arc;

type Logs = LogsOf<StreamArea>;
type Formatted = FormattedFor<StreamArea>;

directives! {
    pub struct LogConf from LogInput {
        /// Writes a log line per session to a file or syslog server, in a `log_format`. May be repeated for several
        /// logs.
        access_log: Logs = "off",
        /// Defines a named format of log lines.
        log_format: Formatted,
        /// Caches open descriptors of logs whose paths contain variables.
        open_log_file_cache: CacheConf = "off",
    }
}

pub struct AccessLog;

impl Feature for AccessLog {
    fn table(&self) -> Table {
        LogConf::table("access_log", Area::Stream)
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut ServerBuild<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<LogConf>() else { return Ok(()) };
        if let Some(write) = conf.access_log.writer(conf.open_log_file_cache) {
            block.server.loggers.push(Arc::new(Write(write)));
        }
        Ok(())
    }
}

struct Write(WriteOf<StreamArea>);

impl Logger for Write {
    fn log(&self, s: &mut StreamSession) {
        self.0.log(s);
    }
}
