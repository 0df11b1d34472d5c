//! backend_weights: a variable with one of several values, drawn for each request by weight.

use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use http_engine::variable::{Compute, HttpVariables};
use http_engine::{BlockPlan, Feature, HttpArea, Request};
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct WeightsConf from WeightsInput {
        /// Defines a variable with one of the block's values, drawn by weight when a request first reads it: `a 90; b 10;` gives `a` to nine
        /// of ten requests. A request has the same value everywhere, with its internal redirects and subrequests, for example in
        /// `proxy_pass http://$name` and in conditions of `route_match`. Weights are from 0 to 1000000, in any unit; a value with weight 0
        /// is not drawn. The variable is empty if no value has a weight.
        backend_weights: WeightedGroup,
    }
}

/// Of a value, at most.
const WEIGHT_MAX: u64 = 1_000_000;

/// A `backend_weights` block; the variable has the weights.
#[derive(Clone)]
pub struct WeightedGroup;

struct Weights {
    /// Values with the sum of the weights up to them.
    ends: Vec<(u64, Box<[u8]>)>,
}

impl Weights {
    fn parse(d: &Directive) -> Result<Weights, Problem> {
        let (mut ends, mut sum) = (Vec::new(), 0);
        for line in conf_syntax::list_directives(d.block.as_deref().unwrap_or_default()) {
            let [word] = line.args.as_slice() else {
                return Err(Problem::says(format!("\"{}\" needs one weight", line.name.text()))
                    .on(line)
                    .hint("write a value and its weight: \"backend 90;\""));
            };
            let weight = Some(word.text())
                .filter(|text| text.bytes().all(|c| c.is_ascii_digit()))
                .and_then(|text| text.parse::<u64>().ok())
                .filter(|weight| *weight <= WEIGHT_MAX);
            let Some(weight) = weight else {
                return Err(Problem::says(format!("invalid weight \"{}\"", word.text()))
                    .on(line)
                    .hint("a number from 0 to 1000000"));
            };
            sum += weight;
            if weight > 0 {
                ends.push((sum, line.name.bytes.as_slice().into()));
            }
        }
        Ok(Weights { ends })
    }
    /// Returns the value for a random number that is evenly distributed; empty without weights.
    fn drawn(&self, random: u64) -> &[u8] {
        let Some((sum, _)) = self.ends.last() else { return b"" };
        // The share of 2^64 that a weight has differs from the exact one by less than one number.
        let at = ((u128::from(random) * u128::from(*sum)) >> 64) as u64;
        let index = self.ends.partition_point(|(end, _)| *end <= at);
        self.ends.get(index).map_or(b"", |(_, value)| value)
    }
}

impl Compute<HttpArea> for Weights {
    fn get(&self, _: &mut Request, out: &mut Vec<u8>) -> bool {
        out.extend_from_slice(self.drawn(u64::from_le_bytes(net::random::bytes())));
        true
    }
}

impl ValueKind for WeightedGroup {
    const SYNTAX: &'static str = "$variable { ... }";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let name = conf_schema::value::word_at(d, 0)?.text().into_owned();
        let Some(name) = name.strip_prefix('$').filter(|name| !name.is_empty()) else {
            return Err(Problem::says(format!("invalid variable name \"{name}\""))
                .at(0)
                .hint("a variable name begins with \"$\""));
        };
        let weights = Arc::new(Weights::parse(d)?);
        cx.get::<HttpVariables>().computed(name, weights, false).map_err(|p| p.at(0))?;
        Ok(WeightedGroup)
    }
}

pub struct BackendWeights;

impl Feature for BackendWeights {
    fn table(&self) -> FeatureTable {
        WeightsConf::table("backend_weights", ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, _: &Arc<dyn Any + Send + Sync>, _: &mut BlockPlan<'_>) -> Result<(), Problem> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use conf_syntax::{FileId, TreeItem, parse_file};

    fn weights(body: &str) -> Result<Weights, String> {
        let items = parse_file(FileId(0), format!("backend_weights $x {{ {body} }}").as_bytes());
        let Some(TreeItem::Directive(d)) = items.into_iter().next() else { panic!("no block") };
        Weights::parse(&d).map_err(|p| format!("{:?}", p.words))
    }

    /// SplitMix64 with a fixed seed.
    fn randoms(mut state: u64) -> impl Iterator<Item = u64> {
        std::iter::repeat_with(move || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = state;
            z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ z >> 31
        })
    }

    #[test]
    fn draws_are_distributed_by_weight() {
        const DRAWS: usize = 1_000_000;
        let given = [("a", 900_000), ("none", 0), ("b", 90_000), ("c", 9_999), ("d", 1)];
        let body: String = given.iter().map(|(value, weight)| format!("{value} {weight}; ")).collect();
        let weights = weights(&body).expect("weights");
        let mut counts = std::collections::HashMap::<&[u8], usize>::new();
        for random in randoms(1).take(DRAWS) {
            *counts.entry(weights.drawn(random)).or_default() += 1;
        }
        let sum: u64 = given.iter().map(|(_, weight)| weight).sum();
        let mut chi_square = 0.0;
        for (value, weight) in given {
            let expected = DRAWS as f64 * weight as f64 / sum as f64;
            let got = counts.get(value.as_bytes()).copied().unwrap_or(0) as f64;
            if weight == 0 {
                assert_eq!(got, 0.0, "{value}");
            } else {
                chi_square += (got - expected).powi(2) / expected;
            }
        }
        // Three degrees of freedom: beyond 21.1 with a probability of 1 in 10,000.
        assert!(chi_square < 21.1, "{chi_square}: {counts:?}");
    }

    #[test]
    fn draws_cover_the_whole_range() {
        let all = weights("a 1; b 1; c 2;").expect("weights");
        let half = 1 << 63;
        for (random, value) in
            [(0, "a"), (half / 2 - 1, "a"), (half / 2, "b"), (half - 1, "b"), (half, "c"), (u64::MAX, "c")]
        {
            assert_eq!(all.drawn(random), value.as_bytes(), "{random}");
        }
        assert_eq!(weights("a 0; b 0;").expect("weights").drawn(7), b"");
        assert_eq!(weights("").expect("weights").drawn(7), b"");
    }

    #[test]
    fn invalid_weights_are_refused() {
        for (body, words) in [
            ("a;", "needs one weight"),
            ("a 1 2;", "needs one weight"),
            ("a x;", "invalid weight"),
            ("a -1;", "invalid weight"),
            ("a 1000001;", "invalid weight"),
        ] {
            assert!(weights(body).err().expect(body).contains(words), "{body}");
        }
    }
}
