//! userid (nginx: `ngx_http_userid_filter_module`): a cookie that identifies visitors, from the server's address or
//! `userid_service`, time, process and a counter.

mod uid;

use conf_schema::value::{Number, Text, parse_sec};
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives, word_set, words};
use http_engine::variable::{Builtin, HttpVariables, VarId};
use http_engine::{BlockPlan, Feature, Filter, FilterOrder, Request, ResponseBody};
use observe::Severity;
use observe::clock::cookie_time;
use std::any::Any;
use std::sync::Arc;
use uid::Uid;

words! {
    pub enum Mode { Off = "off", Log = "log", V1 = "v1", On = "on" }
}
word_set! {
    pub struct Flags {
        OFF = 1 "off", SECURE = 2 "secure", HTTPONLY = 4 "httponly", STRICT = 8 "samesite=strict",
        LAX = 16 "samesite=lax", NONE = 32 "samesite=none",
    }
}

directives! {
    pub struct UserConf from UserInput {
        /// Identifies clients by a cookie: `on` sets version 2, `v1` version 1, `log` only logs received ones.
        userid: Mode = "off",
        /// Domain of the cookie; `none` omits it.
        userid_domain: Text = "none",
        /// Lifetime of the cookie: a time, `max` (until 2037), or `off` (until the browser closes).
        userid_expires: Keep = "off",
        /// Further attributes of the cookie.
        userid_flags: Flags = "off",
        /// Character that replaces the cookie's padding; cookies without it are set again.
        userid_mark: MarkValue = "off",
        /// Name of the cookie.
        userid_name: Text = "uid",
        /// Value of the P3P field sent with the cookie; `none` omits it.
        userid_p3p: Text = "none",
        /// Path of the cookie.
        userid_path: Text = "/",
        /// Number that identifies the server in new cookies; by default from its address.
        userid_service: Number,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    Session,
    Max,
    Seconds(i64),
}

impl ValueKind for Keep {
    const SYNTAX: &'static str = "time | max | off";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        match d.args.first().map(|w| w.bytes.as_slice()).unwrap_or_default() {
            b"max" => Ok(Keep::Max),
            b"off" => Ok(Keep::Session),
            text => match parse_sec(text).ok_or_else(|| Problem::invalid().at(0))? {
                0 => Ok(Keep::Session),
                seconds => Ok(Keep::Seconds(seconds as i64)),
            },
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkValue(Option<u8>);

impl ValueKind for MarkValue {
    const SYNTAX: &'static str = "letter | digit | = | off";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        match d.args.first().map(|w| w.bytes.as_slice()).unwrap_or_default() {
            b"off" => Ok(MarkValue(None)),
            [c] if c.is_ascii_alphanumeric() || *c == b'=' => Ok(MarkValue(Some(*c))),
            _ => Err(Problem::directive("value must be \"off\" or a single letter, digit or \"=\"").at(0)),
        }
    }
}

static VARIABLES: &[Builtin] = &[
    Builtin::one("uid_got", got, "The cookie's name and the number that the client sent."),
    Builtin::one("uid_set", set, "The cookie's name and the number that the response sets."),
    Builtin::one("uid_reset", reset, "Any value other than 0 replaces the cookie; `log` also logs the old one.")
        .settable(set_reset),
];

pub struct UserId;

impl Feature for UserId {
    fn table(&self) -> FeatureTable {
        UserConf::table("userid", ContextArea::Http)
    }
    fn variables(&self) -> &'static [Builtin] {
        VARIABLES
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<UserConf>() else { return Ok(()) };
        if conf.userid == Mode::Off {
            return Ok(());
        }
        let mut tail = Vec::new();
        if conf.userid_domain.0 != b"none" {
            tail.extend_from_slice(b"; domain=");
            tail.extend_from_slice(&conf.userid_domain.0);
        }
        tail.extend_from_slice(b"; path=");
        tail.extend_from_slice(&conf.userid_path.0);
        for (flag, text) in [
            (Flags::SECURE, "; secure"),
            (Flags::HTTPONLY, "; httponly"),
            (Flags::STRICT, "; samesite=strict"),
            (Flags::LAX, "; samesite=lax"),
            (Flags::NONE, "; samesite=none"),
        ] {
            if conf.userid_flags.has(flag) {
                tail.extend_from_slice(text.as_bytes());
            }
        }
        let cookie = Arc::new(Cookie {
            mode: conf.userid,
            name: conf.userid_name.0.clone(),
            mark: conf.userid_mark.0,
            keep: conf.userid_expires,
            tail,
            p3p: (conf.userid_p3p.0 != b"none").then(|| conf.userid_p3p.0.clone()),
            service: conf.userid_service.map(|n| n.0 as u32),
            reset: block.cx.get::<HttpVariables>().read("uid_reset", None),
        });
        block.location.extensions.push(cookie.clone());
        if conf.userid != Mode::Log {
            block.location.filters.push((FilterOrder::UserId, Arc::new(SetCookie(cookie))));
        }
        Ok(())
    }
}

struct Cookie {
    mode: Mode,
    name: Vec<u8>,
    mark: Option<u8>,
    keep: Keep,
    tail: Vec<u8>,
    p3p: Option<Vec<u8>>,
    service: Option<u32>,
    /// `$uid_reset`, possibly the operator's.
    reset: VarId,
}

#[derive(Clone, Default)]
struct Visitor {
    got: Option<Uid>,
    sent: Vec<u8>,
    set: Option<Uid>,
    /// The identifier is new, or its mark is missing.
    fresh: bool,
}

struct Reset(Vec<u8>);

impl Cookie {
    /// Reads once per request.
    fn visitor(&self, r: &mut Request) -> Visitor {
        if let Some(visitor) = r.ext::<Visitor>() {
            return visitor.clone();
        }
        let mut visitor = Visitor::default();
        let lines = r.headers().filter(|(field, _)| field.eq_ignore_ascii_case(b"cookie"));
        let found = lines.map(|(_, value)| value).find_map(|v| http_engine::variables::find_cookie(v, &self.name));
        if let Some(sent) = found.map(<[u8]>::to_vec) {
            visitor.got = Uid::decode(&sent);
            if visitor.got.is_none() {
                let why = if sent.len() < uid::DIGITS { "too short" } else { "invalid" };
                let shown = String::from_utf8_lossy(&sent);
                r.log(Severity::Error, format_args!("client sent {why} userid cookie \"{shown}\""));
            }
            visitor.sent = sent;
        }
        r.keep(visitor.clone());
        visitor
    }

    /// Decides once per request.
    fn decide(&self, r: &mut Request) -> Visitor {
        let mut visitor = self.visitor(r);
        if visitor.set.is_some() {
            return visitor;
        }
        let mut reset = Vec::new();
        r.variable(self.reset, &mut reset);
        if let Some(got) = &visitor.got {
            if reset.is_empty() || reset == b"0" {
                let marked = visitor.sent.get(uid::DIGITS).copied() == self.mark
                    && visitor.sent.get(uid::DIGITS + 1) == Some(&b'=');
                if self.mark.is_none() || marked {
                    return visitor;
                }
                visitor.set = Some(*got);
                r.keep(visitor.clone());
                return visitor;
            }
            if reset == b"log" {
                let (name, number) = (String::from_utf8_lossy(&self.name), got.text());
                r.log(Severity::Notice, format_args!("userid cookie \"{name}={number}\" was reset"));
            }
        }
        visitor.fresh = true;
        visitor.set = Some(Uid::new(self.mode == Mode::V1, self.service, &r.connection().local));
        r.keep(visitor.clone());
        visitor
    }
}

struct SetCookie(Arc<Cookie>);

impl Filter for SetCookie {
    fn name(&self) -> &'static str {
        "userid"
    }
    fn apply(&self, r: &mut Request, body: ResponseBody) -> Result<ResponseBody, u16> {
        let cookie = &self.0;
        let visitor = cookie.decide(r);
        let Some(uid) = &visitor.set else { return Ok(body) };
        let mut value = [cookie.name.as_slice(), b"="].concat();
        if visitor.fresh {
            value.extend_from_slice(uid.encode().as_bytes());
            // The second-last character is the mark.
            if let (Some(mark), Some(last)) = (cookie.mark, value.iter_mut().nth_back(1)) {
                *last = mark;
            }
        } else {
            value.extend_from_slice(visitor.sent.get(..uid::DIGITS).unwrap_or_default());
            value.extend(cookie.mark);
            value.push(b'=');
        }
        match cookie.keep {
            Keep::Session => {}
            Keep::Max => value.extend_from_slice(b"; expires=Thu, 31-Dec-37 23:55:55 GMT"),
            Keep::Seconds(seconds) => {
                let (text, length) = cookie_time(base::clock::unix_seconds().saturating_add(seconds));
                value.extend_from_slice(b"; expires=");
                value.extend_from_slice(text.get(..length).unwrap_or_default());
            }
        }
        value.extend_from_slice(&cookie.tail);
        r.out.add("Set-Cookie", value);
        if let Some(p3p) = &cookie.p3p {
            r.out.add("P3P", p3p.clone());
        }
        Ok(body)
    }
}

fn cookie_of(r: &Request) -> Option<Arc<Cookie>> {
    let plan = r.plan_rc();
    plan.locations.get(r.location_index())?.extensions.iter().find_map(|t| t.clone().downcast::<Cookie>().ok())
}

fn put(cookie: &Cookie, uid: Option<Uid>, out: &mut Vec<u8>) -> bool {
    let Some(uid) = uid else { return false };
    out.extend_from_slice(&cookie.name);
    out.push(b'=');
    out.extend_from_slice(uid.text().as_bytes());
    true
}

fn got(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let Some(cookie) = cookie_of(r) else { return false };
    let visitor = cookie.visitor(r);
    put(&cookie, visitor.got, out)
}

fn set(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let Some(cookie) = cookie_of(r).filter(|cookie| cookie.mode != Mode::Log) else { return false };
    let visitor = cookie.decide(r);
    put(&cookie, visitor.set, out)
}

fn reset(r: &mut Request, out: &mut Vec<u8>) -> bool {
    if let Some(reset) = r.ext::<Reset>() {
        out.extend_from_slice(&reset.0);
    }
    true
}

fn set_reset(r: &mut Request, value: Vec<u8>) {
    r.keep(Reset(value));
}
