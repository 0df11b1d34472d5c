//! Ranges (`ranges;`), IPv4 only. nginx's pages of 65,536 addresses determine overlaps: within a page a later range may
//! lie inside an earlier one.

use super::{GeoValues, NOTHING, SortedRanges};
use conf_schema::{Cx, Directive, Problem};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

#[derive(Default)]
pub struct Ranges {
    /// Last address and value by first address; no part crosses the end of a page.
    parts: BTreeMap<u32, (u32, u32)>,
    default: Option<u32>,
}

impl Ranges {
    pub fn line(&mut self, cx: &mut Cx, line: &Directive, value: &[u8], values: &mut GeoValues) -> Result<(), Problem> {
        match line.name.bytes.as_slice() {
            b"default" => {
                let value = values.intern(value);
                if let Some(old) = self.default.replace(value) {
                    cx.warn(
                        line,
                        format!(
                            "duplicate default geo range value: \"{}\", old value: \"{}\"",
                            values.text(value),
                            values.text(old)
                        ),
                    );
                }
                Ok(())
            }
            b"delete" => {
                let (start, end) = range(value)?;
                let mut missing = false;
                for (first, last) in pages(start, end) {
                    if self.parts.get(&first).is_some_and(|(end, _)| *end == last) {
                        self.parts.remove(&first);
                    } else {
                        missing = true;
                    }
                }
                if missing {
                    cx.warn(line, format!("no address range \"{}\" to delete", String::from_utf8_lossy(value)));
                }
                Ok(())
            }
            name => {
                let (start, end) = range(name)?;
                let value = values.intern(value);
                for (first, last) in pages(start, end) {
                    self.add(cx, line, first, last, value, values)?;
                }
                Ok(())
            }
        }
    }

    fn add(
        &mut self,
        cx: &mut Cx,
        line: &Directive,
        first: u32,
        last: u32,
        value: u32,
        values: &GeoValues,
    ) -> Result<(), Problem> {
        let before =
            self.parts.range(first & 0xffff_0000..=last).next_back().map(|(start, (end, v))| (*start, *end, *v));
        match before {
            Some((start, end, old)) if start == first && end == last => {
                cx.warn(
                    line,
                    format!(
                        "duplicate range \"{}\", value: \"{}\", old value: \"{}\"",
                        line.name.text(),
                        values.text(value),
                        values.text(old)
                    ),
                );
            }
            Some((start, end, old)) if start <= first && last <= end => {
                if start < first {
                    self.parts.insert(start, (first - 1, old));
                }
                if last < end {
                    self.parts.insert(last + 1, (end, old));
                }
            }
            Some((start, end, _)) if end >= first => {
                return Err(Problem::says(format!(
                    "range \"{}\" overlaps \"{}-{}\"",
                    line.name.text(),
                    Ipv4Addr::from_bits(start),
                    Ipv4Addr::from_bits(end)
                )));
            }
            _ => {}
        }
        self.parts.insert(first, (last, value));
        Ok(())
    }

    /// With the default between the ranges.
    pub fn flatten(self) -> SortedRanges<u32> {
        let default = self.default.unwrap_or(NOTHING);
        let mut sorted = SortedRanges::default();
        sorted.push(0, default);
        for (first, (last, value)) in self.parts {
            sorted.push(first, value);
            if let Some(next) = last.checked_add(1) {
                sorted.push(next, default);
            }
        }
        sorted
    }
}

fn range(text: &[u8]) -> Result<(u32, u32), Problem> {
    let shown = String::from_utf8_lossy(text);
    let invalid = || Problem::says(format!("invalid range \"{shown}\""));
    let (start, end) = shown.split_once('-').ok_or_else(invalid)?;
    let address = |text: &str| text.parse::<Ipv4Addr>().map(Ipv4Addr::to_bits).map_err(|_| invalid());
    let (start, end) = (address(start)?, address(end)?);
    if start > end {
        return Err(invalid());
    }
    Ok((start, end))
}

fn pages(start: u32, end: u32) -> impl Iterator<Item = (u32, u32)> {
    (start >> 16..=end >> 16).map(move |page| (start.max(page << 16), end.min(page << 16 | 0xffff)))
}
