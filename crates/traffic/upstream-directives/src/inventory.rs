//! Objects of a configuration that an API lists and changes: groups of servers, and the objects of [`area::listed`]. The areas fill it
//! while they build their plans; a handler of the http area reads it, also about the stream area, whose plan it does not know.

use crate::state::StateFile;
use area::keyval::Keyval;
use area::listed::{AreaObjects, ListedObjects, Validity};
use conf_schema::Cx;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use upstream::Group;

/// In `Cx`, as an `Arc`, from the first call of [`Inventory::of`].
#[derive(Default)]
pub struct Inventory {
    pub http: AreaInventory,
    pub stream: AreaInventory,
    objects: Arc<ListedObjects>,
}

#[derive(Default)]
pub struct AreaInventory {
    groups: Mutex<Vec<ListedGroup>>,
    objects: Arc<AreaObjects>,
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

/// The inventory of the configuration that is being read, in `Cx`.
#[derive(Default)]
struct InventorySlot(Option<Arc<Inventory>>);

impl Inventory {
    pub fn of(cx: &mut Cx) -> Arc<Inventory> {
        let objects = ListedObjects::of(cx);
        let area = |objects: &Arc<AreaObjects>| AreaInventory { groups: Mutex::default(), objects: objects.clone() };
        let make = || Arc::new(Inventory { http: area(&objects.http), stream: area(&objects.stream), objects });
        cx.get::<InventorySlot>().0.get_or_insert_with(make).clone()
    }
    pub fn certificates(&self) -> BTreeMap<String, Validity> {
        self.objects.certificates()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AreaInventory {
    /// The configuration has the area's block.
    pub fn set_present(&self) {
        self.objects.set_present();
    }
    pub fn is_present(&self) -> bool {
        self.objects.is_present()
    }
    pub fn add_group(&self, listed: ListedGroup) {
        if let Some(roster) = &listed.group.extras.roster {
            roster.follow(listed.group.clone());
        }
        locked(&self.groups).push(listed);
    }
    pub fn add_keyvals(&self, zones: &[Arc<Keyval>]) {
        self.objects.add_keyvals(zones);
    }
    pub fn groups(&self) -> Vec<ListedGroup> {
        locked(&self.groups).clone()
    }
    pub fn group(&self, name: &str) -> Option<ListedGroup> {
        locked(&self.groups).iter().find(|listed| listed.group.name == name).cloned()
    }
    pub fn keyvals(&self) -> Vec<Arc<Keyval>> {
        self.objects.keyvals()
    }
    pub fn has_limit(&self, name: &str) -> bool {
        self.objects.has_limit(name)
    }
}
