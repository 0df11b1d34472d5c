//! Target of `proxy_pass`: a group or host, constant or selected per session.

use super::PassSettings;
use crate::StreamTemplate;
use crate::groups::{StreamGroups, UpstreamRef};
use crate::session::StreamSession;
use crate::values::place_of_answer;
use area::host_port::host_and_port;
use conf_schema::{At, Cx, Directive, Problem, ValueKind};
use observe::Severity;
use upstream_directives::hosts;
use variables::Session;
use variables::variable::directive_place;

#[derive(Clone)]
pub struct StreamTarget {
    to: StreamTemplate,
    pub place: usize,
    /// Position of the directive, for errors that are found after all groups are known.
    at: Option<At>,
}

impl ValueKind for StreamTarget {
    const SYNTAX: &'static str = "address";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        Ok(StreamTarget { to: StreamTemplate::parse(cx, d)?, place: place_of_answer(cx), at: directive_place(d) })
    }
}

pub enum Target {
    Fixed(UpstreamRef),
    Computed(StreamTemplate),
}

/// Tells whether a name includes a port, which certificates' names do not.
fn has_port(host: &str) -> bool {
    host.starts_with("unix:") || host_and_port(host).is_ok_and(|(_, port)| port.is_some())
}

impl Target {
    /// Fails with nginx's message on an invalid address.
    pub fn bind(cx: &mut Cx, pass: &StreamTarget) -> Result<Target, Problem> {
        let Some(text) = pass.to.as_literal() else { return Ok(Target::Computed(pass.to.clone())) };
        let host = String::from_utf8_lossy(text).into_owned();
        if cx.get::<StreamGroups>().get(&host).is_none() && !host.starts_with("unix:") {
            let wrong =
                |why: &str| Problem { inner: pass.at, ..Problem::says(format!("{why} in upstream \"{host}\"")) };
            host_and_port(&host).map_err(wrong)?;
            if !has_port(&host) {
                return Err(wrong("no port"));
            }
        }
        let named = hosts::bind_host(cx, &host, 0).map_err(|problem| Problem { inner: pass.at, ..problem })?;
        Ok(Target::Fixed(named))
    }
}

impl PassSettings {
    /// Group of a session; `None`, if there is none, was logged.
    pub(super) async fn group(&self, s: &mut StreamSession) -> Option<UpstreamRef> {
        s.proxied = true;
        let text = match &self.target {
            Target::Fixed(named) => return Some(named.clone()),
            Target::Computed(template) => template.eval(s),
        };
        let host = String::from_utf8_lossy(&text).into_owned();
        let named = if self.groups.get(&host).is_none() && !host.is_empty() && !has_port(&host) {
            let why = match host_and_port(&host) {
                Ok(_) => "no port",
                Err(why) => why,
            };
            Err(format!("{why} in upstream \"{host}\""))
        } else {
            let resolving = s.srv().resolving.clone();
            hosts::named_host(&self.groups, resolving, &host, 0).await.map_err(|no| no.words)
        };
        named.inspect_err(|words| s.log(Severity::Error, format_args!("{words}"))).ok()
    }
}
