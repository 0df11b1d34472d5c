//! An API server that is gone for a while: requests are answered, and nothing is reloaded.

use std::time::{Duration, Instant};

use super::cluster::{Cluster, probe_controller, wait_until};
use super::rights::{change_objects, is_answered};

/// Pause between two requests during the outage.
const PAUSE: Duration = Duration::from_millis(100);

/// Stops the API server for some seconds, and starts it again.
pub fn outlive_outage(cluster: &mut Cluster, seconds: u64) -> Result<(), String> {
    change_objects(cluster, 1)?;
    wait_until("the route answers", is_answered)?;
    wait_until("statuses are written", || metric("status_writes_total").is_some_and(|count| count >= 10))?;
    let generation = metric("generation").ok_or("the controller has no metrics")?;
    cluster.stop_api_server();
    let (mut answered, mut lost) = (0, 0);
    let end = Instant::now() + Duration::from_secs(seconds);
    while Instant::now() < end {
        match is_answered() {
            true => answered += 1,
            false => lost += 1,
        }
        std::thread::park_timeout(PAUSE);
    }
    let during = metric("generation").ok_or("the controller has ended")?;
    println!("{seconds} s without the API server: {answered} requests answered, {lost} not");
    cluster.start_api_server()?;
    if lost > 0 || during != generation {
        return Err(format!("generation {generation} before, {during} after; {lost} requests without an answer"));
    }
    let writes = metric("status_writes_total").ok_or("the controller has ended")?;
    change_objects(cluster, 2)?;
    wait_until("statuses are written again", || metric("status_writes_total").is_some_and(|count| count > writes))?;
    wait_until("the change is active", || metric("generation").is_some_and(|now| now > generation))?;
    println!("statuses and configurations are written again");
    Ok(())
}

/// Returns a metric of the controller.
fn metric(name: &str) -> Option<u64> {
    let text = probe_controller("/metrics")?;
    let prefix = format!("tidegate_controller_{name} ");
    text.lines().find_map(|line| line.strip_prefix(&prefix)?.trim().parse().ok())
}
