//! Warnings about a price table: contradictions, implausible growth, narrow choices, clusters that do not survive a
//! loss.

use figures::units::{Unit, format_dollars};

use crate::capacity::PricedMachine;
use crate::cluster::{Confidence, Extras, Offer, SizingRule, machine_families, ranked_offers};
use crate::usl::{self, UslLevel};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    pub kind: WarningKind,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WarningKind {
    Input,
    /// Capacity per vCPU grows with size.
    Scaling,
    Flip,
    /// Little to spare, or slow answers, after a loss.
    Failure,
    Dear,
}

impl WarningKind {
    pub fn word(self) -> &'static str {
        match self {
            WarningKind::Input => "input",
            WarningKind::Scaling => "scaling",
            WarningKind::Flip => "borderline",
            WarningKind::Failure => "after a failure",
            WarningKind::Dear => "cheaper choice",
        }
    }
}

/// Claimed usable rates that differ from `utilisation` of the maximum (by half a unit of their last digit).
pub fn input_warnings(machines: &[PricedMachine], utilisation: f64) -> Vec<Warning> {
    machines
        .iter()
        .filter_map(|m| {
            let claimed = m.claimed_usable?;
            let expected = m.rps.mid * utilisation;
            ((claimed - expected).abs() > 0.006).then(|| Warning {
                kind: WarningKind::Input,
                text: format!(
                    "{}: the usable rate {claimed:.2} is not {:.0} % of {:.0} (that is {expected:.2})",
                    m.name,
                    utilisation * 100.0,
                    m.rps.mid
                ),
            })
        })
        .collect()
}

/// Families whose capacity per vCPU grows by over 3 % with size; from three sizes on also by the law's α.
pub fn scaling_warnings(machines: &[PricedMachine]) -> Vec<Warning> {
    let mut grown = Vec::new();
    for family in machine_families(machines) {
        let mut sizes: Vec<&PricedMachine> = machines.iter().filter(|m| m.family == family && m.vcpu > 0).collect();
        sizes.sort_by_key(|m| m.vcpu);
        let Some(first) = sizes.first() else { continue };
        let per_vcpu = |m: &PricedMachine| m.rps.mid / f64::from(m.vcpu);
        let growth: Vec<f64> = sizes.iter().map(|m| per_vcpu(m) / per_vcpu(first)).collect();
        if growth.iter().all(|g| *g <= 1.03) {
            continue;
        }
        let levels: Vec<UslLevel> =
            sizes.iter().map(|m| UslLevel { n: f64::from(m.vcpu), runs: vec![m.rps.mid] }).collect();
        let alpha = usl::fit_law(&levels, 1).map(|f| format!("; a fitted α is {:.2}", f.usl.alpha)).unwrap_or_default();
        let growth: Vec<String> = growth.iter().map(|g| format!("{g:.2}")).collect();
        grown.push(format!("{family} ({}{alpha})", growth.join(" / ")));
    }
    if grown.is_empty() {
        return Vec::new();
    }
    vec![Warning {
        kind: WarningKind::Scaling,
        text: format!(
            "requests/s per vCPU grow with size: {}. CPU-bound work does not scale like that: another limit held \
             the small sizes back (connections, network, shared cores), and their prices here are too high",
            grown.join(", ")
        ),
    }]
}

/// Cells whose choice depends on less than 5 %, or lies within the measured interval.
pub fn flip_warnings(machines: &[PricedMachine], loads: &[f64], rule: &SizingRule) -> Vec<Warning> {
    let mut warnings = Vec::new();
    for load in loads {
        for family in machine_families(machines) {
            let members = || machines.iter().filter(|m| m.family == family);
            let offers = ranked_offers(members(), *load, rule, &Extras::default());
            let Some(best) = offers.first() else { continue };
            if let Some((name, margin)) = near_miss(members(), *load, rule, best) {
                warnings.push(Warning {
                    kind: WarningKind::Flip,
                    text: format!(
                        "{} requests/s on {family}: {name} lacks {:.1} % of the required capacity; if it sufficed, the price would drop from {}",
                        figures::units::format_grouped(*load as i64),
                        margin * 100.0,
                        format_dollars(best.per_hour)
                    ),
                });
            } else if best.confidence == Confidence::Risky {
                warnings.push(Warning {
                    kind: WarningKind::Flip,
                    text: format!(
                        "{} requests/s on {family}: {} × {} fits by only {:.1} %; without it the price would be {}",
                        figures::units::format_grouped(*load as i64),
                        best.nodes,
                        best.machine,
                        best.spare * 100.0,
                        offers.get(1).map_or("unknown".into(), |o| format_dollars(o.per_hour))
                    ),
                });
            }
        }
    }
    warnings
}

/// Cheapest machine that misses the rule by less than [`crate::cluster::FLIP`] at the greatest number.
fn near_miss<'a>(
    machines: impl Iterator<Item = &'a PricedMachine>,
    load: f64,
    rule: &SizingRule,
    best: &Offer,
) -> Option<(String, f64)> {
    machines
        .filter(|m| rule.nodes(load, m.rps.mid).is_none())
        .map(|m| (m, load / rule.allowed(rule.nodes_max, m.rps.mid) - 1.0))
        .filter(|(m, miss)| *miss < crate::cluster::FLIP && f64::from(rule.nodes_max) * m.price < best.per_hour)
        .map(|(m, miss)| (m.name.clone(), miss))
        .next()
}

pub fn failure_warnings(rule: &SizingRule, offers: &[Offer]) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if rule.losses == 0 && rule.nodes_min == rule.nodes_max && rule.nodes_min > 1 {
        let n = f64::from(rule.nodes_min);
        let after = rule.utilisation * n / (n - 1.0);
        warnings.push(Warning {
            kind: WarningKind::Failure,
            text: format!(
                "{} machines at {} leave {} of the maximum unused after one loss; at that load two servers answer {:.0} \
                 times slower than idle, sixteen {:.0} times (M/M/m)",
                rule.nodes_min,
                Unit::Share.write(rule.utilisation),
                Unit::Share.write((1.0 - after).max(0.0)),
                crate::queueing::response_stretch(after.min(0.9999), 2),
                crate::queueing::response_stretch(after.min(0.9999), 16)
            ),
        });
    }
    let overloaded = offers.iter().filter(|o| o.after_loss >= 1.0).count();
    if overloaded > 0 {
        warnings.push(Warning {
            kind: WarningKind::Failure,
            text: format!("{overloaded} of {} choices cannot carry their load after losing one machine", offers.len()),
        });
    }
    warnings
}

/// Loads for which another number of machines is over 5 % cheaper, and its price when survivors of one loss carry the
/// load.
pub fn price_warnings(machines: &[PricedMachine], loads: &[f64], rule: &SizingRule, extras: &Extras) -> Vec<Warning> {
    if rule.nodes_min != rule.nodes_max {
        return Vec::new();
    }
    let any = SizingRule { nodes_max: crate::cluster::NODES_MAX, ..*rule };
    let survive = SizingRule { nodes_min: rule.nodes_min, ..SizingRule::survive(1, 1.0) };
    let mut warnings = Vec::new();
    for load in loads {
        let best = |rule: &SizingRule| ranked_offers(machines.iter(), *load, rule, extras).into_iter().next();
        let (Some(fixed), Some(free), Some(real)) = (best(rule), best(&any), best(&survive)) else { continue };
        if free.per_hour < fixed.per_hour * 0.95 {
            warnings.push(Warning {
                kind: WarningKind::Dear,
                text: format!(
                    "{} requests/s: {} × {} at the same utilisation cost {} ({:.0} % less than {}); to just \
                     carry the load after one loss, {} × {} for {}",
                    figures::units::format_grouped(*load as i64),
                    free.nodes,
                    free.machine,
                    format_dollars(free.per_hour),
                    (1.0 - free.per_hour / fixed.per_hour) * 100.0,
                    format_dollars(fixed.per_hour),
                    real.nodes,
                    real.machine,
                    format_dollars(real.per_hour)
                ),
            });
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capacity::read_capacity;

    #[test]
    fn superlinear_families_are_named_and_others_are_not() {
        let m = read_capacity("name,vcpu,rps\nx.s,2,1000\nx.m,4,2500\nx.l,8,6000\ny.s,2,1000\ny.m,4,1900\n").unwrap();
        let w = scaling_warnings(&m);
        assert_eq!(w.len(), 1);
        assert!(w[0].text.contains(": x (1.00 / 1.25 / 1.50;") && !w[0].text.contains("y ("), "{}", w[0].text);
    }

    #[test]
    fn a_claim_that_is_off_by_one_request_is_found() {
        let m = read_capacity("name,rps,usable_rps\na,187147,123516.36\nb,16089,10618.74\n").unwrap();
        let w = input_warnings(&m, 0.66);
        assert_eq!(w.len(), 1);
        assert!(w[0].text.contains("123517.02"));
    }

    #[test]
    fn three_at_two_thirds_leave_one_per_cent() {
        let w = failure_warnings(&SizingRule::fixed(3, 0.66), &[]);
        assert!(w[0].text.contains("leave 1 % of the maximum") && w[0].text.contains("50 times"), "{}", w[0].text);
        assert!(failure_warnings(&SizingRule::survive(1, 0.7), &[]).is_empty());
    }
}
