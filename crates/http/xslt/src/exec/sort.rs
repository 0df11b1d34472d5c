//! `xsl:sort` (section 10). Texts compare by their bytes, as libxslt's do without a locale.

use crate::engine::{Engine, Focus};
use crate::failure::{RunResult, failed};
use crate::sheet::SortKey;
use crate::store::NodeRef;
use crate::xpath::number;
use std::cmp::Ordering;

enum Key {
    Text(String),
    Number(f64),
}

impl Engine<'_> {
    pub(super) fn sort(&mut self, nodes: Vec<NodeRef>, sorts: &[SortKey], focus: &Focus) -> RunResult<Vec<NodeRef>> {
        if sorts.is_empty() || nodes.len() < 2 {
            return Ok(nodes);
        }
        let mut orders = Vec::with_capacity(sorts.len());
        for sort in sorts {
            let word = |engine: &mut Self, avt: &Option<crate::sheet::Avt>, default: &str| match avt {
                Some(avt) => engine.avt(avt, focus),
                None => Ok(default.to_string()),
            };
            let numeric = match word(self, &sort.numeric, "text")?.as_str() {
                "text" => false,
                "number" => true,
                other => return failed(format!("xsltDoSortFunction: no support for data-type = {other}")),
            };
            let descending = match word(self, &sort.order, "ascending")?.as_str() {
                "ascending" => false,
                "descending" => true,
                other => return failed(format!("xsltDoSortFunction: invalid value {other} for order")),
            };
            orders.push((numeric, descending));
        }
        let size = nodes.len();
        let mut keyed = Vec::with_capacity(size);
        let mut bytes = 0;
        for (index, node) in nodes.into_iter().enumerate() {
            let mut keys = Vec::with_capacity(sorts.len());
            for (sort, (numeric, _)) in sorts.iter().zip(&orders) {
                let inner = Focus { node, position: index + 1, size, current: node, scope: sort.scope };
                let text = self.eval_text(&sort.select, &inner)?;
                bytes += text.len() + 32;
                self.spend(text.len() + 32)?;
                keys.push(if *numeric { Key::Number(number::parse(&text)) } else { Key::Text(text) });
            }
            keyed.push((keys, node));
        }
        self.step(size as u64 * u64::from(size.ilog2() + 1))?;
        keyed.sort_by(|(a, _), (b, _)| {
            let compared = a.iter().zip(b).zip(&orders).map(|((a, b), (_, descending))| {
                let order = compare(a, b);
                if *descending { order.reverse() } else { order }
            });
            compared.fold(Ordering::Equal, Ordering::then)
        });
        self.bytes_left += bytes;
        Ok(keyed.into_iter().map(|(_, node)| node).collect())
    }
}

/// Numbers that are none come first.
fn compare(a: &Key, b: &Key) -> Ordering {
    match (a, b) {
        (Key::Text(a), Key::Text(b)) => a.cmp(b),
        (Key::Number(a), Key::Number(b)) => match (a.is_nan(), b.is_nan()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            _ => a.partial_cmp(b).unwrap_or(Ordering::Equal),
        },
        _ => Ordering::Equal,
    }
}
