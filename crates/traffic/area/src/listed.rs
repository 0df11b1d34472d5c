//! Objects of a configuration that an API lists and changes, by area. The areas fill the lists while they build their plans;
//! `upstream_directives::inventory` adds the groups of servers.

use crate::keyval::Keyval;
use conf_schema::{Contexts, Cx};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// In `Cx`, as an `Arc`.
#[derive(Default)]
pub struct ListedObjects {
    pub http: Arc<AreaObjects>,
    pub stream: Arc<AreaObjects>,
    certificates: Mutex<BTreeMap<String, Validity>>,
}

/// Seconds since 1970: the beginning and the end. `None`: no certificate yet.
pub type Validity = Arc<dyn Fn() -> Option<(i64, i64)> + Send + Sync>;

#[derive(Default)]
pub struct AreaObjects {
    present: AtomicBool,
    keyvals: Mutex<Vec<Arc<Keyval>>>,
    limits: Mutex<Vec<String>>,
}

impl ListedObjects {
    /// Adds a certificate, by its file as written or by its first name.
    pub fn add_certificate(&self, name: &str, validity: Validity) {
        locked(&self.certificates).insert(name.into(), validity);
    }
    pub fn certificates(&self) -> BTreeMap<String, Validity> {
        locked(&self.certificates).clone()
    }
    pub fn of(cx: &mut Cx) -> Arc<ListedObjects> {
        cx.get::<Arc<ListedObjects>>().clone()
    }
    /// Area of the directive that is being read: http or stream.
    pub fn area(&self, context: Contexts) -> &AreaObjects {
        let stream = [Contexts::stream, Contexts::stream_upstream, Contexts::stream_server];
        if stream.contains(&context) { &self.stream } else { &self.http }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AreaObjects {
    /// The configuration has the area's block.
    pub fn set_present(&self) {
        self.present.store(true, Ordering::Relaxed);
    }
    pub fn is_present(&self) -> bool {
        self.present.load(Ordering::Relaxed)
    }
    pub fn add_keyvals(&self, zones: &[Arc<Keyval>]) {
        locked(&self.keyvals).extend_from_slice(zones);
    }
    pub fn add_limit(&self, name: &str) {
        locked(&self.limits).push(name.into());
    }
    pub fn keyvals(&self) -> Vec<Arc<Keyval>> {
        locked(&self.keyvals).clone()
    }
    pub fn has_limit(&self, name: &str) -> bool {
        locked(&self.limits).iter().any(|known| known == name)
    }
}
