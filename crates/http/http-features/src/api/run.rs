//! Runs a request of the API on its thread.

use super::answer::{Answer, Refused, selected};
use super::path::{self, EndPoint, Side, VERSIONS};
use super::{pairs, server, servers, upstreams, zones};
use bytes::Bytes;
use serde_json::{Value, json};
use session_engine::inventory::{AreaInventory, Inventory};
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Get,
    Post,
    Put,
    Patch,
    Delete,
    Other,
}

/// A request, apart from its connection.
pub struct Ask {
    /// Path below the location.
    pub path: String,
    pub verb: Verb,
    pub fields: Option<String>,
    pub key: Option<String>,
    pub dry_run: bool,
    pub if_match: Option<String>,
    /// A browser sends a change for a page of another site.
    pub foreign: bool,
    pub body: Bytes,
    pub writes: bool,
    /// Address that accepted the connection.
    pub local: String,
    pub inventory: Arc<Inventory>,
    /// This request, if no gauge counts it.
    pub active: u64,
}

impl Ask {
    /// Tells whether the method has a body that the answer depends on.
    pub fn reads_body(&self) -> bool {
        self.writes && matches!(self.verb, Verb::Post | Verb::Put | Verb::Patch)
    }
    pub fn area(&self, side: Side) -> &AreaInventory {
        match side {
            Side::Http => &self.inventory.http,
            Side::Stream => &self.inventory.stream,
        }
    }
    /// Parses the body.
    ///
    /// # Errors
    /// `JsonError`
    pub fn json(&self) -> Result<Value, Refused> {
        serde_json::from_slice(&self.body).map_err(|e| Refused::new(415, "JsonError", format!("json error: {e}")))
    }
    /// Answers with an object.
    fn object(&self, value: Value) -> Result<Answer, Refused> {
        Ok(Answer::json(&selected(value, self.fields.as_deref())))
    }
}

pub fn run(ask: &Ask) -> Result<Answer, Refused> {
    base::clock::update();
    let has_stream = ask.inventory.stream.is_present();
    let Some((version, end)) = path::parse(&ask.path, has_stream)? else {
        return match ask.verb {
            Verb::Get => Ok(Answer::json(&VERSIONS.collect())),
            _ => Err(Refused::method()),
        };
    };
    if ask.verb != Verb::Get && !ask.writes {
        return Err(Refused::method());
    }
    if ask.foreign {
        return Err(Refused::new(403, "ForeignOrigin", "a page of another site may not change anything"));
    }
    match (ask.verb, &end) {
        (Verb::Get, EndPoint::Root) => Ok(Answer::json(&json!(path::children(None, version, has_stream)))),
        (Verb::Get, EndPoint::Children(side)) => {
            Ok(Answer::json(&json!(path::children(Some(*side), version, has_stream))))
        }
        (Verb::Get, EndPoint::Nginx) => ask.object(server::nginx(ask)),
        (Verb::Get, EndPoint::Processes) => ask.object(server::processes()),
        (Verb::Get, EndPoint::Connections) => ask.object(server::connections(ask)),
        (Verb::Get, EndPoint::Ssl) => ask.object(server::ssl(version)),
        (Verb::Get, EndPoint::License) => ask.object(server::license()),
        (Verb::Get, EndPoint::Requests) => ask.object(server::requests(ask)),
        (Verb::Delete, EndPoint::Processes | EndPoint::Connections | EndPoint::Ssl | EndPoint::Requests) => {
            server::reset(&end);
            Ok(Answer::done())
        }
        (Verb::Get | Verb::Delete, EndPoint::Workers(id)) => server::workers(ask, *id),
        (verb, EndPoint::Keyvals(side, name)) => pairs::run(ask, verb, *side, *name),
        (verb, EndPoint::Upstreams(side, name)) => upstreams::run(ask, verb, *side, *name, version),
        (verb, EndPoint::Servers(side, group, id)) => servers::run(ask, verb, *side, group, *id, version),
        (Verb::Get | Verb::Delete, _) => zones::run(ask, &end, version),
        _ => Err(Refused::method()),
    }
}
