//! Runs with several servers: every server gets a job of its own, with its part of the load, and all jobs run at the
//! same time. A Poisson schedule divided by chance is Poisson again, so that each server sees its own rate.

use super::job::{Job, Model, Target};

/// Splits a job into one for each of its servers; returns the job itself if there is one server. Loads and budgets are
/// divided by the weights of the requests and add up to the job's.
pub fn server_jobs(job: &Job) -> Vec<Job> {
    if job.servers.is_empty() {
        return vec![job.clone()];
    }
    let targets: Vec<&Target> = std::iter::once(&job.target).chain(&job.servers).collect();
    let weight = |server: usize| {
        let own = job.requests.iter().filter(|request| request.server == server);
        own.map(|request| request.weight.max(0.0)).sum::<f64>()
    };
    let weights: Vec<f64> = (0..targets.len()).map(weight).collect();
    let total: f64 = weights.iter().sum();
    let servers = targets.len() as f64;
    let mut jobs = Vec::new();
    let mut before = 0.0;
    for (server, (target, weight)) in targets.into_iter().zip(&weights).enumerate() {
        let share = LoadShare { from: before / total, to: (before + weight) / total };
        before += weight;
        let mut own = Job { target: target.clone(), servers: Vec::new(), ..job.clone() };
        for request in own.requests.iter_mut().filter(|request| request.server != server) {
            request.weight = 0.0;
        }
        let whole = matches!(job.model, Model::Closed { .. });
        for stage in &mut own.profile.stages {
            (stage.from, stage.to) = match job.connections_each {
                // Every server has as many connections, whatever its weight.
                1.. if whole => (stage.from / servers, stage.to / servers),
                _ => (share.of(stage.from, whole), share.of(stage.to, whole)),
            };
        }
        own.connections_max = match job.connections_each {
            0 => (share.of(job.connections_max as f64, true) as usize).max(1),
            each => each,
        };
        own.budget = job.budget.map(|budget| share.of(budget as f64, true) as u64);
        own.threads = ((job.threads as f64 * (share.to - share.from)).round() as usize).max(1);
        own.seed = job.seed.wrapping_add(server as u64 * 104_729);
        if let Model::Replay { at } = &mut own.model {
            at.retain(|(_, request)| job.requests.get(*request as usize).is_some_and(|r| r.server == server));
        }
        jobs.push(own);
    }
    jobs
}

/// A server's part of the load, as an interval of the whole, so that rounded parts add up.
#[derive(Clone, Copy)]
struct LoadShare {
    from: f64,
    to: f64,
}

impl LoadShare {
    fn of(&self, value: f64, whole: bool) -> f64 {
        // Sums of weights such as 0.1 + 0.2 must not move a boundary.
        let cut = |part: f64| (value * part * (1.0 + 1e-12)).round().min(value.round());
        if whole { cut(self.to) - cut(self.from) } else { value * (self.to - self.from) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::profile::{Arrivals, Profile};
    use crate::engine::request::RequestSpec;
    use crate::engine::sim::sim_job;

    fn job(weights: &[(usize, f64)]) -> Job {
        let mut job = sim_job(10, 1.0);
        let request =
            |(server, weight): &(usize, f64)| RequestSpec { weight: *weight, server: *server, ..RequestSpec::get("/") };
        job.requests = weights.iter().map(request).collect();
        let servers = weights.iter().map(|(server, _)| *server).max().unwrap_or(0);
        job.servers = vec![job.target.clone(); servers];
        job
    }

    #[test]
    fn parts_of_a_load_add_up() {
        for users in [3, 7, 10, 100] {
            let mut all = job(&[(0, 0.1), (1, 0.2), (2, 0.7), (1, 0.3)]);
            all.profile = Profile::constant(users as f64, 1.0);
            all.budget = Some(101);
            let jobs = server_jobs(&all);
            let sum = |of: fn(&Job) -> f64| jobs.iter().map(of).sum::<f64>();
            assert_eq!(sum(|job| job.profile.value(0.0)), users as f64);
            assert_eq!(sum(|job| job.budget.unwrap_or(0) as f64), 101.0);
            assert_eq!(jobs[1].requests.iter().map(|r| r.weight).collect::<Vec<_>>(), [0.0, 0.2, 0.0, 0.3]);
        }
    }

    #[test]
    fn a_rate_is_divided_by_weight_and_a_log_by_request() {
        let mut all = job(&[(0, 1.0), (1, 3.0)]);
        all.model = Model::Open { arrivals: Arrivals::Fixed };
        all.profile = Profile::constant(10.0, 1.0);
        all.connections_each = 6;
        let jobs = server_jobs(&all);
        assert_eq!(jobs.iter().map(|job| job.profile.value(0.0)).collect::<Vec<_>>(), [2.5, 7.5]);
        assert!(jobs.iter().all(|job| job.connections_max == 6) && jobs[0].seed != jobs[1].seed);
        all.model = Model::Replay { at: vec![(0.0, 0), (0.1, 1), (0.2, 1)] };
        let listed = |job: &Job| if let Model::Replay { at } = &job.model { at.len() } else { 0 };
        assert_eq!(server_jobs(&all).iter().map(listed).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(server_jobs(&job(&[(0, 1.0)])).len(), 1);
    }

    #[test]
    fn connections_of_each_server_do_not_follow_the_weights() {
        let mut all = job(&[(0, 1.0), (1, 9.0)]);
        (all.profile, all.connections_each) = (Profile::constant(12.0, 1.0), 6);
        let users = |all: &Job| server_jobs(all).iter().map(|job| job.profile.value(0.0)).collect::<Vec<_>>();
        assert_eq!(users(&all), [6.0, 6.0]);
        all.connections_each = 0;
        assert_eq!(users(&all), [1.0, 11.0]);
    }
}
