//! geo (nginx: `ngx_http_geo_module`, `ngx_stream_geo_module`): variables by client address. Networks become sorted
//! boundaries for binary search.

mod networks;
mod ranges;
#[cfg(test)]
mod tests;

use conf_schema::value::{Cidr, cidr};
use conf_schema::{Cx, Directive, Problem, ValueKind};
use networks::Networks;
use ranges::Ranges;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use variables::forwarded::TrustedNetwork;
use variables::variable::{Compute, VarId, VariableTable, directive_place};
use variables::{AreaTypes, Session};

/// A `geo` block; the variable holds its table.
pub struct Geos<A>(PhantomData<fn(A)>);

impl<A> Clone for Geos<A> {
    fn clone(&self) -> Self {
        Geos(PhantomData)
    }
}

impl<A: AreaTypes> ValueKind for Geos<A> {
    const SYNTAX: &'static str = "[$address] $variable { ... }";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let mut names = Vec::new();
        for (index, word) in d.args.iter().enumerate() {
            let text = word.text();
            match text.strip_prefix('$').filter(|n| !n.is_empty()) {
                Some(name) => names.push(name.to_string()),
                None => return Err(Problem::says(format!("invalid variable name \"{text}\"")).at(index)),
            }
        }
        let (source, name) = match names.as_slice() {
            [name] => (None, name),
            [source, name] => (Some(cx.get::<VariableTable<A>>().read(source, directive_place(d))), name),
            _ => return Err(Problem::invalid()),
        };
        let (lookup, volatile) = read(cx, d, source, A::FORWARDED)?;
        cx.get::<VariableTable<A>>().computed(name, Arc::new(lookup), volatile)?;
        Ok(Geos(PhantomData))
    }
}

#[derive(Default)]
struct GeoValues {
    all: Vec<Box<[u8]>>,
    index: HashMap<Box<[u8]>, u32>,
}

const NOTHING: u32 = u32::MAX;

impl GeoValues {
    fn intern(&mut self, value: &[u8]) -> u32 {
        if let Some(index) = self.index.get(value) {
            return *index;
        }
        let index = self.all.len() as u32;
        self.all.push(value.into());
        self.index.insert(value.into(), index);
        index
    }
    fn text(&self, index: u32) -> String {
        self.all.get(index as usize).map(|v| String::from_utf8_lossy(v).into_owned()).unwrap_or_default()
    }
}

/// Boundaries in ascending order: each value holds from its boundary on.
#[derive(Debug, Default)]
struct SortedRanges<N> {
    starts: Vec<N>,
    values: Vec<u32>,
}

impl<N: Ord + Copy> SortedRanges<N> {
    fn push(&mut self, start: N, value: u32) {
        if self.starts.last() == Some(&start) {
            self.values.pop();
            self.starts.pop();
        }
        if self.values.last() != Some(&value) {
            self.starts.push(start);
            self.values.push(value);
        }
    }
    fn find(&self, address: N) -> u32 {
        let at = self.starts.partition_point(|start| *start <= address);
        at.checked_sub(1).and_then(|at| self.values.get(at)).copied().unwrap_or(NOTHING)
    }
}

struct GeoLookup {
    /// Variable with the address; `None`: the client's.
    source: Option<VarId>,
    proxies: Vec<TrustedNetwork>,
    recursive: bool,
    v4: SortedRanges<u32>,
    v6: SortedRanges<u128>,
    /// Ignores IPv6: the block has ranges.
    only_v4: bool,
    values: Vec<Box<[u8]>>,
}

enum GatheredRanges {
    Networks(Networks),
    Ranges(Ranges),
}

fn read(cx: &mut Cx, d: &Directive, source: Option<VarId>, forwarded: bool) -> Result<(GeoLookup, bool), Problem> {
    let mut gathered = GatheredRanges::Networks(Networks::default());
    let mut values = GeoValues::default();
    let (mut proxies, mut recursive, mut volatile) = (Vec::new(), false, false);
    for line in conf_syntax::list_directives(d.block.as_deref().unwrap_or_default()) {
        let name = line.name.bytes.as_slice();
        match (name, line.args.as_slice()) {
            (b"ranges", []) => {
                if matches!(&gathered, GatheredRanges::Networks(n) if !n.is_empty()) {
                    let text = "the \"ranges\" directive must be the first directive inside \"geo\" block";
                    return Err(Problem::says(text).on(line));
                }
                if matches!(gathered, GatheredRanges::Networks(_)) {
                    gathered = GatheredRanges::Ranges(Ranges::default());
                }
            }
            (b"proxy_recursive", []) if forwarded => recursive = true,
            (b"volatile", []) => volatile = true,
            (b"proxy", [network]) if forwarded => {
                let network = parse_network(cx, line, &network.bytes).map_err(|p| p.on(line))?;
                proxies.push(TrustedNetwork::Network(network));
            }
            (_, [value]) => match &mut gathered {
                GatheredRanges::Networks(n) => n.line(cx, line, &value.bytes, &mut values),
                GatheredRanges::Ranges(r) => r.line(cx, line, &value.bytes, &mut values),
            }
            .map_err(|p| p.on(line))?,
            _ => return Err(Problem::says("invalid number of the geo parameters").on(line)),
        }
    }
    let only_v4 = matches!(gathered, GatheredRanges::Ranges(_));
    let (v4, v6) = match gathered {
        GatheredRanges::Networks(networks) => networks.flatten(),
        GatheredRanges::Ranges(ranges) => (ranges.flatten(), SortedRanges::default()),
    };
    Ok((GeoLookup { source, proxies, recursive, v4, v6, only_v4, values: values.all }, volatile))
}

/// With nginx's warning about stray bits.
fn parse_network(cx: &mut Cx, line: &Directive, text: &[u8]) -> Result<Cidr, Problem> {
    match Cidr::parse(text) {
        Some((network, stray)) => {
            if stray {
                cx.warn(line, format!("low address bits of {} are meaningless", String::from_utf8_lossy(text)));
            }
            Ok(network)
        }
        None => Err(Problem::says(format!("invalid network \"{}\"", String::from_utf8_lossy(text)))),
    }
}

impl GeoLookup {
    /// `None` for clients of UNIX-domain sockets.
    fn address<S: Session>(&self, r: &mut S) -> Option<IpAddr> {
        let peer: Option<SocketAddr> = match self.source {
            None => r.peer(),
            Some(variable) => {
                let mut text = Vec::new();
                if !r.variable(variable, &mut text) {
                    return None;
                }
                let text = std::str::from_utf8(&text).ok()?;
                Some(SocketAddr::new(text.parse().ok()?, 0))
            }
        };
        if self.proxies.is_empty() {
            return peer.map(|a| a.ip());
        }
        let client = r.forwarded_for(peer, &self.proxies, self.recursive);
        client.or(peer).map(|a| a.ip())
    }
    fn find(&self, address: Option<IpAddr>) -> u32 {
        // A missing address counts as the highest one, as in nginx.
        let (v6, number) = match address {
            None => (false, u128::from(u32::MAX)),
            Some(IpAddr::V6(v6)) => match v6.to_ipv4_mapped() {
                Some(v4) => cidr::address_number(IpAddr::V4(v4)),
                None if self.only_v4 => (false, u128::from(u32::MAX)),
                None => cidr::address_number(IpAddr::V6(v6)),
            },
            Some(v4) => cidr::address_number(v4),
        };
        if v6 { self.v6.find(number) } else { self.v4.find(number as u32) }
    }
}

impl<A: AreaTypes> Compute<A> for GeoLookup {
    fn get(&self, r: &mut A::Session, out: &mut Vec<u8>) -> bool {
        let address = self.address(r);
        if let Some(value) = self.values.get(self.find(address) as usize) {
            out.extend_from_slice(value);
        }
        true
    }
}
