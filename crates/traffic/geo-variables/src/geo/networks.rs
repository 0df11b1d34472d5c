//! Blocks of networks: the longest prefix wins.

use super::{GeoValues, NOTHING, SortedRanges, parse_network};
use conf_schema::value::Cidr;
use conf_schema::{Cx, Directive, Problem};
use std::collections::HashMap;

#[derive(Default)]
pub struct Networks {
    all: HashMap<Cidr, u32>,
}

impl Networks {
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
    pub fn line(&mut self, cx: &mut Cx, line: &Directive, value: &[u8], values: &mut GeoValues) -> Result<(), Problem> {
        match line.name.bytes.as_slice() {
            b"default" => {
                for v6 in [false, true] {
                    self.add(cx, line, Cidr { v6, address: 0, bits: 0 }, values.intern(value), values);
                }
            }
            b"delete" => {
                let network = parse_network(cx, line, value)?;
                if self.all.remove(&network).is_none() {
                    cx.warn(line, format!("no network \"{}\" to delete", String::from_utf8_lossy(value)));
                }
            }
            name => {
                let network = parse_network(cx, line, name)?;
                self.add(cx, line, network, values.intern(value), values);
            }
        }
        Ok(())
    }
    fn add(&mut self, cx: &mut Cx, line: &Directive, network: Cidr, value: u32, values: &GeoValues) {
        if let Some(old) = self.all.insert(network, value) {
            cx.warn(
                line,
                format!(
                    "duplicate network \"{}\", value: \"{}\", old value: \"{}\"",
                    line.name.text(),
                    values.text(value),
                    values.text(old)
                ),
            );
        }
    }
    pub fn flatten(self) -> (SortedRanges<u32>, SortedRanges<u128>) {
        let mut all: Vec<(Cidr, u32)> = self.all.into_iter().collect();
        // A network precedes those inside it.
        all.sort_unstable_by_key(|(network, _)| (network.v6, network.address, network.bits));
        let split = all.partition_point(|(network, _)| !network.v6);
        let (mut v4, mut v6) = (SortedRanges::default(), SortedRanges::default());
        let (four, six) = all.split_at(split);
        sweep(four, u128::from(u32::MAX), |start, value| v4.push(start as u32, value));
        sweep(six, u128::MAX, |start, value| v6.push(start, value));
        (v4, v6)
    }
}

/// Walks over sorted networks, which nest and never cross, and reports each boundary with its value.
fn sweep(networks: &[(Cidr, u32)], highest: u128, mut tell: impl FnMut(u128, u32)) {
    // Enclosing networks: their last addresses and values.
    let mut around: Vec<(u128, u32)> = Vec::new();
    let close = |around: &mut Vec<(u128, u32)>, before: Option<u128>, tell: &mut dyn FnMut(u128, u32)| {
        while let Some((last, _)) = around.last().copied().filter(|(last, _)| before.is_none_or(|at| *last < at)) {
            around.pop();
            if last < highest {
                tell(last + 1, around.last().map_or(NOTHING, |(_, value)| *value));
            }
        }
    };
    for (network, value) in networks {
        close(&mut around, Some(network.address), &mut tell);
        tell(network.address, *value);
        around.push((network.last(), *value));
    }
    close(&mut around, None, &mut tell);
}
