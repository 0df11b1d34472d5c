//! Capacity and price of one machine of each type: from a table or a bench report, joined with a price list.

use figures::stats::Interval;

use crate::sheet::{Sheet, check_unique};
use conf_schema::suggest::nearest_word;

const NAME: &[&str] = &["name", "instance", "type"];
const RPS: &[&str] = &["rps", "max_rps"];
const CAPACITY: &[&[&str]] = &[
    NAME,
    RPS,
    &["rps_low"],
    &["rps_high"],
    &["vcpu"],
    &["family"],
    &["price"],
    &["licence"],
    &["link_gbit"],
    &["usable_rps"],
];
const PRICES: &[&[&str]] =
    &[NAME, &["price"], &["vcpu"], &["threads_per_core"], &["licence"], &["link_gbit"], &["speed"]];

#[derive(Clone, Debug, PartialEq)]
pub struct PricedMachine {
    pub name: String,
    /// Groups sizes that can replace each other: the `family` column, or the name up to its last dot.
    pub family: String,
    pub vcpu: u32,
    /// Requests per second of one machine, with an interval when the source had one.
    pub rps: Interval,
    /// False without a measured interval: nearness to a boundary is then judged by a fixed 5 %.
    pub interval_known: bool,
    pub projected: bool,
    pub price: f64,
    /// Network link in bits per second; 0 when unknown.
    pub link_bps: f64,
    /// A column's claim of the usable part of `rps`: (claimed value, share of `rps`).
    pub claimed_usable: Option<f64>,
}

/// Reads a capacity table. Columns in any order: `name` (or `instance`, `type`) and `rps` (or `max_rps`) required;
/// `family`, `vcpu`, `rps_low`, `rps_high`, `price`, `licence`, `link_gbit`, `usable_rps`. Errors show the line and
/// column.
pub fn read_capacity(text: &str) -> Result<Vec<PricedMachine>, String> {
    let sheet = Sheet::read(text, CAPACITY)?;
    sheet.require(NAME)?;
    sheet.require(RPS)?;
    check_unique(sheet.rows(), NAME)?;
    let mut machines = Vec::new();
    for row in sheet.rows() {
        let number = |names: &[&str]| row.number(names);
        let (name, mid) = (row.must(NAME)?.to_string(), row.positive(RPS)?);
        let (low, high) = (number(&["rps_low"])?, number(&["rps_high"])?);
        if low.is_some_and(|low| low > mid) {
            return Err(row.complain(&["rps_low"], "rps_low exceeds rps"));
        }
        if high.is_some_and(|high| high < mid) {
            return Err(row.complain(&["rps_high"], "rps_high is less than rps"));
        }
        let interval = Interval { low: low.unwrap_or(mid), mid, high: high.unwrap_or(mid) };
        machines.push(PricedMachine {
            family: row.text(&["family"]).map_or_else(|| family_of(&name), String::from),
            name,
            vcpu: number(&["vcpu"])?.unwrap_or(0.0) as u32,
            rps: interval,
            interval_known: low.is_some() || high.is_some(),
            projected: false,
            price: number(&["price"])?.map_or(f64::NAN, |p| p) + number(&["licence"])?.unwrap_or(0.0),
            link_bps: number(&["link_gbit"])?.unwrap_or(0.0) * 1e9,
            claimed_usable: number(&["usable_rps"])?,
        });
    }
    Ok(machines)
}

#[derive(Clone, Debug, PartialEq)]
pub struct Price {
    pub name: String,
    pub vcpu: u32,
    /// vCPUs per core; 1 by default.
    pub threads_per_core: u32,
    pub per_hour: f64,
    pub link_bps: f64,
    /// Speed of one vCPU relative to the measured machine, for projections; 1 by default.
    pub speed: f64,
}

/// Reads a price list: `name` (or `instance`, `type`), `price` (dollars per hour), optionally `vcpu`,
/// `threads_per_core`, `licence` (dollars per hour), `link_gbit`, `speed`. Errors show the line and column.
pub fn read_prices(text: &str) -> Result<Vec<Price>, String> {
    let sheet = Sheet::read(text, PRICES)?;
    sheet.require(NAME)?;
    sheet.require(&["price"])?;
    check_unique(sheet.rows(), NAME)?;
    sheet
        .rows()
        .map(|row| {
            let number = |names: &[&str]| row.number(names);
            row.must(&["price"])?;
            let price = number(&["price"])?.unwrap_or(0.0);
            Ok(Price {
                name: row.must(NAME)?.to_string(),
                vcpu: number(&["vcpu"])?.unwrap_or(0.0) as u32,
                threads_per_core: number(&["threads_per_core"])?.unwrap_or(1.0).max(1.0) as u32,
                per_hour: price + number(&["licence"])?.unwrap_or(0.0),
                link_bps: number(&["link_gbit"])?.unwrap_or(0.0) * 1e9,
                speed: number(&["speed"])?.unwrap_or(1.0),
            })
        })
        .collect()
}

/// Adds prices, and missing vCPUs and links, to machines of equal name. Fails with the names that no price list has.
pub fn join_prices(machines: &mut [PricedMachine], prices: &[Price]) -> Result<(), String> {
    for machine in machines.iter_mut() {
        if let Some(price) = prices.iter().find(|p| p.name == machine.name) {
            machine.price = price.per_hour;
            machine.vcpu = if machine.vcpu == 0 { price.vcpu } else { machine.vcpu };
            machine.link_bps = if machine.link_bps == 0.0 { price.link_bps } else { machine.link_bps };
        }
    }
    let missing: Vec<&str> = machines.iter().filter(|m| m.price.is_nan()).map(|m| m.name.as_str()).collect();
    match missing.as_slice() {
        [] => Ok(()),
        names if prices.is_empty() => Err(format!(
            "no price for {}: the capacity table needs a column `price`, or give a price list with --prices",
            names.join(", ")
        )),
        names => {
            let near = nearest_word(names[0], prices.iter().map(|p| p.name.as_str()));
            let hint = near.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
            Err(format!("no price for {} in the price list{hint}", names.join(", ")))
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct MeasuredMachine {
    pub rps: Interval,
    /// CPU seconds of the server per request; 0 when not sampled.
    pub cpu_per_request: f64,
    /// Mean wire size of a response in bytes; 0 when unknown.
    pub bytes_per_response: f64,
    /// Objective that the rate meets; empty for the greatest rate seen.
    pub objective: String,
}

/// Reads the `capacity` object of a bench or lab report (JSON); `server` selects one of a lab report's servers.
pub fn read_report(text: &str, server: Option<&str>) -> Result<MeasuredMachine, String> {
    let json: serde_json::Value = serde_json::from_str(text).map_err(|e| format!("not JSON: {e}"))?;
    let capacity = match (server, json.get("servers").and_then(|s| s.as_array())) {
        (Some(name), Some(servers)) => servers
            .iter()
            .find(|s| s["name"].as_str() == Some(name))
            .map(|s| &s["capacity"])
            .ok_or_else(|| format!("the report has no server `{name}`"))?,
        (None, Some(servers)) if servers.len() == 1 => &servers[0]["capacity"],
        (None, Some(_)) => return Err("the report has several servers: name one".into()),
        (_, None) => &json["capacity"],
    };
    let number = |value: &serde_json::Value| value.as_f64().filter(|v| v.is_finite());
    let mid = number(&capacity["rps"]["mid"]).filter(|v| *v > 0.0).ok_or_else(|| nothing_usable(&json))?;
    Ok(MeasuredMachine {
        rps: Interval {
            low: number(&capacity["rps"]["low"]).unwrap_or(mid).min(mid),
            mid,
            high: number(&capacity["rps"]["high"]).unwrap_or(mid).max(mid),
        },
        cpu_per_request: number(&capacity["cpu_seconds_per_request"]).unwrap_or(0.0),
        bytes_per_response: number(&capacity["bytes_per_response"]).unwrap_or(0.0),
        objective: capacity["objective"].as_str().unwrap_or("").to_string(),
    })
}

fn nothing_usable(json: &serde_json::Value) -> String {
    let of = |points: &serde_json::Value| -> Vec<String> {
        let list = points.as_array().map_or(&[][..], Vec::as_slice);
        list.iter().filter_map(|p| p["verdict"]["word"].as_str().map(String::from)).collect()
    };
    let mut words = of(&json["points"]);
    words.sort();
    words.dedup();
    match words.as_slice() {
        [] => "no usable rate in it: is it a report of `tidegate bench --json` or `tidegate lab`?".into(),
        words => format!("no rate in it is known to be the server's: its runs were {}", words.join(", ")),
    }
}

/// Projects machines of a price list from one measurement: CPU time per request divided by relative `speed`.
/// Beyond the first, a vCPU that shares its core counts as `sibling_yield` of a core (usually 0.6 to 0.65). Fails when
/// the report has no CPU time per request.
pub fn project_machines(
    measured: &MeasuredMachine,
    prices: &[Price],
    sibling_yield: f64,
) -> Result<Vec<PricedMachine>, String> {
    if measured.cpu_per_request <= 0.0 {
        return Err("the report has no CPU time per request (the server was not on the same machine)".into());
    }
    if let Some(p) = prices.iter().find(|p| p.vcpu == 0) {
        return Err(format!(
            "the price list does not say how many vCPUs `{}` has: a projection needs a column `vcpu`",
            p.name
        ));
    }
    let spread = measured.rps.relative_half_width();
    Ok(prices
        .iter()
        .map(|p| {
            let threads = f64::from(p.threads_per_core);
            let cores = f64::from(p.vcpu) / threads * (1.0 + (threads - 1.0) * (sibling_yield * 2.0 - 1.0).max(0.0));
            let rps = cores * p.speed / measured.cpu_per_request;
            PricedMachine {
                name: p.name.clone(),
                family: family_of(&p.name),
                vcpu: p.vcpu,
                rps: Interval { low: rps * (1.0 - spread), mid: rps, high: rps * (1.0 + spread) },
                interval_known: spread > 0.0,
                projected: true,
                price: p.per_hour,
                link_bps: p.link_bps,
                claimed_usable: None,
            }
        })
        .collect())
}

/// Caps capacities at nine tenths of the link when the response size is known; returns the names of capped machines.
pub fn cap_by_link(machines: &mut [PricedMachine], bytes_per_response: f64) -> Vec<String> {
    let mut bound = Vec::new();
    for m in machines.iter_mut().filter(|m| m.link_bps > 0.0 && bytes_per_response > 0.0) {
        let ceiling = 0.9 * m.link_bps / (8.0 * bytes_per_response);
        if ceiling < m.rps.mid {
            m.rps = m.rps.map(|v| v.min(ceiling));
            bound.push(m.name.clone());
        }
    }
    bound
}

fn family_of(name: &str) -> String {
    name.rsplit_once('.').map_or(name, |(family, _)| family).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_and_price_lists_join() {
        let mut machines =
            read_capacity("instance,vCPU,max_rps,rps_low\na1.large,2,16089,15000\nbig box,8,1M,\n").unwrap();
        assert_eq!(machines[0].family, "a1");
        assert_eq!(machines[0].rps, Interval { low: 15000.0, mid: 16089.0, high: 16089.0 });
        assert!(machines[0].interval_known && !machines[1].interval_known);
        assert_eq!((machines[1].rps.mid, machines[1].vcpu), (1e6, 8));
        let prices = read_prices("name,price,licence,link_gbit\na1.large,$0.051,0.1,10\n").unwrap();
        assert_eq!(join_prices(&mut machines, &prices), Err("no price for big box in the price list".into()));
        assert!((machines[0].price - 0.151).abs() < 1e-12);
        assert_eq!(cap_by_link(&mut machines, 100_000.0), ["a1.large"]);
        assert_eq!(machines[0].rps.mid, 11_250.0);
    }

    #[test]
    fn mistakes_name_line_and_column() {
        assert!(read_capacity("name,rps\nx,fast\n").unwrap_err().contains("line 2"));
        assert!(read_capacity("name,rps,vcpu\nx,5,two\n").unwrap_err().contains("vcpu"));
        assert!(read_capacity("a,b\n1,2\n").unwrap_err().contains("columns are name"));
        assert!(read_capacity("vcpu,rps\n1,2\n").unwrap_err().contains("no column `name` (or `instance`, `type`)"));
        assert!(read_capacity("name,rps,rps_low\nx,5,6\n").unwrap_err().contains("rps_low exceeds rps"));
        assert!(read_prices("name,price\nx,\n").unwrap_err().contains("no price"));
        let mut machines = read_capacity("name,rps\nc5.large,5\n").unwrap();
        let prices = read_prices("name,price\nc5.larg,1\n").unwrap();
        assert!(join_prices(&mut machines, &prices).unwrap_err().contains("did you mean `c5.larg`?"));
        assert!(join_prices(&mut machines, &[]).unwrap_err().contains("--prices"));
    }

    #[test]
    fn reports_are_read_and_projected() {
        let json = r#"{"capacity":{"rps":{"low":90,"mid":100,"high":110},"cpu_seconds_per_request":0.00001,
            "bytes_per_response":5000,"objective":"p99<5ms"}}"#;
        let m = read_report(json, None).unwrap();
        assert_eq!(m.objective, "p99<5ms");
        let prices = read_prices("name,vcpu,threads_per_core,price\ns.one,1,1,0.1\ns.two,2,2,0.2\n").unwrap();
        let machines = project_machines(&m, &prices, 0.65).unwrap();
        assert!((machines[0].rps.mid - 100_000.0).abs() < 1e-6);
        assert!((machines[1].rps.mid - 130_000.0).abs() < 1e-6, "one core with two threads yields 1.3");
        assert!(machines[0].projected && (machines[0].rps.low - 90_000.0).abs() < 1e-6);
        assert!(read_report("{}", None).unwrap_err().contains("is it a report"));
        let bound = r#"{"capacity":null,"points":[{"verdict":{"word":"client-bound"}}]}"#;
        assert!(read_report(bound, None).unwrap_err().ends_with("its runs were client-bound"));
        let lab =
            r#"{"servers":[{"name":"a","capacity":{"rps":{"mid":5}}},{"name":"b","capacity":{"rps":{"mid":6}}}]}"#;
        assert_eq!(read_report(lab, Some("b")).unwrap().rps.mid, 6.0);
        assert!(read_report(lab, None).is_err());
    }
}
