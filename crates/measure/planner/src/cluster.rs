//! Number and type of machines for a load, under a rule on redundancy and utilisation.

use figures::stats::Interval;

use crate::capacity::PricedMachine;
use crate::queueing::response_stretch;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizingRule {
    pub nodes_min: u32,
    pub nodes_max: u32,
    /// Greatest utilisation of each machine with all up, 0..1.
    pub utilisation: f64,
    pub losses: u32,
    /// Greatest utilisation of the survivors after `losses`, 0..1.
    pub utilisation_after: f64,
}

impl SizingRule {
    /// A fixed number of machines, each used up to `utilisation`, without regard to failures.
    pub fn fixed(nodes: u32, utilisation: f64) -> SizingRule {
        SizingRule { nodes_min: nodes, nodes_max: nodes, utilisation, losses: 0, utilisation_after: 1.0 }
    }

    /// N + k: after `losses` failures the rest run at `utilisation_after` at most.
    pub fn survive(losses: u32, utilisation_after: f64) -> SizingRule {
        SizingRule { nodes_min: losses + 1, nodes_max: NODES_MAX, utilisation: 1.0, losses, utilisation_after }
    }

    pub fn allowed(&self, nodes: u32, rps: f64) -> f64 {
        let healthy = f64::from(nodes) * rps * self.utilisation;
        let after = f64::from(nodes.saturating_sub(self.losses)) * rps * self.utilisation_after;
        if self.losses > 0 { healthy.min(after) } else { healthy }
    }

    /// Least number of machines that carries `load`, within the limits.
    pub fn nodes(&self, load: f64, rps: f64) -> Option<u32> {
        // Guards against rounding of the division, which could be one machine off.
        let enough = |n: u32| self.allowed(n, rps) >= load;
        let by_healthy = load / (rps * self.utilisation);
        let by_after =
            if self.losses > 0 { load / (rps * self.utilisation_after) + f64::from(self.losses) } else { 0.0 };
        let estimate = by_healthy.max(by_after);
        if !estimate.is_finite() || estimate > f64::from(self.nodes_max) + 1.0 {
            return None;
        }
        let start = (estimate as u32).saturating_sub(1).max(self.nodes_min);
        (start..=self.nodes_max).find(|n| enough(*n))
    }
}

/// Maximum number of machines of one type.
pub const NODES_MAX: u32 = 1000;

/// Additional cost per hour, and bytes per request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Extras {
    pub balancer: f64,
    /// Outgoing traffic, dollars per gigabyte (10⁹ bytes).
    pub per_gigabyte: f64,
    pub bytes_per_response: f64,
    /// Mean response time plus think time of a user in seconds; 0 computes no price per user.
    pub user_cycle: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confidence {
    /// The lower end of the interval carries the load, or without an interval 5 % are to spare.
    Sure,
    /// Only the middle carries it, or less than 5 % are to spare: another run may change the choice.
    Risky,
    /// The capacity was not measured on this type.
    Projected,
}

/// Margin below which a choice without a measured interval counts as risky.
pub const FLIP: f64 = 0.05;

#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    pub machine: String,
    pub family: String,
    pub nodes: u32,
    /// Dollars per hour, including [`Extras`].
    pub per_hour: f64,
    pub per_million: f64,
    /// Dollars per user and hour; NaN without a user cycle.
    pub per_user: f64,
    pub utilisation: Interval,
    /// Utilisation after one loss (or the rule's losses, if more); infinite without survivors.
    pub after_loss: f64,
    /// Slowdown of the survivors against idle (M/M/m with one server per vCPU).
    pub stretch_after_loss: f64,
    /// Unused share of the allowed load: (allowed − load) / load.
    pub spare: f64,
    pub confidence: Confidence,
}

/// Cheapest allowed number of machines of one type; `None` when the rule cannot be met.
pub fn cheapest_offer(machine: &PricedMachine, load: f64, rule: &SizingRule, extras: &Extras) -> Option<Offer> {
    let nodes = rule.nodes(load, machine.rps.mid)?;
    let allowed = rule.allowed(nodes, machine.rps.mid);
    let spare = (allowed - load) / load;
    let confidence = match () {
        () if machine.projected => Confidence::Projected,
        () if machine.interval_known && rule.allowed(nodes, machine.rps.low) >= load => Confidence::Sure,
        () if !machine.interval_known && spare >= FLIP => Confidence::Sure,
        () => Confidence::Risky,
    };
    let gigabytes = load * extras.bytes_per_response * 3600.0 / 1e9;
    let per_hour = f64::from(nodes) * machine.price + extras.balancer + gigabytes * extras.per_gigabyte;
    let survivors = nodes.saturating_sub(rule.losses.max(1));
    let after_loss = if survivors == 0 { f64::INFINITY } else { load / (f64::from(survivors) * machine.rps.mid) };
    Some(Offer {
        machine: machine.name.clone(),
        family: machine.family.clone(),
        nodes,
        per_hour,
        per_million: per_hour * 1e6 / (3600.0 * load),
        per_user: if extras.user_cycle > 0.0 { per_hour / (load * extras.user_cycle) } else { f64::NAN },
        utilisation: machine.rps.map(|rps| load / (f64::from(nodes) * rps)),
        after_loss,
        stretch_after_loss: response_stretch(after_loss, machine.vcpu.max(1)),
        spare,
        confidence,
    })
}

/// Cheapest offer of a family; at equal prices the one with more to spare.
pub fn cheapest_of<'a>(
    machines: impl Iterator<Item = &'a PricedMachine>,
    load: f64,
    rule: &SizingRule,
    extras: &Extras,
) -> Option<Offer> {
    ranked_offers(machines, load, rule, extras).into_iter().next()
}

pub fn ranked_offers<'a>(
    machines: impl Iterator<Item = &'a PricedMachine>,
    load: f64,
    rule: &SizingRule,
    extras: &Extras,
) -> Vec<Offer> {
    let mut offers: Vec<Offer> = machines.filter_map(|m| cheapest_offer(m, load, rule, extras)).collect();
    offers.sort_by(|a, b| a.per_hour.total_cmp(&b.per_hour).then(b.spare.total_cmp(&a.spare)));
    offers
}

pub fn machine_families(machines: &[PricedMachine]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for m in machines {
        if !names.contains(&m.family) {
            names.push(m.family.clone());
        }
    }
    names
}

/// Greatest load of `nodes` machines: (under the rule, after one more loss at full use).
pub fn offer_headroom(machine: &PricedMachine, nodes: u32, rule: &SizingRule) -> (f64, f64) {
    (rule.allowed(nodes, machine.rps.mid), f64::from(nodes.saturating_sub(1)) * machine.rps.mid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::read_capacity;

    fn machines() -> Vec<PricedMachine> {
        read_capacity(
            "name,vcpu,rps,price\nc5.large,2,31075,0.085\nc5.xlarge,4,75955,0.17\nc5.2xlarge,8,188886,0.34\n\
             a1.large,2,16089,0.051\na1.xlarge,4,36157,0.102\n",
        )
        .unwrap()
    }

    #[test]
    fn a_fixed_number_takes_the_smallest_size() {
        let all = machines();
        let c5 = || all.iter().filter(|m| m.family == "c5");
        let best = |load| cheapest_of(c5(), load, &SizingRule::fixed(3, 0.66), &Extras::default()).unwrap();
        assert_eq!((best(25_000.0).machine.as_str(), best(25_000.0).per_hour), ("c5.large", 0.085 * 3.0));
        assert_eq!(best(75_000.0).machine, "c5.xlarge");
        assert!(cheapest_of(c5(), 1e6, &SizingRule::fixed(3, 0.66), &Extras::default()).is_none());
        let o = best(61_500.0);
        assert_eq!(o.confidence, Confidence::Risky, "61,528 is the limit: {o:?}");
        assert!((o.after_loss - 0.9895).abs() < 1e-3, "two thirds on three leave one per cent on two");
    }

    #[test]
    fn the_number_of_machines_is_searched() {
        let all = machines();
        let any = SizingRule { nodes_min: 3, nodes_max: 100, ..SizingRule::fixed(3, 0.66) };
        let pick = |load, rule: &SizingRule| {
            let o = cheapest_of(all.iter(), load, rule, &Extras::default()).unwrap();
            (o.machine, o.nodes, (o.per_hour * 1000.0).round() / 1000.0)
        };
        assert_eq!(pick(35_000.0, &any), ("a1.large".into(), 4, 0.204));
        assert_eq!(pick(75_000.0, &any), ("c5.large".into(), 4, 0.34));
        assert_eq!(pick(100_000.0, &any), ("c5.large".into(), 5, 0.425));
        assert_eq!(pick(175_000.0, &any), ("c5.xlarge".into(), 4, 0.68));
        let survive = SizingRule::survive(1, 1.0);
        let c5 = all.iter().filter(|m| m.name == "c5.large");
        let o = cheapest_of(c5, 175_000.0, &survive, &Extras::default()).unwrap();
        assert_eq!((o.nodes, (o.per_hour * 1000.0).round()), (7, 595.0));
        assert!((o.after_loss - 0.9386).abs() < 1e-3);
    }

    #[test]
    fn the_boundary_itself_is_allowed_and_one_more_is_not() {
        let rule = SizingRule::fixed(3, 0.66);
        assert_eq!(rule.nodes(3.0 * 0.66 * 1000.0, 1000.0), Some(3));
        assert_eq!(rule.nodes(3.0 * 0.66 * 1000.0 + 1.0, 1000.0), None);
        assert_eq!(SizingRule::survive(2, 0.5).nodes(1000.0, 1000.0), Some(4));
        assert_eq!(SizingRule::survive(1, 1.0).nodes(1e9, 1.0), None);
        assert_eq!(rule.nodes(1.0, 0.0), None);
    }

    #[test]
    fn money_counts_everything() {
        let all = machines();
        let extras = Extras { balancer: 0.02, per_gigabyte: 0.09, bytes_per_response: 5000.0, user_cycle: 10.0 };
        let o = cheapest_offer(&all[0], 10_000.0, &SizingRule::fixed(3, 0.66), &extras).unwrap();
        let expected = 3.0 * 0.085 + 0.02 + 0.09 * 180.0;
        assert!((o.per_hour - expected).abs() < 1e-9);
        assert!((o.per_million - expected / 36.0).abs() < 1e-9);
        assert!((o.per_user - expected / 100_000.0).abs() < 1e-12);
    }

    #[test]
    fn a_measured_interval_decides_sureness() {
        let mut m = machines().remove(0);
        m.interval_known = true;
        m.rps = Interval { low: 30_900.0, mid: 31_075.0, high: 31_200.0 };
        let at = |load| cheapest_offer(&m, load, &SizingRule::fixed(3, 0.66), &Extras::default()).unwrap().confidence;
        assert_eq!(at(61_000.0), Confidence::Sure, "within 1 %, but the lower end still fits");
        assert_eq!(at(61_400.0), Confidence::Risky);
        m.projected = true;
        assert_eq!(
            cheapest_offer(&m, 1000.0, &SizingRule::fixed(3, 0.66), &Extras::default()).unwrap().confidence,
            Confidence::Projected
        );
    }
}
