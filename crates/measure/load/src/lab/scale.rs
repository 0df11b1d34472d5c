//! Plays an autoscaler: adds and removes upstream servers through the API as the load changes.
//!
//! At the start of each point, under load, the list of servers of a group is read, and servers are added and removed
//! one by one, as clients of clouds do. The report has the machines of each level and their price per hour.

use super::probe::ProbeResponse;
use crate::engine::request::RequestSpec;
use figures::units::parse_count;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// `[workload.scale]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// Path of the group's servers in the API of the measured server.
    pub api: String,
    /// Backends, the first ones first.
    pub machines: Vec<String>,
    /// Requests per second that a machine can answer.
    pub machine_rps: f64,
    /// Share of it that may be used.
    #[serde(default = "default_utilisation")]
    pub utilisation: String,
    #[serde(default = "default_nodes")]
    pub nodes_min: usize,
    /// Price in dollars per machine and hour.
    #[serde(default)]
    pub price: f64,
}

fn default_utilisation() -> String {
    "66%".into()
}

fn default_nodes() -> usize {
    1
}

/// Scaling result of one level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScaledValue {
    pub value: f64,
    pub machines: usize,
    pub dollars_per_hour: f64,
}

impl Scale {
    fn share(&self) -> Option<f64> {
        let share = self.utilisation.strip_suffix('%').and_then(parse_count)? / 100.0;
        Some(share).filter(|share| *share > 0.0 && *share <= 1.0)
    }

    /// Checks the keys; `backends` are the names of the file, `greatest` is the highest level.
    ///
    /// # Errors
    /// The first key that is wrong.
    pub fn check(&self, backends: &[&str], greatest: f64) -> Result<(), String> {
        if !self.api.starts_with('/') {
            return Err("scale: api is the path of a group's servers in the API".into());
        }
        if let Some(name) = self.machines.iter().find(|name| !backends.contains(&name.as_str())) {
            return Err(format!("scale: no backend is called `{name}`"));
        }
        if self.share().is_none() || self.machine_rps.is_nan() || self.machine_rps <= 0.0 || self.price < 0.0 {
            return Err("scale: machine_rps, utilisation (as \"66%\") and price must be positive".into());
        }
        if self.nodes_min == 0 || self.wanted(greatest) > self.machines.len() {
            let wanted = self.wanted(greatest);
            return Err(format!(
                "scale: {greatest} requests/s need {wanted} machines, and there are {}",
                self.machines.len()
            ));
        }
        Ok(())
    }

    /// Machines for a load: as many as keep the utilisation.
    pub fn wanted(&self, load: f64) -> usize {
        let usable = self.machine_rps * self.share().unwrap_or(1.0);
        // (0.66 of 500 is a little more or less than 330 as a floating-point number.)
        ((load / usable - 1e-9).ceil() as usize).max(self.nodes_min)
    }

    pub fn scaled(&self, value: f64) -> ScaledValue {
        let machines = self.wanted(value);
        ScaledValue { value, machines, dollars_per_hour: machines as f64 * self.price }
    }

    /// Has the server use these addresses: adds those that are missing, then removes the others.
    ///
    /// # Errors
    /// A request that failed, or a list that is not the wanted one at the end.
    pub fn synchronize(
        &self,
        wanted: &[String],
        ask: &dyn Fn(&RequestSpec) -> Result<(ProbeResponse, Vec<u8>), String>,
    ) -> Result<(), String> {
        let request = |method: &str, path: &str, body: String| {
            let spec = RequestSpec { method: method.into(), body, ..RequestSpec::get(path) };
            let (seen, bytes) = ask(&spec)?;
            if !(200..300).contains(&seen.status) {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                return Err(format!("scale: {method} {path}: status {}: {text}", seen.status));
            }
            Ok(bytes)
        };
        let list = || -> Result<Vec<(u64, String)>, String> {
            let bytes = request("GET", &self.api, String::new())?;
            let all: Value = serde_json::from_slice(&bytes).map_err(|e| format!("scale: {}: {e}", self.api))?;
            let one = |server: &Value| Some((server.get("id")?.as_u64()?, server.get("server")?.as_str()?.to_string()));
            Ok(all.as_array().into_iter().flatten().filter_map(one).collect())
        };
        let present = list()?;
        for address in wanted.iter().filter(|address| present.iter().all(|(_, known)| known != *address)) {
            request("POST", &self.api, json!({ "server": address }).to_string())?;
        }
        for (id, _) in present.iter().filter(|(_, known)| !wanted.contains(known)) {
            request("DELETE", &format!("{}/{id}", self.api.trim_end_matches('/')), String::new())?;
        }
        let mut now: Vec<String> = list()?.into_iter().map(|(_, address)| address).collect();
        let mut wanted = wanted.to_vec();
        now.sort();
        wanted.sort();
        if now == wanted { Ok(()) } else { Err(format!("scale: the server has {now:?} instead of {wanted:?}")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    fn scale() -> Scale {
        Scale {
            api: "/api/".into(),
            machines: ["a", "b", "c"].map(String::from).to_vec(),
            machine_rps: 500.0,
            utilisation: "66%".into(),
            nodes_min: 1,
            price: 0.5,
        }
    }

    #[test]
    fn machines_follow_the_load() {
        let loads = [1.0, 330.0, 331.0, 660.0, 990.0];
        assert_eq!(loads.map(|load| scale().wanted(load)), [1, 1, 2, 2, 3]);
        assert_eq!(scale().scaled(400.0), ScaledValue { value: 400.0, machines: 2, dollars_per_hour: 1.0 });
        assert!(scale().check(&["a", "b", "c"], 990.0).is_ok());
        for (change, greatest) in [
            (Scale { utilisation: "x".into(), ..scale() }, 1.0),
            (Scale { utilisation: "101%".into(), ..scale() }, 1.0),
            (Scale { machine_rps: 0.0, ..scale() }, 1.0),
            (Scale { machines: vec!["z".into()], ..scale() }, 1.0),
            (Scale { api: "x".into(), ..scale() }, 1.0),
            (scale(), 991.0),
        ] {
            assert!(change.check(&["a", "b", "c"], greatest).is_err(), "{change:?}");
        }
    }

    #[test]
    fn servers_are_added_before_others_are_removed() {
        let servers = RefCell::new(vec![(1, "x".to_string()), (2, "y".to_string())]);
        let log = RefCell::new(Vec::new());
        let ask = |spec: &RequestSpec| {
            let mut servers = servers.borrow_mut();
            log.borrow_mut().push(format!("{} {} {}", spec.method, spec.path, spec.body));
            match spec.method.as_str() {
                "POST" => {
                    let id = servers.len() as u64 + 10;
                    servers.push((
                        id,
                        serde_json::from_str::<Value>(&spec.body).unwrap()["server"].as_str().unwrap().into(),
                    ));
                }
                "DELETE" => servers.retain(|(id, _)| !spec.path.ends_with(&format!("/{id}"))),
                _ => {}
            }
            let all: Vec<Value> = servers.iter().map(|(id, server)| json!({"id": id, "server": server})).collect();
            let seen = ProbeResponse { status: 200, length: 0, hash: String::new(), head: 0 };
            Ok((seen, Value::from(all).to_string().into_bytes()))
        };
        scale().synchronize(&["y".to_string(), "z".to_string()], &ask).unwrap();
        let want = ["GET /api/ ", "POST /api/ {\"server\":\"z\"}", "DELETE /api/1 ", "GET /api/ "];
        assert_eq!(*log.borrow(), want);
        let refuse =
            |_: &RequestSpec| Ok((ProbeResponse { status: 405, length: 0, hash: String::new(), head: 0 }, Vec::new()));
        assert!(scale().synchronize(&[], &refuse).unwrap_err().contains("405"));
    }
}
