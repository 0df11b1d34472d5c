//! Questions to the store that answer later: leases of work that one node does for all, and whether the store has all changes.

use crate::agent::{AgentInner, StoreAgent};
use crate::map_replica::MapReplica;
use crate::store::{Store, StoreFailure};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// Calls that wait for the store; further ones fail at once.
const CALLS_MAX: usize = 4096;

/// Answer to a call; an error if the store does not answer. The store may take any time: callers limit it.
pub type StoreAnswer<T> = oneshot::Receiver<T>;

enum StoreCall {
    Hold { name: String, lifetime: Duration, compared: Option<Arc<MapReplica>>, answer: oneshot::Sender<bool> },
    Release { name: String },
    Flush { answer: oneshot::Sender<()> },
}

impl StoreCall {
    /// Tells whether a caller still waits.
    fn is_wanted(&self) -> bool {
        match self {
            StoreCall::Hold { answer, .. } => !answer.is_closed(),
            StoreCall::Flush { answer } => !answer.is_closed(),
            StoreCall::Release { .. } => true,
        }
    }
}

/// Calls in their order.
#[derive(Default)]
pub(crate) struct CallQueue(Mutex<VecDeque<StoreCall>>);

impl CallQueue {
    fn calls(&self) -> MutexGuard<'_, VecDeque<StoreCall>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, call: StoreCall) {
        let mut calls = self.calls();
        if calls.len() >= CALLS_MAX {
            calls.retain(StoreCall::is_wanted);
        }
        if calls.len() < CALLS_MAX {
            calls.push_back(call);
        }
    }
}

impl StoreAgent {
    /// Takes a lease of this node, or holds it for another `lifetime`: `true` if no other node has it. The answer waits until
    /// the store is there.
    ///
    /// With `compared`, this map is compared with the store once the lease is held: it has everything that earlier
    /// holders have told.
    pub fn hold_lease(&self, name: &str, lifetime: Duration, compared: Option<&Arc<MapReplica>>) -> StoreAnswer<bool> {
        let (answer, answered) = oneshot::channel();
        self.call(StoreCall::Hold { name: name.to_owned(), lifetime, compared: compared.cloned(), answer });
        answered
    }

    /// Gives a lease back, if this node has it. Without the store it ends by itself.
    pub fn release_lease(&self, name: &str) {
        self.call(StoreCall::Release { name: name.to_owned() });
    }

    /// Answers when the store has all changes that this node has made in its maps before this call.
    pub fn flush_maps(&self) -> StoreAnswer<()> {
        let (answer, answered) = oneshot::channel();
        self.call(StoreCall::Flush { answer });
        answered
    }

    fn call(&self, call: StoreCall) {
        self.inner.calls.add(call);
        self.inner.wake.notify_one();
    }
}

impl AgentInner {
    /// Answers calls. Those that follow a failure stay in the queue; the failed one gets none.
    pub(crate) async fn answer_calls(&self, store: &dyn Store, maps: &[Arc<MapReplica>]) -> Result<(), StoreFailure> {
        loop {
            let Some(call) = self.calls.calls().pop_front() else { return Ok(()) };
            if !call.is_wanted() {
                continue;
            }
            match call {
                StoreCall::Hold { name, lifetime, compared, answer } => {
                    let is_held = store.hold_lease(&name, &self.holder(), lifetime).await?;
                    if let Some(map) = compared.filter(|_| is_held) {
                        self.compare(store, &map).await?;
                    }
                    // An error means that the caller has left.
                    let _ = answer.send(is_held);
                }
                StoreCall::Release { name } => store.release_lease(&name, &self.holder()).await?,
                StoreCall::Flush { answer } => {
                    self.send_maps(store, maps).await?;
                    let _ = answer.send(());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::StoreAddress;
    use crate::agent::AgentOptions;
    use crate::map_replica::{LocalMap, LocalValue};
    use crate::permits::StoreLoss;
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    #[derive(Default)]
    struct Pairs(Mutex<BTreeMap<Vec<u8>, LocalValue>>);

    impl LocalMap for Pairs {
        fn local_value(&self, key: &[u8]) -> Option<LocalValue> {
            self.0.lock().unwrap().get(key).cloned()
        }
        fn apply_value(&self, key: &[u8], value: Option<&[u8]>, expires: Option<u64>) -> bool {
            let mut pairs = self.0.lock().unwrap();
            match value {
                Some(value) => pairs.insert(key.to_vec(), (value.to_vec(), expires)),
                None => pairs.remove(key),
            };
            true
        }
        fn local_keys(&self) -> Vec<Vec<u8>> {
            self.0.lock().unwrap().keys().cloned().collect()
        }
        fn local_identity(&self) -> usize {
            std::ptr::from_ref(self).addr()
        }
    }

    fn start(address: StoreAddress, node: u64) -> StoreAgent {
        let options = AgentOptions {
            address,
            password: None,
            authorities: None,
            certificate: None,
            prefix: "test".into(),
            patience: Duration::from_secs(10),
            loss: StoreLoss::Local,
            node,
            report: Box::new(|_, _| {}),
        };
        StoreAgent::start(options).expect("a thread")
    }

    fn folder(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("tidegate-calls-{name}-{}", std::process::id()))
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn the_next_holder_of_a_lease_has_the_changes_of_the_last_one() {
        let folder = folder("lease");
        let nodes = [1, 2].map(|node| start(StoreAddress::Folder(folder.clone()), node));
        let pairs = [Arc::new(Pairs::default()), Arc::new(Pairs::default())];
        let maps = [0, 1].map(|index| nodes[index].share_map("pairs", pairs[index].clone()));
        assert_eq!(nodes[0].hold_lease("work", MINUTE, None).blocking_recv(), Ok(true));
        assert_eq!(nodes[1].hold_lease("work", MINUTE, Some(&maps[1])).blocking_recv(), Ok(false));
        assert_eq!(nodes[0].hold_lease("work", MINUTE, None).blocking_recv(), Ok(true), "for longer");
        let change = || Ok::<_, ()>(pairs[0].apply_value(b"done", Some(b"yes"), None));
        maps[0].change_key(b"done", 1_000, change).expect("changed");
        assert_eq!(nodes[0].flush_maps().blocking_recv(), Ok(()));
        assert_eq!((maps[0].map_state().records, maps[0].map_state().pending), (1, 0));
        nodes[0].release_lease("work");
        // Calls of a node are answered in their order.
        assert_eq!(nodes[0].flush_maps().blocking_recv(), Ok(()));
        assert_eq!(nodes[1].hold_lease("work", MINUTE, Some(&maps[1])).blocking_recv(), Ok(true));
        assert_eq!(pairs[1].local_value(b"done"), Some((b"yes".to_vec(), None)));
        drop(nodes);
        std::fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn calls_wait_for_the_store_and_are_bounded() {
        // A file where the folder should be.
        let path = folder("bound");
        std::fs::write(&path, "").expect("a file");
        let agent = start(StoreAddress::Folder(path.clone()), 1);
        let waiting: Vec<_> = (0..CALLS_MAX).map(|_| agent.flush_maps()).collect();
        assert!(agent.flush_maps().blocking_recv().is_err(), "no room");
        // Callers that have left make room.
        drop(waiting);
        let waiting = agent.hold_lease("work", MINUTE, None);
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(waiting.blocking_recv(), Ok(true));
        drop(agent);
        std::fs::remove_dir_all(&path).expect("removed");
    }
}
