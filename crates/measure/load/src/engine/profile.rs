//! Load over time (stages, ramps) and due times of an open loop: a pure function of profile, share and seed, never of
//! answers.

use figures::rng::Rng;
use serde::{Deserialize, Serialize};

/// With linearly changing load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// Load at the start and end: connections, users, or a rate per second.
    pub from: f64,
    pub to: f64,
    pub seconds: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    pub stages: Vec<Stage>,
}

impl Profile {
    pub fn constant(value: f64, seconds: f64) -> Profile {
        Profile { stages: vec![Stage { from: value, to: value, seconds }] }
    }

    /// Reads `100@10s,100..500@30s,0@5s`. Errors name the stage.
    pub fn parse(text: &str) -> Result<Profile, String> {
        let mut stages = Vec::new();
        for part in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let wrong = || format!("stage `{part}` is not of the form 100@10s or 100..500@30s");
            let (value, seconds) = part.split_once('@').ok_or_else(wrong)?;
            let seconds = figures::units::parse_seconds(seconds).filter(|s| *s > 0.0).ok_or_else(wrong)?;
            let number = |t: &str| figures::units::parse_count(t).ok_or_else(wrong);
            let (from, to) = match value.split_once("..") {
                Some((from, to)) => (number(from)?, number(to)?),
                None => (number(value)?, number(value)?),
            };
            stages.push(Stage { from, to, seconds });
        }
        if stages.is_empty() { Err("no stage given".into()) } else { Ok(Profile { stages }) }
    }

    pub fn seconds(&self) -> f64 {
        self.stages.iter().map(|s| s.seconds).sum()
    }

    pub fn highest(&self) -> f64 {
        self.stages.iter().map(|s| s.from.max(s.to)).fold(0.0, f64::max)
    }

    pub fn mean(&self) -> f64 {
        self.stages.iter().map(|s| (s.from + s.to) / 2.0 * s.seconds).sum::<f64>() / self.seconds().max(1e-12)
    }

    /// At a time in seconds; the last value after the end.
    pub fn value(&self, mut at: f64) -> f64 {
        for s in &self.stages {
            if at < s.seconds {
                return s.from + (s.to - s.from) * at / s.seconds;
            }
            at -= s.seconds;
        }
        self.stages.last().map_or(0.0, |s| s.to)
    }

    /// Integral of the values until a time in seconds: the requests due by then.
    pub fn integral(&self, mut until: f64) -> f64 {
        let mut sum = 0.0;
        for s in &self.stages {
            let t = until.clamp(0.0, s.seconds);
            sum += s.from * t + (s.to - s.from) / s.seconds * t * t / 2.0;
            until -= t;
        }
        sum
    }

    /// Time at which the integral reaches `level`, when request number `level` is due; `None` for never.
    pub fn time_of(&self, mut level: f64) -> Option<f64> {
        let mut start = 0.0;
        for s in &self.stages {
            let area = (s.from + s.to) / 2.0 * s.seconds;
            if level < area {
                let slope = (s.to - s.from) / s.seconds;
                // from·t + slope·t²/2 = level, in a form without cancellation for small slopes.
                let root = (s.from * s.from + 2.0 * slope * level).max(0.0).sqrt();
                let t = if s.from + root > 0.0 { 2.0 * level / (s.from + root) } else { 0.0 };
                return Some(start + t.min(s.seconds));
            }
            level -= area;
            start += s.seconds;
        }
        None
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// Even spacing: repeatable, but hides queueing.
    Fixed,
    /// Exponential gaps, as from independent users.
    #[default]
    Poisson,
}

/// Due times of one world (of `worlds`), in nanoseconds from the start of the run.
#[derive(Clone, Debug)]
pub struct Schedule {
    profile: Profile,
    arrivals: Arrivals,
    worlds: f64,
    level: f64,
    rng: Rng,
    next: Option<u64>,
}

impl Schedule {
    /// Share of world `world`. Fixed arrivals of all worlds interleave evenly.
    pub fn new(profile: Profile, arrivals: Arrivals, world: usize, worlds: usize, seed: u64) -> Schedule {
        let worlds = worlds.max(1) as f64;
        let mut rng = Rng::new(seed ^ (world as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let level = match arrivals {
            Arrivals::Fixed => world as f64,
            Arrivals::Poisson => rng.exponential() * worlds,
        };
        let mut schedule = Schedule { profile, arrivals, worlds, level, rng, next: None };
        schedule.next = schedule.find();
        schedule
    }

    #[inline]
    pub fn peek(&self) -> Option<u64> {
        self.next
    }

    #[inline]
    pub fn take(&mut self) -> Option<u64> {
        let due = self.next?;
        self.level += match self.arrivals {
            Arrivals::Fixed => self.worlds,
            Arrivals::Poisson => self.rng.exponential() * self.worlds,
        };
        self.next = self.find();
        Some(due)
    }

    /// Requests due between two times and not taken (for Poisson arrivals: on average).
    pub fn left(&self, from: u64, until: u64) -> u64 {
        let level = self.profile.integral(until as f64 * 1e-9);
        if self.next.is_none_or(|t| t >= until) {
            0
        } else {
            let first = self.level.max(self.profile.integral(from as f64 * 1e-9));
            ((level - first) / self.worlds).ceil().max(0.0) as u64
        }
    }

    fn find(&self) -> Option<u64> {
        self.profile.time_of(self.level).map(|t| (t * 1e9) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(profile: &Profile, arrivals: Arrivals, worlds: usize) -> Vec<u64> {
        let mut times = Vec::new();
        for w in 0..worlds {
            let mut s = Schedule::new(profile.clone(), arrivals, w, worlds, 7);
            while let Some(t) = s.take() {
                times.push(t);
            }
        }
        times.sort_unstable();
        times
    }

    #[test]
    fn stages_are_read() {
        let p = Profile::parse("100@10s, 100..500@30s,0@500ms").unwrap();
        assert_eq!((p.stages.len(), p.seconds(), p.highest()), (3, 40.5, 500.0));
        assert_eq!((p.value(5.0), p.value(25.0), p.value(40.2), p.value(99.0)), (100.0, 300.0, 0.0, 0.0));
        for bad in ["", "100", "x@1s", "1@0s", "1..@2s"] {
            assert!(Profile::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn fixed_arrivals_are_even_whatever_the_number_of_worlds() {
        let p = Profile::constant(1000.0, 1.0);
        for worlds in [1, 3, 4] {
            let t = all(&p, Arrivals::Fixed, worlds);
            assert_eq!(t.len(), 1000);
            assert!(t.windows(2).all(|w| w[1] - w[0] >= 999_990 && w[1] - w[0] <= 1_000_010), "{worlds}");
        }
    }

    #[test]
    fn a_ramp_has_as_many_arrivals_as_its_area() {
        let p = Profile::parse("0..1000@10s,1000..0@10s").unwrap();
        let t = all(&p, Arrivals::Fixed, 2);
        assert_eq!(t.len(), 10_000);
        assert!((t[2500] as f64 * 1e-9 - 10.0 / 2f64.sqrt()).abs() < 0.01);
        let poisson = all(&p, Arrivals::Poisson, 2).len();
        assert!((9_700..10_300).contains(&poisson), "{poisson}");
    }

    #[test]
    fn the_rest_of_a_profile_is_known() {
        let p = Profile::parse("0..1000@10s,500@10s").unwrap();
        assert_eq!((p.integral(10.0), p.integral(15.0), p.integral(99.0)), (5000.0, 7500.0, 10_000.0));
        let mut s = Schedule::new(p, Arrivals::Fixed, 1, 4, 1);
        assert_eq!(s.left(0, 20_000_000_000), 2500);
        (0..100).for_each(|_| assert!(s.take().is_some()));
        assert_eq!((s.left(0, 20_000_000_000), s.left(0, 0)), (2400, 0));
        let enormous = Schedule::new(Profile::constant(1e9, 10.0), Arrivals::Fixed, 0, 1, 1);
        assert_eq!(enormous.left(0, 10_000_000_000), 10_000_000_000);
        assert_eq!(enormous.left(4_000_000_000, 10_000_000_000), 6_000_000_000);
    }

    #[test]
    fn poisson_gaps_are_exponential() {
        let t = all(&Profile::constant(10_000.0, 10.0), Arrivals::Poisson, 2);
        let gaps: Vec<f64> = t.windows(2).map(|w| (w[1] - w[0]) as f64 * 1e-9).collect();
        let (mean, sd) = (figures::stats::sample_mean(&gaps), figures::stats::deviation(&gaps));
        assert!((mean * 10_000.0 - 1.0).abs() < 0.02 && (sd / mean - 1.0).abs() < 0.02, "{mean} {sd}");
        let beyond = gaps.iter().filter(|g| **g > 3.0 * mean).count() as f64 / gaps.len() as f64;
        assert!((beyond - (-3.0f64).exp()).abs() < 0.003);
    }

    #[test]
    fn due_times_do_not_depend_on_when_they_are_taken() {
        let p = Profile::constant(100.0, 1.0);
        let (mut a, mut b) =
            (Schedule::new(p.clone(), Arrivals::Poisson, 0, 1, 3), Schedule::new(p, Arrivals::Poisson, 0, 1, 3));
        let early: Vec<u64> = std::iter::from_fn(|| a.take()).collect();
        assert_eq!(b.peek(), Some(early[0]));
        assert_eq!(std::iter::from_fn(|| b.take()).collect::<Vec<_>>(), early);
    }
}
