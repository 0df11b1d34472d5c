//! Records of shared maps, their versions, and their form in a store.

use std::sync::Mutex;
use std::sync::PoisonError;

/// Digits of a version in a record's text: milliseconds, count, node.
const TIME_DIGITS: usize = 14;
const COUNT_DIGITS: usize = 6;
const NODE_DIGITS: usize = 20;
/// Bytes of a version in a record's text. Scripts in the store compare them as text: they are decimal digits of a fixed
/// number, whose order is the same in each locale.
#[cfg(test)]
const VERSION_BYTES: usize = TIME_DIGITS + COUNT_DIGITS + NODE_DIGITS;
const COUNT_MAX: u32 = 999_999;
const TIME_MAX: u64 = 99_999_999_999_999;

/// Version of a record: a hybrid logical clock. The order is total over all nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Milliseconds since 1970, never behind a version that the node has seen.
    pub time: u64,
    /// Distinguishes versions of one millisecond.
    pub count: u32,
    /// Node that made the record.
    pub node: u64,
}

/// Clock of a node, which makes versions that are newer than all that it has made or seen.
#[derive(Debug)]
pub struct NodeClock {
    node: u64,
    newest: Mutex<(u64, u32)>,
}

impl NodeClock {
    /// `node` is a number that no other node has: a random one.
    pub fn new(node: u64) -> NodeClock {
        NodeClock { node, newest: Mutex::new((0, 0)) }
    }

    pub fn node(&self) -> u64 {
        self.node
    }

    /// Returns a version for a change that is made now. `now` is in milliseconds since 1970.
    pub fn next_version(&self, now: u64) -> Version {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let (time, count) = *newest;
        *newest = match now.min(TIME_MAX) {
            now if now > time => (now, 0),
            _ if count < COUNT_MAX => (time, count + 1),
            _ => (time.saturating_add(1), 0),
        };
        Version { time: newest.0, count: newest.1, node: self.node }
    }

    /// Takes notice of another node's version: later versions of this node are newer.
    ///
    /// A clock that is wrong by years would make its records win for as long; the time that is taken over is at most one
    /// day ahead of `now`.
    pub fn note_version(&self, seen: Version, now: u64) {
        const AHEAD_MAX: u64 = 24 * 60 * 60 * 1000;
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = (seen.time.min(now.saturating_add(AHEAD_MAX)), seen.count);
        *newest = (*newest).max(seen);
    }
}

/// A record of a shared map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapRecord {
    pub key: Vec<u8>,
    /// `None`: the key was removed.
    pub value: Option<Vec<u8>>,
    pub version: Version,
    /// Milliseconds since 1970 when the record ends.
    pub expires: Option<u64>,
}

impl MapRecord {
    /// Returns the record without its key, as a store holds it: version, expiry, a mark, the value.
    pub fn to_text(&self) -> Vec<u8> {
        let Version { time, count, node } = self.version;
        let expires = self.expires.unwrap_or(0).min(TIME_MAX);
        let mark = if self.value.is_some() { '=' } else { '-' };
        let mut text = format!(
            "{:0TIME_DIGITS$}{:0COUNT_DIGITS$}{node:0NODE_DIGITS$}{expires:0TIME_DIGITS$}{mark}",
            time.min(TIME_MAX),
            count.min(COUNT_MAX),
        )
        .into_bytes();
        text.extend_from_slice(self.value.as_deref().unwrap_or_default());
        text
    }

    /// Reads a record that [`MapRecord::to_text`] has written. `None` if the text is none: another program's data.
    pub fn from_text(key: &[u8], text: &[u8]) -> Option<MapRecord> {
        let (time, rest) = digits(text, TIME_DIGITS)?;
        let (count, rest) = digits(rest, COUNT_DIGITS)?;
        let (node, rest) = digits(rest, NODE_DIGITS)?;
        let (expires, rest) = digits(rest, TIME_DIGITS)?;
        let (mark, value) = rest.split_first()?;
        let value = match mark {
            b'=' => Some(value.to_vec()),
            b'-' if value.is_empty() => None,
            _ => return None,
        };
        let version = Version { time, count: u32::try_from(count).ok()?, node };
        Some(MapRecord { key: key.to_vec(), value, version, expires: (expires > 0).then_some(expires) })
    }

    /// Returns key and record in one text, as subscribers receive it.
    pub fn to_message(&self) -> Vec<u8> {
        let mut message = format!("{} ", self.key.len()).into_bytes();
        message.extend_from_slice(&self.key);
        message.extend_from_slice(&self.to_text());
        message
    }

    /// Reads what [`MapRecord::to_message`] has written.
    pub fn from_message(message: &[u8]) -> Option<MapRecord> {
        let space = message.iter().position(|byte| *byte == b' ')?;
        let (length, rest) = (message.get(..space)?, message.get(space + 1..)?);
        let length: usize = std::str::from_utf8(length).ok()?.parse().ok()?;
        MapRecord::from_text(rest.get(..length)?, rest.get(length..)?)
    }
}

fn digits(text: &[u8], number: usize) -> Option<(u64, &[u8])> {
    let (digits, rest) = text.split_at_checked(number)?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some((std::str::from_utf8(digits).ok()?.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Random;

    fn record(random: &mut Random) -> MapRecord {
        let (key, value) = (random.below(40_usize), random.below(100_usize));
        MapRecord {
            key: random.octets(key),
            value: random.chance(80).then(|| random.octets(value)),
            version: Version { time: random.below(TIME_MAX), count: random.below(COUNT_MAX), node: random.number() },
            expires: random.chance(50).then(|| random.below(TIME_MAX) + 1),
        }
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let mut random = Random::new(1);
        for _ in 0..2_000 {
            let record = record(&mut random);
            assert_eq!(MapRecord::from_text(&record.key, &record.to_text()), Some(record.clone()));
            assert_eq!(MapRecord::from_message(&record.to_message()), Some(record.clone()));
            let mut text = record.to_message();
            let at = random.below(text.len());
            text.truncate(at);
            assert_ne!(MapRecord::from_message(&text), Some(record), "a part is not the whole");
        }
    }

    #[test]
    fn the_order_of_versions_is_that_of_their_texts() {
        let mut random = Random::new(2);
        assert_eq!(VERSION_BYTES, 40, "as in the script `redis_scripts::MERGE`");
        let mut texts: Vec<(Version, Vec<u8>)> = Vec::new();
        for _ in 0..500 {
            let record = record(&mut random);
            texts.push((record.version, record.to_text().into_iter().take(VERSION_BYTES).collect()));
        }
        let mut by_text = texts.clone();
        texts.sort();
        by_text.sort_by(|a, b| a.1.cmp(&b.1));
        assert_eq!(texts, by_text);
    }

    #[test]
    fn versions_of_a_node_are_always_newer_than_what_it_has_seen() {
        let clock = NodeClock::new(7);
        let mut last = clock.next_version(1_000);
        for now in [1_000, 1_000, 999, 1_001, 5] {
            let next = clock.next_version(now);
            assert!(next > last, "{next:?} {last:?}");
            last = next;
        }
        let seen = Version { time: 9_000, count: 4, node: u64::MAX };
        clock.note_version(seen, 1_000);
        assert!(clock.next_version(1_000) > seen);
        let wrong = Version { time: TIME_MAX, count: 0, node: 1 };
        clock.note_version(wrong, 1_000);
        assert!(clock.next_version(1_000).time < 1_000 + 25 * 60 * 60 * 1000, "one wrong clock does not spoil all");
        let full = NodeClock::new(1);
        full.note_version(Version { time: 10, count: COUNT_MAX, node: 1 }, 10);
        assert_eq!(full.next_version(10), Version { time: 11, count: 0, node: 1 });
    }
}
