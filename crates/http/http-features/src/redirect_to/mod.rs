//! redirect_to: redirects to the request's URL with some of its parts replaced.

use crate::shared::prefixes;
use conf_schema::value::Own;
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use http_engine::head_out::write_number;
use http_engine::{BlockPlan, Feature, Flow, Handler, HttpTemplate, Request, path};
use net::Address;
use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;

directives! {
    pub struct RedirectConf from RedirectInput {
        /// Redirects to the URL of the request with other parts: `scheme=`, `host=`, `port=`, `path=` (the whole path), or `prefix=` in
        /// place of the location's name. The query stays. Without `port=`, the port is the default one of a given scheme, otherwise that
        /// of the listener (see `port_in_redirect`); a scheme's default port is not written. Parts may contain variables and are sent as
        /// written: characters that a URL does not have are escaped by the configuration. The code is 301, 302, 303, 307 or 308.
        redirect_to: Own<RedirectTo>,
    }
}

#[derive(Clone, Debug)]
pub struct RedirectTo {
    scheme: Option<HttpTemplate>,
    host: Option<HttpTemplate>,
    port: Option<HttpTemplate>,
    path: NewPath,
    code: u16,
}

#[derive(Clone, Debug)]
enum NewPath {
    Unchanged,
    Whole(HttpTemplate),
    Prefix {
        /// Of the location.
        name: Vec<u8>,
        new: HttpTemplate,
    },
}

const PARAMETERS: &str = "one of: scheme=, host=, port=, path=, prefix=, code=";

impl ValueKind for RedirectTo {
    const SYNTAX: &'static str = "[scheme=scheme] [host=host] [port=port] [path=path | prefix=prefix] [code=code]";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let mut new = RedirectTo { scheme: None, host: None, port: None, path: NewPath::Unchanged, code: 301 };
        let mut seen: Vec<&[u8]> = Vec::new();
        for (index, word) in d.args.iter().enumerate() {
            let mut halves = word.bytes.splitn(2, |c| *c == b'=');
            let (key, value) = (halves.next().unwrap_or_default(), halves.next());
            let invalid = |hint: &str| {
                Problem::says(format!("invalid parameter \"{}\"", word.text())).at(index).hint(hint.to_string())
            };
            let value = value.filter(|value| !value.is_empty()).ok_or_else(|| invalid(PARAMETERS))?;
            if seen.contains(&key) {
                return Err(Problem::says(format!("duplicate parameter \"{}\"", word.text())).at(index));
            }
            seen.push(key);
            if key == b"code" {
                new.code = match value {
                    b"301" => 301,
                    b"302" => 302,
                    b"303" => 303,
                    b"307" => 307,
                    b"308" => 308,
                    _ => return Err(invalid("one of: 301, 302, 303, 307, 308")),
                };
                continue;
            }
            let template = HttpTemplate::compile(cx, d, value).map_err(|p| p.at(index))?;
            let literal = template.as_literal();
            // The first part of a path is text, or a variable that says all of it.
            let is_path = || value.starts_with(b"/") || value.starts_with(b"$");
            match key {
                b"scheme" => {
                    let is_scheme = |text: &[u8]| {
                        text.first().is_some_and(u8::is_ascii_alphabetic)
                            && text.iter().all(|c| c.is_ascii_alphanumeric() || b"+-.".contains(c))
                    };
                    if literal.is_some_and(|text| !is_scheme(text)) {
                        return Err(invalid("a scheme, such as https"));
                    }
                    new.scheme = Some(template);
                }
                b"host" => {
                    let is_host = |text: &[u8]| {
                        let name = text.strip_prefix(b"[").and_then(|text| text.strip_suffix(b"]"));
                        let others: &[u8] = if name.is_some() { b":." } else { b"-._~" };
                        name.unwrap_or(text).iter().all(|c| c.is_ascii_alphanumeric() || others.contains(c))
                    };
                    if literal.is_some_and(|text| !is_host(text)) {
                        return Err(invalid("a host name or address without a port; the port is the parameter port="));
                    }
                    new.host = Some(template);
                }
                b"port" => {
                    let is_port = |text: &[u8]| {
                        let text = std::str::from_utf8(text).unwrap_or_default();
                        text.bytes().all(|c| c.is_ascii_digit()) && text.parse::<u16>().is_ok_and(|port| port > 0)
                    };
                    if literal.is_some_and(|text| !is_port(text)) {
                        return Err(invalid("a number from 1 to 65535"));
                    }
                    new.port = Some(template);
                }
                b"path" | b"prefix" if !is_path() => return Err(invalid("a path that begins with \"/\"")),
                b"path" | b"prefix" if !matches!(new.path, NewPath::Unchanged) => {
                    return Err(Problem::says("\"redirect_to\" has both \"path=\" and \"prefix=\"").at(index));
                }
                b"path" => new.path = NewPath::Whole(template),
                b"prefix" => {
                    let name = prefixes::of_location(cx).map_err(|p| p.at(index))?;
                    new.path = NewPath::Prefix { name, new: template };
                }
                _ => return Err(invalid(PARAMETERS)),
            }
        }
        if seen.iter().all(|key| *key == b"code") {
            return Err(Problem::says("\"redirect_to\" redirects to the same URL")
                .hint("give scheme=, host=, port=, path= or prefix="));
        }
        Ok(new)
    }
}

pub struct Redirect;

impl Feature for Redirect {
    fn table(&self) -> FeatureTable {
        RedirectConf::table("redirect_to", ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<RedirectConf>() else { return Ok(()) };
        if let Some(Own(redirect)) = &conf.redirect_to {
            block.location.content = Some(Arc::new(redirect.clone()));
        }
        Ok(())
    }
}

impl Handler for RedirectTo {
    fn run(&self, r: &mut Request) -> Flow {
        r.discard_body();
        let url = self.url(r);
        r.out.set_location(url);
        Flow::Status(self.code)
    }
}

fn default_port(scheme: &[u8]) -> Option<u16> {
    match scheme {
        b"http" => Some(80),
        b"https" => Some(443),
        _ => None,
    }
}

impl RedirectTo {
    fn url(&self, r: &mut Request) -> Vec<u8> {
        let secure = r.connection().tls.is_some();
        let mut given = |part: &Option<HttpTemplate>| {
            part.as_ref().map(|part| part.eval(r)).filter(|text: &Vec<u8>| !text.is_empty())
        };
        let (scheme, host, port) = (given(&self.scheme), given(&self.host), given(&self.port));
        let has_scheme = scheme.is_some();
        let mut url = match scheme {
            Some(scheme) => scheme.to_ascii_lowercase(),
            None => if secure { b"https".as_slice() } else { b"http" }.to_vec(),
        };
        let default = default_port(&url);
        url.extend_from_slice(b"://");
        match host {
            Some(host) => url.extend_from_slice(&host),
            None if !r.target.host().is_empty() => url.extend_from_slice(r.target.host()),
            None => match &*r.connection().local {
                Address::Ip(SocketAddr::V4(v4)) => url.extend_from_slice(v4.ip().to_string().as_bytes()),
                Address::Ip(SocketAddr::V6(v6)) => url.extend_from_slice(format!("[{}]", v6.ip()).as_bytes()),
                Address::Unix(_) => url.extend_from_slice(b"localhost"),
            },
        }
        match (port, &*r.connection().local) {
            (Some(port), _) if default.is_some_and(|default| port == default.to_string().as_bytes()) => {}
            (Some(port), _) => {
                url.push(b':');
                url.extend_from_slice(&port);
            }
            (None, Address::Ip(address))
                if !has_scheme && r.loc().core.conf.port_in_redirect && Some(address.port()) != default =>
            {
                url.push(b':');
                write_number(u64::from(address.port()), &mut url);
            }
            _ => {}
        }
        let whole = match &self.path {
            NewPath::Unchanged => None,
            NewPath::Whole(template) => Some(template.eval(r)),
            NewPath::Prefix { name, new } => {
                let new = new.eval(r);
                prefixes::replace_prefix(r.target.path(), name, &new, path::escape_uri)
            }
        };
        match &whole {
            Some(whole) => {
                if !whole.starts_with(b"/") {
                    url.push(b'/');
                }
                url.extend_from_slice(whole);
            }
            None => path::escape_uri(r.target.path(), &mut url),
        }
        if !r.target.args().is_empty() {
            url.push(if whole.is_some_and(|whole| whole.contains(&b'?')) { b'&' } else { b'?' });
            url.extend_from_slice(r.target.args());
        }
        url
    }
}
