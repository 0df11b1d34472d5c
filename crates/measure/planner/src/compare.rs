//! Recomputes a price table of another source from its own data and lists the contradicting cells.

use figures::units::parse_count;

use crate::capacity::PricedMachine;
use crate::cluster::{Extras, SizingRule, cheapest_of};
use crate::sheet::Sheet;

/// Table to check: one row per load, one column per family, cells in dollars per hour.
#[derive(Clone, Debug, PartialEq)]
pub struct Foreign {
    pub families: Vec<String>,
    /// Requests per second and a price per family; `None` for an empty cell.
    pub rows: Vec<(f64, Vec<Option<f64>>)>,
}

/// Reads the table (CSV or white space). The first column is the load; columns whose name starts with `rps` are
/// skipped.
pub fn read_foreign(text: &str) -> Result<Foreign, String> {
    let sheet = Sheet::open(text)?;
    let heads: Vec<&str> = sheet.heads().collect();
    let columns: Vec<usize> = (1..heads.len()).filter(|c| !heads[*c].to_ascii_lowercase().starts_with("rps")).collect();
    let mut out = Foreign { families: columns.iter().map(|c| heads[*c].to_string()).collect(), rows: Vec::new() };
    for row in sheet.rows() {
        let load = row.at(0).and_then(parse_count).filter(|l| *l > 0.0);
        let load = load.ok_or_else(|| {
            row.complain_at(0, &format!("load `{}` is not a positive number", row.at(0).unwrap_or_default()))
        })?;
        let price = |c: &usize| {
            let cell = row.at(*c).unwrap_or_default().trim_start_matches('$');
            match cell {
                "" | "-" => Ok(None),
                _ => cell.parse().map(Some).map_err(|_| row.complain_at(*c, &format!("`{cell}` is not a price"))),
            }
        };
        out.rows.push((load, columns.iter().map(price).collect::<Result<_, String>>()?));
    }
    Ok(out)
}

#[derive(Clone, Debug, PartialEq)]
pub struct Disagreement {
    pub load: f64,
    pub family: String,
    /// Printed price; `None` for an empty cell.
    pub printed: Option<f64>,
    /// Computed price and machine; `None` if no size has the capacity.
    pub computed: Option<(f64, String)>,
}

impl Disagreement {
    pub fn sentence(&self) -> String {
        let printed = self.printed.map_or("nothing".into(), |p| format!("{p}"));
        let load = figures::units::format_grouped(self.load as i64);
        match &self.computed {
            Some((price, machine)) => {
                format!("{load} requests/s on {}: printed {printed}, its data give {price:.3} ({machine})", self.family)
            }
            None => format!("{load} requests/s on {}: printed {printed}, but no size carries it", self.family),
        }
    }
}

/// Lists cells that differ by more than half a thousandth of a dollar.
pub fn list_disagreements(foreign: &Foreign, machines: &[PricedMachine], rule: &SizingRule) -> Vec<Disagreement> {
    let mut out = Vec::new();
    for (load, prices) in &foreign.rows {
        for (family, printed) in foreign.families.iter().zip(prices) {
            let members = machines.iter().filter(|m| m.family == *family);
            let offer = cheapest_of(members, *load, rule, &Extras::default());
            let same = match (printed, &offer) {
                (Some(p), Some(o)) => (p - o.per_hour).abs() < 0.000_5,
                (None, None) => true,
                _ => false,
            };
            if !same {
                let computed = offer.map(|o| (o.per_hour, o.machine));
                out.push(Disagreement { load: *load, family: family.clone(), printed: *printed, computed });
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::read_capacity;

    #[test]
    fn cells_that_differ_are_listed_and_no_others() {
        let m = read_capacity("name,rps,price\na.s,1000,0.1\na.l,2000,0.2\n").unwrap();
        let t =
            read_foreign("total rps/instance a b\n1000 333 0.3 -\n1980 660 $0.3 -\n2000 667 0.3 1\n9000 3000 - -\n")
                .unwrap();
        let d = list_disagreements(&t, &m, &SizingRule::fixed(3, 0.66));
        assert_eq!(d.len(), 2, "{d:?}");
        assert_eq!(d[0].computed, Some((0.6000000000000001, "a.l".into())));
        assert!(d[1].sentence().contains("no size carries it"));
        assert!(read_foreign("load a\nx 1\n").is_err() && read_foreign("load a\n5 x\n").is_err());
    }
}
