//! `ssl_key_log`, `proxy_ssl_key_log` and others.

use conf_schema::{Cx, Directive, Problem, ValueKind};
use observe::log_file::{LogFile, LogFiles};
use std::sync::Arc;

/// File for the secrets of connections.
#[derive(Clone)]
pub struct KeyLogFile(Arc<LogFile>);

impl ValueKind for KeyLogFile {
    const SYNTAX: &'static str = "path";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let path = d.args.first().map(|word| word.text()).unwrap_or_default();
        if path.is_empty() {
            return Err(Problem::says("no path").at(0));
        }
        let path = cx.full_name(&path);
        Ok(KeyLogFile(cx.get::<LogFiles>().secret_file(&path)))
    }
}

impl KeyLogFile {
    /// Returns the receiver of secrets. Lines that the file cannot take are lost.
    pub fn log(&self) -> tls::KeyLog {
        let file = self.0.clone();
        tls::KeyLog::new(move |line| _ = file.append(line))
    }
    /// Identifies the file.
    pub fn path(&self) -> &std::path::Path {
        &self.0.path
    }
}
