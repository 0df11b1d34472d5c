//! Looks that other transactions have made: names of fields, and fields such as `User-Agent`, come again with most requests.

use crate::variable::Variable;
use hashbrown::DefaultHashBuilder;
use std::hash::BuildHasher;
use std::sync::{Mutex, OnceLock};

/// Looks of a set of rules. A new one takes the place of one whose hash has the same end.
const SLOTS: usize = 256;
/// Bytes of a value that is kept.
const VALUE_BYTES_MAX: usize = 256;

/// Fields whose values recur. Others can be secrets, such as `Authorization` and `Cookie`, which are not kept beyond their request.
const COMMON_FIELDS: [&str; 16] = [
    "accept",
    "accept-encoding",
    "accept-language",
    "accept-ranges",
    "cache-control",
    "connection",
    "content-encoding",
    "content-type",
    "dnt",
    "host",
    "pragma",
    "server",
    "te",
    "upgrade-insecure-requests",
    "user-agent",
    "vary",
];

/// The place of an entry: layer and number.
pub(crate) type EntryPlace = (u32, u32);

#[derive(Debug)]
struct RecentLook {
    entry: EntryPlace,
    value: Box<[u8]>,
    links: Box<[u64]>,
}

/// Results of looks at short values, shared by all transactions of a set of rules. The result of a look depends on the rules and the
/// value alone, so that a kept one is as good as a new one. Takes no memory before its first use, and some 100 KB at most.
#[derive(Default)]
pub(crate) struct RecentLooks {
    slots: OnceLock<Box<[Mutex<Option<RecentLook>>]>>,
    hasher: DefaultHashBuilder,
}

impl std::fmt::Debug for RecentLooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecentLooks").finish_non_exhaustive()
    }
}

impl RecentLooks {
    /// Returns whether values of a variable are the same in many requests, and no secrets of one client. `element`: the name of a field.
    pub fn suits(variable: Variable, element: Option<&[u8]>) -> bool {
        use Variable as V;
        match variable {
            V::ArgsNames
            | V::RequestCookiesNames
            | V::RequestHeadersNames
            | V::RequestMethod
            | V::RequestProtocol
            | V::ResponseContentType
            | V::ResponseHeadersNames
            | V::ResponseProtocol
            | V::ServerName
            | V::StatusLine => true,
            V::RequestHeaders | V::ResponseHeaders => element.is_some_and(|name| {
                COMMON_FIELDS.iter().any(|common| common.as_bytes().eq_ignore_ascii_case(name))
                    || name.get(..4).is_some_and(|start| start.eq_ignore_ascii_case(b"sec-"))
            }),
            _ => false,
        }
    }

    /// The slot of a value; `None` for one that is too long.
    fn slot(&self, entry: EntryPlace, value: &[u8]) -> Option<&Mutex<Option<RecentLook>>> {
        if value.len() > VALUE_BYTES_MAX {
            return None;
        }
        let slots = self.slots.get_or_init(|| (0..SLOTS).map(|_| Mutex::new(None)).collect());
        slots.get(self.hasher.hash_one((entry, value)) as usize % SLOTS)
    }

    /// Copies the links that could match a value to `set`, and returns whether they were known. Does not wait for other threads.
    pub fn find(&self, entry: EntryPlace, value: &[u8], set: &mut [u64]) -> bool {
        let Some(Ok(slot)) = self.slot(entry, value).map(Mutex::try_lock) else { return false };
        match &*slot {
            Some(known) if known.entry == entry && *known.value == *value && known.links.len() == set.len() => {
                set.copy_from_slice(&known.links);
                true
            }
            _ => false,
        }
    }

    /// Keeps the links that could match a value.
    pub fn keep(&self, entry: EntryPlace, value: &[u8], set: &[u64]) {
        if let Some(Ok(mut slot)) = self.slot(entry, value).map(Mutex::try_lock) {
            *slot = Some(RecentLook { entry, value: value.into(), links: set.into() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_is_found_for_its_entry_and_value_alone() {
        let recent = RecentLooks::default();
        let mut set = [0; 2];
        assert!(!recent.find((0, 1), b"Host", &mut set));
        recent.keep((0, 1), b"Host", &[5, 6]);
        assert!(!recent.find((0, 2), b"Host", &mut set) && !recent.find((0, 1), b"host", &mut set));
        assert!(recent.find((0, 1), b"Host", &mut set));
        assert_eq!(set, [5, 6]);
    }

    #[test]
    fn secrets_are_not_kept() {
        let suits = |name: &str| RecentLooks::suits(Variable::RequestHeaders, Some(name.as_bytes()));
        assert!(suits("User-Agent") && suits("host") && suits("Sec-Fetch-Mode"));
        assert!(!suits("Authorization") && !suits("Cookie") && !suits("X-Api-Key") && !suits("se"));
        assert!(!RecentLooks::suits(Variable::Args, Some(b"host")));
        assert!(RecentLooks::suits(Variable::RequestHeadersNames, Some(b"cookie")));
    }

    #[test]
    fn long_values_are_not_kept() {
        let recent = RecentLooks::default();
        let value = [b'a'; VALUE_BYTES_MAX + 1];
        recent.keep((0, 1), &value, &[5]);
        assert!(!recent.find((0, 1), &value, &mut [0]));
        assert!(recent.slots.get().is_none());
    }
}
