//! Complaints as Events of the type Warning: each once, with a limit of the rate.

use std::collections::BTreeSet;
use std::time::Duration;

use cluster_objects::{Complaint, Kind, ObjectName};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Api, PostParams};
use tokio::time::Instant;

use super::logs;
use super::metrics::{self, Metrics};
use super::store::Snapshot;

/// Events at once at most.
const BURST: u32 = 25;
/// Time after which one further event may be written.
const PER_EVENT: Duration = Duration::from_secs(2);
/// Bytes of a note at most, as the API server has it.
const NOTE_MAX: usize = 1_000;

/// Complaints that have their event.
pub struct EventLog {
    reported: BTreeSet<Complaint>,
    tokens: u32,
    filled: Instant,
}

impl EventLog {
    pub fn new() -> EventLog {
        EventLog { reported: BTreeSet::new(), tokens: BURST, filled: Instant::now() }
    }

    /// Returns the complaints that get an event now: those without one, as many as the rate admits. The others follow
    /// with a later call. A complaint that goes and comes again gets another event.
    pub fn select<'a>(&mut self, complaints: &'a [Complaint], now: Instant) -> Vec<&'a Complaint> {
        let current: BTreeSet<&Complaint> = complaints.iter().collect();
        self.reported.retain(|complaint| current.contains(complaint));
        let gained = (now.duration_since(self.filled).as_secs() / PER_EVENT.as_secs()).min(u64::from(BURST));
        if let Ok(gained) = u32::try_from(gained)
            && gained > 0
        {
            self.tokens = (self.tokens + gained).min(BURST);
            self.filled = now;
        }
        let mut selected = Vec::new();
        for complaint in current {
            if self.tokens > 0 && !self.reported.contains(complaint) {
                self.tokens -= 1;
                self.reported.insert(complaint.clone());
                selected.push(complaint);
            }
        }
        selected
    }
}

/// Writes the events of complaints that have none.
pub async fn write_events(
    log: &mut EventLog,
    complaints: &[Complaint],
    snapshot: &Snapshot,
    client: &Client,
    identity: &str,
    metrics: &Metrics,
) {
    for complaint in log.select(complaints, Instant::now()) {
        let Some(event) = event(complaint, snapshot, identity) else { continue };
        let namespace = event.metadata.namespace.clone().unwrap_or_default();
        let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
        match api.create(&PostParams::default(), &event).await {
            Ok(_) => metrics::count_one(&metrics.events),
            Err(error) => {
                let subject = complaint.subject.as_str();
                logs::warn("an event is not written", &[("object", subject), ("error", &error.to_string())]);
            }
        }
    }
}

/// Returns kind and name of a complaint's object: `NAMESPACE/KIND NAME` or `KIND NAME`.
pub fn complaint_subject(complaint: &Complaint) -> Option<(Kind, ObjectName)> {
    let (place, name) = complaint.subject.split_once(' ')?;
    let (namespace, kind) = place.split_once('/').unwrap_or(("", place));
    let kind = Kind::ALL.iter().copied().find(|known| known.name() == kind)?;
    Some((kind, ObjectName::new(namespace, name)))
}

fn event(complaint: &Complaint, snapshot: &Snapshot, identity: &str) -> Option<Event> {
    let key = complaint_subject(complaint)?;
    let live = snapshot.live.get(&key)?;
    let (kind, name) = key;
    let now = Timestamp::now();
    // Objects without a namespace have their events in "default".
    let namespace = if name.namespace.is_empty() { "default" } else { name.namespace.as_str() };
    // "Accepted" and others begin with the reason of a condition.
    let reason = complaint.reason.split_once(':').map_or(complaint.reason.as_str(), |(reason, _)| reason);
    let is_reason = !reason.is_empty() && reason.len() < 128 && reason.chars().all(|c| c.is_ascii_alphanumeric());
    let mut note = complaint.reason.clone();
    while note.len() > NOTE_MAX {
        note.pop();
    }
    Some(Event {
        metadata: ObjectMeta {
            name: Some(format!("{}.{:x}", name.name.chars().take(200).collect::<String>(), now.as_nanosecond())),
            namespace: Some(namespace.into()),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(now)),
        action: Some("Translate".into()),
        reason: Some(if is_reason { reason.into() } else { "NotTranslated".into() }),
        note: Some(note),
        regarding: Some(ObjectReference {
            api_version: Some(live.api_version.clone()),
            kind: Some(kind.name().into()),
            namespace: (!name.namespace.is_empty()).then(|| name.namespace.clone()),
            name: Some(name.name.clone()),
            uid: (!live.uid.is_empty()).then(|| live.uid.clone()),
            ..ObjectReference::default()
        }),
        reporting_controller: Some(cluster_gateway::CONTROLLER_NAME.into()),
        reporting_instance: Some(identity.chars().take(128).collect()),
        type_: Some("Warning".into()),
        ..Event::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(number: usize) -> Complaint {
        Complaint::about(Kind::HttpRoute, "shop", &format!("route-{number:03}"), "BackendNotFound: gone")
    }

    #[test]
    fn each_complaint_has_one_event_until_it_is_mended() {
        let (mut log, now) = (EventLog::new(), Instant::now());
        let two = [complaint(1), complaint(2)];
        assert_eq!(log.select(&two, now).len(), 2);
        assert_eq!(log.select(&two, now).len(), 0);
        assert_eq!(log.select(&two[..1], now).len(), 0);
        assert_eq!(log.select(&two, now), [&two[1]], "it came again");
    }

    #[test]
    fn a_flood_is_written_slowly() {
        let (mut log, now) = (EventLog::new(), Instant::now());
        let all: Vec<Complaint> = (0..100).map(complaint).collect();
        assert_eq!(log.select(&all, now).len(), 25);
        assert_eq!(log.select(&all, now).len(), 0);
        assert_eq!(log.select(&all, now + Duration::from_secs(6)).len(), 3);
    }

    #[test]
    fn subjects_are_read_back() {
        assert_eq!(complaint_subject(&complaint(1)), Some((Kind::HttpRoute, ObjectName::new("shop", "route-001"))));
        let class = Complaint::about(Kind::GatewayClass, "", "tidegate", "x");
        assert_eq!(complaint_subject(&class), Some((Kind::GatewayClass, ObjectName::new("", "tidegate"))));
        assert_eq!(complaint_subject(&Complaint::document("a file", 1, "x")), None);
    }
}
