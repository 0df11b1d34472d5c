//! dns: answers the names of zones, with the addresses of servers that are well and near. The crate `dns-zone` reads
//! queries and writes responses.
//!
//! `lines.rs` reads the block, `pools.rs` selects servers of groups, `serving.rs` answers queries, `variables.rs` shows
//! them.

mod lines;
mod pools;
mod serving;
mod variables;

use crate::Builtin;
use crate::build::{Feature, ServerBuild};
use crate::groups::StreamGroups;
use area::bucket::Rate;
use conf_schema::value::Msec;
use conf_schema::value::parse_decimal;
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use dns_zone::ServerZones;
use lines::ZoneBlocks;
use pools::Pool;
use serving::NameServer;
use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

directives! {
    pub struct DnsConf from DnsInput {
        /// Answers DNS queries for a zone, over UDP and TCP. A line of the block is `name [ttl] type value ...;`, as in zone
        /// files: `@` is the zone's own name, names without a final dot are relative to it, `*` as the first label is a
        /// wildcard. Types: `A`, `AAAA`, `CAA`, `CNAME`, `HTTPS`, `MX`, `NS`, `PTR`, `SOA`, `SRV`, `SVCB`, `TXT`. The type
        /// `pool` answers with the addresses of `upstream` groups whose servers are available: `pool group ...` takes the
        /// first group that has such servers, `pool $variable value=group[,group] ... default=group` selects the groups by a
        /// variable. `answers=number` limits the addresses (8), `down=all | nodata | servfail` determines the answer without any
        /// available server: all servers of the first group (the default), none, or an error. A zone has NS records;
        /// without an SOA record it gets one. `ttl` is the default of lines, 300 seconds. Zones are not signed (DNSSEC) and
        /// not transferred.
        dns: ZoneBlocks,
        /// Maximum rate of responses over UDP to a network (a /24 of IPv4, a /56 of IPv6), whose address may be forged: of
        /// the queries beyond it, every second one gets a truncated response, which makes resolvers ask over TCP, and the
        /// others none. `burst` is the number of responses that a network gets at once, by default those of a second.
        dns_rate_limit: RateLimit = "100r/s",
        /// Maximum time between queries of a TCP connection, and for the client to take a response.
        dns_idle_timeout: Msec = "10s",
    }
}

/// `dns_rate_limit`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// `None`: off.
    rate: Option<Rate>,
    burst: u64,
}

impl ValueKind for RateLimit {
    const SYNTAX: &'static str = "rate [burst=number] | off";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let words: Vec<_> = d.args.iter().map(|word| word.text()).collect();
        let (text, more) = words.split_first().ok_or_else(Problem::invalid)?;
        if &**text == "off" && more.is_empty() {
            return Ok(RateLimit { rate: None, burst: 0 });
        }
        let invalid = || Problem::says(format!("invalid rate \"{text}\"")).at(0).hint("such as \"100r/s\", or \"off\"");
        let rate = Rate::parse(text).filter(|rate| rate.0 > 0).ok_or_else(invalid)?;
        let mut burst = rate.0.div_ceil(1000);
        if let [more, ..] = more {
            let number = more.strip_prefix("burst=").and_then(parse_decimal::<u32>).filter(|burst| *burst > 0);
            let wrong =
                || Problem::says(format!("invalid parameter \"{more}\"")).at(1).hint("\"burst=number\", at least 1");
            burst = u64::from(number.ok_or_else(wrong)?);
        }
        Ok(RateLimit { rate: Some(rate), burst })
    }
}

pub struct Dns;

impl Feature for Dns {
    fn table(&self) -> FeatureTable {
        DnsConf::table("dns", ContextArea::Stream)
    }
    fn variables(&self) -> &'static [Builtin] {
        variables::ROWS
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut ServerBuild<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<DnsConf>() else { return Ok(()) };
        let Some(blocks) = &conf.dns else { return Ok(()) };
        // All groups are known by now.
        let groups = block.cx.get::<StreamGroups>().clone();
        let mut zones = ServerZones::default();
        let mut pools = HashMap::new();
        for zone_block in &blocks.all {
            let name = zone_block.zone.apex().to_string();
            if !zones.add(zone_block.zone.clone()) {
                let problem = Problem::says(format!("duplicate zone \"{name}\""));
                return Err(Problem { inner: Some(zone_block.at), ..problem }.hint("a zone has one \"dns\" block"));
            }
            for (number, line) in &zone_block.pools {
                pools.insert(*number, Pool::bind(line, &groups)?);
            }
        }
        let limit = conf.dns_rate_limit;
        let rate = limit.rate.map(|rate| dns_zone::ResponseRate::new(rate.0, limit.burst));
        let server = NameServer::new(zones, pools, rate, conf.dns_idle_timeout.duration());
        block.answers(blocks.place, Arc::new(server));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(text: &str) -> Result<RateLimit, Problem> {
        RateLimit::parse(&mut Cx::default(), &conf_schema::table::synthetic_directive("dns_rate_limit", text))
    }

    #[test]
    fn rates_of_responses() {
        assert_eq!(limit("off").ok(), Some(RateLimit { rate: None, burst: 0 }));
        assert_eq!(limit("100r/s").ok(), Some(RateLimit { rate: Some(Rate(100_000)), burst: 100 }));
        assert_eq!(limit("30r/m burst=7").ok(), Some(RateLimit { rate: Some(Rate(500)), burst: 7 }));
        for text in ["x", "0r/s", "1r/s burst=0", "1r/s x=1", "off burst=1"] {
            assert!(limit(text).is_err(), "{text}");
        }
    }
}
