//! Local address of connections to servers (`proxy_bind`, `tunnel_bind`).

use conf_schema::{Cx, Directive, Problem, ValueKind};
use observe::Severity;
use std::net::SocketAddr;
use variables::{AreaTypes, Session, Template};

pub struct BindTo<A>(Option<(Template<A>, bool)>);

impl<A> Clone for BindTo<A> {
    fn clone(&self) -> Self {
        BindTo(self.0.clone())
    }
}

/// Connections use foreign source addresses, for which workers need the capability. In `Cx`.
#[derive(Default)]
pub struct Transparent(pub bool);

impl<A: AreaTypes> ValueKind for BindTo<A> {
    const SYNTAX: &'static str = "address [transparent] | off";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let template = Template::parse(cx, d)?;
        if d.args.len() == 1 && template.as_literal() == Some(b"off") {
            return Ok(BindTo(None));
        }
        if let Some(text) = template.as_literal()
            && address(text).is_none()
        {
            let shown = String::from_utf8_lossy(text);
            return Err(Problem::says(format!("invalid address \"{shown}\"")).at(0));
        }
        let transparent = match d.args.get(1) {
            None => false,
            Some(word) if word.bytes == b"transparent" => {
                cx.get::<Transparent>().0 = true;
                true
            }
            Some(word) => return Err(Problem::says(format!("invalid parameter \"{}\"", word.text())).at(1)),
        };
        Ok(BindTo(Some((template, transparent))))
    }
}

impl<A: AreaTypes> BindTo<A> {
    /// Address for a session, and whether it may be foreign.
    pub fn of(said: &Option<Self>, r: &mut A::Session) -> (Option<SocketAddr>, bool) {
        let Some(BindTo(Some((template, transparent)))) = said else { return (None, false) };
        let text = template.eval(r);
        let found = address(&text);
        if found.is_none() && !text.is_empty() {
            let shown = String::from_utf8_lossy(&text).into_owned();
            r.log(Severity::Error, format_args!("invalid local address \"{shown}\""));
        }
        (found, *transparent && found.is_some())
    }
}

fn address(text: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(text).ok()?;
    if let Ok(address) = text.parse::<SocketAddr>() {
        // As in nginx, a port is from 1 on.
        return Some(address).filter(|address| address.port() > 0);
    }
    let ip: std::net::IpAddr = text.trim_matches(['[', ']']).parse().ok()?;
    Some(SocketAddr::new(ip, 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use conf_schema::table::synthetic_directive;

    #[test]
    fn forms_of_bind_are_parsed() {
        let parse = |text: &str| {
            BindTo::<variables::testing::TestArea>::parse(&mut Cx::default(), &synthetic_directive("proxy_bind", text))
                .map(|b| b.0.map(|b| b.1))
        };
        assert_eq!(parse("127.0.0.1").expect("an address"), Some(false));
        assert_eq!(parse("[::1]:81 transparent").expect("an address"), Some(true));
        assert_eq!(parse("$remote_addr transparent").expect("a variable"), Some(true));
        assert_eq!(parse("off").expect("nothing"), None);
        assert!(parse("[::1]:0").is_err() && parse("127.0.0.1:0").is_err() && parse("127.0.0.1:1").is_ok());
        assert!(parse("127.0.0.1 opaque").is_err() && parse("localhost").is_err());
    }
}
