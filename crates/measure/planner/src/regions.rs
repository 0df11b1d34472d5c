//! Flow simulation of users in several places, sites in several regions, routing, and the loss of a site.
//! Advances in seconds. Load is a fluid (rates, not requests); a seeded generator samples latency.

use std::collections::BTreeMap;

use figures::rng::Rng;
use figures::stats::sample_quantile;
use serde::Deserialize;

use crate::queueing::response_stretch;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// In seconds.
    #[serde(default = "default_duration")]
    pub duration_s: u32,
    /// Request rate of all users, in requests per second.
    pub rate: f64,
    #[serde(default)]
    pub routing: RoutingRule,
    /// Seconds that clients keep a DNS answer (geo-DNS only).
    #[serde(default = "default_ttl")]
    pub dns_ttl_s: f64,
    /// Share of clients that keep the answer ten times as long.
    #[serde(default)]
    pub dns_stubborn_share: f64,
    /// Seconds until health checks detect a loss.
    #[serde(default = "default_detect")]
    pub detect_s: f64,
    /// Anycast: seconds from detection until routes have moved.
    #[serde(default = "default_converge")]
    pub converge_s: f64,
    /// Anycast: share of users whom the network routes to the second-nearest site.
    #[serde(default)]
    pub misrouted_share: f64,
    /// Round trips to the first byte, including connection and TLS: 4 for new HTTPS over TLS 1.2, 3 over TLS 1.3, 2 for
    /// HTTP, 1 on a kept connection.
    #[serde(default = "default_round_trips")]
    pub round_trips: f64,
    /// Mean DNS lookup in milliseconds, paid by `lookup_share` of the requests.
    #[serde(default)]
    pub lookup_ms: f64,
    #[serde(default)]
    pub lookup_share: f64,
    /// Mean service time in milliseconds when idle.
    #[serde(default = "default_service")]
    pub service_ms: f64,
    #[serde(rename = "region")]
    pub regions: Vec<Region>,
    #[serde(rename = "users")]
    pub groups: Vec<RegionGroup>,
    #[serde(default, rename = "loss")]
    pub losses: Vec<Loss>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Region {
    pub name: String,
    pub nodes: u32,
    /// Capacity of one machine, in requests per second.
    pub node_rps: f64,
    #[serde(default = "one")]
    pub vcpu: u32,
    /// Dollars per machine and hour.
    #[serde(default)]
    pub price: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegionGroup {
    pub name: String,
    /// Share of all requests.
    pub share: f64,
    /// Round-trip time in milliseconds to each region by name.
    pub rtt_ms: BTreeMap<String, f64>,
    /// Relative deviation of the round-trip time.
    #[serde(default = "default_jitter")]
    pub jitter: f64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loss {
    pub region: String,
    pub at_s: u32,
    pub for_s: u32,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum RoutingRule {
    /// DNS returns the nearest live site; clients cache it for its time to live.
    #[default]
    GeoDns,
    /// One address everywhere; the network selects a near site and moves when the route is withdrawn.
    Anycast,
}

fn default_seed() -> u64 {
    1
}
fn default_duration() -> u32 {
    1800
}
fn default_ttl() -> f64 {
    60.0
}
fn default_detect() -> f64 {
    10.0
}
fn default_converge() -> f64 {
    5.0
}
fn default_round_trips() -> f64 {
    3.0
}
fn default_service() -> f64 {
    1.0
}
fn default_jitter() -> f64 {
    0.1
}
fn one() -> u32 {
    1
}

#[derive(Clone, Debug, PartialEq)]
pub struct GroupResult {
    pub name: String,
    /// Seconds to the first byte of answered requests: median and 95th percentile.
    pub median: f64,
    pub p95: f64,
    /// Share of unanswered requests: overall, and in the worst second.
    pub failed: f64,
    pub failed_worst: f64,
    pub nearest: String,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RegionResult {
    pub name: String,
    pub utilisation_usual: f64,
    pub utilisation_worst: f64,
    pub per_hour: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Second {
    /// Rates per region and unanswered rates, in requests per second.
    pub arrived: Vec<f64>,
    pub failed: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RegionsOutcome {
    pub groups: Vec<GroupResult>,
    pub regions: Vec<RegionResult>,
    pub seconds: Vec<Second>,
    pub failed: f64,
    pub per_hour: f64,
    /// Seconds from the first loss until failures fall below 1 %; `None` without a loss or recovery.
    pub recovery_s: Option<u32>,
}

/// Reads a scenario (TOML). Fails on syntax, unknown names and inconsistent shares.
pub fn read_scenario(text: &str) -> Result<Scenario, String> {
    let s: Scenario = toml::from_str(text).map_err(|e| figures::errors::plain_message(&e.to_string()))?;
    if s.regions.is_empty() || s.groups.is_empty() {
        return Err("at least one [[region]] and one [[users]] are needed".into());
    }
    if s.duration_s == 0 || s.duration_s > 100_000 {
        return Err("duration_s must be 1 to 100000".into());
    }
    let shares: f64 = s.groups.iter().map(|g| g.share).sum();
    if (shares - 1.0).abs() > 0.005 {
        return Err(format!("the shares of [[users]] add up to {shares:.3}, not 1"));
    }
    let known = |name: &str| s.regions.iter().any(|r| r.name == name);
    for g in &s.groups {
        if let Some(r) = s.regions.iter().find(|r| !g.rtt_ms.contains_key(&r.name)) {
            return Err(format!("users `{}` have no rtt_ms to region `{}`", g.name, r.name));
        }
        if let Some(name) = g.rtt_ms.keys().find(|n| !known(n)) {
            return Err(format!("users `{}`: no region is called `{name}`", g.name));
        }
    }
    match s.losses.iter().find(|l| !known(&l.region)) {
        Some(l) => Err(format!("loss: no region is called `{}`", l.region)),
        None => Ok(s),
    }
}

pub fn simulate_regions(s: &Scenario) -> RegionsOutcome {
    let mut rng = Rng::new(s.seed);
    let (regions, groups) = (s.regions.len(), s.groups.len());
    // share[g][r]: part of group g sent to region r.
    let mut share: Vec<Vec<f64>> = (0..groups).map(|g| target(s, g, &vec![true; regions])).collect();
    // Clients that keep DNS answers too long move later.
    let mut stubborn = share.clone();
    let mut seconds = Vec::with_capacity(s.duration_s as usize);
    let mut latencies: Vec<Vec<f64>> = vec![Vec::new(); groups];
    let (mut sent, mut failed) = (vec![0.0; groups], vec![0.0; groups]);
    let mut worst = vec![0.0f64; groups];
    let mut utilisations: Vec<Vec<f64>> = vec![Vec::new(); regions];

    for second in 0..s.duration_s {
        let alive: Vec<bool> = (0..regions).map(|r| !is_down(s, r, f64::from(second))).collect();
        let known: Vec<bool> = (0..regions).map(|r| !is_known_down(s, r, f64::from(second))).collect();
        for g in 0..groups {
            let goal = target(s, g, &known);
            match s.routing {
                RoutingRule::Anycast => share[g] = goal,
                RoutingRule::GeoDns => {
                    move_towards(&mut share[g], &goal, 1.0 / s.dns_ttl_s.max(1.0));
                    move_towards(&mut stubborn[g], &goal, 0.1 / s.dns_ttl_s.max(1.0));
                }
            }
        }
        let slow = if s.routing == RoutingRule::GeoDns { s.dns_stubborn_share.clamp(0.0, 1.0) } else { 0.0 };
        let part = |g: usize, r: usize| share[g][r] * (1.0 - slow) + stubborn[g][r] * slow;
        let rate = |g: usize| s.rate * s.groups[g].share;
        let arrived: Vec<f64> = (0..regions).map(|r| (0..groups).map(|g| rate(g) * part(g, r)).sum()).collect();
        let capacity = |r: usize| f64::from(s.regions[r].nodes) * s.regions[r].node_rps;
        let mut second_failed = 0.0;
        for g in 0..groups {
            let mut lost = 0.0;
            for r in 0..regions {
                let here = rate(g) * part(g, r);
                let served = if alive[r] { (capacity(r) / arrived[r].max(1e-9)).min(1.0) } else { 0.0 };
                lost += here * (1.0 - served);
                let samples = (here * served / s.rate * 200.0).round() as usize;
                for _ in 0..samples {
                    latencies[g].push(latency(s, g, r, arrived[r] / capacity(r), &mut rng));
                }
            }
            sent[g] += rate(g);
            failed[g] += lost;
            worst[g] = worst[g].max(lost / rate(g).max(1e-9));
            second_failed += lost;
        }
        for r in 0..regions {
            if alive[r] {
                utilisations[r].push(arrived[r] / capacity(r));
            }
        }
        seconds.push(Second { arrived, failed: second_failed });
    }
    let all_up = vec![true; regions];
    RegionsOutcome {
        recovery_s: recovery(s, &seconds),
        groups: (0..groups)
            .map(|g| GroupResult {
                name: s.groups[g].name.clone(),
                median: sample_quantile(&latencies[g], 0.5),
                p95: sample_quantile(&latencies[g], 0.95),
                failed: failed[g] / sent[g].max(1e-9),
                failed_worst: worst[g],
                nearest: s.regions[by_distance(s, g, &all_up)[0]].name.clone(),
            })
            .collect(),
        regions: (0..regions)
            .map(|r| RegionResult {
                name: s.regions[r].name.clone(),
                utilisation_usual: sample_quantile(&utilisations[r], 0.5),
                utilisation_worst: utilisations[r].iter().copied().fold(0.0, f64::max),
                per_hour: f64::from(s.regions[r].nodes) * s.regions[r].price,
            })
            .collect(),
        failed: failed.iter().sum::<f64>() / sent.iter().sum::<f64>().max(1e-9),
        per_hour: s.regions.iter().map(|r| f64::from(r.nodes) * r.price).sum(),
        seconds,
    }
}

fn is_down(s: &Scenario, region: usize, at: f64) -> bool {
    let name = &s.regions[region].name;
    s.losses.iter().any(|l| l.region == *name && at >= f64::from(l.at_s) && at < f64::from(l.at_s + l.for_s))
}

/// Tells whether routing treats the region as down: after detection (for anycast also convergence), and as long after
/// its return.
fn is_known_down(s: &Scenario, region: usize, at: f64) -> bool {
    let lag = s.detect_s + if s.routing == RoutingRule::Anycast { s.converge_s } else { 0.0 };
    at >= lag && is_down(s, region, at - lag)
}

fn by_distance(s: &Scenario, group: usize, up: &[bool]) -> Vec<usize> {
    let distance = |r: &usize| s.groups[group].rtt_ms.get(&s.regions[*r].name).copied().unwrap_or(f64::MAX);
    let mut order: Vec<usize> = (0..s.regions.len()).filter(|r| up[*r]).collect();
    order.sort_by(|a, b| distance(a).total_cmp(&distance(b)));
    order
}

fn target(s: &Scenario, group: usize, up: &[bool]) -> Vec<f64> {
    let mut shares = vec![0.0; s.regions.len()];
    let order = by_distance(s, group, up);
    let astray =
        if s.routing == RoutingRule::Anycast && order.len() > 1 { s.misrouted_share.clamp(0.0, 1.0) } else { 0.0 };
    if let Some(first) = order.first() {
        shares[*first] = 1.0 - astray;
    }
    if let Some(second) = order.get(1) {
        shares[*second] = astray;
    }
    shares
}

fn move_towards(share: &mut [f64], goal: &[f64], part: f64) {
    for (now, goal) in share.iter_mut().zip(goal) {
        *now += (goal - *now) * part.min(1.0);
    }
}

fn latency(s: &Scenario, group: usize, region: usize, utilisation: f64, rng: &mut Rng) -> f64 {
    let (g, r) = (&s.groups[group], &s.regions[region]);
    let rtt = g.rtt_ms[&r.name] * (1.0 + g.jitter * rng.normal()).max(0.3);
    // A site at its limit sheds the excess; served requests wait as at 99 %.
    let service = s.service_ms * response_stretch(utilisation.min(0.99), r.vcpu.max(1)) * rng.exponential();
    let lookup = if rng.unit() < s.lookup_share { s.lookup_ms * (0.4 + 1.2 * rng.unit()) } else { 0.0 };
    (rtt * s.round_trips + service + lookup) / 1000.0
}

fn recovery(s: &Scenario, seconds: &[Second]) -> Option<u32> {
    let start = s.losses.iter().map(|l| l.at_s).min()?;
    let after = seconds.iter().enumerate().skip(start as usize);
    let last_bad = after.filter(|(_, x)| x.failed > 0.01 * s.rate).map(|(i, _)| i as u32).next_back();
    match last_bad {
        None => Some(0),
        Some(last) if last + 1 < seconds.len() as u32 => Some(last + 1 - start),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(extra: &str) -> Scenario {
        read_scenario(&format!(
            "rate = 1000\nduration_s = 600\nround_trips = 1\nservice_ms = 0.001\n{extra}\n\
             [[region]]\nname='east'\nnodes=2\nnode_rps=1000\nprice=0.1\n\
             [[region]]\nname='west'\nnodes=1\nnode_rps=800\nprice=0.2\n\
             [[users]]\nname='A'\nshare=0.6\nrtt_ms={{east=10,west=80}}\njitter=0\n\
             [[users]]\nname='B'\nshare=0.4\nrtt_ms={{east=90,west=20}}\njitter=0\n"
        ))
        .unwrap()
    }

    #[test]
    fn in_peace_everybody_goes_to_the_nearest() {
        let o = simulate_regions(&scenario(""));
        assert!((o.groups[0].median - 0.010).abs() < 1e-3 && (o.groups[1].median - 0.020).abs() < 1e-3);
        assert_eq!((o.failed, o.groups[1].nearest.as_str()), (0.0, "west"));
        assert!((o.regions[0].utilisation_usual - 0.3).abs() < 1e-9);
        assert!((o.regions[1].utilisation_usual - 0.5).abs() < 1e-9);
        assert!((o.per_hour - 0.4).abs() < 1e-12);
    }

    #[test]
    fn anycast_moves_at_once_after_detection() {
        let mut s = scenario("routing='anycast'\ndetect_s=10\nconverge_s=5");
        s.losses = vec![Loss { region: "west".into(), at_s: 100, for_s: 300 }];
        let o = simulate_regions(&s);
        assert_eq!(o.recovery_s, Some(15));
        // B fails for 15 of 600 seconds.
        assert!((o.groups[1].failed - 15.0 / 600.0).abs() < 1e-9, "{:?}", o.groups[1]);
        assert_eq!(o.groups[0].failed, 0.0);
        assert!((o.regions[0].utilisation_worst - 0.5).abs() < 1e-9);
    }

    #[test]
    fn geo_dns_fails_for_about_detection_and_time_to_live() {
        let mut s = scenario("routing='geo-dns'\ndetect_s=10\ndns_ttl_s=60");
        s.losses = vec![Loss { region: "west".into(), at_s: 100, for_s: 500 }];
        let o = simulate_regions(&s);
        // Loss of an exponential drain: B's rate × (detection + time to live).
        let lost_seconds = o.groups[1].failed * 600.0;
        assert!((lost_seconds - 70.0).abs() < 2.0, "{lost_seconds}");
        let slower = simulate_regions(&Scenario { dns_stubborn_share: 0.2, ..s });
        assert!(slower.groups[1].failed > o.groups[1].failed * 1.3);
    }

    #[test]
    fn a_site_that_is_too_small_sheds() {
        let mut s = scenario("routing='anycast'");
        s.losses = vec![Loss { region: "east".into(), at_s: 0, for_s: 600 }];
        let o = simulate_regions(&s);
        // 800 of 1000 fit into west once routing has moved.
        let late = &o.seconds[500];
        assert!((late.failed - 200.0).abs() < 1e-6, "{late:?}");
        assert_eq!(o.recovery_s, None);
    }

    #[test]
    fn mistakes_are_sentences() {
        let bad = |text: &str| read_scenario(text).unwrap_err();
        assert!(
            bad("rate=1\n[[region]]\nname='a'\nnodes=1\nnode_rps=1\n[[users]]\nname='u'\nshare=0.5\nrtt_ms={a=1}\n")
                .contains("add up")
        );
        assert!(
            bad("rate=1\n[[region]]\nname='a'\nnodes=1\nnode_rps=1\n[[users]]\nname='u'\nshare=1\nrtt_ms={}\n")
                .contains("rtt_ms")
        );
        assert!(bad("rat=1\n").contains("rat"));
    }
}
