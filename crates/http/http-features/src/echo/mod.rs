//! echo and related directives (third-party module `echo`): responses from the configuration, and text around
//! responses. `program.rs` parses, `run.rs` runs the lines.

mod program;
mod run;
mod variables;

use conf_schema::value::Number;
use conf_schema::{ContextArea, FeatureTable, Problem, directives};
use http_engine::variable::Builtin;
use http_engine::{BlockPlan, Feature, FilterOrder};
use program::{EchoLines, EchoTexts};
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct EchoConf from EchoInput {
        /// Sends the arguments, joined by spaces, and a line break; `-n` omits the line break.
        echo: EchoLines,
        /// Sends a text the given number of times.
        /// Differs: at most 16 MB per line.
        echo_duplicate: EchoLines,
        /// Flushes the output.
        echo_flush: EchoLines,
        /// Waits the given number of seconds, without blocking other requests.
        echo_sleep: EchoLines,
        /// Waits the given number of seconds.
        /// Differs: like `echo_sleep` it does not block other requests.
        echo_blocking_sleep: EchoLines,
        /// Restarts the timer of `$echo_timer_elapsed`.
        echo_reset_timer: EchoLines,
        /// Reads the request body, for `$request_body` and `echo_request_body`.
        echo_read_request_body: EchoLines,
        /// Sends the request body, if it was read.
        echo_request_body: EchoLines,
        /// Sends the response of a subrequest to a location, with optional arguments.
        echo_location: EchoLines,
        /// Sends the response of a subrequest to a location.
        /// Differs: subrequests run one after the other, as with `echo_location`.
        echo_location_async: EchoLines,
        /// Sends the response of a GET or HEAD subrequest; `-q` sets its arguments.
        /// Differs: other methods and bodies (`-b`, `-f`) are refused.
        echo_subrequest: EchoLines,
        /// Sends the response of a subrequest.
        /// Differs: subrequests run one after the other, as with `echo_subrequest`.
        echo_subrequest_async: EchoLines,
        /// Repeats the lines up to `echo_end` for each part of a string; `$echo_it` is the part.
        echo_foreach_split: EchoLines,
        /// Ends the block of `echo_foreach_split`.
        echo_end: EchoLines,
        /// Redirects the request internally to another location.
        /// Differs: applies only if the lines before it only read or wait.
        echo_exec: EchoLines,
        /// Status of the response.
        echo_status: Number = "200",
        /// Sends a line before the response of the location; `-n` omits the line break.
        echo_before_body: EchoTexts,
        /// Sends a line after the response of the location; `-n` omits the line break.
        echo_after_body: EchoTexts,
    }
}

pub struct Echo;

impl Feature for Echo {
    fn table(&self) -> FeatureTable {
        EchoConf::table("echo", ContextArea::Http)
    }
    fn variables(&self) -> &'static [Builtin] {
        variables::ALL
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<EchoConf>() else { return Ok(()) };
        let lines = [
            &conf.echo,
            &conf.echo_duplicate,
            &conf.echo_flush,
            &conf.echo_sleep,
            &conf.echo_blocking_sleep,
            &conf.echo_reset_timer,
            &conf.echo_read_request_body,
            &conf.echo_request_body,
            &conf.echo_location,
            &conf.echo_location_async,
            &conf.echo_subrequest,
            &conf.echo_subrequest_async,
            &conf.echo_foreach_split,
            &conf.echo_end,
            &conf.echo_exec,
        ];
        let mut lines: Vec<_> = lines.into_iter().flatten().flat_map(|lines| lines.0.iter().cloned()).collect();
        if !lines.is_empty() {
            lines.sort_by_key(|line| line.order);
            let status = u16::try_from(conf.echo_status.0).ok().filter(|status| (200..=999).contains(status));
            let Some(status) = status else {
                return Err(Problem::says("invalid status of \"echo_status\"").of("echo_status"));
            };
            block.location.content = Some(Arc::new(run::EchoAnswer { program: program::link_loops(lines)?, status }));
        }
        let texts = |said: &Option<EchoTexts>| said.as_ref().map_or_else(Vec::new, |texts| texts.0.clone());
        let (before, after) = (texts(&conf.echo_before_body), texts(&conf.echo_after_body));
        if !before.is_empty() || !after.is_empty() {
            let around = run::EchoFilter { before: before.into(), after: after.into() };
            block.location.filters.push((FilterOrder::EchoBody, Arc::new(around)));
        }
        Ok(())
    }
}
