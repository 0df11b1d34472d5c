//! Order of sending streams: urgency (RFC 9218), or for older clients dependencies and weights (RFC 7540, 5.3) as in
//! nginx.

use http_types::{Priority, Rank};
use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};

/// Streams remembered in the tree, including closed and idle ones.
const NODES_MAX: usize = 256;
/// PRIORITY_UPDATEs remembered for streams that have not started.
const UPDATES_MAX: usize = 64;
const WEIGHT: u16 = 16;

/// Priorities of a client's streams.
#[derive(Debug, Default)]
pub struct Priorities {
    tree: Tree,
    /// The client sends no tree (SETTINGS_NO_RFC7540_PRIORITIES).
    no_tree: bool,
    urgency: bool,
    updates: VecDeque<(u32, Priority)>,
}

impl Priorities {
    /// Ignores dependencies and weights: the client sends none.
    pub fn no_tree(&mut self) {
        self.no_tree = true;
    }
    /// Sets a stream's dependency (exclusive flag in the highest bit) and weight less one, as in frames.
    pub fn depends(&mut self, stream: u32, on: u32, weight: u8) {
        if !self.no_tree {
            self.tree.put(stream, on & 0x7fff_ffff, u16::from(weight) + 1, on >> 31 == 1);
        }
    }
    /// Notes that the client uses RFC 9218.
    pub fn spoken(&mut self) {
        self.urgency = true;
    }
    /// Keeps a PRIORITY_UPDATE for a stream that has not started; the oldest makes room.
    pub fn update(&mut self, stream: u32, priority: Priority) {
        self.updates.retain(|(of, _)| *of != stream);
        if self.updates.len() >= UPDATES_MAX {
            self.updates.pop_front();
        }
        self.updates.push_back((stream, priority));
    }
    /// Takes the PRIORITY_UPDATE of a stream that starts.
    pub fn take_update(&mut self, stream: u32) -> Option<Priority> {
        let at = self.updates.iter().position(|(of, _)| *of == stream)?;
        self.updates.remove(at).map(|(_, priority)| priority)
    }
    /// Returns the rank of a stream among those that wait.
    pub fn key(&self, stream: u32, priority: Priority) -> Rank {
        let (rank, weight) = self.tree.place(stream);
        // In sequence, unless incremental (RFC 9218, 10).
        let order = if self.urgency && !priority.incremental { stream } else { u32::MAX };
        (priority.urgency, rank, Reverse(weight), order)
    }
}

#[derive(Debug, Default)]
struct Tree {
    nodes: HashMap<u32, PriorityNode>,
    order: VecDeque<u32>,
}

#[derive(Clone, Copy, Debug)]
struct PriorityNode {
    parent: u32,
    weight: u16,
}

impl Tree {
    fn put(&mut self, stream: u32, parent: u32, weight: u16, exclusive: bool) {
        if stream == parent {
            return;
        }
        self.add(parent);
        self.add(stream);
        // A descendant that becomes the parent moves to this stream's parent first (5.3.3).
        if self.is_above(stream, parent) {
            let before = self.parent(stream);
            if let Some(node) = self.nodes.get_mut(&parent) {
                node.parent = before;
            }
        }
        if exclusive {
            for (_, node) in self.nodes.iter_mut().filter(|(of, node)| node.parent == parent && **of != stream) {
                node.parent = stream;
            }
        }
        self.nodes.insert(stream, PriorityNode { parent, weight });
    }
    fn add(&mut self, stream: u32) {
        if stream == 0 || self.nodes.contains_key(&stream) {
            return;
        }
        if self.order.len() >= NODES_MAX
            && let Some(oldest) = self.order.pop_front()
            && let Some(gone) = self.nodes.remove(&oldest)
        {
            for node in self.nodes.values_mut().filter(|node| node.parent == oldest) {
                node.parent = gone.parent;
            }
        }
        self.order.push_back(stream);
        self.nodes.insert(stream, PriorityNode { parent: 0, weight: WEIGHT });
    }
    fn parent(&self, stream: u32) -> u32 {
        self.nodes.get(&stream).map_or(0, |node| node.parent)
    }
    fn is_above(&self, stream: u32, mut below: u32) -> bool {
        for _ in 0..=NODES_MAX {
            match self.parent(below) {
                0 => return false,
                parent if parent == stream => return true,
                parent => below = parent,
            }
        }
        false
    }
    /// Depth of a stream and its share there, as an ordered number (nginx: `rank`, `rel_weight`).
    fn place(&self, stream: u32) -> (u32, u64) {
        let (mut rank, mut share, mut at) = (1, 1.0, stream);
        for _ in 0..=NODES_MAX {
            let node = self.nodes.get(&at).copied().unwrap_or(PriorityNode { parent: 0, weight: WEIGHT });
            share *= f64::from(node.weight) / 256.0;
            if node.parent == 0 {
                break;
            }
            rank += 1;
            at = node.parent;
        }
        (rank, f64::to_bits(share))
    }
}

#[cfg(test)]
mod tests {
    use super::{NODES_MAX, Priorities};
    use http_types::Priority;

    fn order(priorities: &Priorities, streams: &[(u32, &str)]) -> Vec<u32> {
        let mut all: Vec<_> = streams.to_vec();
        all.sort_by_key(|(id, field)| priorities.key(*id, Priority::default().with(field.as_bytes())));
        all.iter().map(|(id, _)| *id).collect()
    }

    #[test]
    fn urgency_comes_first_then_the_tree_then_who_was_first() {
        let mut all = Priorities::default();
        assert_eq!(order(&all, &[(5, ""), (1, ""), (3, "")]), [5, 1, 3], "nothing was said: as they wait");
        all.depends(1, 3, 15);
        all.depends(5, 0, 255);
        assert_eq!(order(&all, &[(1, ""), (3, ""), (5, "")]), [5, 3, 1]);
        assert_eq!(order(&all, &[(1, "u=0"), (3, ""), (5, "u=7")]), [1, 3, 5]);
        let mut all = Priorities::default();
        all.spoken();
        assert_eq!(order(&all, &[(7, ""), (9, "i"), (3, "i"), (5, "")]), [5, 7, 9, 3]);
        all.no_tree();
        all.depends(7, 5, 15);
        all.depends(5, 0, 0);
        assert_eq!(order(&all, &[(7, "i"), (5, "i")]), [7, 5]);
    }

    #[test]
    fn a_tree_has_no_circles_and_no_end_of_nodes() {
        let mut all = Priorities::default();
        all.depends(3, 1, 15);
        all.depends(5, 3, 15);
        all.depends(1, 5, 15);
        assert_eq!(order(&all, &[(3, ""), (1, ""), (5, "")]), [5, 1, 3]);
        all.depends(9, 1 << 31, 0);
        assert_eq!(order(&all, &[(5, ""), (9, "")]), [9, 5]);
        for stream in 0..10_000 {
            all.depends(2 * stream + 1, 2 * stream + 3, 100);
        }
        assert!(all.tree.nodes.len() <= NODES_MAX + 1 && all.tree.order.len() <= NODES_MAX + 1);
        for stream in 0..64 {
            all.update(stream, Priority::default());
            all.update(1000 + stream, Priority::default());
        }
        assert!(all.updates.len() <= 64 && all.take_update(1063).is_some() && all.take_update(1063).is_none());
    }
}
