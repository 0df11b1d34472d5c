//! Arguments of the balancers, of `keepalive`, `queue` and `zone`.

use area::zones;
use conf_schema::value::{parse_decimal, parse_msec, parse_size};
use conf_schema::{Contexts, Cx, Directive, Problem, ValueKind};
use upstream::BalanceMethod;
use upstream::balance::Time;
use upstream::group::Queue;
use variables::{AreaTypes, Template};

fn word(d: &Directive, index: usize) -> Option<String> {
    d.args.get(index).map(|w| w.text().into_owned())
}

fn invalid(text: &str, index: usize) -> Problem {
    Problem::says(format!("invalid parameter \"{text}\"")).at(index)
}

#[derive(Clone, Copy)]
pub struct Marker;

impl ValueKind for Marker {
    const SYNTAX: &'static str = "";
    const REPEATS: bool = true;
    fn parse(_: &mut Cx, _: &Directive) -> Result<Self, Problem> {
        Ok(Marker)
    }
}

pub struct HashKey<A> {
    pub key: Template<A>,
    pub consistent: bool,
}

impl<A> Clone for HashKey<A> {
    fn clone(&self) -> Self {
        HashKey { key: self.key.clone(), consistent: self.consistent }
    }
}

impl<A: AreaTypes> ValueKind for HashKey<A> {
    const SYNTAX: &'static str = "key [consistent]";
    const REPEATS: bool = true;
    fn append(&mut self, later: Self) {
        *self = later;
    }
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let key = Template::parse(cx, d)?;
        match word(d, 1).as_deref() {
            None => Ok(HashKey { key, consistent: false }),
            Some("consistent") => Ok(HashKey { key, consistent: true }),
            Some(other) => Err(invalid(other, 1)),
        }
    }
}

#[derive(Clone, Copy)]
pub struct RandomValue(pub BalanceMethod);

impl ValueKind for RandomValue {
    const SYNTAX: &'static str = "[two [least_conn | least_time=header | least_time=last_byte]]";
    const REPEATS: bool = true;
    fn append(&mut self, later: Self) {
        *self = later;
    }
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let method = match (word(d, 0).as_deref(), word(d, 1).as_deref()) {
            (None, _) => BalanceMethod::Random,
            (Some("two"), None | Some("least_conn")) => BalanceMethod::Two(None),
            (Some("two"), Some("least_time=header")) => BalanceMethod::Two(Some(Time::Header)),
            (Some("two"), Some("least_time=last_byte")) => BalanceMethod::Two(Some(Time::LastByte)),
            (Some("two"), Some(other)) => return Err(invalid(other, 1)),
            (Some(other), _) => return Err(invalid(other, 0)),
        };
        Ok(RandomValue(method))
    }
}

#[derive(Clone, Copy)]
pub struct LeastTime(pub BalanceMethod);

impl ValueKind for LeastTime {
    const SYNTAX: &'static str = "header | last_byte [inflight]";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let time = match word(d, 0).as_deref() {
            Some("header") => Time::Header,
            Some("last_byte") => Time::LastByte,
            other => return Err(Problem::says(format!("invalid value \"{}\"", other.unwrap_or_default())).at(0)),
        };
        match word(d, 1).as_deref() {
            None => Ok(LeastTime(BalanceMethod::LeastTime { time, inflight: false })),
            Some("inflight") => Ok(LeastTime(BalanceMethod::LeastTime { time, inflight: true })),
            Some(other) => Err(invalid(other, 1)),
        }
    }
}

#[derive(Clone, Copy)]
pub struct QueueValue(pub Queue);

impl ValueKind for QueueValue {
    const SYNTAX: &'static str = "number [timeout=time]";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let text = word(d, 0).unwrap_or_default();
        let max = parse_decimal(&text).filter(|n| *n > 0);
        let max = max.ok_or_else(|| Problem::says(format!("invalid value \"{text}\"")).at(0))?;
        let mut queue = Queue { max, timeout_ms: 60_000 };
        if let Some(text) = word(d, 1) {
            let time = text.strip_prefix("timeout=").and_then(|t| parse_msec(t.as_bytes())).filter(|ms| *ms > 0);
            queue.timeout_ms = time.ok_or_else(|| invalid(&text, 1))?;
        }
        Ok(QueueValue(queue))
    }
}

#[derive(Clone, Copy)]
pub struct KeepaliveValue {
    pub connections: usize,
    pub local: bool,
}

impl ValueKind for KeepaliveValue {
    const SYNTAX: &'static str = "connections [local]";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let text = word(d, 0).unwrap_or_default();
        let connections = parse_decimal::<usize>(&text)
            .ok_or_else(|| Problem::says(format!("invalid value \"{text}\" in \"keepalive\" directive")).at(0))?;
        match word(d, 1).as_deref() {
            None => Ok(KeepaliveValue { connections, local: false }),
            Some("local") => Ok(KeepaliveValue { connections, local: true }),
            Some(other) => Err(invalid(other, 1)),
        }
    }
}

/// `zone name [size]`
#[derive(Clone)]
pub struct Zone(pub String);

impl Zone {
    /// Kind of the zones of an area's groups.
    pub const fn kind(stream: bool) -> &'static str {
        if stream { "upstream of stream" } else { "upstream" }
    }
}

impl ValueKind for Zone {
    const SYNTAX: &'static str = "name [size]";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let name = word(d, 0).unwrap_or_default();
        let mut bytes_given = 0;
        if name.is_empty() {
            return Err(Problem::says("invalid zone name \"\"").at(0));
        }
        if let Some(size) = d.args.get(1) {
            let bytes = parse_size(&size.bytes)
                .ok_or_else(|| Problem::says(format!("invalid zone size \"{}\"", size.text())).at(1))?;
            if bytes < 8 * 4096 {
                return Err(Problem::says(format!("zone \"{name}\" is too small")).at(1));
            }
            bytes_given = bytes;
        }
        let kind = Zone::kind(cx.context == Contexts::stream_upstream);
        zones::share_zone(cx, kind, &name, bytes_given).map_err(|p| p.at(0))?;
        Ok(Zone(name))
    }
}
