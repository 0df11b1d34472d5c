//! One shard of a zone's index: nodes by key, in order of last use.

use crate::key::Hash;
use crate::store::{Content, StoredEntry};
use hashbrown::HashTable;
use std::sync::Arc;
use tokio::sync::Notify;

const NONE: u32 = u32::MAX;
/// Lists: all nodes, those with bytes in memory, and of these the ones with an open file (kept apart to find the oldest
/// without a search under the lock).
const ALL: usize = 0;
const HOT: usize = 1;
/// Hot nodes with an open file.
const FILES: usize = 2;
const LISTS: usize = 3;

#[derive(Clone, Copy, Debug)]
struct Links {
    newer: u32,
    older: u32,
}

#[derive(Debug)]
pub struct IndexNode {
    pub hash: Hash,
    links: [Links; LISTS],
    /// Unix seconds of removal, unless used again.
    pub expire: i64,
    pub uses: u32,
    /// Requests that may still write it.
    pub count: u32,
    /// Its file exists, as far as known.
    pub exists: bool,
    /// A request fetches it; milliseconds until which others wait.
    pub updating: bool,
    pub lock_until: u64,
    /// Cached error: status and end.
    pub error: u16,
    pub error_until: i64,
    /// Purged while being fetched: the response is not stored.
    pub purged: bool,
    pub size: u64,
    pub hot: Option<Arc<StoredEntry>>,
    /// Notified when the fetch ends.
    pub waiters: Option<Arc<Notify>>,
}

impl IndexNode {
    fn new(hash: Hash) -> IndexNode {
        let links = Links { newer: NONE, older: NONE };
        IndexNode {
            hash,
            links: [links; LISTS],
            expire: 0,
            uses: 0,
            count: 0,
            exists: false,
            updating: false,
            lock_until: 0,
            error: 0,
            error_until: 0,
            purged: false,
            size: 0,
            hot: None,
            waiters: None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    newest: u32,
    oldest: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oldest {
    None,
    Busy,
    /// Time of expiry.
    Free(Hash, i64),
}

fn holds_file(stored: &StoredEntry) -> bool {
    matches!(stored.content, Content::File(_))
}

#[derive(Debug)]
pub struct Shard {
    table: HashTable<u32>,
    nodes: Vec<Option<IndexNode>>,
    free: Vec<u32>,
    ends: [Ends; LISTS],
    /// Bytes of this shard's entries in memory.
    pub hot_bytes: u64,
    /// Open files of this shard's entries.
    pub hot_files: u64,
}

impl Default for Shard {
    fn default() -> Self {
        let none = Ends { newest: NONE, oldest: NONE };
        Shard {
            table: HashTable::new(),
            nodes: Vec::new(),
            free: Vec::new(),
            ends: [none; LISTS],
            hot_bytes: 0,
            hot_files: 0,
        }
    }
}

impl Shard {
    fn at(&mut self, index: u32) -> Option<&mut IndexNode> {
        self.nodes.get_mut(index as usize)?.as_mut()
    }
    fn find(&self, hash: &Hash) -> Option<u32> {
        let same =
            |index: &u32| self.nodes.get(*index as usize).and_then(Option::as_ref).is_some_and(|n| n.hash == *hash);
        self.table.find(hash.word(), same).copied()
    }
    pub fn get(&mut self, hash: &Hash) -> Option<&mut IndexNode> {
        let index = self.find(hash)?;
        self.at(index)
    }
    pub fn touch(&mut self, hash: &Hash) -> Option<&mut IndexNode> {
        let index = self.find(hash)?;
        self.newest(ALL, index);
        let hot = self.at(index)?.hot.as_deref().map(holds_file);
        if hot.is_some() {
            self.newest(HOT, index);
        }
        if hot == Some(true) {
            self.newest(FILES, index);
        }
        self.at(index)
    }
    pub fn insert(&mut self, hash: Hash) -> Option<&mut IndexNode> {
        debug_assert!(self.find(&hash).is_none());
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.nodes.push(None);
                (self.nodes.len() - 1) as u32
            }
        };
        *self.nodes.get_mut(index as usize)? = Some(IndexNode::new(hash));
        let nodes = &self.nodes;
        let word = |index: &u32| nodes.get(*index as usize).and_then(Option::as_ref).map_or(0, |n| n.hash.word());
        self.table.insert_unique(hash.word(), index, word);
        self.link(ALL, index);
        self.at(index)
    }
    pub fn remove(&mut self, hash: &Hash) -> Option<IndexNode> {
        let index = self.find(hash)?;
        self.demote(hash);
        self.unlink(ALL, index);
        let same = |i: &u32| *i == index;
        if let Ok(entry) = self.table.find_entry(hash.word(), same) {
            entry.remove();
        }
        self.free.push(index);
        self.nodes.get_mut(index as usize)?.take()
    }
    pub fn promote(&mut self, hash: &Hash, stored: Arc<StoredEntry>) {
        self.demote(hash);
        let Some(index) = self.find(hash) else { return };
        let (cost, file) = (stored.cost(), holds_file(&stored));
        if let Some(node) = self.at(index) {
            node.hot = Some(stored);
            self.hot_bytes += cost;
            self.hot_files += u64::from(file);
            self.link(HOT, index);
            if file {
                self.link(FILES, index);
            }
        }
    }
    pub fn demote(&mut self, hash: &Hash) -> Option<Arc<StoredEntry>> {
        let index = self.find(hash)?;
        let stored = self.at(index)?.hot.take()?;
        self.unlink(HOT, index);
        self.hot_bytes = self.hot_bytes.saturating_sub(stored.cost());
        if holds_file(&stored) {
            self.unlink(FILES, index);
            self.hot_files = self.hot_files.saturating_sub(1);
        }
        Some(stored)
    }
    pub fn oldest_hot(&mut self) -> Option<Hash> {
        let index = self.ends[HOT].oldest;
        self.at(index).map(|node| node.hash)
    }
    pub fn oldest_hot_file(&mut self) -> Option<Hash> {
        let index = self.ends[FILES].oldest;
        self.at(index).map(|node| node.hash)
    }
    /// Least recently used node that is not busy; passes over at most `busy_max` busy nodes.
    pub fn oldest(&mut self, busy_max: u32) -> Oldest {
        let first = self.ends[ALL].oldest;
        let mut index = first;
        for _ in 0..=busy_max {
            match self.at(index) {
                None if index == first => return Oldest::None,
                None => return Oldest::Busy,
                Some(node) if node.count == 0 => return Oldest::Free(node.hash, node.expire),
                Some(node) => index = node.links[ALL].newer,
            }
        }
        Oldest::Busy
    }
    pub fn keys(&self, hot: bool) -> Vec<Hash> {
        self.nodes.iter().flatten().filter(|n| !hot || n.hot.is_some()).map(|n| n.hash).collect()
    }

    fn newest(&mut self, list: usize, index: u32) {
        if self.ends[list].newest != index {
            self.unlink(list, index);
            self.link(list, index);
        }
    }
    fn link(&mut self, list: usize, index: u32) {
        let before = self.ends[list].newest;
        if let Some(node) = self.at(index) {
            node.links[list] = Links { newer: NONE, older: before };
        }
        match self.at(before) {
            Some(node) => node.links[list].newer = index,
            None => self.ends[list].oldest = index,
        }
        self.ends[list].newest = index;
    }
    fn unlink(&mut self, list: usize, index: u32) {
        let Some(Links { newer, older }) = self.at(index).map(|node| node.links[list]) else { return };
        match self.at(newer) {
            Some(node) => node.links[list].older = older,
            None => self.ends[list].newest = older,
        }
        match self.at(older) {
            Some(node) => node.links[list].newer = newer,
            None => self.ends[list].oldest = newer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(n: u32) -> Hash {
        Hash::of(&n.to_le_bytes())
    }

    #[test]
    fn the_least_used_is_the_oldest() {
        let mut shard = Shard::default();
        for n in 0..5 {
            shard.insert(hash(n));
        }
        shard.touch(&hash(0));
        shard.touch(&hash(2));
        shard.touch(&hash(2));
        let mut order = Vec::new();
        while let Oldest::Free(oldest, _) = shard.oldest(3) {
            order.push((0..5).find(|n| hash(*n) == oldest));
            assert!(shard.remove(&oldest).is_some());
        }
        assert_eq!(order, [Some(1), Some(3), Some(4), Some(0), Some(2)]);
        assert!(shard.remove(&hash(1)).is_none());
        for n in 0..3 {
            if let Some(node) = shard.insert(hash(n)) {
                node.count = u32::from(n < 2);
            }
        }
        assert_eq!((shard.oldest(1), shard.oldest(2)), (Oldest::Busy, Oldest::Free(hash(2), 0)));
        shard.remove(&hash(2));
        assert_eq!(shard.oldest(9), Oldest::Busy);
        shard.remove(&hash(0));
        shard.remove(&hash(1));
        assert_eq!(shard.oldest(9), Oldest::None);
        for n in 0..100 {
            shard.insert(hash(n));
        }
        assert!(shard.nodes.len() <= 100, "places are used again");
        assert!((0..100).all(|n| shard.get(&hash(n)).is_some()));
    }

    #[test]
    fn files_have_an_order_of_their_own() {
        let file = |open: bool| {
            let null = || Arc::new(std::fs::File::open("/dev/null").expect("opened"));
            let content = if open { Content::File(null()) } else { Content::Memory(Default::default()) };
            Arc::new(StoredEntry {
                hash: hash(0),
                key: Box::default(),
                meta: Default::default(),
                head: Default::default(),
                content,
                body_start: 0,
                body_len: 0,
                inode: 0,
                disk_size: 0,
                looked: Default::default(),
                compared_tags: Default::default(),
                digest: Default::default(),
            })
        };
        let mut shard = Shard::default();
        for n in 0..6 {
            shard.insert(hash(n));
            shard.promote(&hash(n), file(n % 2 == 1));
        }
        assert_eq!((shard.hot_files, shard.oldest_hot_file()), (3, Some(hash(1))));
        shard.touch(&hash(1));
        assert_eq!(shard.oldest_hot_file(), Some(hash(3)));
        shard.promote(&hash(3), file(false));
        assert_eq!((shard.hot_files, shard.oldest_hot_file()), (2, Some(hash(5))));
        shard.remove(&hash(5));
        assert_eq!((shard.hot_files, shard.oldest_hot_file()), (1, Some(hash(1))));
        shard.demote(&hash(1));
        assert_eq!((shard.hot_files, shard.oldest_hot_file()), (0, None));
        assert!(shard.oldest_hot().is_some());
    }
}
