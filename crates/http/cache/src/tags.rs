//! Tags of entries (`proxy_cache_tags`), and purges of tags. A purge is a record with a time: an entry that has the tag and
//! was stored until then is purged, which each lookup decides with the tags of its entry. So a purge costs the same for
//! any number of entries, and the index of a zone has no tags.
//!
//! An entry has 8 bytes for each tag, in its file and in memory. Purges are lines of a file in the cache's directory, which is
//! appended to, and survive a restart.

use crate::store;
use md5::{Digest, Md5};
use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Tags of an entry or of a purge at most.
pub const TAGS_MAX: usize = 1000;
/// Bytes of a tag at most.
pub const TAG_BYTES_MAX: usize = 1024;
/// Purged tags of a zone at most. Beyond, the oldest eighth becomes one purge of all entries with tags.
pub const TAG_PURGES_MAX: usize = 10_000;
/// File of the purges; no entry can have this name.
const FILE: &str = ".purged-tags";

/// A tag: the first 8 bytes of its MD5 sum. Tags that share them are purged together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TagHash(pub u64);

impl TagHash {
    pub fn of(tag: &[u8]) -> TagHash {
        let sum: [u8; 16] = Md5::digest(tag).into();
        let mut word = [0; 8];
        word.copy_from_slice(&sum[..8]);
        TagHash(u64::from_le_bytes(word))
    }
}

/// Splits a text into tags, at commas, spaces and tabs.
pub fn tag_words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| matches!(byte, b',' | b' ' | b'\t')).filter(|tag| !tag.is_empty())
}

/// Tags of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryTags {
    Listed(Box<[TagHash]>),
    /// More than [`TAGS_MAX`], or one of more than [`TAG_BYTES_MAX`] bytes: every purge of a tag purges the entry.
    TooMany,
}

impl Default for EntryTags {
    fn default() -> Self {
        EntryTags::Listed(Box::default())
    }
}

impl EntryTags {
    /// Reads tags from texts, see [`tag_words`]. A repeated tag counts once.
    pub fn of<T: AsRef<[u8]>>(texts: impl IntoIterator<Item = T>) -> EntryTags {
        let mut tags = Vec::new();
        for text in texts {
            for tag in tag_words(text.as_ref()) {
                if tag.len() > TAG_BYTES_MAX {
                    return EntryTags::TooMany;
                }
                tags.push(TagHash::of(tag));
            }
        }
        tags.sort_unstable();
        tags.dedup();
        if tags.len() > TAGS_MAX { EntryTags::TooMany } else { EntryTags::Listed(tags.into()) }
    }
    pub fn is_empty(&self) -> bool {
        matches!(self, EntryTags::Listed(tags) if tags.is_empty())
    }
    /// Bytes in a file and in memory.
    pub fn size(&self) -> usize {
        match self {
            EntryTags::Listed(tags) => tags.len() * 8,
            EntryTags::TooMany => 0,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct TagRecord {
    /// Matches entries stored until this time, in milliseconds since 1970.
    before_ms: u64,
    /// Number of the purge, see [`crate::purge::Purges`]; 0: of an earlier process.
    number: u64,
}

impl TagRecord {
    fn extend(&mut self, other: TagRecord) {
        self.before_ms = self.before_ms.max(other.before_ms);
        self.number = self.number.max(other.number);
    }
}

/// Purged tags of a zone.
#[derive(Debug)]
pub(crate) struct TagPurges {
    file: PathBuf,
    records: HashMap<TagHash, TagRecord>,
    /// Purge of all entries with tags, in place of the records that had no room.
    floor: Option<TagRecord>,
    /// Latest time of a record, for entries with too many tags.
    newest_ms: u64,
    /// Lines of the file; `None`: it has to be written anew.
    lines: Option<usize>,
}

impl TagPurges {
    /// Loads the purges that an earlier process has stored in a cache's directory.
    pub fn load(root: &Path) -> TagPurges {
        let file = root.join(FILE);
        let mut purges = TagPurges { file, records: HashMap::new(), floor: None, newest_ms: 0, lines: Some(0) };
        let text = fs::read(&purges.file).unwrap_or_default();
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let read = std::str::from_utf8(line).ok().and_then(|line| line.split_once(' '));
            let Some((before_ms, tag)) = read.and_then(|(time, tag)| Some((time.parse().ok()?, tag))) else { continue };
            let record = TagRecord { before_ms, number: 0 };
            match u64::from_str_radix(tag, 16) {
                Ok(tag) => purges.put(TagHash(tag), record),
                Err(_) if tag == "*" => purges.raise_floor(record),
                Err(_) => {}
            }
        }
        purges.shrink();
        // A line that was cut must not become the beginning of another one.
        purges.lines = text.is_empty().then_some(0);
        purges
    }
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.floor.is_none()
    }
    /// Number of purged tags that are listed.
    pub fn len(&self) -> usize {
        self.records.len()
    }
    /// Latest time of a purge, in milliseconds since 1970.
    pub fn newest_ms(&self) -> u64 {
        self.newest_ms
    }
    /// Tells whether an entry is purged, by its tags and the time of its storing.
    pub fn cover(&self, tags: &EntryTags, stored_ms: u64) -> bool {
        if tags.is_empty() || self.is_empty() || stored_ms > self.newest_ms {
            return false;
        }
        let EntryTags::Listed(tags) = tags else { return true };
        self.floor.is_some_and(|floor| stored_ms <= floor.before_ms)
            || tags.iter().any(|tag| self.records.get(tag).is_some_and(|record| stored_ms <= record.before_ms))
    }
    /// Tells whether all entries that a purge means are purged already.
    pub fn know(&self, tag: TagHash, before_ms: u64) -> bool {
        self.records.get(&tag).into_iter().chain(&self.floor).any(|record| record.before_ms >= before_ms)
    }
    /// Purges tags until a time, in milliseconds since 1970, as the purge of a number.
    ///
    /// # Errors
    /// The file could not be written: purged entries would return after a restart.
    pub fn add(&mut self, tags: &[TagHash], before_ms: u64, number: u64) -> io::Result<()> {
        for tag in tags {
            self.put(*tag, TagRecord { before_ms, number });
        }
        let is_shorter = self.shrink();
        match self.lines {
            Some(lines) if !is_shorter && lines + tags.len() <= 2 * TAG_PURGES_MAX => {
                self.lines = None;
                let text: String = tags.iter().map(|tag| line(before_ms, Some(*tag))).collect();
                self.append(text.as_bytes())?;
                self.lines = Some(lines + tags.len());
                Ok(())
            }
            _ => self.save(),
        }
    }
    /// Tells whether a purge up to this number is listed.
    pub fn any_until(&self, number: u64) -> bool {
        self.records.values().chain(&self.floor).any(|record| record.number <= number)
    }
    /// Forgets purges that a predicate over time and number does not want.
    ///
    /// # Errors
    /// As [`TagPurges::add`]; forgotten purges would return after a restart.
    pub fn retain(&mut self, is_wanted: impl Fn(u64, u64) -> bool) -> io::Result<()> {
        let count = self.records.len() + usize::from(self.floor.is_some());
        let keep = |record: &TagRecord| is_wanted(record.before_ms, record.number);
        self.records.retain(|_, record| keep(record));
        self.floor = self.floor.filter(keep);
        if self.records.len() + usize::from(self.floor.is_some()) == count {
            return Ok(());
        }
        self.newest_ms = self.records.values().chain(&self.floor).map(|record| record.before_ms).max().unwrap_or(0);
        self.save()
    }
    fn put(&mut self, tag: TagHash, record: TagRecord) {
        self.newest_ms = self.newest_ms.max(record.before_ms);
        self.records.entry(tag).or_insert(record).extend(record);
    }
    fn raise_floor(&mut self, record: TagRecord) {
        self.newest_ms = self.newest_ms.max(record.before_ms);
        self.floor.get_or_insert(record).extend(record);
    }
    /// Turns the oldest records into a floor, if there are too many.
    fn shrink(&mut self) -> bool {
        if self.records.len() <= TAG_PURGES_MAX {
            return false;
        }
        let mut times: Vec<u64> = self.records.values().map(|record| record.before_ms).collect();
        let surplus = self.records.len() - TAG_PURGES_MAX + TAG_PURGES_MAX / 8;
        let (_, last, _) = times.select_nth_unstable(surplus - 1);
        let last = *last;
        for (_, record) in self.records.extract_if(|_, record| record.before_ms <= last).collect::<Vec<_>>() {
            self.raise_floor(record);
        }
        true
    }
    fn append(&self, text: &[u8]) -> io::Result<()> {
        if let Some(folder) = self.file.parent() {
            store::make_folders(folder)?;
        }
        OpenOptions::new().append(true).create(true).mode(0o600).open(&self.file)?.write_all(text)
    }
    fn save(&mut self) -> io::Result<()> {
        self.lines = None;
        if self.is_empty() {
            match fs::remove_file(&self.file) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
            self.lines = Some(0);
            return Ok(());
        }
        let floor = self.floor.iter().map(|record| line(record.before_ms, None));
        let records = self.records.iter().map(|(tag, record)| line(record.before_ms, Some(*tag)));
        let text: String = floor.chain(records).collect();
        if let Some(folder) = self.file.parent() {
            store::make_folders(folder)?;
        }
        let temp = self.file.with_extension("new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temp)?;
        file.write_all(text.as_bytes())?;
        fs::rename(&temp, &self.file)?;
        self.lines = Some(self.records.len() + 1);
        Ok(())
    }
}

/// Writes a purge of a tag, or of all tags.
fn line(before_ms: u64, tag: Option<TagHash>) -> String {
    match tag {
        Some(tag) => format!("{before_ms} {:016x}\n", tag.0),
        None => format!("{before_ms} *\n"),
    }
}

#[cfg(test)]
#[path = "tags_tests.rs"]
mod tests;
