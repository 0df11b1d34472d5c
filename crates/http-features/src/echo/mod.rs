//! echo and its kin (the module `echo` by others): a response that is written down in the configuration, line by line, and text before
//! and after a response. `program.rs` reads the lines, `run.rs` runs them, `variables.rs` has the module's variables.

mod program;
mod run;
mod variables;

use conf_schema::value::Number;
use conf_schema::{Area, Problem, Table, directives};
use http_engine::variable::Builtin;
use http_engine::{BlockPlan, Feature, FilterOrder};
use program::{Lines, Texts};
use std::any::Any;
use std::sync::Arc;

directives! {
    /// What the module is told in a block.
    pub struct EchoConf from EchoInput {
        /// Sends its arguments, joined by spaces, and a line end; with `-n` without one.
        echo: Lines,
        /// Sends a text so many times.
        /// Differs: at most 16 MB in a line.
        echo_duplicate: Lines,
        /// Sends what has been said so far at once.
        echo_flush: Lines,
        /// Waits for some seconds; other requests go on meanwhile.
        echo_sleep: Lines,
        /// Waits for some seconds.
        /// Differs: as `echo_sleep`, it holds up no other request.
        echo_blocking_sleep: Lines,
        /// Begins to count `$echo_timer_elapsed` anew.
        echo_reset_timer: Lines,
        /// Reads the body of the request, for `$request_body` and `echo_request_body`.
        echo_read_request_body: Lines,
        /// Sends the body of the request, where it has been read.
        echo_request_body: Lines,
        /// Sends the response of another location, with the arguments given.
        echo_location: Lines,
        /// Sends the response of another location.
        /// Differs: as `echo_location`, the locations are asked one after the other.
        echo_location_async: Lines,
        /// Sends the response of another location to a request with the method GET or HEAD and the arguments of `-q`.
        /// Differs: other methods and bodies (`-b`, `-f`) are refused.
        echo_subrequest: Lines,
        /// Sends the response of another location.
        /// Differs: as `echo_subrequest`, the locations are asked one after the other.
        echo_subrequest_async: Lines,
        /// Runs the lines up to `echo_end` for each part of a string, which is `$echo_it`.
        echo_foreach_split: Lines,
        /// Ends the lines of `echo_foreach_split`.
        echo_end: Lines,
        /// Lets another location answer the request.
        /// Differs: it counts where it is the first line that says anything, wherever it stands behind lines that only read or wait.
        echo_exec: Lines,
        /// The status of the response.
        echo_status: Number = "200",
        /// Sends a line before the response of the location; with `-n` without its end.
        echo_before_body: Texts,
        /// Sends a line after the response of the location; with `-n` without its end.
        echo_after_body: Texts,
    }
}

/// The feature.
pub struct Echo;

impl Feature for Echo {
    fn table(&self) -> Table {
        EchoConf::table("echo", Area::Http)
    }
    fn variables(&self) -> &'static [Builtin] {
        variables::ALL
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
            block.location.content = Some(Arc::new(run::Answer { program: program::linked(lines)?, status }));
        }
        let texts = |said: &Option<Texts>| said.as_ref().map_or_else(Vec::new, |texts| texts.0.clone());
        let (before, after) = (texts(&conf.echo_before_body), texts(&conf.echo_after_body));
        if !before.is_empty() || !after.is_empty() {
            let around = run::Around { before: before.into(), after: after.into() };
            block.location.filters.push((FilterOrder::Addition, Arc::new(around)));
        }
        Ok(())
    }
}
