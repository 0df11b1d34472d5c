//! In which order streams get what there is to send: by the urgency of RFC 9218, and for clients that still send them by the
//! dependencies and weights of RFC 7540, 5.3, as nginx has it.

use http_types::Rank;
use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};

/// Streams whose place in the tree is remembered, closed and idle ones among them.
const NODES_MAX: usize = 256;
/// Streams of which a PRIORITY_UPDATE has told before they began.
const UPDATES_MAX: usize = 64;
/// What a stream weighs of which nothing was said.
const WEIGHT: u16 = 16;

/// What a `priority` field says (RFC 9218, 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// 0 comes first, 7 last.
    pub urgency: u8,
    /// Parts of it are of use: it shares with its like instead of following them.
    pub incremental: bool,
}

impl Default for Priority {
    fn default() -> Self {
        Priority { urgency: 3, incremental: false }
    }
}

impl Priority {
    /// With what a field says; what it does not say, or not rightly, stays.
    #[must_use]
    pub fn with(mut self, field: &[u8]) -> Priority {
        for member in field.split(|c| *c == b',') {
            let member = member.split(|c| *c == b';').next().unwrap_or_default().trim_ascii();
            match member {
                [b'u', b'=', digit @ b'0'..=b'7'] => self.urgency = digit - b'0',
                b"i" | b"i=?1" => self.incremental = true,
                b"i=?0" => self.incremental = false,
                _ => {}
            }
        }
        self
    }
}

/// What a client has said of its streams' order.
#[derive(Debug, Default)]
pub struct Priorities {
    tree: Tree,
    /// The client has said that it will not send the tree (SETTINGS_NO_RFC7540_PRIORITIES).
    no_tree: bool,
    /// It has spoken of urgency.
    urgency: bool,
    updates: VecDeque<(u32, Priority)>,
}

impl Priorities {
    pub fn no_tree(&mut self) {
        self.no_tree = true;
    }
    /// The place of a stream in the tree: a dependency with its flag in the highest bit, and a weight less one, as frames have them.
    pub fn depends(&mut self, stream: u32, on: u32, weight: u8) {
        if !self.no_tree {
            self.tree.put(stream, on & 0x7fff_ffff, u16::from(weight) + 1, on >> 31 == 1);
        }
    }
    /// A field of a request or a response that speaks of urgency has come.
    pub fn spoken(&mut self) {
        self.urgency = true;
    }
    /// A PRIORITY_UPDATE for a stream that has not begun.
    pub fn update(&mut self, stream: u32, priority: Priority) {
        self.updates.retain(|(of, _)| *of != stream);
        if self.updates.len() >= UPDATES_MAX {
            self.updates.pop_front();
        }
        self.updates.push_back((stream, priority));
    }
    /// What was said of a stream that begins now.
    pub fn take_update(&mut self, stream: u32) -> Option<Priority> {
        let at = self.updates.iter().position(|(of, _)| *of == stream)?;
        self.updates.remove(at).map(|(_, priority)| priority)
    }
    pub fn key(&self, stream: u32, priority: Priority) -> Rank {
        let (rank, weight) = self.tree.place(stream);
        // RFC 9218, 10: one after the other, unless they want to share.
        let order = if self.urgency && !priority.incremental { stream } else { u32::MAX };
        (priority.urgency, rank, Reverse(weight), order)
    }
}

/// RFC 7540, 5.3. The root is stream 0.
#[derive(Debug, Default)]
struct Tree {
    nodes: HashMap<u32, Node>,
    /// The oldest are forgotten first.
    order: VecDeque<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
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
        // 5.3.3: one that shall depend on what depends on it gives that its own place first.
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
        self.nodes.insert(stream, Node { parent, weight });
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
        self.nodes.insert(stream, Node { parent: 0, weight: WEIGHT });
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
    /// How deep a stream stands, and its share there, as an ordered number (nginx: `rank`, `rel_weight`).
    fn place(&self, stream: u32) -> (u32, u64) {
        let (mut rank, mut share, mut at) = (1, 1.0, stream);
        for _ in 0..=NODES_MAX {
            let node = self.nodes.get(&at).copied().unwrap_or(Node { parent: 0, weight: WEIGHT });
            share *= f64::from(node.weight) / 256.0;
            if node.parent == 0 {
                break;
            }
            rank += 1;
            at = node.parent;
        }
        // Bits of numbers that are not negative are ordered as they are.
        (rank, f64::to_bits(share))
    }
}

#[cfg(test)]
mod tests {
    use super::{NODES_MAX, Priorities, Priority};

    fn order(priorities: &Priorities, streams: &[(u32, &str)]) -> Vec<u32> {
        let mut all: Vec<_> = streams.to_vec();
        all.sort_by_key(|(id, field)| priorities.key(*id, Priority::default().with(field.as_bytes())));
        all.iter().map(|(id, _)| *id).collect()
    }

    #[test]
    fn fields_are_read_as_far_as_they_are_right() {
        let read = |field: &str| {
            let priority = Priority::default().with(field.as_bytes());
            (priority.urgency, priority.incremental)
        };
        assert_eq!(read("u=1, i"), (1, true));
        assert_eq!(read("i=?0,u=7;x=1"), (7, false));
        assert_eq!(read(" i=?1 ,x,u=8,u=a,u"), (3, true));
        assert_eq!(read(""), (3, false));
        let request = Priority::default().with(b"u=5, i");
        // What a response does not say stays as the request had it.
        assert_eq!(request.with(b"u=1"), Priority { urgency: 1, incremental: true });
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
        // 1 depends on its own grandchild now, which takes its place.
        all.depends(1, 5, 15);
        assert_eq!(order(&all, &[(3, ""), (1, ""), (5, "")]), [5, 1, 3]);
        // All that depended on the root depends on 9 now.
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
