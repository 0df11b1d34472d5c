//! How files that are not in memory are read: `aio`, `directio` and their kin (nginx: `ngx_http_core_module`).

use crate::request::Request;
use crate::template::Template;
use conf_schema::{At, Cx, Directive, Problem, Value};
use net::pool::{DEFAULT, Pool, named};
use observe::Level;
use std::sync::Arc;

/// `aio`: what a disk may make wait is left to threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Aio {
    #[default]
    Off,
    /// Direct reads (`directio`) alone.
    Direct,
    /// All reads, by the pool of this name.
    Threads(Template),
}

/// The pools that `aio` lines name, in the [`Cx`]: whoever knows the declared ones compares.
#[derive(Debug, Default)]
pub struct PoolsAsked(pub Vec<(String, At)>);

impl Value for Aio {
    const SYNTAX: &'static str = "on | off | threads[=pool]";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let Some(word) = d.args.first() else { return Err(Problem::invalid()) };
        match &word.bytes[..] {
            b"off" => Ok(Aio::Off),
            b"on" => Ok(Aio::Direct),
            b"threads" => Ok(Aio::Threads(Template::literal(DEFAULT.as_bytes()))),
            [b't', b'h', b'r', b'e', b'a', b'd', b's', b'=', name @ ..] => {
                let pool = Template::compile(cx, d, name).map_err(|p| p.at(0))?;
                if let Some(name) = pool.as_literal() {
                    let name = String::from_utf8_lossy(name).into_owned();
                    cx.get::<PoolsAsked>().0.push((name, At { span: d.span, line: d.line }));
                }
                Ok(Aio::Threads(pool))
            }
            b"sendfile" => Err(Problem::says("\"aio sendfile\" is unsupported on this platform")
                .at(0)
                .hint("it is an option of FreeBSD; \"aio threads\" keeps slow disks from holding up others here")),
            _ => Err(Problem::directive("invalid value").at(0)),
        }
    }
}

/// `directio`: files of this size and more are read past the kernel's cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Directio(pub Option<u64>);

impl Value for Directio {
    const SYNTAX: &'static str = "size | off";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let word = d.args.first().map(|w| w.bytes.as_slice()).unwrap_or_default();
        if word == b"off" {
            return Ok(Directio(None));
        }
        match conf_schema::value::parse_offset(word) {
            Some(size) => Ok(Directio(Some(size))),
            None => Err(Problem::directive("invalid value").at(0)),
        }
    }
}

/// The pool that reads files in the request's location; `None`: its own thread does.
pub fn pool(r: &mut Request) -> Option<Arc<Pool>> {
    let name = match &r.loc().core.conf.aio {
        Aio::Off => return None,
        Aio::Direct => return named(DEFAULT),
        Aio::Threads(name) => name.clone(),
    };
    let name = name.eval(r);
    let name = String::from_utf8_lossy(&name);
    let found = named(&name);
    if found.is_none() {
        r.log(Level::Error, format_args!("thread pool \"{name}\" not found"));
    }
    found
}
