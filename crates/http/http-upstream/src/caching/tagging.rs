//! Tags of responses (`proxy_cache_tags`) and purges of tags, by requests, by the API and on other servers.

use super::paths::{CachePath, hurry_managers};
use base::clock;
use cache::tags::tag_words;
use cache::{EntryTags, TagHash};
use http_engine::{Flow, HttpTemplate, Request};
use observe::{Severity, os_error};

pub use cache::tags::{TAG_BYTES_MAX, TAGS_MAX};

/// Reads the tags of a response that will be stored. A warning says that there are too many.
pub(super) fn read_tags(texts: &[HttpTemplate], r: &mut Request) -> EntryTags {
    if texts.is_empty() {
        return EntryTags::default();
    }
    let values: Vec<Vec<u8>> = texts.iter().map(|text| text.eval(r)).collect();
    let tags = EntryTags::of(values);
    if tags == EntryTags::TooMany {
        r.log(
            Severity::Warn,
            format_args!(
                "the response has more than {TAGS_MAX} tags, or one of more than {TAG_BYTES_MAX} bytes: \
                 every purge of a tag purges it"
            ),
        );
    }
    tags
}

/// Why tags to be purged were refused: more than [`TAGS_MAX`], or one of more than [`TAG_BYTES_MAX`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagBoundFault;

/// Splits texts into tags to be purged.
///
/// # Errors
/// A bound is exceeded.
pub fn named_tags<T: AsRef<[u8]>>(texts: &[T]) -> Result<Vec<&[u8]>, TagBoundFault> {
    let tags: Vec<&[u8]> = texts.iter().flat_map(|text| tag_words(text.as_ref())).take(TAGS_MAX + 1).collect();
    let is_good = tags.len() <= TAGS_MAX && tags.iter().all(|tag| tag.len() <= TAG_BYTES_MAX);
    if is_good { Ok(tags) } else { Err(TagBoundFault) }
}

/// Purges the tags that a request names. `None`: it names none.
pub(super) fn purge_named_tags(texts: &[HttpTemplate], r: &mut Request, path: &CachePath) -> Option<Flow> {
    let values: Vec<Vec<u8>> = texts.iter().map(|text| text.eval(r)).collect();
    let Ok(tags) = named_tags(&values) else {
        r.log(
            Severity::Error,
            format_args!("a purge names more than {TAGS_MAX} tags, or one of more than {TAG_BYTES_MAX} bytes"),
        );
        return Some(Flow::Status(400));
    };
    if tags.is_empty() {
        return None;
    }
    Some(match purge_tags(path, &tags) {
        Ok(()) => Flow::Status(204),
        Err(e) => {
            let root = path.zone.root().display();
            r.log(Severity::Crit, format_args!("purging tags in \"{root}\" could not be noted {}", os_error(&e)));
            Flow::Status(500)
        }
    })
}

/// Purges all entries of a zone that have one of these tags, here and on the servers of `shared_store`.
///
/// # Errors
/// The purge could not be noted on the disk: entries would return after a restart.
pub fn purge_tags(path: &CachePath, tags: &[&[u8]]) -> std::io::Result<()> {
    // Another thread, whose clock is newer than that of this turn, may have stored an entry before.
    clock::update();
    let now = clock::unix_millis();
    let hashes: Vec<TagHash> = tags.iter().map(|tag| TagHash::of(tag)).collect();
    path.zone.purges.add_tags(&hashes, now)?;
    hurry_managers();
    if let Some(shared) = &path.shared {
        tags.iter().for_each(|tag| shared.tell_tag(tag, now));
    }
    Ok(())
}
