//! pass (nginx: `ngx_stream_pass_module`): passes a connection to another listener of any area.

use crate::StreamTemplate;
use crate::build::{Feature, ServerBuild};
use crate::client::SessionClient;
use crate::plan::{Content, ContentFuture, ContentResult};
use crate::session::StreamSession;
use crate::values::place_of_answer;
use area::host_port::host_and_port;
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use net::Address;
use observe::Severity;
use std::any::Any;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use variables::Session;

/// nginx: `NGX_STREAM_PASS_MAX_PASSES`.
const PASSES_MAX: u8 = 10;

directives! {
    pub struct PassConf from PassInput {
        /// Passes the connection to the listener on this address, as if that listener had accepted it.
        pass: To,
    }
}

#[derive(Clone)]
pub struct To {
    to: StreamTemplate,
    place: usize,
}

impl ValueKind for To {
    const SYNTAX: &'static str = "address";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let to = StreamTemplate::parse(cx, d)?;
        if let Some(text) = to.as_literal() {
            match address(&String::from_utf8_lossy(text)) {
                Ok(_) => {}
                Err(PassError::NoAddresses) => return Err(Problem::directive("has no addresses")),
                Err(PassError::NoPort) => return Err(Problem::directive("has no port")),
                Err(PassError::Invalid(why)) => {
                    let shown = String::from_utf8_lossy(text);
                    return Err(Problem::says(format!("{why} in \"{shown}\" of the \"pass\" directive")).at(0));
                }
            }
        }
        Ok(To { to, place: place_of_answer(cx) })
    }
}

enum PassError {
    /// Host names are not resolved.
    NoAddresses,
    NoPort,
    Invalid(String),
}

fn address(text: &str) -> Result<Address, PassError> {
    if let Some(path) = text.strip_prefix("unix:") {
        let path = path.trim_end_matches(':');
        if path.is_empty() {
            return Err(PassError::Invalid("no path in the unix domain socket".into()));
        }
        return Ok(Address::Unix(path.into()));
    }
    let (host, port) = host_and_port(text).map_err(|why| PassError::Invalid(why.into()))?;
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    // A port alone, or `*`, is valid in `listen` and not here.
    let ip: IpAddr = bare.parse().map_err(|_| PassError::NoAddresses)?;
    port.map(|port| Address::Ip(SocketAddr::new(ip, port))).ok_or(PassError::NoPort)
}

pub struct StreamPass;

impl Feature for StreamPass {
    fn table(&self) -> FeatureTable {
        PassConf::table("pass", ContextArea::Stream)
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut ServerBuild<'_>) -> Result<(), Problem> {
        if let Some(To { to, place }) = conf.downcast_ref::<PassConf>().and_then(|conf| conf.pass.clone()) {
            block.answers(place, Arc::new(PassOn(to)));
        }
        Ok(())
    }
}

struct PassOn(StreamTemplate);

impl Content for PassOn {
    fn run<'a>(&'a self, s: &'a mut StreamSession, client: &'a mut SessionClient) -> ContentFuture<'a> {
        Box::pin(async move {
            s.doing = "passing connection to port";
            match self.target(s, client) {
                Ok(to) => ContentResult::Pass(to),
                Err(words) => {
                    s.log(Severity::Error, format_args!("{words}"));
                    ContentResult::Status(500)
                }
            }
        })
    }
}

impl PassOn {
    fn target(&self, s: &mut StreamSession, client: &SessionClient) -> Result<Address, String> {
        let SessionClient::Stream(_) = client else { return Err("cannot pass udp connection".into()) };
        if !s.preread.is_empty() {
            return Err("cannot pass connection with preread data".into());
        }
        let text = self.0.eval(s);
        let text = String::from_utf8_lossy(&text);
        let to = address(&text).map_err(|wrong| match wrong {
            PassError::NoAddresses => format!("no addresses in pass \"{text}\""),
            PassError::NoPort => format!("no port in pass \"{text}\""),
            PassError::Invalid(why) => format!("{why} in pass \"{text}\""),
        })?;
        if s.passes >= PASSES_MAX {
            return Err("stream pass cycle".into());
        }
        Ok(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed() {
        for (text, want) in [
            ("127.0.0.1:80", Some("127.0.0.1:80")),
            ("[::1]:81", Some("[::1]:81")),
            ("unix:/s", Some("unix:/s")),
            ("0.0.0.0:8080", Some("0.0.0.0:8080")),
            ("8080", None),
            ("*:8080", None),
            ("127.0.0.1", None),
            ("a:80", None),
            ("unix:", None),
        ] {
            assert_eq!(address(text).ok().map(|a| a.to_string()).as_deref(), want, "{text}");
        }
        for (text, words) in
            [("8080", "has no addresses"), ("*:8080", "has no addresses"), ("127.0.0.1", "has no port")]
        {
            let said = To::parse(&mut Cx::default(), &conf_schema::table::synthetic_directive("pass", text))
                .err()
                .expect(text);
            assert!(format!("{said:?}").contains(words), "{text}: {said:?}");
        }
    }
}
