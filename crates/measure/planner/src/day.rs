//! Simulation of autoscaling over a day, with machines that take time to start.
//! Implements the documented rule of Kubernetes' horizontal autoscaler: desired = ceil(running × utilisation / target),
//! with a tolerance, evaluated periodically; scaling in waits until no higher wish occurred within a window.

use serde::Deserialize;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Day {
    /// Requests per second at evenly spaced times of the day, interpolated cyclically.
    pub load: Vec<f64>,
    pub node_rps: f64,
    pub price: f64,
    #[serde(default = "default_target")]
    pub target: f64,
    #[serde(default = "default_min")]
    pub nodes_min: u32,
    #[serde(default = "default_max")]
    pub nodes_max: u32,
    /// Seconds from the decision until a machine serves.
    #[serde(default = "default_start")]
    pub start_s: u32,
    #[serde(default = "default_period")]
    pub period_s: u32,
    /// Seconds that a wish to scale in must last.
    #[serde(default = "default_window")]
    pub scale_in_window_s: u32,
    /// No scaling while utilisation / target is this close to 1.
    #[serde(default = "default_tolerance")]
    pub tolerance: f64,
    /// Minimum billed seconds per machine.
    #[serde(default = "default_bill")]
    pub billed_min_s: u32,
    #[serde(default)]
    pub burst: Vec<Burst>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Burst {
    pub at_s: u32,
    pub for_s: u32,
    pub factor: f64,
}

fn default_target() -> f64 {
    0.66
}
fn default_min() -> u32 {
    2
}
fn default_max() -> u32 {
    1000
}
fn default_start() -> u32 {
    180
}
fn default_period() -> u32 {
    15
}
fn default_window() -> u32 {
    300
}
fn default_tolerance() -> f64 {
    0.1
}
fn default_bill() -> u32 {
    60
}

pub const DAY_S: u32 = 86_400;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Minute {
    pub load: f64,
    pub serving: u32,
    /// Paid machines, including starting ones.
    pub paid: u32,
    pub refused: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct DayOutcome {
    pub minutes: Vec<Minute>,
    pub requests: f64,
    pub refused: f64,
    /// Dollars of the day with scaling, and with the peak's machines all day.
    pub cost: f64,
    pub cost_static: f64,
    pub nodes_static: u32,
    pub starts: u32,
    /// Highest utilisation of any second; above 1 is overload.
    pub utilisation_worst: f64,
    pub utilisation_fixed: f64,
}

/// Reads a scenario (TOML). Fails on syntax, and on values out of range.
pub fn read_day(text: &str) -> Result<Day, String> {
    let d: Day = toml::from_str(text).map_err(|e| figures::errors::plain_message(&e.to_string()))?;
    if d.load.len() < 2 || d.load.iter().any(|l| !l.is_finite() || *l < 0.0) {
        return Err("`load` needs at least two values, none of them negative".into());
    }
    let positive = |v: f64| v.is_finite() && v > 0.0;
    if !positive(d.node_rps) || !positive(d.target) || d.period_s == 0 || d.nodes_min == 0 || d.nodes_min > d.nodes_max
    {
        return Err(
            "node_rps, target, period_s and nodes_min must be positive, and nodes_min must not exceed nodes_max".into(),
        );
    }
    Ok(d)
}

impl Day {
    pub fn load_at(&self, second: u32) -> f64 {
        let place = f64::from(second) / f64::from(DAY_S) * self.load.len() as f64;
        let (i, part) = (place as usize % self.load.len(), place.fract());
        let next = self.load[(i + 1) % self.load.len()];
        let base = self.load[i] + (next - self.load[i]) * part;
        let factor = self.burst.iter().filter(|b| second >= b.at_s && second - b.at_s < b.for_s).map(|b| b.factor);
        base * factor.product::<f64>()
    }

    fn needed(&self, load: f64) -> u32 {
        ((load / (self.node_rps * self.target)).ceil() as u32).clamp(self.nodes_min, self.nodes_max)
    }
}

/// Simulates the day by seconds, starting with the machines that the first load needs.
pub fn simulate_day(day: &Day) -> DayOutcome {
    let peak = (0..DAY_S).map(|s| day.load_at(s)).fold(0.0, f64::max);
    let nodes_static = day.needed(peak);
    let mut serving = day.needed(day.load_at(0));
    let mut starting: Vec<u32> = Vec::new();
    let mut wishes: std::collections::VecDeque<(u32, u32)> = Default::default();
    // End of each machine's minimum billing; the longest-serving machine stops first.
    let mut paid_until: std::collections::VecDeque<u32> = std::iter::repeat_n(0, serving as usize).collect();
    let (mut minutes, mut minute) = (Vec::new(), Minute { load: 0.0, serving, paid: serving, refused: 0.0 });
    let (mut requests, mut refused, mut paid_seconds, mut starts, mut worst) = (0.0, 0.0, 0.0, 0u32, 0.0f64);

    for second in 0..DAY_S {
        starting.retain(|ready| {
            if *ready > second {
                return true;
            }
            serving += 1;
            paid_until.push_back((ready.saturating_sub(day.start_s)) + day.billed_min_s);
            false
        });
        let load = day.load_at(second);
        let capacity = f64::from(serving) * day.node_rps;
        worst = worst.max(load / capacity);
        let lost = (load - capacity).max(0.0);
        requests += load;
        refused += lost;
        if second % day.period_s == 0 {
            // Saturation shows as 100 %: the scaler cannot see refused requests.
            let utilisation = (load / capacity).min(1.0);
            let ratio = utilisation / day.target;
            let wish = if (ratio - 1.0).abs() <= day.tolerance {
                serving
            } else {
                ((f64::from(serving) * ratio - 1e-9).ceil() as u32).clamp(day.nodes_min, day.nodes_max)
            };
            let coming = serving + starting.len() as u32;
            if wish > coming {
                starts += wish - coming;
                starting.extend(std::iter::repeat_n(second + day.start_s.max(1), (wish - coming) as usize));
            }
            wishes.push_back((second, wish));
            while wishes.front().is_some_and(|(at, _)| at + day.scale_in_window_s < second) {
                wishes.pop_front();
            }
            let highest = wishes.iter().map(|w| w.1).max().unwrap_or(wish);
            while starting.is_empty() && serving > highest && serving > day.nodes_min {
                serving -= 1;
                if let Some(until) = paid_until.pop_front() {
                    paid_seconds += f64::from(until.saturating_sub(second));
                }
            }
        }
        let paid = serving + starting.len() as u32;
        paid_seconds += f64::from(paid);
        minute.refused += lost;
        if second % 60 == 59 {
            minutes.push(Minute { load, serving, paid, ..minute });
            minute.refused = 0.0;
        }
    }
    DayOutcome {
        minutes,
        requests,
        refused,
        cost: paid_seconds / 3600.0 * day.price,
        cost_static: f64::from(nodes_static) * 24.0 * day.price,
        nodes_static,
        starts,
        utilisation_worst: worst,
        utilisation_fixed: peak / (f64::from(nodes_static) * day.node_rps),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(extra: &str) -> Day {
        read_day(&format!("load=[1000,1000,4000,4000,1000,1000]\nnode_rps=500\nprice=0.1\n{extra}\n")).unwrap()
    }

    #[test]
    fn mistakes_are_named_without_types() {
        let why = read_day("load=[1,2]\nnode_rps=500\nprice=0.1\nstart_s=-5\n").unwrap_err();
        assert!(why.contains("start_s=-5") && why.contains("a whole number") && !why.contains("u32"), "{why}");
    }

    #[test]
    fn constant_load_needs_a_constant_number() {
        let d = read_day("load=[1000,1000]\nnode_rps=500\nprice=0.1\ntarget=0.5\n").unwrap();
        let o = simulate_day(&d);
        assert_eq!((o.starts, o.refused, o.nodes_static), (0, 0.0, 4));
        assert!((o.cost - o.cost_static).abs() < 1e-9 && (o.cost - 9.6).abs() < 1e-9);
    }

    #[test]
    fn a_slow_curve_is_followed_without_loss_and_cheaper() {
        let o = simulate_day(&day("start_s=120"));
        assert_eq!(o.refused, 0.0);
        assert!(o.cost < 0.8 * o.cost_static, "{} of {}", o.cost, o.cost_static);
        assert!(o.utilisation_worst < 1.0);
        assert_eq!(o.minutes.len(), 1440);
    }

    #[test]
    fn a_burst_faster_than_the_start_is_lost_and_lag_is_what_it_costs() {
        let burst = "[[burst]]\nat_s=3600\nfor_s=600\nfactor=4\n";
        let quick = simulate_day(&day(&format!("start_s=30\n{burst}")));
        let slow = simulate_day(&day(&format!("start_s=400\n{burst}")));
        assert!(quick.refused > 0.0 && slow.refused > 3.0 * quick.refused, "{} {}", quick.refused, slow.refused);
    }

    #[test]
    fn mistakes_are_sentences() {
        assert!(read_day("load=[1]\nnode_rps=1\nprice=1\n").is_err());
        assert!(read_day("load=[1,2]\nnode_rps=0\nprice=1\n").is_err());
        assert!(read_day("load=[1,2]\nnode_rps=1\nprice=1\nlags=3\n").unwrap_err().contains("lags"));
    }
}
