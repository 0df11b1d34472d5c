//! Objects of a configuration that an API lists and changes. The areas fill it while they build their plans; a handler of
//! the http area reads it, also about the stream area, whose plan it does not know.

use crate::keyval::Keyval;
use crate::upstreams::state::StateFile;
use conf_schema::{Contexts, Cx};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use upstream::Group;

/// In `Cx`, as an `Arc`.
#[derive(Default)]
pub struct Inventory {
    pub http: AreaInventory,
    pub stream: AreaInventory,
    certificates: Mutex<BTreeMap<String, Validity>>,
}

/// Seconds since 1970: the beginning and the end. `None`: no certificate yet.
pub type Validity = Arc<dyn Fn() -> Option<(i64, i64)> + Send + Sync>;

#[derive(Default)]
pub struct AreaInventory {
    present: AtomicBool,
    groups: Mutex<Vec<ListedGroup>>,
    keyvals: Mutex<Vec<Arc<Keyval>>>,
    limits: Mutex<Vec<String>>,
}

#[derive(Clone)]
pub struct ListedGroup {
    pub group: Arc<Group>,
    /// Name of the `zone`, without which the servers cannot change.
    pub zone: Option<String>,
    /// The group has a resolver for names.
    pub resolves: bool,
    pub state: Option<Arc<StateFile>>,
}

impl Inventory {
    /// Adds a certificate, by its file as written or by its first name.
    pub fn add_certificate(&self, name: &str, validity: Validity) {
        locked(&self.certificates).insert(name.into(), validity);
    }
    pub fn certificates(&self) -> BTreeMap<String, Validity> {
        locked(&self.certificates).clone()
    }
    pub fn of(cx: &mut Cx) -> Arc<Inventory> {
        cx.get::<Arc<Inventory>>().clone()
    }
    /// Area of the directive that is being read: http or stream.
    pub fn area(&self, context: Contexts) -> &AreaInventory {
        let stream = [Contexts::stream, Contexts::stream_upstream, Contexts::stream_server];
        if stream.contains(&context) { &self.stream } else { &self.http }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AreaInventory {
    /// The configuration has the area's block.
    pub fn set_present(&self) {
        self.present.store(true, Ordering::Relaxed);
    }
    pub fn is_present(&self) -> bool {
        self.present.load(Ordering::Relaxed)
    }
    pub fn add_group(&self, listed: ListedGroup) {
        if let Some(roster) = &listed.group.extras.roster {
            roster.follow(listed.group.clone());
        }
        locked(&self.groups).push(listed);
    }
    pub fn add_keyvals(&self, zones: &[Arc<Keyval>]) {
        locked(&self.keyvals).extend_from_slice(zones);
    }
    pub fn add_limit(&self, name: &str) {
        locked(&self.limits).push(name.into());
    }
    pub fn groups(&self) -> Vec<ListedGroup> {
        locked(&self.groups).clone()
    }
    pub fn group(&self, name: &str) -> Option<ListedGroup> {
        locked(&self.groups).iter().find(|listed| listed.group.name == name).cloned()
    }
    pub fn keyvals(&self) -> Vec<Arc<Keyval>> {
        locked(&self.keyvals).clone()
    }
    pub fn has_limit(&self, name: &str) -> bool {
        locked(&self.limits).iter().any(|known| known == name)
    }
}
