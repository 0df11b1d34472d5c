//! Requests of the API to the master, in the worker. A ticket identifies each until its outcome arrives.

use crate::conf::{Config, Invocation};
use crate::generations::message::{ChangeOutcome, ChangeRequest, SubmittedWork};
use crate::generations::shown::{self, ShownGeneration};
use crate::process::channel::Channel;
use http_api::{ConfigRefusal, ConfigReply, ConfigRequest};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// Maximum number of requests that wait for the master.
const UNDER_WAY_MAX: usize = 16;

pub struct Requests {
    sender: mpsc::Sender<SubmittedWork>,
    receiver: mpsc::Receiver<SubmittedWork>,
    under_way: HashMap<u64, SubmittedWork>,
    last_ticket: u64,
}

impl Default for Requests {
    fn default() -> Self {
        let (sender, receiver) = mpsc::channel(UNDER_WAY_MAX);
        Requests { sender, receiver, under_way: HashMap::new(), last_ticket: 0 }
    }
}

impl Requests {
    pub fn show(&self, invocation: &Invocation, config: &Config) {
        let has_api = config.http.as_ref().is_some_and(|http| http_api::has_api(http));
        http_api::serve_configuration(has_api.then(|| {
            let shown: Arc<dyn http_api::Configuration> =
                Arc::new(ShownGeneration::new(invocation, &config.texts, self.sender.clone()));
            shown
        }));
    }

    pub async fn next(&mut self) -> Option<SubmittedWork> {
        self.receiver.recv().await
    }

    pub fn ask(&mut self, submitted: Option<SubmittedWork>, channel: Option<&Channel>) {
        let Some((what, end)) = submitted else { return };
        let refuse = |end: oneshot::Sender<ConfigReply>, refusal| {
            let _ = end.send(ConfigReply { result: Err(refusal), diff: None });
        };
        let Some(channel) = channel else {
            if let ConfigRequest::Level(level) = what {
                observe::set_level(level);
                let _ = end.send(ConfigReply { result: Ok(serde_json::Value::Null), diff: None });
                return;
            }
            return refuse(end, ConfigRefusal::new(503, "ConfigUnavailable", "there is no master process"));
        };
        if self.under_way.len() >= UNDER_WAY_MAX {
            return refuse(
                end,
                ConfigRefusal::new(503, "ConfigUnavailable", "too many requests wait for the master process"),
            );
        }
        self.last_ticket += 1;
        let request = ChangeRequest { ticket: self.last_ticket, what };
        match channel.ask(&request) {
            Ok(()) => {
                // The texts are no longer needed.
                let what = match request.what {
                    ConfigRequest::Level(level) => ConfigRequest::Level(level),
                    _ => ConfigRequest::List,
                };
                self.under_way.insert(self.last_ticket, (what, end));
            }
            Err(e) => {
                let words = format!("the request to the master process failed {}", observe::os_error(&e));
                refuse(end, ConfigRefusal::new(503, "ConfigUnavailable", words));
            }
        }
    }

    pub fn done(&mut self, outcome: ChangeOutcome, invocation: &Invocation, config: &Config) {
        let Some((what, end)) = self.under_way.remove(&outcome.ticket) else { return };
        if let (ConfigRequest::Level(level), Ok(_)) = (what, &outcome.result) {
            observe::set_level(level);
        }
        let diff = outcome.texts.map(|new| shown::diff_texts(invocation.clone(), &config.texts, new));
        let _ = end.send(ConfigReply { result: outcome.result, diff });
    }

    /// The master has ended; outcomes will not arrive.
    pub fn give_up(&mut self) {
        self.under_way.clear();
    }
}
