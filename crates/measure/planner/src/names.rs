//! `plan names`: queries that a zone gets for a time to live, the machines that answer them, and the time for which
//! clients still reach a server that has failed.

use figures::table::TextTable;
use figures::units::{format_dollars, format_grouped, format_seconds};
use serde_json::{Value, json};

use crate::capacity::PricedMachine;
use crate::cluster::{Extras, Offer, SizingRule, ranked_offers};

/// Clients of a zone, behind resolvers that remember its answers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ZoneLoad {
    /// Caches of answers: resolvers, or pairs of resolver and client network with EDNS client subnet.
    pub resolvers: f64,
    /// Lookups of all clients per second.
    pub lookups: f64,
    /// Names among which they are spread evenly.
    pub names: f64,
    /// Questions of a lookup: 2 for A and AAAA.
    pub types: f64,
}

impl ZoneLoad {
    /// Returns the zone's queries per second for a time to live in seconds.
    ///
    /// A resolver asks at the first lookup and repeats the answer for the time to live; with lookups at random times
    /// (Poisson) at a rate `r` it asks `r / (1 + r * ttl)` times a second (Jung, Berger and Balakrishnan, 2003).
    pub fn queries(&self, ttl: f64) -> f64 {
        let rate = self.lookups / (self.resolvers * self.names);
        self.resolvers * self.names * self.types * rate / (1.0 + rate * ttl)
    }
}

/// Costs of a time to live.
#[derive(Clone, Debug)]
pub struct NamesRow {
    pub ttl: f64,
    pub queries: f64,
    /// Seconds until no client is sent to a server that has failed: its check, and the time to live.
    pub away: f64,
    /// `None`: the rule allows too few machines.
    pub offer: Option<Offer>,
}

/// Computes one row per time to live; `check` is the time in seconds that health checks take to find a failure.
pub fn names_rows(
    machines: &[PricedMachine],
    load: &ZoneLoad,
    ttls: &[f64],
    check: f64,
    rule: &SizingRule,
) -> Vec<NamesRow> {
    let row = |ttl: &f64| {
        let queries = load.queries(*ttl);
        let offer = ranked_offers(machines.iter(), queries, rule, &Extras::default()).into_iter().next();
        NamesRow { ttl: *ttl, queries, away: check + ttl, offer }
    };
    ttls.iter().map(row).collect()
}

/// Formats the rows for a terminal.
pub fn names_text(load: &ZoneLoad, rows: &[NamesRow], rule: &SizingRule) -> String {
    let mut out = format!(
        "{} lookups/s of {} names, {} questions each, behind {} resolvers\n\n",
        format_grouped(load.lookups as i64),
        format_grouped(load.names as i64),
        load.types,
        format_grouped(load.resolvers as i64)
    );
    let mut table = TextTable::new(&["TTL", "queries/s", "<machines", "$/h", "used", "a failed server is reached for"]);
    for row in rows {
        let mut cells = vec![format_seconds(row.ttl), format_grouped(row.queries.ceil() as i64)];
        match &row.offer {
            Some(offer) => cells.extend([
                format!("{} × {}", offer.nodes, offer.machine),
                format_dollars(offer.per_hour),
                format!("{:.1} %", offer.utilisation.mid * 100.0),
            ]),
            None => cells.extend([format!("{} too few", rule.nodes_max), String::new(), String::new()]),
        }
        cells.push(format_seconds(row.away));
        table.row(cells);
    }
    out.push_str(&table.text());
    out
}

/// Formats the rows as JSON.
pub fn to_json(load: &ZoneLoad, rows: &[NamesRow]) -> Value {
    let row = |row: &NamesRow| {
        let offer = row.offer.as_ref();
        json!({
            "ttl_seconds": row.ttl,
            "queries_per_second": row.queries,
            "failed_server_reached_seconds": row.away,
            "machine": offer.map(|offer| offer.machine.as_str()),
            "nodes": offer.map(|offer| offer.nodes),
            "dollars_per_hour": offer.map(|offer| offer.per_hour),
            "utilisation": offer.map(|offer| offer.utilisation.mid),
        })
    };
    json!({
        "resolvers": load.resolvers,
        "lookups_per_second": load.lookups,
        "names": load.names,
        "types": load.types,
        "rows": rows.iter().map(row).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity;

    const LOAD: ZoneLoad = ZoneLoad { resolvers: 1000.0, lookups: 10_000.0, names: 1.0, types: 2.0 };

    #[test]
    fn resolvers_that_remember_ask_once_per_time_to_live() {
        assert!((LOAD.queries(0.0) - 20_000.0).abs() < 1e-6, "each lookup is two queries");
        // Ten lookups a second of a resolver: it asks once in 30.1 seconds.
        assert!((LOAD.queries(30.0) - 2000.0 * 10.0 / 301.0).abs() < 1e-9);
        assert!(LOAD.queries(300.0) < LOAD.queries(30.0));
        let rare = ZoneLoad { lookups: 1.0, ..LOAD };
        assert!((rare.queries(30.0) / 2.0 - 1.0 / 1.03).abs() < 1e-9, "rare lookups are hardly remembered");
    }

    #[test]
    fn machines_and_the_time_of_a_failed_server() {
        let machines = capacity::read_capacity("name,vcpu,rps,price\nsmall,2,5000,0.1\n").expect("a table");
        let rule = SizingRule::survive(1, 1.0);
        let rows = names_rows(&machines, &LOAD, &[0.0, 30.0], 4.0, &rule);
        let nodes: Vec<Option<u32>> = rows.iter().map(|row| row.offer.as_ref().map(|offer| offer.nodes)).collect();
        assert_eq!(nodes, [Some(5), Some(2)], "four for 20,000 queries, one for the loss");
        assert_eq!((rows[0].away, rows[1].away), (4.0, 34.0));
        let shown = names_text(&LOAD, &rows, &rule);
        assert!(shown.contains("5 × small") && shown.contains(&format_grouped(20_000)), "{shown}");
        assert_eq!(to_json(&LOAD, &rows)["rows"][1]["nodes"], 2);
    }
}
